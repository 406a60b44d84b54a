/* List of the families. A new family needs its own file and a line here. */
#include "model/registry.h"

#include "model/family.h"

extern const weft_family weft_family_sd_vae, weft_family_hunyuan_vae, weft_family_cogvideox_vae,
    weft_family_ltx_vae, weft_family_mochi_vae, weft_family_cosmos_vae, weft_family_allegro_vae,
    weft_family_qwen_image_vae, weft_family_hunyuan15_vae, weft_family_flux2_vae, weft_family_dc_ae,
    weft_family_wfvae, weft_family_opensora_vae;
extern const weft_family weft_family_wan_dit, weft_family_wan_vae, weft_family_bytes_encoder,
    weft_family_uvit, weft_family_cogvideox_dit, weft_family_hunyuan_video_dit,
    weft_family_cosmos_dit, weft_family_ltx_dit, weft_family_mochi_dit, weft_family_latte_dit,
    weft_family_stdit3, weft_family_hunyuan_dit, weft_family_unet_2d, weft_family_allegro_dit,
    weft_family_kandinsky5_dit, weft_family_sana_video_dit, weft_family_opensoraplan_dit,
    weft_family_hidream_dit, weft_family_moe_dit, weft_family_flux_dit, weft_family_chronoedit_dit,
    weft_family_qwen_image_dit, weft_family_skyreels_dit, weft_family_causal_wan_dit,
    weft_family_wan_vace_dit, weft_family_flux2_dit, weft_family_chroma_dit,
    weft_family_z_image_dit, weft_family_hunyuan_video15_dit, weft_family_framepack_dit,
    weft_family_motif_video_dit, weft_family_helios_dit, weft_family_wan_animate_dit,
    weft_family_suv_dit, weft_family_longcat_dit;
extern const weft_family weft_family_ltx2_dit, weft_family_ltx2_vae, weft_family_ltx2_audio_vae,
    weft_family_ltx2_vocoder, weft_family_ltx2_vocoder_wide, weft_family_ltx2_connectors;
extern const weft_family weft_family_gemma3;
extern const weft_family weft_family_umt5, weft_family_t5, weft_family_clip_text,
    weft_family_clip_text_projected, weft_family_clip_vision, weft_family_clip_vision_projected,
    weft_family_qwen, weft_family_qwen3, weft_family_llama, weft_family_mistral, weft_family_bert,
    weft_family_llava, weft_family_identity_encoder, weft_family_vit, weft_family_siglip_vision,
    weft_family_qwen_vision, weft_family_gemma2, weft_family_t5gemma2;

