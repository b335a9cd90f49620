# SPDX-License-Identifier: MIT
#
# Compares the curves of a run folder with what the run recorded: check_board.py RUN. With the package tensorboard,
# TensorBoard's own readers must see the same.
import glob, itertools, json, math, os, random, struct, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from read_events import events, records

run = sys.argv[1]

def rows(path):
    data = open(path, "rb").read()
    head, end = [], data.index(b"\nend\n") + 5
    for line in data[:end].decode().splitlines():
        if line.startswith("col "):
            head.append(line.split()[1:3])
    form = struct.Struct("<" + "".join({"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}[t]
                                       for _, t in head))
    return [dict(zip((name for name, _ in head), form.unpack_from(data, at)))
            for at in range(end, len(data) - form.size + 1, form.size)]

def curves(folder):
    found = {}
    for path in sorted(glob.glob(folder + "/events.out.tfevents.*")):
        for wall, step, tag, value in events(path):
            found.setdefault(tag, []).append((wall, step, value))
    return found

def same(a, b):
    return a == b or math.isnan(a) and math.isnan(b)

def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]

job, steps, evals = curves(run), rows(run + "/rank0/steps.bin"), rows(run + "/evals.bin")
loss = {} # asynchronous training: two gradients may be of the same step
for row in steps:
    loss.setdefault(row["step"], []).append(row["loss"])
seconds = (steps[-1]["end_ns"] - steps[0]["end_ns"]) / 1e9
assert all(any(same(x, value) for x in loss[step]) for _, step, value in job["loss"]), "a loss differs from steps.bin"
assert job["loss"][-1][1] == steps[-1]["step"], "the last step has no loss"
assert len(job["loss"]) >= min(len(steps), 10 * seconds), f"{len(job['loss'])} points of the loss in {seconds} s"
for tag, column in ("accuracy", "accuracy"), ("test_loss", "loss"):
    assert [(step, value) for _, step, value in job[tag]] == [(e["step"], float32(e[column])) for e in evals], tag
final = json.load(open(run + "/run.json"))
assert job["accuracy"][-1][2] == float32(final["accuracy"]), "the final accuracy differs from run.json"
for tag in "global_step/sec", "samples_per_sec", "learning_rate", "gradient_norm":
    assert all(value > 0 for _, _, value in job[tag][:-1]), tag
for tag in "_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info":
    assert len(job[tag]) == 1, tag
assert any(tag.startswith("weights/") for tag in job) and any(tag.startswith("gradients/") for tag in job)
ranks = sorted(glob.glob(run + "/rank*/steps.bin"))
for path in ranks:
    rank = curves(os.path.dirname(path))
    assert "phases_ms/forward" in rank and "phases_ms/wait" in rank, path
    # a point needs two samples between two points of the rank, so a very short job has none
    if len(rows(os.path.dirname(path) + "/usage.bin")) >= 4:
        assert "resources/cpu_percent" in rank and "resources/rss_mb" in rank, path
print(f"{len(job['loss'])} losses of {len(steps)} steps, {len(ranks)} ranks: as recorded")

try:
    import tensorboard
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader, RawEventFileLoader
    from tensorboard.plugins.hparams import metadata
except ImportError:
    print("skipped, because the package tensorboard is missing: TensorBoard's own readers")
    sys.exit(0)
seen = EventAccumulator(run, size_guidance={"scalars": 0, "histograms": 0})
seen.Reload()
for tag in seen.Tags()["scalars"]:
    read = [(e.wall_time, e.step, e.value) for e in seen.Scalars(tag)]
    assert len(read) == len(job[tag]) and all(same(x, y) for a, b in zip(read, job[tag]) for x, y in zip(a, b)), tag
scalars = {tag for tag, values in job.items() if values[0][2] is not None}
assert set(seen.Tags()["scalars"]) == scalars, "TensorBoard has other curves"
for tag in seen.Tags()["histograms"]:
    for event in seen.Histograms(tag):
        h = event.histogram_value
        assert sum(h.bucket) == h.num and h.min <= h.max and h.min <= h.bucket_limit[0], tag
nodes = {node.name: node for node in seen.Graph().node}
shape = [dim.size for dim in nodes["input" if "input" in nodes else "rows"].attr["_output_shapes"].list.shape[0].dim]
assert shape[0] > 0 and len(shape) >= 2 and "loss" in nodes, shape
assert all(name in nodes for node in nodes.values() for name in node.input), "an edge from nowhere"
info = {}
for path in glob.glob(run + "/events.out.tfevents.*"):
    assert sum(1 for _ in EventFileLoader(path).Load()) >= sum(1 for _ in records(path)), path
    for event in EventFileLoader(path).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "hparams":
                info[value.tag] = value.metadata.plugin_data.content
with tempfile.TemporaryDirectory() as folder: # a file that was cut anywhere
    whole = list(records(path))
    data = open(path, "rb").read()
    for size in random.sample(range(len(data)), 100):
        with open(folder + "/events.out.tfevents.cut", "wb") as file:
            file.write(data[:size])
        read, ends = list(records(file.name)), itertools.accumulate(len(body) + 16 for body in whole)
        assert read == whole[:sum(end <= size for end in ends)], f"cut to {size} bytes"
        assert list(RawEventFileLoader(file.name).Load()) == read, f"TensorBoard, cut to {size} bytes"
start = metadata.parse_session_start_info_plugin_data(info[metadata.SESSION_START_INFO_TAG])
end = metadata.parse_session_end_info_plugin_data(info[metadata.SESSION_END_INFO_TAG])
experiment = metadata.parse_experiment_plugin_data(info[metadata.EXPERIMENT_TAG])
assert start.hparams["global_batch"].number_value == final["global_batch"], "hyper-parameters"
assert {p.name for p in experiment.hparam_infos} == set(start.hparams) and end.status == 1
print(f"TensorBoard {tensorboard.version.VERSION} reads the same")
