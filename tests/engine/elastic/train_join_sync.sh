#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests ranks that join a synchronous job: train_join_sync.sh VERBENA. The job must go on with them, train on each
# sample of each epoch once, and end with equal parameters. Who may not join must be told why, and changes nothing.
#
# Covers: cli/train/train_call.c engine/run/run_job.c engine/elastic/same.c engine/elastic/send.c net/control/call.c
# shellcheck disable=SC2317
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
(umask 077 && head -c 32 /dev/urandom >"$dir/key" && head -c 32 /dev/urandom >"$dir/other")

# begin STEPS ARGUMENTS...: starts a job of two ranks. Sets $job to its process, and $doors to its addresses.
begin() {
    local steps=$1 i
    shift
    rm -rf "$dir/run" "$dir/ledger"
    timeout 150 "$verbena" train softmax --data synth:1000 --global-batch 60 --ranks 2 --steps "$steps" --json \
        --secret-file "$dir/key" --run "$dir/run" --ledger "$dir/ledger" "$@" >"$dir/out" 2>"$dir/err" &
    job=$!
    doors=''
    for ((i = 0; i < 600; i++)); do
        doors=$(jq -r '.run.join // empty' "$dir/run/run.json" 2>/dev/null)
        if [ -n "$doors" ] || ! kill -0 "$job" 2>/dev/null; then
            break
        fi
        sleep 0.05
    done
    [ -n "$doors" ] || fail "the job does not tell where it can be joined: $(cat "$dir/err")"
}

# join CODE TEXT ADDRESSES ARGUMENTS...: a rank joins, and must exit with CODE and say TEXT
join() {
    local want=$1 text=$2 at=$3
    shift 3
    timeout 120 "$verbena" train --join "$at" --json "$@" >"$dir/join.out" 2>"$dir/join.err"
    code=$?
    [ "$code" = "$want" ] || fail "--join $at $*: exit $code, expected $want: $(cat "$dir/join.err" "$dir/err")"
    grep -qF -- "$text" "$dir/join.out" "$dir/join.err" || fail "--join $at $*: no '$text': $(cat "$dir/join.err")"
}

