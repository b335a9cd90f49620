#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests the command verbena bench, with one rank and with several: bench.sh VERBENA [quick]. Checks the output, but
# never the measured times. With quick, for the quick tier and for sanitizers, each bench runs once, with two ranks.
#
# Covers: bench/allreduce.c bench/loops/bare.c bench/loops/bare_side.c bench/loops/bare_step.c bench/kernels.c bench/kernels_sparse.c
# Covers: bench/print.c bench/slowest.c bench/loops/sparse_lr.c bench/loops/sparse_rows.c bench/sparse_sums.c
# Covers: bench/transfer.c cli/bench/bench_step_plot.c cli/bench/cmd_bench.c
# Covers: cli/bench/cmd_bench_ps.c cli/bench/cmd_bench_step.c
# Covers: engine/bench/bench_ps.c net/coll/cost.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=bench

# holds FILTER ARGUMENTS...: runs bench ARGUMENTS, puts the printed JSON lines into one array, and fails if the jq
# filter is false
holds() {
    local filter=$1
    shift
    quiet "$@" --seconds 0.01 --json
    jq -se "$filter" >/dev/null <"$dir/out" || fail "bench $*: condition is false: $filter: $(cat "$dir/out")"
}

if [ "${2:-}" = quick ]; then
    for transport in shm tcp; do
        at=(--ranks 2 --transport "$transport")
        holds 'length == 6 and all(.[]; .gb_s > 0 or .lat_us_p50 > 0)' \
            transfer "${at[@]}" --sizes 64,64K --only put,get,round
        holds 'length == 4 and all(.[]; .wrong == 0)' allreduce "${at[@]}" --sizes 4,1020,64K,1048580
        holds 'length == 2 and all(.[]; .wrong == 0)' \
            sparse-allreduce "${at[@]}" --sizes 8,31200 --features 100000
        holds 'length == 6 and all(.[]; .wrong == 0)' \
            ps --ranks 3 --transport $transport --sizes 64K --keys 50 --features 10000
        holds '.[0].step_ms > 0 and .[0].transfer_ms > 0' step --model softmax "${at[@]}" --batches 8
    done
    holds '.[-1].layer == "all"' kernels --model softmax --batch 2 --threads 1
    holds 'length == 6 and all(.[]; .ns_entry > 0) and .[-1].off_rms < 1e-3 and
        (.[-1].ms - ([.[:-1][] | select(.chosen) | .ms] | add) | fabs) < 0.001' \
        kernels --model sparse-lr --features 100000 --batch 500 --threads 2
    [ $bad = 0 ] && echo "all tests passed"
    exit $bad
fi

# ---- bad usage prints one line and exits with 2, also with several ranks
refused 2 "the bench is missing: name transfer, allreduce, sparse-allreduce, kernels, step or ps"
refused 2 "unknown bench alreduce; did you mean allreduce?" alreduce
refused 2 "unknown bench nothing; must be transfer" nothing
RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 \
    refused 2 "unknown bench nothing" nothing # must not wait for another rank
refused 2 "bench kernels needs a model: --model " kernels
refused 2 "--keys, --servers and --rule are only for ps" transfer --ranks 2 --keys 5
refused 2 "ps needs at least one worker" ps
refused 2 "ps needs at least one worker" ps --ranks 2 --servers 2
refused 2 "ps has no algorithms" ps --ranks 2 --algo ring
refused 2 "--sizes 6: the sizes of ps must be multiples of 4" ps --ranks 2 --sizes 6
for keys in 0 "1," x -5 101; do
    refused 2 "--keys $keys: must be none, or up to 32 numbers" ps --ranks 2 --features 100 --keys "$keys"
