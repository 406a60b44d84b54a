#!/bin/bash
# weft eval vae accepts the folder of a complete model and evaluates its vae/.
set -e
. "$SRC/tests/check.sh"
golden=$SRC/tests/golden/pipelines/latte
ffmpeg -v error -nostdin -y -f lavfi -i mandelbrot=size=128x96:rate=24 -frames:v 12 -c:v libx264 -preset veryfast -pix_fmt yuv420p a.mp4
mkdir shards && tar cf shards/heldout-000000.tar a.mp4
a_model_folder_has_a_vae() {
    local model
    for model in "$golden" "$golden/vae"; do
        $WEFT eval vae --model "$model" --shards shards --frames 5 --height 64 --width 64 --json "$(basename "$model").json" >log 2>&1 || fail_with log "$model"
    done
    cmp latte.json vae.json
}
check a_model_folder_has_a_vae
finish
