# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Functions for the tests of the lab. A test sources this file at the top of the tree.

work=$(mktemp -d)
export TMPDIR=$work/tmp LAB_TEST=$$-$RANDOM
mkdir "$TMPDIR"
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    echo "--- standard error of the last run:"
    grep -vE '\] \[ +(OK|RUN) ' "$work/err" | tail -n 60
    exit 1
}

# ours: prints the qemu and cluster processes that this test started. Such a process has this test's LAB_TEST in its
# environment.
ours() {
    local file
    for file in $({ grep -lsxzF "LAB_TEST=$LAB_TEST" /proc/[0-9]*/environ || true; }); do
        { tr '\0' ' ' <"${file%environ}cmdline"; } 2>/dev/null |
            grep -aoE '^[^ ]*(qemu|cluster)[^ ]*' || true
    done
}

# nothing_left WHAT: fails if a machine of this test still runs, or a temporary file is left; WHAT describes the run in
# the message
nothing_left() {
    local left i
    # A killed process may need a moment to release its memory.
    for i in 1 2 3 4 5 6 7 8 9 10; do
        left=$(ours)
        [ -n "$left" ] || break
        sleep 0.2
    done
    [ -z "$left" ] || fail "$1 ($i): still running: $left"
    [ -z "$(ls -A "$TMPDIR")" ] || fail "$1: left in the temporary folder: $(ls -A "$TMPDIR")"
    [ -z "$(find "$cache" -maxdepth 1 -name 'new.*')" ] || fail "$1: left in $cache"
}

# expect STATUS TEXT COMMAND...: runs the command, which must exit with STATUS and whose standard error must match the
# pattern TEXT; "" matches anything
expect() {
    local status=0 wanted=$1 text=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "$*: status $status, expected $wanted"
    [ -z "$text" ] || grep -qE -e "$text" "$work/err" || fail "$*: missing in standard error: $text"
    nothing_left "$*"
}

# start COMMAND...: starts a command in the background, in its own process group, and sets pid
start() {
    set -m
    "$@" >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    set +m
}

# wait_for_text TEXT: waits until the command of start() has printed TEXT on standard error
wait_for_text() {
    local i
    for ((i = 0; i < 600; i++)); do
        ! grep -q -e "$1" "$work/err" || return 0
        kill -0 "$pid" || fail "the program ended; its standard error does not contain: $1"
        sleep 0.1
    done
    fail "timeout of a minute; missing in standard error: $1"
}

cache=${VB_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/verbena-lab}
head -c 60000000 /dev/zero >"$work/big"
status=0
lab/run --prepare 2>"$work/err" || status=$?
if [ "$status" = 69 ]; then
    echo "skipped: $(tail -n 1 "$work/err")"
    exit 77
fi
[ "$status" = 0 ] || fail "lab/run --prepare: status $status"
for program in ibv_devinfo rping ib_write_bw; do
    if ! command -v $program >/dev/null; then
        echo "skipped: $program is not installed (scripts/setup.sh full)"
        exit 77
    fi
done
