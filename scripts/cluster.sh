#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# usage: scripts/cluster.sh HOST[,HOST...] | FILE [--dir DIR] [--out DIR] [--transport HOW] [--build-on HOST] [--again]
#
# Makes machines that ssh reaches ready for jobs: checks them, builds, copies the program, installs missing packages,
# runs doctor between all pairs and a first allreduce, and says what to type next. A second run does only what is missing.
# A host that fails does not stop the others.
#
#   HOST             HOST, USER@HOST or HOST:RANKS; a file has one on each line
#   --dir DIR        folder for the program on the hosts, by default verbena in the home folder of the first one
#   --out DIR        folder for the results on this machine: ready.txt, ready.html; by default runs/cluster
#   --transport HOW  auto, tcp or verbs
#   --build-on HOST  build on this host, even if this machine is of the same kind
#   --again          repeat doctor and allreduce even if nothing has changed
#
# ssh must not ask for anything (a key, an agent). VB_SSH=COMMAND: another ssh, or options for it. VERBENA=FILE: the
# program, by default build/verbena. The exit code is 0 if all hosts are ready, 1 if not, and 2 for a wrong argument.
# shellcheck disable=SC2034,SC2154 # variables that the files of scripts/cluster share
set -uo pipefail
start=$PWD
cd "$(dirname "$0")/.." || exit 1

usage() { sed -n '/^# usage/,/^# program, by/s/^# \{0,1\}//p' scripts/cluster.sh; }

die() {
    echo "cluster.sh: $*" >&2
    exit "${code:-1}"
}

same_again="scripts/cluster.sh $*"
dir='' out=runs/cluster transport=auto build_on=auto again=no list=''
while [ $# -gt 0 ]; do
    case $1 in
    --dir | --out | --transport | --build-on)
        [ -n "${2:-}" ] || code=2 die "$1 needs a value; scripts/cluster.sh --help shows the usage"
        case $1 in
        --dir) dir=$2 ;;
        --out) out=$(realpath -m "$start/$2") && [[ $2 != /* ]] || out=$2 ;;
        --transport) transport=$2 ;;
        --build-on) build_on=$2 ;;
        esac
        shift
        ;;
    --again) again=yes ;;
    --help)
        usage
        exit 0
        ;;
    -*) code=2 die "unknown option $1; scripts/cluster.sh --help shows the usage" ;;
    *)
        [ -z "$list" ] || code=2 die "type the hosts as one list, with commas: $list,$1"
        list=$1
        ;;
    esac
    shift
done
[ -n "$list" ] || code=2 die "name the hosts: scripts/cluster.sh HOST,HOST; --help shows the usage"
[[ $transport =~ ^(auto|tcp|verbs)$ ]] || code=2 die "--transport $transport: must be auto, tcp or verbs"
[[ -z $dir || $dir =~ ^/[A-Za-z0-9._/+-]*$ ]] || code=2 die "--dir $dir: must be an absolute path of letters, digits and . _ + -"

for file in hosts install measure page all; do
    # shellcheck source=/dev/null
    . "scripts/cluster/$file.sh"
done
[[ $list != */* || $list == /* ]] || list=$start/$list
read_hosts "$list"
[ "$build_on" = auto ] || [[ " ${names[*]} " == *" $build_on "* ]] || code=2 die "--build-on $build_on: is not one of the hosts"
open_work
begin_states
make_ready
cat "$out/ready.txt"
echo
echo "page: $out/ready.html"
all_well
