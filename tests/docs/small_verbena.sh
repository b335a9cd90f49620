#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Stands for build/verbena when tests/docs/commands.py runs the commands of the documentation: makes a command small, and
# runs the real program (VERBENA_REAL) with it. Nothing else is changed, so a wrong option fails.
#
#   train, sweep   at most MOST_STEPS steps; --epochs and --samples become steps
#   bench          measures for a moment only, small sizes and batches, unless the command names its own
#   top            one screen, because there is no terminal
#   report         no PNG files: gnuplot takes seconds
#   --hosts        as many ranks at this machine's own address (VERBENA_OWN_ADDRESS), through a shell instead of ssh
set -euo pipefail
MOST_STEPS=40 # enough for the lines that a page shows of a run
what=${1:-}
few=30
if [[ " $* " == *" alexnet "* ]]; then few=3; fi
args=() steps='' seconds='' sizes='' batches='' once='' length=''

# count_ranks LIST: prints how many ranks a list of hosts such as a,b:2 starts
count_ranks() {
    local host n=0
    for host in ${1//,/ }; do
        if [[ $host == *:* ]]; then n=$((n + ${host#*:})); else n=$((n + 1)); fi
    done
    echo $n
}

while [ $# -gt 0 ]; do
    case $1 in
    --steps) steps=$2 && shift ;;
    --epochs | --samples) shift ;;
    --seconds) seconds=given && args+=(--seconds 0.01) && shift ;;
    --hosts)
        [ -f "$2" ] || set -- "$1" "$VERBENA_OWN_ADDRESS:$(count_ranks "$2")" "${@:3}"
        args+=("$1" "$2") && shift
        ;;
    *)
        case $1 in
        --sizes) sizes=given ;;
        --batches) batches=given ;;
        --once) once=given ;;
        --again | --join | --help | --help-all) length=given ;;
        esac
        args+=("$1")
        ;;
    esac
    shift
done

case $what in
train | sweep)
    if [ -n "$steps" ] && [ "$steps" -gt $MOST_STEPS ]; then steps=$MOST_STEPS; fi
    if [ -n "$steps" ]; then args+=(--steps "$steps"); fi
    if [ -z "$steps$length" ] && ! [[ " ${args[*]} " == *" --resume "* && $what == sweep ]]; then args+=(--steps "$few"); fi
    ;;
bench)
    [ -n "$seconds" ] || args+=(--seconds 0.01)
    case ${args[1]:-} in
    transfer | allreduce | sparse-allreduce) [ -n "$sizes" ] || args+=(--sizes '64,64K') ;;
    ps) [ -n "$sizes" ] || args+=(--sizes '64,64K' --keys 100) ;;
    step) [ -n "$batches" ] || args+=(--batches '4,8') ;;
    esac
    ;;
top) [ -n "$once" ] || args+=(--once) ;;
report) args+=(--no-png) ;;
*) [ -z "$steps" ] || args+=(--steps "$steps") ;;
esac
exec "$VERBENA_REAL" "${args[@]}"
