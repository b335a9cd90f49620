#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests --until: train_until.sh VERBENA [quick]. A run ends at the first evaluation for which a condition holds, after the
# same step on all ranks; its parameters are those of a run with as many steps. A plateau ends with the parameters of the
# best evaluation, in the result, in the checkpoint and in what is exported. quick: without the jobs that take longer.
#
# Covers: engine/train/train_until.c cli/train/train_until_opts.c engine/run/run.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
part=${2:-all}
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

# ---- conditions that make no sense
for text in accuracy=97 accuracy=0 accuracy=x accuracy loss=-1 loss=0 loss=nan plateau:0 plateau:x plateau=3 '' ',' \
    'accuracy=0.9,' "loss=$(printf '1%.0s' {1..50})"; do
    run softmax --data synth:2000 --until "$text"
    [[ $code == 2 && $(wc -l <"$dir/err") == 1 && $err == *until* ]] || fail "--until '$text': exit $code: $err"
done
refused 2 'at most 8 conditions' softmax --until plateau,plateau,plateau,plateau,plateau,plateau,plateau,plateau,plateau
refused 2 'leave out --until' softmax --replay-compute "$dir" --until plateau

# ---- a target: the parameters are those of a run with as many steps
job=(softmax --data synth:4000 --global-batch 40 --schedule constant --lr 0.5 --seed 3)
short=("${job[@]}" --steps 2000 --eval-every 20)
goal='.until.reached and .until.by == "accuracy=0.9" and .accuracy >= 0.9 and .until.step % 20 == 0 and
    .until.step < 2000 and .until.time_to_s > 0 and .until.time_to_s <= .train_s and .until.wall_to_s <= .wall_s and
    .until.params_step == .until.step and .stopped == null and .evals[-1].step == .until.step and
    all(.evals[:-1][]; .accuracy < 0.9) and (.warnings == [])'
ways=('--ranks 2 --transport shm' '--ranks 2 --transport tcp')
[ "$part" = quick ] || ways=('' "${ways[@]}")
for how in "${ways[@]}"; do
    # shellcheck disable=SC2086
    trained "$goal and .steps == .until.step" "${short[@]}" --until accuracy=0.9 $how
    sha=$(get .params_sha256) step=$(get .steps)
    # shellcheck disable=SC2086
    trained ".params_sha256 == \"$sha\" and .until == null" "${job[@]}" --steps "$step" $how
done
trained '.until.by == "loss=0.6" and .loss <= 0.6 and all(.evals[:-1][]; .loss > 0.6)' "${short[@]}" --until loss=0.6

# ---- rounds of asynchronous training have the bits of synchronous training; other workers may go on for a few steps
trained "$goal and .params_sha256 == \"$sha\" and .until.step == $step and .steps >= $step" \
    "${short[@]}" --until accuracy=0.9 --mode async --staleness 0 --ranks 2
ways=('--transport tcp')
[ "$part" = quick ] || ways+=(--hogwild '--dedicated-servers --servers 2 --staleness 3' '--replicas 2')
for how in "${ways[@]}"; do
    rm -rf "$dir/c"
    # shellcheck disable=SC2086
    ends '.until.reached and .accuracy >= 0.9 and .until.params_step == .until.step and .steps < 2000 and .stopped == null' \
        "${short[@]}" --until accuracy=0.9 --mode async --ranks 2 --checkpoint "$dir/c" $how
    want=$(get .accuracy)
    "$verbena" eval "$dir/c" --data synth:4000 --json >"$dir/out" 2>"$dir/err" || fail "eval: $(cat "$dir/err")"
    final ".accuracy == $want" "the checkpoint of $how"
done

# ---- the steps end before: the exit code is 0, and the result says so
ends '.until.reached == false and .until.by == null and .until.step == null and .until.time_to_s == null and .steps == 100 and
    (.warnings | length) == 1 and (.warnings[0] | test("accuracy=1 was not reached in 100 steps"))' \
    "${job[@]}" --steps 100 --until accuracy=1 --ranks 2
