#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The start-up service of a CloudLab node: startup.sh --node K --nodes N --transport roce|soft-roce|tcp
#
# Each node gets the experiment's ssh key, packages and, if asked for, soft-RoCE. Node 0 builds, waits for the others,
# copies the program to them, runs doctor between all pairs and the first allreduce, and writes the readiness page. The
# service runs at every boot; what is done is not done twice. All waits have a deadline, so it ends within three hours.
#
# Everything is in /local/verbena (VB_LOCAL=DIR: DIR/verbena): startup.log, state, and on node 0 ready.txt, ready.html and
# the results of doctor and allreduce. VB_NODE_WAIT_S: how long node 0 waits for the others, by default 1800.
# VERBENA=FILE: a program that is built already.
# shellcheck disable=SC2034,SC2154,SC2016 # variables that the files of scripts/cluster share; text for other shells
set -uo pipefail
same_again="$(realpath "$0") $*"
cd "$(dirname "$0")/.." || exit 1

die() {
    echo "startup.sh: $*" >&2
    [ -z "${base:-}" ] || printf 'failed\t%s\n' "$*" >"$base/state"
    exit "${code:-1}"
}

node='' nodes='' transport=tcp base=''
while [ $# -gt 0 ]; do
    case $1 in
    --node) node=${2:-} ;;
    --nodes) nodes=${2:-} ;;
    --transport) transport=${2:-} ;;
    *) code=2 die "unknown argument $1; usage: startup.sh --node K --nodes N --transport roce|soft-roce|tcp" ;;
    esac
    shift 2 || code=2 die "the last argument needs a value"
done
[[ $node =~ ^[0-9]{1,2}$ && $nodes =~ ^[1-9][0-9]?$ && $node -lt $nodes ]] || code=2 die "--node K --nodes N: K must be below N"
[[ $transport =~ ^(roce|soft-roce|tcp)$ ]] || code=2 die "--transport $transport: must be roce, soft-roce or tcp"
[[ ${VB_NODE_WAIT_S:=1800} =~ ^[0-9]+$ ]] || code=2 die "VB_NODE_WAIT_S=$VB_NODE_WAIT_S: must be seconds"
base=${VB_LOCAL:-/local}/verbena

# root COMMAND...: runs a command as root
root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# state STATE TEXT: node 0 reads it over ssh
state() {
    printf '%s\t%s\n' "$1" "$2" >"$base/state.new" && mv "$base/state.new" "$base/state"
    echo "$(date '+%F %T') node$node: $2"
}

# ---- each node -------------------------------------------------------------------------------------

# as USER COMMAND...: runs a command as another user
as() {
    local user=$1
    shift
    if [ "$user" = "$(id -un)" ]; then
        "$@"
    elif [ "$(id -u)" = 0 ]; then
        runuser -u "$user" -- "$@"
    else
        sudo -n -u "$user" "$@"
    fi
}

# Takes the private key from standard input. sshd and ssh use the home folder of the account, not $HOME.
key_script='cd "$(getent passwd "$(id -u)" | cut -d : -f 6)" && umask 077 && mkdir -p .ssh && cd .ssh || exit 1
cat >id_verbena.new && mv id_verbena.new id_verbena && ssh-keygen -y -f id_verbena >id_verbena.pub </dev/null || exit 1
touch authorized_keys config
grep -qxFf id_verbena.pub authorized_keys || cat id_verbena.pub >>authorized_keys
grep -q "^# verbena" config || printf "%s\n" "# verbena: nodes of this experiment" "Host node? node??" \
    "    IdentityFile ~/.ssh/id_verbena" "    StrictHostKeyChecking accept-new" >>config'

# install_keys: CloudLab gives all nodes of an experiment the same key. With it every user can reach every node.
install_keys() {
    local user key
    key=$(timeout 60 geni-get key)
    [ -n "$key" ] || die "geni-get key gives no key: type it by hand; without it the nodes cannot reach each other over ssh"
    for user in "$(id -un)" $(find /users -mindepth 1 -maxdepth 1 -type d -printf '%f\n' 2>/dev/null); do
        getent passwd "$user" >/dev/null || continue
        printf '%s\n' "$key" | as "$user" sh -c "$key_script" || echo "the key of user $user cannot be written"
    done
}

