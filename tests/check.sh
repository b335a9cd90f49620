#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Runs one kind of static check: check.sh format | tidy BUILD [all] | cppcheck BUILD | shell
#
# The findings of a checker depend on its version. These checks need the versions of Debian 12 and are skipped with
# other versions. Otherwise they would fail on a newer distribution because of findings that no developer has seen.
set -euo pipefail

need() { # need VERSION_PATTERN COMMAND
    if ! command -v "$2" >/dev/null; then
        echo "skipped: $2 is not installed (scripts/setup.sh full)"
        exit 77
    fi
    if ! "$2" --version | grep -q "$1"; then
        echo "skipped: $2 is another version than $1: $("$2" --version | grep -m1 version)"
        exit 77
    fi
}

sources() {
    find base topo net record launch kernels doctor data models engine bench cli lab tests examples -name '*.[ch]' | sort
}

case $1 in
format)
    need 'version 14\.' clang-format
    sources | xargs clang-format --dry-run -Werror
    ;;
tidy)
    need 'version 14\.' clang-tidy
    # The analyzer takes most of the time, so only the nightly tests run it.
    checks=--checks='-clang-analyzer-*'
    [ "${3:-}" != all ] || checks=--checks=
    find base topo net record launch kernels doctor data models engine bench cli lab tests -name '*.c' -not -path 'tests/fuzz/*' \
        -not -path bench/peers/mpi.c | sort |
        xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$2" "$checks" 2>&1 |
        grep -vE '^[0-9]+ warnings? (generated|treated)' || [ "${PIPESTATUS[2]}" = 0 ]
    ;;
cppcheck)
    need 'Cppcheck 2\.10' cppcheck
    cppcheck --project="$2/compile_commands.json" -j "$(nproc)" --quiet --error-exitcode=1 \
        --enable=warning,performance,portability --inline-suppr --std=c11 \
        --suppress=missingIncludeSystem
    ;;
shell)
    need 'version: 0' shellcheck
    # shellcheck disable=SC2046
    shellcheck -x .ci/run bench/compare bench/link bench/record_cost bench/noise_cost bench/recovery bench/peers/run lab/run lab/shell lab/mpirun lab/mpi_node lab/init \
        examples/train.sbatch $(find scripts tests lab bench cloudlab packaging -name '*.sh')
    if ! command -v mandoc >/dev/null; then
        echo "skipped: mandoc is not installed (scripts/setup.sh full)"
        exit 77
    fi
    mandoc -T lint -W warning docs/verbena.1
    ;;
esac
