#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests runs that resume with another number of ranks or another transport: train_resume.sh VERBENA MODEL... A job of
# three ranks is killed and goes on with 1, 2 and 4 ranks, over shared memory and TCP. Ranks hold equal parameters, both
# transports give the same bits, the loss is nearly that of a run that was not stopped, and the ledger has every sample
# of each epoch once. A resumed run can be killed and resumed, too.
#
# Covers: engine/train/train_save.c engine/train/train_dense_gradient.c engine/sums/list.c
# Covers: engine/record/train_ledger.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
shift
command -v python3 >/dev/null || { echo "skipped: python3 is missing"; exit 77; }
here=$(dirname "$0")
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

# No batch is a multiple of the number of ranks, and no epoch one of the batch.
declare -A data=(
    [softmax]="--data synth:610 --global-batch 61 --steps 24 --rule sgd --lr 0.5"
    [lenet]="--data synth:610 --global-batch 61 --steps 24"
    [mlp]="--data synth:610 --global-batch 62 --steps 24"
    [sparse-lr]="--data synth:kind=criteo,n=1000,features=100000 --global-batch 61 --steps 24"
    [alexnet]="--data synth:n=70,test=16 --input 32 --global-batch 17 --lr 0.003 --steps 6"
)

ledger() { # ledger STEPS WORDS...
    "$here/check_ledger.py" "$dir/ledger" "$1" 2>"$dir/why" || fail "${*:2}: ledger: $(cat "$dir/why")"
}

# killed RANKS RANK STEP ARGUMENTS...: the job must fail. Steps take so long that each checkpoint is written before the
# next is due: those of fast steps are left out.
killed() {
    run "${@:4}" --ranks "$1" --elastic off --inject "slow:0x500:data,kill:$2@$3" 2>/dev/null # bash says that a job was killed
    [ "$code" != 0 ] || fail "${*:4}: rank $2 was not killed before step $3"
}

near() { # near LOSS WORDS...: the loss of the last run is about this
    final "(.loss - $1 | fabs) < 1e-4 * $1" "${@:2}"
}

goes_on() { # goes_on MODEL
    local model=$1 args steps=24 every=4 ranks transport whole bits
    read -ra args <<<"${data[$model]}"
    [ "$model" != alexnet ] || steps=6 every=2
    ends 'true' "$model" "${args[@]}" --ranks 3
    whole=$(get .loss)
    rm -rf "$dir/began" "$dir/ledger"
    killed 3 1 $((steps / 2)) "$model" "${args[@]}" --checkpoint "$dir/began" --checkpoint-every $every \
        --ledger "$dir/began.ledger"
    for ranks in 3 1 2 4; do
        bits=
        for transport in shm tcp; do
            rm -rf "$dir/keep"
            cp -r "$dir/began" "$dir/keep"
            cp "$dir/began.ledger" "$dir/ledger"
            ends ".steps == $steps and .ranks == $ranks" "$model" "${args[@]}" --ranks $ranks --transport $transport \
                --checkpoint "$dir/keep" --checkpoint-every $every --resume --check-replicas 1 --ledger "$dir/ledger"
            [ "${bits:=$(get .params_sha256)}" = "$(get .params_sha256)" ] ||
                fail "$model resumed on $ranks ranks over $transport: the bits differ"
            near "$whole" "$model resumed on $ranks ranks"
            ledger $steps "$model resumed on $ranks ranks over $transport"
        done
        [ $ranks -gt 2 ] || again "$model" $ranks $steps "$bits"
    done
    rm -rf "$dir/began.ledger"
}

# again MODEL RANKS STEPS BITS: the job that was resumed is killed as well, and ends in the same bits, with another
# number of threads, too
again() {
    local model=$1 ranks=$2 steps=$3
    rm -rf "$dir/keep"
    cp -r "$dir/began" "$dir/keep"
    cp "$dir/began.ledger" "$dir/ledger"
    killed "$ranks" $((ranks - 1)) $((steps - 1)) "$model" "${args[@]}" --checkpoint "$dir/keep" --checkpoint-every $every \
        --resume --ledger "$dir/ledger"
    ends ".params_sha256 == \"$4\"" "$model" "${args[@]}" --ranks "$ranks" --checkpoint "$dir/keep" \
        --checkpoint-every $every --resume --ledger "$dir/ledger" --threads 2
    ledger "$steps" "$model resumed twice on $ranks ranks"
}

