#!/bin/bash
# bench/generate.sh [small] [models] [vae]: videos of the same random weights by weft generate and by diffusers' modules: seconds of a
# step, of decoding, and the peak of memory, on one and two threads; then on two Wan 2.1's autoencoder at full width, 81 frames ($FRAMES)
# of 832 x 480 (small: 9 of 208 x 128), whole and in tiles. models, vae: that part alone. $WEFT_PEER_PYTHON: a Python with torch,
# diffusers and transformers, which makes the weights, too. With $DEMO, a model of weft train, it is measured without a peer. Alone on
# the machine, or it means nothing.
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
print(f"| {name} | {threads} | {ours[0]:.3f}, {theirs[0]:.3f} | {of(theirs[0], ours[0])} | {ours[1]:.2f}, {theirs[1]:.2f} | "
      f"{of(theirs[1], ours[1])} | {ours[2]:.0f}, {theirs[2]:.0f} | {of(ours[2], theirs[2])} |")
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
echo "| model | threads | step, s: weft, diffusers | as fast | decoding, s | as fast | peak, MiB | share |"
echo "|---|---|---|---|---|---|---|---|"
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
    ours=$(by --model "$scratch/vae" --frames $frames --height $height --width $width --steps 1 --guidance 1 --tile $tile)
    theirs=$(peer decode "$scratch/vae" $frames $height $width $([ $tile = off ] || echo tiled)) || theirs=
    row "Wan 2.1's VAE, $frames x ${width}x$height, tiles $tile" 2 "$ours" "${theirs:-0	0	0}"
done
echo "Published of stable-diffusion.cpp, Wan 2.1 1.3B on a processor: decoding 506.9 s of 642.3, a buffer of 18,900 MiB (its issue 872; size and machine not said)"
[ -z "${DEMO-}" ] || for threads in 1 2; do
    export OMP_NUM_THREADS=$threads
    row "the demo's model" $threads "$(by --model "$DEMO" --steps 30)" "0	0	0"
done
