# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# The questions of the reports. Each figure in an answer is computed from the runs; an answer whose runs are missing is
# left out.

write_answers() {
    printf '## Answers\n\n'
    answer_slower
    answer_accuracy
    answer_bottleneck
    answer_late
    answer_dense
}

answer_slower() {
    of_sweep 003-times | answer '. as $all | select(length >= 3) |
        def t($n): $all | over(.ranks == $n; 1e3 / .steps_per_s);
        def part($n; f): $all | over(.ranks == $n; split | f);
        ($all | over(.ranks == 1; 1e3 * (.breakdown.forward + .breakdown.backward + .breakdown.update) / .steps)) as $c |
        ($all | over(.ranks == 3; 1e3 * .per_rank[0].send_mb_s / .steps_per_s)) as $kb |
        ($their["003"].nodes) as $n |
        "### Why were more nodes slower?\n",
        ((if t(3) > 1.2 * t(1) then "Because a step is too short for its exchange." else "With these links, a step is hardly longer on 3 nodes." end) + " At batch 100, softmax regression computes \($c | sig) ms a step. On 3 nodes each node also sends " +
         "\($kb | sig) kB a step, so a step takes \(t(1) | sig) ms on 1 node, \(t(2) | sig) ms on 2 and \(t(3) | sig) ms on 3 (replayed): " +
         "\(part(3; .transfer + .wait) | percent) % of the time of 3 nodes is transfer that no computing hides, or waiting. " +
         "If every node makes all steps, 3 nodes take \(ratio(t(3); t(1)) | sig) times as long as one; in report 003 they took " +
         "\($n[2].time[2] / $n[0].time[0] | sig) times as long. If the steps are divided among the nodes, 3 nodes take " +
         "\(ratio(t(3); 3 * t(1)) | sig) of the time of one. A larger batch makes computing longer and leaves the exchange as it is.\n")'
    of_sweep 001-times-64 001-times-512 | answer '. as $all | select(length >= 6) |
        def up($b): ratio($all | over(.batch == $b and .ranks == 3; .steps_per_s * .global_batch); $all | over(.batch == $b and .ranks == 1; .steps_per_s * .global_batch));
        def hid($b): $all | over(.batch == $b and .ranks == 3; split.transfer) | percent;
        ("LeNet computes longer: on 3 nodes it is \(up(64) | sig) times as fast as on one at batch 64 and \(up(512) | sig) times at batch 512 (replayed; " +
         "exposed transfer \(hid(64)) % and \(hid(512)) % of the time). In report 001 it was \(178.83 / 169.67 | sig) and \(195.99 / 212.09 | sig) times as fast.\n")'
    verdict_of 003-times 3
}

