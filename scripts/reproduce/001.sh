# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# 001: softmax regression alone, sync and async with a parameter server and 3 workers; LeNet on 1, 2, 3 nodes by batch.

sgd=(--rule sgd --schedule constant --warmup 0 --weight-decay 0 --clip 0)

experiments_001() {
    experiment 001-modes 30 15 "softmax, rate 0.5, batch 200, $(choose 50 10) epochs: single, sync, async, 3 workers"
    experiment 001-lenet 300 25 "LeNet on 1, 2, 3 nodes, batch 64 to 512, rate 0.01, $(lenet_text): accuracy"
    experiment 001-why 120 14 "LeNet: the same with the rate that Verbena chooses, and with few updates"
    experiment 001-times 150 40 "LeNet on 1, 2, 3 nodes, batch 64 to 512: time, replayed"
}

lenet_samples() { choose 360000 30000; }
lenet_text() { choose "6 epochs" "half an epoch"; }

run_001_modes() {
    local ok=0 job=(softmax --data "$mnist" --lr 0.5 "${sgd[@]}" --batch 200 --epochs "$(choose 50 10)")
    train 001-single 300 "${job[@]}" --mode single || ok=1
    over 1g
    train 001-sync 300 "${job[@]}" --ranks 3 "${link[@]}" || ok=1
    train 001-server 300 "${job[@]}" --mode async --staleness 0 --dedicated-servers --ranks 3 "${link[@]}" || ok=1
    train 001-async 300 "${job[@]}" --mode async --dedicated-servers --ranks 3 "${link[@]}" || ok=1
    page 001-modes loss-epoch,network,cpu 001-single 001-sync 001-server 001-async
    return $ok
}

lenet_job=(lenet --lr 0.01 "${sgd[@]}")

run_001_lenet() {
    over 1g
    sweep 001-lenet 3000 "${lenet_job[@]}" --data "$mnist" --samples "$(lenet_samples)" --batch 64,128,256,512 --ranks 1,2,3 \
        "${link[@]}" || return 1
    page 001-lenet cpu,memory,network "$(lenet_run 1 64)" "$(lenet_run 2 64)" "$(lenet_run 3 64)"
}

