#!/bin/bash
# A pipeline's step on 16 or 32 ranks: threads that run the real interpreter and messages on simulated
# devices and links. Every schedule, also one of the planner, needs the seconds of the event simulator
# within 5 %. A repeated step has bitwise the same seconds.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
mkdir -p wan_vae sd_vae
echo '{"_class_name":"AutoencoderKLWan"}' >wan_vae/config.json
echo '{"_class_name":"AutoencoderKL","block_out_channels":[128,256,512,512],"latent_channels":4,"layers_per_block":2}' >sd_vae/config.json
cat >wan.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: wan_vae}
transformer: {class: WanTransformer3DModel, config: {num_attention_heads: 12, attention_head_dim: 128, ffn_dim: 8960, num_layers: 38}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 64}}]
memory: {recompute: ['transformer.blocks.*']}
stages: [{steps: 2, batch: 16, frames: 5, height: 128, width: 128, lr: 1e-4, warmup_steps: 0}]
parallel: {pp: 16, microbatches: 16}
Y
cat >uvit.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: sd_vae}
transformer: {class: UViT, config: {img_size: 16, patch_size: 2, in_chans: 4, embed_dim: 1024, depth: 48, num_heads: 16, mlp_time_embed: false, clip_dim: 64, num_clip_token: 64}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 64}}]
stages: [{steps: 2, batch: 64, frames: 1, height: 128, width: 128, lr: 1e-4, warmup_steps: 0}]
parallel: {pp: 16, microbatches: 16}
Y
# A NIC for each device, half of them on another leaf switch: messages from a stage to a stage of the
# next node use both uplinks.
cat >rails.yaml <<'Y'
name: rails
nodes: 4
devices: 8
device: {type: H100, memory: 80GiB, flops: 989e12, memory_bandwidth: 3.35e12, gemm: 0.55, attention: 0.40, conv: 0.25, memory_fraction: 0.8}
link: {bandwidth: 450e9, latency: 2e-6}
host: {bandwidth: 55e9, latency: 5e-6}
nics:
  - {switch: leaf0, bandwidth: 50e9, latency: 2e-6, distance: [0, 0, 0, 0, 1, 1, 1, 1]}
  - {switch: leaf0, bandwidth: 50e9, latency: 2e-6, distance: [0, 0, 0, 0, 1, 1, 1, 1]}
  - {switch: leaf0, bandwidth: 50e9, latency: 2e-6, distance: [0, 0, 0, 0, 1, 1, 1, 1]}
  - {switch: leaf0, bandwidth: 50e9, latency: 2e-6, distance: [0, 0, 0, 0, 1, 1, 1, 1]}
  - {switch: leaf1, bandwidth: 50e9, latency: 2e-6, distance: [1, 1, 1, 1, 0, 0, 0, 0]}
  - {switch: leaf1, bandwidth: 50e9, latency: 2e-6, distance: [1, 1, 1, 1, 0, 0, 0, 0]}
  - {switch: leaf1, bandwidth: 50e9, latency: 2e-6, distance: [1, 1, 1, 1, 0, 0, 0, 0]}
  - {switch: leaf1, bandwidth: 50e9, latency: 2e-6, distance: [1, 1, 1, 1, 0, 0, 0, 0]}
switches:
  - {name: leaf0, up: spine, bandwidth: 80e9, latency: 1e-6}
  - {name: leaf1, up: spine, bandwidth: 80e9, latency: 1e-6}
  - {name: spine}
