#!/bin/bash
# bench/predicted_training.sh [STEPS]: predicts six runs and then runs them, one thread per rank. `weft profile`
# measures a run's kernels and exchanges on its ranks, `weft plan layout --run-config` predicts the
# layout, and `weft train` runs STEPS steps (40). Prints the median step and the reserved memory next
# to the predictions. RUNS="1 3" selects runs. The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
steps=${1-40}
. "$here/runs.sh"
export WEFT_LOG_FORMAT=json PYTHONPATH=$here
run=(
    "1|DiT, 6 layers of 192, 8 x 17x64x64|dit $steps 6 6 768 8 64|"
    "1|VAE, width 12, 2 x 9x64x64|vae $steps 12 2 64|"
    "2|DiT, 6 layers of 192, 8 x 17x64x64|dit $steps 6 6 768 8 64|dp=2"
    "2|DiT, 10 layers of 256, 4 x 17x128x128|dit $steps 10 8 1024 4 128|cp=2 context=ring"
    "2|DiT, 10 layers of 256, 4 x 17x128x128|dit $steps 10 8 1024 4 128|pp=2 schedule=1f1b microbatches=4"
    "2|VAE, width 16, 4 x 9x64x64|vae $steps 16 4 64|fsdp=2"
)
cat >line.py <<'P'
import json, statistics, sys
from log_messages import last
out, what, ranks, layout = sys.argv[1:5]
plan = json.load(open("layout.json"))
c = [c for c in plan["candidates"] if c["layout"] == (layout or "1 rank") or (not layout and ranks == "1")][0]
took = [json.loads(l)["step_seconds"] for l in open(out + "/metrics.jsonl")][5:]
had = last(open("train.log").read(), "stage-report", "stage", "weight_bytes")
mib = lambda *bytes: tuple("%.2f" % (each / (1 << 20)) for each in bytes)
had = mib(had["value"], had["weight_bytes"])
planned = mib(c["device_bytes"] - c["weight_bytes"], c["weight_bytes"])
def ms(s): return "%.1f" % (1e3 * s)
print("| %s | %s | %s | %s | %+.1f | %s | %s | %s | %s | %s | %s | %s |" % (
    what, layout or "1 rank", ms(c["seconds"]), ms(statistics.median(took)), 100 * (c["seconds"] / statistics.median(took) - 1),
    ms(c["compute_seconds"]), ms(c["exposed_seconds"]), ms(c["optimizer_seconds"]), ms(c["bubble_seconds"]),
    *planned, "the same" if planned == had else "%s + %s" % had))
P
echo "| run | layout | predicted ms | measured ms | deviation % | compute ms | exposed communication ms | optimizer ms | bubbles ms | programs MiB | weights MiB | reserved |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
for i in ${RUNS-1 2 3 4 5 6}; do
    IFS='|' read -r n what model layout <<<"${run[i - 1]}"
    { echo "out: run$i"; $model; } >run.yaml
    options=()
    for o in $layout; do options+=(--set "parallel.$o"); done
    mkdir -p "run$i"
    say ranks "$n" "$WEFT" profile run.yaml --seconds "${SECONDS_EACH-10}" --out "run$i/profile.json"
    say "$WEFT" plan layout --run-config run.yaml --devices "$n" --out layout.json
    ranks "$n" "$WEFT" train run.yaml "${options[@]}" >train.log 2>&1 || { cat train.log >&2; exit 1; }
    python3 line.py "run$i" "$what" "$n" "$layout"
done
