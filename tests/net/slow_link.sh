#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests jobs of three hosts over links of 0.5 Mbit/s: slow_link.sh VERBENA [long]. The hosts are network namespaces at a
# bridge. A queue of up to 5 s of data is at both ends of each link, as in a cheap router. Small models must get through
# the set-up and train with the default --timeout, synchronously and asynchronously. "long" trains a larger one, only
# synchronously, whose transfers fill the queues and take longer than a rank may be silent.
#
# Covers: net/coll/cost_measure.c net/tcp/tcp_sense.c
set -uo pipefail
verbena=$(realpath "$1")

# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../support/host_pair.sh"
need_namespaces
if ! command -v tc >/dev/null; then
    echo "skipped: needs the command tc"
    exit 77
fi
tag=vb-slow-$$
dir=$(mktemp -d /tmp/verbena-slow.XXXXXX)
trap 'remove_hosts "$tag"; rm -rf "$dir"' EXIT
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

make_hosts "$tag" 3 tbf rate 500kbit burst 3200 latency 5s
(umask 077 && head -c 32 /dev/urandom >"$dir/key")

# job OPTIONS...: trains on the three hosts
job() {
    local i status pids=()
    for i in 0 1 2; do
        ip netns exec "$tag-$((i + 1))" "$verbena" train "$@" --world 3 --rank $i --root 10.98.0.1:7001 \
            --secret-file "$dir/key" --transport tcp --json >"$dir/out$i" 2>"$dir/err$i" &
        pids+=($!)
    done
    for i in 0 1 2; do
        wait "${pids[$i]}" || { status=$? && fail "$*: rank $i exits with $status: $(cat "$dir/err$i")"; }
    done
    jq -e '.transport == "tcp" and .ranks == 3' "$dir/out0" >/dev/null || fail "$*: $(cat "$dir/out0")"
    echo "$((SECONDS - began)) s: $*"
}

began=$SECONDS
if [ "${2:-}" = long ]; then
    job mlp --data synth:600 --steps 2 --test-limit 20
else
    job softmax --data synth:2000 --steps 3
    job softmax --data synth:2000 --steps 3 --mode async
    job lenet --data synth:600 --steps 1 --test-limit 20
fi

[ $bad = 0 ] && echo "all tests passed: three hosts, 0.5 Mbit/s"
exit $bad
