#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that the verdict names the bottleneck of real runs: verdict_cases.sh VERBENA. Only cases whose bottleneck is so
# large that a machine which is not idle does not hide it; bench/verdict has all.
#
# Covers: engine/train/train_verdict.c engine/verdict/verdict.c record/sample/sample_queue.c
# Covers: cli/train/train_verdict_print.c engine/verdict/verdict_advice.c
set -uo pipefail
verbena=$(realpath "$1")
bench=$(realpath "$(dirname "$0")/../../bench/verdict")

command -v python3 taskset jq >/dev/null || {
    echo "skipped: needs python3, taskset and jq"
    exit 77
}
taskset -c 0,1 true 2>/dev/null || {
    echo "skipped: needs the first two CPUs"
    exit 77
}
dir=$(mktemp -d /tmp/verbena-verdict.XXXXXX)
trap 'rm -rf "$dir"' EXIT
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

cases=(--case slow-loader --case slow-loader-async --case slow-input-single --case slow-server)
if [ "$(id -u)" = 0 ] && [ -e /dev/net/tun ] && ip netns add "vb-trial-$$" 2>/dev/null; then
    ip netns del "vb-trial-$$"
    cases+=(--case latency-algo --case async-100m)
fi
"$bench" --verbena "$verbena" --runs 1 --tries 1 --json "$dir/lines" "${cases[@]}"
# On a busy machine the cores are a second cause. The true one must then be among the three largest shares.
jq -es 'all(.right or (.disturbed and (.expected | split(":")[0]) as $true |
    any(.bottleneck.causes[:3][]; .resource == $true and .share > 0.25)))' "$dir/lines" >/dev/null ||
    fail "a verdict is wrong: $(jq -c '[.case, .answer, .bottleneck.causes]' "$dir/lines")"

# Each run has evidence and advice, and the shares of the causes are those of one whole.
jq -es 'length >= 4 and all(.[].bottleneck; (.evidence | length > 3 and all(has("name") and has("ceiling"))) and
    (.advice | length > 0 and all(.steps_per_s > 0)) and ([.causes[].share] | add | . > 0.9 and . < 1.1))' \
    "$dir/lines" >/dev/null || fail "evidence, advice or causes: $(cat "$dir/lines")"

# An algorithm with two messages was forced where one message is enough. The server of async-100m is beside worker 0, in
# shared memory, but the time is lost on the link of worker 1.
jq -es 'all(.[] | select(.case == "latency-algo"); .steps_per_s as $now | any(.bottleneck.advice[];
        .change == "--algo gather" and .steps_per_s > 1.3 * $now and .steps_per_s < 2.5 * $now)) and
    all(.[] | select(.case == "async-100m"); .bottleneck.why | contains("over shm") | not)' "$dir/lines" >/dev/null ||
    fail "algorithm or transport: $(jq -c '[.case, .steps_per_s, .bottleneck.why, .bottleneck.advice]' "$dir/lines")"

# The text has the same verdict, and says what would help.
"$verbena" train lenet --data synth:n=2000,test=100 --steps 30 --inject slow:0x500:data >"$dir/text" 2>"$dir/err" ||
    fail "exit $?: $(cat "$dir/err")"
grep -q '^bottleneck  input, [0-9]* %: [0-9.]* ms of a step are spent waiting for data$' "$dir/text" ||
    fail "no bottleneck: $(cat "$dir/text")"
grep -q '^advice  .*steps/s instead of' "$dir/text" || fail "no advice: $(cat "$dir/text")"
exit $bad
