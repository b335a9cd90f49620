# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# 003: softmax regression by epoch, on 1, 2, 3 nodes, and by batch; LeNet by batch.

experiments_003() {
    experiment 003-epochs 10 4 "softmax, one node, $(choose 120 30) epochs: accuracy and loss by epoch"
    experiment 003-nodes 40 8 "softmax on 1, 2, 3 nodes: accuracy; time on each node, replayed"
    experiment 003-softmax 4 4 "softmax, batch 128 to 4096, rate 0.01, one epoch"
    experiment 003-lenet 120 10 "LeNet, batch 128 to 4096, $(lenet_text)"
}

run_003_epochs() {
    train 003-epochs 600 softmax --data "$mnist" --batch 100 --lr 0.01 "${sgd[@]}" --epochs "$(choose 120 30)" --eval-every 600 ||
        return 1
    page 003-epochs accuracy-epoch,loss-epoch 003-epochs
}

run_003_nodes() {
    local job=(softmax --data "$mnist" --batch 100)
    over 1g
    sweep 003-nodes 900 "${job[@]}" --epochs "$(choose 20 4)" --ranks 1,2,3 "${link[@]}" || return 1
    train 003-alone 300 "${job[@]}" --steps "$(choose 6000 2000)" --test-limit 1 || return 1
    sweep 003-times 900 "${job[@]}" --steps "$(choose 6000 1500)" --ranks 1,2,3 --repeat "$(choose 3 1)" "${link[@]}" \
        --replay-compute "$out/runs/003-alone" || return 1
    page 003-nodes accuracy-epoch,loss-epoch "003-nodes/$(basename "$out"/runs/003-nodes/*ranks-1*_r1)" \
        "003-nodes/$(basename "$out"/runs/003-nodes/*ranks-3*_r1)"
}

run_003_softmax() {
    sweep 003-softmax 600 softmax --data "$mnist" --lr 0.01 "${sgd[@]}" --epochs 1 --batch 128,256,512,1024,4096
}

run_003_lenet() {
    sweep 003-lenet 1800 lenet --data "$mnist" --rule momentum --lr 0.01 --schedule constant --warmup 0 \
        --samples "$(lenet_samples)" --batch 128,256,512,1024,4096
}

# by_batch NAME: the table of a batch sweep on one node
by_batch() {
    of_sweep "003-$1" | fill '. as $all | table(
        ["batch", "updates", "time s", "report", "loss", "report", "accuracy %", "report", "peak memory MB", "report", "CPU %", "report"];
        $their["003"][$what][] | . as $t | [$all[] | select(.batch == $t.batch)] |
        [$t.batch, (over(true; .steps) | fixed(0)), (over(true; .train_s - .breakdown.eval) | sig), $t.time, (over(true; .loss) | sig), $t.loss,
         (over(true; .accuracy) | percent), $t.accuracy, (over(true; .per_rank[0].rss_peak_mb) | fixed(0)), $t.memory,
         (over(true; .per_rank[0].cpu_pct) | fixed(0)), $t.cpu])' --arg what "$1"
    echo
}

write_003() {
    printf '## 003: softmax regression and LeNet by epoch, nodes and batch\n\n'
    printf '### Accuracy and loss by epoch\n\n'
    shown 003-epochs
    of_run 003-epochs | fill '.[0] as $run | select($run) | ($run.evals + [{step: $run.steps, accuracy: $run.accuracy, loss: $run.loss}]) as $e |
        [$e[] | .epoch = (.step / 600 | round) | select(.epoch == (1, 2, 5, 10, 20, 30, 50, 100, 120))] | unique_by(.epoch) as $rows | table(
        ["epoch", "accuracy %", "loss"]; $rows[] | [.epoch, (.accuracy | percent), (.loss | sig)])'
    echo
    echo "The report saw both level off after about 100 epochs."
    echo
    picture 003-epochs-accuracy-epoch "Accuracy by epoch"
    picture 003-epochs-loss-epoch "Loss by epoch"
    printf '### 1, 2, 3 nodes\n\n'
    shown 003-nodes
    shown 003-times
    echo "Time of as many steps on each node as one node has made in the first row (the work is not divided), and of as many samples (the work is divided)."
    echo
    {
        of_sweep 003-nodes | jq -c '{kind: "real"} + .'
        of_sweep 003-times | jq -c '{kind: "replayed"} + .'
    } | fill '. as $all | table(
        ["nodes", "accuracy %", "report", "error %", "report", "time on each node s, same steps", "report", "same samples s", "step ms", "exposed transfer and waiting %"];
        $their["003"].nodes[] | . as $t | [$all[] | select(.kind == "real" and .ranks == $t.ranks)] as $real |
        [$all[] | select(.kind == "replayed" and .ranks == $t.ranks)] as $time |
        [$t.ranks, ($real | over(true; .accuracy) | percent), $t.accuracy, ($real | over(true; 1 - .accuracy) | percent), (100 - $t.accuracy | fixed(2)),
         ([range($t.ranks) as $k | $time | over(true; .per_rank[$k].train_s) | sig] | join(", ")), ($t.time | map(tostring) | join(", ")),
         (ratio(($time | over(true; .train_s)); $t.ranks) | sig), (ratio(1000; $time | over(true; .steps_per_s)) | sig),
         ($time | over(true; split | .transfer + .wait) | percent)])'
    echo
    printf '### Batch sizes, softmax regression\n\n'
    shown 003-softmax
    by_batch softmax
    printf '### Batch sizes, LeNet\n\n'
    shown 003-lenet
    by_batch lenet
    of_sweep 003-softmax 003-lenet | jq -r '"\(.model) \(.batch) \(100 * .accuracy)"' | sort -k1,1 -k2,2n |
        draw 003-batch-accuracy "Accuracy by batch, one node, equal epochs" "batch" "%" log
    picture 003-batch-accuracy "Accuracy by batch"
}
