# SPDX-License-Identifier: MIT
#
# Reads DIR/trace.pftrace with the definitions of the Python package perfetto, and compares it event
# by event with the rows that the ranks have recorded.
#
#   trace_check.py DIR [slow=RANK] [late=RANK] [clocks] [async]
#
# slow: this rank computes slowly. late: only its backward pass has an injected delay. clocks: no
# message comes before it was sent, but for the errors of the clocks in run.json.
# async: servers are threads of ranks, with numbers of their own, so an arrow may stay within a rank.
import collections
import json
import os
import statistics
import struct
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def fail(text):
    sys.exit("trace_check: " + text)


def rows_of(path):
    data = open(path, "rb").read()
    head, cols, size = data[: data.index(b"end\n") + 4], [], 0
    for line in head.decode().split("\n"):
        words = line.split()
        if words and words[0] == "col":
            cols.append((words[1], words[2]))
    form = "<" + "".join({"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}[t] for _, t in cols)
    size = struct.calcsize(form)
    body = data[len(head):]
    for at in range(0, len(body) // size * size, size):
        yield dict(zip([c for c, _ in cols], struct.unpack_from(form, body, at)))


def names_of(path):
    ops = {}
    for line in open(path):
        f = line.rstrip("\n").split("\t")
        if f[0] == "op":
            ops[int(f[1])] = f[2:6]
    return ops


def name_of(ops, row):
    layer, pass_, op, _ = ops[row["op"]]
    if op.endswith("rank") and row["peer"] >= 0:
        return "%s %d" % (op, row["peer"])
    return "%s %s: %s" % (layer, pass_, op) if layer else op


def recorded(folder):
    counts = collections.Counter()
    for entry in os.listdir(folder):
        if entry.startswith("rank") and os.path.exists(f"{folder}/{entry}/trace.bin"):
            ops = names_of(f"{folder}/{entry}/names.bin")
            for row in rows_of(f"{folder}/{entry}/trace.bin"):
                counts[int(entry[4:]), name_of(ops, row)] += 1
    return counts


class Slice:
    def __init__(self, rank, name, at, flows, size):
        self.rank, self.name, self.at, self.flows, self.bytes, self.ns = rank, name, at, flows, size, 0


def read(path):
    """Returns slices (moments too), and the number of events."""
    trace = pb.Trace()
    trace.ParseFromString(open(path, "rb").read())
    tracks, now, track, names = {}, {}, {}, collections.defaultdict(dict)
    open_, slices, n = collections.defaultdict(list), [], 0
    for p in trace.packet:
        seq = p.trusted_packet_sequence_id
        if p.HasField("track_descriptor"):
            d = p.track_descriptor
            tracks[d.uuid] = d
        if p.HasField("clock_snapshot"):
            now[seq] = p.clock_snapshot.clocks[1].timestamp
        if p.HasField("trace_packet_defaults"):
            track[seq] = p.trace_packet_defaults.track_event_defaults.track_uuid
        for e in p.interned_data.event_names:
            names[seq][e.iid] = e.name
        if not p.HasField("track_event"):
            continue
        n += 1
        e = p.track_event
        now[seq] += p.timestamp
        rank = (track[seq] >> 16) - 1
        if track[seq] not in tracks:
            fail("an event of a track that was not described")
        if e.type in (BEGIN, INSTANT):
            size = e.debug_annotations[0].uint_value if e.debug_annotations else 0
            s = Slice(rank, names[seq][e.name_iid], now[seq], list(e.flow_ids), size)
            slices.append(s)
            if e.type == BEGIN:
                open_[seq].append(s)
        elif e.type == END:
            s = open_[seq].pop()  # fails if there is none
            s.ns = now[seq] - s.at
    if any(open_.values()):
        fail("a slice does not end")
    return slices, n


def check_flows(slices, sync):
    ends = collections.defaultdict(list)
    for s in slices:
        for f in s.flows:
            ends[f].append(s)
    for f, pair in ends.items():
        if len(pair) != 2 or (sync and pair[0].rank == pair[1].rank):
            fail("arrow %d joins %d events: %s" % (f, len(pair), [(s.rank, s.name) for s in pair]))
    puts = [e for e in ends.values() if any(s.name.startswith("put to") for s in e)]
    for a, b in puts if sync else []:
        put, note = (a, b) if a.name.startswith("put to") else (b, a)
        if put.name != "put to rank %d" % note.rank or note.name != "note of rank %d" % put.rank:
            fail("an arrow from %s of rank %d to %s of rank %d" % (put.name, put.rank, note.name, note.rank))
    return len(ends), len(puts)


def check_slow(slices, slow):
    """The delay is that rank's, and the others wait for it, with an arrow to it."""
    longest = collections.defaultdict(list)
    for s in slices:
        if s.name in ("forward", "backward"):
            longest[s.rank].append(s.ns)
    means = {r: sum(v) / len(v) for r, v in longest.items()}
    waits = collections.Counter()
    for s in slices:
        if s.name.startswith("wait for rank "):
            waits[s.rank, int(s.name.split()[-1])] += s.ns
    for r in means:
        if r == slow:
            continue
        if means[slow] < 1.5 * means[r]:
            fail("rank %d computes for %.0f us, rank %d for %.0f us" % (slow, means[slow] / 1e3, r, means[r] / 1e3))
        if waits[r, slow] <= waits[slow, r]:
            fail("rank %d does not wait for rank %d" % (r, slow))
    ends = collections.defaultdict(list)
    for s in slices:
        for f in s.flows:
            ends[f].append(s)
    arrows = sum(1 for e in ends.values() if any(s.name == "wait for rank %d" % slow for s in e) and any(s.rank == slow for s in e))
    if arrows == 0:
        fail("no wait has an arrow to rank %d" % slow)
    print("compute of ranks %s us; %d arrows to rank %d" % ({r: round(m / 1e3) for r, m in means.items()}, arrows, slow))


def times(slices, name):
    """Returns the times of all slices with this name, by rank."""
    found = collections.defaultdict(list)
    for s in slices:
        if s.name == name:
            found[s.rank].append(s.ns)
    return found


def waited_for(waits, rank):
    return sum(ns for (_, whom), ns in waits.items() if whom == rank)


def check_late_waits(slices, late, delay):
    """The others wait for the late rank, for about the delay, and every arrow of such a wait leads to it."""
    waits = collections.Counter()
    ends = collections.defaultdict(list)
    for s in slices:
        if s.name.startswith("wait for rank "):
            waits[s.rank, int(s.name.split()[-1])] += s.ns
        for f in s.flows:
            ends[f].append(s)
    for r in {s.rank for s in slices} - {late}:
        if waits[r, late] < 0.5 * delay:
            fail("rank %d waits %d us for rank %d, which was delayed by %d us" % (r, waits[r, late] / 1e3, late, delay / 1e3))
        if waited_for(waits, r) >= waited_for(waits, late):
            fail("rank %d is waited for as long as rank %d: %s" % (r, late, dict(waits)))
    arrows = [e for e in ends.values() if any(s.name == "wait for rank %d" % late for s in e)]
    for e in arrows:
        if sum(s.rank == late for s in e) != 1:
            fail("a wait for rank %d has an arrow to %s" % (late, [(s.rank, s.name) for s in e]))
    if not arrows:
        fail("no wait has an arrow to rank %d" % late)
    return waits, len(arrows)


def check_late(slices, late):
    """A delay in the backward pass of one rank is that rank's alone: the passes of the others, in which sums run, too,
    are not longer than its own pass without the delay. Ratios of medians, because the machine may be busy."""
    delays, backward = times(slices, "injected delay"), times(slices, "backward")
    if set(delays) != {late} or len(delays[late]) != len(backward[late]):
        fail("delays: %s, passes of rank %d: %d" % ({r: len(v) for r, v in delays.items()}, late, len(backward[late])))
    delay = statistics.median(delays[late])
    own = statistics.median(b - d for b, d in zip(backward[late], delays[late]))
    if min(b - d for b, d in zip(backward[late], delays[late])) <= 0:
        fail("a delay is not a part of its pass")
    for r in set(backward) - {late}:
        other = statistics.median(backward[r])
        if other > own + 0.5 * delay:
            fail("backward of rank %d takes %d us, that of rank %d %d us without its delay of %d us"
                 % (r, other / 1e3, late, own / 1e3, delay / 1e3))
    waits, arrows = check_late_waits(slices, late, sum(delays[late]))
    print("delay %d us; backward us: rank %d %d without it, others %s; %d arrows; waits us: %s" % (
        delay / 1e3, late, own / 1e3,
        {r: round(statistics.median(v) / 1e3) for r, v in sorted(backward.items()) if r != late}, arrows,
        {k: round(v / 1e3) for k, v in sorted(waits.items())}))


def check_clocks(folder, slices):
    with open(folder + "/run.json") as file:
        errors = {c["rank"]: 1e3 * c["error_us"] for c in json.load(file)["run"]["clocks"]}
    sent = {f: s for s in slices if s.name.startswith("put to") for f in s.flows}
    early, n = 0, 0
    for s in slices:
        for f in s.flows if s.name.startswith("note of") else []:
            early = max(early, sent[f].at - s.at - errors[s.rank] - errors[sent[f].rank])
            n += 1
    if early > 0 or n == 0:
        fail("of %d messages one comes %.1f us too early, beside errors of %s ns" % (n, early / 1e3, errors))
    print("%d messages come after they were sent; errors of the clocks, ns: %s" % (n, errors))


def main():
    folder = sys.argv[1]
    want = recorded(folder)
    slices, n = read(folder + "/trace.pftrace")
    got = collections.Counter((s.rank, s.name) for s in slices)
    if got != want or not want:
        fail("recorded but not in the trace: %s; in the trace but not recorded: %s" % (want - got, got - want))
    flows, puts = check_flows(slices, "async" not in sys.argv)
    per = os.path.getsize(folder + "/trace.pftrace") / n
    if per > 20:
        fail("%.1f bytes an event" % per)
    for arg in sys.argv[2:]:
        if arg.startswith("slow="):
            check_slow(slices, int(arg[5:]))
        if arg.startswith("late="):
            check_late(slices, int(arg[5:]))
    if "clocks" in sys.argv:
        check_clocks(folder, slices)
    print("%d events, %d slices and moments, %d arrows of which %d are puts, %.1f bytes an event" % (n, len(slices), flows, puts, per))


main()
