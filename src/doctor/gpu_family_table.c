/* The models of the comparison by families: one small config each, whose sizes are odd where they
 * may be. */
#include "doctor/gpu_families.h"

#define GIVEN(port) ((uint64_t)1 << WEFT_PORT_##port)

/* clang-format off */
const weft_gpu_family weft_gpu_families[] = {
    {"{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":4,"
     "\"attention_head_dim\":6,\"in_channels\":5,\"out_channels\":2,\"text_dim\":5,\"freq_dim\":4,"
     "\"ffn_dim\":10,\"num_layers\":1,\"image_dim\":4,\"added_kv_proj_dim\":24,"
     "\"pos_embed_seq_len\":6}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"CausalWanTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1,\"num_frames_per_block\":2,\"local_attn_size\":3,\"sink_size\":1}",
     {2, 4, 4, 4, 3, .times = 4}},
    {"{\"_class_name\":\"ChronoEditTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":12,\"in_channels\":5,\"out_channels\":2,\"text_dim\":5,\"freq_dim\":4,"
     "\"ffn_dim\":10,\"num_layers\":1,\"image_dim\":4,\"added_kv_proj_dim\":24}",
     {2, 2, 4, 4, 3, .image = 3}},
    {"{\"_class_name\":\"SkyReelsV2Transformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1,\"inject_sample_info\":true}",
     {2, 2, 4, 4, 3, .times = 2, .present_ports = GIVEN(FPS)}},
    {"{\"_class_name\":\"HeliosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"text_dim\":5,"
     "\"freq_dim\":4,\"ffn_dim\":10,\"num_layers\":2,\"rope_dim\":[2,2,2],"
     "\"is_amplify_history\":true}",
     {2, 2, 4, 4, 3, .history = {2, 2, 4},
      .present_ports = GIVEN(INDEX) | GIVEN(HISTORY) | GIVEN(HISTORY_2X) | GIVEN(HISTORY_4X) |
                       GIVEN(HISTORY_INDEX) | GIVEN(HISTORY_2X_INDEX) |
                       GIVEN(HISTORY_4X_INDEX)}},
    {"{\"_class_name\":\"WanVACETransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":2,\"vace_layers\":[0,1],\"vace_in_channels\":3}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"WanAnimateTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"latent_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":2,\"inject_face_latents_blocks\":1,\"image_dim\":3,\"added_kv_proj_dim\":12,"
     "\"motion_encoder_size\":8,\"motion_encoder_channel_sizes\":{\"4\":3,\"8\":2},"
     "\"motion_style_dim\":4,\"motion_dim\":2,\"motion_encoder_dim\":3,"
     "\"face_encoder_hidden_dim\":3,\"face_encoder_num_heads\":2}",
     {2, 3, 4, 4, 3, .image = 2}},
    {"{\"_class_name\":\"CogVideoXTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":16,\"in_channels\":2,\"out_channels\":2,\"time_embed_dim\":6,"
     "\"text_embed_dim\":5,\"num_layers\":1,\"sample_width\":4,\"sample_height\":4,"
     "\"max_text_seq_length\":3}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"HunyuanVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"num_single_layers\":1,\"num_refiner_layers\":1,\"text_embed_dim\":5,"
     "\"pooled_projection_dim\":3,\"rope_axes_dim\":[2,2,2],"
     "\"image_condition_type\":\"token_replace\"}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"HunyuanVideoFramepackTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"num_single_layers\":1,\"num_refiner_layers\":1,\"text_embed_dim\":5,"
     "\"pooled_projection_dim\":3,\"image_proj_dim\":3,\"rope_axes_dim\":[2,2,2]}",
     {2, 2, 4, 4, 5, .image = 3, .history = {2, 2, 4},
      .present_ports = GIVEN(TEXT_MASK) | GIVEN(IMAGE) | GIVEN(INDEX) | GIVEN(HISTORY) |
                       GIVEN(HISTORY_2X) | GIVEN(HISTORY_4X) | GIVEN(HISTORY_INDEX) |
                       GIVEN(HISTORY_2X_INDEX) | GIVEN(HISTORY_4X_INDEX)}},
    {"{\"_class_name\":\"HunyuanVideo15Transformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":5,\"out_channels\":2,\"num_layers\":2,"
     "\"num_refiner_layers\":1,\"text_embed_dim\":5,\"text_embed_2_dim\":3,"
     "\"text_embed_2_hidden_dim\":4,\"image_embed_dim\":3,\"rope_axes_dim\":[2,2,2]}",
     {2, 2, 2, 2, 4, .text2 = 3, .image = 3,
      .present_ports = GIVEN(TEXT_MASK) | GIVEN(TEXT2_MASK) | GIVEN(IMAGE)}},
    {"{\"_class_name\":\"MotifVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":5,\"out_channels\":2,\"num_layers\":1,"
     "\"num_single_layers\":2,\"num_decoder_layers\":1,\"text_embed_dim\":5,"
     "\"image_embed_dim\":3,\"rope_axes_dim\":[2,2,2],"
     "\"enable_text_cross_attention_dual\":true,\"enable_text_cross_attention_single\":true}",
     {2, 2, 4, 4, 4, .image = 4, .present_ports = GIVEN(TEXT_MASK) | GIVEN(IMAGE)}},
    {"{\"_class_name\":\"CosmosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":12,\"in_channels\":3,\"out_channels\":2,\"num_layers\":1,"
     "\"text_embed_dim\":5,\"adaln_lora_dim\":3,\"max_size\":[4,4,8]}",
     {2, 2, 4, 4, 3, .times = 2, .present_ports = GIVEN(FPS) | GIVEN(CONDITION)}},
    {"{\"_class_name\":\"LTXVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":8,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"caption_channels\":5}",
     {2, 2, 2, 4, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"MochiTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"num_layers\":2,\"time_embed_dim\":4,"
     "\"text_embed_dim\":8,\"pooled_projection_dim\":5}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"LatteTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"num_layers\":1,\"sample_size\":4,"
     "\"caption_channels\":5}",
     {1, 2, 4, 4, 3}},
    {"{\"_class_name\":\"STDiT3\",\"hidden_size\":12,\"num_heads\":2,\"in_channels\":2,"
     "\"depth\":1,\"caption_channels\":5,\"input_sq_size\":32}",
     {1, 2, 4, 3, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(FRAME_MASK) | GIVEN(FPS)}},
    {"{\"_class_name\":\"UViT\",\"img_size\":4,\"embed_dim\":8,\"depth\":2,\"num_heads\":2,"
     "\"in_chans\":2,\"clip_dim\":3,\"num_clip_token\":3,\"mlp_time_embed\":true}",
     {2, 1, 4, 4, 3}},
    {"{\"_class_name\":\"HunyuanDiT2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":4,\"hidden_size\":8,\"in_channels\":2,\"num_layers\":4,"
     "\"cross_attention_dim\":5,\"cross_attention_dim_t5\":8,\"pooled_projection_dim\":3,"
     "\"sample_size\":8,\"text_len\":3,\"text_len_t5\":2}",
     {2, 1, 4, 4, 3, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"UNet2DConditionModel\",\"down_block_types\":[\"CrossAttnDownBlock2D\","
     "\"DownBlock2D\"],\"up_block_types\":[\"UpBlock2D\",\"CrossAttnUpBlock2D\"],"
     "\"block_out_channels\":[4,6],\"layers_per_block\":1,\"norm_num_groups\":2,"
     "\"in_channels\":2,\"out_channels\":2,\"cross_attention_dim\":3,\"attention_head_dim\":2}",
     {2, 1, 4, 3, 3}},
    {"{\"_class_name\":\"AllegroTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"caption_channels\":5}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(LATENT_MASK)}},
    {"{\"_class_name\":\"OpenSoraT2V_v1_3\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":4,"
     "\"caption_channels\":5,\"sparse_n\":2}",
     {1, 3, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(LATENT_MASK)}},
    {"{\"_class_name\":\"LongCatVideoTransformer3DModel\",\"hidden_size\":16,\"num_heads\":2,"
     "\"in_channels\":2,\"out_channels\":2,\"depth\":1,\"caption_channels\":5,"
     "\"adaln_tembed_dim\":4,\"frequency_embedding_size\":4}",
     {1, 3, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(FRAME_MASK)}},
    {"{\"_class_name\":\"SparseUMMDiT\",\"num_heads\":2,\"head_dim\":16,\"in_channels\":2,"
     "\"out_channels\":2,\"num_layers\":[2,2,2],\"sparse_n\":[1,2,1],"
     "\"timestep_embed_dim\":4,\"caption_channels\":5,\"pooled_projection_dim\":3}",
     {1, 3, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(LATENT_MASK)}},
    {"{\"_class_name\":\"Kandinsky5Transformer3DModel\",\"in_visual_dim\":2,"
     "\"out_visual_dim\":2,\"in_text_dim\":5,\"in_text_dim2\":3,\"time_dim\":4,"
     "\"model_dim\":12,\"ff_dim\":10,\"num_text_blocks\":1,\"num_visual_blocks\":1,"
     "\"axes_dims\":[2,2,2],\"visual_cond\":true}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"LTX2VideoTransformer3DModel\",\"in_channels\":2,\"out_channels\":2,"
     "\"num_attention_heads\":2,\"attention_head_dim\":6,\"audio_in_channels\":3,"
     "\"audio_out_channels\":3,\"audio_num_attention_heads\":2,\"audio_attention_head_dim\":4,"
     "\"num_layers\":1,\"caption_channels\":5}",
     {2, 2, 2, 3, 4, .times = 12, .audio = 4, .audio_times = 4,
      .present_ports = GIVEN(TEXT_MASK) | GIVEN(AUDIO_TEXT_MASK) | GIVEN(AUDIO_TIMESTEP) |
                       GIVEN(FPS)}},
    {"{\"_class_name\":\"SanaVideoTransformer3DModel\",\"in_channels\":2,"
     "\"out_channels\":2,\"num_attention_heads\":2,\"attention_head_dim\":6,\"num_layers\":1,"
     "\"num_cross_attention_heads\":2,\"cross_attention_head_dim\":6,"
     "\"cross_attention_dim\":12,\"caption_channels\":5,\"mlp_ratio\":0.75}",
     {2, 2, 4, 6, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"FluxTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":4,\"num_layers\":1,"
     "\"num_single_layers\":1,\"joint_attention_dim\":5,\"pooled_projection_dim\":3,"
     "\"guidance_embeds\":true,\"axes_dims_rope\":[2,2,2]}",
     {2, 1, 4, 8, 4}},
    {"{\"_class_name\":\"Flux2Transformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":8,\"in_channels\":3,\"num_layers\":1,\"num_single_layers\":1,"
     "\"joint_attention_dim\":5,\"timestep_guidance_channels\":4,\"mlp_ratio\":1.5,"
     "\"axes_dims_rope\":[2,2,2,2]}",
     {2, 1, 2, 4, 4}},
    {"{\"_class_name\":\"ChromaTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":4,\"num_layers\":1,"
     "\"num_single_layers\":1,\"joint_attention_dim\":5,\"axes_dims_rope\":[2,2,2],"
     "\"approximator_num_channels\":8,\"approximator_hidden_dim\":4,\"approximator_layers\":1}",
     {2, 1, 4, 8, 4, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"ZImageTransformer2DModel\",\"in_channels\":2,\"dim\":12,\"n_heads\":2,"
     "\"n_layers\":1,\"n_refiner_layers\":1,\"cap_feat_dim\":5,\"axes_dims\":[2,2,2],"
     "\"t_embedder_mid_dim\":4}",
     {2, 1, 4, 6, 3, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"QwenImageTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":2,\"num_layers\":2,"
     "\"joint_attention_dim\":5,\"axes_dims_rope\":[2,2,2]}",
     {2, 1, 4, 8, 4, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"text_dim\":5,"
     "\"freq_dim\":4,\"ffn_dim\":10,\"num_layers\":2,\"first_k_dense_replace\":1,"
     "\"num_activated_experts\":2,\"moe_intermediate_size\":4,\"n_shared_experts\":1,"
     "\"num_routed_experts\":3}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"HiDreamImageTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":16,\"in_channels\":4,\"out_channels\":4,\"num_layers\":1,"
     "\"num_single_layers\":1,\"caption_channels\":[16,16],\"llama_layers\":[1,2],"
     "\"axes_dims_rope\":[8,4,4],\"max_resolution\":[16,16],\"num_activated_experts\":1,"
     "\"num_routed_experts\":2,\"patch_size\":2,\"text_emb_dim\":20}",
     {1, 1, 4, 4, 3}},
    {"{\"_class_name\":\"AutoencoderKLMochi\",\"encoder_block_out_channels\":[32,32],"
     "\"decoder_block_out_channels\":[32,32],\"latent_channels\":2,\"layers_per_block\":[1,1,1],"
     "\"temporal_expansions\":[2],\"spatial_expansions\":[2],"
     "\"add_attention_block\":[false,true,false]}",
     {2, 3, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLLTXVideo\",\"block_out_channels\":[2,3],"
     "\"decoder_block_out_channels\":[2,3],\"latent_channels\":2,\"layers_per_block\":[1,1,1],"
     "\"decoder_layers_per_block\":[1,1,1],\"spatio_temporal_scaling\":[true,false],"
     "\"decoder_spatio_temporal_scaling\":[true,false],\"patch_size\":2}",
     {2, 3, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLLTX2Video\",\"block_out_channels\":[4,8],"
     "\"down_block_types\":[\"LTX2VideoDownBlock3D\",\"LTX2VideoDownBlock3D\"],"
     "\"downsample_type\":[\"spatial\",\"temporal\"],\"decoder_block_out_channels\":[4,8],"
     "\"latent_channels\":4,\"layers_per_block\":[1,1,1],\"decoder_layers_per_block\":[1,1,1],"
     "\"upsample_type\":[\"temporal\",\"spatial\"],\"patch_size\":1}",
     {1, 3, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLLTX2Audio\",\"base_channels\":2,\"ch_mult\":[1,2],"
     "\"num_res_blocks\":1,\"latent_channels\":2,\"mel_bins\":5}",
     {2, 1, 5, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLAllegro\",\"block_out_channels\":[2,4],"
     "\"temporal_downsample_blocks\":[true,false],\"temporal_upsample_blocks\":[false,true],"
     "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1}",
     {2, 2, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKL\",\"block_out_channels\":[2,4],\"norm_num_groups\":2,"
     "\"latent_channels\":2}",
     {2, 2, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLCosmos\",\"latent_channels\":4,"
     "\"encoder_block_out_channels\":[6,8,10,12],\"decode_block_out_channels\":[6,8,10,12],"
     "\"attention_resolutions\":[8],\"resolution\":64,\"num_layers\":1,"
     "\"latents_mean\":[0,0,0,0],\"latents_std\":[1,1,1,1]}",
     /* 16x16 pixels leave 2x2 positions inside: a change of weights by 0.2 % would change
      * the loss after the update by up to 36 % */
     {1, 9, 32, 32, 0}},
    {"{\"_class_name\":\"AutoencoderDC\",\"latent_channels\":2,\"attention_head_dim\":2,"
     "\"encoder_block_out_channels\":[4,4],\"decoder_block_out_channels\":[4,4],"
     "\"encoder_block_types\":[\"ResBlock\",\"EfficientViTBlock\"],"
     "\"decoder_block_types\":[\"ResBlock\",\"EfficientViTBlock\"],"
     "\"encoder_layers_per_block\":[1,1],\"decoder_layers_per_block\":[1,1],"
     "\"encoder_qkv_multiscales\":[[],[3]],\"decoder_qkv_multiscales\":[[],[3]]}",
     {2, 2, 8, 8, 0}},
    {"{\"_class_name\":\"WFVAEModel\",\"latent_dim\":2,\"base_channels\":4,"
     "\"encoder_num_resblocks\":1,\"encoder_energy_flow_hidden_size\":3,"
     "\"decoder_num_resblocks\":1,\"decoder_energy_flow_hidden_size\":4,"
     "\"t_interpolation\":\"trilinear\","
     "\"l1_dowmsample_block\":\"Spatial2xTime2x3DDownsample\","
     "\"l1_downsample_wavelet\":\"HaarWaveletTransform3D\","
     "\"l1_upsample_block\":\"Spatial2xTime2x3DUpsample\","
     "\"l1_upsample_wavelet\":\"InverseHaarWaveletTransform3D\"}",
     {2, 9, 16, 16, 0}},
    {"{\"_class_name\":\"VideoAutoencoderPipeline\",\"block_out_channels\":[2,4],"
     "\"layers_per_block\":1,\"latent_channels\":2,\"norm_num_groups\":2,\"filters\":2,"
     "\"num_res_blocks\":1,\"channel_multipliers\":[1,2],\"temporal_downsample\":[true],"
     "\"num_groups\":2,\"micro_frame_size\":5}",
     {1, 10, 8, 8, 0}},
    {"{\"_class_name\":\"AutoencoderKLFlux2\",\"block_out_channels\":[2,4],"
     "\"norm_num_groups\":2,\"latent_channels\":2}",
     {2, 1, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLHunyuanVideo\",\"block_out_channels\":[2,2,4],"
     "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1,"
     "\"spatial_compression_ratio\":2}",
     {2, 5, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLHunyuanVideo15\",\"block_out_channels\":[8,8,8],"
     "\"latent_channels\":2,\"layers_per_block\":1,\"spatial_compression_ratio\":4,"
     "\"temporal_compression_ratio\":2}",
     {2, 3, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLCogVideoX\",\"block_out_channels\":[2,2,4],"
     "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1}",
     {2, 9, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":2,\"decoder_base_dim\":3,\"z_dim\":2,"
     "\"dim_mult\":[2,2],\"num_res_blocks\":1,\"temperal_downsample\":[true],"
     "\"is_residual\":true,\"in_channels\":12,\"out_channels\":12,\"patch_size\":2}",
     {2, 3, 4, 4, 0}},
    {"{\"_class_name\":\"AutoencoderKLQwenImage\",\"base_dim\":2,\"z_dim\":2,"
     "\"dim_mult\":[2,2],\"num_res_blocks\":1,\"temperal_downsample\":[true]}",
     {2, 1, 4, 4, 0}},
    {"{\"_class_name\":\"WeftIdentityEncoder\",\"in_channels\":2,\"text_dim\":5,"
     "\"num_tokens\":3,\"dim\":8,\"num_heads\":2,\"num_layers\":2,\"ffn_dim\":6}",
     {2, 1, 3, 4, 0}},
    {"{\"_class_name\":\"UMT5EncoderModel\",\"vocab_size\":7,\"d_model\":6,\"d_kv\":3,"
     "\"d_ff\":10,\"num_layers\":2,\"num_heads\":2,\"relative_attention_num_buckets\":8,"
     "\"relative_attention_max_distance\":8}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"T5EncoderModel\",\"vocab_size\":7,\"d_model\":6,\"d_kv\":3,"
     "\"d_ff\":10,\"num_layers\":2,\"num_heads\":2,\"relative_attention_num_buckets\":8,"
     "\"relative_attention_max_distance\":8}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"CLIPTextModelWithProjection\",\"vocab_size\":7,\"hidden_size\":6,"
     "\"intermediate_size\":10,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
     "\"eos_token_id\":5,\"max_position_embeddings\":7,\"projection_dim\":5}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"CLIPTextModel\",\"vocab_size\":7,\"hidden_size\":6,"
     "\"intermediate_size\":10,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
     "\"eos_token_id\":5,\"max_position_embeddings\":7}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"CLIPVisionModelWithProjection\",\"hidden_size\":6,"
     "\"intermediate_size\":10,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
     "\"image_size\":6,\"patch_size\":2,\"projection_dim\":5}",
     {2, 1, 6, 6, 0}},
    {"{\"_class_name\":\"CLIPVisionModel\",\"hidden_size\":6,\"intermediate_size\":10,"
     "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"image_size\":6,\"patch_size\":2}",
     {2, 1, 6, 6, 0}},
    {"{\"_class_name\":\"ViTModel\",\"hidden_size\":6,\"intermediate_size\":10,"
     "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"image_size\":6,\"patch_size\":2}",
     {2, 1, 6, 6, 0}},
    {"{\"_class_name\":\"SiglipVisionModel\",\"hidden_size\":6,\"intermediate_size\":10,"
     "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"image_size\":6,\"patch_size\":2}",
     {2, 1, 6, 6, 0}},
    {"{\"_class_name\":\"Qwen2_5_VisionTransformerPretrainedModel\",\"depth\":2,"
     "\"hidden_size\":8,\"intermediate_size\":10,\"num_heads\":2,\"patch_size\":2,"
     "\"spatial_merge_size\":2,\"window_size\":8,\"out_hidden_size\":6,"
     "\"fullatt_block_indexes\":[1]}",
     {2, 1, 8, 12, 0}},
    {"{\"_class_name\":\"Gemma3TextModel\",\"vocab_size\":7,\"hidden_size\":12,"
     "\"intermediate_size\":10,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"head_dim\":4,\"query_pre_attn_scalar\":6,\"rope_factor\":2,"
     "\"sliding_window_pattern\":2}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"T5Gemma2TextEncoder\",\"vocab_size\":7,\"hidden_size\":12,"
     "\"intermediate_size\":10,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"head_dim\":4,\"query_pre_attn_scalar\":6,\"rope_factor\":2,"
     "\"sliding_window\":6,\"sliding_window_pattern\":2}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"Gemma2Model\",\"vocab_size\":7,\"hidden_size\":12,"
     "\"intermediate_size\":10,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"head_dim\":4,\"query_pre_attn_scalar\":6}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"Qwen2_5_VLTextModel\",\"vocab_size\":7,\"hidden_size\":8,"
     "\"intermediate_size\":10,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"Qwen3Model\",\"vocab_size\":7,\"hidden_size\":8,"
     "\"intermediate_size\":10,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"LlavaForConditionalGeneration\",\"image_token_index\":5,"
     "\"vision_config\":{\"hidden_size\":6,\"intermediate_size\":10,\"num_hidden_layers\":2,"
     "\"num_attention_heads\":2,\"image_size\":6,\"patch_size\":2},"
     "\"text_config\":{\"vocab_size\":7,\"hidden_size\":8,\"intermediate_size\":10,"
     "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2}}",
     {2, 1, 6, 6, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"LlamaModel\",\"vocab_size\":7,\"hidden_size\":8,"
     "\"intermediate_size\":10,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"num_hidden_layers_to_skip\":1,"
     "\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
     "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"MistralModel\",\"vocab_size\":7,\"hidden_size\":8,"
     "\"intermediate_size\":10,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"head_dim\":6}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"BertModel\",\"vocab_size\":7,\"hidden_size\":6,"
     "\"intermediate_size\":10,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
     "\"max_position_embeddings\":7}",
     {2, 1, 1, 1, 7, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"WeftBytesEncoder\",\"dim\":6,\"num_heads\":2,\"num_layers\":1,"
     "\"ffn_dim\":10,\"max_length\":7}",
     {2, 1, 1, 1, 7}},
    {"{\"_class_name\":\"LTX2Vocoder\",\"in_channels\":8,\"hidden_channels\":16,"
     "\"upsample_kernel_sizes\":[7,4],\"upsample_factors\":[3,2],"
     "\"resnet_kernel_sizes\":[3,5],\"resnet_dilations\":[[1,3,5],[1,3,5]]}",
     {2, 1, 5, 4, 0}},
    {"{\"_class_name\":\"Kandinsky5Transformer3DModel\",\"in_visual_dim\":2,"
     "\"out_visual_dim\":2,\"in_text_dim\":5,\"in_text_dim2\":3,\"time_dim\":4,"
     "\"model_dim\":16,\"ff_dim\":10,\"num_text_blocks\":1,\"num_visual_blocks\":1,"
     "\"axes_dims\":[4,2,2],\"attention_type\":\"nabla\",\"attention_P\":0.5,"
     "\"attention_wT\":1,\"attention_wW\":1,\"attention_wH\":1}",
     {1, 5, 16, 16, 5, .present_ports = GIVEN(TEXT_MASK)}, "nabla"},
    {"{\"_class_name\":\"LongCatVideoTransformer3DModel\",\"hidden_size\":16,\"num_heads\":2,"
     "\"in_channels\":2,\"out_channels\":2,\"depth\":1,\"caption_channels\":5,"
     "\"adaln_tembed_dim\":4,\"frequency_embedding_size\":4,\"enable_bsa\":true,"
     "\"bsa_params\":{\"sparsity\":0.5,\"chunk_3d_shape_q\":[2,2,2],"
     "\"chunk_3d_shape_k\":[2,2,2]}}",
     {2, 4, 8, 8, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(FRAME_MASK)}, "bsa"},
    {0},
};
/* clang-format on */
