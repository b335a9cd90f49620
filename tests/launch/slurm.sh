#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests jobs in a Slurm cluster of two nodes: slurm.sh VERBENA. Each node is a network namespace with its own host name
# and slurmd.
#
# Everything runs in namespaces of this test (processes, network, mounts). So nothing is left when it ends, however it
# ends, and the machine's own Slurm and munge are not touched.
#
# Covers: launch/launch_find.c launch/launch_slurm.c
# shellcheck disable=SC2016,SC2317
set -uo pipefail

for need in ip jq unshare munged slurmctld slurmd srun sbatch salloc scancel; do
    if [ "$(id -u)" != 0 ] || ! command -v $need >/dev/null; then
        echo "skipped: needs root, ip, jq, slurm-wlm and munge: no $need"
        exit 77
    fi
done
if [ "${VB_TEST_INSIDE:-}" != yes ]; then
    if ! unshare --net --pid --mount --uts --fork true; then
        echo "skipped: cannot make namespaces"
        exit 77
    fi
    dir=$(mktemp -d /tmp/verbena-slurm.XXXXXX)
    VB_TEST_INSIDE=yes unshare --net --pid --mount --uts --fork --kill-child --mount-proc \
        "$0" "$(realpath "$1")" "$dir"
    code=$?
    rm -rf "$dir"
    exit $code
fi
verbena=$1
dir=$2
examples=$(cd "$(dirname "$0")/../../examples" && pwd)
bad=0
unset VB_TEST_INSIDE
unset "${!VB_@}" "${!SLURM_@}" "${!PMIX_@}"

# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"

# ---- the cluster --------------------------------------------------------------------------------

chmod 711 "$dir" # munge requires that everybody can reach its socket
mount -t tmpfs tmpfs /run
printf '127.0.0.1 localhost\n10.97.0.254 head\n10.97.0.1 node1\n10.97.0.2 node2\n' >"$dir/hosts"
# As in Debian, the name of a host resolves to loopback on the host itself.
for k in 1 2; do
    sed "s/^10.97.0.$k/127.0.1.1/" "$dir/hosts" >"$dir/hosts$k"
done
mount --bind "$dir/hosts" /etc/hosts
hostname head
ip link set lo up
ip link add br0 type bridge
ip addr add 10.97.0.254/24 dev br0
ip link set br0 up

