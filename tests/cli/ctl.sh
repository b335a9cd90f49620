#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests verbena ctl: ctl.sh VERBENA. A running job writes a checkpoint, does without ranks, and stops, when it is asked to.
#
# Covers: cli/cmd_ctl.c cli/train/train_ctl.c engine/run/run_ask.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=ctl
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
run=$dir/run
job=(train softmax --data synth:3000 --global-batch 60 --seed 3 --steps 100000000)

# ---- what makes no sense
refused 2 'name a run folder and a command'
refused 2 'name a run folder and a command' "$dir"
refused 2 'unknown command' "$dir" explode
refused 2 'remove takes the number of a rank' "$dir" remove
refused 2 'the others take nothing' "$dir" stop 3
refused 2 "'x' is not the number of a rank" "$dir" remove x
refused 2 "'-1' is not the number of a rank" "$dir" remove -- -1
refused 2 "'4294967297' is not the number of a rank" "$dir" remove 4294967297
refused 2 "'+1' is not the number of a rank" "$dir" remove +1
refused 1 'cannot open the run folder' "$dir/none" stop
refused 1 'no job that listens writes to' "$dir" stop

# begin OPTIONS...: starts a job, and waits until it listens
begin() {
    rm -rf "$run" "$dir/c"
    timeout 120 "$verbena" "${job[@]}" --run "$run" --json "$@" >"$dir/job" 2>"$dir/job.err" &
    job_pid=$!
    for _ in $(seq 600); do
        [ -S "$run/ctl.sock" ] && return
        kill -0 "$job_pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "$*: the job does not listen: $(cat "$dir/job.err")"
}

# ended CODE FILTER: the job ends with this code, and with one result that makes the filter true
ended() {
    wait "$job_pid"
    local got=$?
    [ "$got" = "$1" ] || fail "exit $got, expected $1: $(cat "$dir/job.err")"
    [ "$(wc -l <"$dir/job")" = 1 ] || fail "not one result: $(cat "$dir/job")"
    jq -e "$2" "$dir/job" >/dev/null || fail "condition is false: $2: $(cut -c 1-1500 "$dir/job")"
    [ ! -e "$run/ctl.sock" ] || fail "the socket is left"
}

# said TEXT ARGUMENTS...: the command succeeds and says so
said() {
    local text=$1
    shift
    run "$run" "$@"
    [ "$code" = 0 ] || fail "ctl $*: exit $code: $err $(tail -n 3 "$dir/job.err")"
    grep -q "$text" "$dir/out" || fail "ctl $*: $(cat "$dir/out")"
}

# ---- one rank, three ranks on this host, over TCP
for how in '--ranks 1' '--ranks 3' '--ranks 3 --transport tcp'; do
    # shellcheck disable=SC2086
    begin $how --checkpoint "$dir/c" --checkpoint-every 100000000
    [ "$(stat -c %a "$run/ctl.sock")" = 600 ] || fail "the mode of the socket: $(stat -c %a "$run/ctl.sock")"
    for _ in 1 2; do
        said '^checkpoint: .*/checkpoint-[0-9]*\.vbc$' checkpoint
        grep -qE '^steps/s: [0-9.]+ before, [0-9.]+ after$' "$dir/out" || fail "$how: no rates: $(cat "$dir/out")"
        path=$(sed -n 's/^checkpoint: //p' "$dir/out")
        "$verbena" eval "$path" --json >"$dir/eval" 2>&1 || fail "$how: $path: $(cat "$dir/eval")"
    done
    run "$run" remove 7
    [[ $code = 2 && $err =~ 'is not a rank of this job'|'only a job of several ranks' ]] || fail "$how: no such rank: exit $code: $err"
    said '^stop: ' stop
    ended 130 '.stopped == "SIGINT" and .faults == [] and .accuracy != null'
done

# ---- ranks are removed, one after another, also the one that reports
for how in '--transport shm' '--transport tcp'; do
    # shellcheck disable=SC2086
    begin $how --ranks 4
    for rank in 2 0; do
        said "^remove: " remove $rank
    done
    for _ in $(seq 100); do # the next rank listens
        run "$run" remove 3 --json
        [ "$code" = 0 ] && break
        sleep 0.1
    done
    [ "$code" = 0 ] || fail "$how: rank 3 was not removed: $err"
    jq -e '.status == "done" and .steps_per_s_before > 0 and .steps_per_s_after > 0' "$dir/out" >/dev/null ||
        fail "$how: $(cat "$dir/out")"
    run "$run" remove 1
    [[ $code = 2 && $err == *'the only rank that is left'* ]] || fail "$how: the last rank: exit $code: $err"
    run "$run" checkpoint
    [[ $code = 2 && $err == *'no folder for checkpoints'* ]] || fail "$how: no folder: exit $code: $err"
    said '^stop: ' stop
    "$verbena" top "$run" --once >"$dir/top"
    [ "$(grep -c ' removed after step ' "$dir/top")" = 3 ] || fail "$how: top: $(cat "$dir/top")"
    ended 130 '[.faults[] | [.what, .rank]] == [["removed", 2], ["removed", 0], ["removed", 3]] and
        [.per_rank[].rank] == [1] and .stopped == "SIGINT"'
    "$verbena" report "$run" --no-png >/dev/null 2>&1
    grep -q 'Rank 2 (host .*) was removed after step' "$run/report.html" || fail "$how: the page calls rank 2 lost"
    ! grep -q 'died\|lost\|^error' "$dir/job.err" || fail "$how: $(cat "$dir/job.err")"
done

# ---- a job that waits because too few ranks are left
begin --ranks 2 --min-ranks 2 --wait-ranks 600 --checkpoint "$dir/c" --inject kill:1@300
for _ in $(seq 600); do
    ! grep -q 'training waits for others to join' "$dir/job.err" || break
    sleep 0.1
done
said '^checkpoint: .*/checkpoint-[0-9]*\.vbc$' checkpoint
run "$run" remove 0
[[ $code = 2 && $err == *'the job waits for others'* ]] || fail "waits: exit $code: $err"
said '^stop: ' stop
ended 130 '.stopped == "SIGINT" and .steps > 0'

# ---- asynchronous jobs
begin --mode async --ranks 2
run "$run" checkpoint
[[ $code = 2 && $err == *'only synchronous jobs'* ]] || fail "async: exit $code: $err"
said '^stop: ' stop
ended 130 '.stopped == "SIGINT"'
exit $bad
