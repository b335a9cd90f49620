# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Makes the file system of the nodes, which consists of two cpio archives, one after the other. The
# first archive, the base, is kept in the cache. The second archive contains the program of this
# run. Every file has the same path as on the host, and links stay links. lab/run sources this file.
: "${lab:?}" "${cache:?}"

# find_program NAME: prints the absolute path of a program
find_program() {
    local path
    path=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin type -P -- "$1") || return 1
    realpath -ms -- "$path"
}

# opened_by FILE: prints the libraries whose paths are in a program, which opens them when it runs
opened_by() {
    local file
    { grep -aoE '/usr/lib/[[:alnum:]_./+-]+\.so[.0-9]*' "$1" || true; } | sort -u | while IFS= read -r file; do
        [ ! -f "$file" ] || [ "$file" = "$1" ] || needed_by "$file"
    done
}

# needed_by FILE...: prints the paths of the files, their libraries and interpreters, separated by zeros
needed_by() {
    local file first words
    for file in "$@"; do
        printf '%s\0' "$file"
        IFS= read -r first < <(head -c 256 "$file" | tr -d '\0') || true
        if [[ $first == '#!'* ]]; then
            read -r -a words <<<"${first#\#!}"
            [ ! -f "${words[0]:-}" ] || needed_by "${words[0]}"
            if [[ ${words[0]:-} == */env ]] && first=$(find_program "${words[1]:-}"); then
                needed_by "$first"
            fi
        else
            { ldd "$file" 2>/dev/null || true; } |
                sed -nE 's,^\s*(.* => )?(/.*) \(0x[0-9a-f]+\)$,\2,p' | tr '\n' '\0'
            opened_by "$file"
        fi
    done
}

# in_tree: reads absolute paths and prints the paths to pack, relative to /: the given paths, the
# folders above them, and, for every link, the link and its target
in_tree() {
    local path at rest to
    local -A seen
    while IFS= read -r -d '' path; do
        at='' rest=${path#/}
        while [ -n "$rest" ]; do
            to=${rest%%/*}
            [[ $rest == */* ]] && rest=${rest#*/} || rest=''
            at=$at/$to
            [ -z "${seen[$at]:-}" ] || [ -n "$rest" ] || break
            [ -n "${seen[$at]:-}" ] || printf '%s\0' "${at#/}"
            seen[$at]=1
            if [ -L "$at" ]; then
                to=$(readlink "$at")
                [[ $to == /* ]] || to=${at%/*}/$to
                rest=$(realpath -ms "$to${rest:+/$rest}")
                rest=${rest#/} at=''
            fi
        done
    done
}

# pack: writes an archive of the files whose paths are on standard input
pack() {
    in_tree | (cd / && cpio -o -0 -H newc -R 0:0 --quiet)
}

# image_files: prints the paths of the host's files in the base, except kernel, busybox and agent
image_files() {
    local file files=()
    for file in ip rdma tc; do
        files+=("$(find_program $file)")
    done
    # Programs also load the RDMA provider, and the library that pthread_exit() needs. Files of
    # another architecture are skipped.
    for file in /usr/lib/{,*/}{libibverbs/librxe-*.so,libgcc_s.so.1}; do
        [ ! -f "$file" ] || ! ldd "$file" >/dev/null 2>&1 || files+=("$file")
    done
    needed_by "${files[@]}"
    printf '%s\0' /etc/libibverbs.d/rxe.driver
}

# image_skeleton FOLDER: puts the folders, the links, busybox and our own files into FOLDER
image_skeleton() {
    local name busybox
    mkdir -p "$1"/{dev,etc,proc,root,run,sys,tmp,var/tmp} "$1"/usr/{bin,sbin,lib/lab}
    chmod 1777 "$1/tmp" "$1/var/tmp"
    for name in bin sbin lib lib32 lib64; do
        [ ! -L /$name ] || { ln -s usr/$name "$1/$name" && mkdir -p "$1/usr/$name"; }
        [ -L /$name ] || [ ! -d /$name ] || mkdir -p "$1/$name"
    done
    busybox=$(find_program busybox)
    cp "$busybox" "$1/bin/busybox"
    for name in $("$busybox" --list); do
        [ -e "$1/bin/$name" ] || ln -s busybox "$1/bin/$name"
    done
    cp "$lab/init" "$1/init"
    cp "$tools/agent" "$1/usr/lib/lab/agent"
    cp -r "${kernel:?}/modules" "$1/usr/lib/lab/modules"
    echo "root:x:0:0:root:/root:/bin/sh" >"$1/etc/passwd"
    echo "root:x:0:" >"$1/etc/group"
    echo "hosts: files" >"$1/etc/nsswitch.conf"
}

# image_base: sets $base to the archive in the cache; makes the archive if it is missing
image_base() {
    local key new
    key=$({
        image_files | tr '\0' '\n' | xargs -d '\n' stat -L -c '%n %s %Y'
        stat -L -c '%n %s %Y' "$(find_program busybox)"
        echo "$tools" "$(stat -c '%n %Y' "$kernel")"
        cat "$lab/init" "$lab/image.sh"
    } | sha256sum | cut -c1-16)
    base=$cache/base-$key.cpio
    if [ -f "$base" ]; then
        touch "$base"
        return
    fi
    new=$(mktemp -d "$cache/new.XXXXXX")
    trash+=("$new")
    image_skeleton "$new/tree"
    (cd "$new/tree" && find . -mindepth 1 -print0 | LC_ALL=C sort -z |
        cpio -o -0 -H newc -R 0:0 --quiet) >"$new/base"
    { image_files; needed_by "$tools/agent" | grep -zvF "$tools/"; } | pack >>"$new/base"
    mv "$new/base" "$base"
    rm -rf "$new"
    find "$cache" -maxdepth 1 \( -name 'base-*' -o -name 'tools-*' \) -mtime +30 \
        -exec rm -rf {} +
}

# tools_get: sets $tools to the folder of cluster and agent in the cache; compiles them if missing
tools_get() {
    local new cc=${CC:-cc}
    local -a flags=(-std=c11 -D_GNU_SOURCE -O2 -I "$lab/..")
    tools=$cache/tools-$(cat "$lab"/*.c "$lab"/*.h | sha256sum | cut -c1-16)
    if [ -d "$tools" ]; then
        touch "$tools"
        return
    fi
    new=$(mktemp -d "$cache/new.XXXXXX")
    trash+=("$new")
    if ! "$cc" "${flags[@]}" -o "$new/agent" "$lab"/{agent,queue,setup}.c -lutil ||
        ! "$cc" "${flags[@]}" -o "$new/cluster" \
            "$lab"/{cluster,job,node,options,output,queue,switch}.c; then
        die "$cc cannot compile the lab's own programs"
    fi
    mv "$new" "$tools"
}
