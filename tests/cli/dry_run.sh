#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Compares what train --dry-run says that a job needs with what its ranks hold while they train, and tests that jobs
# that do not fit are refused before they start: dry_run.sh VERBENA
#
# Covers: cli/train/train_fits.c engine/train/train_need.c net/coll/coll_open.c
# Covers: net/group/group_need.c
set -uo pipefail
# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"
ranks_here "$1"

# holds: prints the numbers of descriptors and threads of the rank that has most
holds() {
    local p fds=0 threads=0 n
    for p in $(ours | grep -vx "$pid"); do
        n=$(find "/proc/$p/fd" -mindepth 1 2>/dev/null | wc -l)
        [ "$n" -le "$fds" ] || fds=$n
        n=$(find "/proc/$p/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
        [ "$n" -le "$threads" ] || threads=$n
    done
    echo "$fds $threads"
}

# same RANKS OPTIONS...: fails unless a job holds what its dry run said: descriptors and threads exactly, memory within
# 15 %
same() {
    local i p want most has n sum=0 ranks=$1
    shift
    job=(train "$@" --data synth:1000 --threads 1 --ranks "$ranks" --steps 100000000)
    under "$verbena" "${job[@]}" --dry-run --json
    [ "$code" = 0 ] || fail "$*, dry run: exit $code: $err"
    want=$(jq -r '.needs | "\(.rank_descriptors) \(.rank_threads)"' "$dir/out")
    most=$(jq -r '.needs.host_mb' "$dir/out")
    "$verbena" "${job[@]}" >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    # the ranks need some time to set everything up; what they hold then must stay
    for ((i = 0, n = 0; i < 300 && n < 10; i++)); do
        has=$(holds)
        n=$((n + 1))
        [ "$has" = "$want" ] || n=0
        sleep 0.1
    done
    [ $n = 10 ] || fail "$ranks ranks, $*: a rank has $has descriptors and threads, the dry run said $want"
    for p in $(ours | grep -vx $pid); do
        sum=$((sum + $(awk '/^Pss:/ { print $2 }' "/proc/$p/smaps_rollup")))
    done
    if [ "$most" != null ]; then
        jq -en "$sum * 1024 / 1e6 / $most | . > 0.85 and . < 1.15" >/dev/null ||
            fail "$ranks ranks, $*: they hold $((sum * 1024 / 1000000)) MB, the dry run said $most MB"
    fi
    kill -KILL $pid
    ends "$*"
}

same 4 softmax --global-batch 64
same 8 mlp --global-batch 64
same 4 lenet --global-batch 64 --transport tcp
same 4 softmax --batch 16 --mode async

# The text has the same numbers.
under "$verbena" train softmax --data synth:1000 --threads 1 --ranks 2 --dry-run
grep -q '^a rank      needs [0-9]* descriptors and [0-9]* threads, and [0-9.]* MB: parameters' "$dir/out" ||
    fail "the text of a dry run: $(cat "$dir/out")"

# refused REGEX COMMAND...: fails unless the command is refused with this text before a rank starts. The numbers of
# descriptors include those that this script has inherited.
refused() {
    local text="this job does not fit: $1"
    shift
    under "$@"
    [[ $code = 1 && $err =~ $text && $err != *'[rank'* ]] || fail "$*: exit $code: $err"
}

long=("$verbena" train softmax --data synth:1000 --threads 1 --steps 20 --elastic off)
# shellcheck disable=SC2016 # the inner shells expand the variables
{
    refused 'a rank needs 4[0-9], but the limit of open files is 30; raise it with: ulimit -n 4[0-9]' \
        bash -c 'ulimit -n 30; exec "$@"' sh "${long[@]}" --ranks 8
    refused 'the supervisor needs 6[0-9], but the limit of open files is 54; raise it with: ulimit -n 6[0-9]' \
        bash -c 'ulimit -n 54; exec "$@"' sh "${long[@]}" --ranks 16 --transport tcp --logs "$dir/logs"
    refused 'bytes: the address space of a rank needs' \
        bash -c 'ulimit -v 150000; exec "$@"' sh "${long[@]}" --ranks 8 --dry-run
    # The program may raise a soft limit itself.
    under bash -c 'ulimit -Sn 20; exec "$@"' sh "${long[@]}" --ranks 4
    [ "$code" = 0 ] || fail "a soft limit of open files: exit $code: $err"
}

[ $bad = 0 ] && echo "all tests passed: jobs need what their dry run said"
exit $bad
