# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# 004: sparse logistic regression with 33,762,578 features: a profile, precision by points, peaks, and the bytes of a step.

experiments_004() {
    experiment 004-ops 5 3 "sparse-lr, one node, batch 10: a profile op by op"
    experiment 004-precision 12 8 "sparse-lr, 4 nodes, batch 100, 200,000 points, sync and async"
    experiment 004-peaks 100 12 "sparse-lr, 4 nodes, batch 20, sync and async: peak disk, CPU, memory, network"
    experiment 004-dense 200 15 "a dense gradient of $(choose 33,762,578 3,376,258) floats: by a server, and summed by all"
}

run_004_ops() {
    train 004-ops 300 sparse-lr "${criteo[@]}" --test-limit 1000 --batch 10 --steps "$(choose 20000 5000)" || return 1
    keep 004-ops-table 120 "$verbena" ops "$out/runs/004-ops" --json
}

# A step of an asynchronous job is one worker's batch, so 20,000 points are 200 steps; of a synchronous one 50.
run_004_precision() {
    local mode ok=0 every=50
    over 2800m
    for mode in sync async; do
        [ $mode = sync ] || every=200
        train "004-$mode" 600 sparse-lr "${criteo[@]}" --test-limit 10000 --batch 100 --samples 200000 --eval-every $every --mode $mode \
            --ranks 4 "${link[@]}" || ok=1
    done
    page 004-precision accuracy-step 004-sync 004-async
    return $ok
}

run_004_peaks() {
    over 2800m
    sweep 004-peaks 900 sparse-lr "${criteo[@]}" --test-limit 1000 --batch 20 --samples "$(choose 4000000 400000)" --mode sync,async \
        --ranks 4 "${link[@]}"
}

# A bench repeats each exchange many times, so --quick measures a tenth of the gradient.
run_004_dense() {
    local bench=(--transport tcp --sizes "$(choose 135050312 13505032)" --seconds "$(choose 1 0.1)" --json)
    over 2800m
    [ "$namespaces" != yes ] || bench+=("${link[@]}")
    keep 004-dense-server 300 "$verbena" bench ps --ranks 5 --keys none "${bench[@]}" &&
        keep 004-dense-sum 300 "$verbena" bench allreduce --ranks 4 "${bench[@]}"
}

write_004() {
    printf '## 004: sparse logistic regression with 33,762,578 features\n\n'
    printf '### One step, op by op\n\n'
    shown 004-ops
    jq -c . "$out/runs/004-ops-table.jsonl" 2>/dev/null | fill '. as $all |
        def ours(passes): [$all[] | select(.layer != null and (.pass as $p | passes | index($p)))] | {ms: (map(.ms / .calls) | add), bytes: (map(.bytes) | add)};
        ours(["forward"]) as $f | ours(["backward"]) as $b | ours(["update"]) as $u | table(
        ["what", "report: output", "report: ms", "here: output bytes", "here: ms"];
        ([$their["004"].ops[0].what, $their["004"].ops[0].out, $their["004"].ops[0].ms, $f.bytes, ($f.ms | sig)],
         [$their["004"].ops[1].what, $their["004"].ops[1].out, $their["004"].ops[1].ms, "-", "part of the rows around it"],
         [$their["004"].ops[2].what, $their["004"].ops[2].out, $their["004"].ops[2].ms, $b.bytes, ($b.ms | sig)],
         [$their["004"].ops[3].what, $their["004"].ops[3].out, $their["004"].ops[3].ms, $u.bytes, "\($u.ms | sig) (update)"],
         ["all", "", ($their["004"].ops | map(.ms) | add | sig), "", ($f.ms + $b.ms + $u.ms | sig)]))'
    echo
    printf '### Precision every 20,000 points\n\n'
    shown 004-sync
    of_run 004-sync 004-async | fill '. as $all | table(
        ["points"] + [range(1; 11) * 20000 | tostring];
        $all[] | . as $run | [.mode + ", accuracy %"] + [range(1; 11) as $k | (20000 * $k / .global_batch) as $s |
            [($run.evals + [{step: $run.steps, accuracy: $run.accuracy}])[] | select(.step == $s) | .accuracy][0] | percent])'
    echo
    picture 004-precision-accuracy-step "Accuracy by step; a step is 400 points in sync, 100 in async"
    verdict 004-sync 004-async
    printf '### Peaks\n\n'
    shown 004-peaks
    write_004_peaks
    write_004_bytes
}

