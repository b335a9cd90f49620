#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Installs missing packages, builds Verbena, prints what Verbena finds out about this machine, and
# trains on it.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build
[ -f build/build.ninja ] || cmake --preset release -DVB_TESTS=OFF
cmake --build --preset release

show() {
    echo
    echo "\$ $*"
    "$@"
}

show build/verbena --version
show build/verbena topo
show build/verbena topo --synthetic "pack:2 numa:1 core:8 pu:2" --ranks 4
show build/verbena doctor || echo "doctor: see above for what would stop a job on this machine"
show build/verbena train lenet --data synth
show build/verbena demo --out build/verbena-demo
