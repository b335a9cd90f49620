# SPDX-License-Identifier: MIT
"""One process a rank, for the peers that are Python."""

import os
import sys
import tempfile


def run(ranks, be_rank):
    """Calls be_rank(rank, file) in a process each; they meet in the file. Ends with their exit code."""
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