# install_packages: other services may be installing packages at the first boot, so it tries more than once
install_packages() {
    local try
    for try in 1 2 3; do
        timeout -k 5 1200 scripts/setup.sh build </dev/null && return
        echo "packages: try $try failed"
        [ $try = 3 ] || sleep 20
    done
    die "packages cannot be installed: $base/startup.log says why; type scripts/setup.sh build by hand"
}

# data_interface: the interface with the address of the experiment's LAN
data_interface() { ip -o -4 addr show to "${VB_LAN:-10.10.1.0/24}" | awk '{ print $2; exit }'; }

soft_roce() {
    local port
    port=$(data_interface)
    [ -n "$port" ] || { echo "no interface has an address of the LAN" && return 1; }
    ! rdma link show 2>/dev/null | grep -q "netdev $port\b" || return 0
    root timeout 60 modprobe rdma_rxe || {
        root timeout 600 apt-get -qq install -y "linux-modules-extra-$(uname -r)" </dev/null
        root timeout 60 modprobe rdma_rxe
    } || return 1
    root timeout 60 rdma link add rxe0 type rxe netdev "$port"
}

# allow_memlock: RDMA locks memory
allow_memlock() {
    local file=/etc/security/limits.d/verbena.conf
    [ -e $file ] || printf '* %s memlock unlimited\n' soft hard | root tee $file >/dev/null
}

# set_up_transport: prints a remark for the page; RDMA that does not work leaves TCP, so it is no failure
set_up_transport() {
    case $transport in
    tcp) echo "TCP" ;;
    soft-roce)
        allow_memlock >&2
        if soft_roce >&2; then echo "soft-RoCE"; else echo "soft-RoCE cannot be set up (startup.log): TCP"; fi
        ;;
    roce)
        allow_memlock >&2
        if compgen -G '/sys/class/infiniband/*' >/dev/null; then echo "RoCE"; else echo "no RDMA device: TCP"; fi
        ;;
    esac
}

prepare() {
    state run "installing the key"
    install_keys
    state run "installing packages"
    install_packages
    remark=$(set_up_transport)
    state ok "prepared; $remark"
}

# ---- node 0 ----------------------------------------------------------------------------------------

# wait_node I: waits until node I is prepared
wait_node() {
    local i=$1 text='' end=$((SECONDS + VB_NODE_WAIT_S))
    while [ $SECONDS -lt $end ]; do
        text=$(on "$i" 30 "cat $(quote "$base/state")" </dev/null) || text="run"$'\t'"$(why "$i" $? 30)"
        case ${text%%$'\t'*} in
        ok)
            echo "; ${text#*; }" >"$work/remark.$i"
            say "$i" run "${text#*$'\t'}" && return
            ;;
        failed) say "$i" failed "its start-up service failed: ${text#*$'\t'}" && return ;;
        esac
        [ "$(text_of "$i")" = "${text#*$'\t'}" ] || say "$i" run "${text#*$'\t'}"
        sleep 2
    done
    say "$i" failed "not prepared within $VB_NODE_WAIT_S s (last: ${text#*$'\t'}): type ssh ${names[i]} tail $base/startup.log"
}

lead() {
    local k list=node0 file
    for ((k = 1; k < nodes; k++)); do
        list+=,node$k
    done
    for file in hosts install measure page all; do
        # shellcheck source=/dev/null
        . "scripts/cluster/$file.sh"
    done
    dir=$base out=$base again=yes build_on=auto on_first=yes
    [ "$transport" = tcp ] || transport=auto # doctor compares what works
    read_hosts "$list"
    open_work
    begin_states
    write_page "building on node0"
    [ -w . ] || root chown -R "$(id -u):$(id -g)" . # CloudLab's clone may be another user's
    [ -n "${VERBENA:-}" ] || build_here || die "node0 cannot build: $build_why"
    root mkdir -p "$base/runs" && root chmod 1777 "$base/runs"
    write_page "waiting for the other nodes"
    on_good wait_node
    make_ready
    all_well || die "$(headline): see $base/ready.txt"
    state ok "$(headline)"
}

# Another user may have run it before.
root mkdir -p "$base" && root find "$base" -maxdepth 1 -exec chown "$(id -u):$(id -g)" {} + || exit 1
exec 8>"$base/startup.lock"
flock -n 8 || { echo "startup.sh: another one is at work; its log is $base/startup.log" >&2 && exit 1; }
exec >>"$base/startup.log" 2>&1 </dev/null
prepare
[ "$node" != 0 ] || lead
