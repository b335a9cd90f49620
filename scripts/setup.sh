#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Installs missing packages. Prints nothing if none is missing.
#
#   scripts/setup.sh [build | package | test | full | nightly]
#
# build: the packages that the build needs; package: also those of scripts/package.sh; test (the
# default), full, nightly: also those of scripts/test.sh, of its --full and of its --nightly.
set -euo pipefail

build=(gcc libc6-dev cmake ninja-build pkg-config
       libibverbs-dev librdmacm-dev libhwloc-dev libdnnl-dev libopenblas-dev libjansson-dev
       libsodium-dev libpmix-dev zlib1g-dev)
package=(build-essential chrpath debhelper dpkg-dev)
test=(libcmocka-dev jq python3)
# a|b: the first of these packages that the distribution has
full=(git clang libomp-dev 'libclang-rt-dev|libclang-rt-14-dev|libclang-common-14-dev'
      clang-format clang-tidy cppcheck shellcheck mandoc gnuplot-nox zsh
      busybox-static cpio iproute2 xz-utils zstd perftest rdmacm-utils ibverbs-utils
      ibverbs-providers)
case $(uname -m) in
aarch64) full+=(qemu-system-arm) ;;
x86_64) full+=(qemu-system-x86) ;;
esac
nightly=(debootstrap lintian openmpi-bin libopenmpi-dev slurm-wlm munge)

case "${1:-test}" in
build) wanted=("${build[@]}") ;;
package) wanted=("${build[@]}" "${package[@]}") ;;
test) wanted=("${build[@]}" "${test[@]}") ;;
full) wanted=("${build[@]}" "${test[@]}" "${full[@]}") ;;
nightly) wanted=("${build[@]}" "${test[@]}" "${package[@]}" "${full[@]}" "${nightly[@]}") ;;
*)
    echo "setup.sh: $1: must be build, package, test, full or nightly" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null; then
    # The build itself checks for every library. So this script only prints the names of the
    # packages, and only if a library is missing.
    if ! pkg-config --exists libibverbs librdmacm 'hwloc >= 2.1' openblas jansson libsodium pmix zlib 2>/dev/null; then
        echo "setup.sh: this system has no apt-get. Verbena needs what Debian calls:" >&2
        echo "  ${wanted[*]}" >&2
        exit 1
    fi
    exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Abbrev}${binary:Package}\n' 2>/dev/null |
    sed -n 's/^ii *\([^:]*\).*/\1/p')

have() { # true if any of the names in a|b is installed
    grep -qxE -- "$1" <<<"$installed"
}

missing=()
for names in "${wanted[@]}"; do
    have "$names" || missing+=("$names")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup.sh: these packages are missing, and there is no sudo to install them:" >&2
        echo "  ${missing[*]}" >&2
        exit 1
    fi
    sudo=(sudo)
fi

echo "setup.sh: installing ${missing[*]} (and what they need; this takes a minute or more)" >&2

# apt_get COMMAND...: runs apt-get. What it says fills screens, so it is only shown if apt-get fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1 </dev/null && return
    cat "$log" >&2
    exit 1
}
apt_get update

to_install=()
for names in "${missing[@]}"; do
    found=
    for name in ${names//|/ }; do
        if [ -n "$(apt-cache --quiet=2 madison "$name" 2>/dev/null)" ]; then
            found=$name
            break
        fi
    done
    if [ -z "$found" ]; then
        cat "$log" >&2 # apt-get update does not fail if it cannot reach the package archive
        echo "setup.sh: apt knows no package ${names//|/ or }: $([ -s "$log" ] && echo "see apt-get update above" ||
            echo "this distribution does not have it")" >&2
        exit 1
    fi
    to_install+=("$found")
done

# No kernel package is ever installed: the lab only unpacks one.
apt_get install -y --no-install-recommends "${to_install[@]}"
