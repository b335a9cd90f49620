# SPDX-License-Identifier: MIT
# shellcheck shell=bash

# median: prints the median of the numbers on standard input, one per line, or nothing if there are none
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
