#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that core dumps of ranks and supervisors do not contain the job's secret: core.sh VERBENA
#
# Covers: net/control/auth.c launch/launch.c
set -uo pipefail
verbena=$(realpath "$1")
if ! command -v gcore >/dev/null; then
    echo "skipped: needs gcore (gdb)"
    exit 77
fi
dir=$(mktemp -d /tmp/verbena-core.XXXXXX)
pids=()
trap 'kill_all; rm -rf "$dir"' EXIT
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}
kill_all() {
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" && wait "$pid" # the ranks of a supervisor end with it
    done 2>/dev/null
    pids=()
}

# The secret is a text, so that grep can find it, both as bytes and as hexadecimal digits.
secret=$(head -c 24 /dev/urandom | base64)
hex=$(printf %s "$secret" | od -An -tx1 -v | tr -d ' \n')
(umask 077 && printf %s "$secret" >"$dir/key")
port=$((20000 + $$ % 5000 * 2))

# start NAME OPTIONS...: starts a job, or one rank of it, that does not end by itself. It is patient, because gcore
# stops a rank for a while.
start() {
    local name=$1
    shift
    "$verbena" train softmax --data synth:1000 --steps 100000000 --timeout 60 --patience 100 \
        --checkpoint "$dir/$name.d" --checkpoint-every 1000 "$@" >"$dir/$name" 2>&1 &
    pids+=($!)
}
# trains NAME: waits until the job has begun to train
trains() {
    local i
    for ((i = 0; i < 1500; i++)); do
        ! ls "$dir/$1.d"/*.vbc >/dev/null 2>&1 || return
        sleep 0.02
    done
    fail "the job did not begin: $(cat "$dir/$1")"
}
# clean WHAT CORE: a core dump has the command line of its process, but not the secret
clean() {
    grep -qaF -- "--checkpoint-every" "$2" || fail "$1: the core dump is empty"
    ! grep -qaF -e "$secret" -e "$hex" "$2" || fail "$1: the core dump contains the secret"
    rm -f "$2"
}
# dump WHAT: checks a core dump of each process of the job
dump() {
    local pid
    for pid in "${pids[@]}" $(for p in "${pids[@]}"; do cat "/proc/$p/task/$p/children"; done); do
        gcore -o "$dir/core" "$pid" >"$dir/gcore" 2>&1 || fail "$1: gcore: $(cat "$dir/gcore")"
        clean "$1: $(tr '\0' ' ' <"/proc/$pid/cmdline")" "$dir/core.$pid"
    done
}

by_hand=(--world 2 --root "127.0.0.1:$port")
start rank1 "${by_hand[@]}" --rank 1 --secret-file "$dir/key"
VB_SECRET=$hex start rank0 "${by_hand[@]}" --rank 0
trains rank0
dump "by hand"
# A core dump that the kernel writes, too, if it is a file in the current folder.
if [ "$(cat /proc/sys/kernel/core_pattern)" = core ]; then
    kill_all
    cd "$dir" || exit 1
    (ulimit -c unlimited && exec "$verbena" train softmax --data synth:1000 --steps 100000000 \
        --checkpoint alone.d --checkpoint-every 1000 --mode async --secret-file key --world 1 >alone 2>&1) &
    pids+=($!)
    trains alone
    kill -ABRT "${pids[0]}"
    wait "${pids[0]}" 2>/dev/null
    for core in core*; do
        [ ! -e "$core" ] || clean "killed" "$core"
    done
fi
kill_all

start both --mode async --ranks 2 --secret-file "$dir/key"
trains both
dump "--ranks"
kill_all
exit $bad
