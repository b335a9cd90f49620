#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests help texts and usage errors of the command, and its subcommands topo and doctor: cli.sh VERBENA
#
# Covers: cli/doctor/cmd_doctor.c cli/cmd_topo.c cli/main.c cli/parse.c cli/version.c
set -uo pipefail
verbena=$(realpath "$1")
tests=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
unset "${!VB_@}"

# AddressSanitizer takes seconds to look for leaks in each process, so only the last tests look for leaks.
leaks=${ASAN_OPTIONS:-}
export ASAN_OPTIONS=$leaks:detect_leaks=0

fail() {
    echo "FAIL: $*"
    bad=1
}

# run ARGUMENTS...: runs the command; stores its output in $out, standard error in $err and the exit code in $code
run() {
    "$verbena" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    out=$(cat "$dir/out")
    err=$(cat "$dir/err")
}

# refused CODE TEXT ARGUMENTS...: fails unless the command exits with CODE, prints one line and how to fix it, with TEXT, to
# standard error, and prints nothing to standard output
refused() {
    local want=$1 text=$2
    shift 2
    run "$@"
    [ "$code" = "$want" ] || fail "verbena $*: exit $code, not $want"
    [ "$(grep -vc '^  fix: ' "$dir/err")" = 1 ] || fail "verbena $*: not one line: $err"
    [[ $err == *"$text"* ]] || fail "verbena $*: '$err' lacks '$text'"
    [ -z "$out" ] || fail "verbena $*: printed '$out'"
}

# holds FILTER ARGUMENTS...: fails unless the command prints one line of JSON for which the jq filter is true
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
run topo --help; has "--ranks N"; has "VB_LOG_LEVEL"; [ "$code" = 0 ] || fail "topo --help: exit $code"
run help topo; has "--ranks N"
run doctor --help; has "--json"
run data --help; has "convert SPEC OUT.csr"; has "criteo:FILE"
run bench --help; has "sparse-allreduce"; has "--explain"
run bench --help-all; has "busbw"; has "VB_IN_FLIGHT"
for command in bench completion ctl data doctor eval export ops top topo train; do
    run $command --help
    [ "$(wc -l <"$dir/out")" -le 80 ] || fail "$command --help: more than two screens"
    [ "$(wc -L <"$dir/out")" -le 100 ] || fail "$command --help: wider than the screen"
    grep -o -- '^  --[a-z-]*' "$dir/out" | sort >"$dir/basic"
    n_more=$(sed -n "s/^verbena $command --help-all shows \([0-9]*\) more options\?\.\$/\1/p" "$dir/out")
    run $command --help-all
    [ "$(wc -L <"$dir/out")" -le 100 ] || fail "$command --help-all: wider than the screen"
    grep -o -- '^  --[a-z-]*' "$dir/out" | sort >"$dir/all"
    [ -z "$(comm -23 "$dir/basic" "$dir/all")" ] || fail "$command --help-all lacks options of --help"
    [ "$(comm -13 "$dir/basic" "$dir/all" | wc -l)" = "${n_more:-0}" ] ||
        fail "$command --help: not ${n_more:-0} more options"
    # With log level info the command prints every option, also --slow and --noise-scale, which help texts do not list.
    "$verbena" $command --log-level info </dev/null 2>&1 >/dev/null |
        sed -n "s/.* $command: \(--[a-z-]*\) = .*/  \1/p" | grep -vx -- '  --slow\|  --noise-scale' | sort >"$dir/table"
    [ -s "$dir/table" ] || fail "$command: no dump of the options"
    [ "$(grep -vx -- '  --help\|  --help-all' "$dir/all")" = "$(cat "$dir/table")" ] ||
        fail "$command --help-all does not have all options: $(diff "$dir/all" "$dir/table")"
done