done
refused 2 "unknown model lenot; did you mean lenet?" kernels --model lenot
refused 2 "--check: sparse-lr has no layers" kernels --model sparse-lr --check
refused 2 "--features: rows are generated with 1000 to" kernels --model sparse-lr --features 999
refused 2 "--model is only for kernels and step" allreduce --model lenet
refused 2 "have no --sizes, --algo and --explain" kernels --model lenet --sizes 8
refused 2 "have no --sizes, --algo and --explain" step --model lenet --algo ring
refused 2 "bench step needs a model: --model softmax, sparse-lr" step --ranks 2
refused 2 "unknown model lenett; did you mean lenet?" step --model lenett
refused 2 "unknown model quux; must be softmax" step --model quux
refused 2 "--batch is only for kernels; step has --batches" step --model lenet --batch 8
refused 2 "--batches, --refine, --data and --plot are only for step" kernels --model lenet --batches 8
for batches in 0 "8," ",8" 8,,9 x 8,-1 1000001 99999999999999999999; do
    refused 2 "--batches $batches: must be up to 32 numbers" step --model lenet --ranks 2 --batches "$batches"
done
refused 2 "a batch of 60 on each of 2 ranks is too large: --data has 100 samples" \
    step --model lenet --ranks 2 --batches 8,60 --data synth:100
refused 2 "unknown data format" step --model lenet --data nothing
refused 2 "must end in .png, .svg, .pdf or .gp" step --model lenet --ranks 2 --plot "$dir/step.jpg"
refused 1 "write $dir/none/step.gp" step --model lenet --ranks 2 --plot "$dir/none/step.gp"
refused 2 "kernels runs in one process" kernels --model lenet --ranks 2
refused 2 "--batch" kernels --model lenet --batch 0
refused 2 "unexpected argument again" allreduce again
refused 2 "transfer needs two ranks" transfer
refused 2 "--sizes 6: the sizes of allreduce must be multiples of 4" allreduce --ranks 2 --sizes 6
refused 2 "--sizes 12: the sizes of sparse-allreduce must be multiples of 8" sparse-allreduce --sizes 12
refused 2 "--sizes 0: the sizes of allreduce must be multiples" allreduce --sizes 0
refused 2 "--sizes 4,: must be up to" allreduce --sizes 4,
refused 2 "--sizes 5G: must be up to" allreduce --sizes 5G
refused 2 "--seconds must be more than 0" allreduce --seconds 0
refused 2 "--algo fast: allreduce accepts auto, all, or a list of these: mapped" allreduce --ranks 3 --algo fast
refused 2 "--algo mapped,: allreduce accepts" allreduce --algo mapped,
refused 2 "--algo ring: sparse-allreduce accepts auto, all, or a list of these: sparse, dense" sparse-allreduce --algo ring
refused 2 "transfer has no algorithms" transfer --ranks 2 --algo ring
refused 2 "--only quick: must be a list of memcpy" transfer --ranks 2 --only quick
refused 2 "--only put,: must be a list of memcpy" transfer --ranks 2 --only put,
refused 2 "--only is only for transfer" allreduce --only put
refused 2 "--order, --wire and --in-flight are only for allreduce" sparse-allreduce --wire bf16
refused 2 "--order some: must be rank or any" allreduce --order some
refused 2 "--wire f16: must be f32 or bf16" allreduce --wire f16
refused 2 "--in-flight 0: must be from 1 to" allreduce --in-flight 0
refused 2 "--explain cannot be used with --in-flight" allreduce --explain --in-flight 2
refused 2 "--features 0: must be from 1" sparse-allreduce --features 0

# ---- --only selects some of the measurements
holds 'length == 2 and (.[0] | .op == "put" and .lat_us_p50 > 0 and .gb_s == null) and
    (.[1] | .op == "get" and .lat_us_p50 == null and .gb_s > 0)' \
    transfer --ranks 2 --transport shm --sizes 64K --only put-latency,get

