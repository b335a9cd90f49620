#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Provokes the errors that users meet in their first hour: first_hour.sh VERBENA local|hosts. Each case has the expected
# exit code, what the error must say, and the command that it must propose. "hosts" are errors between hosts, which are
# network namespaces with an sshd each; "local" are all others.
#
# Covers: base/log.c cli/gnuplot.c data/guess.c doctor/doctor_host.c doctor/doctor_same.c
# Covers: doctor/facts_host.c cli/doctor/doctor_print.c launch/supervise/remedy.c net/control/root.c
# shellcheck disable=SC2016,SC2317
set -uo pipefail
verbena=$(realpath "$1")
part=$2
support=$(realpath "$(dirname "$0")/../support")
dir=$(mktemp -d)
bad=0
n_cases=0
unset "${!VB_@}"
export TMPDIR=$dir XDG_CACHE_HOME=$dir/cache
small=(--data synth:200 --steps 3)

fail() {
    echo "FAIL: $*"
    bad=1
}

# the_case NAME CODE WHAT FIX COMMAND...: runs the command, which must exit with CODE (-: any) and print a line that
# matches WHAT and a line of help that matches FIX (-: none is expected). No message has more than two lines of help.
the_case() {
    local name=$1 want=$2 what=$3 fix=$4 code out
    shift 4
    n_cases=$((n_cases + 1))
    timeout 50 "$@" >"$dir/out" 2>&1 </dev/null
    code=$?
    if [ $code = 77 ]; then
        echo "skipped: $name: $(head -n 1 "$dir/out")"
        return
    fi
    out=$(cat "$dir/out")
    [ "$want" = - ] || [ $code = "$want" ] || fail "$name: exit $code, expected $want: $out"
    grep -qE -e "$what" "$dir/out" || fail "$name: no line matches '$what': $out"
    [ "$fix" = - ] || grep -E '(fix|cores): ' "$dir/out" | grep -qE -e "$fix" || fail "$name: no help matches '$fix': $out"
    awk -F '  fix: ' 'NF > 1 { if (++n[$1] > 2) exit 1; next } { split("", n) }' "$dir/out" ||
        fail "$name: more than two lines of help: $out"
}

# skip NAME WHY
skip() {
    echo "skipped: $1: $2"
}

# ---- on one host --------------------------------------------------------------------------------

private=(unshare --mount sh -c) # before a script of sh and its arguments: runs it with its own mounts

