#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Installs packages, builds and runs the tests.
#
#   scripts/test.sh             takes under 5 minutes; a change must pass it before review
#   scripts/test.sh --full      takes under 30 minutes; also runs sanitizers, the lab, fuzzers and static checks
#   scripts/test.sh --nightly   takes hours; also tests other distributions and compilers, and runs fuzzers for long
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
"") tier="test" ;;
--full) tier=full ;;
--nightly) tier=nightly ;;
*)
    echo "test.sh: $1: must be --full, --nightly or nothing" >&2
    exit 2
    ;;
esac

scripts/setup.sh "$tier"

# configured FOLDER SETTING...: returns true if the build folder was configured with these settings
configured() {
    local folder=$1 setting
    shift
    [ -f "$folder/build.ninja" ] || return 1
    for setting in "$@"; do
        setting=${setting#-D}
        grep -qE "^${setting%%=*}:[A-Z]+=${setting#*=}\$" "$folder/CMakeCache.txt" || return 1
    done
}

# build_with PRESET FOLDER SETTING...: builds the folder; before that, configures it if it was not
# configured with these settings
build_with() {
    local preset=$1 folder=$2
    shift 2
    configured "$folder" "$@" || cmake --preset "$preset" "$@"
    cmake --build --preset "$preset"
}

# run_tests PRESET FOLDER ARGUMENT...: runs the tests. On a shared machine others may take the CPUs for seconds, so a
# few failed tests run a second time, one after the other, and are named as unsteady if they pass then.
run_tests() {
    local preset=$1 failed=$2/Testing/Temporary/LastTestsFailed.log
    shift 2
    rm -f "$failed"
    ctest --preset "$preset" -j "$(nproc)" "$@" && return
    [ -f "$failed" ] && [ "$(wc -l <"$failed")" -le 3 ] || return 1
    cp "$failed" "$failed.first"
    echo "== second try of the failed tests"
    ctest --preset "$preset" --rerun-failed || return 1
    echo "unsteady tests, which passed at the second try: $(tr '\n' ' ' <"$failed.first")"
}

# in_preset PRESET FOLDER [SETTING...]: builds the preset in the folder and runs all of its tests
in_preset() {
    echo
    echo "== $1"
    build_with "$@"
    run_tests "$1" "$2" "${less[@]}"
}

if [ "$tier" = test ]; then
    build_with release build -DVB_TESTS=ON
    run_tests release build -LE slow
    exit
fi

[ "$tier" != nightly ] || timeout 120 cloudlab/venv.sh .cache/geni >/dev/null 2>&1 ||
    echo "geni-lib cannot be installed: the test of the CloudLab profile is skipped"
less=()
[ "$tier" != full ] || less=(-LE nightly)
in_preset release build -DVB_TESTS=ON -DVB_WERROR=ON
in_preset asan build-asan
in_preset tsan build-tsan
if [ "$tier" = full ]; then
    # A failure must come from the change, not from a random input of a fuzzer. So the fuzzers use a
    # fixed seed.
    in_preset fuzz build-fuzz -DVB_FUZZ_SECONDS=2 -DVB_FUZZ_SEED=1
    exit
fi

in_preset debug build-debug
tests/check.sh tidy build all || [ $? = 77 ]
scripts/distributions.sh
tests/engine/train_sync.sh build/verbena mnist alexnet5 || [ $? = 77 ]
tests/engine/ps/train_async.sh build/verbena mnist || [ $? = 77 ]
tests/lab/lab_nightly.sh || [ $? = 77 ]
tests/lab/lab_verbs.sh build all || [ $? = 77 ]
tests/lab/lab_verbs.sh build-asan sanitized || [ $? = 77 ]
tests/lab/lab_verbs.sh build-tsan sanitized || [ $? = 77 ]
tests/lab/lab_doctor.sh build/verbena || [ $? = 77 ]
in_preset fuzz build-fuzz -DVB_FUZZ_SECONDS=600 -DVB_FUZZ_SEED=0
