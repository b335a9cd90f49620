#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Disturbs jobs with random sequences: elastic_sequences.py VERBENA JOBS [SEED [FIRST [MODEL...]]]. A job has 2 to 6
# ranks, trains synchronously or asynchronously, over shared memory or TCP. Its ranks are killed, stopped for shorter and
# for longer than --detect, removed (verbena ctl), started again (--restart), and others join, also several at once.
# At least one rank of the supervisor (in some jobs: one that has joined) is left alone. The job must end with the
# steps that were asked for, say of nobody else that it was lost, and leave no process and no descriptor behind; a
# synchronous one with equal replicas and an exact ledger. FIRST is the number of the first job, so that one can be
# repeated alone.
import heapq
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

from elastic_jobs import (MODELS, environ_of, forget_environment, model_name, processes, stat_of, wait_for,
                          wait_until_none, wrong_in_ledger)

LIMIT_S = 200
SETTLE_S = 8  # after the last event, until survivors must hold what they held before

STEPS = {"softmax": 20000, "sparse-lr": 4000, "lenet": 1000, "alexnet32": 16}
ASYNC_STEPS = {"softmax": 30000, "sparse-lr": 40000, "lenet": 1500, "alexnet32": 30}
ASYNC_OPTIONS = {
    "softmax": ["--data", "synth:3000", "--batch", "50"],
    "sparse-lr": ["--data", "synth:kind=criteo,n=60000,features=100000", "--batch", "50", "--rule", "adagrad"],
}

# What a rank may say that could not join: the job has ended, or a death has disturbed the forming of the group.
NOT_JOINED = re.compile("no job listens at|job has ended|is ending|nearly over|no slot is free|Connection refused|"
                        "could not join|was given up|has gone|closed|reset by peer|as many ranks as it can have|"
                        "does not answer|the only free slot is that of a server")
# What verbena ctl may say that has not removed a rank.
NOT_REMOVED = re.compile("no rank|the last rank|is gone|has ended|nobody|ends|Connection refused|No such file|already|"
                         "the job waits|does not run|not a member|lost")


class Process:
    """A rank of the job. Its number is known when it has joined."""

    def __init__(self, pid, joiner=None):
        self.pid, self.joiner = pid, joiner
        self.number = None
        self.hit = False  # the job may lose it
        self.stopped = False
        self.gone = False

    def look(self, run):
        now = stat_of(self.pid)
        self.gone = now is None or now[0] in "ZX"
        if not self.gone and self.number is None:
            self.number = self.number_in(run)

    def number_in(self, run):
        """The number in the name of the records that the process writes; rank 0 reads those of the others."""
        folder = "/proc/%d/fd/" % self.pid
        try:
            for fd in os.listdir(folder):
                found = re.fullmatch(re.escape(run) + r"/rank(\d+)/steps\.bin", os.readlink(folder + fd))
                if found and os.lstat(folder + fd).st_mode & stat.S_IWUSR:
                    return int(found.group(1))
        except OSError:
            pass
        return None

    def fds(self):
        try:
            return len(os.listdir("/proc/%d/fd" % self.pid))
        except OSError:
            return 0

    def threads(self):
        try:
            return len(os.listdir("/proc/%d/task" % self.pid))
        except OSError:
            return 0


