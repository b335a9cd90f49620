#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests verbena top: top.sh VERBENA. One screen and one object, of runs that go on, have ended, failed, are broken or
# hostile; many ranks; and a real terminal, which is restored whatever ends the program.
#
# Covers: cli/cmd_top.c cli/top_curve.c cli/top_draw.c cli/top_ranks.c cli/top_read.c
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive LC_ALL=C.UTF-8
what=train
quiet lenet --data synth:800 --batch 32 --steps 40 --eval-every 20 --ranks 3 --run "$dir/done"
run lenet --data synth:800 --batch 32 --steps 30 --ranks 2 --run "$dir/dead" --elastic off --inject kill:1@20
what=top

# screen RUN ARGUMENTS...: prints one screen; no line is wider than 80 columns, and there are at most 24
screen() {
    quiet "$@" --once
    [ "$(wc -l <"$dir/out")" -le 24 ] || fail "$*: more than 24 lines"
    [ "$(wc -L <"$dir/out")" -le 80 ] || fail "$*: wider than 80 columns"
}

# says TEXT...: fails if the screen lacks a text
says() {
    local text
    for text; do
        grep -qF -- "$text" "$dir/out" || fail "the screen lacks '$text': $(cat "$dir/out")"
    done
}

screen "$dir/done"
says "lenet, sync, 3 ranks" "step 40 of 40" "accuracy" "bottleneck: " "time of the run" "f forward"
grep -q '⣀' "$dir/out" || fail "there is no curve"
screen "$dir/done" --plain
LC_ALL=C grep -q '[^ -~]' "$dir/out" && fail "--plain prints more than ASCII"
trained '.state == "ended" and .step == 40 and .steps == 40 and (.ranks | length) == 3 and .accuracy > 0 and
    all(.ranks[]; .step == 40 and .phases_ms.forward > 0 and .rss_mb > 1 and .cpu_pct > 0) and .left_s == null' \
    "$dir/done" --once
screen "$dir/dead"
says "failed: " "injected: kill:1@20"
# On a busy machine the supervisor may kill rank 0 before it has written its last rows.
grep -qE '^step 1?[0-9] of 30 ' "$dir/out" || fail "the screen of a run that died has another step: $(cat "$dir/out")"

refused 2 "the run is missing" --once
refused 2 "--json needs --once" "$dir/done" --json
refused 2 "not a terminal: add --once" "$dir/done"
refused 1 "No such file" "$dir/none" --once
refused 1 "has no run.json" "$dir" --once
refused 1 "is not a folder" "$dir/done/run.json" --once

