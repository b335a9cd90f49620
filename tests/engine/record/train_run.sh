#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the run folder: train_run.sh VERBENA. What is in it, read by the Python reader of docs/run.md; the same bits with
# and without it, whatever becomes of the folder; --again; --resume into the same folder; rates and progress.
#
# Covers: engine/record/train_record.c engine/record/train_event.c engine/record/train_facts.c
# Covers: cli/train/train_run.c cli/train/train_again.c cli/train/train_json.c record/folder/files.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
page=$(dirname "$0")/../../../docs/run.md
awk '/^```python/ {inside = 1; next} /^```/ {if (inside) exit} inside' "$page" >"$dir/reader.py"
[ "$(wc -l <"$dir/reader.py")" -gt 20 ] || fail "docs/run.md has no reader in Python"
[ "$(wc -l <"$dir/reader.py")" -le 60 ] || fail "the reader of docs/run.md has more than 60 lines"

# check FOLDER EXPRESSION: evaluates a Python expression about the folder, with run = read_run(FOLDER) and the result
# that was printed last as final
check() {
    PYTHONPATH=$dir python3 - "$1" "$dir/out" "$2" <<'END' || fail "$1: false: $2"
import json, math, sys
from reader import read_run
run = read_run(sys.argv[1])
lines = open(sys.argv[2]).read().splitlines()
final = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
phases = ["data", "forward", "backward", "comm_exposed", "wait", "update", "eval", "checkpoint"]
def spent(row):
    return sum(row[p + "_s"] for p in phases)
def adds_up(rows):
    """The phases of each row add up to the time since the row before."""
    return all(abs((b["end_ns"] - a["end_ns"]) / 1e9 - spent(b)) < 1e-5 + 1e-6 * spent(b) for a, b in zip(rows, rows[1:]))
def few(e):
    """JSON has 15 digits."""
    return e["step"], round(e["accuracy"], 12), round(e["loss"], 12)
def whats():
    return [event["what"] for event in run["events"]]
sys.exit(0 if eval(sys.argv[3]) else 1)
END
}

# ---- what is in the folder
job=(lenet --data synth:1280 --steps 30 --ranks 2 --eval-every 10 --seed 3)
trained '.steps == 30' "${job[@]}" --run "$dir/a"
same=$(get .params_sha256)
python3 "$dir/reader.py" "$dir/a" >"$dir/text" || fail "the reader of docs/run.md fails"
grep -qF "step 30: loss $(printf '%.4f' "$(get .loss)"), accuracy $(printf '%.2f' "$(get '.accuracy * 100')") %" "$dir/text" ||
    fail "the reader prints: $(cat "$dir/text")"
check "$dir/a" '{k: v for k, v in run["json"].items() if k != "run"} == final'
check "$dir/a" 'sorted(run["steps"]) == [0, 1] and all([r["step"] for r in rows] == list(range(1, 31)) for rows in run["steps"].values())'
check "$dir/a" 'all(adds_up(rows) for rows in run["steps"].values())'
check "$dir/a" '[few(r) for r in run["evals"]] == [few(e) for e in final["evals"] + [dict(final, step=30)]]'
check "$dir/a" 'whats() == ["began", "evaluated", "evaluated", "evaluated", "ended"]'
check "$dir/a" 'all(sum(r["samples"] for r in rows) == 30 * 64 for rows in run["steps"].values())'
# all phases but the last evaluation are in rows
check "$dir/a" 'all(abs(sum(r[p + "_s"] for r in run["steps"][k["rank"]]) - k["breakdown"][p]) < 1e-3 * (1 + k["breakdown"][p]) for k in final["per_rank"] for p in phases if p != "eval")'
check "$dir/a" '[r["flags"] for r in run["steps"][0]] == [1 if s in (10, 20) else 0 for s in range(1, 31)]'
check "$dir/a" 'not math.isnan(run["steps"][0][0]["grad_norm"]) and run["steps"][0][0]["grad_norm"] > 0'
check "$dir/a" 'all(r["waited_for"] in (-1, 1 - rank) for rank, rows in run["steps"].items() for r in rows)'
check "$dir/a" 'run["json"]["run"]["state"] == "ended" and run["json"]["run"]["records_lost"] == 0 and run["json"]["run"]["format"] == 1'
check "$dir/a" '{o["name"]: (o["value"], o["source"]) for o in run["json"]["run"]["options"]}["steps"] == ("30", "command line")'
check "$dir/a" '{o["name"]: o["source"] for o in run["json"]["run"]["options"]}["lr"] == "default"'
check "$dir/a" 'run["json"]["run"]["data"]["rows"] == 1280 and len(run["json"]["run"]["data"]["digest"]) == 16'
check "$dir/a" '[r["transports"] for r in run["json"]["run"]["ranks"]] == [{"shm": [1]}, {"shm": [0]}]'
check "$dir/a" 'run["json"]["run"]["plan"] == open(sys.argv[1] + "/plan").read() and run["json"]["run"]["plan_sha256"] == final["plan_sha256"]'
check "$dir/a" 'all(r["pid"] > 0 and r["cpus"] > 0 and r["memory_bytes"] > 1e8 and r["host"] and r["kernel"] for r in run["json"]["run"]["ranks"])'
[ -f "$dir/a/rank1/log.txt" ] || fail "there is no log of rank 1"

