# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # bench/compare sets the options
#
# bench/compare all: every comparison whose peers are on this machine, as one table of ratios.

all_names=(transfer allreduce sparse-lr liblinear train sync ps tensorflow verbs)
begin_mark='<!-- bench/compare all -->'
end_mark='<!-- end of bench/compare all -->'

# The rows as lines of a table. ratio: how many times as fast ours is; spread: the least and the largest of all rounds.
table_lines() {
    jq -r 'def short: if . >= 1000 then (. | round | tostring) elif . >= 10 then (. * 10 | round / 10 | tostring)
            else (. * 1000 | round / 1000 | tostring) end;
        def two: . * 100 | round / 100 | tostring;
        [.compare, .case, .peer, (.ours | short), (.theirs | short), .unit, (.ratio | two),
         (if .rounds > 1 then "\(.ratio_min | two)-\(.ratio_max | two)" else "-" end)] | join("|")' "$rows"
}

print_rows() {
    { echo "comparison|case|peer|ours|theirs|unit|ratio|spread" && table_lines; } | column -t -s '|' -R 4,5,7
}

markdown() {
    local cpu
    cpu=$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)
    echo "$begin_mark"
    echo
    echo "\`bench/compare all${quick:+ --quick} $rounds\`: $(uname -m) ${cpu:-} with $(nproc) cpus, $(date +%F), medians of" \
        "$rounds alternating rounds; ratio: how many times as fast Verbena is, with the least and the largest of all rounds."
    echo
    echo "| comparison | case | peer | Verbena | peer's | unit | ratio | spread |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
    table_lines | sed 's/|/ | /g; s/^/| /; s/$/ |/'
    echo
    echo "$end_mark"
}

# Replaces what is between the marks in a file.
write_table() { # write_table FILE
    markdown >"$dir/markdown"
    awk -v begin="$begin_mark" -v end="$end_mark" -v new="$dir/markdown" '
        $0 == begin { while ((getline line < new) > 0) print line; inside = 1 }
        !inside { print }
        $0 == end { inside = 0 }' "$1" >"$dir/page"
    cat "$dir/page" >"$1"
    echo "written: the table in $1" >&2
}

# needs_marks FILE: refuses a file in which the place of the table is not clear
needs_marks() {
    if [ ! -f "$1" ] || [ ! -w "$1" ]; then
        echo "bench/compare: --write $1: there is no such file that can be written" >&2
        exit 2
    fi
    if [ "$(grep -cxF -e "$begin_mark" "$1")" != 1 ] || [ "$(grep -cxF -e "$end_mark" "$1")" != 1 ] ||
        [ "$(grep -xF -e "$begin_mark" -e "$end_mark" "$1" | head -n 1)" != "$begin_mark" ]; then
        echo "bench/compare: --write $1: needs one line '$begin_mark' and, below it, one line '$end_mark'" >&2
        exit 2
    fi
}

# Names of --only, or all of them.
chosen() {
    local name
    for name in ${only//,/ }; do
        [[ " ${all_names[*]} " == *" $name "* ]] && continue
        echo "bench/compare: all has no comparison $name; it has: ${all_names[*]}" >&2
        exit 2
    done
    if [ -n "$only" ]; then echo "${only//,/ }"; else echo "${all_names[*]}"; fi
}

# An hour of measuring is not lost by a Ctrl-C.
# shellcheck disable=SC2317 # a trap calls it
stopped() { # stopped EXIT_CODE
    wipe
    echo "stopped; the rows so far:" >&2
    if [ "$json" = 1 ]; then cat "$rows" >&3; else print_rows >&3; fi
    exit "$1"
}

all() {
    local names
    names=$(chosen) || exit $?
    only='' # from here on it would choose models
    [ -z "$write" ] || needs_marks "$write"
    sizes=4K,256K,4M in_all=1
    peer_list=bare,openmpi,mpich,gloo
    exec 3>&1 # standard output, also while comparisons print nothing
    trap 'stopped 130' INT
    trap 'stopped 143' TERM
    # shellcheck disable=SC2086
    measure $names >/dev/null
    trap - INT TERM
    if [ "$json" = 1 ]; then
        cat "$rows"
    else
        echo "$(nproc) cpus, medians of $rounds alternating rounds; ratio: how many times as fast Verbena is"
        print_rows
    fi
    [ -z "$write" ] || write_table "$write"
    if [ ! -s "$rows" ]; then
        echo "nothing was compared: no peer was found" >&2
        exit 77
    fi
}
