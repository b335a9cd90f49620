#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests jobs on two hosts: netns.sh VERBENA. The two hosts are two network namespaces, connected by a pair of virtual
# interfaces.
#
# Covers: net/control/root.c net/control/watch.c net/control/agree.c
set -uo pipefail
verbena=$(realpath "$1")

# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../support/host_pair.sh"
need_namespaces
a=vb-a-$$ b=vb-b-$$
dir=$(mktemp -d /tmp/verbena-netns.XXXXXX)
trap 'remove_host_pair "$a" "$b"; rm -rf "$dir"' EXIT
make_host_pair "$a" "$b" || exit
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

(umask 077 && head -c 32 /dev/urandom >"$dir/key")

# job ROOT OPTIONS...: runs rank 0 in one namespace and rank 1 in the other. Writes the output to files in $dir, and the
# exit codes to $code0 and $code1.
on0=(ip netns exec "$a")
on1=(ip netns exec "$b")
model=(softmax --data synth:2000)
job() {
    local root=$1
    shift
    local args=(train "${model[@]}" --steps 20 --world 2 --root "$root"
        --secret-file "$dir/key" --timeout 20 "$@" --json)
    "${on1[@]}" "$verbena" "${args[@]}" --rank 1 >"$dir/out1" 2>"$dir/err1" &
    "${on0[@]}" "$verbena" "${args[@]}" --rank 0 >"$dir/out0" 2>"$dir/err0"
    code0=$?
    wait $!
    code1=$?
}

for root in 10.98.0.1:7001 '[fd98::1]:7002'; do
    job "$root"
    [ "$code0$code1" = 00 ] || fail "$root: exit $code0 and $code1: $(cat "$dir/err0" "$dir/err1")"
    [ "$(jq -r .transport "$dir/out0")" = tcp ] || fail "$root: not over TCP: $(cat "$dir/out0")"
    sums+=("$(jq -r .params_sha256 "$dir/out0")")
done
[ "${sums[0]}" = "${sums[1]}" ] || fail "IPv4 and IPv6 differ: ${sums[*]}"

# slow_link MODEL...: trains over a slow link. The time must count as transfer and not as waiting: a rank that has begun
# to send is not a straggler.
slow_link() {
    model=("$@")
    job 10.98.0.1:7009
    [ "$code0$code1" = 00 ] || fail "$1, slow: exit $code0 and $code1: $(cat "$dir/err0" "$dir/err1")"
    jq -e '.breakdown.comm_exposed > .breakdown.wait and .bottleneck.resource == "network"' "$dir/out0" >/dev/null ||
        fail "$1, slow: $(jq -c '.breakdown, .bottleneck' "$dir/out0")"
    model=(softmax --data synth:2000)
}
# shape KBIT: limits the rate of the link. The transfer of a step must take much longer than a busy machine needs to
# wake a rank.
shape() {
    tc -n "$a" qdisc replace dev veth-a root tbf rate "$1kbit" burst 3200 latency 5s 2>/dev/null &&
        tc -n "$b" qdisc replace dev veth-b root tbf rate "$1kbit" burst 3200 latency 5s
}
if command -v tc >/dev/null && shape 5000; then
    slow_link softmax --data synth:2000
    slow_link softmax --data synth:2000 --wire bf16
    shape 20000
    slow_link lenet --data synth:1000
    shape 2000
    slow_link sparse-lr --data synth:kind=criteo,n=8000,features=100000 --global-batch 400
    tc -n "$a" qdisc del dev veth-a root
    tc -n "$b" qdisc del dev veth-b root
fi

# Rank 1 tries to connect for a while before rank 0 listens. The port of rank 0 is one of the few ports that the kernel
# assigns to outgoing connections, so the kernel may assign it to rank 1 itself. Then rank 1 must neither take itself
# for rank 0 nor keep the port.
ports=/proc/sys/net/ipv4/ip_local_port_range
usual=$(ip netns exec "$a" cat $ports)
ip netns exec "$a" sh -c "echo 40000 40015 >$ports"
on0=(ip netns exec "$a" sh -c 'sleep 0.5 && exec "$@"' sh)
on1=(ip netns exec "$a")
job 127.0.0.1:40008
[ "$code0$code1" = 00 ] || fail "a port that the kernel assigns: exit $code0 and $code1: $(cat "$dir/err0" "$dir/err1")"
ip netns exec "$a" sh -c "echo $usual >$ports"
on0=(ip netns exec "$a")
on1=(ip netns exec "$b")

# join_from_other_host MODEL...: two workers on one host share memory, and a worker on the other host joins the job
join_from_other_host() {
    local args=(train "$@" --mode async --world 2 --root 10.98.0.1:7008 --secret-file "$dir/key" --timeout 20 --json) i pids
    : >"$dir/err0"
    "${on0[@]}" "$verbena" "${args[@]}" --rank 0 >"$dir/out0" 2>"$dir/err0" &
    pids=$!
    "${on0[@]}" "$verbena" "${args[@]}" --rank 1 >"$dir/out1" 2>"$dir/err1" &
    pids+=" $!"
    for ((i = 0; i < 200; i++)); do
        grep -q "others can join" "$dir/err0" && break
        sleep 0.05
    done
    "${on1[@]}" "$verbena" train --join "$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' "$dir/err0")" \
        --secret-file "$dir/key" 2>"$dir/err2" || fail "$1: it cannot join: $(cat "$dir/err2")"
    # shellcheck disable=SC2086 # two process ids
    wait $pids || fail "$1, joined: $(cat "$dir/err0" "$dir/err1")"
    jq -e '.transport == "shm" and .staleness.per_worker[2].gradients > 0 and
        [.faults[] | [.rank, .what]] == [[3, "joined"]]' "$dir/out0" >/dev/null || fail "$1, joined: $(cat "$dir/out0")"
}
join_from_other_host softmax --data synth:3000 --batch 200 --steps 8000
join_from_other_host sparse-lr --data synth:kind=criteo,n=60000,features=100000 --batch 100 --steps 8000
join_from_other_host lenet --data synth:1200 --batch 20 --steps 1500

