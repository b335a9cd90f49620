#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests training with a full disk: train_disk.sh VERBENA. A checkpoint that cannot be written ends the job, in both modes.
# The message names the file, the reason and the last good checkpoint. No other worker tries to save.
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
mount -t tmpfs -o size=92k vb-test "$dir/small" || { echo "skipped: cannot mount a tmpfs" && exit 77; }
trap 'umount "$dir/small"; rm -rf "$dir"' EXIT

# full NAME EVERY ARGUMENTS...: two checkpoints fit on the disk, but not a third one.
full() {
    local name=$1 every=$2
    rm -rf "$dir/small/keep"
    run softmax --data synth:2000 --batch 50 --steps 3000 --checkpoint "$dir/small/keep" --checkpoint-every "$every" \
        --json "${@:3}"
    [ "$code" = 1 ] || fail "$name: exit $code: $err"
    [ ! -s "$dir/out" ] || fail "$name: a result in spite of the full disk: $(cut -c 1-200 "$dir/out")"
    grep -q 'No space left on device' "$dir/err" || fail "$name: no reason: $err"
    [ "$(grep -c 'No space left on device' "$dir/err")" = 1 ] || fail "$name: more than one rank tried to save: $err"
    grep -q 'checkpoint-[0-9]*.vbc could not be written; the last checkpoint is .*/keep/checkpoint-[0-9]*.vbc: ' \
        "$dir/err" || fail "$name: the last good checkpoint is not named: $err"
}
full "one rank" 700
full "two ranks" 700 --ranks 2
full "async" 700 --ranks 3 --mode async
full "async, two servers, a bound of 0" 700 --ranks 3 --mode async --servers 2 --staleness 0
full "async, replicas" 700 --ranks 3 --mode async --replicas 2 --transport tcp
full "async, the last checkpoint" 1300 --ranks 3 --mode async
full "hogwild" 700 --ranks 2 --mode async --hogwild
[ $bad = 0 ] && echo "all tests passed: seven jobs on a full disk"
exit $bad
