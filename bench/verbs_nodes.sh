#!/bin/sh
# SPDX-License-Identifier: MIT
#
# usage: verbs_nodes.sh transfer|get-latency|allreduce VERBENA ROUNDS [MPI_NODE PEER]
#
# Runs on each of two nodes of the lab, and measures perftest and ours over the same devices, in turn. Node 0 prints
# lines "WHAT BYTES FIGURE". A program of perftest polls; if it can also sleep (-e), that is measured too. MPI_NODE is
# lab/mpi_node, and PEER is our benchmark for Open MPI, if Open MPI is available.
set -eu
what=$1 verbena=$2 rounds=$3 mpi_node=${4:-} peer=${5:-}

# perftest NAME BYTES TIMES COLUMN [-e|-b]: runs the program NAME of perftest and prints a bandwidth in MB/s of 2^20
# bytes, or a latency in us. With -b the bandwidth is the sum of both directions.
perftest() {
    name=$1 bytes=$2 times=$3 column=$4 option=${5:-}
    if [ "$VB_RANK" = 1 ]; then
        "$name" -R -F ${option:+"$option"} -s "$bytes" -n "$times" >/tmp/out 2>&1 || cat /tmp/out >&2
        return
    fi
    try=0
    sleep 0.2
    while ! "$name" -R -F ${option:+"$option"} -s "$bytes" -n "$times" node1 >/tmp/out 2>&1; do
        try=$((try + 1)) # the other node may not be listening yet
        [ "$try" -lt 20 ] || { cat /tmp/out >&2 && exit 1; }
        sleep 0.3
    done
    # perftest prints 0 or inf if it cannot determine the speed of the clock; such lines are left out.
    awk -v what="$name$option" -v bytes="$bytes" -v column="$column" \
        '$1 == bytes && $column > 0 && $column != "inf" { print what, bytes, $column }' /tmp/out
}

# ours SIZES PARTS: prints the latencies and bandwidths of ours, and the number of receivers not ready and of retries
ours() {
    "$verbena" bench transfer --transport verbs --sizes "$1" --only "$2" --seconds 1.5 --json |
        sed -nE 's/.*"bytes":([0-9]+),"op":"([a-z]+)",.*"lat_us_p50":([^,]+),.*"gb_s":([^,]+),.*"rnr":([0-9]+),"retries":([0-9]+).*/\2 \1 \3 \4 \5 \6/p' |
        awk '$3 != "null" { print $1 "_lat", $2, $3 }
             $4 != "null" { print $1 "_bw", $2, $4 * 1e9 / 1048576 }
             { print "rnr", $2, $5; print "retries", $2, $6 }'
}

# allreduce SIZES: prints the bandwidth of ours in each direction of the link (busbw), and the sum of both directions
allreduce() {
    "$verbena" bench allreduce --transport verbs --sizes "$1" --seconds 1.5 --json |
        sed -nE 's/.*"bytes":([0-9]+),.*"busbw_gb_s":([^,]+),.*/\1 \2/p' |
        awk '{ mb = $2 * 1e9 / 1048576; print "allreduce", $1, mb; print "allreduce_both", $1, 2 * mb }'
}

# openmpi SIZES: prints the bandwidth of Open MPI's allreduce over UCX, in each direction of the link. Open MPI polls,
# and yields between polls because there may be only one CPU. UCX makes connections over UD. Its address check would
# drop everything that arrives over UD, so the check is off (see docs/lab.md).
openmpi() {
    [ -n "$peer" ] || return 0
    UCX_NET_DEVICES=rxe0:1 UCX_TLS=rc,self UCX_UD_ETH_DGID_CHECK=n "$mpi_node" job 2 --mca pml ucx \
        --mca mpi_yield_when_idle 1 "$peer" openmpi ucx "$1" 1.5 |
        sed -nE 's/.*"bytes": ([0-9]+), "time_us": ([^,]+), "wrong": 0.*/\1 \2/p' |
        awk '{ print "openmpi", $1, $1 / $2 * 1e6 / 1048576 }' # with two ranks busbw is bytes over time
}

transfer() {
    perftest ib_send_lat 64 300 5
    ours 64 put-latency
    perftest ib_write_lat 64 300 5
    perftest ib_send_lat 64 300 5 -e
    perftest ib_read_lat 4096 300 5
    ours 4096 get-latency
    perftest ib_read_lat 4096 300 5 -e
    perftest ib_write_bw 65536 80 4
    perftest ib_read_bw 65536 80 4
    ours 64K,1M put,get
    perftest ib_write_bw 1048576 10 4
    perftest ib_read_bw 1048576 10 4
    perftest ib_send_bw 65536 80 4 -e
    perftest ib_read_bw 65536 80 4 -e
}

# ib_read_lat varies a lot from run to run, so each measurement is repeated.
get_latency() {
    perftest ib_read_lat 4096 300 5
    ours 4096 get-latency
    perftest ib_read_lat 4096 300 5 -e
    ours 4096 get-latency
    perftest ib_read_lat 4096 300 5
}

# On the nodes ib_write_bw varies a lot from run to run, and a run is shorter than the start of an allreduce. So
# ib_write_bw is measured before and after the allreduce.
reduce() {
    perftest ib_write_bw 65536 80 4
    allreduce 1M,4M
    perftest ib_write_bw 65536 80 4
    openmpi 1M,4M
    perftest ib_write_bw 65536 60 4 -b
}

round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    case $what in
    transfer) transfer ;;
    get-latency) get_latency ;;
    *) reduce ;;
    esac
done
