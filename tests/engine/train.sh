#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the command verbena train, with one rank and with several: train.sh VERBENA [quick]. With quick, for builds with
# a sanitizer, there are fewer runs on a terminal.
#
# Covers: cli/job_opts.c cli/train/cmd_train.c cli/train/train_fill.c cli/train/train_rank.c
# Covers: cli/train/train_opts.c cli/train/train_print.c
# Covers: engine/train/train.c engine/train/train_check.c engine/train/train_result.c
# Covers: engine/train/train_verdict.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train

# ---- bad usage prints one line and exits with 2, also with several ranks
refused 2 "the model is missing: name softmax"
refused 2 "unknown model sofmax; did you mean softmax?" sofmax
refused 2 "unknown model transformer; must be softmax, sparse-lr, lenet, mlp or alexnet" transformer
refused 2 "unexpected argument again" softmax again
refused 2 "cats: unknown data format" softmax --data cats --ranks 2
refused 2 "synth:0: N must be a whole number" softmax --data synth:0
refused 2 "--lr fast: must be a number" softmax --lr fast
refused 2 "--lr -1: must be from 0 to 1000" softmax --lr -1
refused 2 "--lr 0: the model would learn nothing" softmax --lr 0
refused 2 "--lr 0: the model would learn nothing" lenet --lr 0.0 --ranks 2
VB_LR=0 refused 2 "--lr 0: the model would learn nothing" softmax
refused 2 "--mode asink: must be sync, single or async" softmax --mode asink
refused 2 "--transport udp: must be auto, shm, tcp or verbs" softmax --transport udp
refused 2 "--mode single needs one rank" softmax --mode single --ranks 2
refused 2 "give --batch or --global-batch, not both" softmax --batch 5 --global-batch 10
refused 2 "give only one of --epochs, --steps and --samples" softmax --epochs 1 --steps 1
refused 2 "give --test-data or --test-split, not both" softmax --test-data synth --test-split 0.1
refused 2 "--input: lenet takes images of one size only" lenet --input 32
refused 2 "--input: alexnet takes images of size 224 or 32" alexnet --input 64
refused 2 "need --checkpoint DIR" softmax --resume
refused 2 "a step has 3 samples, but needs at least 4" softmax --global-batch 3 --ranks 4
refused 2 "a step has 200 samples, but the data only has 100" \
    softmax --data synth:100 --batch 100 --ranks 2
refused 2 "--root HOST:0: the other ranks would not know" softmax --world 2 --rank 1 --root localhost:0
for ranks in '' --ranks=1; do
    refused 2 "--logs needs ranks that are started by --ranks N or --hosts" softmax --logs "$dir/none" $ranks
done
RANK=0 WORLD_SIZE=1 refused 2 "--logs needs ranks that are started by --ranks N or --hosts" softmax --logs "$dir/none"
refused 2 "--ranks starts all ranks on this host" softmax --ranks 2 --rank 1 --world 2
for rank in 0 1; do
    refused 2 "need --world" softmax --rank $rank
    refused 2 "--ranks starts all ranks on this host" softmax --ranks 2 --rank $rank
    refused 2 "need --world" softmax --hosts localhost:2 --rank $rank
    what=bench refused 2 "need --world" allreduce --rank $rank
    what=doctor refused 2 "need --world" --rank $rank
done
refused 2 "--rank must be less than --world" softmax --rank 2 --world 2
refused 2 "--world needs --root" softmax --rank 0 --world 2
refused 2 "--world needs the job's secret" softmax --rank 0 --world 2 --root 127.0.0.1:1
refused 1 "No such file or directory" softmax --rank 0 --world 2 --root 127.0.0.1:1 \
    --secret-file "$dir/none"
echo 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff >"$dir/open"
chmod 644 "$dir/open"
refused 1 "$dir/open" softmax --rank 0 --world 2 --root 127.0.0.1:1 --secret-file "$dir/open"
VB_SECRET_FD=77 refused 1 "VB_SECRET_FD 77: Bad file descriptor" softmax
VB_SECRET_FD=9 refused 1 "the secret ends after 3 bytes" softmax 9< <(printf abc)
VB_SECRET_FD=9 refused 2 "but VB_WORLD is not" softmax 9< <(head -c 32 /dev/zero)
VB_SECRET_FD=9 VB_WORLD=2 VB_RANK=2 refused 2 "VB_RANK 2: must be a number from 0 to 1" softmax \
    9< <(head -c 32 /dev/zero)
