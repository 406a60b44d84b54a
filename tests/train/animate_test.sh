#!/bin/bash
# Training Wan Animate from sets of poses, faces, images, backgrounds and masks. A stopped run
# resumes bitwise. Other layouts have the losses of one rank. Every set has an effect on the loss.
# The finished model and the adapter generate. tests/train/graph/distillation_test.c compares
# the steps with PyTorch.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
command -v ffmpeg >/dev/null || skip "ffmpeg is not installed"
make_shards 8
write_configs
# set_of NAME FILTER: a set with the clips of cur, changed by the filter
set_of() {
    mkdir -p "$1"
    cp -r cur/metas "$1"
    mkdir "$1/clips"
    for clip in cur/clips/*.mp4; do
        ffmpeg -v error -nostdin -i "$clip" -vf "$2" -c:v libx264 -qp 0 "$1/${clip#cur/}" || fail "ffmpeg $clip"
    done
    "$WEFT" shard --in "$1" --out "$1-shards" --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard $1"; }
}
set_of poses boxblur=4
set_of faces scale=24:20
set_of other-faces scale=24:20,negate
set_of images negate
set_of backgrounds hue=h=90
set_of masks geq=lum='255*lt(X\,W/2)':cb=128:cr=128
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
animate=$SRC/tests/golden/pipelines/wan_animate
size='num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32, motion_encoder_size: 16, motion_encoder_channel_sizes: {"4": 6, "8": 5, "16": 4}, motion_style_dim: 8, motion_dim: 3, motion_encoder_dim: 6, face_encoder_hidden_dim: 6, face_encoder_num_heads: 2, inject_face_latents_blocks: 1'
write() { # NAME CONTROL CONFIG
    cat >"$1.yaml" <<Y
out: runs/$1
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
condition: control
control: {path: poses-shards, face: faces-shards$2}
transformer: {class: WanAnimateTransformer3DModel, config: {$size$3}}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}
checkpoint: {interval: 2, keep_latest: 2}
stages:
  - {steps: 4, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}
Y
}
write plain "" ""
write full ", image: images-shards, background: backgrounds-shards, mask: masks-shards, image_encoder: $animate/image_encoder" ", image_dim: 8, added_kv_proj_dim: 24"
check plain resumes_bitwise plain
check full resumes_bitwise full
check full_dp layout full 2 --set parallel.dp=2
check full_fsdp layout full 2 --set parallel.fsdp=2
check full_tp layout full 2 --set parallel.tp=2
check full_cp layout full 2 --set parallel.cp=2
check plain_ring layout plain 2 --set parallel.cp=2 --set parallel.context=ring
check plain_tp_dp layout plain 4 --set parallel.tp=2 --set parallel.dp=2
check plain_pp layout plain 2 --set parallel.pp=2 --set stages.0.accumulate=1
# The losses depend on every set. The first one is of a last layer of zeros.
depends() {
    local key set
    needs full
    for key in path:other-faces face:other-faces image:shards background:poses mask:backgrounds; do
        set=${key#*:}
        [ "$set" = shards ] || set=$set-shards
        "$WEFT" train full.yaml --set out=runs/changed --set stages.0.steps=3 --set "control.${key%%:*}=$set" >changed.log 2>&1 || { cat changed.log; fail "$key"; }
        [ "$(losses runs/changed | tail -1)" != "$(losses runs/full | sed -n 3p)" ] || fail "$key has no effect on the loss"
        rm -r runs/changed
    done
}
check depends depends
clips=(cur/clips/*.mp4)
key=$(basename "${clips[0]}")
generate() { # NAME OPTIONS...
    "$WEFT" generate --prompt "a red disc" --steps 2 --seed 3 --guidance-scale 1 --image "images/clips/$key" --control "poses/clips/$key" --latents-npy --out "$1.mp4" "${@:2}" >"$1.log" 2>&1 || { cat "$1.log"; fail "weft generate $*"; }
}
generates() {
    needs full
    generate one --model runs/full/model --face "faces/clips/$key"
    generate two --model runs/full/model --face "other-faces/clips/$key"
    cmp -s one.latents.npy two.latents.npy && fail "the face has no effect"
    return 0
}
check generates generates
trains_lora() {
    needs full
    sed "s|^transformer:.*|transformer: {weights: runs/full/model/transformer, lora: {rank: 4}}|
        s|^text_encoders:|& [{weights: runs/full/model/text_encoder}]|; /WeftBytesEncoder/,/config:/d" full.yaml >lora.yaml
    train lora lora
}
check lora trains_lora
check lora_dp layout lora 2 --set parallel.dp=2
adapts() {
    needs lora
    generate adapted --model runs/full/model --face "faces/clips/$key" --lora runs/lora/adapter
    generate whole --model runs/full/model --face "faces/clips/$key"
    cmp -s adapted.latents.npy whole.latents.npy && fail "the adapter has no effect"
    return 0
}
check adapts adapts
refusals() {
    refuse_run full config-missing-key file=full.yaml key=condition -- --set condition=none --set control=
    refuse_run full config-missing-key file=full.yaml key=control.face -- --set control.face=
    refuse_run full config-missing-key file=full.yaml key=control.mask -- --set control.mask=
    refuse_run full config-missing-key file=full.yaml key=control.background -- --set control.background=
    refuse_run full config-missing-key file=full.yaml key=control.image_encoder -- --set control.image_encoder=
    refuse_run plain config-no-effect file=plain.yaml key=control.image_encoder -- --set "control.image_encoder=$animate/image_encoder"
    refuse_run plain config-value key=transformer value=4 -- --set transformer.config.latent_channels=8
    # a missing partner
    missing faces "${clips[0]}"
    refuse_run full config-value file=faces-less key=control.face "value=$(basename "$key" .mp4)" -- --set control.face=faces-less
    missing poses "${clips[0]}"
    refuse_run full config-value file=poses-less key=control "value=$(basename "$key" .mp4)" -- --set control.path=poses-less
    missing images "${clips[0]}"
    refuse_run full config-value file=images-less key=control.image "value=$(basename "$key" .mp4)" -- --set control.image=images-less
}
missing() { # SET CLIP: SET-less has the clips of SET without one
    cp -r "$1" less
    rm "less/clips/$key" "less/metas/$(basename "$key" .mp4).json"
    "$WEFT" shard --in less --out "$1-less" --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard"; }
    rm -r less
}
check refusals refusals
# With several buckets a clip needs a face of its own frames only, and an image of its own size.
several() { # SET: SET-several has one clip of 6 frames and one of half the height
    cp -r "$1" "$1-several"
    ffmpeg -v error -nostdin -y -i "$1/clips/$key" -frames:v 6 -c:v libx264 -qp 0 "$1-several/clips/$key" || fail "ffmpeg"
    ffmpeg -v error -nostdin -y -i "${clips[1]/cur/$1}" -vf "crop=iw:ih/2" -c:v libx264 -qp 0 "${clips[1]/cur/$1-several}" || fail "ffmpeg"
    python3 -S - "$1-several/metas" "$(basename "$key" .mp4)" "$(basename "${clips[1]}" .mp4)" <<'PY' || fail metas
import json, sys
for key, field, value in ((sys.argv[2], "frames", 6), (sys.argv[3], "height", 32)):
    path = f"{sys.argv[1]}/{key}.json"
    meta = json.load(open(path)); meta[field] = value; json.dump(meta, open(path, "w"))
PY
    "$WEFT" shard --in "$1-several" --out "$1-several-shards" --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard"; }
}
buckets() {
    local set
    for set in cur poses faces; do several $set; done
    sed 's|path: shards|path: cur-several-shards|; s|poses-shards|poses-several-shards|; s|faces-shards|faces-several-shards|; s|^out:.*|out: runs/buckets|
        s|batch: 4, frames: 9, height: 32, width: 32|buckets: [{batch: 1, frames: 9, height: 32, width: 32}, {batch: 1, frames: 5, height: 32, width: 32}, {batch: 1, frames: 9, height: 16, width: 32}, {batch: 1, frames: 9, height: 32, width: 16}]|' plain.yaml >buckets.yaml
    train buckets buckets
    # a video of the clip's latents, but in another shape
    cp -r images tall
    cp cur-several/metas/* tall/metas
    ffmpeg -v error -nostdin -y -i "${clips[1]}" -vf "crop=iw/2:ih" -c:v libx264 -qp 0 "${clips[1]/cur/tall}" || fail "ffmpeg"
    sed -i 's/"width": 64, "height": 32/"width": 32, "height": 64/' "tall/metas/$(basename "${clips[1]}" .mp4).json"
    "$WEFT" shard --in tall --out tall-shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard"; }
    refuse_run buckets config-value file=tall-shards key=control.image "value=$(basename "${clips[1]}" .mp4)" -- --set control.image=tall-shards
}
check buckets buckets
finish
