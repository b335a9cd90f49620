# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Sourced by the scripts of this folder.

# median: of the numbers that come in, a line each. Of an even number the mean of the middle two; nothing of nothing.
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
