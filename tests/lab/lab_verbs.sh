#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Runs all tests over RDMA, on soft-RoCE: lab_verbs.sh BUILD_FOLDER [all|sanitized|PART...]. They test transports and
# groups on one node and across two and three nodes, whole jobs that must end with the same parameters as over TCP, lost
# packets, and a process, a link or a machine that fails during a transfer. Without further arguments only the tests run
# for which CI has time. "all" runs all parts: node, ranks, across, jobs, many, workers, figures, members, parted, link
# and gone. "sanitized" is for a build with a sanitizer, and tests only the transport on one node.
#
# Covers: net/group/pick_transport.c net/verbs/verbs_addr.c net/verbs/verbs_cm.c
# Covers: net/verbs/verbs_ep.c net/verbs/verbs_mem.c net/verbs/verbs_port.c net/verbs/verbs_post.c
# Covers: net/verbs/verbs_wc.c
# shellcheck disable=SC2016
set -euo pipefail
# If the host has few CPUs, each virtual machine gets only one. With two, one virtual CPU could spin for a lock while
# the other one, which holds the lock, does not run.
[ "$(nproc)" -ge 4 ] || export VB_LAB_CPUS=1
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
shift
parts=(node ranks across jobs many workers figures members parted link gone)
case ${1:-} in
"") all='' && parts=(node across jobs link) ;;
all | sanitized) all=$1 ;;
*) all=all && parts=("$@") ;;
esac
for part in "${parts[@]}"; do
    case $part in
    node | ranks | across | jobs | many | workers | figures | members | parted | link | gone) ;;
    *)
        echo "lab_verbs.sh: $part: must be all, sanitized or a part" >&2
        exit 2
        ;;
    esac
done

# shellcheck source=tests/support/lab_test.sh
. tests/support/lab_test.sh

verbena=$build/verbena
tests=$build/tests
began=$SECONDS
step() { echo "$((SECONDS - began)) s: $*"; }

# passed N: fails unless exactly N test programs have passed
passed() {
    local n
    n=$(cat "$work/out" "$work/err" | grep -c '  PASSED  ' || true)
    [ "$n" = "$1" ] || fail "$n tests passed, not $1"
}

# with TEST...: sets the array withs to the options that the lab needs for these tests
with() {
    withs=(--env VB_TEST_VERBS=1)
    for test; do withs+=(--with "$tests/$test"); done
}

# in_turn TEST...: prints shell commands that run the tests one after the other
in_turn() { printf "$tests/%s; " "$@"; }

# --- one node with two or more ranks ---------------------------------------------------------------

sanitized() {
    for test in test_verbs test_transport; do
        expect 0 '' lab/run --nodes 1 --mem 2600 --each --timeout 1800 --env VB_TEST_VERBS=1 -- "$tests/$test"
        passed 1
        ! grep -E 'ERROR: |WARNING: ThreadSanitizer|runtime error' "$work/err" || fail "$test: see above"
        step "$test"
    done
    echo "ok: RDMA in the lab, $build"
}

# A user other than root needs a high limit of locked memory. The program raises the soft limit as far as the hard limit
# allows. If this is not enough, the message contains the line for limits.conf that fixes it.
memlock='
    echo vera:x:1000:1000::/tmp:/bin/sh >>/etc/passwd
    vera="setpriv --reuid=1000 --regid=1000 --clear-groups"
    try="bench transfer --ranks 2 --transport verbs --sizes 4M --only put --seconds 0.1"
    (ulimit -S -l 64 && $vera $verbena $try)
    (ulimit -l 2048 && ! $vera $verbena $try);'

on_one_node() {
    lab/run --nodes 1 --mem 1200 --each --timeout 1200 --env "verbena=$verbena" --with "$verbena" --with setpriv \
        "${withs[@]}" -- sh -ec "$1"
}

# side_by_side COMMANDS COMMANDS: runs both at the same time, each on its own virtual machine, because a machine has
# only one or two CPUs and waits most of the time
side_by_side() {
    local status=0
    on_one_node "$1" &
    pid=$!
    on_one_node "$2" || status=$?
    wait $pid || status=$?
    pid=
    return $status
}

