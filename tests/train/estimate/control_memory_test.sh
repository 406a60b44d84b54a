#!/bin/bash
# Predicted memory of runs with control videos: the peak of the process within 5 %, with and without
# latents to encode. The files of faces and masks are much larger than the clips, because their
# decoders work in every step.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh" # messages as JSON
command -v ffmpeg >/dev/null || skip "ffmpeg is not installed"
make_shards 8
write_configs
set_of() { # NAME FILTER: a folder with the clips of cur, changed by the filter
    mkdir -p "$1"
    for clip in cur/clips/*.mp4; do
        ffmpeg -v error -nostdin -i "$clip" -vf "$2" -c:v libx264 -crf 30 "$1/${clip##*/}" || fail "ffmpeg $clip"
    done
}
set_of poses boxblur=4
set_of faces scale=1024:1024
set_of backgrounds hue=h=90
set_of masks "scale=1024:1024,geq=lum='255*lt(X\,W/2)':cb=128:cr=128"
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
animate=$SRC/tests/golden/pipelines/wan_animate
size='num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32, motion_encoder_size: 16, motion_encoder_channel_sizes: {"4": 6, "8": 5, "16": 4}, motion_style_dim: 8, motion_dim: 3, motion_encoder_dim: 6, face_encoder_hidden_dim: 6, face_encoder_num_heads: 2, inject_face_latents_blocks: 1, image_dim: 8, added_kv_proj_dim: 24'
write() { # NAME CONTROL TRANSFORMER
    cat >"$1.yaml" <<Y
out: runs/$1
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
condition: control
control: {path: poses$2}
transformer: $3
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages:
  - {steps: 2, batch: 4, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}
Y
}
write character ", face: faces, background: backgrounds, mask: masks, window_overlap: 5, face_dropout: 0.1, image_encoder: $animate/image_encoder" "{class: WanAnimateTransformer3DModel, config: {$size}}"
write vace ", dropout: 0.1" "{class: WanVACETransformer3DModel, config: {num_layers: 2, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 256, freq_dim: 32, vace_layers: [0, 1], vace_in_channels: 72}}"
write channels ", dropout: 0.1" "{class: WanTransformer3DModel, config: {num_layers: 2, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 256, freq_dim: 32, in_channels: 8, out_channels: 4}}"
predicted() { python3 "$SRC/tests/train/estimate/compare_memory.py" "$WEFT" "$@" || fail "$*"; }
check "a character, latents to encode" predicted "a character, latents to encode" character.yaml
check "a character, latents cached" predicted "a character, latents cached" character.yaml --set out=runs/character2
check "control on a port" predicted "control on a port" vace.yaml
check "control on channels, latents cached" predicted "control on channels, latents cached" channels.yaml
# An estimate needs no data, but names the sets whose memory it does not know.
an_absent_set_is_named() {
    local key
    for key in face mask; do
        "$WEFT" estimate character.yaml --set "control.$key=absent-$key" >estimate.log 2>&1 || { cat estimate.log; fail "weft estimate"; }
        has_message estimate.log estimate-missing "text~=absent-$key" || { cat estimate.log; fail "no warning of control.$key"; }
    done
}
check an_absent_set_is_named
finish
