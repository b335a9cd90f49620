#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests what a synchronous job tells of ranks that are lost: train_lost.sh VERBENA. The terminal, the final object, the run
# folder, top, report and ops, if rank 0 is lost and if another is; and where records go if the folder of rank 0 is gone
# with it: ranks with a folder of their own each have a current folder of their own here.
#
# Covers: engine/record/train_recovery.c cli/run_lost.c cli/report/report_lost.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
check=$(realpath "$(dirname "$0")/check_lost.py")
page=$(dirname "$0")/../../../docs/run.md
awk '/^```python/ {inside = 1; next} /^```/ {if (inside) exit} inside' "$page" >"$dir/reader.py"
PYTHONPATH=$dir:$(realpath "$(dirname "$0")/../../record")
export PYTHONPATH
job=(lenet --data synth:800 --batch 16 --steps 60 --eval-every 10 --seed 3)

# kept_step FILE DIED: sets kept, the step of the loss. Others may notice the death before they commit the last common step.
kept_step() {
    kept=$(jq '.faults[0].step' "$1")
    if [ "$kept" != $(($2 - 1)) ] && [ "$kept" != $(($2 - 2)) ]; then
        fail "the rank that died in step $2 was lost after step $kept"
    fi
}

# told RANK STEP FILE: the terminal has one line for the rank that was lost, and one for the others
told() {
    [ "$(grep -c "rank $1 (host .*) was lost after step $2: ." "$3")" = 1 ] || fail "rank $1: $(cat "$3")"
    [ "$(grep -c 'training goes on with . rank.*: step .* was computed again, and was done .* s after the loss (ms: detect' "$3")" = 1 ] ||
        fail "rank $1: the others are not told of once: $(cat "$3")"
}

