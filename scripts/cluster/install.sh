# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # variables of the sourcing script
#
# Brings the same program to all hosts: checks what they are, builds once, copies, installs packages where some are
# missing. What is there already is left as it is.

all_same='a job needs the same program on all hosts; leave one of the two out'
no_root='and this user may not install packages: its administrator can run scripts/setup.sh build there'
# A connection that is cut does not end what it has started on the host, so long commands have their deadline there, too.
check_s=30 copy_s=300 setup_s=1200 build_s=1800

# ---- what the hosts are ----------------------------------------------------------------------------

# The answer of a host: lines that begin with "vb ", because a login shell may print others. The folder comes as $1 and
# may be empty.
# shellcheck disable=SC2016 # for the shell of the host
facts_script='dir=$1; [ -n "$dir" ] || dir=$HOME/verbena
id=unknown; os=unknown
[ ! -r /etc/os-release ] || { . /etc/os-release; id=$ID-${VERSION_ID:-rolling}; os=$PRETTY_NAME; }
echo "vb kind $(uname -m) $id"
echo "vb os $os on $(uname -m)"
echo "vb dir $dir"
if [ "$(id -u)" = 0 ]; then echo "vb root yes"
elif sudo -n true 2>/dev/null; then echo "vb root sudo"
else echo "vb root no"; fi
[ ! -f "$dir/verbena" ] || echo "vb have $(sha256sum <"$dir/verbena" | cut -c 1-64)"
echo "vb end"'

# fact I NAME: prints what host I said about NAME
fact() { sed -n "s/^vb $2 //p" "$work/facts.$1" | head -n 1; }

local_kind() { sh -c "$facts_script" sh / | sed -n 's/^vb kind //p'; }

quote() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

check_host() {
    local i=$1 code=0
    say "$i" run "connecting"
    on "$i" $check_s "exec sh -s -- $(quote "$dir")" <<<"$facts_script" >"$work/facts.$i" || code=$?
    if [ $code != 0 ] || [ "$(tail -n 1 "$work/facts.$i")" != 'vb end' ]; then
        say "$i" failed "$(why "$i" $code $check_s)"
    else
        say "$i" run "is $(fact "$i" os)"
    fi
}

# same_kind: all hosts must be like the first one that answered, because all ranks of a job run the same program
same_kind() {
    local i first=''
    for i in $(good); do
        if [ -z "$first" ]; then
            first=$i kind=$(fact "$i" kind) dir=${dir:-$(fact "$i" dir)}
        elif [ "$(fact "$i" kind)" != "$kind" ]; then
            say "$i" failed "is $(fact "$i" os), but ${names[first]} is $(fact "$first" os): $all_same"
        fi
    done
}

# ---- the program -----------------------------------------------------------------------------------

tree_files() {
    { [ -e .git ] && git ls-files -z --cached --others --exclude-standard 2>/dev/null; } ||
        find . -type f -not -path './build*' -not -path './.cache/*' -not -path './runs/*' -print0
}

# pack_tree: packs the source tree into $work/tree.tar. The same files make the same bytes.
pack_tree() {
    tree_files | tar --null -T - --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/tree.tar" 2>/dev/null
    tree=$(sha256sum <"$work/tree.tar" | cut -c 1-64)
}

# The build of a host. $1 is the folder, $2 the digest of the tree.
# shellcheck disable=SC2016
build_script='cd "$1/source" || exit 1
if [ -x build/verbena ] && [ "$(cat build/tree 2>/dev/null)" = "$2" ]; then echo "vb built before"; exit 0; fi
scripts/setup.sh build </dev/null >&2 || exit 1
[ -f build/build.ninja ] || cmake --preset release -DVB_TESTS=OFF >build.log 2>&1 </dev/null || { tail -n 3 build.log >&2; exit 1; }
cmake --build --preset release --target verbena >build.log 2>&1 </dev/null || { grep -m 3 error build.log >&2; exit 1; }
echo "$2" >build/tree; echo "vb built now"'

# shellcheck disable=SC2016
unpack_line='mkdir -p "$1" && tar -x -C "$1" && echo "$2" >"$1/tree.id"'

