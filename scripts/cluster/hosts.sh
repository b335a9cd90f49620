# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # work is a variable of the sourcing script
#
# Hosts that are reached over ssh: their list, commands on them with a deadline, their state, and progress.
#
# A host is known by its index in names[]. Its state is in the file $work/state.I, so that the processes that work on the
# hosts in parallel can tell it: "run", "ok" or "failed", a tab, and a text for people.

names=() # as ssh knows them
slots=() # ranks on each, empty for one
drawn=0

# add_host TEXT: adds name, name:RANKS or user@name
add_host() {
    local name=${1%%:*} n=''
    [[ $1 != *:* ]] || n=${1##*:}
    if [[ ! $name =~ ^([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*$ || ! $n =~ ^[0-9]*$ ]]; then
        code=2 die "\"$1\" is not a host: type HOST, USER@HOST or HOST:RANKS"
    fi
    [[ " ${names[*]-} " != *" $name "* ]] || code=2 die "host $name is listed twice"
    names+=("$name") slots+=("$n")
}

# read_hosts LIST|FILE: fills names and slots. The syntax is that of verbena's --hosts.
read_hosts() {
    local line name rest text
    if [[ $1 == */* || ($1 != *,* && -f $1) ]]; then
        [ -r "$1" ] || code=2 die "cannot read the file of hosts $1"
        while read -r line || [ -n "$line" ]; do
            line=${line%%#*}
            read -r name rest <<<"${line%$'\r'}" || true
            [ -n "$name" ] || continue
            [ -z "$rest" ] || name=$name:${rest#slots=}
            add_host "$name"
        done <"$1"
    else
        IFS=, read -ra text <<<"$1"
        for name in "${text[@]}"; do
            add_host "$name"
        done
    fi
    [ ${#names[@]} -gt 0 ] || code=2 die "$1 names no host"
}

# ---- state -----------------------------------------------------------------------------------------

# say I STATE TEXT: sets the state of host I. Without a terminal, it is also a line of output.
say() {
    printf '%s\t%s\n' "$2" "$3" >"$work/state.$1.new" && mv "$work/state.$1.new" "$work/state.$1"
    [ "$terminal" = yes ] || printf '%s: %s%s\n' "${names[$1]}" "$([ "$2" != failed ] || echo 'FAILED: ')" "$3"
}

state_of() { cut -f 1 "$work/state.$1"; }
text_of() { cut -f 2- "$work/state.$1"; }
failed() { [ "$(state_of "$1")" = failed ]; }

# good: prints the indices of the hosts that have not failed
good() {
    local i
    for i in "${!names[@]}"; do
        failed "$i" || echo "$i"
    done
}

# draw: on a terminal, shows the state of each host, one line each, over the lines of the last call
draw() {
    local i
    [ "$terminal" = yes ] || return 0
    [ "$drawn" = 0 ] || printf '\033[%dA' "$drawn"
    for i in "${!names[@]}"; do
        printf '\r\033[K%-20s %-7s %.*s\n' "${names[i]}" "$(state_of "$i")" "$((${COLUMNS:-80} - 30))" "$(text_of "$i")"
    done
    drawn=${#names[@]}
}

# note TEXT: a line of output that is not about one host. The next draw() begins below it.
note() {
    echo "$1"
    drawn=0
}

# on_good FUNCTION: runs FUNCTION I for each host that has not failed, all at once. Each must end by itself, because all
# that it does on the host has a deadline.
on_good() {
    local i pid pids=()
    for i in $(good); do
        "$1" "$i" &
        pids+=($!)
    done
    while [ "$terminal" = yes ] && [ -n "$(jobs -pr)" ]; do
        draw
        sleep 0.2
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || true # the state of the host says what happened
    done
    draw
}

# ---- commands on a host ----------------------------------------------------------------------------

# on I SECONDS COMMAND...: runs a command on host I with a deadline; standard input is that of the caller. The messages of
# ssh and of the command are in $work/err.I. The login shell of the host may be any, so COMMAND is one line that all shells
# understand: words in single quotes.
on() {
    local i=$1 limit=$2
    shift 2
    # shellcheck disable=SC2086 # the ssh command is several words
    timeout --foreground -k 5 "$limit" $ssh "${names[i]}" "$*" 2>"$work/err.$i" 8>&- 9>&- # a connection that stays must not keep the lock
}

# why I CODE SECONDS: says why the last command on host I failed, and what to type
why() {
    local host=${names[$1]} err
    err=$(grep -v '^Warning: Permanently added' "$work/err.$1" | grep . | tail -n 1 | tr -d '\r\033' | cut -c 1-300)
    if [ "$2" = 124 ] || [ "$2" = 137 ]; then
        echo "no end within $3 s${err:+: $err}"
    elif [[ $err == *'Permission denied ('* ]]; then
        echo "ssh would ask for a password ($err): type ssh-copy-id $host"
    elif [[ $err == *'Host key verification failed'* ]]; then
        echo "its host key is unknown or has changed: type ssh $host, and compare the key"
    elif [[ $err == *'Could not resolve hostname'* ]]; then
        echo "no address is known for this name: type getent hosts $host"
    elif [ "$2" = 255 ]; then
        echo "cannot be reached: ${err:-ssh ended without a message}"
    else
        echo "${err:-exit code $2}"
    fi
}