few="
    VB_TEST_ONLY=sums_in_bfloat16 $tests/test_allreduce
    VB_TEST_ONLY=other_operations $tests/test_collectives
    VB_TEST_ONLY=large_index_spaces_work $tests/test_sparse_allreduce;"
collectives=(test_allreduce test_collectives test_sparse_allreduce)

node() {
    local refused="RDMA needs [0-9]+ KiB of locked memory, the limit is 2048 KiB \(ulimit -l\)"

    if [ -n "$all" ]; then
        with test_verbs test_transport "${collectives[@]}" test_group test_elastic test_ps test_ps_member test_ps_replica
        expect 0 "$refused" side_by_side \
            "$(in_turn test_verbs test_transport)$memlock$few$(in_turn test_elastic test_ps)" \
            "$(in_turn test_group test_ps_member test_ps_replica)"
        passed 10
    else
        with test_verbs test_transport
        expect 0 "$refused" on_one_node \
            "$tests/test_verbs; VB_TEST_BUT=five_ranks_* $tests/test_transport; $memlock"
        passed 2
    fi
    [ "$(grep -c 'locked memory' "$work/err")" -ge 1 ] || fail "no rank reported its limit of locked memory"
    grep -q "fix: echo 'vera - memlock unlimited' | sudo tee -a /etc/security/limits.conf" "$work/err" ||
        fail "the limit of locked memory has no fix: $(cat "$work/err")"
    grep -q '^verbs' "$work/out" || fail "a limit that can be raised was not raised: $(cat "$work/out")"
    step "one node: tests, locked memory"
}

# Tests collectives with up to eight ranks on one device, and with three ranks where more ranks would test nothing new.
ranks() {
    with "${collectives[@]}" test_late
    expect 0 '' lab/run --nodes 1 --mem 1200 --each --timeout 3600 "${withs[@]}" -- sh -ec \
        "VB_TEST_RANKS=8 $tests/test_allreduce; $(in_turn test_collectives test_sparse_allreduce test_late)"
    passed 4
    step "one node: collectives, many ranks"
}

# --- collectives across two and three nodes ---------------------------------------------------------

across() {
    local nodes

    if [ -z "$all" ]; then
        with "${collectives[@]}"
        expect 0 '' lab/run "${withs[@]}" -- sh -ec "$few"
        passed 6
        step "collectives across 2 nodes"
        return
    fi
    with "${collectives[@]}" test_group test_elastic test_late
    for nodes in 2 3; do
        expect 0 '' lab/run --nodes $nodes --timeout 1200 "${withs[@]}" -- sh -ec \
            "$(in_turn "${collectives[@]}" test_group test_elastic test_late)"
        passed $((nodes * 6 - 1)) # a rank of test_group dies in its last test
        step "groups and collectives across $nodes nodes"
    done
}

# --- whole jobs: all transports end with the same parameters -------------------------------------------

