#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests jobs that lose more ranks than --min-ranks allows, and ranks that are started again: restart.sh VERBENA
#
# Covers: engine/run/run_wait.c launch/supervise/supervise_restart.c
set -uo pipefail
# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"
ranks_here "$1"

job=(train softmax --data synth:1000 --global-batch 60 --json)

# stop_job WHAT: ends the job in the background with SIGTERM, after which no process may be left
stop_job() {
    kill -TERM "$pid"
    wait "$pid"
    code=$?
    [ $code = 143 ] || fail "$1: exit $code: $(cat "$dir/err")"
    nothing_left "$1"
}

# ---- --min-ranks ----------------------------------------------------------------------------------

# Too few are left: they save, wait, and end with the checkpoint, from which the job goes on.
for transport in shm tcp; do
    rm -rf "$dir/keep"
    what="too few, $transport"
    under "$verbena" "${job[@]}" --steps 1500 --ranks 3 --transport $transport --checkpoint "$dir/keep" \
        --inject kill:0@500 --min-ranks 3 --wait-ranks 1
    [ "$code" = 1 ] || fail "$what: exit $code: $err"
    [[ $err =~ only\ 2\ of\ at\ least\ 3\ ranks\ \(--min-ranks\)\ are\ left\ at\ step\ ([0-9]+),\ and\ nobody\ has\ joined ]] ||
        fail "$what: $err"
    step=${BASH_REMATCH[1]}
    [[ $err == *"--resume goes on from the checkpoint $dir/keep/checkpoint-$step.vbc"* ]] || fail "$what: $err"
    [ ! -s "$dir/out" ] || fail "$what: $(cat "$dir/out")"
    under "$verbena" "${job[@]}" --steps 1500 --ranks 2 --transport $transport --checkpoint "$dir/keep" --resume
    [ "$code" = 0 ] || fail "$what, resumed: exit $code: $err"
    jq -e ".steps == 1500 and .resumed == $step" "$dir/out" >/dev/null || fail "$what, resumed: $(cat "$dir/out")"
done

# Enough are left.
under "$verbena" "${job[@]}" --steps 1500 --ranks 3 --inject kill:0@500 --min-ranks 2
[ "$code" = 0 ] || fail "enough: exit $code: $err"
jq -e '.steps == 1500' "$dir/out" >/dev/null || fail "enough: $(cat "$dir/out")"

# Those that wait can be stopped, and may die.
"$verbena" "${job[@]}" --steps 1500 --ranks 3 --inject kill:0@500 --min-ranks 3 --wait-ranks 600 >"$dir/out" \
    2>"$dir/err" </dev/null &
pid=$!
said 'training waits for others to join'
kill -KILL "$(by_age | grep -vx $pid | head -n 1)"
said 'rank 1 .*training goes on without it'
sleep 1
stop_job "stopped while it waits"
jq -e '.stopped == "SIGTERM"' "$dir/out" >/dev/null || fail "stopped while it waits: $(cat "$dir/out" "$dir/err")"

under "$verbena" "${job[@]}" --ranks 2 --min-ranks 3
[[ $code = 2 && $err == *'--min-ranks 3: the job begins with 2 ranks'* ]] || fail "--min-ranks 3: exit $code: $err"
under "$verbena" "${job[@]}" --ranks 2 --min-ranks 2 --elastic off
[[ $code = 2 && $err == *'--min-ranks needs --mode sync and --elastic on'* ]] || fail "--elastic off: exit $code: $err"

under "$verbena" "${job[@]}" --ranks 2 --wait-ranks 5
[[ $code = 2 && $err == *'--wait-ranks needs --min-ranks'* ]] || fail "--wait-ranks: exit $code: $err"
under "$verbena" "${job[@]}" --ranks 2 --mixed-cpus
[[ $code = 2 && $err == *'--mixed-cpus needs --join'* ]] || fail "--mixed-cpus: exit $code: $err"

# ---- --restart ------------------------------------------------------------------------------------

# makes_steps FOLDER: waits until the last rank of the job has made steps
makes_steps() {
    local i
    for ((i = 0; i < 500; i++)); do
        [ ! -s "$1/rank2/steps.bin" ] || return
        sleep 0.02
    done
}

# A worker of an asynchronous job that is killed is started again, twice and no more.
for transport in shm tcp; do
    what="restart, $transport"
    "$verbena" "${job[@]}" --mode async --ranks 3 --transport $transport --steps 100000000 --restart 2 --run "$dir/run-$transport" \
        >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    running 4
    makes_steps "$dir/run-$transport"
    sleep 1
    for slot in 3 4 5 6; do # as if somebody had joined there before
        mkdir -p "$dir/run-$transport/rank$slot"
        echo earlier >"$dir/run-$transport/rank$slot/log.txt"
    done
    for n in 1 2; do
        kill -KILL "$(by_age | tail -n 1)" # the youngest one
        said "rank 2 is started again \($n of 2, --restart\)"
        running 4
        sleep 3
    done
    kill -KILL "$(by_age | tail -n 1)"
    sleep 5
    [ "$(ours | wc -l)" = 3 ] || fail "$what: $(ours | wc -l) processes are there, expected 3: $(cat "$dir/err")"
    stop_job "$what"
    [ "$(wc -l <"$dir/out")" = 1 ] || fail "$what: more than the result was printed: $(cat "$dir/out")"
    [ "$(jq '[.faults[] | select(.what == "died")] | length' "$dir/out")" = 3 ] || fail "$what: $(cat "$dir/out")"
    for slot in 3 4 5 6; do
        grep -q earlier "$dir/run-$transport/rank$slot/log.txt" || fail "$what: the log of rank $slot begins anew"
    done
