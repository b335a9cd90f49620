#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Kills ranks of synchronous jobs at random moments: elastic_kills.py VERBENA JOBS [SEED [MODEL...]]. A job has 2 to 5
# ranks over shared memory or TCP. Some of its ranks, but not all, get SIGKILL after the first step, one after the other
# or while the others still recover. The job must end with the steps that were asked for, equal replicas and an exact
# ledger, name everyone who died before the end, and leave no process behind.
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from elastic_jobs import (MODELS, alive_in, environ_of, forget_environment, model_name, wait_for, wait_until_none,
                          wrong_in_ledger)

LIMIT_S = 150


def ranks_of(supervisor, world):
    """The process id of each rank, once all of them run."""
    ranks = {}
    for pid in alive_in(supervisor):
        environ = environ_of(pid)
        if pid != supervisor and b"VB_RANK" in environ:
            ranks[int(environ[b"VB_RANK"])] = pid
    return ranks if len(ranks) == world else None


def steps_in(ledger):
    try:
        with open(ledger, "rb") as file:
            return file.read().count(b'"step"')
    except OSError:
        return 0


class Job:
    def __init__(self, verbena, number, seed, models, folder):
        r = random.Random("%s.%d" % (seed, number))
        self.model = r.choice(models)
        self.world = r.randint(2, 5)
        self.transport = r.choice(["shm", "tcp"])
        self.steps, options = MODELS[self.model]
        self.ledger = os.path.join(folder, "ledger")
        self.out = os.path.join(folder, "out")
        self.err = os.path.join(folder, "err")
        self.victims = r.sample(range(self.world), r.randint(1, self.world - 1))
        # after the first steps; a second rank often dies while the others recover
        self.pauses = [r.uniform(0, 0.8)]
        for _ in self.victims[1:]:
            self.pauses.append(r.choice([0, r.uniform(0, 0.01), r.uniform(0, 0.1), r.uniform(0, 0.6)]))
        self.after = r.randint(1, self.world * self.steps // 3)
        self.killed = []
        if r.random() < 0.5:
            options = [*options, "--run", os.path.join(folder, "run")]
        if r.random() < 0.3:
            options = [*options, "--checkpoint", os.path.join(folder, "keep"), "--checkpoint-every",
                       str(max(1, self.steps // 20))]
        if r.random() < 0.2:
            options = [*options, "--eval-every", str(max(1, self.steps // 8))]
        self.command = [verbena, "train", model_name(self.model), *options, "--ranks", str(self.world),
                        "--transport", self.transport, "--steps", str(self.steps), "--threads", "1", "--ledger", self.ledger,
                        "--check-replicas", str(max(1, self.steps // 10)), "--test-limit", "50", "--seed", str(number),
                        "--json"]

    def __str__(self):
        return "%s over %s, %d ranks, killed %s" % (self.model, self.transport, self.world, self.killed)

    def kill_some(self, process, until):
        ranks = wait_for(lambda: ranks_of(process.pid, self.world), process, until)
        if ranks is None or not wait_for(lambda: steps_in(self.ledger) >= self.after, process, until):
            return
        for rank, pause in zip(self.victims, self.pauses):
            time.sleep(pause)
            if process.poll() is not None:
                return
            try:
                os.kill(ranks[rank], signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed.append(rank)

    def run(self):
        """Returns what is wrong, or None."""
        until = time.monotonic() + LIMIT_S
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       start_new_session=True)
        try:
            self.kill_some(process, until)
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "it hung"
        return self.judge(process)

    def judge(self, process):
        if process.returncode != 0:
            return "exit %d" % process.returncode
        with open(self.out, encoding="utf-8") as file:
            final = json.loads(file.read().splitlines()[-1])
        if final["steps"] != self.steps:
            return "%d steps, expected %d" % (final["steps"], self.steps)
        lost = {f["rank"] for f in final["faults"] if f["what"] == "rank lost"}
        if lost - set(self.killed):
            return "ranks %s are said to be lost" % sorted(lost - set(self.killed))
        self.lost = len(lost)
        wrong = wrong_in_ledger(self.ledger, self.steps)
        if wrong is not None:
            return wrong
        left = wait_until_none(lambda: alive_in(process.pid), 5)
        return "processes are left: %s" % left if left else None


def main():
    verbena, jobs = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    models = sys.argv[4:] or ["softmax", "sparse-lr", "lenet", "alexnet32"]
    kills = lost = wrong = 0
    forget_environment()
    for number in range(jobs):
        folder = tempfile.mkdtemp(prefix="verbena-kills-")
        job = Job(verbena, number, seed, models, folder)
        why = job.run()
        kills += len(job.killed)
        if sys.stderr.isatty():
            print("\r%d of %d jobs, %d wrong " % (number + 1, jobs, wrong), end="", file=sys.stderr, flush=True)
        if why is None:
            lost += job.lost
            shutil.rmtree(folder)
            continue
        wrong += 1
        print("FAIL: job %d of seed %s (%s): %s; see %s" % (number, seed, job, why, folder), flush=True)
    print("%d jobs, %d kills, %d of them before the end of their job, %d jobs wrong" % (jobs, kills, lost, wrong))
    if lost == 0:
        sys.exit("FAIL: no job has lost a rank")
    sys.exit(wrong > 0)


main()