local_cases() {
    local mine=(setpriv --reuid 65534 --regid 65534 --clear-groups) lib port=7399 listener

    the_case 'no RDMA device' 1 'has no RDMA device, which --transport verbs needs' '--transport tcp' \
        "$verbena" train softmax "${small[@]}" --ranks 2 --transport verbs
    the_case 'memlock too small' - 'memlock .*limited to 64 KiB .* RDMA registers at least' 'limits.d.*log in again' \
        prlimit --memlock=65536:65536 "${mine[@]}" "$verbena" doctor

    python3 -c "import socket, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', $port))
s.listen()
open('$dir/listens', 'w')
time.sleep(60)" &
    listener=$!
    for _ in $(seq 100); do
        [ -e "$dir/listens" ] || sleep 0.05
    done
    (umask 077 && head -c 32 /dev/urandom >"$dir/key" && head -c 32 /dev/urandom >"$dir/other")
    the_case 'port in use' 1 "cannot listen on 127.0.0.1:$port .*: Address already in use" "ss -ltnp 'sport = :$port'" \
        "$verbena" train softmax "${small[@]}" --rank 0 --world 2 --root 127.0.0.1:$port --secret-file "$dir/key"
    kill "$listener"

    timeout 20 "$verbena" train softmax "${small[@]}" --rank 0 --world 2 --root 127.0.0.1:7398 --secret-file "$dir/key" \
        --timeout 3 >"$dir/out0" 2>&1 &
    the_case 'wrong secret' 1 'refused this rank: the secrets differ' 'sha256sum FILE' "$verbena" train softmax \
        "${small[@]}" --rank 1 --world 2 --root 127.0.0.1:7398 --secret-file "$dir/other" --timeout 3
    wait $!
    grep -q 'gave up waiting for missing ranks: 1 (refused: the secrets differ' "$dir/out0" ||
        fail "wrong secret, rank 0: $(cat "$dir/out0")"

    the_case 'missing data file' 1 '/none: the folder has no file train-images' 'ls -l /none .*docs/data.md' \
        "$verbena" train softmax --data mnist:/none
    "$verbena" data synth criteo "$dir/day_0" --n 1000 >/dev/null || fail "data synth failed"
    the_case 'wrong format' 1 "day_0: line 1: .* 'VBCSR'" "csr:$dir/day_0 .*looks like" \
        "$verbena" train sparse-lr --data "criteo:$dir/day_0"
    the_case 'unknown format' 2 'unknown data format; use synth\[:N\], mnist:DIR' - "$verbena" train softmax --data /none

    the_case 'too few cores' 0 'cores: .*4 compute threads \(4 x 1\) for 1 cpu' 'use --ranks 1, or more hosts' \
        taskset -c 0 "$verbena" train softmax "${small[@]}" --batch 20 --ranks 4
    the_case 'too many threads' 0 'cores: .*8 compute threads \(1 x 8\) for 1 cpu' 'use --threads 1$' \
        taskset -c 0 "$verbena" train softmax "${small[@]}" --threads 8

    mkdir "$dir/locked" && chmod 755 "$dir" "$dir/locked"
    the_case 'unwritable folder' 1 "cannot create the folder $dir/locked/a/b: Permission denied" \
        "ls -ld $dir/locked .*user 65534 may not write" \
        "${mine[@]}" "$verbena" train softmax "${small[@]}" --run "$dir/locked/a/b"

    the_case 'old kernel' 1 'memfd_create .*: Function not implemented' 'uname -r .*Linux 5.3' \
        "$support/without_calls.py" memfd_create "$verbena" train softmax "${small[@]}" --ranks 2
    the_case 'old kernel, doctor' 0 'WARN  kernel  .* has no pidfd_open, or a sandbox forbids it' 'full-upgrade' \
        "$support/without_calls.py" pidfd_open "$verbena" doctor

    mkdir "$dir/bin"
    the_case 'no ssh' 1 'host a cannot be reached: there is no such ssh command' 'apt install openssh-client' \
        env PATH="$dir/bin" "$verbena" train softmax --hosts a,b
    the_case 'no gnuplot' 1 '--plot needs gnuplot, which is not installed: run apt-get install gnuplot-nox' - \
        env PATH="$dir/bin" "$verbena" bench step --model softmax --ranks 2 --batches 5 --seconds 0.01 --plot "$dir/x.png"

    if [ "$(id -u)" != 0 ] || ! "${private[@]}" 'mount -t tmpfs tmpfs /mnt' 2>"$dir/err"; then
        skip 'no space left, missing library, name is loopback' "needs mounts: $(cat "$dir/err" 2>/dev/null)"
        return
    fi
    the_case 'no space left' 0 'cannot write /mnt/checkpoint-3.vbc at offset .*: No space left on device' 'df -h' \
        "${private[@]}" 'mount -t tmpfs -o size=64k tmpfs /mnt && exec "$@"' sh \
        "$verbena" train mlp "${small[@]}" --checkpoint /mnt
    the_case 'no space left, strict' 1 'cannot write /mnt/checkpoint-3.vbc at offset .*: No space left on device' 'df -h' \
        "${private[@]}" 'mount -t tmpfs -o size=64k tmpfs /mnt && exec "$@"' sh \
        "$verbena" train mlp "${small[@]}" --checkpoint /mnt --checkpoint-strict
    the_case 'no space for records' 0 'cannot write .*: No space left on device; training goes on' 'df -h /mnt' \
        "${private[@]}" 'mount -t tmpfs -o size=64k tmpfs /mnt && exec "$@"' sh \
        "$verbena" train softmax "${small[@]}" --run /mnt/run
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$dir/hosts"
    the_case 'name is loopback' - "name .*$(hostname) is 127.0.1.1, which no other host can reach" - \
        "${private[@]}" 'mount --bind "$1" /etc/hosts && shift && exec "$@"' sh "$dir/hosts" "$verbena" doctor

    lib=$(ldconfig -p 2>/dev/null | awk '/libopenblas.so.0/ { print $NF; exit }')
    if [ -n "$lib" ]; then
        : >"$dir/empty"
        the_case 'missing library' 0 'OpenBLAS cannot be used, so slower kernels may compute' 'apt install libopenblas0' \
            "${private[@]}" 'mount --bind "$1" "$(readlink -f "$2")" && shift 2 && exec "$@"' sh "$dir/empty" "$lib" \
            "$verbena" train lenet --data synth:100 --steps 2
    else
        skip 'missing library' 'OpenBLAS is not known to the loader'
    fi
}

# ---- between hosts -------------------------------------------------------------------------------

names=()
pids=()
hub=vb-first-$$

cleanup() {
    local pid ns
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null
    done
    if [ "$part" = hosts ]; then
        for ns in "${names[@]}" "$hub"; do
            ip netns pids "$ns" 2>/dev/null | xargs -r kill -KILL 2>/dev/null
            ip netns del "$ns" 2>/dev/null
        done
    fi
    rm -rf "$dir"
}
trap cleanup EXIT

# shellcheck source=tests/support/host_pair.sh
. "$support/host_pair.sh"

