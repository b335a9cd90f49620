#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Kills ranks of synchronous jobs at random moments: elastic_kills.sh VERBENA JOBS [SEED [MODEL...]] (elastic_kills.py).
#
# Covers: engine/elastic/recover.c
command -v python3 >/dev/null || { echo "skipped: python3 is missing"; exit 77; }
exec python3 "$(dirname "$0")/elastic_kills.py" "$@"
