#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests verbena report: report.sh VERBENA. Pages, plots and tables of runs that have ended, go on, failed, learn nothing
# (NaN), are broken or hostile; several runs; a run of many steps, whose page stays small.
#
# Covers: cli/gnuplot.c cli/run_read.c cli/report/cmd_report.c cli/report/report_bench.c
# Covers: cli/report/report_clock.c cli/report/report_compare.c cli/report/report_curves.c
# Covers: cli/report/report_figure.c cli/report/report_files.c cli/report/report_line.c
# Covers: cli/report/report_page.c cli/report/report_phases.c cli/report/report_rank.c
# Covers: cli/report/report_read.c cli/report/report_scaling.c cli/report/report_tables.c
# Covers: cli/report/report_trace.c cli/report/report_usage.c cli/report/report_verdict.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive LC_ALL=C.UTF-8
what=train
quiet softmax --data synth:800 --batch 20 --steps 60 --eval-every 20 --ranks 2 --trace=10:12 --run "$dir/two"
quiet softmax --data synth:800 --batch 20 --steps 60 --eval-every 20 --ranks 1 --run "$dir/one"
quiet sparse-lr --data synth:2000 --steps 200 --ranks 2 --mode async --eval-every 100 --run "$dir/async"
what=report

# has FILE TEXT...: fails if the file lacks a text
has() {
    local file=$1 text
    shift
    for text; do
        grep -qF -- "$text" "$file" || fail "$file lacks '$text'"
    done
}

# whole PAGE: fails if the page is not a whole document, or would load something
whole() {
    [ "$(tail -c 8 "$1")" = "</html>" ] || fail "$1 is cut"
    grep -qE '(src|href)="?(https?:)?//|@import|url\(["'\'']?http' "$1" && fail "$1 loads something"
    python3 - "$1" <<'PY' || fail "$1: its parts do not close"
import html.parser, json, sys
class Reader(html.parser.HTMLParser):
    void = {"meta", "link", "input", "br"}
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.text, self.scripts = [], set(), "", 0
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        assert a.get("id") is None or a["id"] not in self.ids, "two elements " + a["id"]
        self.ids.add(a.get("id"))
        assert not any(k.startswith("on") for k in a), tag
        if tag not in self.void:
            self.open.append((tag, a))
    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, (tag, self.getpos())
    def handle_data(self, data):
        tag, a = self.open[-1] if self.open else ("", {})
        if tag == "script" and a.get("type") == "application/json":
            d = json.loads(data)
            assert d.get("pieces") or any(y is not None for s in d["series"] for y in s["y"]), "a plot has no data"
        elif tag == "script":
            self.scripts += 1
r = Reader()
r.feed(open(sys.argv[1]).read())
assert not r.open and r.scripts == 1, (r.open, r.scripts)
PY
}

# One run: text, JSON, page and files.
quiet "$dir/two"
# Which bottleneck it is depends on what else the machine does.
grep -qE '(The bottleneck is|There is more than one bottleneck:)' "$dir/out" || fail "no verdict: $(cat "$dir/out")"
has "$dir/out" "accuracy" "steps/s" "$dir/two/report.html"
page=$dir/two/report.html
whole "$page"
has "$page" 'id="fig-loss"' 'id="fig-accuracy"' 'id="fig-rate"' 'id="fig-phases"' 'id="fig-breakdown"' \
    'id="fig-transfer"' 'id="fig-timeline"' 'id="table-ranks"' 'id="table-options"' "by epoch"
trained '.svg > 8 and .csv > 12 and (.runs | length) == 1 and .runs[0].state == "ended" and .trace_pieces > 10 and
    (.runs[0].verdict | test("^(The bottleneck is|There is more than one bottleneck:)")) and .runs[0].step == 60 and
    ([.plots[].name] | contains(["loss-step", "loss-epoch", "loss-time", "phases-rank1"])) and all(.plots[]; .points > 0)' \
    "$dir/two" --no-png
for file in loss-step.svg loss-step.csv accuracy-time.svg timeline.svg phases-rank0.csv; do
    [ -s "$dir/two/plots/$file" ] || fail "there is no plots/$file"
