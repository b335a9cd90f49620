#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Disturbs jobs with random sequences: elastic_sequences.sh VERBENA JOBS [SEED [FIRST [MODEL...]]] (elastic_sequences.py).
#
# Covers: engine/elastic/recover.c engine/elastic/form.c
command -v python3 >/dev/null || { echo "skipped: python3 is missing"; exit 77; }
exec python3 "$(dirname "$0")/elastic_sequences.py" "$@"
