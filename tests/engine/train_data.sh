#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the data of a job: train_data.sh VERBENA. Ranks that have other data than rank 0 are refused before the first
# step, and so is a run that resumes after its data has changed. Ranks of one host map one copy of the data.
#
# Covers: engine/train/train_copies.c engine/train/train_data.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/key"
chmod 600 "$dir/key"
mkdir "$dir/0" "$dir/1"

# rows N FEATURES VALUE: prints N rows of libsvm with this number of features; VALUE is in the last row
rows() {
    awk -v n="$1" -v f="$2" -v v="$3" 'BEGIN {
        for (i = 1; i <= n; i++) printf "%d %d:1 %d:%s\n", i % 2, 1 + i % 7, i == 2 ? f : 8 + i % 5, i == n ? v : 1 }'
}

# digits FOLDER CLASSES: writes MNIST's four files, with 40 images each whose labels are below CLASSES
digits() {
    python3 - "$@" <<'END'
import struct, sys
folder, classes = sys.argv[1], int(sys.argv[2])
for part in "train", "t10k":
    with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">4I", 0x803, 40, 28, 28) + bytes(i % 251 for i in range(40 * 784)))
    with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">2I", 0x801, 40) + bytes(i % classes for i in range(40)))
END
}

# by_hand RANK PREFIX... -- ARGUMENTS...: starts a rank of two in its folder, $dir/RANK, with a command before it
by_hand() {
    local rank=$1 prefix=()
    shift
    while [ "$1" != -- ]; do
        prefix+=("$1")
        shift
    done
    shift
    (cd "$dir/$rank" && exec timeout 100 "${prefix[@]}" "$verbena" train "$@" --rank "$rank" --world 2 --json \
        --root "127.0.0.1:$port" --secret-file "$dir/key" --timeout 60 >"$dir/out$rank" 2>"$dir/err$rank") &
    pids[rank]=$!
}

# pair ARGUMENTS...: runs two ranks, each in its folder; their exit codes are then in the array codes
pair() {
    port=$((20000 + RANDOM % 9000)) # not a port that the kernel assigns
    by_hand 0 -- "$@"
    by_hand 1 -- "$@"
    for rank in 0 1; do
        wait "${pids[rank]}"
        codes[rank]=$?
    done
}

# differ TEXT ARGUMENTS...: both ranks must refuse the job with a sentence that has TEXT
differ() {
    local text=$1 rank
    shift
    pair "$@"
    for rank in 0 1; do
        [ "${codes[rank]}" = 2 ] || fail "$*: rank $rank: exit ${codes[rank]}, expected 2: $(cat "$dir/err$rank")"
        grep -q "rank 1 (.*) has other data than rank 0 (.*): $text; give all ranks the same data" "$dir/err$rank" ||
            fail "$*: rank $rank does not say '$text': $(cat "$dir/err$rank")"
        [ ! -s "$dir/out$rank" ] || fail "$*: rank $rank printed a result"
    done
}

sparse=(sparse-lr --data libsvm:rows --test-split 0.2 --batch 10 --epochs 1)
contents="contents of the training data: [0-9a-f]* in $dir/1/rows, but [0-9a-f]* in $dir/0/rows"

rows 100 30 1 >"$dir/0/rows"
rows 100 30 1 >"$dir/1/rows"
pair "${sparse[@]}"
[ "${codes[*]}" = "0 0" ] || fail "equal files: exit ${codes[*]}: $(cat "$dir/err0" "$dir/err1")"
rows 100 30 2 >"$dir/1/rows"
differ "$contents" "${sparse[@]}"
differ "$contents" "${sparse[@]}" --mode async
rows 90 30 1 >"$dir/1/rows"
differ "training samples: [0-9]* in $dir/1/rows, but [0-9]* in $dir/0/rows" "${sparse[@]}"
differ "training samples: .*" "${sparse[@]}" --mode async --transport tcp
rows 100 31 1 >"$dir/1/rows"
differ "features: 31 in $dir/1/rows, but 30 in $dir/0/rows" "${sparse[@]}"
for more in "" "--transport tcp" "--staleness 0"; do
    # shellcheck disable=SC2086 # several words
    differ "features: 31 in $dir/1/rows, but 30 in $dir/0/rows" "${sparse[@]}" --mode async $more
