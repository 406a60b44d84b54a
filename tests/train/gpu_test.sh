#!/bin/bash
# Training on emulated GPUs. Losses and weights of one, two and four GPUs are close to the results of
# cpu in every axis: only the order of sums differs. Checkpoints move between cuda and cpu.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/signal_at.sh"
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
# rounding only. AdamW divides small gradients by eps: a rounding of about 1e-7 grows by up to
# lr / eps = 10 in each of 4 steps. A step itself is 1e-2.
near() { # NAME [REFERENCE]
    local of=${2:-cpu}
    paste <(losses "runs/$of") <(losses "runs/$1") | awk '
        function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
        $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 4}' || fail "$1: other losses than of $of"
    python3 -S - "runs/$of" "runs/$1" <<'PY' || fail "$1: other weights than of $of"
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
    local predicted free used limit
    WEFT_EMU_MEMORY=41000000 expect_error memory-needed "text~=memory.offload" -- "$WEFT" train gpu.yaml \
        --set out=runs/small --set backend=cuda --set stages.0.batch=512 || fail "no such error"
    predicted=$(message_field predicted_bytes error.log memory-needed)
    free=$(message_field free_bytes error.log memory-needed)
    used=$(message_field used_bytes error.log memory-needed)
    [ "$free" -lt "$predicted" ] && [ "$used" -gt 0 ] && [ $((free + used)) = 41000000 ] ||
        fail "$predicted bytes predicted, $free free, $used used"
    limit=$(sed -nE 's/.*With memory.limit: ([0-9]+) .*/\1/p' error.log)
    [ -n "$limit" ] || fail_with error.log "no limit is named"
    WEFT_EMU_MEMORY=41000000 "$WEFT" train gpu.yaml --set out=runs/small --set backend=cuda \
        --set stages.0.batch=512 --set stages.0.steps=1 --set memory.limit="$limit" >limit.log 2>&1 ||
        fail_with limit.log "the named limit"
}
check out_of_memory_prints_its_figures
an_absent_driver_is_named() {
    WEFT_CUDA_LIBRARY=$PWD/absent.so expect_error gpu-driver file=*absent.so -- "$WEFT" train gpu.yaml \
        --set out=runs/absent --set backend=cuda || fail "another error"
}
check an_absent_driver_is_named

# With `auto` the limit is the free memory of the GPU less a reserve, and the memory of the process. A
# resumed run has the limit of its first start, although more memory is free, and recomputes the same.
limit_auto_is_the_free_memory() {
    needs one_gpu_trains_like_cpu
    automatic() { # LOG MEMORY OPTIONS...
        local log=$1 memory=$2
        shift 2
        WEFT_EMU_MEMORY=$memory "$WEFT" train gpu.yaml --set out=runs/limited --set backend=cuda --set stages.0.batch=512 \
            --set memory.limit=auto --set checkpoint.interval=1 "$@" >"$log" 2>&1 || fail_with "$log" "memory.limit: auto"
    }
    figure() { message_field "$2" "$1" memory-report key=memory.limit; }
    automatic first.log 41000000 --set stages.0.steps=1
    [ "$(figure first.log device_bytes)" -gt 30000000 ] && [ "$(figure first.log device_bytes)" -lt 41000000 ] ||
        fail_with first.log "another limit than the free memory"
    [ "$(figure first.log source)" = free ] || fail_with first.log "the source of the limit"
    [ "$(message_field recomputed_bytes first.log memory-report plan=new)" -gt 0 ] || fail_with first.log "nothing is recomputed"
    automatic second.log 99000000 --set stages.0.steps=2
    [ "$(figure second.log source)" = run ] || fail_with second.log "the limit is not the stored one"
    [ "$(figure second.log value)" = "$(figure first.log value)" ] || fail_with second.log "another limit after a resume"
    expect_error config-value key=memory.limit -- "$WEFT" train gpu.yaml --set out=runs/no --set memory.limit=auto || fail "auto on cpu"
}
check limit_auto_is_the_free_memory

