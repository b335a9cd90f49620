#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests what the supervisor says about the rank that ended a job: job_ends.sh VERBENA
#
# Covers: launch/supervise/oom.c launch/supervise/supervise_cause.c launch/supervise/supervise_deaths.c net/control/rendezvous.c
set -uo pipefail
verbena=$(realpath "$1")
dir=$(mktemp -d)
bad=0
group= # a cgroup that this test has made
unset "${!VB_@}"
export TMPDIR=$dir

# shellcheck disable=SC2317 # the trap calls it
cleanup() {
    [ -z "$group" ] || rmdir "$group"
    rm -rf "$dir"
}
trap cleanup EXIT

# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"

ours() {
    with_folder
}

# start RANKS OPTIONS...: starts a long training in the background, sets pid, and returns when all ranks make steps
start() {
    local i ranks=$1
    shift
    rm -rf "$dir/steps"
    "$verbena" train softmax --data synth:1000 --steps 100000000 --global-batch 60 --ranks "$ranks" --elastic off \
        --checkpoint "$dir/steps" --checkpoint-every 20 "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    for ((i = 0; i < 1500; i++)); do
        ! compgen -G "$dir/steps/checkpoint-*.vbc" >/dev/null || return
        sleep 0.02
    done
    fail "no steps were made: $(cat "$dir/err")"
}

# rank_pid RANK: prints the process id of a rank; ranks are started in order
rank_pid() {
    by_age | grep -vx "$pid" | sed -n "$(($1 + 1))p"
}

# A rank that is stopped is silent, so all others end before it. The last line names it, and no other rank.
for transport in shm tcp; do
    start 3 --transport $transport
    victim=$(rank_pid 1)
    kill -STOP "$victim"
    ends "rank 1 stopped"
    [[ $(tail -n 1 "$dir/err") == *"rank 1 (pid $victim) is stopped: "*", says rank "[02] ]] ||
        fail "rank 1 stopped, $transport: the last line is '$(tail -n 1 "$dir/err")' of $(cat "$dir/err")"
    ! grep -q 'supervise.*rank [02] failed' "$dir/err" || fail "rank 1 stopped, $transport: $(cat "$dir/err")"
done

# A rank that is killed is named, not those that lost it, and memory is not mentioned.
start 3
kill -KILL "$(rank_pid 2)"
ends "rank 2 killed"
grep -q 'supervise: rank 2 died: signal 9 (Killed)$' "$dir/err" || fail "rank 2 killed: $(cat "$dir/err")"
[ "$(grep -c 'launch/supervise' "$dir/err")" = 1 ] || fail "rank 2 killed: $(cat "$dir/err")"

# A cgroup with too little memory: the message says so.
memory=/sys/fs/cgroup
[ -d $memory/memory ] && memory=$memory/memory
limit=memory.max
[ -f $memory/cgroup.controllers ] || limit=memory.limit_in_bytes
if [ "$(id -u)" = 0 ] && mkdir "$memory/verbena-test-$$" 2>/dev/null; then
    group=$memory/verbena-test-$$
fi
if [ -n "$group" ] && echo 60000000 2>/dev/null >"$group/$limit"; then
    # shellcheck disable=SC2016 # the inner shell expands the variables
    timeout 60 sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$verbena" train mlp \
        --data synth:20000 --ranks 3 --steps 1000 >"$dir/out" 2>"$dir/err"
    # the kernel rounds the limit to pages
    grep -q "rank [012] died: signal 9 (Killed): memory ran out (limit: 59 MB of cgroup .*verbena-test-$$)" "$dir/err" ||
        fail "memory ran out: $(cat "$dir/err")"
    nothing_left "memory ran out"
else
    echo "skipped, because no cgroup can be made: memory that runs out"
fi

# A user who may have only few threads: whichever thread of an asynchronous job cannot start, nobody waits for it. Two
# other processes of this user are there, so that the job cannot see beforehand that it does not fit.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$dir"
    cp "$verbena" "$dir/verbena"
    mkdir "$dir/home"
    user=$((60000 + $$ % 5000))
    chown $user "$dir/home"
    as_user=(setpriv "--reuid=$user" --clear-groups env "HOME=$dir/home" "XDG_CACHE_HOME=$dir/home")
    "${as_user[@]}" sleep 100 &
    sleepers=$!
    "${as_user[@]}" sleep 100 &
    sleepers+=" $!"
    few=0
    for most in 10 11 12 13; do
        timeout 30 "${as_user[@]}" prlimit --nproc=$most "$dir/verbena" train softmax --data synth:300 --batch 50 \
            --steps 20 --mode async --ranks 2 --replicas 2 --threads 1 >"$dir/out" 2>"$dir/err" </dev/null
        [ $? != 124 ] || fail "$most threads: the job waits: $(cat "$dir/err")"
        ! grep -q 'cannot start the .*(ulimit -u allows more): Resource temporarily' "$dir/err" || few=$((few + 1))
    done
    [ $few -gt 0 ] || fail "no limit of threads was too low"
    # shellcheck disable=SC2086
    kill $sleepers
else
    echo "skipped, because there is no other user: too few threads"
fi

[ $bad = 0 ] && echo "all tests passed: the rank that ended the job is named"
exit $bad
