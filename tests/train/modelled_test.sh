#!/bin/bash
# A step of a pipeline by 16 ranks, threads that run the real interpreter and exchanges on modelled devices and links: every
# schedule, and one that the planner made, takes what the event simulator says to 5 %, and the same again to the bit.
source "$SRC/tests/train/common.sh"
mkdir -p wan_vae sd_vae
echo '{"_class_name":"AutoencoderKLWan"}' >wan_vae/config.json
echo '{"_class_name":"AutoencoderKL","block_out_channels":[128,256,512,512],"latent_channels":4,"layers_per_block":2}' >sd_vae/config.json
cat >wan.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: wan_vae}
transformer: {class: WanTransformer3DModel, config: {num_attention_heads: 12, attention_head_dim: 128, ffn_dim: 8960, num_layers: 38}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 64}}]
recompute: ['transformer.blocks.*']
stages: [{steps: 2, batch: 16, frames: 5, height: 128, width: 128, lr: 1e-4, warmup: 0}]
parallel: {pp: 16, microbatches: 16}
Y
cat >uvit.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: sd_vae}
transformer: {class: UViT, config: {img_size: 16, patch_size: 2, in_chans: 4, embed_dim: 1024, depth: 48, num_heads: 16, mlp_time_embed: false, clip_dim: 64, num_clip_token: 64}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 64}}]
stages: [{steps: 2, batch: 64, frames: 1, height: 128, width: 128, lr: 1e-4, warmup: 0}]
parallel: {pp: 16, microbatches: 16}
Y
near() { # MODEL SCHEDULE [OPTIONS...]
    local model=$1 schedule=$2
    shift 2
    "$WEFT" simulate $model.yaml --cluster v100:2 --set parallel.schedule="$schedule" --out now.json "$@" >now.txt || { cat now.txt; fail "$model $schedule"; }
    python3 - "$model $schedule" <<'P' || { cat now.txt; fail "$model $schedule: not as simulated"; }
import json, sys
t = json.load(open("now.json"))
off = t["executed_seconds"] / t["simulated_seconds"] - 1
print(f"{sys.argv[1]}: executed {off:+.2%}, idle {t['executed_idle']:.1%}, simulated {t['simulated_idle']:.1%}")
assert abs(off) <= 0.05 and abs(t["executed_idle"] - t["simulated_idle"]) <= 0.05 and t["sent_bytes"] > 0 and t["ranks"] == 16, t
P
}
for model in wan uvit; do
    near $model wave --costs $model.costs.json
    "$WEFT" plan pipeline --costs $model.costs.json --stages 32 --devices 16 --microbatches 16 --schedule greedy --out $model.plan.json >plan.txt ||
        { cat plan.txt; fail "plan of $model"; }
    near $model $model.plan.json
done
near wan 1f1b
near wan zero-bubble
near uvit interleaved
# two replicas, eight ranks behind one network port: what they send at the same time holds one another up
two=(1f1b --set parallel.pp=8 --set parallel.dp=2 --set parallel.microbatches=8)
near uvit "${two[@]}"
cp now.json once.json
near uvit "${two[@]}"
cmp once.json now.json || fail "other figures the second time"
near uvit wave --set parallel.pp=8 --set parallel.dp=2
# as many microbatches as leave each replica a sample of 16, where the config says no number
near uvit 1f1b --set parallel.pp=8 --set parallel.dp=2 --set parallel.microbatches=0 --set stages.0.batch=16
grep -q "1f1b, 8 microbatches a step" now.txt || { cat now.txt; fail "replicas without samples"; }
refused() { # WORDS OPTIONS...
    local words=$1
    shift
    if "$WEFT" simulate "$@" >out.txt 2>err; then cat out.txt; fail "accepted: $*"; fi
    grep -q -e "$words" err || { cat err; fail "$*: no message like $words"; }
}
refused "parallel.pp: a step is modelled of a pipeline" wan.yaml --set parallel.pp=1
refused "parallel.tp: a step is modelled over pp and dp only" wan.yaml --set parallel.tp=2
refused "32 ranks, the cluster v100 has 16 devices" wan.yaml --cluster v100:2 --set parallel.pp=32
refused "\-\-svg is for a plan" wan.yaml --svg a.svg
