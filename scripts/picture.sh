#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Makes docs/verdict.svg, the picture of README.md, from a real run: its command, the verdict of verbena report, and the
# plot of a mean step.
#
#   scripts/picture.sh [OUT.svg]      needs build/verbena, jq and python3
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-docs/verdict.svg}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

command=(verbena train lenet --ranks 3 --steps 200 --inject slow:1x20 --run runs/a)
"build/${command[0]}" "${command[@]:1:${#command[@]}-2}" "$dir/run" >"$dir/text"
build/verbena report "$dir/run" --no-png --json >"$dir/report.json"
jq -r '.runs[0] | .verdict, .then' "$dir/report.json" >"$dir/verdict"
python3 - "$dir/run/plots/breakdown.svg" "$dir/verdict" "${command[*]}" >"$dir/picture.svg" <<'EOF'
import html
import re
import sys
import textwrap

plot = open(sys.argv[1], encoding="utf-8").read()
verdict, then = open(sys.argv[2], encoding="utf-8").read().splitlines()[:2]
style = re.search(r"<style>(.*?)</style>", plot, re.S).group(1)
body = re.search(r"</style>(.*)</svg>", plot, re.S).group(1)
body = re.sub(r'<rect width="100%" height="100%" fill="#fff"/>', "", body)  # the card below is the background

y, lines = 36, []


def line(kind, text, step):
    global y
    lines.append(f'<text class="{kind}" x="24" y="{y}">{html.escape(text)}</text>')
    y += step


line("cmd", "$ " + sys.argv[3], 14)
lines.append(f'<path class="rule" d="M24 {y}H800"/>')
y += 26
for kind, text in (("say", verdict), ("help", then)):
    for part in textwrap.wrap(text, 96 if kind == "help" else 88):
        line(kind, part, 20)
    y += 4
y -= 4
print(f'''<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 824 {y + 400}" width="824" height="{y + 400}">
<title>{html.escape(verdict)}</title>
<style>{style}.cmd{{font:14px ui-monospace,"DejaVu Sans Mono",monospace;fill:#111}}.rule{{stroke:#d0d0d0}}.say{{font-size:14px;font-weight:600;fill:#111}}.help{{font-size:14px;fill:#111}}</style>
<rect x=".5" y=".5" width="823" height="{y + 399}" rx="10" fill="#fff" stroke="#c8c8c8"/>
{chr(10).join(lines)}
<g transform="translate(12 {y})">{body}</g>
</svg>''')
EOF
mv "$dir/picture.svg" "$out"
chmod 644 "$out"
echo "$out: $(head -n 1 "$dir/verdict")"
