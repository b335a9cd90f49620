#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the training of all models: train_models.sh VERBENA [KILLS]. The models must learn, give the same bits over
# every transport, and give the same bits if training is killed and resumed.
#
# Covers: base/cache.c cli/cmd_eval.c engine/train/eval.c engine/train/train_dense.c
# Covers: engine/train/train_dense_open.c
# Covers: engine/train/train_models.c engine/train/train_save.c engine/train/train_sparse.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
kills=${2:-4}
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

# ---- the models learn
trained '.accuracy > 0.95 and .plan_sha256 != null' lenet --data synth:3000 --epochs 2
trained '.accuracy > 0.93 and .params == 669706' mlp --data synth:3000 --epochs 4
trained '.loss > 2.1 and .loss < 2.5' mlp --data synth:1000 --steps 1 --lr 1e-6 # chance: ln 10
trained '.accuracy > 0.805 and .params == 20001' sparse-lr --epochs 1 \
    --data synth:kind=criteo,n=60000,features=20000
trained '.loss < 3 and .params > 20000000' alexnet --input 32 --batch 16 --steps 4 \
    --data synth:n=64,test=16

# ---- the bits are equal over every transport, and the loss is equal to the loss with one rank up to rounding
declare -A jobs=(
    [softmax]="softmax --data synth:1000 --global-batch 60 --steps 20"
    [lenet]="lenet --data synth:1000 --global-batch 60 --steps 10"
    [mlp]="mlp --data synth:1000 --global-batch 60 --steps 10"
    [sparse]="sparse-lr --data synth:kind=criteo,n=2000,features=100000 --global-batch 60 --steps 20"
    [in-place]="sparse-lr --data synth:kind=criteo,n=2000,features=100000 --global-batch 60 --steps 20 --rule sgd"
)
for name in softmax lenet mlp sparse in-place; do
    read -ra job <<<"${jobs[$name]}"
    trained 'true' "${job[@]}"
    alone=$(get .loss)
    for ranks in 2 3; do
        seen=
        for transport in shm tcp; do
            trained "(.loss - $alone | fabs) < 1e-3 and .transport == \"$transport\"" "${job[@]}" \
                --ranks $ranks --transport $transport
            [ "${seen:=$(get .params_sha256)}" = "$(get .params_sha256)" ] ||
                fail "$name on $ranks ranks over $transport: the bits differ"
        done
    done
done

# ---- training and evaluation on files of CIFAR-10; the brightness of an image depends on its class
# images N FILE: writes N records, each with a class and 3 x 32 x 32 pixels
images() {
    local i
    for ((i = 0; i < $1; i++)); do
        # shellcheck disable=SC2059 # the format is the byte
        printf "\\0$((i % 10 / 8))$((i % 10 % 8))"
        head -c 3072 /dev/zero | tr '\0' "\\$((i % 4))$((i % 10 % 8))0"
    done >"$2"
}
mkdir "$dir/cifar"
for part in 1 2 3 4 5; do
    images 16 "$dir/cifar/data_batch_$part.bin"
done
images 20 "$dir/cifar/test_batch.bin"
gzip "$dir/cifar/data_batch_5.bin"
job=(alexnet --input 32 --data "cifar10:$dir/cifar" --batch 16 --steps 4 --checkpoint "$dir/runs/a")
trained '.steps == 4 and .test_samples == 20' "${job[@]}" --checkpoint-every 2
want=$(get '{accuracy, loss, steps, test_samples}')
sum=$(get .params_sha256)
rm "$dir/runs/a/checkpoint-4.vbc"
trained ".resumed == 2 and .params_sha256 == \"$sum\"" "${job[@]}" --checkpoint-every 2 --resume
ends '.resumed == 0' softmax --data synth:100 --steps 2 --checkpoint "$dir/runs/none" --resume
[[ $err == *"--resume: there is no checkpoint in $dir/runs/none; training begins at step 0"* ]] || fail "none: $err"
file=cifar10:$dir/cifar/test_batch.bin # a file alone has no part that was not trained on
trained '.test_from == "held out" and .test_samples < 10' alexnet --input 32 --data "$file" --batch 5 --steps 2
trained '.test_samples > 0 and .test_samples < 20' alexnet --input 32 --data "$file" --test-split 0.25 --batch 5 --steps 2
trained '.test_samples == 20' alexnet --input 32 --data "cifar10:$dir/cifar/data_batch_1.bin" --test-data "$file" \
    --batch 16 --steps 2
what="eval"
trained '.test_samples == 20' "$dir/runs/a" --data "$file"
export XDG_CACHE_HOME=$dir/other-cache
refused 2 "alexnet takes images of 3 x 32 x 32; the images of synth:kind=digits are 1 x 28 x 28" "$dir/runs/a" \
    --data synth:kind=digits
refused 2 "synth:kind=criteo,n=10 does not contain images" "$dir/runs/a" --data synth:kind=criteo,n=10
[ ! -e "$dir/other-cache/verbena" ] || fail "eval: kernels were timed for data that does not fit"
trained "($want | .loss) as \$loss | (.loss - \$loss | fabs) < 1e-4 and
    . as \$o | $want | .accuracy == \$o.accuracy and .steps == \$o.steps and
    .test_samples == \$o.test_samples" "$dir/runs/a" --data "cifar10:$dir/cifar"
grep -q ' forward ' "$dir"/other-cache/verbena/plan-* || fail "eval: no kernel was chosen"
! grep ' backward-' "$dir"/other-cache/verbena/plan-* || fail "eval: backward kernels were timed"
export XDG_CACHE_HOME=$dir/cache

