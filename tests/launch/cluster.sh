#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests scripts/cluster.sh and cloudlab/startup.sh on three hosts: cluster.sh VERBENA [quick|build]. The hosts are network
# namespaces with an sshd each. Each has its own /mnt, /root, /etc/hosts and /etc/passwd, so nothing that a host gets is
# seen by another one. "quick" leaves out most failures. "build" also lets a host and a node build the program, which takes
# minutes.
# shellcheck disable=SC2016,SC2031,SC2317
set -uo pipefail
verbena=$(realpath "$1")
top=$(realpath "$(dirname "$0")/../..")

for need in ip ssh ssh-keygen /usr/sbin/sshd unshare nsenter script; do
    if [ "$(id -u)" != 0 ] || ! command -v $need >/dev/null; then
        echo "skipped: needs root, ip, ssh and sshd (openssh-server): no $need"
        exit 77
    fi
done
dir=$(mktemp -d)
chmod 755 "$dir"
hub=vb-hub-$$
bad=0
names=()
pids=()
unset "${!VB_@}"

cleanup() {
    local pid ns
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null
    done
    for ns in "${names[@]}" "$hub"; do
        ip netns pids "$ns" 2>/dev/null | xargs -r kill -KILL 2>/dev/null
        ip netns del "$ns" 2>/dev/null
    done
    rm -rf "$dir"
}
trap cleanup EXIT

# shellcheck source=tests/support/launch_test.sh
. "$top/tests/support/launch_test.sh"
# shellcheck source=tests/support/host_pair.sh
. "$top/tests/support/host_pair.sh"

# ---- the hosts -------------------------------------------------------------------------------------

need_namespaces
make_switch "$hub"
ip -n "$hub" link set lo up
ip -n "$hub" addr add 10.98.0.254/24 dev br0
for key in key hostkey experiment; do
    ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"
done
printf '127.0.0.1 localhost\n10.98.0.1 node0\n10.98.0.2 node1\n10.98.0.3 node2\n' >"$dir/hosts"
{ cat /etc/passwd && echo 'student:*:4242:4242::/mnt/student:/bin/sh'; } >"$dir/passwd"
printf 'NAME=Other\nID=other\nVERSION_ID=1\nPRETTY_NAME="Other 1"\n' >"$dir/other-release"
: >"$dir/broken-library"
library=$(ldd "$verbena" | sed -n 's/.*libjansson[^ ]* => \([^ ]*\).*/\1/p')

# host K: makes a namespace with the address 10.98.0.K, the host name node(K - 1) and an sshd
host() {
    local k=$1 ns=vb-$1-$$
    names+=("$ns")
    add_host "$ns" "$hub" "$k"
    cp "$dir/key.pub" "$dir/keys$k"
    ip netns exec "$ns" unshare --uts --mount sh -c '
        hostname "$1" && cd "$2" || exit 1
        for folder in /run /mnt /root /etc/security/limits.d; do
            mount -t tmpfs -o mode=755 tmpfs $folder || exit 1
        done
        mkdir /run/sshd /mnt/student /mnt/full && chown 4242:4242 /mnt/student && mount -t tmpfs -o ro tmpfs /mnt/full &&
            mount --bind hosts /etc/hosts && mount --bind passwd /etc/passwd || exit 1
        shift 2
        exec /usr/sbin/sshd -D -e "$@"' sh "node$((k - 1))" "$dir" -f /dev/null \
        -o "HostKey=$dir/hostkey" -o "AuthorizedKeysFile=$dir/keys$k .ssh/authorized_keys" -o StrictModes=no \
        -o PermitRootLogin=yes -o PasswordAuthentication=no -o UsePAM=no -o PidFile=none -o MaxStartups=50 2>"$dir/sshd$k" &
    pids+=($!)
}

# inside K COMMAND...: runs a command on host K, as if someone had logged in there
inside() {
    local pid=${pids[$1 - 1]}
    shift
    nsenter -t "$pid" -n -m -u env -i HOME=/root PATH="$dir/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$@"
}

