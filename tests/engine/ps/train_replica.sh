#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests training with servers that have standbys: train_replica.sh VERBENA. A bound of 0 gives the bits of synchronous
# training. If a server is killed, alone or with the worker on its host, its standby takes over. Then the job continues,
# all steps are made, the loss falls, and .faults lists the death.
#
# Covers: engine/ps/ps_failover.c engine/ps/ps_replica.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

same_bits() { # same_bits MODEL RANKS OPTIONS...
    local model=$1 n=$2 args=("${@:3}") want transport
    ends 'true' "$model" "${args[@]}" --steps 30 --ranks "$n"
    want=$(get .params_sha256)
    for transport in shm tcp; do
        ends ".params_sha256 == \"$want\" and .steps == 30 and .faults == []" "$model" "${args[@]}" --steps 30 \
            --ranks "$n" --mode async --staleness 0 --transport $transport --servers 2 --replicas 2
    done
}

# Kills the process of a rank after the first checkpoint. The job must still succeed.
without() { # without RANK SERVER STANDBY OPTIONS...
    local server=$2 standby=$3 steps=3000
    start 200 lenet --data synth:1200 --batch 20 --mode async --ranks 2 --json --replicas 2 --steps $steps \
        "${@:4}"
    kill_rank "$1"
    wait "$job" || fail "the job ended when a server died: $(cat "$dir/err")"
    final ".steps == $steps and .staleness.gradients == $steps and .loss < $first and
        .accuracy > 0.5 and any(.faults[]; .rank == $server and .what == \"died\" and .step < $steps and
            (.why | test(\"^server 0 .rank $server, .*its standby on rank $standby goes on at version\")))" \
        "a server died: $(cat "$dir/err")"
    [ -e "$dir/keep/checkpoint-$steps.vbc" ] || fail "the last checkpoint is missing after the death of a server"
}

# The process of rank 0, with a worker and the server, is stopped until the standby goes on. Rank 0 must then end,
# although it has the lowest rank: two servers of a shard must not both go on.
stopped_too_long() {
    local i
    start 200 lenet --data synth:1200 --batch 20 --mode async --ranks 2 --json --replicas 2 --steps 3000 \
        --transport tcp --detect 0.5
    kill -STOP "${ranks[0]}"
    for ((i = 0; i < 600; i++)); do
        grep -q "its standby on rank 3 goes on" "$dir/err" && break
        sleep 0.05
    done
    kill -CONT "${ranks[0]}"
    wait "$job" || fail "the job ended when a server was stopped: $(cat "$dir/err")"
    final '.steps == 3000 and .staleness.gradients == 3000 and
        any(.faults[]; .rank == 2 and .what == "stopped" and (.why | test("its standby on rank 3 goes on")))' \
        "a server was stopped: $(cat "$dir/err")"
    grep -q "goes on without it" "$dir/err" || fail "rank 0 does not say why it ends: $(cat "$dir/err")"
    ! grep -q "the server goes on alone" "$dir/err" || fail "both servers went on: $(cat "$dir/err")"
}

refused 2 "need --mode async" softmax --replicas 2 --ranks 2
refused 2 "--replicas 2 needs a second rank" softmax --mode async --replicas 2
refused 2 "--replicas 2 needs a second rank" softmax --mode async --ranks 2 --hogwild --replicas 2
refused 2 "--replicas 3: must be from 1 to 2" softmax --mode async --ranks 2 --replicas 3
same_bits softmax 2 --data synth:1200 --batch 20 --clip 0
same_bits sparse-lr 3 --data synth:kind=criteo,n=3000,features=100000 --batch 20
ends 'true' lenet --data synth:1200 --batch 20 --steps 1
first=$(get .loss)
without 2 2 3 --transport tcp --dedicated-servers
without 0 2 3 --transport shm
stopped_too_long
exit "$bad"
