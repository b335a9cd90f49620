#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests --detect on one host: detect.sh VERBENA. A stopped rank is found and said to be stopped; ranks that compute for
# long, or wait for a cpu on a crowded host, are not.
#
# Covers: net/control/times.c net/control/watch.c
set -uo pipefail
verbena=$(realpath "$1")
dir=$(mktemp -d /tmp/verbena-detect.XXXXXX)
unset "${!VB_@}"
busy=()
trap 'kill "${busy[@]}" 2>/dev/null; rm -rf "$dir"' EXIT
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

# ---- options -----------------------------------------------------------------------------------------------

# refused TEXT OPTIONS...
refused() {
    local text=$1
    shift
    "$verbena" train softmax --ranks 2 "$@" >"$dir/out" 2>"$dir/err"
    [ $? = 2 ] || fail "$*: not refused as wrong usage: $(cat "$dir/err")"
    grep -qF -- "$text" "$dir/err" || fail "$*: $(cat "$dir/err")"
}
refused '--detect 0.05: must be from 0.1 to 600' --detect 0.05
refused '--detect 601: must be from' --detect 601
refused '--detect nan' --detect nan
refused 'the time of silence and a heartbeat (5500 ms) must be shorter than the time that a rank waits for others (3000 ms)' \
    --detect 5 --timeout 3
refused 'a longer --timeout' --timeout 1

VB_DETECT=3 "$verbena" train softmax --data synth:600 --steps 5 --ranks 2 --run "$dir/run" --log-level info >"$dir/out" \
    2>"$dir/err" || fail "VB_DETECT=3: $(cat "$dir/err")"
[ "$(grep -c 'info .* times: silence 3000 ms: heartbeats every 500 ms' "$dir/err")" = 1 ] ||
    fail "VB_DETECT=3 is not logged once: $(grep times: "$dir/err")"
jq -e '.run.times | .silent_ms == 3000 and .beat_ms < .accuse_ms and .accuse_ms < .silent_ms
    and .silent_ms < .kernel_ms and .kernel_ms < .qp_ms and .timeout_ms == 60000' \
    "$dir/run/run.json" >/dev/null || fail "run.json: $(jq -c .run.times "$dir/run/run.json")"

# ---- a stopped rank --------------------------------------------------------------------------------------------

# found RANKS OPTIONS...: starts a long training, stops rank 1 once steps are made, and waits for a line that says so.
# Its time, in ms, is in $took.
found() {
    local i pid victim begin
    rm -rf "$dir/run"
    "$verbena" train softmax --data synth:1000 --steps 100000000 --global-batch 60 --run "$dir/run" "$@" >"$dir/out" \
        2>"$dir/err" </dev/null &
    pid=$!
    for ((i = 0; i < 3000; i++)); do
        [ ! -s "$dir/run/rank0/steps.bin" ] || break
        sleep 0.02
    done
    sleep 1
    victim=$(pgrep -P $pid | sort -n | sed -n 2p)
    kill -STOP "$victim" || fail "$*: there is no rank 1: $(cat "$dir/err")"
    begin=$(date +%s%N)
    for ((i = 0; i < 1500; i++)); do
        ! grep -qE 'rank 1 .*silent for' "$dir/err" || break
        sleep 0.02
    done
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $i -lt 1500 ] || fail "$*: nobody says that rank 1 is silent: $(cat "$dir/err")"
    kill -KILL "$victim"
    if [[ $* == *async* ]]; then # it goes on without the rank
        kill -TERM $pid
    fi
    wait $pid
}

for transport in shm tcp; do
    found --ranks 3 --elastic off --transport $transport
    [ "$took" -lt 20000 ] || fail "$transport: found after $took ms, far from 1 s"
    grep -qE 'rank 1 .* is lost: silent for [0-9.]+ s \(stopped\), when last heard [a-z ]+([0-9]+ )?in step [0-9]+' \
        "$dir/err" || fail "$transport: no line says what rank 1 did: $(cat "$dir/err")"
done
short=$took
found --ranks 3 --elastic off --detect 5
[ "$took" -ge 4000 ] || fail "--detect 5: found after $took ms"
[ "$took" -gt $((short * 5 / 4)) ] || fail "--detect 5 takes $took ms, and --detect 1 $short ms"
found --ranks 3 --mode async --detect 2
grep -qE 'rank 1 .*silent for [0-9.]+ s \(stopped\)' "$dir/err" || fail "async: $(cat "$dir/err")"

# ---- busy ranks ------------------------------------------------------------------------------------------------

# slow LIMIT OPTIONS...: rank 1 takes much longer for a step than a rank may be silent.
slow=(train mlp --data synth:600 --steps 2 --ranks 2 --test-limit 20 --inject slow:1x1000 --detect 0.2)
"$verbena" "${slow[@]}" --json >"$dir/out" 2>"$dir/err" || fail "slow: $(cat "$dir/err")"
jq -e '.train_s > 1' "$dir/out" >/dev/null || fail "slow: the steps were too short: $(jq .train_s "$dir/out")"
! grep -q 'silent for' "$dir/err" || fail "slow: $(cat "$dir/err")"

# Eight ranks and four processes that compute, on however few cpus.
for i in 1 2 3 4; do
    (while :; do :; done) &
    busy+=($!)
done
"$verbena" train softmax --data synth:4000 --steps 300 --ranks 8 --transport tcp --json >"$dir/out" 2>"$dir/err" ||
    fail "crowded: $(cat "$dir/err")"
! grep -q 'is lost' "$dir/err" || fail "crowded: $(cat "$dir/err")"
"$verbena" train softmax --data synth:4000 --steps 300 --ranks 8 --transport tcp --mode async --json >"$dir/out" \
    2>"$dir/err" || fail "crowded, async: $(cat "$dir/err")"
jq -e '.faults == []' "$dir/out" >/dev/null || fail "crowded, async: $(jq -c .faults "$dir/out")"

[ $bad = 0 ] && echo "all tests passed: a stopped rank found after $short ms, with --detect 5 later; busy ranks stay"
exit $bad
