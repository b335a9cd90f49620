#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""ddp_torch.py MODEL GLOBAL_BATCH RANKS SECONDS [RANK HOST:PORT]: training by PyTorch's
DistributedDataParallel over Gloo. Starts all ranks on this host, or only RANK. Rank 0 prints one JSON line.
Run it under chrt -b 0, because Gloo's event thread spins. Each rank is pinned to a cpu, except for the
sparse model, which is faster without pinning."""

import json
import os
import platform
import resource
import sys
import time

import ranks

FEATURES = 33762578
NONZEROS = 39


def dense(model, batch):
    import torch
    from torch import nn

    from nets import MODELS
    net, shape, classes = MODELS[model]()
    momentum = 0 if model == "softmax" else 0.9
    update = torch.optim.SGD(net.parameters(), lr=0.001, momentum=momentum)
    data = [(torch.rand(batch, *shape), torch.randint(classes, (batch,))) for _ in range(4)]
    return net, update, data, nn.functional.cross_entropy


def sparse(_, batch):
    import torch
    from torch import nn

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.EmbeddingBag(FEATURES, 1, mode="sum", sparse=True)

        def forward(self, x):
            return self.weights(x[0], per_sample_weights=x[1]).squeeze(1)

    net = Rows()
    update = torch.optim.SGD(net.parameters(), lr=0.001)
    data = []
    for _ in range(16):  # skewed, as categories are: a batch names each frequent feature often
        where = (torch.rand(batch, NONZEROS) ** 6 * FEATURES).long()
        data.append(((where, torch.rand(batch, NONZEROS)), torch.randint(2, (batch,)).float()))
    return net, update, data, nn.functional.binary_cross_entropy_with_logits


def be_rank(model, batch, world, seconds, rank, meet):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) >= world and model != "sparse-lr":
        os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    if platform.machine() == "aarch64":
        torch.backends.mkldnn.set_flags(False)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
    make = sparse if model == "sparse-lr" else dense
    net, update, data, loss = make(model, batch // world)
    net = torch.nn.parallel.DistributedDataParallel(net)

    def step(i):
        x, y = data[i % len(data)]
        update.zero_grad(set_to_none=True)
        loss(net(x), y).backward()
        update.step()

    step(0)
    step(1)
    begin = time.perf_counter()
    step(2)
    n = torch.tensor([max(3, int(seconds / (time.perf_counter() - begin)))])
    dist.broadcast(n, 0)
    dist.barrier()
    begin = time.perf_counter()
    for i in range(int(n)):
        step(i)
    took = time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({"peer": "ddp", "model": model, "ranks": world, "global_batch": batch,
                          "steps_per_s": int(n) / took, "samples_per_s": int(n) * batch / took,
                          "rss_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}),
              flush=True)
    dist.destroy_process_group()
    return 0


def main():
    if len(sys.argv) not in (5, 7):
        sys.exit("usage: ddp_torch.py MODEL GLOBAL_BATCH RANKS SECONDS [RANK HOST:PORT]")
    what = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    if len(sys.argv) == 7:
        be_rank(*what, int(sys.argv[5]), "tcp://" + sys.argv[6])
    else:
        ranks.run(what[2], lambda rank, meet: be_rank(*what, rank, "file://" + meet))


if __name__ == "__main__":
    main()
