# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # bench/compare sets the options
#
# bench/compare: allreduce beside MPI libraries and Gloo.

peers=()
declare -A found # the peers of each transport and number of ranks, as the dry call has found them

# Sets peers to the peers that can run. For each other peer, prints the reason why it cannot run.
find_peers() {
    local peer key=$transport.$ranks
    read -ra peers <<<"${found[$key]:-}"
    [ "$dry" = 1 ] && [ -z "${found[$key]:-}" ] || return 0
    for peer in ${peer_list//,/ }; do
        [[ $transport == shm && $peer == gloo* ]] && continue # Gloo cannot use shared memory
        : >"$dir/why"
        if timeout $((quick ? 30 : 120)) bench/peers/run "$peer" "$transport" "$ranks" 4 0.01 >/dev/null 2>"$dir/why"; then
            peers+=("$peer")
        else
            [ -s "$dir/why" ] || echo "it did not end within $((quick ? 30 : 120)) s" >"$dir/why"
            without "$peer" "$(tail -n 1 "$dir/why" | sed "s/^$peer: //")"
        fi
    done
    found[$key]="${peers[*]}"
}

ours_allreduce() { # ours_allreduce SIZES
    limited build/verbena bench allreduce --ranks "$ranks" --transport "$transport" --sizes "$1" --seconds "$seconds" --json |
        jq -r '"ours \(.bytes) \(.time_us)"'
}

peer_allreduce() { # peer_allreduce PEER SIZES
    limited bench/peers/run "$1" "$transport" "$ranks" "$2" "$seconds" 2>"$dir/why" |
        jq -Rr 'fromjson? | "\(.peer) \(.bytes) \(.time_us)"' || echo "$1: $(tail -n 1 "$dir/why")" >&2
}

# Measures ours and all peers once. Prints lines "NAME BYTES TIME_US" for the table.
one_round() { # one_round SIZES
    local peer
    turn ours_allreduce "$1" || failed=1
    for peer in "${peers[@]}"; do
        turn peer_allreduce "$peer" "$1"
    done
}

# Notes a row for each size and each peer.
allreduce_rows() {
    local size peer
    while read -r size; do
        for peer in "${peers[@]}"; do
            awk -v size="$size" '$1 == "ours" && $2 == size { print $3 }' "$dir/table" >"$dir/a"
            awk -v size="$size" -v peer="$peer" '$1 == peer && $2 == size { print $3 }' "$dir/table" >"$dir/b"
            row "$transport, $ranks ranks, $size bytes" "$peer" us low
        done
    done < <(awk '$1 == "ours" { print $2 }' "$dir/table" | sort -nu)
}

# Prints the medians over the rounds, one line for each size. docs/measuring.md explains "of bare" and "times".
print_table() {
    sort -k1,1 -k2,2n -k3,3g "$dir/table" | awk -v peers="ours ${peers[*]}" '
        { v[$1, $2, ++n[$1, $2]] = $3; sizes[$2] = 1 }
        function mid(p, s,   k) {
            k = n[p, s]
            return k ? (v[p, s, int((k + 1) / 2)] + v[p, s, int(k / 2) + 1]) / 2 : -1
        }
        function cell(x) { return x < 0 ? sprintf("%13s", "-") : sprintf("%13.2f", x) }
        END {
            count = split(peers, name, " ")
            line = sprintf("%10s", "bytes")
            for (i = 1; i <= count; i++) line = line sprintf("%13s", name[i])
            print line "   of bare     best peer  times"
            fflush() # the header comes before the sorted lines
            for (s in sizes) {
                best = -1; who = "-"; a = mid("ours", s); bare = mid("bare", s)
                line = sprintf("%10d", s)
                for (i = 1; i <= count; i++) {
                    m = mid(name[i], s); line = line cell(m)
                    if (name[i] != "ours" && name[i] != "bare" && m > 0 && (best < 0 || m < best)) {
                        best = m; who = name[i]
                    }
                }
                line = line (bare > 0 ? sprintf("%8.0f %%", 100 * bare / a) : sprintf("%10s", "-"))
                print line sprintf("  %12s", who) (best > 0 ? sprintf("%7.2f", best / a) : "      -") | "sort -n"
            }
        }'
}

allreduce() {
    local both=$transport
    [ -z "$in_all" ] || both='shm tcp'
    for transport in $both; do
        allreduce_over
    done
}

allreduce_over() {
    local i
    find_peers
    : >"$dir/table"
    for ((i = 0; i < rounds; i++)); do
        one_round "$sizes" >>"$dir/table"
    done
    [ "$dry" = 0 ] || return 0
    allreduce_rows
    echo "allreduce over $transport, $ranks ranks, $(nproc) cpus: medians of $rounds rounds, us"
    print_table
}