# host K SETUP PREFIX...: makes a namespace with the address 10.98.0.K, the name host-K and an sshd. SETUP is a command
# that changes its mounts; PREFIX starts sshd.
host() {
    local k=$1 setup=$2 ns=vb-f$1-$$
    shift 2
    names+=("$ns")
    add_host "$ns" "$hub" "$k"
    ip netns exec "$ns" unshare --uts --mount sh -c '
        hostname "$1" && mount -t tmpfs tmpfs /run && mkdir /run/sshd || exit 1
        eval "$2"
        shift 2
        exec "$@"' sh "host-$k" "$setup" "$@" /usr/sbin/sshd -D -e -f /dev/null \
        -o "HostKey=$dir/hostkey" -o "AuthorizedKeysFile=$dir/user.pub" -o StrictModes=no \
        -o PermitRootLogin=yes -o PasswordAuthentication=no -o UsePAM=no -o PidFile=none \
        "${sshd_options[@]}" 2>"$dir/sshd$k" &
    pids+=($!)
}

reach() { # reach K: waits until the sshd of host K answers
    local i
    for ((i = 0; i < 150; i++)); do
        # shellcheck disable=SC2086
        ip netns exec "$hub" $VB_SSH "10.98.0.$1" true 2>"$dir/err" && return
        sleep 0.1
    done
    echo "skipped: cannot run sshd in a namespace: $(cat "$dir/err" "$dir/sshd$1")"
    exit 77
}

# Host 2 has Debian's line in its file of hosts. Host 3 has another kind of cpu, a clock that is off, and little memory
# that may be locked.
make_lab() {
    local need
    for need in ip ssh ssh-keygen /usr/sbin/sshd unshare; do
        if [ "$(id -u)" != 0 ] || ! command -v $need >/dev/null; then
            echo "skipped: needs root, ip, ssh and sshd (openssh-server): no $need"
            exit 77
        fi
    done
    need_namespaces
    make_switch "$hub"
    ip -n "$hub" link set lo up
    ip -n "$hub" addr add 10.98.0.254/24 dev br0
    ssh-keygen -q -t ed25519 -N '' -f "$dir/user"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/stranger"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/hostkey"
    printf '127.0.0.1 localhost\n127.0.1.1 host-1 host-2\n' >"$dir/hosts"
    printf 'processor\t: 0\nmodel name\t: Test CPU 9000\nCPU implementer\t: 0x61\nCPU part\t: 0x123\n\n' >"$dir/cpuinfo"
    sshd_options=()
    host 1 : env
    host 2 "mount --bind $dir/hosts /etc/hosts" env
    [ -z "$clock" ] || sshd_options=(-o "SetEnv=LD_PRELOAD=$clock")
    host 3 "mount --bind $dir/cpuinfo /proc/cpuinfo" prlimit --memlock=65536:65536 setpriv --bounding-set=-ipc_lock
    ssh=(ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -o LogLevel=ERROR -o ConnectTimeout=12)
    VB_SSH="${ssh[*]} -i $dir/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=$dir/known"
    export VB_SSH
    reach 1
    reach 2
    reach 3
}

both() { # both NAME WHAT FIX OPTIONS...: a training and doctor must fail in the same way, with exit code 1
    local name=$1 what=$2 fix=$3 training
    shift 3
    timeout 50 ip netns exec "$hub" "$verbena" train softmax "${small[@]}" "$@" >"$dir/train" 2>&1 </dev/null &
    training=$!
    the_case "$name, doctor" 1 "$what" "$fix" ip netns exec "$hub" "$verbena" doctor "$@"
    wait $training
    the_case "$name" 1 "$what" "$fix" sh -c 'cat "$1"; exit "$2"' sh "$dir/train" $?
}

