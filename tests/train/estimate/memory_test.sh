#!/bin/bash
# Predicted, reserved and measured memory. The predicted peak is that of the process within 5 %, with
# and without latents to encode, in f32 and bf16, for a transformer and an autoencoder. `weft inspect
# graph` predicts the same peak as the run, also on two ranks. States that memory.optimizer_states: offload cannot offload
# are reported, and its folder is tested before the first step.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >wide.yaml <<'Y'
out: runs/wide
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 8, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages:
  - {steps: 2, batch: 16, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}
Y
sed 's/wide/little/; s/num_layers: 8/num_layers: 2/; s/batch: 16/batch: 4/; s/height: 64, width: 64/height: 32, width: 32/' wide.yaml >little.yaml
predicted() { python3 "$SRC/tests/train/estimate/compare_memory.py" "$WEFT" "$@" || fail "$*"; }
check "prediction of latents to encode" predicted "latents to encode" wide.yaml
check "prediction of latents cached" predicted "latents cached" wide.yaml --set out=runs/cached
check "prediction of bf16" predicted "bf16" wide.yaml --set out=runs/bf16 --set precision=bf16
check "prediction of a small run" predicted "a small run" little.yaml --set data.latents=little-latents
check "prediction of autoencoder" predicted "autoencoder" vae.yaml --set out=runs/vae2 --set stages.0.steps=3 --set stages.0.height=64 --set stages.0.width=64 --set autoencoder.config.base_dim=16
# Two ranks, whose processes have MPI in addition.
predicted_on_ranks() { MPIRUN="$MPIRUN --oversubscribe -n 2" predicted "two ranks" little.yaml --set out=runs/two --set parallel.dp=2 --set data.latents=little-latents; }
[ -z "$MPIRUN" ] || check predicted_on_ranks
# The graph of self-forcing has a call of the student for each step of each block.
cp -r runs/cached/model/transformer causal
sed -i 's/"WanTransformer3DModel"/"CausalWanTransformer3DModel", "num_frames_per_block": 1/' causal/config.json
cat >rolled.yaml <<'Y'
out: runs/rolled
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {weights: causal}
text_encoders: [{weights: runs/cached/model/text_encoder}]
distill: {method: self_forcing, teacher: runs/cached/model/transformer, guidance: 3, student_steps: 2}
stages:
  - {steps: 2, batch: 8, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}
Y
check "prediction of self-forcing" predicted "self-forcing" rolled.yaml
check "prediction of self-forcing with LoRA" predicted "self-forcing with LoRA" rolled.yaml --set out=runs/rolled-lora --set transformer.lora.rank=4

states_that_stay_are_reported() {
    "$WEFT" train dit.yaml --set out=runs/small --set memory.optimizer_states=offload --set stages.0.steps=1 --set stages.0.warmup_steps=0 --set stages.1.steps=1 >small.log 2>&1 || { cat small.log; fail "states of a small model"; }
    has_message small.log config-unusual key=memory.optimizer_states text~=KiB, 'text~=below 64.00 KiB' || fail "states that are not offloaded are not reported"
    "$WEFT" train wide.yaml --set out=runs/states --set memory.optimizer_states=offload >states.log 2>&1 || { cat states.log; fail "a run with offloaded states"; }
    [ "$(count_messages states.log config-unusual key=memory.optimizer_states)" = 0 ] || { cat states.log; fail "states are offloaded, and reported as resident"; }
}
check states_that_stay_are_reported
the_folder_is_tried_first() {
    touch file
    "$WEFT" train dit.yaml --set out=runs/no --set memory.optimizer_states=offload --set memory.offload=file/away >no.log 2>&1 && fail "a file as the folder of memory.offload"
    has_message no.log file-io file=file key=memory.offload 'text~=a folder' || fail "the folder of memory.offload is not named"
    [ "$(count_messages no.log memory-report)" = 0 ] || fail "the folder is tested after the run has begun"
}
check the_folder_is_tried_first
finish
