#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests which bits a job has after a rank has joined: train_grown.sh VERBENA CASE... (MODEL:TRANSPORT). A rank joins a job
# of two ranks after some step. The parameters at the end are, bit for bit, those of a job that is resumed with three
# ranks from a checkpoint of this step.
#
# Covers: engine/elastic/form.c engine/elastic/send.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
shift
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
here=$(dirname "$(realpath "$0")")
(umask 077 && head -c 32 /dev/urandom >"$dir/key")

# Steps take so long that a rank can join before the last one. The program idles in this time.
slow=slow:0x100:data
declare -A data=(
    [softmax]="--data synth:1000 --global-batch 60 --steps 600"
    [lenet]="--data synth:600 --global-batch 24 --steps 200"
    [sparse-lr]="--data synth:n=3000,features=20000 --global-batch 60 --rule momentum --steps 500"
)

# joined WORDS...: a rank joins a job of two ranks. Returns 1 if it came too late. The digest of the parameters is then
# in $sha256, and the last step that two ranks have made is in $at.
joined() {
    local job door i
    rm -rf "$dir/run" "$dir/ledger"
    timeout 200 "$verbena" train "$@" --ranks 2 --inject "$slow" --secret-file "$dir/key" --run "$dir/run" \
        --ledger "$dir/ledger" --json >"$dir/out" 2>"$dir/err" &
    job=$!
    for ((i = 0; i < 1200; i++)); do
        if grep -q '"step":30,' "$dir/ledger" 2>/dev/null || ! kill -0 $job 2>/dev/null; then
            break
        fi
        sleep 0.05
    done
    door=$(jq -r '.run.join' "$dir/run/run.json")
    timeout 100 "$verbena" train --join "$door" --secret-file "$dir/key" >"$dir/join" 2>&1
    wait $job
    code=$?
    [ $code = 0 ] || fail "$*: exit $code: $(cat "$dir/err")"
    at=$(jq -r .step "$dir/ledger" | grep -vx null | sort -n | uniq -c | awk '$1 == 2 { last = $2 } END { print last }')
    sha256=$(get .params_sha256)
    [ "${at:-0}" -ge 1 ] && [ "$at" -lt "$(($(get .steps) - 2))" ]
}

# began STEP WORDS...: two ranks write a checkpoint of this step, and end. A rank pauses, so that it is written before.
began() {
    local step=$1
    shift
    rm -rf "$dir/c"
    run "$@" --ranks 2 --elastic off --checkpoint "$dir/c" --checkpoint-every "$step" \
        --inject "stop:1@$((step + 1)):1,kill:0@$((step + 2))"
    [ "$code" = 1 ] || fail "$*: exit $code: $err"
    [ -s "$dir/c/checkpoint-$step.vbc" ] || fail "$*: no checkpoint of step $step: $(ls "$dir/c")"
}

# grown MODEL TRANSPORT: if the job ends before the rank has come, a longer one follows
grown() {
    local words steps try
    for try in 1 2 3 4; do
        read -ra words <<<"$1 ${data[$1]}"
        steps=$((${words[-1]} * try))
        words[-1]=$steps
        words+=(--transport "$2" --threads 1 --seed 3)
        joined "${words[@]}" && break
    done
    [ "$at" -lt $((steps - 2)) ] || fail "$1 over $2: no rank has joined: $(cat "$dir/join" "$dir/err")"
    python3 "$here/../check_ledger.py" "$dir/ledger" "$steps" || fail "$1 over $2: the ledger is wrong"
    began "$at" "${words[@]}"
    ends ".resumed == $at and .ranks == 3 and .params_sha256 == \"$sha256\"" "${words[@]}" --ranks 3 --checkpoint "$dir/c" \
        --resume
    echo "$1 over $2: a rank has joined after step $at of $steps"
}

for case; do
    grown "${case%:*}" "${case#*:}"
    [ $bad = 0 ] || exit 1
done
exit $bad
