#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the records of ranks that do not see the run folder: records.sh VERBENA. The two hosts are two network
# namespaces; a tmpfs on its path hides the run folder from the second one.
#
# Covers: engine/record/train_ship.c engine/record/train_inbox.c net/control/control_record.c cli/train/train_clocks.c
set -uo pipefail
verbena=$(realpath "$1")

command -v python3 >/dev/null || {
    echo "skipped: needs python3"
    exit 77
}
# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../support/host_pair.sh"
need_namespaces
a=vb-ra-$$ b=vb-rb-$$
dir=$(mktemp -d /tmp/verbena-records.XXXXXX)
trap 'remove_host_pair "$a" "$b"; rm -rf "$dir"' EXIT
make_host_pair "$a" "$b" || exit
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

(umask 077 && head -c 32 /dev/urandom >"$dir/key")

on0=(ip netns exec "$a")
on1=(ip netns exec "$b")
mkdir "$dir/runs"
unseen=(ip netns exec "$b" unshare -m sh -c "mount -t tmpfs vb-test $dir/runs && \"\$@\"; rc=\$?
    find $dir/runs -type f >$dir/left; exit \$rc" sh)

# job PORT OPTIONS...: two ranks; writes the output to files in $dir. Rank 1 has the options in extra1, too.
extra1=()
job() {
    local port=$1 code0 code1
    shift
    local args=(train "$@" --world 2 --root "10.98.0.1:$port" --secret-file "$dir/key" --timeout 30 --json)
    timeout 120 "${on1[@]}" "$verbena" "${args[@]}" --rank 1 "${extra1[@]}" >"$dir/out1" 2>"$dir/err1" &
    timeout 120 "${on0[@]}" "$verbena" "${args[@]}" --rank 0 >"$dir/out0" 2>"$dir/err0"
    code0=$?
    wait $!
    code1=$?
    [ "$code0$code1" = 00 ] || fail "$*: exit $code0 and $code1: $(tail -5 "$dir/err0" "$dir/err1")"
}

# columns FILE NAMES...: prints these columns of a series, with all bits.
columns() {
    python3 - "$@" <<'EOF'
import struct, sys
head, body = open(sys.argv[1], 'rb').read().split(b'\nend\n', 1)
size = {'u64': 'Q', 'i64': 'q', 'f64': 'd', 'u32': 'I', 'i32': 'i', 'f32': 'f'}
cols = [line.split() for line in head.decode().splitlines() if line.startswith('col ')]
row = struct.Struct('<' + ''.join(size[c[2]] for c in cols))
at = [[c[1] for c in cols].index(name) for name in sys.argv[2:]]
assert len(body) % row.size == 0, 'the file ends with a cut row'
for r in row.iter_unpack(body):
    print(*[r[i].hex() if isinstance(r[i], float) else r[i] for i in at])
EOF
}

softmax=(softmax --data synth:2000 --steps 3000)
job 7101 "${softmax[@]}" --run "$dir/runs/shared"
on1=("${unseen[@]}")
job 7102 "${softmax[@]}" --log-level debug --run "$dir/runs/sent"
[ "$(cat "$dir/left")" = "$dir/runs/sent/rank1/log.txt" ] || fail "rank 1 wrote to its own folder: $(cat "$dir/left")"
grep -q 'records go to the rank that has the run folder' "$dir/runs/sent/rank1/log.txt" || fail "the log of rank 1 was not sent"
for run in shared sent; do
    columns "$dir/runs/$run/rank1/steps.bin" step samples loss lr >"$dir/$run" || fail "$run: cannot read steps.bin"
    [ "$(wc -l <"$dir/$run")" = 3000 ] || fail "$run: $(wc -l <"$dir/$run") rows instead of 3000"
done
cmp "$dir/shared" "$dir/sent" || fail "the rows that were sent differ from those in a shared folder"
[ "$(jq -r .params_sha256 "$dir/runs/shared/run.json")" = "$(jq -r .params_sha256 "$dir/runs/sent/run.json")" ] ||
    fail "the parameters differ"
jq -e '[.run.clocks[].rank] == [0, 1] and .run.clocks[1].error_us > 0 and (.run.clocks[1].knots | length) > 0' \
    "$dir/runs/sent/run.json" >/dev/null || fail "clocks: $(jq -c .run.clocks "$dir/runs/sent/run.json")"
grep -q 'clock of rank 1: ' "$dir/err0" || fail "the clock of rank 1 is not logged"
[ -z "$(find "$dir/runs" -name '.token*')" ] || fail "a token is left: $(find "$dir/runs" -name '.token*')"

# With a rate that is too low, rows are lost and counted, and the result has the same bits.
job 7103 "${softmax[@]}" --run "$dir/runs/slow" --record-rate 0.01
columns "$dir/runs/slow/rank1/steps.bin" step >"$dir/slow" || fail "slow: cannot read steps.bin"
n=$(wc -l <"$dir/slow")
{ [ "$n" -gt 0 ] && [ "$n" -lt 3000 ]; } || fail "slow: $n rows of 3000"
jq -e ".run.records_lost > 0" "$dir/runs/slow/run.json" >/dev/null ||
    fail "slow: $n rows of 3000, and records_lost $(jq .run.records_lost "$dir/runs/slow/run.json")"
sort -nuc "$dir/slow" || fail "slow: the rows are not in order"
[ "$(jq -r .params_sha256 "$dir/runs/slow/run.json")" = "$(jq -r .params_sha256 "$dir/runs/shared/run.json")" ] ||
    fail "slow: the parameters differ"

# A rank that sends faster than rank 0 allows: rank 0 drops records, and counts them.
extra1=(--record-rate 100)
job 7106 "${softmax[@]}" --run "$dir/runs/fast" --record-rate 0.01
extra1=()
n=$(columns "$dir/runs/fast/rank1/steps.bin" step | wc -l)
{ [ "$n" -lt 3000 ] && jq -e '.run.records_lost > 0' "$dir/runs/fast/run.json" >/dev/null; } ||
    fail "fast: $n rows of 3000, records_lost $(jq .run.records_lost "$dir/runs/fast/run.json")"
grep -q 'records of other ranks, .* were lost' "$dir/err0" || fail "fast: rank 0 does not say what it dropped"

# begin_async NAME PORT OPTIONS...: two workers on the first host; waits until others can join.
begin_async() {
    local args=(train softmax --data synth:3000 --batch 200 --mode async --world 2 --root "10.98.0.1:$2"
        --secret-file "$dir/key" --timeout 30 --json --run "$dir/runs/$1" "${@:3}") i
    : >"$dir/err0"
    timeout 120 "${on0[@]}" "$verbena" "${args[@]}" --rank 0 >"$dir/out0" 2>"$dir/err0" &
    pid0=$!
    timeout 120 "${on0[@]}" "$verbena" "${args[@]}" --rank 1 >"$dir/out1" 2>"$dir/err1" &
    pid1=$!
    for ((i = 0; i < 400; i++)); do
        grep -q "others can join" "$dir/err0" && break
        sleep 0.05
    done
    root=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' "$dir/err0")
}

# A worker joins from the host that does not see the folder.
begin_async joined 7104 --steps 8000
timeout 120 "${on1[@]}" "$verbena" train --join "$root" --secret-file "$dir/key" >"$dir/out2" 2>"$dir/err2" ||
    fail "joined: exit $?: $(cat "$dir/err2")"
wait $pid0 || fail "joined: rank 0: $(tail -5 "$dir/err0")"
wait $pid1 || fail "joined: rank 1: $(tail -5 "$dir/err1")"
joiner=$(jq -r '[.faults[] | select(.what == "joined")][0].rank' "$dir/runs/joined/run.json")
made=$(jq -r '.staleness.per_worker[-1].gradients' "$dir/runs/joined/run.json")
n=$(columns "$dir/runs/joined/rank$joiner/steps.bin" step | wc -l)
{ [ "$n" -gt 0 ] && [ "$n" -ge "$made" ]; } || fail "joined: rank $joiner has $n rows, but made $made gradients"
jq -e "[.run.ranks[].rank] == [0, 1, $joiner] and (.run.ranks[2] | .role == \"worker\" and .pid > 0 and .cpus > 0 and
    .memory_bytes > 0 and (.transports.tcp | length) > 0)" "$dir/runs/joined/run.json" >/dev/null ||
    fail "joined: $(jq -c .run.ranks "$dir/runs/joined/run.json")"
