#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests ranks of one host that have PID namespaces of their own, as in containers: pidns.sh VERBENA [quick]. Each rank is
# process number 1 of its namespace, so a process number says nothing about a peer. quick: no test waits for a server that
# is stopped.
#
# Covers: net/group/pair.c net/group/member.c net/shm/shm_setup.c base/process.c
set -uo pipefail
verbena=$(realpath "$1")
part=${2:-}

dir=$(mktemp -d /tmp/verbena-pidns.XXXXXX)
trap 'kill -KILL $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
alone=(unshare --pid --fork --kill-child --mount-proc)
if ! "${alone[@]}" true 2>"$dir/err"; then
    alone=(unshare --user --map-root-user --pid --fork --kill-child --mount-proc)
    if ! "${alone[@]}" true 2>>"$dir/err"; then
        echo "skipped: cannot make PID namespaces: $(cat "$dir/err")"
        exit 77
    fi
fi
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}
(umask 077 && head -c 32 /dev/urandom >"$dir/key")
port=$((20000 + $$ % 10000))

# start WORLD OPTIONS...: starts the ranks of a job, each in a namespace of its own but those in $together, which stay in
# the namespace of this script. Writes their output to files in $dir. The processes that this script sees are $pids.
together=
start() {
    local world=$1 r in
    shift
    port=$((port + 1))
    pids=()
    rm -rf "$dir/keep" "$dir"/out? "$dir"/err?
    for ((r = 0; r < world; r++)); do
        in=("${alone[@]}")
        [[ " $together " = *" $r "* ]] && in=()
        "${in[@]}" "$verbena" train --data synth:2000 --world "$world" --root "127.0.0.1:$port" --rank "$r" \
            --secret-file "$dir/key" --timeout 60 --json "$@" >"$dir/out$r" 2>"$dir/err$r" &
        pids+=($!)
    done
}

# finish: waits for all ranks. Sets $codes.
finish() {
    local pid
    codes=
    for pid in "${pids[@]}"; do
        wait "$pid"
        codes+="$? "
    done
}

# rank_pid R: the number of rank R's process as this script sees it
rank_pid() {
    if [[ " $together " = *" $1 "* ]]; then
        echo "${pids[$1]}"
    else
        pgrep -P "${pids[$1]}"
    fi
}

for transport in shm auto; do
    start 3 softmax --steps 30 --transport $transport
    finish
    [ "$codes" = "0 0 0 " ] || fail "sync, $transport: exit $codes: $(cat "$dir"/err?)"
    [ "$(jq -r .transport "$dir/out0")" = shm ] || fail "sync, $transport: not over shared memory: $(cat "$dir/out0")"
    sums+=("$(jq -r .params_sha256 "$dir/out0")")
    start 3 softmax --mode async --steps 300 --transport $transport
    finish
    [ "$codes" = "0 0 0 " ] || fail "async, $transport: exit $codes: $(cat "$dir"/err?)"
    jq -e '.transport == "shm" and .faults == []' "$dir/out0" >/dev/null || fail "async, $transport: $(cat "$dir/out0")"
done
together="0 1 2" # the same bits as in one namespace
start 3 softmax --steps 30 --transport shm
finish
sums+=("$(jq -r .params_sha256 "$dir/out0")")
[ "${sums[0]}${sums[0]}" = "${sums[1]}${sums[2]}" ] || fail "the parameters differ: ${sums[*]}"

# replicas SIGNAL TRANSPORT: two workers, a server (rank 2) and its standby (rank 3). The server gets a signal while it
# serves. Sets $server to the state of its process when all others have ended: T is stopped, "" is ended.
replicas() {
    local i pid
    start 4 softmax --mode async --replicas 2 --dedicated-servers --batch 50 --steps 12000 --transport "$2" \
        --checkpoint "$dir/keep" --checkpoint-every 500
    for ((i = 0; i < 1200; i++)); do # the first checkpoint shows that the server serves
        [ -n "$(find "$dir/keep" -name 'checkpoint-*.vbc' 2>/dev/null)" ] && break
        sleep 0.05
    done
    pid=$(rank_pid 2)
    kill "-$1" "$pid" || fail "$1, $2: the server has ended early: $(cat "$dir"/err?)"
    codes=
    for i in 0 1 3; do
        wait "${pids[$i]}"
        codes+="$? "
    done
    server=$(ps -o state= -p "$pid" | tr -d 'Z ')
    kill -KILL "$pid" 2>/dev/null
    wait "${pids[2]}"
}
goes_on() { # goes_on WHAT: the workers and the standby have ended well
    [ "$codes" = "0 0 0 " ] || fail "$1: exit $codes: $(cat "$dir"/err?)"
    jq -e '.steps == 12000 and any(.faults[]; .rank == 2 and (.why | test("its standby on rank 3 goes on")))' \
        "$dir/out0" >/dev/null || fail "$1: $(cat "$dir"/out? "$dir"/err?)"
}

together=
replicas KILL auto
goes_on "the server is killed"
[ "$part" = quick ] && exit $bad

replicas STOP tcp
goes_on "the server is stopped, no memory is shared"
[ "$server" = T ] || fail "the server is stopped, no memory is shared: somebody killed it"

together=3 # from the namespace above, the standby can kill the server
replicas STOP auto
goes_on "the server is stopped, and the standby can kill it"
[ "$server" = "" ] || fail "the server is stopped, and the standby can kill it: its state is $server"

together= # it may still write, and nobody can kill it
replicas STOP auto
[ "$server" = T ] || fail "the server is stopped, and nobody can kill it: its state is $server"
[[ "$codes" != *0* ]] || fail "the server is stopped, and nobody can kill it: exit $codes: $(cat "$dir"/err?)"
grep -q "rank 2 .* is silent and cannot be killed, so it may still write .* in one PID namespace" "$dir/err3" ||
    fail "the server is stopped, and nobody can kill it: the reason is missing: $(cat "$dir"/err?)"

[ $bad = 0 ] && echo "all tests passed: each rank is process 1 of a PID namespace"
exit $bad
