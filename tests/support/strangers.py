#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""strangers.py KIND PORT: connects to a port of this host until it is killed.

silent: 33 connections that say nothing, again and again; half: 10,000 connections that stay open; slow: callers that
send one byte and read nothing; garbage: 100 MB of random bytes, then
silence."""

import os
import socket
import sys
import time

kind, port = sys.argv[1], int(sys.argv[2])
held, sent = [], 0
noise = os.urandom(1 << 16)
while True:
    try:
        s = socket.socket()
        s.settimeout(1)
        s.connect(("127.0.0.1", port))
        if kind == "slow":
            s.send(b"V")
        if kind == "garbage" and sent < 100 << 20:
            try:
                while sent < 100 << 20:
                    sent += s.send(noise)
            except OSError:
                sent += 1 << 16
            s.close()
            continue
        held.append(s)
    except OSError:
        time.sleep(0.01)
    limit = {"silent": 33, "half": 10000, "slow": 500, "garbage": 1}[kind]
    if len(held) >= limit:
        if kind == "half":
            time.sleep(0.1)
            continue
        for s in held:
            s.close()
        held = []
        time.sleep(0.02)
