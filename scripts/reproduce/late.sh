# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# 000: a job of two workers, which a third one joins later. The ranks are started by hand, each on its node.

late_s() { choose 30 5; }

# late_steps: prints how many steps two workers make in twice the delay, so that the third finds half of them left. Their
# speed is that of a short job: three workers may be slower than two.
late_steps() {
    local rate
    rate=$(jq '.steps_per_s // empty' "$out/runs/000-late-rate/run.json" 2>/dev/null)
    awk -v rate="${rate:-2000}" -v s="$(late_s)" 'BEGIN { printf "%d", 2 * s * rate }'
}

late_remove() {
    local ns
    for ns in $(ip netns list 2>/dev/null | grep -o "^$1-[0-9sw]*"); do
        ip netns del "$ns"
    done
}

# late_hosts TAG: makes three nodes with links of 1 Gbit/s at a switch
late_hosts() {
    local k
    ip netns add "$1-sw" && ip -n "$1-sw" link add br0 type bridge && ip -n "$1-sw" link set br0 up || return
    for k in 1 2 3; do
        ip netns add "$1-$k" && ip link add eth0 netns "$1-$k" type veth peer name "p$k" netns "$1-sw" &&
            ip -n "$1-$k" addr add "10.98.0.$k/24" dev eth0 && ip -n "$1-$k" link set lo up &&
            ip -n "$1-$k" link set eth0 up && ip -n "$1-sw" link set "p$k" master br0 up &&
            tc -n "$1-$k" qdisc replace dev eth0 root tbf rate 1gbit burst 64k latency 50ms &&
            tc -n "$1-sw" qdisc replace dev "p$k" root tbf rate 1gbit burst 64k latency 50ms || return
    done
}

# late_run: trains, with the third worker after the delay
late_run() {
    local run=$out/runs/000-late tag=vb-late-$$ code
    [ ! -f "$run.done" ] || return 0
    rm -rf "$run"
    over 1g
    train 000-late-rate 120 softmax --data "$mnist" --batch 10 --steps 60000 --mode async --ranks 2 "${link[@]}" || return 1
    if [ "$namespaces" = yes ]; then
        late_hosts "$tag" || { late_remove "$tag"; echo "  000-late: cannot make the nodes" >&2; return 1; }
    fi
    late_job "$tag" "$run"
    code=$?
    [ "$namespaces" != yes ] || late_remove "$tag"
    [ $code = 0 ] && echo ok >"$run.done"
}

# late_address RUN: prints where others can join, as the job has said
late_address() {
    cat "$1".[01].{log,json} | sed -n 's/.*others can join: .*--join \([0-9.:]*\) .*/\1/p' | head -n 1
}

# late_wait RUN: waits for the delay, but not until more than half of the steps are done: the speed of two workers differs
# between runs
late_wait() {
    local until=$((SECONDS + $(late_s)))
    while [ $SECONDS -lt $until ] && ! awk '/^verbena_steps_total /{ n = $2 } /^verbena_steps_planned /{ m = $2 }
        END { exit !(n > 0 && 2 * n >= m) }' "$1/metrics.prom" 2>/dev/null; do
        sleep 0.5
    done
}

late_job() { # late_job TAG RUN
    local tag=$1 run=$2 root=127.0.0.1 port=$((20000 + RANDOM % 10000)) i pids=() in=() code=0 limit
    local key=$out/runs/000-late.key
    limit=$(($(late_s) * 12 + 60))
    (umask 077 && head -c 32 /dev/urandom >"$key")
    [ "$namespaces" != yes ] || root=10.98.0.1
    for i in 0 1 2; do
        local what=(softmax --data "$mnist" --batch 10 --steps "$(late_steps)" --mode async --world 2 --rank "$i"
            --root "$root:$port" --transport tcp)
        if [ $i = 2 ]; then
            late_wait "$run"
            what=(--join "$(late_address "$run")")
        fi
        [ "$namespaces" != yes ] || in=(ip netns exec "$tag-$((i + 1))")
        timeout -k 10 $limit "${in[@]}" "$verbena" train "${what[@]}" --secret-file "$key" --run "$run" --json \
            >"$run.$i.json" 2>"$run.$i.log" &
        pids+=($!)
    done
    for i in 0 1 2; do
        wait "${pids[i]}" || { note_failure "000-late, rank $i" "$run.$i.log"; code=1; }
    done
    rm -f "$key"
    return $code
}

# late_facts: prints when the worker joined, and the speed before and after, from the events of the run
late_facts() {
    [ ! -s "$out/runs/000-late/events.jsonl" ] || jq -cs '([.[] | select(.what == "joined")][0]) as $join |
        ([.[] | select(.what == "evaluated")][-1]) as $last | select($join and $last and $last.at_s > $join.at_s) |
        {joined_s: $join.at_s, before: ($join.step / $join.at_s), after: (($last.step - $join.step) / ($last.at_s - $join.at_s))}' \
        "$out/runs/000-late/events.jsonl"
}
