#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every header compiles alone: headers.sh COMPILER
bad=0
for header in base/*.h topo/*.h net/*.h kernels/*.h data/*.h models/*.h engine/*.h bench/*.h bench/peers/*.h cli/*.h \
    lab/*.h tests/*.h; do
    echo "#include \"$header\"" |
        "$1" -std=c11 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -fsyntax-only -x c - || bad=1
done
exit $bad
