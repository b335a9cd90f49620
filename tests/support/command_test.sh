# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # the sourcing script uses bad and sets what
# SPDX-License-Identifier: MIT
#
# Functions for the tests of subcommands. A test sources this file with the program as $1, and then sets $what to the
# subcommand that run() calls.
set -uo pipefail
verbena=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
unset "${!VB_@}"
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # because searching for leaks takes seconds per rank

fail() {
    echo "FAIL: $*"
    bad=1
}

# run ARGUMENTS...: runs the subcommand; its output is then in $dir/out, standard error in $err and the exit code in
# $code
run() {
    timeout 100 "$verbena" "$what" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    err=$(cat "$dir/err")
}

# refused CODE TEXT ARGUMENTS...: runs the subcommand, which must exit with CODE and print one line with TEXT, and at
# most two lines that say how to fix it, on standard error and nothing on standard output
refused() {
    local want=$1 text=$2
    shift 2
    run "$@"
    [ "$code" = "$want" ] || fail "$what $*: exit $code, expected $want"
    [ "$(grep -vc '^  fix: ' "$dir/err")" = 1 ] || fail "$what $*: expected one line, found: $err"
    [ "$(wc -l <"$dir/err")" -le 3 ] || fail "$what $*: more than two lines of help: $err"
    [[ $err == *"$text"* ]] || fail "$what $*: '$err' does not contain '$text'"
    [ ! -s "$dir/out" ] || fail "$what $*: wrote to standard output"
}

# quiet ARGUMENTS...: runs the subcommand, which must succeed and print nothing on standard error, except for what a
# training has chosen: its recipe, its test samples, and that it has more threads than cpus
quiet() {
    run "$@"
    err=$(grep -vE '^(\[rank 0\] )?(recipe: |cores: |data: no test data given)' "$dir/err")
    [ "$code" = 0 ] || fail "$what $*: exit $code: $err"
    [ -z "$err" ] || fail "$what $*: printed '$err' on standard error"
}

# get FILTER: applies the jq filter to the last line that train --json printed, and prints the result
get() {
    tail -n 1 "$dir/out" | jq -r "$1"
}

# final FILTER WORDS...: fails if the jq filter is false for the last line that train --json printed; WORDS describe the
# run in the message
final() {
    local filter=$1
    shift
    tail -n 1 "$dir/out" | jq -en "input | $filter" >/dev/null || # jq also fails if there is no line
        fail "$what $*: condition is false: $filter: $(tail -n 1 "$dir/out" | cut -c 1-1500)"
}

# trained FILTER ARGUMENTS...: trains with --json; the run must succeed, print nothing on standard error, and its last
# line must make the jq filter true
trained() {
    local filter=$1
    shift
    quiet "$@" --json
    final "$filter" "$@"
}

# ends FILTER ARGUMENTS...: like trained, but the run may print something on standard error
ends() {
    local filter=$1
    shift
    run "$@" --json
    [ "$code" = 0 ] || fail "$what $*: exit $code: $err"
    final "$filter" "$@"
}

# ranks_of SUPERVISOR: prints the process ids of the supervisor's ranks, in the order of ranks. When process ids wrap
# around, that order differs from the order of the ids.
ranks_of() {
    local pid
    for pid in $(pgrep -P "$1"); do
        echo "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^VB_RANK=//p') $pid"
    done 2>/dev/null | sort -n | cut -d ' ' -f 2
}

# start STEPS ARGUMENTS...: starts a job of several ranks and returns when it has written its first checkpoint, or has
# ended. The job writes a checkpoint to $dir/keep every STEPS steps. Sets $job to the process id of the job, and the
# array ranks to the process ids of its ranks.
start() {
    local every=$1 i
    shift
    rm -rf "$dir/keep"
    timeout 120 "$verbena" "$what" "$@" --checkpoint "$dir/keep" --checkpoint-every "$every" >"$dir/out" 2>"$dir/err" &
    job=$!
    for ((i = 0; i < 1200; i++)); do
        [ -n "$(find "$dir/keep" -name 'checkpoint-*.vbc' 2>/dev/null)" ] && break
        kill -0 "$job" 2>/dev/null || break
        sleep 0.05
    done
    mapfile -t ranks < <(ranks_of "$(pgrep -P "$job" | head -n 1)" 2>/dev/null)
}

# kill_rank RANK: kills a rank of the started job; fails if the rank has already ended
kill_rank() {
    kill -9 "${ranks[$1]:-none}" 2>/dev/null || fail "the job ended before rank $1 could be killed: $(cat "$dir/err")"
}
