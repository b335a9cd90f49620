#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every header must compile by itself: headers.sh COMPILER. Also with clang if it is installed, because it reports
# errors that gcc does not.
compilers=$1
command -v clang >/dev/null && compilers="$compilers clang"
bad=0
for header in base/*.h topo/*.h net/*.h kernels/*.h data/*.h models/*.h engine/*.h bench/*.h bench/peers/*.h cli/*.h \
    lab/*.h tests/*.h; do
    for compiler in $compilers; do
        echo "#include \"$header\"" |
            "$compiler" -std=c11 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -fsyntax-only -x c - || bad=1
    done
done
exit $bad
