#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Shows that tests/docs/commands.py can fail: each page below has one fault, which must be named. Usage:
# commands_fail.sh VERBENA
set -uo pipefail
verbena=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0

# fault TEXT LINES...: a README.md of these lines must fail with a line that contains TEXT
fault() {
    local text=$1
    shift
    printf '%s\n' "$@" >"$dir/README.md"
    if "$here/commands.py" "$verbena" quick "$dir" >"$dir/out" 2>&1 || ! grep -qF -- "$text" "$dir/out"; then
        echo "FAIL: no '$text' for: $*"
        cat "$dir/out"
        bad=1
    fi
}

fence='```'
fault "exit 2" "${fence}sh" "build/verbena train softmax --no-such-option" "$fence"
fault "exit 127" "${fence}sh" "no-such-program --help" "$fence"
fault "exit 2" "$fence" "verbena topo --ranks" "words that are no command" "$fence"
fault "no printed line begins like this line of the page: colour" "${fence}console" "$ verbena topo" "machine  any" \
    "colour   green" "$fence"
fault "the output does not match 'accuracy'" "$fence" "verbena eval --help | head -n 1" "$fence"
fault "could change the machine" "$fence" "touch x && rm x" "$fence"

printf '%s\n' "$fence" "verbena topo   # a comment" "verbena data info \\" "    synth:10" "colour green" "$fence" "${fence}text" \
    "verbena none" "$fence" >"$dir/README.md"
"$here/commands.py" "$verbena" quick "$dir" >"$dir/out" 2>&1 || { echo "FAIL: a good page fails" && cat "$dir/out" && bad=1; }
grep -q "^2 commands of 1 pages ran, 0 did not, 0 failures" "$dir/out" || { echo "FAIL: not two commands" && cat "$dir/out" && bad=1; }
exit $bad