done
[ "$(grep -c '^training,' "$dir/two/plots/loss-step.csv")" = 60 ] || fail "loss-step.csv does not have 60 steps"
[ "$(grep -c '^[0-9]' "$dir/two/tables/evaluations.csv")" = 3 ] || fail "evaluations.csv does not have 3 rows"
for file in "$dir"/two/plots/*.svg; do
    python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$file" || fail "$file is not XML"
done
if command -v gnuplot >/dev/null; then
    LC_ALL=C "$verbena" report "$dir/two" 2>&1 >/dev/null | grep . && fail "gnuplot warns in a locale without UTF-8"
    [ "$(find "$dir/two/plots" -name '*.png' | wc -l)" = "$(find "$dir/two/plots" -name '*.svg' | wc -l)" ] ||
        fail "not each plot has a PNG file"
fi
timeout 100 env PATH=/nowhere "$verbena" report "$dir/two" --out "$dir/no.html" >"$dir/out" 2>"$dir/err" ||
    fail "without gnuplot: $(cat "$dir/err")"
has "$dir/out" "gnuplot is not installed"
has "$dir/no.html" 'no-plots/loss-step.svg'
grep -q '\.png' "$dir/no.html" && fail "without gnuplot: the page has a link to a PNG file"

# Several runs: differences first, speed-up, curves of all.
quiet --no-png "$dir/one" "$dir/two" --out "$dir/several"/report.html
page=$dir/several/report.html
whole "$page"
has "$page" "2 runs compared" 'id="table-differences"' 'id="fig-speed-up"' 'id="fig-test-loss"'
[ "$(grep -n 'id="differences"' "$page" | head -n 1 | cut -d: -f1)" -lt \
    "$(grep -n 'id="verdict"' "$page" | head -n 1 | cut -d: -f1)" ] || fail "the differences are not first"
grep -q '^ranks,1,2$' "$dir/several/tables/differences.csv" || fail "differences.csv lacks the ranks"
[ "$(cut -d, -f1 "$dir/several/plots/speed-up.csv" | sort | uniq -c | tr -s ' \n' ' ')" = " 2 ideal 2 measured 1 series " ] ||
    fail "speed-up.csv has other points"
(cd "$dir" && quiet one two --no-png)
[ -s "$dir/report.html" ] || fail "the page of several runs is not in this folder"

quiet "$dir/async" --no-png
whole "$dir/async/report.html"
has "$dir/async/report.html" 'id="fig-staleness"'

# The points of bench step, with the crossing that the bench has found, and one that was cut short.
cat >"$dir/bench" <<'END'
{"bench":"step","transport":"tcp","ranks":2,"bytes":4,"model":"softmax","batch":10,"compute_ms":1,"transfer_ms":4,"exposed_ms":3.5,"step_ms":4.5}
{"bench":"step","transport":"tcp","ranks":2,"bytes":4,"model":"softmax","batch":80,"compute_ms":8,"transfer_ms":4,"exposed_ms":2,"step_ms":10}
{"bench":"step","transport":"tcp","ranks":2,"model":"softmax","hidden_from_batch":41}
END
quiet "$dir/two" --no-png --bench "$dir/bench"
has "$dir/two/report.html" "crossing: batch 41" "From batch 41 on" "at batch 80, 2 ms of a step remained exposed"
sed -i '$d' "$dir/bench"
quiet "$dir/two" --no-png --bench "$dir/bench"
has "$dir/two/report.html" "There is no crossing"
sed -i 's/"exposed_ms":2,"step_ms":10/"exposed_ms":0,"step_ms":8/' "$dir/bench"
quiet "$dir/two" --no-png --bench "$dir/bench"
has "$dir/two/report.html" "crossing: batch 80<" "From batch 80 on"
echo '{"bench":"step","transport":"tcp","ranks":2,"model":"softmax","hidden_from_batch":null,"expected_from_batch":123}' >>"$dir/bench"
quiet "$dir/two" --no-png --bench "$dir/bench"
has "$dir/two/report.html" "It is expected to from about batch 123 on"
quiet "$dir/two" --no-png
grep -q 'fig-crossing' "$dir/two/report.html" && fail "a crossing without --bench"
has "$dir/two/report.html" "add --bench FILE"
echo '{"bench":"ps"}' >"$dir/bench"
refused 1 "line 1 was not printed by verbena bench step" "$dir/two" --bench "$dir/bench"

# Evidence and advice, if the verdict has them; text that would be HTML stays text.
cp -r "$dir/two" "$dir/hostile"
evil='</script><script>alert(1)</script><img src=x onerror=alert(2)>'
jq --arg evil "$evil" '.run.data.spec = $evil | .run.command[3] = $evil | .run.ranks[0].host = $evil | .warnings = [$evil] |
    .run.options[0].value = $evil | .run.model = "a\u001b[2Jb" | .bottleneck = {resource: "network", kind: "latency", share: 0.5,
    why: ($evil + "."), evidence: [{name: "link", value: 50, ceiling: 200, unit: "MB/s"}, {name: $evil, value: null}],
    advice: [{change: "less", steps_per_s: 1e10, samples_per_s: 1e8}, {change: "a larger batch", steps_per_s: 1e8, samples_per_s: 1e9}, {change: $evil}]}' "$dir/two/run.json" >"$dir/hostile/run.json"
quiet "$dir/hostile" --no-png
page=$dir/hostile/report.html
whole "$page"
grep -qE '<img|alert\(1\)</script>' "$page" && fail "a text of run.json became HTML"
has "$page" "What would help most: a larger batch, which should give about 1 G instead" "samples/s, expected" "the network (latency)" 'id="table-evidence"' 'id="fig-ceilings"'
LC_ALL=C grep -q $'\033' "$dir/out" "$page" && fail "a name has put an escape sequence into the output"

# Losses that are not finite, and a spike, among 400,000 steps: the page is small, and both are visible.
cp -r "$dir/one" "$dir/long"
python3 - "$dir/long/rank0/steps.bin" <<'EOF2'
import struct, sys
head, end, body = open(sys.argv[1], "rb").read().partition(b"\nend\n")
cols = [line.split()[1:3] for line in head.decode().splitlines() if line.startswith("col ")]
row = struct.Struct("<" + "".join({"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}[t] for _, t in cols))
names = [name for name, _ in cols]
first = list(row.unpack(body[:row.size]))
step, at, loss = names.index("step"), names.index("end_ns"), names.index("loss")
with open(sys.argv[1], "wb") as out:
    out.write(head + end)
    base = first[at]
    for i in range(400000):
        first[step], first[at] = i + 1, base + i * 50000
        first[loss] = 7777.0 if i == 123456 else float("nan") if i == 300000 else 1 + (i % 10) / 10
        out.write(row.pack(*first))
EOF2
trained '.page_bytes < 3000000 and .runs[0].step == 400000 and ([.plots[] | select(.name == "loss-step")][0].points < 2000)' \
    "$dir/long" --no-png
grep -q ',7777,' "$dir/long/plots/loss-step.csv" || fail "the spike is gone"
has "$dir/long/report.html" "1 training losses are not finite, the first at step 300001" 'class="bad"'

# Runs that go on, failed, have one step or none, and files that are cut or broken.
cp -r "$dir/two" "$dir/part"
jq '{run: (.run | .state = "running")}' "$dir/two/run.json" >"$dir/part/run.json"
truncate -s -30 "$dir/part/rank1/steps.bin"
quiet "$dir/part" --no-png
has "$dir/out" "The run has not ended: it has made 60 of 60 steps"
whole "$dir/part/report.html"
jq '{run: (.run | .state = "failed" | .why = "rank 1 is lost" | .records_lost = 7)}' "$dir/two/run.json" >"$dir/part/run.json"
echo "verbena-series 9" >"$dir/part/rank1/steps.bin"
head -c 300 "$dir/two/rank0/trace.bin" >"$dir/part/rank0/trace.bin"
head -c 100 "$dir/two/evals.bin" >"$dir/part/evals.bin"
run "$dir/part" --no-png
[ "$code" = 0 ] || fail "a broken file: exit $code: $err"
has "$dir/out" "The run failed after step 60: rank 1 is lost." "gap: rank1/steps.bin cannot be read" "7 records were lost"
has "$dir/part/report.html" "Gap: rank1/steps.bin cannot be read"
whole "$dir/part/report.html"
rm -r "$dir"/part/rank* "$dir/part/evals.bin"
quiet --no-png "$dir/part" --out "$dir/empty.html"
has "$dir/out" "There are no records of its steps."
whole "$dir/empty.html"

refused 2 "the run is missing"
refused 1 "No such file" "$dir/none"
refused 1 "has no run.json" "$dir/cache"
refused 1 "must end in .html" "$dir/two" --out "$dir/report.pdf"
head -c 500 "$dir/two/run.json" >"$dir/part/run.json"
refused 1 "run.json" "$dir/part"
echo '{"run": {"format": 2}}' >"$dir/part/run.json"
refused 1 "has format 2" "$dir/part"
exit "$bad"
