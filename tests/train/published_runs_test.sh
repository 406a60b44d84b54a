#!/bin/bash
# Runs that begin with the models of a published folder (tests/golden/pipelines), with all weights and with LoRA of the default layers:
# `weft generate` accepts the finished folder, and the folder with the adapter makes another video. The folder has all parts that its
# generation needs.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards 4
make_pictures
run() { # NAME OUT OPTIONS...
    "$WEFT" train "$1.yaml" --set "out=runs/$2" "${@:3}" >"$2.log" 2>&1 || { cat "$2.log"; fail "weft train $1 ${*:3}"; }
}
published() { # NAME FRAMES GENERATE-OPTIONS...
    local name=$1 folder="$SRC/tests/golden/pipelines/$1" encoders
    encoders=$(ls -d "$folder"/text_encoder*)
    [ "$name" != flux ] || encoders=$(ls -dr "$folder"/text_encoder*) # the first one gives the pooled vector
    {
        echo "autoencoder: {weights: $folder/vae}"
        echo "data: {path: shards, latents: latents}"
        echo "transformer: {weights: $folder/transformer}"
        echo "text_encoders:"
        printf '  - {weights: %s}\n' $encoders
        echo "checkpoint: {interval: 0}"
        echo "stages: [{steps: 1, batch: 2, frames: $2, height: 32, width: 32, lr: 1e-2, warmup_steps: 0, lr_schedule: constant}]"
    } >"$name.yaml"
    run "$name" "$name"
    run "$name" "$name-lora" --set transformer.lora.rank=2 --set stages.0.steps=2
    for video in base adapted; do
        "$WEFT" generate --model "runs/$name/model" --prompt cat --steps 2 --latents-npy --out $video.mp4 "${@:3}" >generate.log 2>&1 || { cat generate.log; fail "weft generate with $name: $video"; }
        set -- "$@" --lora "runs/$name-lora/adapter"
    done
    ! cmp -s base.latents.npy adapted.latents.npy || fail "the adapter of $name has no effect"
}
# Framepack needs its image encoder, and videos of whole sections.
framepack() {
    published framepack 5 --image red.png
    has_message framepack.log run-finished "next=*--image FILE*" || fail_with framepack.log "the next command has no image"
    for part in image_encoder feature_extractor; do
        diff -r "$SRC/tests/golden/pipelines/framepack/$part" "runs/framepack/model/$part" || fail "$part is not the published one"
    done
    python3 -S -c 'import json
index, frames = json.load(open("runs/framepack/model/model_index.json")), json.load(open("runs/framepack/model/weft.json"))["frames"]
assert index["image_encoder"] == ["transformers", "SiglipVisionModel"] and "feature_extractor" in index and frames == 37, (index, frames)' ||
        fail "model_index.json or weft.json"
    # without one next to the weights, the run warns
    mkdir alone && cp -r "$SRC/tests/golden/pipelines/framepack/transformer" alone
    run framepack lonely --set transformer.weights=alone/transformer
    has_message lonely.log model-not-found level=warning key=image_encoder || fail_with lonely.log "the missing image encoder is not reported"
    # an unusable one is as none; weights in the form of torch are copied
    mkdir alone/image_encoder && echo '{"_class_name": "Other"}' >alone/image_encoder/config.json
    run framepack unusable --set transformer.weights=alone/transformer
    has_message unusable.log model-not-found level=warning key=image_encoder || fail_with unusable.log "the unusable image encoder is not reported"
    rm -r alone/image_encoder && cp -r "$SRC/tests/golden/pipelines/framepack/image_encoder" alone
    mv alone/image_encoder/model.safetensors alone/image_encoder/pytorch_model.bin
    run framepack torch --set transformer.weights=alone/transformer
    cmp alone/image_encoder/pytorch_model.bin runs/torch/model/image_encoder/pytorch_model.bin || fail "pytorch_model.bin is not copied"
}
check framepack
check cosmos2 published cosmos2 5 --image red.png
check hidream published hidream 1
check flux published flux 1
check wan22 published wan22 5
finish