# The steps of its rows are those of the job, although parameters come with replies.
columns "$dir/runs/joined/rank$joiner/steps.bin" step >"$dir/steps"
if [ "$(sort -nu "$dir/steps" | wc -l)" -le $((n / 4)) ] || ! sort -nc "$dir/steps"; then
    fail "joined: the steps of its rows are $(sort -nu "$dir/steps" | wc -l) different ones of $n, $(tail -1 "$dir/steps")"
fi

# Rank 0 dies. The records of the joiner are lost, and training goes on.
begin_async killed 7105 --steps 30000 --replicas 2
timeout 120 "${on1[@]}" "$verbena" train --join "$root" --secret-file "$dir/key" >"$dir/out2" 2>"$dir/err2" &
pid2=$!
sleep 2
pkill -KILL -P $pid0 || fail "killed: rank 0 had ended"
wait $pid0
wait $pid1 || fail "killed: rank 1: $(tail -5 "$dir/err1")"
wait $pid2 || fail "killed: the joiner: $(tail -5 "$dir/err2")"
jq -e '.steps == 30000' "$dir/out1" >/dev/null || fail "killed: $(cat "$dir/out1")"

[ $bad = 0 ] && echo "all tests passed: records sent by rank 1 equal those of a shared folder; rank $joiner joined, and sent a row a gradient: $n"
exit $bad
