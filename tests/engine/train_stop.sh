#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests how a run is stopped, and who owns a folder of checkpoints: train_stop.sh VERBENA. The first Ctrl-C lets all
# ranks finish the same step, save and report; the second ends the job at once. A run that was stopped so and is resumed
# ends in the bits of a run that was not. Asynchronous jobs end with the steps that have begun; a joiner only leaves. A
# folder of checkpoints belongs to one job at a time.
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
    local signal=$1 code=$2 steps=2000 try
    shift 2
    for try in 1 2 3 4 5 6; do
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
grep -q 'the job stops early: a rank was asked to, by signal 1 (Hangup)' "$dir/err" || fail "no reason: $(cat "$dir/err")"

# a rank that was stopped takes part again
for mode in sync async; do
    begin "${softmax[@]}" --mode $mode --ranks 3 --steps 100000000 --checkpoint-every 100
    kill -STOP "$(pgrep -P "$job" | tail -n 1)"
    kill -INT "$job"
    ended 130 "a rank was stopped, $mode"
    final '.stopped == "SIGINT" and (.per_rank | map(select(.role != "server")) | length) == 3' "a rank was stopped, $mode"
done

# the second signal does not wait for a step that takes long: 1000 times as long as it should
"$verbena" train lenet --data synth:3000 --batch 1000 --threads 1 --ranks 2 --slow 1:1000 >"$dir/out" 2>"$dir/err" &
job=$!
for _ in $(seq 600); do
    # a rank that catches SIGINT, bit 1, has begun
    ready=$(pgrep -P "$job" | while read -r p; do grep -c '^SigCgt:.*[2367abef]$' "/proc/$p/status"; done | grep -c 1)
    [ "$ready" = 2 ] && break
    sleep 0.1
done
kill -INT "$job"
sleep 0.5
kill -0 "$job" || fail "the first signal did not wait for the step: $(cat "$dir/err")"
kill -INT "$job"
ended 130 'the second signal'

# ---- asynchronous jobs ---------------------------------------------------------------------------

# async_stopped ARGUMENTS...: stops a job, and reads its last checkpoint
async_stopped() {
    local steps
    begin "$@" --mode async --steps 100000000 --checkpoint-every 100
    kill -INT "$job"
    ended 130 "$@"
    final '.stopped == "SIGINT" and .accuracy != null and .faults == []' "$@"
    [ ! -s "$dir/err" ] || fail "$*: standard error has '$(cat "$dir/err")'"
    steps=$(jq .steps "$dir/out")
    [ -s "$dir/c/checkpoint-$steps.vbc" ] || fail "$*: no checkpoint of step $steps: $(ls "$dir/c")"
    "$verbena" export "$dir/c/checkpoint-$steps.vbc" --out "$dir/params" --state >/dev/null 2>"$dir/err" ||
        fail "$*: the checkpoint cannot be read: $(cat "$dir/err")"
    rm -rf "$dir/params"
}

rows=(sparse-lr --data synth:3000 --batch 50 --features 10000 --seed 3)
async_stopped "${softmax[@]}"
async_stopped "${softmax[@]}" --ranks 3
async_stopped "${softmax[@]}" --ranks 2 --staleness 3 --servers 2 --transport tcp
async_stopped "${softmax[@]}" --ranks 2 --dedicated-servers --servers 2 --replicas 2
async_stopped "${softmax[@]}" --ranks 2 --hogwild
async_stopped "${rows[@]}" --ranks 2 --hogwild --rule sgd
async_stopped "${rows[@]}" --ranks 2 --transport tcp
# rounds have the bits of a run that was not stopped
stopped_and_resumed TERM 143 "${softmax[@]}" --ranks 3 --mode async --staleness 0 --replicas 2

# a signal that only one rank receives, a worker or a server, stops all of them
for line in 1 3; do
    begin "${softmax[@]}" --mode async --ranks 2 --dedicated-servers --steps 100000000 --checkpoint-every 100
    kill -HUP "$(pgrep -P "$job" | sed -n ${line}p)"
    ended 129 "a rank of an asynchronous job is told to stop: $line"
    final '.stopped == "SIGHUP" and .faults == []' "a rank of an asynchronous job is told to stop: $line"
done

# the server dies when it has been asked to stop the job: its standby stops it
begin "${softmax[@]}" --mode async --ranks 2 --dedicated-servers --replicas 2 --steps 100000000 --checkpoint-every 100
kill -INT "$job"
kill -KILL "$(pgrep -P "$job" | sed -n 3p)" 2>/dev/null
ended 130 'the server dies while the job stops'
final '.stopped == "SIGINT"' 'the server dies while the job stops'

# a joiner that is told to stop leaves; the job goes on
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
begin "${softmax[@]}" --mode async --ranks 2 --secret-file "$dir/key" --steps 100000000 --checkpoint-every 100
root=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' "$dir/err")
"$verbena" train --join "$root" --secret-file "$dir/key" --json >"$dir/out2" 2>"$dir/err2" &
joiner=$!
for _ in $(seq 600); do
    grep -q 'rank 3 joined' "$dir/err" && grep -q '^SigCgt:.*[2367abef]$' "/proc/$joiner/status" && break
    sleep 0.1
done
kill -INT "$joiner"
wait "$joiner"
[ "$?" = 130 ] || fail "the joiner did not stop: $(cat "$dir/err2")"
jq -e '.stopped == "SIGINT" and .left and .steps > 0' "$dir/out2" >/dev/null || fail "the joiner: $(cat "$dir/out2")"
kill -0 "$job" || fail "a joiner has stopped the job: $(cat "$dir/err")"
kill -INT "$job"
ended 130 'the job of a joiner'
final '.stopped == "SIGINT" and (.faults | map(.what)) == ["joined", "left"]' 'the job of a joiner'

# before training begins there is nothing to save
for mode in sync async; do # rank 1 never comes
    "$verbena" train softmax --mode $mode --rank 0 --world 2 --root 127.0.0.1:$((20000 + RANDOM % 10000)) \
        --secret-file "$dir/key" >"$dir/out" 2>"$dir/err" &
    job=$!
    sleep 0.5
    kill -INT "$job" || fail "a run that has not begun has ended: $(cat "$dir/err")"
    ended 130 'a run that has not begun'
    [ ! -s "$dir/out" ] || fail 'a run that has not begun has reported'
done

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
