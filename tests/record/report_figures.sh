#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that a run folder has each figure and curve of docs/run.md, "Figures of a report": report_figures.sh VERBENA.
# One to three hosts, which are network namespaces at a bridge, with links of 200 Mbit/s; synchronous and asynchronous.
#
# Covers: record/sample/sample_host.c record/sample/sample_own.c record/sample/sample_ports.c
set -uo pipefail
verbena=$(realpath "$1")
check=$(dirname "$0")/check_figures.py

# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../support/host_pair.sh"
need_namespaces
if ! command -v tc >/dev/null || ! command -v python3 >/dev/null; then
    echo "skipped: needs python3 and the command tc"
    exit 77
fi
tag=vb-fig-$$
dir=$(mktemp -d /tmp/verbena-figures.XXXXXX)
trap 'remove_hosts "$tag"; rm -rf "$dir"' EXIT
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

make_hosts "$tag" 3 tbf rate 200mbit burst 64k latency 50ms
(umask 077 && head -c 32 /dev/urandom >"$dir/key")

# figures RANKS OPTIONS...: trains, a rank on each host, and checks the run folder
figures() {
    local ranks=$1 run i pids=()
    shift
    run=$dir/$ranks-$1
    for ((i = 0; i < ranks; i++)); do
        timeout 60 ip netns exec "$tag-$((i + 1))" "$verbena" train "$@" --world "$ranks" --rank "$i" --root 10.98.0.1:7001 \
            --secret-file "$dir/key" --transport tcp --run "$run" --json >"$dir/out$i" 2>"$dir/err$i" &
        pids+=($!)
    done
    for ((i = 0; i < ranks; i++)); do
        wait "${pids[i]}" || fail "$ranks ranks, $*: rank $i exits with $?: $(tail -n 3 "$dir/err$i")"
    done
    python3 "$check" "$run" "$ranks" 25 || fail "$ranks ranks, $*: figures are missing"
    "$verbena" ops "$run" --json >"$dir/ops" || fail "$ranks ranks, $*: ops"
    jq -es 'any(.pass == "forward" and .ms > 0 and .bytes > 0) and any(.pass != null and (.pass | startswith("backward")) and .ms > 0)' "$dir/ops" \
        >/dev/null || fail "$ranks ranks, $*: ops has no profile: $(head -n 3 "$dir/ops")"
}

softmax=(softmax --data synth:2000 --batch 20 --eval-every 100)
figures 1 "${softmax[@]}" --steps 30000 --eval-every 10000
figures 2 "${softmax[@]}" --steps 900
figures 3 "${softmax[@]}" --steps 900
figures 3 sparse-lr --data synth:kind=criteo,n=4000,features=20000 --batch 20 --steps 25000 --eval-every 5000 --mode async
[ $bad = 0 ] && echo "all tests passed: each figure of a report is in the run folder, for 1 to 3 ranks"
exit $bad
