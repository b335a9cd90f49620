#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests what is said if a model does not learn: train_health.sh VERBENA [quick]. A number that is not finite ends the
# run with the layer or the feature that has it, and never reaches a checkpoint. Warnings are said once, on the rank that
# reports, and are in the list warnings of the final object and in the events. quick: fewer ways to run a job.
#
# Covers: engine/train/train_health.c
# shellcheck disable=SC2317 # each() calls functions by their name
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
part=${2:-all}
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

# fails TEXT ARGUMENTS...: the run fails with exit code 1 and a message that has TEXT
fails() {
    local text=$1
    shift
    run "$@"
    [ "$code" = 1 ] || fail "$*: exit $code, expected 1: $err"
    grep -qE "$text" "$dir/err" || fail "$*: '$err' does not have '$text'"
}

# warns TEXT ARGUMENTS...: the run succeeds and warns once, in the list, too
warns() {
    local text=$1
    shift
    rm -rf "$dir/run"
    ends "[.warnings[] | select(test(\"$text\"))] | length == 1" "$@" --run "$dir/run"
    [ "$(grep -cE "$text" "$dir/err")" = 1 ] || fail "$*: not one line with '$text': $err"
    jq -es "[.[] | select(.what == \"warned\")] | length >= 1" "$dir"/run/events.jsonl >/dev/null ||
        fail "$*: no event: $(cat "$dir/run/events.jsonl")"
}

# finite DIR: all parameters of the newest checkpoint are finite
finite() {
    "$verbena" export "$1" --out "$dir/params" >/dev/null 2>"$dir/err" || fail "cannot export: $(cat "$dir/err")"
    python3 - "$dir/params" <<'P' || fail "a checkpoint has numbers that are not finite"
import glob, math, struct, sys
for path in glob.glob(sys.argv[1] + "/*.npy"):
    data = open(path, "rb").read()
    data = data[10 + struct.unpack("<H", data[8:10])[0]:]
    assert all(map(math.isfinite, struct.unpack(f"<{len(data) // 4}f", data))), path
P
    rm -rf "$dir/params"
}

# more LINES...: prints the lines, unless only the quick part is tested
more() {
    [ "$part" = quick ] || printf '%s\n' "$@"
}

# each FUNCTION TEXT HOW ARGUMENTS...: calls the function once for each line of HOW, options that are added
each() {
    local function=$1 text=$2 lines=$3 how
    shift 3
    while read -r how; do
        [ -n "$how" ] || continue
        # shellcheck disable=SC2086
        $function "$text" "$@" $how
    done <<<"$lines"
}

# ---- numbers that are not finite
named='step [0-9]+: the loss is not a finite number: layer fc[123] is the first whose (parameters are|output is).* not finite; try a lower learning rate than 1e\+03, such as --lr 100, or --clip 1'
hot=(mlp --data synth:1000 --steps 100 --lr 1000 --clip 0 --schedule constant --warmup 0)
saved() {
    rm -rf "$dir/c"
    fails "$@" --checkpoint "$dir/c" --checkpoint-every 1
    finite "$dir/c"
}
each saved "$named" "--ranks 2 --transport shm
--ranks 2 --transport tcp
--ranks 2 --mode async
$(more '--mode single' '--ranks 2 --mode async --transport tcp --staleness 2' '--ranks 2 --mode async --hogwild')" "${hot[@]}"
[ "$part" = quick ] || fails 'layer fc[345] is the first whose .* not finite' lenet --data synth:1000 --steps 100 --lr 1000 --clip 0 --weight-decay 1

# the last update is the one that goes wrong: what is saved or evaluated at the end is looked at, too
for steps in $(more 3 4 5 6 7 8); do
    rm -rf "$dir/c"
    run "${hot[@]}" --steps "$steps" --checkpoint "$dir/c" --json
    [ "$code" = 0 ] && final '.loss != null' "$steps steps"
    [ "$code" = 0 ] || [[ $code == 1 && $err == *"not finite"* ]] || fail "$steps steps: exit $code: $err"
    [ ! -e "$dir/c/checkpoint-$steps.vbc" ] || finite "$dir/c"
