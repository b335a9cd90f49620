#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests synchronous training with several ranks: train_sync.sh VERBENA MODEL... For each model and 1 to 5 ranks (alexnet
# and mlp: 1 to 3 ranks; alexnet5 is alexnet with 1 to 5 ranks): the loss falls, replicas are equal, and the bits are
# the same over shared memory and TCP, and with buckets of another size. A slow rank is named. mnist is not a model: it
# tests the accuracies on real digits.
#
# Covers: engine/run/run.c engine/sums/buckets.c engine/train/train_dense.c
# Covers: engine/train/train_sparse.c engine/train/train_verdict.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
shift
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

declare -A data=(
    [softmax]="--data synth:1200 --global-batch 60"
    [lenet]="--data synth:1200 --global-batch 60"
    [mlp]="--data synth:1200 --global-batch 60"
    [sparse-lr]="--data synth:kind=criteo,n=3000,features=100000 --global-batch 60"
    [alexnet]="--data synth:n=64,test=16 --input 32 --global-batch 20 --lr 0.003"
)

learns() { # learns MODEL STEPS RANKS
    local model=$1 steps=$2 most=$3 args first ranks transport seen
    read -ra args <<<"${data[$model]}"
    ends 'true' "$model" "${args[@]}" --steps 1
    first=$(get .loss)
    for ((ranks = 1; ranks <= most; ranks++)); do
        seen=
        for transport in shm tcp; do
            ends ".loss < $first and .ranks == $ranks" "$model" "${args[@]}" --steps "$steps" \
                --ranks $ranks --transport $transport --check-replicas 5
            [ "${seen:=$(get .params_sha256)}" = "$(get .params_sha256)" ] ||
                fail "$model on $ranks ranks over $transport: the bits differ"
        done
    done
    [ "$model" = sparse-lr ] ||
        ends ".params_sha256 == \"$seen\"" "$model" "${args[@]}" --steps "$steps" --ranks "$most" \
            --transport tcp --bucket 4096
}

# Sending gradients as bfloat16 changes the bits, but the bits are the same over every transport.
in_bf16() { # in_bf16 MODEL STEPS
    local model=$1 steps=$2 args transport plain first seen=
    read -ra args <<<"${data[$model]}"
    args+=(--steps "$steps" --ranks 3 --check-replicas 5)
    ends '.wire == "f32"' "$model" "${args[@]}"
    plain=$(get .params_sha256)
    ends 'true' "$model" "${args[@]}" --steps 1
    first=$(get .loss)
    for transport in shm tcp; do
        ends ".wire == \"bf16\" and .loss < $first and .params_sha256 != \"$plain\"" "$model" "${args[@]}" \
            --transport $transport --wire bf16
        [ "${seen:=$(get .params_sha256)}" = "$(get .params_sha256)" ] ||
            fail "$model in bf16 over $transport: the bits differ"
    done
}

# The straggler must be named. Waiting must not count as transfer, and transfer must not count as waiting. A busy
# machine wakes the other rank some ms late. So the slow rank is slowed down by so much that its step takes longer than
# that; models with short steps need a large factor.
slow_rank_is_named() { # slow_rank_is_named MODEL
    local model=$1 args transport factor=400
    [ "$model" != lenet ] || factor=20
    read -ra args <<<"${data[$model]}"
    for transport in shm tcp; do
        ends '.bottleneck.resource == "straggler" and (.bottleneck.why | startswith("rank 1 (")) and
            .per_rank[1].late_n > 20 and .per_rank[1].late_s > 5 * .per_rank[0].late_s and
            .per_rank[0].breakdown.wait > 5 * .per_rank[0].breakdown.comm_exposed' \
            "$model" "${args[@]}" --steps 30 --ranks 2 --transport $transport --slow 1:$factor
    done
}

on_mnist() {
    local dir=${VERBENA_TEST_DATA:-$(dirname "$0")/../../../shared/data}/mnist ranks
    if [ ! -d "$dir" ]; then
        echo "skipped: MNIST is missing at $dir"
        exit 77
    fi
    ends '.accuracy >= 0.924' softmax --data "mnist:$dir" --epochs 10 --ranks 3
    echo "softmax on 3 ranks: $(get .accuracy)"
    for ranks in 1 2 3; do
        ends '.accuracy >= 0.989' lenet --data "mnist:$dir" --epochs 6 --batch 64 --ranks $ranks
        echo "lenet on $ranks ranks: $(get .accuracy)"
    done
}

for model; do
    case $model in
    mnist) on_mnist ;;
    alexnet) learns alexnet 12 3 ;;
    mlp) learns mlp 10 3 ;;
    alexnet5) learns alexnet 12 5 ;;
    *)
        learns "$model" 20 5
        [ "$model" = sparse-lr ] || in_bf16 "$model" 20
        slow_rank_is_named "$model"
        ;;
    esac
done

refused 2 "there is no rank 2" softmax --ranks 2 --slow 2:5
refused 2 "--slow must be RANK:FACTOR" softmax --ranks 2 --slow 1:x
for option in "--wire bf16" "--algo ring" "--bucket 4096" "--defer-bytes 4096" "--shared-update-min 4096"; do
    read -ra words <<<"$option"
    refused 2 "${words[0]} can be used only with dense models and --mode sync" sparse-lr --ranks 2 "${words[@]}"
    refused 2 "${words[0]} can be used only with dense models and --mode sync" softmax --mode async "${words[@]}"
done

[ $bad = 0 ] && echo "all tests passed"
exit $bad
