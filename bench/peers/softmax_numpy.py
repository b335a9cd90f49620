#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""softmax_numpy.py MNIST_DIR BATCH SECONDS [PEER]: softmax regression, 784 x 10, by numpy and by PyTorch.
Plain minibatch SGD on one thread; samples are shuffled again in each epoch. Prints a JSON line per peer.
If the folder has no MNIST files, the images are random, and four of five pixels are 0."""

import gzip
import json
import os
import resource
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np

RATE = 0.1


def load(folder):
    try:
        with gzip.open(folder + "/train-images-idx3-ubyte.gz") as f:
            x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 784)
        with gzip.open(folder + "/train-labels-idx1-ubyte.gz") as f:
            y = np.frombuffer(f.read(), np.uint8, offset=8)
    except FileNotFoundError:
        rng = np.random.default_rng(1)
        x = rng.integers(0, 256, (60000, 784), np.uint8) * (rng.random((60000, 784)) < 0.19)
        y = rng.integers(0, 10, 60000, np.uint8)
    return (x / np.float32(255)).astype(np.float32), y.astype(np.int64)


def batches(n, batch, seconds, cpu_s):
    """Lists of samples, epoch by epoch, until the time is up."""
    rng = np.random.default_rng(2)
    while True:
        order = rng.permutation(n)
        for at in range(0, n - batch + 1, batch):
            yield order[at:at + batch]
            if time.thread_time() - cpu_s > seconds:
                return


def by_numpy(x, y, batch, seconds):
    w, b = np.zeros((784, 10), np.float32), np.zeros(10, np.float32)
    rows, rate, steps = np.arange(batch), np.float32(RATE / batch), 0
    start = time.thread_time()
    for take in batches(len(x), batch, seconds, start):
        xb = x[take]
        z = xb @ w
        z += b
        z -= z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        z[rows, y[take]] -= 1
        z *= rate
        w -= xb.T @ z
        b -= z.sum(axis=0)
        steps += 1
    return steps / (time.thread_time() - start), float(((x @ w + b).argmax(axis=1) == y).mean())


def by_torch(x, y, batch, seconds):
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.Linear(784, 10)
    update = torch.optim.SGD(layer.parameters(), lr=RATE)
    tx, ty, steps = torch.from_numpy(x), torch.from_numpy(y), 0
    start = time.thread_time()
    for take in batches(len(x), batch, seconds, start):
        take = torch.from_numpy(take)
        update.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(layer(tx[take]), ty[take]).backward()
        update.step()
        steps += 1
    took = time.thread_time() - start
    with torch.no_grad():
        return steps / took, float((layer(tx).argmax(dim=1) == ty).float().mean())


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: softmax_numpy.py MNIST_DIR BATCH SECONDS [numpy|torch]")
    x, y = load(sys.argv[1])
    batch, seconds = int(sys.argv[2]), float(sys.argv[3])
    for name, run in (("numpy", by_numpy), ("torch", by_torch)):
        if len(sys.argv) == 5 and sys.argv[4] != name:
            continue
        steps_per_s, accuracy = run(x, y, batch, seconds)
        print(json.dumps({"bench": "softmax", "peer": name, "batch": batch,
                          "steps_per_s": round(steps_per_s, 1), "accuracy": round(accuracy, 4),
                          "rss_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}),
              flush=True)


if __name__ == "__main__":
    main()
