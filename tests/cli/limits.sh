#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that small limits of a process (ulimit -s, ulimit -v) never end in a crash or a silent exit. Usage: limits.sh
# VERBENA [full]. With full, the ladder of memory limits has more steps.
#
# Covers: base/stack.c base/log.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
cd "$dir" || exit 1
export XDG_CACHE_HOME=$dir/cache

# within LIMIT KB ARGUMENTS...: runs verbena with ulimit LIMIT KB; output is in out, messages in err, exit code in $code
within() {
    local limit=$1 kb=$2
    shift 2
    (
        ulimit "$limit" "$kb" && exec timeout -k 5 100 "$verbena" "$@"
    ) >out 2>err
    code=$?
}

# ---- the stack: 128 KB are enough, 64 are refused with the limit to raise
jobs=("softmax --data synth:500" "sparse-lr --data synth:kind=criteo,n=2000,features=10000" "lenet --data synth:500"
    "alexnet --input 32 --data synth:100 --batch 8" "lenet --data synth:500 --ranks 2"
    "lenet --data synth:500 --mode async --ranks 2")
for kb in 128 unlimited; do
    for job in "${jobs[@]}"; do
        # shellcheck disable=SC2086 # a job is several words
        within -s $kb train $job --steps 2
        [ $code = 0 ] || fail "ulimit -s $kb: train $job: exit $code: $(cat err)"
    done
done
within -s 64 train softmax --data synth:500 --steps 2
if [ $code != 1 ] || ! grep -q "the stack may have 64 KB, .* verbena needs 96 KB: run ulimit -s 8192 first" err; then
    fail "ulimit -s 64: exit $code: $(cat err)"
fi

# ---- memory: each job either passes, or exits with 1 and says what there was no memory for. Below 60 MB the loader of
# programs and libraries refuses by itself.
jobs=("train softmax --data synth:2000 --steps 2" "train lenet --data synth:500 --steps 2"
    "train sparse-lr --data synth:kind=criteo,n=2000 --steps 2"
    "train softmax --data synth:2000 --mode async --ranks 2 --steps 2"
    "bench allreduce --ranks 2 --sizes 64K --seconds 0.02")
steps="80 110 150 250 500"
[ "${2:-}" != full ] || steps="60 64 68 72 76 80 84 88 92 96 100 110 120 130 140 150 175 200 250 300 400 600 800 1200 2000"
said='memory|thread|Thread|map '
passed=0 refused=0
for mb in $steps; do
    for job in "${jobs[@]}"; do
        # shellcheck disable=SC2086 # a job is several words
        within -v $((mb * 1024)) $job
        case $code in
        0) passed=$((passed + 1)) ;;
        1)
            refused=$((refused + 1))
            grep -Eq "$said" err || fail "ulimit -v $mb MB: $job: no word about memory: $(cat err)"
            ! grep -Eq 'signal|terminate called' err || fail "ulimit -v $mb MB: $job: a rank crashed: $(cat err)"
            ;;
        *) fail "ulimit -v $mb MB: $job: exit $code: $(cat err)" ;;
        esac
    done
done
within -v $((100 * 1024)) train sparse-lr --data synth:kind=criteo,n=2000 --steps 2
grep -q "Cannot allocate memory; ulimit -v allows this process 100 MB" err || fail "the limit is not named: $(cat err)"
if [ $passed = 0 ] || [ $refused = 0 ]; then fail "$passed runs passed and $refused were refused: the ladder is wrong"; fi
exit $bad
