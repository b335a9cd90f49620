#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks that only the two tables of models contain names of models as strings. Other code must read the row of a model
# to know what the model does. With a folder as argument, the test checks that tree. Without an argument, it first
# checks that it can find a defect.
tests=$(cd "$(dirname "$0")" && pwd)
if [ $# = 0 ]; then
    tree=$(mktemp -d) || exit 1
    trap 'rm -rf "$tree"' EXIT
    mkdir "$tree/engine" "$tree/cli"
    echo '    {"lenet", "LeNet-5",' >"$tree/engine/train_models.c"
    "$tests/model_names.sh" "$tree" || exit 1
    echo 'if (strcmp(o->model, "lenet") == 0)' >"$tree/cli/train.c"
    if "$tests/model_names.sh" "$tree" >/dev/null; then
        echo "not found: a comparison with a name"
        exit 1
    fi
    exec "$tests/model_names.sh" "$tests/.."
fi
cd "$1" || exit 1
names=$(find engine models \( -name train_models.c -o -name tables.c \) -exec cat {} + 2>/dev/null | sed -n \
    -e 's/^    {"\([a-z0-9-]*\)", ".*/\1/p' -e 's/^    {"\([a-z0-9-]*\)", VB_COUNT(.*/\1/p' | sort -u | paste -sd '|')
if [ -z "$names" ]; then
    echo "the table of models was not found"
    exit 1
fi
if grep -rnE "\"($names)\"" --include='*.[ch]' base topo net kernels data models engine launch doctor bench cli 2>/dev/null |
    grep -vE '/(train_models|tables)\.c:'; then
    echo "only engine/*train_models.c and models/tables.c may name a model: add a field to struct vb_train_model"
    exit 1
fi
