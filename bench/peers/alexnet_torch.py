#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""alexnet_torch.py DIR SEED EPOCHS RATE THREADS [INIT]: the small AlexNet by PyTorch, on DIR/train.bin and DIR/test.bin
in the format of CIFAR-10, with the recipe of "verbena train alexnet --input 32". INIT is ours (default), the initial
values of models/model.c, or torch, PyTorch's own. Prints one JSON line."""

import json
import math
import os
import platform
import sys

folder, seed, epochs, rate, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
init = sys.argv[6] if len(sys.argv) > 6 else "ours"
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = threads
import numpy
import torch
from torch import nn

BATCH, MOMENTUM, DECAY, CLIP, MEAN, SCALE = 32, 0.9, 5e-4, 5, 120, 1 / 72

torch.set_num_threads(int(threads))
torch.manual_seed(seed)
if platform.machine() == "aarch64":
    torch.backends.mkldnn.set_flags(False)


def read(name):
    rows = numpy.fromfile(f"{folder}/{name}.bin", numpy.uint8).reshape(-1, 3073)
    pixels = (rows[:, 1:].astype(numpy.float32) - MEAN) * numpy.float32(SCALE)
    return torch.from_numpy(pixels.reshape(-1, 3, 32, 32)), torch.from_numpy(rows[:, 0].astype(numpy.int64))


def make():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(),
        nn.Linear(1024, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))


def fill(net):
    """The initial values of models/model.c: He's, with dropout, and small weights in the last layer."""
    kept = 1
    layers = [m for m in net if isinstance(m, (nn.Conv2d, nn.Linear, nn.Dropout))]
    for m in layers:
        if isinstance(m, nn.Dropout):
            kept *= 1 - m.p
            continue
        inputs = m.weight[0].numel()
        limit = 0.01 * math.sqrt(3 / inputs) if m is layers[-1] else math.sqrt(6 * kept / inputs)
        nn.init.uniform_(m.weight, -limit, limit)
        nn.init.zeros_(m.bias)
        kept = 1


def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        out = net(x)
    net.train()
    return (out.argmax(1) == y).float().mean().item(), nn.functional.cross_entropy(out, y).item()


x, y = read("train")
test_x, test_y = read("test")
net = make()
if init == "ours":
    fill(net)
update = torch.optim.SGD(net.parameters(), lr=rate, momentum=MOMENTUM, nesterov=True, weight_decay=DECAY)
per_epoch = len(x) // BATCH
steps = per_epoch * epochs
warmup = min(per_epoch // 2, steps // 10)
step, first = 0, None
for epoch in range(epochs):
    order = torch.randperm(len(x))
    for k in range(per_epoch):
        which = order[k * BATCH:(k + 1) * BATCH]
        part = (step + 1) / warmup if step < warmup else \
            0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        for group in update.param_groups:
            group["lr"] = rate * part
        update.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(x[which]), y[which])
        first = first if first is not None else loss.item()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        update.step()
        step += 1
accuracy, test_loss = evaluate(net, test_x, test_y)
train_accuracy, train_loss = evaluate(net, x, y)
print(json.dumps({"peer": "pytorch", "init": init, "seed": seed, "first_loss": first, "accuracy": accuracy,
                  "loss": test_loss, "train_accuracy": train_accuracy, "train_loss": train_loss}))
