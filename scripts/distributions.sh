#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds and tests the committed tree on other distributions, with gcc and with clang. Needs root.
#
#   scripts/distributions.sh [SUITE...]     default: bookworm trixie jammy noble
#
# debootstrap installs each into .cache/roots, without the packages that Verbena needs, and every run
# uses a copy. A suite that cannot be downloaded is skipped, with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie jammy noble)
cache=$PWD/.cache/roots
mkdir -p "$cache"
[ "$(id -u)" = 0 ] || { echo "distributions.sh: needs root for chroot" >&2; exit 1; }

root=
trap '[ -z "$root" ] || rm -rf --one-file-system "$root"' EXIT

# fetch SUITE: installs the suite into the cache, unless it is there already
fetch() {
    [ -d "$cache/$1" ] && return
    rm -rf "$cache/$1.new"
    debootstrap --variant=minbase "$1" "$cache/$1.new" >"$cache/$1.log" 2>&1 || return 1
    mv "$cache/$1.new" "$cache/$1"
}

# inside COMMAND: runs a command in the new root. /proc, /sys and /dev are mounted only while the
# command runs.
inside() {
    # shellcheck disable=SC2016
    unshare --mount --fork bash -euc '
        mount -t proc proc "$1/proc"
        mount --rbind /sys "$1/sys"
        mount --rbind /dev "$1/dev"
        exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            LC_ALL=C.UTF-8 bash -euc "cd /verbena; $2"' - "$root" "$1"
}

failed=()
for suite in "${suites[@]}"; do
    echo
    echo "== $suite"
    if ! fetch "$suite"; then
        echo "skipped: $suite cannot be fetched: $(grep -m1 '^[EW]:' "$cache/$suite.log" ||
            tail -n1 "$cache/$suite.log")"
        continue
    fi
    root=$(mktemp -d "$cache/run.XXXXXX")
    cp -a "$cache/$suite/." "$root"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    [ -e /etc/hosts ] && cp -L /etc/hosts "$root/etc/hosts"
    mkdir "$root/verbena"
    git archive HEAD | tar -x -C "$root/verbena"
    if ! { inside './scripts/demo.sh' && inside './scripts/test.sh' &&
        inside 'apt-get -qq install -y --no-install-recommends clang libomp-dev >/dev/null
                CC=clang cmake --preset release -B build-clang
                cmake --build build-clang
                ctest --test-dir build-clang --output-on-failure -LE slow'; }; then
        failed+=("$suite")
    fi
    rm -rf --one-file-system "$root"
    root=
done

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed on: ${failed[*]}" >&2
    exit 1
fi