[[ $err == *"--until accuracy=1 was not reached in 100 steps"* ]] || fail "no warning: $err"
ends '.until.reached == false and .steps == 400' "${job[@]}" --steps 400 --until loss=0.0001 --ranks 2 --mode async
trained '.until.reached == false and (.evals | length) >= 10' "${job[@]}" --steps 100 --until plateau:50 --ranks 2
run "${job[@]}" --steps 100 --until accuracy=1
grep -q '^until       accuracy=1 not reached in 100 steps: the highest accuracy was' "$dir/out" || fail "$(cat "$dir/out")"
run "${short[@]}" --until accuracy=0.9
grep -qE '^until       accuracy=0.9 reached at step [0-9]+, after [0-9.]+ s of training' "$dir/out" || fail "$(cat "$dir/out")"
# the last step is evaluated, too
trained ".until.reached and .until.step == $step and .steps == $step" "${job[@]}" --steps "$step" --eval-every 1999 \
    --until accuracy=0.9 --ranks 2

# ---- several conditions, in one option or in several
for how in '--until plateau:90,accuracy=0.9' '--until plateau:90 --until=accuracy=0.9' '--until=loss=0.001 --until accuracy=0.9'; do
    # shellcheck disable=SC2086
    trained ".until.by == \"accuracy=0.9\" and .params_sha256 == \"$sha\" and (.until.asked | test(\",\"))" \
        "${short[@]}" --ranks 2 $how
done

# ---- a plateau: the best parameters are the result
over=(softmax --data synth:300 --global-batch 60 --schedule constant --rule momentum --lr 0.1 --seed 3)
best='.until.reached and .until.by == "plateau:3" and .until.params_step == (.evals | min_by(.loss).step) and
    .until.params_step < .until.step and .loss == ([.evals[].loss] | min) and .until.kept_mb > 0'
ways=('--ranks 2 --transport shm' '--ranks 2 --mode async --staleness 0')
[ "$part" = quick ] || ways+=('' '--ranks 2 --transport tcp')
for how in "${ways[@]}"; do
    rm -rf "$dir/c"
    # shellcheck disable=SC2086
    ends "$best" "${over[@]}" --steps 3000 --eval-every 10 --until plateau:3 --checkpoint "$dir/c" --checkpoint-every 25 $how
    sha=$(get .params_sha256) loss=$(get .loss)
    [ "$(get .checkpoint)" = "$dir/c/checkpoint-$(get .steps).vbc" ] || fail "$how: $(get .checkpoint)"
    # shellcheck disable=SC2086
    ends ".params_sha256 == \"$sha\"" "${over[@]}" --steps "$(get .until.params_step)" $how
    "$verbena" eval "$dir/c" --data synth:300 --json >"$dir/out" 2>"$dir/err" || fail "eval: $(cat "$dir/err")"
    final "(.loss - $loss | fabs) < 1e-5" "the checkpoint of $how"
done
rows=(sparse-lr --data synth:2000 --features 5000 --global-batch 50 --schedule constant --steps 3000 --eval-every 40)
ways=('--rule momentum --lr 0.5 --ranks 2 --transport tcp' '--rule adagrad --lr 0.5 --ranks 2 --mode async')
[ "$part" = quick ] || ways+=('--rule adagrad --lr 0.5' '--rule sgd --lr 5 --ranks 2 --mode async --hogwild')
for how in "${ways[@]}"; do
    rm -rf "$dir/c"
    # shellcheck disable=SC2086
    ends '.until.reached and .loss == ([.evals[].loss] | min) and .until.params_step < .until.step' \
        "${rows[@]}" --until plateau:3 --checkpoint "$dir/c" $how
    loss=$(get .loss)
    "$verbena" eval "$dir/c" --data synth:2000 --json >"$dir/out" 2>"$dir/err" || fail "eval: $(cat "$dir/err")"
    final "(.loss - $loss | fabs) < 1e-5" "the checkpoint of $how"
done

# ---- memory for the best parameters is part of what a job needs
trained '.until.kept_mb > 5.3 and .until.kept_mb < 5.4 and .until.eval_every > 0' mlp --data synth:300 --until plateau --dry-run
with=$(get .needs.parameters_mb)
trained ".needs.parameters_mb < $with - 5.3" mlp --data synth:300 --until accuracy=0.9 --dry-run
trained '.until.kept_mb > 270 and .until.kept_mb < 271' sparse-lr --data synth:300 --rule adagrad --until plateau --dry-run

