#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests bench/compare all: compare.sh VERBENA. Wrong arguments, a real comparison with the loops that the build has, its
# table, its JSON lines, the table in a page. It checks no speed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
for tool in jq column; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
if ! [ build/verbena -ef "$1" ] || ! [ -x build/bench/bare ]; then
    echo "skipped: bench/compare measures build/verbena, which is not the program of this test"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
unset "${!VB_@}"

fail() {
    echo "FAIL: $*"
    bad=1
}

# refused TEXT ARGUMENTS...: bench/compare must exit with 2 and say TEXT
refused() {
    local text=$1 code
    shift
    timeout 60 bench/compare "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    [ $code = 2 ] || fail "$*: exit $code"
    grep -qF -- "$text" "$dir/err" || fail "$*: no '$text': $(cat "$dir/err")"
    [ ! -s "$dir/out" ] || fail "$*: printed something"
}

refused "bench/compare all [--quick]"
refused "bench/compare all [--quick]" nonsense
refused "bench/compare all [--quick]" all --only
refused "bench/compare all [--quick]" all 1x
refused "has no comparison nonsense; it has: transfer allreduce" all --only transfer,nonsense
refused "belong to bench/compare all" transfer --json
refused "no such file" all --write "$dir/none.md"
printf 'above\n<!-- end of bench/compare all -->\n<!-- bench/compare all -->\nbelow\n' >"$dir/page.md"
cp "$dir/page.md" "$dir/before.md"
refused "needs one line" all --write "$dir/page.md"
cmp -s "$dir/page.md" "$dir/before.md" || fail "a page without marks was changed"

# The bare loops are peers that every build has.
printf 'above\n<!-- bench/compare all -->\nold\n<!-- end of bench/compare all -->\nbelow\n' >"$dir/page.md"
timeout 200 bench/compare all --quick --only transfer --write "$dir/page.md" 2 >"$dir/out" 2>"$dir/err" ||
    fail "transfer: exit $?: $(cat "$dir/err")"
grep -q '^transfer: run 1 of [0-9]*, 0 s so far$' "$dir/err" || fail "no progress: $(cat "$dir/err")"
grep -q $'\r' "$dir/err" && fail "a changing line in a pipe"
grep -q '^comparison  *case  *peer  *ours  *theirs  *unit  *ratio  *spread$' "$dir/out" || fail "no head: $(cat "$dir/out")"
grep -qE '^transfer  +tcp 64, lat_us  +bare  +[0-9.]+  +[0-9.]+  +us  +[0-9.]+  +[0-9.]+-[0-9.]+ *$' "$dir/out" ||
    fail "no row: $(cat "$dir/out")"
[ "$(sed -n '1p;$p' "$dir/page.md" | paste -sd ' ')" = "above below" ] || fail "the page around the table has changed"
grep -q '^old$' "$dir/page.md" && fail "the old table is still there"
grep -qE '^\| transfer \| tcp 64, lat_us \| bare \| [0-9.]+ \| [0-9.]+ \| us \| [0-9.]+ \| [0-9.]+-[0-9.]+ \|$' \
    "$dir/page.md" || fail "no table in the page: $(cat "$dir/page.md")"
[ "$(grep -c 'bench/compare all -->$' "$dir/page.md")" = 2 ] || fail "the marks are gone: a second run would find no place"

timeout 200 bench/compare all --quick --only transfer --json >"$dir/out" 2>"$dir/err" || fail "--json: exit $?"
jq -es 'length >= 3 and all(.[]; .compare == "transfer" and .rounds == 1 and .ours > 0 and .theirs > 0 and
    .ratio_min <= .ratio and .ratio <= .ratio_max and
    ((if .better == "low" then .theirs / .ours else .ours / .theirs end) - .ratio | fabs) < 1e-9)' "$dir/out" >/dev/null ||
    fail "--json: $(cat "$dir/out")"

# With --quick a program that hangs is stopped, and nothing starts when the time is up.
bash -c 'dir=$1 quick=1 rounds=1; . bench/versus/common.sh; now=part SECONDS=$((quick_s + 1)); limited sleep 60
    [ $? = 124 ] && turn touch "$dir/late"' - "$dir" >"$dir/out" 2>"$dir/err" || fail "a program that hangs: $(cat "$dir/err")"
grep -q '^part: sleep 60 did not end' "$dir/err" || fail "not named: $(cat "$dir/err")"
grep -q '^without the rest of part: --quick has no time left' "$dir/err" || fail "not listed: $(cat "$dir/err")"
[ ! -e "$dir/late" ] || fail "a program was started although the time was up"

# A peer that is not there is named, with what to install.
. bench/python.sh
if ! python_with torch numpy >/dev/null; then
    timeout 60 bench/compare all --only sync >"$dir/out" 2>"$dir/err"
    [ $? = 77 ] || fail "without a peer: not 77"
    grep -q '^without torch: install python3-torch, or name an environment by VB_PYTHON$' "$dir/err" ||
        fail "without a peer: $(cat "$dir/err")"
fi
exit $bad
