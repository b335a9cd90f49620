#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that synchronous training over RDMA outlives its ranks, on soft-RoCE: lab_elastic.sh BUILD_FOLDER [PART...]. On
# each of three nodes runs a rank. One of them is killed (kill), its node is powered off (power), or nobody dies although
# packets are lost (loss). The survivors must finish with exit code 0 and name the dead rank.
#
# Covers: net/control/agree.c net/group/regroup.c net/verbs/verbs_ep.c
# shellcheck disable=SC2016 # the shells of the nodes expand the variables
set -euo pipefail
[ "$(nproc)" -ge 4 ] || export VB_LAB_CPUS=1
cd "$(dirname "$0")/../.."
verbena=$(realpath "$1/verbena")
shift
[ $# -gt 0 ] || set -- kill power loss

# shellcheck source=tests/support/lab_test.sh
. tests/support/lab_test.sh

began=$SECONDS
step() { echo "$((SECONDS - began)) s: $*"; }
mkdir "$work/share"
share=$work/share

# Each node makes the jobs of the list one after the other: NAME OPTIONS...
cat >"$share/node.sh" <<'END'
port=${VB_ROOT##*:}
export VB_ROOT
while read -r name options; do
    port=$((port + 1)) code=0
    VB_ROOT=${VB_ROOT%:*}:$port
    "$1" train $options --transport verbs --json >"$2/$name.out$VB_RANK" \
        2>"$2/$name.err$VB_RANK" || code=$?
    echo $code >"$2/$name.code$VB_RANK"
    sed "s/^/$name: /" "$2/$name.err$VB_RANK" >&2
done <"$2/jobs"
exit 0
END

# run_jobs OPTIONS_OF_LAB...: boots three nodes, which make the jobs on standard input
run_jobs() {
    cat >"$share/jobs"
    lab/run --nodes 3 --timeout 420 --share "$share" --with "$verbena" "$@" -- sh "$share/node.sh" "$verbena" "$share" \
        >"$work/out" 2>"$work/err" </dev/null || fail "the lab ends with $?"
}

# ended NAME DEAD: all but the rank DEAD (none: no rank) have ended with 0, and the lowest of them names the dead one
ended() {
    local name=$1 dead=$2 rank=0 i faults='[]'
    [ "$dead" != 0 ] || rank=1
    [ "$dead" = none ] || faults="[[$dead,\"rank lost\"]]"
    for i in 0 1 2; do
        [ "$i" = "$dead" ] || [ "$(cat "$share/$name.code$i")" = 0 ] || fail "$name: rank $i: exit $(cat "$share/$name.code$i")"
    done
    jq -e --argjson faults "$faults" '.transport == "verbs" and [.faults[] | [.rank, .what]] == $faults' \
        "$share/$name.out$rank" >/dev/null || fail "$name: $(jq -c '.transport, .faults' "$share/$name.out$rank")"
    step "$name: $(jq -c '[.steps, (.faults[] | .why, .recovered_s)]' "$share/$name.out$rank")"
}

softmax='softmax --data synth:2000'
lenet='lenet --data synth:600 --batch 20'
sparse='sparse-lr --data synth:kind=criteo,n=8000,features=20000 --global-batch 300'

for part; do
    step "$part"
    case $part in
    kill)
        for dead in 1 0; do
            echo "softmax-$dead $softmax --steps 16 --inject kill:$dead@6"
            echo "lenet-$dead $lenet --steps 12 --inject kill:$dead@6"
            echo "sparse-$dead $sparse --steps 16 --inject kill:$dead@6"
        done | run_jobs
        for dead in 1 0; do
            for model in softmax lenet sparse; do
                ended $model-$dead $dead
            done
        done
        ;;
    power)
        echo "power $softmax --steps 600" | run_jobs --kill 2@40
        ended power 2
        ;;
    loss)
        echo "loss $softmax --steps 10" | run_jobs --loss 10
        ended loss none
        ;;
    *) fail "$part: no such part" ;;
    esac
done
nothing_left "all of it"
echo "all tests passed"