# From one number of ranks to another and back, with the options that the run began with.
there_and_back() {
    local args=(lenet --data synth:610 --batch 20 --epochs 2 --checkpoint "$dir/keep" --checkpoint-every 5) ranks at=0
    rm -rf "$dir/keep" "$dir/ledger"
    for ranks in 3 1 4 2; do
        at=$((at + 9)) # the first checkpoint has the time of four steps
        killed $ranks 0 $at "${args[@]}" --resume --ledger "$dir/ledger"
    done
    ends '.batch == 20 and .global_batch == 60 and .ranks == 3' "${args[@]}" --resume --ranks 3 --ledger "$dir/ledger"
    ledger "$(get .steps)" "there and back"
}

same_as_one_rank() { # dropout is that of one rank
    local args=(alexnet --data "synth:n=70,test=16" --input 32 --global-batch 17 --lr 0.003 --steps 6) whole ranks
    ends 'true' "${args[@]}"
    whole=$(get .loss)
    for ranks in 2 3; do
        ends 'true' "${args[@]}" --ranks $ranks
        near "$whole" "alexnet on $ranks ranks"
    done
}

each_sample_once() {
    local ranks
    for ranks in 1 2 3 4; do
        rm -f "$dir/ledger"
        ends 'true' softmax --data synth:203 --global-batch 14 --epochs 2 --ranks $ranks --ledger "$dir/ledger"
        ledger "$(get .steps)" "$ranks ranks"
    done
    sed -i '$d' "$dir/ledger"
    ! "$here/check_ledger.py" "$dir/ledger" 30 2>/dev/null || fail "a ledger without its last line was accepted"
    refused 2 "--ledger cannot be used with --mode async" softmax --mode async --ledger "$dir/ledger"
    refused 1 "cannot write the ledger $dir/no/ledger" softmax --data synth:203 --steps 1 --ledger "$dir/no/ledger"
}

not_resumed() { # not_resumed TEXT ARGUMENTS...: each rank says why
    run "${@:2}" --checkpoint "$dir/keep" --resume
    [ "$code" = 2 ] || fail "${*:2}: exit $code, expected 2"
    [[ $err == *"$1"* ]] || fail "${*:2}: '$err' does not contain '$1'"
}

what_must_agree() {
    local args=(lenet --data synth:610) want="belongs to a run with a different"
    rm -rf "$dir/keep"
    ends 'true' "${args[@]}" --batch 20 --steps 6 --checkpoint "$dir/keep" --ranks 3
    not_resumed "$want global batch" "${args[@]}" --steps 6 --batch 21 --ranks 2
    not_resumed "$want global batch" "${args[@]}" --steps 6 --global-batch 40 --ranks 2
    not_resumed "$want number of steps" "${args[@]}" --steps 7 --batch 20 --ranks 2
    not_resumed "$want learning rate" "${args[@]}" --steps 6 --batch 20 --ranks 2 --lr 0.001
    not_resumed "$want mode" "${args[@]}" --steps 6 --batch 20 --ranks 2 --mode async
    rm -rf "$dir/keep"
    ends 'true' softmax --data synth:610 --global-batch 2 --steps 4 --checkpoint "$dir/keep"
    not_resumed "too few for 3 ranks" softmax --data synth:610 --batch 2 --steps 4 --ranks 3
}

for model; do
    case $model in
    rules)
        each_sample_once
        what_must_agree
        there_and_back
        same_as_one_rank
        ;;
    *)
        goes_on "$model"
        ;;
    esac
done

[ $bad = 0 ] && echo "all tests passed"
exit $bad