done
mkdir "$dir/0/mnist" "$dir/1/mnist"
digits "$dir/0/mnist" 10
digits "$dir/1/mnist" 11
differ "classes: 11 in $dir/1/mnist, but 10 in $dir/0/mnist" softmax --data mnist:mnist --batch 4
digits "$dir/1/mnist" 9
differ "contents of the training data: .*" softmax --data mnist:mnist --batch 4

# ---- a joiner, which may have the data at another path
rows 100 30 1 >"$dir/1/rows"
timeout 100 "$verbena" train sparse-lr --data "libsvm:$dir/0/rows" --test-split 0.2 --batch 10 --epochs 1000000 \
    --mode async --ranks 2 --secret-file "$dir/key" --max-workers 3 >"$dir/out" 2>"$dir/err" &
job=$!
for ((i = 0; i < 600; i++)); do
    root=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' "$dir/err")
    [ -z "$root" ] || break
    sleep 0.1
done
rows 100 30 2 >"$dir/1/rows"
said=$(timeout 60 "$verbena" train --join "$root" --secret-file "$dir/key" --data "libsvm:$dir/1/rows" 2>&1)
code=$?
[[ $code$said == 2*"cannot join: this worker has other data than the job: contents of the training data: "* ]] ||
    fail "a joiner with other data: exit $code: $said"
kill -0 $job 2>/dev/null || fail "the job has ended: $(cat "$dir/err")"
{ kill $job && wait $job; } 2>/dev/null

# ---- resuming
# resumes CODE TEXT ARGUMENTS...: resumes the run, which must exit with CODE and print TEXT
resumes() {
    local want=$1 text=$2
    shift 2
    run "${once[@]}" --checkpoint "$dir/keep" --resume "$@"
    [ "$code" = "$want" ] || fail "--resume $*: exit $code, expected $want: $err"
    [[ $err == *"$text"* ]] || fail "--resume $*: '$err' does not contain '$text'"
}

# without_digest FILE: changes a checkpoint into one of an earlier version, which does not describe the data
without_digest() {
    python3 - "$1" <<'END'
import struct, sys
def crc(data):
    c = 0xffffffff
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    return c ^ 0xffffffff
old = bytearray(open(sys.argv[1], "rb").read())
n, p, q = struct.unpack_from("<3I", old, 40)
texts = 96 + 64 * n
options = bytes(old[texts:texts + p])
kept = options[:options.index(b"\ntraining samples=") + 1]
first = (texts + p + q + 63) // 64 * 64
body = bytearray(old[96:texts] + kept + old[texts + p:texts + p + q])
body += bytes(-(96 + len(body)) % 64)
shift = first - (96 + len(body))
for i in range(n):
    at, = struct.unpack_from("<Q", body, 64 * i + 56)
    struct.pack_into("<Q", body, 64 * i + 56, at - shift)
head = old[:96]
struct.pack_into("<Q", head, 16, len(old) - shift)
struct.pack_into("<I", head, 44, len(kept))
struct.pack_into("<I", head, 52, crc(body))
struct.pack_into("<I", head, 12, 0)
struct.pack_into("<I", head, 12, crc(head))
end = bytearray(old[-16:])
struct.pack_into("<Q", end, 8, len(old) - shift)
open(sys.argv[1], "wb").write(head + body + old[first:-16] + end)
END
}

