# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Sourced by tests of jobs on several hosts, which are network namespaces: two hosts, connected by a pair of virtual
# interfaces, or several at a switch.

# need_namespaces: ends the test as skipped, unless this user may make network namespaces
need_namespaces() {
    local trial=vb-trial-$$ why
    if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
        echo "skipped: needs root and the command ip"
        exit 77
    fi
    if ! why=$(ip netns add "$trial" 2>&1); then
        echo "skipped: cannot make network namespaces: $why"
        exit 77
    fi
    ip netns del "$trial"
}

# make_host_pair A B: makes two hosts as namespaces of these names. A has veth-a with the addresses 10.98.0.1 and fd98::1,
# B has veth-b with 10.98.0.2 and fd98::2.
make_host_pair() {
    local ns
    ip netns add "$1" && ip netns add "$2" &&
        ip link add veth-a netns "$1" type veth peer name veth-b netns "$2" || return
    ip -n "$1" addr add 10.98.0.1/24 dev veth-a
    ip -n "$2" addr add 10.98.0.2/24 dev veth-b
    ip -n "$1" addr add fd98::1/64 dev veth-a nodad
    ip -n "$2" addr add fd98::2/64 dev veth-b nodad
    ip -n "$1" link set veth-a up
    ip -n "$2" link set veth-b up
    for ns in "$1" "$2"; do
        ip -n "$ns" link set lo up
    done
}

remove_host_pair() {
    ip netns del "$1" 2>/dev/null
    ip netns del "$2" 2>/dev/null
}

# make_switch NS: makes a namespace with the bridge br0
make_switch() {
    ip netns add "$1" && ip -n "$1" link add br0 type bridge && ip -n "$1" link set br0 up
}

# add_host NS SWITCH K: makes a host as a namespace with the interface eth0, whose address is 10.98.0.K. Its other end is
# the port pK of the switch.
add_host() {
    ip netns add "$1"
    ip link add eth0 netns "$1" type veth peer name "p$3" netns "$2"
    ip -n "$1" addr add "10.98.0.$3/24" dev eth0
    ip -n "$1" link set lo up
    ip -n "$1" link set eth0 up
    ip -n "$2" link set "p$3" master br0 up
}

# make_hosts TAG N QDISC...: makes the hosts TAG-1 to TAG-N at a switch TAG-sw. Both ends of each link get the queueing
# discipline (words for tc). Ends the test as skipped if the kernel has no such discipline.
make_hosts() {
    local tag=$1 n=$2 k why
    shift 2
    make_switch "$tag-sw"
    for ((k = 1; k <= n; k++)); do
        add_host "$tag-$k" "$tag-sw" "$k"
        if ! why=$(tc -n "$tag-$k" qdisc replace dev eth0 root "$@" 2>&1 &&
            tc -n "$tag-sw" qdisc replace dev "p$k" root "$@" 2>&1); then
            echo "skipped: the kernel cannot limit the rate: $why"
            exit 77
        fi
    done
}

remove_hosts() {
    local ns
    for ns in $(ip netns list | grep -o "^$1-[0-9sw]*"); do
        ip netns del "$ns"
    done
}
