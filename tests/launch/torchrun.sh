#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests ranks that are started by torchrun, or by another program that sets the same variables: torchrun.sh VERBENA
#
# Without PyTorch the test sets the variables by hand, as torchrun would.
#
# Covers: launch/launch_find.c launch/launch_torch.c
# shellcheck disable=SC2317
set -uo pipefail
verbena=$(realpath "$1")

if ! command -v jq >/dev/null; then
    echo "skipped: needs jq"
    exit 77
fi
dir=$(mktemp -d)
nodes=(vb-torch0-$$ vb-torch1-$$)
cleanup() {
    remove_host_pair "${nodes[@]}"
    rm -rf "$dir"
}
trap cleanup EXIT
bad=0
export TMPDIR=$dir # identifies our ranks
unset "${!VB_@}" "${!SLURM_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE

# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"
# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../support/host_pair.sh"

ours() {
    with_folder
}

job=(train softmax --data synth:1000 --global-batch 60 --steps 20 --json)
timeout 100 "$verbena" "${job[@]}" --ranks 3 >"$dir/here" 2>"$dir/err" || fail "$(cat "$dir/err")"

# same WHAT: fails unless $dir/out is the result of three ranks and has the same parameters as without torchrun
same() {
    [ "$(jq -s 'length == 2 and all(.[]; .ranks == 3) and (.[0].params_sha256 | length) == 64 and
        .[0].params_sha256 == .[1].params_sha256' "$dir/here" "$dir/out")" = true ] ||
        fail "$1: $(cat "$dir/here" "$dir/out" "$dir/err")"
}

# ---- torchrun itself ------------------------------------------------------------------------------

# Without -r and -t, PyTorch 1.13 does not start under Python 3.11, the version of Debian 12.
python=
for python in /usr/bin/python3 python3 none; do
    $python -c 'import torch.distributed.run' 2>/dev/null && break
done
with="by hand"
torchrun=("$python" -m torch.distributed.run -r 2 -t 2 --log_dir "$dir/logs")

# on_two_nodes OPTIONS...: makes two network namespaces and runs torchrun with two ranks in each of them; exit codes are
# in $codes
on_two_nodes() {
    local k pids=()
    if [ "$(id -u)" != 0 ] || ! make_host_pair "${nodes[@]}"; then
        echo "skipped, because it needs root and network namespaces: torchrun --nnodes 2"
        return
    fi 2>/dev/null
    for k in 0 1; do
        timeout 100 ip netns exec "${nodes[k]}" "${torchrun[@]}" --nnodes 2 --node_rank $k --nproc_per_node 2 \
            --master_addr 10.98.0.1 --master_port 29519 --no_python "$verbena" "${job[@]}" "$@" \
            >"$dir/out$k" 2>"$dir/err$k" </dev/null &
        pids+=($!)
    done
    codes=
    for k in 0 1; do
        wait "${pids[k]}"
        codes+=$?
    done
    remove_host_pair "${nodes[@]}"
    nothing_left "torchrun --nnodes 2"
}

if [ $python != none ]; then
    with="by PyTorch $($python -c 'import torch; print(torch.__version__)')"
    for how in --standalone "--master_port=29517"; do
        under "${torchrun[@]}" $how --nproc_per_node 3 --no_python "$verbena" "${job[@]}"
        [ $code = 0 ] || fail "torchrun $how: exit $code: $err"
        same "torchrun $how"
    done

    (umask 077 && head -c 32 /dev/urandom >"$dir/key")
    codes=none
    on_two_nodes --secret-file "$dir/key"
    if [ $codes != none ]; then
        [ $codes = 00 ] || fail "torchrun --nnodes 2: exits $codes: $(cat "$dir"/err[01])"
        under "$verbena" "${job[@]}" --ranks 4
        [ "$(jq -s 'length == 2 and all(.[]; .ranks == 4) and .[0].params_sha256 == .[1].params_sha256 and
            .[1].transport == "shm+tcp"' "$dir/out" "$dir/out0")" = true ] ||
            fail "torchrun --nnodes 2: $(cat "$dir/out0" "$dir/err0")"
    fi

    # The whole job ends if a rank is killed, and if torchrun is terminated, as by Ctrl-C.
    for how in KILL TERM; do
        "${torchrun[@]}" --standalone --nproc_per_node 3 --no_python "$verbena" train softmax --data synth:1000 \
            --steps 100000000 --timeout 10 >"$dir/out" 2>"$dir/err" </dev/null &
        pid=$!
        running 3
        [ $how = KILL ] && kill -KILL "$(ours | tail -n 1)"
        [ $how = TERM ] && kill -TERM $pid # torchrun treats SIGTERM like Ctrl-C
        ends "torchrun, $how"
    done
fi

# ---- the variables of torchrun --------------------------------------------------------------------

# ranks VARIABLES... -- OPTIONS...: runs three ranks with these variables and options; exit codes are in $codes
ranks() {
    local variables=() r pids=()
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    for r in 2 1 0; do
        env RANK=$r LOCAL_RANK=$r WORLD_SIZE=3 MASTER_PORT=29518 MASTER_ADDR=localhost \
            "${variables[@]}" timeout 60 "$verbena" "${job[@]}" --timeout 20 "$@" >"$dir/out$r" 2>"$dir/err$r" &
        pids+=($!)
    done
    codes=
    for r in "${pids[@]}"; do
        wait "$r"
        codes+=$?
    done
    cat "$dir"/out[012] >"$dir/out"
    cat "$dir"/err[012] >"$dir/err"
    nothing_left "$*"
}

ranks LOCAL_WORLD_SIZE=3 --
[ "$codes" = 000 ] || fail "ranks started by hand: exits $codes: $(cat "$dir/err")"
same "by hand"

# Without LOCAL_WORLD_SIZE the ranks may be on any hosts.
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
ranks LOCAL_WORLD_SIZE= -- --secret-file "$dir/key"
[ "$codes" = 000 ] || fail "four variables and a secret: exits $codes: $(cat "$dir/err")"
same "four variables and a secret"
train=("${job[@]}")
job=(bench allreduce --sizes 1024 --seconds 0.01 --json)
ranks LOCAL_WORLD_SIZE= -- --secret-file "$dir/key"
[ "$codes" = 000 ] || fail "bench, four variables and a secret: exits $codes: $(cat "$dir/err")"
job=("${train[@]}")
ranks LOCAL_WORLD_SIZE= --
[ "$codes" = 222 ] || fail "four variables and no secret: exits $codes"
grep -q 'torchrun has started 3 ranks on several hosts.*--secret-file FILE or VB_SECRET' "$dir/err" ||
    fail "four variables and no secret: $(cat "$dir/err")"
ranks LOCAL_WORLD_SIZE=3 RANK=3 --
[ "$codes" = 222 ] || fail "rank 3 of 3: exits $codes"
grep -q 'RANK 3: must be a number from 0 to 2' "$dir/err" || fail "rank 3 of 3: $(cat "$dir/err")"

# If a rank that was started by hand is killed, the others go on.
train=("${job[@]}")
job=(train softmax --data synth:1000 --global-batch 60 --steps 5000 --json)
for victim in 0 2; do
    { ranks LOCAL_WORLD_SIZE=3 -- --inject kill:$victim@500; } 2>/dev/null # bash says which process was killed
    [[ $victim$codes = 000137 || $victim$codes = 213700 ]] || fail "rank $victim killed, by hand: exits $codes: $(cat "$dir/err")"
    [ "$(jq -s 'length == 1 and .[0].steps == 5000' "$dir/out")" = true ] ||
        fail "rank $victim killed, by hand: $(cat "$dir/out" "$dir/err")"
done
job=("${train[@]}")

# With --elastic off, if a rank is killed, the other ranks notice it and end.
for r in 2 1 0; do
    env RANK=$r LOCAL_RANK=$r WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_PORT=29520 MASTER_ADDR=localhost \
        "$verbena" train softmax --data synth:1000 --steps 100000000 --elastic off --timeout 10 >"$dir/out" 2>"$dir/err" &
    pid=$!
    [ $r = 0 ] || disown # keeps the shell from printing that a process was killed
    [ $r = 0 ] || victim=$pid
done
running 3
kill -KILL "$victim"
ends "a rank killed, by hand"

[ $bad = 0 ] && echo "all tests passed: three ranks as torchrun starts them, $with"
exit $bad
