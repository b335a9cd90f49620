#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests verbena demo: demo.sh VERBENA. Every part is shown, twice in the same folder; a Ctrl-C leaves no process; other
# people's folders stay as they are.
#
# Covers: cli/demo/cmd_demo.c cli/demo/demo_folder.c cli/demo/demo_parts.c cli/demo/demo_run.c cli/demo/demo_show.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
command -v jq >/dev/null || { echo "skipped: needs jq"; exit 77; }
export XDG_CACHE_HOME=$dir/cache
what=demo

# In a pipe: no colour, a line of each part.
cd "$dir" || exit 1
run
[ "$code" = 0 ] || fail "exit $code: $err $(cat "$dir/out")"
[ -z "$err" ] || fail "printed '$err' on standard error"
grep -q $'\033' "$dir/out" && fail "colour in a pipe"
for line in '^1/6 machine: ' '^    machine ' '^2/6 transports: ' '^    shm  *[0-9.]* us, ' '^    tcp  *[0-9.]* us, ' \
    '^    verbs ' '^3/6 training: ' '^    bottleneck  ' '^    accuracy  ' '^4/6 straggler: ' \
    '^    waits  .*rank 0 waited [0-9.]* s for rank 1' '^5/6 death: ' '^    lost  *rank 2 at step ' \
    '^    went on  .* all 5000 steps' '^6/6 report: ' '^    open it  *xdg-open /'; do
    grep -q "$line" "$dir/out" || fail "no line '$line': $(cat "$dir/out")"
done
[ -s verbena-demo/report.html ] || fail "there is no report"
jq -e '.faults[0].rank == 2 and .steps == 5000' verbena-demo/death/run.json >/dev/null || fail "death: wrong run.json"
jq -e '.per_rank[1].late_s > .per_rank[0].late_s' verbena-demo/straggler/run.json >/dev/null ||
    fail "straggler: rank 1 did not keep rank 0 waiting"

# Once more in the same folder, as an object.
rm verbena-demo/report.html
trained '.demo == "verbena" and .failed == 0 and (.parts | length) == 6 and all(.parts[]; .state == "shown" and
    .why == null and (.lines | length) > 1 and .seconds > 0 and (.lines[0] | startswith("$ verbena ")))'
[ -s verbena-demo/report.html ] || fail "there is no report of the second demo"
cmp -s "$dir/out" verbena-demo/demo.json || fail "demo.json is not what --json prints"

# A part that fails is named, and the exit code says so. Options come from the environment, too.
VB_STEPS=0 VB_TIMEOUT=nonsense run --out failed
[ "$code" = 1 ] || fail "a failed command: exit $code"
grep -q '^    exit 2, see failed/.*VB_TIMEOUT' "$dir/out" || fail "a failed command is not named: $(cat "$dir/out")"

mkdir other && echo mine >other/file
refused 2 "the folder is not empty and no demo has made it" --out other
echo '{"steps":1}' >other/demo.json
refused 2 "the folder is not empty and no demo has made it" --out other
[ "$(cat other/file)" = mine ] || fail "other/file has changed"
refused 2 "is not a folder" --out other/file
refused 2 "the value is empty" --out ""
refused 2 "blanks" --out "a b"
refused 2 "--frobnicate" --frobnicate

# Ctrl-C in a training
"$verbena" demo --out stopped >"$dir/out" 2>"$dir/err" &
pid=$!
for ((i = 0; i < 600; i++)); do
    [ -d stopped/train/rank1 ] && break
    sleep 0.1
done
kill -TERM $pid # a shell lets its background jobs ignore SIGINT
wait $pid
code=$?
[ $code = 143 ] || fail "Ctrl-C: exit $code: $(cat "$dir/err")"
grep -q '^stopped; what was done is in stopped' "$dir/err" || fail "Ctrl-C: $(cat "$dir/err")"
left=$(pgrep -f -- "--run stopped/train") && fail "Ctrl-C: left over: $left"
jq -e '.parts[-1].name == "training" and .parts[-1].why == "stopped"' stopped/demo.json >/dev/null ||
    fail "Ctrl-C: demo.json: $(cat stopped/demo.json)"
exit $bad
