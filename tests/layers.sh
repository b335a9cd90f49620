#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Who may know whom: an include that points upwards, or a foreign library outside its home, fails.
# With a folder as argument it checks that tree instead: how the test of this test calls it.
cd "${1:-.}" || exit 1
bad=0

only() { # only FOLDER FOLDERS_IT_MAY_KNOW...
    [ -d "$1" ] || return 0
    allowed=$(echo "$@" | tr ' ' '|')
    if grep -rnE '#include "[a-z]+/' --include='*.[ch]' "$1" | grep -vE "\"($allowed)/"; then
        echo "$1/ may know only: $*"
        bad=1
    fi
}

home() { # home HEADER_PATTERN FILE_PATTERN: the header is included nowhere else
    if grep -rnE "#include <$1>" --include='*.[ch]' \
        base topo net kernels data models engine cli bench 2>/dev/null | grep -vE "^$2:"; then
        echo "<$1> belongs in $2"
        bad=1
    fi
}

# One public header a folder: others include no other header of it.
public() {
    for folder in base topo net kernels data models engine bench; do
        [ -d "$folder" ] || continue
        if grep -rnE "#include \"$folder/" --include='*.[ch]' \
            base topo net kernels data models engine cli bench 2>/dev/null |
            grep -vE "^$folder/|\"$folder/$folder\.h\""; then
            echo "of $folder/ only $folder/$folder.h is public"
            bad=1
        fi
    done
}

only base
only topo base
only net base topo
only kernels base topo
only data base
only models base kernels
only engine base topo net kernels data models
only bench base topo net kernels data models engine
only cli base topo net kernels data models engine bench
only lab base

home 'hwloc.*' 'topo/[a-z_]*\.[ch]'
home '(infiniband|rdma)/.*' '(net/verbs[a-z_]*\.[ch]|tests/test_verbs\.c)'
home 'sodium.*' 'net/auth\.c'
home 'pmix.*' 'net/pmix\.c'
home 'dnnl.*' 'kernels/onednn[a-z_0-9]*\.c'
home 'cblas.*' 'kernels/blas\.c'
home 'zlib.*' 'data/gzip\.c'
home 'mpi\.h' 'bench/peers/mpi\.c'
home 'jansson.*' 'base/json\.c'
public

# The environment is read in base/ and by the file that reads launchers' variables.
if grep -rnE '\b(secure_)?getenv *\(' --include='*.[ch]' \
    topo net kernels data models engine cli 2>/dev/null | grep -vE '^net/launch[a-z_]*\.c:'; then
    echo "getenv belongs in base/"
    bad=1
fi
exit $bad
