#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The four models in training, as a user meets them: train_models.sh VERBENA [KILLS]. They learn, end with
# the same bits over every transport, and go on after they were killed as if nothing had been.
# shellcheck source=tests/command_test.sh
. "$(dirname "$0")/command_test.sh"
kills=${2:-4}
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

# trained FILTER ARGUMENTS...
trained() {
    local filter=$1
    shift
    quiet "$@" --json
    tail -n 1 "$dir/out" | jq -e "$filter" >/dev/null ||
        fail "train $*: does not hold: $filter: $(tail -n 1 "$dir/out" | cut -c 1-300)"
}

get() {
    tail -n 1 "$dir/out" | jq -r "$1"
}

# ---- they learn
trained '.accuracy > 0.95 and .plan_sha256 != null' lenet --data synth:3000 --epochs 2
trained '.accuracy > 0.805 and .params == 20001' sparse-lr --epochs 1 \
    --data synth:kind=criteo,n=60000,features=20000
trained '.loss < 3 and .params > 20000000' alexnet --input 32 --batch 16 --steps 4 \
    --data synth:n=64,test=16

# ---- equal bits over every transport, and as a rank alone to rounding
declare -A jobs=(
    [softmax]="softmax --data synth:1000 --global-batch 60 --steps 20"
    [lenet]="lenet --data synth:1000 --global-batch 60 --steps 10"
    [sparse]="sparse-lr --data synth:kind=criteo,n=2000,features=100000 --global-batch 60 --steps 20"
    [in-place]="sparse-lr --data synth:kind=criteo,n=2000,features=100000 --global-batch 60 --steps 20 --rule sgd"
)
for name in softmax lenet sparse in-place; do
    read -ra job <<<"${jobs[$name]}"
    trained 'true' "${job[@]}"
    alone=$(get .loss)
    for ranks in 2 3; do
        seen=
        for transport in shm tcp; do
            trained "(.loss - $alone | fabs) < 1e-3 and .transport == \"$transport\"" "${job[@]}" \
                --ranks $ranks --transport $transport
            [ "${seen:=$(get .params_sha256)}" = "$(get .params_sha256)" ] ||
                fail "$name on $ranks ranks over $transport: other bits"
        done
    done
done

# ---- plans
refused 1 "read the plan $dir/none" lenet --data synth:1000 --steps 1 --plan "$dir/none"
echo "conv1 forward magic" >"$dir/plan"
refused 1 "$dir/plan: line 1" lenet --data synth:1000 --steps 1 --plan "$dir/plan"
read -ra job <<<"${jobs[lenet]}"
trained 'true' "${job[@]}" --run "$dir/one"
one=$(get .params_sha256)
trained ".params_sha256 == \"$one\"" "${job[@]}" --plan "$dir/one/plan" --threads 2

# ---- a short last batch is part of an epoch
trained '.steps == 8 and .epochs == 2' softmax --data synth:350 --batch 100 --epochs 2

# ---- killed at any time, it goes on to the same bits
for name in softmax lenet sparse in-place; do
    read -ra job <<<"${jobs[$name]}"
    job+=(--steps 400)
    trained 'true' "${job[@]}" --checkpoint "$dir/whole-$name" --checkpoint-every 20
    want=$(get .params_sha256)
    for ((i = 0; i < kills; i++)); do
        timeout -s KILL "0.$((RANDOM % 9))$((RANDOM % 10))" "$verbena" train "${job[@]}" \
            --checkpoint "$dir/$name" --checkpoint-every 20 --resume
    done >/dev/null 2>&1
    trained ".params_sha256 == \"$want\" and .steps == 400" "${job[@]}" --checkpoint "$dir/$name" \
        --checkpoint-every 20 --resume
done

# ---- a checkpoint of another run is refused
what=train
run softmax --data synth:1000 --global-batch 60 --steps 400 --seed 9 --checkpoint "$dir/softmax" --resume
[[ $code$err == 2*"is of a run with another seed"* ]] || fail "another seed: $code $err"

# ---- a dry run trains nothing; run.json is what was printed
quiet softmax --data synth:1000 --dry-run
grep -q 'nothing was trained' "$dir/out" || fail "no dry run: $(cat "$dir/out")"
quiet softmax --data synth:1000 --steps 5 --json --run "$dir/run"
jq -e '.steps == 5' "$dir/run/run.json" >/dev/null || fail "no run.json"

[ $bad = 0 ] && echo "all as it should be"
exit $bad
