#!/bin/bash
# memory.offload and memory.optimizer_states on an emulated GPU: values wait in pinned memory of the
# host. A GPU that keeps all values has the same losses, bitwise; losses of cpu are close.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
export WEFT_CUDA_LIBRARY=$WEFT_BUILD/emu/libcuda.so.1 WEFT_GPU_VERDICTS=$PWD/verdicts
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || fail_with vae.log "weft train vae"
config() { # LAYERS HEAD FFN BATCH STEPS
    cat <<Y
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: $1, num_attention_heads: 2, attention_head_dim: $2, ffn_dim: $3, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 0}
stages: [{steps: $5, batch: $4, frames: 5, height: 16, width: 16, lr: 1e-3, warmup_steps: 0}]
Y
}
config 2 64 256 4 2 >wide.yaml # matrices of 64 KiB and more: smaller states stay
config 8 32 64 40 1 >deep.yaml # activations of several MiB
try() { # CONFIG NAME SETTINGS...
    local config=$1 name=$2
    shift 2
    "$WEFT" train "$config.yaml" --set "out=runs/$name" "$@" >"$name.log" 2>&1 || {
        has_message "$name.log" gpu-kernels && skip "no clang"
        fail_with "$name.log" "$name"
    }
}
close_to_cpu() { # CONFIG NAME: only the order of sums differs
    try "$1" "$1-cpu"
    paste <(losses "runs/$1-cpu") <(losses "runs/$2") | awk '
        function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * a}
        off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || !NR}' || fail "$2: other losses than of cpu"
}
same() { diff <(losses "runs/$1") <(losses "runs/$2") || fail "offloading changes the losses"; }

optimizer_states_wait_in_the_host() {
    try wide kept --set backend=cuda
    close_to_cpu wide kept
    try wide states --set backend=cuda --set memory.offload=host --set memory.optimizer_states=offload
    has_message states.log memory-report text~=offloaded || fail_with states.log "offloaded states are not reported"
    has_message states.log stage-report "text~=stage 0" text~=fetched || fail_with states.log "nothing was fetched"
    local kept offloaded
    kept=$(message_field weight_bytes kept.log stage-report 'weight_bytes=?*')
    offloaded=$(message_field weight_bytes states.log stage-report 'weight_bytes=?*')
    [ "$offloaded" -lt $((kept / 2)) ] || fail "$offloaded bytes of weights and states stay of $kept"
    same kept states
}
check optimizer_states_wait_in_the_host

# The least limit that the error names.
activations_wait_in_the_host() {
    local host=(--set backend=cuda --set memory.recompute=none --set memory.offload=host --set memory.prefetch_budget=256KiB) limit
    try deep all --set backend=cuda
    close_to_cpu deep all
    "$WEFT" train deep.yaml --set out=runs/no "${host[@]}" --set memory.limit=50MiB >no.log 2>&1 && fail "50 MiB are enough"
    limit=$(message_field value no.log memory-needed)
    try deep limited "${host[@]}" --set memory.limit=$((limit + (1 << 18)))
    has_message limited.log memory-report "text~=memory.limit: stage 0" || fail_with limited.log "the offloading is not reported"
    has_message limited.log stage-report "text~=stage 0" text~=fetched || fail_with limited.log "nothing was fetched"
    same all limited
}
check activations_wait_in_the_host
finish
