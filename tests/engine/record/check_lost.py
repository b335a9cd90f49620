# SPDX-License-Identifier: MIT
#
# Checks the run folder of a job of 3 ranks that has lost one: check_lost.py RUN OUT LOST LEAD [sent]. OUT is what the job
# printed, LEAD the rank that leads at the end. sent: rank 2 has sent its records.
import glob
import json
import sys

from read_events import events
from reader import read_run

folder, out, lost, lead = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sent = len(sys.argv) > 5
end, every = (600, 100) if sent else (60, 10)
run = read_run(folder)
lines = [line for line in open(out).read().splitlines() if line]
assert len(lines) == 1, f"the job printed {len(lines)} lines"
final = json.loads(lines[0])
kept = final["faults"][0]["step"]
assert end // 2 - 2 <= kept < end // 2, f"the rank was lost after step {kept}"
assert {k: v for k, v in run["json"].items() if k != "run"} == final, "run.json has other results than the final object"
assert run["json"]["run"]["state"] == "ended" and run["json"]["run"]["lead"] == lead, run["json"]["run"]
assert len(run["json"]["run"]["ranks"]) == 3, "run.json does not have all ranks of the start"

# the steps of those that went on are complete, and those of the lost rank end before
for rank, rows in run["steps"].items():
    steps = sorted({row["step"] for row in rows})
    if sent and rank == 2: # what was on its way to the lost rank is gone
        assert steps[-1] == end and set(steps) >= set(range(kept + 1, end + 1)), f"rank {rank} lacks steps"
        continue
    assert steps == list(range(1, len(steps) + 1)), f"rank {rank} lacks steps"
    assert len(steps) <= kept if rank == lost else len(steps) == end, f"rank {rank} has {len(steps)} steps"
    assert all(row["flags"] & 4 for i, row in enumerate(rows) if row["step"] in [r["step"] for r in rows[:i]])
assert set(run["steps"]) >= {0, 1, 2} - {lost}

# one row and one event for each evaluation, and one event for the loss
wanted = list(range(every, end + 1, every))
assert sorted({row["step"] for row in run["evals"]}) == wanted, [row["step"] for row in run["evals"]]
assert sorted({e["step"] for e in run["events"] if e["what"] == "evaluated"}) == wanted
gone = [e for e in run["events"] if e["what"] == "rank lost"]
fault = final["faults"][0]
assert len(gone) == 1 and gone[0]["rank"] == lost and gone[0]["step"] == kept, gone
assert {k: gone[0][k] for k in fault if k != "at_s"} == {k: fault[k] for k in fault if k != "at_s"}, (gone, fault)
assert abs(gone[0]["at_s"] - fault["at_s"]) < 0.5
# the first event of rank 0 may have been lost with it
assert run["events"][-1]["what"] == "ended" and run["events"][-1]["rank"] == lead, run["events"]

# TensorBoard: the files of the job have all evaluations, and each survivor has points after the loss
shown = set()
for path in glob.glob(folder + "/events.out.tfevents.*"):
    shown |= {step for _, step, tag, _ in events(path) if tag == "accuracy"}
assert shown == set(wanted), f"TensorBoard shows the accuracy of steps {sorted(shown)}"
for rank in {0, 1, 2} - {lost}:
    points = [step for path in glob.glob(f"{folder}/rank{rank}/events.out.tfevents.*") for _, step, _, _ in events(path)]
    assert max(points) > kept, f"TensorBoard does not show rank {rank} after the loss"

# the trace of each survivor has the gap and its phases, which fill it
try:
    trace = json.load(open(folder + "/trace.json"))
except FileNotFoundError:
    sys.exit(0)
parts = ["agree", "fence", "rebuild", "compute step again"]
for rank in {0, 1, 2} - {lost}:
    spans = {}
    opened = {}
    for e in trace["traceEvents"]:
        if e["pid"] != 1000 * (rank + 1) or e["ph"] not in "BE":
            continue
        if e["ph"] == "B":
            opened.setdefault(e["tid"], []).append((e["name"], e["ts"]))
        else:
            name, begin = opened[e["tid"]].pop()
            spans.setdefault(name, []).append((begin, e["ts"]))
    assert len(spans.get("recovery", [])) == 1, f"rank {rank}: the trace has no gap: {sorted(spans)}"
    begin, until = spans["recovery"][0]
    assert f"detect loss of rank {lost}" in spans, sorted(spans)
    at = begin
    for name in [f"detect loss of rank {lost}"] + parts:
        assert len(spans.get(name, [])) == 1, f"rank {rank}: {name}: {spans.get(name)}"
        assert abs(spans[name][0][0] - at) < 1 and spans[name][0][1] <= until + 1, (name, spans[name], begin, until)
        at = spans[name][0][1]
    assert abs(at - until) < 1 + 0.01 * (until - begin), (rank, at, until)
