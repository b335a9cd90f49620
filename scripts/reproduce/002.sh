# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# 002: sparse logistic regression with 5 workers, sync and async; run time by batch at an equal number of points.

experiments_002() {
    experiment 002-modes 120 25 "sparse-lr, 5 workers, batch 1, $(choose 50,000 10,000) steps, sync and async"
    experiment 002-batch 120 40 "sparse-lr, 5 workers, batch 1 to 10,000 at $(choose 100,000 50,000) points, sync and async"
}

run_002_modes() {
    local mode ok=0
    over 2800m
    for mode in sync async; do
        train "002-$mode" 1200 sparse-lr "${criteo[@]}" --test-limit 10000 --batch 1 --steps "$(choose 50000 10000)" \
            --eval-every 2000 --mode $mode --ranks 5 "${link[@]}" || ok=1
    done
    page 002-modes accuracy-step,network,cpu,disk 002-sync 002-async
    return $ok
}

run_002_batch() {
    over 2800m
    sweep 002-batch 2400 sparse-lr "${criteo[@]}" --test-limit 10000 --batch 1,100,1000,10000 --samples "$(choose 100000 50000)" \
        --mode sync,async --ranks 5 "${link[@]}"
}

write_002() {
    printf '## 002: sparse logistic regression, 5 workers\n\n'
    printf '### Test error every 2,000 steps\n\n'
    shown 002-sync
    of_run 002-sync 002-async | fill '. as $all | ([$all[].evals[]?.step] | unique) as $steps | table(
        ["test error % at step"] + ($steps | map(tostring)) + ["end"];
        $all[] | . as $run | [.mode] + [$steps[] as $s | [$run.evals[] | select(.step == $s) | 1 - .accuracy][0] | percent] +
        [1 - .accuracy | percent])'
    echo
    picture 002-modes-accuracy-step "Accuracy by step, on 10,000 test points"
    printf '### Time, accuracy, resources by mode\n\n'
    of_run 002-sync 002-async | fill '. as $all | table(
        ["mode", "s of 1,000 steps", "report", "s of 50,000 steps", "report", "accuracy %", "report"];
        $all[] | .mode as $m | $their["002"].modes[$m] as $t |
        [$m, (1000 / .steps_per_s | sig), $t.s_per_1k, (50000 / .steps_per_s | sig), (60 * $t.min | fixed(0)), (.accuracy | percent), $t.accuracy])'
    echo
    of_run 002-sync 002-async | fill '. as $all | table(
        ["mode", "CPU %, mean of nodes", "report", "received MB/s, node 0", "report", "sent MB/s, node 0", "report", "disk read MB/s", "report", "disk write MB/s", "report"];
        $all[] | . as $run | $their["002"].modes[.mode] as $t |
        [.mode, ([.per_rank[].cpu_pct] | add / length | sig), $t.cpu, (received(0) | sig), $t.read, (sent(0) | sig), $t.write,
         ([.per_rank[].disk_read_mb_s | numbers] | add | sig), $t.disk_read, ([.per_rank[].disk_write_mb_s | numbers] | add | sig), $t.disk_write])'
    echo
    picture 002-modes-network "Network of node 0, sync and async"
    picture 002-modes-cpu "CPU of node 0, sync and async"
    picture 002-modes-disk "Disk of node 0, sync and async"
    verdict 002-sync 002-async
    printf '### Run time by batch at an equal number of points\n\n'
    shown 002-batch
    of_sweep 002-batch | fill '. as $all | table(
        ["mode", "batch", "steps", "time s", "of batch 1", "report s", "of batch 1", "accuracy %"];
        ("sync", "async") as $m | (1, 100, 1000, 10000) as $b | [$all[] | select(.mode == $m and .batch == $b)] |
        $their["002"].batch[$m] as $t |
        [$m, $b, (over(true; .steps) | fixed(0)), (over(true; .train_s - .breakdown.eval) | sig),
         (ratio(over(true; .train_s - .breakdown.eval); [$all[] | select(.mode == $m and .batch == 1) | .train_s - .breakdown.eval] | median) | sig),
         $t[$b | tostring], (ratio($t[$b | tostring]; $t["1"]) | sig), (over(true; .accuracy) | percent)])'
    echo
}
