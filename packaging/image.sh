#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds the container image "verbena" of the last commit with podman or buildah.
#
#   packaging/image.sh [SUITE]     the Debian release; default: trixie
#
# The base image is debian:SUITE-slim from docker.io. With VB_IMAGE_BASE=debootstrap, debootstrap
# makes it from the package archive instead (needs root), so that no registry is needed.
# VB_IMAGE_OPTIONS are further options of `podman build`.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
suite=${1:-trixie}
base=${VB_IMAGE_BASE:-docker.io/library/debian:$suite-slim}
read -ra options <<<"${VB_IMAGE_OPTIONS:-}"

die() {
    echo "image.sh: $*" >&2
    exit 1
}

tool=$(command -v podman || command -v buildah) || die "podman and buildah are missing: sudo apt install podman"
[ -e "$tree/.git" ] || die "$tree: not a git tree; build from a clone"
context=$(mktemp -d)
trap 'rm -rf --one-file-system "$context"' EXIT

# The commit as an archive: it knows its commit, and nothing else of this folder gets into the image.
mkdir "$context/tree"
git -C "$tree" archive HEAD | tar -x -C "$context/tree"

if [ "$base" = debootstrap ]; then
    command -v debootstrap >/dev/null || die "debootstrap is missing: sudo apt install debootstrap"
    echo "image.sh: debootstrap $suite" >&2
    debootstrap --variant=minbase "$suite" "$context/root" >"$context/log" 2>&1 ||
        die "debootstrap $suite has failed: $(tail -n 1 "$context/log")"
    rm -rf "$context/root"/var/{cache/apt,lib/apt/lists}/*
    base=localhost/debian:$suite-debootstrap
    echo "FROM scratch
COPY root /" >"$context/Base"
    printf 'tree\nlog\n' >"$context/.containerignore"
    "$tool" build "${options[@]}" -f "$context/Base" -t "$base" "$context" >&2
    rm -rf --one-file-system "$context/root" "$context/.containerignore"
fi
"$tool" build "${options[@]}" --build-arg "BASE=$base" -f "$context/tree/packaging/Containerfile" \
    -t verbena "$context/tree"
