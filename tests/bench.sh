#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# verbena bench as a user meets it, alone and with ranks: bench.sh VERBENA. Looks at what is printed,
# never at how long it took.
# shellcheck source=tests/command_test.sh
. "$(dirname "$0")/command_test.sh"
what=bench

# holds FILTER ARGUMENTS...: the lines, as one array, make the jq filter true
holds() {
    local filter=$1
    shift
    quiet "$@" --seconds 0.01 --json
    jq -se "$filter" >/dev/null <"$dir/out" || fail "bench $*: does not hold: $filter: $(cat "$dir/out")"
}

# ---- bad usage: one line, exit 2, also where there would be several ranks
refused 2 "which bench? transfer, allreduce, sparse-allreduce or kernels"
refused 2 "unknown bench alreduce; did you mean allreduce?" alreduce
refused 2 "unknown bench nothing; there are transfer" nothing
refused 2 "kernels of which model? --model alexnet" kernels
refused 2 "--model lenot: unknown; did you mean lenet?" kernels --model lenot
refused 2 "--model is for kernels" allreduce --model lenet
refused 2 "--sizes, --algo and --explain are for the others" kernels --model lenet --sizes 8
refused 2 "kernels is about one process" kernels --model lenet --ranks 2
refused 2 "--batch" kernels --model lenet --batch 0
refused 2 "unexpected argument again" allreduce again
refused 2 "transfer needs two ranks" transfer
refused 2 "--sizes 6: allreduce must be multiples of 4" allreduce --ranks 2 --sizes 6
refused 2 "--sizes 12: sparse-allreduce must be multiples of 8" sparse-allreduce --sizes 12
refused 2 "--sizes 0: allreduce must be multiples" allreduce --sizes 0
refused 2 "--sizes 4,: must be up to" allreduce --sizes 4,
refused 2 "--sizes 5G: must be up to" allreduce --sizes 5G
refused 2 "--seconds 0: must be more" allreduce --seconds 0
refused 2 "--algo fast: allreduce has auto, all, mapped" allreduce --ranks 3 --algo fast
refused 2 "--algo mapped,: allreduce has" allreduce --algo mapped,
refused 2 "--algo ring: sparse-allreduce has auto, all, sparse, dense" sparse-allreduce --algo ring
refused 2 "transfer has no algorithms" transfer --ranks 2 --algo ring
refused 2 "--only quick: there are memcpy" transfer --ranks 2 --only quick
refused 2 "--only put,: there are memcpy" transfer --ranks 2 --only put,
refused 2 "--only is for transfer" allreduce --only put
refused 2 "--order, --wire and --in-flight are for allreduce" sparse-allreduce --wire bf16
refused 2 "--order some: must be rank or any" allreduce --order some
refused 2 "--wire f16: must be f32 or bf16" allreduce --wire f16
refused 2 "--in-flight 0: must be from 1 to" allreduce --in-flight 0
refused 2 "--explain is about one operation" allreduce --explain --in-flight 2
refused 2 "--features 0: must be from 1" sparse-allreduce --features 0

# ---- a part of the ladder
holds 'length == 2 and (.[0] | .op == "put" and .lat_us_p50 > 0 and .gb_s == null) and
    (.[1] | .op == "get" and .lat_us_p50 == null and .gb_s > 0)' \
    transfer --ranks 2 --transport shm --sizes 64K --only put-latency,get

# ---- every line has its keys, in this order, and right sums
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

# ---- one rank alone sends nothing, two ranks send what theory says and little more
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
for impossible in "shm ring" "tcp mapped"; do # in rank order
    read -r transport algo <<<"$impossible"
    run allreduce --ranks 2 --transport "$transport" --algo "$algo" --sizes 64 --json
    [ "$code" != 0 ] || fail "$algo over $transport in rank order was measured"
    [[ $err == *"$algo"* ]] || fail "$algo over $transport: '$err' does not name it"
    [ ! -s "$dir/out" ] || fail "$algo over $transport: printed something"
done

# ---- what the model said
holds "$right and all(.[]; .predicted_us > 0) and
    ([.[] | select(.chosen and .bytes == 64)] | length) == 1 and ([.[].algo] | unique | length) >= 2" \
    allreduce --ranks 2 --explain --sizes 64,64K
holds "$right and all(.[]; .predicted_us > 0) and ([.[] | select(.chosen)] | length) == 1" \
    sparse-allreduce --ranks 2 --explain --sizes 31200 --features 100000

# ---- kernels: every pass has one choice, of those that were timed; the sum is of the chosen ones
kernels='["bench","model","batch","layer","pass","backend","ms","gflop_s","chosen","gemm_share"]'
for model in lenet softmax; do
    holds "all(.[]; keys_unsorted[:10] == $kernels and .bench == \"kernels\" and .model == \"$model\" and
            .batch == 3 and .ms > 0 and .threads == 1) and
        (group_by([.layer, .pass]) | all(.[]; [.[] | select(.chosen)] | length == 1)) and
        ([.[] | select(.pass == \"backward-data\") | .layer] | index(\"conv1\")) == null and
        ([.[] | select(.backend == \"onednn\")] | length) >= 2 and .[-1].layer == \"all\" and
        .[-1].gflop_s > 0" kernels --model $model --batch 3 --threads 1
done
run kernels --model softmax --batch 2 --seconds 0.01
grep -q '^# softmax, batch 2, .* threads; measured GEMM peak' "$dir/out" || fail "kernels: no head"

# ---- for people
run allreduce --ranks 2 --sizes 64 --seconds 0.01 --explain
grep -q '^allreduce over shm, 2 ranks, order rank' "$dir/out" || fail "allreduce: no head"
grep -q 'predicted us' "$dir/out" || fail "allreduce: no predictions"
run sparse-allreduce --sizes 800 --seconds 0.01 --features 1000
grep -q '1000 features' "$dir/out" || fail "sparse-allreduce: no head"

# ---- the bare loop that ours is held against adds up too
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
[ $? = 2 ] || fail "bare_allreduce with no ranks"
"$bare" shm 2 6 0.01 2>/dev/null
[ $? = 2 ] || fail "bare_allreduce of one float and a half"

[ $bad = 0 ] && echo "all as it should be"
exit $bad
