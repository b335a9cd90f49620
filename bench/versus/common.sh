# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # bench/compare sets the options
#
# bench/compare: what all comparisons share. A *turn* is one run of one program. Each comparison is called twice: first
# dry, which only counts its turns, so that there is a time left to show; then to measure.

. bench/median.sh
. bench/python.sh

dry=0 turns=0 turn=0 failed=0
now='' said='' # the comparison under way; the last one that progress has named in a pipe
rows=$dir/rows missing=$dir/missing
: >"$rows" && : >"$missing"

# without PEER REASON...: notes a peer that cannot run, and what would let it run
without() {
    local line="without $1: ${*:2}"
    ! grep -qxF -- "$line" "$missing" || return 0
    echo "$line" | tee -a "$missing" >&2
}

time_text() { # time_text SECONDS
    if [ "$1" -lt 90 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}

# progress: on a terminal one line that changes, in a pipe one line for each comparison
progress() {
    local left=''
    [ $turn = 0 ] || left=", about $(time_text $((SECONDS * (turns - turn) / turn))) left"
    if [ -t 2 ]; then
        printf '\r\033[K%s: run %d of %d, %s so far%s' "$now" $((turn + 1)) $turns "$(time_text $SECONDS)" "$left" >&2
    elif [ "$said" != "$now" ]; then
        said=$now
        echo "$now: run $((turn + 1)) of $turns, $(time_text $SECONDS) so far$left" >&2
    fi
}

quick_s=570 spent=0 # with --quick no program starts later than this; what finding the peers has taken

# A program that hangs must not take the time of the others.
limit_s() {
    local limit=400
    if [ -n "$quick" ]; then
        limit=$((quick_s - spent - SECONDS))
        [ $limit -le 90 ] || limit=90
        [ $limit -ge 1 ] || limit=1 # 0 would be no limit
    fi
    echo $limit
}

# limited COMMAND...: runs a program, for a limited time
limited() {
    local code=0
    timeout -k 5 "$(limit_s)" "$@" || code=$?
    [ $code != 124 ] || echo "$now: $(basename "$1") ${*:2:3} did not end within $(limit_s) s" >&2
    return $code
}

# is_late: with --quick, says once what is left out because the time is up
is_late() {
    [ -n "$quick" ] && [ "$(limit_s)" -lt 10 ] || return 1
    without "the rest of $now" "--quick has no time left (bench/compare all --quick --only $now)"
}

wipe() { [ ! -t 2 ] || printf '\r\033[K' >&2; }

# turn COMMAND...: one run of one program, unless it is too late for it; in a dry call it is only counted
turn() {
    local code=0
    if [ "$dry" = 1 ]; then
        turns=$((turns + 1))
        return 0
    fi
    if is_late; then
        turn=$((turn + 1))
        return 0
    fi
    progress
    "$@" || code=$?
    turn=$((turn + 1))
    wipe
    return $code
}

# alternate COMMAND... -- COMMAND...: runs both commands in each round, with their last lines in $dir/a and in $dir/b.
# Fails if there is nothing to compare: in a dry call, or if no round worked.
alternate() {
    local i first=()
    while [ "$1" != -- ]; do
        first+=("$1")
        shift
    done
    shift
    : >"$dir/a" && : >"$dir/b"
    for ((i = 0; i < rounds; i++)); do
        if turn "${first[@]}" >"$dir/one" && turn "$@" >"$dir/other" && [ "$dry" = 0 ]; then
            tail -n 1 "$dir/one" >>"$dir/a"
            tail -n 1 "$dir/other" >>"$dir/b"
        elif [ "$dry" = 0 ] && ! is_late; then
            echo "$now: a run failed: ${first[*]:0:4} or ${*:1:4}" >&2
            failed=1
        fi
    done
    [ -s "$dir/a" ] && [ -s "$dir/b" ]
}

# row CASE PEER UNIT low|high: notes how many times as fast ours ($dir/a, one line a round) is as the peer ($dir/b); low:
# less is faster. The ratio is the median of the ratios of the rounds.
row() {
    paste -d ' ' <(cut -d ' ' -f 1 "$dir/a") <(cut -d ' ' -f 1 "$dir/b") |
        jq -Rnc --arg compare "$now" --arg case "$1" --arg peer "$2" --arg unit "$3" --arg better "$4" '
        def mid: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
        [inputs | split(" ") | map(tonumber? // empty) | select(length == 2 and all(. > 0))] as $pairs |
        ($pairs | map(if $better == "low" then .[1] / .[0] else .[0] / .[1] end)) as $ratios |
        select($ratios | length > 0) |
        {compare: $compare, case: $case, peer: $peer, unit: $unit, better: $better, rounds: ($ratios | length),
         ours: ($pairs | map(.[0]) | mid), theirs: ($pairs | map(.[1]) | mid),
         ratio: ($ratios | mid), ratio_min: ($ratios | min), ratio_max: ($ratios | max)}' >>"$rows"
}

# measure WHAT...: makes these comparisons
measure() {
    dry=1
    for now; do "${now//-/_}" >/dev/null; done
    dry=0 spent=$SECONDS SECONDS=0
    for now; do "${now//-/_}"; done
    wipe
}