# build_at I: builds on host I. The program is then in $work/verbena.
build_at() {
    local i=$1 code=0 had
    had=$(on "$i" $check_s "cat $(quote "$dir/source/tree.id")" </dev/null) || true
    if [ "$had" != "$tree" ]; then
        say "$i" run "copying the source tree"
        draw
        on "$i" $copy_s "exec sh -c $(quote "$unpack_line") sh $(quote "$dir/source") $tree" <"$work/tree.tar" || code=$?
    fi
    [ $code = 0 ] || { build_why=$(why "$i" $code $copy_s) && return 1; }
    say "$i" run "building (a few minutes, if it was not built before)"
    draw
    on "$i" $build_s "exec timeout $build_s bash -s -- $(quote "$dir") $tree" <<<"$build_script" >"$work/built.$i" || code=$?
    [ $code = 0 ] || { build_why=$(why "$i" $code $build_s) && return 1; }
    on "$i" $copy_s "cat $(quote "$dir/source/build/verbena")" </dev/null >"$work/verbena" || return 1
    chmod +x "$work/verbena"
    program=$work/verbena
    ! grep -q 'built before' "$work/built.$i" || note "the program was built before on ${names[i]}"
}

# build_here: builds on this machine
build_here() {
    local log=$work/build.log
    note "building on this machine"
    { timeout --foreground $setup_s scripts/setup.sh build && { [ -f build/build.ninja ] || timeout --foreground 300 cmake --preset release -DVB_TESTS=OFF; } &&
        timeout --foreground $build_s cmake --build --preset release --target verbena; } >"$log" 2>&1 </dev/null ||
        { build_why=$(grep -m 1 -i error "$log" || tail -n 1 "$log") && return 1; }
    program=$PWD/build/verbena
}

# find_program: sets program to a file that runs on the hosts: that of this machine if it is alike, or else one that a
# host builds. Returns 1 if there is none; build_why then says why.
find_program() {
    local i
    here=no build_why='no host can build'
    [ "$(local_kind)" != "$kind" ] || [ "$build_on" != auto ] || here=yes
    if [ $here = yes ]; then
        program=${VERBENA:-build/verbena}
        if [ -x "$program" ] && timeout 10 "$program" --version >/dev/null 2>&1; then
            program=$(realpath "$program")
            return
        fi
        build_here && return
        note "this machine cannot build: $build_why"
        here=no
    fi
    pack_tree
    for i in $(good); do
        [[ $build_on == auto || $build_on == "${names[i]}" ]] || continue
        if build_at "$i"; then
            say "$i" run "has built the program"
            return
        fi
        note "${names[i]}: cannot build: $build_why"
        build_why="${names[i]} cannot build: $build_why"
    done
    return 1
}

# ---- install ---------------------------------------------------------------------------------------

# The new file takes its name when it is complete: the folder may be shared, and the old program may run.
# shellcheck disable=SC2016
copy_line='mkdir -p "$1" && t=$(mktemp "$1/.new.XXXXXX") && { cat >"$t" && chmod 755 "$t" && mv "$t" "$1/verbena" || { rm -f "$t"; exit 1; }; }'

# copy_program I: copies the program, unless the host has it
copy_program() {
    local i=$1 code=0
    copied="the program was there"
    [ "$(fact "$i" have)" != "$digest" ] || return 0
    say "$i" run "copying the program"
    on "$i" $copy_s "exec sh -c $(quote "$copy_line") sh $(quote "$dir")" <"$program" || code=$?
    copied="the program was copied"
    [ $code = 0 ] || say "$i" failed "cannot write $dir/verbena: $(why "$i" $code $copy_s); --dir DIR names another folder"
    return $code
}

# add_packages I: installs what the program needs
add_packages() {
    local i=$1 code=0 missing
    missing=$(grep -o 'lib[^ :/]*\.so[.0-9]*' "$work/err.$i" | head -n 1)
    if [ "$(fact "$i" root)" = no ]; then
        say "$i" failed "${missing:-a library} is missing, $no_root"
        return 1
    fi
    say "$i" run "installing packages (${missing:-a library} is missing)"
    on "$i" $setup_s "exec timeout $setup_s bash -s build" <scripts/setup.sh >/dev/null || code=$?
    [ $code = 0 ] || say "$i" failed "packages cannot be installed: $(why "$i" $code $setup_s)"
    return $code
}

install_host() {
    local i=$1 code=0 copied
    copy_program "$i" || return 0
    if ! on "$i" $check_s "$(quote "$dir/verbena") --version" </dev/null >/dev/null; then
        if grep -q 'shared librar' "$work/err.$i"; then
            add_packages "$i" || return 0
        fi
        on "$i" $check_s "$(quote "$dir/verbena") --version" </dev/null >/dev/null || code=$?
    fi
    if [ $code != 0 ]; then
        say "$i" failed "cannot run $dir/verbena: $(why "$i" $code $check_s)"
    else
        say "$i" ok "$copied; $(fact "$i" os)$(cat "$work/remark.$i" 2>/dev/null)"
    fi
}
