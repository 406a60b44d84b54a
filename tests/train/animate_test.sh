#!/bin/bash
# Training Wan Animate from sets of poses, faces, images, backgrounds and masks. A stopped run
# resumes bitwise. Other layouts have the losses of one rank. Every set has an effect on the loss.
# The finished model and the adapter generate. tests/train/graph/distillation_test.c compares
# the steps with PyTorch, tests/train/animate_pixels_test.sh the path from files. Clips that cannot
# be decoded end the run before its first step. The predicted memory includes faces and masks.
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
# some samples begin with given frames, and some have a black face
write given ", image: images-shards, background: backgrounds-shards, mask: masks-shards, image_encoder: $animate/image_encoder, window_overlap: 5, overlap_share: 0.5, face_dropout: 0.4" ", image_dim: 8, added_kv_proj_dim: 24"
write grey ", window_overlap: 1, face_dropout: 0.4" ""
check given resumes_bitwise given
check given_dp layout given 2 --set parallel.dp=2
check given_cp layout given 2 --set parallel.cp=2
check grey resumes_bitwise grey
check grey_tp layout grey 2 --set parallel.tp=2
check grey_pp layout grey 2 --set parallel.pp=2 --set stages.0.accumulate=1
check grey_tiles train grey grey_tiles --set autoencoder.tile=32x32
check plain resumes_bitwise plain
check full resumes_bitwise full
check full_dp layout full 2 --set parallel.dp=2
check full_fsdp layout full 2 --set parallel.fsdp=2
check full_tp layout full 2 --set parallel.tp=2
check full_cp layout full 2 --set parallel.cp=2
check plain_ring layout plain 2 --set parallel.cp=2 --set parallel.context=ring
check plain_tp_dp layout plain 4 --set parallel.tp=2 --set parallel.dp=2
check plain_pp layout plain 2 --set parallel.pp=2 --set stages.0.accumulate=1
# The losses depend on every set and share. The first one is of a last layer of zeros.
depends() {
    local key set
    needs full
    for key in path:other-faces-shards face:other-faces-shards image:shards background:poses-shards mask:backgrounds-shards face_dropout:1 window_overlap:5; do
        set=${key#*:}
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
# Distillation: the student generates with its control and its own settings.
few() {
    needs lora
    sed 's/, lora: {rank: 4}//' lora.yaml >few.yaml
    echo "distill: {method: dmd2, guidance: 3, student_steps: 2, generator_interval: 2}" >>few.yaml
    resumes_bitwise few
    "$WEFT" generate --model runs/few/model --prompt "a red disc" --image "images/clips/$key" --control "poses/clips/$key" --face "faces/clips/$key" --out few.mp4 >few-video.log 2>&1 || fail_with few-video.log "weft generate with few"
    has_message few-video.log job-report "text~=2 steps of consistency, guidance 1;" || fail_with few-video.log "few has other settings"
}
check few few
check few_tp layout few 2 --set parallel.tp=2
refusals() {
    refuse_run full config-missing-key file=full.yaml key=condition -- --set condition=none --set control=
    needs full
    refuse_run lora config-conflict file=lora.yaml key=preference.rejected -- --set preference.rejected=poses-shards
    refuse_run full config-missing-key file=full.yaml key=control.face -- --set control.face=
    refuse_run full config-missing-key file=full.yaml key=control.mask -- --set control.mask=
    refuse_run full config-missing-key file=full.yaml key=control.background -- --set control.background=
    refuse_run full config-missing-key file=full.yaml key=control.image_encoder -- --set control.image_encoder=
    refuse_run plain config-no-effect file=plain.yaml key=control.image_encoder -- --set "control.image_encoder=$animate/image_encoder"
    refuse_run plain config-value key=transformer value=4 -- --set transformer.config.latent_channels=8
    refuse_run plain config-no-effect file=plain.yaml key=control.dropout -- --set control.dropout=0.1
    refuse_run plain config-no-effect file=plain.yaml key=control.overlap_share -- --set control.overlap_share=0.2
    refuse_run plain config-value file=plain.yaml key=control.window_overlap value=3 -- --set control.window_overlap=3
    refuse_run plain config-value file=plain.yaml key=control.window_overlap value=9 -- --set control.window_overlap=9
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
# A clip that cannot be decoded to its last needed frame, or a mask of another aspect, ends the run
# before its first step.
spoiled() { # SET NAME COMMAND...: SET-NAME is SET with the first clip made by the command, which reads $1 and writes $2
    cp -r "$1/clips" "$1-$2"
    "${@:3}" "$1/clips/$key" "$1-$2/$key" || fail "$*"
}
cut_off() { # SHARE FROM TO: the first part of the file, with its header
    ffmpeg -v error -nostdin -y -i "$2" -c copy -movflags +faststart -f mp4 front.mp4 || fail "ffmpeg"
    head -c "$(($(stat -c %s front.mp4) * $1 / 100))" front.mp4 >"$3"
}
no_header() { head -c 300 "$1" >"$2"; }
narrow() { ffmpeg -v error -nostdin -y -i "$1" -vf "crop=iw/2:ih" -c:v libx264 -qp 0 "$2"; }
shortened() { ffmpeg -v error -nostdin -y -i "$1" -frames:v 5 -c:v libx264 -qp 0 "$2"; }
ends_before_steps() { # SET NAME ID
    local name
    name=$(basename "$key" .mp4)
    rm -rf runs/spoiled
    "$WEFT" train full.yaml --set out=runs/spoiled --set "control.${1%s}=$1-$2" >out.log 2>&1 && fail "$1 $2: not refused"
    has_message out.log "$3" "text~=$name" || { cat out.log; fail "$1 $2: another message than expected"; }
    has_message out.log "$3" "text~=$1-$2" || has_message out.log "$3" "file=$1-$2" || { cat out.log; fail "$1 $2: the set is not named"; }
    [ ! -s runs/spoiled/metrics.jsonl ] || fail "$1 $2: the run has made steps"
}
spoiled_files() {
    needs full
    spoiled faces tail cut_off 70
    ends_before_steps faces tail video-frames
    spoiled masks tail cut_off 70
    ends_before_steps masks tail video-frames
    spoiled faces empty no_header
    ends_before_steps faces empty config-value
    spoiled masks short shortened
    ends_before_steps masks short config-value
    spoiled masks narrow narrow
    ends_before_steps masks narrow config-value
    spoiled backgrounds narrow narrow
    ends_before_steps backgrounds narrow config-value
}
check spoiled_files spoiled_files
# Rank 1 has a clip that cannot be used among its first ones, and rank 0 among its last ones: no rank decodes the rest.
all_ranks_leave() {
    local order key=
    "$WEFT" train plain.yaml --set out=runs/first --set data.latents=order --set stages.0.steps=1 >out.log 2>&1 || { cat out.log; fail "the first run"; }
    mapfile -t order < <(tar -tf "$(dirname order/*/checked-*)/train-0000-000000.tar" | sed -n 's/\.latent\.npy$//p')
    [ ${#order[@]} = 8 ] || fail "the order of the clips"
    key=${order[1]##*/}.mp4
    spoiled faces second cut_off 30
    key=${order[6]##*/}.mp4
    cut_off 30 "faces/clips/$key" "faces-second/$key"
    ranks 2 "$WEFT" train plain.yaml --set data.latents=order --set out=runs/spoiled --set parallel.dp=2 --set control.face=faces-second >out.log 2>&1 && fail "not refused"
    has_message out.log video-frames "text~=${order[1]##*/}" || { cat out.log; fail "another message than expected"; }
    has_message out.log '*' "text~=${order[6]##*/}" && fail "rank 0 has decoded clips after the error of rank 1"
    [ ! -s runs/spoiled/metrics.jsonl ] || fail "the run has made steps"
}
check all_ranks_leave all_ranks_leave
# Clips that a start has decoded are not decoded by the next start. The bytes of a clip change without its size and time.
short_run() { rm -rf runs/again && "$WEFT" train full.yaml --set out=runs/again --set stages.0.steps=1 --set control.face=faces-again >out.log 2>&1; }
a_restart_decodes_no_clip() {
    needs full
    local clip
    cp -r faces/clips faces-again
    short_run || { cat out.log; fail "the first start"; }
    for clip in faces-again/*.mp4; do # one that the first step does not read
        cp -p "$clip" whole.mp4
        dd if=/dev/zero of="$clip" bs=1 count=300 conv=notrunc 2>/dev/null && touch -r whole.mp4 "$clip"
        short_run && break
        cp -p whole.mp4 "$clip"
        clip=
    done
    [ -n "$clip" ] || { cat out.log; fail "no clip is left alone by the second start"; }
    rm latents/*/checked-*
    short_run && fail "without the note of the first start, a clip that cannot be decoded is accepted"
    has_message out.log '*' "text~=$(basename "$clip" .mp4)" || { cat out.log; fail "another message than expected"; }
    [ ! -s runs/again/metrics.jsonl ] || fail "the run has made steps"
}
check a_restart_decodes_no_clip a_restart_decodes_no_clip
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