# Also without NCCL, which otherwise identifies the GPUs for its connections.
ranks_of_a_gpu_divide_its_memory() {
    needs one_gpu_trains_like_cpu
    WEFT_NCCL=off WEFT_EMU_DEVICES=1 WEFT_EMU_MEMORY=99000000 train 2 divided --set backend=cuda --set parallel.dp=2 \
        --set memory.limit=auto --set stages.0.steps=1
    [ "$(message_field device_bytes divided.log memory-report key=memory.limit)" -lt 49500000 ] || fail_with divided.log "more than half of the GPU"
}
check ranks_of_a_gpu_divide_its_memory

# A stopped run frees its memory, closes its streams and releases the context of the GPU. (mpirun
# kills other ranks after the first has exited, so this has one rank.)
leaves_no_context() { # SIGNAL
    needs one_gpu_trains_like_cpu
    rm -f left
    SIGNAL_ON=write SIGNAL_COUNT=2 WEFT_EMU_LEFT=$PWD/left signal_at "$1" "*/stopped-$1/metrics.jsonl" \
        "$WEFT" train gpu.yaml --set "out=runs/stopped-$1" --set backend=cuda --set stages.0.steps=1000 >stop.log 2>&1
    has_message stop.log interrupted level=info value=2 || fail_with stop.log "not stopped after step 2"
    diff - left <<<"0 contexts, 0 streams, 0 allocations, 0 pinned" || fail "the run left memory or a context"
}
check sigint_leaves_no_context leaves_no_context INT
check sigterm_leaves_no_context leaves_no_context TERM

# The GPU of rank 1 fails after the checkpoint of step 2. Its rank names the GPU, rank 0 names rank 1, and
# the same command resumes: the weights equal bitwise the weights of a run without the fault.
a_failed_gpu_ends_the_job() { # FAULT
    needs two_gpus_dp
    cat >on_rank1 <<'S'
#!/bin/bash
[ "$OMPI_COMM_WORLD_LOCAL_RANK" = 1 ] || { unset WEFT_EMU_FAULT; WEFT_CUDA_DEADLINE=600; }
exec "$@"
S
    chmod +x on_rank1
    failing() { ranks 2 ./on_rank1 "$WEFT" train gpu.yaml --set "out=runs/$1" --set backend=cuda --set parallel.dp=2 >"$1.log" 2>&1; }
    WEFT_EMU_FAULT=$1:runs/$1/checkpoints/step-00000002 failing "$1" && fail "the run passed"
    has_message "$1.log" "gpu-$1" level=error text~="GPU 1" || fail_with "$1.log" "the GPU is not named"
    [ "$1" != hang ] || has_message "$1.log" gpu-hang level=error text~=node || fail_with "$1.log" "the op is not named"
    has_message "$1.log" rank-failed level=error rank=1 || fail_with "$1.log" "the rank is not named"
    (unset WEFT_EMU_FAULT; failing "$1") || fail_with "$1.log" "the same command"
    has_message "$1.log" run-resumed value=2 || fail_with "$1.log" "the run does not resume from step 2"
    cmp "runs/$1/model/transformer/diffusion_pytorch_model.safetensors" runs/dp=2/model/transformer/diffusion_pytorch_model.safetensors ||
        fail "other weights than without the fault"
}
check two_gpus_dp layout 2 dp=2
check a_lost_gpu_ends_the_job a_failed_gpu_ends_the_job lost
check an_ecc_error_ends_the_job a_failed_gpu_ends_the_job ecc
# A kernel that never ends, which only a deadline finds. Rank 0 waits for the same exchange, so with an
# equal deadline it could end first.
a_hang_ends_the_job() {
    export WEFT_CUDA_DEADLINE=15
    a_failed_gpu_ends_the_job hang
}
check a_hang_ends_the_job
for axis in fsdp tp cp pp; do check "two_gpus_$axis" layout 2 "$axis=2"; done
# Without NCCL, as on a shared GPU: the host waits for each message.
without_nccl() {
    WEFT_NCCL=off layout 2 dp=1 tp=2
}
check two_gpus_without_nccl without_nccl
check four_gpus_fsdp_tp layout 4 fsdp=2 tp=2
check four_gpus_pp_cp layout 4 pp=2 cp=2