rows 100 30 1 >"$dir/all"
rows 20 30 1 >"$dir/test"
once=(sparse-lr --data "libsvm:$dir/all" --test-data "libsvm:$dir/test" --features 40 --batch 10 --steps 10)
quiet "${once[@]}" --checkpoint "$dir/keep"
resumes 0 ""
rows 100 30 2 >"$dir/all"
resumes 2 "cannot resume: the data is not that with which the run of $dir/keep/checkpoint-10.vbc began: contents of the \
training data: "
[[ $err == *"continue with other data on purpose with --other-data"* ]] || fail "no way out is named: $err"
resumes 2 "cannot resume: the data" --mode sync
resumes 0 "" --other-data
refused 2 "--other-data needs --resume" "${once[@]}" --other-data
rows 90 30 1 >"$dir/all"
resumes 2 "training samples: 90 in $dir/all and $dir/test, but 100 in $dir/all and "
rows 100 30 1 >"$dir/all"
rows 20 30 2 >"$dir/test"
resumes 0 "the test data is not that with which the run of $dir/keep/checkpoint-10.vbc began"
rows 20 30 1 >"$dir/test"
without_digest "$dir/keep/checkpoint-10.vbc"
resumes 0 "without a digest of the data: whether the data has changed cannot be checked"
once+=(--mode async --ranks 2)
rm -rf "$dir/keep"
quiet "${once[@]}" --checkpoint "$dir/keep"
rows 100 30 2 >"$dir/all"
resumes 2 "cannot resume: the data is not that"

# ---- one copy a host
# private PID: prints the private memory of a process in kB
private() {
    awk '/^Private_(Clean|Dirty):/ { sum += $2 } END { print sum + 0 }' "/proc/$1/smaps_rollup"
}

for args in "softmax --data synth:8000" "softmax --data synth:8000 --mode async" "lenet --data synth:20000 --batch 8"; do
    read -ra words <<<"$args"
    start 20 "${words[@]}" --epochs 100000
    alone=$(private "$(pgrep -P "$job" | head -n 1)")
    { kill "$job" && wait "$job"; } 2>/dev/null
    start 20 "${words[@]}" --epochs 100000 --ranks 3
    for rank in 0 1 2; do
        shared=$(private "${ranks[rank]}")
        [ "$((alone - shared))" -gt 8000 ] ||
            fail "$args: rank $rank of 3 has $shared kB of its own, and one rank alone $alone kB: $(cat "$dir/err")"
    done
    { kill "$job" && wait "$job"; } 2>/dev/null
done

# A rank in a PID namespace of its own cannot open the memory of rank 0, and opens the data itself.
hand=(softmax --data synth:3000 --batch 60 --epochs 1 --transport tcp --log-level info)
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    port=$((20000 + RANDOM % 9000))
    by_hand 0 -- "${hand[@]}"
    by_hand 1 unshare --pid --fork --mount-proc -- "${hand[@]}"
    wait "${pids[0]}" || fail "rank 0 beside a PID namespace: exit $?: $(cat "$dir/err0")"
    wait "${pids[1]}" || fail "rank 1 in a PID namespace: exit $?: $(cat "$dir/err1")"
    grep -q "opens its own copy of the data, because it cannot read that of rank 0 on this host" "$dir/err1" ||
        fail "rank 1 in a PID namespace does not say that it opens the data itself: $(cat "$dir/err1")"
    cp "$dir/out0" "$dir/out"
    apart=$(get .params_sha256)
    pair "${hand[@]}"
    cp "$dir/out0" "$dir/out"
    [ "$(get .params_sha256)" = "$apart" ] || fail "a copy of its own changes the bits"
    ! grep -q "its own copy" "$dir/err1" || fail "rank 1 opened the data itself: $(cat "$dir/err1")"
else
    echo "skipped: PID namespaces need root"
fi

# The rank that opens the data is killed while the other waits for it.
port=$((20000 + RANDOM % 9000))
by_hand 0 -- softmax --data synth:400000
by_hand 1 -- softmax --data synth:400000
for ((i = 0; i < 600; i++)); do
    keeper=$(pgrep -P "${pids[0]}")
    grep -qs verbena-page "/proc/$keeper/maps" && break
    sleep 0.05
done
sleep 0.5
kill -9 "$keeper"
{ wait "${pids[0]}"; } 2>/dev/null
wait "${pids[1]}" && fail "rank 1 ended well although rank 0 was killed"
grep -q "rank 0 (" "$dir/err1" || fail "rank 1 does not name the rank that was killed: $(cat "$dir/err1")"
exit $bad
