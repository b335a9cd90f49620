#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests --detect between two hosts whose link breaks: detect_cut.sh VERBENA. The hosts are network namespaces. A job that
# is not elastic ends. Of an elastic one the half with rank 0 goes on, and the other half ends.
#
# Covers: net/control/times.c net/control/watch.c net/control/agree.c
set -uo pipefail
verbena=$(realpath "$1")

# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../support/host_pair.sh"
need_namespaces
a=vb-a-$$ b=vb-b-$$
dir=$(mktemp -d /tmp/verbena-cut.XXXXXX)
trap 'remove_host_pair "$a" "$b"; rm -rf "$dir"' EXIT
make_host_pair "$a" "$b" || exit
unset "${!VB_@}"
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}
(umask 077 && head -c 32 /dev/urandom >"$dir/key")

# start PORT OPTIONS...: trains on both hosts, two ranks each, and cuts the link. The ranks are in ${pids[@]}, and the
# time of the cut, in ns, is in $begin.
start() {
    local port=$1 rank on i
    shift
    pids=()
    rm -rf "$dir/run"
    ip -n "$b" link set veth-b up
    for rank in 0 1 2 3; do
        on=$a
        [ $rank -lt 2 ] || on=$b
        timeout 100 ip netns exec "$on" "$verbena" train softmax --data synth:2000 --batch 10 --steps 100000000 --world 4 \
            --root "10.98.0.1:$port" --secret-file "$dir/key" --rank $rank --run "$dir/run" "$@" >"$dir/out$rank" \
            2>"$dir/err$rank" </dev/null &
        pids+=($!)
    done
    for ((i = 0; i < 3000; i++)); do
        [ ! -s "$dir/run/rank0/steps.bin" ] || break
        sleep 0.02
    done
    sleep 1
    ip -n "$b" link set veth-b down
    begin=$(date +%s%N)
}

# cut PORT OPTIONS...: all ranks must end. The time until the last one has ended, in ms, is in $took.
cut() {
    local port=$1 rank i
    shift
    start "$port" --elastic off "$@"
    for rank in 0 1 2 3; do
        wait "${pids[$rank]}"
        [ $? = 1 ] || fail "$*: rank $rank did not end by itself: $(cat "$dir"/err?)"
    done
    took=$((($(date +%s%N) - begin) / 1000000))
    for i in '0 [23]' '1 [23]' '2 [01]' '3 [01]'; do
        grep -qE "rank ${i#* } .* is lost: (silent for|its host cannot)|rank [01] .* gave up" "$dir/err${i% *}" ||
            fail "$*: rank ${i% *} says: $(cat "$dir/err${i% *}")"
    done
    grep -qhE 'is lost: silent for [0-9.]+ s, when last heard [a-z ]+([0-9]+ )?in step [0-9]+' "$dir"/err? ||
        fail "$*: nobody says what the other ranks did: $(cat "$dir"/err?)"
}

# part PORT OPTIONS...: ranks 0 and 1 must go on, and the others must end within 15 s: --detect, one second more, and what
# a busy machine needs. The time that they took, in ms, is in $took.
part() {
    local port=$1 rank rows code
    shift
    start "$port" --transport tcp "$@"
    for rank in 2 3; do
        wait "${pids[$rank]}"
        code=$?
        [ $code = 1 ] || fail "$*: rank $rank did not end by itself, exit $code: $(cat "$dir/err$rank")"
        # the other one of this host may have ended by then
        grep -qE 'this rank cannot go on: of 4 ranks only [-23, ]+ can be reached from here' "$dir/err$rank" ||
            fail "$*: rank $rank says: $(cat "$dir/err$rank")"
        [ ! -s "$dir/out$rank" ] || fail "$*: rank $rank prints a result: $(cat "$dir/out$rank")"
    done
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $took -lt 15000 ] || fail "$*: ranks 2 and 3 took $took ms to end"
    for rank in 0 1; do
        kill -0 "${pids[$rank]}" || fail "$*: rank $rank has not gone on: $(cat "$dir/err$rank")"
    done
    rows=$(stat -c %s "$dir/run/rank0/steps.bin")
    sleep 2
    [ "$(stat -c %s "$dir/run/rank0/steps.bin")" -gt "$rows" ] || fail "$*: rank 0 makes no steps: $(cat "$dir/err0")"
    kill -INT "$(pgrep -P "${pids[0]}")"
    for rank in 0 1; do
        wait "${pids[$rank]}"
        code=$?
        [ $code = 130 ] || fail "$*: rank $rank ends with $code after SIGINT: $(cat "$dir/err$rank")"
    done
    jq -e '[.faults[] | [.rank, .what]] | sort == [[2, "rank lost"], [3, "rank lost"]]' "$dir/out0" >/dev/null ||
        fail "$*: the faults are $(jq -c .faults "$dir/out0")"
}

cut 7001
short=$took
cut 7002 --detect 3
long=$took
[ "$short" -lt 20000 ] || fail "found after $short ms, far from 1 s"
[ "$long" -ge 2500 ] || fail "--detect 3: found after $long ms"
[ "$long" -lt 40000 ] || fail "--detect 3: found after $long ms, far from 3 s"
[ $((long * 2)) -gt $((short * 3)) ] || fail "--detect 3 takes $long ms, and --detect 1 $short ms"

part 7003 --json

[ $bad = 0 ] && echo "all tests passed: a cut link found after $short ms, with --detect 3 after $long ms; the half of an" \
    "elastic job that cannot go on ended after $took ms"
exit $bad