write_004_peaks() {
    local memory
    memory=$(awk '/^MemTotal/ { print $2 / 1e3 }' /proc/meminfo)
    of_sweep 004-peaks | fill '. as $all | table(
        ["mode", "disk KB/s", "report", "CPU %, a node", "report", "memory %", "report", "network MB/s, node 0", "report", "steps/s"];
        ("sync", "async") as $m | $their["004"].peaks[$m] as $t | [$all[] | select(.mode == $m)] |
        [$m, (over(true; [.per_rank[] | 1e3 * (.disk_read_mb_s + .disk_write_mb_s)] | max) | sig), $t.disk_kb_s,
         (over(true; [.per_rank[].cpu_pct_peak | numbers] | max) | sig), $t.cpu,
         (over(true; [.per_rank[].rss_peak_mb] | max / $memory * 100) | sig), $t.memory_pct,
         (over(true; .wire[0].sent_peak // .per_rank[0].send_mb_s_peak) | sig), $t.net, (over(true; .steps_per_s) | sig)])' --argjson memory "$memory"
    echo
    verdict "$(basename_of 004-peaks sync)" "$(basename_of 004-peaks async)"
}

basename_of() { # basename_of SWEEP MODE: the folder, below runs, of its first run
    local run
    for run in "$out/runs/$1"/*mode-"$2"*_r1; do
        echo "$1/$(basename "$run")"
    done
}

# sparse_step: prints bytes that a node sends in a synchronous step of 004-peaks, and its ms
sparse_step() {
    of_sweep 004-peaks | jq -s '[.[] | select(.mode == "sync")][0] // empty |
        {sparse_bytes: (1e6 * .per_rank[1].send_mb_s * .train_s / .steps), sparse_ms: (1e3 / .steps_per_s), ranks}'
}

dense_step() {
    cat "$out"/runs/004-dense-{server,sum}.jsonl 2>/dev/null | jq -s --slurpfile theirs "$theirs" '(4 * $theirs[0]["004"].features) as $bytes |
        def seconds(filter): [.[] | select(filter) | .time_us / 1e6 * $bytes / .bytes][0];
        {push_s: seconds(.op == "push"), pull_s: seconds(.op == "pull"), sum_s: seconds(.bench == "allreduce"),
         dense_bytes: $bytes, measured_bytes: .[0].bytes}'
}

write_004_bytes() {
    printf '### The bytes of a step\n\n'
    printf 'The report explains 7.1 s a step by a dense gradient and dense parameters that cross the network at 350 MB/s. Here both are measured, 4 workers and a server%s:\n\n' \
        "$(choose '' ' (dense: with a tenth of the gradient, times ten)')"
    { sparse_step; dense_step; } | fill 'add as $v | select($v) | table(
        ["exchange", "bytes of a worker", "s of a step", "report"];
        (["dense, pushed to a server and pulled", (2 * ($v.dense_bytes // 0) | fixed(0)), ($v.push_s + $v.pull_s | sig), $their["004"].step_s],
         ["dense, summed by all workers (allreduce)", ($v.dense_bytes | fixed(0)), ($v.sum_s | sig), "-"],
         ["sparse lists, batch 20 (whole step)", ($v.sparse_bytes | fixed(0)), (ratio($v.sparse_ms; 1000) | sig), "-"]))'
    echo
}
