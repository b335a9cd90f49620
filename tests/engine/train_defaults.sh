#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that training without options learns: train_defaults.sh VERBENA. The data is written here: features of very
# different sizes, wide and noisy rows, few rows of one class. Also tests what a run says about its choices.
#
# Covers: engine/trial/trial.c engine/trial/sample.c engine/train/train_recipe.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

# rows SEED N KIND: prints rows in libsvm's format
rows() {
    awk -v seed="$1" -v n="$2" -v kind="$3" 'function r() { return rand() + rand() + rand() + rand() - 2 }
    BEGIN {
        srand(seed)
        for (i = 0; i < n; i++) {
            if (kind == "sizes") { # a feature of thousands, one of thousandths, a constant
                a = r(); b = r()
                y = a + b > 0
                printf "%d 1:%g 2:%g 3:7000\n", y, 4000 * a, b / 1000
            } else if (kind == "wide") { # one feature of 150 matters, and every tenth label is wrong
                a = r(); y = a > 0
                if (rand() < 0.1) y = 1 - y
                printf "%d 1:%g", y, 3 * a
                for (f = 2; f <= 150; f++) printf " %d:%g", f, r()
                print ""
            } else { # 5 of 200 rows are of class 1
                y = i % 40 == 0
                printf "%d 1:%g 2:1\n", y, r() + 4 * y
            }
        }
    }'
}

for kind in sizes wide few; do
    rows 1 600 $kind >"$dir/$kind"
    rows 2 1000 $kind >"$dir/$kind.t"
done

# learns LEAST KIND ARGUMENTS...
learns() {
    local least=$1 kind=$2
    shift 2
    ends ".accuracy >= $least" sparse-lr --data "libsvm:$dir/$kind" --test-data "libsvm:$dir/$kind.t" "$@"
}

learns 0.95 sizes
learns 0.95 sizes --ranks 2
learns 0.95 sizes --mode async --ranks 2
learns 0.82 wide # 0.9 of the labels are right; trained to the end, it would be about 0.75
learns 0.98 few
for rule in sgd momentum nesterov adagrad ftrl; do
    learns 0.98 few --rule $rule
done
ends '.accuracy >= 0.88' softmax --data synth:2000

# what the run says
ends '.recipe.lr_from == "trials" and .recipe.rule_from == "trials" and .recipe.steps_from == "trials" and
    .recipe.steps == .steps and .recipe.lr == .lr and (.recipe.why | test("trials on 600 of 600")) and
    (.improving | type) == "boolean" and .loss_last_tenth > 0 and .loss_tenth_before > 0' \
    sparse-lr --data "libsvm:$dir/wide" --test-data "libsvm:$dir/wide.t"
ends '.recipe.lr_from == "given" and .recipe.steps_from == "given" and .recipe.rule_from == "model" and
    .recipe.why == null and .improving == null' softmax --data synth:500 --lr 0.1 --steps 5
ends '.recipe.lr_from == "rule" and .recipe.rule_from == "given"' lenet --data synth:500 --rule sgd --steps 5
ends '.improving == true' lenet --data synth:2000 --lr 0.0005 --steps 250 --schedule constant

data=(--data "libsvm:$dir/few" --test-data "libsvm:$dir/few.t")
"$verbena" train sparse-lr "${data[@]}" >"$dir/out" 2>"$dir/err" || fail "the run failed: $(cat "$dir/err")"
[ "$(grep -c '^recipe: .* epochs): .* trials on 600' "$dir/err")" = 1 ] || fail "no recipe: $(cat "$dir/err")"
grep -q '^improving ' "$dir/out" || fail "the text does not say whether it improved"
"$verbena" train sparse-lr "${data[@]}" --json >"$dir/out" 2>"$dir/err" || fail "the run failed"
[ ! -s "$dir/err" ] || fail "--json says something: $(cat "$dir/err")"
"$verbena" train sparse-lr "${data[@]}" --json --log-level info >"$dir/out" 2>"$dir/err" || fail "the run failed"
grep -q 'trial of adagrad' "$dir/err" || fail "info does not list the trials"
"$verbena" train sparse-lr "${data[@]}" --json --run "$dir/run" >"$dir/out" 2>/dev/null || fail "the run failed"
jq -e '.run.recipe.lr_from == "trials" and .recipe == .run.recipe' "$dir/run/run.json" >/dev/null ||
    fail "run.json has no recipe"

# a run that resumes chooses the same again
"$verbena" train sparse-lr "${data[@]}" --json >"$dir/whole" 2>/dev/null || fail "the run failed"
"$verbena" train sparse-lr "${data[@]}" --checkpoint "$dir/cp" --json >/dev/null 2>&1 || fail "the run failed"
"$verbena" train sparse-lr "${data[@]}" --checkpoint "$dir/cp" --resume --json >"$dir/again" 2>"$dir/err" ||
    fail "a run with chosen numbers does not resume: $(cat "$dir/err")"
[ "$(tail -n 1 "$dir/whole" | jq .params_sha256)" = "$(tail -n 1 "$dir/again" | jq .params_sha256)" ] ||
    fail "the resumed run has other bits"

exit "$bad"