# ---- old names of options still work, but help texts do not list them
for old in hold-back:defer-bytes share-out:shared-update-min; do
    run train softmax --dry-run --data synth:100 "--${old%:*}" 4096 --log-level info
    [[ $code$err == 0*"--${old#*:} = 4096 (command line)"* ]] || fail "--${old%:*}: $code $err"
    variable=VB_$(tr a-z- A-Z_ <<<"${old%:*}")
    run_with() { env "$variable=4100" "$verbena" train softmax --dry-run --data synth:100 --log-level info 2>&1; }
    [[ $(run_with) == *"--${old#*:} = 4100 (environment)"* ]] || fail "$variable has no effect"
    refused 2 "--${old%:*} 1: must be from 4" train softmax "--${old%:*}" 1
    run train --help-all
    [[ $out != *"${old%:*}"* && $out != *"$variable"* ]] || fail "--${old%:*} is listed"
done
# ---- eval judges a checkpoint on the data of its run, unless the user names other data
run train softmax --data synth:500 --steps 5 --checkpoint "$dir/eval" --json
accuracy=$(tail -n 1 "$dir/out" | jq .accuracy)
holds ".data == \"synth:500\" and .test_samples == 100 and .accuracy == $accuracy" eval "$dir/eval" --json
holds '.data == "synth:50" and .test_samples == 10' eval "$dir/eval" --data synth:50 --json
rm -r "$dir/eval"

