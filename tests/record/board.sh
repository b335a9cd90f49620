#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests TensorBoard's event files of whole jobs: board.sh VERBENA [PARTS]. The values are compared with the
# records of the run, by a reader in Python and, if VB_PYTHON or python3 has the package tensorboard, by TensorBoard's
# readers. Parts: "kills N" kills N jobs at random instants; every record up to the last whole one reads. "page" asks a
# TensorBoard server for what its page shows. "bits" compares results with and without --run. "sparse" is sparse-lr.
#
# Covers: engine/record/train_board.c engine/record/train_graph.c
python=${VB_PYTHON:-python3}
# shellcheck source=tests/support/command_test.sh
. "$(dirname "$0")/../support/command_test.sh"
what=train
tests=$(dirname "$0")
export XDG_CACHE_HOME=$dir/cache OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
shift

# checked RUN ARGUMENTS...: trains, and compares the curves with the records
checked() {
    local run=$dir/$1
    shift
    run "$@" --run "$run"
    [ "$code" = 0 ] || fail "train $*: exit $code: $err"
    $python "$tests/check_board.py" "$run" >"$dir/check" 2>"$dir/check.err" ||
        fail "train $*: $(tail -n 3 "$dir/check.err")"
    sed "s/^/$1: /" "$dir/check"
}

# same_bits ARGUMENTS...: a run that is recorded ends with the same parameters as one that is not, although histograms
# may need a gradient that the step has not kept
same_bits() {
    local with
    run "$@" --run "$dir/bits" --json
    with=$(get .params_sha256)
    if [ -f "$dir/bits/plan" ]; then
        run "$@" --plan "$dir/bits/plan" --json
    else
        run "$@" --json
    fi
    if [ ${#with} != 64 ] || [ "$(get .params_sha256)" != "$with" ]; then
        fail "train $*: --run changes the result"
    fi
    rm -rf "$dir/bits"
}

# whole FOLDER: prints the number of whole records in the event files of a job that was killed
whole() {
    $python - "$tests" "$1" <<'END'
import glob, sys
sys.path.insert(0, sys.argv[1])
from read_events import records
n = 0
for path in glob.glob(sys.argv[2] + "/**/events.out.tfevents.*", recursive=True):
    found = list(records(path))
    assert b"brain.Event:2" in found[0], path
    n += len(found)
    try:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    except ImportError:
        continue
    assert list(RawEventFileLoader(path).Load()) == found, f"{path}: TensorBoard reads other records"
print(n)
END
}

# killed N: kills N jobs, each after a random time of up to a second since its event file is there
killed() {
    local i k n some=0
    for ((i = 0; i < $1; i++)); do
        "$verbena" train softmax --ranks 2 --epochs 100000 --eval-every 20 --test-limit 100 --run "$dir/kill$i" \
            >"$dir/out" 2>"$dir/err" &
        for ((k = 0; k < 300; k++)); do
            compgen -G "$dir/kill$i/events.out.*" >/dev/null && break
            sleep 0.1
        done
        sleep "0.$((RANDOM % 10))$((RANDOM % 10))$((RANDOM % 10))"
        kill -9 $! $(pgrep -P $!) 2>/dev/null
        wait $! 2>/dev/null
        n=$(whole "$dir/kill$i" 2>"$dir/check.err") || fail "killed job $i: $(tail -n 1 "$dir/check.err")"
        some=$((some + (${n:-0} > 10)))
        rm -rf "$dir/kill$i"
    done
    [ $some -ge $(($1 / 2)) ] || fail "only $some of $1 killed jobs left more than ten records"
    echo "$1 jobs killed: every whole record reads"
}

# page: what TensorBoard's page asks its server for
page() {
    if ! $python -c 'import tensorboard' 2>/dev/null; then
        echo "skipped, because $python has no package tensorboard (set VB_PYTHON): the page"
        return
    fi
    $python - "$dir" <<'END' || fail "the page of TensorBoard lacks something"
import json, subprocess, sys, time, urllib.request
server = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", sys.argv[1], "--port", "0", "--host",
                           "127.0.0.1", "--load_fast", "false"], stderr=subprocess.PIPE, text=True)
try:
    url = next(line.split(" at ")[1].split(" ")[0] for line in server.stderr if " at http" in line)
    def ask(path, **body):
        data = json.dumps(body).encode() if body else None
        head = {"Content-Type": "application/json"} if body else {}
        return urllib.request.urlopen(urllib.request.Request(url + path, data, head), timeout=60).read()
    deadline = time.time() + 60
    while True:
        tags = json.loads(ask("data/plugin/scalars/tags"))
        if "lenet" in tags and "loss" in tags["lenet"] and "lenet/rank1" in tags or time.time() > deadline:
            break
        time.sleep(0.5)
    assert "loss" in tags["lenet"] and "phases_ms/wait" in tags["lenet/rank1"], tags
    assert b"conv1/Conv2D" in ask("data/plugin/graphs/graph?run=lenet&conceptual=false")
    assert "weights/conv1.w" in json.loads(ask("data/plugin/histograms/tags"))["lenet"]
    experiment = json.loads(ask("data/plugin/hparams/experiment", experimentName=""))
    assert {"lr", "model"} <= {p["name"] for p in experiment["hparamInfos"]}, experiment
    assert "accuracy" in {m["name"]["tag"] for m in experiment["metricInfos"]}, experiment
    groups = json.loads(ask("data/plugin/hparams/session_groups", startIndex=0, sliceSize=10, allowedStatuses=[
        "STATUS_SUCCESS"], colParams=[{"metric": {"tag": "accuracy"}, "order": "ORDER_DESC"}]))
    assert {"lenet", "async"} <= {s["name"] for g in groups["sessionGroups"] for s in g["sessions"]}, groups
    print("TensorBoard's server has curves, graph, histograms and hyper-parameters")
finally:
    server.kill()
END
}

# bits: synchronous training, and asynchronous training with --staleness 0
bits() {
    same_bits softmax --steps 200 --eval-every 7 --test-limit 100
    same_bits softmax --ranks 2 --steps 200 --eval-every 7 --test-limit 100
    same_bits sparse-lr --steps 200 --rule sgd --eval-every 7 --test-limit 100
    same_bits mlp --mode async --staleness 0 --ranks 2 --steps 60 --eval-every 7 --test-limit 100
    same_bits alexnet --input 32 --steps 4 --batch 8 --eval-every 1 --test-limit 8 --data synth:200 # it has dropout
}

checked lenet lenet --ranks 2 --steps 150 --eval-every 50 --test-limit 500
checked single softmax --epochs 40 --eval-every 2000 # it adds to the parameters directly
checked async softmax --ranks 2 --mode async --steps 20000 --eval-every 5000
while [ $# -gt 0 ]; do
    case $1 in
    kills)
        killed "$2"
        shift 2
        ;;
    sparse)
        checked sparse sparse-lr --ranks 2 --steps 300 --eval-every 100 --test-limit 1000
        shift
        ;;
    page)
        page
        shift
        ;;
    bits)
        bits
        shift
        ;;
    *)
        fail "unknown part '$1'"
        shift
        ;;
    esac
done
exit $bad