# ---- every line has its keys in this order, and all sums are correct
dense='["bench","transport","ranks","bytes","algo","order","time_us","algbw_gb_s","busbw_gb_s","wire_bytes","wrong"]'
sparse='["bench","transport","ranks","bytes","nnz","features","algo","time_us","wire_bytes","wrong"]'
right='all(.[]; .wrong == 0 and .time_us > 0 and .time_us_p99 >= .time_us)'
for ranks in 1 2 3; do
    for transport in shm tcp; do
        way=$transport
        [ $ranks = 1 ] && way=self
        at=(--ranks "$ranks" --transport "$transport")
        holds "$right and [.[].bytes] == [4, 1020, 65536, 1048580] and
            all(.[]; keys_unsorted[:11] == $dense and .bench == \"allreduce\" and
                .ranks == $ranks and .transport == \"$way\" and .order == \"rank\" and
                .algo != \"auto\" and (.algbw_gb_s * .time_us * 1000 / .bytes - 1 | fabs) < 0.01 and
                (.busbw_gb_s - .algbw_gb_s * 2 * ($ranks - 1) / $ranks | fabs) < 1e-6)" \
            allreduce "${at[@]}" --sizes 4,1020,64K,1048580
        holds "$right and all(.[]; keys_unsorted[:10] == $sparse and .transport == \"$way\" and
                .ranks == $ranks and .features == 100000 and .nnz <= .bytes / 8)" \
            sparse-allreduce "${at[@]}" --sizes 8,31200 --features 100000 --algo all
        holds "$right and all(.[]; .in_flight == 5)" \
            allreduce "${at[@]}" --sizes 4,1020,256K --in-flight 5
    done
done

# ---- one rank sends nothing; two ranks send little more than the number of bytes in theory
holds 'all(.[]; .wire_bytes == 0 and .busbw_gb_s == 0)' allreduce --sizes 4,64K
holds 'all(.[]; .wire_bytes > 0 and .wire_bytes <= 1.02 * .bytes)' \
    allreduce --ranks 2 --transport tcp --sizes 1M
holds 'all(.[]; .wire == "bf16" and .wire_bytes <= 0.52 * .bytes)' \
    allreduce --ranks 2 --transport tcp --sizes 1M --wire bf16

# ---- algorithms
for order in rank any; do
    holds "$right and ([.[] | select(.bytes == 64)] | length) >= 2 and all(.[]; .order == \"$order\")" \
        allreduce --ranks 3 --algo all --order $order --sizes 64,100004
done
holds '[.[].algo] == ["exchange", "gather"]' allreduce --ranks 2 --algo exchange,gather --sizes 64K
holds '[.[].algo] == ["exchange"]' allreduce --ranks 2 --algo gather --sizes 1M # more than a slot holds
for impossible in "shm ring" "tcp mapped"; do # these cannot sum in rank order
    read -r transport algo <<<"$impossible"
    run allreduce --ranks 2 --transport "$transport" --algo "$algo" --sizes 64 --json
    [ "$code" != 0 ] || fail "$algo over $transport in rank order was not refused"
    [[ $err == *"$algo"* ]] || fail "$algo over $transport: '$err' does not name the algorithm"
    [ ! -s "$dir/out" ] || fail "$algo over $transport: wrote to standard output"
done

# ---- predictions of the cost model
holds "$right and all(.[]; .predicted_us > 0) and
    ([.[] | select(.chosen and .bytes == 64)] | length) == 1 and ([.[].algo] | unique | length) >= 2" \
    allreduce --ranks 2 --explain --sizes 64,64K
holds "$right and all(.[]; .predicted_us > 0) and ([.[] | select(.chosen)] | length) == 1" \
    sparse-allreduce --ranks 2 --explain --sizes 31200 --features 100000

