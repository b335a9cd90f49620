# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2016 # variables of reproduce.sh; programs of jq
#
# Figures of runs, and parts of the page.

theirs=$here/reproduce/theirs.json

# wire FILE: prints mean and peak MB/s of an interface, from net-I.bin of a run folder (docs/run.md). A peak is the
# highest average over a second.
wire() {
    local head
    head=$(grep -abom 1 '^end$' "$1" 2>/dev/null | cut -d: -f1) || head=''
    if [ -z "$head" ]; then
        echo null
        return
    fi
    od -An -v -tu8 -w48 -j $((head + 4)) "$1" | awk '
        NF >= 3 { t[++n] = $1; s[n] = $2; r[n] = $3 }
        function rate(x, a, b) { return t[b] > t[a] ? 1e3 * (x[b] - x[a]) / (t[b] - t[a]) : 0 }
        END {
            if (n < 2) { print "null"; exit }
            a = 1
            for (b = 2; b <= n; b++) {
                while (t[b] - t[a + 1] >= 1e9) a++
                if (t[b] - t[a] >= 1e9 || b == n) {
                    if (rate(s, a, b) > sp) sp = rate(s, a, b)
                    if (rate(r, a, b) > rp) rp = rate(r, a, b)
                }
            }
            printf "{\"sent\": %.6g, \"received\": %.6g, \"sent_peak\": %.6g, \"received_peak\": %.6g}\n",
                rate(s, 1, n), rate(r, 1, n), sp, rp
        }'
}

# facts RUN...: prints run.json of each complete run, with the MB/s of the nodes as wire
facts() {
    local run rank
    for run; do
        [ -s "$run/run.json" ] || continue
        for ((rank = 0; rank < 8 && rank < $(jq '.run.ranks | length' "$run/run.json"); rank++)); do
            wire "$run/rank$rank/net-eth0.bin"
        done | jq -cs --slurpfile run "$run/run.json" --arg name "$(basename "$run")" \
            '$run[0] + {wire: ., name: $name, state: $run[0].run.state} | select(.state == "ended")'
    done
}

# of_run NAME...: facts of runs; of_sweep NAME...: of all runs of sweeps
of_run() {
    local name
    for name; do
        facts "$out/runs/$name"
    done
}
of_sweep() {
    local name
    for name; do
        facts "$out/runs/$name"/*/
    done
}

# answer PROGRAM [JQ_OPTIONS...]: runs a jq program on all facts of standard input, as one list, if there are any
answer() {
    local program=$1
    shift
    jq -rs -L "$here/reproduce" --slurpfile theirs "$theirs" "$@" \
        "include \"tables\"; select(length > 0) | \$theirs[0] as \$their | $program" ||
        echo "(These runs lack a figure; see $out/logs.)"
}

# fill PROGRAM [JQ_OPTIONS...]: the same; says so if there are no facts
fill() {
    local table
    table=$(answer "$@")
    echo "${table:-(Not measured in this run.)}"
}

# shown NAME: prints the command of a run or a sweep, without the folders of this machine
shown() {
    local file=$out/runs/$1/run.json program='.run.command'
    [ ! -f "$out/runs/$1/sweep.json" ] || file=$out/runs/$1/sweep.json program='["verbena", "sweep"] + .command'
    [ -f "$file" ] || return 0
    echo '```'
    jq -r "$program | map(select(. != \"--json\")) | join(\" \")" "$file" |
        sed -e "s#$out/#OUT/#g" -e "s#${data:-//}#DATA#g" -e 's#^[^ ]*/verbena #verbena #' -e 's# --\(run\|out\)[ =][^ ]*##'
    echo '```'
    echo
}

# verdict NAME...: quotes the verdict of runs
verdict() {
    local name
    for name; do
        [ -f "$out/runs/$name/run.json" ] || continue
        jq -r --arg name "$name" 'select(.bottleneck != null) |
            "> `\($name)`: **\(.bottleneck.resource)**" + (if .bottleneck.kind then " (\(.bottleneck.kind))" else "" end) +
            ", \(100 * (.bottleneck.share // 0) | round) %: \(.bottleneck.why)", ">"' "$out/runs/$name/run.json"
    done
    echo
}

