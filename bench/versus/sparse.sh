# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # bench/compare sets the options
#
# bench/compare: sparse allreduce beside dense ones, and sparse logistic regression beside scikit-learn.

ours_sparse() {
    build/verbena bench sparse-allreduce --ranks 2 --sizes 312000 --seconds "$seconds" --json |
        jq -r '"\(.time_us) \(.merge_us)"'
}

# Gradients of 1,000 rows of 39 nonzeros each, against a dense allreduce of all 33,762,578 floats.
sparse_allreduce() {
    local a best i
    ranks=2 transport=shm
    find_peers
    : >"$dir/table"
    for ((i = 0; i < rounds; i++)); do
        turn ours_sparse >>"$dir/sparse"
        one_round 135050312 >>"$dir/table"
    done
    [ "$dry" = 0 ] || return 0
    print_table
    a=$(median < <(cut -d' ' -f1 "$dir/sparse"))
    best=$(grep -vE '^(ours|bare) ' "$dir/table" | cut -d' ' -f1 | sort -u | while read -r peer; do
        grep "^$peer " "$dir/table" | cut -d' ' -f3 | median
    done | sort -g | head -n 1)
    printf 'sparse, 1,000 rows: %.2f us (merging the list before: %.2f us)\n' "$a" \
        "$(median < <(cut -d' ' -f2 "$dir/sparse"))"
    [ -z "$best" ] || printf 'best dense peer: %.2f us, %.0f times as long\n' "$best" \
        "$(jq -n "$best / $a")"
}

# lr_line NAME A B: prints the medians of the numbers in $dir/A and $dir/B, in rows per second, and their ratio
lr_line() {
    awk -v name="$1" -v a="$(median <"$dir/$2")" -v b="$(median <"$dir/$3")" \
        'BEGIN { printf "  %-44s %10d %10d   ratio %.2f\n", name, a, b, a / b }'
}

# lr_round DATA: measures ours and all peers once
lr_round() {
    local batch s
    s=$(few 4)
    for batch in 1 20 100; do
        limited build/bench/sparse_lr "$1" $batch "$s" >"$dir/line"
        jq .rows_per_s "$dir/line" >>"$dir/ours$batch"
        jq .bare_rows_per_s "$dir/line" >>"$dir/bare$batch"
    done
    OMP_PROC_BIND=true limited build/bench/sparse_lr "$1" 1000 "$s" 2 >"$dir/line" # as training pins them
    jq .rows_per_s "$dir/line" >>"$dir/two"
    jq .one_thread_rows_per_s "$dir/line" >>"$dir/one"
    limited build/bench/sparse_lr "$1" 1000 "$s" | jq .rows_per_s >>"$dir/ungrouped"
    [ -n "$sklearn" ] || return 0
    limited "$sklearn" bench/peers/sparse_sklearn.py "$dir/lr_rows" 3 >"$dir/line"
    jq .rows_per_s "$dir/line" >>"$dir/sklearn"
    jq .without_passes "$dir/line" >>"$dir/without"
}

# Compares on one data set. scikit-learn handles one row at a time, which is the same algorithm as ours with batch 1.
lr_data() { # lr_data DATA
    local batch i
    if [ "$dry" = 1 ]; then
        turns=$((turns + rounds))
        return
    fi
    build/bench/sparse_lr "$1" write "$dir/lr_rows" |
        jq -r '"\(.data): \(.nonzeros / .rows) nonzeros a row; 100 rows touch \(.touched_by_100), 1,000 \(.touched_by_1000)"'
    rm -f "$dir"/{ours,bare}{1,20,100} "$dir"/{two,one,ungrouped,sklearn,without}
    for ((i = 0; i < rounds; i++)); do
        turn lr_round "$1" || failed=1
    done
    [ -s "$dir/ours100" ] || return 0
    for batch in 1 20 100; do
        lr_line "ours, bare loop: batch $batch" ours$batch bare$batch
    done
    if [ -n "$sklearn" ]; then
        lr_line "ours of batch 1, scikit-learn" ours1 sklearn
        lr_line "ours of batch 100, scikit-learn" ours100 sklearn
        lr_line "ours of batch 1, the same without its passes" ours1 without
        for batch in 1 100; do
            cp "$dir/ours$batch" "$dir/a" && cp "$dir/sklearn" "$dir/b"
            row "$1, batch $batch" scikit-learn rows/s high
        done
    fi
    lr_line "batch 1,000: 2 threads, 1 of sorted rows" two one
    lr_line "batch 1,000: 2 threads, 1 of unsorted rows" two ungrouped
}

sklearn='' # the Python that has scikit-learn

sparse_lr() {
    sklearn=$(python_with sklearn scipy) || without scikit-learn "install python3-sklearn, or name an environment by VB_PYTHON"
    [ -n "$sklearn" ] || [ -z "$in_all" ] || return 0
    echo "sparse logistic regression, 33,762,578 features, rows/s: medians of $rounds rounds"
    lr_data head
    [ -z "$quick" ] || return 0
    lr_data tail
    lr_data synth:kind=criteo,n=400000
}
