# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # bench/compare sets the options
#
# bench/compare: the parameter server beside ps-lite.

# Compiles the peer for ps-lite. No distribution has ps-lite, so VB_PSLITE is a folder with include/ and build/libps.a
# of ps-lite; docs/measuring.md says how to build them. ZeroMQ is in deps/ of that folder, or is installed. Upstream's
# ps-lite needs protobuf; ps-lite of BytePS does not.
build_pslite() {
    local from=${VB_PSLITE:-} flags=() libs=(-lzmq -lpthread)
    if [ -z "$from" ]; then
        without ps-lite "set VB_PSLITE to the folder where it was built (docs/measuring.md)"
        return 1
    fi
    if [ ! -f "$from/build/libps.a" ]; then
        without ps-lite "cannot find $from/build/libps.a"
        return 1
    fi
    ! grep -q ZPushPull "$from/include/ps/kv_app.h" || flags+=(-DPSLITE_BOTH)
    ! nm -C "$from/build/libps.a" 2>"$dir/why" | grep -q google::protobuf || libs=(-lprotobuf-lite "${libs[@]}")
    if ! g++ -std=c++14 -O3 "${flags[@]}" -I"$from/include" -I"$from/deps/include" bench/peers/pslite.cc \
        -o "$dir/pslite" "$from/build/libps.a" -L"$from/deps/lib" "${libs[@]}" 2>"$dir/why"; then
        without ps-lite "$(grep -m 1 -E 'error|cannot find' "$dir/why")"
        return 1
    fi
}

pslite() { # pslite BYTES KEYS: the time of the slower of two workers, one line per OP
    local role
    export DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_NODE_HOST=127.0.0.1
    export DMLC_PS_ROOT_PORT=$((20000 + RANDOM % 20000))
    for role in scheduler server worker worker; do
        DMLC_ROLE=$role timeout 120 "$dir/pslite" "$1" "$2" "$seconds" 2>/dev/null &
    done | awk '$4 > t[$1] { t[$1] = $4 } END { for (op in t) print op, t[op] }'
    wait
}

ours_ps() { # ours_ps BYTES KEYS: the same for ours
    local args=(--sizes "$1" --keys none)
    # With few features, our server stores little more than the keys, like the server of ps-lite.
    [ "$2" = 0 ] || args=(--sizes 4 --keys "$2" --features 100000)
    limited build/verbena bench ps --ranks 3 --transport tcp --seconds "$seconds" --json "${args[@]}" |
        jq -r "select(.keys == $2) | \"\(.op) \(.time_us)\""
}

# ps_against OURS OP HOW BYTES KEYS: prints ps-lite's median of OP, which it does as HOW says, and the ratio of OURS to it
ps_against() {
    local b
    b=$(awk -v op="$2" '$1 == op { print $2 }' "$dir/theirs" | median)
    awk -v op="${2/,/+}" '$1 == op { print $2 }' "$dir/ours" >"$dir/a"
    awk -v op="$2" '$1 == op { print $2 }' "$dir/theirs" >"$dir/b"
    [ -z "$b" ] || row "$2, $4 bytes, $5 keys, $3" ps-lite us low
    [ -z "$b" ] || printf '   ps-lite %s %10.1f us   ratio %.2f' "$3" "$b" "$(jq -n "$1 / $b")"
}

# Ours has one way to push and pull. ps-lite has two: both at once, or the pull after the reply to the push.
ps_duel() { # ps_duel BYTES KEYS PEER
    local i op a peer=$3
    : >"$dir/ours" && : >"$dir/theirs"
    for ((i = 0; i < rounds; i++)); do
        turn ours_ps "$1" "$2" >>"$dir/ours" || failed=1
        [ "$peer" = 0 ] || turn pslite "$1" "$2" >>"$dir/theirs"
    done
    [ "$dry" = 0 ] && [ -s "$dir/ours" ] || return 0
    for op in push pull push+pull; do
        a=$(awk -v op=$op '$1 == op { print $2 }' "$dir/ours" | median)
        printf '%-10s %9s bytes %6s keys %10.1f us' $op "$1" "$2" "$a"
        if [ $op = push+pull ]; then
            ps_against "$a" push+pull "at once" "$1" "$2"
            ps_against "$a" push,pull "in turn" "$1" "$2"
        else
            ps_against "$a" $op alone "$1" "$2"
        fi
        echo
    done
}

ps() {
    local peer=1
    [ -x "$dir/pslite" ] || build_pslite || peer=0
    [ $peer = 1 ] || [ -z "$in_all" ] || return 0
    ps_duel 4096 0 $peer
    ps_duel 1048576 0 $peer
    ps_duel 16777216 0 $peer
    ps_duel 8000 2000 $peer
}