# ---- a run that was ended goes on with --resume and another condition, with the bits of one that was not
rm -rf "$dir/c"
trained '.until.reached' "${short[@]}" --until accuracy=0.9 --ranks 2
sha=$(get .params_sha256)
trained '.until.reached and .steps < 2000' "${short[@]}" --until accuracy=0.8 --ranks 2 --checkpoint "$dir/c"
half=$(get .steps)
trained ".resumed == $half and .until.reached and .params_sha256 == \"$sha\"" "${short[@]}" --until accuracy=0.9 --ranks 2 \
    --checkpoint "$dir/c" --resume

# ---- a plateau is counted on: a run that was stopped ends where one ends that was not, with the same parameters
for how in '' '--ranks 2'; do
    rm -rf "$dir/c"
    # shellcheck disable=SC2086
    trained '.until.reached' "${over[@]}" --steps 3000 --eval-every 10 --until plateau:3 $how
    want=$(get '[.params_sha256, .steps, .until.step, .until.params_step, .loss]')
    half=$(($(get .steps) - 5))
    # shellcheck disable=SC2086
    run "${over[@]}" --steps 3000 --eval-every 10 --until plateau:3 --checkpoint "$dir/c" --checkpoint-every 10 \
        --elastic off --inject "kill:0@$half,slow:0x500:forward" $how # so slow that each checkpoint is written before the next is due
    [ "$code" != 0 ] || fail "$how: the run was not killed"
    # shellcheck disable=SC2086
    trained ".resumed == $half - 5 and [.params_sha256, .steps, .until.step, .until.params_step, .loss] == $want" \
        "${over[@]}" --steps 3000 --eval-every 10 --until plateau:3 --checkpoint "$dir/c" --checkpoint-every 10 --resume $how
done
# a checkpoint of a run without --until has no count
rm -rf "$dir/c"
trained '.steps == 3000' "${over[@]}" --steps 3000 --checkpoint "$dir/c" --checkpoint-every 2900
rm "$dir/c/checkpoint-3000.vbc"
trained '.resumed == 2900 and .until.reached' "${over[@]}" --steps 3000 --eval-every 10 --until plateau:3 \
    --checkpoint "$dir/c" --checkpoint-every 2900 --resume

# ---- the run folder
rm -rf "$dir/r"
trained '.until.reached' "${short[@]}" --until accuracy=0.9 --ranks 2 --run "$dir/r"
jq -e '.run.options[] | select(.name == "until") | .value == "accuracy=0.9"' "$dir/r/run.json" >/dev/null ||
    fail "run.json does not name --until"
jq -es "map(select(.what == \"reached\")) | length == 1 and .[0].step == $(get .until.step) and .[0].why == \"accuracy=0.9\"" \
    "$dir/r/events.jsonl" >/dev/null || fail "no event: $(cat "$dir/r/events.jsonl")"
trained '.until.by == "accuracy=0.8"' --again "$dir/r" --until accuracy=0.8
[ "$part" = quick ] && exit $bad

# ---- ranks must agree
key=$dir/key
(umask 077 && head -c 32 /dev/urandom >"$key")
port=$((20000 + RANDOM % 10000))
"$verbena" train "${short[@]}" --rank 1 --world 2 --root 127.0.0.1:$port --secret-file "$key" --until loss=0.2 >/dev/null 2>&1 &
run "${short[@]}" --rank 0 --world 2 --root 127.0.0.1:$port --secret-file "$key" --until loss=0.1
wait
[[ $code != 0 && $err == *"different condition to stop (--until) than rank 0"* ]] || fail "ranks differ: $code $err"

# ---- every model
ends '.until.reached and .accuracy >= 0.8' lenet --data synth:2000 --steps 400 --until accuracy=0.8 --ranks 2
ends '.until.reached and .until.step == 2' alexnet --input 32 --data synth:64 --batch 8 --steps 6 --eval-every 2 \
    --test-limit 8 --until loss=1000 --ranks 2
exit $bad