# ---- --again: the same bits, unless something is overridden
trained ".params_sha256 == \"$same\" and .steps == 30" --again "$dir/a"
trained ".params_sha256 == \"$same\"" --again "$dir/a/run.json" --run "$dir/b"
check "$dir/b" 'run["json"]["run"]["model"] == "lenet" and run["json"]["run"]["data"] == json.load(open(sys.argv[1] + "/../a/run.json"))["run"]["data"]'
trained ".params_sha256 != \"$same\" and .steps == 29" --again "$dir/a" --steps 29
VB_LR=0.011 trained '.lr == 0.011' softmax --data synth:500 --steps 3 --run "$dir/env"
trained '.lr == 0.011 and .model == "softmax"' --again="$dir/env"
refused 2 "unexpected argument mlp" --again "$dir/env" mlp
refused 2 "--again needs a value" --again
run --again "$dir/none"
[[ $code == 2 && $err == *"must be a folder that --run has written"* ]] || fail "--again of nothing: $code, $err"
mkdir "$dir/broken"
echo '{"run": {' >"$dir/broken/run.json"
run --again "$dir/broken"
[[ $code == 2 && $err == *"$dir/broken/run.json: line "* ]] || fail "--again of a broken file: $code, $err"
echo '{"steps": 3}' >"$dir/broken/run.json"
refused 2 "does not tell the options of the run" --again "$dir/broken"

# ---- a folder of an earlier run: nothing of it is left, but files of the user are
touch "$dir/a/notes.txt"
trained '.steps == 3' softmax --data synth:500 --steps 3 --run "$dir/a"
check "$dir/a" 'list(run["steps"]) == [0] and len(run["steps"][0]) == 3 and [r["step"] for r in run["evals"]] == [3]'
[ -e "$dir/a/notes.txt" ] || fail "--run removed a file of the user"
[ ! -e "$dir/a/rank1" ] || fail "records of rank 1 are left: $(ls "$dir/a/rank1")"
[ ! -e "$dir/a/plan" ] || fail "the plan of an earlier run is left"

