#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests how a run is stopped, and who owns a folder of checkpoints: train_stop.sh VERBENA. The first Ctrl-C lets all
# ranks finish the same step, save and report; the second ends the job at once. A run that was stopped so and is resumed
# ends in the bits of a run that was not. A folder of checkpoints belongs to one job at a time.
#
# Covers: base/interrupt.c engine/run/run_stop.c engine/checkpoint/checkpoint_lock.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
set -m # background jobs do not ignore Ctrl-C

# begin ARGUMENTS...: starts a job with checkpoints in $dir/c, and waits for the first one
begin() {
    rm -rf "$dir/c"
    "$verbena" train "$@" --checkpoint "$dir/c" --json >"$dir/out" 2>"$dir/err" &
    job=$!
    for _ in $(seq 600); do
        compgen -G "$dir/c/checkpoint-*.vbc" >/dev/null && return
        kill -0 "$job" 2>/dev/null || fail "$*: the job ended: $(cat "$dir/err")"
        sleep 0.1
    done
    fail "$*: no checkpoint within 60 s"
}

# ended CODE WORDS...: waits for the job and checks its exit code
ended() {
    local code=$1 got
    shift
    wait "$job"
    got=$?
    [ "$got" = "$code" ] || fail "$*: exit $got, expected $code: $(cat "$dir/err")"
    [ -z "$(pgrep -f "$dir/c" || true)" ] || fail "$*: processes are left"
}

# stopped_and_resumed SIGNAL CODE ARGUMENTS...
stopped_and_resumed() {
    local signal=$1 code=$2 steps=20000 try
    shift 2
    for try in 1 2 3 4; do
        begin "$@" --steps "$steps" --checkpoint-every 100
        kill -"$signal" "$job" 2>/dev/null
        wait "$job" || break
        steps=$((4 * steps)) # the job ended before the signal
    done
    ended "$code" "$@" "$signal"
    final ".stopped == \"SIG$signal\" and .steps < $steps and .accuracy != null" "$@" "$signal"
    [ -s "$dir/c/checkpoint-$(jq .steps "$dir/out").vbc" ] || fail "$*: no checkpoint of the last step, try $try"
    "$verbena" train "$@" --steps "$steps" --checkpoint-every 100 --checkpoint "$dir/c" --resume --json \
        >"$dir/out" 2>"$dir/err" || fail "$*: cannot resume: $(cat "$dir/err")"
    final ".steps == $steps and .stopped == null" "$@"
    resumed=$(jq -r .params_sha256 "$dir/out")
    "$verbena" train "$@" --steps "$steps" --json >"$dir/out" 2>"$dir/err" || fail "$*: $(cat "$dir/err")"
    final ".params_sha256 == \"$resumed\"" "$@"
}

softmax=(softmax --data synth:3000 --batch 50 --seed 3)
stopped_and_resumed INT 130 "${softmax[@]}"
stopped_and_resumed TERM 143 "${softmax[@]}" --ranks 3 --transport shm
stopped_and_resumed INT 130 "${softmax[@]}" --ranks 2 --transport tcp

# a signal that only one rank receives stops all of them
begin "${softmax[@]}" --ranks 3 --steps 100000000 --checkpoint-every 100
kill -HUP "$(pgrep -P "$job" | tail -n 1)"
ended 129 'a rank that is told to stop'
final '.stopped == "SIGHUP"' 'a rank that is told to stop'
grep -q 'the job has stopped early, because a rank received signal 1' "$dir/err" || fail "no reason: $(cat "$dir/err")"

# the second signal does not wait for a rank that is stuck
begin "${softmax[@]}" --ranks 3 --steps 100000000 --checkpoint-every 100
kill -STOP "$(pgrep -P "$job" | tail -n 1)"
kill -INT "$job"
sleep 0.5
kill -0 "$job" || fail 'the first signal did not wait for the step'
kill -INT "$job"
ended 130 'the second signal'

# before training begins there is nothing to save
mkfifo "$dir/fifo"
"$verbena" train softmax --data "mnist:$dir/fifo" --ranks 2 >"$dir/out" 2>"$dir/err" &
job=$!
sleep 0.5
kill -INT "$job"
wait "$job"
[ -s "$dir/out" ] && fail 'a run that has not begun has reported'

# one folder, two jobs
begin "${softmax[@]}" --steps 100000000 --checkpoint-every 100
"$verbena" train "${softmax[@]}" --steps 100000000 --checkpoint "$dir/c" --resume >"$dir/out2" 2>"$dir/err2"
[ "$?" = 2 ] || fail "the folder of another job was taken: $(cat "$dir/err2")"
grep -q "belong to another job that is running (process $job on $(hostname), since" "$dir/err2" ||
    fail "the owner is not named: $(cat "$dir/err2")"
kill -KILL "$job"
wait "$job" 2>/dev/null
last=$(find "$dir/c" -name 'checkpoint-*.vbc' | wc -l)
[ "$last" -gt 0 ] || fail 'the second job has removed checkpoints'

"$verbena" train "${softmax[@]}" --steps 100000000 --checkpoint "$dir/c" --resume >"$dir/out" 2>"$dir/err" &
job=$!
sleep 1
kill -0 "$job" || fail "the folder of a dead job cannot be used: $(cat "$dir/err")"
kill -TERM "$job"
wait "$job"
exit $bad
