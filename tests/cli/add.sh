#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests verbena ctl RUN add: add.sh VERBENA [quick]. Ranks are added to running jobs on this host; tests/launch/hosts.sh
# adds them on others. "quick" tries shared memory alone, and no deaths.
#
# Covers: cli/cmd_ctl.c cli/train/train_add.c cli/train/train_ctl.c engine/run/run_ask.c
# Covers: launch/launch_ask.c launch/supervise/supervise_add.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"
ranks_here "$1"
what=ctl
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
run=$dir/run
job=(train softmax --data synth:3000 --global-batch 60 --seed 3)

# ---- what makes no sense
refused 2 'add takes HOST:N or N' "$dir" add
refused 2 'must be from 1 to 64 ranks' "$dir" add 0
refused 2 'must be from 1 to 64 ranks' "$dir" add 65
refused 2 'must be from 1 to 64 ranks' "$dir" add -- -1
refused 2 'at most 64 ranks' "$dir" add host:65
refused 2 'is not a host' "$dir" add host:0
refused 2 'is not a host' "$dir" add -- -oProxyCommand=true:1
refused 2 'is not a host' "$dir" add 'a b:1'
refused 1 'no job that listens writes to' "$dir" add 1

# begin COMMAND...: starts a job, and waits until it listens
begin() {
    rm -rf "$run"
    timeout 150 "$@" --run "$run" >"$dir/job" 2>"$dir/err" </dev/null &
    pid=$!
    for _ in $(seq 600); do
        [ -S "$run/ctl.sock" ] && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "$*: the job does not listen: $(cat "$dir/err")"
}

# asked CODE PATTERN ARGUMENTS...: ctl exits with this code, and prints a line that matches the pattern
asked() {
    local want=$1 pattern=$2 got
    shift 2
    timeout 100 "$verbena" ctl "$run" "$@" >"$dir/answer" 2>&1
    got=$?
    [ $got = "$want" ] || fail "ctl $*: exit $got, expected $want: $(cat "$dir/answer" "$dir/err")"
    grep -qE "$pattern" "$dir/answer" || fail "ctl $*: $(cat "$dir/answer")"
}

# added PATTERN ARGUMENTS...: the same, and the job says its steps per second
added() {
    local pattern=$1
    shift
    asked 0 "$pattern" add "$@"
    grep -qE '^steps/s: [0-9.]+ before, [0-9.]+ after$' "$dir/answer" || fail "add $*: no rates: $(cat "$dir/answer")"
}

# ended CODE FILTER WHAT: the job ends with this code, and with one result that makes the filter true
ended() {
    local got
    wait "$pid"
    got=$?
    [ "$got" = "$1" ] || fail "$3: exit $got, expected $1: $(cat "$dir/err")"
    [ "$(wc -l <"$dir/job")" = 1 ] || fail "$3: not one result: $(cat "$dir/job")"
    jq -e "$2" "$dir/job" >/dev/null || fail "$3: condition is false: $2: $(cut -c 1-1500 "$dir/job") $(cat "$dir/err")"
    nothing_left "$3"
}

# youngest_with RANK N: prints the one of the N youngest processes that writes the files of this rank
youngest_with() {
    local one
    for one in $(by_age | tail -n "$2"); do
        readlink "/proc/$one/fd/"* | grep -q "/rank$1/" && echo "$one"
    done
}

# ---- synchronous jobs: two come, then one, which is killed; one is removed
transports=(shm tcp)
[ "${2:-}" != quick ] || transports=(shm)
for transport in "${transports[@]}"; do
    how="sync, $transport"
    begin "$verbena" "${job[@]}" --steps 100000000 --ranks 2 --transport "$transport" --json --check-replicas 50
    added '^add: ranks 2, 3 and 4 have joined on host localhost$' localhost:3
    kill -KILL "$(youngest_with 4 3)"
    said 'rank 4 \(pid [0-9]+\) died: signal 9 \(Killed\); training goes on without it'
    said 'training goes on with 4 ranks'
    asked 0 '^remove: rank 2 has left$' remove 2
    timeout 100 "$verbena" ctl "$run" add 1 --json >"$dir/answer" 2>&1 || fail "$how: --json: $(cat "$dir/answer")"
    jq -e '.status == "done" and .ranks == [5] and .text == "rank 5 has joined" and .steps_per_s_before > 0 and
        .steps_per_s_after > 0' "$dir/answer" >/dev/null || fail "$how: --json: $(cat "$dir/answer")"
    [[ -e $run/rank3/log.txt && -s $run/rank5/steps.bin ]] || fail "$how: no files of the ranks: $(ls "$run" "$run"/rank[35])"
    asked 2 'the job has 4 ranks and can have 60, one for each sample of the global batch' add 57
    asked 2 'the ranks of this job are on one host' add somewhere:1
    asked 0 '^stop: ' stop
    ended 130 '[.per_rank[].rank] == [0, 1, 3, 5] and [.faults[] | [.what, .rank]] == [["rank lost", 4], ["removed", 2]]' "$how"
done

