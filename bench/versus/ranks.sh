# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # bench/compare sets the options
#
# bench/compare: training by two ranks beside PyTorch's DDP, and beside itself.

ddp_peer() { # ddp_peer MODEL GLOBAL_BATCH
    limited chrt -b 0 "${python[torch]}" bench/peers/ddp_torch.py "$1" "$2" 2 2 | jq -r '"\(.samples_per_s) \(.rss_peak_mb)"'
}

data_of() { # data_of MODEL: data for at least one epoch
    case $1 in
    alexnet) echo synth:n=192,test=1 ;;
    sparse-lr) echo synth:n=200000,test=1 ;;
    *) echo synth:n=20000,test=1 ;;
    esac
}

# wanted MODEL: returns true if the model is to be measured
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

sync_duel() { # sync_duel MODEL GLOBAL_BATCH STEPS TRANSPORT...
    local model=$1 batch=$2 steps=$3 transport
    wanted "$model" || return 0
    shift 3
    for transport; do
        duel "$model, global $batch, $transport" ddp ours_train "$steps" "$model" \
            --data "$(data_of "$model")" --ranks 2 --global-batch "$batch" --transport "$transport" \
            -- ddp_peer "$model" "$batch"
    done
}

sync() {
    find_python torch torch python3-torch || return 0
    if [ -n "$quick" ]; then
        sync_duel softmax 100 5000 shm tcp
        sync_duel lenet 64 100 tcp
        sync_duel sparse-lr 100 2500 tcp
        return
    fi
    sync_duel softmax 100 20000 shm tcp
    sync_duel lenet 64 400 shm tcp
    sync_duel sparse-lr 100 10000 shm tcp
    sync_duel alexnet 32 6 shm tcp
}

# Two independent processes, which two ranks cannot surpass. Prints the sums of samples per second and of peak memory.
apart() { # apart STEPS MODEL OPTIONS...
    local cpu pids=()
    for cpu in $(build/verbena topo --ranks 2 --threads 1 --json | jq -r '.ranks[].compute_cpus[0]'); do
        (taskset -p -c "$cpu" "$BASHPID" >/dev/null && ours_train "$@") >"$dir/apart.$cpu" &
        pids+=($!)
    done
    for cpu in "${pids[@]}"; do wait "$cpu"; done
    cat "$dir"/apart.* | awk '{ n += $1; mb += $2 } END { print n, mb }'
}

# Two ranks, each with a whole batch, against one rank (2 is perfect) and against two independent processes (1 is
# perfect); then two ranks against one at the same global batch (should not be below 1).
scaling_of() { # scaling_of MODEL BATCH STEPS
    local model=$1 steps=$3 two alone
    wanted "$model" || return 0
    alone=("$steps" "$model" --data "$(data_of "$model")" --batch "$2")
    two=("${alone[@]}" --ranks 2 --transport shm)
    duel "$model, 2 x $2" "1 x $2" ours_train "${two[@]}" -- ours_train "${alone[@]}"
    duel "$model, 2 x $2" "2 alone" ours_train "${two[@]}" -- apart "${alone[@]}"
    two=("$steps" "$model" --data "$(data_of "$model")" --global-batch "$2" --ranks 2 --transport shm)
    duel "$model, $2 on 2" "on 1" ours_train "${two[@]}" -- ours_train "${alone[@]}"
}

scaling() {
    scaling_of softmax 100 20000
    scaling_of lenet 64 400
    scaling_of sparse-lr 100 10000
    scaling_of alexnet 32 6
}
