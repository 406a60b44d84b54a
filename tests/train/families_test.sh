#!/bin/bash
# Every family that needs no more than latents, a time and text is trained, exported, and generates.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
train() { # train CLASS CONFIG [--set ...]
    local class=$1 config=$2
    shift 2
    sed "s/class: WanTransformer3DModel/class: $class/; s/  config: {num_layers: 2, num_att.*/  config: $config/" dit.yaml >"$class.yaml"
    "$WEFT" train "$class.yaml" --set out="runs/$class" "$@" >"$class.log" 2>&1 || { cat "$class.log"; fail "$class"; }
    losses "runs/$class" | python3 -c '
import math, sys
losses = [float(line.split()[1]) for line in sys.stdin]
assert len(losses) == 20 and all(map(math.isfinite, losses)) and sum(losses[-5:]) < 0.98 * sum(losses[:5]), losses' || fail "losses of $class"
    "$WEFT" generate --model "runs/$class/model" --prompt "a red circle" --steps 2 --out "$class.mp4" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate with $class"; }
}
train CogVideoXTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, time_embed_dim: 32, max_text_seq_length: 32}'
train CosmosTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, adaln_lora_dim: 8}' --set process=edm
train LTXVideoTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16}'
train MochiTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, pooled_projection_dim: 24}'
train LatteTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16}'
train OpenSoraT2V_v1_3 '{num_layers: 4, num_attention_heads: 2, attention_head_dim: 12, sparse_n: 2}'
# two encoders, of which the second gives one vector; the embedded guidance scale is told
sed -i 's/^optimizer:/  - {class: WeftBytesEncoder, config: {dim: 12, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}\n&/' dit.yaml
train HunyuanVideoTransformer3DModel '{num_layers: 1, num_single_layers: 1, num_refiner_layers: 1, num_attention_heads: 2, attention_head_dim: 16, rope_axes_dim: [4, 6, 6], pooled_projection_dim: 12}'
sed -i '/config: {dim: 12, num_heads: 2/d' dit.yaml
train STDiT3 '{depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}'
exit 0
