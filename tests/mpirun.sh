#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Ranks that Open MPI's mpirun starts, who learn of each other by PMIx: mpirun.sh VERBENA
set -uo pipefail
verbena=$(realpath "$1")

if ! command -v jq >/dev/null || ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    echo "skipped: needs jq and Open MPI's mpirun (openmpi-bin)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
unset "${!VB_@}" "${!SLURM_@}" "${!PMIX_@}"
export TMPDIR=$dir # for what mpirun keeps there
mpi=(mpirun --oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)

# shellcheck source=tests/launch_test.sh
. "$(dirname "$0")/launch_test.sh"

# ours: ranks of this test, which all know its folder
ours() {
    grep -lsz "^TMPDIR=$dir" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        [ "$(readlink "/proc/$pid/exe")" != "$verbena" ] || echo "$pid"
    done
}

job=(train softmax --data synth:1000 --global-batch 60 --steps 20 --json)
for ranks in 1 2 3; do
    under "$verbena" "${job[@]}" --ranks $ranks
    cp "$dir/out" "$dir/here"
    under "${mpi[@]}" -n $ranks "$verbena" "${job[@]}"
    [ "$code" = 0 ] || fail "mpirun -n $ranks: exit $code: $err"
    [ "$(jq -s 'length == 2 and all(.[]; .ranks == '$ranks') and (.[0].params_sha256 | length) == 64 and
        .[0].params_sha256 == .[1].params_sha256' "$dir/here" "$dir/out")" = true ] ||
        fail "mpirun -n $ranks: $(cat "$dir/here" "$dir/out")"
done

# Dedicated servers are among the ranks, for nobody could start more.
under "${mpi[@]}" -n 3 "$verbena" "${job[@]}" --mode async --dedicated-servers
[ "$code $(jq -c '[.per_rank[].role]' "$dir/out")" = '0 ["worker","worker","server"]' ] ||
    fail "--dedicated-servers: exit $code: $err $(cat "$dir/out")"
under "${mpi[@]}" -n 1 "$verbena" "${job[@]}" --mode async --dedicated-servers
[[ $code != 0 && $err == *'the ranks that are left over must be one at least'* ]] ||
    fail "--dedicated-servers alone: exit $code: $err"

# A rank that has its cpus to itself does not share them out again: two ranks, a cpu each.
if [ "$(nproc)" -ge 2 ]; then
    under "${mpi[@]}" --bind-to core -n 2 "$verbena" bench allreduce --sizes 1024 --seconds 0.01 --json
    [ "$code" = 0 ] || fail "bench: exit $code: $err"
fi

# What the user gives comes before what PMIx carries.
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
under "${mpi[@]}" -n 2 "$verbena" "${job[@]}" --secret-file "$dir/key"
[ "$code" = 0 ] || fail "--secret-file: exit $code: $err"
under "${mpi[@]}" -n 1 "$verbena" "${job[@]}" --secret-file "$dir/key" : -n 1 "$verbena" "${job[@]}"
[[ $code != 0 && $err == *'rank 0 was given a secret, and rank 1 was not'*'mpirun -x VB_SECRET'* ]] ||
    fail "a secret for rank 0 alone: exit $code: $err"
under "${mpi[@]}" -n 1 "$verbena" "${job[@]}" : -n 1 "$verbena" "${job[@]}" --secret-file "$dir/key"
[[ $code != 0 && $err == *'rank 1 was given a secret, and rank 0 was not'* ]] ||
    fail "a secret for rank 1 alone: exit $code: $err"
chmod 644 "$dir/key"
under "${mpi[@]}" -n 2 "$verbena" "${job[@]}" --secret-file "$dir/key"
[[ $code != 0 && $err == *'others may read'* ]] || fail "a secret for all to read: exit $code: $err"
under "${mpi[@]}" -n 2 "$verbena" "${job[@]}" --ranks 1
[ "$code $(jq -sc 'map(.ranks)' "$dir/out")" = '0 [1,1]' ] || fail "--ranks 1: exit $code: $err"

# No server: a process that has lost its mpirun says so, and one that never had one runs.
under env PMIX_RANK=0 PMIX_NAMESPACE=gone "$verbena" "${job[@]}"
[[ $code = 1 && $err == *'PMIX_RANK is set, but the PMIx server that set it is not to be had'* ]] ||
    fail "without a server: exit $code: $err"
under env PMIX_RANK=0 PMIX_NAMESPACE=gone "$verbena" "${job[@]}" --ranks 1
[ "$code" = 0 ] || fail "without a server, --ranks 1: exit $code: $err"

# A rank killed, and Ctrl-C, end all.
for how in KILL INT; do
    "${mpi[@]}" -n 3 "$verbena" train softmax --data synth:1000 --steps 100000000 --timeout 10 \
        >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    for ((i = 0; i < 1500; i++)); do
        [ "$(ours | wc -l)" -lt 3 ] || break
        sleep 0.02
    done
    [ $i -lt 1500 ] || fail "the ranks do not run: $(cat "$dir/err")"
    if [ $how = KILL ]; then
        kill -KILL "$(ours | tail -n 1)"
    else
        kill -TERM $pid # in the background a shell's jobs ignore SIGINT; mpirun treats both alike
    fi
    timeout 60 tail --pid=$pid -f /dev/null || fail "$how: mpirun does not end"
    { wait $pid; } 2>/dev/null && fail "$how: exit 0"
    nothing_left $how
done

[ $bad = 0 ] && echo "mpirun: 1 to 3 ranks"
exit $bad
