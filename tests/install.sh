#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Checks that the installed files work by themselves: install.sh BUILD. The files are the command, its man pages and
# completion scripts, and the library, which a program finds through pkg-config.
#
# Covers: launch/launch_open.c
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset "${!VB_@}" "${!SLURM_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE

cmake --install "$1" --prefix "$dir" >/dev/null
"$dir/bin/verbena" --version >/dev/null
[ -s "$dir/share/man/man1/verbena.1" ]
for command in $("$dir/bin/verbena" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$dir/bin/verbena" "$command" --help-man | cmp - "$dir/share/man/man1/verbena-$command.1"
    grep -q "^    $command)\$" "$dir/share/bash-completion/completions/verbena"
    grep -q "^ *($command)\$" "$dir/share/zsh/vendor-completions/_verbena"
done
pc=$(find "$dir" -name verbena.pc)
export PKG_CONFIG_PATH=${pc%/*}
[ "$(pkg-config --modversion verbena)" = "$("$dir/bin/verbena" --version | sed -n '1s/verbena //p')" ]
# shellcheck disable=SC2046
cc -Wall -Werror examples/where.c $(pkg-config --cflags --libs verbena) -o "$dir/where"
"$dir/where" | grep -q '^rank 3: '

# The example of an allreduce: 1 + 2 + 3 is 6 on each of 3 ranks.
# shellcheck disable=SC2046
cc -Wall -Werror examples/allreduce.c $(pkg-config --cflags --libs verbena) -o "$dir/allreduce"
all_sums() { # all_sums HOW OUTPUT
    local rank
    for rank in 0 1 2; do
        grep -q "^rank $rank of 3 over [a-z+]*: 6 ... 6$" "$2" && continue
        echo "FAIL: allreduce $1: no sum of rank $rank"
        cat "$2"
        exit 1
    done
    echo "allreduce $1: 3 ranks"
}
by_hand() {
    local rank port pids=()
    port=$((20000 + RANDOM % 10000))
    VB_SECRET=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
    export VB_SECRET
    for rank in 0 1 2; do
        timeout 100 "$dir/allreduce" $rank 3 127.0.0.1:$port &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || return 1; done
}
timeout 100 "$dir/allreduce" | grep -q '^rank 0 of 1 over self: 1 ... 1$'
by_hand >"$dir/out" || by_hand >"$dir/out" # a port may be in use
unset VB_SECRET
all_sums "by hand" "$dir/out"
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
    timeout 100 mpirun --allow-run-as-root --oversubscribe -n 3 "$dir/allreduce" >"$dir/out"
    all_sums "under mpirun" "$dir/out"
else
    echo "without mpirun of Open MPI: install openmpi-bin"
fi
if command -v torchrun >/dev/null; then # Debian's needs -r and -t: PyTorch 1.13 with Python 3.11 fails without
    timeout 100 torchrun -r 2 -t 2 --log_dir "$dir/logs" --no_python --nproc_per_node 3 "$dir/allreduce" >"$dir/out"
    all_sums "under torchrun" "$dir/out"
fi

if find "$dir" -name '*_priv.h' | grep .; then
    echo "FAIL: private headers were installed"
    exit 1
fi
echo "installed: $(find "$dir" -type f -printf '%P ')"
