#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests what a model is tested on if no test data is given: train_split.sh VERBENA. Data without a test part is split by
# default, the same way for every number of ranks and for a run that resumes.
#
# Covers: data/spec.c cli/train/train_json.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
awk 'BEGIN { srand(1); for (i = 0; i < 500; i++) { a = rand() - 0.5; y = a > 0; printf "%d 1:%g 2:1\n", y, 4 * a } }' >"$dir/rows"
rows=(sparse-lr --data "libsvm:$dir/rows" --steps 200 --batch 20)
sha=.params_sha256

# nothing else given
ends '.accuracy > 0.9 and .test_from == "held out" and .test_samples > 60 and .test_samples < 140' \
    sparse-lr --data "libsvm:$dir/rows"
run sparse-lr --data "libsvm:$dir/rows"
grep -q '^data: no test data given: a fifth of the rows is held out' "$dir/err" || fail "the split is not said: $err"
grep -qE '^accuracy .* of [0-9]+ test samples' "$dir/out" || fail "no accuracy: $(cat "$dir/out")"

# ... is the same as a split of 0.2, for one rank, two ranks and asynchronous workers
trained '.test_from == "held out"' "${rows[@]}" --test-split 0.2
want=$(get "$sha, .test_samples")
trained true "${rows[@]}"
[ "$(get "$sha, .test_samples")" = "$want" ] || fail "the default is not a split of 0.2"
trained ".test_samples == $(sed -n 2p <<<"$want")" "${rows[@]}" --batch 10 --ranks 2
trained ".test_samples == $(sed -n 2p <<<"$want")" "${rows[@]}" --mode async --ranks 2
trained ".test_samples != $(sed -n 2p <<<"$want")" "${rows[@]}" --seed 2

# no split: the model is tested on what it was trained on, and says so
trained '.test_from == "training" and .test_samples == 500' "${rows[@]}" --test-split 0
trained '.test_from == "training" and .test_samples == 500' "${rows[@]}" --test-split 0 --ranks 2
run "${rows[@]}" --test-split 0
grep -q '^data: no test data given: the model is tested on the training samples' "$dir/err" || fail "not said: $err"
grep -qE '^accuracy .* of 500 training samples' "$dir/out" || fail "called test samples: $(cat "$dir/out")"

# other sources are named, too
trained '.test_from == "given" and .test_samples == 500' "${rows[@]}" --test-data "libsvm:$dir/rows"
trained '.test_from == "data"' softmax --data synth:500 --steps 5
trained '.test_from == "data"' softmax --data synth:500 --steps 5 --test-split 0
trained '.test_from == "held out"' softmax --data synth:500 --steps 5 --test-split 0.5
run "${rows[@]}" --test-data "libsvm:$dir/rows"
[[ $err != *"no test data"* ]] || fail "test data was given: $err"

# a run that resumes has the same split; another one is refused
trained true "${rows[@]}" --checkpoint "$dir/cp"
trained ".resumed > 0 and [$sha] == [\"${want%%$'\n'*}\"]" "${rows[@]}" --checkpoint "$dir/cp" --resume --test-split 0.2
refused 2 "test split" "${rows[@]}" --checkpoint "$dir/cp" --resume --test-split 0
what="eval"
trained '.test_samples == 500' "$dir/cp" --data "libsvm:$dir/rows"
what=train

# too few rows to hold one out; a pipe
head -n 1 "$dir/rows" >"$dir/one"
refused 2 "or train on all samples with --test-split 0" sparse-lr --data "libsvm:$dir/one"
trained '.test_samples == 1' sparse-lr --data "libsvm:$dir/one" --test-split 0 --steps 5 --batch 1
mkfifo "$dir/pipe"
refused 1 "pipe is not a regular file" sparse-lr --data "libsvm:$dir/pipe"
exit "$bad"
