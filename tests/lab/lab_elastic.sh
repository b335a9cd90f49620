#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that synchronous training over RDMA outlives its ranks, on soft-RoCE: lab_elastic.sh BUILD_FOLDER [PART...]. On
# each of three nodes runs a rank. One of them is killed (kill), its node is powered off (power), or nobody dies although
# packets are lost (loss). The survivors must finish with exit code 0 and name the dead rank. By hand also kills:N:SEED
# and powers:N:SEED: in N jobs one or two ranks are killed, or a node is powered off, at random moments; besides, replicas
# must be equal and the ledger exact.
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

# Each node makes the jobs of the list one after the other: NAME VICTIMS OPTIONS... VICTIMS: RANK@SECONDS,... or none; such
# a rank is killed so many seconds after its first step.
cat >"$share/node.sh" <<'END'
port=${VB_ROOT##*:}
export VB_ROOT
while read -r name victims options; do
    port=$((port + 1)) code=0 ledger=$2/$name.ledger$VB_RANK
    : >"$ledger"
    VB_ROOT=${VB_ROOT%:*}:$port
    "$1" train $options --transport verbs --ledger "$ledger" --json >"$2/$name.out$VB_RANK" \
        2>"$2/$name.err$VB_RANK" &
    after=$(echo "$victims" | tr , '\n' | sed -n "s/^$VB_RANK@//p")
    if [ -n "$after" ]; then
        while kill -0 $! 2>/dev/null && ! grep -q '"step"' "$ledger"; do sleep 0.1; done
        sleep "$after"
        kill -9 $!
    fi
    wait $! || code=$?
    echo $code >"$2/$name.code$VB_RANK"
    sed "s/^/$name: /" "$2/$name.err$VB_RANK" >&2
done <"$2/jobs"
exit 0
END

# run_jobs OPTIONS_OF_LAB...: boots three nodes, which make the jobs on standard input
run_jobs() {
    cat >"$share/jobs"
    lab/run --nodes 3 --timeout "$((120 + 120 * $(wc -l <"$share/jobs")))" --share "$share" --with "$verbena" "$@" -- \
        sh "$share/node.sh" "$verbena" "$share" >"$work/out" 2>"$work/err" </dev/null || fail "the lab ends with $?"
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

# survived JOB: all ranks but the victims have ended with 0; the lowest of them has made all steps, names nobody but victims,
# and the ledger is exact. Sets lost to the number of ranks that the job has lost.
survived() {
    local name victims options rank code lowest='' dead='[]' steps
    read -r name victims options <<<"$1"
    steps=${options#* --steps }
    steps=${steps%% *}
    for rank in 0 1 2; do
        code=$(cat "$share/$name.code$rank" 2>/dev/null || echo none)
        if [[ ",$victims" == *",$rank@"* ]]; then
            dead=$(jq -c ". + [$rank]" <<<"$dead")
        elif [ "$code" != 0 ]; then
            fail "$1: rank $rank: exit $code"
        fi
        [ "$code" != 0 ] || lowest=${lowest:-$rank} # a victim may have lived to the end
    done
    lost=$(jq -e --argjson dead "$dead" --argjson steps "$steps" '[.faults[] | select(.what == "rank lost") | .rank] as $lost |
        if .transport == "verbs" and .steps == $steps and ($lost - $dead) == [] then $lost | length else error end' \
        "$share/$name.out$lowest") || fail "$1: $(jq -c '.transport, .steps, .faults' "$share/$name.out$lowest")"
    python3 tests/engine/check_ledger.py "$share/$name".ledger? "$steps" 2>"$work/err" || fail "$1: $(cat "$work/err")"
    step "$1: $(jq -c '[.faults[] | [.rank, .why, .recovered_s]]' "$share/$name.out$lowest")"
}

# random_jobs kills|powers N SEED: prints N jobs of random models. kills: the second of two victims dies when the survivors
# of the first have recovered: of three ranks on hosts without a launcher, one alone does not know that both others are
# dead. Of the two that are left, the lower one goes on. powers: the node of the victim is powered off.
random_jobs() {
    awk -v kind="$1" -v n="$2" -v seed="$3" -v softmax="$softmax" -v lenet="$lenet" -v sparse="$sparse" '
        function random(to) { return int(rand() * to) }
        BEGIN {
            srand(seed)
            more = kind == "powers" ? 8 : 1
            split(softmax "\n" lenet "\n" sparse, model, "\n")
            split("120 30 300", steps)
            for (i = 0; i < n; i++) {
                m = random(3)
                victims = random(3)
                victims = victims "@" (kind == "powers" ? 20 + random(40) : random(60) / 10)
                if (kind == "kills" && random(4) == 0)
                    victims = victims "," (victims ~ /^2/ ? 1 : 2) "@" 20 + random(50) / 10
                print kind i, victims, model[m + 1], "--steps", steps[m + 1] * more, "--check-replicas 5 --seed", i
            }
        }'
}

# random_kills N SEED
random_kills() {
    local job all=0
    random_jobs kills "$1" "$2" >"$work/jobs"
    run_jobs <"$work/jobs"
    while read -r job; do
        survived "$job"
        all=$((all + lost))
    done <"$work/jobs"
    step "$1 jobs, $all ranks lost"
    [ "$all" -gt 0 ] || fail "no job has lost a rank"
}

# random_powers N SEED
random_powers() {
    local job name victim options all=0
    random_jobs powers "$1" "$2" >"$work/jobs"
    while read -r job; do
        read -r name victim options <<<"$job"
        run_jobs --kill "$victim" <<<"$name none $options"
        survived "$job"
        all=$((all + lost))
    done <"$work/jobs"
    step "$1 jobs, $all nodes lost"
    [ "$all" -gt 0 ] || fail "no job has lost a node"
}

softmax='softmax --data synth:2000'
lenet='lenet --data synth:600 --batch 20'
sparse='sparse-lr --data synth:kind=criteo,n=8000,features=20000 --global-batch 300'

for part; do
    step "$part"
    case $part in
    kill)
        for dead in 1 0; do
            echo "softmax-$dead none $softmax --steps 16 --inject kill:$dead@6"
            echo "lenet-$dead none $lenet --steps 12 --inject kill:$dead@6"
            echo "sparse-$dead none $sparse --steps 16 --inject kill:$dead@6"
        done | run_jobs
        for dead in 1 0; do
            for model in softmax lenet sparse; do
                ended $model-$dead $dead
            done
        done
        ;;
    power)
        echo "power none $softmax --steps 600" | run_jobs --kill 2@40
        ended power 2
        ;;
    loss)
        echo "loss none $softmax --steps 10" | run_jobs --loss 10
        ended loss none
        ;;
    kills:*:* | powers:*:*)
        IFS=: read -r kind number seed <<<"$part"
        "random_$kind" "$number" "$seed"
        ;;
    *) fail "$part: no such part" ;;
    esac
done
nothing_left "all of it"
echo "all tests passed"
