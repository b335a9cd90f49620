#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks that every header compiles by itself: headers.sh COMPILER. If clang is installed, it is used as well, because
# it reports errors that gcc does not report.
compilers=$1
command -v clang >/dev/null && compilers="$compilers clang"
bad=0
for header in $(find base topo net launch kernels doctor data models engine bench cli lab tests -name '*.h' | sort); do
    for compiler in $compilers; do
        echo "#include \"$header\"" |
            "$compiler" -std=c11 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -fsyntax-only -x c - || bad=1
    done
done
exit $bad