Y
cluster=v100:2 ranks=16
near() { # MODEL SCHEDULE [OPTIONS...]
    local model=$1 schedule=$2
    shift 2
    "$WEFT" simulate $model.yaml --on $cluster --set parallel.schedule="$schedule" --out now.json "$@" >now.txt || { cat now.txt; fail "$model $schedule"; }
    python3 -S - "$model $schedule on $cluster" $ranks <<'P' || { cat now.txt; fail "$model $schedule: other seconds than simulated"; }
import json, sys
t = json.load(open("now.json"))
off = t["executed_seconds"] / t["simulated_seconds"] - 1
print(f"{sys.argv[1]}: executed {off:+.2%}, idle {t['executed_idle']:.1%}, simulated {t['simulated_idle']:.1%}")
assert abs(off) <= 0.05 and abs(t["executed_idle"] - t["simulated_idle"]) <= 0.05 and t["sent_bytes"] > 0 and t["ranks"] == int(sys.argv[2]), t
P
}
planned() { # MODEL
    local model=$1
    near $model wave --costs $model.costs.json
    "$WEFT" plan pipeline --costs $model.costs.json --stages 32 --devices 16 --microbatches 16 --schedule greedy --out $model.plan.json >plan.txt ||
        { cat plan.txt; fail "plan of $model"; }
    near $model $model.plan.json
}
for model in wan uvit; do check "wave_and_plan_$model" planned $model; done
check one_f_one_b near wan 1f1b
check zero_bubble near wan zero-bubble
check interleaved near uvit interleaved
# Two replicas, eight ranks on one network port: their messages at the same time share its bandwidth.
two=(1f1b --set parallel.pp=8 --set parallel.dp=2 --set parallel.microbatches=8)
replicas_behind_one_port_repeat() {
    near uvit "${two[@]}"
    cp now.json once.json
    near uvit "${two[@]}"
    cmp once.json now.json || fail "a repeated step has other figures"
}
check replicas_behind_one_port_repeat
check wave_of_two_replicas near uvit wave --set parallel.pp=8 --set parallel.dp=2
# Without a number in the config, the number of microbatches leaves each replica one of 16 samples.
microbatches_follow_from_the_batch() {
    near uvit 1f1b --set parallel.pp=8 --set parallel.dp=2 --set parallel.microbatches=0 --set stages.0.batch=16
    grep -q "1f1b, 8 microbatches a step" now.txt || { cat now.txt; fail "replicas without samples"; }
}
check microbatches_follow_from_the_batch
# Four replicas: four ranks send over one port at the same time; in sequence they would end a tenth
# earlier. All nodes share one uplink; without it 1f1b would need 16 % less and zero-bubble 30 % less.
four=(--set parallel.pp=8 --set parallel.dp=4 --set parallel.microbatches=8)
ranks=32
cluster=v100:4
check four_replicas near uvit 1f1b "${four[@]}"
cluster=rails.yaml
check four_replicas_over_uplinks near uvit 1f1b "${four[@]}"
zero_bubble_over_uplinks_repeats() {
    near uvit zero-bubble "${four[@]}"
    cp now.json once.json
    near uvit zero-bubble "${four[@]}"
    cmp once.json now.json || fail "a repeated step over uplinks has other figures"
}
check zero_bubble_over_uplinks_repeats
# Seconds and bytes are those of programs that each rank plans separately: shards of unequal size with
# and without zero, and the update with the telemetry that ranks exchange.
exact() { # EXECUTED WAITING SENT PEAK OPTIONS...
    local seconds=$1 behind=$2 sent=$3 peak=$4
    shift 4
    "$WEFT" simulate uvit.yaml --on v100:2 --set transformer.config.depth=16 --set transformer.config.embed_dim=512 \
        --set transformer.config.num_heads=8 --out now.json "$@" >now.txt || { cat now.txt; fail "$*"; }
    python3 -S - "$seconds" "$behind" "$sent" "$peak" <<'P' || { cat now.json; fail "$*: other figures than with a plan for each rank"; }
import json, sys
t = json.load(open("now.json"))
for key, was in zip(("executed_seconds", "behind_seconds", "sent_bytes", "peak_bytes"), map(float, sys.argv[1:])):
    assert abs(t[key] - was) <= 1e-12 * was, (key, t[key], was)
P
}
check exact_zero_1 exact 0.025885105448979102 0.00993332459888853 381630048 522060544 --set parallel.pp=4 --set parallel.dp=3 --set parallel.zero=1 \
    --set stages.0.batch=40 --set parallel.microbatches=4
check exact_zero_2 exact 0.035542828323465774 0.004202108365556442 2984554304 534152768 --set parallel.pp=4 --set parallel.dp=4 --set parallel.zero=2 \
    --set parallel.microbatches=4 --set parallel.schedule=wave
check exact_zero_bubble exact 0.0315436383904995 0.002144792802222753 1184375872 1006283968 --set parallel.pp=8 --set parallel.dp=2 \
    --set parallel.microbatches=8 --set parallel.schedule=zero-bubble
# 1,024 ranks with the layers of Wan 14B, in less than 2 GiB
a_thousand_ranks_take_little_memory() {
    python3 -S - "$WEFT" <<'P' || fail "1,024 ranks"
import json, resource, subprocess, sys
options = ["transformer.config.num_attention_heads=40", "transformer.config.ffn_dim=13824", "transformer.config.num_layers=8",
           "parallel.pp=8", "parallel.dp=128", "parallel.microbatches=8", "stages.0.batch=1024"]
subprocess.run([sys.argv[1], "simulate", "wan.yaml", "--on", "h100:128", "--out", "many.json"] + [a for o in options for a in ("--set", o)],
               check=True, stdout=subprocess.DEVNULL)
t, peak = json.load(open("many.json")), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
assert t["ranks"] == 1024 and t["stages"] == 8 and abs(t["executed_seconds"] / t["simulated_seconds"] - 1) <= 0.05, t
assert peak < 2 << 20, f"{peak} KiB of memory"
P
}
check a_thousand_ranks_take_little_memory
refused() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    if "$WEFT" simulate "$@" >out.txt 2>err; then cat out.txt; fail "accepted: $*"; fi
    has_message err "${wanted[@]}" || fail "$*: another message"
}
refusals() {
    refused layout-invalid file=wan.yaml key=parallel.pp text~=--costs -- wan.yaml --set parallel.pp=1 --costs a.json
    refused mesh-invalid file=wan.yaml key=parallel 'text~=32 ranks,' 'text~=16 devices' -- wan.yaml --on v100:2 --set parallel.pp=32
    refused option-no-effect key=--svg -- wan.yaml --svg a.svg
}
check refusals
finish