# ---- kernels: for every pass one of the timed backends is chosen; the last line is for all layers
kernels='["bench","model","batch","layer","pass","backend","ms","gflop_s","chosen","gemm_share"]'
for model in lenet softmax; do
    holds "all(.[]; keys_unsorted[:10] == $kernels and .bench == \"kernels\" and .model == \"$model\" and
            .batch == 3 and .ms > 0 and .threads == 1 and .off_rms >= 0 and .off_rms < 3e-4) and
        ([.[] | select(.off_rms > 0)] | length) >= 2 and
        (group_by([.layer, .pass]) | all(.[]; [.[] | select(.chosen)] | length == 1)) and
        ([.[] | select(.pass == \"backward-data\") | .layer] | index(\"conv1\")) == null and
        ([.[] | select(.backend == \"onednn\")] | length) >= 2 and .[-1].layer == \"all\" and
        .[-1].gflop_s > 0" kernels --model $model --batch 3 --threads 1
done
# ---- kernels --check: errors per pass, then of the parameters after 20 steps; only --fast-math may exceed a running sum
holds 'all(.[]; .error_rms >= 0 and .off_rms >= .error_rms and .running_error_rms >= 0 and (.within or .fast_math)) and
        ([.[] | select(.within | not) | .backend] | unique) == ["winograd4+pool"] and
        ([.[] | select(.layer == "conv2") | .pass] | unique) == ["backward-data", "backward-weights", "forward"] and
        ([.[] | select(.steps == 20 and .layer == "all") | .backend] | contains(["blas", "gemm", "pooled", "running"]))' \
    kernels --model lenet --batch 1 --threads 1 --check
refused 2 "--check is only for kernels" step --model lenet --check
refused 2 "--fast-math is only for kernels and step" allreduce --fast-math
run kernels --model softmax --batch 2 --seconds 0.01
grep -q '^# softmax, batch 2, .* threads; measured GEMM peak' "$dir/out" || fail "kernels: the head line is missing"

# ---- step: the keys are in this order; the exposed time is part of the step; the last line has the batch
step='["bench","transport","ranks","bytes","model","batch","compute_ms","transfer_ms","exposed_ms","step_ms"]'
fair='.compute_ms > 0 and .step_ms > 0 and .exposed_ms >= 0 and .exposed_ms <= .step_ms and
    ((.step_ms - .compute_ms - .exposed_ms | fabs) < 1e-6 or (.exposed_ms == 0 and .step_ms <= .compute_ms))'
for model in softmax lenet sparse-lr; do
    case $model in
    softmax) bytes='. == 31400' ;;
    lenet) bytes='. == 246824' ;;
    sparse-lr) bytes='. > 0 and . % 8 == 0' ;;
    esac
    for transport in shm tcp; do
        holds "([.[:-1][].batch] == [3, 40]) and all(.[:-1][]; keys_unsorted == $step and .bench == \"step\" and
                .model == \"$model\" and .ranks == 2 and .transport == \"$transport\" and
                .transfer_ms > 0 and (.bytes | $bytes) and $fair) and
            (.[-1] | .bench == \"step\" and .model == \"$model\" and has(\"hidden_from_batch\") and
                ([.hidden_from_batch, .expected_from_batch] | all(. == null or (. >= 1 and . <= 1000000))))" \
            step --model $model --ranks 2 --transport $transport --batches 3,40
    done
done
holds ".[0].bytes < .[1].bytes" step --model sparse-lr --batches 3,40 --ranks 3
holds "all(.[:-1][]; .transport == \"self\" and .ranks == 1 and .transfer_ms == 0 and .exposed_ms == 0 and
    .compute_ms == .step_ms) and .[-1].hidden_from_batch == 1" step --model softmax --batches 7,300 --data synth:1000
holds "length == 2" step --model softmax --batches 20000 # more samples than are generated by default
holds "length == 6" step --model lenet --threads 1
printf '1 1:1 5:2\n0 2:1\n1 7:1 9:3\n0 3:1\n' >"$dir/rows.svm"
holds "length == 2 and .[0].batch == 2" step --model sparse-lr --ranks 2 --batches 2 --data "libsvm:$dir/rows.svm"
refused 2 "lenet takes images of 1 x 28 x 28" step --model lenet --batches 4 --data synth:kind=cifar,n=100

quiet step --model softmax --ranks 2 --batches 5,50 --seconds 0.01 --plot "$dir/step.gp"
grep -q '^a step of softmax over shm: 2 ranks with ' "$dir/out" || fail "step: no head"
[ "$(grep -cE '^ +(5|50) [#=]{60} +[0-9.]+ % exposed$' "$dir/out")" = 2 ] || fail "step: no bars: $(cat "$dir/out")"
tail -n 1 "$dir/out" | grep -qE 'omputing softmax (hides|does not hide) the transfer over shm' ||
    fail "step: no sentence"
[ "$(grep -cE '^(5|50) ([0-9.e+-]+ ){4}31400$' "$dir/step.gp")" = 2 ] || fail "step: no data in the script"
run step --model softmax --batches 5 --seconds 0.01
tail -n 1 "$dir/out" | grep -q '^One rank has nothing to transfer' || fail "step: with one rank the sentence is missing"
ln -s "$(command -v timeout)" "$(command -v cat)" "$(command -v wc)" "$(command -v grep)" "$dir" # all but gnuplot
with_all=$PATH
PATH=$dir
refused 1 "gnuplot, which is not installed: run apt-get install gnuplot-nox" step --model softmax --plot "$dir/no.png"
PATH=$with_all
[ ! -e "$dir/no.png" ] || fail "step: a plot exists, although gnuplot is missing"
if command -v gnuplot >/dev/null; then
    for kind in "png PNG" "svg <svg" "pdf %PDF"; do
        read -r end mark <<<"$kind"
        quiet step --model softmax --ranks 2 --batches 5,50 --seconds 0.01 --plot "$dir/step.$end"
        head -c 400 "$dir/step.$end" | grep -aq "$mark" || fail "step: step.$end is not of type $end"
    done
    gnuplot -e 'set terminal dumb' "$dir/step.gp" >"$dir/out" 2>"$dir/err" || fail "gnuplot cannot read step.gp"
    grep -q 'a step of softmax over shm, 2 ranks' "$dir/out" || fail "step.gp draws nothing"
    printf '#!/bin/sh\n' >"$dir/gnuplot" && chmod +x "$dir/gnuplot" # prints nothing and succeeds
    PATH=$dir:$with_all run step --model softmax --batches 5 --seconds 0.01 --plot "$dir/none.svg"
    [[ $code$err == 1*"gnuplot did not draw anything for $dir/none.svg"* ]] || fail "step: an empty plot: $code $err"
    [ ! -e "$dir/none.svg" ] || fail "step: an empty plot is there"
else
    echo "skipped: plots of bench step: gnuplot is not installed (package gnuplot-nox)"
fi

mkfifo "$dir/pipe.gp"
refused 2 "write $dir/pipe.gp: the path exists and is not a regular file" step --model softmax --plot "$dir/pipe.gp"

# in_full COMMAND...: runs the command with a full disk at $dir/full, which no other process sees
in_full() {
    # shellcheck disable=SC2016 # the inner shell expands the variables
    unshare -m sh -c 'mount -t tmpfs -o size=4k none "$1" && head -c 4096 /dev/zero >"$1/filler" && shift && "$@"' \
        sh "$dir/full" "$@"
}
mkdir "$dir/full"
if in_full true 2>/dev/null; then
    for end in gp svg; do
        [ $end = gp ] || command -v gnuplot >/dev/null || continue
        in_full "$verbena" bench step --model softmax --batches 5 --seconds 0.01 --plot "$dir/full/step.$end" \
            >"$dir/out" 2>"$dir/err"
        code=$?
        [ $code = 1 ] || fail "step.$end: a full disk was not reported: exit $code"
        grep -q "write $dir/full/step.$end: No space left on device" "$dir/err" || fail "step.$end: $(cat "$dir/err")"
    done
else
    echo "skipped: plots on a full disk: mounting one needs root"
fi

# ---- output as text
run allreduce --ranks 2 --sizes 64 --seconds 0.01 --explain
grep -q '^allreduce over shm, 2 ranks, order rank' "$dir/out" || fail "allreduce: the head line is missing"
grep -q 'predicted us' "$dir/out" || fail "allreduce: the predictions are missing"
run sparse-allreduce --sizes 800 --seconds 0.01 --features 1000
grep -q '1000 features' "$dir/out" || fail "sparse-allreduce: the head line is missing"

# ---- the bare allreduce, a program for comparison, gives correct sums
bare=$(dirname "$verbena")/bench/peers/bare_allreduce
for ranks in 1 2 3 4; do
    for transport in shm tcp; do
        timeout 60 "$bare" $transport $ranks 4,1020,64K,1048580 0.01 >"$dir/out" ||
            fail "bare_allreduce $transport $ranks: exit $?"
        jq -se "length == 4 and all(.[]; .wrong == 0 and .ranks == $ranks)" >/dev/null <"$dir/out" ||
            fail "bare_allreduce $transport $ranks: $(cat "$dir/out")"
    done
done
"$bare" shm 0 4 0.01 2>/dev/null
[ $? = 2 ] || fail "bare_allreduce with no ranks: expected exit 2"
"$bare" shm 2 6 0.01 2>/dev/null
[ $? = 2 ] || fail "bare_allreduce of 6 bytes: expected exit 2"

# ---- the bare loops of puts and of steps, programs for comparison, give correct results
built=$(dirname "$verbena")/bench
for loop in "bare shm 64" "bare tcp 64" "bare tcp-asleep 64" "bare_step shm 4 10" "bare_step shm 31400 10" \
    "bare_step tcp 4 10" "bare_step tcp 65536 10"; do
    # shellcheck disable=SC2086 # must be split into words
    timeout 60 "$built"/$loop >"$dir/out" || fail "$loop: exit $?"
    jq -e '.wrong == 0 and (.lat_us_p50 > 0 or (.compute_us > 0 and .after_us > 0))' >/dev/null <"$dir/out" ||
        fail "$loop: $(cat "$dir/out")"
done
for loop in "bare shm 0" "bare rdma 64" "bare shm 64 a b 10.0.0.1" "bare_step tcp 64" "bare_step tcp 65540 10" \
    "bare_step tcp 6 10" "bare_step tcp 64 0" "bare_step shm 64 10 a b 10.0.0.1" "bare_step rdma 64 10"; do
    # shellcheck disable=SC2086 # must be split into words
    "$built"/$loop >/dev/null 2>&1
    [ $? = 2 ] || fail "$loop: expected exit 2"
done

# ---- sparse logistic regression: kernels and bare loop give the same loss; two threads give the bits of one thread
for rows in "head 1000 1" "tail 1000 1 2"; do
    # shellcheck disable=SC2086 # must be split into words
    timeout 60 "$built"/sparse_lr $rows >"$dir/out" || fail "sparse_lr $rows: exit $?"
    jq -e '.wrong == 0 and .rows_per_s > 0' >/dev/null <"$dir/out" || fail "sparse_lr $rows: $(cat "$dir/out")"
done
"$built"/sparse_lr head 0 >/dev/null 2>&1
[ $? = 2 ] || fail "sparse_lr head 0: expected exit 2"

# ---- ps: the parameters are correct and the lines have their keys, over shared memory, by replies and by get
rules=([1]=momentum [2]=adagrad)
for transport in shm tcp; do
    for servers in 1 2; do
        holds "length == 9 and all(.[]; .bench == \"ps\" and .transport == \"$transport\" and .ranks == 4 and
            .workers == 4 - $servers and .servers == $servers and .wrong == 0 and .time_us > 0 and
            .time_us_p99 >= .time_us and .gb_s > 0 and .server_cpu_us >= 0) and
            ([.[] | [.op, .bytes, .keys]] | unique | length == 9)" \
            ps --ranks 4 --servers $servers --transport $transport --sizes 4K,1M --keys 50 --features 10000
        holds "length == 6 and all(.[]; .wrong == 0 and .server_idle >= 0 and .server_idle <= 1 and
            (.op == \"pull\" or .server_apply_us > 0))" ps --ranks 3 --servers $servers --transport $transport \
            --sizes 40K --keys 50 --features 10000 --rule "${rules[$servers]}"
    done
done

[ $bad = 0 ] && echo "all tests passed"
exit $bad
