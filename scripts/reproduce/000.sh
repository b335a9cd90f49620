# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# 000: softmax regression on 3 nodes, sync and async, by batch; a worker that comes late; AlexNet on 2 and 3 nodes.

experiments_000() {
    experiment 000-modes 60 12 "softmax, 3 nodes, batch 10, $(choose 20 2) epochs, sync and async"
    experiment 000-batch 400 30 "softmax, 3 nodes, batch 5 to 40, $(choose 20 1) epochs, sync and async"
    experiment 000-late 120 25 "softmax, async: a third worker joins $(late_s) s after the start"
    experiment 000-alexnet 500 100 "AlexNet on 2 and 3 nodes, links of 1 and 10 Gbit/s, replayed"
}

run_000_modes() {
    local mode epochs every=2000 ok=0
    epochs=$(choose 20 2)
    over 1g
    for mode in sync async; do
        [ $mode = sync ] || every=6000 # a step is one worker's batch
        train "000-$mode" 600 softmax --data "$mnist" --batch 10 --epochs "$epochs" --eval-every $every --mode $mode \
            --ranks 3 "${link[@]}" || ok=1
        page "000-$mode" cpu,memory,network "000-$mode"
    done
    page 000-modes loss-step,steps-per-s-step,accuracy-epoch 000-sync 000-async
    return $ok
}

run_000_batch() {
    over 1g
    sweep 000-batch 3000 softmax --data "$mnist" --batch 5,10,20,30,40 --epochs "$(choose 20 1)" --mode sync,async --ranks 3 \
        "${link[@]}"
}

run_000_late() {
    late_run
    page 000-late steps-per-s-time 000-late
}

# AlexNet's computing needs whole machines, so its times are recorded once and replayed.
run_000_alexnet() {
    local rate ok=0 images=(--data "synth:kind=imagenet,n=480,test=1" --batch "$(choose 32 16)" --test-limit 1)
    run_000_alexnet_loss || ok=1
    train 000-alexnet-alone 600 alexnet "${images[@]}" --steps "$(choose 8 3)" || return 1
    for rate in 1g 10g; do
        over $rate
        sweep "000-alexnet-$rate" 1200 alexnet "${images[@]}" --steps "$(choose 12 3)" --ranks 2,3 "${link[@]}" \
            --replay-compute "$out/runs/000-alexnet-alone" || ok=1
        [ "$namespaces" = yes ] || break
    done
    return $ok
}

# The losses of 2 and 3 nodes can be compared on a smaller network of the same kind.
run_000_alexnet_loss() {
    local n ok=0
    over 1g
    for n in 2 3; do
        train "000-alexnet-small-$n" 900 alexnet --input 32 --data "synth:kind=cifar,n=2000,test=100" --batch 16 \
            --steps "$(choose 100 12)" --ranks $n "${link[@]}" || ok=1
    done
    page 000-alexnet-small loss-step,cpu,memory,network 000-alexnet-small-2 000-alexnet-small-3
    return $ok
}

write_000() {
    cat <<'END'
## 000: softmax regression and AlexNet on 3 nodes

### Loss and speed by step

END
    shown 000-sync
    of_run 000-sync 000-async | fill '. as $all | table(
        ["mode", "steps/s", "report", "accuracy %", "report", "staleness, mean", "training s"];
        ("sync", "async") as $m | [$all[] | select(.mode == $m)] | .[] |
        [$m, (.steps_per_s | sig), $their["000"].steps_per_s[$m], (.accuracy | percent),
         ($their["000"].batch[] | select(.mode == $m and .batch == 10) | .accuracy), (.staleness.mean | sig), (.train_s | sig)])'
    echo
    picture 000-modes-loss-step "Loss by step, sync and async"
    picture 000-modes-steps-per-s-step "Global steps/s by step, sync and async"
    picture 000-modes-accuracy-epoch "Test accuracy by epoch"
    verdict 000-sync 000-async
    printf '### CPU, memory and network of each node over time\n\n'
    of_run 000-sync 000-async | fill '. as $all | table(
        ["mode", "node", "role", "CPU % of one CPU", "memory MB", "sent MB/s", "received MB/s"];
        $all[] | . as $run | .per_rank[] | . as $r |
        [$run.mode, .rank, .role, (.cpu_pct | sig), (.rss_peak_mb | sig),
         (if .role == "server" then .send_mb_s else ($run | sent($r.rank)) end | sig),
         (if .role == "server" then .recv_mb_s else ($run | received($r.rank)) end | sig)])'
    printf '\nThe server of an asynchronous job is a thread of node 0; its row is part of that of node 0.\n'
    of_run 000-async | answer '.[0].staleness | "The worker beside the server needs no network: it made \([.per_worker[].gradients] | .[0] / add | percent) % of the steps, with a mean staleness of " +
        "\(.per_worker[0].mean | sig); those of the workers on other nodes were \([.per_worker[1:][].mean] | add / length | sig) steps old."'
    echo
    local mode what
    for mode in sync async; do
        for what in cpu memory network; do
            picture "000-$mode-$what" "$what of each node, $mode"
        done
    done
    write_000_batch
    write_000_late
    write_000_alexnet
}

