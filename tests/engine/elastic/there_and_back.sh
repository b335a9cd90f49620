#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests on MNIST that a job which shrinks from 4 ranks to 1 and grows back to 4 learns as well as one that nobody
# disturbs: there_and_back.sh VERBENA MODEL... One rank is killed, then the lead, one is removed by verbena ctl; then
# three ranks join, one after another. The accuracy is within 0.2 points of that of the undisturbed job with the same
# seed, and the curve of the training loss lies on that job's.
#
# Covers: engine/elastic/form.c engine/elastic/recover.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
shift
here=$(dirname "$(realpath "$0")")
mnist=$(realpath -m "${VERBENA_TEST_DATA:-$here/../../../../shared/data}/mnist")
[ -d "$mnist" ] || { echo "skipped: MNIST is missing at $mnist"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: python3 is missing"; exit 77; }
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
(umask 077 && head -c 32 /dev/urandom >"$dir/key")

# For each model: its options, the number of steps, the steps of a mean, and how far apart the curves may be, in percent.
# Other numbers of ranks round differently. softmax forgets such differences, lenet does not: two undisturbed runs of it
# with 4 and 3 ranks are as far apart, or farther. Then their distance is the limit.
declare -A words=(
    [softmax]="--epochs 40 --global-batch 64"
    [lenet]="--epochs 6 --global-batch 64"
) apart=([softmax]=0.1 [lenet]=10)
window=200

# step: prints the last step that the job has made
step() {
    "$verbena" top "$dir/run" --once --json 2>/dev/null | jq -r '.step // 0'
}

# after PERCENT: waits until the job has made so many of its steps
after() {
    local until=$((steps * $1 / 100)) i now
    for ((i = 0; i < 6000; i++)); do
        now=$(step)
        [ "${now:-0}" -lt $until ] || return 0
        kill -0 $job 2>/dev/null || break
        sleep 0.1
    done
    fail "the job has not come to step $until: $(tail -n 5 "$dir/err")"
    exit 1
}

# dies PERCENT RANK: a rank of the start is killed then
dies() {
    after "$1"
    kill -KILL "${ranks[$2]}" || fail "rank $2 has ended: $(cat "$dir/err")"
}

# has_ranks NUMBER: returns whether the job has this many ranks now
has_ranks() {
    [ "$(tail -n 40 "$dir/ledger" | grep -c "\"ranks\":$1,")" -ge "$1" ]
}

# joins PERCENT NUMBER: a rank joins then, so that the job has this many. Its address may be that of a rank or a group
# that has just been left; then it calls again.
joins() {
    local i
    after "$1"
    for ((i = 0; i < 600; i++)); do
        ! has_ranks "$2" || return 0
        if [ $i = 0 ] || ! kill -0 $! 2>/dev/null; then
            timeout 1500 "$verbena" train --join "$(jq -r .run.join "$dir/run/run.json")" --secret-file "$dir/key" \
                >"$dir/join$2" 2>&1 &
        fi
        kill -0 $job 2>/dev/null || break
        sleep 0.1
    done
    fail "no rank has joined: $(cat "$dir/join$2") $(tail -n 5 "$dir/err")"
    exit 1
}

# numbers_of_ranks: prints how many ranks the job had, one after another
numbers_of_ranks() {
    jq -r 'select(.step) | [.step, .ranks] | @tsv' "$dir/ledger" | awk '{ n[$1] = $2 } $1 > last { last = $1 }
        END { for (i = 1; i <= last; i++) if (n[i] != now) { now = n[i]; printf("%s%d", (i == 1 ? "" : " "), now) } }'
}

# disturbed ARGUMENTS...: steps take so long that ranks can join before the last one
disturbed() {
    rm -rf "$dir/run" "$dir/ledger"
    timeout 1500 "$verbena" train "$@" --ranks 4 --inject slow:1x50:data --secret-file "$dir/key" --run "$dir/run" --ledger "$dir/ledger" --json \
        >"$dir/out" 2>"$dir/err" &
    job=$!
    after 10
    mapfile -t ranks < <(ranks_of "$(pgrep -P $job | head -n 1)")
    dies 12 3
    dies 24 0
    after 36
    "$verbena" ctl "$dir/run" remove 2 >"$dir/ctl" 2>&1 || fail "remove: $(cat "$dir/ctl")"
    joins 48 2
    joins 60 3
    joins 72 4
    wait $job
    code=$?
    [ $code = 0 ] || fail "$*: exit $code: $(cat "$dir/err")"
    wait
    final ".steps == $steps" "$@"
    python3 "$here/../check_ledger.py" "$dir/ledger" "$steps" || fail "$*: the ledger is wrong"
    [ "$(numbers_of_ranks)" = "4 3 2 1 2 3 4" ] || fail "$*: the job had $(numbers_of_ranks) ranks"
}

# compared A B: prints how far apart the curves of two runs are, in percent, and how many steps were left out
compared() {
    python3 "$here/compare_curves.py" "$1" "$2" "$steps" $window
}

for model; do
    read -ra args <<<"$model --data mnist:$mnist --seed 1 --threads 1 ${words[$model]}"
    timeout 1500 "$verbena" train "${args[@]}" --ranks 4 --run "$dir/alone" --json >"$dir/out" 2>"$dir/err" ||
        fail "$model: $(cat "$dir/err")"
    steps=$(get .steps) accuracy=$(get .accuracy)
    timeout 1500 "$verbena" train "${args[@]}" --ranks 3 --run "$dir/three" --json >"$dir/out3" 2>"$dir/err" ||
        fail "$model with 3 ranks: $(cat "$dir/err")"
    disturbed "${args[@]}"
    read -r difference left_out < <(compared "$dir/run" "$dir/alone")
    read -r normal _ < <(compared "$dir/three" "$dir/alone")
    echo "$model, $steps steps: accuracy $(get .accuracy), undisturbed $accuracy, with 3 ranks $(jq -r .accuracy "$dir/out3");" \
        "loss curves at most $difference % apart ($left_out steps left out), those of 3 and 4 ranks $normal %"
    final "(.accuracy - $accuracy | fabs) <= 0.002" "$model: accuracy"
    awk "BEGIN { exit !($difference <= ${apart[$model]} || $difference <= $normal) }" </dev/null || fail "$model: the loss curves differ by $difference %"
    rm -rf "$dir/alone" "$dir/three"
done
exit $bad
