#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests synchronous jobs that lose rank 0, which saves, shows and reports until then: train_lead.sh VERBENA. The job ends
# with the parameters, the evaluations and the checkpoint of a job of the other ranks that resumed from the step before.
# The next rank also honours Ctrl-C, and its checkpoints can be resumed.
#
# Covers: engine/elastic/lead.c engine/train/train_save.c engine/train/train_until.c engine/run/run_end.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
set -m # background jobs do not ignore Ctrl-C

# goes_on_from STEP SAME ARGUMENTS...: two ranks go on from the checkpoint of this step of three ranks, which end then.
# The result must make the filter SAME true. A rank pauses, so that the checkpoint is written before the job ends.
goes_on_from() {
    local step=$1 same=$2
    shift 2
    rm -rf "$dir/a"
    run "$@" --ranks 3 --checkpoint "$dir/a" --checkpoint-every "$step" --elastic off \
        --inject "stop:1@$((step + 1)):1,kill:0@$((2 * step - 1))"
    [ "$code" = 1 ] || fail "$*: exit $code: $err"
    [ -s "$dir/a/checkpoint-$step.vbc" ] || fail "$*: no checkpoint of step $step: $(ls "$dir/a")"
    ends "$same and .resumed == $step" "$@" --ranks 2 --checkpoint "$dir/a" --checkpoint-every "$step" --resume
}

same_end() {
    echo ".params_sha256 == \"$(get .params_sha256)\" and .accuracy == $(get .accuracy) and .loss == $(get .loss)"
}

# rank_0_dies STEPS ARGUMENTS...: rank 0 dies in the middle
rank_0_dies() {
    local steps=$1 every=$(($1 / 20)) same
    shift
    local all=("$@" --steps "$steps" --eval-every "$every" --until plateau:1000 --threads 1)

    rm -rf "$dir/b" "$dir/run"
    ends ".steps == $steps and .resumed == 0 and .ranks == 3 and [.per_rank[].rank] == [1, 2] and .stopped == null and
        .checkpoint == \"$dir/b/checkpoint-$steps.vbc\" and [.evals[].step] == [range($every; $steps + 1; $every)] and
        (.faults | length == 1 and .[0].what == \"rank lost\" and .[0].rank == 0)" \
        "${all[@]}" --ranks 3 --checkpoint "$dir/b" --checkpoint-every 70 --run "$dir/run" --inject "kill:0@$((steps / 2))"
    [ "$(wc -l <"$dir/out")" = 1 ] || fail "$*: not one result: $(cat "$dir/out")"
    [ -s "$dir/b/checkpoint-$steps.vbc" ] || fail "$*: no checkpoint: $(ls "$dir/b")"
    compgen -G "$dir/b/*.tmp" >/dev/null && fail "$*: the file of the dead rank is left: $(ls "$dir/b")"
    same=$(same_end)
    jq -e ".run.state == \"ended\" and $same" "$dir/run/run.json" >/dev/null ||
        fail "$*: run.json: $(cat "$dir/run/run.json")"
    goes_on_from "$(get '.faults[0].step')" "$same" "${all[@]}"
}

# stopped_later ARGUMENTS...: rank 0 dies in step 500; then the job is stopped, and goes on from its checkpoint
stopped_later() {
    local steps=5000 try job stopped from
    for try in 1 2 3 4 5; do
        rm -rf "$dir/b"
        "$verbena" train "$@" --steps $steps --ranks 3 --inject kill:0@500 --checkpoint "$dir/b" --checkpoint-every 100 \
            --json >"$dir/out" 2>"$dir/err" &
        job=$!
        for _ in $(seq 600); do
            grep -q 'training goes on with 2 ranks' "$dir/err" && break
            kill -0 "$job" 2>/dev/null || break
            sleep 0.05
        done
        kill -INT "$job" 2>/dev/null
        wait "$job"
        code=$?
        [ "$code" != 0 ] && break
        steps=$((4 * steps)) # the job ended before the signal
    done
    [ "$code" = 130 ] || fail "$*: exit $code, try $try: $(cat "$dir/err")"
    [ "$(wc -l <"$dir/out")" = 1 ] || fail "$*: not one result: $(cat "$dir/out")"
    stopped=$(get .steps) from=$(get '.faults[0].step')
    final ".stopped == \"SIGINT\" and .steps >= $from and .checkpoint == \"$dir/b/checkpoint-$stopped.vbc\"" "$@"
    ends ".resumed == $stopped and .steps == $steps" "$@" --steps $steps --ranks 2 --checkpoint "$dir/b" \
        --checkpoint-every 100 --resume
    goes_on_from "$from" "$(same_end)" "$@" --steps $steps
}

softmax=(softmax --data synth:3000 --global-batch 60 --seed 3)
rank_0_dies 2000 "${softmax[@]}" --transport shm
rank_0_dies 2000 "${softmax[@]}" --transport tcp
rank_0_dies 400 lenet --data synth:1000 --global-batch 30 --seed 3
rank_0_dies 2000 sparse-lr --data synth:3000 --features 10000 --global-batch 60 --seed 3
stopped_later "${softmax[@]}"
exit $bad
