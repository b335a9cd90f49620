#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the command verbena sweep: sweep.sh VERBENA [board|link]. Tables, JSON lines, runs that fail, a sweep that is
# killed and goes on, and folders that are not what they should be. "board": TensorBoard's HParams plugin shows all runs.
# "link": ranks behind links of a limited rate; needs root.
#
# Covers: cli/sweep/cmd_sweep.c cli/sweep/sweep_board.c cli/sweep/sweep_folder.c
# Covers: cli/sweep/sweep_json.c cli/sweep/sweep_opts.c cli/sweep/sweep_result.c cli/sweep/sweep_run.c
# Covers: launch/link.c launch/spawn.c
# shellcheck disable=SC2317 # the functions are called by their names
python=${VB_PYTHON:-python3}
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=sweep
part=${2:-basic}
tests=$(dirname "$0")
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
small=(softmax --data 'synth:n=400,test=100')

# lines FILTER WORDS...: fails if the jq filter is false for the array of all lines of the last run
lines() {
    local filter=$1
    shift
    jq -en "[inputs] | $filter" "$dir/out" >/dev/null || fail "$*: condition is false: $filter: $(cut -c 1-120 "$dir/out")"
}

# table FILE FILTER: the same for the rows of a CSV file, as objects with texts
table() {
    jq -Rens '[inputs / "\n" | map(select(. != "") / ",")] | .[0] | .[0] as $head | .[1:]
        | map([$head, .] | transpose | map({key: .[0], value: .[1]}) | from_entries) | '"$2" "$1" >/dev/null ||
        fail "$1: condition is false: $2: $(cat "$1")"
}

bad_usage() {
    refused 2 "the model is missing" --batch 1,2
    refused 2 "nothing to compare" "${small[@]}"
    refused 2 "--batch 0: must be from 1" "${small[@]}" --batch 0,16
    refused 2 "--mode sink: must be" "${small[@]}" --mode sync,sink
    refused 2 "a value of the list is empty" "${small[@]}" --batch 16,,32
    refused 2 "not both" "${small[@]}" --batch 16 --global-batch 32
    refused 2 "nothing is left to run: --mode single has one rank" "${small[@]}" --mode single --ranks 2,3
    refused 2 "must be RATE" "${small[@]}" --ranks 2 --link 1x
    refused 2 "--resume needs --out" "${small[@]}" --batch 16,32 --resume
    refused 2 "did you mean --repeat" "${small[@]}" --repaet 3
    VB_BATCH=16,32 refused 2 "give --batch on the command line" "${small[@]}" --ranks 1,2
    refused 2 "has no sweep.json" "${small[@]}" --batch 16,32 --out "$dir/none" --resume
}

