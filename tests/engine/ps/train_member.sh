#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests workers that die, are stopped, or join later: train_member.sh VERBENA [--full]. Training must continue without
# the missing workers for the requested number of steps and with the same quality. The final object must list what
# happened, and no process may be left. --full runs other cases: sparse rows, and a worker that is stopped for as long
# as the default timeouts. Without --full the timeouts are shorter.
#
# Covers: cli/train/cmd_train.c engine/async/train_async_board.c engine/async/train_join.c
# Covers: cli/run_joined.c cli/train/train_joined.c
# shellcheck disable=SC2317 # retry_if_too_short() calls functions
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
shift
full=${1:-}
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

softmax=(softmax --data synth:3000 --batch 50 --mode async --json)
sparse=(sparse-lr --data "synth:kind=criteo,n=60000,features=100000" --batch 50 --rule adagrad --mode async --json)

# measure_pace ARGUMENTS...: sets $steps to the number of steps that this machine makes in about 1 s, and $loss to the
# loss after one step
measure_pace() {
    ends 'true' "$@" --ranks 2 --steps 1
    loss=$(get .loss)
    ends 'true' "$@" --ranks 2 --steps 1000
    steps=$(get '.steps_per_s * 0.8 | floor | if . < 2000 then 2000 else . end')
}

# retry_if_too_short FUNCTION ARGUMENTS...: runs the function again with more steps if the job ended before the test had
# done its part
retry_if_too_short() {
    local try steps=$steps
    for try in 1 2 3 4; do
        short=''
        "$@"
        [ -n "$short" ] || return
        wait "$job"
        steps=$((2 * steps))
    done
    fail "$*: the job ended too soon, $try times: $(cat "$dir/err")"
}

# job_runs: succeeds if the job still runs; otherwise the job was too short, and $short is set
job_runs() {
    kill -0 "$job" 2>/dev/null && return
    short=1
    return 1
}

# finish FILTER WORDS...: fails unless the job succeeds, the jq filter is true for its final object, and no process of
# the job is left
finish() {
    local filter=$1 pid
    shift
    [ -z "$short" ] || return
    wait "$job"
    code=$?
    err=$(cat "$dir/err")
    [ "$code" = 0 ] || fail "$*: exit $code: $err"
    final "$filter and .steps == $steps and .staleness.gradients >= $steps and .loss < $loss and
        .staleness.gradients == ([.staleness.per_worker[].gradients] | add) and
        all(.per_rank[]; (.breakdown | add) - .train_s | fabs < 0.01)" "$@"
    for pid in "${ranks[@]}"; do
        ! kill -0 "$pid" 2>/dev/null || fail "$*: process $pid still runs"
    done
}

workers='[.per_rank[] | select(.role == "worker") | .rank]'
told='[.faults[] | [.rank, .what]]'

# Kills a worker in the middle of the training. The other workers must continue.
worker_deaths() { # worker_deaths TRANSPORTS ARGUMENTS...
    local transports=$1 transport
    shift
    for transport in $transports; do
        start $((steps / 10)) "$@" --steps "$steps" --ranks 3 --transport "$transport"
        job_runs && kill -9 "${ranks[2]}"
        finish "$workers == [0, 1] and $told == [[2, \"died\"]] and .ranks == 3 and .staleness.gradients == $steps and
            all(.faults[]; .at_s > 0 and .step > 0 and .step < $steps)" "$1 over $transport, a death"
        [ -z "$short" ] || return
        [[ $err == *"rank 2 was killed by signal 9; training goes on"* ]] || fail "a death is not reported: $err"
    done
}

# Kills worker 0, to which joiners connect and which would have reported the result.
first_rank() {
    start $((steps / 10)) "${softmax[@]}" --steps "$steps" --ranks 3 --dedicated-servers
    job_runs && kill -9 "${ranks[0]}"
    finish "$workers == [1, 2] and $told == [[0, \"died\"]] and (.checkpoint | test(\"checkpoint-$steps.vbc\"))" \
        "the death of rank 0"
}