# verdict_of SWEEP RANKS: quotes the verdict of the first run of a sweep with so many ranks
verdict_of() {
    local run
    for run in "$out/runs/$1"/*ranks-"$2"*_r1; do
        [ ! -d "$run" ] || verdict "$1/$(basename "$run")"
    done
}

answer_accuracy() {
    {
        of_sweep 001-lenet | jq -c '{kind: "fixed"} + .'
        of_sweep 001-chosen | jq -c '{kind: "chosen"} + .'
        of_run 001-few | jq -c '{kind: "few"} + .'
    } | answer '. as $all | select(any(.[]; .kind == "few")) |
        def of($k; $b; $n; f): [$all[] | select(.kind == $k and .batch == $b and .ranks == $n) | f] | median;
        def acc($k; $b; $n): of($k; $b; $n; .accuracy) | percent;
        "### Why did LeNet lose accuracy with more nodes and larger batches?\n",
        (of("fixed"; 64; 1; .accuracy) - of("few"; 64; 1; .accuracy)) as $lost |
        ((if $lost > 0.5 * (of("fixed"; 64; 1; .accuracy) - of("fixed"; 512; 3; .accuracy)) then "Because it made fewer updates with the same rate, not because of the nodes."
          else "Fewer updates alone do not explain it in these runs." end) + " Equal epochs with batch 64 on one node are " +
         "\(of("fixed"; 64; 1; .steps)) updates and give \(acc("fixed"; 64; 1)) %; with batch 512 on 3 nodes they are \(of("fixed"; 512; 3; .steps)) " +
         "updates of 1536 samples and give \(acc("fixed"; 512; 3)) %. Batch 64 on one node, stopped after the same \(of("few"; 64; 1; .steps)) updates, gives " +
         "\(acc("few"; 64; 1)) %. Batches of the same size, whole or divided between two nodes: 128 on one node \(acc("fixed"; 128; 1)) %, 64 on each of two " +
         "\(acc("fixed"; 64; 2)) %; 256 on one \(acc("fixed"; 256; 1)) %, 128 on each of two \(acc("fixed"; 128; 2)) %.\n"),
        ("The rate is what can be changed: with the rule and rate that Verbena chooses for the batch, the same number of samples gives \(acc("chosen"; 64; 1)) % (batch 64, one node), " +
         "\(acc("chosen"; 64; 3)) % (64, 3 nodes), \(acc("chosen"; 512; 1)) % (512, one node) and \(acc("chosen"; 512; 3)) % (512, 3 nodes).\n")'
}

answer_bottleneck() {
    local runs=(000-sync 000-async 001-single 001-sync 001-server 001-async 002-sync 002-async 004-sync 004-async)
    of_run "${runs[@]}" | answer '. as $all | select(length > 0) |
        "### What was the bottleneck?\n",
        "By the verdict of each run, and by where its time went. These nodes share the cores of one machine, so waiting is longer than on machines of their own.\n",
        table(["run", "verdict", "share %", "computing %", "exposed transfer %", "waiting %", "input %", "sent MB/s, node 0"];
            $all[] | [.name, .bottleneck.resource, (100 * .bottleneck.share | fixed(0)), (split | (.compute, .transfer, .wait, .data) | percent),
                (sent(0) | sig)]), ""'
}

answer_late() {
    late_facts | answer '.[0] as $l | select($l) |
        "### What does a late worker cost?\n",
        ((if $l.before < $l.after then "Its share of the speed for as long as it is missing." else "Nothing here: these cores are busy without it." end) + " With two workers the job made \($l.before | sig) steps/s, from the join at " +
         "\($l.joined_s | sig) s on \($l.after | sig). The job has lost \($l.joined_s * (1 - $l.before / $l.after) | sig) s of the \($l.joined_s | sig) s" +
         ". In report 000, \($their["000"].late_s) s at 850 instead of 1300 steps/s cost \($their["000"].late_s * (1 - 850 / 1300) | sig) s.\n")'
}

answer_dense() {
    { sparse_step; dense_step; } | answer 'add as $v | select($v.sparse_bytes and $v.push_s) |
        "### Was the network the limit of report 004?\n",
        ((if $v.push_s + $v.pull_s > 100 * $v.sparse_ms / 1e3 then "Of its dense exchange, yes." else "Not by these measurements." end) + " \($their["004"].features) floats are \(4 * $their["004"].features / 1e6 | fixed(0)) MB, not \($their["004"].claimed_mb); with 4 workers behind one server " +
         "\(16 * $their["004"].features / 1e6 | fixed(0)) MB cross its link in each direction, at least \(32 * $their["004"].features / 1e6 / $their["004"].link_mb_s | sig) s at " +
         "\($their["004"].link_mb_s) MB/s. Measured here over such links: \($v.push_s + $v.pull_s | sig) s; the report had \($their["004"].step_s) s. A batch of 20 rows has at most 780 nonzeros: " +
         "as a sparse list a worker sends \($v.sparse_bytes | fixed(0)) bytes a step, and the whole step takes \($v.sparse_ms | sig) ms, " +
         "\(1e3 * $their["004"].step_s / $v.sparse_ms | sig) times less than in the report. The network limits an exchange only as long as it carries zeros.\n")'
}
