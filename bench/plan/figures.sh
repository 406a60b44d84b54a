#!/bin/sh
# Figures of Arachne beyond its main table (docs/explanation/planning.md): models (Fig. 8 left), frame windows (Fig. 8 middle), the case
# study (Fig. 9), more devices, and with them the coefficients of variation (Fig. 10 and 11).
#   bench/plan/figures.sh [WEFT]     writes bench/plan/<figure>.txt
set -eu
cd "$(dirname "$0")/../.."
weft=${1-build/weft}
export OMP_NUM_THREADS=1
compare() { # compare NAME ITERATIONS KEY=VALUE...
    name=bench/plan/$1 iterations=$2
    shift 2
    "$weft" plan compare --set iterations="$iterations" --seed 1 $(printf -- '--set %s ' "$@") >"$name.txt" 2>/dev/null
    echo "$name.txt"
}
for model in wan-1.3b cogvideox-5b hunyuanvideo-13b; do compare "model-$model" 20 model=$model stage=720p cluster=h100:2; done
for frames in 53 81 105; do compare "frames-$frames" 20 max_frames=$frames stage=720p cluster=h100:2; done
"$weft" plan compare bench/plan/case-study.yaml --seed 1 >bench/plan/case-study.txt 2>/dev/null
for stage in 360p 720p 1080p; do
    for nodes in 16 32; do compare "$stage-$((8 * nodes))" 10 stage=$stage cluster=h100:$nodes; done
done
