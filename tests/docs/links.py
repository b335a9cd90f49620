#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the links between pages of the documentation lead to files and headings that exist: links.py"""
import glob
import os
import re
import sys


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return re.sub(r"```.*?```", "", file.read(), flags=re.S)


def heading(text):
    """The name by which GitHub links to a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(path):
    return {heading(text) for text in re.findall(r"^#+ (.*)$", text_of(path), re.M)}


def main():
    bad = 0
    for page in sorted(glob.glob("*.md") + glob.glob("docs/*.md")):
        for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
            if re.match(r"^[a-z]+:", link):
                continue
            name, _, part = link.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
            if not os.path.exists(path):
                print(f"{page}: there is no {path}")
                bad = 1
            elif part and path.endswith(".md") and part not in headings(path):
                print(f"{page}: {path} has no heading #{part}")
                bad = 1
    return bad


sys.exit(main())
