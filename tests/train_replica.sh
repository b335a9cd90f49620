#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Servers with standbys in training: train_replica.sh VERBENA. A bound of 0 gives the bits of synchronous training.
# A server that is killed, alone or with the worker beside it, is followed by its standby: the job goes on, all
# steps are made, the loss falls, faults say what happened.
# shellcheck source=tests/command_test.sh
. "$(dirname "$0")/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

same_bits() { # same_bits MODEL RANKS OPTIONS...
    local model=$1 ranks=$2 args=("${@:3}") want transport
    ends 'true' "$model" "${args[@]}" --steps 30 --ranks "$ranks"
    want=$(get .params_sha256)
    for transport in shm tcp; do
        ends ".params_sha256 == \"$want\" and .steps == 30 and .faults == []" "$model" "${args[@]}" --steps 30 \
            --ranks "$ranks" --mode async --staleness 0 --transport $transport --servers 2 --replicas 2
    done
}

# Kills the process of a rank when there is a checkpoint; the job ends well.
kill_rank() { # kill_rank RANK SERVER STANDBY OPTIONS...
    local rank=$1 server=$2 standby=$3 pid victim i steps=3000 keep
    keep=$(mktemp -d -p "$dir")
    timeout 120 "$verbena" train lenet --data synth:1200 --batch 20 --lr 0.02 --mode async --ranks 2 --json \
        --replicas 2 --steps $steps --checkpoint "$keep" --checkpoint-every 200 "${@:4}" >"$dir/out" 2>"$dir/err" &
    pid=$!
    for ((i = 0; i < 1200; i++)); do
        [ -n "$(find "$keep" -name 'checkpoint-*.vbc')" ] && break
        sleep 0.05
    done
    victim=$(pgrep -P "$(pgrep -P $pid | head -n 1)" | sed -n "$((rank + 1))p")
    kill -9 "${victim:?no rank to kill}"
    wait $pid || fail "a server's death ends the job: $(cat "$dir/err")"
    tail -n 1 "$dir/out" | jq -e ".steps == $steps and .staleness.gradients == $steps and .loss < $first and
        .accuracy > 0.5 and any(.faults[]; .rank == $server and .what == \"died\" and .step < $steps and
            (.why | test(\"^server 0 .rank $server, .*its standby on rank $standby goes on at version\")))" >/dev/null ||
        fail "a server died: $(cat "$dir/err" "$dir/out")"
    [ -e "$keep/checkpoint-$steps.vbc" ] || fail "no last checkpoint after a server's death"
}

refused 2 "are for --mode async" softmax --replicas 2 --ranks 2
refused 2 "--replicas 2 needs a second rank" softmax --mode async --replicas 2
refused 2 "--replicas 2 needs a second rank" softmax --mode async --ranks 2 --hogwild --replicas 2
refused 2 "--replicas 3: must be from 1 to 2" softmax --mode async --ranks 2 --replicas 3
same_bits softmax 2 --data synth:1200 --batch 20 --clip 0
same_bits sparse-lr 3 --data synth:kind=criteo,n=3000,features=100000 --batch 20
ends 'true' lenet --data synth:1200 --batch 20 --lr 0.02 --steps 1
first=$(get .loss)
kill_rank 2 2 3 --transport tcp --dedicated-servers
kill_rank 0 2 3 --transport shm
exit "$bad"