done

# joined N: waits until rank N, which was started again, makes steps
joined() {
    local i
    for ((i = 0; i < 1500; i++)); do
        [ ! -s "$dir/run/rank$1/steps.bin" ] || return
        sleep 0.02
    done
    fail "$what: rank $1 has not joined: $(cat "$dir/err")"
}

# A rank of a synchronous job, the lead or another one, comes back with another number. The second one to be killed is
# one that was started again. If it is stopped, it is killed, as others are.
for transport in shm tcp; do
    what="restart, sync, $transport"
    rm -rf "$dir/run"
    "$verbena" "${job[@]}" --ranks 3 --transport $transport --steps 100000000 --restart 2 --run "$dir/run" \
        >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    makes_steps "$dir/run"
    kill -KILL "$(by_age | grep -vx $pid | head -n 1)"
    said 'rank 0 is started again \(1 of 2, --restart\)'
    joined 3
    kill -KILL "$(by_age | tail -n 1)"
    said 'rank 3 \(pid [0-9]+\) died: signal 9 \(Killed\); training goes on without it'
    joined 4
    kill -STOP "$(by_age | tail -n 1)" # the supervisor or another rank kills it
    said 'rank 4 \(pid [0-9]+\) (is stopped \(SIGSTOP\) and is killed, because rank [12] has lost it|died: signal 9 \(Killed\), after rank [12] had lost it: silent for )'
    sleep 2
    [ "$(ours | wc -l)" = 3 ] || fail "$what: $(ours | wc -l) processes are there, expected 3: $(cat "$dir/err")"
    stop_job "$what"
    jq -e '.stopped == "SIGTERM" and [.per_rank[].rank] == [1, 2]' "$dir/out" >/dev/null ||
        fail "$what: $(jq -c '.stopped, [.per_rank[].rank]' "$dir/out") $(cat "$dir/err")"
done

# Three ranks must be there: the job waits for the one that is started again, and ends by itself.
under "$verbena" "${job[@]}" --ranks 3 --steps 3000 --inject kill:1@500 --min-ranks 3 --restart 1
[ "$code" = 0 ] || fail "--min-ranks and --restart: exit $code: $err"
jq -e '.steps == 3000 and [.per_rank[].rank] == [0, 2, 3]' "$dir/out" >/dev/null ||
    fail "--min-ranks and --restart: $(jq -c '.steps, [.per_rank[].rank]' "$dir/out") $err"

under "$verbena" "${job[@]}" --ranks 2 --restart 1 --elastic off
[[ $code = 2 && $err == *'--restart needs --elastic on'* ]] || fail "--restart, --elastic off: exit $code: $err"

# Where it could have no effect it is refused.
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
for how in '--ranks 1' "--rank 0 --world 2 --root 127.0.0.1:7000 --secret-file $dir/key" '--ranks 3 --staleness 0 --servers 2' \
    '--ranks 3 --max-workers 3'; do
    # shellcheck disable=SC2086
    under "$verbena" "${job[@]}" --mode async --restart 2 $how
    [[ $code = 2 && $err == *--restart* ]] || fail "--restart, $how: exit $code: $err"
done

# Workers join at rank 0. If that is gone, and the job goes on with its standby, nobody is started again.
"$verbena" "${job[@]}" --mode async --ranks 3 --servers 3 --replicas 2 --steps 100000000 --restart 5 --inject kill:0@200 \
    >"$dir/out" 2>"$dir/err" </dev/null &
pid=$!
said 'rank 0 is not started again: nobody can join without rank 0'
stop_job "rank 0 is gone"

# The user of the job stops it: a worker that was started again ends with the others, and does not leave before them.
# The run id in the environment, of which the secret is made, is that of all of them.
VB_RUN_ID=some-run "$verbena" "${job[@]}" --mode async --ranks 3 --steps 100000000 --restart 1 --inject kill:2@200 \
    >"$dir/out" 2>"$dir/err" </dev/null &
pid=$!
said 'rank [0-9]+ joined: from'
sleep 0.5
stop_job "stopped after a restart"
jq -e '.stopped == "SIGTERM" and ([.per_rank[] | select(.role == "worker")] | length) == 3' "$dir/out" >/dev/null ||
    fail "stopped after a restart: $(jq -c '[.per_rank[].rank]' "$dir/out") $(cat "$dir/err")"

[ $bad = 0 ] && echo "all tests passed: --min-ranks and --restart"
exit $bad
