#!/bin/bash
# Weights that are read from their files for each use: bit for bit the numbers of weights in memory, in two blocks' memory, as told and held.
set -u
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
fail() { echo "FAILED: $*"; exit 1; }
python3 "$SRC/tests/generate/enlarge.py" model 256 1024 6 256 512 6 20000 || fail "a model"
python3 "$SRC/tests/generate/enlarge.py" half 256 1024 6 256 512 6 20000 bf16 || fail "a model in bf16"
generate() { # RANKS OUT MODEL OPTIONS...
    local n=$1 out=$2 model=$3
    shift 3
    local run=()
    [ "$n" = 1 ] || run=("$MPIRUN" --oversubscribe -n "$n")
    python3 - "$out" "${run[@]}" "$WEFT" generate --model "$model" --prompt "a red cat" --seed 3 --steps 2 --height 32 --width 32 --frames 5 \
        --raw --out "$out.mp4" "$@" >"$out.log" 2>&1 <<'P' || { cat "$out.log"; fail "weft generate on $n ranks: $*"; }
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=open(sys.argv[1] + ".rss", "w"))
sys.exit(code)
P
}
same() { cmp "$1.npy" "$2.npy" || fail "$2 has other numbers than $1"; }
generate 1 stored model
generate 1 stream model --weights stream
generate 1 half half
generate 1 half_stream half --weights stream
generate 1 rounded model --weights bf16
generate 1 rounded_stream model --weights bf16,stream # not so in the files
same stored stream
same half half_stream
same rounded rounded_stream
cmp -s stored.npy half.npy && fail "bf16 files give the numbers of f32 ones"
generate 2 stored2 model --parallel tp=2
generate 2 stream2 model --parallel tp=2 --weights stream # columns do not lie together in the files
same stored2 stream2
generate 3 stored3 model --parallel fsdp=3
generate 3 stream3 model --parallel fsdp=3 --weights stream
same stored3 stream3
ls -A | grep -v -e '^model$' -e '^half$' -e '\.mp4$' -e '\.npy$' -e '\.log$' -e '\.rss$' && fail "something is left behind"
python3 - <<'P' || fail "memory"
import os, re
unit = {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}
def told(name):
    number, of = re.search(r"predicted peak ([0-9.]+) (.iB)", open(name + ".log").read()).groups()
    return float(number) * unit[of]
def held(name): return int(open(name + ".rss").read()) / 1024
def weights(model): return sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(model) for f in fs if f.endswith("safetensors") and "vae" not in d) / 2 ** 20
for model, whole, streamed in ("model", "stored", "stream"), ("half", "half", "half_stream"), ("model", "rounded", "rounded_stream"):
    saved = told(whole) - told(streamed)
    print(f"{whole}: {weights(model):.1f} MiB of files, told {told(whole):.1f}, streamed {told(streamed):.1f}; held {held(whole):.1f}, {held(streamed):.1f}")
    assert abs(held(whole) - held(streamed) - saved) < 0.15 * saved, (held(whole), held(streamed), saved)
block = 4 * (8 * 256 * 256 + 2 * 256 * 1024) / 2 ** 20  # of the transformer, the largest
assert told("stream") < told("stored") - weights("model") + 2 * block + 1, block  # and what is small
assert told("half_stream") < told("half") - weights("half") + block + 1, block
P
refused() { # WORDS OPTIONS...
    local words=$1
    shift
    "$WEFT" generate --model model --prompt x --frames 5 --height 64 --width 64 --out no.mp4 "$@" >refused.log 2>&1 && fail "$*: not refused"
    grep -q -- "$words" refused.log || { cat refused.log; fail "$*: not told: $words"; }
}
refused "streamed by that pass; leave one of them out" --weights stream --pass stream=off
refused "--weights stream,bf16: known are stored" --weights stream,bf16
refused "--weights bf16,: known are stored" --weights bf16,
exit 0
