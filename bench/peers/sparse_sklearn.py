#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Sparse logistic regression by scikit-learn's SGDClassifier: sparse_sklearn.py ROWS [EPOCHS]. Rows of 39
entries from 33,762,578 features, as bench/peers/sparse_lr.c draws them; one thread. A JSON line."""

import json
import os
import sys
import time
import warnings

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier

FIELDS, FEATURES = 39, 33762578


def draw(rows):
    rng = np.random.default_rng(1)
    width = FEATURES // FIELDS
    rank = np.power(float(width), rng.random((rows, FIELDS)) ** 4).astype(np.int64) - 1
    index = (np.arange(FIELDS) * width + rank * 611953 % width).astype(np.int32)
    value = rng.random((rows, FIELDS))
    start = np.arange(0, rows * FIELDS + 1, FIELDS, dtype=np.int32)
    x = csr_matrix((value.ravel(), index.ravel(), start), shape=(rows, FEATURES))
    return x, (rng.random(rows) < 0.25).astype(np.int64)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: sparse_sklearn.py ROWS [EPOCHS]")
    rows, epochs = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 3
    x, y = draw(rows)
    model = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=0.1, shuffle=True)
    warnings.simplefilter("ignore")
    model.partial_fit(x[:10], y[:10], classes=[0, 1])  # makes the weights
    best = 0.0
    for _ in range(epochs):
        start = time.thread_time()
        model.partial_fit(x, y)
        best = max(best, rows / (time.thread_time() - start))
    print(json.dumps({"bench": "sparse-lr", "peer": "sklearn", "rows": rows, "rows_per_s": round(best)}))


if __name__ == "__main__":
    main()
