#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests RUN/metrics.prom: metrics.sh VERBENA. The file is in the text format of Prometheus at any moment, its counters
# agree with the result, labels are escaped, and a folder that cannot be written does not matter.
#
# Covers: record/metrics/metrics.c record/metrics/metrics_text.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
check=$(dirname "$0")/check_metrics.py

# metrics RUN: checks the file and stores it as JSON in $dir/metrics
metrics() {
    python3 "$check" "$1/metrics.prom" >"$dir/metrics" || fail "metrics.prom of $1 is not well-formed"
    if command -v promtool >/dev/null; then
        promtool check metrics <"$1/metrics.prom" || fail "promtool refuses metrics.prom of $1"
    fi
}

# is FILTER: fails if the jq filter is false for the metrics
is() {
    jq -e "$1" "$dir/metrics" >/dev/null || fail "metrics: $1 is false: $(jq -c . "$dir/metrics" | cut -c 1-1500)"
}

odd="$dir/a \"b\\c"$'\n'"d"
trained 'true' lenet --data synth:960 --batch 32 --steps 40 --eval-every 20 --ranks 3 --run "$odd"
cp "$dir/out" "$dir/result"
metrics "$odd"
is '.verbena_run_info[0] | .[1] == 1 and .[0].model == "lenet" and .[0].mode == "sync"'
jq -e --arg odd "$odd" '.verbena_run_info[0][0].run == $odd' "$dir/metrics" >/dev/null ||
    fail "a name is not escaped: $(jq -c .verbena_run_info "$dir/metrics")"
is '.verbena_running == [[{}, 0]] and .verbena_steps_total[0][1] == 40 and .verbena_steps_planned[0][1] == 40'
is '[.verbena_rank_steps_total[] | .[1]] == [40, 40, 40]'
is '[.verbena_step_phase_seconds_total[] | .[0] | .rank + .phase] | length == 24 and unique == sort'
is '.verbena_updated_time_seconds[0][1] >= .verbena_start_time_seconds[0][1]'
is '[.verbena_resident_memory_bytes[], .verbena_cpu_seconds_total[] | .[1]] | length == 6 and all(. > 0)'
accuracy=$(jq .accuracy "$dir/result") samples=$(jq '.global_batch * 40' "$dir/result")
is ".verbena_accuracy_ratio[0][1] - $accuracy | fabs < 1e-9"
is "[.verbena_samples_total[] | .[1]] | add == $samples"
# all time of training belongs to a phase; the final evaluation comes after the last row
train_s=$(jq '.per_rank[0] | .train_s' "$dir/result")
is "[.verbena_step_phase_seconds_total[] | select(.[0].rank == \"0\") | .[1]] | add as \$s |
    \$s <= $train_s * 1.001 and \$s > 0.5 * $train_s"

# While a run goes on, the file is whole whenever it is read, and the counters grow.
"$verbena" train softmax --data synth:2000 --epochs 1000000 --ranks 2 --run "$dir/live" >/dev/null 2>&1 &
job=$!
before=-1 grown=0
for ((i = 0; i < 400 && grown < 2; i++)); do
    if [ -e "$dir/live/metrics.prom" ]; then
        metrics "$dir/live"
        now=$(jq '.verbena_steps_total[0][1] | floor' "$dir/metrics") # jq 1.7 prints 373.0 as such
        is '.verbena_running[0][1] == 1'
        [ "$now" -ge "$before" ] || fail "steps_total fell from $before to $now"
        [ "$now" -gt "$before" ] && [ "$before" -ge 0 ] && grown=$((grown + 1))
        before=$now
    fi
    sleep 0.1
done
[ $grown = 2 ] || fail "steps_total has not grown twice"
kill -TERM $job
wait $job
metrics "$dir/live"
is '.verbena_running[0][1] == 0'
[ ! -e "$dir/live/.metrics.prom.new" ] || fail "a temporary file was left"

# Asynchronous training, one that is replayed, and one whose folder is deleted.
ends 'true' softmax --data synth:800 --steps 60 --mode async --ranks 2 --run "$dir/async"
metrics "$dir/async"
is '.verbena_steps_total[0][1] <= 60 and ([.verbena_rank_steps_total[] | .[1]] | add == 60)'
ends 'true' softmax --data synth:800 --steps 10 --run "$dir/one"
ends 'true' softmax --data synth:800 --steps 10 --replay-compute "$dir/one" --run "$dir/two"
metrics "$dir/two"
is '.verbena_run_info[0][0].replayed != "" and (.verbena_loss[0][1] | isnan) and .verbena_test_loss == null' 2>/dev/null
exit "$bad"
