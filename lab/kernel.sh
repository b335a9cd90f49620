# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Gets the kernel of the nodes. It is downloaded as a package and unpacked into the cache, but never
# installed. apt runs with its own folders and with the host's package sources, in which the host's
# suite is replaced. So apt needs no root, uses the host's mirrors, proxies and keys, and changes
# nothing on the host. lab/run sources this file.
: "${cache:?}" # set by lab/run

# The modules that nodes load. A module is skipped if it is built into the kernel or no longer exists;
# only rdma_rxe is required. Nodes load the last two groups only if they need them.
modules_base="virtio_pci virtio_net virtio_console crc32_generic crc32c_generic ib_uverbs rdma_rxe
    rdma_ucm"
modules_share="9p 9pnet_virtio"
modules_netem="sch_netem"
kernel_format=2 # to be increased when the way of unpacking changes; all kernels are then unpacked again

# apt_private FOLDER SUITE: writes a configuration of apt for the suite to FOLDER
apt_private() {
    local host file n=0
    # shellcheck source=/dev/null
    host=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mkdir -p "$1/sources" "$1/state/lists/partial" "$1/cache/archives/partial" "$1/debs"
    : >"$1/status"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        n=$((n + 1))
        sed -n "s/\\b$host\\b/$2/g; /^deb /p" "$file" >"$1/sources/$n.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        n=$((n + 1))
        sed "/^Suites:/s/\\b$host\\b/$2/g; s/^Types:.*/Types: deb/" "$file" >"$1/sources/$n.sources"
    done
    # The configuration removes hooks that would clean the host's caches.
    cat >"$1/apt.conf" <<END
#clear APT::Update;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
Dir::State "$1/state";
Dir::State::status "$1/status";
Dir::Cache "$1/cache";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$1/sources";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
END
    [ "$(id -u)" != 0 ] || echo 'APT::Sandbox::User "root";' >>"$1/apt.conf"
}

# kernel_download FOLDER SUITE: downloads the packages of the suite's newest kernel to FOLDER/debs
kernel_download() {
    local folder=$1 meta image version name arch
    command -v apt-get >/dev/null ||
        lacking "this host has no apt-get to fetch a kernel with: give one with --kernel FILE.deb"
    arch=$(dpkg --print-architecture)
    say "fetching the kernel of $2 (once: it is kept in $cache)"
    apt_private "$folder" "$2"
    # A package source that cannot be reached, such as a vendor's, is harmless.
    apt-get -qq -c "$folder/apt.conf" update >"$folder/log" 2>&1 || true
    for meta in "linux-image-$arch" linux-image-generic; do
        image=$(apt-cache -c "$folder/apt.conf" depends "$meta" 2>/dev/null |
            grep -m1 -oE 'linux-image-(unsigned-)?[0-9][^ <>]*' || true)
        [ -z "$image" ] || break
    done
    if [ -z "$image" ]; then
        [ ! -s "$folder/log" ] || tail -n 5 "$folder/log" >&2
        lacking "no kernel package for $2 ($arch) is to be had with this host's apt sources"
    fi
    version=${image#linux-image-}
    version=${version#unsigned-}
    for name in "$image" "linux-modules-$version" "linux-modules-extra-$version"; do
        apt-cache -c "$folder/apt.conf" show "$name" >/dev/null 2>&1 || continue
        (cd "$folder/debs" && apt-get -qq -c "$folder/apt.conf" download "$name" \
            >"$folder/log" 2>&1) || {
            tail -n 5 "$folder/log" >&2
            lacking "the package $name cannot be fetched"
        }
    done
}

# number FILE AT BYTES: prints the unsigned number of BYTES bytes at offset AT of the file
number() { od -An -v -t"u$3" -j"$2" -N"$3" "$1" | tr -d ' '; }

# unpack_part FILE AT SIZE: unpacks the SIZE bytes at offset AT of the file to standard output
unpack_part() {
    local tool
    case $(od -An -tx1 -j"$2" -N4 "$1" | tr -d ' ') in
    1f8b*) tool="gzip -dcq" ;;
    fd377a58) tool="xz -dcq --single-stream" ;;
    28b52ffd) tool="zstd -dcq" ;;
    *) return 1 ;;
    esac
    # The unpacked size follows the data. Some tools report these extra bytes as an error.
    tail -c +$(($2 + 1)) "$1" | head -c "$3" | $tool 2>/dev/null || true
}

