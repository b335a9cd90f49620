#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Checks that all symbols of the installed libraries begin with vb_: symbols.sh BUILD. So a program that uses the
# libraries may give its own functions any other name.
set -euo pipefail

libraries=$(find "$1" -name 'libvb_*.a' -not -name 'libvb_bench.a')
[ -n "$libraries" ] || {
    echo "no library in $1"
    exit 1
}
# shellcheck disable=SC2086 # must be split into libraries
others=$(nm -A -g --defined-only $libraries | awk 'NF >= 3 && $NF !~ /^vb_/ { print $NF " in " $1 }' | sort -u)
if [ -n "$others" ]; then
    echo "$others"
    echo "symbols of the installed libraries begin with vb_"
    exit 1
fi
# The libraries must have symbols, otherwise this check could not fail.
# shellcheck disable=SC2086
[ "$(nm -g --defined-only $libraries | grep -c ' vb_')" -gt 100 ]
