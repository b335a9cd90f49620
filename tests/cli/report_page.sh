#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Opens pages of verbena report in Chromium: report_page.sh VERBENA. VERBENA_TEST_CHROMIUM names the program if it is not
# in PATH.
#
# Covers: cli/report/report_page.c record/report/report_svg.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
chromium=${VERBENA_TEST_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
[ -n "$chromium" ] || { echo "skipped: there is no Chromium: install it, or set VERBENA_TEST_CHROMIUM"; exit 77; }
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive
what=train
quiet lenet --data synth:800 --batch 16 --steps 60 --eval-every 10 --ranks 2 --trace=10:14 --run "$dir/two"
quiet lenet --data synth:800 --batch 16 --steps 40 --eval-every 10 --ranks 1 --run "$dir/one"
quiet sparse-lr --data synth:2000 --steps 300 --ranks 3 --mode async --eval-every 50 --run "$dir/async"
run lenet --data synth:800 --batch 32 --steps 30 --ranks 2 --run "$dir/dead" --elastic off --inject kill:1@20
cp -r "$dir/two" "$dir/hostile"
jq '(.run.data.spec, .run.ranks[].host, .bottleneck.why) = "</script><script>throw 1</script><img src=x onerror=throw(2)>"' \
    "$dir/two/run.json" >"$dir/hostile/run.json"
what=report
pages=()
for run in two async dead hostile; do
    quiet "$dir/$run" --no-png
    pages+=("$dir/$run/report.html")
done
quiet "$dir/one" "$dir/two" "$dir/async" --no-png --out "$dir/several.html"
timeout 200 python3 "$(dirname "$0")/report_page.py" "$chromium" "${pages[@]}" "$dir/several.html" || bad=1
exit "$bad"
