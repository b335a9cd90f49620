#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the command verbena export: export.sh VERBENA. Python writes the checkpoint as described in docs/checkpoint.md,
# and numpy reads the exported files.
#
# Covers: cli/cmd_export.c cli/parse.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what="export"

mkdir "$dir/empty"
echo "not a checkpoint, though it is long enough for the header of one: 0123456789 0123456789 01234" \
    >"$dir/text.vbc"
refused 2 "the checkpoint is missing"
refused 2 "--out DIR is missing" "$dir/text.vbc"
refused 2 "unexpected argument b" a b --out "$dir/exported"
refused 1 "none.vbc: No such file or directory" "$dir/none.vbc" --out "$dir/exported"
refused 1 "text.vbc: offset 0: this is not a checkpoint" "$dir/text.vbc" --out "$dir/exported"
refused 1 "empty: there is no checkpoint in this folder" "$dir/empty" --out "$dir/exported"
[ -e "$dir/exported" ] && fail "a folder was made for nothing"

python=/usr/bin/python3
if ! $python -c 'import numpy' 2>/dev/null; then
    [ $bad = 0 ] || exit 1
    echo "skipped: $python has no numpy (package python3-numpy)"
    exit 77
fi

mkdir "$dir/run"
$python - "$dir/run" <<'END' || fail "the checkpoint was not written"
import struct, sys
import numpy

def crc32c(data):
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
        table.append(n)
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xffffffff

def padded(data):
    return data + bytes(-len(data) % 64)

rng = numpy.random.default_rng(1)
w = rng.standard_normal((300, 7)).astype("<f4")
b = rng.standard_normal(7).astype("<f4")
momentum = rng.standard_normal(300000).astype("<f4")  # two chunks
seen = rng.integers(0, 2**32, 5).astype("<u4")
arrays = [("w", 0, 0, w), ("fc1.b", 0, 0, b), ("w:momentum", 0, 1, momentum), ("seen", 1, 1, seen),
          ("none", 0, 0, numpy.zeros(0, "<f4"))]
options, plan = b"lr=0.1\n", b"fc1 forward blas\n"

at = len(padded(bytes(96 + 64 * len(arrays)) + options + plan))
table, body = b"", b""
for name, kind, flags, a in arrays:
    data = a.tobytes()
    chunks = [data[i:i + 2**20] for i in range(0, len(data), 2**20)]
    table += struct.pack("<32sIIqqQ", name.encode(), kind, flags, a.shape[0],
                         a.shape[1] if a.ndim > 1 else 1, at + len(body))
    body += padded(data + b"".join(struct.pack("<I", crc32c(c)) for c in chunks))
rest = padded(bytes(96) + table + options + plan)[96:]
size = 96 + len(rest) + len(body) + 16

def head(crc):
    return struct.pack("<8sIIQqQIIIIII32s", b"VBCKPT\n\x1a", 1, crc, size, 40, 7, len(arrays),
                       len(options), len(plan), crc32c(rest), 2**20, 0, b"softmax")

with open(sys.argv[1] + "/checkpoint-40.vbc", "wb") as f:
    f.write(head(crc32c(head(0))) + rest + body + b"VBCKEND\n" + struct.pack("<Q", size))
numpy.savez(sys.argv[1] + "/want.npz", **{name: a for name, _, _, a in arrays})
END

# exported NAMES ARGUMENTS...: fails unless export writes exactly these arrays, unchanged, to the new folder "exported"
exported() {
    local names=$1
    shift
    rm -rf "$dir/exported"
    "$verbena" export "$@" --out "$dir/exported" >"$dir/printed" || fail "export $*"
    [ "$(cd "$dir/exported" && echo *)" = "$names" ] || fail "export $*: $(cd "$dir/exported" && echo *)"
    $python - "$dir" <<'END' || fail "export $*: numpy reads other values"
import glob, os, sys
import numpy
want = numpy.load(sys.argv[1] + "/run/want.npz")
for path in glob.glob(sys.argv[1] + "/exported/*.npy"):
    name = os.path.basename(path)[:-4]
    with open(path, "rb") as f:
        assert numpy.lib.format.read_magic(f) == (1, 0), name
    a = numpy.load(path)
    assert a.dtype == want[name].dtype and a.shape == want[name].shape, (name, a.dtype, a.shape)
    assert a.tobytes() == want[name].tobytes(), name
END
}

