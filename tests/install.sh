#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Checks that the installed files work by themselves: install.sh BUILD. The files are the command, its man pages and
# completion scripts, and the library, which a program finds through pkg-config.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

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
if find "$dir" -name '*_priv.h' | grep .; then
    echo "FAIL: private headers were installed"
    exit 1
fi
echo "installed: $(find "$dir" -type f -printf '%P ')"
