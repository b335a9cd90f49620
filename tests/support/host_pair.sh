# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Sourced by tests of jobs on two hosts. The hosts are two network namespaces, connected by a pair of virtual interfaces:
# veth-a with the addresses 10.98.0.1 and fd98::1, veth-b with 10.98.0.2 and fd98::2.

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

# make_host_pair A B: makes the two hosts as namespaces of these names
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
