# SPDX-License-Identifier: MIT
#
# Prints how the training of a rank went on while another one joined: pause.py STEPS_BIN FROM_NS. FROM_NS is the time of the
# monotonic clock when the joiner was started. A step lasts from the end of the step before to its own end. Four numbers:
# the longest step and the median in milliseconds; the longest step in medians; by how many percent the steps from FROM_NS
# to the longest one are longer than those before FROM_NS (medians).
import statistics
import struct
import sys

TYPES = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}
head, _, body = open(sys.argv[1], "rb").read().partition(b"\nend\n")
cols = [line.split()[1:3] for line in head.decode().split("\n") if line.startswith("col ")]
row = struct.Struct("<" + "".join(TYPES[kind] for _, kind in cols))
at = [name for name, _ in cols].index("end_ns")
ends = [r[at] for r in row.iter_unpack(body[: len(body) // row.size * row.size])]
steps = [((b - a) / 1e6, a) for a, b in zip(ends, ends[1:])][1:]
median = statistics.median(ms for ms, _ in steps)
longest, begin = max(steps)
joiner = int(sys.argv[2])
alone = statistics.median(ms for ms, ns in steps if ns < joiner)
beside = [ms for ms, ns in steps if joiner <= ns < begin] or [alone]
print(f"{longest:.1f} {median:.2f} {longest / median:.1f} {(statistics.median(beside) / alone - 1) * 100:.1f}")