# The kernels are chosen on this host, because the choice affects the bits and takes long in the lab. AlexNet has to
# transfer 93 MB, so packets may have 4096 bytes.
room=()
plans() {
    [ ${#room[@]} = 0 ] || return 0
    "$verbena" train lenet --data synth:120 --steps 1 --threads 1 --run "$work/run" >/dev/null
    "$verbena" train alexnet --input 32 --data synth:n=24,test=4 --steps 1 --global-batch 6 --threads 1 \
        --run "$work/alexnet" >/dev/null
    room=(--with "$work/run/plan" --with "$work/alexnet/plan" --mtu 4200 --mem 2400 --timeout 1800)
}
softmax="train softmax --data synth:2000 --steps 10 --global-batch 96 --json --timeout 60"
lenet="train lenet --data synth:120 --steps 3 --global-batch 12 --test-limit 12 --plan $work/run/plan
    --json --timeout 60"
sparse="train sparse-lr --data synth:600 --features 100000 --steps 4 --global-batch 48 --test-limit 50
    --json --timeout 60"
alexnet="train alexnet --input 32 --data synth:n=6,test=1 --batch 1 --test-limit 1 --plan $work/alexnet/plan
    --json --timeout 120"

# every_way ARGUMENTS...: runs a job over RDMA with both kinds of notes, over TCP, and over shared memory on one node
everyway="
    every_way() {
        for how in verbs 'verbs --verbs-imm off' tcp; do $verbena \"\$@\" --transport \$how; done
        [ \$VB_RANK != 0 ] || env -u VB_RANK -u VB_ROOT -u VB_SECRET_FILE -u VB_WORLD \
            $verbena \"\$@\" --ranks \$VB_WORLD --transport shm
    }"

# jobs_on NODES JOBS COMMANDS: runs COMMANDS on this number of nodes. They must run JOBS jobs, and the parameters of a
# job must be the same over all transports.
jobs_on() {
    expect 0 'transport: verbs over rxe0/1, GID .* RoCE v2, MTU (1024|4096): chosen with --transport' \
        lab/run --nodes "$1" "${room[@]}" --with "$verbena" -- sh -ec "$everyway $3"
    jq -r '"\(.model)\(.wire | ltrimstr("f32")) \(.transport) \(.ranks) \(.params_sha256)"' "$work/out" >"$work/jobs"
    [ "$(wc -l <"$work/jobs")" = "$2" ] || fail "jobs: $(cat "$work/jobs")"
    [ "$(cut -d ' ' -f 1,3,4 "$work/jobs" | sort -u | wc -l)" = "$(cut -d ' ' -f 1 "$work/jobs" | sort -u | wc -l)" ] ||
        fail "the parameters differ between transports: $(cat "$work/jobs")"
    step "jobs on $1 nodes"
}

# AlexNet is slow on an emulated CPU, so it runs only on two nodes and over two transports.
jobs() {
    local three twice

    if [ -z "$all" ]; then
        jobs_on 2 4 "
            every_way $softmax"
        return
    fi
    plans
    three="
        every_way $softmax
        every_way $softmax --wire bf16
        every_way ${lenet//$'\n'/ }
        every_way ${sparse//$'\n'/ }"
    twice="
        for how in verbs tcp; do $verbena ${alexnet//$'\n'/ } --steps 1 --transport \$how; done"
    jobs_on 2 18 "$three $twice"
    cp "$work/jobs" "$work/sync"
    jobs_on 3 16 "$three"
    server
}

# Tests the parameter server. A bound of 0 must give the bits of synchronous training.
server() {
    expect 0 '' lab/run "${room[@]}" --with "$verbena" -- sh -ec "
        for how in verbs tcp; do
            for bound in '' '--staleness 0'; do
                $verbena $softmax --mode async \$bound --transport \$how
                $verbena ${lenet//$'\n'/ } --mode async \$bound --transport \$how
                $verbena ${sparse//$'\n'/ } --mode async \$bound --transport \$how
            done
        done"
    # With a bound of 0 each step applies one gradient of each rank.
    jq -e -s 'length == 12 and all(.mode == "async" and .ranks == 2 and
        .staleness.gradients == .steps * (if .staleness.bound == 0 then 2 else 1 end))' \
        "$work/out" >/dev/null || fail "asynchronous jobs: $(cat "$work/out")"
    jq -r 'select(.staleness.bound == 0) | "\(.model) \(.transport) \(.ranks) \(.params_sha256)"' "$work/out" |
        sort >"$work/jobs"
    grep -E '^(softmax|lenet|sparse-lr) (verbs|tcp) ' "$work/sync" | sort -u | diff - "$work/jobs" >&2 ||
        fail "the parameters differ with a bound of 0"
    step "the parameter server on 2 nodes"
}

# Three nodes of eight ranks: every rank has a queue pair to 23 others. Shared memory on this host must give the same
# bits. As many ranks train asynchronously, too.
many() {
    local job="train softmax --data synth:2000 --steps 2 --global-batch 96 --test-limit 50 --json"

    expect 0 'transport: verbs over rxe0/1' lab/run --nodes 3 --per-node 8 --mem 2000 --timeout 1800 \
        --env VB_PATIENCE=16 --with "$verbena" -- sh -ec "
            $verbena $job --transport verbs
            $verbena train softmax --data synth:2000 --steps 48 --batch 4 --test-limit 50 --json --mode async --transport verbs"
    jq -e -s 'length == 2 and (.[1] | .mode == "async" and .ranks == 24 and .transport == "verbs" and .steps == 48 and
        .staleness.gradients == 48)' "$work/out" >/dev/null || fail "24 asynchronous ranks: $(cat "$work/out")"
    sed -i 2d "$work/out"
    # shellcheck disable=SC2086 # several words
    "$verbena" $job --ranks 24 --transport shm >>"$work/out" 2>>"$work/err" || fail "24 ranks over shm: status $?"
    jq -e -s 'length == 2 and .[0].params_sha256 == .[1].params_sha256 and all(.ranks == 24) and
        map(.transport) == ["verbs", "shm"]' "$work/out" >/dev/null || fail "24 ranks: $(cat "$work/out")"
    step "24 ranks on 3 nodes"
}

workers() {
    local nodes

    plans
    for nodes in 2 3 5; do
        # AlexNet needs more memory, because its server has two slots for each worker.
        expect 0 '' lab/run --nodes "$nodes" "${room[@]}" --mem 4000 --with "$verbena" -- sh -ec "
            async='--mode async --transport verbs --json'
            $verbena train softmax --data synth:2000 --batch 20 --steps 60 \$async --timeout 60
            $verbena train lenet --data synth:120 --batch 4 --steps 6 --test-limit 12 --plan $work/run/plan \$async --timeout 60
            $verbena train sparse-lr --data synth:600 --features 100000 --batch 10 --steps 60 --test-limit 50 \$async --timeout 60
            $verbena ${alexnet//$'\n'/ } --steps 2 \$async"
        jq -e -s "map(.model) == [\"softmax\", \"lenet\", \"sparse-lr\", \"alexnet\"] and
            all(.transport == \"verbs\" and .ranks == $nodes and .staleness.gradients == .steps) and
            (.[0].loss < 2 and .[2].loss < 0.69)" "$work/out" >/dev/null || fail "$nodes workers: $(cat "$work/out")"
        step "four models, $nodes workers"
    done
}

# --- what a run over RDMA leaves behind ------------------------------------------------------------------

# The run folder has each figure of a report (docs/run.md), the bytes of the transport are those of the interface, and the
# clocks of the nodes, which differ, fit: otherwise there would be no trace.
figures() {
    local nodes

    for nodes in 1 2 3; do
        mkdir -p "$work/share"
        rm -rf "$work"/share/*
        expect 0 '' lab/run --nodes "$nodes" --with "$verbena" --share "$work/share" -- "$verbena" train softmax \
            --data synth:2000 --batch 20 --steps 400 --eval-every 100 --test-limit 200 --json --timeout 60 \
            --transport verbs --run "$work/share/run" --trace=100:110
        python3 tests/record/check_figures.py "$work/share/run" "$nodes" inf \
            "$([ "$nodes" = 1 ] || echo rdma)" >"$work/figures" || fail "$nodes nodes: $(cat "$work/figures")"
        [ -s "$work/share/run/trace.pftrace" ] || fail "$nodes nodes: there is no trace"
        step "figures of $nodes nodes"
        cat "$work/figures"
    done
}

# --- workers and servers that die, and workers that join ------------------------------------------------

# member VICTIM OPTION...: runs a job on three nodes, and kills the process on node VICTIM after training has begun. If
# VICTIM is "join", the job runs on two nodes, and the third node joins it.
member() {
    local victim=$1
    shift
    mkdir -p "$work/share"
    rm -rf "$work"/share/*
    (umask 077 && head -c 32 /dev/urandom >"$work/share/key")
    expect 0 '' lab/run --nodes 3 --each --with "$verbena" --share "$work/share" -- sh -c "
        cp $work/share/key /key && chmod 600 /key
        said=$work/share/said
        trains() { until ls $work/share/points 2>/dev/null | grep -q .; do sleep 1; done; }
        [ \$VB_NODE != 0 ] || exec 2>\$said
        if [ $victim\$VB_NODE = join2 ]; then
            trains
            exec $verbena train --join \$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' \$said) --secret-file /key
        fi
        [ $victim != join ] && world=3 || world=2
        $verbena train softmax --data synth:2000 --mode async --batch 20 --steps 3000 --transport verbs \
            --threads 1 --json --checkpoint $work/share/points --checkpoint-every 200 $* --rank \$VB_NODE --world \$world --root 10.77.0.1:7000 --secret-file /key &
        if [ $victim = \$VB_NODE ]; then
            trains
            kill -9 \$!
            wait
            exit 0
        fi
        wait \$!"
    # The result may be printed by another node than node 0. The lab changes the output of all nodes but node 0, so the
    # prefix of the lines is removed. The output of a joiner has no faults and is left out.
    { cat "$work/out" && sed -n 's/^\[node[0-9]\] {/{/p' "$work/err"; } | jq -c 'select(.faults)' >"$work/result"
    step "the parameter server, victim $victim $*: $(jq -c '[.faults[] | [.rank, .what]]' "$work/result")"
}

members() {
    member 2
    jq -e '.steps == 3000 and .accuracy > 0.8 and [.faults[] | [.rank, .what]] == [[2, "died"]]' "$work/result" \
        >/dev/null || fail "a worker died: $(cat "$work/result")"
    # The ranks of servers and standbys come after the ranks of all workers.
    member 0 --replicas 2
    jq -e '.steps == 3000 and .accuracy > 0.8 and ([.faults[].rank] | sort) == [0, 3]' "$work/result" \
        >/dev/null || fail "a server died: $(cat "$work/result")"
    member join
    jq -e '.steps == 3000 and [.faults[] | [.rank, .what]] == [[3, "joined"]]' "$work/result" \
        >/dev/null || fail "a worker joined: $(cat "$work/result")"
}

# --- two nodes that lose each other ----------------------------------------------------------------------

# parted_job HOSTS WINNER: runs a job with replicas on two nodes, a and b. HOSTS has a letter for each rank, as in
# tests/engine/ps/train_parted.sh. When training has begun, the nodes lose all packets. Only the ranks on node WINNER go on.
parted_steps=400
parted_job() {
    local hosts=$1 winner=$2 loser=ab r letters

    letters=$(fold -w 1 <<<"$hosts" | tr '\n' ' ')
    loser=${loser/$winner/}
    mkdir -p "$work/share"
    rm -rf "$work"/share/*
    (umask 077 && head -c 32 /dev/urandom >"$work/share/key")
    expect 0 'cannot reach [0-9] of [0-9] members, .*this part of the job stops' \
        lab/run --nodes 2 --each --loss 0 --mem 1200 --timeout 900 --with "$verbena" --with tc --share "$work/share" -- sh -c "
        cp $work/share/key /key && chmod 600 /key
        [ \$VB_NODE = 0 ] && me=a || me=b
        rank=0
        for host in $letters; do
            if [ \$host = \$me ]; then
                { $verbena train softmax --data synth:2000 --batch 20 --steps $parted_steps --mode async \
                    --dedicated-servers --replicas 2 --world ${#hosts} --rank \$rank --root 10.77.0.1:7000 \
                    --secret-file /key --transport verbs --threads 1 --checkpoint $work/share/keep-\$me \
                    --checkpoint-every 50 --json
                  echo \"\$host\$?\" >$work/share/end\$rank; } &
            fi
            rank=\$((rank + 1))
        done
        until ls $work/share/keep-*/checkpoint-* >/dev/null 2>&1 || ls $work/share/end* >/dev/null 2>&1; do sleep 1; done
        /usr/sbin/tc qdisc change dev eth0 root netem limit 20000 loss 100%
        wait"
    for ((r = 0; r < ${#hosts}; r++)); do
        [ "$(cat "$work/share/end$r")" = "${hosts:r:1}$([ "${hosts:r:1}" = "$winner" ] && echo 0 || echo 1)" ] ||
            fail "ranks on $hosts: rank $r: $(cat "$work/share/end$r")"
    done
    [ ! -e "$work/share/keep-$loser/checkpoint-$parted_steps.vbc" ] || fail "both parts have written the last checkpoint"
    [ -e "$work/share/keep-$winner/checkpoint-$parted_steps.vbc" ] || fail "no part has written the last checkpoint"
    step "parted, ranks on $hosts: node $winner goes on"
}

parted() {
    parted_job abbab b # rank 0 and the server are the smaller part
    parted_job abab a  # two equal parts
}

# --- a clean link has no errors, the parts of a step are measured, and a bad link loses no data -------

bench="bench transfer --transport verbs --sizes 64,64K --seconds 0.5 --json"

link() {
    # One boot measures the parts of a step, and checks that "auto" chooses the faster transport and says so.
    expect 0 "${all:+transport: (tcp|verbs) between hosts: the same transfers took .* ms over soft-RoCE and .* ms over TCP}" \
        lab/run --with "$verbena" -- sh -ec "$verbena $bench
            ${all:+$verbena bench step --model softmax --transport verbs --batches 8,16 --json}
            ${all:+$verbena bench step --model lenet --transport verbs --batches 1,2 --json}
            ${all:+$verbena $softmax --transport auto}"
    jq -c 'select(.bench == "transfer" and .transport == "verbs")' "$work/out" >"$work/link"
    # A slow machine may request a packet again that has already arrived. The receiver then counts this packet as out of
    # sequence.
    jq -e -s 'length == 8 and (map(.rnr) | add) == 0 and (map(.out_of_seq) | add) <= (map(.retries) | add)' \
        "$work/link" >/dev/null || fail "a receiver was not ready: $(cat "$work/link")"
    step "a clean link: $(jq -r -s 'map(.retries) | add' "$work/link") retries"
    [ -n "$all" ] || return 0
    # An emulated machine may acknowledge a packet so late that the packet is sent again. This may happen now and then.
    jq -e -s 'map(.retries) | add <= 2' "$work/link" >/dev/null || fail "retries: $(cat "$work/link")"
    jq -e -s 'map(select(.bench == "step" and .batch)) | length == 4 and all(.transport == "verbs" and .ranks == 2 and
        .compute_ms > 0 and .transfer_ms > 0 and .step_ms > 0 and .exposed_ms >= 0)' "$work/out" \
        >/dev/null || fail "bench step: $(cat "$work/out")"
    # A lost packet is sent again after at most a second. So with many lost packets the test uses fewer and shorter
    # messages.
    # shellcheck disable=SC2086
    expect 0 '' lab/run --loss 1 -- "$verbena" $bench
    step "1 % lost"
    expect 0 '' lab/run --loss 10 -- "$verbena" bench transfer --transport verbs --sizes 64,4K --seconds 0.1
    step "10 % lost"
}

# --- a process, a link or a machine fails during a transfer ------------------------------------------

# noticed TEXT SECONDS LAB_OPTION... -- PROGRAM...: fails unless TEXT is printed at most SECONDS after the failure,
# which is reported by the line "gone now" or by the lab
noticed() {
    local text=$1 limit=$2 status=0
    shift 2
    lab/run "$@" 2>&1 >"$work/out" </dev/null |
        while IFS= read -r line; do echo "$EPOCHSECONDS $line"; done >"$work/err" || status=$?
    local from to
    from=$(grep -m 1 -E 'gone now|powered off|link of this node is cut' "$work/err" | cut -d ' ' -f 1) || fail "nothing failed as planned"
    to=$(grep -m 1 -E "$text" "$work/err" | cut -d ' ' -f 1) || fail "missing in standard error: $text"
    [ $((to - from)) -le "$limit" ] || fail "noticed after $((to - from)) s"
    nothing_left "$*"
    step "$text: after $((to - from)) s"
}

run="$verbena bench transfer --transport verbs --sizes 1M --seconds 60"

gone() {
    noticed 'rank 1 \(node1\) is lost' 12 --with "$verbena" -- sh -c "
        [ \$VB_RANK = 1 ] || exec $run
        $run &
        sleep 12; echo gone now >&2; kill -9 \$!; wait"
    # shellcheck disable=SC2086
    noticed 'rank 1 \(node1\) is lost' 14 --cut 1@14 --timeout 60 -- $run
    # shellcheck disable=SC2086
    noticed 'rank 1 \(node1\) is lost' 14 --kill 1@14 -- $run
}

if [ "$all" = sanitized ]; then
    sanitized
    exit
fi
for part in "${parts[@]}"; do $part; done
echo "ok: RDMA in the lab"
