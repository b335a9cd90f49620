#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests synchronous jobs that go on without ranks that die: train_elastic.sh VERBENA MODELS... Every model makes all
# steps over shared memory and TCP when one rank dies, when two die at once, and when one after another dies. Replicas
# stay equal, the ledger is exact, and the parameters are, bit for bit, those of a job that the survivors resume from a
# checkpoint of the step before the death.
#
# Covers: engine/elastic/recover.c engine/run/run.c engine/record/train_ledger.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
shift
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
here=$(dirname "$(realpath "$0")")
steps=16

# job WORDS...: trains, which must succeed; the digest of the parameters is then in $sha256
job() {
    run "${model[@]}" --threads 1 --steps "$steps" --seed 3 --json "$@"
    [ "$code" = 0 ] || fail "${model[*]} $*: exit $code: $err"
    final ".steps == $steps and .stopped == null" "${model[*]} $*"
    sha256=$(get .params_sha256)
}

# lost: prints how many ranks were said to be lost
lost() {
    grep -o 'rank [0-9]* (host [^)]*) was lost after step' "$dir/err" | sort -u | wc -l
}

# survives LOST STEP SURVIVORS FAULTS: ranks die at the beginning of this step; the job must go on
survives() {
    local lost=$1 step=$2 left=$3 transport
    shift 3
    for transport in shm tcp; do
        rm -f "$dir/ledger"
        job --ranks 3 --inject "$1" --transport "$transport" --check-replicas 1 --ledger "$dir/ledger"
        python3 "$here/../check_ledger.py" "$dir/ledger" "$steps" || fail "${model[*]} $* $transport: the ledger is wrong"
        [ "$(lost)" = "$lost" ] || fail "${model[*]} $* $transport: $err"
        [ "$sha256" = "$(resumed "$((step - 1))" "$left")" ] || fail "${model[*]} $* $transport: other bits"
    done
}

# resumed STEP RANKS: prints the digest of the parameters if this many ranks go on from the checkpoint of a step
resumed() {
    local known=$dir/${model[0]}-$1-$2
    if [ ! -s "$known" ]; then
        rm -rf "$dir/c"
        cp -r "$dir/all" "$dir/c"
        rm "$dir/c/checkpoint-$steps.vbc"
        job --ranks "$2" --checkpoint "$dir/c" --resume >&2
        echo "$sha256" >"$known"
    fi
    cat "$known"
}

for name; do
    case $name in
    softmax) model=(softmax --data synth:1000 --batch 20) ;;
    sparse-lr) model=(sparse-lr --data "synth:n=3000,features=20000" --batch 50 --rule momentum) ;;
    *) model=("$name" --data synth:600 --batch 8) ;;
    esac
    rm -rf "$dir/all"
    job --ranks 3 --checkpoint "$dir/all" --checkpoint-every 10
    survives 1 11 2 kill:2@11
    survives 1 11 2 kill:0@11
    survives 2 11 1 kill:0@11,kill:1@11
done

# one after another, down to the last
model=(softmax --data synth:1000 --batch 20)
for transport in shm tcp; do
    rm -f "$dir/ledger"
    job --ranks 4 --inject kill:0@4,kill:2@7,kill:1@8 --transport "$transport" --ledger "$dir/ledger"
    python3 "$here/../check_ledger.py" "$dir/ledger" "$steps" || fail "one after another, $transport: the ledger is wrong"
    [ "$(lost)" = 3 ] || fail "one after another, $transport: $err"
done

# the old way
run "${model[@]}" --steps "$steps" --ranks 3 --inject kill:2@5 --elastic off --json
[ "$code" = 1 ] || fail "--elastic off: exit $code: $err"
[ ! -s "$dir/out" ] || fail "--elastic off: there is a result"

# a rank that gives up ends the job
run mlp --data synth:1000 --ranks 2 --transport shm --steps 100 --lr 1000 --clip 0 --schedule constant --warmup 0 --json
[ "$code" = 1 ] || fail "a loss that is not finite: exit $code: $err"
[[ $err == *"finite"* ]] || fail "a loss that is not finite: $err"
exit "$bad"
