# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# The list of experiments, and runs of the program. All that a run leaves is in $out/runs/NAME.

ids=() full_s=() quick_s=() texts=() failed=()

need_command() { # need_command COMMAND PACKAGE
    command -v "$1" >/dev/null || die "the command $1 is missing: run apt-get install $2"
}

# experiment ID SECONDS SECONDS_QUICK TEXT: adds an experiment. run_ID, with _ for -, runs it.
experiment() {
    [ ${#only[@]} = 0 ] || [[ " ${only[*]} " == *" $1 "* ]] || return 0
    ids+=("$1") full_s+=("$2") quick_s+=("$3") texts+=("$4")
}

cost_of() { if [ "$quick" = yes ]; then echo "${quick_s[$1]}"; else echo "${full_s[$1]}"; fi; }

# choose FULL QUICK: prints one of the two
choose() { if [ "$quick" = yes ]; then echo "$2"; else echo "$1"; fi; }

minutes() { awk -v s="$1" 'BEGIN { if (s < 90) printf "%d s", s; else printf "%.0f min", s / 60 }'; }

list_experiments() {
    local i sum=0
    printf '%-14s %6s  %s\n' experiment 'est. s' what
    for i in "${!ids[@]}"; do
        printf '%-14s %6s  %s\n' "${ids[i]}" "$(cost_of "$i")" "${texts[i]}"
        sum=$((sum + $(cost_of "$i")))
    done
    echo "${#ids[@]} experiments, about $(minutes $sum) on two idle cores"
}

# ---- the folder of results

# The runs of a folder belong together: other options need another folder.
open_out() {
    local now="quick=$quick data=${data:-none}"
    [ -n "$out" ] || out=$(choose reproduction reproduction-quick)
    [ ! -e "$out" ] || [ -d "$out" ] || die "--out $out: is not a folder"
    if [ -f "$out/options" ]; then
        [ "$(cat "$out/options")" = "$now" ] ||
            die "--out $out has runs with other options ($(head -c 200 "$out/options")); name another folder"
    elif [ -d "$out" ] && [ -n "$(ls -A "$out")" ]; then
        die "--out $out: the folder is not empty, and has no runs of this script; name another one"
    fi
    mkdir -p "$out"/{runs,logs,pages,reproduction} || die "cannot write to $out"
    out=$(realpath "$out")
    printf '%s\n' "$now" >"$out/options" || die "cannot write to $out"
    exec 9>"$out/.lock"
    flock -n 9 || die "--out $out: another reproduce.sh is at work there"
}

# Decides how nodes are connected: network namespaces with links of a limited rate, or loopback.
find_network() {
    local why
    namespaces=yes
    if [ "$(id -u)" != 0 ]; then
        namespaces='without root'
    elif ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
        namespaces='without the commands ip and tc (apt-get install iproute2)'
    elif ! why=$(timeout 60 "$verbena" train softmax --data synth:n=200,test=10 --steps 2 --ranks 2 --link 1g 2>&1); then
        namespaces="without links: $(tail -n 1 <<<"$why" | cut -c 1-200)"
    fi
    [ "$namespaces" = yes ] || echo "nodes are connected by loopback TCP of unlimited rate, $namespaces" >&2
}

# shellcheck disable=SC2034 # the studies use link
# over RATE: sets link to the options of train for nodes that are connected by links of this rate
over() {
    link=(--link "$1")
    [ "$namespaces" = yes ] || link=(--transport tcp)
}

# ---- runs

# note_failure NAME LOG: says why a run failed
note_failure() {
    echo "  $1 failed: $(grep -v '^\[rank [0-9]*\] transport' "$2" | tail -n 1 | cut -c 1-300); see $2" >&2
    return 1
}

# train NAME LIMIT_S OPTIONS...: trains with --run, unless the same run is complete
train() {
    local name=$1 limit=$2 run=$out/runs/$1
    shift 2
    if [ -f "$run.done" ] && [ "$(cat "$run.done")" = "$*" ]; then
        return 0
    fi
    rm -rf "$run" "$run.done"
    timeout --foreground -k 20 "$limit" "$verbena" train "$@" --run "$run" --json >"$run.json" 2>"$run.log" ||
        { note_failure "$name" "$run.log"; return 1; }
    printf '%s\n' "$*" >"$run.done"
}

# sweep NAME LIMIT_S OPTIONS...: the same for verbena sweep, which goes on with what is not complete
sweep() {
    local name=$1 limit=$2 dir=$out/runs/$1 resume=()
    shift 2
    if [ -f "$dir.done" ] && [ "$(cat "$dir.done")" = "$*" ]; then
        return 0
    fi
    if [ -f "$dir/sweep.json" ] && [ "$(cat "$dir.options" 2>/dev/null)" = "$*" ]; then
        resume=(--resume)
    else
        rm -rf "$dir" "$dir.done"
        printf '%s\n' "$*" >"$dir.options"
    fi
    timeout --foreground -k 20 "$limit" "$verbena" sweep "$@" --out "$dir" "${resume[@]}" --json >"$dir.jsonl" 2>"$dir.log" ||
        { note_failure "$name" "$dir.log"; return 1; }
    printf '%s\n' "$*" >"$dir.done"
}

# keep NAME LIMIT_S COMMAND...: keeps the output of a command in $out/runs/NAME.jsonl, unless it is there
keep() {
    local name=$1 limit=$2 to=$out/runs/$1
    shift 2
    [ ! -f "$to.done" ] || return 0
    timeout --foreground -k 20 "$limit" "$@" >"$to.jsonl" 2>"$to.log" || { note_failure "$name" "$to.log"; return 1; }
    printf '%s\n' "$*" >"$to.done"
}

# ---- all experiments

# left FROM: prints the time of the experiments from FROM on, by how long the ones before took
left() {
    local i sum=0
    for ((i = $1; i < ${#ids[@]}; i++)); do
        sum=$((sum + $(cost_of "$i")))
    done
    minutes "$(awk -v s=$sum -v took="$took_s" -v was="$estimated_s" 'BEGIN { print (was > 0 ? s * took / was : s) }')"
}

run_experiments() {
    local i begin
    took_s=0 estimated_s=0
    trap 'echo "stopped; type the same command again to go on" >&2; exit 130' INT TERM
    for i in "${!ids[@]}"; do
        printf '%s %d of %d: %s, %s; %s left\n' "$(date +%H:%M:%S)" $((i + 1)) ${#ids[@]} "${ids[i]}" "${texts[i]}" \
            "$(left "$i")" >&2
        begin=$SECONDS
        "run_${ids[i]//-/_}" || failed+=("${ids[i]}")
        [ $((SECONDS - begin)) -lt 2 ] || { # otherwise it was complete
            took_s=$((took_s + SECONDS - begin))
            estimated_s=$((estimated_s + $(cost_of "$i")))
        }
    done
    echo "$took_s" >>"$out/logs/seconds"
}
