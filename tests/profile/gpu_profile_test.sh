#!/bin/bash
# weft profile on an emulated GPU: plan and estimate use its rates, and inspect prints programs of the
# GPU. The times of an emulation say nothing about a GPU.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
export WEFT_CUDA_LIBRARY=$WEFT_BUILD/emu/libcuda.so.1 WEFT_GPU_VERDICTS=$PWD/verdicts
mkdir vae
echo '{"_class_name": "AutoencoderKLWan", "base_dim": 4, "dim_mult": [1, 1, 2, 2], "num_res_blocks": 1, "z_dim": 4}' >vae/config.json
cat >run.yaml <<'Y'
out: runs/dit
backend: cuda
autoencoder: {weights: vae}
data: {path: shards}
transformer: {class: WanTransformer3DModel, config: {num_layers: 1, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages: [{steps: 4, batch: 2, frames: 5, height: 16, width: 16, lr: 1e-3}]
Y
a_profile_has_the_rates_of_the_gpu() {
    "$WEFT" profile run.yaml --backend cuda --seconds 0.1 --out gpu.json >profiled.txt 2>profile.log || {
        has_message profile.log gpu-kernels && skip "no clang"
        fail_with profile.log "weft profile"
    }
    grep -q 'kinds of nodes on Emulated GPU; memory .* copies to the host' profiled.txt || fail_with profiled.txt "another device"
    "$WEFT" topology gpu.json | grep -q '1 node x 1 ' || fail "the profile is not a cluster"
}
check a_profile_has_the_rates_of_the_gpu

# All nodes were measured: with ten times the seconds of each kernel, a step takes ten times the seconds.
plan_and_estimate_use_it() {
    needs a_profile_has_the_rates_of_the_gpu
    python3 -S - <<'PY'
import json
p = json.load(open("gpu.json"))
assert p["machine"] == "Emulated GPU" and p["rates"] and p["memory"] == 4 << 30, p["machine"]
for rate in p["rates"]:
    rate["seconds"] *= 10
json.dump(p, open("slower.json", "w"))
PY
    local name
    for name in gpu slower; do
        "$WEFT" plan layout --run-config run.yaml --devices 1 --on $name.json --json >$name-plan.json 2>plan.log || fail_with plan.log "weft plan layout"
        "$WEFT" estimate run.yaml --on $name.json --json >$name-estimate.json 2>estimate.log || fail_with estimate.log "weft estimate"
    done
    python3 -S - <<'PY' || fail "the rates of the profile are not used"
import json
plan, slower_plan, estimate, slower = (json.load(open(f + ".json")) for f in ("gpu-plan", "slower-plan", "gpu-estimate", "slower-estimate"))
for a, b in ((plan["predicted"], slower_plan["predicted"]), (estimate, slower)):
    assert a["measured_share"] > 0.999 and a["device_bytes"] > 0, a
    assert abs(b["seconds"] / a["seconds"] - 10) < 0.01, (a["seconds"], b["seconds"])
PY
}
check plan_and_estimate_use_it

# Kernels of the GPU need other memory than kernels of cpu.
inspect_has_programs_of_the_gpu() {
    "$WEFT" inspect graph run.yaml --passes >cuda.txt 2>inspect.log || fail_with inspect.log "weft inspect graph"
    "$WEFT" inspect graph run.yaml --passes --set backend=cpu >cpu.txt 2>inspect.log || fail_with inspect.log "weft inspect graph on cpu"
    local cuda cpu
    cuda=$(grep '^  activations' cuda.txt) cpu=$(grep '^  activations' cpu.txt)
    [ -n "$cuda" ] && [ "$cuda" != "$cpu" ] || fail "cuda: '$cuda', cpu: '$cpu'"
}
check inspect_has_programs_of_the_gpu
finish