# With a bound, no worker waits for a dead worker. With a bound of 0, the other workers take over the dead worker's
# share of the data.
deaths_with_a_bound() {
    start $((steps / 10)) "${softmax[@]}" --steps "$steps" --ranks 3 --staleness 2
    job_runs && kill -9 "${ranks[1]}"
    finish "$workers == [0, 2] and $told == [[1, \"died\"]] and .staleness.gradients == $steps" "a bound of 2, a death"
    [ -z "$short" ] || return
    local steps=$((steps / 3))
    start $((steps / 10)) "${softmax[@]}" --steps "$steps" --ranks 3 --staleness 0 --transport tcp
    job_runs && kill -9 "${ranks[1]}"
    finish "$workers == [0, 2] and $told == [[1, \"died\"]] and .staleness.max == 0" "a bound of 0, a death"
}

key() {
    head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$1"
    chmod 600 "$1"
}

# says TEXT: waits until the job prints TEXT
says() {
    local i
    for ((i = 0; i < 600; i++)); do
        grep -q "$1" "$dir/err" && return
        job_runs || return
        sleep 0.05
    done
    fail "the job did not print '$1': $(cat "$dir/err")"
}

# root: prints the address for joiners, which the job has printed
root() {
    sed -n 's/.*--join \([^ ]*\) .*/\1/p' "$dir/err"
}

# joins CODE TEXT ARGUMENTS...: starts a joiner, which must exit with CODE and print TEXT; stores its output in $said
joins() {
    local want=$1 text=$2
    shift 2
    [ -z "$short" ] || return
    said=$(timeout 60 "$verbena" train --join "$(root)" --secret-file "$dir/key" "$@" 2>&1)
    code=$?
    [ "$code" = "$want" ] || job_runs || return
    [ "$code" = "$want" ] || fail "--join $*: exit $code, expected $want: $said"
    [[ $said == *"$text"* ]] || fail "--join $*: '$said' does not contain '$text'"
}

a_worker_joins() { # a_worker_joins TRANSPORT ARGUMENTS...
    local transport=$1 steps=$((2 * steps))
    shift
    start $((steps / 10)) "$@" --steps "$steps" --ranks 2 --transport "$transport" --secret-file "$dir/key" --max-workers 3 \
        --run "$dir/run"
    joins 0 ""
    [ -n "$short" ] || jq -en 'input | .mode == "async" and (.joined | length) > 0 and .samples > 0 and .steps > 0 and
        [.per_rank[].rank] == [3]' <<<"$said" >/dev/null || fail "the joiner did not print what it did: $said"
    finish "$workers == [0, 1, 3] and $told == [[3, \"joined\"]] and
        (.staleness.per_worker[2] | .rank == 3 and .gradients > 0)" "$1 over $transport, a worker joins"
    [ -n "$short" ] || jq -e '[.run.ranks[] | [.rank, .role]] == [[0, "worker"], [1, "worker"], [3, "worker"]] and
        (.run.ranks[2] | .pid > 0 and (.host | length) > 0)' "$dir/run/run.json" >/dev/null ||
        fail "run.json lacks the joiner: $(jq -c .run.ranks "$dir/run/run.json")"
    [ -n "$short" ] || "$verbena" top "$dir/run" --once --json | jq -e '[.ranks[].rank] == [0, 1, 3] and
        (.ranks[2] | .step > 0 and (.host | length) > 0)' >/dev/null || fail "top does not show the joiner"
}