class Job:
    def __init__(self, verbena, number, seed, models, folder):
        r = random.Random("%s.%d" % (seed, number))
        self.verbena, self.folder = verbena, folder
        self.model = r.choice(models)
        self.mode = r.choice(["sync", "sync", "async"])
        self.world = r.randint(2, 6)
        self.transport = r.choice(["shm", "tcp"])
        self.detect = r.choice([0.5, 1])
        self.restart = r.choice([0, 0, 2, 4])
        self.replicas = self.mode == "async" and r.random() < 0.4
        self.min_ranks = self.world - 1 if self.mode == "sync" and self.restart and r.random() < 0.3 else 0
        self.staleness = r.choice([None, 0, 2])
        self.orphans = self.mode == "sync" and not self.min_ranks and r.random() < 0.3
        self.run = os.path.join(folder, "run")
        self.ledger = os.path.join(folder, "ledger")
        self.choose_events(r)
        self.steps = (STEPS if self.mode == "sync" else ASYNC_STEPS)[self.model]
        self.command = self.make_command(r, number)
        self.ranks, self.done, self.ctl, self.why = {}, [], [], None
        self.joiners = []

    def choose_events(self, r):
        kinds = ["kill", "kill", "stop", "stop", "join", "join"]
        if self.mode == "sync" and not self.min_ranks:
            kinds += ["remove"]
        self.start_s = r.uniform(0, 1)
        self.events = []
        at = 0.0
        for _ in range(r.randint(2, 7)):
            at += r.choice([0, r.uniform(0, 0.05), r.uniform(0, 0.6), r.uniform(0.3, 2)])
            length = self.detect * r.choice([r.uniform(0.05, 0.3), r.uniform(0.5, 1.5), r.uniform(1.5, 3)])
            self.events.append((at, r.choice(kinds), r.random(), length, r.choice(["CONT", "CONT", "KILL"])))

    def make_command(self, r, number):
        options = MODELS[self.model][1]
        if self.mode == "async":
            options = [*ASYNC_OPTIONS.get(self.model, options), "--mode", "async"]
            if self.replicas:
                options += ["--replicas", "2"]
            if self.staleness is not None:
                options += ["--staleness", str(self.staleness)]
        else:
            options = [*options, "--ledger", self.ledger, "--check-replicas", str(max(1, self.steps // 10))]
            if self.min_ranks:
                options += ["--min-ranks", str(self.min_ranks), "--wait-ranks", "60"]
        if self.restart:
            options += ["--restart", str(self.restart if not self.min_ranks else 20)]
        if r.random() < 0.3:
            options += ["--checkpoint", os.path.join(self.folder, "keep"), "--checkpoint-every",
                        str(max(1, self.steps // 20))]
        if r.random() < 0.2:
            options += ["--eval-every", str(max(1, self.steps // 8))]
        return [self.verbena, "train", model_name(self.model), *options, "--ranks", str(self.world), "--transport",
                self.transport, "--steps", str(self.steps), "--threads", "1", "--run", self.run, "--test-limit", "50",
                "--seed", str(number), "--detect", str(self.detect), "--secret-file", self.key(), "--json"]

    def key(self):
        path = os.path.join(self.folder, "key")
        if not os.path.exists(path):
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(os.urandom(32))
        return path

    def __str__(self):
        kind = self.mode + (", staleness %s" % self.staleness if self.mode == "async" else "")
        kind += ", replicas" if self.replicas else ""
        kind += ", orphans" if self.orphans else ""
        kind += ", --restart" if self.restart else ""
        kind += ", --min-ranks %d" % self.min_ranks if self.min_ranks else ""
        return "%s %s over %s, %d ranks: %s" % (self.model, kind, self.transport, self.world, " ".join(self.done))

    # ---- what can be seen of the job --------------------------------------------------------------

    def start(self, command, name):
        with open(os.path.join(self.folder, name + ".out"), "wb") as out, open(
                os.path.join(self.folder, name + ".err"), "wb") as err:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                    env={**os.environ, "TMPDIR": self.folder})

    def text(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def left(self):
        mark = self.folder.encode()
        return [pid for pid, _, _, _ in processes() if environ_of(pid).get(b"TMPDIR") == mark]

    def children(self):
        return [pid for pid, _, parent, _ in processes() if parent == self.process.pid]

    def look(self):
        for pid in self.children():
            if pid not in self.ranks and b"VB_RANK" in environ_of(pid):
                self.ranks[pid] = Process(pid)
        for rank in self.ranks.values():
            rank.look(self.run)

    def has_steps(self, number):
        """A rank has recorded a step: rows follow the head of the file."""
        try:
            with open("%s/rank%d/steps.bin" % (self.run, number), "rb") as file:
                return len(file.read(4096).partition(b"\nend\n")[2]) > 0
        except OSError:
            return False

    def has_begun(self):
        """All ranks have recorded a step, and others may join."""
        return all(self.has_steps(i) for i in range(self.world)) and self.doors()

    def told(self, key):
        """What run.json says about the job."""
        try:
            with open(os.path.join(self.run, "run.json"), encoding="utf-8") as file:
                return json.load(file)["run"].get(key)
        except (OSError, ValueError, KeyError):
            return None

    def doors(self):
        if self.mode == "sync":
            return self.told("join")
        found = re.search("--join ([^ ]+)", self.text("job.err"))
        return found.group(1) if found else None

    def untouched(self):
        return sorted((r for r in self.ranks.values() if not r.gone and not r.hit), key=lambda r: r.pid)

    def is_member(self, rank):
        """It has surely met all others. In some jobs one that has joined may be the last."""
        if rank.number is None or (rank.joiner is not None and not self.orphans):
            return False
        return self.has_steps(rank.number)

    def may_lose(self, rank):
        """The job must be able to go on without the rank, by what the documentation says."""
        others = [r for r in self.untouched() if r is not rank and self.is_member(r)]
        if not others:
            return False
        if self.mode == "async" and self.first_pids:
            servers = self.first_pids[:2] if self.replicas else self.first_pids[:1]
            if rank.pid in servers and (not self.replicas or any(self.ranks[p].hit for p in servers)):
                return False
            return any(r.pid not in servers[:1] for r in others) or len(others) > 1
        return True

    # ---- what is done to it ----------------------------------------------------------------------

    def pick(self, choice, fits):
        self.look()
        ranks = [r for r in self.untouched() if not r.stopped and fits(r)]
        return ranks[int(choice * len(ranks))] if ranks else None

    def note(self, what, rank=None):
        name = "" if rank is None else "?" if rank.number is None else str(rank.number)
        self.done.append("%.2f:%s%s" % (time.monotonic() - self.began, what, name))

    def send(self, rank, name):
        try:
            os.kill(rank.pid, getattr(signal, "SIG" + name))
        except ProcessLookupError:
            return
        self.note(name.lower(), rank)

    def kill(self, choice):
        rank = self.pick(choice, self.may_lose)
        if rank is not None:
            rank.hit = True
            self.send(rank, "KILL")

    def stop(self, choice, length, end):
        long = length > 0.4 * self.detect
        rank = self.pick(choice, self.may_lose if long else lambda r: True)
        if rank is None or (long and rank.joiner is not None and not self.may_stop_joiner()):
            return
        rank.stopped = True
        rank.hit = long
        self.send(rank, "STOP")
        self.later(length, lambda: self.end_stop(rank, end if long else "CONT"))

    def may_stop_joiner(self):
        """Nobody can prove that a joiner that is stopped has ended, so half of the others must be able to vote."""
        stopped = sum(r.joiner is not None and r.stopped for r in self.ranks.values())
        return 2 * (stopped + 1) < len(self.untouched())

    def end_stop(self, rank, end):
        rank.stopped = False
        self.send(rank, end)

    def join(self):
        doors = self.doors()
        if not doors:
            return
        command = [self.verbena, "train", "--join", doors, "--secret-file", self.key(), "--timeout", "40", "--json",
                   "--log-level", "info"]
        process = self.start(command, "join%d" % len(self.joiners))
        self.joiners.append(process)
        self.ranks[process.pid] = Process(process.pid, process)
        self.note("join")

    def remove(self, choice):
        rank = self.pick(choice, lambda r: r.number is not None and self.may_lose(r))
        if rank is None:
            return
        rank.hit = True
        self.ctl.append(self.start([self.verbena, "ctl", self.run, "remove", str(rank.number), "--json"],
                                   "ctl%d" % len(self.ctl)))
        self.note("remove", rank)

    def later(self, seconds, what):
        self.count += 1
        heapq.heappush(self.queue, (time.monotonic() + seconds, self.count, what))

    def do(self, event):
        _, kind, choice, length, end = event
        if kind == "kill":
            self.kill(choice)
        elif kind == "stop":
            self.stop(choice, length, end)
        elif kind == "join":
            self.join()
        else:
            self.remove(choice)

    def disturb(self, until):
        if not wait_for(self.has_begun, self.process, until):
            return
        time.sleep(self.start_s)
        self.look()
        first = sorted(self.ranks.values(), key=lambda r: -1 if r.number is None else r.number)
        self.first_pids = [r.pid for r in first]
        before = {r: (r.fds(), r.threads()) for r in self.ranks.values()}
        self.queue, self.count = [], 0
        for event in self.events:
            self.later(event[0], lambda event=event: self.do(event))
        while self.queue and time.monotonic() < until:
            at, _, what = heapq.heappop(self.queue)
            while time.monotonic() < at:
                if self.process.poll() is not None and not any(r.stopped for r in self.ranks.values()):
                    return
                time.sleep(max(0, min(0.02, at - time.monotonic())))
            what()
        self.compare(before, until)

    def compare(self, before, until):
        """Ranks that were there from the start hold what they held, but for what the members of today need."""
        end = min(until, time.monotonic() + SETTLE_S)
        self.held = None
        while time.monotonic() < end and self.process.poll() is None and self.held != []:
            time.sleep(0.2)
            self.look()
            more = max(0, sum(not r.gone for r in self.ranks.values()) - self.world)
            held = [self.growth(rank, *then, more) for rank, then in before.items() if not rank.gone]
            self.held = [h for h in held if h]
        if self.process.poll() is not None:
            self.held = None

    def growth(self, rank, fds, threads, more):
        """Each member more needs some. The lead keeps the records of all ranks open, and has threads of its own."""
        leads = rank.number == self.told("lead")
        now_fds, now_threads = rank.fds(), rank.threads()
        more_fds = 4 + 12 * (more + (len(self.ranks) if leads else 0))
        more_threads = 1 + 2 * more + (3 if leads else 0)
        if now_fds <= fds + more_fds and now_threads <= threads + more_threads:
            return None
        return "rank %s holds %d descriptors and %d threads, before %d and %d, with %d ranks less" % (
            rank.number, now_fds, now_threads, fds, threads, more)

    # ---- what has become of it -------------------------------------------------------------------

    def perform(self):
        """Returns what is wrong, or None."""
        until = time.monotonic() + LIMIT_S
        self.held, self.first_pids = None, []
        self.began = time.monotonic()
        self.process = self.start(self.command, "job")
        hung = []
        try:
            self.disturb(until)
            for name, process in [("the job", self.process), *(("ctl", c) for c in self.ctl),
                                  *(("a joiner", j) for j in self.joiners)]:
                try:
                    process.wait(max(0.1, until - time.monotonic() + (0 if name == "the job" else 30)))
                except subprocess.TimeoutExpired:
                    hung.append(name)
        finally:
            left = wait_until_none(self.left, 0 if hung else 8)
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for process in [self.process, *self.joiners, *self.ctl]:
                process.wait()
        if hung:
            return "%s did not end" % " and ".join(hung)
        if left:
            return "processes are left: %s" % left
        return self.judge()

    def is_orphaned(self):
        """All ranks of the supervisor are gone. It knows nobody who goes on, so its exit code is 1."""
        own = [r for r in self.ranks.values() if r.joiner is None]
        return self.orphans and self.process.returncode == 1 and all(r.hit for r in own)

    def judge(self):
        if self.process.returncode != 0 and not self.is_orphaned():
            return "exit %d" % self.process.returncode
        elsewhere = self.is_orphaned() or "which has joined and was not started here" in self.text("job.err")
        final = json.loads(self.text("run/run.json" if elsewhere else "job.out").splitlines()[-1])
        if final["steps"] != self.steps:
            return "%d steps, expected %d" % (final["steps"], self.steps)
        return self.judge_mode(final) or self.judge_faults(final) or self.judge_others() or (
            "; ".join(self.held or []) or None)

    def judge_mode(self, final):
        if self.mode == "sync":
            return wrong_in_ledger(self.ledger, self.steps)
        if final["staleness"]["gradients"] < self.steps:
            return "%d gradients, expected %d" % (final["staleness"]["gradients"], self.steps)
        return None

    def judge_faults(self, final):
        lost = {f["rank"] for f in final["faults"] if f["what"] in ("rank lost", "died", "stopped", "removed")}
        if self.mode == "async":  # servers have numbers of their own
            lost = {n for n in lost if n < self.world}
            # A worker may drop a stopped server before the server's standby does. Then the job goes on without
            # the worker.
            if self.replicas and any(":stop" in event for event in self.done):
                lost -= {f["rank"] for f in final["faults"] if "the peer dropped this rank: silent" in f["why"]}
        hit = {r.number for r in self.ranks.values() if r.hit}
        if None in hit:  # it had not told its number
            hit |= {n for n in lost if n >= self.world}
        self.lost = len(lost)
        return "ranks %s are said to be lost" % sorted(lost - hit) if lost - hit else None

    def judge_others(self):
        for i, process in enumerate(self.joiners):
            said = "".join(re.findall("error .*\n", self.text("join%d.err" % i)))
            if process.returncode != 0 and not self.ranks[process.pid].hit and not NOT_JOINED.search(said):
                return "joiner %d: exit %d: %s" % (i, process.returncode, said.strip() or "silent")
        for i, process in enumerate(self.ctl):
            said = self.text("ctl%d.out" % i) + self.text("ctl%d.err" % i)
            if process.returncode != 0 and not NOT_REMOVED.search(said):
                return "ctl %d: exit %d: %s" % (i, process.returncode, said.strip())
        return None


def main():
    verbena, jobs = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    models = sys.argv[5:] or ["softmax", "sparse-lr", "lenet", "alexnet32"]
    done = {"kill": 0, "stop": 0, "join": 0, "remove": 0}
    lost = wrong = 0
    forget_environment()
    for number in range(first, first + jobs):
        folder = tempfile.mkdtemp(prefix="verbena-sequences-")
        job = Job(verbena, number, seed, models, folder)
        why = job.perform()
        for kind in done:
            done[kind] += sum(":" + kind in event for event in job.done)
        if os.environ.get("SEQUENCES_TALK") == "1":
            print("%d: %s; %s; %s" % (number, job, job.held, why or "ok"), flush=True)
        if why is None:
            lost += job.lost
            shutil.rmtree(folder)
            continue
        wrong += 1
        print("FAIL: job %d of seed %s (%s): %s; see %s" % (number, seed, job, why, folder), flush=True)
    print("%d jobs, %s, %d ranks lost, %d jobs wrong" % (
        jobs, ", ".join("%d %s" % (n, kind) for kind, n in done.items()), lost, wrong))
    if jobs > 3 and lost == 0:
        sys.exit("FAIL: no job has lost a rank")
    sys.exit(wrong > 0)


main()