place=(VB_SECRET_FD=9 VB_WORLD=2 VB_RANK=0 VB_LOCAL_RANKS=2 VB_LOCAL_RANK=0 VB_ROOT=127.0.0.1:1)
export "${place[@]}"
VB_TERMINAL=2 refused 2 "VB_TERMINAL 2: must be a number from 0 to 1" softmax 9< <(head -c 32 /dev/zero)
unset "${place[@]%%=*}"
VB_SECRET=12 refused 2 "must be 64 hexadecimal digits" softmax

# ---- one rank
keys='["model","mode","ranks","transport","order","algo","batch","steps","epochs","train_s",
"wall_s","steps_per_s","samples_per_s","loss","accuracy","test_samples","params","params_sha256",
"plan_sha256","staleness","evals","faults","per_rank","breakdown","bottleneck"]'
rank_keys='["rank","role","host","cpu_pct","cpu_pct_peak","rss_peak_mb","send_mb_s",
"send_mb_s_peak","recv_mb_s","recv_mb_s_peak","disk_read_mb_s","disk_read_mb_s_peak",
"disk_write_mb_s","disk_write_mb_s_peak","train_s",
"accuracy","breakdown"]'
phases='["data","forward","backward","comm_exposed","wait","update","eval","checkpoint"]'
trained '.accuracy >= 0.88 and .accuracy < 0.98 and .loss > 0 and .loss < 0.6' softmax --epochs 3
first=$(get .params_sha256)
trained "$keys - keys == [] and $rank_keys - (.per_rank[0] | keys) == [] and
    (.breakdown | keys) - $phases == [] and $phases - (.breakdown | keys) == []" \
    softmax --data synth:2000 --steps 30
trained '.model == "softmax" and .mode == "single" and .ranks == 1 and .transport == null and
    .batch == 50 and .steps == 30 and .epochs == 0.75 and .test_samples == 400 and
    .params == 7850 and (.per_rank | length) == 1 and .faults == [] and .plan_sha256 == null' \
    softmax --data synth:2000 --batch 50 --steps 30 --mode single
trained '(([.breakdown[]] | add) - .train_s | fabs) < 1e-6 and .wall_s >= .train_s' \
    softmax --data synth:2000 --steps 30 --pin off
trained ".params_sha256 == \"$first\"" softmax --epochs 3 --pin off
trained ".params_sha256 != \"$first\"" softmax --epochs 3 --seed 2

# ---- the final object contains the evaluations during training, and is always one line
evals='[.evals[].step] == [10, 20, 30] and all(.evals[]; .accuracy > 0 and .accuracy <= 1 and .loss > 0) and
    .evals[0].loss > .evals[2].loss'
on_the_way=(softmax --data synth:2000 --global-batch 60 --steps 35 --eval-every 10)
for ranks in 1 3; do
    trained "$evals" "${on_the_way[@]}" --ranks $ranks
    [ "$(wc -l <"$dir/out")" = 1 ] || fail "evaluations: $(wc -l <"$dir/out") lines"
done
trained "$evals" "${on_the_way[@]}" --ranks 2 --mode async --staleness 0
trained '(.evals | length) >= 1 and all(.evals[]; .step >= 100 and .accuracy > 0 and .loss > 0)' \
    softmax --data synth:2000 --batch 20 --steps 400 --eval-every 100 --ranks 2 --mode async
trained '.evals == []' softmax --data synth:2000 --steps 30 # none was requested
trained '.evals == []' softmax --data synth:2000 --steps 30 --eval-every 30
trained '.evals == []' softmax --data synth:2000 --steps 30 --eval-every 10 --dry-run
ends '[.evals[].step] == [range(1; 10002; 2)]' \
    softmax --data synth:100 --batch 1 --steps 10003 --eval-every 1 --test-limit 1 # at most 10000 are stored
run softmax --data synth:2000 --steps 30
[[ $(cat "$dir/out") == *"accuracy "*"parameters  sha256 "* ]] || fail "the summary is missing"
[[ $err == "recipe: sgd, "*" --epochs change it" && $(wc -l <"$dir/err") = 1 ]] ||
    fail "standard error is not a terminal, but has more than the recipe: $err"