hosts_cases() {
    local on_hub=(ip netns exec "$hub") two=10.98.0.1,10.98.0.2 own=$VB_SSH listener

    both 'no RDMA device' 'has no RDMA device, which --transport verbs needs' '--transport tcp' \
        --hosts $two --transport verbs
    both 'host unreachable' 'host 10.98.0.9 cannot be reached: it is down' 'ping -c 3 10.98.0.9' \
        --hosts 10.98.0.1,10.98.0.9
    both 'unknown name' 'host no-such-host cannot be reached: this host knows no address' 'getent hosts no-such-host' \
        --hosts 10.98.0.1,no-such-host
    VB_SSH="${ssh[*]} -i $dir/stranger -o StrictHostKeyChecking=no -o UserKnownHostsFile=$dir/known"
    both 'ssh asks for a password' 'host 10.98.0.1 cannot be reached: ssh would ask for a password' \
        'ssh-copy-id 10.98.0.1' --hosts 10.98.0.1,10.98.0.2
    VB_SSH="${ssh[*]} -i $dir/user -o UserKnownHostsFile=$dir/none"
    both 'host key unknown' 'host 10.98.0.2 cannot be reached: its host key is not in known_hosts' \
        'ssh-keyscan -H 10.98.0.2 >>~/.ssh/known_hosts' --hosts $two
    VB_SSH=$own
    ip netns exec "${names[0]}" python3 -m http.server 7397 >"$dir/web" 2>&1 &
    listener=$!
    pids+=("$listener")
    for _ in $(seq 100); do
        ip netns exec "${names[0]}" ss -ltn | grep -q :7397 && break
        sleep 0.05
    done
    both 'port in use' 'rank 0\] error .*cannot listen on 0.0.0.0:7397' "ss -ltnp 'sport = :7397'" \
        --hosts $two --root 10.98.0.1:7397
    kill "$listener"
    (umask 077 && head -c 32 /dev/urandom >"$dir/key" && head -c 32 /dev/urandom >"$dir/other")
    ip netns exec "${names[0]}" timeout 20 "$verbena" doctor --rank 0 --world 2 --root 10.98.0.1:7396 \
        --secret-file "$dir/key" --timeout 3 >"$dir/out0" 2>&1 &
    the_case 'wrong secret, doctor' 1 'refused this rank: the secrets differ' 'sha256sum FILE' ip netns exec "${names[1]}" \
        "$verbena" doctor --rank 1 --world 2 --root 10.98.0.1:7396 --secret-file "$dir/other" --timeout 3
    wait $!

    # No packet of host 1 reaches host 2, so no answer does.
    ip -n "${names[0]}" route add blackhole 10.98.0.2
    both 'firewall in one direction' 'rank 1\] error .*connect 10.98.0.1:[0-9]+: Connection timed out' \
        'ping -c 3 10.98.0.1 .*firewall' --hosts $two --timeout 3
    grep -q 'gave up waiting for missing ranks: 1 (never seen)' "$dir/out" || fail "firewall: $(cat "$dir/out")"
    ip -n "${names[0]}" route del blackhole 10.98.0.2

    cp "$verbena" "$dir/copy" && echo >>"$dir/copy"
    both 'different versions' 'is not the program that runs on this host .*another version' \
        "scp $verbena 10.98.0.[12]:$dir/copy" --hosts $two --program "$dir/copy"
    the_case 'no program' 1 'there is no program /none/verbena; the program is missing there' \
        'scp /none/verbena 10.98.0.1:/none/verbena' "${on_hub[@]}" "$verbena" doctor --hosts $two --program /none/verbena

    # A rank on host 2 looks for host 1 by its name, which is its own there.
    # shellcheck disable=SC2086
    the_case 'name is loopback' 1 'connect .*:7395: Connection refused' 'getent hosts host-1 .*the host itself' \
        "${on_hub[@]}" $VB_SSH 10.98.0.2 "cd /; '$verbena' train softmax ${small[*]} --rank 1 --world 2 --timeout 2 \
            --root host-1:7395 --secret-file '$dir/key'"
    the_case 'root of another host' 1 '--root 10.98.0.2:7394 is not an address of this host' '--root 10.98.0.1:7394' \
        ip netns exec "${names[0]}" "$verbena" train softmax "${small[@]}" --rank 0 --world 2 --timeout 2 \
        --root 10.98.0.2:7394 --secret-file "$dir/key"

    the_case 'name is loopback, doctor' 0 'WARN  name .*host-2 is 127.0.1.1, which no other host can reach' \
        "sudo sed -i 's/.127.0.1.1/10.98.0.2/' /etc/hosts" "${on_hub[@]}" "$verbena" doctor --hosts $two,10.98.0.3
    cp "$dir/out" "$dir/all"
    # what the same run has found besides
    found() {
        the_case "$1, doctor" 0 "$2" "$3" cat "$dir/all"
    }
    found 'no RDMA device' 'WARN  rdma .*no RDMA device: ranks on different hosts use TCP' -
    found 'memlock too small' 'WARN  memlock .*limited to 64 KiB' 'limits.d.*log in again'
    found 'different CPU kinds' 'WARN  cpus .*host-3 .*another kind of cpu than host-1' 'leave these hosts out'
    if [ -n "$clock" ]; then
        found 'clock far off' 'WARN  clocks .*host-3 \(\+3600 s\): the time of day differs from that of host-1' 'set-ntp'
    else
        skip 'clock far off' 'there is no C compiler'
    fi
}

if [ "$part" = hosts ]; then
    clock=$dir/clock.so
    "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o "$clock" "$support/clock_off.c" 2>"$dir/err" || clock=
    make_lab
    hosts_cases
else
    local_cases
fi
[ $bad = 0 ] && echo "all tests passed: $n_cases errors of the first hour ($part)"
exit $bad