ours() { # prints the commands of all processes on the hosts, except sshd
    local ns pid
    for ns in "${names[@]}"; do
        for pid in $(ip netns pids "$ns"); do
            { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -v '^/usr/sbin/sshd\|^sshd:'
        done
    done
}

host 1
host 2
host 3
VB_SSH="ssh -F none -i $dir/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=$dir/known"
export VB_SSH="$VB_SSH -o ConnectTimeout=12"
for k in 1 2 3; do
    for ((i = 0; i < 150; i++)); do
        # shellcheck disable=SC2086
        ip netns exec "$hub" $VB_SSH "10.98.0.$k" true 2>"$dir/err" && continue 2
        sleep 0.1
    done
    echo "skipped: cannot run sshd in a namespace: $(cat "$dir/err" "$dir/sshd$k")"
    exit 77
done
three=10.98.0.1,10.98.0.2,10.98.0.3
export VERBENA=$verbena VB_CLUSTER_SIZES=4,1M

# A second run copies and builds nothing unless a file of the tree has changed. So the test works with a copy, because
# someone may edit the tree in the meantime.
source=$dir/repository
mkdir "$source"
(cd "$top" && . scripts/cluster/install.sh && tree_files | xargs -0 cp --parents -t "$source" 2>/dev/null)

# cluster ARGUMENTS...: runs cluster.sh; its output is then in $dir/out and $text, its exit code in $code
cluster() {
    timeout "${limit:-300}" ip netns exec "$hub" "$source/scripts/cluster.sh" "$@" >"$dir/out" 2>&1 </dev/null
    code=$?
    text=$(cat "$dir/out")
    nothing_left "cluster.sh $*"
}

# expect CODE TEXT...: fails unless the last cluster.sh ended with CODE and printed all these texts
expect() {
    local want=$1 part
    shift
    [ "$code" = "$want" ] || fail "exit $code, expected $want: $text"
    for part in "$@"; do
        [[ $text == *"$part"* ]] || fail "the output does not contain '$part': $text"
    done
}

# expect_not TEXT...: fails if the last cluster.sh printed one of these texts
expect_not() {
    local part
    for part in "$@"; do
        [[ $text != *"$part"* ]] || fail "the output contains '$part': $text"
    done
}

# ---- one host has another key: the others become ready ---------------------------------------------

: >"$dir/keys3"
cluster $three --dir /mnt/v --out "$dir/page"
expect 1 'Partly ready: 2 of 3 hosts' '10.98.0.3: FAILED: ssh would ask for a password' 'type ssh-copy-id 10.98.0.3' \
    '10.98.0.1: the program was copied; ' 'checks OK' '10.98.0.2: copying the program' '1048576 bytes: ' 'all sums right' \
    'train softmax --hosts 10.98.0.1,10.98.0.2 --run /mnt/v/runs/first --program /mnt/v/verbena' "scripts/cluster.sh $three --dir /mnt/v"
inside 1 cmp /mnt/v/verbena "$verbena" || fail "host 1 has another program"
inside 3 test ! -e /mnt/v || fail "host 3 has a folder"
grep -q '<td class="failed">FAILED<td><td>ssh would ask for a password' "$dir/page/ready.html" || fail "the page does not name the host"
! grep -qE '(src|href)=|https?://' "$dir/page/ready.html" || fail "the page refers to others"

# ---- the second run does only what is missing, the third nothing ------------------------------------

cp "$dir/key.pub" "$dir/keys3"
cluster $three --dir /mnt/v --out "$dir/page"
expect 0 'Ready: all 3 hosts' '10.98.0.1: the program was there' "10.98.0.3: the program was copied" "doctor --transport auto --hosts $three"
expect_not '10.98.0.1: copying' 'To fix' FAILED
before=$(stat -c %Y.%i "$dir/page/doctor.txt" "$dir/page/allreduce.txt")
cluster $three --dir /mnt/v --out "$dir/page"
expect 0 'Ready: all 3 hosts' '10.98.0.3: the program was there' 'done before with these hosts and this program'
expect_not copying 'verbena doctor' 'verbena bench'
[ "$(stat -c %Y.%i "$dir/page/doctor.txt" "$dir/page/allreduce.txt")" = "$before" ] || fail "the third run has measured again"

# ---- what it says to type next works: a run on three hosts, and its report ---------------------------

mapfile -t next < <(sed -n '/^Next:/,/^$/s/^  //p' "$dir/page/ready.txt")
[[ ${#next[@]} = 3 && ${next[0]} == *" train softmax --hosts $three "* && ${next[1]} == "ssh 10.98.0.1 "*" report "* ]] ||
    fail "what to type next: ${next[*]}"
timeout 100 ip netns exec "$hub" sh -c "${next[0]} --data synth:2000 --steps 50" >"$dir/out" 2>"$dir/err" ||
    fail "${next[0]}: exit $?: $(cat "$dir/err")"
timeout 100 ip netns exec "$hub" sh -c "$VB_SSH ${next[1]#ssh }" >"$dir/out" 2>"$dir/err" || fail "${next[1]}: $(cat "$dir/err")"
# shellcheck disable=SC2086
timeout 100 ip netns exec "$hub" $VB_SSH 10.98.0.1 cat /mnt/v/runs/first/report.html >"$dir/report.html" 2>"$dir/err" ||
    fail "there is no report: exit $?: $(cat "$dir/err")"
for k in 0 1 2; do
    grep -q "node$k" "$dir/report.html" || fail "the report of the run on three hosts does not name node$k"
done

# ---- other failures, each named ----------------------------------------------------------------------

other_failures() {
    cluster 10.98.0.1,10.98.0.2,10.98.0.9 --dir /mnt/full/v --out "$dir/page2"
    expect 1 'Not ready' 'cannot write /mnt/full/v/verbena: ' 'Read-only file system; --dir DIR names another folder' \
        '10.98.0.9: FAILED: cannot be reached: ssh: connect to host' 'doctor     not run'

    nsenter -t "${pids[1]}" -m mount --bind "$dir/other-release" "$(realpath /etc/os-release)"
    nsenter -t "${pids[2]}" -m mount --bind "$dir/broken-library" "$(realpath "$library")"
    printf 'student@10.98.0.1:2 # two ranks\n\nstudent@10.98.0.2\nstudent@10.98.0.3\n' >"$dir/list"
    cluster "$dir/list" --out "$dir/page3" --transport tcp
    expect 1 'Partly ready: 1 of 3 hosts' 'student@10.98.0.2: FAILED: is Other 1 on ' 'a job needs the same program on all hosts' \
        'student@10.98.0.3: FAILED: libjansson.so.4 is missing, and this user may not install packages' \
        'train softmax --hosts student@10.98.0.1:2 --transport tcp --run /mnt/student/verbena/runs/first' 'not run: needs two hosts'
    cluster 10.98.0.3 --dir /mnt/v --out "$dir/page3"
    expect 1 '10.98.0.3: installing packages (libjansson.so.4 is missing)' 'cannot run /mnt/v/verbena: ' 'Not ready'
    nsenter -t "${pids[1]}" -m umount "$(realpath /etc/os-release)"
    nsenter -t "${pids[2]}" -m umount "$(realpath "$library")"

    # A user without root where the packages are there
    cluster "$dir/list" --out "$dir/page3" --transport tcp
    expect 0 'Ready: all 3 hosts' 'student@10.98.0.1: the program was there' 'over tcp, 4 ranks'

    for wrong in '' '--dir' '-x' "$three --dir v" "$three --transport udp" 'a,-oProxyCommand=x' 'a,a' './none' "$three x" \
        "$three --build-on 10.98.0.4"; do
        # shellcheck disable=SC2086
        cluster $wrong
        expect 2 'cluster.sh: '
    done

    # On a terminal each host has a line, which is drawn again.
    ip netns exec "$hub" script -qec "$top/scripts/cluster.sh 10.98.0.254,localhost --out $dir/page6" "$dir/typescript" >"$dir/out" 2>&1 </dev/null
    code=$?
    text=$(cat "$dir/out")
    expect 1 $'\e[2A\r\e[K10.98.0.254          failed  cannot be reached' $'\e[Klocalhost            failed  ' 'Not ready'

    # Ctrl-C ends the script and its ssh processes.
    printf '#!/bin/sh\necho $$ >>%s\nexec sleep 1000\n' "$dir/hanging" >"$dir/hang"
    chmod +x "$dir/hang"
    set -m
    VB_SSH=$dir/hang timeout 100 "$top/scripts/cluster.sh" $three --out "$dir/page5" >"$dir/out" 2>&1 </dev/null &
    pid=$!
    set +m
    for ((i = 0; i < 500; i++)); do
        [ "$(grep -c . "$dir/hanging" 2>/dev/null)" != 3 ] || break
        sleep 0.05
    done
    kill -INT -- -$pid
    wait $pid
    [ $? = 130 ] || fail "Ctrl-C: another exit code: $(cat "$dir/out")"
    for ((i = 0; i < 100; i++)); do
        xargs -n 1 ps -o pid= -p <"$dir/hanging" | grep -q . || break
        sleep 0.1
    done
    [ $i -lt 100 ] || fail "Ctrl-C: ssh still runs"
}
[ "${2:-}" = quick ] || other_failures

# ---- the start-up service of CloudLab's nodes --------------------------------------------------------

mkdir "$dir/bin"
printf '#!/bin/sh\n[ ! -e /mnt/no-key ] && [ "$1" = key ] && cat %s\n' "$dir/experiment" >"$dir/bin/geni-get"
chmod +x "$dir/bin/geni-get"
program=(VERBENA="$verbena")

# start_node K TRANSPORT: starts the service on node K in the background
start_node() {
    inside $(($1 + 1)) "${program[@]}" VB_LOCAL=/mnt VB_NODE_WAIT_S="${wait_s:-100}" VB_LAN=10.98.0.0/24 VB_CLUSTER_SIZES=4,1M \
        timeout "${limit:-300}" "$source/cloudlab/startup.sh" --node "$1" --nodes 3 --transport "$2" &
}

# nodes TRANSPORT: runs the service on all nodes, as after a boot; the exit codes are then in $codes
nodes() {
    local k service=()
    for k in 0 1 2; do
        start_node $k "$1"
        service+=($!)
    done
    codes=
    for k in 0 1 2; do
        wait "${service[k]}"
        codes+=$?
    done
    text=$(inside 1 cat /mnt/verbena/ready.txt) code=${codes:0:1}
    nothing_left "startup.sh $1"
}

nodes tcp
[ $codes = 000 ] || fail "the service ended with $codes: $(for k in 1 2 3; do inside $k cat /mnt/verbena/startup.log; done)"
expect 0 'Ready: all 3 hosts' 'node2' 'the program was copied' 'all sums right' 'over tcp, 3 ranks'
inside 1 grep -q 'all bytes arrived as sent' /mnt/verbena/doctor.txt || fail "doctor: $(inside 1 cat /mnt/verbena/doctor.txt)"
mapfile -t next < <(sed -n '/^Next:/,/^$/s/^  //p' <<<"$text")
[ ${#next[@]} = 2 ] || fail "what to type next on node0: ${next[*]}"
timeout 100 nsenter -t "${pids[0]}" -n -m -u env -i HOME=/root PATH=/usr/bin:/bin sh -c "${next[0]} --data synth:2000 --steps 50 && ${next[1]}" \
    >"$dir/out" 2>"$dir/err" || fail "on node0, ${next[*]}: exit $?: $(cat "$dir/err")"
inside 1 grep -q node2 /mnt/verbena/runs/first/report.html || fail "there is no report on node0"

if [ "${2:-}" = quick ]; then
    [ $bad = 0 ] && echo "all tests passed: three hosts made ready"
    exit $bad
fi

# After a boot the network is measured again, nothing is copied, and keys are not added twice. RoCE without a card is TCP.
no_card=yes
! compgen -G '/sys/class/infiniband/*' >/dev/null || no_card=
nodes roce
[ $codes = 000 ] || fail "after a boot, the service ended with $codes: $text"
expect 0 'the program was there' 'Ready: all 3 hosts' "${no_card:+on $(uname -m); no RDMA device: TCP}"
[ "$(inside 2 grep -c . /root/.ssh/authorized_keys)" = 1 ] || fail "the key was added twice"
[ "$(inside 2 cat /etc/security/limits.d/verbena.conf | wc -l)" = 2 ] || fail "memlock: no limits"

# A node whose service fails, and one whose service does not come to its end
# This kernel has no soft-RoCE, so stand-ins show what would be done: node0 gets a device, node1 no module.
printf '#!/bin/sh\n[ "$(hostname)" = node0 ]\n' >"$dir/bin/modprobe"
printf '#!/bin/sh\necho "$0 $*" >>/mnt/called\n[ "$(hostname)" = node0 ]\n' | tee "$dir/bin/rdma" >"$dir/bin/apt-get"
chmod +x "$dir/bin"/*
start_node 1 soft-roce
wait $! || fail "soft-RoCE: $(inside 2 cat /mnt/verbena/startup.log)"
[ "$(inside 2 cat /mnt/verbena/state)" = $'ok\tprepared; soft-RoCE cannot be set up (startup.log): TCP' ] || fail "node1: $(inside 2 cat /mnt/verbena/state)"
inside 3 touch /mnt/no-key
inside 2 sh -c 'printf "run\tinstalling packages\n" >/mnt/verbena/state'
start_node 2 tcp
wait $!
[ $? = 1 ] || fail "no key: the service of node2 has succeeded"
wait_s=3 start_node 0 soft-roce
wait $!
code=$? text=$(inside 1 cat /mnt/verbena/ready.txt)
expect 1 'Partly ready: 1 of 3 hosts' 'FAILED                            its start-up service failed: geni-get key gives no key' \
    'FAILED                            not prepared within 3 s (last: installing packages): type ssh node1 tail'
inside 3 rm /mnt/no-key
inside 1 grep -q 'rdma link add rxe0 type rxe netdev eth0$' /mnt/called || fail "soft-RoCE on node0: $(inside 1 cat /mnt/called)"
rm "$dir/bin/modprobe" "$dir/bin/rdma" "$dir/bin/apt-get"
[ "$(inside 1 cut -c 1-27 /mnt/verbena/state)" = $'failed\tPartly ready: 1 of 3' ] || fail "node0: $(inside 1 cat /mnt/verbena/state)"

# ---- this machine is of another kind: a host builds, and jobs start on the first host -----------------

unset VERBENA
printf 'Host 10.98.0.*\n    IdentityFile %s\n    StrictHostKeyChecking accept-new\n' "$dir/key" | inside 1 tee -a /root/.ssh/config >/dev/null
tree=$(cd "$source" && work=$dir && . scripts/cluster/install.sh && pack_tree && echo "$tree")
inside 3 sh -c 'mkdir -p /mnt/s/source/build && cp "$1" /mnt/s/source/build && cd /mnt/s/source && echo "$2" | tee tree.id >build/tree' \
    sh "$verbena" "$tree"
cluster 10.98.0.1,10.98.0.3 --dir /mnt/s --out "$dir/page4" --build-on 10.98.0.3
expect 0 'Ready: all 2 hosts' 'the program was built before on 10.98.0.3' '10.98.0.1: the program was copied' \
    'ssh -A 10.98.0.1 /mnt/s/verbena train softmax --hosts 10.98.0.1,10.98.0.3 --run /mnt/s/runs/first'
expect_not 'copying the source tree'

if [ "${2:-}" = build ]; then
    limit=3600
    cluster 10.98.0.1,10.98.0.3 --dir /mnt/b --out "$dir/page4" --build-on 10.98.0.3
    expect 0 'Ready: all 2 hosts' '10.98.0.3: building' '10.98.0.1: the program was copied'
    cluster 10.98.0.1,10.98.0.3 --dir /mnt/b --out "$dir/page4" --build-on 10.98.0.3
    expect 0 'the program was built before on 10.98.0.3' '10.98.0.1: the program was there'
    program=() wait_s=1800
    nodes tcp
    [ $codes = 000 ] || fail "build: the service ended with $codes: $(inside 1 cat /mnt/verbena/startup.log)"
    expect 0 'Ready: all 3 hosts' 'the program was copied'
fi

[ $bad = 0 ] && echo "all tests passed: three hosts made ready"
exit $bad