# ---- context parallelism ------------------------------------------------------------------------
# 9 tokens of 3 latent frames, a number that neither 2 nor 4 ranks divide. Rings send keys and values
# from GPU to GPU, Ulysses exchanges heads; both together need 4 GPUs.
video=(--set stages.0.frames=9 --set stages.0.width=48 --set stages.0.steps=4)
context_on_cpu() { train 1 context "${video[@]}"; }
check context_on_cpu
context() { # RANKS KEY=VALUE...
    needs context_on_cpu
    local n=$1 name options=("${video[@]}" --set backend=cuda) axis
    shift
    name=$(IFS=-; echo "$*" | tr -d '{}: ,')
    for axis; do options+=(--set "parallel.$axis"); done
    train "$n" "$name" "${options[@]}"
    near "$name" context
}
check two_gpus_ring context 2 cp=2 context=ring
check four_gpus_ring context 4 cp=4 context=ring
check four_gpus_ulysses_and_ring context 4 'context={ulysses: 2, ring: 2}'
check four_gpus_ring_tp context 4 tp=2 cp=2 context=ring
check four_gpus_ring_fsdp context 4 fsdp=2 cp=2 context=ring
# Attention of video and text together: each rank also has the text's keys.
sed 's/class: WanTransformer3DModel/class: CogVideoXTransformer3DModel/
    s/  config: {num_layers: 2, num_att.*/  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, time_embed_dim: 32, max_text_seq_length: 32}/' gpu.yaml >joint.yaml
joint() { # NAME RANKS OPTIONS...
    local name=$1 n=$2
    shift 2
    ranks "$n" "$WEFT" train joint.yaml --set "out=runs/$name" "${video[@]}" "$@" >"$name.log" 2>&1 || fail_with "$name.log" "$name"
}
joint_attention_in_a_ring() {
    joint joint 1
    joint joint-ring 2 --set backend=cuda --set parallel.cp=2 --set parallel.context=ring
    near joint-ring joint
}
check joint_attention_in_a_ring

