#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds the Debian packages verbena, libverbena-dev and verbena-doc of the last commit.
#
#   scripts/package.sh [FOLDER]     default: build/packages
#
# The packages have the same bits each time, whatever the folder. If the folder has the packages of
# this commit already, nothing is built. FOLDER/build.log has what the build printed.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$tree/build/packages}

die() {
    echo "package.sh: $*" >&2
    exit 1
}

# ---- what to build: the commit and its time

# A tree that `git archive` made has both in a file. In any other tree the files are taken as they
# are, and their time is that of the newest of them.
read_commit() {
    commit='' epoch=${SOURCE_DATE_EPOCH:-}
    if [ -e "$tree/.git" ]; then
        read -r commit epoch < <(git -C "$tree" log -1 --format='%H %ct') ||
            die "$tree: git cannot read the commit; try: git -C $tree status"
        git -C "$tree" diff-index --quiet HEAD ||
            echo "package.sh: files have changed since the last commit; the packages are made from the commit" >&2
    elif [[ $(<"$tree/cmake/commit.txt") =~ ^([0-9a-f]{40})\ ([0-9]+)$ ]]; then
        commit=${BASH_REMATCH[1]} epoch=${BASH_REMATCH[2]}
    elif [ -z "$epoch" ]; then
        epoch=$(find "$tree" -name 'build*' -prune -o -type f -printf '%T@\n' | sort -n | tail -n 1)
    fi
    epoch=${epoch%.*}
    version=$(sed -n 's/^project(verbena VERSION \([0-9.]*\).*/\1/p' "$tree/CMakeLists.txt")
    [ -n "$version" ] || die "$tree/CMakeLists.txt: no line project(verbena VERSION ...)"
    version+=+git$(date -u -d "@$epoch" +%Y%m%d.%H%M%S)${commit:+.${commit:0:10}}
}

copy_tree() { # copy_tree FOLDER
    mkdir -p "$1"
    if [ -e "$tree/.git" ]; then
        git -C "$tree" archive HEAD | tar -x -C "$1"
    else
        tar -c -C "$tree" --exclude='./build*' --exclude=./.cache . | tar -x -C "$1"
    fi
    [ -d "$1/packaging/debian" ] || die "the commit has no packaging/debian: commit it first"
    cp -r "$1/packaging/debian" "$1/debian"
    cat >"$1/debian/changelog" <<END
verbena ($version) unstable; urgency=medium

  * Built from commit ${commit:-unknown}.

 -- Verbena authors <verbena@verbena.invalid>  $(LC_ALL=C date -u -R -d "@$epoch")
END
}

# ---- building

# Shows how far ninja is: on a terminal in one line, otherwise at every tenth.
show_progress() {
    local line n total tenth=0
    while IFS= read -r line; do
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        n=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
        if [ -t 2 ]; then
            printf '\r\033[Kpackage.sh: compiling, %d of %d' "$n" "$total" >&2
        elif [ $((n * 10 / total)) -gt $tenth ]; then
            tenth=$((n * 10 / total))
            echo "package.sh: compiling, $n of $total" >&2
        fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

build() { # build FOLDER
    local cores
    cores=$(nproc)
    export SOURCE_DATE_EPOCH=$epoch DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$cores"
    export LC_ALL=C.UTF-8 TZ=UTC
    umask 022
    cd "$1"
    dpkg-buildpackage -b -us -uc
}

for tool in dpkg-buildpackage dh chrpath; do
    command -v $tool >/dev/null || die "$tool is missing; install it: $tree/scripts/setup.sh package"
done
read_commit
mkdir -p "$out"
out=$(cd "$out" && pwd)
arch=$(dpkg --print-architecture)
debs=("verbena_${version}_$arch.deb" "libverbena-dev_${version}_$arch.deb" "verbena-doc_${version}_all.deb")
if [ -n "$commit" ] && (cd "$out" && ls "${debs[@]}" >/dev/null 2>&1); then
    echo "package.sh: $out has the packages of this commit"
else
    work=$(mktemp -d "$out/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    copy_tree "$work/verbena"
    echo "package.sh: building verbena $version; log: $out/build.log" >&2
    if ! (build "$work/verbena") 2>&1 | tee "$out/build.log" | show_progress; then
        grep -E 'rror|FAILED|unmet' "$out/build.log" | head -n 20 >&2 || true
        die "the build has failed; all that it printed is in $out/build.log"
    fi
    rm -f "$out"/*verbena*.deb
    (cd "$work" && mv "${debs[@]}" "$out")
fi
echo "packages:"
(cd "$out" && sha256sum "${debs[@]}")
echo "install: sudo apt install $out/verbena_${version}_$arch.deb"
