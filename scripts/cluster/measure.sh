# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # variables of the sourcing script
#
# The first jobs on the hosts: doctor between all pairs, and an allreduce. Results are in $out: doctor.txt, allreduce.txt,
# and "measured", which says for which hosts and which program they are.

doctor_s=600 allreduce_s=300

# job_hosts: prints the hosts that are ready, as --hosts takes them
job_hosts() {
    local i list=''
    for i in $(good); do
        list+=,${names[i]}${slots[i]:+:${slots[i]}}
    done
    echo "${list#,}"
}

# job SECONDS ARGUMENTS...: runs verbena with --hosts: here, or on the first host if this machine is of another kind. That
# host then needs ssh to the others, with the agent of the user.
job() {
    local limit=$1 first word line=''
    shift
    if [ "$here" = yes ]; then
        timeout --foreground -k 5 "$limit" "$program" "$@" --hosts "$(job_hosts)" --program "$dir/verbena" </dev/null 8>&- 9>&-
        return
    fi
    first=$(good | head -n 1)
    for word in "$dir/verbena" "$@" --hosts "$(job_hosts)"; do
        line+=" $(quote "$word")"
    done
    # shellcheck disable=SC2086
    timeout --foreground -k 5 "$limit" $ssh -A "${names[first]}" "exec timeout $limit$line" </dev/null 8>&- 9>&-
}

# measure NAME SECONDS ARGUMENTS...: runs a job; its output is then in $out/NAME.txt, its exit code in $out/NAME.code
measure() {
    local name=$1 limit=$2 code=0
    shift 2
    note "verbena $* --hosts $(job_hosts)"
    job "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err" || code=$?
    [ $code != 124 ] || echo "no end within $limit s" >>"$out/$name.err"
    echo $code >"$out/$name.code"
}

# measured_before: true if the results of an earlier run are still those of these hosts with this program, and good
measured_before() {
    [ "$again" = no ] && [ "$(cat "$out/measured" 2>/dev/null)" = "$(job_hosts) $transport $digest" ] &&
        [ "$(cat "$out/doctor.code" "$out/allreduce.code" 2>/dev/null)" = $'0\n0' ]
}

run_jobs() {
    local n
    n=$(good | wc -l)
    if measured_before; then
        note "doctor and allreduce: done before with these hosts and this program (--again repeats them)"
        return
    fi
    rm -f "$out"/doctor.* "$out"/allreduce.* "$out/measured"
    [ "$n" -gt 0 ] || return 0
    measure doctor $doctor_s doctor --transport "$transport"
    [ "$n" -gt 1 ] || return 0 # one host has nobody to exchange data with
    measure allreduce $allreduce_s bench allreduce --transport "$transport" --sizes "${VB_CLUSTER_SIZES:-4,64K,1M,16M}"
    echo "$(job_hosts) $transport $digest" >"$out/measured"
}

code_of() { cat "$out/$1.code" 2>/dev/null || echo none; }

# job_error NAME: the line that says why a job failed
job_error() {
    local line
    line=$(grep -m 1 '^FAIL' "$out/$1.txt" || grep -E '^(error|verbena)' "$out/$1.err" | tail -n 1)
    echo "${line:-$(grep . "$out/$1.err" | tail -n 1)}" | cut -c 1-300
}

doctor_line() {
    case $(code_of doctor) in
    none) echo "not run: no host is ready" ;;
    0) tail -n 1 "$out/doctor.txt" ;;
    *) echo "FAILED: $(job_error doctor)" ;;
    esac
}

# allreduce_line: the largest size
allreduce_line() {
    case $(code_of allreduce) in
    none) echo "not run: needs two hosts that are ready" ;;
    0) awk '/^allreduce/ { what = $0 } $1 ~ /^[0-9]+$/ { line = $1 " bytes: " $3 " us, busbw " $6 " GB/s, " ($8 ? $8 " sums wrong" : "all sums right") }
            END { print line " (" what ")" }' "$out/allreduce.txt" ;;
    *) echo "FAILED: $(job_error allreduce)" ;;
    esac
}

all_well() {
    [ "$(good | wc -l)" = ${#names[@]} ] && [ "$(code_of doctor)" = 0 ] &&
        { [ ${#names[@]} = 1 ] || [ "$(code_of allreduce)" = 0 ]; }
}
