#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Renders the CloudLab profile with every combination of its parameters, and checks the requests. Needs geni-lib, which
# cloudlab/venv.sh installs; VB_GENI_PYTHON names a Python that has it.
set -uo pipefail
here=$(dirname "$0")

for python in "${VB_GENI_PYTHON:-}" "$here/../../.cache/geni/bin/python" python3; do
    if [ -n "$python" ] && "$python" -c 'import geni.portal, lxml' 2>/dev/null; then
        exec "$python" -B "$here/profile_test.py" "$here/../../cloudlab/profile.py"
    fi
done
echo "skipped: no Python here has a geni-lib that works (cloudlab/venv.sh .cache/geni installs it)"
exit 77
