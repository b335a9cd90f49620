# SPDX-License-Identifier: MIT
#
# What the tests that disturb jobs at random share: the models, and what can be seen of a job from outside.
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))

# model: steps of a job, and what it is trained with
MODELS = {
    "softmax": (20000, ["--data", "synth:3000", "--batch", "10"]),
    "sparse-lr": (3000, ["--batch", "20"]),
    "lenet": (250, ["--data", "synth:2000", "--batch", "16"]),
    "alexnet32": (8, ["--input", "32", "--batch", "4"]),
    "alexnet": (6, ["--batch", "2"]),
}


def model_name(model):
    return model.replace("alexnet32", "alexnet")


def forget_environment():
    """Options of the caller must not become options of the jobs."""
    for name in [n for n in os.environ if n.startswith("VB_")]:
        del os.environ[name]


def environ_of(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return dict(e.split(b"=", 1) for e in file.read().split(b"\0") if b"=" in e)
    except OSError:
        return {}


def stat_of(pid):
    """State, parent and session of a process, or None if it is gone."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[3])


def processes():
    """Number, state, parent and session of each process that has not ended."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        stat = stat_of(pid)
        if stat is not None and stat[0] not in "ZX":
            yield (pid, *stat)


def alive_in(session):
    """The processes of a session that have not ended."""
    return [pid for pid, _, _, its in processes() if its == session]


def wait_for(ready, process, until):
    """What ready() returns as soon as that is something, or None if the process ends before or the time is over."""
    while process.poll() is None and time.monotonic() < until:
        found = ready()
        if found:
            return found
        time.sleep(0.005)
    return None


def wait_until_none(left, seconds):
    """What left() still returns after at most so many seconds."""
    end = time.monotonic() + seconds
    found = left()
    while found and time.monotonic() < end:
        time.sleep(0.05)
        found = left()
    return found


def wrong_in_ledger(ledger, steps):
    """What check_ledger.py says, or None if the ledger is right."""
    checked = subprocess.run([sys.executable, os.path.join(HERE, "..", "check_ledger.py"), ledger, str(steps)],
                             stderr=subprocess.PIPE, check=False)
    return checked.stderr.decode().strip() if checked.returncode != 0 else None
