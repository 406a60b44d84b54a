#!/bin/bash
# The reference's outputs and gradients of every family that has golden files next to the checkout,
# and its trainings.
. "$SRC/tests/check.sh"
golden=$WEFT_SHARED/golden
[ -d "$golden" ] || skip "no golden files in $golden"
for name in wan_i2v_a wan_flf2v_a wan_ti2v_a cogvideox_2b_a cogvideox_5b_a cogvideox_15_a \
    hunyuan_video_a hunyuan_video_i2v_a cosmos_a cosmos2_a \
    ltx_video_a ltx_video_cond_a mochi_a latte_a stdit3_a stdit3_cond_a uvit_a uvit_t2i_a \
    hunyuan_dit_a hunyuan_dit_v11_a hidream_moe_a hidream_moe_rect_a unet_sd1_a unet_sd2_a allegro_a \
    flux_a opensoraplan_a \
    t5_a umt5_a clip_text_a clip_text_proj_a clip_vision_a llama_a qwen25vl_text_a \
    cosmos_train30_a hunyuan_train30_a; do
    check "$name" "$WEFT" parity "$golden/$name.json"
done
# published variants: a style and image sizes (Hunyuan-DiT up to 1.1), no labels (U-ViT)
# rotary frequencies of Llama 3.1, CLIP with a mask of padding; two latent frames (ChronoEdit),
# Qwen-Image; frame rate, a time per frame, blocks of frames (SkyReels);
# a control video (Wan VACE); Flux 2, Chroma, Z-Image; HunyuanVideo 1.5 with and without an image,
# Framepack and Kandinsky 5
for name in hunyuan_dit_10_a hunyuan_dit_11_a uvit_noclass_a llama3_rope_a clip_text_mask_a \
    chronoedit_a qwen_image_a qwen_image_edit_a qwen_image_train30_a skyreels_v2_a \
    skyreels_v2_df_a skyreels_v2_df_causal_a wan_vace_a wan_vace_train30_a \
    flux2_a chroma_a z_image_a \
    hunyuan_video15_a hunyuan_video15_t2v_a hunyuan_video15_train30_a hunyuan_framepack_a kandinsky5_a; do
    check "$name" "$WEFT" parity "${golden}3/$name.json"
done
finish
