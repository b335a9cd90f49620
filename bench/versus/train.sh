# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # bench/compare sets the options
#
# bench/compare: training by one process beside numpy and PyTorch.

# ours_train STEPS ARGUMENTS...: trains with ours, and prints samples per second, without evaluation, and peak memory
ours_train() {
    local steps=$1
    shift
    limited build/verbena train "$@" --steps "$steps" --test-limit 1 --json |
        jq -r '"\(.steps * .global_batch / (.train_s - .breakdown.eval)) \(.per_rank[0].rss_peak_mb)"'
}

softmax_peer() { # softmax_peer BATCH PEER
    limited "${python[$2]}" bench/peers/softmax_numpy.py "${VB_MNIST:-none}" "$1" 2 "$2" |
        jq -r "\"\(.steps_per_s * $1) \(.rss_peak_mb // 0)\""
}

torch_peer() { # torch_peer MODEL BATCH THREADS
    limited "${python[torch]}" bench/peers/nets_torch.py "$1" "$2" "$3" "$(few 4)" |
        jq -r '"\(.samples_per_s) \(.rss_peak_mb)"'
}

# duel NAME PEER OURS_COMMAND... -- PEER_COMMAND...: prints medians of samples per second and of peak memory
duel() {
    local name=$1 peer=$2
    shift 2
    alternate "$@" || return 0
    row "$name" "$peer" samples/s high
    awk -v name="$name" -v peer="$peer" \
        -v a="$(cut -d ' ' -f 1 "$dir/a" | median)" -v b="$(cut -d ' ' -f 1 "$dir/b" | median)" \
        -v m="$(cut -d ' ' -f 2 "$dir/a" | median)" -v n="$(cut -d ' ' -f 2 "$dir/b" | median)" \
        'BEGIN { printf "%-28s %12.1f samples/s %6.0f MB   %-8s %12.1f %6.0f MB   ratio %.2f\n",
                 name, a, m, peer, b, n, a / b }'
}

# The Python of each peer; none: the peer is left out.
declare -A python

# find_python PEER MODULE PACKAGE
find_python() {
    [ -z "${python[$1]:-}" ] || return 0
    python[$1]=$(python_with numpy "$2") && return 0
    without "$1" "install $3, or name an environment by VB_PYTHON"
    return 1
}

# few STEPS: fewer of them with --quick
few() { echo $((quick ? $1 / 4 : $1)); }

train() {
    local mnist=synth:60000 peer
    [ -z "${VB_MNIST:-}" ] || mnist=mnist:$VB_MNIST
    for peer in numpy torch; do
        find_python $peer $peer python3-$peer || continue
        duel "softmax, batch 100" $peer ours_train "$(few 20000)" softmax --data "$mnist" --batch 100 -- \
            softmax_peer 100 $peer
        [ -z "$quick" ] || continue
        duel "softmax, batch 10" $peer ours_train "$(few 60000)" softmax --data "$mnist" --batch 10 -- \
            softmax_peer 10 $peer
    done
    [ -n "${python[torch]:-}" ] || return 0
    duel "lenet, batch 64" pytorch ours_train "$(few 300)" lenet --data "$mnist" --batch 64 -- torch_peer lenet 64 1
    [ -z "$quick" ] || return 0
    duel "alexnet, batch 32, 2 threads" pytorch ours_train 3 alexnet --data synth:n=96,test=1 --batch 32 \
        --threads 2 -- torch_peer alexnet 32 2
}
