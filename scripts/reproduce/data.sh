# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # variables of reproduce.sh
#
# Finds the data: real data where it lies in --data, generated data otherwise.

# first_of PATTERN...: prints the first file that matches a pattern
first_of() {
    local file
    for file; do
        [ ! -f "$file" ] || { echo "$file"; return 0; }
    done
    return 1
}

find_mnist() {
    local dir
    mnist=synth:60000 mnist_is='generated digits (60,000 for training)'
    for dir in "$data" "$data/mnist"; do
        if [ -n "$data" ] && first_of "$dir"/train-images*idx3-ubyte* >/dev/null; then
            mnist=mnist:$dir mnist_is='MNIST'
        fi
    done
}

# Criteo's files have no test part: the last tenth is set aside.
find_criteo() {
    local dir=$data/criteo file
    criteo=(--data "synth:kind=criteo,n=$(choose 600000 200000),test=10000")
    criteo_is='generated rows like those of Criteo (39 nonzeros of 33,762,578 features)'
    [ -n "$data" ] || return 0
    if file=$(first_of "$dir"/*.tfrecord*); then
        criteo=(--data "tfrecord:$dir/*.tfrecord*" --features 33762578 --test-split 0.1)
    elif file=$(first_of "$dir"/train.txt* "$dir"/*.tsv* "$dir"/day_*); then
        criteo=(--data "criteo:$file" --features 33762578 --test-split 0.1)
    else
        return 0
    fi
    criteo_is="Criteo ($(basename "$file"))"
}

find_data() {
    if [ -n "$data" ]; then
        [ -d "$data" ] || die "--data $data: is not a folder"
        data=$(realpath "$data")
    fi
    find_mnist
    find_criteo
    echo "data: $mnist_is; $criteo_is" >&2
}