lenet_run() { # lenet_run RANKS BATCH: the folder, below runs
    local run
    for run in "$out"/runs/001-lenet/*ranks-"$1"_*batch-"$2"_*r1; do
        echo "001-lenet/$(basename "$run")"
    done
}

# The accuracy of batch 64 on one node after as many updates as batch 512 on 3 nodes makes.
run_001_why() {
    local updates
    updates=$(jq .steps "$out/runs/$(lenet_run 3 512)/run.json") || return 1
    train 001-few 600 "${lenet_job[@]}" --data "$mnist" --batch 64 --steps "$updates" || return 1
    over 1g
    sweep 001-chosen 1800 lenet --data "$mnist" --samples "$(lenet_samples)" --batch 64,512 --ranks 1,3 "${link[@]}"
}

run_001_times() {
    local batch ok=0
    over 1g
    for batch in 64 128 256 512; do
        train "001-alone-$batch" 300 "${lenet_job[@]}" --data "$mnist" --batch "$batch" --steps "$(choose 100 30)" --test-limit 1 ||
            return 1
        sweep "001-times-$batch" 600 "${lenet_job[@]}" --data "$mnist" --batch "$batch" --steps "$(choose 200 40)" --ranks 1,2,3 \
            "${link[@]}" --replay-compute "$out/runs/001-alone-$batch" || ok=1
    done
    return $ok
}

write_001() {
    printf '## 001: softmax regression with a parameter server, and LeNet on 1 to 3 nodes\n\n'
    printf '### Single, sync, async\n\n'
    shown 001-async
    of_run 001-single 001-sync 001-server 001-async | fill '. as $all | table(
        ["mode", "process", "accuracy %", "report", "time s", "report", "CPU %", "report", "memory MB", "report",
         "sent Mbit/s", "report"];
        $all[] | . as $run | {"single": "single", "sync": "sync", "sync, by a server": "sync", "async": "async"}[mode_name] as $key |
        $their["001"].modes[$key] as $t | .per_rank[] | . as $r | (.role == "server") as $s |
        [($run | mode_name), (if $s then "server" else "worker \(.rank + 1)" end),
         (if $s then "-" else (.accuracy // $run.accuracy | percent) end), (if $s then "-" else $t.accuracy[.rank] end),
         (if $s then "-" else (.train_s | sig) end), (if $s then "-" else $t.time[.rank] end),
         (.cpu_pct | sig), (if $s then $t.server.cpu else $t.cpu end), (.rss_peak_mb | fixed(0)),
         (if $s then $t.server.memory else $t.memory[.rank] end), (8 * ($run | sent($r.rank)) | sig),
         (if $s then $t.server.network else $t.network end)])'
    echo
    echo "*sync* sums gradients without a server (allreduce); *sync, by a server* is a parameter server that waits for all workers."
    echo "$(jq -r '.staleness | "Gradients of *async* were \(.mean * 10 | round / 10) steps old on average, at most \(.max)."' \
        "$out/runs/001-async.json") The rate never falls here, so old ones move the parameters far, and accuracy jumps from" \
        "one evaluation to the next; with \`--schedule auto\` it does not."
    echo
    picture 001-modes-loss-epoch "Loss by epoch of the four modes"
    verdict 001-single 001-sync 001-server 001-async
    write_001_board
    write_001_lenet
}

write_001_board() {
    local file
    printf '### The model in TensorBoard\n\n'
    for file in "$out"/runs/001-single/events.out.tfevents.*; do
        [ -s "$file" ] || continue
        printf 'The run folder has an event file of %s bytes. `tensorboard --logdir OUT/runs/001-single` shows loss and accuracy, on the page GRAPHS the model (its graph %s in the file).\n\n' \
            "$(stat -c %s "$file")" "$(if grep -aq Placeholder "$file"; then echo 'is'; else echo 'is not'; fi)"
    done
}

write_001_lenet() {
    printf '### LeNet on 1, 2, 3 nodes, batch 64 to 512\n\n'
    shown 001-lenet
    echo "Accuracy after $(lenet_text); time of 6 epochs, replayed: one thread a node here, five cores a node in the report."
    echo
    {
        of_sweep 001-lenet | jq -c '{kind: "real"} + .'
        of_sweep 001-times-64 001-times-128 001-times-256 001-times-512 | jq -c '{kind: "replayed"} + .'
    } | fill '. as $all | table(
        ["batch of a node", "nodes", "updates", "accuracy %", "report", "time s", "report", "speed-up", "report", "exposed transfer %"];
        $their["001"].lenet[] | . as $t |
        [$all[] | select(.kind == "real" and .batch == $t.batch and .ranks == $t.ranks)] as $real |
        [$all[] | select(.kind == "replayed" and .batch == $t.batch)] as $times |
        ($times | over(.ranks == $t.ranks; .steps_per_s * .global_batch)) as $speed |
        [$t.batch, $t.ranks, ($real | over(true; .steps) | fixed(0)), ($real | over(true; .accuracy) | percent), $t.accuracy,
         (ratio(360000; $speed) | sig), $t.time, (ratio($speed; $times | over(.ranks == 1; .steps_per_s * .global_batch)) | fixed(2)),
         (ratio(($their["001"].lenet[] | select(.batch == $t.batch and .ranks == 1) | .time); $t.time) | fixed(2)),
         ($times | over(.ranks == $t.ranks; split.transfer) | percent)])'
    echo
    of_sweep 001-lenet | jq -r '"\(.ranks)_node\(if .ranks > 1 then "s" else "" end) \(.batch) \(100 * .accuracy)"' | sort -k1,1 -k2,2n |
        draw 001-lenet-accuracy "LeNet, rate 0.01: accuracy by batch" "batch of a node" "%" log
    picture 001-lenet-accuracy "Accuracy by batch, for 1, 2, 3 nodes"
    picture 001-lenet-cpu "CPU of LeNet on 1, 2, 3 nodes"
    picture 001-lenet-network "Network of LeNet on 1, 2, 3 nodes"
    verdict "$(lenet_run 3 64)" "$(lenet_run 3 512)"
}
