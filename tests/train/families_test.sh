#!/bin/bash
# Every model family whose only inputs are latents, a timestep and text is trained, exported, and
# generates.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
train() { # train CLASS [OPTIONS...]
    local class=$1
    shift
    "$WEFT" train "$class.yaml" --set out="runs/$class" "$@" >"$class.log" 2>&1 || { cat "$class.log"; fail "$class"; }
    losses "runs/$class" | python3 -S -c '
import math, sys
losses = [float(line.split()[1]) for line in sys.stdin]
assert len(losses) == 20 and all(map(math.isfinite, losses)) and sum(losses[-5:]) < 0.98 * sum(losses[:5]), losses' || fail "losses of $class"
    "$WEFT" generate --model "runs/$class/model" --prompt "a red circle" --steps 2 --out "$class.mp4" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate with $class"; }
}
each_family dit.yaml train
# times from 0 to 1, and marks of no given frame: Cosmos 2.5
predict25() {
    needs family_CosmosTransformer3DModel
    sed 's/  config: {num_layers: 2, num_att.*/  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, adaln_lora_dim: 8, in_channels: 5, out_channels: 4, extra_pos_embed_type: null, use_crossattn_projection: true, text_embed_dim: 16, crossattn_proj_in_channels: 16, encoder_hidden_states_channels: 16}/' CosmosTransformer3DModel.yaml >cosmos25.yaml
    train cosmos25
}
check predict25
# Teacher forcing: blocks see earlier blocks of the clip without noise.
teacher_forcing() {
    needs family_CausalWanTransformer3DModel
    cp CausalWanTransformer3DModel.yaml clean_blocks.yaml
    train clean_blocks --set condition=clean_blocks
    ! cmp -s runs/CausalWanTransformer3DModel/model/transformer/diffusion_pytorch_model.safetensors runs/clean_blocks/model/transformer/diffusion_pytorch_model.safetensors ||
        fail "the clip without noise has no effect"
    "$WEFT" train dit.yaml --set condition=clean_blocks --set out=runs/no >no.log 2>&1 && fail "clean blocks of Wan"
    has_message no.log model-input-unsupported key=condition || fail_with no.log "clean blocks of Wan"
}
check teacher_forcing
finish
