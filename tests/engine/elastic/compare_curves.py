# SPDX-License-Identifier: MIT
#
# Compares the training losses of two synchronous runs: compare_curves.py RUN OTHER STEPS WINDOW
#
# The loss of a step is the mean over the samples of all ranks, from their rows in steps.bin. Steps whose rows are missing
# in part are left out: the last rows of a killed rank are. Both curves are smoothed by means over WINDOW steps. Prints the
# largest relative difference of them, in percent, and the number of steps that were left out.
import glob
import struct
import sys

TYPES = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}


def rows(path):
    head, _, body = open(path, "rb").read().partition(b"\nend\n")
    cols = [line.split()[1:3] for line in head.decode().split("\n") if line.startswith("col ")]
    row = struct.Struct("<" + "".join(TYPES[kind] for _, kind in cols))
    names = [name for name, _ in cols]
    return [dict(zip(names, r)) for r in row.iter_unpack(body[: len(body) // row.size * row.size])]


def losses_of(run, steps):
    """Returns the sum of the losses, and the number of samples, of each step from 1 on. A later row of a rank replaces an
    earlier one of the same step."""
    total, n = [0.0] * (steps + 1), [0] * (steps + 1)
    for path in glob.glob(f"{run}/rank*/steps.bin"):
        for step, row in {row["step"]: row for row in rows(path)}.items():
            total[step] += row["loss"] * row["samples"]
            n[step] += row["samples"]
    return total[1:], n[1:]


def means(total, n, use, window):
    kept = [t / count for t, count, fine in zip(total, n, use) if fine]
    return [sum(kept[at : at + window]) / window for at in range(0, len(kept) - window + 1, window)]


run, other, steps, window = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
a, n_a = losses_of(run, steps)
b, n_b = losses_of(other, steps)
use = [x == y and x > 0 for x, y in zip(n_a, n_b)]
if use.count(False) > steps // 10:
    sys.exit(f"{run} and {other}: {use.count(False)} of {steps} steps are not complete")
apart = max(100 * abs(x - y) / y for x, y in zip(means(a, n_a, use, window), means(b, n_b, use, window)))
print(f"{apart:.4f} {use.count(False)}")