run softmax --data synth:2000 --steps 300 --lr 1000 --json
[ "$code" = 0 ] || fail "a high learning rate: exit $code"

# ---- a warning appears if the model is not better than always choosing the most frequent label
# labels OF_TEN: writes a file of 1000 rows with equal features; OF_TEN of ten labels are positive
labels() {
    for ((i = 0; i < 1000; i++)); do
        echo "$((i % 10 < $1 ? 1 : 0)) 1:1 2:1"
    done >"$dir/same.svm"
}
for of_ten in 5 2 7; do
    labels $of_ten
    run sparse-lr --data "libsvm:$dir/same.svm" --test-data "libsvm:$dir/same.svm" --steps 200
    [ "$code" = 0 ] || fail "random labels: exit $code: $err"
    common=$((of_ten < 5 ? 10 - of_ten : of_ten))0.0
    [[ $err == *"the model has learnt nothing"*"always choosing the commonest class gives $common %"* ]] ||
        fail "labels by chance, $of_ten of ten: not told: $err"
done
quiet sparse-lr --data "libsvm:$dir/same.svm" --test-data "libsvm:$dir/same.svm" --steps 199
quiet sparse-lr --data "libsvm:$dir/same.svm" --test-data "libsvm:$dir/same.svm" --steps 200 --test-limit 99
for ((i = 0; i < 1000; i++)); do # a third of the labels is random, the rest can be learned
    echo "$((i % 3 == 0 ? i / 6 % 2 : i % 2)) $((1 + i % 2)):1"
done >"$dir/some.svm"
trained '.accuracy > 0.8 and .accuracy < 0.9' sparse-lr --data "libsvm:$dir/some.svm" \
    --test-data "libsvm:$dir/some.svm" --steps 200
for ((i = 0; i < 1000; i++)); do # the rare label is never the best guess, but its odds can be learned
    echo "$((i % 2 == 0 && i % 5 < 2)) $((1 + i % 2)):1"
done >"$dir/odds.svm"
trained '.accuracy == 0.8 and .loss < 0.4' sparse-lr --data "libsvm:$dir/odds.svm" \
    --test-data "libsvm:$dir/odds.svm" --steps 400 --lr 0.5
