#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests a job with replicas whose two hosts lose each other: train_parted.sh VERBENA. The hosts are network namespaces.
# The link between them is cut without closing any connection. Exactly one part of the job goes on: the larger one, or
# of two equal ones that with rank 0. The other part stops and names the last checkpoint.
#
# Covers: engine/ps/ps_parted.c
set -uo pipefail
verbena=$(realpath "$1")

# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../../support/host_pair.sh"
need_namespaces
dir=$(mktemp -d /tmp/verbena-parted.XXXXXX)
trap 'ip netns list | grep -o "vb-p[ab]-$$-[0-9]" | xargs -rn1 ip netns del; rm -rf "$dir"' EXIT
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
steps=8000
fail() {
    echo "FAIL: $*"
    bad=1
}

start_ranks() { # start_ranks HOSTS
    local r host
    for ((r = 0; r < ${#1}; r++)); do
        host=${1:r:1}
        ip netns exec "$([ "$host" = a ] && echo "$a" || echo "$b")" "$verbena" train softmax --data synth:2000 \
            --batch 200 --steps $steps --mode async --dedicated-servers --replicas 2 --world ${#1} --rank "$r" \
            --root 10.98.0.1:7100 --secret-file "$dir/key" --timeout 20 --transport tcp \
            --checkpoint "$at/keep-$host" --checkpoint-every 100 --json >"$at/out$r" 2>"$at/err$r" &
        pids+=($!)
    done
    for ((r = 0; r < 600; r++)); do
        compgen -G "$at/keep-*/checkpoint-*" >/dev/null && break
        sleep 0.05
    done
}

# parted NUMBER HOSTS WINNER: HOSTS has a letter for each rank: first the workers, then the server and its standby. Each
# host has its own folder of checkpoints. The part on the host WINNER must go on.
parted() {
    local name="job $1, ranks on $2" winner=$3 loser=ab r host code a=vb-pa-$$-$1 b=vb-pb-$$-$1 at=$dir/$1 pids=() bad=0
    loser=${loser/$winner/}
    mkdir "$at"
    make_host_pair "$a" "$b" || exit
    start_ranks "$2"
    ip -n "$b" link set veth-b down # nothing tells the other host
    ip -n "$a" link set veth-a down
    for ((r = 0; r < ${#2}; r++)); do
        wait "${pids[r]}"
        code=$?
        host=${2:r:1}
        [ "$host$code" = "${winner}0" ] || [ "$host$code" = "${loser}1" ] ||
            fail "$name: rank $r on host $host ended with $code: $(cat "$at/err$r")"
        [ "$host" = "$winner" ] || grep -q 'training stopped; ' "$at/err$r" ||
            fail "$name: rank $r does not name the last checkpoint: $(cat "$at/err$r")"
    done
    grep -q 'cannot reach [0-9] of [0-9] members, .*this part of the job stops' "$at"/err* ||
        fail "$name: no server says why it stops: $(cat "$at"/err*)"
    cat "$at"/out* | jq -se --argjson n $steps 'length > 0 and all(.[]; .steps == $n)' >/dev/null ||
        fail "$name: no result: $(cat "$at"/out*)"
    [ ! -e "$at/keep-$loser/checkpoint-$steps.vbc" ] || fail "$name: both parts have written the last checkpoint"
    exit $bad
}

parted 1 abab a & # two equal parts; rank 0 is with the server
jobs=($!)
parted 2 abba a & # two equal parts; rank 0 is with the standby
jobs+=($!)
parted 3 abbab b & # rank 0 and the server are the smaller part
jobs+=($!)
worst=0
for job in "${jobs[@]}"; do
    wait "$job"
    code=$?
    worst=$((code > worst ? code : worst))
done
[ $worst = 0 ] && echo "all tests passed: three parted jobs"
exit $worst
