# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # bench/compare sets the options
#
# bench/compare: RDMA beside perftest and Open MPI over UCX, in the lab.

# numbers_of WHAT BYTES: prints these figures, one a round
numbers_of() { awk -v what="$1" -v bytes="$2" '$1 == what && $2 == bytes { print $3 }' "$dir/lines"; }

# median_of WHAT BYTES: prints the median of the figures that the nodes printed for WHAT and BYTES
median_of() { numbers_of "$1" "$2" | median; }

# verbs_line OURS BYTES THEIRS [BYTES]: prints both medians and their ratio, in MB/s of 2^20 bytes or in us
verbs_line() {
    local a b
    a=$(median_of "$1" "$2")
    b=$(median_of "$3" "${4:-$2}")
    if [ -z "$a" ] || [ -z "$b" ]; then
        echo "$1 $2: not measured" >&2
        return
    fi
    numbers_of "$1" "$2" >"$dir/a"
    numbers_of "$3" "${4:-$2}" >"$dir/b"
    if [[ $1 == *_lat ]]; then row "$1 $2" "$3" us low; else row "$1 $2" "$3" MiB/s high; fi
    awk -v ours="$1" -v bytes="$2" -v theirs="$3" -v size="${4:-$2}" -v a="$a" -v b="$b" \
        'BEGIN { printf "%-14s %8d %10.2f   %-13s %8d %10.2f   ratio %.2f\n", ours, bytes, a, theirs, size, b, a / b }'
}

# sum_of WHAT: prints the sum of WHAT over all measurements of ours
sum_of() { awk -v what="$1" '$1 == what { n += $3 } END { print n + 0 }' "$dir/lines"; }

mpi_job=() # the arguments of verbs_nodes.sh for Open MPI

# Fails in a dry call, and if the nodes cannot run.
on_nodes() { # on_nodes WHAT LAB_OPTION...
    if ! turn nodes "$@"; then
        without perftest "the lab does not run here: $(tail -n 1 "$dir/why")"
        return 1
    fi
    [ "$dry" = 0 ] || return 1
    echo "two nodes: medians of $rounds rounds, MB/s of 2^20 bytes or us; perftest polls, with -e it sleeps"
}

nodes() { # nodes WHAT LAB_OPTION...
    local what=$1
    shift
    lab/run --timeout 1800 "$@" --with build/verbena --with ib_write_bw --with ib_read_bw --with ib_send_bw \
        --with ib_send_lat --with ib_write_lat --with ib_read_lat --with awk --with sed -- \
        bench/verbs_nodes.sh "$what" build/verbena "$rounds" "${mpi_job[@]}" >"$dir/lines" 2>"$dir/why"
}

# A program that polls needs a second virtual CPU. By default, a node has two.
verbs() {
    if [ -n "$quick" ]; then
        without perftest "--quick has no time for the lab (bench/compare verbs)"
        return 0
    fi
    if ! command -v ib_write_bw >/dev/null; then
        without perftest "install perftest"
        return 0
    fi
    if [ "$only" = get-latency ]; then
        on_nodes get-latency || return 0
        verbs_line get_lat 4096 ib_read_lat
        verbs_line get_lat 4096 ib_read_lat-e
        return
    fi
    on_nodes transfer || return 0
    verbs_line put_bw 65536 ib_write_bw
    verbs_line put_bw 1048576 ib_write_bw
    verbs_line put_bw 65536 ib_send_bw-e
    verbs_line get_bw 65536 ib_read_bw
    verbs_line get_bw 1048576 ib_read_bw
    verbs_line get_bw 65536 ib_read_bw-e
    verbs_line put_lat 64 ib_send_lat
    verbs_line put_lat 64 ib_send_lat-e
    verbs_line put_lat 64 ib_write_lat
    verbs_line get_lat 4096 ib_read_lat
    verbs_line get_lat 4096 ib_read_lat-e
    echo "ports, while ours ran: $(sum_of rnr) receivers not ready, $(sum_of retries) retries"
}

# "-b" and "both" are sums of both directions. Nodes have one CPU, because an allreduce sleeps while it waits.
verbs_allreduce() {
    local peer=build/bench/peers/openmpi
    # shellcheck source=lab/mpi.sh
    . lab/mpi.sh
    [ -x $peer ] || mpi_lacks="not built: install openmpi-bin and libopenmpi-dev and build again"
    if [ -x $peer ] && mpi_files && mpi_has_ucx; then
        mpi_job=("$PWD/lab/mpi_node" "$PWD/$peer")
        mpi_with+=(--with "$peer")
    fi
    on_nodes allreduce --cpus 1 "${mpi_with[@]}" || return 0
    verbs_line allreduce 1048576 ib_write_bw 65536
    verbs_line allreduce_both 1048576 ib_write_bw 65536
    verbs_line allreduce_both 1048576 ib_write_bw-b 65536
    if [ ${#mpi_job[@]} = 0 ]; then
        echo "allreduce, Open MPI over UCX: -, $mpi_lacks"
        return
    fi
    verbs_line allreduce 1048576 openmpi
    verbs_line allreduce 4194304 openmpi
}