# ---- cuBLASLt -------------------------------------------------------------------------------------
# Products are measured and may be computed by cuBLASLt, whose sums have another order. The choices are
# stored: a run that resumes measures nothing, and has bitwise the weights of the first run.
cublaslt_trains_like_cpu() {
    needs one_gpu_trains_like_cpu
    export WEFT_CUBLASLT_LIBRARY=$WEFT_BUILD/emu/libcublasLt.so.12
    train 1 lt --set backend=cuda
    near lt
    grep -q '"cublaslt":[0-9]' verdicts/*-choices.jsonl || fail "cuBLASLt was not measured"
    sha256sum verdicts/*-choices.jsonl >choices.sum
    cp -r runs/lt runs/lt-again
    rm -r runs/lt-again/model runs/lt-again/checkpoints/step-00000004
    train 1 lt-again --set backend=cuda
    sha256sum --quiet -c choices.sum || fail "the choices changed"
    cmp runs/lt{,-again}/model/transformer/diffusion_pytorch_model.safetensors || fail "other weights after a resume"
    unset WEFT_CUBLASLT_LIBRARY
}
check cublaslt_trains_like_cpu

# ---- backend: auto ------------------------------------------------------------------------------
chosen() { # LOG BACKEND
    has_message "$1" backend-chosen "value=$2" || fail_with "$1" "auto did not choose $2"
}
auto_uses_a_gpu_that_passes() {
    needs one_gpu_trains_like_cpu
    train 1 auto --set backend=auto --set stages.0.steps=1
    chosen auto.log cuda
}
check auto_uses_a_gpu_that_passes
# All ranks use cpu if one has no GPU: 0 GPUs on local rank 1.
auto_is_the_same_on_all_ranks() {
    cat >on_rank <<'S'
#!/bin/bash
[ "$OMPI_COMM_WORLD_LOCAL_RANK" = 0 ] || export CUDA_VISIBLE_DEVICES=
exec "$@"
S
    chmod +x on_rank
    ranks 2 ./on_rank "$WEFT" train gpu.yaml --set out=runs/mixed --set backend=auto --set parallel.dp=2 >mixed.log 2>&1 || fail_with mixed.log "auto"
    chosen mixed.log cpu
    near mixed
}
check auto_is_the_same_on_all_ranks

# ---- verdicts: an op that failed stops each verb that computes -------------------------------------
generate() { "$WEFT" generate --model runs/cpu/model --prompt "a red circle" --steps 1 --frames 5 --height 16 --width 16 --out x.mp4 "$@"; }
failed_ops_stop_generate_eval_and_profile() {
    needs one_gpu_trains_like_cpu
    cp -r verdicts failed
    sed -i '/"attention": *{/,/}/s/"weft": *"passed"/"weft": "failed"/' failed/*.json
    local stopped=0 run
    for run in "generate" "$WEFT eval cache --model runs/cpu/model --prompts prompts.txt --steps 1 --frames 5 --height 16 --width 16" "$WEFT profile gpu.yaml --seconds 1"; do
        echo "a red circle" >prompts.txt
        WEFT_GPU_VERDICTS=failed $run --backend cuda >stop.log 2>&1 && fail "$run uses an op that failed"
        has_message stop.log parity-failed level=error key=attention || fail_with stop.log "$run"
        stopped=$((stopped + 1))
    done
    [ $stopped = 3 ]
    WEFT_GPU_VERDICTS=failed generate --backend auto >auto.log 2>&1 || fail_with auto.log "auto"
    has_message auto.log parity-failed level=warning key=attention || fail_with auto.log "the op that failed is not named"
    chosen auto.log cpu
}
check failed_ops_stop_generate_eval_and_profile
near_frames() { # A B: float arrays
    python3 -S - "$1" "$2" <<'PY' || fail "other frames in $2"
import array, struct, sys
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = map(load, sys.argv[1:])
assert len(a) == len(b) > 0 and max(a) > min(a)
worst = max(abs(x - y) for x, y in zip(a, b))
assert worst < 1e-4, worst
PY
}
generate_gives_the_frames_of_cpu() {
    needs one_gpu_trains_like_cpu
    generate --backend cpu --frames-npy >cpu.log 2>&1 && mv x.npy cpu.npy || fail_with cpu.log "generate on cpu"
    generate --backend auto --frames-npy >auto.log 2>&1 || fail_with auto.log "generate on cuda"
    chosen auto.log cuda
    near_frames cpu.npy x.npy
}
check generate_gives_the_frames_of_cpu
ring_generates_the_frames_of_cpu() {
    needs generate_gives_the_frames_of_cpu
    ranks 2 "$WEFT" generate --model runs/cpu/model --prompt "a red circle" --steps 1 --frames 5 --height 16 --width 16 --backend cuda \
        --parallel cp=2 --parallel context=ring --frames-npy --out ring.mp4 >ring.log 2>&1 || fail_with ring.log "generate in a ring"
    near_frames cpu.npy ring.npy
}
check ring_generates_the_frames_of_cpu
# The first kernel after the latents were written never ends. The same command decodes the latents.
a_hang_ends_generate() {
    needs generate_gives_the_frames_of_cpu
    hung() { timeout 120 "$WEFT" generate --model runs/cpu/model --prompt "a red circle" --steps 1 --frames 5 --height 16 --width 16 \
        --backend cuda --frames-npy --out hung.mp4 "$@"; }
    WEFT_CUDA_DEADLINE=10 WEFT_EMU_FAULT=hang:hung.latents.safetensors expect_error gpu-hang text~="GPU 0" text~=node -- hung ||
        fail "the hang is not reported"
    [ -e hung.latents.safetensors ] || fail "the latents are lost"
    hung --resume >hung.log 2>&1 || fail_with hung.log "the same command"
    cmp hung.npy x.npy || fail "other frames than without the fault"
}
check a_hang_ends_generate
finish
