#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds the Debian packages twice, in different folders, from the commit and from an archive of it, and checks them:
# the same bits, lintian, which files are in which package, and that the program runs on the oldest CPU of the
# architecture: packages.sh
set -euo pipefail
for tool in dpkg-buildpackage dh chrpath lintian; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing (scripts/setup.sh nightly)"; exit 77; }
done
[ -e .git ] || { echo "skipped: this tree has no commit"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}

# ---- the same bits

one=$dir/one
other=$dir/another/longer/path
mkdir -p "$other/tree"
git archive HEAD | tar -x -C "$other/tree"
scripts/package.sh "$one"
(cd / && umask 077 && TZ=Asia/Tokyo "$other/tree/scripts/package.sh" "$other/out")
debs=("$one"/*.deb)
[ ${#debs[@]} = 3 ] || fail "not three packages: ${debs[*]}"
for deb in "${debs[@]}"; do
    cmp "$deb" "$other/out/${deb##*/}" || fail "${deb##*/}: two builds differ"
done
before=$(stat -c '%n %Y %i' "${debs[@]}")
out=$(scripts/package.sh "$one")
[[ $out == *"has the packages of this commit"* && $(stat -c '%n %Y %i' "${debs[@]}") = "$before" ]] ||
    fail "a second call builds again"

# ---- policy

hints=$(lintian -E -I --allow-root "${debs[@]}")
[ -z "$hints" ] || fail "lintian: $hints"

# ---- contents: PACKAGE REGEX: all files of the package match, and each part of the regex matches a file

root=$dir/root
contents() {
    local files part
    files=$(dpkg-deb -c "$one/$1"_*.deb | awk '!/^d/ { sub(/^\./, "", $6); print $6 }')
    shift
    for part in "$@"; do
        grep -qE "^($part)\$" <<<"$files" || fail "no file $part"
        files=$(grep -vE "^($part)\$" <<<"$files" || true)
    done
    [ -z "$files" ] || fail "unexpected files: $files"
}
share=/usr/share
contents verbena /usr/bin/verbena "$share/man/man1/verbena(-[a-z]+)?\.1\.gz" \
    "$share/bash-completion/completions/verbena" "$share/zsh/vendor-completions/_verbena" \
    "$share/doc/verbena/(changelog\.gz|copyright)"
contents libverbena-dev "/usr/include/verbena/[a-z/_]+\.h" "/usr/lib/[^/]+/libvb_[a-z]+\.a" \
    "/usr/lib/[^/]+/pkgconfig/verbena.pc" "$share/doc/libverbena-dev/(changelog\.gz|copyright|examples/[a-z_]+\.c)"
contents verbena-doc "$share/doc/verbena/([A-Z]+\.md|docs/[a-zA-Z0-9/_-]+\.(md|svg|1))" \
    "$share/doc/verbena/examples/[a-zA-Z0-9_.-]+" "$share/doc/verbena-doc/(changelog\.gz|copyright)"
for deb in "${debs[@]}"; do
    dpkg-deb -x "$deb" "$root"
    if dpkg-deb --ctrl-tarfile "$deb" | tar -t | grep -vxE './|./(control|md5sums)'; then
        fail "${deb##*/}: has scripts that run at installation"
    fi
done
[ -z "$(find "$root" -name '*_priv.h')" ] || fail "private headers are in a package"
for command in $("$root/usr/bin/verbena" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    [ -s "$root$share/man/man1/verbena-$command.1.gz" ] || fail "no man page of $command"
done
if grep -aqF -e "$dir" -e "$PWD" "$root/usr/bin/verbena" "$root"/usr/lib/*/*.a; then
    fail "the path of the build folder is in a file"
fi
if grep -aqF ./topo/apply.c "$root/usr/bin/verbena"; then
    fail "log lines have ./topo instead of topo"
fi
commit=$(git rev-parse HEAD)
[[ $("$root/usr/bin/verbena" --version --json) == *"\"commit\":\"$commit\""* ]] || fail "--version --json: not $commit"

# ---- the baseline of instructions: only sources that ask the CPU at run time have options for CPUs

for_cpu=$(grep -E -- '-m(arch|cpu|tune)=|-m(avx|fma|bmi)' "$one/build.log" |
    grep -vE '_v[34]\.dir/|/vb_base\.dir/crc32c\.c\.o ' | grep -- ' -c ' || true)
[ -z "$for_cpu" ] || fail "a source is compiled for a certain CPU: $for_cpu"
case $(uname -m) in
aarch64) oldest=(qemu-aarch64 -cpu cortex-a53) ;;
x86_64) oldest=(qemu-x86_64 -cpu qemu64) ;;
*) oldest=() ;;
esac
if [ ${#oldest[@]} -gt 0 ] && command -v "${oldest[0]}" >/dev/null; then
    timeout 300 "${oldest[@]}" "$root/usr/bin/verbena" train softmax --steps 20 --data synth:2000 --json |
        tail -n 1 | jq -e '.params_sha256' || fail "does not run on ${oldest[*]}"
else
    echo "not checked: no emulator of an old CPU (package qemu-user)"
fi
echo "packages: $(du -ch "${debs[@]}" | tail -n 1 | cut -f 1) in all, lintian clean, same bits twice"
