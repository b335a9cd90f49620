# SPDX-License-Identifier: MIT
#
# Prints how long the training of a rank stood still: pause.py STEPS_BIN. Three numbers: the longest time between the
# ends of two steps and the median of these times, both in milliseconds, and how many medians the longest is.
import statistics
import struct
import sys

TYPES = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}
head, _, body = open(sys.argv[1], "rb").read().partition(b"\nend\n")
cols = [line.split()[1:3] for line in head.decode().split("\n") if line.startswith("col ")]
row = struct.Struct("<" + "".join(TYPES[kind] for _, kind in cols))
at = [name for name, _ in cols].index("end_ns")
ends = [r[at] for r in row.iter_unpack(body[: len(body) // row.size * row.size])]
times = [(b - a) / 1e6 for a, b in zip(ends, ends[1:])][1:]
median = statistics.median(times)
print(f"{max(times):.1f} {median:.2f} {max(times) / median:.1f}")
