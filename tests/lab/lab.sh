#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the lab: lab.sh VERBENA. It starts two nodes, runs programs on them, ends them in several ways, and checks that
# nothing is left behind. Longer tests are in lab_nightly.sh.
#
# Covers: lab/agent.c lab/cluster.c lab/job.c lab/node.c lab/options.c lab/output.c
# Covers: lab/queue.c lab/setup.c lab/switch.c
# shellcheck disable=SC2016
set -euo pipefail
verbena=$(realpath "$1")
cd "$(dirname "$0")/../.."

# shellcheck source=tests/support/lab_test.sh
. tests/support/lab_test.sh

# --- wrong usage is reported, and no node is started ---------------------------------------------

expect 2 '--nodes 0: must be a number from 1 to 32' lab/run --nodes 0 -- true
expect 2 '--loss x: must be a number' lab/run --loss x -- true
expect 2 'there is no node 2' lab/run --kill 2@1 -- true
expect 2 'must be NODE@SECONDS' lab/run --cut 1 -- true
expect 2 '--bogus: no such option' lab/run --bogus 1 -- true
expect 2 'no program is given' lab/run --nodes 1
expect 2 'no such folder' lab/run --share "$work/none" -- true
expect 125 'no such program' lab/run -- "$work/none"
expect 69 'too little memory' lab/run --nodes 32 --mem 1048576 -- true
expect 125 'needs --mem' lab/run --mem 256 --with "$work/big" -- true
expect 125 'no such file' lab/run --kernel "$work/none.deb" -- true

# --- a node that does not come up, and a job that exceeds its time limit -------------------------

qemu="qemu-system-$(uname -m)"
mkdir "$work/bin"
printf '#!/bin/sh\necho this is not qemu >&2\nexit 1\n' >"$work/bin/$qemu"
chmod +x "$work/bin/$qemu"
PATH=$work/bin:$PATH expect 125 'console\] this is not qemu' lab/run -- true
grep -q 'node[01] did not come up' "$work/err" || fail "lab/run does not say that a node did not come up"
expect 124 'the job did not end within 2 s' lab/run --timeout 2 -- true

# --- the environment of ranks, the output of rank 0 byte for byte, and the shared folder ---------

mkdir "$work/a shared, folder"
share=$work/a\ shared,\ folder
head -c 3000000 /dev/urandom >"$share/data"
cat >"$share/rank.sh" <<'END'
set -e
[ "$1" = "$VB_RANK" ] && [ "$2" = "--world=$VB_WORLD" ] && [ "$3" = "$VB_ROOT" ]
[ "$4" = "$VB_SECRET_FILE" ] && [ "$5" = "{other}" ] && [ "$NOTE" = "two words" ] && [ "$VB_PATIENCE" = 3 ]
[ "$(stat -c '%a %s' "$VB_SECRET_FILE")" = "600 32" ]
[ "$(ulimit -l)" = unlimited ] && [ -z "$(cat)" ] && [ "$(hostname)" = "node$VB_NODE" ]
[ $(($(date +%s) - $(stat -c %Y data))) -lt 600 ]
ping -c 1 -W 5 node1 >/dev/null
sha256sum <"$VB_SECRET_FILE" >"secret$VB_RANK"
echo "rank $VB_RANK of $VB_WORLD" >&2
cat data
END
(cd "$share" && "$OLDPWD/lab/run" --nodes 2 --per-node 2 --share . --env "NOTE=two words" --env VB_PATIENCE=3 -- \
    sh "$share/rank.sh" '{rank}' '--world={world}' '{root}' '{secret}' '{other}') \
    >"$work/out" 2>"$work/err" || fail "ranks: status $?"
cmp "$work/out" "$share/data" || fail "rank 0's output differs from what it wrote"
for text in '[node0 rank0] rank 0 of 4' '[node1 rank3] rank 3 of 4'; do
    grep -qF "$text" "$work/err" || fail "$text is missing"
done
[ "$(sort -u "$share"/secret[0-3] | wc -l)" = 1 ] || fail "the secrets of the ranks differ"
nothing_left ranks

# --- RDMA between two nodes ----------------------------------------------------------------------

expect 0 'node1\].*state:.*PORT_ACTIVE' lab/run --each --with ibv_devinfo --with rping \
    --with ib_write_bw -- sh -ec '
        ibv_devinfo
        [ "$(echo $VB_NODES | wc -w)" = 2 ]
        if [ "$VB_NODE" = 0 ]; then
            rping -s -a 10.77.0.1 -C 20
            ib_write_bw -R -F -n 50 -s 16384 >/dev/null
        else
            again() { for i in 1 2 3 4 5; do "$@" && return; sleep 1; done; return 1; }
            again rping -c -a 10.77.0.1 -C 20
            again ib_write_bw -R -F -n 50 -s 16384 node0
        fi'
grep -q PORT_ACTIVE "$work/out" || fail "node0 has no active port"
grep -qE '^\[node1\]  16384 +50 ' "$work/err" || fail "ib_write_bw has no result"

# --- our own job: one rank on each node, over TCP ------------------------------------------------

expect 0 '' lab/run -- "$verbena" train softmax --transport tcp --data synth:2000 --epochs 1 --json
tail -n 1 "$work/out" | jq -e '.ranks == 2 and .transport == "tcp" and .accuracy > 0.5 and
    [.per_rank[].host] == ["node0", "node1"]' >/dev/null || fail "train: $(cat "$work/out")"

# --- a cable is unplugged, then a node is powered off; the exit status is the one of the job ------

expect 5 'node1 is powered off' lab/run --cut 1@1:2 --kill 1@8 -- sh -c '
    if [ "$VB_RANK" = 1 ]; then
        carrier=/sys/class/net/eth0/carrier
        while [ "$(cat $carrier)" = 1 ]; do sleep 0.1; done
        while [ "$(cat $carrier)" = 0 ]; do sleep 0.1; done
        echo "the cable was out and is in again"
        sleep 300
        exit 9
    fi
    sleep 5
    ping -c 1 -W 5 node1 || exit 1
    while ping -c 1 -W 2 node1; do sleep 0.2; done
    exit 5'
grep -qF '[node1] the cable was out' "$work/err" || fail "node1 did not see that its link was cut"

# --- Ctrl-C, and SIGKILL, which leaves no chance to clean up --------------------------------------

for signal in INT KILL; do
    start lab/run --each --verbose -- sleep 300
    wait_for_text 'node1 is up'
    wait_for_text 'node0 is up'
    [ "$(ours | wc -l)" = 3 ] || fail "the test does not see its own machines: $(ours)"
    kill -s "$signal" "$pid"
    status=0
    { wait "$pid" || status=$?; } 2>/dev/null
    pid=
    [ "$status" = "$((128 + $(kill -l "$signal")))" ] || fail "SIG$signal: status $status"
    nothing_left "SIG$signal"
done
echo "ok: the lab"
