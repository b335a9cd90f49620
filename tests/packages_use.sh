#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Uses the installed packages as a new user would, without root: packages_use.sh. scripts/distributions.sh runs it in a
# bare system. Prints what each step found.
# shellcheck disable=SC2317 # check() calls the functions
set -uo pipefail
cd "$(mktemp -d)" || exit 1
bad=0
export MANWIDTH=100
check() { # check STEP: runs the step, shows the last line that it printed
    local out
    if out=$("$1" 2>&1 </dev/null); then
        echo "ok: $1: $(tail -n 1 <<<"$out" | cut -c 1-160)"
    else
        echo "FAIL: $1: $out"
        bad=1
    fi
}

version() {
    verbena --version --json | grep -E '"version":"[0-9.]+","commit":"[0-9a-f]{40}"'
}
train() {
    timeout 300 verbena train lenet --ranks 2 --steps 50 --json --run run | tail -n 1 | grep -o '"params_sha256":"[0-9a-f]*"'
}
report() {
    verbena report run --out report.html && [ -s report.html ]
}
manual() {
    # man must show the page itself, not that of verbena
    man verbena-train | col -b | grep -A 1 -- '^ *--ranks N'
}
all_manuals() {
    local command n=0
    for command in $(verbena --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        man -w "verbena-$command" || return 1
        n=$((n + 1))
    done
    [ "$n" -gt 10 ] && echo "$n man pages"
}
in_bash() { # the package bash-completion finds the script by the name of the command
    # shellcheck disable=SC1091
    source /usr/share/bash-completion/bash_completion
    _completion_loader verbena 2>/dev/null || _comp_load verbena
    complete -p verbena || return 1
    # shellcheck disable=SC2034
    COMP_WORDS=(verbena train --transport v) COMP_CWORD=3
    _verbena
    [ "${COMPREPLY[*]}" = verbs ] && echo "offers ${COMPREPLY[*]}"
}
in_zsh() {
    # shellcheck disable=SC2016
    zsh -fc 'autoload -Uz compinit; compinit -D; [[ $_comps[verbena] == _verbena ]] && autoload +X _verbena &&
        echo "verbena is completed by $_comps[verbena]"'
}
library() {
    # shellcheck disable=SC2046
    cc -Wall -Werror /usr/share/doc/libverbena-dev/examples/where.c $(pkg-config --cflags --libs verbena) -o where &&
        ./where | grep '^rank 3: '
}
documents() {
    [ -s /usr/share/doc/verbena/docs/architecture.md ] && [ -s /usr/share/doc/verbena/examples/where.c ]
}
without_root() {
    [ "$(id -u)" != 0 ] && id
}

for step in without_root version train report manual all_manuals in_bash in_zsh library documents; do
    check $step
done
exit $bad
