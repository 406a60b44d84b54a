#!/bin/sh
# The figures of docs/explanation/planning.md: three stages, 16, 32 and 64 H100, 50 iterations from seed 1.
#   bench/plan/run.sh [WEFT]     writes bench/plan/<stage>-<devices>.txt and .json, and two Gantt charts
# One core per plan (OMP_NUM_THREADS=1), as the planning times in the text say.
set -eu
cd "$(dirname "$0")/../.."
weft=${1-build/weft}
export OMP_NUM_THREADS=1
for stage in 360p 720p 1080p; do
    for nodes in 2 4 8; do
        name=bench/plan/$stage-$((8 * nodes))
        "$weft" plan compare --set stage=$stage --set cluster=h100:$nodes --seed 1 --out "$name.json" >"$name.txt" 2>/dev/null
        echo "$name.txt"
    done
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$weft" plan cascades --set stage=720p --set cluster=h100:2 --seed 1 --out "$scratch/plan.json" --svg bench/plan/plan-720p-16.svg >bench/plan/plan-720p-16.txt
"$weft" simulate "$scratch/plan.json" --pass-splits 2 --svg bench/plan/simulated-720p-16.svg >bench/plan/simulated-720p-16.txt
