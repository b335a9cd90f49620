#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests synchronous jobs on this host that go on when ranks die: elastic.sh VERBENA
#
# Covers: launch/launch_reaped.c launch/supervise/supervise_elastic.c
set -uo pipefail
# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"
ranks_here "$1"

job=(train softmax --data synth:1000 --global-batch 60 --json)

# goes_on STEPS WHAT ARGUMENTS...: runs a job, which must make all steps although ranks die, and print one result
goes_on() {
    local steps=$1 what=$2
    shift 2
    under "$verbena" "${job[@]}" --steps "$steps" "$@"
    [ "$code" = 0 ] || fail "$what: exit $code: $err"
    [ "$(jq -s 'length == 1 and .[0].steps == '"$steps"' and .[0].stopped == null' "$dir/out")" = true ] ||
        fail "$what: $(cat "$dir/out" "$dir/err")"
    ! grep -q 'error launch/supervise' "$dir/err" || fail "$what: $err"
}

# named COUNT RANK WHAT: fails unless COUNT lines of the supervisor say that this rank was killed, with its process
named() {
    [ "$(grep -cE "^warn  launch/supervise: rank $2 \(pid [0-9]+\) died: signal 9 \(Killed\); training goes on without it\$" \
        "$dir/err")" = "$1" ] || fail "$3: rank $2 is not named $1 times: $err"
}

# ---- any rank may die, also rank 0, which prints the result otherwise -----------------------------
for transport in shm tcp; do
    for ranks in 2 3; do
        for ((victim = 0; victim < ranks; victim++)); do
            what="$transport, $ranks ranks, rank $victim killed"
            goes_on 1500 "$what" --ranks $ranks --transport $transport --inject kill:$victim@500
            named 1 $victim "$what"
        done
    done
    what="$transport, two of three ranks killed"
    goes_on 1500 "$what" --ranks 3 --transport $transport --inject kill:0@500,kill:1@503
    named 1 0 "$what"
    named 1 1 "$what"

    # A rank that is stopped is found by the others, and is not left behind: the supervisor or another rank kills it.
    for victim in 0 1; do
        what="$transport, rank $victim stopped"
        goes_on 1500 "$what" --ranks 2 --transport $transport --inject stop:$victim@500:60
        grep -qE "rank $victim \(pid [0-9]+\) (is stopped \(SIGSTOP\) and is killed, because rank [01] has lost it: silent for|died: signal 9)" \
            "$dir/err" || fail "$what: it is not named: $err"
        jq -e '.faults[0].phases.detect_s > 0.5' "$dir/out" >/dev/null ||
            fail "$what: the time that it was silent is missing: $(jq -c .faults "$dir/out")"
    done
done

# Two ranks of four stop at the same time, and none of the others is a majority.
goes_on 1500 "two of four stopped" --ranks 4 --inject stop:0@500:60,stop:1@500:60
[ "$(grep -c '^warn  launch/supervise: rank [01] ' "$dir/err")" = 2 ] || fail "two of four stopped: $err"

# ---- jobs that fail -------------------------------------------------------------------------------

# All ranks die: the last line says so, and names a rank.
under "$verbena" "${job[@]}" --steps 1500 --ranks 2 --inject kill:0@500,kill:1@502 --run "$dir/run"
[ "$code" = 1 ] || fail "all killed: exit $code: $err"
[[ $(tail -n 1 "$dir/err") == *"died: signal 9 (Killed), and no rank is left"* ]] || fail "all killed: $err"
jq -e '.run.state == "failed"' "$dir/run/run.json" >/dev/null || fail "all killed: $(jq -c .run.state "$dir/run/run.json")"

# With --elastic off, also from the environment, the job ends.
VB_ELASTIC=off under "$verbena" "${job[@]}" --steps 1500 --ranks 3 --inject kill:1@500
[ "$code" = 1 ] || fail "--elastic off: exit $code: $err"
grep -q '^error launch/supervise: rank 1 died: signal 9 (Killed)$' "$dir/err" || fail "--elastic off: $err"
[ ! -s "$dir/out" ] || fail "--elastic off: $(cat "$dir/out")"

under "$verbena" "${job[@]}" --mode async --elastic off --ranks 2
[[ $code = 2 && $err == *"an asynchronous job always goes on without workers that die"* ]] ||
    fail "--elastic off, async: exit $code: $err"

# ---- the user -------------------------------------------------------------------------------------

# start OPTIONS...: starts a long job in the background, sets pid, and returns when all ranks make steps
start() {
    local i
    rm -rf "$dir/run"
    "$verbena" "${job[@]}" --steps 100000000 --run "$dir/run" "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    for ((i = 0; i < 1500; i++)); do
        [ ! -s "$dir/run/rank0/steps.bin" ] || return
        sleep 0.02
    done
    fail "no steps were made: $(cat "$dir/err")"
}

rank_pid() {
    by_age | grep -vx "$pid" | sed -n "$(($1 + 1))p"
}

# Ctrl-C after a death: those that are left finish their step and report.
for transport in shm tcp; do
    start --ranks 3 --transport $transport
    kill -KILL "$(rank_pid 0)"
    said 'rank 0 .*training goes on without it'
    sleep 0.5
    kill -INT "$pid" 2>/dev/null
    kill -TERM "$pid" # background jobs of a shell ignore SIGINT
    wait "$pid"
    code=$?
    [ "$code" = 143 ] || fail "$transport, SIGTERM after a death: exit $code: $(cat "$dir/err")"
    jq -e '.stopped == "SIGTERM"' "$dir/out" >/dev/null || fail "$transport, SIGTERM after a death: $(cat "$dir/out" "$dir/err")"
    nothing_left "$transport, SIGTERM after a death"
done

# A supervisor that is killed leaves no ranks behind.
start --ranks 3
{ kill -KILL "$pid" && wait "$pid"; } 2>/dev/null
nothing_left "the supervisor killed"

[ $bad = 0 ] && echo "all tests passed: jobs go on when ranks die"
exit $bad