# finish STEPS RANKS WHAT: the job must have made its steps, at the end with so many ranks
finish() {
    wait "$job"
    code=$?
    [ "$code" = 0 ] || fail "$3: the job: exit $code: $(cat "$dir/err")"
    final ".steps == $1 and (.per_rank | length) == $2" "$3"
    python3 "$(dirname "$0")/../check_ledger.py" "$dir/ledger" "$1" || fail "$3: the ledger is wrong"
    [ "$(grep -c "^{\"step\":$1," "$dir/ledger")" = "$2" ] || fail "$3: step $1 has not $2 ranks"
}

# ---- at the lead, and at another member ------------------------------------------------------------
for transport in shm tcp; do
    for at in lead other; do
        begin 12000 --transport $transport
        door=${doors%%,*}
        [ $at = lead ] || door=${doors##*,}
        join 0 '"joined":' "$door" --secret-file "$dir/key"
        finish 12000 3 "$transport, $at"
        jq -e '.per_rank[0].rank == 2 and .mode == "sync"' "$dir/join.out" >/dev/null ||
            fail "$transport, $at: $(cat "$dir/join.out")"
    done
done

# ---- two at once; one after another at the addresses of the start, of which one is dead ------------
begin 15000 --transport tcp
(timeout 120 "$verbena" train --join "$doors" --secret-file "$dir/key" >"$dir/first.out" 2>&1) &
first=$!
join 0 '"joined":' "127.0.0.1:1,$doors" --secret-file "$dir/key"
wait $first || fail "two joiners: $(cat "$dir/first.out")"
finish 15000 4 'two joiners'

# ---- a member dies while a rank joins, which calls again ---------------------------------------------
begin 8000 --ranks 3 --transport tcp --inject slow:0x20 # the joiner may wait 5 s before it calls again
mapfile -t pids < <(ranks_of "$(pgrep -P "$job" | head -n 1)")
"$verbena" train --join "$doors" --secret-file "$dir/key" >"$dir/join.out" 2>"$dir/join.err" &
joiner=$!
for ((i = 0; i < 2000; i++)); do
    [ ! -e "$dir/run/rank3/log.txt" ] || break # it has been invited
    sleep 0.01
done
kill -STOP $joiner
kill -KILL "${pids[2]}" || fail "called again: the job has ended: $(cat "$dir/err")"
for ((i = 0; i < 600; i++)); do
    ! grep -q 'rank 2 .*was lost' "$dir/err" || break
    sleep 0.05
done
kill -CONT $joiner
wait $joiner || fail "called again: $(cat "$dir/join.err")"
grep -q 'it calls the job again' "$dir/join.err" || fail "called again: it was not disturbed: $(cat "$dir/join.err" "$dir/err")"
finish 8000 3 'called again'

# ---- the lead dies later: the others, with the joiner, go on ----------------------------------------
begin 15000 --transport tcp --inject kill:0@11000
join 0 '' "$doors" --secret-file "$dir/key"
wait "$job"
[ "$(grep -c '^{"step":15000,' "$dir/ledger")" = 2 ] || fail "the lead died: $(tail -n 3 "$dir/ledger") $(cat "$dir/err" "$dir/join.err")"
python3 "$(dirname "$0")/../check_ledger.py" "$dir/ledger" 15000 || fail 'the lead died: the ledger is wrong'

# ---- the ranks of the start are lost, and the joiner finishes the job; the supervisor hears of losses as before ---
begin 13000 --transport tcp --inject stop:0@10000:60,kill:1@11000
join 0 '' "$doors" --secret-file "$dir/key"
wait "$job"
# the supervisor or another rank kills it
grep -qE 'rank 0 \(pid [0-9]+\) (is stopped \(SIGSTOP\) and is killed, because rank 1 has lost it|died: signal 9)' "$dir/err" ||
    fail "the joiner leads: rank 0 is not killed: $(cat "$dir/err")"
jq -e '.run.lead == 2 and .run.state == "ended" and .steps == 13000' "$dir/run/run.json" >/dev/null ||
    fail "the joiner leads: $(jq -c '.run.lead, .run.state, .steps' "$dir/run/run.json") $(cat "$dir/join.err")"

# ---- the joiner leads, and a rank that the supervisor has started again ends with it ---------------------
# lives N: waits until rank N makes steps
lives() {
    local i
    for ((i = 0; i < 1500; i++)); do
        [ ! -s "$dir/run/rank$1/steps.bin" ] || return
        sleep 0.02
    done
    fail "rank $1 makes no steps: $(cat "$dir/err")"
}

begin 20000 --transport tcp --restart 1 --inject slow:0x20 # until rank 0 is killed
mapfile -t pids < <(ranks_of "$(pgrep -P "$job" | head -n 1)")
"$verbena" train --join "$doors" --json --secret-file "$dir/key" >"$dir/join.out" 2>"$dir/join.err" &
joiner=$!
lives 2
kill -KILL "${pids[1]}"
lives 3
kill -KILL "${pids[0]}"
wait "$job" || fail "a stranger leads: the job: exit $?: $(cat "$dir/err")"
wait $joiner || fail "a stranger leads: the joiner: exit $?: $(cat "$dir/join.err")"
grep -q 'the result was printed by rank 2, which has joined and was not started here' "$dir/err" ||
    fail "a stranger leads: $(cat "$dir/err")"
[ ! -s "$dir/out" ] || fail "a stranger leads: $(cat "$dir/out")"
jq -e '[.per_rank[].rank] == [2, 3]' "$dir/join.out" >/dev/null ||
    fail "a stranger leads: $(cat "$dir/join.out" "$dir/join.err")"

# ---- a job that has lost too many ranks, and waits: one joiner after another, with checkpoints -----------
begin 4000 --ranks 3 --transport tcp --checkpoint "$dir/keep" --min-ranks 3 --wait-ranks 100
for ((i = 0; i < 600; i++)); do
    [ ! -s "$dir/ledger" ] || break
    sleep 0.05
done
mapfile -t pids < <(ranks_of "$(pgrep -P "$job" | head -n 1)")
kill -KILL "${pids[1]}" "${pids[2]}" || fail "too few: the job has ended: $(cat "$dir/err")"
(timeout 120 "$verbena" train --join "$doors" --secret-file "$dir/key" >"$dir/first.out" 2>&1) &
first=$!
now=$doors
for ((i = 0; i < 600; i++)); do
    now=$(jq -r '.run.join' "$dir/run/run.json" 2>/dev/null)
    [[ $now != *,* || $now = "$doors" ]] || break # the new group of two
    sleep 0.05
done
join 0 '"joined":' "$now" --secret-file "$dir/key"
wait $first || fail "too few: $(cat "$dir/first.out")"
finish 4000 3 'too few'
[ -s "$dir/keep/checkpoint-4000.vbc" ] || fail "too few: $(ls "$dir/keep")"

# ---- a checkpoint is always due, or under way ---------------------------------------------------------
for every in 1 3; do
    begin 16000 --transport shm --checkpoint "$dir/often" --checkpoint-every $every
    join 0 '"joined":' "$doors" --secret-file "$dir/key"
    finish 16000 3 "--checkpoint-every $every"
    rm -r "$dir/often"
done

# ---- who may not join -------------------------------------------------------------------------------
begin 15000 --transport tcp
join 1 'the secrets differ' "$doors" --secret-file "$dir/other"
join 2 'other data than the job' "$doors" --secret-file "$dir/key" --data synth:1200
join 2 '--join must be HOST:PORT' nonsense --secret-file "$dir/key"
join 2 '--join needs the job' "$doors"
finish 15000 2 'refused'
join 1 'no job listens at' "$doors" --secret-file "$dir/key" --timeout 20
begin 4000 --transport tcp --global-batch 2
join 1 'as many ranks as it can have' "$doors" --secret-file "$dir/key"
wait "$job"

[ "$bad" = 0 ] && echo "all joined"
exit "$bad"
