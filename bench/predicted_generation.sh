#!/bin/bash
# MODEL=demo/dit/model bench/predicted_generation.sh [RANKS]: predicted and measured seconds of videos. Profiles the
# model's programs on RANKS (2) ranks of one thread each, then makes a video with each layout, TURNS (5)
# times, alternating. Prints the fastest and the median next to the prediction. TILE: tiles of the last
# row. BEFORE: a command that precedes each run.
set -u
n=${1:-2} weft=${WEFT:-$PWD/build/weft} model=${MODEL:?a model folder}
here=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive WEFT_LOG_FORMAT=json PYTHONPATH=$here
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
size=(--frames "${FRAMES:-0}" --height "${HEIGHT:-0}" --width "${WIDTH:-0}")
mpi() { ${BEFORE:-} mpirun --oversubscribe -n "$n" "$@"; }
[ -n "${PROFILE:-}" ] || {
    PROFILE=$dir/profile.json
    mpi "$weft" profile --model "$model" "${size[@]}" --vae-tile "${TILE:-auto}" --seconds "${SECONDS_OF_PROFILE:-40}" --out "$PROFILE" >"$dir/log" 2>&1 ||
        { cat "$dir/log"; exit 1; }
}
ways=("cfg=$n" "fsdp=$n" "tp=$n" "tp=$n sequence=true" "cp=$n" "cp=$n context=ring" "cfg=$n tiles")
for turn in $(seq "${TURNS:-5}"); do
    for i in "${!ways[@]}"; do
        options=()
        for key in ${ways[i]}; do
            if [ "$key" = tiles ]; then options+=(--vae-tile "${TILE:-on}"); else options+=(--parallel "$key"); fi
        done
        rm -rf "$dir/out"
        mpi "$weft" generate --model "$model" --prompt "a red circle moving left" "${size[@]}" --steps "${STEPS:-8}" --on "$PROFILE" --out "$dir/out" \
            "${options[@]}" </dev/null >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
        tail -1 "$dir/out/prompts.jsonl" >>"$dir/took$i"
        cp "$dir/log" "$dir/log$i"
    done
done
echo "| layout | denoising predicted s | fastest s | median s | fastest deviation % | median deviation % | decoding predicted s | fastest decoding s | median decoding s | fastest decoding deviation % | median decoding deviation % |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for i in "${!ways[@]}"; do
    python3 - "${ways[i]/ tiles/, tiles}" "$dir/took$i" "$dir/log$i" <<'P'
import json, statistics, sys
from log_messages import last
took = [json.loads(line)["seconds"] for line in open(sys.argv[2])]
predicted = last(open(sys.argv[3]).read(), "estimate", "decode_seconds")
row = [sys.argv[1]]
for name, key in ("denoise", "value"), ("decode", "decode_seconds"):
    said, each = predicted[key], [t[name] for t in took]
    found = min(each), statistics.median(each)
    row += [f"{said:.3f}", *(f"{x:.3f}" for x in found), *(f"{100 * (x / said - 1):+.0f}" for x in found)]
print("| " + " | ".join(row) + " |")
P
done
