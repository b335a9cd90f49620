#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests faults that are injected, and runs without computing: train_inject.sh VERBENA. Each fault does what it says and
# is told by the result and by run.json; bad ones are refused. Ranks that replay a run take as long as it, although they
# share cores.
#
# Covers: cli/train/train_inject_opts.c engine/inject/train_inject.c engine/inject/train_replay.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
cat >"$dir/rows.py" <<'EOF'
"""rows.py steps.bin: prints the means of all columns, and by how much they have grown, as a JSON object"""
import json, struct, sys
data = open(sys.argv[1], "rb").read()
head = data.index(b"end\n") + 4
cols = [line.split()[1:3] for line in data[:head].decode().splitlines() if line.startswith("col ")]
form = "<" + "".join({"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}[t] for _, t in cols)
rows = list(struct.iter_unpack(form, data[head:]))
assert rows
means = {name: sum(row[i] for row in rows) / len(rows) for i, (name, _) in enumerate(cols)}
means.update({name + "_grown": rows[-1][i] - rows[0][i] for i, (name, _) in enumerate(cols)})
print(json.dumps({k: v if v == v else None for k, v in means.items()}))
EOF

# mean RUN RANK FILTER: prints a figure of the mean row of a rank
mean() {
    python3 "$dir/rows.py" "$dir/$1/rank$2/steps.bin" | jq "$3"
}

# holds CONDITION WORDS...: fails if the arithmetic condition is false
holds() {
    local condition=$1
    shift
    jq -en "$condition" >/dev/null || fail "$*: $condition is false"
}

lenet=(lenet --data synth:800 --batch 32 --steps 30)

# ---- faults ----
run "${lenet[@]}" --ranks 2 --elastic off --inject kill:1@5 --run "$dir/kill"
[ "$code" = 1 ] || fail "kill: exit $code, $err"
[[ $err == *"rank 1 died: signal 9"* ]] || fail "kill: exit $code, $err"
jq -e '.run.state == "failed" and .run.injected == ["kill:1@5"]' "$dir/kill/run.json" >/dev/null ||
    fail "run.json of a rank that was killed: $(jq -c '.run | {state, injected}' "$dir/kill/run.json")"
[ "$(mean kill 0 '.step')" = 2.5 ] || fail "rank 1 was to be killed before its step 5"

ends '.injected == ["kill:2@3"] and .accuracy >= 0 and (.faults | length) == 1 and .faults[0].rank == 2 and
    .faults[0].what == "died"' "${lenet[@]}" --mode async --ranks 3 --inject kill:2@3

trained '.injected == ["stop:1@4:0.7"] and .train_s >= 0.7 and .per_rank[0].breakdown.wait >= 0.5' \
    "${lenet[@]}" --ranks 2 --inject stop:1@4:0.7 --run "$dir/stop"
grep -q '"what":"injected","step":3,"rank":1' "$dir"/stop/rank1/events.jsonl || fail "there is no event of the stop"

# Waiting does not count: only the backward pass of rank 1 is long. The factor hides what else the machine does.
quiet "${lenet[@]}" --ranks 2 --inject slow:1x20:backward --run "$dir/slow"
grep -q '^injected *rank 1 takes 20 times as long for backward$' "$dir/out" || fail "the text does not tell the fault"
holds "$(mean slow 1 .backward_s) > 6 * $(mean slow 0 .backward_s)" "slow backward of rank 1"
holds "$(mean slow 1 .backward_s) > 4 * $(mean slow 1 .forward_s)" "its forward is as it was"

trained '.injected == ["slow:0x50:data","slow:1x30:update"]' "${lenet[@]}" --ranks 2 \
    --inject slow:0x50:data,slow:1x30:update --run "$dir/two"
holds "$(mean two 0 .data_s) > 5 * $(mean two 1 .data_s)" "slow data of rank 0"
holds "$(mean two 1 .update_s) > 5 * $(mean two 0 .update_s)" "slow update of rank 1"

for mode in sync async; do
    trained '.injected == ["slow:1x20"]' "${lenet[@]}" --ranks 2 --inject slow:1x20 --run "$dir/all" --mode $mode
    holds "$(mean all 1 '.forward_s + .backward_s') > 5 * $(mean all 0 '.forward_s + .backward_s')" "slow, $mode"
done
trained '.injected == ["slow:1x9:forward"]' sparse-lr --data synth:kind=criteo,n=3000,features=10000 --steps 30 --ranks 2 \
    --inject slow:1x9:forward
trained '.injected == ["slow:1x3"]' softmax --data synth:500 --steps 5 --ranks 2 --slow 1:3 # the older form

trained '.injected == ["clock:1:0.5:100"]' "${lenet[@]}" --ranks 2 --inject clock:1:0.5:100 --run "$dir/clock"
jq -e '.run.clocks[1] | .knots | length > 0 and all(.[]; .offset_ns - 5e8 | fabs < 2e7)' "$dir/clock/run.json" \
    >/dev/null || fail "clock: $(jq -c .run.clocks "$dir/clock/run.json")"

refused 2 "kill:1 must be kill:RANK@STEP, such as kill:1@100" softmax --ranks 2 --inject kill:1
refused 2 "kill:1@0 must be" softmax --ranks 2 --inject kill:1@0
refused 2 "must be stop:RANK@STEP:SECONDS" softmax --ranks 2 --inject stop:1@5
refused 2 "must be slow:RANKxFACTOR" softmax --ranks 2 --inject slow:1x0.5
refused 2 "must be slow:RANKxFACTOR" softmax --ranks 2 --inject slow:1x3:comm
refused 2 "must be clock:RANK:SECONDS" softmax --ranks 2 --inject clock:1:nan
refused 2 "begins with kill:, stop:, slow: or clock:" softmax --ranks 2 --inject kill:1@5,
refused 2 "at most 16 faults" softmax --inject "$(printf 'kill:0@1,%.0s' {1..16})kill:0@1"
refused 2 "is too long" softmax --inject "kill:$(printf '0%.0s' {1..200})"
refused 2 "there is no rank 2" softmax --ranks 2 --inject kill:2@5
refused 2 "there is no step 99" softmax --data synth:500 --steps 5 --inject kill:0@99
refused 2 "rank 2 is a server" softmax --mode async --ranks 2 --dedicated-servers --inject kill:2@5
refused 2 "its servers do" softmax --mode async --ranks 2 --inject slow:1x3:update

# ---- runs without computing ----
quiet "${lenet[@]}" --batch 64 --run "$dir/one"
compute='.forward_s + .backward_s + .update_s'
trained '.replayed != null and .loss == null and .accuracy == null and .params_sha256 == null and .evals == []' \
    "${lenet[@]}" --batch 64 --ranks 3 --replay-compute "$dir/one" --run "$dir/three" --eval-every 10
# is_as_long RECORDED REPLAYED RANK...: the ranks compute as long as recorded; RANK is R:OF, rank R replays rank OF
is_as_long() {
    local recorded=$1 replayed=$2 rank was is
    shift 2
    for rank; do
        was=$(mean "$recorded" "${rank#*:}" "$compute")
        is=$(mean "$replayed" "${rank%:*}" "$compute")
        jq -en "$is > 0.9 * $was and $is < 1.1 * $was" >/dev/null && continue
        echo "rank ${rank%:*} of $replayed: $is s, recorded were $was s"
        return 1
    done
}
# A machine that is very busy may wake ranks so late that they cannot make up for it, so there are three tries.
for try in 1 2 3; do
    is_as_long one three 0:0 1:0 2:0 && break
    [ $try != 3 ] || fail "three ranks that replay one take another time for computing"
    quiet "${lenet[@]}" --batch 64 --ranks 3 --replay-compute "$dir/one" --run "$dir/three"
done
# The recorded passes have started sums over TCP, which is not slept and then done again.
mlp=(mlp --data synth:1200 --batch 20 --steps 100 --ranks 2 --transport tcp)
for try in 1 2 3; do
    quiet "${mlp[@]}" --run "$dir/sums"
    quiet "${mlp[@]}" --replay-compute "$dir/sums" --run "$dir/again"
    is_as_long sums again 0:0 1:1 && break
    [ $try != 3 ] || fail "two ranks that replay a run over TCP take another time for computing"
done
[ "$(mean three 2 .loss)" = null ] || fail "a replayed step has a loss"
jq -e '.replayed != null and .run.replayed == .replayed' "$dir/three/run.json" >/dev/null ||
    fail "run.json does not tell that the run was replayed"
# As many bytes are sent as with computing, if both use the same algorithm. How many gradients are deferred depends on
# times, and each sum has a head.
quiet "${lenet[@]}" --batch 64 --ranks 3 --transport tcp --algo owner --run "$dir/real"
quiet "${lenet[@]}" --batch 64 --ranks 3 --transport tcp --algo owner --run "$dir/sent" --replay-compute "$dir/one"
holds "$(mean sent 1 .sent_bytes_grown) / $(mean real 1 .sent_bytes_grown) - 1 | fabs < 0.02" "bytes of a replayed step"
quiet "${lenet[@]}" --batch 64 --ranks 2 --replay-compute "$dir/real"
grep -q "^replayed .* slept as long as $dir/real recorded" "$dir/out" || fail "the text does not tell the replay"
grep -q '^accuracy *none: nothing was learnt$' "$dir/out" || fail "the text tells an accuracy"

sparse=(sparse-lr --data "synth:kind=criteo,n=4000,features=20000" --steps 60)
quiet "${sparse[@]}" --run "$dir/rows"
trained '.accuracy == null and .algo == "sparse"' "${sparse[@]}" --ranks 3 --replay-compute "$dir/rows"
quiet softmax --data synth:500 --steps 20 --run "$dir/soft"
trained '.accuracy == null' softmax --data synth:500 --steps 40 --ranks 3 --transport tcp --replay-compute "$dir/soft"
trained '.accuracy == null' softmax --data synth:500 --steps 40 --replay-compute "$dir/soft" --inject slow:0x3

refused 2 "is a run of softmax, not of lenet" lenet --data synth:500 --replay-compute "$dir/soft"
refused 2 "only synchronous steps" lenet --mode async --ranks 2 --replay-compute "$dir/one"
refused 2 "nothing to save" lenet --replay-compute "$dir/one" --checkpoint "$dir/keep"
refused 2 "name the same folder" lenet --replay-compute "$dir/one" --run "$dir/./one"
run lenet --data synth:500 --replay-compute "$dir/none"
[ "$code" = 1 ] || fail "a folder that does not exist: exit $code, $err"
[[ $err == *"is not a run folder"* ]] || fail "a folder that does not exist: exit $code, $err"
head -c 300 "$dir/one/rank0/steps.bin" >"$dir/cut" && mv "$dir/cut" "$dir/one/rank0/steps.bin"
run lenet --data synth:500 --replay-compute "$dir/one"
[ "$code" = 1 ] || fail "a head that is cut: exit $code, $err"
[[ $err == *steps.bin* ]] || fail "a head that is cut: exit $code, $err"
exit "$bad"
