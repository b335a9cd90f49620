#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that a rank which is left over from an earlier run is not part of the next one: run_id.sh VERBENA. It still waits
# for rank 0 of the earlier run, at the same address and with the same secret.
#
# Covers: cli/job_opts.c
set -uo pipefail
verbena=$(realpath "$1")
dir=$(mktemp -d /tmp/verbena-run-id.XXXXXX)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done; rm -rf "$dir"' EXIT
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}
(umask 077 && head -c 32 /dev/urandom >"$dir/key")

# start NAME RANK OPTIONS...: starts a rank, whose messages are in $dir/NAME
start() {
    local name=$1 rank=$2
    shift 2
    "$verbena" train softmax --data synth:2000 --steps 20 --rank "$rank" --root "127.0.0.1:$port" --timeout 60 \
        --secret-file "$dir/key" --json "$@" >/dev/null 2>"$dir/$name" &
    pids+=($!)
}
ends() {
    local pid=${pids[$1]}
    wait "$pid"
}

port=$((20000 + $$ % 5000 * 2))
start old 1 --world 2
start new0 0 --world 2 --run-id "run $$"
ends 0 && fail "the rank of the earlier run was welcomed"
grep -q "refused this rank: the secrets differ: .* the same --run-id" "$dir/old" ||
    fail "the rank of the earlier run was not told why: $(cat "$dir/old")"
start new1 1 --world 2 --run-id "run $$"
{ ends 1 && ends 2; } || fail "the run failed: $(cat "$dir/new0" "$dir/new1")"

# Without a run id nobody can know which rank 1 is meant. One of them gets the place. Whoever comes after that is told
# what to do.
pids=()
port=$((port + 1))
start old 1 --world 3
start new0 0 --world 3
start new1 1 --world 3
wait -n && fail "a rank ended before the job began"
start third 1 --world 3
ends 3 && fail "a second rank 1 was welcomed"
grep -q "already connected .*end that, or give all ranks of this run a new --run-id" "$dir/third" ||
    fail "nobody was told of the second rank 1: $(cat "$dir/third")"
start new2 2 --world 3
{ ends 1 && ends 4; } || fail "the run failed: $(cat "$dir/new0" "$dir/new2")"

# Who wants to join is told the run id, too.
"$verbena" train softmax --data synth:2000 --steps 20 --ranks 2 --secret-file "$dir/key" --run-id 'run 7' --log-level info \
    >/dev/null 2>"$dir/doors"
grep -q "others can join: .* --secret-file FILE --run-id 'run 7'" "$dir/doors" || fail "doors: $(cat "$dir/doors")"

start long 0 --world 3 --run-id "$(printf 'x%.0s' {1..300})"
ends 5
{ [ $? = 2 ] && grep -q "run-id may have 256 bytes" "$dir/long"; } || fail "a long run id: $(cat "$dir/long")"
exit $bad
