#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests training with the parameter server: train_async.sh VERBENA MODEL... For each model, over shared memory and TCP:
# the loss falls, the requested number of gradients is applied, staleness is reported and within its bound, and a bound
# of 0 gives the bits of synchronous training. If a server dies, the job ends and names the last checkpoint. Some words
# are not models: mnist tests the accuracies on real digits, five tests LeNet and AlexNet (with images of 32 x 32) with
# 5 workers, usage tests wrong options, and ways tests other options, a slow worker, checkpoints and the death of a
# server.
#
# Covers: engine/async/train_async.c engine/async/train_async_dense.c
# Covers: engine/async/train_async_result.c
# Covers: engine/async/train_async_server.c engine/async/train_async_sparse.c
# Covers: engine/async/train_async_worker.c engine/train/train_recipe.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
shift
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

declare -A data=(
    [softmax]="--data synth:1200 --batch 20"
    [lenet]="--data synth:1200 --batch 20"
    [sparse-lr]="--data synth:kind=criteo,n=3000,features=100000 --batch 20"
    [alexnet]="--data synth:n=64,test=16 --input 32 --batch 10 --lr 0.001"
    [alexnet224]="--data synth:n=12,test=4 --batch 4 --lr 0.001"
)

# A jq filter that is true for every run.
rows='(.per_rank | map(select(.role == "server")) | length) >= 1 and
    all(.per_rank[]; (.breakdown | add) - .train_s | fabs < 0.01) and
    .staleness.gradients == ([.staleness.per_worker[].gradients] | add) and
    .staleness.gradients == ([.staleness.histogram[]] | add)'

loss_falls() { # loss_falls MODEL STEPS RANKS...
    local model=${1%224} steps=$2 args first ranks transport
    read -ra args <<<"${data[$1]}"
    ends 'true' "$model" "${args[@]}" --steps 1
    first=$(get .loss)
    for transport in shm tcp; do
        for ranks in "${@:3}"; do
            ends ".loss < $first and .ranks == $ranks and .mode == \"async\" and .steps == $steps and
                .staleness.gradients == $steps and .transport == \"$transport\" and $rows" \
                "$model" "${args[@]}" --steps "$steps" --mode async --ranks "$ranks" --transport $transport
        done
    done
}

learns() { # learns MODEL STEPS
    local model=$1 steps=$2 args transport
    read -ra args <<<"${data[$model]}"
    loss_falls "$model" "$steps" 1 2 3
    for transport in shm tcp; do
        ends ".steps == $steps and .staleness.bound == 2 and $rows" "$model" "${args[@]}" \
            --steps "$steps" --mode async --ranks 3 --transport $transport --staleness 2 --slow 1:3
    done
}

same_bits() { # same_bits MODEL STEPS RANKS [OPTIONS...]
    local model=${1%224} steps=$2 ranks=$3 args want transport
    read -ra args <<<"${data[$1]}"
    args+=("${@:4}")
    ends 'true' "$model" "${args[@]}" --steps "$steps" --ranks "$ranks"
    want=$(get .params_sha256)
    for transport in shm tcp; do
        ends ".params_sha256 == \"$want\" and .steps == $steps and .staleness.max == 0 and .order == \"rank\"" \
            "$model" "${args[@]}" --steps "$steps" --ranks "$ranks" --mode async --staleness 0 \
            --transport $transport
    done
}

other_ways() {
    local args
    read -ra args <<<"${data[softmax]}"
    same_bits softmax 30 5
    same_bits softmax 30 3 --clip 0.5
    ends 'true' softmax "${args[@]}" --steps 30 --ranks 3
    ends ".params_sha256 == \"$(get .params_sha256)\" and ([.per_rank[].role] | index(\"server\")) == 3" softmax \
        "${args[@]}" --steps 30 --ranks 3 --mode async --staleness 0 --servers 2 --transport tcp
    ends ".steps == 300 and (.per_rank | length) == 5" softmax "${args[@]}" --steps 300 --ranks 3 --mode async \
        --servers 2 --dedicated-servers --transport tcp
    ends ".steps == 30 and [.per_rank[].role] == [\"worker\", \"server\"]" softmax "${args[@]}" --steps 30 \
        --mode async --dedicated-servers
    ends ".steps == 30 and [.per_rank[].role] == [\"worker\", \"server\", \"server\"]" softmax "${args[@]}" \
        --steps 30 --ranks 1 --mode async --servers 2 --dedicated-servers
    ends ".steps == 60 and .staleness.dropped > 0" softmax "${args[@]}" --steps 60 --ranks 3 --mode async \
        --staleness 0 --backup 1 --slow 2:20
    # The last batch of an epoch has only one sample, so a round can consist of workers without samples.
    ends ".steps == 45 and .loss < 10 and .accuracy > 0.2" softmax "${args[@]}" --data synth:1201 --steps 45 --ranks 3 \
        --mode async --staleness 0 --backup 1 --slow 2:20
    ends ".staleness.max == 0" softmax "${args[@]}" --steps 300 --ranks 1 --mode async # with only one worker
    ends ".steps == 500 and .algo == \"hogwild\" and $rows" softmax "${args[@]}" --steps 500 --ranks 2 \
        --mode async --hogwild
    read -ra args <<<"${data[sparse-lr]}"
    for rule in sgd adagrad ftrl; do
        ends ".steps == 300 and .algo == \"hogwild\"" sparse-lr "${args[@]}" --rule $rule --steps 300 --ranks 2 \
            --mode async --hogwild
    done
    same_bits sparse-lr 30 3 --rule momentum
    same_bits sparse-lr 30 3 --rule ftrl
}

