#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Everything that goes over RDMA, on soft-RoCE: the tests of transports and groups on one node and
# across two and three, whole jobs with the same parameters as over TCP, lost packets, and what
# happens when a process, a link or a machine goes away in mid-transfer.
# Usage: lab_verbs.sh BUILD_FOLDER [all]: without all, what CI has time for
# shellcheck disable=SC2016
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
all=${2:-}

# shellcheck source=tests/lab_test.sh
. tests/lab_test.sh

verbena=$build/verbena
job="train softmax --data synth:2000 --steps 10 --global-batch 96 --json --timeout 60"
sha() { sed -nE 's/.*"params_sha256":"([0-9a-f]{64})".*/\1/p' "$1"; }
began=$SECONDS
step() { echo "$((SECONDS - began)) s: $*"; }

# --- one node: two ranks and more, as threads and as processes -----------------------------------

step "one node"
tests=$build/tests
expect 0 '' lab/run --nodes 1 --mem 1200 --each --env VB_TEST_VERBS=1 --with "$tests/test_verbs" \
    --with "$tests/test_transport" -- sh -ec "$tests/test_verbs; $tests/test_transport"
[ "$(grep -c '  PASSED  ' "$work/err")" = 2 ] || fail "a test did not pass"
step "test_verbs, test_transport"
if [ -n "$all" ]; then
    expect 0 'PASSED' lab/run --nodes 1 --mem 1200 --each --env VB_TEST_VERBS=1 -- "$tests/test_group"
    step "test_group"
fi

# --- two and three nodes: the same promises, then whole jobs -------------------------------------

for nodes in 2 ${all:+3}; do
    if [ -n "$all" ]; then
        expect 0 'PASSED' lab/run --nodes "$nodes" --env VB_TEST_VERBS=1 -- "$tests/test_group"
        step "test_group across $nodes nodes"
    fi
    expect 0 'transport: verbs over rxe0/1, GID .* RoCE v2, MTU 1024: asked for' \
        lab/run --nodes "$nodes" --with "$verbena" -- sh -ec "
            for how in verbs 'verbs --verbs-imm off' tcp; do $verbena $job --transport \$how; done"
    sha "$work/out" >"$work/sha"
    [ "$(wc -l <"$work/sha")" = 3 ] || fail "a job has no digest"
    [ "$(sort -u "$work/sha" | wc -l)" = 1 ] || fail "verbs and tcp end with other parameters"
    step "jobs on $nodes nodes"
done

# --- a clean link has no trouble; a bad one loses nothing ------------------------------------------

bench="bench transfer --transport verbs --sizes 64,64K --seconds 0.5 --json"
# shellcheck disable=SC2086
expect 0 '' lab/run -- "$verbena" $bench
# Something asked for again, by a machine that was late, is out of sequence where it has come already.
jq -e -s 'map(select(.transport == "verbs")) | length == 8 and (map(.rnr) | add) == 0 and
    (map(.out_of_seq) | add) <= (map(.retries) | add)' \
    "$work/out" >/dev/null || fail "a receiver was not ready: $(cat "$work/out")"
step "a clean link"
if [ -z "$all" ]; then
    echo "ok: RDMA in the lab"
    exit 0
fi
# An emulated machine may be so late with an acknowledgement that it is asked again: once in a while.
jq -e -s 'map(.retries // 0) | add <= 2' "$work/out" >/dev/null || fail "retries: $(cat "$work/out")"
# What is lost is asked for again after a second at worst: fewer and shorter ones where much is.
# shellcheck disable=SC2086
expect 0 '' lab/run --loss 1 -- "$verbena" $bench
step "1 % lost"
expect 0 '' lab/run --loss 10 -- "$verbena" bench transfer --transport verbs --sizes 64,4K --seconds 0.1
step "10 % lost"

# --- auto takes what measures faster, and says so ------------------------------------------------

# shellcheck disable=SC2086
expect 0 'transport: (tcp|verbs) between hosts: soft-RoCE took .* ms for what took TCP .* ms' \
    lab/run -- "$verbena" $job --transport auto
step "auto"

# --- a process, a link, a machine goes away in mid-transfer --------------------------------------

# gone TEXT SECONDS LAB_OPTION... -- PROGRAM...: TEXT comes at most SECONDS after "gone now" or the
# lab's own word
gone() {
    local text=$1 limit=$2 status=0
    shift 2
    lab/run "$@" 2>&1 >"$work/out" </dev/null |
        while IFS= read -r line; do echo "$EPOCHSECONDS $line"; done >"$work/err" || status=$?
    local from to
    from=$(grep -m 1 -E 'gone now|powered off|link is cut' "$work/err" | cut -d ' ' -f 1) || fail "nothing went"
    to=$(grep -m 1 -E "$text" "$work/err" | cut -d ' ' -f 1) || fail "it does not say: $text"
    [ $((to - from)) -le "$limit" ] || fail "noticed after $((to - from)) s"
    nothing_left "$*"
    step "$text: after $((to - from)) s"
}

run="$verbena bench transfer --transport verbs --sizes 1M --seconds 60"
gone 'rank 1 \(node1\) is lost' 12 --with "$verbena" -- sh -c "
    [ \$VB_RANK = 1 ] || exec $run
    $run &
    sleep 12; echo gone now >&2; kill -9 \$!; wait"
# shellcheck disable=SC2086
gone 'rank 1 \(node1\) is lost' 14 --cut 1@14 --timeout 60 -- $run
# shellcheck disable=SC2086
gone 'rank 1 \(node1\) is lost' 14 --kill 1@14 -- $run
echo "ok: RDMA in the lab"
