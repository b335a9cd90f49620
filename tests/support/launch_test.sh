# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # the sourcing script uses bad, code and err, and sets dir and pid
# SPDX-License-Identifier: MIT
#
# Shared by the tests of launchers. They source this file and define ours(), which prints their processes.

fail() {
    echo "FAIL: $*"
    bad=1
}

# nothing_left WHAT: soon after this test no process of ours runs
nothing_left() {
    local i
    for ((i = 0; i < 200; i++)); do
        [ -n "$(ours)" ] || return
        sleep 0.1
    done
    fail "$1: still running: $(ours)"
}

# under WORDS...: runs a command; leaves its output in $dir/out, standard error in $err and the exit code in $code
under() {
    timeout 100 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    code=$?
    err=$(cat "$dir/err")
    nothing_left "$*"
}

# running N: waits until this number of our processes run
running() {
    local i
    for ((i = 0; i < 1500; i++)); do
        [ "$(ours | wc -l)" -lt "$1" ] || return
        sleep 0.02
    done
    fail "the ranks did not start: $(cat "$dir/err")"
}

# ends WHAT: process $pid ends soon, not with success, and no process of ours is left
ends() {
    if timeout 60 tail --pid="$pid" -f /dev/null; then
        { wait "$pid"; } 2>/dev/null && fail "$1: exit 0"
    else
        fail "$1: it did not end: $(cat "$dir/err")"
        kill -KILL "$pid"
    fi
    nothing_left "$1"
}

# with_folder: prints the ranks of this test, which all have its folder in their environment
with_folder() {
    grep -lsz "^TMPDIR=$dir" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        [ "$(readlink "/proc/$pid/exe")" != "$verbena" ] || echo "$pid"
    done
}
