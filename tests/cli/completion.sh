#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Checks what bash and zsh complete, in both shells, and the man pages that commands print: completion.sh VERBENA
#
# Covers: cli/help/cmd_completion.c help.c help_bash.c help_zsh.c help_man.c
set -uo pipefail
verbena=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # the search for leaks takes seconds
bad=0
fail() {
    echo "FAIL: $*"
    bad=1
}

commands=$("$verbena" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || fail "no commands in --help"
"$verbena" completion bash >"$dir/bash" || fail "completion bash"
"$verbena" completion zsh >"$dir/_verbena" || fail "completion zsh"
[[ $("$verbena" completion 2>&1) == *"bash or zsh"* ]] || fail "completion without a shell"
"$verbena" completion fish 2>/dev/null && fail "completion fish must be refused"
mkdir "$dir/here" "$dir/here/folder" && touch "$dir/here/file.csr" && cd "$dir/here" || exit 1
case $verbena in /*) ;; *) verbena=$OLDPWD/$verbena ;; esac

# ---- bash: the function is called as bash calls it

# shellcheck disable=SC1091
source "$dir/bash"
# offers LINE-OF-WORDS: prints what bash offers for the last word; _ is an empty word
offers() {
    read -ra COMP_WORDS <<<"$1"
    COMP_WORDS=("${COMP_WORDS[@]/#_/}")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _verbena
    echo "${COMPREPLY[*]}"
}
expect() { # expect LINE WORDS
    local got
    got=$(offers "$1")
    [ "$got" = "$2" ] || fail "bash: $1: offers '$got', expected '$2'"
}
for command in $commands; do
    [[ " $(offers 'verbena _') " == *" $command "* ]] || fail "bash: $command is not offered"
    expected=$("$verbena" "$command" --help-all | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | sort)
    [ "$(offers "verbena $command --" | tr ' ' '\n' | sort)" = "$expected" ] ||
        fail "bash: the options of $command are not those of --help-all"
done
expect 'verbena to' 'top topo'
expect 'verbena help trai' 'train'
expect 'verbena --version _' '--json'
expect 'verbena train len' 'lenet'
expect 'verbena train --json len' 'lenet'
expect 'verbena train --steps 5 len' 'lenet'
expect 'verbena train --transport _' 'auto shm tcp verbs'
expect 'verbena train --transport = v' 'verbs'
expect 'verbena train --transport =' 'auto shm tcp verbs'
expect 'verbena train lenet --mode a' 'async'
expect 'verbena train lenet --tran' '--transport'
expect 'verbena train lenet --run _' 'folder'
expect 'verbena train lenet --steps _' ''
expect 'verbena train lenet --data csr : fi' 'file.csr'
expect 'verbena train --data csr : file.csr len' ''
expect 'verbena bench st' 'step'
expect 'verbena bench step --model len' 'lenet'
expect 'verbena data info fi' 'file.csr'
expect 'verbena report fo' 'folder'
expect 'verbena ctl fo' 'folder'
expect 'verbena ctl folder re' 'remove'
expect 'verbena ctl --json folder _' 'checkpoint stop remove add'
expect 'verbena completion _' 'bash zsh'
expect 'verbena nonsense --' ''

# ---- zsh: in a terminal of its own; the widget writes what it would insert to a file

in_zsh() {
    cat >"$dir/zsh_test" <<'ZSH'
zmodload zsh/zpty || exit 77
dir=$1
zpty -b z zsh -f -i
say() { zpty -w z "$1" }
say "PS1=; cd $dir/here; fpath=($dir \$fpath); autoload -Uz compinit; compinit -u -D"
say "show() { print -r -- \"<\$BUFFER>\" >>$dir/out; BUFFER= }; zle -N show; bindkey '^X' show"
say "LISTMAX=10000; setopt no_list_ambiguous; print ready >$dir/ready"
for i in {1..1500}; do [[ -s $dir/ready ]] && break; sleep 0.02; done
n=0
while read -r line; do
    zpty -w -n z "${line%_}"$'\t\x18'
    ((n++))
    for i in {1..1500}; do
        while zpty -r -t z text 2>/dev/null; do :; done # a full terminal would stop the shell
        [[ -s $dir/out && $(wc -l <$dir/out) -ge $n ]] && break
        sleep 0.02
    done
done
zpty -d z
ZSH
    timeout 100 zsh -f "$dir/zsh_test" "$dir"
}
if command -v zsh >/dev/null; then
    zsh -n "$dir/_verbena" || fail "zsh: syntax"
    lines=('verbena swee=verbena sweep ' 'verbena train len=verbena train lenet '
           'verbena train lenet --transport ver=verbena train lenet --transport verbs '
           'verbena train lenet --mod=verbena train lenet --mode='
           'verbena train lenet --json --transport=t=verbena train lenet --json --transport=tcp '
           'verbena train lenet --run f=verbena train lenet --run folder/'
           'verbena bench step --model len=verbena bench step --model lenet '
           'verbena data inf=verbena data info ' 'verbena help trai=verbena help train '
           'verbena eval fi=verbena eval file.csr ' 'verbena ctl folder rem=verbena ctl folder remove ')
    # the expected line follows "=verbena"
    printf '%s\n' "${lines[@]%%=verbena*}" | in_zsh || fail "zsh: exit code $?"
    printf '<verbena%s>\n' "${lines[@]##*=verbena}" | diff - "$dir/out" || fail "zsh: other offers, see above"
    for command in $commands; do
        grep -q "^ *($command)\$" "$dir/_verbena" || fail "zsh: $command is missing"
    done
else
    echo "zsh is not installed (scripts/setup.sh full): only bash is checked"
fi

# ---- man pages: every option that --help-all lists, and nothing that mandoc finds wrong

for command in $commands; do
    page=$dir/verbena-$command.1
    "$verbena" "$command" --help-man >"$page" || fail "$command --help-man"
    [ "$(sed -n 's/^\.It Fl -\([a-z0-9-]*\).*/--\1/p' "$page")" = "$("$verbena" "$command" --help-all |
        sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | grep -v '^--help')" ] || fail "$page: other options than --help-all"
    command -v mandoc >/dev/null || continue
    # The page refers to verbena(1), which need not be installed.
    lint=$(mandoc -T lint "$page" 2>/dev/null | grep -v 'Xr verbena 1')
    [ -z "$lint" ] || fail "$lint"
done
[ $bad = 0 ] && echo "completion and man pages of ${commands//$'\n'/ }"
exit $bad
