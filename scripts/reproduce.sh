#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# usage: scripts/reproduce.sh [000|001|002|003|004|all|EXPERIMENT]... [--quick] [--data DIR] [--out DIR] [--list]
#
# Runs the experiments of five reports of distributed training, on nodes that are network namespaces, and writes their
# tables and figures, beside the reports' own numbers, to DIR/reproduction.md.
#
#   --quick      shorter runs: under 10 minutes for all on two idle cores, instead of under 90
#   --data DIR   folder with real data: MNIST in DIR or DIR/mnist; Criteo as TFRecords or TSV in DIR/criteo. What is
#                not there is generated
#   --out DIR    folder for results; by default reproduction, with --quick reproduction-quick. A second run with the
#                same options goes on where the first one has ended
#   --list       only list the experiments. Each can be named alone, such as 003-softmax
#
# VERBENA=FILE: the program, by default build/verbena. Without root, the nodes are connected by loopback instead.
# shellcheck disable=SC2034,SC2154 # variables that the files of scripts/reproduce share
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '/^# usage/,/^#   --list/s/^# \{0,1\}//p' "$here/reproduce.sh"; }

die() {
    echo "reproduce.sh: $*" >&2
    exit "${code:-1}"
}

studies=() only=() quick=no data='' out='' list=no
while [ $# -gt 0 ]; do
    case $1 in
    00[0-4]) studies+=("$1") ;;
    00[0-4]-*) studies+=("${1%%-*}") only+=("$1") ;;
    all) studies+=(000 001 002 003 004) ;;
    --quick) quick=yes ;;
    --list) list=yes ;;
    --data | --out)
        [ -n "${2:-}" ] || code=2 die "$1 needs a folder"
        [ "$1" = --out ] || data=$2
        [ "$1" = --data ] || out=$2
        shift
        ;;
    --help)
        usage
        exit 0
        ;;
    *) code=2 die "unknown argument $1; scripts/reproduce.sh --help shows the usage" ;;
    esac
    shift
done
[ ${#studies[@]} -gt 0 ] || studies=(000 001 002 003 004)
mapfile -t studies < <(printf '%s\n' "${studies[@]}" | sort -u)

for file in common data tables late peers answers 000 001 002 003 004; do
    # shellcheck source=/dev/null
    . "$here/reproduce/$file.sh"
done

need_command jq jq
need_command gnuplot gnuplot-nox
need_command timeout coreutils
verbena=${VERBENA:-$here/../build/verbena}
[ -x "$verbena" ] || die "$verbena is missing: run cmake --preset release && cmake --build --preset release, or set VERBENA"
verbena=$(realpath "$verbena")

for study in "${studies[@]}"; do
    "experiments_$study"
done
[ ${#studies[@]} -lt 5 ] || experiments_peers
for name in "${only[@]}"; do
    [[ " ${ids[*]} " == *" $name "* ]] || code=2 die "unknown experiment $name; --list shows all"
done
list_experiments
[ $list = no ] || exit 0

open_out
find_network
find_data
run_experiments
write_page
[ ${#failed[@]} = 0 ] || die "failed: ${failed[*]}; type the same command again to repeat only these. Logs: $out/logs"
