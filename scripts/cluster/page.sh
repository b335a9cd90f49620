# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # variables of the sourcing script
#
# What people read: the summary as text ($out/ready.txt) and as a page without references to others ($out/ready.html).

# first_name: the host of rank 0, which writes the folder of a run
first_name() { echo "${names[$(good | head -n 1)]}"; }

headline() {
    local n
    n=$(good | wc -l)
    if [ "$phase" != finished ]; then
        echo "Not ready yet: $phase"
    elif all_well; then
        echo "Ready: all $n hosts"
    elif [ "$n" -gt 0 ] && [ "$(code_of doctor)" = 0 ]; then
        echo "Partly ready: $n of ${#names[@]} hosts"
    else
        echo "Not ready"
    fi
}

# next_commands: what to type next, one command a line
next_commands() {
    local run=$dir/runs/first options='' first
    [ "$(good | wc -l)" -gt 0 ] || return 0
    first=$(first_name)
    [ "$transport" = auto ] || options=" --transport $transport"
    options="train softmax --hosts $(job_hosts)$options --run $run"
    if [ "$on_first" = yes ]; then
        printf '%s\n' "$dir/verbena $options" "$dir/verbena report $run"
        return
    fi
    if [ "$here" = yes ]; then
        echo "$program $options --program $dir/verbena"
    else
        echo "ssh -A $first $dir/verbena $options"
    fi
    printf '%s\n' "ssh $first $dir/verbena report $run" "scp $first:$run/report.html ."
}

# repairs: what is wrong besides hosts
repairs() {
    [ "$(good | wc -l)" = ${#names[@]} ] || echo "the hosts that FAILED: the table says what to do"
    [[ $(code_of doctor) =~ ^(0|none)$ ]] || echo "doctor: $(job_error doctor) (all of it: $out/doctor.txt, $out/doctor.err)"
    [[ $(code_of allreduce) =~ ^(0|none)$ ]] || echo "allreduce: $(job_error allreduce) (all of it: $out/allreduce.err)"
}

# checks_of I: what doctor says about a host. It lists the hosts in the order of the ranks, which is ours.
checks_of() {
    local nth
    nth=$(good | grep -nx "$1" | cut -d : -f 1)
    [ -z "$nth" ] || [ ! -e "$out/doctor.txt" ] || [ "$phase" != finished ] ||
        sed -n 's/^host [^ ]* (rank [0-9]*): //p' "$out/doctor.txt" | sed -n "$nth"p
}

# word STATE: how people call a state
word() {
    case $1 in
    ok) echo ready ;;
    failed) echo FAILED ;;
    *) echo waiting ;;
    esac
}

text_page() {
    local i
    printf '%s\n\n' "$(headline)"
    printf '%-20s %-8s %-24s %s\n' host state doctor what
    for i in "${!names[@]}"; do
        printf '%-20s %-8s %-24s %s\n' "${names[i]}" "$(word "$(state_of "$i")")" "$(checks_of "$i")" "$(text_of "$i")"
    done
    [ "$phase" = finished ] || return 0
    printf '\n%-10s %s\n%-10s %s\n' doctor "$(doctor_line)" allreduce "$(allreduce_line)"
    if [ -n "$(next_commands)" ]; then
        printf '\nNext:\n%s\n' "$(next_commands | sed 's/^/  /')"
    fi
    all_well || printf '\nTo fix:\n%s\nThen type the same again. What is done is not done twice.\n  %s\n' \
        "$(repairs | sed 's/^/  /')" "$same_again"
}

escape() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g'; }

page_hosts() {
    local i state
    echo '<table><tr><th>host<th>state<th>doctor<th>what'
    for i in "${!names[@]}"; do
        state=$(state_of "$i")
        printf '<tr><td>%s<td class="%s">%s<td>%s<td>%s\n' "$(escape <<<"${names[i]}")" "$state" "$(word "$state")" \
            "$(checks_of "$i" | escape)" "$(text_of "$i" | escape)"
    done
    echo '</table>'
}

# page_part TITLE LINE FILE: a part with a sentence, and a file to unfold
page_part() {
    printf '<h2>%s</h2><p>%s</p>\n' "$1" "$(escape <<<"$2")"
    [ ! -s "$3" ] || printf '<details%s><summary>all of it</summary><pre>%s</pre></details>\n' "$4" "$(escape <"$3")"
}

page_style() {
    cat <<'STYLE'
<style>
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --line: #d8dee6; --back: #fff; --box: #f4f6f9;
  --good: #1a7f37; --bad: #b42318; --wait: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --dim: #9aa5b4; --line: #384252; --back: #14181f;
  --box: #1d232c; --good: #5bc77a; --bad: #ff8a80; --wait: #e3b341; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .4rem; }
.when { color: var(--dim); margin: 0 0 1.2rem; }
h1.ok, td.ok { color: var(--good); } h1.failed, td.failed { color: var(--bad); } h1.run, td.run { color: var(--wait); }
td.ok, td.failed, td.run { font-weight: 600; } td:nth-child(3) { white-space: nowrap; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--dim); font-weight: 500; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
pre { background: var(--box); padding: .8rem; overflow-x: auto; font-size: .82rem; line-height: 1.4; }
pre.type { font-size: .9rem; white-space: pre-wrap; overflow-wrap: anywhere; } summary { cursor: pointer; color: var(--dim); }
</style>
STYLE
}

html_page() {
    local class=run
    [ "$phase" != finished ] || { all_well && class=ok || class=failed; }
    printf '<!DOCTYPE html><html lang="en"><meta charset="utf-8">\n'
    printf '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Verbena: %s</title>\n' "$(headline | escape)"
    page_style
    printf '<h1 class="%s">%s</h1><p class="when">Verbena on %d hosts, written %s by %s</p>\n' $class "$(headline | escape)" \
        ${#names[@]} "$(date '+%F %T %Z')" "$(uname -n | escape)"
    page_hosts
    [ "$phase" = finished ] || { echo '<p>Reload this page later.</p></html>' && return; }
    if [ -n "$(next_commands)" ]; then
        printf '<h2>What to type next</h2><pre class="type">%s</pre>\n' "$(next_commands | escape)"
    fi
    all_well || printf '<h2>To fix</h2><ul>%s</ul><p>Then type the same again. What is done is not done twice.</p><pre class="type">%s</pre>\n' \
        "$(repairs | escape | sed 's/^/<li>/')" "$(escape <<<"$same_again")"
    page_part 'First allreduce' "$(allreduce_line)" "$out/allreduce.txt" ' open'
    page_part 'Doctor between all pairs' "$(doctor_line)" "$out/doctor.txt" ' open'
    echo '</html>'
}

# write_page PHASE: writes both forms. PHASE is "finished", or what is still to come. A reader never sees half a page.
write_page() {
    phase=$1
    text_page >"$out/.ready.txt" && mv "$out/.ready.txt" "$out/ready.txt"
    html_page >"$out/.ready.html" && mv "$out/.ready.html" "$out/ready.html"
}