# page NAME PLOT,PLOT... RUN...: makes a page of runs by verbena report, and keeps the named plots
page() {
    local name=$1 plots=${2//,/ } plot file run dirs=()
    shift 2
    for run; do
        [ ! -f "$out/runs/$run/run.json" ] || dirs+=("$out/runs/$run")
    done
    [ ${#dirs[@]} -gt 0 ] || return 0
    timeout 120 "$verbena" report "${dirs[@]}" --out "$out/pages/$name.html" >"$out/logs/report-$name.log" 2>&1 ||
        { echo "report of $name failed; see $out/logs/report-$name.log" >&2; return 0; }
    for plot in $plots; do
        file=$out/pages/$name-plots/$plot.svg
        [ -f "$file" ] || file=$out/pages/$name-plots/training-$plot.svg # the loss of several runs
        [ ! -f "$file" ] || cp "$file" "$out/reproduction/$name-$plot.svg"
    done
}

# picture NAME TEXT: shows a plot of $out/reproduction, if it was made
picture() {
    [ ! -f "$out/reproduction/$1.svg" ] || printf '![%s](reproduction/%s.svg)\n\n' "$2" "$1"
}

# draw NAME TITLE X Y [LOG]: draws lines from standard input, "SERIES X Y" with _ for a blank, as $out/reproduction/NAME.svg
draw() {
    local name=$1 table=$out/pages/$1.dat series script least=0
    grep -v -- '-$' >"$table"
    [ -s "$table" ] || return 0
    [ "$4" != % ] || least='*' # accuracies differ little, far above 0
    script="set terminal svg size 640,360 dynamic font 'sans,12'; set output '$out/reproduction/$name.svg'; "
    script+="set title '$2'; set xlabel '$3'; set ylabel '$4'; set grid; set key outside right; set yrange [$least:*]; "
    script+="${5:+set logscale x 2; }plot "
    while read -r series; do
        script+="'< grep ^$series\\  $table' using 2:3 with linespoints linewidth 2 title '${series//_/ }', "
    done < <(cut -d ' ' -f 1 "$table" | sort -u)
    timeout 60 gnuplot -e "${script%, }" >>"$out/logs/gnuplot.log" 2>&1 || echo "gnuplot: $name failed; see $out/logs/gnuplot.log" >&2
}

write_page() {
    local page=$out/reproduction.md study
    {
        write_head
        for study in "${studies[@]}"; do
            "write_$study"
        done
        write_peers
        write_answers
    } >"$page.new"
    mv "$page.new" "$page" || die "cannot write $page"
    echo "wrote $page" >&2
}

all_studies() { [ ${#studies[@]} = 5 ] && echo all || echo "${studies[*]}"; }

write_head() {
    local i
    cat <<END
# Five reports, reproduced

Five reports of distributed training on small clusters (TensorFlow 1.x, 1 to 5 nodes), here named 000 to 004, and the
same experiments with Verbena. This page was written by

    scripts/reproduce.sh $(all_studies)$(choose '' ' --quick')${data:+ --data DIR}

on $(date +%Y-%m-%d), on $(nproc) cores ($(uname -m), $(cpu_name)), in $(minutes "$(awk '{ s += $1 } END { print s + 0 }' "$out/logs/seconds")"). Columns
called *report* have the reports' numbers, measured on their machines; all others were measured here.

- **Data:** $mnist_is; $criteo_is.
- **Nodes:** $(nodes_text)
- **Settings that the reports do not state** were chosen here, some of them so that accuracies come near theirs: the rule
  and rate of LeNet in 001, the rates, rules, epochs and (for 1 to 3 nodes) batch of 003, the batch of AlexNet in 000, the
  rates of 000, 002 and 004. Accuracies show the same trend, not the same experiment.
- **Time of several nodes:** the nodes share $(nproc) cores, which cannot show how computing scales. Where it says
  *replayed*, each node sleeps for the compute times that one rank has recorded alone, and loads, exchanges and waits
  for real (\`--replay-compute\`). Accuracy is from runs that compute.$([ "$quick" = no ] || printf '\n%s' \
        "- **Quick:** runs are shorter than those of the reports; the text says how long. Accuracies are lower accordingly.")

| experiment | what |
| --- | --- |
END
    for i in "${!ids[@]}"; do
        echo "| ${ids[i]} | ${texts[i]} |"
    done
    echo
}

cpu_name() { lscpu 2>/dev/null | awk -F: '/^Model name/ && !found { gsub(/^ +/, "", $2); print $2; found = 1 }'; }

nodes_text() {
    if [ "$namespaces" != yes ]; then
        echo "processes that are connected by loopback TCP of unlimited rate, $namespaces."
        return
    fi
    cat <<'END'
network namespaces at a bridge. Their links have 1 Gbit/s in 000, 001 and 003, whose traffic stayed below
  that. In 002 and 004 they have 2.8 Gbit/s: 004 names 350 MB/s as the most that its network gave (a 10 Gbit class of
  card), and 002 measured 248 MB/s, more than 1 Gbit/s can carry.
END
}