# A loss that falls far has a logarithmic axis of four powers of ten, on which it falls steadily: each row of the curve
# has about as many dots.
cp -r "$dir/done" "$dir/fallen"
python3 - "$dir/fallen/rank0/steps.bin" <<'EOF'
import struct, sys
head, end, body = open(sys.argv[1], "rb").read().partition(b"\nend\n")
cols = [line.split()[1:3] for line in head.decode().splitlines() if line.startswith("col ")]
row = struct.Struct("<" + "".join({"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}[t] for _, t in cols))
at = [name for name, _ in cols].index("loss")
rows = [list(r) for r in row.iter_unpack(body)]
for i, r in enumerate(rows):
    r[at] = 10 * 0.5**i
open(sys.argv[1], "wb").write(head + end + b"".join(row.pack(*r) for r in rows))
EOF
screen "$dir/fallen" --plain
for line in '^ *10 \*' '^ *log ' '^ *0.001 .*\*'; do
    grep -Eq "$line" "$dir/out" || fail "the axis is not logarithmic: $(cat "$dir/out")"
done
[ "$(grep -cE '^.{9} *\*+' "$dir/out")" -ge 8 ] || fail "the curve does not fall steadily: $(cat "$dir/out")"

# Folders that are half written, or not ours. Names from files cannot control the terminal.
cp -r "$dir/done" "$dir/part"
head -c 700 "$dir/done/run.json" >"$dir/part/run.json"
refused 1 "run.json" "$dir/part" --once
echo '{"run": {"format": 2}}' >"$dir/part/run.json"
refused 1 "has format 2" "$dir/part" --once
echo '{"model": "lenet"}' >"$dir/part/run.json"
refused 1 "no key run.format" "$dir/part" --once
jq '{run: (.run | .state = "running" | .model = "a\u001b[2Jb" | .ranks[0].host = "\u001b[31m")}' "$dir/done/run.json" \
    >"$dir/part/run.json"
touch -d '1 minute ago' "$dir/part/rank0/usage.bin"
screen "$dir/part"
says "a?[2Jb" "no records for"
LC_ALL=C grep -q $'\033' "$dir/out" && fail "a name has put an escape sequence onto the screen"
truncate -s -50 "$dir/part/rank1/steps.bin" # a row that is cut is left out
trained '.ranks[1].step == 39' "$dir/part" --once
rm -r "$dir"/part/rank*
screen "$dir/part"
says "waiting for the first step"
mkdir "$dir/part/rank0"
echo "verbena-series 9" >"$dir/part/rank0/steps.bin"
refused 1 "steps.bin" "$dir/part" --once

# 64 ranks: the slowest are first, and the screen still fits.
cp -r "$dir/done" "$dir/many"
jq '{run: (.run | .state = "running" | .ranks = [range(64) as $i | .ranks[0] | .rank = $i])}' "$dir/done/run.json" \
    >"$dir/many/run.json"
for ((i = 3; i < 64; i++)); do cp -r "$dir/done/rank0" "$dir/many/rank$i"; done
cp "$dir/dead/rank0/steps.bin" "$dir/many/rank40/steps.bin"
screen "$dir/many"
says "of 64, the slowest first"
slowest=$("$verbena" top "$dir/many" --once --json | jq '.ranks | min_by([-.busy_ms, .rank]) | .rank')
[ "$(sed -n '/^rank host/{n;p}' "$dir/out" | awk '{print $1}')" = "$slowest" ] || fail "rank $slowest is not first"

# A terminal.
cat >"$dir/terminal.py" <<'EOF'
"""terminal.py HOW PROGRAM ARGUMENTS...: runs a program on a terminal, ends it by HOW, and checks the terminal"""
import fcntl, os, pty, select, signal, struct, sys, termios, time
how, argv = sys.argv[1], sys.argv[2:]
parent, child = pty.openpty()
fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
before = termios.tcgetattr(child)
pid = os.fork()
if pid == 0:
    os.login_tty(child) if hasattr(os, "login_tty") else (os.setsid(), fcntl.ioctl(child, termios.TIOCSCTTY, 0),
                                                          [os.dup2(child, fd) for fd in (0, 1, 2)])
    os.execv(argv[0], argv)
seen = b""
def read_for(seconds, until=None):
    global seen
    end = time.time() + seconds
    while time.time() < end and (until is None or not until()):
        if select.select([parent], [], [], 0.05)[0]:
            seen += os.read(parent, 65536)
def wait_for(text, count):
    read_for(30, lambda: seen.count(text) >= count)
    assert seen.count(text) >= count, (text, count, seen[-500:])
wait_for(b"q quits", 1)
assert seen.startswith(b"\x1b[?1049h") and b"\x1b[2J" in seen[:40]
assert not termios.tcgetattr(child)[3] & termios.ICANON
first = len(seen)
fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
os.kill(pid, signal.SIGWINCH)
wait_for(b"q quits", seen.count(b"q quits") + 2)
assert max(len(line) for line in seen[first:].decode().split("\r\n")) > 100, "it has not grown"
assert b"\x1b[2J" not in seen[40:], "the screen is cleared, which flickers"
if how == "q":
    os.write(parent, b"q")
else:
    os.kill(pid, getattr(signal, how))
status = None
def ended():
    global status
    got, code = os.waitpid(pid, os.WNOHANG)
    status = code if got == pid else status
    return status is not None
read_for(30, ended)
read_for(0.2)
assert status is not None, "it has not ended"
assert seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), seen[-80:]
assert termios.tcgetattr(child) == before, "the terminal is not as it was"
print(os.waitstatus_to_exitcode(status))
EOF
for how in q:0 SIGINT:0 SIGTERM:143 SIGHUP:129 SIGSEGV:-11; do
    code=$(python3 "$dir/terminal.py" "${how%:*}" "$verbena" top "$dir/done" --every 0.1) || fail "on a terminal, ${how%:*}"
    [ "$code" = "${how#*:}" ] || fail "on a terminal, ${how%:*}: exit $code"
done
exit "$bad"
