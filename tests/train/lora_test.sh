#!/bin/bash
# LoRA: only the adapter's matrices are trained, saved in checkpoints and exported. A stopped run
# resumes bitwise, ranks have the losses of one, and `weft generate` reads the file. Also partial
# training (`trainable`, `freeze`): frozen weights are bitwise unchanged.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set stages.0.steps=6 --set stages.1.steps=2 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
cat >lora.yaml <<'Y'
out: runs/lora
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer:
  weights: runs/dit/model/transformer
  lora: {rank: 4, alpha: 8}
text_encoders:
  - {weights: runs/dit/model/text_encoder}
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 5, keep_latest: 2}
stages:
  - {steps: 10, batch: 6, frames: 9, height: 32, width: 32, lr: 2e-2, warmup_steps: 0, lr_schedule: constant}
Y
train() { # NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" train lora.yaml --set out=runs/$name "$@" >$name.log 2>&1 || { cat $name.log; fail "weft train lora.yaml $*"; }
}
base=$(cat runs/dit/model/transformer/*.safetensors | md5sum)
train lora
only_the_matrices_are_trained() {
    [ "$base" = "$(cat runs/dit/model/transformer/*.safetensors | md5sum)" ] || fail "the files of the base model changed"
    has_message lora.log run-finished "text~=weft generate --model runs/" "text~=--lora runs/lora/adapter" || fail "the next command is not printed"
    [ ! -e runs/lora/model ] || fail "a complete model was written"
    has_message lora.log lora-targets key=transformer.lora.targets "value=to_q, to_k, to_v, to_out.0" source=family || fail "the layers with LoRA are not printed"
    grep -q 'targets: \["to_q", "to_k", "to_v", "to_out.0"\]' runs/lora/checkpoints/step-00000010/config.yaml || fail "the checkpoint does not record the layers with LoRA"
    has_message lora.log memory-report key= "text~=12.00 KiB" "text~=24.00 KiB" "text~=48.00 KiB" || fail "optimizer states of more than the adapter"
}
check only_the_matrices_are_trained
# names FILE: prints the names and shapes of its tensors
names() {
    python3 -S -c 'import json, struct, sys
data = open(sys.argv[1], "rb").read()
h = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
for k in sorted(h):
    if k != "__metadata__": print(k, *h[k]["shape"])' "$1"
}
adapter=runs/lora/adapter/pytorch_lora_weights.safetensors
names $adapter | sed 's/^transformer\.//' >written
the_file_has_every_matrix() {
    [ "$(wc -l <written)" = 32 ] && grep -qx "blocks.1.attn2.to_out.0.lora_B.weight 24 4" written && grep -qx "blocks.0.attn1.to_q.lora_A.weight 4 24" written ||
        { cat written; fail "the tensors of the adapter file"; }
    names runs/lora/checkpoints/step-00000010/transformer/diffusion_pytorch_model.safetensors | diff - written || fail "the checkpoint has other tensors than the adapter file"
}
check the_file_has_every_matrix

# stopped and resumed
a_stopped_run_resumes_bitwise() {
    train half --set stages.0.steps=5
    train half
    has_message half.log run-resumed value=5 || fail "did not resume from step 5"
    cmp runs/half/adapter/pytorch_lora_weights.safetensors $adapter || fail "the adapter differs after resuming"
}
check a_stopped_run_resumes_bitwise
# Without `targets`, a run keeps the layers in its checkpoint, on all ranks.
a_resumed_run_keeps_its_layers() {
    train kept --set stages.0.steps=2 --set 'transformer.lora.targets=[to_q, to_v]'
    ranks 2 "$WEFT" train lora.yaml --set out=runs/kept --set stages.0.steps=3 --set parallel.dp=2 >kept.log 2>&1 || { cat kept.log; fail "a run that resumes without targets"; }
    has_message kept.log run-resumed value=2 && has_message kept.log lora-targets "value=to_q, to_v" source=run || fail "the checkpoint has other layers"
    [ "$(names runs/kept/adapter/pytorch_lora_weights.safetensors | wc -l)" = 16 ] || fail "the adapter has other layers than the checkpoint"
}
check a_resumed_run_keeps_its_layers
# Resuming with another adapter is refused, and the changed keys are named.
another_adapter_is_refused() {
    needs a_stopped_run_resumes_bitwise
    "$WEFT" train lora.yaml --set out=runs/half --set stages.0.steps=12 --set transformer.lora.rank=8 --set 'transformer.lora.targets=[to_q]' >other.log 2>&1 &&
        fail "another adapter is accepted"
    has_message other.log checkpoint-mismatch level=error text~=transformer.lora.rank text~=transformer.lora.targets || fail "the error does not name the changed keys"
}
check another_adapter_is_refused
# rslora scales by alpha / sqrt(rank): 4 / sqrt(4) is 8 / 4
rslora_scales_by_the_root_of_the_rank() {
    train rooted --set transformer.lora.alpha=4 --set transformer.lora.rslora=true
    cmp runs/rooted/adapter/pytorch_lora_weights.safetensors $adapter || fail "rslora has another scale"
}
check rslora_scales_by_the_root_of_the_rank
# on several ranks
mesh() { # RANKS OPTIONS...
    local n=$1
    shift
    rm -rf runs/mesh
    ranks $n "$WEFT" train lora.yaml --set out=runs/mesh "$@" >mesh.log 2>&1 || { cat mesh.log; fail "$*"; }
    paste <(losses runs/lora) <(losses runs/mesh) | awk '
        function off(a, b, by) {return (a > b ? a - b : b - a) > by * (a > 0 ? a : -a)}
        off($2, $5, 1e-5) || off($3, $6, 1e-4) {print; bad = 1} END {exit bad || NR != 10}' || fail "$*: losses differ from one rank"
    names runs/mesh/adapter/pytorch_lora_weights.safetensors | sed 's/^transformer\.//' | diff - written || fail "$*: the adapter has other tensors"
}
check over_dp mesh 2 --set parallel.dp=2
check over_fsdp mesh 2 --set parallel.fsdp=2
check over_zero mesh 2 --set parallel.zero=2
check over_tp mesh 2 --set parallel.tp=2
check over_pp mesh 2 --set parallel.pp=2
stages_on_far_have_the_bits_of_cpu() {
    needs over_pp
    ranks 2 "$WEFT" train lora.yaml --set out=runs/distant --set parallel.pp=2 --set backend=far >distant.log 2>&1 || { cat distant.log; fail "pp=2 on far"; }
    cmp runs/mesh/adapter/pytorch_lora_weights.safetensors runs/distant/adapter/pytorch_lora_weights.safetensors || fail "the adapter of pp=2 differs on far"
}
check stages_on_far_have_the_bits_of_cpu
check over_cp mesh 2 --set parallel.cp=2

# A pipeline stage without trainable parameters, with LoRA and with `trainable`.
frozen_stage() { # NAME RANKS OPTIONS...: compares pp=2 with one rank
    local name=$1 n=$2
    shift 2
    train $name-one --set stages.0.steps=3 "$@"
    rm -rf runs/$name
    [ $n = 2 ] || set -- "$@" --set parallel.zero=2
    ranks $n "$WEFT" train lora.yaml --set out=runs/$name --set parallel.pp=2 --set stages.0.steps=3 "$@" >mesh.log 2>&1 || { cat mesh.log; fail "pp=2 $*"; }
    paste <(losses runs/$name-one) <(losses runs/$name) | awk '
        function off(a, b, by) {return (a > b ? a - b : b - a) > by * (a > 0 ? a : -a)}
        off($2, $5, 1e-5) || off($3, $6, 1e-4) {print; bad = 1} END {exit bad || NR != 3}' || fail "pp=2 $*: losses differ from one rank"
}
check aside_first frozen_stage first 2 --set 'transformer.lora.targets=["blocks.0.*"]'
check aside_last frozen_stage last 4 --set 'transformer.lora.targets=["blocks.1.*"]'
check aside_part frozen_stage part 2 --set transformer.lora.rank=0 --set transformer.lora.alpha=0 --set 'transformer.trainable=["condition_embedder.*", "blocks.0.*"]'

# generation with the adapter, and with the adapter at weight 0
video() { # NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" generate --model runs/dit/model --prompt "a red circle" --steps 4 --seed 3 --out $name.mp4 "$@" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate $*"; }
}
the_adapter_changes_the_video() {
    video base
    video with --lora $adapter
    video without --lora $adapter:0
    cmp -s base.mp4 without.mp4 || fail "an adapter of weight 0 changed the video"
    ! cmp -s base.mp4 with.mp4 || fail "the adapter has no effect on the video"
}
check the_adapter_changes_the_video
# The device `far`: latents, training and generation with the adapter.
far_has_the_bits_of_cpu() {
    needs the_adapter_changes_the_video
    train far --set backend=far --set data.latents=encoded
    cmp runs/far/adapter/pytorch_lora_weights.safetensors $adapter || fail "the adapter differs on far"
    cmp encoded/*/train-0000-000000.tar latents/*/train-0000-000000.tar || fail "latents differ on far"
    video far --lora $adapter --backend far
    cmp with.mp4 far.mp4 || fail "the video differs on far"
}
check far_has_the_bits_of_cpu
a_file_of_peft_is_read() {
    needs the_adapter_changes_the_video
    train peft --set transformer.lora.format=peft
    names runs/peft/adapter/adapter_model.safetensors | sed 's/^base_model\.model\.//' | diff - written || fail "peft's tensors"
    python3 -S -c 'import json; c = json.load(open("runs/peft/adapter/adapter_config.json"))
assert c["r"] == 4 and c["lora_alpha"] == 8 and c["peft_type"] == "LORA" and len(c["target_modules"]) == 16, c' || fail "adapter_config.json"
    video peft --lora runs/peft/adapter
    cmp -s with.mp4 peft.mp4 || fail "the file in PEFT format gives another video"
}
check a_file_of_peft_is_read
a_file_of_kohya_is_read() {
    needs the_adapter_changes_the_video
    train kohya --set transformer.lora.format=kohya
    names runs/kohya/adapter/pytorch_lora_weights.safetensors | grep -qx "lora_unet_blocks_1_cross_attn_o.lora_up.weight 24 4" || fail "kohya's tensors"
    video kohya --lora runs/kohya/adapter
    cmp -s with.mp4 kohya.mp4 || fail "the file in kohya format gives another video"
}
check a_file_of_kohya_is_read
the_merged_model_makes_the_same_video() {
    needs the_adapter_changes_the_video
    "$WEFT" convert runs/dit/model/transformer merged --lora $adapter >convert.log 2>&1 || { cat convert.log; fail "weft convert --lora"; }
    cp -r runs/dit/model whole && rm -r whole/transformer && mv merged whole/transformer
    "$WEFT" generate --model whole --prompt "a red circle" --steps 4 --seed 3 --out merged.mp4 >generate.log 2>&1 || { cat generate.log; fail "the merged model"; }
    cmp -s with.mp4 merged.mp4 || fail "the merged model gives another video"
}
check the_merged_model_makes_the_same_video
other_files_as_an_adapter_are_refused() {
    needs a_file_of_peft_is_read
    "$WEFT" generate --model runs/dit/model --prompt x --lora runs/vae/model/vae/diffusion_pytorch_model.safetensors --out x.mp4 >x.log 2>&1 &&
        fail "a file without LoRA tensors is accepted"
    has_message x.log adapter-invalid file=runs/vae/model/vae/diffusion_pytorch_model.safetensors || fail "the error does not name the file without LoRA tensors"
    mkdir lone && cp runs/peft/adapter/adapter_model.safetensors lone
    video lone --lora lone
    has_message generate.log adapter-incomplete file=lone/adapter_config.json text~=adapter_model.safetensors || fail "a missing adapter_config.json is not reported"
    "$WEFT" generate --model runs/dit/model --prompt x --lora runs/peft --out x.mp4 >x.log 2>&1 && fail "the folder of the run is accepted as an adapter"
    has_message x.log model-not-found file=runs/peft text~=runs/peft/adapter || fail "the error does not name the folder of the adapter"
}
check other_files_as_an_adapter_are_refused

# lora.base: bf16 with weights that are bf16 already: the same losses in less memory
a_base_in_bf16_needs_less_memory() {
    "$WEFT" convert runs/dit/model/transformer narrow --dtype bf16 >convert.log 2>&1 || { cat convert.log; fail "weft convert --dtype bf16"; }
    train wide --set transformer.weights=narrow
    train narrow --set transformer.weights=narrow --set transformer.lora.base=bf16
    has_message wide.log memory-report key= "text~=97.09 KiB" && has_message narrow.log memory-report key= "text~=58.09 KiB" || fail "the base in bf16 does not need less memory"
    paste <(losses runs/wide) <(losses runs/narrow) | awk '
    function off(a, b, by) {return (a > b ? a - b : b - a) > by * (a > 0 ? a : -a)}
    off($2, $5, 1e-6) || off($3, $6, 1e-4) {print; bad = 1} END {exit bad || NR != 10}' || fail "the base in bf16 has other losses"
}
check a_base_in_bf16_needs_less_memory

# invalid settings
refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train lora.yaml --set out=runs/refused "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refuse '*' text~=lora.yaml: 'text~=lora.targets: "to_z"' 'text~=to_q, to_k' -- --set 'transformer.lora.targets=[to_q, to_z]'
    refuse '*' 'text~=lora.targets: "norm_q" matches no linear layer' -- --set 'transformer.lora.targets=[norm_q]'
    refuse config-value key=*lora.targets -- --set 'transformer.lora.targets=[]'
    refuse config-value key=transformer.lora.targets value=auto -- --set 'transformer.lora.targets=[auto, to_q]'
    refuse config-missing-key file=lora.yaml key=transformer.weights -- --set transformer.weights= --set transformer.class=WanTransformer3DModel
    refuse config-conflict file=lora.yaml key=transformer text~=lora -- --set 'transformer.freeze=[blocks.0]'
    refuse config-conflict file=lora.yaml key=text_encoders.0 -- --set text_encoders.0.train=true
    refuse config-missing-key file=lora.yaml key=transformer.lora.rank -- --set transformer.lora.rank=0
    refuse config-value key=*transformer.lora.rank text~=-1 -- --set transformer.lora.rank=-1
    refuse config-no-effect file=lora.yaml key=autoencoder -- --set 'autoencoder.trainable=[encoder]'
}
check refusals
another_base_is_refused() {
    cp -r runs/dit/model/transformer other
    python3 -S - <<'PY'
import glob
path = glob.glob("other/*.safetensors")[0]
data = bytearray(open(path, "rb").read())
at = data.find(b"weft.xxh3") # without weft's checksum, the file passes as one of another program
data[at:at + 9] = b"weft_xxh3"
data[-1] ^= 1
open(path, "wb").write(data)
PY
    "$WEFT" train lora.yaml --set stages.0.steps=12 --set transformer.weights=other >out.log 2>&1 && fail "resuming with another base is accepted"
    has_message out.log '*' level=error text~=weights || fail "the error does not name the weights"
}
check another_base_is_refused

# partial training of the base weights
whole=(--set transformer.lora.rank=0 --set transformer.lora.alpha=0)
a_part_of_the_weights_is_trained() {
    train frozen "${whole[@]}" --set 'transformer.freeze=[blocks.0, attn2]' --set stages.0.steps=5
    train chosen "${whole[@]}" --set 'transformer.trainable=[to_q, "*.bias"]'
    train stopped "${whole[@]}" --set 'transformer.trainable=[to_q, "*.bias"]' --set stages.0.steps=5
    train stopped "${whole[@]}" --set 'transformer.trainable=[to_q, "*.bias"]'
    has_message stopped.log run-resumed || fail "partial training: did not resume"
    cmp runs/stopped/model/transformer/diffusion_pytorch_model.safetensors runs/chosen/model/transformer/diffusion_pytorch_model.safetensors ||
        fail "partial training: weights differ after resuming"
    python3 -S - <<'PY' || fail "a frozen tensor changed or is in the checkpoint, or a trainable one is not"
import json, struct
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    h = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in h.items() if k != "__metadata__"}
name = "/transformer/diffusion_pytorch_model.safetensors"
base = read("runs/dit/model" + name)
for run, step, stays in (("frozen", 5, lambda k: k.startswith("blocks.0.") or ".attn2." in k),
                         ("chosen", 10, lambda k: ".to_q." not in k and not k.endswith(".bias"))):
    made, kept = read("runs/" + run + "/model" + name), read(f"runs/{run}/checkpoints/step-{step:08}" + name)
    assert made.keys() == base.keys()
    for k in base:
        assert (made[k] == base[k]) == stays(k), (run, k)
        assert (k in kept) != stays(k), (run, k)
PY
}
check a_part_of_the_weights_is_trained
parts_that_do_not_exist_are_refused() {
    refuse config-value key=*freeze 'text~="blocks.9"' 'text~=as in' -- "${whole[@]}" --set 'transformer.freeze=[blocks.9]'
    refuse config-value key=*freeze -- "${whole[@]}" --set 'transformer.freeze=["*"]'
}
check parts_that_do_not_exist_are_refused
finish
