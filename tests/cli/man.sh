#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks that the man page names every command, and every option that COMMAND --help-all lists: man.sh VERBENA
page=docs/verbena.1
bad=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # the search for leaks takes seconds
commands=$("$1" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || { echo "no commands in --help"; exit 1; }
for command in $commands; do
    grep -q "^\.It Cm $command\$" $page || { echo "man page lacks $command"; bad=1; }
    options=$("$1" "$command" --help-all | sed -n 's/^  --\([a-z-]*\).*/\1/p' | grep -v '^help\(-all\)\?$')
    [ -n "$options" ] || { echo "no options in $command --help-all"; bad=1; }
    for option in $options; do
        grep -q -- "Fl -$option\( \|\$\)" $page || { echo "man page lacks --$option"; bad=1; }
    done
done
exit $bad
