#!/bin/bash
# bench/foresight.sh [STEPS]: six runs foreseen and then done. A profile of each run's own kernels and exchanges (weft profile, with the
# ranks that the run has), the price of its layout by that (weft plan layout --for), then `weft train` for STEPS steps (40):
# the median of their seconds beside the predicted, and the memory that was reserved beside the predicted. Writes the table between the
# markers in bench/README.md. One thread a rank. RUNS="1 3": only these. Alone on the machine, or the figures mean nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
steps=${1-40}
. "$here/runs.sh"
run=(
    "1|DiT, 6 layers of 192, 8 x 17x64x64|dit $steps 6 6 768 8 64|"
    "1|VAE, width 12, 2 x 9x64x64|vae $steps 12 2 64|"
    "2|DiT, 6 layers of 192, 8 x 17x64x64|dit $steps 6 6 768 8 64|dp=2"
    "2|DiT, 10 layers of 256, 4 x 17x128x128|dit $steps 10 8 1024 4 128|cp=2 context=ring"
    "2|DiT, 10 layers of 256, 4 x 17x128x128|dit $steps 10 8 1024 4 128|pp=2 schedule=1f1b microbatches=4"
    "2|VAE, width 16, 4 x 9x64x64|vae $steps 16 4 64|fsdp=2"
)
cat >line.py <<'P'
import json, re, statistics, sys
out, what, ranks, layout = sys.argv[1:5]
plan = json.load(open("layout.json"))
c = [c for c in plan["candidates"] if c["layout"] == (layout or "1 rank") or (not layout and ranks == "1")][0]
took = [json.loads(l)["step_seconds"] for l in open(out + "/metrics.jsonl")][5:]
log = open("train.log").read()
had = re.search(r"stage 0.*, program (.*?), weights and optimizer (.*?)(?: per rank)?$", log, re.M).groups()
said = re.search(r"weights and optimizer ([^(]*) \(.*stage 0 (.*) and batches", c["memory"]).groups()
def ms(s): return "%.1f" % (1e3 * s)
print("| %s | %s | %s | %s | %+.1f %% | %s, %s, %s, %s | %s | %s |" % (
    what, layout or "1 rank", ms(c["seconds"]), ms(statistics.median(took)), 100 * (c["seconds"] / statistics.median(took) - 1),
    ms(c["compute"]), ms(c["exchange"]), ms(c["optimizer"]), ms(c["pauses"]),
    "%s + %s" % (said[1], said[0]), "the same" if (said[1], said[0]) == had else "%s + %s" % had))
P
{
    echo "| run | layout | predicted ms | median of $((steps - 5)) steps, ms | off by | predicted: compute, waits for exchanges, optimizer, pauses | predicted: programs + weights and optimizer of the rank that takes most | reserved |"
    echo "|---|---|---|---|---|---|---|---|"
} >table.md
for i in ${RUNS-1 2 3 4 5 6}; do
    IFS='|' read -r n what model layout <<<"${run[i - 1]}"
    { echo "out: run$i"; $model; } >run.yaml
    options=()
    for o in $layout; do options+=(--set "parallel.$o"); done
    mkdir -p "run$i"
    say ranks "$n" "$WEFT" profile run.yaml --seconds "${SECONDS_EACH-10}" --out "run$i/profile.json"
    say "$WEFT" plan layout --for run.yaml --devices "$n" --out layout.json
    ranks "$n" "$WEFT" train run.yaml "${options[@]}" >train.log 2>&1 || { cat train.log >&2; exit 1; }
    python3 line.py "run$i" "$what" "$n" "$layout" | tee -a table.md
done
[ "${RUNS-}" ] || python3 - "$here/README.md" <<'P'
import re, sys
path, table = sys.argv[1], open("table.md").read()
text = open(path).read()
text, n = re.subn(r"(<!-- foresight -->\n).*?(<!-- /foresight -->)", lambda m: m.group(1) + table + m.group(2), text, flags=re.S)
assert n == 1, "no markers in " + path
open(path, "w").write(text)
P
