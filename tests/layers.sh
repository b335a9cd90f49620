#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks which parts of the code use which other parts: layers.sh [BUILD [TREE]]
#
# A room is a folder of sources, for example net/coll. The table tests/rooms.txt lists which rooms a room may use. The
# test fails if an include does not follow the table, if a private header is included outside its room, or if a foreign
# library or a system call is used outside its home. With a build folder it also checks function calls. With TREE it
# checks that tree instead of this one; layers_fail.sh needs this.
rooms=$(cd "$(dirname "$0")" && pwd)/rooms.txt
build=${1:+$(cd "$1" && pwd)}
cd "${2:-.}" || exit 1
defects=$(mktemp) || exit 1
trap 'rm -f "$defects"' EXIT

folders='base topo net record kernels data models launch doctor engine bench cli lab'
existing=$(for folder in $folders; do [ -d "$folder" ] && echo "$folder"; done)
# shellcheck disable=SC2086 # must be split into folders
sources() { find $existing -name '*.[ch]'; }

# complain TEXT: if standard input has lines, records them as defects, with TEXT as the reason
complain() {
    found=$(cat)
    [ -z "$found" ] || printf '%s\n%s\n' "$found" "$1" >>"$defects"
}

# Reads lines "ROOM OTHER WHERE" and prints those that the table forbids. If OTHER is in another top-level folder, the
# table may name that whole folder instead of OTHER.
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

# Headers that a folder shows to all other folders: FOLDER/FOLDER.h and the headers of the folder that it includes
shown=$(for folder in $folders; do
    echo "$folder/$folder.h"
    [ ! -f "$folder/$folder.h" ] || sed -n 's/^#include "\('"$folder"'\/[^"]*\)".*/\1/p' "$folder/$folder.h"
done | tr '\n' ' ')

includes() { # prints a line "FILE HEADER" for each include
    sources | xargs grep -HE '^#include "[a-z_]+/' /dev/null | sed 's/^\([^:]*\):#include "\([^"]*\)".*/\1 \2/'
}

paths='function dir(path) { sub(/\/[^\/]*$/, "", path); return path }
       function top(path) { sub(/\/.*/, "", path); return path }
       BEGIN { n = split(list, word, " "); for (i = 1; i <= n; i++) shown[word[i]] = 1 }'

includes | awk "$paths"'$2 ~ /_priv\.h$/ && dir($1) != dir($2) { print $1 ": " $2 }' |
    complain 'a private header is for the files of its own folder'

# Exception: launch/ talks to other hosts before there is a group. For this it uses the sockets and proofs of
# net/control.
includes | awk -v list="$shown" "$paths"'
    top($1) != top($2) && !($2 in shown) && !(top($1) == "launch" && dir($2) == "net/control") { print $1 ": " $2 }' |
    complain 'other folders see only FOLDER/FOLDER.h and the headers that it gathers'

# A header that is shown to other folders contains only declarations. So all rooms of its own folder may include it. The
# check of symbols below covers their calls.
includes | awk -v list="$shown" "$paths"'
    ($2 in shown) && top($1) == top($2) { next }
    { print dir($1), ($2 in shown) ? top($2) : dir($2), $1 ":" $2 }' | forbidden |
    complain 'tests/rooms.txt forbids this include'

# ---- calls: a room uses a symbol that another room defines

if [ -n "$build" ]; then
    # BUILD/net/CMakeFiles/vb_net.dir/coll/cost.c.o is the object file of net/coll/cost.c. An older build may have left
    # object files of sources that do not exist any more.
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

home() { # home HEADER_PATTERN FILE_PATTERN: reports other files that include the header
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

# ---- system calls that only certain folders may use

calls() { # calls NAME_PATTERN FILE_PATTERN WHY: reports other files that call these functions
    sources | xargs grep -nE "(^|[^a-z_>.])($1) *\(" /dev/null | grep -vE "^($2):|:[0-9]+: *(/\*| \*)" | complain "$3"
}

calls '(secure_)?getenv' 'base/[a-z_]*\.c|launch/[a-z_]*\.c|lab/.*|bench/.*' \
    'the environment is read in base/ and, for launchers, in launch/'
calls 'v?fork|execv[pe]*|execl[pe]*|posix_spawnp?' \
    'launch/[a-z_/]*\.c|base/process\.c|topo/load_in_child\.c|lab/.*|bench/.*|cli/gnuplot\.c' \
    'processes are started in launch/'
calls 'kill|pidfd_send_signal' \
    'launch/[a-z_/]*\.c|base/process\.c|engine/ps/ps_replica\.c|lab/.*|bench/.*|cli/gnuplot\.c' \
    'processes are killed in launch/'

cat "$defects"
[ ! -s "$defects" ]
