# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # bench/compare sets the options
#
# bench/compare: softmax regression beside TensorFlow.

# ours_softmax MODE BATCH: prints steps per second and accuracy. As in TensorFlow, the server is a process of its own.
ours_softmax() {
    local steps more=()
    steps=$(few 40000)
    [ "$1" = sync ] || more=(--dedicated-servers)
    limited build/verbena train softmax --data "$(mnist_data)" --mode "$1" --ranks 2 --batch "$2" --transport tcp \
        --steps "$steps" --lr 0.1 --rule sgd --schedule constant --warmup 0 --weight-decay 0 "${more[@]}" --json 2>"$dir/why" |
        jq -r '"\(.steps_per_s) \(.accuracy)"'
}

tf_softmax() { # tf_softmax MODE BATCH: the same by TensorFlow
    limited "$tf_python" bench/peers/softmax_tensorflow.py "$1" "${VB_MNIST:-none}" "$2" "$(few 4000)" 2>"$dir/why" |
        jq -r '"\(.steps_per_s) \(.accuracy)"' || tail -n 3 "$dir/why" >&2
}

mnist_data() { if [ -n "${VB_MNIST:-}" ]; then echo "mnist:$VB_MNIST"; else echo synth:60000; fi; }

# tf_duel MODE BATCH HOW: prints medians of steps per second, and their ratio
tf_duel() {
    if ! alternate ours_softmax "$1" "$2" -- tf_softmax "$1" "$2"; then
        [ "$dry" = 1 ] || is_late || echo "$1, batch $2: not measured: $(tail -n 1 "$dir/why")" >&2
        return 0
    fi
    row "softmax, $1, batch $2 a worker" "TensorFlow, $3" steps/s high
    awk -v name="$1, batch $2 a worker" -v how="$3" -v a="$(cut -d ' ' -f 1 "$dir/a" | median)" -v b="$(cut -d ' ' -f 1 "$dir/b" | median)" \
        'BEGIN { printf "%-28s %10.0f steps/s   TensorFlow, %-28s %8.0f   ratio %.1f\n", name, a, how, b, a / b }'
}

tensorflow() {
    local version batch
    tf_python=$(python_with tensorflow || echo python3)
    if ! version=$(timeout 120 "$tf_python" -c 'import tensorflow as t; print(t.__version__)' 2>"$dir/why"); then
        without TensorFlow "$(tail -n 1 "$dir/why"). Type: python3 -m venv tf && tf/bin/pip install tensorflow &&" \
            "VB_PYTHON=tf/bin/python bench/compare $what"
        [ -z "$in_all" ] || return 0
        exit 77
    fi
    echo "softmax on $([ -n "${VB_MNIST:-}" ] && echo MNIST || echo "generated digits"), 2 workers over TCP, $(nproc) cpus, TensorFlow $version: medians of $rounds rounds"
    for batch in $([ -n "$quick" ] && echo 100 || echo 10 100); do
        tf_duel async "$batch" "ParameterServerStrategy"
        tf_duel sync "$batch" "MultiWorkerMirroredStrategy"
    done
}
