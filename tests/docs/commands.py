#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the commands in the code blocks of README.md and docs/*.md, and checks by shape what they print.

    commands.py VERBENA quick      README.md only, and of that what takes a moment
    commands.py VERBENA full       all pages, without commands that take long
    commands.py VERBENA nightly    all pages
    commands.py VERBENA list       prints what would be done with each command

A third argument names another tree (commands_fail.sh).

Which lines are commands: in a block marked ```sh or ```console all lines, or those after a prompt ("$ ", "node0$ ") if
there is one; in a block without a mark the same prompts or, without any, the lines whose first word is a program. Other
marks (```text, ```c, ```python) have no commands. The lines below a command with a prompt are a sample of its output:
each first word must be the first word of a line that is printed, unless the command has a line "only" in the table.

Every command runs as it stands, in a folder with the files that pages name (fixture.py); the commands of a page run in
order in one folder. build/verbena and verbena are small_verbena.sh, which limits steps and durations. A command must
exit with 0. tests/docs/commands.txt has the exceptions and the patterns.
"""
import concurrent.futures
import fnmatch
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import fixture

HERE = os.path.dirname(os.path.realpath(__file__))
TREE = sys.argv[3] if len(sys.argv) == 4 else os.path.dirname(os.path.dirname(HERE))
DEADLINE_S = 240  # for one command, generous: other tests run at the same time
SLOW_S = 1500  # for one that runs only at night
FENCE = re.compile(r"^\s*```\s*(\w*)")
PROMPT = re.compile(r"^(?:[a-z]+[0-9]*)?\$ ")
ELSEWHERE = {"sudo", "srun", "sbatch", "salloc", "mpirun", "torchrun", "tensorboard", "modprobe", "rdma", "apt", "curl",
             "wget", "pip", "podman", "docker", "dpkg", "ibv_devinfo", "ssh", "verbena", "umask", "cd", "for", "export",
             "source"}
ACTIONS = {"run", "only", "slow", "not", "never", "need", "first"}
# What could change the machine, or speak to others. Such a command runs only if a row says so.
RISKY = re.compile(r"(^|[|;&( ])(sudo|apt|apt-get|dpkg|rpm|dnf|modprobe|rdma|podman|docker|buildah|pip3?|curl|wget|git|ssh|"
                   r"scp|rsync|systemctl|sysctl|iptables|nft|ip|tc|mount|umount|rm|mv|tee|reboot|useradd|adduser|usermod|"
                   r"kill|pkill|killall|chown|chmod|make|ninja|cmake|\S*/setup\.sh)( |$)|>>? */(?!dev/null)|~/")


class Row:
    """A line of commands.txt."""

    def __init__(self, number, action, what, text):
        self.number, self.action, self.what, self.text = number, action, what, text
        self.used = False


def read_rows():
    rows = []
    with open(f"{HERE}/commands.txt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = [part.strip() for part in line.split(" | ")]
            if len(parts) != 3 or parts[0].split()[0] not in ACTIONS or not parts[2]:
                sys.exit(f"commands.txt:{number}: a line is ACTION | COMMAND | TEXT")
            rows.append(Row(number, *parts))
    return rows


class Command:
    def __init__(self, page, line, text):
        self.page, self.line, self.text = page, line, text
        self.sample = []
        self.row = None


def first_word(text):
    """The program of a command: without "(", assignments and sudo."""
    for word in text.lstrip("( ").split():
        if word != "sudo" and not re.match(r"^\w+=", word):
            return word.rstrip(";")
    return ""


def is_program(text):
    word = first_word(text)
    if "/" in word:
        path = os.path.join(TREE, word)
        elsewhere = re.match(r"^(build/|\./|[/~].*[a-z]$|.*/bin/)", word) and (" " in text or word[0] == ".")
        return bool(elsewhere) or (os.path.isfile(path) and os.access(path, os.X_OK))
    if re.match(r"^\w+=\S+( +#.*)?$", text):
        return False
    return word in ELSEWHERE or (re.match(r"^[a-z_][\w.+-]*$", word) and shutil.which(word) is not None)


def is_whole(text):
    """Whether the shell needs no further line."""
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
    return done.returncode == 0 and not text.endswith("\\") and "here-document" not in done.stderr


def commands_of_block(page, mark, lines):
    """lines: (number, text) of one block."""
    if mark not in ("", "sh", "bash", "console"):
        return []
    prompted = any(PROMPT.match(text) for _, text in lines)
    found, part, at = [], "", 0
    for number, text in lines:
        if part:
            part += "\n" + text
        elif prompted and not PROMPT.match(text):
            if found and text.strip() not in ("", "..."):
                found[-1].sample.append(text)
            continue
        elif prompted or (text.strip() and not text.startswith("#") and (mark or is_program(text))):
            part, at = PROMPT.sub("", text), number
        if part and (is_whole(part) or number == lines[-1][0]):
            found.append(Command(page, at, part))
            part = ""
    return found


def commands_of(page):
    found, block, mark = [], None, ""
    with open(f"{TREE}/{page}", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            fence = FENCE.match(line)
            if fence and block is None:
                block, mark, indent = [], fence.group(1), len(line) - len(line.lstrip())
            elif fence:
                found += commands_of_block(page, mark, block)
                block = None
            elif block is not None:
                block.append((number, line.rstrip("\n")[indent:]))
    return found


def here(text):
    """A command with the paths of a prepared host replaced by those of the folder in which it runs."""
    text = re.sub(r"^(~|/local)/verbena/verbena ", "build/verbena ", text)
    return text.replace(" /local/verbena/runs/", " runs/")


def bare(text):
    """A command on one line, without its comment and a final &."""
    text = re.sub(r"\s+#\s.*", "", " ".join(text.replace("\\\n", " ").split("\n")))
    return re.sub(r"\s*&$", "", " ".join(text.split()))


def choose(command, rows):
    text = bare(here(command.text))
    short = re.sub(r"(^|[(|;& ])(\./)?build/verbena\b", r"\1verbena", text)
    names = [text, short, f"{command.page}: {text}", f"{command.page}: {short}"]
    for row in rows:
        if row.action != "first" and any(fnmatch.fnmatchcase(name, row.what) for name in names):
            row.used = True
            return row
    return None


class Page:
    """Runs the commands of a page, in a folder of its own."""

    def __init__(self, name, commands, rows, tier, folder, env):
        self.name, self.commands, self.rows, self.tier, self.env = name, commands, rows, tier, env
        self.folder = f"{folder}/{name.replace('/', '-')}"
        self.failures, self.skipped, self.ran, self.lines = [], [], 0, []

    def prepare(self, files, build):
        os.makedirs(f"{self.folder}/build")
        for name in os.listdir(TREE):
            if not name.startswith(("build", ".")):
                os.symlink(f"{TREE}/{name}", f"{self.folder}/{name}")
        for name in ("bench", "tests"):  # not all, so that no command can write to the build
            os.symlink(f"{build}/{name}", f"{self.folder}/build/{name}")
        shutil.copy(f"{HERE}/small_verbena.sh", f"{self.folder}/build/verbena")
        for name in os.listdir(files):
            if not os.path.lexists(f"{self.folder}/{name}"):
                os.symlink(f"{files}/{name}", f"{self.folder}/{name}")
        with open(f"{self.folder}/hosts.txt", "w", encoding="utf-8") as file:
            file.write(f"{self.env['VERBENA_OWN_ADDRESS']} slots=2\n")

    def shell(self, text, deadline_s=DEADLINE_S):
        """Runs a command; returns the exit code, None after the deadline, and what it printed."""
        process = subprocess.Popen(["bash", "-c", text], cwd=self.folder, env=self.env, text=True, errors="replace",
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            out, _ = process.communicate(timeout=deadline_s)
            return process.returncode, out
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]

    def fail(self, command, why, out=""):
        tail = "\n".join("    " + line for line in out.splitlines()[-8:])
        self.failures.append(f"{self.name}:{command.line}: {command.text}\n  {why}\n{tail}")

    def check(self, command, code, out):
        row = command.row
        if code != 0:
            why = "no end before the deadline" if code is None else f"exit {code}"
            self.fail(command, why + "; see the head of tests/docs/commands.txt", out)
            return
        if row and not re.search(row.text, out, re.MULTILINE):
            self.fail(command, f"the output does not match '{row.text}' (commands.txt:{row.number})", out)
        if row and row.action == "only":
            return
        words = {re.sub(r"\d+", "#", line.split()[0]) for line in out.splitlines() if line.split()}
        for line in command.sample:
            if re.sub(r"\d+", "#", line.split()[0]) not in words:
                self.fail(command, f"no printed line begins like this line of the page: {line}", out)

    @staticmethod
    def has(needs):
        if needs == "root":
            return os.getuid() == 0
        if needs == "numpy":
            return subprocess.run(["python3", "-c", "import numpy"], capture_output=True, check=False).returncode == 0
        return shutil.which(needs) is not None

    def run_one(self, command):
        row = command.row
        if row and row.action in ("not", "never"):
            self.skipped.append((command, row.text))
            return
        if row and row.action == "slow" and self.tier != "nightly":
            self.skipped.append((command, "takes long: nightly"))
            return
        if row and row.action.startswith("need"):
            needs = row.action.split()[1]
            if not self.has(needs):
                self.skipped.append((command, f"there is no {needs} here"))
                return
        if row is None and RISKY.search(bare(command.text)):
            self.fail(command, "could change the machine: give it a line in tests/docs/commands.txt")
            return
        began = time.monotonic()
        text = re.sub(r"^sudo ", "", here(command.text))  # whoever may run it is root
        slow = row is not None and row.action == "slow"
        code, out = self.shell(re.sub(r"\s*&(\s*(#.*)?)$", r"\1", text), SLOW_S if slow else DEADLINE_S)
        self.check(command, code, out)
        self.ran += 1
        self.lines.append(f"{time.monotonic() - began:6.1f} s  {self.name}:{command.line}: {bare(command.text)}")

    def run(self):
        for row in self.rows:
            if row.action == "first" and row.what == self.name:
                row.used = True
                code, out = self.shell(row.text)
                if code != 0:
                    self.failures.append(f"commands.txt:{row.number}: exit {code}: {row.text}\n{out}")
        for command in self.commands:
            self.run_one(command)
        return self


def own_address():
    """An address of this machine that is not loopback, if it has one."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()


def environment(verbena, folder):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("VB_", "VERBENA_"))}
    os.makedirs(f"{folder}/bin")
    shutil.copy(f"{HERE}/small_verbena.sh", f"{folder}/bin/verbena")
    shutil.copy(f"{HERE}/local_ssh.sh", f"{folder}/bin/local_ssh")
    env |= {"PATH": f"{folder}/bin:{env['PATH']}", "VERBENA_REAL": verbena, "VERBENA_OWN_ADDRESS": own_address(),
            "VB_SSH": f"{folder}/bin/local_ssh", "XDG_CACHE_HOME": f"{folder}/cache",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "ASAN_OPTIONS": "detect_leaks=0"}
    return env


def pages_of(tier):
    if tier == "quick":
        return ["README.md"]
    return ["README.md", "CONTRIBUTING.md"] + sorted(os.path.relpath(path, TREE) for path in glob.glob(f"{TREE}/docs/*.md"))


def is_general(row):
    """A pattern of the output of a subcommand: pages need not have each of them."""
    return row.action == "run" and re.match(r"^verbena [a-z]+( [a-z]+)? ?\*( --[a-z-]+\*?)?$", row.what)


def report(pages, rows, tier):
    for page in pages:
        for command, why in page.skipped:
            print(f"not run: {page.name}:{command.line}: {bare(command.text)}: {why}")
    print("the slowest:", *sorted((line for page in pages for line in page.lines), reverse=True)[:8], sep="\n")
    failures = [text for page in pages for text in page.failures]
    if tier != "quick":
        failures += [f"commands.txt:{row.number}: no page has such a command: {row.what}" for row in rows
                     if not row.used and row.action != "never" and not is_general(row)]
    print(*(f"FAIL: {text}" for text in failures), sep="\n")
    print(f"{sum(page.ran for page in pages)} commands of {len(pages)} pages ran, "
          f"{sum(len(page.skipped) for page in pages)} did not, {len(failures)} failures")
    return 1 if failures else 0


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in ("quick", "full", "nightly", "list"):
        sys.exit(__doc__)
    verbena, tier = os.path.realpath(sys.argv[1]), sys.argv[2]
    rows = read_rows()
    found = {name: commands_of(name) for name in pages_of(tier) if os.path.exists(f"{TREE}/{name}")}
    for command in (command for commands in found.values() for command in commands):
        command.row = choose(command, rows)
        if tier == "list":
            what = f"{command.row.action:5} {command.row.text}" if command.row else "run   exit 0"
            print(f"{command.page}:{command.line}: {bare(command.text)}\n    {what}")
    if tier == "list":
        return 0
    with tempfile.TemporaryDirectory(prefix="verbena-docs-") as folder:
        fixture.make(f"{folder}/files", verbena)
        env = environment(verbena, folder)
        pages = [Page(name, commands, rows, tier, folder, env) for name, commands in found.items()]
        for page in pages:
            page.prepare(f"{folder}/files", os.path.dirname(verbena))
        with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
            pages = list(pool.map(Page.run, sorted(pages, key=lambda page: -len(page.commands))))
    return report(pages, rows, tier)


if __name__ == "__main__":
    sys.exit(main())
