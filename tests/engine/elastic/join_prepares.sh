#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that the members of a synchronous job do not wait for a rank that prepares itself to join: join_prepares.sh
# VERBENA. A joiner that stops meanwhile does not stop them, and joins when it goes on. One that dies leaves no trace.
#
# Covers: engine/run/run_form.c net/control/callers.c
# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../../support/launch_test.sh"
ranks_here "$1"
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
touch "$dir/ledger" "$dir/err"

# steps_done: prints the number of steps in the ledger
steps_done() {
    grep -c '"rank":0' "$dir/ledger"
}

# makes_steps N WHAT: waits until the job has made N steps more; WHAT describes the moment
makes_steps() {
    local i from
    from=$(steps_done)
    for ((i = 0; i < 1500; i++)); do
        [ "$(steps_done)" -lt $((from + $1)) ] || return 0
        sleep 0.02
    done
    fail "$2: $from steps, and later $(steps_done): $(tail -n 3 "$dir/err")"
    return 1
}

# calls: starts a joiner, and stops it as soon as the lead knows of it. Sets $joiner.
calls() {
    local i before
    before=$(grep -c 'wants to join' "$dir/err")
    "$verbena" train --join "$doors" --secret-file "$dir/key" >"$dir/join" 2>&1 </dev/null &
    joiner=$!
    for ((i = 0; i < 3000; i++)); do
        [ "$(grep -c 'wants to join' "$dir/err")" = "$before" ] || break
        sleep 0.01
    done
    kill -STOP $joiner || fail "the joiner has ended: $(cat "$dir/join")"
}

"$verbena" train mlp --data synth:30000 --global-batch 60 --steps 1000000 --ranks 2 --transport tcp --log-level info \
    --secret-file "$dir/key" --run "$dir/run" --ledger "$dir/ledger" >"$dir/out" 2>"$dir/err" </dev/null &
pid=$!
makes_steps 1 'the beginning' || exit 1
doors=''
for ((i = 0; i < 600; i++)); do
    doors=$(jq -r '.run.join // empty' "$dir/run/run.json" 2>/dev/null)
    [ -z "$doors" ] || break
    sleep 0.05
done

calls
makes_steps 300 'a joiner that prepares itself has stopped'
kill -KILL $joiner
wait $joiner 2>/dev/null
makes_steps 300 'a joiner that prepared itself has died'
grep -q 'no new group\|was lost' "$dir/err" && fail "a joiner that prepared itself has died: $(cat "$dir/err")"

calls
makes_steps 300 'another joiner that prepares itself has stopped'
kill -CONT $joiner
for ((i = 0; i < 3000; i++)); do
    ! grep -q 'rank joined: training goes on with 3' "$dir/err" || break
    sleep 0.02
done
makes_steps 10 'a rank has joined'
kill -TERM $pid
wait $pid
code=$?
wait $joiner
grep -q 'rank joined: training goes on with 3' "$dir/err" || fail "nobody has joined: $(cat "$dir/err" "$dir/join")"
[ "$code" = 0 ] || [ "$code" = 143 ] || fail "the job: exit $code: $(tail -n 5 "$dir/err")"
nothing_left 'the end'

[ $bad = 0 ] && echo "all tests passed: members do not wait for a joiner that prepares itself"
exit $bad
