#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests that a synchronous job is as it was after many ranks have joined and died: many_joins.sh VERBENA TIMES. The first
# rank has as many descriptors and threads as after the first few of them, and at most 1 % more memory.
#
# Covers: engine/elastic/form.c engine/elastic/recover.c
set -uo pipefail
# shellcheck source=tests/support/launch_test.sh
. "$(dirname "$0")/../../support/launch_test.sh"
ranks_here "$1"
times=$2
few=10 # joins and deaths before the first look

# what_it_holds PID: prints numbers of descriptors and threads, and kilobytes of memory
what_it_holds() {
    echo "$(find "/proc/$1/fd" -mindepth 1 | wc -l) $(find "/proc/$1/task" -mindepth 1 -maxdepth 1 | wc -l)" \
        "$(awk '/^VmRSS/ { print $2 }' "/proc/$1/status")"
}

# makes_steps RANK: waits until a rank has joined
makes_steps() {
    local i
    for ((i = 0; i < 1500; i++)); do
        [ ! -s "$dir/run/rank$1/steps.bin" ] || return 0
        sleep 0.02
    done
    fail "rank $1 has made no steps: $(tail -n 5 "$dir/err" "$dir/join")"
    return 1
}

(umask 077 && head -c 32 /dev/urandom >"$dir/key")
for transport in shm tcp; do
    rm -rf "$dir/run"
    "$verbena" train lenet --data synth:600 --global-batch 30 --steps 100000000 --ranks 2 --transport $transport \
        --secret-file "$dir/key" --run "$dir/run" >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    makes_steps 1 || { kill -KILL $pid && exit 1; }
    first=$(by_age | grep -vx $pid | head -n 1)
    for ((n = 1; n <= times; n++)); do
        "$verbena" train --join "$(jq -r .run.join "$dir/run/run.json")" --secret-file "$dir/key" >"$dir/join" 2>&1 </dev/null &
        joiner=$!
        makes_steps $((n + 1)) || break
        { kill -KILL $joiner && wait $joiner; } 2>/dev/null
        said "rank $((n + 1)) .* was lost"
        [ $n != $few ] || before=$(what_it_holds "$first")
    done
    after=$(what_it_holds "$first")
    echo "$transport: descriptors, threads, kB after $few: $before, after $times: $after"
    read -r fds threads kb <<<"$before"
    read -r fds_after threads_after kb_after <<<"$after"
    [ "$fds $threads" = "$fds_after $threads_after" ] || fail "$transport: descriptors or threads stay behind"
    [ "$kb_after" -lt $((kb + kb / 100)) ] || fail "$transport: memory stays behind"
    kill -TERM $pid
    wait $pid
    nothing_left "$transport"
done

[ $bad = 0 ] && echo "all tests passed: many ranks have come and gone"
exit $bad