write_000_batch() {
    printf '### Batch sizes\n\n'
    shown 000-batch
    echo "Node 0, as in the report; its CPU is in percent of the whole machine there, of one CPU here."
    echo
    of_sweep 000-batch | fill '. as $all | table(
        ["mode", "batch", "CPU %", "report", "send MB/s", "report", "receive MB/s", "report", "memory MB", "report",
         "accuracy %", "report", "time s"];
        $their["000"].batch[] | . as $t | [$all[] | select(.mode == $t.mode and .batch == $t.batch)] |
        [$t.mode, $t.batch, (over(true; .per_rank[0].cpu_pct) | sig), $t.cpu, (over(true; sent(0)) | sig), $t.send,
         (over(true; received(0)) | sig), $t.recv, (over(true; .per_rank[0].rss_peak_mb) | fixed(0)), $t.memory,
         (over(true; .accuracy) | percent), $t.accuracy, (over(true; .train_s) | sig)])'
    echo
    of_sweep 000-batch | jq -r '"\(.mode) \(.batch) \(.train_s)"' | sort |
        draw 000-batch-time "Time of training by batch, 3 nodes" "batch of a node" "seconds"
    picture 000-batch-time "Time by batch"
    page 000-batch-loss loss-step "$(sweep_run 000-batch sync 40)" "$(sweep_run 000-batch sync 5)"
    picture 000-batch-loss-loss-step "Loss by step, batch 40 and batch 5"
}

# sweep_run NAME MODE BATCH: prints the folder, below runs, of the first run of a case
sweep_run() {
    local run
    for run in "$out/runs/$1"/*mode-"$2"_*batch-"$3"_*r1; do
        echo "$1/$(basename "$run")"
    done
}

write_000_late() {
    printf '### A worker that comes late\n\n'
    late_facts | fill '.[0] as $l | select($l.joined_s != null) | table(
        ["", "here", "report"];
        (["joined after s", ($l.joined_s | sig), $their["000"].late_s],
         ["steps/s before", ($l.before | sig), $their["000"].steps_per_s.async_before_join],
         ["steps/s after", ($l.after | sig), $their["000"].steps_per_s.async],
         ["speed before, of that after", (ratio($l.before; $l.after) | sig), (ratio($their["000"].steps_per_s.async_before_join; $their["000"].steps_per_s.async) | sig)]))'
    echo
    picture 000-late-steps-per-s-time "Global steps/s over time; a third worker joins"
}

write_000_alexnet() {
    printf '### AlexNet on 2 and 3 nodes\n\n'
    echo "Replayed, batch $(choose 32 16) a node, links as named: a gradient has $(jq '4 * .params / 1e6 | round' "$out/runs/000-alexnet-alone/run.json" 2>/dev/null) MB."
    echo
    local rate
    for rate in 1g 10g; do
        shown "000-alexnet-$rate"
        of_sweep "000-alexnet-$rate" | fill '. as $all | select(length > 0) | table(
            ["nodes", "steps/s", "samples/s", "of 2 nodes", "report", "sent MB/s, node 0", "sent MB/s, node 1", "memory MB", "computing %", "exposed transfer %", "waiting %"];
            (2, 3) as $n | [$all[] | select(.ranks == $n)] |
            [$n, (over(true; .steps_per_s) | sig), (over(true; .steps_per_s * .global_batch) | sig),
             (ratio(over(true; .steps_per_s * .global_batch); $all | over(.ranks == 2; .steps_per_s * .global_batch)) | fixed(2)),
             (if $n == 3 then $their["000"].alexnet else 1 end),
             (over(true; sent(0)) | sig), (over(true; sent(1)) | sig), (over(true; .per_rank[0].rss_peak_mb) | sig),
             (over(true; split.compute) | percent), (over(true; split.transfer) | percent), (over(true; split.wait) | percent)])'
        echo
        verdict_of "000-alexnet-$rate" 3
    done
    echo "Loss and resources on 2 and 3 nodes, of a smaller AlexNet (images of 32 x 32), which these cores can compute:"
    echo
    shown 000-alexnet-small-3
    picture 000-alexnet-small-loss-step "Loss of AlexNet by step, 2 and 3 nodes"
    picture 000-alexnet-small-cpu "CPU, 2 and 3 nodes"
    picture 000-alexnet-small-memory "Memory, 2 and 3 nodes"
    picture 000-alexnet-small-network "Network, 2 and 3 nodes"
}
