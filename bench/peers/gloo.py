#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""gloo.py NAME RANKS SIZES SECONDS: the allreduce of Gloo, through PyTorch. Each rank is a process, pinned to
a cpu if the name is gloo. Sums are checked and timed as in peer.c."""

import os
import statistics
import sys
import time

import ranks

BATCH_US = 200.0
SAMPLES_MAX = 512
SAMPLES_MIN = 5


def parse_size(text):
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text if unit == 1 else text[:-1]) * unit


def count_wrong(dist, torch, data, rank, world):
    """Sums small integers: their sum is exact in any order."""
    i = torch.arange(data.numel(), dtype=torch.int64)
    i = i ^ (i >> 11)
    data.copy_((i + rank * 13) & 31)
    dist.all_reduce(data)
    want = sum(((i + r * 13) & 31 for r in range(world)), torch.zeros_like(i))
    wrong = (data != want.to(torch.float32)).sum()
    dist.all_reduce(wrong)
    data.zero_()  # sums of sums would grow to infinity
    return int(wrong)


def batch(dist, data, n):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(n):
        dist.all_reduce(data)
    return (time.perf_counter() - start) * 1e6 / n


def plan(dist, torch, data, seconds):
    """How many in a batch, and how many batches: rank 0 says."""
    for _ in range(4):  # the first ones warm up
        us = batch(dist, data, 1)
    n = int(BATCH_US / us + 1)
    samples = int(min(SAMPLES_MAX, max(SAMPLES_MIN, seconds * 1e6 / (us * n))))
    both = torch.tensor([n, samples])
    dist.broadcast(both, 0)
    return both.tolist()


def one_size(dist, torch, name, rank, world, nbytes, seconds):
    data = torch.zeros(nbytes // 4, dtype=torch.float32)
    wrong = count_wrong(dist, torch, data, rank, world)
    n, samples = plan(dist, torch, data, seconds)
    us = torch.tensor([batch(dist, data, n) for _ in range(samples)], dtype=torch.float64)
    dist.all_reduce(us, op=dist.ReduceOp.MAX)  # the slowest rank
    wrong += count_wrong(dist, torch, data, rank, world)
    if rank == 0:
        print('{"bench": "allreduce", "peer": "%s", "transport": "tcp", "ranks": %d, "bytes": %d, '
              '"time_us": %.3f, "wrong": %d}' % (name, world, nbytes, statistics.median(us.tolist()), wrong),
              flush=True)
    return wrong


def be_rank(name, rank, world, sizes, seconds, meet):
    cpus = sorted(os.sched_getaffinity(0))
    if name == "gloo" and len(cpus) >= world:  # Gloo's event thread runs on the same cpu
        os.sched_setaffinity(0, {cpus[rank]})
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meet, rank=rank, world_size=world)
    wrong = sum(one_size(dist, torch, name, rank, world, size, seconds) for size in sizes)
    dist.destroy_process_group()
    return 1 if wrong else 0


def main():
    if len(sys.argv) != 5:
        sys.exit("usage: gloo.py NAME RANKS SIZES SECONDS")
    name, world, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[4])
    sizes = [parse_size(text) for text in sys.argv[3].split(",")]
    ranks.run(world, lambda rank, meet: be_rank(name, rank, world, sizes, seconds, meet))


if __name__ == "__main__":
    main()
