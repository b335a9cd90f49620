#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Checks a ledger (docs/run.md): check_ledger.py FILE... STEPS. Every step from 1 to STEPS must have trained on the next
# samples of the epoch, each once, and every epoch on each sample once. Several files are those of hosts without a common
# one, in a job that nobody has joined: of a step that was made again, the rows with the fewest ranks count.
import json
import sys


def read(path):
    facts, steps = None, {}
    with open(path, encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            if "begin" in line:  # what was written before about later steps does not count
                facts = line
                steps = {step: rows for step, rows in steps.items() if step <= line["begin"]}
            else:
                steps.setdefault(line["step"], []).append(line)
    return facts, steps


def read_all(paths):
    facts, steps = None, {}
    for path in paths:
        its, rows_of = read(path)
        facts = facts or its
        for step, rows in rows_of.items():
            steps.setdefault(step, []).extend(rows)
    if len(paths) > 1:
        for step, rows in steps.items():
            ranks = min(row["ranks"] for row in rows)
            steps[step] = [row for row in rows if row["ranks"] == ranks]
    return facts, steps


def check(paths, last):
    facts, steps = read_all(paths)
    if sorted(steps) != list(range(1, last + 1)):
        return "it has the steps %s, expected 1 to %d" % (sorted(steps), last)
    samples, batch, at, epoch = facts["samples"], facts["global_batch"], 0, 0
    for step in range(1, last + 1):
        rows = sorted(steps[step], key=lambda row: row["rank"])
        if [row["rank"] for row in rows] != list(range(rows[0]["ranks"])):
            return "step %d has the ranks %s of %d" % (step, [row["rank"] for row in rows], rows[0]["ranks"])
        first = at
        for row in rows:
            if row["epoch"] != epoch:
                return "step %d belongs to epoch %d, expected %d" % (step, row["epoch"], epoch)
            if row["samples"] != sum(end - begin for begin, end in row["ranges"]):
                return "step %d, rank %d: the number of samples is not that of the ranges" % (step, row["rank"])
            for begin, end in row["ranges"]:
                if begin != at or end <= begin:
                    return "step %d, rank %d: a range begins at %d, expected %d" % (step, row["rank"], begin, at)
                at = end
        if at - first != min(batch, samples - first):
            return "step %d has %d samples, expected %d" % (step, at - first, min(batch, samples - first))
        if at == samples:
            at, epoch = 0, epoch + 1
    return None


wrong = check(sys.argv[1:-1], int(sys.argv[-1]))
if wrong is not None:
    sys.exit("%s: %s" % (" ".join(sys.argv[1:-1]), wrong))
