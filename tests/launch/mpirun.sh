#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests ranks that Open MPI's mpirun starts, and that find each other through PMIx: mpirun.sh VERBENA
#
# Covers: engine/train/train_place.c launch/pmix.c launch/pmix_share.c
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
export TMPDIR=$dir # for the temporary files of mpirun
mpi=(mpirun --oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)

# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"

ours() {
    with_folder
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

# Ranks of mpirun start no threads of OpenBLAS. mpirun binds ranks to cores, where OpenBLAS would start none anyway, so
# the ranks are not bound. softmax needs the main thread, that of the control plane
# and the recorder's.
"${mpi[@]}" --bind-to none -n 2 "$verbena" train softmax --data synth:1000 --steps 100000000 --threads 1 \
    >"$dir/out" 2>"$dir/err" </dev/null &
pid=$!
running 2
for ((i = 0; i < 100; i++)); do
    threads=$(for p in $(ours); do ls "/proc/$p/task"; done | wc -l)
    [ "$threads" -lt 6 ] || break
    sleep 0.1
done
sleep 0.5 # threads that are too many would have started before the three that are expected
threads=$(for p in $(ours); do find "/proc/$p/task" -mindepth 1 -maxdepth 1 | wc -l; done | xargs)
[ "$threads" = '3 3' ] || fail "the ranks of mpirun have '$threads' threads, expected 3 each: $(cat "$dir/err")"
kill -TERM $pid
ends "threads"

# With --dedicated-servers some of the given ranks become servers, because the job cannot start more ranks.
under "${mpi[@]}" -n 3 "$verbena" "${job[@]}" --mode async --dedicated-servers
[ "$code $(jq -c '[.per_rank[].role]' "$dir/out")" = '0 ["worker","worker","server"]' ] ||
    fail "--dedicated-servers: exit $code: $err $(cat "$dir/out")"
under "${mpi[@]}" -n 1 "$verbena" "${job[@]}" --mode async --dedicated-servers
[[ $code != 0 && $err == *'no rank is left for a worker'* ]] ||
    fail "--dedicated-servers alone: exit $code: $err"

# long ARGUMENTS...: starts mpirun with these arguments and sets pid; ${long[@]} is a job that does not end by itself
long=("$verbena" train softmax --data synth:1000 --steps 100000000 --timeout 10)
long() {
    "${mpi[@]}" "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
}

# pinned N: succeeds if N of our ranks run, each on one CPU and no two on the same CPU
pinned() {
    local p cpus=()
    for p in $(ours); do
        cpus+=("$(sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$p/status")")
    done
    [[ ${#cpus[@]} = "$1" && ! ${cpus[*]} =~ [,-] ]] &&
        [ "$(printf '%s\n' "${cpus[@]}" | sort -u | wc -l)" = "$1" ]
}

# Each of two ranks uses one CPU. With --bind-to core mpirun gives each rank a CPU; with --bind-to none it gives both
# CPUs to both ranks, and the ranks divide them. If rank 0 has one CPU, and ranks 1 and 2 have another one, only ranks 1
# and 2 report that they share it.
if [ "$(nproc)" -ge 2 ]; then
    cpu=()
    for ((i = 0; ${#cpu[@]} < 2; i++)); do
        ! taskset -c $i true 2>/dev/null || cpu+=("$i")
    done
    for bind in core none; do
        long --bind-to $bind -n 2 "${long[@]}"
        for ((i = 0; i < 500; i++)); do
            ! pinned 2 || break
            sleep 0.02
        done
        [ $i -lt 500 ] || fail "--bind-to $bind: the ranks do not have a CPU each: $(cat "$dir/err")"
        kill -TERM $pid
        ends "--bind-to $bind"
    done
    under "${mpi[@]}" --bind-to core -n 2 "$verbena" bench allreduce --sizes 1024 --seconds 0.01 --json
    [ "$code" = 0 ] || fail "bench: exit $code: $err"
    crowded=("$verbena" "${job[@]}" --log-level info)
    under "${mpi[@]}" --bind-to none -n 1 taskset -c "${cpu[0]}" "${crowded[@]}" : \
        -n 2 taskset -c "${cpu[1]}" "${crowded[@]}"
    [ "$code" = 0 ] || fail "one CPU for two ranks, one for another: exit $code: $err"
    [ "$(grep -c '2 ranks share 1 cores' "$dir/err") $(grep -c 'ranks share' "$dir/err")" = '2 2' ] ||
        fail "one CPU for two ranks, one for another: $err"
fi

# The user's options take precedence over PMIx.
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
under "${mpi[@]}" -n 2 "$verbena" "${job[@]}" --secret-file "$dir/key"
[ "$code" = 0 ] || fail "--secret-file: exit $code: $err"
under "${mpi[@]}" -n 1 "$verbena" "${job[@]}" --secret-file "$dir/key" : -n 1 "$verbena" "${job[@]}"
[[ $code != 0 && $err == *'rank 0 was given a secret and rank 1 was not'*'mpirun -x VB_SECRET'* ]] ||
    fail "a secret for rank 0 alone: exit $code: $err"
under "${mpi[@]}" -n 1 "$verbena" "${job[@]}" : -n 1 "$verbena" "${job[@]}" --secret-file "$dir/key"
[[ $code != 0 && $err == *'rank 1 was given a secret and rank 0 was not'* ]] ||
    fail "a secret for rank 1 alone: exit $code: $err"
chmod 644 "$dir/key"
under "${mpi[@]}" -n 2 "$verbena" "${job[@]}" --secret-file "$dir/key"
[[ $code != 0 && $err == *'other users may read'* ]] || fail "a secret that others may read: exit $code: $err"
# Runs two jobs of one rank each. mpirun may mix their lines, so each job writes to its own file.
# shellcheck disable=SC2016 # the inner shell expands the variables
under "${mpi[@]}" -n 2 sh -c 'exec "$@" >"$0.$OMPI_COMM_WORLD_RANK"' "$dir/alone" "$verbena" "${job[@]}" --ranks 1
[ "$code $(jq -sc 'map(.ranks)' "$dir/alone".[01])" = '0 [1,1]' ] || fail "--ranks 1: exit $code: $err"

# There is no PMIx server. A rank whose mpirun is gone reports this, but with --ranks 1 it runs.
under env PMIX_RANK=0 PMIX_NAMESPACE=gone "$verbena" "${job[@]}"
[[ $code = 1 && $err == *'PMIX_RANK is set, but the PMIx server that set it cannot be reached'* ]] ||
    fail "without a server: exit $code: $err"
under env PMIX_RANK=0 PMIX_NAMESPACE=gone "$verbena" "${job[@]}" --ranks 1
[ "$code" = 0 ] || fail "without a server, --ranks 1: exit $code: $err"

# A PMIx server that hangs: every call of PMIx has a deadline. Rank 1 stops mpirun before it calls PMIx_Init. With two
# ranks, rank 0 is then in PMIx_Fence. mpirun passes on no output, so the ranks write to files.
# shellcheck disable=SC2016 # the inner shell expands the variables
for ranks in 1 2; do
    rm -f "$dir"/stuck.*
    long -n $ranks sh -c 'exec 2>"$0.$OMPI_COMM_WORLD_RANK"
        if [ $((OMPI_COMM_WORLD_RANK + 1)) = "$OMPI_COMM_WORLD_SIZE" ]; then sleep 2; kill -STOP $PPID; fi
        "$@"; echo "exit $?" >&2' "$dir/stuck" "$verbena" "${job[@]}" --timeout 6
    for ((i = 0; i < 600; i++)); do
        [ "$(cat "$dir"/stuck.* 2>/dev/null | grep -c '^exit')" != $ranks ] || break
        sleep 0.1
    done
    for ((r = 0; r < ranks; r++)); do
        call=PMIx_Init
        [ $r = $((ranks - 1)) ] || call='PMIx_(Put|Fence)'
        { grep -qE "$call: .*within [0-9.]+ s.*--timeout" "$dir/stuck.$r" && grep -qx 'exit 1' "$dir/stuck.$r"; } ||
            fail "a PMIx server that hangs, rank $r of $ranks: $(cat "$dir/stuck.$r")"
    done
    kill -KILL $pid
    { wait $pid; } 2>/dev/null
    nothing_left "a PMIx server that hangs"
done
# mpirun passes on the root and the secret, and keeps them, but it does not see the secret itself.
if command -v gcore >/dev/null; then
    long -n 3 "${long[@]}"
    running 3
    for ((i = 0; i < 500; i++)); do # until all ranks have put what they put
        gcore -o "$dir/core" "$pid" >"$dir/gcore" 2>&1 || fail "gcore: $(cat "$dir/gcore")"
        seals=$(strings -n 160 "$dir/core.$pid" | grep -cE '^[0-9a-f]{160}$')
        [ "$seals" -lt 2 ] || break
    done
    [ "$seals" -ge 2 ] || fail "mpirun was not given sealed secrets"
    ! strings -n 70 "$dir/core.$pid" | grep -E ':[0-9]+ [0-9a-f]{64}' || fail "mpirun knows the secret"
    rm "$dir/core.$pid"
    kill -TERM $pid
    ends "sealed secrets"
fi

# With --enable-recovery the others go on if a rank is killed or stopped, also if only one is left. Without it mpirun
# asks the others to end, so they report what they have done (below, in jobs that would not end by themselves).
for transport in shm tcp; do
    for fault in 3/kill:0@500 3/kill:2@500 2/kill:0@500 3/stop:1@500:3; do
        under "${mpi[@]}" --enable-recovery -n ${fault%%/*} "$verbena" train softmax --data synth:1000 --global-batch 60 \
            --steps 5000 --json --transport $transport --inject ${fault#*/}
        [ "$code" = 0 ] || fail "--enable-recovery, $transport, $fault: exit $code: $err"
        [ "$(jq -s 'length == 1 and .[0].steps == 5000 and .[0].stopped == null' "$dir/out")" = true ] ||
            fail "--enable-recovery, $transport, $fault: $(cat "$dir/out") $err"
    done
done

# The whole job ends if a rank is killed, and if the user presses Ctrl-C.
for how in KILL INT; do
    long -n 3 "${long[@]}"
    running 3
    if [ $how = KILL ]; then
        kill -KILL "$(ours | tail -n 1)"
    else
        kill -TERM $pid # mpirun treats SIGTERM like Ctrl-C; background jobs of a shell ignore SIGINT
    fi
    ends $how
done

[ $bad = 0 ] && echo "all tests passed: mpirun with 1 to 3 ranks"
exit $bad
