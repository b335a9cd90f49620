#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks that untested.sh can fail. It must find each of these defects in a tree that has no other defect.
tests=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
bad=0

# Makes a tree without defects. Each source file is covered in another way.
make_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/base" "$tree/net/tcp" "$tree/kernels" "$tree/tests/base" "$tree/tests/fuzz" "$tree/examples" \
        "$tree/bench/peers" "$tree/build"
    touch "$tree/base/clock.c" "$tree/tests/base/test_clock.c" "$tree/tests/test_job.c"
    touch "$tree/net/tcp/tcp_rx.c" "$tree/net/sparse.c" "$tree/kernels/sparse.c" "$tree/base/main.c"
    touch "$tree/examples/where.c" "$tree/bench/peers/mpi.c" "$tree/build/generated.c"
    printf '/* SPDX\n *\n * Covers: net/tcp/tcp_rx.c net/sparse.c\n */\n' >"$tree/tests/fuzz/fuzz_tcp.c"
    printf '# SPDX\n#\n# Covers: kernels/sparse.c\n' >"$tree/tests/kernels.sh"
    printf '# comment\n\nbase/main.c # only calls others\n' >"$tree/tests/untested.txt"
}

defect() { # defect FILE LINE: untested.sh must fail if the line is added to the file
    make_tree
    mkdir -p "$tree/$(dirname "$1")"
    echo "$2" >>"$tree/$1"
    if "$tests/untested.sh" "$tree" >/dev/null; then
        echo "FAIL: not found: '$2' in $1"
        bad=1
    fi
}

missing() { # missing FILE: untested.sh must fail if the file is missing
    make_tree
    rm "$tree/$1"
    if "$tests/untested.sh" "$tree" >/dev/null; then
        echo "FAIL: not found: $1 is missing"
        bad=1
    fi
}

make_tree
"$tests/untested.sh" "$tree" || bad=1
defect base/log.c 'int x;'
defect net/verbs/verbs_cm.c 'int x;'
defect engine/sparse.c 'int x;'
defect tests/untested.txt 'base/clock.c # has a test'
defect tests/untested.txt 'net/tcp/tcp_rx.c # a comment names it'
defect tests/untested.txt 'base/none.c # does not exist'
defect tests/kernels.sh '# Covers: net/none.c'
missing tests/base/test_clock.c
missing tests/fuzz/fuzz_tcp.c
missing tests/kernels.sh
missing tests/untested.txt
missing base/main.c
make_tree
echo 'base/main.c' >"$tree/tests/untested.txt"
if "$tests/untested.sh" "$tree" >/dev/null; then
    echo "FAIL: not found: a line without a reason"
    bad=1
fi
exit $bad
