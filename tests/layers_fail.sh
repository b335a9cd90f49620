#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks that layers.sh can fail. Each line makes a tree with one defect, which layers.sh must report.
tests=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
bad=0

must_fail() { # must_fail WHAT [BUILD]: fails unless layers.sh reports a defect in the tree
    if "$tests/layers.sh" "${2:-}" "$tree" >"$tree/out"; then
        echo "not found: $1"
        bad=1
    fi
    rm -rf "${tree:?}"/*
}

defect() { # defect FILE LINE: writes the line to the file; layers.sh must report it
    mkdir -p "$tree/$(dirname "$1")"
    echo "$2" >"$tree/$1"
    must_fail "$2 in $1"
}

object() { # object ROOM/FILE.c TEXT: compiles TEXT to an object file in the build folder
    folder=${1%%/*}
    to=$tree/build/$folder/CMakeFiles/vb_$folder.dir/${1#*/}.o
    mkdir -p "$(dirname "$to")"
    echo "$2" | "${CC:-cc}" -x c -c - -o "$to" || exit 1
}

forbidden_call() { # forbidden_call CALLER CALLED: layers.sh must report a call from room CALLER to room CALLED
    object "$1/caller.c" 'void called(void); void caller(void); void caller(void) { called(); }'
    object "$2/called.c" 'void called(void); void called(void) {}'
    must_fail "a call from $1 to $2" "$tree/build"
}

# Folders: an include of a folder that is above in the order of layers
defect base/log.c '#include "topo/topo.h"'
defect topo/plan.c '#include "net/net.h"'
defect net/tcp/tcp.c '#include "models/models.h"'
defect models/lenet.c '#include "net/net.h"'
defect doctor/facts.c '#include "engine/engine.h"'
defect launch/supervise/supervise.c '#include "engine/engine.h"'
defect net/group/group.c '#include "launch/launch.h"'

# Rooms: an include of a private header of another room, or of a header of a room that the table does not allow
defect net/coll/coll_run.c '#include "net/verbs/verbs_priv.h"'
defect net/coll/coll_run.c '#include "net/verbs/verbs_hello.h"'
defect net/coll/coll_run.c '#include "net/control/control.h"'
defect net/tcp/tcp.c '#include "net/group/group_inside.h"'
defect cli/cmd_topo.c '#include "topo/topo_priv.h"'
defect bench/transfer.c '#include "net/group/group_inside.h"'
defect engine/train/train.c '#include "net/control/sock.h"'

# Calls: the caller does not need to include a header of the other room
forbidden_call net/coll net/verbs
forbidden_call net/coll net/control
forbidden_call net/sparse net/control
forbidden_call net/control net/group
forbidden_call net/verbs net/group
forbidden_call net/group launch
forbidden_call kernels/layer kernels/choice
forbidden_call engine/ps engine/train
forbidden_call engine/train engine/async
forbidden_call doctor engine/train
forbidden_call models net/group

# Libraries and system calls outside their homes
defect kernels/layer/conv.c '#include <hwloc.h>'
defect net/tcp/tcp.c '#include <infiniband/verbs.h>'
defect launch/launch_find.c '#include <pmix.h>'
defect engine/train/sync.c '#include <dnnl.h>'
defect kernels/own/gemm.c '#include <cblas.h>'
defect net/control/conn.c '#include <sodium.h>'
defect data/idx.c '#include <zlib.h>'
defect cli/cmd_topo.c '#include <jansson.h>'
defect net/tcp/tcp.c '    x = getenv("HOME");'
defect engine/train/train.c '    pid = fork();'
defect cli/cmd_data.c '    execvp(name, argv);'
defect net/control/control.c '    kill(pid, SIGKILL);'

# Without a defect layers.sh passes. This tree has an allowed call and allowed includes.
mkdir -p "$tree/net/coll"
echo '#include "net/group/group_inside.h"' >"$tree/net/coll/coll_run.c"
object net/coll/caller.c 'void called(void); void caller(void); void caller(void) { called(); }'
object net/group/called.c 'void called(void); void called(void) {}'
"$tests/layers.sh" "$tree/build" "$tree" || bad=1
exit $bad
