# SPDX-License-Identifier: MIT
#
# Reads DIR/trace.pftrace with the definitions of the Python package perfetto, and compares it event
# by event with the rows that the ranks have recorded.
#
#   trace_check.py DIR [slow=RANK] [async]
#
# async: servers are threads of ranks, with numbers of their own, so an arrow may stay within a rank.
import collections
import os
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
    print("%d events, %d slices and moments, %d arrows of which %d are puts, %.1f bytes an event" % (n, len(slices), flows, puts, per))


main()