done

awk 'BEGIN { srand(1); for (i = 0; i < 1000; i++) printf "%d 1:%g 2:%g\n", i % 2, 1e19 * rand(), -1e19 * rand() }' >"$dir/large.svm"
each fails 'step [0-9]+: the loss is not a finite number: the weights are finite, but their sum over a row is not; try a lower' \
    "--rule sgd --ranks 2
--rule sgd --mode async --ranks 2
$(more '--rule sgd --mode single' '--rule momentum --ranks 2 --transport tcp' '--rule sgd --mode async --ranks 2 --hogwild')" \
    sparse-lr --data "libsvm:$dir/large.svm" --test-split 0.2 --lr 1000 --steps 100

# ---- loss at chance: looked at after 500 steps of a worker; a bound on staleness makes each of them take part
sizes=$(printf '%s\n' '--ranks 2 --transport tcp' '--ranks 2 --mode async --staleness 4' && more '--mode single' '--ranks 2 --transport shm')
awk 'BEGIN { srand(2); for (i = 0; i < 2000; i++) printf "%d %d:1 %d:1\n", rand() < 0.5, 1 + int(50 * rand()), 60 + int(50 * rand()) }' \
    >"$dir/noise.svm"
noise=(sparse-lr --data "libsvm:$dir/noise.svm" --test-split 0.2 --batch 50)
each warns 'steps the training loss is 0.69[0-9]*, and guessing by the frequency of labels gives 0.69[0-9]*; try another rate, such as --lr 0.001 or' \
    "$sizes" "${noise[@]}" --lr 0.0001 --steps 2000
final '[.warnings[] | select(test("the model has learnt nothing.*try another rate, such as --lr 0.001 or"))] | length == 1' noise
warns 'the model has learnt nothing with a learning rate of 1000: .*; try a lower rate, such as --lr 100' \
    "${noise[@]}" --rule sgd --lr 1000 --steps 400
trained '.warnings == []' softmax --data synth:2000 --steps 2000 --ranks 2

# ---- one class: seven of ten samples are of class 1, and all have the same features
for ((i = 0; i < 1000; i++)); do
    echo "$((i % 10 < 7)) 1:1 2:1"
done >"$dir/same.svm"
each warns 'after 3[0-9]+ steps the model predicts class 1 for all 1000 test samples: try' "$sizes" \
    sparse-lr --data "libsvm:$dir/same.svm" --test-data "libsvm:$dir/same.svm" --batch 50 --steps 400 --eval-every 300
awk 'BEGIN { srand(3); for (i = 0; i < 1000; i++) { y = rand() < 0.5; printf "%d %d:1 3:1\n", y, 1 + y } }' >"$dir/both.svm"
grep '^1' "$dir/both.svm" >"$dir/one.svm"
both=(sparse-lr --data "libsvm:$dir/both.svm" --batch 50 --steps 100)
each warns 'all [0-9]+ test samples are of class 1, so their accuracy says nothing' "$sizes" \
    "${both[@]}" --test-data "libsvm:$dir/one.svm"

# ---- features that training has never seen: half of the nonzeros of the test data
awk 'BEGIN { srand(4); for (i = 0; i < 1000; i++) { y = rand() < 0.5; printf "%d %d:1 %d:1\n", y, 1 + y, 10 + i % 7 } }' >"$dir/new.svm"
unseen() {
    warns "$@"
    final '.unseen == 0.5' "$@"
}
each unseen '50 % of the nonzeros of the test data belong to features that training has not seen' \
    "$sizes
$(more '--rule sgd' '--rule momentum' '--ranks 2 --mode async --hogwild')" \
    "${both[@]}" --test-data "libsvm:$dir/new.svm" --features 100
trained '.warnings == [] and .unseen == 0' "${both[@]}" --test-data "libsvm:$dir/both.svm" --steps 300
trained '.unseen == null' softmax --data synth:2000 --steps 30
exit $bad