exported "fc1.b.npy none.npy w.npy" "$dir/run/checkpoint-40.vbc"
grep -q "softmax at step 40" "$dir/printed" || fail "the model is not printed"
grep -q "w.npy: 300 x 7 float32" "$dir/printed" || fail "the shape is not printed"
exported "fc1.b.npy none.npy seen.npy w.npy w:momentum.npy" "$dir/run" --state
exported "fc1.b.npy none.npy w.npy" "$dir/run" --json
[ "$(wc -l <"$dir/printed")" = 1 ] || fail "expected one line of JSON"
$python - "$dir/printed" <<'END' || fail "the JSON is wrong"
import json, sys
o = json.load(open(sys.argv[1]))
assert o["model"] == "softmax" and o["step"] == 40 and o["checkpoint"].endswith("checkpoint-40.vbc")
assert [(a["name"], a["type"], a["shape"]) for a in o["arrays"]] == [
    ("w", "float32", [300, 7]), ("fc1.b", "float32", [7]), ("none", "float32", [0])], o
END

# ---- the state of sparse models depends on the rule: floats, or 32-bit words that contain the step of the last update
for rule in adagrad:" float32" ftrl:" x 2 float32" momentum:" x 2 uint32"; do
    rm -rf "$dir/rows"
    "$verbena" train sparse-lr --data synth:n=200,test=10,features=1000 --steps 3 --rule "${rule%%:*}" \
        --checkpoint "$dir/rows" >/dev/null || fail "train ${rule%%:*}"
    "$verbena" export "$dir/rows" --state --out "$dir/exported" >"$dir/printed" || fail "export ${rule%%:*}"
    grep -q "state.npy: 1001${rule#*:}$" "$dir/printed" || fail "${rule%%:*}: $(cat "$dir/printed")"
done

# ---- which run and view of the job has written it
grep -q 'sparse-lr at step 3, view 1 of run 1$' "$dir/printed" || fail "the view is not printed: $(cat "$dir/printed")"
for command in eval export; do
    out=()
    [ $command = eval ] || out=(--out "$dir/exported")
    "$verbena" $command "$dir/rows" --json "${out[@]}" | grep -q '"view":{"run":1,"view":1,"term":0}' ||
        fail "$command --json does not tell the view"
done

# ---- if export fails, no incomplete file is left
mkdir "$dir/taken" && mkfifo "$dir/taken/none.npy" # the last of them
refused 2 "taken/none.npy: the path exists and is not a regular file" "$dir/run" --out "$dir/taken"
[ "$(cd "$dir/taken" && echo *)" = none.npy ] || fail "some were written: $(ls "$dir/taken")"
[ -p "$dir/taken/none.npy" ] || fail "a file took the place of a pipe"
refused 1 "File name too long" "$dir/run" --json --out "$dir/$(printf 'x%.0s' {1..300})"
(trap '' XFSZ && ulimit -f 1 && "$verbena" export "$dir/run" --state --out "$dir/full" >/dev/null 2>&1) &&
    fail "a full disk was not reported"
ls "$dir"/full/*.tmp >/dev/null 2>&1 && fail "an incomplete file was left"
printf x >>"$dir/run/checkpoint-40.vbc"
refused 1 "offset 16: the file is not as long" "$dir/run/checkpoint-40.vbc" --out "$dir/exported"

[ $bad = 0 ] && echo "all tests passed"
exit $bad
