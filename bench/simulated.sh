#!/bin/bash
# Steps of pipelines on simulated clusters, executed by 16, 32 and 64 ranks (threads) and compared with
# the event simulator: U-ViT 2.7B (PULSE, Table III) and Wan 14B, with every schedule and with one of
# the planner. WEFT: the program. RANKS="16 32": these sizes only.
set -eu
WEFT=$(realpath "${WEFT:-build/weft}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir wan_vae sd_vae
echo '{"_class_name":"AutoencoderKLWan"}' >wan_vae/config.json
echo '{"_class_name":"AutoencoderKL","block_out_channels":[128,256,512,512],"latent_channels":4,"layers_per_block":2}' >sd_vae/config.json
cat >uvit.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: sd_vae}
transformer: {class: UViT, config: {img_size: 32, patch_size: 2, in_chans: 4, embed_dim: 2048, depth: 48, num_heads: 32, mlp_time_embed: false, clip_dim: 768, num_clip_token: 77}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 768, num_heads: 12, num_layers: 1, ffn_dim: 3072, max_length: 77}}]
stages: [{steps: 2, batch: 512, frames: 1, height: 256, width: 256, lr: 1e-4, warmup_steps: 0}]
parallel: {pp: 16, microbatches: 32}
Y
cat >wan.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: wan_vae}
transformer: {class: WanTransformer3DModel}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 512, num_layers: 2, max_length: 512}}]
memory: {recompute: ['transformer.blocks.*']}
stages: [{steps: 2, batch: 32, frames: 17, height: 256, width: 256, lr: 1e-4, warmup_steps: 0}]
parallel: {pp: 16, microbatches: 32}
Y
declare -A batch=([uvit]=512 [wan]=32)
echo "machine: simulated cluster"
echo "| model | cluster | ranks | layout | schedule | simulated s | executed s | deviation % | idle % | sent MiB per microbatch |"
echo "|---|---|---|---|---|---|---|---|---|---|"
row() { # MODEL DP SCHEDULE [OPTIONS...]
    local model=$1 dp=$2 schedule=$3
    shift 3
    "$WEFT" simulate "$model.yaml" --on h100:$((2 * dp)) --set parallel.dp="$dp" --set stages.0.batch=$((dp * batch[$model])) \
        --set parallel.schedule="$schedule" --out now.json "$@" >/dev/null
    python3 - "$model" "$((16 * dp))" "$(basename "$schedule" .json)" <<'P'
import json, sys
t = json.load(open("now.json"))
s, e = t["simulated_seconds"], t["executed_seconds"]
name = {"uvit": "U-ViT", "wan": "Wan 14B"}[sys.argv[1]]
print(f"| {name} | h100 | {sys.argv[2]} | {int(sys.argv[2]) // 16} x 16 stages | {sys.argv[3]} | {s:.3f} | {e:.3f} | "
      f"{100 * (e / s - 1):+.2f} | {100 * t['executed_idle']:.1f} | {t['sent_bytes'] / t['microbatches'] / 2**20:.0f} |")
P
}
for ranks in ${RANKS:-16 32 64}; do
    for model in uvit wan; do
        dp=$((ranks / 16))
        row $model $dp 1f1b
        row $model $dp zero-bubble
        row $model $dp wave --costs costs.json
        row $model $dp interleaved
        "$WEFT" plan pipeline --costs costs.json --stages 32 --devices 16 --microbatches 32 --schedule greedy --out synthesised.json >/dev/null
        row $model $dp synthesised.json
    done
done
