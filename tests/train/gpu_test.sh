#!/bin/bash
# Training on emulated GPUs. Losses and weights of one GPU, and of two and four in every axis, are
# close to the results of cpu: only the order of sums differs. Checkpoints move between cuda and cpu.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
export WEFT_CUDA_LIBRARY=$WEFT_BUILD/emu/libcuda.so.1 WEFT_NCCL_LIBRARY=$WEFT_BUILD/emu/libnccl.so.2
export WEFT_EMU_DEVICES=4 WEFT_GPU_VERDICTS=$PWD/verdicts
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || fail_with vae.log "weft train vae"
sed '/^stages:/,$d; s/^data:.*/data: {path: shards, latents: latents}/; s/^checkpoint:.*/checkpoint: {interval: 2, keep_latest: 9}/
    s/^optimizer:.*/optimizer: {eps: 1e-3, ema_decay: 0.9}/' dit.yaml >gpu.yaml
echo 'stages: [{steps: 4, batch: 4, frames: 5, height: 16, width: 16, lr: 1e-2, warmup_steps: 0, lr_schedule: constant}]' >>gpu.yaml
train() { # RANKS NAME OPTIONS...
    local n=$1 name=$2
    shift 2
    ranks "$n" "$WEFT" train gpu.yaml --set "out=runs/$name" "$@" >"$name.log" 2>&1 || {
        has_message "$name.log" gpu-kernels && skip "no clang"
        fail_with "$name.log" "$name"
    }
}
# near NAME: losses, and every tensor of the finished model, differ from the results of cpu by
# roundings only. AdamW divides small gradients by eps: their rounding of about 1e-7 grows by up to
# lr / eps = 10 in each of 4 steps. A step itself is 1e-2.
near() {
    paste <(losses runs/cpu) <(losses "runs/$1") | awk '
        function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
        $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 4}' || fail "$1: other losses than on cpu"
    python3 -S - "runs/cpu" "runs/$1" <<'PY' || fail "$1: other weights than on cpu"
import array, json, struct, sys
def read(run):
    data = open(run + "/model/transformer/diffusion_pytorch_model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: array.array("f", data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}
a, b = map(read, sys.argv[1:])
assert a.keys() == b.keys()
for k in a:
    worst = max(abs(x - y) for x, y in zip(a[k], b[k]))
    assert worst < 1e-5, (k, worst)
PY
}
train 1 cpu

one_gpu_trains_like_cpu() {
    train 1 cuda --set backend=cuda
    near cuda
}
check one_gpu_trains_like_cpu

# The run of one backend resumes from the other's checkpoint of step 2. The first loss after it is
# computed from weights and states that moved: a lost state changes the later losses.
a_checkpoint_moves() { # FROM TO
    needs one_gpu_trains_like_cpu
    cp -r "runs/$1" "runs/$1-$2"
    rm -r "runs/$1-$2/model" "runs/$1-$2/checkpoints/step-00000004"
    train 1 "$1-$2" --set "backend=$2"
    has_message "$1-$2.log" run-resumed value=2 || fail_with "$1-$2.log" "the run does not resume from step 2"
    near "$1-$2"
}
check a_checkpoint_moves_to_cuda a_checkpoint_moves cpu cuda
check a_checkpoint_moves_to_cpu a_checkpoint_moves cuda cpu

layout() { # RANKS KEY=DEGREE...
    local n=$1 name options=(--set backend=cuda) axis
    shift
    name=$(IFS=-; echo "$*")
    for axis; do options+=(--set "parallel.$axis"); done
    train "$n" "$name" "${options[@]}"
    near "$name"
}
# The products and the small step before the run need less memory than its first program.
out_of_memory_prints_its_figures() {
    needs one_gpu_trains_like_cpu
    local predicted free used
    WEFT_EMU_MEMORY=9000000 expect_error memory-needed "text~=memory.offload" -- "$WEFT" train gpu.yaml \
        --set out=runs/small --set backend=cuda --set stages.0.batch=256 || fail "no such error"
    predicted=$(message_field predicted_bytes error.log memory-needed)
    free=$(message_field free_bytes error.log memory-needed)
    used=$(message_field used_bytes error.log memory-needed)
    [ "$free" -lt "$predicted" ] && [ "$used" -gt 0 ] && [ $((free + used)) = 9000000 ] ||
        fail "$predicted bytes predicted, $free free, $used used"
}
check out_of_memory_prints_its_figures

for axis in fsdp tp cp pp; do check "two_gpus_$axis" layout 2 "$axis=2"; done
check four_gpus_fsdp_tp layout 4 fsdp=2 tp=2
check four_gpus_pp_cp layout 4 pp=2 cp=2
finish
