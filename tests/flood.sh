#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that strangers at the port of rank 0 neither prevent a job nor slow it down much nor fill its log, and that ranks
# that do not answer at the start are named: flood.sh VERBENA.
#
# Covers: net/control/accept.c net/control/rendezvous.c
set -uo pipefail
verbena=$(realpath "$1")
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
unset "${!VB_@}"
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}
command -v python3 >/dev/null || {
    echo "skipped: needs python3"
    exit 77
}
ulimit -n "$(ulimit -Hn)"

(umask 077 && head -c 32 /dev/urandom >"$dir/key")
# A port below those that Linux assigns.
port=$((10300 + $$ % 5000))

# job: trains on three ranks, over TCP; sets code, and seconds to the time that it took
job() {
    local args=(train softmax --data synth:2000 --steps 300 --world 3 --root "127.0.0.1:$port" --transport tcp
        --secret-file "$dir/key" --timeout 60) rank pids=() start
    start=$(date +%s%N)
    for rank in 1 2 0; do
        timeout 100 "$verbena" "${args[@]}" --rank $rank >"$dir/out$rank" 2>"$dir/err$rank" &
        pids+=($!)
    done
    code=0
    for rank in "${pids[@]}"; do
        wait "$rank" || code=$?
    done
    seconds=$((($(date +%s%N) - start) / 1000000000))
}

for kind in none silent half slow garbage; do
    stranger=
    if [ "$kind" != none ]; then
        python3 tests/support/strangers.py "$kind" "$port" &
        stranger=$!
        sleep 0.3 # so that strangers are the first to call
    fi
    job
    [ -z "$stranger" ] || { kill "$stranger" && wait "$stranger"; } 2>/dev/null
    echo "$kind: exit $code, $seconds s, $(cat "$dir"/err? | wc -l) lines"
    [ "$code" = 0 ] || fail "$kind: exit $code: $(cat "$dir"/err?)"
    [ "$seconds" -lt 45 ] || fail "$kind: it took $seconds s"
    lines=$(cat "$dir"/err? | wc -l)
    [ "$lines" -le 20 ] || fail "$kind: the log has $lines lines: $(cat "$dir"/err?)"
    port=$((port + 1))
done

# A rank that never calls is named early; one with another secret is refused on both sides.
(umask 077 && head -c 32 /dev/urandom >"$dir/other")
timeout 100 "$verbena" train softmax --data synth:2000 --world 3 --root "127.0.0.1:$port" --secret-file "$dir/key" \
    --timeout 6 --rank 0 >/dev/null 2>"$dir/err0" &
timeout 100 "$verbena" train softmax --data synth:2000 --world 3 --root "127.0.0.1:$port" --secret-file "$dir/other" \
    --timeout 6 --rank 1 >/dev/null 2>"$dir/err1"
wait %-
grep -q 'refused this rank: the secrets differ' "$dir/err1" || fail "rank 1 says: $(cat "$dir/err1")"
grep -q 'refused a connection from .*: the secrets differ' "$dir/err0" || fail "rank 0 says: $(cat "$dir/err0")"
grep -q 'still waiting for ranks 1 (refused: the secrets differ.*), 2 (never seen)' "$dir/err0" ||
    fail "rank 0 says: $(cat "$dir/err0")"

# Rank 0 is stopped before it answers anybody, and the others say so.
timeout 100 "$verbena" train softmax --data synth:2000 --world 2 --root "127.0.0.1:$((port + 1))" \
    --secret-file "$dir/key" --timeout 60 --rank 0 >/dev/null 2>"$dir/err0" &
rank0=$!
for ((i = 0; i < 300; i++)); do
    (: <"/dev/tcp/127.0.0.1/$((port + 1))") 2>/dev/null && break
    sleep 0.05
done
pkill -STOP -P $rank0
timeout 15 "$verbena" train softmax --data synth:2000 --world 2 --root "127.0.0.1:$((port + 1))" \
    --secret-file "$dir/key" --timeout 60 --rank 1 >/dev/null 2>"$dir/err1"
grep -q 'rank 0 at 127.0.0.1:.* has accepted the connection but not answered for 10 s' "$dir/err1" ||
    fail "rank 1 says: $(cat "$dir/err1")"
pkill -KILL -P $rank0

exit $bad
