# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154,SC2317 # the sourcing script uses bad, code and err, and sets dir and pid
# SPDX-License-Identifier: MIT
#
# Functions for the tests of launchers. A test sources this file and defines ours(), which prints one line for each
# process that the test has started; or it calls ranks_here VERBENA, for jobs whose ranks run on this host.

# ranks_here VERBENA: sets verbena, a new folder dir, and ours(). The folder goes when the test ends.
ranks_here() {
    verbena=$(realpath "$1")
    if ! command -v jq >/dev/null; then
        echo "skipped: needs jq"
        exit 77
    fi
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    bad=0
    unset "${!VB_@}"
    export TMPDIR=$dir # identifies our ranks
    ours() {
        with_folder
    }
}

fail() {
    echo "FAIL: $*"
    bad=1
}

# nothing_left WHAT: waits until no process of this test runs, and fails after a timeout; WHAT describes the run in the
# message
nothing_left() {
    local i
    for ((i = 0; i < 200; i++)); do
        [ -n "$(ours)" ] || return
        sleep 0.1
    done
    fail "$1: still running: $(ours)"
}

# under COMMAND...: runs the command; its output is then in $dir/out, standard error in $err and the exit code in $code.
# No process may be left.
under() {
    timeout 100 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    code=$?
    err=$(cat "$dir/err")
    nothing_left "$*"
}

# running N: waits until at least N processes of this test run
running() {
    local i
    for ((i = 0; i < 1500; i++)); do
        [ "$(ours | wc -l)" -lt "$1" ] || return
        sleep 0.02
    done
    fail "the ranks did not start: $(cat "$dir/err")"
}

# ends WHAT: fails unless process $pid ends soon with an error and no process of this test is left
ends() {
    if timeout 60 tail --pid="$pid" -f /dev/null; then
        { wait "$pid"; } 2>/dev/null && fail "$1: exit 0"
    else
        fail "$1: it did not end: $(cat "$dir/err")"
        kill -KILL "$pid"
    fi
    nothing_left "$1"
}

# with_folder: prints the process ids of this test's ranks. A rank has the test's folder in its environment (TMPDIR).
with_folder() {
    grep -lsz "^TMPDIR=$dir" /proc/[0-9]*/environ | while IFS=/ read -r _ _ one _; do
        [ "$(readlink "/proc/$one/exe")" != "$verbena" ] || echo "$one"
    done
}

# by_age: prints the process ids of this test's processes, the oldest first. Process ids may have begun anew at 1.
by_age() {
    local one rest
    for one in $(ours); do
        rest=$(cat "/proc/$one/stat" 2>/dev/null) || continue
        # shellcheck disable=SC2086 # must be split: the start time is word 20 after the name
        set -- ${rest##*) }
        echo "${20} $one"
    done | sort -k1,1n -k2,2n | cut -d ' ' -f 2
}

# said PATTERN: waits for a line on standard error
said() {
    local i
    for ((i = 0; i < 1500; i++)); do
        ! grep -qE "$1" "$dir/err" || return
        sleep 0.02
    done
    fail "nobody says '$1': $(cat "$dir/err")"
}
