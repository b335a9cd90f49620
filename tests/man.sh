#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The man page names every command, and every option of each, that --help does.
page=docs/verbena.1
bad=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # looking for leaks takes it seconds
commands=$("$1" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || { echo "no commands in --help"; exit 1; }
for command in $commands; do
    grep -q "^\.It Cm $command\$" $page || { echo "man page lacks $command"; bad=1; }
    options=$("$1" "$command" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' | grep -v '^help$')
    [ -n "$options" ] || { echo "no options in $command --help"; bad=1; }
    for option in $options; do
        grep -q -- "Fl -$option\( \|\$\)" $page || { echo "man page lacks --$option"; bad=1; }
    done
done
exit $bad
