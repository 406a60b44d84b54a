#!/bin/bash
# bench/drift.sh: brightness and background of long videos, in one piece and in blended windows. The demo's
# autoencoder and transformer learn clips of 13 and of 41 frames. FRAMES frames are generated in both ways
# from SEEDS seeds of 8 prompts. The table has the drift of both, of clips of the training set, and of
# FOOTAGE, a folder of videos. DIR keeps models and videos for the next run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
FOOTAGE=${FOOTAGE:+$(readlink -f "$FOOTAGE")} DIR=${DIR:+$(mkdir -p "$DIR" && readlink -f "$DIR")}
. "$here/scratch.sh"
[ -z "$DIR" ] || cd "$DIR"
frames=${FRAMES-41} seeds=${SEEDS-4} n=${RANKS-1} side=${SIDE-32} steps=${STEPS-1000}
unless() { [ -e "$1" ] || say "${@:2}"; } # RESULT COMMAND...
draw() { # NAME SHOTS FEWEST MOST, in frames of 24 per second
    unless "$1" "$WEFT" synth --out "$1" --shots "$2" --radius 19 --single-share 1 --gradual-share 0 --held-out-clips 1 --min-frames "$3" --max-frames "$4"
}
draw short 500 26 40
draw long 400 84 100
mkdir -p raw
for name in short long; do
    for f in "$name/train"/*; do ln -sf "$PWD/$f" "raw/$name-$(basename "$f")"; done
done
unless curated "$WEFT" curate "$here/../examples/demo/curate.yaml" --in raw --out curated
unless shards "$WEFT" shard --in curated --out shards
sides() { for stage in 0 1; do for key in height width; do echo --set "stages.$stage.$key=$side"; done; done; }
# shellcheck disable=SC2046 # words
unless vae/model/vae ranks "$n" "$WEFT" train "$here/../examples/demo/vae.yaml" $(sides) --set stages.0.steps=$((steps * 2 / 5)) --set stages.1.steps=$((steps / 4))
sed '/^stages/,$d' "$here/../examples/demo/dit.yaml" >dit.yaml
cat >>dit.yaml <<Y
stages:
  - {name: both, steps: $steps, lr: 1.5e-3, min_lr_ratio: 0.05, warmup_steps: 50, buckets: [{batch: 16, frames: 13, height: $side, width: $side}, {batch: 6, frames: 41, height: $side, width: $side}]}
Y
unless dit/model/transformer ranks "$n" "$WEFT" train dit.yaml
for colour in "red circle" "green square" "blue triangle" "yellow circle"; do
    for way in left up; do echo "a $colour moving $way"; done
done >prompts.txt
generate() { # NAME SEED OPTIONS...
    unless "$1-$2/sheet.png" "$WEFT" generate --model dit/model --prompts prompts.txt --out "$1-$2" --sheet "$1-$2/sheet.png" --seed $(($2 * 8)) \
        --frames "$frames" --height "$side" --width "$side" --steps 12 --guidance-scale 6 --guidance-end 0.55 --batch-size 8 "${@:3}"
}
for seed in $(seq "$seeds"); do
    generate piece "$seed"
    generate windows "$seed" --window 13 --window-overlap 4
done
python3 -IS "$here/drift.py" "$frames" "$side" "$seeds" "clips of training=long/train" ${FOOTAGE:+"footage=$FOOTAGE"}