head -c 128 /dev/urandom >"$dir/munge.key"
chmod 400 "$dir/munge.key"
mkdir -m 755 "$dir"/{munge,state,jobs,tmp-node1,tmp-node2,spool-node1,spool-node2}
cat >"$dir/slurm.conf" <<END
ClusterName=verbena
SlurmctldHost=head(10.97.0.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
TmpFS=$dir/tmp-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
SlurmdParameters=config_overrides
KillWait=2
NodeName=node1 NodeAddr=10.97.0.1 CPUs=8 State=UNKNOWN
NodeName=node2 NodeAddr=10.97.0.2 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
# With these settings Slurm does not need control groups, but without this line it looks for them.
echo 'CgroupPlugin=cgroup/v1' >"$dir/cgroup.conf"
export SLURM_CONF=$dir/slurm.conf

munged -F --key-file="$dir/munge.key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" >"$dir/munged.log" 2>&1 &
slurmctld -D >"$dir/ctl.out" 2>&1 &
for k in 1 2; do
    ip netns add node$k
    ip link add "p$k" type veth peer name eth0 netns node$k
    ip link set "p$k" master br0
    ip link set "p$k" up
    ip -n node$k link set lo up
    ip -n node$k addr add "10.97.0.$k/24" dev eth0
    ip -n node$k link set eth0 up
    ip netns exec node$k unshare --uts --mount sh -c 'hostname "$1" && mount --bind "$2" /etc/hosts &&
        exec slurmd -D' sh node$k "$dir/hosts$k" >"$dir/node$k.out" 2>&1 &
done

for ((i = 0; i < 150; i++)); do
    [ "$(timeout 5 sinfo -h -t idle -o %D 2>/dev/null)" != 2 ] || break
    sleep 0.1
done
if [ $i = 150 ]; then
    echo "skipped: Slurm does not start:"
    tail -n 5 "$dir"/*.log "$dir"/*.out
    exit 77
fi

# ours: prints the processes of the program under test
ours() {
    local pid
    for pid in /proc/[0-9]*; do
        [ "$(readlink "$pid/exe")" != "$verbena" ] || echo "${pid#/proc/}"
    done
}

job=(train softmax --data synth:1000 --global-batch 60 --steps 20 --json)
under "$verbena" "${job[@]}" --ranks 3
sum=$(jq -r .params_sha256 "$dir/out")
[ ${#sum} = 64 ] || fail "three ranks without Slurm: $err"

# same WHAT HOSTS: fails unless three ranks ran on these hosts and got the same parameters as without Slurm
same() {
    [ "$code" = 0 ] || fail "$1: exit $code: $err"
    [ "$(jq -rs 'length == 1 and .[0].ranks == 3 and .[0].params_sha256 == "'"$sum"'" and
        (.[0].per_rank | map(.host)) == '"$2" "$dir/out")" = true ] || fail "$1: $(cat "$dir/out")"
}

# alone WHAT: fails unless a single rank ran
alone() {
    [ "$code" = 0 ] || fail "$1: exit $code: $err"
    [ "$(jq -s 'length == 1 and .[0].ranks == 1' "$dir/out")" = true ] ||
        fail "$1: $(cat "$dir/out") $err"
}

here='["node1","node1","node1"]'
both='["node1","node1","node2"]'

# ---- srun ---------------------------------------------------------------------------------------

under srun -w node1 -n 3 "$verbena" "${job[@]}"
same 'srun on one node' "$here"

(umask 077 && head -c 32 /dev/urandom >"$dir/job.key")
under srun -N 2 -n 3 "$verbena" "${job[@]}" --secret-file "$dir/job.key"
same 'srun on two nodes, --secret-file' "$both"
VB_SECRET=$(od -An -tx1 -v "$dir/job.key" | tr -d ' \n') under srun -N 2 -n 3 "$verbena" "${job[@]}"
same 'srun on two nodes, VB_SECRET' "$both"

under srun -N 2 -n 3 "$verbena" "${job[@]}"
[ "$code" = 2 ] || fail "two nodes and no secret: exit $code: $err"
[[ $err == *'srun has started 3 ranks on several hosts'*'--secret-file FILE or VB_SECRET'* ]] ||
    fail "two nodes and no secret: $err"

# On the host of rank 0 its name resolves to loopback. In asynchronous training the group of servers and workers uses
# another port.
under srun -N 2 -n 3 "$verbena" "${job[@]}" --mode async --staleness 0 --root node1:7100 --timeout 20 \
    --secret-file "$dir/job.key"
same 'srun on two nodes, --root and --mode async' '["node1","node1","node2","node1"]'
under srun -N 2 -n 3 "$verbena" "${job[@]}" --root node1:0 --secret-file "$dir/job.key"
[ "$code" = 2 ] || fail "--root without a port: exit $code: $err"
[[ $err == *'--root node1:0: the port must not be 0'* ]] || fail "--root: $err"
under srun -w node1 -n 3 "$verbena" "${job[@]}" --root node1:0
same 'srun on one node, --root without a port' "$here"

# The ranks are started by hand. The root is a name that resolves to loopback on its own host.
by_hand=("$verbena" "${job[@]}" --world 2 --root node1:7101 --secret-file "$dir/job.key" --timeout 20)
timeout 100 srun -Q -w node2 -n 1 "${by_hand[@]}" --rank 1 >"$dir/out1" 2>"$dir/err1" </dev/null &
pid=$!
under srun -w node1 -n 1 "${by_hand[@]}" --rank 0
wait $pid || fail "ranks started by hand, rank 1: $(cat "$dir/err1")"
[ "$code $(jq -c '.per_rank | map(.host)' "$dir/out")" = '0 ["node1","node2"]' ] || fail "ranks started by hand: exit $code: $err"

with_pmix=no
if srun --mpi=list 2>&1 | grep -qw pmix; then
    with_pmix=yes
    under srun --mpi=pmix -w node1 -n 3 "$verbena" "${job[@]}"
    same 'srun --mpi=pmix on one node' "$here"
    under srun --mpi=pmix -N 2 -n 3 "$verbena" "${job[@]}"
    same 'srun --mpi=pmix on two nodes' "$both"
fi

under srun -N 2 -n 2 "$verbena" doctor --secret-file "$dir/job.key"
[ "$code" = 0 ] || fail "doctor: exit $code: $err"
grep -q '^node1 - node2  *tcp' "$dir/out" || fail "doctor: $(cat "$dir/out")"
under srun -w node1 -n 2 "$verbena" bench allreduce --sizes 1024 --seconds 0.01 --json
[ "$code" = 0 ] || fail "bench: exit $code: $err"

# ---- two steps at once, in one job ----------------------------------------------------------------

printf '#!/bin/sh\nfor i in 1 2; do\nsrun --exact -N 2 -n 3 "$@" >"$0.$i" &\ndone\nwait\n' >"$dir/two"
chmod +x "$dir/two"
under salloc -Q -N 2 -n 8 --ntasks-per-node=4 "$dir/two" "$verbena" "${job[@]}" --secret-file "$dir/job.key"
for i in 1 2; do
    cp "$dir/two.$i" "$dir/out"
    same "step $i of two at once" "$both"
done

# ---- the script of sbatch and the shell of salloc are not ranks --------------------------------------

batch() { # batch ARGUMENTS...: runs sbatch and stores the output of the script in $dir/out
    under sbatch -Q -W -o "$dir/jobs/out" -e "$dir/jobs/err" "$@"
    err="$err $(cat "$dir/jobs/err")"
    mv "$dir/jobs/out" "$dir/out"
}

if [ $with_pmix = yes ]; then
    PATH=$(dirname "$verbena"):$PATH batch -N 2 -n 3 "$examples/train.sbatch" "${job[@]:1}"
    same examples/train.sbatch "$both"
fi
printf '#!/bin/sh\nexec "$@"\n' >"$dir/script"
batch -n 3 "$dir/script" "$verbena" "${job[@]}"
alone 'in the script of sbatch'
under salloc -Q -n 3 "$verbena" "${job[@]}"
alone 'in the shell of salloc'
under srun -n 1 "$verbena" "${job[@]}"
alone 'one task'

# ---- options take precedence over Slurm; messages name broken variables ---------------------------

under srun -n 2 --output "$dir/alone.%t" "$verbena" "${job[@]}" --ranks 1
[ "$code $(jq -s 'map(.ranks)' -c "$dir/alone".[01])" = '0 [1,1]' ] || fail "--ranks 1: $code $err"
under srun -w node1 -n 1 "$verbena" "${job[@]}" --ranks 3
same '--ranks 3 in a task' "$here"
under srun -n 2 env SLURM_PROCID=7 "$verbena" "${job[@]}"
[ "$code" = 2 ] || fail "rank 7 of 2: exit $code: $err"
[[ $err == *'SLURM_PROCID 7: must be a number from 0 to 1'* ]] || fail "rank 7 of 2: $err"

# ---- a killed rank, scancel and Ctrl-C end all ranks ----------------------------------------------

# start: starts a long job on both nodes, sets pid, and returns when its three ranks run
start() {
    srun -Q -J long -N 2 -n 3 "$verbena" train softmax --data synth:1000 --steps 100000000 \
        --threads 1 --elastic off --secret-file "$dir/job.key" --timeout 10 >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    running 3
}

# Ranks of srun start no threads of OpenBLAS: they have the main thread, that of the control plane and the recorder's.
start
for ((i = 0; i < 100; i++)); do
    threads=$(for p in $(ours); do find "/proc/$p/task" -mindepth 1 -maxdepth 1 | wc -l; done | xargs)
    [ "$threads" != '3 3 3' ] || break
    sleep 0.1
done
[ "$threads" = '3 3 3' ] || fail "the ranks of srun have '$threads' threads, expected 3 each"
kill -KILL "$(ours | tail -n 1)"
ends 'a rank killed'
start
scancel -n long
ends scancel
start
kill -INT $pid
sleep 0.2
kill -INT $pid
ends 'Ctrl-C, twice, as srun wants it'

# ---- a rank is killed, and the others go on --------------------------------------------------------

# srun waits for the others, unless --kill-on-bad-exit or slurm.conf says otherwise. Its exit code is the highest one of
# its tasks, that of the task that was killed.
killed=("$verbena" train softmax --data synth:1000 --global-batch 60 --steps 5000 --json --secret-file "$dir/job.key")
for victim in 0 2; do
    under srun -Q -N 2 -n 3 --kill-on-bad-exit=0 "${killed[@]}" --inject kill:$victim@500
    [ "$code" = 137 ] || fail "rank $victim of srun killed: exit $code: $err"
    jq -es 'length == 1 and .[0].steps == 5000 and .[0].stopped == null' "$dir/out" >/dev/null ||
        fail "rank $victim of srun killed: $(cat "$dir/out") $err"
done
under srun -Q -N 2 -n 3 --kill-on-bad-exit=1 "${killed[@]}" --steps 100000000 --inject kill:2@500
[ "$code" = 137 ] || fail "--kill-on-bad-exit=1: exit $code: $err"

[ $with_pmix = yes ] || echo "skipped, because this Slurm has no PMIx: srun --mpi=pmix, examples/train.sbatch"
[ $bad = 0 ] && echo "all tests passed: a Slurm of two nodes; PMIx: $with_pmix"
exit $bad
