#!/bin/bash
# `condition: first_frame`: the model gets the first frame of each clip, on additional channels or
# in place of the first latent frame. `weft generate --image` uses it. Layouts have the losses of
# one rank (1e-5). Models and settings without a first frame are refused with the remedy.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
channels="--set condition=first_frame --set transformer.config.in_channels=12 --set transformer.config.out_channels=4"
clips="--set stages.0.frames=9 --set stages.0.steps=12 --set stages.1.frames=9"
"$WEFT" train dit.yaml $channels $clips --set out=runs/channels >channels.log 2>&1 || { cat channels.log; fail "training with the first frame on channels"; }
"$WEFT" train dit.yaml --set condition=first_frame $clips --set out=runs/places >places.log 2>&1 || { cat places.log; fail "training with the first frame in place"; }
"$WEFT" train dit.yaml $clips --set out=runs/none >none.log 2>&1 || { cat none.log; fail "training without a first frame"; }
the_first_frame_has_effect() {
    losses runs/places >places.txt
    losses runs/none >none.txt
    cmp -s places.txt none.txt && fail "the first frame has no effect on the losses"
    grep -q '"condition": "first_frame"' runs/channels/model/weft.json || { cat runs/channels/model/weft.json; fail "weft.json does not have the condition"; }
    ! grep -q condition runs/none/model/weft.json || fail "weft.json of a model without a condition has one"
}
check the_first_frame_has_effect
ranks_have_the_losses_of_one() { # MODE
    local mode=$1 set layout
    set=$([ $mode = channels ] && echo "$channels" || echo "--set condition=first_frame")
    for layout in $([ $mode = channels ] && echo dp=2 pp=2 || echo tp=2 cp=2); do
        ranks 2 "$WEFT" train dit.yaml $set $clips --set "out=runs/$mode-$layout" --set "parallel.${layout%=*}=2" >"$mode.log" 2>&1 ||
            { cat "$mode.log"; fail "$mode, $layout"; }
        losses "runs/$mode" >one.txt
        losses "runs/$mode-$layout" >two.txt
        python3 -S - <<'PY' || fail "$mode, $layout: losses differ from one rank"
for a, b in zip(open("one.txt"), open("two.txt"), strict=True):
    a, b = float(a.split()[1]), float(b.split()[1])
    assert abs(a - b) <= 1e-5 * abs(a), (a, b)
PY
    done
}
for mode in channels places; do check "ranks_have_the_losses_of_one_$mode" ranks_have_the_losses_of_one $mode; done
# SkyReels-V2 has the timestep 0 for the given frame, and a timestep per frame in generation as well.
a_timestep_per_frame() {
    sed -e 's/WanTransformer3DModel/SkyReelsV2Transformer3DModel/' -e 's|runs/dit|runs/forcing|' dit.yaml >forcing.yaml
    "$WEFT" train forcing.yaml --set condition=first_frame $clips >forcing.log 2>&1 || { cat forcing.log; fail "SkyReels-V2"; }
    losses runs/forcing >forcing.txt
    cmp -s forcing.txt none.txt && fail "the first frame has no effect on the losses"
    python3 -S - <<'PY'
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\0" + bytes([40 + 8 * y] * 3 * 16) for y in range(16))
open("frame.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) +
                              chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
PY
    "$WEFT" generate --model runs/forcing/model --prompt x --image frame.png --frame-lag 1 --steps 2 --out forcing.mp4 >forcing.log 2>&1 ||
        { cat forcing.log; fail "generate with a level per frame"; }
}
check a_timestep_per_frame a_timestep_per_frame
# A model without weft.json is a published one: it was trained with grey frames after the first one.
grey_rest() {
    mkdir -p published/transformer
    cp runs/channels/model/transformer/* published/transformer
    cp -r runs/channels/model/[!w]* published 2>/dev/null
    python3 -S - <<'PY'
text = open("dit.yaml").read()
begin, end = text.index("transformer:"), text.index("text_encoders:")
open("grey.yaml", "w").write((text[:begin] + "transformer: {weights: published/transformer}\n" + text[end:]).replace("runs/dit", "runs/grey") + "condition: first_frame\n")
PY
    "$WEFT" train grey.yaml $clips >grey.log 2>&1 || { cat grey.log; fail "training of a published model"; }
    grep -q '"rest": "grey"' runs/grey/model/weft.json || { cat runs/grey/model/weft.json; fail "weft.json does not name the rest"; }
    "$WEFT" train grey.yaml $clips --set out=runs/zeros --set transformer.weights=runs/channels/model/transformer >zeros.log 2>&1 ||
        { cat zeros.log; fail "training of a model of weft"; }
    ! grep -q rest runs/zeros/model/weft.json || fail "a model that was trained with zeros has grey frames"
    losses runs/grey >grey.txt
    losses runs/zeros >zeros.txt
    cmp -s grey.txt zeros.txt && fail "grey frames have no effect"
    "$WEFT" train grey.yaml $clips --set out=runs/refused --set parallel.cascades=every-iteration >out.log 2>&1 && fail "cascades with grey frames: not refused"
    has_message out.log config-conflict key=parallel.cascades || fail_with out.log "cascades with grey frames: another message"
    ranks 2 "$WEFT" train grey.yaml $clips --set out=runs/grey-ranks --set parallel.dp=2 >grey.log 2>&1 || { cat grey.log; fail "dp=2"; }
    losses runs/grey-ranks >two.txt
    paste grey.txt two.txt | awk '{d = $2 - $5; if (d * d > 1e-10 * $2 * $2) bad = 1} END {exit bad || NR < 12}' || fail "losses differ from one rank"
    # both sets have the same first latent frame and other frames after it
    python3 -S - runs/grey/latents <<'PY' || fail "the latents of first frames"
import array, glob, struct, sys, tarfile
def load(tar):
    for m in tarfile.open(tar):
        if m.name.endswith(".latent.npy"):
            data = tarfile.open(tar).extractfile(m).read()
            head = 10 + struct.unpack("<H", data[8:10])[0]
            yield m.name, (eval(data[10:head])["shape"], array.array("f", data[head:]))
sets = {}
for tar in glob.glob(sys.argv[1] + "/*/*.tar"):
    sets.setdefault(tar.rsplit("/", 1)[0], {}).update(load(tar))
long = [s for s in sets.values() if next(iter(s.values()))[0][0] == 3]
assert len(long) == 2, len(long)
for key, (shape, x) in long[0].items():
    y, frame = long[1][key][1], len(x) // shape[0]
    assert max(abs(a - b) for a, b in zip(x[:frame], y[:frame])) < 1e-5 * max(map(abs, x)) and x[frame:] != y[frame:], key
PY
}
check grey_rest grey_rest
# STDiT3 takes the condition as a mask of frames.
python3 -S - <<'PY'
import re
text = open("dit.yaml").read()
text = re.sub(r"class: WanTransformer3DModel\n  config: .*", "class: STDiT3\n  config: {depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}", text)
open("masked.yaml", "w").write(text.replace("runs/dit", "runs/mask") + "condition: first_frame\n")
PY
"$WEFT" train masked.yaml $clips >masked.log 2>&1 || { cat masked.log; fail "STDiT3"; }
# HunyuanVideo: on channels followed by one mask channel, or as the tokens of the first frame
for mode in latent_concat token_replace; do
    python3 -S - $mode <<'PY'
import re, sys
mode = sys.argv[1]
text = open("dit.yaml").read()
more = ", in_channels: 9, out_channels: 4" if mode == "latent_concat" else ""
text = re.sub(r"class: WanTransformer3DModel\n  config: .*", "class: HunyuanVideoTransformer3DModel\n  config: {num_layers: 1, num_single_layers: 1, "
              "num_refiner_layers: 1, num_attention_heads: 2, attention_head_dim: 16, rope_axes_dim: [4, 6, 6], pooled_projection_dim: 12, "
              "image_condition_type: %s%s}" % (mode, more), text)
text = text.replace("optimizer:", "  - {class: WeftBytesEncoder, config: {dim: 12, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}\noptimizer:", 1)
open(mode + ".yaml", "w").write(text.replace("runs/dit", "runs/" + mode))
PY
    "$WEFT" train $mode.yaml --set condition=first_frame $clips >$mode.log 2>&1 || { cat $mode.log; fail "HunyuanVideo, $mode"; }
done
# HunyuanVideo 1.5: on channels followed by one mask channel; zeros there without a first frame
python3 -S - <<'PY'
import re
text = open("dit.yaml").read()
text = re.sub(r"class: WanTransformer3DModel\n  config: .*", "class: HunyuanVideo15Transformer3DModel\n  config: {num_layers: 1, "
              "num_refiner_layers: 1, num_attention_heads: 2, attention_head_dim: 16, rope_axes_dim: [4, 6, 6], in_channels: 9, out_channels: 4, "
              "text_embed_2_dim: 12, text_embed_2_hidden_dim: 8, image_embed_dim: 6}", text)
text = text.replace("optimizer:", "  - {class: WeftBytesEncoder, config: {dim: 12, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 16}}\noptimizer:", 1)
open("hunyuan15.yaml", "w").write(text.replace("runs/dit", "runs/hunyuan15"))
PY
with_and_without_a_first_frame() {
    "$WEFT" train hunyuan15.yaml --set condition=first_frame $clips >hunyuan15.log 2>&1 || { cat hunyuan15.log; fail "HunyuanVideo 1.5"; }
    "$WEFT" train hunyuan15.yaml $clips --set out=runs/without >without.log 2>&1 || { cat without.log; fail "HunyuanVideo 1.5 without an image"; }
    losses runs/hunyuan15 >with.txt
    losses runs/without >without.txt
    cmp -s with.txt without.txt && fail "the first frame has no effect on the losses of HunyuanVideo 1.5"
    "$WEFT" generate --model runs/without/model --prompt "a red circle" --steps 2 --out without.mp4 >out.log 2>&1 || { cat out.log; fail "generation without an image"; }
}
check with_and_without_a_first_frame
# model_index.json has the class that diffusers loads for images
index_names() { # RUN CLASS
    grep -q "\"_class_name\": \"$2\"" runs/$1/model/model_index.json || fail_with runs/$1/model/model_index.json "runs/$1: the class is not $2"
}
the_class_is_that_of_images() {
    index_names none WanPipeline
    index_names channels WanImageToVideoPipeline
    index_names places WanImageToVideoPipeline
    index_names latent_concat HunyuanVideoImageToVideoPipeline
    index_names forcing SkyReelsV2DiffusionForcingImageToVideoPipeline
    grep -q '"expand_timesteps": true' runs/places/model/model_index.json || fail "a timestep per token is not in the index"
    ! grep -q expand_timesteps runs/channels/model/model_index.json || fail "channels have a timestep per token in the index"
}
check the_class_is_that_of_images
# Kandinsky 5: in its frame, with a mark in a channel after the latents
python3 -S - <<'PY'
import re
text = open("dit.yaml").read()
text = re.sub(r"class: WanTransformer3DModel\n  config: .*", "class: Kandinsky5Transformer3DModel\n  config: {num_text_blocks: 1, num_visual_blocks: 2, "
              "model_dim: 24, ff_dim: 64, time_dim: 16, axes_dims: [4, 4, 4], in_text_dim2: 12, visual_cond: true}", text)
text = text.replace("optimizer:", "  - {class: WeftBytesEncoder, config: {dim: 12, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}\noptimizer:", 1)
open("kandinsky5.yaml", "w").write(text.replace("runs/dit", "runs/kandinsky5"))
PY
"$WEFT" train kandinsky5.yaml --set condition=first_frame $clips >kandinsky5.log 2>&1 || { cat kandinsky5.log; fail "Kandinsky 5"; }
# Two images give different latents in every mode.
make_pictures
an_image_has_effect() {
    for mode in channels places mask latent_concat token_replace hunyuan15 kandinsky5; do
        for image in red blue; do
            "$WEFT" generate --model runs/$mode/model --prompt "a red circle" --steps 2 --latents-npy --out $mode-$image.mp4 --image $image.png >out.log 2>&1 ||
                { cat out.log; fail "weft generate with $mode and the image $image"; }
        done
        ! cmp -s $mode-red.latents.npy $mode-blue.latents.npy || fail "$mode: the image has no effect"
    done
}
check an_image_has_effect
refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train dit.yaml --set out=runs/refused "$@" >out.log 2>&1 && fail "weft train $*: not refused"
    has_message out.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refuse '*' 'text~=in_channels: 12, out_channels: 4' -- --set condition=first_frame --set transformer.config.in_channels=8 --set transformer.config.out_channels=4
    refuse config-conflict file=dit.yaml key=transformer 'text~=condition: first_frame' -- --set transformer.config.in_channels=12 --set transformer.config.out_channels=4
    refuse config-conflict file=dit.yaml key=stages.0 'text~=5 frames' -- --set condition=first_frame --set stages.0.frames=1
    refuse '*' text~=condition -- --set condition=last_frame
}
check refusals
token_replace_needs_a_first_frame() {
    "$WEFT" train token_replace.yaml $clips --set out=runs/refused >out.log 2>&1 && fail "token_replace without a first frame: not refused"
    has_message out.log config-missing-key key=condition 'text~=condition: first_frame' || fail "token_replace: the error does not name the key condition"
}
check token_replace_needs_a_first_frame
scaled_latents_are_refused() {
    refuse config-conflict file=dit.yaml key=condition text~=invert_scale_latents -- --set condition=first_frame --set autoencoder.weights="$SRC/tests/golden/pipelines/cog15_i2v/vae"
}
check scaled_latents_are_refused
an_image_for_a_model_of_text_is_refused() {
    "$WEFT" generate --model runs/none/model --prompt x --steps 1 --out refused.mp4 --image red.png >out.log 2>&1 && fail "--image is accepted by a text-to-video model"
    has_message out.log model-input-unsupported file=runs/none/model key=--image || fail "the error does not name --image"
}
check an_image_for_a_model_of_text_is_refused
finish
