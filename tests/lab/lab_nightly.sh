#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the lab in ways that take too long to run for every change: many boots in a row, other kernels, more nodes, and
# every kind of perftest, also on a network that loses packets.
# shellcheck disable=SC2016
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=tests/support/lab_test.sh
. tests/support/lab_test.sh

step() { echo "$(date +%T) $*"; }

step "20 boots in a row"
for i in $(seq 20); do
    expect 0 '' lab/run --each --verbose -- true
    echo "  $i: $(grep -oE 'up after [0-9.]+ s' "$work/err" | tr '\n' ' ')"
done

for nodes in 1 3 5; do
    step "$nodes nodes"
    expect 0 '' lab/run --nodes "$nodes" -- sh -ec '
        for i in $(seq "$VB_WORLD"); do ping -c 1 -W 10 "node$((i - 1))"; done'
done

for suite in bookworm trixie; do
    step "the kernel of $suite"
    status=0
    lab/run --kernel "$suite" --prepare 2>"$work/err" || status=$?
    if [ "$status" = 69 ]; then
        echo "  skipped: $(tail -n 1 "$work/err")"
        continue
    fi
    expect 0 'node1\].*PORT_ACTIVE' lab/run --kernel "$suite" --each -- ibv_devinfo
done

# pair TEST OPTIONS...: runs a perftest between node 1 and node 0; OPTIONS are for the lab
pair() {
    local test=$1 size=65536
    shift
    [[ $test != *_lat ]] || size=64
    step "$test $*"
    expect 0 "node1\] +$size +200 " lab/run "$@" --each --with "$test" -- sh -ec '
        if [ "$VB_NODE" = 0 ]; then "$0" -R -F -s "$1" -n 200 >/dev/null; exit; fi
        for i in 1 2 3 4 5; do "$0" -R -F -s "$1" -n 200 node0 && exit; sleep 1; done
        exit 1' "$test" "$size"
}

for loss in 0 1; do
    step "rping --loss $loss"
    expect 0 'node1\].*EVENT_DISCONNECTED' lab/run --loss "$loss" --each --with rping -- sh -ec '
        [ "$VB_NODE" != 0 ] || exec rping -s -a 10.77.0.1 -C 50 -V
        for i in 1 2 3 4 5; do rping -c -d -a 10.77.0.1 -C 50 -V && exit; sleep 1; done
        exit 1'
done

for test in ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat; do
    pair "$test"
    pair "$test" --loss 1
done
pair ib_write_bw --mtu 4200
pair ib_write_lat --delay 5 --rate 100

if command -v mpicc >/dev/null; then
    step "Open MPI"
    cat >"$work/sum.c" <<'END'
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, mine, sum;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d: sum %d\n", rank, sum);
    MPI_Finalize();
    return 0;
}
END
    mpicc "$work/sum.c" -o "$work/sum"
    expect 0 '' lab/mpirun --nodes 3 -- "$work/sum"
    grep -qx 'rank 2: sum 6' "$work/out" || fail "Open MPI: $(cat "$work/out")"
fi

step "a program with AddressSanitizer"
cat >"$work/beyond.c" <<'END'
#include <stdlib.h>

int main(void)
{
    volatile char *p = malloc(17);

    return p[17];
}
END
"${CC:-cc}" -g -fsanitize=address "$work/beyond.c" -o "$work/beyond"
expect 1 'heap-buffer-overflow.*beyond\.c:7 in main' lab/run --nodes 1 -- "$work/beyond"

step "a cable pulled for three seconds"
expect 0 'node1: the link of this node works again' lab/run --cut 1@1:3 --each -- sh -ec '
    [ "$VB_NODE" = 1 ] || exit 0
    carrier=/sys/class/net/eth0/carrier
    while [ "$(cat $carrier)" = 1 ]; do sleep 0.1; done
    grep DOWN /sys/class/infiniband/rxe0/ports/1/state
    while [ "$(cat $carrier)" = 0 ]; do sleep 0.1; done
    until ping -c 1 -W 1 node0; do sleep 0.1; done'

step "a kernel that crashes"
expect 125 'node0 console\].*sysrq' lab/run --nodes 1 -- \
    sh -c 'echo c >/proc/sysrq-trigger; sleep 9'

step "a /dev/kvm that is good for nothing"
if unshare --user --map-root-user --mount true 2>/dev/null; then
    cat >"$work/kvm.sh" <<'END'
set -e
mkdir "$1"
mount -t tmpfs tmpfs "$1"
for device in null zero urandom; do
    touch "$1/$device"
    mount --bind "/dev/$device" "$1/$device"
done
ln -s /proc/self/fd "$1/fd"
touch "$1/kvm"
mount --rbind "$1" /dev
exec lab/run --nodes 1 --each -- true
END
    expect 0 '/dev/kvm cannot be used' unshare --user --map-root-user --mount \
        sh "$work/kvm.sh" "$work/dev"
else
    echo "  skipped: this host has no user namespaces"
fi

step "a prompt"
printf 'hostname\nexit 7\n' >"$work/in"
status=0
lab/shell --nodes 2 --node 1 <"$work/in" >"$work/out" 2>"$work/err" || status=$?
[ "$status" = 7 ] || fail "lab/shell: status $status"
grep -qx node1 "$work/out" || fail "lab/shell: not on node1"

step "a reader who goes away"
status=0
lab/run --nodes 1 -- yes 2>"$work/err" | head -n 1 >"$work/out" || status=$?
nothing_left "a reader who goes away"

step "all of it"
