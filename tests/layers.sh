#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Who may know whom (tests/rooms.txt): layers.sh [BUILD [TREE]]
#
# Fails on an include or, with a build folder, on a function call that the table does not allow, on a
# private header used outside its room, on a foreign library or a system call outside its home.
# TREE is checked instead of this one; the test of this test uses that.
rooms=$(cd "$(dirname "$0")" && pwd)/rooms.txt
build=${1:+$(cd "$1" && pwd)}
cd "${2:-.}" || exit 1
defects=$(mktemp) || exit 1
trap 'rm -f "$defects"' EXIT

folders='base topo net kernels data models launch doctor engine bench cli lab'
existing=$(for folder in $folders; do [ -d "$folder" ] && echo "$folder"; done)
# shellcheck disable=SC2086 # one word a folder
sources() { find $existing -name '*.[ch]'; }

# complain TEXT: the lines on standard input, if there are any, are defects
complain() {
    found=$(cat)
    [ -z "$found" ] || printf '%s\n%s\n' "$found" "$1" >>"$defects"
}

# Reads "ROOM OTHER WHERE" lines and prints those that the table forbids. Of another top-level folder
# the table may name the folder as a whole.
forbidden() {
    awk -v table="$rooms" '
        BEGIN {
            while ((getline line < table) > 0) {
                sub(/#.*/, "", line)
                n = split(line, word, /[: ]+/)
                for (i = 2; i <= n; i++)
                    may[word[1], word[i]] = 1
                known[word[1]] = 1
            }
        }
        function top(room) { sub(/\/.*/, "", room); return room }
        $1 == $2 || ($1, $2) in may { next }
        top($1) != top($2) && ($1, top($2)) in may { next }
        { print $3 ": " $1 " may not know " $2 (($1 in known) ? "" : " (tests/rooms.txt does not list it)") }'
}

# ---- includes

# Headers that a folder shows to all others: FOLDER/FOLDER.h and what it gathers
shown=$(for folder in $folders; do
    echo "$folder/$folder.h"
    [ ! -f "$folder/$folder.h" ] || sed -n 's/^#include "\('"$folder"'\/[^"]*\)".*/\1/p' "$folder/$folder.h"
done | tr '\n' ' ')

includes() { # FILE HEADER, a line each
    sources | xargs grep -HE '^#include "[a-z_]+/' /dev/null | sed 's/^\([^:]*\):#include "\([^"]*\)".*/\1 \2/'
}

paths='function dir(path) { sub(/\/[^\/]*$/, "", path); return path }
       function top(path) { sub(/\/.*/, "", path); return path }
       BEGIN { n = split(list, word, " "); for (i = 1; i <= n; i++) shown[word[i]] = 1 }'

includes | awk "$paths"'$2 ~ /_priv\.h$/ && dir($1) != dir($2) { print $1 ": " $2 }' |
    complain 'a private header is for the files of its own folder'

# launch/ speaks to other hosts before there is a group, with the sockets and proofs of net/control.
includes | awk -v list="$shown" "$paths"'
    top($1) != top($2) && !($2 in shown) && !(top($1) == "launch" && dir($2) == "net/control") { print $1 ": " $2 }' |
    complain 'other folders see only FOLDER/FOLDER.h and the headers that it gathers'

# A header that is shown only declares. Rooms of its own folder may include it; what they call is
# checked by the symbols below.
includes | awk -v list="$shown" "$paths"'
    ($2 in shown) && top($1) == top($2) { next }
    { print dir($1), ($2 in shown) ? top($2) : dir($2), $1 ":" $2 }' | forbidden |
    complain 'tests/rooms.txt forbids this include'

# ---- calls: which room uses a symbol that another room defines

if [ -n "$build" ]; then
    # BUILD/net/CMakeFiles/vb_net.dir/coll/cost.c.o is the object of net/coll/cost.c. Objects of sources
    # that are gone may be left from an older build.
    find "$build" -name '*.c.o' -path '*/vb_*.dir/*' | sort | while read -r object; do
        file=$(echo "${object#"$build/"}" | sed 's,CMakeFiles/[^/]*\.dir/,,; s,\.o$,,')
        [ -n "${2:-}" ] || [ -f "$file" ] || continue
        nm -g "$object" | sed "s,^,$file ,"
    done | awk '
        { file = room = $1; sub(/\/[^\/]*$/, "", room) }
        $(NF - 1) == "U" { n++; user[n] = room; name[n] = $NF; where[n] = file; next }
        { if (($NF in home) && home[$NF] != room) home[$NF] = "several"; else home[$NF] = room }
        END {
            for (i = 1; i <= n; i++)
                if ((name[i] in home) && home[name[i]] != "several")
                    print user[i], home[name[i]], where[i] ":" name[i]
        }' | forbidden | complain 'tests/rooms.txt forbids this call'
fi

# ---- foreign libraries

home() { # home HEADER_PATTERN FILE_PATTERN: no other file includes the header
    sources | xargs grep -nE "#include <$1>" /dev/null | grep -vE "^$2:" | complain "<$1> belongs in $2"
}

home 'hwloc.*' 'topo/[a-z_]*\.[ch]'
home '(infiniband|rdma)/.*' '(net/verbs/[a-z_]*\.[ch]|net/probe/verbs_probe\.c)'
home 'sodium.*' 'net/control/auth\.c'
home 'pmix.*' 'launch/pmix\.c'
home 'dnnl.*' 'kernels/onednn/[a-z_0-9]*\.c'
home 'cblas.*' 'kernels/blas/blas\.c'
home 'zlib.*' 'data/gzip\.c'
home 'mpi\.h' 'bench/peers/mpi\.c'
home 'jansson.*' 'base/json\.c'

# ---- system calls that one folder alone makes

calls() { # calls NAME_PATTERN FILE_PATTERN WHY
    sources | xargs grep -nE "(^|[^a-z_>.])($1) *\(" /dev/null | grep -vE "^($2):|:[0-9]+: *(/\*| \*)" | complain "$3"
}

calls '(secure_)?getenv' 'base/[a-z_]*\.c|launch/[a-z_]*\.c|lab/.*|bench/.*' \
    'the environment is read in base/ and, for launchers, in launch/'
calls 'v?fork|execv[pe]*|execl[pe]*|posix_spawnp?' \
    'launch/[a-z_]*\.c|topo/load_in_child\.c|lab/.*|bench/.*|cli/bench/bench_step_plot\.c' \
    'processes are started in launch/'
calls 'kill|pidfd_send_signal' \
    'launch/[a-z_]*\.c|engine/ps/ps_replica\.c|lab/.*|bench/.*|cli/bench/bench_step_plot\.c' \
    'processes are killed in launch/'

cat "$defects"
[ ! -s "$defects" ]
