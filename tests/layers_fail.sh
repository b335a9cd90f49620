#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Is layers.sh able to fail? Each line is a tree with one defect that it must find.
tests=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
bad=0

defect() { # defect FILE LINE
    mkdir -p "$tree/$(dirname "$1")"
    echo "$2" >"$tree/$1"
    if "$tests/layers.sh" "$tree" >/dev/null; then
        echo "not found: $2 in $1"
        bad=1
    fi
    rm "$tree/$1"
}

defect base/log.c '#include "topo/topo.h"'
defect topo/plan.c '#include "net/net.h"'
defect net/tcp.c '#include "models/models.h"'
defect models/lenet.c '#include "net/net.h"'
defect kernels/conv.c '#include <hwloc.h>'
defect net/tcp.c '#include <infiniband/verbs.h>'
defect net/launch_find.c '#include <pmix.h>'
defect engine/sync.c '#include <dnnl.h>'
defect cli/topo.c '#include <jansson.h>'
defect cli/topo.c '#include "topo/topo_priv.h"'
defect net/tcp.c 'x = getenv("HOME");'
"$tests/layers.sh" "$tree" || bad=1
exit $bad
