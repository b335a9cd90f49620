# SPDX-License-Identifier: MIT
"""Starts the ranks of the peers that are written in Python, one process per rank."""

import os
import sys
import tempfile


def run(ranks, be_rank):
    """Calls be_rank(rank, file) in one process per rank. The ranks find each other through the file. Exits with 1 if a rank failed."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    code = be_rank(rank, folder + "/meet")
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            children.append(pid)
        codes = [os.waitpid(pid, 0)[1] for pid in children]
    sys.exit(1 if any(codes) else 0)
