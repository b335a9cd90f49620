#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests doctor and bench between two nodes with soft-RoCE: lab_doctor.sh VERBENA. TCP and RDMA work, and doctor shows
# the counters of the ports. Over a link that loses packets, doctor reports the loss. bench shows the counters, too.
#
# Covers: bench/host_pairs.c bench/ports.c
set -euo pipefail
cd "$(dirname "$0")/../.."
verbena=$(realpath "$1")

# shellcheck source=tests/support/lab_test.sh
. tests/support/lab_test.sh

# holds FILTER: fails if the jq filter is false for the output
holds() {
    jq -e "$1" "$work/out" >/dev/null || fail "$1: $(cat "$work/out")"
}

expect 0 '' lab/run -- "$verbena" doctor --json --timeout 60
holds '.ok and all(.hosts[]; .rdma) and (.pairs | map(.transport)) == ["tcp", "verbs"]
    and all(.pairs[]; .wrong == 0) and .pairs[0].rnr == null and .pairs[1].rnr == 0
    and .pairs[1].retries >= 0 and any(.checks[]; .name == "rdma" and .level == "OK")'

expect 0 '' lab/run --loss 3 -- "$verbena" doctor --transport verbs --json --timeout 60
holds '(.pairs | map(.transport)) == ["verbs"] and .pairs[0].wrong == 0
    and .pairs[0].retries + .pairs[0].out_of_seq > 0
    and any(.checks[]; .name == "loss" and .level == "WARN")'

expect 0 '' lab/run -- "$verbena" bench transfer --transport verbs --sizes 4K --seconds 0.1
for node in node0 node1; do
    grep -qE "^$node rxe0/1: retries 0 -> [0-9]+, out of sequence 0 -> [0-9]+, RNR 0 -> 0" \
        "$work/out" || fail "the counters of $node are missing: $(tail -n 3 "$work/out")"
done
echo "ok: doctor and bench over soft-RoCE, with the counters of the ports"