# Four cases, two runs each; a case that cannot run is a row with its error.
compares() {
    local out=$dir/four
    run "${small[@]}" --epochs 1 --batch 16,500 --ranks 1,2 --repeat 2 --out "$out" --json
    [ "$code" = 1 ] || fail "a sweep with a failed run exits with $code, expected 1: $err"
    [ "$(wc -l <"$dir/out")" = 9 ] || fail "expected 8 runs and the recommendation: $(cut -c 1-200 "$dir/out")"
    lines '.[:8] | all(.repeat >= 1 and (.run | startswith("'"$out"'")) and .swept.batch and .swept.ranks)' json
    lines '.[:8] | map(select(.error)) | length == 4 and all(.error | contains("500") or contains("1000"))' json
    lines '.[:8] | map(select(.error | not)) | length == 4 and all(.batch == 16 and .steps_per_s > 0 and .accuracy >= 0
        and (.per_rank | length) == .swept.ranks and has("bottleneck") and has("noise_scale"))' json
    # the second runs are made in reverse order
    lines '[.[:8][] | [.swept.ranks, .swept.batch]] | .[:4] == (.[4:] | reverse)' order
    lines '.[8].recommendation | .batch == 16 and .ranks >= 1 and (.why | length) > 20 and
        (.command | startswith("verbena train softmax"))' recommendation
    lines '.[8].cases | length == 4 and (map(.failed) | add) == 4 and
        (.[0].samples_per_s | .min <= .median and .median <= .max)' cases
    cmp -s "$dir/out" "$out/runs.jsonl" || fail "runs.jsonl is not what --json printed"
    table "$out/table.csv" 'length == 4 and all(.runs + .failed == "20" or .runs + .failed == "02") and
        (map(select(.ranks == "2" and .batch == "16")) | .[0] |
        (.train_s_nodes / ";" | length) == 2 and (.samples_per_s | tonumber) > 0)'
    [ "$(wc -l <"$out/table.md")" = 6 ] || fail "table.md: $(cat "$out/table.md")"
    refused 2 "there is a sweep already" "${small[@]}" --batch 16,500 --ranks 1,2 --repeat 2 --out "$out"
    # a run can be repeated by train
    "$verbena" train --again "$out/ranks-2_batch-16_r1" --json >"$dir/again" 2>"$dir/err" ||
        fail "train --again: $(cat "$dir/err")"
    [ "$(tail -n 1 "$dir/again" | jq .params_sha256)" = "$(jq .params_sha256 "$out/ranks-2_batch-16_r1/run.json")" ] ||
        fail "train --again of a run has other parameters"
}

# Options without effect are left out, and what is then the same is made once.
simplifies() {
    run "${small[@]}" --epochs 1 --mode single,sync,async --ranks 1,2 --staleness 0,2 --out "$dir/modes" --json
    [ "$code" = 0 ] || fail "modes: exit $code: $err"
    lines '[.[:-1][].swept | [.mode, .staleness, .ranks]] ==
        [["single", null, 1], ["sync", null, 2], ["async", 0, 1], ["async", 0, 2], ["async", 2, 1], ["async", 2, 2]]' modes
    [[ $err == *"--staleness has no effect unless --mode is async"* ]] || fail "modes: nothing is said: $err"
    lines '.[-1].left_out | length == 3' modes
}

# await FILE: waits until the file exists
await() {
    local i
    for ((i = 0; i < 600; i++)); do
        [ -e "$1" ] && return
        sleep 0.05
    done
    fail "$1 did not appear"
}

# A sweep that is killed goes on: what is complete is not made again, a run that was cut off is.
goes_on() {
    local out=$dir/killed signal before n
    for signal in KILL INT; do
        rm -rf "$out"
        timeout 60 "$verbena" sweep "${small[@]}" --batch 4,8 --steps 20 --repeat 2 --inject slow:0x1000 --out "$out" \
            >"$dir/out" 2>"$dir/err" &
        await "$out/batch-8_r1/run.json"
        pkill "-$signal" -P $! verbena
        { wait $!; n=$?; } 2>/dev/null
        [ "$signal" = KILL ] || [ "$n" = 130 ] || fail "exit $n after SIGINT: $(cat "$dir/err")"
        [ "$signal" = KILL ] || grep -q "to go on: verbena sweep --out $out --resume" "$dir/err" || fail "$(cat "$dir/err")"
        for ((i = 0; i < 100; i++)); do
            pgrep -f "$out/" >/dev/null || break
            sleep 0.1
        done
        ! pgrep -f "$out/" >/dev/null || fail "a run outlives the sweep that SIG$signal ended"
    done
    printf '{"run": {"state": "en' >"$out/batch-8_r1/run.json" # as if the disk had been full
    before=$(stat -c %Y.%i "$out/batch-4_r1/run.json")
    run --out "$out" --resume --json
    [ "$code" = 0 ] || fail "--resume: exit $code: $err"
    lines 'length == 5 and all(.[:4][]; .steps == 20)' resumed
    [ "$(stat -c %Y.%i "$out/batch-4_r1/run.json")" = "$before" ] || fail "a complete run was made again"
    refused 2 "has a run with other options" "${small[@]}" --batch 4,8 --steps 10 --out "$out" --resume
}

