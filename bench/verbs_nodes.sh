#!/bin/sh
# SPDX-License-Identifier: MIT
#
# On two nodes of the lab, once each: perftest and ours over the same devices, in turn. Node 0
# prints "WHAT BYTES FIGURE" lines. Usage: verbs_nodes.sh VERBENA ROUNDS
set -eu
verbena=$1 rounds=$2

# perftest NAME BYTES TIMES COLUMN: MB/s (of 2^20 bytes) or us
perftest() {
    if [ "$VB_RANK" = 1 ]; then
        "$1" -R -F -s "$2" -n "$3" >/dev/null
        return
    fi
    sleep 0.5
    for try in 1 2 3 4 5 6 7 8; do
        if "$1" -R -F -s "$2" -n "$3" node1 >/tmp/out 2>/tmp/err; then
            awk -v what="$1" -v bytes="$2" -v column="$4" '$1 == bytes { print what, bytes, $column }' \
                /tmp/out
            return
        fi
        sleep "$try"
    done
    cat /tmp/err >&2
    exit 1
}

ours() {
    "$verbena" bench transfer --transport verbs --sizes 64,64K,1M --seconds 1 --json |
        sed -nE 's/.*"transport":"verbs".*"bytes":([0-9]+),.*"op":"(put|get)","dir":"uni","lat_us_p50":([-0-9.e+]+),.*"gb_s":([-0-9.e+]+).*/\2 \1 \3 \4/p' |
        awk '{ print $1 "_lat", $2, $3; print $1 "_bw", $2, $4 * 1e9 / 1048576 }'
}

round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    perftest ib_write_bw 65536 300 4
    ours
    perftest ib_read_bw 65536 300 4
    perftest ib_send_lat 64 500 5
    perftest ib_write_lat 64 500 5
    perftest ib_write_bw 1048576 30 4
    perftest ib_read_bw 1048576 30 4
done
