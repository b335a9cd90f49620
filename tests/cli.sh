#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The command as a user meets it: cli.sh VERBENA
#
# Covers: cli/doctor.c cli/main.c cli/parse.c cli/topo.c
set -uo pipefail
verbena=$(realpath "$1")
tests=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
unset "${!VB_@}"

# Looking for leaks takes AddressSanitizer seconds a process; it is done at the end, for some.
leaks=${ASAN_OPTIONS:-}
export ASAN_OPTIONS=$leaks:detect_leaks=0

fail() {
    echo "FAIL: $*"
    bad=1
}

# run ARGUMENTS...: leaves output in $out, errors in $err, exit code in $code
run() {
    "$verbena" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    out=$(cat "$dir/out")
    err=$(cat "$dir/err")
}

# refused CODE TEXT ARGUMENTS...: one line on standard error that has TEXT, nothing on the other
refused() {
    local want=$1 text=$2
    shift 2
    run "$@"
    [ "$code" = "$want" ] || fail "verbena $*: exit $code, not $want"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "verbena $*: not one line: $err"
    [[ $err == *"$text"* ]] || fail "verbena $*: '$err' lacks '$text'"
    [ -z "$out" ] || fail "verbena $*: printed '$out'"
}

# holds FILTER ARGUMENTS...: the JSON that is printed makes the jq filter true
holds() {
    local filter=$1
    shift
    run "$@"
    [ "$code" = 0 ] || fail "verbena $*: exit $code: $err"
    [ "$(wc -l <"$dir/out")" = 1 ] || fail "verbena $*: not one line of JSON"
    jq -e "$filter" >/dev/null <"$dir/out" || fail "verbena $*: does not hold: $filter"
}

has() {
    [[ $out == *"$1"* ]] || fail "output lacks '$1'"
}

# ---- help and version
run --help; has "doctor"; has "topo"; [ "$code" = 0 ] || fail "--help: exit $code"
run topo --help; has "--ranks N"; has "VB_RANKS"; [ "$code" = 0 ] || fail "topo --help: exit $code"
run help topo; has "--ranks N"
run doctor --help; has "--json"
run data --help; has "convert SPEC OUT.csr"; has "criteo:FILE"
run bench --help; has "sparse-allreduce"; has "--explain"; has "VB_IN_FLIGHT"
run --version; has "verbena 0."; has "hwloc 2."; has "oneDNN"; has "OpenBLAS"; has "libibverbs"

# ---- bad usage: one line, exit 2
refused 2 "which command"
refused 2 "unknown command tpoo; did you mean topo?" tpoo
refused 2 "unknown command dance; verbena --help" dance
refused 2 "unknown option --verison; verbena --help" --verison
refused 2 "unknown option --rank; did you mean --ranks?" topo --rank 4
refused 2 "--ranks needs a value" topo --ranks
refused 2 "--ranks four: not a whole number" topo --ranks four
refused 2 "--ranks 0: must be from 1 to 4096" topo --ranks 0
refused 2 "--threads 5000: must be from 0 to 4096" topo --threads 5000
refused 2 "--log-level loud: must be error, warn" topo --log-level loud
refused 2 "unexpected argument machine" topo machine
refused 2 "not both" topo --synthetic pu:1 --xml x
refused 2 "is not a machine in hwloc's notation" topo --synthetic nonsense
refused 2 "more than 4096 hardware threads" topo --synthetic "pu:1000000000"
refused 2 "is not a list of cpus" topo --synthetic pu:4 --cpus 3-1
refused 2 "no hardware thread of synthetic is allowed" topo --synthetic pu:4 --cpus 7
VB_RANKS=many run topo
[[ $code$err == 2*"VB_RANKS many: not a whole number"* ]] || fail "VB_RANKS=many: $code $err"

# ---- bad files: one line, exit 1, nothing half-written
echo "not XML" >"$dir/bad.xml"
refused 1 "none.xml: No such file or directory" topo --xml "$dir/none.xml"
refused 1 "is not a machine in hwloc's XML" topo --xml "$dir/bad.xml"
refused 1 "$dir: is not a file" topo --xml "$dir"
refused 1 "nowhere/m.xml: No such file or directory" topo --save "$dir/nowhere/m.xml"
mkfifo "$dir/pipe"
refused 1 "pipe: is not a file" topo --xml "$dir/pipe" # and nobody waits for a writer
refused 2 "write $dir/pipe: it is there, and is not a file" topo --save "$dir/pipe"
refused 2 "write $dir: it is there, and is not a file" topo --save "$dir"
[ -p "$dir/pipe" ] || fail "a file took the place of a pipe"
refused 1 "No such file or directory" doctor --sysroot "$dir/nowhere"
mkdir "$dir/locked" && chmod 500 "$dir/locked"
if [ "$(id -u)" != 0 ]; then
    refused 1 "locked/m.xml: Permission denied" topo --save "$dir/locked/m.xml"