run --version; has "verbena 0."; has "hwloc 2."; has "oneDNN"; has "OpenBLAS"; has "libibverbs"
[ "$(git describe --always --exclude='*' --abbrev=40 2>/dev/null)" = "" ] || has_commit='(.commit | test("^[0-9a-f]{40}(-modified)?$"))'
holds "(.version | startswith(\"0.\")) and (.compiler | test(\"^(GNU|Clang) [0-9]\")) and .build_type != \"\" and
    (.instruction_level | IN(\"baseline\", \"v3\", \"v4\")) and (.libraries | length > 8) and
    ([.libraries[] | test(\"^[0-9]\")] | all) and ${has_commit:-true}" --version --json
[ "verbena $(jq -r .version "$dir/out")" = "$("$verbena" --version | head -n 1)" ] || fail "--version --json: other version"
refused 2 "only --json may follow --version" --version --jsno
refused 2 "only --json may follow --version" --version --json more
for shell in bash zsh; do
    run completion $shell; has "lenet"; has "--transport"; [ "$code" = 0 ] || fail "completion $shell: exit $code"
done
refused 2 "unknown shell tcl; must be bash or zsh" completion tcl

# ---- bad usage prints one line and exits with 2
refused 2 "the command is missing"
refused 2 "unknown command tpoo; did you mean top?" tpoo
refused 2 "unknown command dance; verbena --help" dance
refused 2 "unknown option --verison; verbena --help" --verison
refused 2 "unknown option --rank; did you mean --ranks?" topo --rank 4
refused 2 "--ranks needs a value" topo --ranks
refused 2 "--ranks four: must be a whole number" topo --ranks four
refused 2 "--ranks 0: must be from 1 to 4096" topo --ranks 0
refused 2 "--threads 5000: must be from 0 to 4096" topo --threads 5000
refused 2 "--log-level loud: must be error, warn" topo --log-level loud
refused 2 "unexpected argument machine" topo machine
refused 2 "not both" topo --synthetic pu:1 --xml x
refused 2 "does not describe a machine in hwloc's notation" topo --synthetic nonsense
refused 2 "more than 4096 hardware threads" topo --synthetic "pu:1000000000"
refused 2 "is not a list of cpus" topo --synthetic pu:4 --cpus 3-1
refused 2 "no hardware thread of synthetic is allowed" topo --synthetic pu:4 --cpus 7
VB_RANKS=many run topo
[[ $code$err == 2*"VB_RANKS many: must be a whole number"* ]] || fail "VB_RANKS=many: $code $err"

# ---- bad files are reported in one line, with exit code 1, and no incomplete file is left
echo "not XML" >"$dir/bad.xml"
refused 1 "none.xml: No such file or directory" topo --xml "$dir/none.xml"
refused 1 "does not describe a machine in hwloc's XML" topo --xml "$dir/bad.xml"
refused 1 "$dir is not a regular file" topo --xml "$dir"
refused 1 "nowhere/m.xml: No such file or directory" topo --save "$dir/nowhere/m.xml"
mkfifo "$dir/pipe"
refused 1 "pipe is not a regular file" topo --xml "$dir/pipe" # without waiting for a writer
refused 2 "write $dir/pipe: the path exists and is not a regular file" topo --save "$dir/pipe"
refused 2 "write $dir: the path exists and is not a regular file" topo --save "$dir"
[ -p "$dir/pipe" ] || fail "a file replaced the pipe"
refused 1 "No such file or directory" doctor --sysroot "$dir/nowhere"
mkdir "$dir/locked" && chmod 500 "$dir/locked"
if [ "$(id -u)" != 0 ]; then
    refused 1 "locked/m.xml: Permission denied" topo --save "$dir/locked/m.xml"
else # root may write everywhere except to a file system of the kernel
    refused 1 "/proc/m.xml: " topo --save /proc/m.xml
fi
[ -z "$(ls "$dir/locked")" ] || fail "something was left in an unwritable folder"
head -c 100000 /dev/urandom >"$dir/noise.xml"
refused 1 "does not describe a machine in hwloc's XML" topo --xml "$dir/noise.xml"

# ---- a full disk is reported
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

# ---- a machine that was saved to a file gives the same placement as the original
run topo --ranks 2 --save "$dir/this.xml" --json
here=$(jq -c '[.ranks[] | {cores, cpus, progress_core, nic}]' <<<"$out")
run topo --ranks 2 --xml "$dir/this.xml" --json
there=$(jq -c '[.ranks[] | {cores, cpus, progress_core, nic}]' <<<"$out")
[ "$here" = "${there:-nothing}" ] || fail "saved: $there, not $here"

# ---- only the cores that the process may use are listed
if [ "$(nproc)" -gt 1 ] && command -v taskset >/dev/null; then
    cpu=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')
    taskset -c "$cpu" "$verbena" topo --json >"$dir/out"
    jq -e ".machine.allowed_cpus == 1 and .ranks[0].cpus == [$cpu]" >/dev/null <"$dir/out" ||
        fail "the affinity was ignored"
fi

# ---- doctor
run doctor --json
[ "$code" = 0 ] || [ "$code" = 1 ] || fail "doctor: exit $code"
jq -e '.checks | length > 8' >/dev/null <<<"$out" || fail "doctor: too few checks"
jq -e 'all(.checks[]; .level == "OK" or .level == "WARN" or .level == "FAIL")' >/dev/null \
    <<<"$out" || fail "doctor: odd level"
[ "$(jq '[.checks[] | select(.level == "FAIL")] | length == 0' <<<"$out")" = \
    "$(jq .ok <<<"$out")" ] || fail "doctor: ok contradicts the checks"
if [ "$(jq .ok <<<"$out")" = true ]; then want=0; else want=1; fi
[ "$code" = "$want" ] || fail "doctor: exit $code, not $want"
run doctor; has " checks: "
(ulimit -n 40 && "$verbena" doctor --json >"$dir/out") && fail "doctor: a limit of 40 open files was accepted"
jq -e '.checks[] | select(.level == "FAIL") | .fix | contains("nofile")' >/dev/null <"$dir/out" ||
    fail "doctor: no command that fixes the open-file limit"

# ---- no command leaks memory (only a build with AddressSanitizer finds leaks)
ASAN_OPTIONS=$leaks
run topo --ranks 3; [ "$code" = 0 ] || fail "topo: $err"
run topo --xml "$tests/machines/qemu-arm-2numa-2rxe.xml" --json; [ "$code" = 0 ] || fail "topo: $err"
run doctor --json --sysroot "$tests/sysroots/cloudlab"; [ "$code" = 0 ] || fail "doctor: $err"

[ $bad = 0 ] && echo "all tests passed"
exit $bad
