#!/bin/bash
# memory.offload, memory.optimizer_states and --weights stream on an emulated GPU: values wait in
# pinned memory of the host, and weights in their files. A GPU that keeps all values has the same
# losses and frames, bitwise; cpu has close ones.
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

# Two of 8 blocks are in memory. The peak of streamed weights is in a kernel with 4 MiB of its own.
weights_wait_in_their_files() {
    needs optimizer_states_wait_in_the_host # the GPU's verdicts
    try wide blocks --set transformer.config.num_layers=8 --set stages.0.steps=1
    local run block=$((4 * (8 * 128 * 128 + 2 * 128 * 256)))
    for run in "cpu stored" "cuda stored" "cuda stream"; do
        "$WEFT" generate --model runs/blocks/model --prompt "a red circle" --steps 2 --frames 5 --height 16 --width 16 --frames-npy \
            --backend "${run% *}" --weights "${run#* }" --out "${run/ /-}.mp4" >"${run/ /-}.log" 2>&1 || fail_with "${run/ /-}.log" "$run"
    done
    cmp cuda-stored.npy cuda-stream.npy || fail "streamed weights give other frames"
    predicted() { message_field value "$1.log" job-report 'value=?*'; }
    [ $(($(predicted cuda-stored) - $(predicted cuda-stream))) -gt $((2 * block)) ] ||
        fail "predicted $(predicted cuda-stored) bytes, streamed $(predicted cuda-stream), a block $block"
    python3 -S - <<'PY' || fail "other frames than of cpu"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = load("cpu-stored.npy"), load("cuda-stream.npy")
worst = max(abs(x - y) for x, y in zip(a, b))
assert len(a) == len(b) > 0 and max(a) > min(a) and worst < 1e-4, worst
PY
}
check weights_wait_in_their_files
finish