const weft_family *const weft_families[] = {
    /* SkyReelsV2Transformer3DModel; must precede Wan, whose names its files have as well */
    &weft_family_skyreels_dit,
    &weft_family_wan_vace_dit, /* WanVACETransformer3DModel; must precede Wan as well */
    /* WanAnimateTransformer3DModel; must precede Wan as well */
    &weft_family_wan_animate_dit,
    &weft_family_helios_dit, /* HeliosTransformer3DModel; must precede Wan as well */
    &weft_family_wan_dit,    /* WanTransformer3DModel */
    /* CausalWanTransformer3DModel; must follow Wan, which has the same names */
    &weft_family_causal_wan_dit,
    /* AutoencoderKLHunyuanVideo15; must precede Wan's, LTX-Video's and HunyuanVideo's, whose
     * tensors its files have */
    &weft_family_hunyuan15_vae,
    &weft_family_wan_vae, /* AutoencoderKLWan      */
    /* AutoencoderKLQwenImage; must follow Wan's, which has the same names */
    &weft_family_qwen_image_vae,
    /* AutoencoderKLAllegro; must precede AutoencoderKL, which has tensors of the same names */
    &weft_family_allegro_vae,
    /* AutoencoderKLFlux2; must precede AutoencoderKL, whose names its files have */
    &weft_family_flux2_vae,
    &weft_family_sd_vae,        /* AutoencoderKL */
    &weft_family_dc_ae,         /* AutoencoderDC */
    &weft_family_wfvae,         /* WFVAEModel */
    &weft_family_opensora_vae,  /* VideoAutoencoderPipeline */
    &weft_family_cogvideox_vae, /* AutoencoderKLCogVideoX */
    &weft_family_ltx_vae,       /* AutoencoderKLLTXVideo */
    /* AutoencoderKLLTX2Video; must follow LTX-Video, whose tensors its files have */
    &weft_family_ltx2_vae,
    &weft_family_ltx2_audio_vae, /* AutoencoderKLLTX2Audio */
    /* LTX2VocoderWithBWE; must precede LTX2Vocoder, whose fields its config has */
    &weft_family_ltx2_vocoder_wide,
    &weft_family_ltx2_vocoder, /* LTX2Vocoder */
    /* must follow LTX-Video, whose later decoders have the tensor that marks this family */
    &weft_family_hunyuan_vae,   /* AutoencoderKLHunyuanVideo */
    &weft_family_mochi_vae,     /* AutoencoderKLMochi */
    &weft_family_cosmos_vae,    /* AutoencoderKLCosmos */
    &weft_family_bytes_encoder, /* WeftBytesEncoder      */
    &weft_family_uvit,          /* UViT                  */
    &weft_family_cogvideox_dit, /* CogVideoXTransformer3DModel */
    /* HunyuanVideo15Transformer3DModel; must precede HunyuanVideo, whose names its files have */
    &weft_family_hunyuan_video15_dit,
    /* HunyuanVideoFramepackTransformer3DModel; must precede HunyuanVideo as well */
    &weft_family_framepack_dit,
    &weft_family_hunyuan_video_dit, /* HunyuanVideoTransformer3DModel */
    &weft_family_motif_video_dit,   /* MotifVideoTransformer3DModel */
    &weft_family_cosmos_dit,        /* CosmosTransformer3DModel */
    /* SanaVideoTransformer3DModel; must precede LTX-Video, whose names its files have */
    &weft_family_sana_video_dit,
    /* LTX2VideoTransformer3DModel; must precede LTX-Video, whose names its files have */
    &weft_family_ltx2_dit,
    &weft_family_ltx_dit,     /* LTXVideoTransformer3DModel */
    &weft_family_mochi_dit,   /* MochiTransformer3DModel */
    &weft_family_latte_dit,   /* LatteTransformer3DModel */
    &weft_family_stdit3,      /* STDiT3 */
    &weft_family_hunyuan_dit, /* HunyuanDiT2DModel */
    &weft_family_unet_2d,     /* UNet2DConditionModel */
    &weft_family_allegro_dit, /* AllegroTransformer3DModel */
    /* OpenSoraT2V_v1_3; must follow Allegro, which has the same names */
    &weft_family_opensoraplan_dit,
    /* SparseUMMDiT */
    &weft_family_suv_dit,
    &weft_family_longcat_dit,    /* LongCatVideoTransformer3DModel */
    &weft_family_kandinsky5_dit, /* Kandinsky5Transformer3DModel */
    &weft_family_hidream_dit,    /* HiDreamImageTransformer2DModel */
    /* QwenImageTransformer2DModel; must precede Flux, whose own files have tensors of its names */
    &weft_family_qwen_image_dit,
    /* Flux2Transformer2DModel and ChromaTransformer2DModel; must precede Flux as well */
    &weft_family_flux2_dit,
    &weft_family_chroma_dit,
    &weft_family_z_image_dit,
    &weft_family_flux_dit, /* FluxTransformer2DModel */
    /* ChronoEditTransformer3DModel; must follow Wan, which has the same names */
    &weft_family_chronoedit_dit,
    &weft_family_moe_dit, /* WeftMoeTransformer3DModel */

    /* text and image encoders */
    &weft_family_umt5,                  /* UMT5EncoderModel      */
    &weft_family_t5,                    /* T5EncoderModel        */
    &weft_family_clip_text_projected,   /* CLIPTextModelWithProjection   */
    &weft_family_clip_text,             /* CLIPTextModel                 */
    &weft_family_clip_vision_projected, /* CLIPVisionModelWithProjection */
    &weft_family_clip_vision,           /* CLIPVisionModel               */
    &weft_family_vit,                   /* ViTModel                      */
    /* T5Gemma2TextEncoder; must precede SigLIP, whose names its files have */
    &weft_family_t5gemma2,
    &weft_family_siglip_vision, /* SiglipVisionModel             */
    &weft_family_qwen_vision,   /* Qwen2_5_VisionTransformerPretrainedModel */
    /* Gemma3TextModel; must precede Gemma 2 and Qwen3, whose names its files have */
    &weft_family_gemma3,
    &weft_family_gemma2,          /* Gemma2Model                   */
    &weft_family_qwen,            /* Qwen2_5_VLTextModel           */
    &weft_family_qwen3,           /* Qwen3Model                    */
    &weft_family_ltx2_connectors, /* LTX2TextConnectors            */
    &weft_family_llava,           /* LlavaForConditionalGeneration */
    &weft_family_llama,           /* LlamaModel                    */
    /* MistralModel; must follow Llama, which has the same names */
    &weft_family_mistral,
    &weft_family_bert,             /* BertModel                     */
    &weft_family_identity_encoder, /* WeftIdentityEncoder           */
    NULL,
};
