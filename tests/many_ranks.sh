#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests jobs of many ranks on one host: many_ranks.sh VERBENA RANKS... Each number of ranks runs synchronously and
# asynchronously, over shared memory and over TCP.
#
# Covers: net/control/accept.c net/control/watch.c
set -uo pipefail
verbena=$(realpath "$1")
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset "${!VB_@}"
export TMPDIR=$dir
bad=0
# shellcheck source=tests/support/launch_test.sh
. tests/support/launch_test.sh
ours() { with_folder; }
limit=300 # seconds for a job, on a busy machine
hard=$(ulimit -Hn)
[ "$hard" = unlimited ] || [ "$hard" -ge 4096 ] || {
    echo "skipped: ulimit -n allows $hard open files"
    exit 77
}
ulimit -n "$hard"

for ranks in "$@"; do
    for transport in shm tcp; do
        for mode in sync async; do
            start=$(date +%s)
            timeout $limit "$verbena" train softmax --data synth:4000 --ranks "$ranks" --mode "$mode" \
                --transport $transport --batch 16 --steps 20 --timeout 200 --json >"$dir/out" 2>"$dir/err" </dev/null
            code=$?
            name="$ranks ranks, $mode, $transport"
            echo "$name: exit $code, $(($(date +%s) - start)) s"
            [ $code = 0 ] || fail "$name: exit $code: $(head -c 2000 "$dir/err")"
            tail -n 1 "$dir/out" | jq -en 'input | .steps == 20' >/dev/null ||
                fail "$name: $(tail -n 1 "$dir/out" | cut -c 1-500)"
            nothing_left "$name"
        done
    done
done
exit $bad
