#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""LeNet-5 and AlexNet by PyTorch: nets_torch.py MODEL BATCH THREADS SECONDS. Forward, backward and
SGD with momentum on random images; one JSON line. oneDNN is off where that is faster, as on Arm."""

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

torch.set_num_threads(int(threads))
if platform.machine() == "aarch64":
    torch.backends.mkldnn.set_flags(False)


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10)), (1, 28, 28), 10


def alexnet():
    return nn.Sequential(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
                         nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
                         nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
                         nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(),
                         nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 1000)), (3, 224, 224), 1000


net, shape, classes = {"lenet": lenet, "alexnet": alexnet}[model]()
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
