#!/bin/bash
# Training with control videos (condition: control), on a port of the model and on channels: a
# stopped run resumes bitwise, and other layouts have the losses of one rank. A model that was
# trained with controls follows them. tests/train/graph/distillation_test.c compares the steps
# with PyTorch.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
command -v ffmpeg >/dev/null || skip "ffmpeg is not installed"
make_shards
write_configs
# The control of a clip is the clip itself, blurred.
python3 -S - <<'PY'
import os, shutil
shutil.copytree("cur/metas", "soft/metas")
os.makedirs("soft/clips")
PY
for clip in cur/clips/*.mp4; do
    ffmpeg -v error -nostdin -i "$clip" -vf boxblur=4 -c:v libx264 "soft/${clip#cur/}" || fail "ffmpeg $clip"
done
"$WEFT" shard --in soft --out soft-shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard soft"; }
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
write() { # NAME CLASS CONFIG
    cat >"$1.yaml" <<Y
out: runs/$1
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
condition: control
control: soft-shards
transformer: {class: $2, config: $3}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}
checkpoint: {interval: 2, keep_latest: 2}
stages:
  - {steps: 4, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}
Y
}
write port WanVACETransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32, vace_layers: [0, 1], vace_in_channels: 72}'
write channels WanTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32, in_channels: 8, out_channels: 4}'
# the control branch of Cosmos Transfer 2.5
net='num_attention_heads: 2, attention_head_dim: 12, mlp_ratio: 2.0, text_embed_dim: 16, adaln_lora_dim: 6, extra_pos_embed_type: null, img_context_dim_in: 10, img_context_dim_out: 24, use_crossattn_projection: true, crossattn_proj_in_channels: 16, encoder_hidden_states_channels: 16'
write branch CosmosTransformer3DModel "{num_layers: 2, in_channels: 5, out_channels: 4, controlnet_block_every_n: 1, $net, controlnet: {n_controlnet_blocks: 2, in_channels: 10, latent_channels: 6, model_channels: 24, $net}}"
# some samples have no control
for name in port channels branch; do sed "s|^control:.*|control: {path: soft-shards, dropout: 0.4}|; s|runs/$name|runs/${name}_drop|" $name.yaml >${name}_drop.yaml; done
check port_drop resumes_bitwise port_drop
check port_drop_dp layout port_drop 2 --set parallel.dp=2
check channels_drop resumes_bitwise channels_drop
check channels_drop_pp layout channels_drop 2 --set parallel.pp=2 --set stages.0.accumulate=1
check branch_drop resumes_bitwise branch_drop
check port resumes_bitwise port
check channels resumes_bitwise channels
check branch resumes_bitwise branch
pipeline_of_branch() {
    needs branch
    grep -q '"_class_name": "Cosmos2_5_TransferPipeline"' runs/branch/model/model_index.json || fail_with runs/branch/model/model_index.json "the class of the pipeline"
}
check pipeline_of_branch
check port_dp layout port 2 --set parallel.dp=2
check port_cp layout port 2 --set parallel.cp=2
check port_tp_fsdp layout port 4 --set parallel.tp=2 --set parallel.fsdp=2
check branch_dp layout branch 2 --set parallel.dp=2
check branch_cp layout branch 2 --set parallel.cp=2
check branch_tp_fsdp layout branch 4 --set parallel.tp=2 --set parallel.fsdp=2
check channels_cp layout channels 2 --set parallel.cp=2
check channels_pp layout channels 2 --set parallel.pp=2 --set stages.0.accumulate=1
# A model without controls, with zeros for the channels of a control: it begins with the loss that it
# has without them. The sums of a product have more terms, so the losses are close.
widened() {
    local run
    needs channels
    sed '/^condition:/d; /^control:/d; s/in_channels: 8, out_channels: 4/in_channels: 4/' channels.yaml >plain.yaml
    train plain plain
    "$WEFT" convert runs/plain/model/transformer wide --in-channels 8 >wide.log 2>&1 || { cat wide.log; fail "weft convert --in-channels"; }
    for run in plain channels; do
        sed "s|^transformer:.*|transformer: {weights: $([ $run = plain ] && echo runs/plain/model/transformer || echo wide)}|" $run.yaml >"from-$run.yaml"
        train "from-$run" "from-$run" --set stages.0.steps=1
    done
    paste <(losses runs/from-plain) <(losses runs/from-channels) |
        awk '{d = $2 - $5; exit !(NR == 1 && d * d < 1e-12 * $2 * $2)}' || fail "the widened model has another loss"
    sed 's|wide}|wide, lora: {rank: 4}}|; s|^text_encoders:|& [{weights: runs/plain/model/text_encoder}]|; /WeftBytesEncoder/,/config:/d' from-channels.yaml >lora.yaml
    train lora lora
    "$WEFT" convert runs/plain/model/transformer narrow --in-channels 4 >out.log 2>&1 && fail "4 channels: not refused"
    has_message out.log option-invalid key=--in-channels value=4 || { cat out.log; fail "4 channels: another message"; }
    "$WEFT" convert "$SRC/tests/golden/pipelines/flux/transformer" linear --in-channels 128 >out.log 2>&1 && fail "a linear first layer: not refused"
    has_message out.log option-invalid key=--in-channels value=FluxTransformer2DModel || { cat out.log; fail "a linear first layer: another message"; }
    "$WEFT" convert adapter peft --lora-format peft --config wide --in-channels 16 >out.log 2>&1 && fail "--in-channels of an adapter: not refused"
    has_message out.log option-conflict key=--lora-format || { cat out.log; fail "--in-channels of an adapter: another message"; }
}
check widened widened
generate() { # NAME MODEL OPTIONS...
    "$WEFT" generate --model "$2" --prompt "a red disc" --steps 2 --seed 3 --guidance-scale 2 --latents-npy --out "$1.mp4" "${@:3}" >"$1.log" 2>&1 || { cat "$1.log"; fail "weft generate $*"; }
}
# Videos follow the control. Two ranks make the videos of one.
generates() { # CONFIG
    needs "$1"
    local clips=(cur/clips/*.mp4) model=runs/$1/model
    generate "$1-one" "$model" --control "${clips[0]}"
    generate "$1-other" "$model" --control "${clips[1]}"
    cmp -s "$1-one.latents.npy" "$1-other.latents.npy" && fail "$1: the control has no effect"
    ranks 2 "$WEFT" generate --model "$model" --prompt "a red disc" --steps 2 --seed 3 --guidance-scale 2 --latents-npy --out ranks.mp4 --control "${clips[0]}" --parallel cp=2 >ranks.log 2>&1 || { cat ranks.log; fail "cp=2"; }
    python3 -S - "$1-one.latents.npy" ranks.latents.npy <<'PY' || fail "$1: other latents with cp=2"
import array, sys
one, two = (array.array("f", open(name, "rb").read()[128:]) for name in sys.argv[1:])
assert len(one) == len(two) and max(abs(a - b) for a, b in zip(one, two)) < 1e-5 * max(map(abs, one))
PY
}
check generates_port generates port
check generates_channels generates channels
check generates_branch generates branch
# An adapter changes the video, and both parts of the model have it.
adapts_branch() {
    needs branch
    local clips=(cur/clips/*.mp4) model=runs/branch/model
    sed "s|^transformer:.*|transformer: {weights: $model/transformer, lora: {rank: 4}}|
        s|^text_encoders:|& [{weights: $model/text_encoder}]|; /WeftBytesEncoder/,/config:/d" branch.yaml >adapted.yaml
    train adapted adapted
    generate branch-plain "$model" --control "${clips[0]}"
    generate branch-adapted "$model" --control "${clips[0]}" --lora runs/adapted/adapter
    cmp -s branch-plain.latents.npy branch-adapted.latents.npy && fail "the adapter has no effect"
    python3 -S - runs/adapted/adapter/pytorch_lora_weights.safetensors <<'PY' || fail "parts without the adapter"
import json, struct, sys
with open(sys.argv[1], "rb") as f:
    names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
branch = [name for name in names if "controlnet." in name]
print(len(branch), "of", len(names), "tensors are of the branch")
assert branch and len(branch) < len(names) - 1
PY
}
check adapts_branch adapts_branch
# Distillation of a model with controls: a stopped run resumes bitwise, ranks have the losses of one, and the student
# generates with its control and its own settings.
distills() { # CONFIG DISTILL
    local few=$1_few clips=(cur/clips/*.mp4)
    needs "$1"
    sed "s|^out:.*|out: runs/$few|; s|^transformer:.*|transformer: {weights: runs/$1/model/transformer}|
        s|^text_encoders:|& [{weights: runs/$1/model/text_encoder}]|; /WeftBytesEncoder/,/config:/d" "$1_drop.yaml" >"$few.yaml"
    echo "distill: $2" >>"$few.yaml"
    resumes_bitwise "$few"
    for clip in 0 1; do
        "$WEFT" generate --model "runs/$few/model" --prompt "a red disc" --seed 3 --latents-npy --out "few$clip.mp4" --control "${clips[$clip]}" >generate.log 2>&1 || fail_with generate.log "weft generate with $few"
        has_message generate.log own-settings "file=runs/$few/model" && has_message generate.log job-report "text~=of consistency, guidance 1;" || fail_with generate.log "$few has other settings"
    done
    cmp -s few0.latents.npy few1.latents.npy && fail "$few: the control has no effect"
    return 0
}
check port_few distills port '{method: dmd2, guidance: 3, student_steps: 2, generator_interval: 2}'
check port_few_dp layout port_few 2 --set parallel.dp=2
check port_few_tp layout port_few 2 --set parallel.tp=2
check branch_few distills branch '{method: lcm, guidance: 3, target_decay: 0.9}'
check branch_few_fsdp layout branch_few 2 --set parallel.fsdp=2
other_teacher() {
    needs port_few channels
    refuse_run port_few config-conflict file=runs/channels/model/transformer key=distill.teacher -- --set distill.teacher=runs/channels/model/transformer
}
check other_teacher other_teacher
without_control() {
    needs channels
    "$WEFT" generate --model runs/channels/model --prompt "a red disc" --out none.mp4 >out.log 2>&1 && fail "a control is not required"
    has_message out.log video-input key=--control || { cat out.log; fail "another message than expected"; }
}
check without_control without_control
# All samples without the control: its set has no effect on the loss.
drops_all() {
    local name set
    for name in port channels branch; do
        for set in soft-shards shards; do
            train ${name}_drop $name-$set --set stages.0.steps=3 --set control.dropout=1 --set control.path=$set
        done
        cmp <(losses runs/$name-soft-shards) <(losses runs/$name-shards) || fail "$name: a dropped control has an effect"
    done
}
check drops_all drops_all
# A control that cannot be decoded ends the run before its first step.
spoiled() {
    local clips=(cur/clips/*.mp4)
    cp -r soft/clips soft-damaged
    head -c 400 "${clips[0]}" >"soft-damaged/$(basename "${clips[0]}")"
    refuse_run port config-value file=soft-damaged key=control "value=$(basename "${clips[0]}" .mp4)" -- --set control=soft-damaged
    refuse_run channels config-value file=soft-damaged key=control "value=$(basename "${clips[0]}" .mp4)" -- --set control=soft-damaged
    head -c "$(($(stat -c %s "soft/clips/$(basename "${clips[1]}")") * 7 / 10))" "soft/clips/$(basename "${clips[1]}")" >"soft-damaged/$(basename "${clips[1]}")"
    cp "soft/clips/$(basename "${clips[0]}")" soft-damaged
    refuse_run port config-value file=soft-damaged key=control "value=$(basename "${clips[1]}" .mp4)" -- --set control=soft-damaged
}
check spoiled spoiled
refusals() {
    refuse_run port_drop config-no-effect file=port_drop.yaml key=control.face_dropout -- --set control.face_dropout=0.1
    refuse_run port_drop config-no-effect file=port_drop.yaml key=control.window_overlap -- --set control.window_overlap=5
    refuse_run port_drop config-no-effect file=port_drop.yaml key=control.dropout -- --set condition=none --set control.path=
    refuse_run port config-missing-key file=port.yaml key=control -- --set control=
    refuse_run port config-no-effect file=port.yaml key=control -- --set condition=none
    refuse_run port config-value key=transformer value=72 -- --set transformer.config.vace_in_channels=8
    refuse_run channels config-value key=transformer value=8 -- --set transformer.config.in_channels=6
    refuse_run port config-conflict key=condition -- --set data.packing.rows=1 --set data.packing.tokens=64
}
check refusals refusals
finish