# ---- asynchronous jobs
for transport in "${transports[@]}"; do
    servers=()
    [ "$transport" = shm ] || servers=(--dedicated-servers)
    begin "$verbena" "${job[@]}" --mode async --steps 100000000 --ranks 2 --transport "$transport" "${servers[@]}" --max-workers 4 --json
    added '^add: ranks [0-9]+ and [0-9]+ have joined$' 2
    asked 2 'a process that was to join has ended before it did .*no slot is free' add 1
    kill -KILL "$(by_age | tail -n 1)"
    said 'rank [0-9]+ (was killed by|died: ).*training goes on'
    added '^add: rank [0-9]+ has joined$' 1
    asked 0 '^stop: ' stop
    ended 130 '.stopped == "SIGINT" and ([.per_rank[] | select(.role == "worker")] | length) == 4' "async, $transport"
done

# ---- jobs that nobody can join
begin "$verbena" "${job[@]}" --steps 100000000 --ranks 2 --elastic off --json
asked 2 'only a job of several ranks with --elastic on' add 1
asked 0 '^stop: ' stop
ended 130 '.stopped == "SIGINT"' "--elastic off"
if [ "${2:-}" = quick ]; then
    [ $bad = 0 ] && echo "all tests passed: ranks are added to running jobs"
    exit $bad
fi
begin "$verbena" "${job[@]}" --steps 100000000 --json
asked 2 'only a job of several ranks with --elastic on' add 1
asked 0 '^stop: ' stop
ended 130 '.stopped == "SIGINT"' "one rank"

# ---- a job that has lost all ranks of the start is finished by one that was added, and restarted ranks count, too
begin "$verbena" "${job[@]}" --steps 3000 --ranks 2 --inject slow:0x1000 --min-ranks 1 --json
added '^add: rank 2 has joined$' 1
for _ in 1 2; do
    kill -KILL "$(by_age | grep -vx "$pid" | sed -n 2p)" # the oldest one is the supervisor
    sleep 1
done
ended 0 '.steps == 3000 and [.per_rank[].rank] == [2]' "finished by one that was added"

# A rank that was added is started again if it dies, and the others wait for it if they are too few.
begin "$verbena" "${job[@]}" --steps 100000000 --ranks 2 --min-ranks 2 --wait-ranks 60 --restart 1 --json
added '^add: rank 2 has joined$' 1
asked 0 '^remove: rank 1 has left$' remove 1
kill -KILL "$(by_age | tail -n 1)"
said 'rank 2 is started again \(1 of 1, --restart\)'
said 'training waits for others to join'
for _ in $(seq 300); do
    [ ! -s "$run/rank3/steps.bin" ] || break
    sleep 0.1
done
asked 0 '^stop: ' stop
ended 130 '[.per_rank[].rank] == [0, 3] and .stopped == "SIGINT"' "an added rank is started again"

# ---- Ctrl-C of ctl leaves the job alone, and the rank comes
begin "$verbena" "${job[@]}" --steps 100000000 --ranks 2 --json
set -m
"$verbena" ctl "$run" add 1 >"$dir/answer" 2>&1 &
set +m
sleep 0.5
kill -INT $!
wait $!
[ $? = 130 ] || fail "Ctrl-C: $(cat "$dir/answer")"
said 'the user has added ranks \(verbena ctl\): rank 2 has joined'
asked 0 '^stop: ' stop
ended 130 '[.per_rank[].rank] == [0, 1, 2] and .faults == []' "Ctrl-C"

# ---- a rank that cannot join says why, and the job goes on
seq 300 | awk '{ print $1 % 2 ? 1 : -1, ($1 % 7 + 1) ":1", ($1 % 5 + 9) ":0.5" }' >"$dir/rows"
begin "$verbena" train sparse-lr --data "libsvm:$dir/rows" --test-split 0 --global-batch 20 --steps 100000000 --ranks 2 --json
mv "$dir/rows" "$dir/away"
asked 2 'a process that was to join has ended before it did \(exit code [0-9]+\): .*No such file' add 1
mv "$dir/away" "$dir/rows"
added '^add: rank [23] has joined$' 1
asked 0 '^stop: ' stop
ended 130 '(.per_rank | length) == 3 and .faults == []' "no data"

# ---- ranks that were started by hand: the answer is the command that starts another one
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
port=$((20000 + $$ % 10000))
for mode in sync async; do
    by_hand=(--mode "$mode" --steps 100000000 --world 2 --root "127.0.0.1:$port" --secret-file "$dir/key" --json)
    timeout 150 "$verbena" "${job[@]}" "${by_hand[@]}" --rank 1 >"$dir/out1" 2>"$dir/err1" </dev/null &
    other=$!
    begin "$verbena" "${job[@]}" "${by_hand[@]}" --rank 0
    asked 2 'start each rank yourself, with: verbena train --join ' add 1
    line=$(sed -n 's/.*with: verbena \(train --join .*\)$/\1/p' "$dir/answer")
    # shellcheck disable=SC2086
    timeout 150 "$verbena" $line --json >"$dir/out2" 2>"$dir/err2" </dev/null &
    third=$!
    for _ in $(seq 300); do
        ! grep -q '"what": *"joined"' "$run/events.jsonl" 2>/dev/null || break
        sleep 0.1
    done
    asked 0 '^stop: ' stop
    wait $other $third
    ended 130 '.stopped == "SIGINT" and ([.per_rank[] | select(.role != "server")] | length) == 3' "by hand, $mode, $(cat "$dir/err2")"
done

[ $bad = 0 ] && echo "all tests passed: ranks are added to running jobs"
exit $bad
