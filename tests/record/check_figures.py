# SPDX-License-Identifier: MIT
#
# Checks that a run folder has each figure and curve of the table in docs/run.md ("Figures of a report"), filled:
#
#   check_figures.py RUN RANKS RATE [rdma]
#
# RATE: MB/s that a link carries at most, or inf. rdma: the ranks used the soft-RoCE device rxe0 on eth0. Each rank has an interface eth0 of its own; the ranks may share a machine, which
# its lowest rank samples.
import glob
import json
import math
import struct
import sys

from read_events import events

TYPES = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}
run, ranks = sys.argv[1], int(sys.argv[2])
rate, rdma = float(sys.argv[3]), "rdma" in sys.argv[4:]
final = json.load(open(f"{run}/run.json"))
is_async = final["mode"] == "async"
wrong = []


def check(holds, *words):
    if not holds:
        wrong.append(" ".join(str(word) for word in words))


def rows(name):
    """Returns the columns of a series as lists."""
    head, _, body = open(f"{run}/{name}", "rb").read().partition(b"\nend\n")
    cols = [line.split()[1:3] for line in head.decode().split("\n") if line.startswith("col ")]
    row = struct.Struct("<" + "".join(TYPES[kind] for _, kind in cols))
    whole = list(row.iter_unpack(body[: len(body) // row.size * row.size]))
    check(len(whole) > 1, name, "has", len(whole), "rows")
    return {col: [r[i] for r in whole] for i, (col, _) in enumerate(cols)}


def grows(name, series, col, least=1):
    check(len(series[col]) > 1 and series[col][-1] - series[col][0] >= least, name, col, series[col][:1], series[col][-1:])


def check_rank(r):
    steps, usage = rows(f"rank{r}/steps.bin"), rows(f"rank{r}/usage.bin")
    check(all(map(math.isfinite, steps["loss"])) and len(set(steps["loss"])) > 1, "loss of rank", r)
    check(sum(steps["loss"][-20:]) < sum(steps["loss"][:20]), "the loss of rank", r, "does not fall")
    grows("steps", steps, "end_ns")
    for phase in ("data_s", "forward_s", "backward_s"):
        check(sum(steps[phase]) > 0, phase, "of rank", r)
    grows("usage", usage, "cpu_ns")
    check(min(usage["rss_bytes"]) > 1 << 20, "memory of rank", r)
    check({"disk_read_bytes", "disk_written_bytes"} <= set(usage), "disk of rank", r)
    threads = rows(f"rank{r}/threads.bin")
    check(max(threads["cpu_ns"]) > 0, "threads of rank", r)
    if ranks == 1:
        return
    link = rows(f"rank{r}/net-eth0.bin")
    for col in ("sent_bytes", "received_bytes"):
        if not (is_async and r == 0):  # its server is in the same process
            grows(f"usage of rank {r}", usage, col, 10000)
        grows(f"link of rank {r}", link, col, 10000)
        grows(f"link of rank {r}", link, col.replace("bytes", "packets"))
        seconds = (link["at_ns"][-1] - link["at_ns"][0]) / 1e9
        mean = (link[col][-1] - link[col][0]) / 1e6 / seconds
        check(mean <= 1.1 * rate, "the link of rank", r, "carries", mean, "MB/s, it is shaped to", rate)


def check_rdma(r):
    """Soft-RoCE counts packets only, so the bytes are those of the interface. It counts 58 bytes more a packet: Ethernet,
    IP, UDP, the base header and the checksum. Records and heartbeats go over TCP and are few."""
    usage, link, port = rows(f"rank{r}/usage.bin"), rows(f"rank{r}/net-eth0.bin"), rows(f"rank{r}/rdma-rxe0-1.bin")
    grown = lambda series, col: series[col][-1] - series[col][0]
    for way in ("sent", "received"):
        moved, frames = grown(usage, way + "_bytes"), grown(link, way + "_bytes")
        packets = grown(link, way + "_packets")
        seen = frames - 58 * packets
        check(abs(seen - moved) < 0.03 * moved, f"rank {r} has {way} {moved} bytes, its interface {seen} without headers")
        check(0.9 * packets < grown(port, way + "_packets") <= packets, f"rank {r}: packets {way} by the port",
              grown(port, way + "_packets"), "and by the interface", packets)
        print(f"rank {r} {way}: transport {moved}, interface {frames} in {packets} packets,",
              f"{100 * (seen - moved) / moved:+.2f} % without headers; port {grown(port, way + '_packets')} packets")


def check_host(name):
    host = rows(name)
    grows("host", host, "busy_ns")
    check(0 < min(host["memory_used_bytes"]) < min(host["memory_bytes"]), "memory of the host")
    check({"disk_read_bytes", "disk_written_bytes"} <= set(host) and min(host["cpus"]) > 0, "columns of the host")


def check_final():
    for key in ("accuracy", "loss", "train_s", "wall_s", "steps_per_s", "samples_per_s"):
        check(isinstance(final[key], (int, float)) and final[key] > 0, key, final[key])
    check(final["bottleneck"]["resource"] and final["bottleneck"]["why"], "bottleneck")
    workers = [r for r in final["per_rank"] if r["role"] == "worker"]
    check(len(workers) == ranks and len(final["run"]["ranks"]) == ranks, "ranks", len(workers))
    for r in final["per_rank"]:
        for key in ("cpu_pct", "cpu_pct_peak", "rss_peak_mb"):
            check(r[key] > 0, key, "of rank", r["rank"])
        for key in ("send_mb_s", "send_mb_s_peak", "recv_mb_s", "recv_mb_s_peak"):
            check(r[key] > 0 if ranks > 1 else r[key] == 0, key, "of rank", r["rank"], r[key])
        for key in ("disk_read_mb_s", "disk_write_mb_s"):
            check(r[key] >= 0, key, "of rank", r["rank"])
        check(sum(r["breakdown"].values()) > 0, "breakdown of rank", r["rank"])


def check_board():
    """The curves of TensorBoard: of the job, and of each rank."""
    tags = {}
    for path in glob.glob(f"{run}/**/events.out.tfevents.*", recursive=True):
        where = path[len(run) + 1:].rpartition("/")[0]
        for _, _, tag, value in events(path):
            tags.setdefault((where, tag), []).append(value)
    for tag in ("loss", "accuracy", "test_loss", "global_step/sec", "samples_per_sec", "learning_rate"):
        check(len(tags.get(("", tag), [])) > 1, "TensorBoard has no curve of", tag)
    for r in range(ranks):
        for tag in ("cpu_percent", "rss_mb", "send_mb_s", "recv_mb_s", "disk_read_mb_s", "disk_write_mb_s"):
            check((f"rank{r}", "resources/" + tag) in tags, "TensorBoard has no", tag, "of rank", r)


evals = rows("evals.bin")
check(len(evals["step"]) > 1 and max(evals["accuracy"]) > 0.3 and min(evals["loss"]) > 0, "evals.bin", evals["accuracy"])
for rank in range(ranks):
    check_rank(rank)
    if rdma:
        check_rdma(rank)
hosts = glob.glob(f"{run}/rank*/host.bin")
check(hosts, "there is no host.bin")
for name in hosts:
    check_host(name[len(run) + 1:])
check_final()
check_board()
for line in wrong:
    print(f"{run}: {line}")
sys.exit(bool(wrong))
