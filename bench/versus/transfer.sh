# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # bench/compare sets the options
#
# bench/compare: transfers beside iperf3 and bare loops.

ours() { # ours TRANSPORT BYTES KEY [OPTIONS...]
    limited build/verbena bench transfer --ranks 2 --transport "$1" --sizes "$2" --seconds 0.3 --json "${@:4}" |
        jq -r "select(.transport == \"$1\" and .op == \"put\" and .dir == \"uni\") | .$3"
}

bare() { limited build/bench/bare "$1" "$2" | jq -r ".$3"; }

iperf() { # iperf BLOCK
    local port=$((20000 + RANDOM % 20000))
    iperf3 -s -1 -p "$port" >/dev/null 2>&1 &
    sleep 0.2
    iperf3 -c 127.0.0.1 -p "$port" -t 1 -l "$1" -J | jq -r '.end.sum_received.bits_per_second / 8e9'
    wait
}

# against NAME TRANSPORT BYTES KEY [OPTION...] -- PEER_COMMAND...: prints both medians and their ratio
against() {
    local name=$1 a b
    shift
    alternate ours "$@" || return 0
    row "$1 $2, ${3%_p50}" "$name" "$([ "$3" = gb_s ] && echo GB/s || echo us)" "$([ "$3" = gb_s ] && echo high || echo low)"
    a=$(median <"$dir/a") b=$(median <"$dir/b")
    printf '%-4s %9s %-11s %10.3f   %-14s %10.3f   ratio %.2f\n' "$1" "$2" "$3" "$a" "$name" "$b" \
        "$(jq -n "$a / $b")"
}

transfer() {
    against bare shm 64 lat_us_p50 -- bare shm 64 lat_us_p50
    against memcpy shm 1M gb_s -- bare shm 1048576 gb_s
    if [ -n "$quick" ]; then
        against bare tcp 64 lat_us_p50 -- bare tcp 64 lat_us_p50
        return
    fi
    against memcpy shm 64M gb_s -- bare shm 67108864 gb_s
    against bare tcp 64 lat_us_p50 -- bare tcp 64 lat_us_p50
    against "bare, asleep" tcp 64 lat_us_p50 --spin off -- bare tcp-asleep 64 lat_us_p50
    if ! command -v iperf3 >/dev/null; then
        without iperf3 "install iperf3"
    else
        against "iperf3 -l 1M" tcp 1M gb_s -- iperf 1M
        against "iperf3" tcp 1M gb_s -- iperf 128K
    fi
}
