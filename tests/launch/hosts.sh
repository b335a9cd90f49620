#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests jobs on several hosts that are started over ssh: hosts.sh VERBENA [quick|time|elastic]. The hosts are three network
# namespaces, each with its own host name and its own sshd. The commands run in a fourth namespace. "quick" leaves out
# trainings that end before their last step. "time" only measures how long eight ranks take to start, which must be less
# than 3 s on an idle machine.
#
# The machine's own ssh is not used or changed. Keys, configuration and known hosts are in a folder of this test, and
# the files that an sshd needs below /run are in a mount namespace.
#
# Covers: bench/host_pairs.c cli/doctor/doctor_hosts.c cli/job_opts.c launch/hosts.c
# Covers: launch/launch_stdin.c launch/supervise/remote.c
# shellcheck disable=SC2016,SC2317
set -uo pipefail
verbena=$(realpath "$1")

for need in ip ssh ssh-keygen /usr/sbin/sshd unshare jq; do
    if [ "$(id -u)" != 0 ] || ! command -v $need >/dev/null; then
        echo "skipped: needs root, ip, jq, ssh and sshd (openssh-server): no $need"
        exit 77
    fi
done
dir=$(mktemp -d)
hub=vb-hub-$$
bad=0
names=()
pids=()
unset "${!VB_@}"
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # the search for leaks takes seconds for each rank

cleanup() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null
    done
    for ns in "${names[@]}" "$hub"; do
        ip netns pids "$ns" 2>/dev/null | xargs -r kill -KILL 2>/dev/null # ranks that did not end
        ip netns del "$ns" 2>/dev/null
    done
    rm -rf "$dir"
}
trap cleanup EXIT

# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../support/launch_test.sh"
# shellcheck source=tests/support/host_pair.sh
. "$(dirname "$0")/../support/host_pair.sh"

# ---- the hosts ----------------------------------------------------------------------------------

need_namespaces
make_switch "$hub"
ip -n "$hub" link set lo up
ip -n "$hub" addr add 10.98.0.254/24 dev br0

ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
ssh-keygen -q -t ed25519 -N '' -f "$dir/hostkey"

# host K [SSHD_OPTION...]: makes a namespace with the address 10.98.0.K, the host name host-K and an sshd
host() {
    local k=$1 ns=vb-$1-$$
    shift
    names+=("$ns")
    add_host "$ns" "$hub" "$k"
    ip netns exec "$ns" unshare --uts --mount sh -c '
        hostname "$1" && mount -t tmpfs tmpfs /run && mkdir /run/sshd || exit 1
        shift
        exec /usr/sbin/sshd -D -e "$@"' sh "host-$k" -f /dev/null \
        -o "HostKey=$dir/hostkey" -o "AuthorizedKeysFile=$dir/key.pub" -o StrictModes=no \
        -o PermitRootLogin=yes -o PasswordAuthentication=no -o UsePAM=no -o PidFile=none \
        -o MaxStartups=10 "$@" 2>"$dir/sshd$k" &
    pids+=($!)
}

mkdir "$dir/fake"
printf '#!/bin/sh\necho riscv128\n' >"$dir/fake/uname"
chmod +x "$dir/fake/uname"
host 1
host 2 -o 'ForceCommand=echo "welcome to host 2"; sh -c "$SSH_ORIGINAL_COMMAND"'
host 3
host 4 -o "SetEnv=PATH=$dir/fake:$PATH"

export VB_SSH="ssh -F none -i $dir/key -o BatchMode=yes -o StrictHostKeyChecking=no
 -o UserKnownHostsFile=$dir/known -o LogLevel=ERROR -o ConnectTimeout=12"