# One worker is slow. Without a bound the other worker continues, and with a bound it waits for the slow one.
slow_worker() {
    local args
    read -ra args <<<"${data[softmax]}"
    ends '.staleness.per_worker[0].gradients > 2 * .staleness.per_worker[1].gradients' softmax "${args[@]}" \
        --steps 400 --ranks 2 --mode async --slow 1:200
    ends '.staleness.per_worker[0].gradients - .staleness.per_worker[1].gradients <= 3 and
        .per_rank[0].breakdown.wait > .per_rank[1].breakdown.wait' softmax "${args[@]}" \
        --steps 400 --ranks 2 --mode async --slow 1:200 --staleness 2
    ends '.bottleneck.resource == "straggler" and (.bottleneck.why | startswith("rank 1 (")) and
        .per_rank[1].late_n > 50 and .per_rank[1].late_s > 5 * .per_rank[0].late_s' softmax "${args[@]}" \
        --steps 400 --ranks 2 --mode async --slow 1:200 --staleness 2
}

# Tests evaluations and checkpoints during training, and resuming from a checkpoint.
evaluates_and_resumes() {
    local args model
    for model in softmax sparse-lr; do
        read -ra args <<<"${data[$model]}"
        args+=(--ranks 2 --mode async)
        ends '.checkpoint | test("checkpoint-200.vbc$")' "$model" "${args[@]}" --steps 200 --eval-every 40 \
            --checkpoint "$dir/keep-$model" --checkpoint-every 50
        what="eval" run "$dir/keep-$model/checkpoint-200.vbc" --data "${args[1]}" --json
        [ "$code" = 0 ] || fail "eval of an asynchronous checkpoint: $err"
    done
    read -ra args <<<"${data[softmax]}"
    args+=(--ranks 3 --mode async --staleness 0 --steps 60)
    ends 'true' softmax "${args[@]}"
    local want
    want=$(get .params_sha256)
    ends 'true' softmax "${args[@]}" --checkpoint "$dir/half" --checkpoint-every 50
    rm "$dir"/half/checkpoint-60.vbc
    ends ".params_sha256 == \"$want\" and .resumed == 50" softmax "${args[@]}" --checkpoint "$dir/half" --resume
}

# If a server dies, the job must end soon and print the checkpoint from which it can be resumed.
server_death() {
    local args
    read -ra args <<<"${data[softmax]}"
    start 2000 softmax "${args[@]}" --mode async --ranks 3 --steps 100000000
    kill_rank 0
    wait "$job" && fail "a job that lost its server exited with 0"
    grep -q "the last checkpoint is $dir/keep/checkpoint-[0-9]*.vbc" "$dir/err" ||
        fail "a death: the checkpoint is not named: $(cat "$dir/err")"
    [ "$(grep -c "server 0 (rank 3, .*) is gone" "$dir/err")" = 2 ] ||
        fail "a death: expected both workers to name the server: $(cat "$dir/err")"
}

usage() {
    refused 2 "need --mode async" softmax --staleness 1
    refused 2 "need --mode async" softmax --hogwild --ranks 2
    refused 2 "--backup needs --staleness 0" softmax --mode async --ranks 3 --backup 1
    refused 2 "--backup 2: must be less" softmax --mode async --ranks 2 --staleness 0 --backup 2
    refused 2 "--hogwild needs one server and no --staleness" softmax --mode async --ranks 2 --hogwild --staleness 1
    refused 2 "--servers must be at most the number of ranks" softmax --mode async --ranks 2 --servers 3
    refused 2 "--servers 65: must be from 1 to 64" softmax --mode async --servers 65
    refused 2 "--staleness -2: must be from -1" softmax --mode async --staleness=-2
    refused 2 "check-replicas needs --mode sync" softmax --mode async --ranks 2 --check-replicas 5
    refused 2 "--hogwild cannot update sparse-lr in place" sparse-lr --data synth:n=1000,features=1000 \
        --mode async --hogwild --rule momentum
}

on_mnist() {
    local mnist=${VERBENA_TEST_DATA:-$(dirname "$0")/../../../../shared/data}/mnist
    if [ ! -d "$mnist" ]; then
        echo "skipped: MNIST is missing at $mnist"
        exit 77
    fi
    ends '.accuracy >= 0.922' softmax --data "mnist:$mnist" --epochs 20 --mode async --ranks 3
    echo "softmax with 3 workers: $(get .accuracy)"
    ends '.accuracy >= 0.987' lenet --data "mnist:$mnist" --epochs 10 --mode async --ranks 3
    echo "lenet with 3 workers: $(get .accuracy)"
}

for model; do
    case $model in
    mnist) on_mnist ;;
    usage) usage ;;
    ways)
        other_ways
        slow_worker
        evaluates_and_resumes
        server_death
        ;;
    five) # five workers
        loss_falls lenet 60 5
        same_bits lenet 12 5
        loss_falls alexnet 10 5
        same_bits alexnet 2 5
        ;;
    alexnet224)
        loss_falls alexnet224 8 2
        same_bits alexnet224 2 2
        ;;
    alexnet)
        learns alexnet 8
        same_bits alexnet 4 2
        ;;
    lenet)
        learns lenet 60
        # The learning rate is the rate for one worker with this batch, times 2 / (workers + 1).
        ends '.lr == 0.02' lenet --data synth:1200 --batch 64 --steps 3 --mode async --ranks 1
        ends '.lr == 0.01' lenet --data synth:1200 --batch 64 --steps 3 --mode async --ranks 3
        same_bits lenet 12 3
        ;;
    *)
        learns "$model" 300
        same_bits "$model" 30 3
        ;;
    esac
done
exit "$bad"