# ---- the supervisor's ranks, with one folder
for lost in 0 1; do
    lead=$((lost == 0 ? 1 : 0))
    ends ".steps == 60 and .ranks == 3 and (.faults | length) == 1" "${job[@]}" --ranks 3 --inject "kill:$lost@30" \
        --run "$dir/run" --trace=25:35 --trace-format json
    kept_step "$dir/out" 30
    told "$lost" "$kept" "$dir/err"
    final "(.faults[0] | .what == \"rank lost\" and .rank == $lost and .again == .step + 1 and .left == 2 and
        .host != \"\" and .why != \"\" and .at_s > 0 and .recovered_s > 0 and
        (.phases | keys == [\"agree_s\", \"detect_s\", \"fence_s\", \"rebuild_s\", \"recompute_s\"]) and
        ((.phases | add) - .recovered_s | fabs) < 1e-3 + 0.01 * .recovered_s)" "kill:$lost"
    python3 "$check" "$dir/run" "$dir/out" "$lost" "$lead" || fail "kill:$lost: the run folder"
    [ -z "$(find "$dir/run" -name '.token*' -o -name .reserve)" ] || fail "kill:$lost: $(ls -A "$dir/run")"
    grep -q '^verbena_ranks_lost_total 1$' "$dir/run/metrics.prom" || fail "kill:$lost: metrics.prom counts no lost rank"
    grep -q '^verbena_steps_total 60$' "$dir/run/metrics.prom" || fail "kill:$lost: metrics.prom ends early"
    grep -q '^verbena_running 0$' "$dir/run/metrics.prom" || fail "kill:$lost: metrics.prom: the run has not ended"

    timeout 100 "$verbena" ops "$dir/run" --json >"$dir/ops" || fail "ops fails"
    for op in recovery "detect loss of rank" agree fence rebuild "compute step again"; do
        jq -es --arg op "$op" 'any(.[]; .pass == "recovery" and .op == $op and .calls == 2)' "$dir/ops" >/dev/null ||
            fail "kill:$lost: ops does not have two calls of: $op"
    done
    timeout 100 "$verbena" top "$dir/run" --once --json >"$dir/top" || fail "top fails"
    jq -e --argjson lost "$lost" --argjson kept "$kept" '.step == 60 and .state == "ended" and .loss > 0 and
        all(.ranks[]; .lost_step == (if .rank == $lost then $kept else null end))' "$dir/top" >/dev/null ||
        fail "kill:$lost: top: $(cat "$dir/top")"
    timeout 100 "$verbena" top "$dir/run" --once | grep -q "^ *$lost .*lost after step $kept" || fail "top does not show it"
    timeout 100 "$verbena" report "$dir/run" --no-png --json >"$dir/report" || fail "report fails"
    jq -e --argjson lost "$lost" --argjson kept "$kept" '.runs[0] | .state == "ended" and .step == 60 and .gaps == [] and (.lost | length) == 1 and
        (.lost[0] | .rank == $lost and .step == $kept and .again == $kept + 1 and (.phases | length) == 5)' "$dir/report" >/dev/null ||
        fail "kill:$lost: report: $(cat "$dir/report")"
    for plot in loss-step loss-time loss-epoch accuracy-step steps-per-s-time "phases-rank$lead" cpu; do
        grep -q "rank $lost lost</text>" "$dir/run/plots/$plot.svg" || fail "kill:$lost: $plot.svg has no mark"
    done
    grep -q "Rank $lost (host .*) was lost after step $kept" "$dir/run/report.html" || fail "the page does not tell of it"
    [ "$(wc -l <"$dir/run/tables/lost.csv")" = 2 ] || fail "kill:$lost: $(cat "$dir/run/tables/lost.csv")"
done

# ---- while it goes on, and without a result
run "${job[@]}" --ranks 3 --inject "kill:0@30" --run "$dir/run"
kept_step "$dir/run/run.json" 30
jq '{model, run: (.run + {state: "running"})}' "$dir/run/run.json" >"$dir/json" && mv "$dir/json" "$dir/run/run.json"
timeout 100 "$verbena" top "$dir/run" --once --json | jq -e --argjson kept "$kept" '.ranks[0].lost_step == $kept and .ranks[1].lost_step == null' \
    >/dev/null || fail "top does not find the lost rank in the events"
timeout 100 "$verbena" report "$dir/run" --no-png --json | jq -e --argjson kept "$kept" '.runs[0].lost[0] | .rank == 0 and .again == $kept + 1' >/dev/null ||
    fail "report does not find the lost rank in the events"

# ---- several are lost, one after another; text output
run "${job[@]}" --ranks 4 --inject "kill:0@20,kill:1@40" --run "$dir/run"
[ "$code" = 0 ] || fail "two losses: exit $code: $err"
[ "$(grep -c '^at .* rank . (host .*) was lost after step .*; . ranks* went on within' "$dir/out")" = 2 ] ||
    fail "two losses: $(cat "$dir/out")"
jq -e '[.faults[].rank] == [0, 1] and .run.lead == 2 and .run.state == "ended"' "$dir/run/run.json" >/dev/null ||
    fail "two losses: $(jq -c '.faults, .run.lead, .run.state' "$dir/run/run.json")"
[ "$(grep -c '"rank lost"' "$dir/run/events.jsonl")" = 2 ] || fail "two losses: $(cat "$dir/run/events.jsonl")"

# ---- ranks that were started by hand. by_hand FOLDERS...: the folder in which each rank runs
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/key"
chmod 600 "$dir/key"
by_hand() {
    local rank=0 pids=() at port=$((20000 + RANDOM % 10000))
    rm -rf "$dir"/host?
    for at in "$@"; do
        mkdir -p "$dir/$at"
        (cd "$dir/$at" && exec timeout -k 5 100 "$verbena" train softmax --data synth:4000 --batch 1000 --steps 600 --eval-every 100 \
            --rank "$rank" --world $# --root "127.0.0.1:$port" --secret-file "$dir/key" --transport tcp --run run \
            --inject kill:0@300 --json >"$dir/out$rank" 2>"$dir/err$rank") &
        pids+=($!)
        rank=$((rank + 1))
    done
    wait "${pids[@]}" 2>/dev/null
}

# rank 2 does not see the folder: it sends to rank 0, and then to rank 1
by_hand hostA hostA hostB
kept_step "$dir/out1" 300
told 0 "$kept" "$dir/err1"
python3 "$check" "$dir/hostA/run" "$dir/out1" 0 1 sent || fail "one folder, records are sent"

# no rank sees the folder of rank 0: records of the others go on in that of rank 1
by_hand hostA hostB hostC
kept_step "$dir/out1" 300
[ "$(grep -c "from step $((kept + 1)) on records are in run on host" "$dir/err1")" = 1 ] || fail "far: $(cat "$dir/err1")"
if [ ! -s "$dir/out1" ] || [ -s "$dir/out0" ] || [ -s "$dir/out2" ]; then
    fail "far: rank 1 alone prints the result"
fi
jq -e '.run.state == "ended" and .run.lead == 1 and .faults[0].rank == 0' "$dir/hostB/run/run.json" >/dev/null ||
    fail "far: $(jq -c '.run.state, .run.lead, .faults' "$dir/hostB/run/run.json")"
jq -e '.run.state == "running"' "$dir/hostA/run/run.json" >/dev/null || fail "far: the folder of rank 0 changes"
python3 - "$dir/hostB/run" <<'END' || fail "far: the folder of rank 1"
import sys
from reader import read_run
run = read_run(sys.argv[1])
assert sorted(run["steps"]) == [1, 2], sorted(run["steps"])
for rank, rows in run["steps"].items():
    steps = [row["step"] for row in rows]
    assert steps[0] <= 301 and steps == list(range(steps[0], 601)), (rank, steps[0], steps[-1], len(steps))
assert [row["step"] for row in run["evals"]] == [100, 200, 300, 400, 500, 600], run["evals"]
END
timeout 100 "$verbena" report "$dir/hostB/run" --no-png --json | jq -e '.runs[0] | .gaps == [] and .state == "ended"' >/dev/null ||
    fail "far: report"
exit "$bad"
