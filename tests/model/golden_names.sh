# shellcheck shell=bash disable=SC2034
# Names of the golden files of families, for families_test.sh, autoencoders_test.sh and gpu_test.sh.
golden=$WEFT_SHARED/golden newer=$WEFT_SHARED/golden3
denoisers="wan_i2v_a wan_flf2v_a wan_ti2v_a cogvideox_2b_a cogvideox_5b_a cogvideox_15_a
    hunyuan_video_a hunyuan_video_i2v_a cosmos_a cosmos2_a
    ltx_video_a ltx_video_cond_a mochi_a latte_a stdit3_a stdit3_cond_a uvit_a uvit_t2i_a
    hunyuan_dit_a hunyuan_dit_v11_a hidream_moe_a hidream_moe_rect_a unet_sd1_a unet_sd2_a allegro_a
    flux_a opensoraplan_a
    t5_a umt5_a clip_text_a clip_text_proj_a clip_vision_a llama_a qwen25vl_text_a
    cosmos_train30_a hunyuan_train30_a"
# published variants: a style and image sizes (Hunyuan-DiT up to 1.1), no labels (U-ViT)
# rotary frequencies of Llama 3.1, CLIP with a mask of padding; two latent frames (ChronoEdit),
# Qwen-Image; frame rate, a time per frame, blocks of frames (SkyReels);
# a control video (Wan VACE); poses and a face (Wan Animate); Flux 2, Chroma, Z-Image; HunyuanVideo 1.5 with and without an image;
# Framepack, Motif-Video, Helios, Kandinsky 5, Sana-Video
# video and audio (LTX-2), with gates and a modulated text (2.3)
newer_denoisers="hunyuan_dit_10_a hunyuan_dit_11_a uvit_noclass_a llama3_rope_a clip_text_mask_a
    chronoedit_a qwen_image_a qwen_image_edit_a qwen_image_train30_a skyreels_v2_a
    skyreels_v2_df_a skyreels_v2_df_causal_a wan_vace_a wan_vace_train30_a wan_animate_a
    flux2_a chroma_a z_image_a
    hunyuan_video15_a hunyuan_video15_t2v_a hunyuan_video15_train30_a
    hunyuan_framepack_a motif_video_a helios_a cosmos25_a cosmos25_transfer_a cosmos25_controlnet_a kandinsky5_a
    ltx2_video_a ltx23_video_a ltx23_video_tight_a"
autoencoders="wan22_vae_a sd_vae_a hunyuan_vae_a cogvideox_vae_a ltx_vae_a mochi_vae_a cosmos_vae_a
    tiled_wan_a tiled_wan22_a tiled_hunyuan_a"
newer_autoencoders="ltx_vae_091_a ltx_vae_095_a allegro_vae_a qwen_image_vae_a hunyuan_video15_vae_a flux2_vae_a
    ltx2_vae_a ltx2_audio_vae_a dc_ae_a"
[ -d "$newer" ] || newer_autoencoders=