# Ranks on different hosts cannot use shared memory, and the message must say so.
job 10.98.0.1:7003 --transport shm
[ "$code1" = 1 ] || fail "shared memory between hosts: exit $code1"
grep -q 'cannot be reached through shared memory' "$dir/err1" || fail "the reason is missing: $(cat "$dir/err1")"

# refused ROOT WHAT: both ranks must refuse to use this network and say why; with --any-interface the job must succeed
refused() {
    job "$1"
    [ "$code0$code1" = 11 ] || fail "$2: exit $code0 and $code1"
    grep -q "on another host goes over $2: give --root a different" "$dir/err0" "$dir/err1" ||
        fail "$2: the reason is missing: $(cat "$dir/err0" "$dir/err1")"
    job "$1" --any-interface
    [ "$code0$code1" = 00 ] ||
        fail "$2, forced: exit $code0 and $code1: $(cat "$dir/err0" "$dir/err1")"
}

# The control network of CloudLab must be refused. A file that only rank 1 sees names the interface of this network.
cp "$verbena" "$dir/verbena" # because the build may be below /var
on1=(ip netns exec "$b" unshare -m sh -c 'mount -t tmpfs vb-test /var &&
    mkdir -p /var/emulab/boot && echo veth-b >/var/emulab/boot/controlif && exec "$@"' sh)
verbena=$dir/verbena refused 10.98.0.1:7004 'veth-b, the control network, which jobs must not use'

# The loopback interface must be refused. Both ranks are in one namespace, but rank 1 has another boot id, as if its
# port were forwarded from another host.
cat /proc/sys/kernel/random/uuid >"$dir/boot_id"
on1=(ip netns exec "$a" unshare -m sh -c "mount --bind $dir/boot_id /proc/sys/kernel/random/boot_id &&
    exec \"\$@\"" sh)
refused 127.0.0.1:7005 'lo, the loopback interface'
refused '[::1]:7006' 'lo, the loopback interface'
on1=(ip netns exec "$b")

# A bridge must be refused.
ip -n "$a" addr flush dev veth-a
ip -n "$a" link add br0 type bridge
ip -n "$a" link set veth-a master br0
ip -n "$a" link set br0 up
ip -n "$a" addr add 10.98.0.1/24 dev br0
refused 10.98.0.1:7007 'br0, a bridge'

# The link between two hosts breaks. No connection closes, but all ranks must find out, also those that watch no rank of
# the other host and rely on the kernel's probes. Half of the ranks with rank 0 go on, the others end.
pids=()
for rank in 0 1 2 3 4 5; do
    on=("${on0[@]}")
    [ $rank -lt 3 ] || on=("${on1[@]}")
    timeout 60 "${on[@]}" "$verbena" train softmax --data synth:2000 --batch 10 --steps 1000000 --world 6 \
        --root 10.98.0.1:7010 --any-interface --secret-file "$dir/key" --timeout 50 --rank $rank --run "$dir/parted" >"$dir/out$rank" \
        2>"$dir/err$rank" &
    pids+=($!)
done
for ((i = 0; i < 300; i++)); do
    [ "$(ip netns exec "$a" ss -Htno state established "( sport = :7010 )" | grep -c keepalive)" -lt 3 ] || break
    sleep 0.1
done
[ $i -lt 300 ] || fail "the kernel does not probe the connections between hosts"
for ((i = 0; i < 300; i++)); do
    [ ! -s "$dir/parted/rank0/steps.bin" ] || break
    sleep 0.1
done
[ $i -lt 300 ] || fail "parted: the job has made no steps: $(cat "$dir"/err?)"
ip -n "$b" link set veth-b down
start=$(date +%s)
for rank in 3 4 5; do
    wait "${pids[$rank]}"
    [ $? = 1 ] || fail "parted: rank $rank did not end by itself: $(cat "$dir/err$rank")"
    grep -q 'this rank cannot go on: of 6 ranks only' "$dir/err$rank" || fail "parted: rank $rank: $(cat "$dir/err$rank")"
done
[ $(($(date +%s) - start)) -lt 40 ] || fail "parted: it took $(($(date +%s) - start)) s"
kill -INT "$(pgrep -P "${pids[0]}")"
for rank in 0 1 2; do
    wait "${pids[$rank]}"
    code=$?
    [ $code = 130 ] || fail "parted: rank $rank did not go on until SIGINT, exit $code: $(cat "$dir/err$rank")"
done
grep -qE 'rank [345] .* was lost after step [0-9]+: (silent for|its host cannot|rank [12] .* has found)' "$dir/err0" ||
    fail "parted: rank 0 says: $(cat "$dir/err0")"

[ $bad = 0 ] && echo "all tests passed: two hosts, IPv4 and IPv6; three networks refused"
exit $bad
