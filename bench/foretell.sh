#!/bin/bash
# MODEL=demo/dit/model bench/foretell.sh [RANKS]: predicted and measured seconds of videos. Profiles the
# model's programs on RANKS (2) ranks of one thread each, then makes a video with each layout, TURNS (5)
# times, alternating. Prints the fastest and the median next to the prediction. TILE: tiles of the last
# row. BEFORE: a command that precedes each run.
set -u
n=${1:-2} weft=${WEFT:-$PWD/build/weft} model=${MODEL:?a model folder}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
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
        { tail -1 "$dir/out/prompts.jsonl"; grep -h "^predicted: " "$dir/log"; } >>"$dir/told$i"
    done
done
echo "| layout | denoising predicted s | fastest s | median s | fastest deviation % | median deviation % | decoding predicted s | fastest decoding s | median decoding s | fastest decoding deviation % | median decoding deviation % |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for i in "${!ways[@]}"; do
    python3 - "${ways[i]/ tiles/, tiles}" "$dir/told$i" <<'P'
import json, re, statistics, sys
unit = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
def seconds(text):
    return sum(float(value) * unit[name] for value, name in re.findall(r"([0-9.]+) (us|ms|s|min|h)\b", text))
lines = open(sys.argv[2]).read().splitlines()
took = [json.loads(l)["seconds"] for l in lines if l[0] == "{"]
told = re.search(r"a step, (.*) for the denoising of .*, (.*) for the decoding", [l for l in lines if l[0] != "{"][0])
row = [sys.argv[1]]
for name, text in zip(("denoise", "decode"), told.groups()):
    said, each = seconds(text), [t[name] for t in took]
    found = min(each), statistics.median(each)
    row += [f"{said:.3f}", *(f"{x:.3f}" for x in found), *(f"{100 * (x / said - 1):+.0f}" for x in found)]
print("| " + " | ".join(row) + " |")
P
done
