#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The installed libraries define no symbol without the prefix vb_: symbols.sh BUILD
# A program that links them may use any other name for its own functions.
set -euo pipefail

libraries=$(find "$1" -name 'libvb_*.a' -not -name 'libvb_bench.a')
[ -n "$libraries" ] || {
    echo "no library in $1"
    exit 1
}
# shellcheck disable=SC2086 # one word a library
others=$(nm -A -g --defined-only $libraries | awk 'NF >= 3 && $NF !~ /^vb_/ { print $NF " in " $1 }' | sort -u)
if [ -n "$others" ]; then
    echo "$others"
    echo "symbols of the installed libraries begin with vb_"
    exit 1
fi
# The check itself must see symbols, or it could not fail.
# shellcheck disable=SC2086
[ "$(nm -g --defined-only $libraries | grep -c ' vb_')" -gt 100 ]
