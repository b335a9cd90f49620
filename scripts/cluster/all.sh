# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the sourcing script
#
# The steps in their order. cloudlab/startup.sh runs the same.

# open_work: makes the folders
open_work() {
    mkdir -p "$out" || die "cannot write to $out: name another folder with --out"
    out=$(realpath "$out")
    exec 9>"$out/.lock"
    flock -n 9 || die "$out is in use by another run; wait for its end, or name another folder with --out"
    work=$(mktemp -d) || die "cannot make a folder in ${TMPDIR:-/tmp}"
    trap close_work EXIT
    trap 'exit 130' INT TERM HUP
    terminal=no on_first=${on_first:-no} here=no program='' digest=''
    [ ! -t 1 ] || terminal=yes
    ssh=${VB_SSH:-ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=6}
}

# end_tree PID: ends a process and all that it has started. Background jobs of a script do not hear Ctrl-C.
end_tree() {
    local child
    for child in $(ps -o pid= --ppid "$1"); do
        end_tree "$child"
    done
    kill "$1" 2>/dev/null
}

close_work() {
    local pid
    for pid in $(jobs -p); do
        end_tree "$pid"
    done
    rm -rf "$work"
}

# none_left TEXT: all hosts that have not failed yet fail with this text
none_left() {
    local i
    for i in $(good); do
        say "$i" failed "$1"
    done
}

begin_states() {
    local i
    for i in "${!names[@]}"; do
        printf 'run\tnot asked yet\n' >"$work/state.$i"
    done
}

# make_ready: all steps, on the hosts that have not failed. The result is in $out/ready.txt and $out/ready.html.
make_ready() {
    write_page "connecting"
    on_good check_host
    same_kind
    if [ -n "$(good)" ]; then
        write_page "building"
        if find_program; then
            digest=$(sha256sum <"$program" | cut -c 1-64)
            write_page "installing"
            on_good install_host
        else
            none_left "there is no program: $build_why"
        fi
    fi
    write_page "doctor and allreduce between the hosts"
    run_jobs
    write_page finished
}
