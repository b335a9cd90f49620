#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests what a job says that its ranks have used: train_usage.sh VERBENA [netns]. No figure is null. The bytes of the
# transports are compared with bytes that are known to be moved. With netns, the ranks are in two network namespaces,
# and the counters of their interfaces are compared, too.
#
# Covers: engine/record/train_record.c engine/train/train_result.c
# Covers: engine/async/train_async_server.c record/sample/sampler.c
# Covers: record/sample/sample_ports.c net/group/group_info.c
# shellcheck disable=SC2016 # the filters of jq have variables
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../../support/command_test.sh"
what=train
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive

filled='all(.per_rank[]; . as $r | [.cpu_pct, .cpu_pct_peak, .rss_peak_mb, .send_mb_s, .send_mb_s_peak, .recv_mb_s,
    .recv_mb_s_peak, .disk_read_mb_s, .disk_read_mb_s_peak, .disk_write_mb_s, .disk_write_mb_s_peak] |
    all(type == "number" and . >= 0) and
    $r.disk_read_mb_s_peak >= $r.disk_read_mb_s and $r.disk_write_mb_s_peak >= $r.disk_write_mb_s and
    $r.cpu_pct_peak >= $r.cpu_pct and $r.send_mb_s_peak >= $r.send_mb_s and
    $r.recv_mb_s_peak >= $r.recv_mb_s and $r.rss_peak_mb > 1 and $r.cpu_pct_peak > 0)'

