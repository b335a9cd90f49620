#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests scripts/reproduce.sh: reproduce.sh VERBENA. Two short experiments from their runs to the page, usage errors, going
# on after a stop. Figures must come from the runs: a run that is changed changes the page.
set -uo pipefail
verbena=$(realpath "$1")
script=$(cd "$(dirname "$0")/../.." && pwd)/scripts/reproduce.sh
for command in jq gnuplot; do
    if ! command -v $command >/dev/null; then
        echo "skipped: needs the command $command"
        exit 77
    fi
done
dir=$(mktemp -d /tmp/verbena-reproduce.XXXXXX)
trap 'rm -rf "$dir"' EXIT
export VERBENA=$verbena XDG_CACHE_HOME=$dir/cache
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

# refused CODE TEXT ARGUMENTS...: fails unless the script exits with CODE and says TEXT
refused() {
    local want=$1 text=$2 code
    shift 2
    timeout 60 "$script" "$@" >"$dir/said" 2>&1
    code=$?
    [ $code = "$want" ] || fail "reproduce.sh $*: exit $code, not $want"
    grep -qF -- "$text" "$dir/said" || fail "reproduce.sh $*: '$(tail -n 1 "$dir/said")' lacks '$text'"
}

# ---- usage errors

refused 2 "unknown argument 007" 007
refused 2 "unknown argument --fast" --fast
refused 2 "unknown experiment 003-nothing" 003-nothing
refused 2 "--out needs a folder" 003 --out
refused 2 "--data needs a folder" 003 --data ''
refused 1 "--data $dir/none: is not a folder" 003-softmax --quick --data "$dir/none" --out "$dir/x"
: >"$dir/file"
refused 1 "is not a folder" 003-softmax --out "$dir/file"
mkdir "$dir/full" && : >"$dir/full/mine"
refused 1 "the folder is not empty" 003-softmax --out "$dir/full"
[ "$(ls "$dir/full")" = mine ] || fail "a folder that was refused was changed"
VERBENA=$dir/none refused 1 "$dir/none is missing" 003-softmax --out "$dir/x"
mkdir "$dir/bin" && for command in bash sed sort dirname cat; do ln -s "$(command -v $command)" "$dir/bin/"; done
PATH=$dir/bin "$script" 003 >"$dir/said" 2>&1 && fail "runs without jq"
grep -q "apt-get install jq" "$dir/said" || fail "without jq: $(tail -n 1 "$dir/said")"
refused 0 "usage: scripts/reproduce.sh" --help

"$script" all --list >"$dir/list" || fail "--list fails"
for study in 000 001 002 003 004; do
    grep -q "^$study-.* [0-9]* " "$dir/list" || fail "--list has no experiment of $study with its time"
done

# ---- from runs to the page

out=$dir/out page=$dir/out/reproduction.md
reproduce() { timeout 150 "$script" 003-softmax 003-epochs --quick --out "$out" >"$dir/said" 2>&1; }
reproduce || fail "fails: $(tail -n 3 "$dir/said")"
grep -q "left$" "$dir/said" || fail "does not tell the time left"
[ "$(wc -l <"$out/runs/003-softmax/runs.jsonl")" = 6 ] || fail "003-softmax has not 5 runs and a recommendation"
find "$out" -name '*.json' -size -2c | grep . && fail "empty JSON files"
find "$out" -name '*.json' -exec jq -e . {} + >/dev/null || fail "files that are not JSON"
for plot in 003-epochs-accuracy-epoch 003-epochs-loss-epoch 003-batch-accuracy; do
    grep -q "</svg>" "$out/reproduction/$plot.svg" || fail "$plot.svg is not complete"
    grep -q "reproduction/$plot.svg" "$page" || fail "the page does not show $plot.svg"
done

# accuracy BATCH: prints the accuracy of a run of 003-softmax in percent, as its run.json has it
accuracy() {
    jq -r '.accuracy' "$out"/runs/003-softmax/*batch-"$1"_*r1/run.json | awk '{ p = 100 * $1; printf "%.2f", int(100 * p + 0.5) / 100 }'
}
for batch in 128 256 512 1024 4096; do
    grep -q "^| $batch | .* | $(accuracy $batch) |" "$page" || fail "batch $batch: the page lacks the accuracy $(accuracy $batch)"
done
grep -q "generated digits" "$page" || fail "the page does not say that the data is generated"
grep -qF "$dir" "$page" && fail "the page names folders of this machine"

# ---- a second time: nothing runs again, and the page follows the runs

run=$(echo "$out"/runs/003-softmax/*batch-512_*r1/run.json)
jq '.accuracy = 0.123456' "$run" >"$dir/changed" && cp "$dir/changed" "$run"
touch -d '2000-01-01' "$run"
reproduce || fail "the second time fails: $(tail -n 3 "$dir/said")"
[ "$(stat -c %Y "$run")" = "$(date -d 2000-01-01 +%s)" ] || fail "a complete run was made again"
grep -q "^| 512 | .* | 12.35 |" "$page" || fail "the page does not follow a run that was changed"
refused 1 "has runs with other options" 003-softmax --out "$out"

# A run that fails is named, and the rest goes on.
rm "$out/runs/003-epochs.done" "$out/runs/003-epochs.json" && mkdir "$out/runs/003-epochs.json"
reproduce && fail "a run that cannot be written is not noticed"
grep -q "failed: 003-epochs" "$dir/said" || fail "the experiment that failed is not named: $(tail -n 1 "$dir/said")"

[ $bad = 0 ] && echo "all tests passed: reproduce.sh makes its page from runs"
exit $bad