VB_SSH=${VB_SSH//$'\n'/}

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
for k in 1 2 3 4; do
    reach $k
done

# ours: prints the commands of all processes on the hosts, except sshd
ours() {
    local ns pid
    for ns in "${names[@]}"; do
        for pid in $(ip netns pids "$ns"); do
            { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null |
                grep -v '^/usr/sbin/sshd\|^sshd:'
        done
    done
}

# doctor ARGUMENTS...: runs doctor; stores the output in $dir/out, standard error in $err and the exit code in $code
doctor() {
    under ip netns exec "$hub" "$verbena" doctor "$@"
}

# refused CODE TEXT ARGUMENTS...: fails unless doctor exits with CODE and prints TEXT to standard error only
refused() {
    local want=$1 text=$2
    shift 2
    doctor "$@"
    [ "$code" = "$want" ] || fail "doctor $*: exit $code, expected $want: $err"
    [[ $err == *"$text"* ]] || fail "doctor $*: '$err' does not contain '$text'"
    [ ! -s "$dir/out" ] || fail "doctor $*: wrote to standard output"
}

# eight_ranks: runs a job with eight ranks and one step, and stores its duration in $took_ms
eight_ranks() {
    local begin
    begin=$(date +%s%N)
    timeout 100 ip netns exec "$hub" "$verbena" train softmax --data synth:1000 --steps 1 \
        --global-batch 64 --hosts 10.98.0.1:3,10.98.0.2:3,10.98.0.3:2 >"$dir/out" 2>"$dir/err" ||
        fail "eight ranks: exit $?: $(cat "$dir/err")"
    took_ms=$((($(date +%s%N) - begin) / 1000000))
    echo "eight ranks over ssh, one step: $took_ms ms"
    nothing_left "eight ranks"
}

finish() {
    code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    err=$(cat "$dir/err")
}

# of_host K: prints the ids of our processes on host K
of_host() {
    ip netns pids "${names[$1 - 1]}" | while read -r p; do
        [ "$(readlink "/proc/$p/exe")" != "$verbena" ] || echo "$p"
    done
}

# ---- only with "elastic": synchronous training that goes on when ranks and hosts are lost -----------

# elastic_job HOSTS OPTIONS...: starts a long training in the background, and returns when all ranks make steps
elastic_job() {
    local i hosts=$1
    shift
    rm -rf "$dir/run"
    set -m
    ip netns exec "$hub" "$verbena" train softmax --data synth:1000 --global-batch 60 --steps 100000000 --json \
        --hosts "$hosts" --run "$dir/run" "$@" >"$dir/out" 2>"$dir/err" &
    pid=$!
    set +m
    for ((i = 0; i < 1500; i++)); do
        [ ! -s "$dir/run/rank0/steps.bin" ] || break
        sleep 0.02
    done
    [ $i -lt 1500 ] || fail "no steps were made: $(cat "$dir/err")"
    sleep 0.5
}

# said WHAT TEXT: waits until TEXT, a regular expression, is on standard error
said() {
    local i
    for ((i = 0; i < 1000; i++)); do
        ! grep -qE "$2" "$dir/err" || return
        sleep 0.05
    done
    fail "$1: nobody says '$2': $(cat "$dir/err")"
}

# stops_well WHAT: Ctrl-C ends the job, which those that are left finish and report
stops_well() {
    kill -INT "$pid"
    finish
    [ "$code" = 130 ] || fail "$1: exit $code: $err"
    jq -en 'input | .stopped == "SIGINT" and .steps > 0' "$dir/out" >/dev/null || fail "$1: $(cat "$dir/out") $err"
    nothing_left "$1"
}

# ssh_of K: prints the id of the ssh to host K
ssh_of() {
    ip netns pids "$hub" | while read -r p; do
        [[ $(tr '\0' ' ' <"/proc/$p/cmdline") != "ssh "*" 10.98.0.$1 "* ]] || echo "$p"
    done 2>/dev/null
}

# ctl CODE PATTERN ARGUMENTS...: asks the job of elastic_job, which must answer so
ctl() {
    local want=$1 pattern=$2 got
    shift 2
    timeout 100 "$verbena" ctl "$dir/run" "$@" >"$dir/answer" 2>&1
    got=$?
    [ $got = "$want" ] || fail "ctl $*: exit $got, expected $want: $(cat "$dir/answer" "$dir/err")"
    grep -qE "$pattern" "$dir/answer" || fail "ctl $*: $(cat "$dir/answer")"
}

# Ranks are added to a running job, on hosts of the list and on others. If that cannot be, the job goes on.
add_hosts() {
    local mode
    for mode in sync async; do
        elastic_job 10.98.0.1,10.98.0.2 --mode $mode
        for ((i = 0; i < 600; i++)); do
            [ ! -S "$dir/run/ctl.sock" ] || break
            sleep 0.05
        done
        ctl 0 '^add: rank [0-9]+ has joined on host 10\.98\.0\.3$' add 10.98.0.3
        [ -n "$(of_host 3)" ] || fail "add, $mode: no rank is on host 3"
        ctl 0 '^add: rank [0-9]+ has joined on host 10\.98\.0\.2$' add 10.98.0.2:1
        grep -qE '^steps/s: [0-9.]+ before, [0-9.]+ after$' "$dir/answer" || fail "add, $mode: no rates: $(cat "$dir/answer")"
        ctl 2 'name a host' add 1
        ctl 2 'host 10\.98\.0\.9 cannot be reached: it is down' add 10.98.0.9:2
        ctl 2 'host 10\.98\.0\.4 cannot run .*its architecture is riscv128' add 10.98.0.4
        ctl 2 'host nobody@10\.98\.0\.3 cannot be reached: .*; fix: ' add nobody@10.98.0.3
        said "add, $mode" 'host 10.98.0.9 cannot be reached: it is down.*; training goes on'
        kill -KILL "$(of_host 3 | sort -n | tail -n 1)"
        said "add, $mode" 'training goes on'
        stops_well "add, $mode"
        jq -e '[.per_rank[].host] as $h | ($h | map(select(. == "host-1")) | length) >= 1 and ($h | map(select(. == "host-2")) | length) == 2' \
            "$dir/out" >/dev/null || fail "add, $mode: $(jq -c '[.per_rank[].host]' "$dir/out")"
        [[ $err != *verbena-begun* ]] || fail "add, $mode: $err"
    done
}

elastic_hosts() {
    local what victim i
    # A reaper on its host proves the death of a rank, so that even one of two goes on without asking anybody.
    for hosts in 10.98.0.1,10.98.0.2,10.98.0.3 10.98.0.1,10.98.0.3; do
        for ((victim = 0; victim < 2; victim++)); do
            what="$hosts, rank $victim killed"
            under ip netns exec "$hub" "$verbena" train softmax --data synth:1000 --global-batch 60 --steps 2000 --json \
                --hosts $hosts --inject kill:$victim@500
            [ "$code" = 0 ] || fail "$what: exit $code: $err"
            jq -es 'length == 1 and .[0].steps == 2000' "$dir/out" >/dev/null || fail "$what: $(cat "$dir/out")"
            [[ $err == *"rank $victim on host 10.98.0."[123]" died: signal 9 (Killed); training goes on without it"* ]] ||
                fail "$what: $err"
            [[ $err != *verbena-begun* ]] || fail "$what: $err"
        done
    done

    # ssh to a host breaks: the rank there ends by itself, and the others go on if they are enough. This is no proof.
    elastic_job 10.98.0.1,10.98.0.2,10.98.0.3
    kill -KILL "$(ssh_of 1)"
    said "ssh to the first of three breaks" 'goes on with 2 ranks'
    [ -z "$(of_host 1)" ] || fail "ssh to the first of three breaks: its rank is there: $(cat "$dir/err")"
    stops_well "ssh to the first of three breaks"
    elastic_job 10.98.0.1,10.98.0.2
    kill -KILL "$(ssh_of 2)"
    said "ssh to the second of two breaks" 'goes on with 1 rank'
    stops_well "ssh to the second of two breaks"
    elastic_job 10.98.0.1,10.98.0.2
    kill -KILL "$(ssh_of 1)"
    finish
    [ "$code" = 1 ] || fail "ssh to the first of two breaks: exit $code: $err"
    [ ! -s "$dir/out" ] || fail "ssh to the first of two breaks: $(cat "$dir/out")"
    [[ $(tail -n 1 "$dir/err") == *"and no rank is left; the first one lost: rank 0 was killed, or the connection to host 10.98.0.1 broke"* ]] ||
        fail "ssh to the first of two breaks: $err"
    nothing_left "ssh to the first of two breaks"

    # The network of a host fails without closing any connection.
    elastic_job 10.98.0.1,10.98.0.2,10.98.0.3
    ip -n "${names[2]}" link set eth0 down
    said "a host without network" 'goes on with 2 ranks'
    stops_well "a host without network"
    ip -n "${names[2]}" link set eth0 up
    reach 3

    # A rank that is stopped cannot see that standard input ends; its reaper ends it.
    elastic_job 10.98.0.1,10.98.0.2,10.98.0.3
    kill -STOP "$(of_host 2 | sort -n | tail -n 1)"
    said "a rank is stopped" 'goes on with 2 ranks'
    stops_well "a rank is stopped"

    # A rank is started again, with another number, by which its next death is proved.
    elastic_job 10.98.0.1,10.98.0.2 --restart 1
    kill -KILL "$(of_host 2 | sort -n | tail -n 1)"
    said "started again" 'rank 1 is started again on host 10.98.0.2 \(1 of 1, --restart\)'
    for ((i = 0; i < 600; i++)); do
        [ ! -s "$dir/run/rank2/steps.bin" ] || break
        sleep 0.05
    done
    kill -KILL "$(of_host 2 | sort -n | tail -n 1)"
    said "started again" 'rank 2 on host 10.98.0.2 died: signal 9 \(Killed\); training goes on without it'
    said "started again" 'rank 2 .* was lost'
    stops_well "started again"

    add_hosts

    # The supervisor is killed.
    elastic_job 10.98.0.1,10.98.0.2,10.98.0.3
    kill -KILL "$pid"
    finish
    nothing_left "the supervisor is killed"
}

if [ "${2:-}" = elastic ]; then
    elastic_hosts
    [ $bad = 0 ] && echo "all tests passed: training goes on without ranks and hosts"
    exit $bad
fi

if [ "${2:-}" = time ]; then
    for k in 1 2 3 4 5; do
        eight_ranks
        [ $took_ms -le 3000 ] || fail "more than 3000 ms"
    done
    exit $bad
fi

three=10.98.0.1,10.98.0.2:2,10.98.0.3

# ---- success: hosts from a list and from a file, output as text and as JSON --------------------

doctor --hosts $three --json
[ "$code" = 0 ] || fail "three hosts: exit $code: $err"
jq -e '(.hosts | map(.host)) == ["host-1", "host-2", "host-3"] and (.hosts | map(.rank)) == [0, 1, 3]
    and (.pairs | length) == 3 and all(.pairs[]; .transport == "tcp" and .wrong == 0 and
    .put_gb_s > 0 and .get_gb_s > 0 and .put_us > 0 and .get_us > 0 and .retries == null)
    and all(.hosts[]; .checks | length > 5) and any(.checks[]; .name == "data" and .level == "OK")' \
    "$dir/out" >/dev/null || fail "three hosts: $(cat "$dir/out")"
[[ $err == *"[10.98.0.2 rank 1] welcome to host 2"* ]] || fail "the output of a login shell is missing: $err"

printf '# all\n10.98.0.1\n\n10.98.0.3 slots=2 # two\n' >"$dir/hosts"
doctor --hosts "$dir/hosts"
[ "$code" = 0 ] || fail "a file of hosts: exit $code: $err"
grep -q '^host-1 - host-3  *tcp' "$dir/out" || fail "a file of hosts: $(cat "$dir/out")"
! grep -E '^(\[.*\] )?(warn|error)' "$dir/err" || fail "a file of hosts: standard error has '$err'"

# An option comes from the environment, and the user has chosen the root.
VB_TRANSPORT=shm refused 1 'cannot be reached through shared memory' --hosts 10.98.0.1,10.98.0.3
doctor --hosts 10.98.0.1,10.98.0.3 --root 10.98.0.1:7123 --json
[ "$code" = 0 ] || fail "with --root: exit $code: $err"

# ---- training on two hosts gives the bits of training on one host -------------------------------

job=(train softmax --data synth:1000 --global-batch 60 --steps 20 --json --transport tcp)
timeout 100 "$verbena" "${job[@]}" --ranks 2 >"$dir/here" 2>"$dir/err" ||
    fail "two ranks on this host: $(cat "$dir/err")"
timeout 100 ip netns exec "$hub" "$verbena" "${job[@]}" --hosts 10.98.0.1,10.98.0.3 >"$dir/out" \
    2>"$dir/err" || fail "training over two hosts: exit $?: $(cat "$dir/err")"
nothing_left "training over two hosts"
jq -se '(.[0].params_sha256 | length) == 64 and .[0].params_sha256 == .[1].params_sha256 and
    (.[1].per_rank | map(.host)) == ["host-1", "host-3"] and .[1].transport == "tcp"' \
    "$dir/here" "$dir/out" >/dev/null || fail "training over two hosts: $(cat "$dir/here" "$dir/out")"

# ---- three hosts with different slots, and a log for each rank ----------------------------------

timeout 100 "$verbena" "${job[@]}" --ranks 4 >"$dir/here" 2>"$dir/err" ||
    fail "four ranks on this host: $(cat "$dir/err")"
timeout 100 ip netns exec "$hub" "$verbena" "${job[@]}" --hosts $three --logs "$dir/logs" \
    --log-level info >"$dir/out" 2>"$dir/err" || fail "three hosts: exit $?: $(cat "$dir/err")"
nothing_left "training over three hosts"
jq -se '.[0].params_sha256 == .[1].params_sha256 and
    (.[1].per_rank | map(.host)) == ["host-1", "host-2", "host-2", "host-3"]' \
    "$dir/here" "$dir/out" >/dev/null || fail "three hosts: $(cat "$dir/here" "$dir/out")"
for r in 0 1 2 3; do
    grep -q '^info' "$dir/logs/rank-$r.log" || fail "the log of rank $r has no info lines"
done
grep -qxF "$(cat "$dir/out")" "$dir/logs/rank-0.log" || fail "rank 0's output is not in its log"
grep -q '^welcome to host 2' "$dir/logs/rank-1.log" || fail "the output of a login shell is missing in the log"
! grep -qE '^verbena-rank|[0-9a-f]{64} *$' "$dir/logs"/* || fail "a log contains lines of the launch protocol"

eight_ranks

# ---- asynchronous training continues if the worker of a host dies -------------------------------

timeout 100 ip netns exec "$hub" "$verbena" train softmax --data synth:3000 --batch 200 --steps 8000 --mode async \
    --hosts 10.98.0.1,10.98.0.2,10.98.0.3 --checkpoint "$dir/async" --checkpoint-every 400 --json >"$dir/out" 2>"$dir/err" &
pid=$!
for ((i = 0; i < 400; i++)); do
    [ -n "$(find "$dir/async" -name 'checkpoint-*' 2>/dev/null)" ] && break
    sleep 0.05
done
for victim in $(ip netns pids "${names[2]}"); do
    if [[ $(tr '\0' ' ' <"/proc/$victim/cmdline") == *"train softmax"* && $(readlink "/proc/$victim/exe") == *verbena* ]]; then
        kill -9 "$victim"
    fi
done
wait $pid || fail "after the death of a worker on another host: exit $?: $(cat "$dir/err")"
nothing_left "a worker on another host died"
jq -e '.steps == 8000 and [.faults[] | [.rank, .what]] == [[2, "died"]] and (.per_rank | map(.host)) == ["host-1", "host-2", "host-1"]' \
    "$dir/out" >/dev/null || fail "after the death of a worker on another host: $(cat "$dir/out")"
grep -q 'training goes on' "$dir/err" || fail "after the death of a worker on another host: $(cat "$dir/err")"

# ---- ranks that are started by hand, without ssh -------------------------------------------------

(umask 077 && head -c 32 /dev/urandom >"$dir/job.key")
by_hand=(doctor --world 2 --root 10.98.0.1:7001 --secret-file "$dir/job.key" --timeout 20)
ip netns exec "${names[2]}" "$verbena" "${by_hand[@]}" --rank 1 >"$dir/out1" 2>"$dir/err1" &
ip netns exec "${names[0]}" "$verbena" "${by_hand[@]}" --rank 0 >"$dir/out" 2>"$dir/err"
code=$?
wait $! || fail "ranks started by hand, rank 1: $(cat "$dir/err1")"
[ "$code" = 0 ] || fail "ranks started by hand: exit $code: $(cat "$dir/err")"
grep -q 'all bytes arrived as sent' "$dir/out" || fail "ranks started by hand: $(cat "$dir/out")"

# ---- errors are reported with the name of the host ----------------------------------------------

refused 1 'host 10.98.0.9 cannot be reached: it is down' --hosts $three,10.98.0.9
refused 1 'host 10.98.0.3 cannot run /none/verbena: there is no program /none/verbena' \
    --hosts 10.98.0.3,10.98.0.1 --program /none/verbena
refused 1 'ended before it answered (exit code 0)' --hosts 10.98.0.3,10.98.0.1 --program /bin/true
refused 1 'host 10.98.0.4 cannot run' --hosts 10.98.0.1,10.98.0.4
[[ $err == *'its architecture is riscv128, not '* ]] || fail "another machine: $err"
cp "$verbena" "$dir/other"
echo >>"$dir/other"
refused 1 " is not the program that runs on this host" \
    --hosts 10.98.0.1,10.98.0.3 --program "$dir/other"
[[ $err == *"$dir/other on host 10.98.0."[13]" is not"* ]] || fail "another program: $err"
refused 1 'host 10.98.0.1 cannot be reached: there is no such ssh command' --hosts 10.98.0.1:2 \
    --ssh /none/ssh
refused 2 'is not a host' --hosts 10.98.0.1,-oProxyCommand=true
refused 2 'is listed twice' --hosts 10.98.0.1,10.98.0.1
refused 2 'No such file' --hosts ./none
refused 2 'leave --ranks out' --hosts $three --ranks 2
refused 2 '--sysroot checks one machine' --hosts $three --sysroot /

# ---- during a job: the secret stays hidden; Ctrl-C and kills end all ranks -----------------------

# start: starts doctor in the background, sets pid, and returns when all ranks run
start() {
    local i
    set -m # otherwise a background process ignores Ctrl-C
    ip netns exec "$hub" "$verbena" doctor --hosts $three >"$dir/out" 2>"$dir/err" &
    pid=$!
    set +m
    for ((i = 0; i < 1500; i++)); do
        [ "$(ours | grep -c "^$verbena doctor")" -lt 4 ] || return
        sleep 0.02
    done
    fail "the ranks did not start: $(cat "$dir/err")"
}

start
for ns in "${names[@]}" "$hub"; do
    for p in $(ip netns pids "$ns"); do
        if cat "/proc/$p/cmdline" "/proc/$p/environ" 2>/dev/null | grep -aqE '[0-9a-f]{64}'; then
            fail "the command or environment of $p may contain the secret"
        fi
    done
done
kill -INT "$pid"
finish
[ "$code" = 130 ] || fail "Ctrl-C: exit $code: $err"
nothing_left Ctrl-C

start
kill -KILL "$pid"
finish
nothing_left "the launcher killed"

start
kill -KILL "$(ip netns pids "${names[2]}" | while read -r p; do
    [ "$(readlink "/proc/$p/exe")" != "$verbena" ] || echo "$p"
done | head -n 1)"
finish
[ "$code" = 1 ] || fail "a rank killed: exit $code: $err"
[[ $err == *'rank 3 was killed, or the connection to host 10.98.0.3 broke'* ||
    $err == *'host 10.98.0.3 cannot be reached, or rank 3 was killed before it answered'* ]] ||
    fail "a rank killed: $err"
nothing_left "a rank killed"

# ---- more ranks on a host than its sshd accepts at once -----------------------------------------

doctor --hosts 10.98.0.1:12,10.98.0.3 --json
[ "$code" = 0 ] || fail "twelve ranks on a host: exit $code: $err"

# ---- bench on several hosts -----------------------------------------------------------------------

timeout 100 ip netns exec "$hub" "$verbena" bench step --model softmax --hosts $three --batches 5,20 \
    --seconds 0.01 --json --plot "$dir/step.gp" >"$dir/out" 2>"$dir/err" ||
    fail "bench step: exit $?: $(cat "$dir/err")"
jq -se 'length == 3 and all(.[]; .ranks == 4) and .[0].transfer_ms > 0' "$dir/out" >/dev/null ||
    fail "bench step: $(cat "$dir/out")"
[ -s "$dir/step.gp" ] || fail "bench step: rank 0 wrote no script"
nothing_left "bench step"

timeout 100 ip netns exec "$hub" "$verbena" bench allreduce --hosts 10.98.0.1,10.98.0.3 --sizes 1024 --seconds 0.01 \
    --json >"$dir/out" 2>"$dir/err" || fail "bench allreduce: exit $?: $(cat "$dir/err")"
jq -se 'length == 1 and .[0].ranks == 2 and .[0].transport == "tcp" and .[0].wrong == 0' "$dir/out" >/dev/null ||
    fail "bench allreduce: $(cat "$dir/out")"
nothing_left "bench allreduce"

if [ "${2:-}" = quick ]; then
    [ $bad = 0 ] && echo "all tests passed: three hosts over ssh"
    exit $bad
fi

# ---- training that ends before its last step ------------------------------------------------------

# train_on HOSTS OPTIONS...: starts a long training in the background, and returns when all ranks make steps
train_on() {
    local i hosts=$1
    shift
    steps=$(mktemp -u "$dir/steps.XXXXXX")
    set -m
    [[ "$*" == *async* ]] || set -- --elastic off "$@"
    ip netns exec "$hub" "$verbena" train softmax --data synth:1000 --steps 100000000 --hosts "$hosts" "$@" \
        --checkpoint "$steps" --checkpoint-every 20 --logs "$dir/logs" >"$dir/out" 2>"$dir/err" &
    pid=$!
    set +m
    for ((i = 0; i < 1500; i++)); do
        ! compgen -G "$steps/checkpoint-*.vbc" >/dev/null || break
        sleep 0.02
    done
    [ $i -lt 1500 ] || fail "no steps were made: $(cat "$dir/err")"
}

train_on $three
# shellcheck disable=SC2046
kill -KILL $(of_host 2)
finish
[ "$code" = 1 ] || fail "the ranks of a host killed in a training: exit $code: $err"
[[ $err == *'was killed, or the connection to host 10.98.0.2 broke'* ]] ||
    fail "the ranks of a host killed in a training: $err"
nothing_left "the ranks of a host killed in a training"
grep -q 'lost' "$dir/logs/rank-0.log" || fail "rank 0 did not notice it: $(cat "$dir/logs/rank-0.log")"

# The first Ctrl-C ends a training after its step, on all hosts, with a checkpoint and a summary.
for mode in sync async; do
    train_on $three --mode $mode --json
    kill -INT "$pid"
    finish
    [ "$code" = 130 ] || fail "Ctrl-C in a training, $mode: exit $code: $err"
    nothing_left "Ctrl-C in a training, $mode"
    jq -en 'input | .stopped == "SIGINT" and .accuracy != null' "$dir/out" >/dev/null 2>&1 ||
        fail "Ctrl-C in a training, $mode: no summary: $(cat "$dir/out" "$dir/err")"
    [ -s "$steps/checkpoint-$(jq .steps "$dir/out").vbc" ] || fail "Ctrl-C in a training, $mode: no last checkpoint"
done

# It does not wait for long for a rank that is stopped and cannot know of it. The second one waits for nobody.
for signals in 1 2; do
    train_on $three
    # shellcheck disable=SC2046
    kill -STOP $(of_host 3)
    before=$SECONDS
    for ((i = 0; i < signals; i++)); do
        kill -INT "$pid"
        sleep 0.3
    done
    finish
    [ "$code" = 130 ] || fail "Ctrl-C, and a rank is stopped: exit $code: $err"
    [ $((SECONDS - before)) -lt 60 ] || fail "Ctrl-C, and a rank is stopped: the job took $((SECONDS - before)) s to end"
    of_host 3 | xargs -r kill -CONT # it has lost the supervisor
    nothing_left "Ctrl-C, and a rank is stopped"
done

# The network of a host fails without closing any connection.
train_on $three
ip -n "${names[2]}" link set eth0 down
finish
[ "$code" = 1 ] || fail "a host without network: exit $code: $err"
nothing_left "a host without network"
ip -n "${names[2]}" link set eth0 up
reach 3

# Ranks over ssh start no threads of OpenBLAS: they have the main thread, the recorder's, that of the control plane,
# the one that watches standard input and the one that writes checkpoints.
train_on $three --threads 1
for k in 1 2 3; do
    for p in $(of_host $k); do
        threads=$(find "/proc/$p/task" -mindepth 1 -maxdepth 1 | wc -l)
        [ "$threads" = 5 ] || fail "a rank on host $k has $threads threads, expected 5"
    done
done

# A launcher that is stopped for a moment does not end the job. Then its host loses power: the address is gone, so no
# rank hears that the connections of the dead ssh processes are closed. The ranks still reach each other.
kill -STOP "$pid"
sleep 4
kill -CONT "$pid"
sleep 1
[ "$(of_host 2 | wc -l)" = 2 ] || fail "a launcher was stopped for 4 s: $(cat "$dir/err")"
kill -INT "$pid"
finish
[ "$code" = 130 ] || fail "Ctrl-C after a pause: exit $code: $err"

train_on $three --timeout 10
ip -n "$hub" addr del 10.98.0.254/24 dev br0
kill -KILL "$pid"
finish
sleep 2
[ "$(of_host 2 | wc -l)" = 2 ] || fail "the launcher's host lost power: ranks ended before the limit"
nothing_left "the launcher's host lost power"
ip -n "$hub" addr add 10.98.0.254/24 dev br0
for k in 1 2 3; do
    reach $k
done

# The same with the processes of the launcher alive: ranks say why they end, and ssh notices that the host is gone.
VB_SSH="$VB_SSH -o ServerAliveInterval=5 -o ServerAliveCountMax=6" train_on $three --timeout 10
ip -n "$hub" addr del 10.98.0.254/24 dev br0
nothing_left "the launcher's network failed"
finish
[ "$code" = 1 ] || fail "the launcher's network failed: exit $code: $err"
[[ $err == *'the connection to host 10.98.0.'*' broke'* ]] || fail "the launcher's network failed: $err"
ip -n "$hub" addr add 10.98.0.254/24 dev br0
for k in 1 2 3; do
    reach $k
done

timeout 100 ip netns exec "$hub" "$verbena" "${job[@]}" --hosts 10.98.0.9,$three >"$dir/out" 2>"$dir/err"
[[ $? = 1 && $(cat "$dir/err") == *'host 10.98.0.9 cannot be reached: '* ]] ||
    fail "a training with a host that cannot be reached: $(cat "$dir/err")"
nothing_left "a training with a host that cannot be reached"

[ $bad = 0 ] && echo "all tests passed: three hosts over ssh"
exit $bad
