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
    video "$class" "$class"
    adapt "$class" "$@"
}
video() { # CLASS NAME [OPTIONS...]
    "$WEFT" generate --model "runs/$1/model" --prompt "a red circle" --steps 2 --latents-npy --out "$2.mp4" "${@:3}" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate with $1 ${*:3}"; }
}
# LoRA of the family's own layers: the adapter changes the video, and makes the same one in the names
# of other programs.
adapt() { # CLASS [OPTIONS...]
    local class=$1 out="runs/$1-lora" folder
    write_from "$class"
    "$WEFT" train "$class-from.yaml" --set out="$out" --set transformer.lora.rank=4 --set stages.0.lr=2e-2 "${@:2}" >"$class-lora.log" 2>&1 ||
        { cat "$class-lora.log"; fail "LoRA of $class"; }
    video "$class" adapted --lora "$out/adapter"
    ! cmp -s "$class.latents.npy" adapted.latents.npy || fail "the adapter of $class has no effect"
    folder=$(sed -n 's/^transformer: {weights: \(.*\)}/\1/p' "$class-from.yaml")
    "$WEFT" convert "$out/adapter" "$out/comfyui" --lora-format comfyui --config "$folder" >convert.log 2>&1 || { cat convert.log; fail "the adapter of $class in other names"; }
    video "$class" again --lora "$out/comfyui"
    cmp adapted.latents.npy again.latents.npy || fail "the adapter of $class makes another video in other names"
}
each_family dit.yaml train
# weft's mixture of experts, and models of images: a class, a text or neither (UViT), DDPM
command=train base=dit.yaml
family WeftMoeTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12}'
base=images.yaml
family UViT '{img_size: 4, patch_size: 2, embed_dim: 16, num_heads: 2, depth: 3, clip_dim: 16, num_clip_token: 32}'
family UNet2DConditionModel '{block_out_channels: [16, 32], layers_per_block: 1, cross_attention_dim: 16, attention_head_dim: 2, norm_num_groups: 8, down_block_types: [CrossAttnDownBlock2D, DownBlock2D], up_block_types: [UpBlock2D, CrossAttnUpBlock2D]}' --set process=ddpm
sed 's/dim: 12, num_heads: 2/dim: 16, num_heads: 2/' images_of_two.yaml >images_of_equal.yaml
base=images_of_equal.yaml
family HunyuanDiT2DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, hidden_size: 32, sample_size: 4, patch_size: 2, cross_attention_dim: 16, cross_attention_dim_t5: 16, text_len: 32, text_len_t5: 32, pooled_projection_dim: 16, use_style_cond_and_image_meta_size: false, learn_sigma: false}' --set process=ddpm
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
