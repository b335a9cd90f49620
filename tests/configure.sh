#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Checks that the configuration stops if a library is missing, and that the message names the package of the library.
set -uo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0

# without MODULE: makes a copy of the pkg-config files without this module
without() {
    rm -rf "$dir/pc"
    mkdir "$dir/pc"
    pkg-config --variable pc_path pkg-config | tr : '\n' | while read -r from; do
        [ -d "$from" ] && cp -Ln "$from"/*.pc "$dir/pc/" 2>/dev/null
    done
    rm -f "$dir/pc/$1.pc"
}

# stops_with TEXT ARGUMENTS...: fails unless cmake fails and prints TEXT
stops_with() {
    local text=$1
    shift
    if PKG_CONFIG_LIBDIR=$dir/pc cmake -S . -B "$dir/build" -G Ninja "$@" >"$dir/out" 2>&1; then
        echo "FAIL: the configuration succeeded without $text"
        bad=1
    elif ! grep -q -- "$text" "$dir/out"; then
        echo "FAIL: '$text' is missing in:"
        cat "$dir/out"
        bad=1
    fi
    rm -rf "$dir/build"
}

for pair in libibverbs:libibverbs-dev librdmacm:librdmacm-dev hwloc:libhwloc-dev \
    libsodium:libsodium-dev pmix:libpmix-dev openblas:libopenblas-dev jansson:libjansson-dev zlib:zlib1g-dev cmocka:libcmocka-dev; do
    without "${pair%:*}"
    stops_with "${pair#*:}: "
done
without nothing
stops_with "libdnnl-dev: " -DDNNL_LIBRARY=DNNL_LIBRARY-NOTFOUND -DCMAKE_LIBRARY_PATH= \
    -DCMAKE_FIND_ROOT_PATH="$dir" -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY
exit $bad