# ---- training on Criteo's text format; the first category determines the label
for ((i = 0; i < 400; i++)); do
    printf '%d\t' $((i * 7 % 10 < 3))
    for ((j = 0; j < 13; j++)); do
        [ $(((i + j) % 5)) = 0 ] || printf '%d' $(((i * 31 + j * 17) % 100 - 1))
        printf '\t'
    done
    printf '%08x' $((i * 7 % 10 < 3 ? 0xdeadbeef : 0x1234567))
    for ((j = 1; j < 26; j++)); do
        printf '\t'
        [ $(((i + j) % 7)) = 0 ] || printf '%08x' $((i * 131 % 40 + j * 1000))
    done
    echo
done | gzip >"$dir/day_0.gz"
what=train
job=(sparse-lr --data "criteo:$dir/day_0.gz" --features 33762578)
trained '.test_from == "held out" and .test_samples < 200' "${job[@]}" --steps 5
trained '.params == 33762579 and .accuracy > 0.95' "${job[@]}" --test-split 0.1 --epochs 4 \
    --checkpoint "$dir/runs/b"
what="eval"
trained '.model == "sparse-lr" and .test_samples == 400 and .accuracy > 0.95' "$dir/runs/b" \
    --data "criteo:$dir/day_0.gz"
refused 2 "synth:kind=digits,n=10 does not contain sparse rows" "$dir/runs/b" --data synth:kind=digits,n=10
what=data
run convert "criteo:$dir/day_0.gz" "$dir/day_0.csr"
what="eval"
trained '.test_samples == 400 and .accuracy > 0.95' "$dir/runs/b" --data "csr:$dir/day_0.csr"
what=train

# ---- plans in files
refused 1 "read the plan $dir/none" lenet --data synth:1000 --steps 1 --plan "$dir/none"
echo "conv1 forward magic" >"$dir/plan"
refused 1 "$dir/plan: line 1" lenet --data synth:1000 --steps 1 --plan "$dir/plan"
read -ra job <<<"${jobs[lenet]}"
trained 'true' "${job[@]}" --run "$dir/one"
one=$(get .params_sha256)
trained ".params_sha256 == \"$one\"" "${job[@]}" --plan "$dir/one/plan" --threads 2

# ---- a kernel that rounds more than sums of floats is used only with --fast-math; run.json has the option
sed 's/^conv2 forward .*/conv2 forward winograd4+pool/' "$dir/one/plan" >"$dir/plan"
refused 2 "$dir/plan: layer conv2, pass forward: backend winograd4+pool rounds more than sums of floats do; give --fast-math" \
    "${job[@]}" --plan "$dir/plan"
trained ".params_sha256 != \"$one\"" "${job[@]}" --plan "$dir/plan" --fast-math --run "$dir/fast" --checkpoint "$dir/fast-saved"
jq -e '.run.options[] | select(.name == "fast-math").value == "on"' "$dir/fast/run.json" >/dev/null ||
    fail "run.json does not have --fast-math: $(jq -c .run.options "$dir/fast/run.json")"
refused 2 "belongs to a run with a different rounding (--fast-math)" "${job[@]}" --checkpoint "$dir/fast-saved" --resume
! grep -hE 'ward[a-z-]* winograd4' "$XDG_CACHE_HOME"/verbena/plan-* | grep -v ':fast-math ' ||
    fail "a choice without --fast-math rounds more"

# ---- a short last batch counts as a step of the epoch
trained '.steps == 8 and .epochs == 2' softmax --data synth:350 --batch 100 --epochs 2

# ---- if training is killed at any time and resumed, it ends with the same bits
for name in softmax lenet mlp sparse in-place; do
    read -ra job <<<"${jobs[$name]}"
    job+=(--steps 400)
    trained 'true' "${job[@]}" --checkpoint "$dir/whole-$name" --checkpoint-every 20
    want=$(get .params_sha256)
    for ((i = 0; i < kills; i++)); do
        timeout -s KILL "0.$((RANDOM % 9))$((RANDOM % 10))" "$verbena" train "${job[@]}" \
            --checkpoint "$dir/$name" --checkpoint-every 20 --resume
    done >/dev/null 2>&1
    # If every run was killed before its first checkpoint, this run says that there is no checkpoint.
    ends ".params_sha256 == \"$want\" and .steps == 400" "${job[@]}" --checkpoint "$dir/$name" \
        --checkpoint-every 20 --resume
    [[ -z $err || $err == *"--resume: there is no checkpoint in $dir/$name"* ]] || fail "$name: $err"
done

# ---- a checkpoint of another run is refused
what=train
run softmax --data synth:1000 --global-batch 60 --steps 400 --seed 9 --checkpoint "$dir/softmax" --resume
[[ $code$err == 2*"belongs to a run with a different seed"* ]] || fail "another seed: $code $err"

# ---- a dry run trains nothing; run.json contains the printed result
quiet softmax --data synth:1000 --dry-run
grep -q 'nothing was trained' "$dir/out" || fail "not a dry run: $(cat "$dir/out")"
quiet softmax --data synth:1000 --steps 5 --json --run "$dir/run"
jq -e '.steps == 5' "$dir/run/run.json" >/dev/null || fail "run.json is missing or wrong"
for name in run.json plan; do
    rm -f "$dir/run/$name" && mkfifo "$dir/run/$name"
    refused 2 "$name: the path exists and is not a regular file" softmax --data synth:1000 --steps 5 --run "$dir/run"
    rm "$dir/run/$name"
done

[ $bad = 0 ] && echo "all tests passed"
exit $bad