# ---- --resume continues the records, also after a row that was cut
# it is slowed down, so that each checkpoint is written before the next one is due
job=(softmax --data synth:1000 --batch 10 --steps 500 --checkpoint "$dir/c" --checkpoint-every 100 --inject slow:0x1000:forward)
trained true "${job[@]}"
same=$(get .params_sha256)
rm -r "$dir/c"
trained ".params_sha256 == \"$same\"" "${job[@]}" --run "$dir/r"
rm "$dir/c/checkpoint-500.vbc"
printf 'half' >>"$dir/r/rank0/steps.bin"
trained ".params_sha256 == \"$same\" and .resumed == 400" "${job[@]}" --run "$dir/r" --resume
check "$dir/r" '[r["step"] for r in run["steps"][0]] == list(range(1, 501)) + list(range(401, 501))'
check "$dir/r" '[r["step"] for r in run["steps"][0] if r["flags"] & 4] == list(range(401, 501))'
check "$dir/r" '[r["step"] for r in run["steps"][0] if r["flags"] & 2] == [100, 200, 300, 400, 500, 500]'
check "$dir/r" 'whats().count("saved") == 6 and whats().count("ended") == 2'
# a head of other columns is kept under another name
sed -i 's/^col step u64 -$/col stop u64 -/' "$dir/r/rank0/steps.bin"
rm "$dir/c/checkpoint-500.vbc"
trained ".params_sha256 == \"$same\"" "${job[@]}" --run "$dir/r" --resume
check "$dir/r" '[r["step"] for r in run["steps"][0]] == list(range(401, 501))'
[ -e "$dir/r/rank0/steps.bin.old" ] || fail "the records of another version are gone"
# a run that cannot be resumed leaves the earlier one as it is
before=$(cat "$dir/r/run.json")
run "${job[@]}" --run "$dir/r" --resume --seed 9
[[ $code != 0 && $(cat "$dir/r/run.json") == "$before" ]] || fail "a failed --resume: exit $code, $(cut -c 1-200 "$dir/r/run.json")"

# ---- trouble: training ends with the same bits
job=(softmax --data synth:1000 --batch 10 --steps 20000)
trained true "${job[@]}"
same=$(get .params_sha256)
rm -rf "$dir/gone"
timeout 100 "$verbena" train "${job[@]}" --run "$dir/gone" --json >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 200); do
    [ -s "$dir/gone/rank0/steps.bin" ] && break
    sleep 0.05
done
rm -r "$dir/gone"
wait $pid || fail "a deleted folder ends the job: $(cat "$dir/err")"
final ".params_sha256 == \"$same\"" "with a deleted folder"
grep -q "training goes on, records are lost" "$dir/err" || fail "a deleted folder is not told: $(cat "$dir/err")"
jq -e '.run.state == "ended" and .run.records_lost > 0' "$dir/gone/run.json" >/dev/null || fail "a deleted folder: run.json is wrong"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 "$dir/closed"
    refused 1 "cannot write" "${job[@]}" --run "$dir/closed"
fi
: >"$dir/file"
refused 1 "$dir/file" "${job[@]}" --run "$dir/file"
mkdir -p "$dir/odd/rank0/steps.bin" # a folder where a file belongs
ends ".params_sha256 == \"$same\"" "${job[@]}" --run "$dir/odd"
[[ $err == *"cannot write $dir/odd/rank0/steps.bin"* ]] || fail "a folder instead of a file: $err"
jq -e '.run.records_lost == 20000' "$dir/odd/run.json" >/dev/null || fail "20000 rows were lost, but: $(jq .run.records_lost "$dir/odd/run.json")"
mkdir "$dir/full"
if mount -t tmpfs -o size=256k none "$dir/full" 2>/dev/null; then
    trap 'umount "$dir/full"; rm -rf "$dir"' EXIT
    ends ".params_sha256 == \"$same\"" "${job[@]}" --run "$dir/full"
    [[ $err == *"No space left on device; training goes on, records are lost"* ]] || fail "a full disk: $err"
    jq -e '.run.records_lost > 1000' "$dir/full/run.json" >/dev/null || fail "a full disk: $(jq -c .run.records_lost "$dir/full/run.json")"
    check "$dir/full" '0 < len(run["steps"][0]) < 20000 and [r["step"] for r in run["steps"][0][:500]] == list(range(1, 501))'
    umount "$dir/full"
    mount -t tmpfs -o size=4k none "$dir/full"
    run "${job[@]}" --run "$dir/full" --json # no room even for run.json: the result is printed, and the exit code tells
    final ".params_sha256 == \"$same\"" "without room for run.json"
    [[ $code == 1 && $err == *"No space left on device"* ]] || fail "no room for run.json: exit $code, $err"
else
    echo "the full disk is not tested: cannot mount a tmpfs"
