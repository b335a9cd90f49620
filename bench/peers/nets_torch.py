#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""nets_torch.py MODEL BATCH THREADS SECONDS: LeNet-5 and AlexNet by PyTorch. Runs forward, backward and
SGD with momentum on random images, and prints one JSON line. oneDNN is off on Arm, where that is faster."""

import json
import os
import platform
import resource
import sys
import time

model, batch, threads, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = threads
import torch
from torch import nn

from nets import MODELS

torch.set_num_threads(int(threads))
if platform.machine() == "aarch64":
    torch.backends.mkldnn.set_flags(False)

net, shape, classes = MODELS[model]()
update = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
data = [(torch.rand(batch, *shape), torch.randint(classes, (batch,))) for _ in range(4)]


def step(i):
    x, y = data[i % len(data)]
    update.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(net(x), y).backward()
    update.step()


step(0)
n, start = 0, time.perf_counter()
while time.perf_counter() - start < seconds:
    step(n)
    n += 1
took = time.perf_counter() - start
print(json.dumps({"peer": "pytorch", "model": model, "batch": batch, "threads": int(threads),
                  "samples_per_s": n * batch / took,
                  "rss_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}))