else # root may write anywhere but to a file system of the kernel's
    refused 1 "/proc/m.xml: " topo --save /proc/m.xml
fi
[ -z "$(ls "$dir/locked")" ] || fail "something was left in an unwritable folder"
head -c 100000 /dev/urandom >"$dir/noise.xml"
refused 1 "is not a machine in hwloc's XML" topo --xml "$dir/noise.xml"

# ---- a full disk is no success
if [ -e /dev/full ]; then
    "$verbena" topo >/dev/full 2>"$dir/err"
    [ $? = 1 ] || fail "a full disk went unnoticed"
    "$verbena" topo --json >/dev/full 2>"$dir/err"
    [ $? = 1 ] || fail "a full disk went unnoticed with --json"
fi

# ---- topo
machine="pack:2 numa:1 core:8 pu:2"
holds '[.ranks[].cores | length] == [4, 4, 4, 4]' topo --synthetic "$machine" --ranks 4 --json
holds '[.ranks[].cores[]] | length == 16 and (unique | length) == 16' \
    topo --synthetic "$machine" --ranks 4 --json
holds '[.ranks[].package] == [0, 0, 1, 1]' topo --synthetic "$machine" --ranks 4 --json
holds 'all(.ranks[]; [.progress_core] - .cores == [])' \
    topo --synthetic "$machine" --ranks 4 --json
holds '.ranks[0] | has("rank") and has("package") and has("cores") and has("progress_core") and has("nic")' \
    topo --json
holds '.overlap and (.pinned | not) and (.note | contains("ranks overlap"))' \
    topo --synthetic "core:2 pu:1" --ranks 3 --json
holds '[.ranks[].nic] == ["rxe0", "rxe1"]' \
    topo --xml "$tests/machines/qemu-arm-2numa-2rxe.xml" --ranks 2 --json
run topo --synthetic "core:2 pu:1" --ranks 3; has "3 ranks share 2 cores"
run topo; has "this machine"; has "rank  package"
VB_RANKS=3 holds '.ranks | length == 3' topo --synthetic "$machine" --json
run topo --synthetic "$machine" --ranks 2 --log-level info
[[ $err == *"topo: --ranks = 2 (command line)"* ]] || fail "no dump of the options"
[[ $err == *"topo: --threads = 0 (default)"* ]] || fail "no default in the dump"

# ---- a saved machine plans like the one it was saved from
run topo --ranks 2 --save "$dir/this.xml" --json
here=$(jq -c '[.ranks[] | {cores, cpus, progress_core, nic}]' <<<"$out")
run topo --ranks 2 --xml "$dir/this.xml" --json
there=$(jq -c '[.ranks[] | {cores, cpus, progress_core, nic}]' <<<"$out")
[ "$here" = "${there:-nothing}" ] || fail "saved: $there, not $here"

# ---- affinity counts
if [ "$(nproc)" -gt 1 ] && command -v taskset >/dev/null; then
    cpu=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')
    taskset -c "$cpu" "$verbena" topo --json >"$dir/out"
    jq -e ".machine.allowed_cpus == 1 and .ranks[0].cpus == [$cpu]" >/dev/null <"$dir/out" ||
        fail "affinity does not count"
fi

# ---- doctor
run doctor --json
[ "$code" = 0 ] || [ "$code" = 1 ] || fail "doctor: exit $code"
jq -e '.checks | length > 8' >/dev/null <<<"$out" || fail "doctor: too few checks"
jq -e 'all(.checks[]; .level == "OK" or .level == "WARN" or .level == "FAIL")' >/dev/null \
    <<<"$out" || fail "doctor: odd level"
[ "$(jq '[.checks[] | select(.level == "FAIL")] | length == 0' <<<"$out")" = \
    "$(jq .ok <<<"$out")" ] || fail "doctor: ok does not follow from the checks"
if [ "$(jq .ok <<<"$out")" = true ]; then want=0; else want=1; fi
[ "$code" = "$want" ] || fail "doctor: exit $code, not $want"
run doctor; has " checks: "
(ulimit -n 40 && "$verbena" doctor --json >"$dir/out") && fail "doctor: 40 open files are enough?"
jq -e '.checks[] | select(.level == "FAIL") | .fix | contains("nofile")' >/dev/null <"$dir/out" ||
    fail "doctor: no command that mends the open-file limit"

# ---- no command leaks (only a build with AddressSanitizer can tell)
ASAN_OPTIONS=$leaks
run topo --ranks 3; [ "$code" = 0 ] || fail "topo: $err"
run topo --xml "$tests/machines/qemu-arm-2numa-2rxe.xml" --json; [ "$code" = 0 ] || fail "topo: $err"
run doctor --json --sysroot "$tests/sysroots/cloudlab"; [ "$code" = 0 ] || fail "doctor: $err"

[ $bad = 0 ] && echo "all as it should be"
exit $bad