# grown FILE COLUMN: prints by how much a column grows from the first to the last row of a file of the run folder
grown() {
    python3 - "$dir/run/$1" "$2" <<'PY'
import struct, sys
head, _, body = open(sys.argv[1], "rb").read().partition(b"\nend\n")
cols = [line.split()[1:3] for line in head.decode().split("\n") if line.startswith("col ")]
types = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}
row = struct.Struct("<" + "".join(types[t] for _, t in cols))
at = [name for name, _ in cols].index(sys.argv[2])
print(row.unpack_from(body, len(body) // row.size * row.size - row.size)[at] - row.unpack_from(body)[at])
PY
}

# near WHAT A B: fails unless A is within 3 % of B
near() {
    jq -en "($2 - $3) / $3 | fabs < 0.03" >/dev/null || fail "$1: $2 is not within 3 % of $3"
}

softmax=(softmax --data synth:1200 --batch 20)
mlp=(mlp --data synth:1200 --batch 20)
sparse=(sparse-lr --data "synth:kind=criteo,n=3000,features=100000" --batch 50)

if [ "${2:-}" = netns ]; then
    command -v python3 >/dev/null || {
        echo "skipped: needs python3"
        exit 77
    }
    # shellcheck source=tests/support/host_pair.sh
    . "$(dirname "$0")/../../support/host_pair.sh"
    need_namespaces
    a=vb-ua-$$ b=vb-ub-$$
    trap 'remove_host_pair "$a" "$b"; rm -rf "$dir"' EXIT
    make_host_pair "$a" "$b" || exit
    (umask 077 && head -c 32 /dev/urandom >"$dir/key")

    # across PORT ARGUMENTS...: runs rank 0 in one namespace and rank 1 in the other, and compares the interfaces with
    # the transports. An interface counts 66 bytes more a packet: Ethernet, IP, TCP with a time stamp.
    across() {
        local port=$1 r side frames packets moved words args pid
        shift
        words="$*"
        rm -rf "$dir/run"
        args=(train "$@" --world 2 --root "10.98.0.1:$port" --secret-file "$dir/key" --timeout 30 --run "$dir/run" --json)
        timeout 100 ip netns exec "$b" "$verbena" "${args[@]}" --rank 1 >"$dir/out1" 2>"$dir/err1" &
        pid=$!
        timeout 100 ip netns exec "$a" "$verbena" "${args[@]}" --rank 0 >"$dir/out" 2>"$dir/err"
        code=$?
        wait $pid || code="$code and $?"
        [ "$code" = 0 ] || fail "$words: exit $code: $(cat "$dir/err" "$dir/err1")"
        final "$filled" "$words"
        for r in 0 1; do
            side=$([ $r = 0 ] && echo a || echo b)
            for what in sent received; do
                frames=$(grown "rank$r/net-veth-$side.bin" ${what}_bytes)
                packets=$(grown "rank$r/net-veth-$side.bin" ${what}_packets)
                moved=$(grown "rank$r/usage.bin" ${what}_bytes)
                if [[ $words == *async* && $r = 0 ]]; then
                    # the bytes between worker 0 and the server of the same process are not on this interface
                    continue
                fi
                near "$words: rank $r, $what" $((frames - 66 * packets)) "$moved"
                echo "$words: rank $r $what: transport $moved, interface $frames in $packets packets"
            done
        done
        what=train
    }
    across 7101 "${softmax[@]}" --steps 4000
    across 7102 "${mlp[@]}" --steps 300
    across 7103 "${sparse[@]}" --steps 6000
    across 7104 "${softmax[@]}" --steps 4000 --mode async
    exit $bad
fi

# Every kind of job, with and without a run folder.
for folder in "" "--run $dir/run"; do
    for words in "" "--ranks 2" "--ranks 3 --transport tcp" "--ranks 2 --mode async" "--ranks 3 --mode async \
        --dedicated-servers" "--ranks 2 --mode async --replicas 2 --transport tcp" "--ranks 2 --mode async --hogwild"; do
        read -ra args <<<"$words $folder"
        trained "$filled" "${softmax[@]}" --steps 60 "${args[@]}"
    done
    read -ra args <<<"--ranks 2 $folder"
    trained "$filled" "${sparse[@]}" --steps 60 "${args[@]}"
done
trained ".per_rank[0] | .send_mb_s == 0 and .recv_mb_s_peak == 0" "${softmax[@]}" --steps 20

# A sum of two ranks: each sends its gradient, or half of it and then half of the sum, and receives as much. In mapped
# memory a rank reads a half and writes a half, and the other does the same to it; a small sum is read whole by both. If
# the ranks share the update (mlp, on any machine if asked for), a rank writes its half of the parameters and of their
# momentum.
for way in "tcp 1" "shm 1.5"; do
    read -r transport times <<<"$way"
    trained "all(.per_rank[]; (.send_mb_s, .recv_mb_s) * .train_s * 1e6 / (4 * 7850 * 500) | . > 0.97 and . < 1.03)" \
        "${softmax[@]}" --steps 500 --ranks 2 --transport "$transport"
    trained ".params as \$n | all(.per_rank[]; (.send_mb_s, .recv_mb_s) * .train_s * 1e6 / (4 * \$n * 50 * $times) |
        . > 0.97 and . < 1.03)" "${mlp[@]}" --steps 50 --ranks 2 --transport "$transport" --shared-update-min 4
done

# A step of the parameter server: parameters to a worker, a gradient to the server. What all workers send, the server
# receives.
for transport in tcp shm; do
    trained '(.steps * 4 * 7850 / 1e6) as $mb | [.per_rank[] | select(.role == "worker") | .send_mb_s * .train_s] | add /
        $mb | . > 0.97 and . < 1.03' "${softmax[@]}" --steps 1000 --ranks 2 --mode async --transport $transport
    final '([.per_rank[] | select(.role == "server") | .recv_mb_s * .train_s] | add) as $in |
        [.per_rank[] | select(.role == "worker") | .send_mb_s * .train_s] | add / $in | . > 0.97 and . < 1.03' \
        "the bytes of a server over $transport"
done

# What is written to disk is seen. On some file systems the kernel does not count.
mkdir "$dir/save"
trained "$filled" "${mlp[@]}" --steps 20 --checkpoint-every 5 --checkpoint "$dir/save"
[ "$(stat -f -c %T "$dir")" = tmpfs ] || final '.per_rank[0].disk_write_mb_s > 0 and
    any(.bottleneck.evidence[]; .name == "disk_write" and .value > 0 and .ceiling >= .value)' "a job that writes checkpoints"
exit $bad
