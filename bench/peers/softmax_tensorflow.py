#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""softmax_tensorflow.py async|sync MNIST_DIR BATCH STEPS: softmax regression, 784 x 10, by TensorFlow, with two workers
on this host. async: ParameterServerStrategy with one server; a step is one worker's batch. sync:
MultiWorkerMirroredStrategy with ring allreduce over gRPC; a step is a batch of each worker. Prints one JSON line.

As TensorFlow's guides advise: one tf.function makes STEPS_PER_CALL steps, so Python is not in the loop; the batches are
made once, cached in memory, shuffled as batches and prefetched; threads: the fastest of four settings."""

import json
import os
import socket
import subprocess
import sys
import time

STEPS_PER_CALL = 100
RATE = 0.1
DEADLINE_S = 300

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # the coordinator may start before the servers


def load_tensorflow():
    import tensorflow as tf
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)
    return tf


def dataset(tf, x, y, batch, seed):
    whole = len(x) // batch * batch
    data = tf.data.Dataset.from_tensor_slices((x[:whole].reshape(-1, batch, 784), y[:whole].reshape(-1, batch)))
    return data.cache().shuffle(whole // batch, seed=seed).repeat().prefetch(tf.data.AUTOTUNE)


def gradients(tf, w, b, x, y):
    """The mean gradient of a batch. Written out, which is faster than a tape."""
    z = tf.nn.softmax(tf.matmul(x, w) + b) - tf.one_hot(y, 10)
    z = z * (RATE / tf.cast(tf.shape(x)[0], tf.float32))
    return tf.matmul(x, z, transpose_a=True), tf.reduce_sum(z, 0)


def accuracy(tf, w, b, x, y):
    return float(tf.reduce_mean(tf.cast(tf.argmax(tf.matmul(x[:10000], w) + b, 1) == y[:10000], tf.float32)))


def report(mode, batch, steps, took, right):
    print(json.dumps({"peer": "tensorflow", "mode": mode, "batch": batch, "steps": steps,
                      "steps_per_s": steps / took, "accuracy": right}), flush=True)


def cluster(tf, kind, index):
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.task_type == kind and resolver.task_id == index
    return resolver


def serve(kind, index):
    tf = load_tensorflow()
    resolver = cluster(tf, kind, index)
    tf.distribute.Server(resolver.cluster_spec(), job_name=kind, task_index=index, protocol="grpc", start=True).join()


def coordinate(x, y, batch, steps):
    tf = load_tensorflow()
    strategy = tf.distribute.ParameterServerStrategy(cluster(tf, "chief", 0))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        w, b = tf.Variable(tf.zeros([784, 10])), tf.Variable(tf.zeros([10]))
    batches = iter(coordinator.create_per_worker_dataset(lambda: dataset(tf, x, y, batch, None)))

    @tf.function
    def some_steps(iterator):
        for _ in tf.range(STEPS_PER_CALL):
            dw, db = gradients(tf, w, b, *next(iterator))
            w.assign_sub(dw, read_value=False)
            b.assign_sub(db, read_value=False)

    def run(calls):
        for _ in range(calls):
            coordinator.schedule(some_steps, args=(batches,))
        coordinator.join()

    run(4)
    calls = max(2, steps // STEPS_PER_CALL)
    begin = time.perf_counter()
    run(calls)
    report("async", batch, calls * STEPS_PER_CALL, time.perf_counter() - begin, accuracy(tf, w.read_value(), b.read_value(), x, y))


def mirror(index, x, y, batch, steps):
    tf = load_tensorflow()
    how = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster(tf, "worker", index), communication_options=how)
    with strategy.scope():
        w, b = tf.Variable(tf.zeros([784, 10])), tf.Variable(tf.zeros([10]))
    batches = iter(strategy.distribute_datasets_from_function(lambda _: dataset(tf, x[index::2], y[index::2], batch, index)))

    def one_step(data):
        context = tf.distribute.get_replica_context()
        dw, db = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients(tf, w, b, *data))
        w.assign_sub(dw)
        b.assign_sub(db)

    @tf.function
    def some_steps(iterator):
        for _ in tf.range(STEPS_PER_CALL):
            strategy.run(one_step, args=(next(iterator),))

    some_steps(batches)
    calls = max(2, steps // STEPS_PER_CALL)
    begin = time.perf_counter()
    for _ in range(calls):
        some_steps(batches)
    w.numpy()
    if index == 0:
        report("sync", batch, calls * STEPS_PER_CALL, time.perf_counter() - begin, accuracy(tf, w, b, x, y))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def be_task(kind, index, mode, folder, batch, steps):
    if kind == "ps" or (mode == "async" and kind == "worker"):
        serve(kind, index)
    from softmax_numpy import load
    x, y = load(folder)
    if mode == "async":
        coordinate(x, y, batch, steps)
    else:
        mirror(index, x, y, batch, steps)


def start(args, kind, index, jobs):
    config = {"cluster": jobs, "task": {"type": kind, "index": index}}
    out = None if (kind, index) in (("chief", 0), ("worker", 0)) else subprocess.DEVNULL
    return subprocess.Popen([sys.executable, os.path.abspath(__file__)] + args,
                            env=dict(os.environ, TF_CONFIG=json.dumps(config)), stdout=out)


def main():
    if len(sys.argv) != 5 or sys.argv[1] not in ("async", "sync"):
        sys.exit("usage: softmax_tensorflow.py async|sync MNIST_DIR BATCH STEPS")
    mode, folder, batch, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if "TF_CONFIG" in os.environ:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        return be_task(task["type"], task["index"], mode, folder, batch, steps)
    tasks = [("worker", 0), ("worker", 1)]
    if mode == "async":
        tasks = [("ps", 0)] + tasks + [("chief", 0)]
    jobs = {}
    for kind, _ in tasks:
        jobs.setdefault(kind, []).append(f"127.0.0.1:{free_port()}")
    children = [start(sys.argv[1:], kind, index, jobs) for kind, index in tasks]
    last = children[-1] if mode == "async" else children[0]
    try:
        code = last.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        code = f"softmax_tensorflow.py: {mode} did not end within {DEADLINE_S} s"
    for child in children:  # servers do not end by themselves
        child.kill()
        child.wait()
    return sys.exit(code)


if __name__ == "__main__":
    main()
