#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""sparse_sklearn.py FILE [EPOCHS]: sparse logistic regression by scikit-learn's SGDClassifier. build/bench/sparse_lr
writes FILE. It uses one thread and one row at a time, because scikit-learn has no other way. Prints a JSON line:
rows_per_s is the speed of the median epoch. without_passes subtracts the time of an epoch of ten rows, because every
epoch passes over all weights."""

import json
import os
import statistics
import sys
import time
import warnings

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier

FEATURES = 33762578


def read(path):
    with open(path, "rb") as f:
        rows, nnz = (int(n) for n in np.fromfile(f, "<u8", 2))
        start = np.fromfile(f, "<u8", rows + 1).astype(np.int32)
        index = np.fromfile(f, "<u4", nnz).astype(np.int32)
        value = np.fromfile(f, "<f4", nnz).astype(np.float64)
        label = np.fromfile(f, "u1", rows).astype(np.int64)
    return csr_matrix((value, index, start), shape=(rows, FEATURES)), label


def epoch_s(model, x, y):
    start = time.thread_time()
    model.partial_fit(x, y)
    return time.thread_time() - start


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: sparse_sklearn.py FILE [EPOCHS]")
    x, y = read(sys.argv[1])
    epochs = int(sys.argv[2]) if len(sys.argv) == 3 else 3
    few = x[:10], np.arange(10) % 2
    model = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=0.1, shuffle=True)
    warnings.simplefilter("ignore")
    model.partial_fit(*few, classes=[0, 1])  # creates the weights
    passes = statistics.median(epoch_s(model, *few) for _ in range(3))
    whole = statistics.median(epoch_s(model, x, y) for _ in range(epochs))
    rows = x.shape[0]
    print(json.dumps({"bench": "sparse-lr", "peer": "sklearn", "rows": rows, "rows_per_s": round(rows / whole),
                      "without_passes": round(rows / (whole - passes))}))


if __name__ == "__main__":
    main()
