#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Lists the source files that have no test of their own: untested.sh [TREE]
#
# A test covers a file if it has the name of the file (tests/**/test_NAME.c covers NAME.c), or if a comment in the test,
# fuzzer or script has a line "Covers: engine/ps/ps_apply.c ps_notify.c". Files are found by their basename, wherever they
# are. The folder in front matters only if several files have the same basename.
#
# tests/untested.txt lists the files that need no test of their own: "PATH # REASON". The exit code is 1 if a file that
# is not in this list has no test, if the list names a file that has a test or does not exist, if a reason is missing,
# or if a "Covers:" line names a file that does not exist.
cd "${1:-.}" || exit 1
list=tests/untested.txt

files() {
    { [ -e .git ] && git ls-files --cached --others --exclude-standard 2>/dev/null; } || find . -type f | sed 's|^\./||'
}

sources() {
    files | grep '\.c$' | grep -vE '^(tests|examples|build[^/]*)/|^bench/peers/' | sort -u |
        while read -r file; do [ ! -e "$file" ] || echo "source $file"; done
}

# Prints "covers TEST NAME" for each source file that a test names.
covers() {
    files | grep -E '^tests/.*\.(c|h|sh)$' | while read -r file; do
        [ -e "$file" ] || continue
        echo "$file" | sed -n 's|^tests/\(.*/\)\{0,1\}test_\([^/]*\.c\)$|named & \2|p'
        sed -nE 's/^( \*|#) +Covers: +//p' "$file" | tr -s ' ' '\n' | sed "s|^|covers $file |"
    done
}

accepted() {
    [ ! -e $list ] || sed -n '/^#/d; /^ *$/d; s/^/accepted /p' $list
}

# It is no error if a test has a name that belongs to no source file. A "Covers:" line with such a name is an error.
{ sources; covers; accepted; } | awk -v list=$list '
function base(path) { sub(/.*\//, "", path); return path }
function top(path) { sub(/\/.*/, "", path); return path }
function fail(text) { print "FAIL: " text; bad = 1 }
# Stores the source files with this name in found[]. Returns their number.
function find(name,    i, n) {
    delete found
    for (i = 1; i <= n_sources; i++)
        if (base(name) == base(source[i]) &&
            (same[base(name)] == 1 || name !~ /\// || top(name) == top(source[i])))
            found[++n] = source[i]
    return n
}
$1 == "source" { source[++n_sources] = $2; same[base($2)]++ }
$1 == "named" { n = find($3); for (i = 1; i <= n; i++) tested[found[i]] = 1 }
$1 == "covers" {
    n = find($3)
    if (n == 0)
        fail($2 ": Covers: " $3 ": no source file has this name")
    for (i = 1; i <= n; i++)
        tested[found[i]] = 1
}
$1 == "accepted" {
    path = $2
    reason = $0
    if (!sub(/^.* # */, "", reason) || reason == "")
        fail(list ": " path ": the reason is missing, expected: PATH # REASON")
    n = find(path)
    if (n == 0)
        fail(list ": " path ": no source file has this name")
    for (i = 1; i <= n; i++) {
        why[found[i]] = reason
        if (found[i] in tested)
            fail(list ": " path ": a test covers this file: delete the line")
    }
}
END {
    for (i = 1; i <= n_sources; i++) {
        file = source[i]
        if (file in tested)
            continue
        n_untested++
        if (file in why)
            print file " # " why[file]
        else
            fail(file ": no test covers this file")
    }
    print n_untested + 0 " of " n_sources " source files have no test of their own"
    if (bad)
        print "fix: add tests/test_NAME.c, or a line \"Covers: NAME.c\" to the comment of a test that checks the file, " \
              "or the line \"PATH # REASON\" to " list
    exit bad
}'