hostile() {
    local out=$dir/hostile
    mkdir "$out" && echo hello >"$out/file"
    refused 2 "is not empty" "${small[@]}" --batch 16,32 --out "$out"
    refused 2 "is not a folder" "${small[@]}" --batch 16,32 --out "$out/file"
    rm "$out/file"
    echo '{"command": [1, 2]}' >"$out/sweep.json"
    refused 2 "does not tell the command of a sweep" --out "$out" --resume
    echo '[[[[' >"$out/sweep.json"
    run --out "$out" --resume
    if [ "$code" != 2 ] || [[ $err != *"sweep.json: line 2"* ]]; then
        fail "a broken sweep.json: exit $code: $err"
    fi
    # a file and a link where the folders of runs should be
    echo hello >"$out/batch-16_r1"
    ln -s /dev/null "$out/batch-32_r1.log"
    run "${small[@]}" --epochs 1 --batch 16,32,64 --out "$out" --resume
    [ "$code" = 1 ] || fail "a folder that is a file: exit $code: $err"
    [ "$(cat "$out/batch-16_r1")" = hello ] || fail "a file in the place of a folder was changed"
    exec 9<"$out/.lock"
    flock 9
    refused 2 "another sweep is at work" "${small[@]}" --batch 64 --out "$out" --resume
    exec 9<&-
}

board() {
    if ! $python -c 'import tensorboard.plugins.hparams' 2>/dev/null; then
        echo "skipped: needs the Python package tensorboard"
        exit 77
    fi
    run "${small[@]}" --epochs 1 --batch 16,32 --mode sync,async --ranks 2 --lr 0.01,0.1 --out "$dir/board"
    [ "$code" = 0 ] || fail "exit $code: $err"
    $python "$tests/check_sweep_board.py" "$dir/board" batch mode lr ranks 2>"$dir/err" || fail "$(tail -n 3 "$dir/err")"
}

# A link of 20 Mbit/s carries 2.5 MB/s, one of 2 Gbit/s is not the limit. Bits do not depend on links.
link() {
    local sizes='[.[:-1][] | select(.swept.ranks == 2)]'
    if [ "$(id -u)" != 0 ] || ! command -v tc >/dev/null || ! unshare -n true 2>/dev/null; then
        echo "skipped: needs root, tc and network namespaces"
        exit 77
    fi
    run softmax --data synth:n=2000,test=100 --steps 60 --batch 20 --ranks 1,2 --link 20m,2g --out "$dir/link" --json
    if grep -q "qdisc kind is unknown" "$dir/err"; then
        echo "skipped: the kernel cannot limit rates"
        exit 77
    fi
    [ "$code" = 0 ] || fail "link: exit $code: $err"
    lines 'length == 4 and .[0].swept.link == null and .[0].ranks == 1' link # with one rank, links have no effect
    lines "$sizes"' | length == 2 and all(.transport == "tcp") and .[0].params_sha256 == .[1].params_sha256' link
    # a step sends the gradients of 7850 parameters
    lines "$sizes"' | .[0].swept.link == "20m" and .[0].steps_per_s * 7850 * 4 < 2.8e6' link
    lines "$sizes"' | .[0].steps_per_s < .[1].steps_per_s' link
    lines '.[-1].by_link | map(.link) == ["20m", "2g"]' link
    "$verbena" train --again "$dir/link/link-20m_ranks-2_batch-20_r1" --json 2>/dev/null | jq -e '.transport == "tcp"' \
        >/dev/null || fail "train --again of a run with a link"
    what=train
    refused 2 "needs --ranks" softmax --link 1g
    refused 2 "crossed by TCP" softmax --link 1g --ranks 2 --transport shm
}

case $part in
basic) for part in bad_usage compares simplifies goes_on hostile; do $part; done ;;
*) $part ;;
esac
exit $bad
