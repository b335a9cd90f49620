# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Defines median. The scripts of this folder source this file.

# median: prints the median of the numbers on standard input, one per line. The median of an even
# number of values is the mean of the middle two. If there are no numbers, nothing is printed.
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
