#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests --trace and the command ops: trace.sh VERBENA. Traces of real jobs are read with the protobuf definitions of the
# Python package perfetto and compared event by event with what the ranks have recorded. The package is looked for in
# $VB_PERFETTO_PYTHON, or python3; without it the test is skipped after everything else was tested.
#
# Covers: engine/record/train_trace.c models/model_trace.c cli/cmd_ops.c cli/ops.c cli/ops_peak.c
# Covers: kernels/choice/choice_peak.c
python=${VB_PERFETTO_PYTHON:-python3}
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
check=$(dirname "$0")/trace_check.py

# traced NAME ARGUMENTS...: trains with a trace of steps 10 to 50 in $dir/NAME
traced() {
    local name=$1
    shift
    run "$@" --run "$dir/$name" --trace=10:50 --json
    [ "$code" = 0 ] || fail "$*: exit $code: $err"
    [ -s "$dir/$name/trace.pftrace" ] || [ -s "$dir/$name/trace.json" ] || fail "$*: there is no trace: $err"
}

refused 2 "--trace must be FROM:TO" softmax --run "$dir/r" --trace=5
refused 2 "--trace must be FROM:TO" softmax --run "$dir/r" --trace=0:5
refused 2 "--trace must be FROM:TO" softmax --run "$dir/r" --trace=7:5
refused 2 "add --run DIR" softmax --trace=1:5

# A trace does not change the bits.
run softmax --ranks 2 --steps 60 --json
plain=$(get .params_sha256)
traced shm softmax --ranks 2 --steps 60
[ "$(get .params_sha256)" = "$plain" ] || fail "softmax: a trace changes the parameters"

traced tcp lenet --ranks 2 --steps 30 --batch 16 --transport tcp
traced sparse sparse-lr --ranks 2 --steps 60 --transport tcp
traced async softmax --mode async --ranks 2 --steps 60
traced slow lenet --ranks 3 --steps 30 --batch 16 --slow 1:8
# A delay of about 2 ms in the backward pass of one rank. The sums of all ranks run inside this pass.
late() {
    what=train
    traced late lenet --ranks 3 --steps 30 --batch 16 --inject slow:1x5:backward
}
late
traced json mlp --steps 30 --trace-format json
jq -e '[.traceEvents[] | select(.ph == "B")] | length > 100' "$dir/json/trace.json" >/dev/null ||
    fail "trace.json has too few events"
[ "$(jq '[.traceEvents[] | select(.ph == "B")] | length' "$dir/json/trace.json")" = \
    "$(jq '[.traceEvents[] | select(.ph == "E")] | length' "$dir/json/trace.json")" ] ||
    fail "trace.json: begins and ends differ"

# A job whose steps were never reached has a trace without events, and says so.
run softmax --steps 5 --run "$dir/none" --trace=50:60
[[ $err == *"no step of --trace was made"* ]] || fail "an empty trace is not told: $err"

# ---- clocks ----------------------------------------------------------------------------------------------------------

# clock_fits T0: fails if run.json does not tell, within its error bars, that the clock of rank 1 is 5 s ahead and gains
# 100 ppm. The clock is changed between T0, which is a time of the monotonic clock, and the first knot.
clock_fits() {
    jq -e --argjson t0 "$1" '.run.clocks[1] | .knots as $k | ($k[0] | .local_ns - .offset_ns) as $first |
        ($k[-1].local_ns - $k[0].local_ns) as $long | (($k[0].error_ns + $k[-1].error_ns) / $long * 1e6) as $bar |
        ($k | length) > 1 and $bar < 80 and (.drift_ppm - 100 | fabs) < $bar + 0.1 and
        all($k[]; (.local_ns - .offset_ns) as $at | (.offset_ns - 5e9) as $gained |
            $gained > 1e-4 * ($at - $first) - .error_ns - 10 and $gained < 1e-4 * ($at - $t0) + .error_ns + 10)' \
        "$dir/clock/run.json" >/dev/null
}

