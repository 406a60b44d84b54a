#!/bin/bash
# bench/foretell.sh: seconds that are told before a video is made, held against those that it took.
#
# MODEL=demo/dit/model bench/foretell.sh [RANKS]: profiles RANKS (2) ranks of one thread each, then makes a video with each layout, twice, and prints the
# quicker one beside the prediction as rows of a table. BEFORE: a command that each run goes behind.
set -u
n=${1:-2} weft=${WEFT:-$PWD/build/weft} model=${MODEL:?a model folder}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
size=(--frames "${FRAMES:-0}" --height "${HEIGHT:-0}" --width "${WIDTH:-0}" --steps "${STEPS:-6}")
mpi() { ${BEFORE:-} mpirun --oversubscribe -n "$n" "$@"; }
[ -n "${PROFILE:-}" ] || { PROFILE=$dir/profile.json; mpi "$weft" profile ${CONFIG:-} --seconds "${SECONDS_OF_PROFILE:-20}" --out "$PROFILE" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }; }
python3 - "$n" <<'P' >"$dir/ways"
import sys
n = int(sys.argv[1])
for way in f"cfg={n}", f"cp={n}", f"cp={n} context=ring", f"tp={n}", f"fsdp={n}":
    print(way)
print(f"cfg={n} tiles")
P
echo "| layout | denoising predicted, s | measured | off | decoding predicted, s | measured | off |"
echo "|---|---|---|---|---|---|---|"
while read -r way; do
    options=()
    for key in $way; do
        if [ "$key" = tiles ]; then options+=(--tile "${TILE:-on}"); else options+=(--parallel "$key"); fi
    done
    : >"$dir/told"
    for turn in $(seq "${TURNS:-2}"); do
        rm -rf "$dir/out"
        mpi "$weft" generate --model "$model" --prompt "a red circle moving left" "${size[@]}" --cluster "$PROFILE" --out "$dir/out" "${options[@]}" \
            </dev/null >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
        tail -1 "$dir/out/prompts.jsonl" >>"$dir/told"
        grep -h "^predicted: " "$dir/log" >>"$dir/told"
    done
    python3 - "$way" "$dir/told" <<'P'
import json, re, sys
unit = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
def seconds(text):
    total = 0
    for value, name in re.findall(r"([0-9.]+) (us|ms|s|min|h)\b", text):
        total += float(value) * unit[name]
    return total
lines = open(sys.argv[2]).read().splitlines()
took = [json.loads(l)["seconds"] for l in lines if l[0] == "{"]
told = re.search(r"a step, (.*) for the denoising of .*, (.*) for the decoding", [l for l in lines if l[0] != "{"][0])
row = [sys.argv[1]]
for name, text in zip(("denoise", "decode"), told.groups()):
    is_, said = min(t[name] for t in took), seconds(text)
    row += [f"{said:.3f}", f"{is_:.3f}", f"{100 * (is_ / said - 1):+.0f} %"]
print("| " + " | ".join(row) + " |")
P
done <"$dir/ways"