# kernel_image FROM TO: unpacks a kernel, because unpacking itself is slow on an emulated CPU: on arm64
# Image.gz and EFI zboot files ("zimg"), on amd64 a bzImage that has the PVH entry point. It copies
# any other file.
kernel_image() {
    local from=$1 to=$2 at
    if [ "$(od -An -tx1 -N2 "$from" | tr -d ' ')" = 1f8b ]; then
        gzip -dc "$from" >"$to"
    elif [ "$(tail -c +5 "$from" | head -c 4 | tr -d '\0')" = zimg ]; then
        unpack_part "$from" "$(number "$from" 8 4)" "$(number "$from" 12 4)" >"$to"
    elif [ "$(tail -c +515 "$from" | head -c 4 | tr -d '\0')" = HdrS ] &&
        grep -qs '^CONFIG_PVH=y' "${from%/*}"/config-*; then
        at=$((($(number "$from" 497 1) + 1) * 512 + $(number "$from" 584 4)))
        unpack_part "$from" "$at" "$(number "$from" 588 4)" >"$to" || true
        [ "$(head -c 4 "$to" | od -An -tx1 | tr -d ' ')" = 7f454c46 ] || cp "$from" "$to"
    else
        cp "$from" "$to"
    fi
}

# module_unpack FILE: writes the uncompressed module to standard output
module_unpack() {
    case $1 in
    *.xz) xz -dc "$1" ;;
    *.zst) zstd -qdc "$1" ;;
    *.gz) gzip -dc "$1" ;;
    *) cat "$1" ;;
    esac
}

# module_add GROUP NAME: adds the module NAME, and all modules that it needs, to the folder
# $modules_to, and appends their names to the file GROUP there, in the order of loading. Removes their
# signatures and type information, which make loading slow, unless the kernel requires signatures.
module_add() {
    local name=$2 needs
    [ -z "${module_seen[$name]:-}" ] || return 0
    module_seen[$name]=1
    [ -n "${module_file[$name]:-}" ] || return 0
    module_unpack "${module_file[$name]}" >"$modules_to/$name.ko"
    [ -n "$kernel_strict" ] || objcopy -R .BTF "$modules_to/$name.ko" ||
        die "$modules_to/$name.ko: objcopy cannot read it"
    needs=$(tr '\0' '\n' <"$modules_to/$name.ko" | LC_ALL=C sed -n 's/^depends=//p')
    for needs in ${needs//,/ }; do
        module_add "$1" "${needs//-/_}"
    done
    echo "$name.ko" >>"$modules_to/$1"
}

# kernel_unpack FOLDER DEB...: makes FOLDER/vmlinuz and FOLDER/modules/ from the packages
kernel_unpack() {
    local folder=$1 deb file name
    local -A module_file module_seen
    modules_to=$folder/modules
    shift
    mkdir -p "$folder/root" "$modules_to"
    for deb in "$@"; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$folder/root" --exclude='*/drivers/gpu/*' \
            --exclude='*/drivers/media/*' --exclude='*/drivers/net/ethernet/*' \
            --exclude='*/drivers/net/wireless/*' --exclude='*/sound/*' ||
            die "cannot unpack $deb"
    done
    file=$(find "$folder/root/boot" -name 'vmlinu[xz]-*' 2>/dev/null | head -n 1)
    [ -n "$file" ] || die "$*: contains no kernel"
    kernel_image "$file" "$folder/vmlinuz"
    [ -s "$folder/vmlinuz" ] || die "$*: cannot unpack its kernel: unknown compression"
    while IFS= read -r file; do
        name=${file##*/}
        name=${name%%.ko*}
        module_file[${name//-/_}]=$file
    done < <(find "$folder/root" -name '*.ko' -o -name '*.ko.*')
    [ -n "${module_file[rdma_rxe]:-}" ] || die "$*: has no module rdma_rxe (soft-RoCE)"
    kernel_strict=$(grep -hs '^CONFIG_MODULE_SIG_FORCE=y' "$folder"/root/boot/config-* || true)
    for name in $modules_base; do module_add base "$name"; done
    for name in $modules_share; do module_add share "$name"; done
    for name in $modules_netem; do module_add netem "$name"; done
    rm -rf "$folder/root"
}

# kernel_get NAME: sets $kernel to the folder of the kernel in the cache; makes it if it is missing.
# NAME is a suite, a .deb file, or empty for the host's suite.
kernel_get() {
    local name=$1 new
    if [ -f "$name" ]; then
        kernel=$cache/kernel$kernel_format-$(sha256sum <"$name" | cut -c1-16)
    else
        case $name in
        */* | *.deb) die "$name: no such file" ;;
        *[!a-z0-9.-]*) die "--kernel $name: must be a suite, such as trixie, or a .deb" ;;
        esac
        # shellcheck source=/dev/null
        [ -n "$name" ] || name=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
        [ -n "$name" ] || lacking "this host does not name its suite: give a kernel with --kernel"
        kernel=$cache/kernel$kernel_format-$name-$(uname -m)
    fi
    [ ! -d "$kernel" ] || return 0
    new=$(mktemp -d "$cache/new.XXXXXX")
    trash+=("$new")
    if [ -f "$name" ]; then
        kernel_unpack "$new" "$name"
    else
        kernel_download "$new/apt" "$name"
        kernel_unpack "$new" "$new"/apt/debs/*.deb
        rm -rf "$new/apt"
    fi
    mv "$new" "$kernel"
}
