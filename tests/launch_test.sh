# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # bad, code and err are for, dir is from, who sources it
# SPDX-License-Identifier: MIT
#
# What the tests of launchers share; they source it and say in ours() what of theirs runs.

fail() {
    echo "FAIL: $*"
    bad=1
}

# nothing_left WHAT: soon after it nothing of ours runs
nothing_left() {
    local i
    for ((i = 0; i < 200; i++)); do
        [ -n "$(ours)" ] || return
        sleep 0.1
    done
    fail "$1: still running: $(ours)"
}

# under WORDS...: runs them; output in $dir/out, standard error in $err, exit code in $code
under() {
    timeout 100 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    code=$?
    err=$(cat "$dir/err")
    nothing_left "$*"
}
