# SPDX-License-Identifier: MIT
#
# Prints how long the training of a rank stood still while another one joined: pause.py STEPS_BIN FROM_NS. Four numbers:
# the longest time between the ends of two steps and the median of these times, both in milliseconds; how many medians
# the longest is; by how many percent the times between FROM_NS, of the monotonic clock, when the joiner was started, and
# the longest one are longer than those before (medians).
import statistics
import struct
import sys

TYPES = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}
head, _, body = open(sys.argv[1], "rb").read().partition(b"\nend\n")
cols = [line.split()[1:3] for line in head.decode().split("\n") if line.startswith("col ")]
row = struct.Struct("<" + "".join(TYPES[kind] for _, kind in cols))
at = [name for name, _ in cols].index("end_ns")
ends = [r[at] for r in row.iter_unpack(body[: len(body) // row.size * row.size])]
times = [((b - a) / 1e6, a) for a, b in zip(ends, ends[1:])][1:]
median = statistics.median(ms for ms, _ in times)
longest, begin = max(times)
joiner = int(sys.argv[2])
alone = statistics.median(ms for ms, at in times if at < joiner)
beside = [ms for ms, at in times if joiner <= at < begin] or [alone]
print(f"{longest:.1f} {median:.2f} {longest / median:.1f} {(statistics.median(beside) / alone - 1) * 100:.1f}")
