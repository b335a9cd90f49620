#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds and tests the committed tree on other distributions, with gcc and with clang. Then builds
# the packages there, and installs and uses them in a system without compilers. Needs root.
#
#   scripts/distributions.sh [--packages | --readme] [SUITE...]     default: bookworm trixie jammy noble
#
# With --packages, only the packages are built and used. With --readme, the commands of the README's section "Two
# commands" are run in a bare system, one after the other, and their times are printed.
# debootstrap installs each into .cache/roots, without the packages that Verbena needs, and every run
# uses a copy. A suite that cannot be downloaded is skipped, with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

parts=all
case ${1:-} in
--packages | --readme)
    parts=${1#--}
    shift
    ;;
esac
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie jammy noble)
cache=$PWD/.cache/roots
mkdir -p "$cache"
[ "$(id -u)" = 0 ] || { echo "distributions.sh: needs root for chroot" >&2; exit 1; }

root=
trap '[ -z "$root" ] || rm -rf --one-file-system "$root"' EXIT
trap 'exit 1' INT TERM # so that the trap above runs, too

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

# make_root SUITE: makes a copy of the suite in $root, with the tree in it
make_root() {
    root=$(mktemp -d "$cache/run.XXXXXX")
    cp -a "$cache/$1/." "$root"
    chmod 755 "$root" # a user without root must get in
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    [ -e /etc/hosts ] && cp -L /etc/hosts "$root/etc/hosts"
    mkdir "$root/verbena"
    git archive HEAD | tar -x -C "$root/verbena"
}

remove_root() {
    rm -rf --one-file-system "$root"
    root=
}

build_and_test() {
    inside './scripts/demo.sh' && inside './scripts/test.sh' &&
        inside 'apt-get -qq install -y --no-install-recommends clang libomp-dev >/dev/null
                CC=clang cmake --preset release -B build-clang
                cmake --build build-clang
                ctest --test-dir build-clang --output-on-failure -LE slow'
}

# Packages of this suite end in $cache/SUITE.packages.
build_packages() {
    inside 'export DEBIAN_FRONTEND=noninteractive
            ./scripts/setup.sh package >/packages.log 2>&1 || { tail /packages.log; exit 1; }
            ./scripts/package.sh /packages
            apt-get -qq install -y --no-install-recommends lintian >/packages.log 2>&1
            lintian -E -I --allow-root --fail-on error,warning,info,experimental /packages/*.deb
            echo "lintian -E -I: clean"' || return 1
    rm -rf "$cache/$1.packages"
    cp -r "$root/packages" "$cache/$1.packages"
}

use_packages() {
    cp -r "$cache/$1.packages" "$root/packages"
    inside 'export DEBIAN_FRONTEND=noninteractive
            apt-get -qq update
            apt-get -qq install -y --no-install-recommends /packages/*.deb man-db bsdextrautils \
                bash-completion zsh gcc libc6-dev pkg-config >/install.log 2>&1 ||
                { tail /install.log; exit 1; }
            useradd --create-home --shell /bin/bash newcomer
            cp tests/packages_use.sh /tmp
            timeout 900 su - newcomer -c /tmp/packages_use.sh
            apt-get -qq remove -y verbena libverbena-dev verbena-doc >/install.log 2>&1
            ! find /usr /etc /var/lib -name "*verbena*" -not -path "/var/lib/dpkg/*" | grep .'
}

# packages SUITE: both, each in a root of its own
packages() {
    make_root "$1" && build_packages "$1" && remove_root && make_root "$1" && use_packages "$1"
}

# readme SUITE: what a new user types who has nothing but the README. Lines with DIR need data that is not there, top
# needs a terminal.
readme() {
    local line begun=$SECONDS start
    make_root "$1"
    while IFS= read -r line; do
        start=$SECONDS
        inside "${line%%#*}" >"$root/out" 2>&1 </dev/null || {
            tail -n 20 "$root/out"
            return 1
        }
        echo "$((SECONDS - start)) s: ${line%%  *}: $(tail -n 1 "$root/out")"
    done < <(sed -n '/^## Two commands/,/^## Several/p' README.md | grep -E '^(\./scripts/|build/verbena )' |
        grep -vE 'DIR|verbena top')
    echo "$1: $((SECONDS - begun)) s in all"
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
    ok=yes
    if [ "$parts" = all ]; then
        make_root "$suite"
        build_and_test || ok=
        remove_root
    fi
    if [ "$parts" = readme ]; then
        readme "$suite" || ok=
    else
        packages "$suite" || ok=
    fi
    [ -z "$root" ] || remove_root
    [ -n "$ok" ] || failed+=("$suite")
done

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed on: ${failed[*]}" >&2
    exit 1
fi