# A joiner that is refused prints the reason, and the job continues. A joiner that was admitted may die, and another
# joiner may use the same slot.
joiners_are_refused() {
    local pid steps=$((5 * steps))
    cp "$verbena" "$dir/another"
    echo >>"$dir/another"
    start $((steps / 10)) "${softmax[@]}" --steps "$steps" --ranks 2 --secret-file "$dir/key" --max-workers 3
    joins 1 "the secrets differ" --secret-file "$dir/other"
    joins 2 "the seed of this worker differs from that of the job" --seed 7
    joins 2 "--join starts one rank" --ranks 2
    joins 2 "are for 3 ranks and 7 joiners, but the job has 3 ranks and slots for 1 joiners" --max-workers 9
    verbena=$dir/another joins 1 "a different program"
    timeout 60 "$verbena" train --join "$(root)" --secret-file "$dir/key" >"$dir/late" 2>&1 &
    pid=$!
    says "rank 3 joined"
    joins 1 "no slot is free"
    kill -9 "$(pgrep -P "$pid")" 2>/dev/null
    { wait "$pid"; } 2>/dev/null
    says "rank 3 died"
    joins 0 ""
    finish "$workers == [0, 1, 3] and
        $told == [[3, \"joined\"], [3, \"died\"], [3, \"joined\"]]" "joiners, some refused"
    refused 2 "--join must be HOST:PORT" --join here --secret-file "$dir/key"
    refused 2 "--join needs the job's secret" --join 127.0.0.1:1
    refused 2 "--join starts one rank" --join 127.0.0.1:1 --secret-file "$dir/key" --dry-run
    refused 2 "--join starts one rank" --join 127.0.0.1:1 --secret-file "$dir/key" --hosts a,b
    refused 2 "--join takes no model" softmax --join 127.0.0.1:1 --secret-file "$dir/key"
    refused 1 "Connection refused" --join 127.0.0.1:1 --secret-file "$dir/key"
}

# If the command line of the job is too long to be sent to a joiner, joining must be disabled.
long_command_line() {
    local words
    mapfile -t words < <(yes -- --seed=1 | head -n 4000)
    ends '.steps == 20' "${softmax[@]}" --steps 20 --ranks 2 --secret-file "$dir/key" "${words[@]}"
    [[ $err == *"no worker can join this job: its command line is too long"* && $err != *"others can join"* ]] ||
        fail "a long command line: $err"
}

# stops SECONDS FILTER ARGUMENTS...: stops worker 2 for SECONDS; the jq filter must be true for the final object
stops() {
    local seconds=$1 filter=$2
    shift 2
    start $((steps / 10)) "$@" --steps "$steps" --ranks 3
    job_runs && kill -STOP "${ranks[2]}"
    sleep "$seconds"
    job_runs && kill -CONT "${ranks[2]}"
    [[ $filter != *rejoined* ]] || says "rank 4 rejoined"
    finish "$filter" "$1, a worker that is stopped for $seconds s"
}

stops_forever() { # the stopped worker ends when the job ends
    start $((steps / 10)) "${softmax[@]}" --steps "$steps" --ranks 3 --detect 0.9
    job_runs && kill -STOP "${ranks[2]}"
    says "rank 2 stopped"
    finish "$workers == [0, 1] and $told == [[2, \"stopped\"]]" "a worker that is stopped forever"
}

# A worker is stopped while it has a ticket, and the other worker runs out of tickets before the stopped worker is given
# up. The other worker must then get this ticket, although there was none when it asked.
last_ticket() {
    start $((steps / 10)) "${sparse[@]}" --steps "$steps" --ranks 2 --transport tcp --detect 1.8
    job_runs && kill -STOP "${ranks[1]}"
    says "rank 1 stopped"
    finish "$workers == [0] and $told == [[1, \"stopped\"]]" "a worker that is stopped with the last ticket"
}

stopped_workers() {
    local again="$workers == [0, 1, 4] and $told == [[2, \"stopped\"], [4, \"rejoined\"]]"
    if [ "$full" = --full ]; then
        steps=$((14 * steps))
        retry_if_too_short stops 10 "$again" "${softmax[@]}"
        retry_if_too_short stops 10 "$again" "${softmax[@]}" --transport tcp
        return
    fi
    retry_if_too_short stops 0.3 "$workers == [0, 1, 2] and .faults == []" "${softmax[@]}"
    steps=$((3 * steps))
    retry_if_too_short stops 1.5 "$again" "${softmax[@]}" --detect 0.9
    retry_if_too_short stops_forever
}

# by_hand RANK OUT: starts rank RANK of two workers and a server. Each rank has its own folder, as if on another host.
by_hand() {
    mkdir -p "$dir/hand/$1"
    (cd "$dir/hand/$1" && exec "$verbena" train "${softmax[@]}" --steps 200 --dedicated-servers --rank "$1" --world 3 \
        --root "127.0.0.1:$port" --secret-file "$dir/key" --checkpoint deep/keep >"$2" 2>err) &
}

# two_by_hand OUT: starts both workers and the server; rank 0 prints to OUT
two_by_hand() {
    local port=$((20000 + RANDOM % 9000)) # not a port that the kernel assigns
    rm -rf "$dir/hand"
    by_hand 0 "$1"
    ranks=($!)
    by_hand 1 out
    ranks+=($!)
    by_hand 2 out
    ranks+=($!)
}

# second_reports WORDS...: fails unless rank 1 has printed the result and written the checkpoint in place of rank 0
second_reports() {
    wait "${ranks[1]}" || fail "$*: rank 1: exit $?: $(cat "$dir/hand/1/err")"
    wait "${ranks[2]}" || fail "$*: the server: exit $?: $(cat "$dir/hand/2/err")"
    cp "$dir/hand/1/out" "$dir/out"
    final '.steps == 200 and (.checkpoint | test("checkpoint-200.vbc"))' "$*"
    [ -e "$dir/hand/1/deep/keep/checkpoint-200.vbc" ] || fail "$*: rank 1 has not written the checkpoint: $(cat "$dir/hand/1/err")"
}

# If the worker that reports the result cannot print it, or is killed while it prints, the next worker must report the
# result.
reporters() {
    local i
    two_by_hand /dev/full
    wait "${ranks[0]}" && fail "rank 0 could not print, but exited with 0"
    grep -q "writing to standard output failed" "$dir/hand/0/err" || fail "rank 0: $(cat "$dir/hand/0/err")"
    second_reports "a reporter that cannot print"

    mkfifo "$dir/full"
    exec 9<>"$dir/full"
    dd if=/dev/zero of="$dir/full" oflag=nonblock bs=4096 count=1024 2>/dev/null
    two_by_hand "$dir/full"
    for ((i = 0; i < 1200; i++)); do
        [ -e "$dir/hand/0/deep/keep/checkpoint-200.vbc" ] && break
        sleep 0.05
    done
    for ((i = 0; i < 40; i++)); do # rank 1 must not end before the result is printed: gives it time to end wrongly
        kill -0 "${ranks[1]}" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "${ranks[0]}"
    { wait "${ranks[0]}"; } 2>/dev/null
    exec 9>&-
    second_reports "a reporter that is killed"
}

key "$dir/key"
key "$dir/other"
if [ "$full" = --full ]; then
    measure_pace "${sparse[@]}"
    retry_if_too_short worker_deaths "shm tcp" "${sparse[@]}"
    retry_if_too_short a_worker_joins shm "${sparse[@]}"
    retry_if_too_short a_worker_joins tcp "${sparse[@]}"
    measure_pace "${softmax[@]}"
    stopped_workers
    exit "$bad"
fi
measure_pace "${softmax[@]}"
retry_if_too_short worker_deaths "shm tcp" "${softmax[@]}"
retry_if_too_short a_worker_joins tcp "${softmax[@]}"
retry_if_too_short first_rank
retry_if_too_short deaths_with_a_bound
retry_if_too_short joiners_are_refused
long_command_line
steps=3000 retry_if_too_short last_ticket
stopped_workers
reporters
exit "$bad"
