#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests training with a full disk, and without its folder: train_disk.sh VERBENA. A checkpoint that cannot be written is
# a warning that names the cause and the last good checkpoint; training goes on, and the result has it among its faults.
# With --checkpoint-strict it ends the job, in both modes, and no other worker tries to save.
#
# Covers: engine/train/train_save.c
if [ "$(id -u)" != 0 ] || { [ -z "${VB_OWN_MOUNTS:-}" ] && ! unshare -m true 2>/dev/null; }; then
    echo "skipped: needs root, to mount a small file system"
    exit 77
fi
[ -n "${VB_OWN_MOUNTS:-}" ] || VB_OWN_MOUNTS=1 exec unshare -m "$0" "$@" # so that nobody else sees the mount
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
mkdir "$dir/small"
mount -t tmpfs -o size=60k vb-test "$dir/small" || { echo "skipped: cannot mount a tmpfs" && exit 77; }
trap 'umount "$dir/small"; rm -rf "$dir"' EXIT
softmax=(softmax --data synth:2000 --batch 50 --steps 3000)

# one checkpoint fits on the disk, but not a second one
keep=$dir/small/keep

# full NAME EVERY ARGUMENTS...: the job goes on, with the same bits as if there were no checkpoints
full() {
    local name=$1 every=$2 sha=
    if [[ " ${*:3} " != *" async "* ]]; then
        run "${softmax[@]}" --json "${@:3}"
        sha=$(jq -r .params_sha256 "$dir/out")
    fi
    rm -rf "$keep"
    run "${softmax[@]}" --checkpoint "$keep" --checkpoint-every "$every" --json "${@:3}"
    [ "$code" = 0 ] || fail "$name: exit $code: $err"
    final '[.faults[] | select(.what == "checkpoint")] | length >= 1 and all(.[]; .rank == 0
        and (.why | test("No space left on device; the last good one is checkpoint-[0-9]+.vbc$")))' "$name"
    final "(.checkpoint | test(\"/keep/checkpoint-[0-9]+.vbc$\")) and .steps == 3000" "$name"
    [ -z "$sha" ] || final ".params_sha256 == \"$sha\"" "$name: other bits"
    grep -q 'warn .*checkpoint-[0-9]*.vbc could not be written: .*No space left on device; the last checkpoint is .*/keep/checkpoint-[0-9]*.vbc; training goes on' \
        "$dir/err" || fail "$name: no warning: $err"
    grep -q '^error' "$dir/err" && fail "$name: an error: $err"
    [ "$(find "$keep" -name '*.tmp')" = "" ] || fail "$name: an incomplete file is left"
    [ -s "$(jq -r .checkpoint "$dir/out")" ] || fail "$name: the last good checkpoint is not there"
}
full "one rank" 700
full "two ranks" 700 --ranks 2
full "async" 700 --mode async
sparse() {
    local softmax=(sparse-lr --data "synth:n=2000,features=$2" --batch 50 --steps 3000)
    full "$1" 700 "${@:3}"
}
sparse "sparse-lr" 5000 --rule adagrad
sparse "sparse-lr, lazy, two ranks" 2500 --rule momentum --ranks 2
sparse "sparse-lr, async" 5000 --rule adagrad --mode async

# strict NAME EVERY ARGUMENTS...: the job ends
strict() {
    local name=$1 every=$2
    rm -rf "$keep"
    run "${softmax[@]}" --checkpoint "$keep" --checkpoint-every "$every" --checkpoint-strict --json "${@:3}"
    [ "$code" = 1 ] || fail "$name: exit $code: $err"
    [ ! -s "$dir/out" ] || fail "$name: a result in spite of the full disk: $(cut -c 1-200 "$dir/out")"
    grep -q 'No space left on device' "$dir/err" || fail "$name: no reason: $err"
    [ "$(grep -c 'No space left on device' "$dir/err")" = 1 ] || fail "$name: more than one rank tried to save: $err"
    grep -q 'checkpoint-[0-9]*.vbc could not be written; the last checkpoint is .*/keep/checkpoint-[0-9]*.vbc: ' \
        "$dir/err" || fail "$name: the last good checkpoint is not named: $err"
}
strict "strict, one rank" 700
strict "strict, two ranks" 700 --ranks 2
strict "strict, async" 700 --ranks 3 --mode async
strict "strict, async, two servers, a bound of 0" 700 --ranks 3 --mode async --servers 2 --staleness 0
strict "strict, async, replicas" 700 --ranks 3 --mode async --replicas 2 --transport tcp
strict "strict, async, the last checkpoint" 1300 --ranks 3 --mode async
strict "strict, hogwild" 700 --ranks 2 --mode async --hogwild

# the folder above is removed while training goes on, so that it cannot be made again
set -m # background jobs do not ignore Ctrl-C
mkdir "$dir/above"
"$verbena" train softmax --data synth:2000 --batch 50 --steps 100000000 --checkpoint "$dir/above/keep" \
    --checkpoint-every 200 --json >"$dir/out" 2>"$dir/err" &
job=$!
for _ in $(seq 600); do
    compgen -G "$dir/above/keep/checkpoint-*.vbc" >/dev/null && break
    sleep 0.1
done
rm -rf "$dir/above"
while [ -e "$dir/above" ]; do rm -rf "$dir/above"; done # a checkpoint that was just being written
for _ in $(seq 600); do
    grep -q 'could not be written: cannot create the folder .*: No such file or directory; ' "$dir/err" && break
    sleep 0.1
done
kill -INT $job
wait $job
[ $? = 130 ] || fail "the folder is gone: $(cat "$dir/err")"
final '.faults[0].what == "checkpoint" and (.faults[0].why | test("No such file or directory; there is no earlier one$"))' \
    "the folder is gone"
[ $bad = 0 ] && echo "all tests passed: ten jobs on a full disk, and one whose folder was removed"
exit $bad