# On a busy machine the error bar of a short run may be as large as the drift, so there are three tries.
for steps in 600 1500 4000; do
    t0=$(python3 -c 'import time; print(time.monotonic_ns())')
    traced clock lenet --ranks 2 --steps "$steps" --batch 16 --transport tcp --inject clock:1:5:100
    injected=$(get .params_sha256)
    if clock_fits "$t0"; then break; fi
    [ $steps != 4000 ] || fail "the clock of rank 1: $(jq -c '.run.clocks[1]' "$dir/clock/run.json")"
done
run lenet --ranks 2 --steps "$steps" --batch 16 --transport tcp --json
[ "$(get .params_sha256)" = "$injected" ] || fail "a clock that is injected changes the parameters"

# ---- ops -------------------------------------------------------------------------------------------------------------

what=ops
refused 2 "the run is missing"
refused 1 "has no operations" "$dir/nothing"
refused 2 "--rank must be" "$dir/tcp" --rank x

# every FILTER: the jq filter must be true for some line that ops --json printed
some() {
    jq -es "any($1)" "$dir/out" >/dev/null || fail "ops: no line with $1: $(head -n 3 "$dir/out")"
}

quiet "$dir/tcp" --json --rank each
for key in rank layer pass op calls ms share bytes gflop_s gb_s peak_pct; do
    jq -es "all(has(\"$key\"))" "$dir/out" >/dev/null || fail "ops --json: a line has no $key"
done
for rank in 0 1; do # 30 steps: each layer runs once a step, or again after an early pass that was not used
    for layer in conv1 conv2 fc3 fc4 fc5; do
        some ".rank == $rank and .layer == \"$layer\" and .pass == \"forward\" and .calls >= 30 and .calls < 60 and .gflop_s > 0 and
              .peak_pct > 0"
    done
    some ".rank == $rank and .op == \"allreduce\" and .calls >= 30 and .gb_s > 0"
    some ".rank == $rank and .op == \"update\" and .gb_s > 0"
done
# 64 x 16 outputs of conv2 ...: the output of the batch of 16
some '.layer == "conv2" and .pass == "forward" and .bytes == 16 * 16 * 5 * 5 * 4 and .shape == "16x16x5x5"'
jq -es '[.[] | select(.rank == 0 and (.overlaps | not)) | .share] | add <= 1.02' "$dir/out" >/dev/null ||
    fail "ops: shares of what does not overlap add up to more than 100 %"
[ -n "$(ls "$dir"/tcp/peak-*.json)" ] || fail "ops: the peak is not kept"
quiet "$dir/tcp"
grep -q '^conv2 .* 16x16x5x5 ' "$dir/out" || fail "ops prints no conv2"
quiet "$dir/tcp" --by layer --json
some '.layer == "conv2" and .calls >= 180 and .calls < 240' # three passes, 30 steps, two ranks
quiet "$dir/tcp" --by pass --rank 1 --json
some '.pass == "forward" and .calls >= 180 and .calls < 360' # five layers and the loss
quiet "$dir/sparse" --json
some '.layer == "linear" and .pass == "forward" and .calls == 120 and .gb_s > 0'
some '.op == "sparse allreduce" and .calls == 120'
quiet "$dir/async" --json
some '.op == "apply" and .calls == 60'

# ---- the trace, event by event ---------------------------------------------------------------------------------------

if ! "$python" -c 'import perfetto.protos.perfetto.trace.perfetto_trace_pb2' 2>/dev/null; then
    [ $bad = 0 ] && echo "skipped in part: $python has no package perfetto (pip install perfetto protobuf)" && exit 77
    exit 1
fi
for name in shm tcp sparse; do
    "$python" "$check" "$dir/$name" || fail "the trace of $name"
done
"$python" "$check" "$dir/async" async || fail "the trace of async"
"$python" "$check" "$dir/slow" slow=1 || fail "the trace of slow"
# If the machine is so busy that other ranks are as late as rank 1, the run is made again.
for try in 1 2 3; do
    "$python" "$check" "$dir/late" late=1 && break
    [ $try != 3 ] || fail "the trace of late"
    late
done
"$python" "$check" "$dir/clock" clocks || fail "the trace of clock"
exit $bad