if [ "${2:-}" != quick ]; then # sanitizers need large files themselves
    large=(train softmax --data synth:500 --steps 2 --checkpoint "$dir/large")
    for how in "" --checkpoint-strict; do
        # shellcheck disable=SC2086 # no word, or one
        (ulimit -f 8 && exec "$verbena" "${large[@]}" $how) >/dev/null 2>"$dir/err"
        [ $? = $((${#how} > 0)) ] || fail "the exit code after a checkpoint larger than the file limit, $how"
        grep -q "write $dir/large/checkpoint-2.vbc at offset [0-9]*: File too large" "$dir/err" || fail "$(cat "$dir/err")"
        [ "$(ls "$dir/large")" = lock ] || fail "half a checkpoint is left: $(ls "$dir/large")"
    done
fi
if [ -e /dev/full ]; then
    for ranks in 1 2; do # run.json must be written even if the output cannot be written
        rm -rf "$dir/kept"
        "$verbena" train softmax --data synth:500 --steps 2 --ranks $ranks --run "$dir/kept" >/dev/full 2>/dev/null &&
            fail "$ranks ranks: the result went nowhere, and nobody noticed"
        jq -e '.run.state == "ended" and .steps == 2' "$dir/kept/run.json" >/dev/null ||
            fail "$ranks ranks: no result in run.json: $(cat "$dir/kept/run.json")"
    done
    "$verbena" train softmax --data synth:500 --steps 2 --json >/dev/full 2>/dev/null &&
        fail "a full disk was not reported"
fi

# ---- several ranks have equal bits over every transport
job=(softmax --data synth:3000 --global-batch 120 --epochs 2)
trained '.accuracy > 0.7' "${job[@]}"
alone=$(tail -n 1 "$dir/out" | jq .loss)
for ranks in 2 3 4; do
    seen=
    for transport in shm tcp auto; do
        trained ".ranks == $ranks and (.per_rank | map(.rank)) == [range($ranks)] and
            .order == \"rank\" and .algo != null and .global_batch == 120 and
            .steps == 50 and (.loss - $alone | fabs) < 1e-4 and
            all(.per_rank[]; ([.breakdown[]] | add) - .train_s | fabs < 1e-6)" \
            "${job[@]}" --ranks "$ranks" --transport "$transport"
        [ "$transport" = auto ] || [ "$(tail -n 1 "$dir/out" | jq -r .transport)" = "$transport" ] ||
            fail "the transport is not $transport"
        [ "${seen:=$(get .params_sha256)}" = "$(get .params_sha256)" ] || fail "$ranks ranks over $transport: the bits differ"
    done
done
trained '.batch == 41 and .global_batch == 121' \
    softmax --data synth:3000 --ranks 3 --global-batch 121 --steps 20 # the ranks have shares of two sizes
VB_RANKS=2 trained '.ranks == 2' softmax --data synth:1000 --steps 5
trained '.ranks == 2' softmax --data synth:1000 --steps 5 --ranks 2 --logs "$dir/logs"
cmp -s "$dir/out" "$dir/logs/rank-0.log" || fail "--logs: rank 0's log differs from its output: $(ls -l "$dir/logs")"
[ "$(ls "$dir/logs")" = $'rank-0.log\nrank-1.log' ] || fail "--logs: the folder has $(ls "$dir/logs")"
rm "$dir/logs/rank-0.log"
mkfifo "$dir/logs/rank-0.log"
refused 1 "rank-0.log: the path exists and is not a file" softmax --data synth:100 --steps 1 --ranks 2 --logs "$dir/logs"

# ---- the text has the noise scale where it is known; measuring it does not change the bits
still=(softmax --data synth:2000 --batch 50 --steps 200 --lr 1e-9 --ranks 2) # at this rate the gradient stays the same
"$verbena" train "${still[@]}" >"$dir/out" 2>"$dir/err" || fail "${still[*]}: exit $?: $(cat "$dir/err")"
pays='^noise scale [0-9]+ samples, \+- [0-9]+: a global batch of up to about [0-9]+ samples still pays; this run has 100$'
grep -qE "$pays" "$dir/out" || fail "the text has no noise scale: $(cat "$dir/out")"
digest=$(grep '^parameters ' "$dir/out")
"$verbena" train "${still[@]}" --noise-scale off >"$dir/out" 2>"$dir/err" || fail "${still[*]}: exit $?: $(cat "$dir/err")"
! grep -q '^noise scale' "$dir/out" || fail "--noise-scale off: the text has a noise scale"
[ "$(grep '^parameters ' "$dir/out")" = "$digest" ] || fail "--noise-scale off: the bits differ"
trained '.noise_scale == null and .noise_scale_steps == 0 and (.noise_scale_why | test("not measured"))' \
    "${still[@]}" --noise-scale off

# ---- on a terminal one line of progress is shown and erased at the end; without a terminal no progress is printed
# on_terminal TEXT OPTIONS...: fails unless training succeeds and the screen matches the pattern TEXT
on_terminal() {
    local text=$1
    shift
    TERM=dumb timeout 100 script -qec "'$verbena' train softmax --data synth:2000 $* --json >'$dir/out'" \
        /dev/null >"$dir/screen" </dev/null || fail "on a terminal: $*: $(cat "$dir/screen")"
    final '.steps > 0' "$@"
    # shellcheck disable=SC2053 # $text is a pattern
    [[ $(cat "$dir/screen") == $text ]] || fail "on a terminal: $*: the screen had $(od -c "$dir/screen" | tail -n 30)"
}
# no_step_beyond STEPS: fails if the last screen shows a later step
no_step_beyond() {
    ! grep -oE 'step [0-9]+' "$dir/screen" | awk -v most="$1" '$2 > most { bad = 1 } END { exit !bad }' ||
        fail "on a terminal: a step beyond $1: $(tr '\r' '\n' <"$dir/screen" | tail -n 3)"
}
progress=$'*\r\e\\[Kepoch * samples/s, * s left*\r\e\\[K'
if ! command -v script >/dev/null; then
    echo "skipped: script(1) is not installed, so there is no terminal"
elif [ "${2:-}" = quick ]; then
    on_terminal "$progress" --ranks 2 --steps 10000 --mode async
else
    for mode in sync async; do
        on_terminal "$progress" --ranks 1 --steps 15000 --mode $mode
        on_terminal "$progress" --ranks 2 --steps 15000 --mode $mode
        on_terminal $'*\\[rank 0\\] epoch * s left\r*' --ranks 2 --steps 30 --mode $mode --eval-every 10
        quiet softmax --data synth:2000 --ranks 2 --steps 15000 --mode $mode --eval-every 1000
        on_terminal "$progress" --ranks 2 --steps 15000 --mode $mode --slow 1:3
        no_step_beyond 15000
    done
fi

# ---- ranks started by hand
chmod 600 "$dir/open"
port=$((20000 + RANDOM % 9000)) # not a port that the kernel assigns
hand=(softmax --data synth:3000 --global-batch 120 --epochs 2 --json --world 2
    --root "127.0.0.1:$port" --timeout 60)
timeout 100 "$verbena" train "${hand[@]}" --rank 1 --secret-file "$dir/open" \
    >"$dir/out1" 2>"$dir/err1" &
VB_SECRET=$(cat "$dir/open") run "${hand[@]}" --rank 0
[ "$code" = 0 ] || fail "rank 0 by hand: exit $code: $err"
wait $! || fail "rank 1 by hand: $(cat "$dir/err1")"
[ ! -s "$dir/out1" ] || fail "rank 1 wrote to standard output"
by_hand=$(get .params_sha256)
trained ".params_sha256 == \"$by_hand\"" "${job[@]}" --ranks 2

# ... if options differ, both ranks report it and exit without waiting
timeout 100 "$verbena" train "${hand[@]}" --rank 1 --lr 0.3 --secret-file "$dir/open" \
    >"$dir/out1" 2>"$dir/err1" &
run "${hand[@]}" --rank 0 --secret-file "$dir/open"
wait $! && fail "rank 1 did not refuse another learning rate"
[[ $code$err == 2*"rank 1 was started with a different learning rate than rank 0"* ]] ||
    fail "another learning rate: $code $err"
[[ $(cat "$dir/err1") == *"a different learning rate"* ]] || fail "rank 1: $(cat "$dir/err1")"

# ... the same for options about the common work of the ranks
own_way() { # own_way WORDS OPTION [VALUE]: fails unless the job is refused if only rank 1 has the option
    timeout 100 "$verbena" train "${hand[@]}" --rank 1 "${@:2}" --secret-file "$dir/open" >"$dir/out1" 2>"$dir/err1" &
    run "${hand[@]}" --rank 0 --secret-file "$dir/open"
    wait $! && fail "rank 1 did not refuse its own $2"
    [[ $code$err == 2*"a different $1 than rank 0"* ]] || fail "rank 1 with a different $2: $code $err"
}
own_way "number of steps between tests" --eval-every 5
own_way "number of deferred bytes (--defer-bytes)" --defer-bytes 40000
own_way "rounding (--fast-math)" --fast-math

# ... if one rank cannot do something, all ranks end
run lenet --ranks 2 --data synth:kind=cifar
[[ $code$err == [12]*"lenet takes images of 1 x 28 x 28; the images of synth:kind=cifar are 3 x 32 x 32"* ]] ||
    fail "colour images for lenet: $code $err"

# ---- with --elastic off, if a rank is killed, the job ends and the message names the rank
rank_of() { # rank_of SUPERVISOR RANK: prints the process id of a rank
    local pid
    for pid in $(ps -o pid= --ppid "$1"); do
        grep -qz "^VB_RANK=$2\$" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
    done
}

for transport in shm tcp; do
    "$verbena" train softmax --ranks 3 --elastic off --transport $transport --data synth:2000 \
        --steps 1000000000 >"$dir/out" 2>"$dir/err" &
    supervisor=$!
    for _ in $(seq 100); do
        victim=$(rank_of $supervisor 1)
        [ -n "$victim" ] && [ "$(ps -o pid= --ppid $supervisor | wc -l)" = 3 ] && break
        sleep 0.1
    done
    sleep 2 # until training has begun
    begin=$SECONDS
    kill -9 "$victim"
    wait $supervisor
    code=$?
    [ $code = 1 ] || fail "a killed rank: exit $code"
    [ $((SECONDS - begin)) -le 8 ] || fail "a killed rank: noticed after $((SECONDS - begin)) s"
    grep -q 'rank 1 died: signal 9 (Killed)' "$dir/err" || fail "a killed rank is not named: $(cat "$dir/err")"
    [ ! -s "$dir/out" ] || fail "a killed rank: wrote to standard output"
done

[ $bad = 0 ] && echo "all tests passed"
exit $bad
