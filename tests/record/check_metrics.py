#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_metrics.py FILE: checks the text format of Prometheus strictly, and prints its samples as a JSON object:
name -> list of [labels, value]."""
import json
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"^({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (NaN|[+-]Inf|[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$")


def unescape(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), text)


def check(path):
    text = open(path, "rb").read().decode("utf-8")
    assert text.endswith("\n"), "the last line has no end"
    helps, types, samples, done, last = {}, {}, {}, set(), None
    for number, line in enumerate(text[:-1].split("\n"), 1):
        where = f"{path}:{number}: {line!r}"
        match = re.match(rf"^# (HELP|TYPE) ({NAME}) (.+)$", line)
        if match:
            kind, name, rest = match.groups()
            assert name not in (helps if kind == "HELP" else types), f"{where}: twice"
            (helps if kind == "HELP" else types)[name] = rest
            if kind == "TYPE":
                assert rest in ("counter", "gauge"), where
            continue
        match = SAMPLE.match(line)
        assert match, f"{where}: is no sample"
        name, labels, value = match.groups()
        assert name in helps and name in types, f"{where}: has no HELP or TYPE before it"
        if name != last:
            assert name not in done, f"{where}: its samples are not together"
            done.add(name)
            last = name
        counter = types[name] == "counter"
        assert counter == name.endswith("_total"), f"{where}: counters, and only they, end with _total"
        pairs = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', labels or "")
        labels = {key: unescape(text) for key, text in pairs}
        assert len(labels) == len(pairs), f"{where}: a label twice"
        assert labels not in [entry[0] for entry in samples.get(name, [])], f"{where}: the same labels twice"
        number = float(value)
        assert not counter or number >= 0, where
        samples.setdefault(name, []).append([labels, number])
    return samples


if __name__ == "__main__":
    print(json.dumps(check(sys.argv[1])))
