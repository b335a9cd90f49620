# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # bad is for, and what is from, who sources it
# SPDX-License-Identifier: MIT
#
# What the tests of subcommands share; they source it with the program as $1 and then set what:
# the subcommand that run() runs.
set -uo pipefail
verbena=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
unset "${!VB_@}"
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # looking for leaks takes it seconds a rank

fail() {
    echo "FAIL: $*"
    bad=1
}

# run ARGUMENTS...: leaves output in $dir/out, errors in $err, exit code in $code
run() {
    timeout 100 "$verbena" "$what" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    err=$(cat "$dir/err")
}

# refused CODE TEXT ARGUMENTS...: one line on standard error that has TEXT, nothing on the other
refused() {
    local want=$1 text=$2
    shift 2
    run "$@"
    [ "$code" = "$want" ] || fail "$what $*: exit $code, not $want"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "$what $*: not one line: $err"
    [[ $err == *"$text"* ]] || fail "$what $*: '$err' lacks '$text'"
    [ ! -s "$dir/out" ] || fail "$what $*: printed something"
}

# quiet ARGUMENTS...: it succeeds and says nothing on standard error
quiet() {
    run "$@"
    [ "$code" = 0 ] || fail "$what $*: exit $code: $err"
    [ -z "$err" ] || fail "$what $*: said '$err'"
}

# get FILTER: of the final object of train --json, which is its last line
get() {
    tail -n 1 "$dir/out" | jq -r "$1"
}

# final FILTER WORDS...: the final object makes the filter true; the words say whose it is
final() {
    local filter=$1
    shift
    tail -n 1 "$dir/out" | jq -en "input | $filter" >/dev/null || # also fails where there is no object
        fail "$what $*: does not hold: $filter: $(tail -n 1 "$dir/out" | cut -c 1-1500)"
}

# trained FILTER ARGUMENTS...: it succeeds, says nothing else, and its final object is right
trained() {
    local filter=$1
    shift
    quiet "$@" --json
    final "$filter" "$@"
}

# ends FILTER ARGUMENTS...: the same of a run that may say something on standard error
ends() {
    local filter=$1
    shift
    run "$@" --json
    [ "$code" = 0 ] || fail "$what $*: exit $code: $err"
    final "$filter" "$@"
}

# ranks_of SUPERVISOR: the processes of its ranks, in their order. That of process ids is another when these begin anew
ranks_of() {
    local pid
    for pid in $(pgrep -P "$1"); do
        echo "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^VB_RANK=//p') $pid"
    done 2>/dev/null | sort -n | cut -d ' ' -f 2
}

# start STEPS ARGUMENTS...: a job of several ranks that is under way when this returns: it has written a checkpoint, of
# which it writes one every so many steps to $dir/keep. Or it has ended. $job is its process, $ranks those of its ranks
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

# kill_rank RANK: of the job that was started, which must not have ended
kill_rank() {
    kill -9 "${ranks[$1]:-none}" 2>/dev/null || fail "the job was over before rank $1 could be killed: $(cat "$dir/err")"
}