fi

# ---- a rank that is killed: what was written reads, and run.json says why
timeout 100 "$verbena" train softmax --steps 100000000 --ranks 2 --elastic off --run "$dir/k" >/dev/null 2>"$dir/err" &
pid=$!
for _ in $(seq 400); do
    [ -s "$dir/k/rank1/steps.bin" ] && [ -s "$dir/k/rank0/steps.bin" ] && break
    sleep 0.05
done
jq -e '.run.state == "running"' "$dir/k/run.json" >/dev/null || fail "a running job: $(cut -c 1-200 "$dir/k/run.json")"
kill -9 "$(jq '.run.ranks[0].pid' "$dir/k/run.json")"
wait $pid && fail "a job without rank 0 succeeded"
check "$dir/k" 'all([r["step"] for r in rows] == list(range(1, len(rows) + 1)) and rows for rows in run["steps"].values())'
jq -e '.run.state == "failed" and (.run.why | contains("rank 0 died: signal 9"))' "$dir/k/run.json" >/dev/null ||
    fail "a killed rank: $(jq -c '[.run.state, .run.why]' "$dir/k/run.json")"
grep -q "rank 0" "$dir/k/rank1/log.txt" || fail "the log of rank 1 does not name rank 0: $(cat "$dir/k/rank1/log.txt")"
run softmax --data synth:500 --steps 3 --plan "$dir/none" --run "$dir/p"
jq -e '.run.state == "failed" and (.run.why | contains("cannot read the plan"))' "$dir/p/run.json" >/dev/null ||
    fail "a failed run: $(jq -c '[.run.state, .run.why]' "$dir/p/run.json")"
grep -q "cannot read the plan" "$dir/p/rank0/log.txt" || fail "the log of a single rank: $(cat "$dir/p/rank0/log.txt")"

# ---- rates are of training alone, and asynchronous evaluations are at the steps that were asked for
# shellcheck disable=SC2016 # $s belongs to jq
trained '(.train_s - .breakdown.eval - .breakdown.checkpoint) as $s
    | ((.steps_per_s * $s - .steps) | fabs) < 0.01 and ((.samples_per_s * $s - 2000) | fabs) < 1' \
    lenet --data synth:1000 --batch 100 --steps 20 --eval-every 2 --checkpoint "$dir/rates" --checkpoint-every 5
for how in "--ranks 2" "--ranks 3 --servers 2 --staleness 3" "--ranks 2 --replicas 2"; do
    # shellcheck disable=SC2086 # several words
    ends '[.evals[].step] == [100, 200, 300, 400]' softmax --data synth:1000 --batch 20 --mode async --steps 500 --eval-every 100 $how
done
ends '[.evals[].step] == [100, 200, 300, 400]' sparse-lr --data synth:1000 --mode async --steps 500 --eval-every 100 --ranks 2 --run "$dir/async"
check "$dir/async" '[r["step"] for r in run["evals"]] == [100, 200, 300, 400, 500]'
check "$dir/async" 'sum(len(rows) for rows in run["steps"].values()) == 500 and all(adds_up(rows) for rows in run["steps"].values())'
run lenet --data synth:1000 --steps 20 --checkpoint "$dir/text-c"
base=$(grep '^spent on' "$dir/out" | grep -o '[0-9.]* %' | awk '{sum += $1} END {print (sum > 99.5 && sum < 100.5)}')
[ "$base" = 1 ] || fail "the percentages do not add up to 100: $(grep '^spent on' "$dir/out")"
grep -q '^also  .* s of checkpoints, .* s of evaluation; .* s in total' "$dir/out" || fail "the times: $(cat "$dir/out")"
if command -v script >/dev/null; then
    script -qec "$verbena train softmax --data synth:1000 --steps 60 --eval-every 20" /dev/null >"$dir/screen" </dev/null
    grep -q 'training loss [0-9.]*; test loss [0-9.]*, accuracy [0-9.]* %; [0-9]* samples/s' "$dir/screen" || fail "progress: $(cat "$dir/screen")"
fi
exit $bad
