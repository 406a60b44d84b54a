#!/bin/bash
# bench/generate.sh [small] [models] [vae]: videos with the same random weights by weft generate and by
# diffusers' modules: seconds of a step and of decoding, and peak memory, on one and two threads. Then
# Wan 2.1's autoencoder at full width on two threads, 81 frames ($FRAMES) of 832 x 480, whole and in
# tiles. small: fewer and smaller frames; models, vae: one part. $WEFT_PEER_PYTHON: a Python with torch,
# diffusers and transformers, which also makes the weights. $DEMO: a model of weft train, without peer.
# The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/.." && pwd)
WEFT=${WEFT-$root/build/weft}
[ -n "${WEFT_PEER_PYTHON-}" ] || { echo "give a Python with torch, diffusers and transformers as WEFT_PEER_PYTHON"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
peer() { (cd "$root" && "$WEFT_PEER_PYTHON" "$here/peer_generate.py" "$@" 2>"$scratch/peer.log") || { cat "$scratch/peer.log" >&2; exit 1; }; }
# by OPTIONS...: "step<TAB>decoding<TAB>MiB" of weft generate, from the line that it writes
by() {
    rm -rf "$scratch/out"
    "$WEFT_PEER_PYTHON" - "$WEFT" generate --prompt "a red cat" --out "$scratch/out" "$@" <<'P'
import json, os, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
if done.returncode:
    sys.exit(done.stderr)
out = sys.argv[sys.argv.index("--out") + 1]
line = json.loads(open(out + "/prompts.jsonl").readlines()[-1])
s = line["seconds"]
print("%.4f\t%.3f\t%.0f" % (s.get("denoise", 0) / line["steps"], s["decode"], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024))
P
}
row() { # NAME THREADS OURS THEIRS
    python3 - "$@" <<'P'
import sys
name, threads, ours, theirs = sys.argv[1], sys.argv[2], *(list(map(float, a.split("\t"))) for a in sys.argv[3:5])
of = lambda a, b: "%.2f" % (a / b) if a and b else "-"
show = lambda x, digits: f"{x:.{digits}f}" if x else "-"
cells = [show(ours[0], 3), show(theirs[0], 3), of(theirs[0], ours[0]), show(ours[1], 2), show(theirs[1], 2),
         of(theirs[1], ours[1]), show(ours[2], 0), show(theirs[2], 0), of(ours[2], theirs[2])]
print(f"| {name} | {threads} | {' | '.join(cells)} |")
P
}
small= parts=
for word; do
    case $word in
    small) small=yes ;;
    models | vae) parts="$parts $word" ;;
    *) echo "bench/generate.sh: no part $word; there are models and vae, and small" >&2 && exit 2 ;;
    esac
done
wants() { [ -z "$parts" ] || case $parts in *" $1"*) ;; *) return 1 ;; esac; }
echo "| model | threads | step s | diffusers step s | step ratio | decoding s | diffusers decoding s | decoding ratio | peak MiB | diffusers peak MiB | share of peak |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
steps=8
for name in $(wants models && echo wan hunyuan latte); do
    size="17 192 320"
    [ -z "$small" ] || { steps=2 size="5 64 96"; }
    [ $name != latte ] || size="16 ${size#* }" # the number that it is trained for
    read -r frames height width <<<"$size"
    peer make $name "$scratch/$name"
    for threads in 1 2; do
        export OMP_NUM_THREADS=$threads
        ours=$(by --model "$scratch/$name" --frames $frames --height $height --width $width --steps $steps)
        row "$name, $frames x ${width}x$height" $threads "$ours" "$(peer run "$scratch/$name" $frames $height $width $steps)"
    done
done
size="${FRAMES-81} 480 832"
[ -z "$small" ] || size="9 128 208"
read -r frames height width <<<"$size"
export OMP_NUM_THREADS=2
! wants vae || peer make vae "$scratch/vae"
for tile in $(wants vae && echo off on); do
    ours=$(by --model "$scratch/vae" --frames $frames --height $height --width $width --steps 1 --guidance-scale 1 --vae-tile $tile)
    theirs=$(peer decode "$scratch/vae" $frames $height $width $([ $tile = off ] || echo tiled)) || theirs=
    row "Wan 2.1 VAE, $frames x ${width}x$height, tiles $tile" 2 "$ours" "${theirs:-0	0	0}"
done
[ -z "${DEMO-}" ] || for threads in 1 2; do
    export OMP_NUM_THREADS=$threads
    row "the demo's model" $threads "$(by --model "$DEMO" --steps 30)" "0	0	0"
done
