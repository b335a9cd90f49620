#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests synchronous jobs that lose rank 0, which saves, shows and reports until then: train_lead.sh VERBENA. The job ends
# with the parameters, the evaluations and the checkpoint of a job of the other ranks that resumed from the step before.
# The next rank also honours Ctrl-C, and its checkpoints can be resumed.
#
# Covers: engine/train/train_lead.c engine/train/train_save.c engine/train/train_until.c engine/run/run_end.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
set -m # background jobs do not ignore Ctrl-C

# rank_0_dies STEPS ARGUMENTS...: sets all, and same, a filter for the end of this job
rank_0_dies() {
    local steps=$1 every=$(($1 / 20)) at
    shift
    all=("$@" --steps "$steps" --checkpoint-every $((every + 10)) --eval-every $every --until plateau:1000 --threads 1)

    # two ranks go on from a checkpoint of three
    rm -rf "$dir/a" "$dir/b" "$dir/run"
    run "${all[@]}" --ranks 3 --checkpoint "$dir/a" --elastic off --inject "kill:0@$((steps / 2))"
    [ "$code" = 1 ] || fail "$*: exit $code: $err"
    at=$(find "$dir/a" -name 'checkpoint-*.vbc' | sed 's/.*-//; s/\.vbc//' | sort -n | tail -n 1)
    ends ".steps == $steps and .resumed == $at" "${all[@]}" --ranks 2 --checkpoint "$dir/a" --resume
    same=".params_sha256 == \"$(get .params_sha256)\" and .accuracy == $(get .accuracy) and .loss == $(get .loss)"

    # rank 0 dies in the step after that checkpoint
    ends ".steps == $steps and .resumed == 0 and .ranks == 3 and [.per_rank[].rank] == [1, 2] and $same and
        .checkpoint == \"$dir/b/checkpoint-$steps.vbc\" and .stopped == null and
        [.evals[].step] == [range($every; $steps + 1; $every)]" \
        "${all[@]}" --ranks 3 --checkpoint "$dir/b" --run "$dir/run" --inject "kill:0@$((at + 1))"
    [ "$(wc -l <"$dir/out")" = 1 ] || fail "$*: not one result: $(cat "$dir/out")"
    [ -s "$dir/b/checkpoint-$steps.vbc" ] || fail "$*: no checkpoint: $(ls "$dir/b")"
    compgen -G "$dir/b/*.tmp" >/dev/null && fail "$*: the file of the dead rank is left: $(ls "$dir/b")"
    jq -e ".run.state == \"ended\" and $same" "$dir/run/run.json" >/dev/null ||
        fail "$*: run.json: $(cat "$dir/run/run.json")"
}

# stopped_later ARGUMENTS...: rank 0 dies in step 500; then the job is stopped, and goes on from its checkpoint
stopped_later() {
    local steps=5000 try job stopped
    for try in 1 2 3 4 5; do
        rm -rf "$dir/b"
        "$verbena" train "$@" --steps $steps --ranks 3 --inject kill:0@500 --checkpoint "$dir/b" --checkpoint-every 100 \
            --json >"$dir/out" 2>"$dir/err" &
        job=$!
        for _ in $(seq 600); do
            grep -q 'ranks go on' "$dir/err" && break
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
    stopped=$(get .steps)
    final ".stopped == \"SIGINT\" and .steps >= 499 and .checkpoint == \"$dir/b/checkpoint-$stopped.vbc\"" "$@"
    ends ".resumed == $stopped and .steps == $steps" "$@" --steps $steps --ranks 2 --checkpoint "$dir/b" \
        --checkpoint-every 100 --resume
    same=".params_sha256 == \"$(get .params_sha256)\""
    ends "$same and .steps == $steps" "$@" --steps $steps --ranks 3 --inject kill:0@500
}

softmax=(softmax --data synth:3000 --global-batch 60 --seed 3)
rank_0_dies 2000 "${softmax[@]}" --transport shm
rank_0_dies 2000 "${softmax[@]}" --transport tcp
rank_0_dies 400 lenet --data synth:1000 --global-batch 30 --seed 3
rank_0_dies 2000 sparse-lr --data synth:3000 --features 10000 --global-batch 60 --seed 3
stopped_later "${softmax[@]}"
exit $bad
