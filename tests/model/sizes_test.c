#include "graph/graph.h"
#include "model/model.h"

#include "../model_of.h"

#include <criterion/criterion.h>
#include <string.h>

static int64_t params_of(const char *config, weft_model_size size)
{
    const weft_model model = model_of(config);
    weft_graph *g = weft_graph_create();
    weft_model_build(g, &model, &size, false);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    const int64_t params = weft_graph_param_count(g);
    weft_graph_free(g);
    return params;
}

/* The public models' exact sizes. */
Test(sizes, wan_1_3b)
{
    cr_assert_eq(params_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":12,"
                           "\"attention_head_dim\":128,"
                           "\"ffn_dim\":8960,\"num_layers\":30}",
                           (weft_model_size){1, 21, 60, 104, 512}),
                 1418996800);
}

Test(sizes, wan_14b)
{
    cr_assert_eq(params_of("{\"_class_name\":\"WanTransformer3DModel\"}",
                           (weft_model_size){1, 1, 60, 104, 512}),
                 14288491584);
}

/* Exact counts of published models, by arithmetic from their shapes. */
Test(sizes, published)
{
    static const struct {
        const char *name;
        int64_t params;
    } known[] = {
        {"wan-i2v-14b", 16394878784},
        {"wan2.2-i2v-a14b", 14288901184},
        {"wan2.2-ti2v-5b", 4999787712},
        {"hunyuan-video", 12821012544},
        {"cogvideox-2b", 1693783872},
        {"cogvideox-5b", 5570283072},
        {"cosmos1-7b", 7236192256},
        {"cosmos1-14b", 14267149312},
        {"cosmos-predict2-2b", 1956413440},
        {"cosmos-predict2-14b", 14265285632},
        {"cosmos-predict2.5-2b", 2059174912},
        {"cosmos-predict2.5-14b", 14368047104},
        {"cosmos-transfer2.5-2b", 2885120000},
        {"opensoraplan-1.3", 2771981600},
        {"opensoraplan-1.5", 8504661120},
        {"opensora-1.2-vae", 393341007},
        {"longcat-video", 13581071424},
        {"sana-video-2b", 2056862144},
        {"sana-video-2b-720p", 2057148928},
        {"kandinsky5-lite", 2007702848},
        {"dc-ae-f32c32-sana", 312250275},
        {"motif-video-2b", 2151132608},
        {"kandinsky5-pro", 19311325248},
        {"flux-dev", 11901408320},
        {"flux-schnell", 11891178560},
        {"ltx-2b", 1923385472},
        {"ltx-13b", 13042569344},
        {"ltx-2-19b", 18876174592},
        {"stdit3-xl", 1207643972},
        {"stdit3-3b", 3182211572},
        {"latte-1", 1057246880},
        {"hunyuan-dit-1.2", 1499952032},
        {"uvit-h", 500832016},
        {"siglip-so400m-vision", 428225600},
        {"qwen2.5-vl-7b-vision", 676550144},
        {"ltx-video-0.9.1-vae", 934976434},
        {"ltx-video-0.9.5-vae", 1246913522},
        {"ltx-2-vae", 1222479601},
        {"ltx-2-audio-vae", 53248146},
        {"allegro-vae", 174955751},
        {"chronoedit-14b", 16394878784},
        {"qwen-image-vae", 126892531},
        {"qwen-image", 20430401088},
        {"causal-wan-1.3b", 1418996800},
        {"causal-wan-14b", 14288491584},
        {"skyreels-v2-14b", 14288491584},
        {"skyreels-v2-df-1.3b", 1435525696},
        {"wan2.1-vace-14b", 17337592896},
        {"wan2.2-animate-14b", 17274816884},
        {"flux2-dev", 32223281152},
        {"flux2-klein-4b", 3875544576},
        {"flux2-klein-9b", 9078581248},
        {"chroma", 8899983424},
        {"z-image", 6154908736},
        {"qwen3-4b", 4022468096},
        {"gemma-2-2b", 2614341888},
        {"gemma-3-12b", 11766034176},
        {"mistral-small-24b", 22901314560}, /* without the layer for words */
        {"flux2-vae", 84046115},
        {"hunyuan-video-1.5", 8326608160},
        {"framepack", 12874314816},
        {"helios-14b", 14312427584},
        {"hunyuan-video-1.5-vae", 1260634115},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        weft_model model;
        cr_assert_eq(weft_model_open(known[i].name, &model), WEFT_OK, "%s", weft_error_message());
        const weft_model_size size = weft_model_smallest(&model);
        weft_graph *g = weft_graph_create();
        weft_model_build(g, &model, &size, false);
        cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
        cr_expect_eq(weft_graph_param_count(g), known[i].params, "%s", known[i].name);
        weft_graph_free(g);
    }
}

Test(sizes, smallest_video_has_whole_blocks_of_frames)
{
    const weft_model model =
        model_of("{\"_class_name\":\"SkyReelsV2Transformer3DModel\",\"num_layers\":1,"
                 "\"num_frame_per_block\":3}");
    const weft_model_size size = weft_model_smallest(&model);
    weft_graph *g = weft_graph_create();
    weft_model_build(g, &model, &size, false);
    cr_expect_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    weft_graph_free(g);
}

Test(sizes, wan_vae)
{
    cr_assert_eq(
        params_of("{\"_class_name\":\"AutoencoderKLWan\"}", (weft_model_size){1, 9, 64, 64, 0}),
        126892531);
    /* a single frame never reaches the temporal convolutions, which exist all the same */
    cr_assert_eq(
        params_of("{\"_class_name\":\"AutoencoderKLWan\"}", (weft_model_size){1, 1, 64, 64, 0}),
        126892531);
}

Test(sizes, shape_errors_name_the_model_scope)
{
    const weft_model model = model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":8}");
    weft_graph *g = weft_graph_create();
    weft_model_build(g, &model, &(weft_model_size){1, 6, 64, 64, 0}, false);
    cr_assert_eq(weft_graph_check(g), WEFT_E_SHAPE);
    cr_assert_eq(weft_error_class(), WEFT_MSG_MODEL_SHAPE);
    cr_assert(strstr(weft_error_text(), "1 + 4 n frames, not 6"), "%s", weft_error_message());
    weft_graph_free(g);
}

Test(sizes, configs_write_what_they_read)
{
    const char *const texts[] = {
        "{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":3,\"patch_size\":[2,2,1],"
        "\"cross_attn_norm\":false}",
        "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":8,\"z_dim\":4,\"dim_mult\":[1,2],"
        "\"temperal_downsample\":[true],"
        "\"latents_mean\":[1,2,3,4]}",
        "{\"_class_name\":\"AutoencoderKLQwenImage\",\"base_dim\":8,\"z_dim\":4,"
        "\"dim_mult\":[1,2],\"temperal_downsample\":[true],\"input_channels\":4}",
        "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":32,\"num_heads\":2}",
        "{\"_class_name\":\"WeftIdentityEncoder\",\"dim\":32,\"num_heads\":2}",
        "{\"_class_name\":\"UViT\",\"img_size\":8,\"embed_dim\":32,\"num_heads\":2,\"conv\":false}",
        "{\"_class_name\":\"WanTransformer3DModel\",\"image_dim\":7,\"added_kv_proj_dim\":5120,"
        "\"pos_embed_seq_len\":8}",
        "{\"_class_name\":\"SkyReelsV2Transformer3DModel\",\"inject_sample_info\":true,"
        "\"num_frame_per_block\":5}",
        "{\"_class_name\":\"CausalWanTransformer3DModel\",\"num_frames_per_block\":2,"
        "\"local_attn_size\":5,\"sink_size\":1}",
        "{\"_class_name\":\"ChronoEditTransformer3DModel\",\"rope_temporal_skip_len\":5}",
        "{\"_class_name\":\"WanAnimateTransformer3DModel\",\"latent_channels\":4,"
        "\"motion_encoder_size\":8,\"motion_encoder_channel_sizes\":{\"4\":3,\"8\":2}}",
        "{\"_class_name\":\"WanVACETransformer3DModel\",\"vace_layers\":[0,3],"
        "\"vace_in_channels\":20}",
        "{\"_class_name\":\"CogVideoXTransformer3DModel\",\"patch_size_t\":2,\"ofs_embed_dim\":"
        "512}",
        "{\"_class_name\":\"HunyuanVideoTransformer3DModel\","
        "\"image_condition_type\":\"token_replace\",\"guidance_embeds\":false}",
        "{\"_class_name\":\"CosmosTransformer3DModel\",\"extra_pos_embed_type\":null,"
        "\"rope_scale\":[1,3,3]}",
        "{\"_class_name\":\"LTXVideoTransformer3DModel\",\"attention_head_dim\":128}",
        "{\"_class_name\":\"MochiTransformer3DModel\",\"out_channels\":null}",
        "{\"_class_name\":\"AutoencoderKLLTXVideo\",\"down_block_types\":"
        "[\"LTXVideo095DownBlock3D\"],\"block_out_channels\":[4,8],\"downsample_type\":"
        "[\"spatiotemporal\"],\"decoder_block_out_channels\":[8],\"timestep_conditioning\":true,"
        "\"upsample_residual\":[true],\"upsample_factor\":[4]}",
        "{\"_class_name\":\"AutoencoderKLLTX2Video\",\"block_out_channels\":[8,8],"
        "\"down_block_types\":[\"LTX2VideoDownBlock3D\",\"LTX2VideoDownBlock3D\"],"
        "\"latent_channels\":4,\"layers_per_block\":[1,1,1],"
        "\"downsample_type\":[\"spatial\",\"temporal\"],"
        "\"decoder_block_out_channels\":[8,16],\"decoder_layers_per_block\":[1,1,1],"
        "\"upsample_type\":[\"temporal\",\"spatial\"]}",
        "{\"_class_name\":\"AutoencoderKLLTX2Audio\",\"mel_bins\":80,\"ch_mult\":[1,2]}",
        "{\"_class_name\":\"LatteTransformer3DModel\",\"out_channels\":8}",
        "{\"_class_name\":\"STDiT3_XL_2\",\"pred_sigma\":false}",
        "{\"_class_name\":\"HunyuanDiT2DModel\",\"num_layers\":6}",
        "{\"architectures\":[\"MT5EncoderModel\"],\"model_type\":\"mt5\",\"num_layers\":2}",
        "{\"_class_name\":\"LlamaModel\",\"rope_parameters\":{\"rope_type\":\"llama3\","
        "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
        "\"original_max_position_embeddings\":64}}",
        "{\"_class_name\":\"CLIPTextModel\",\"use_attention_mask\":true}",
        "{\"_class_name\":\"OpenSoraT2V_v1_3\",\"sparse_n\":8,\"sparse1d\":false}",
        "{\"_class_name\":\"LTX2VideoTransformer3DModel\",\"rope_type\":\"split\","
        "\"gated_attn\":true,\"audio_cross_attn_mod\":true,\"vae_scale_factors\":[4,16,16]}",
        "{\"_class_name\":\"SanaVideoTransformer3DModel\",\"attention_bias\":true,"
        "\"sample_size\":22}",
        "{\"_class_name\":\"LongCatVideoTransformer3DModel\",\"depth\":2,"
        "\"text_tokens_zero_pad\":true}",
        "{\"_class_name\":\"Kandinsky5Transformer3DModel\",\"axes_dims\":[16,8,8],"
        "\"visual_cond\":true}",
        "{\"_class_name\":\"Flux2Transformer2DModel\",\"guidance_embeds\":false,"
        "\"axes_dims_rope\":[8,40,40,40]}",
        "{\"_class_name\":\"ChromaTransformer2DModel\",\"approximator_layers\":2}",
        "{\"_class_name\":\"ZImageTransformer2DModel\",\"t_scale\":100,\"all_patch_size\":[4]}",
        "{\"_class_name\":\"Qwen3Model\",\"head_dim\":64}",
        "{\"_class_name\":\"Gemma3TextModel\",\"rope_factor\":8,"
        "\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
        "{\"_class_name\":\"Gemma2Model\",\"query_pre_attn_scalar\":144}",
        "{\"_class_name\":\"HunyuanVideo15Transformer3DModel\",\"patch_size_t\":2,"
        "\"text_embed_2_hidden_dim\":64}",
        "{\"_class_name\":\"AutoencoderKLHunyuanVideo15\",\"upsample_match_channel\":false}",
        "{\"_class_name\":\"AutoencoderDC\",\"decoder_in_shortcut\":false,"
        "\"upsample_block_type\":\"interpolate\"}",
        "{\"_class_name\":\"WFVAEModel\",\"latent_dim\":2,\"scale\":[0.5,2],"
        "\"t_interpolation\":\"trilinear\"}",
        "{\"_class_name\":\"MotifVideoTransformer3DModel\",\"image_embed_dim\":64,"
        "\"num_decoder_layers\":4}",
        "{\"_class_name\":\"T5Gemma2TextEncoder\",\"rope_factor\":8,"
        "\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
        "{\"_class_name\":\"FluxTransformer2DModel\",\"guidance_embeds\":true,"
        "\"out_channels\":32}",
        "{\"_class_name\":\"QwenImageTransformer2DModel\",\"zero_cond_t\":true,"
        "\"patch_size\":4}",
        "{\"_class_name\":\"UNet2DConditionModel\",\"down_block_types\":[\"DownBlock2D\"],"
        "\"up_block_types\":[\"CrossAttnUpBlock2D\"],\"block_out_channels\":[64]}",
    };
    for (int i = 0; i < (int)(sizeof texts / sizeof *texts); i++) {
        const weft_model model = model_of(texts[i]);
        json_t *json = weft_model_write(&model);
        cr_assert(json);
        weft_model again;
        cr_assert_eq(weft_model_read(json, "written", &again), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(memcmp(&model, &again, sizeof model), 0);
        json_decref(json);
    }
}

Test(sizes, words_that_are_not_known_are_refused)
{
    json_t *json;
    weft_model model;
    const char *text = "{\"_class_name\":\"UNet2DConditionModel\","
                       "\"down_block_types\":[\"AttnDownBlock2D\"]}";
    cr_assert_eq(weft_json_parse(text, (int64_t)strlen(text), "x.json", &json), WEFT_OK);
    cr_assert_eq(weft_model_read(json, "x.json", &model), WEFT_E_UNSUPPORTED);
    cr_assert_eq(weft_error_class(), WEFT_MSG_MODEL_CONFIG_UNSUPPORTED);
    cr_assert_str_eq(weft_error_fields()->key, "down_block_types");
    cr_assert(strstr(weft_error_text(), "CrossAttnDownBlock2D"), "%s", weft_error_message());
    json_decref(json);
}

/* Head widths at which the reference's rotary tables are not cut where they are joined. */
Test(sizes, chronoedit_refuses_mixed_rotary_tables)
{
    json_t *json;
    weft_model model;
    const char *text =
        "{\"_class_name\":\"ChronoEditTransformer3DModel\",\"attention_head_dim\":64}";
    cr_assert_eq(weft_json_parse(text, (int64_t)strlen(text), "x.json", &json), WEFT_OK);
    cr_assert_neq(weft_model_read(json, "x.json", &model), WEFT_OK);
    cr_assert_eq(weft_error_class(), WEFT_MSG_MODEL_CONFIG);
    cr_assert_str_eq(weft_error_fields()->key, "attention_head_dim");
    json_decref(json);
}

Test(sizes, unsupported_fields_are_refused)
{
    json_t *json;
    weft_model model;
    const char *text = "{\"_class_name\":\"WanTransformer3DModel\",\"qk_norm\":\"rms_norm\"}";
    cr_assert_eq(weft_json_parse(text, (int64_t)strlen(text), "x.json", &json), WEFT_OK);
    cr_assert_eq(weft_model_read(json, "x.json", &model), WEFT_E_UNSUPPORTED);
    cr_assert_eq(weft_error_class(), WEFT_MSG_MODEL_CONFIG_UNSUPPORTED);
    cr_assert_str_eq(weft_error_fields()->key, "qk_norm");
    json_decref(json);
}

Test(sizes, pipelines_of_a_family_differ_by_config)
{
    static const char *const known[][2] = {
        {"cosmos1-7b", "CosmosTextToWorldPipeline"},
        {"cosmos-predict2-2b-t2i", "Cosmos2TextToImagePipeline"},
        {"cosmos-predict2-2b", "Cosmos2VideoToWorldPipeline"},
        {"cosmos-predict2.5-14b", "Cosmos2_5_PredictBasePipeline"},
        {"cosmos-transfer2.5-2b", "Cosmos2_5_TransferPipeline"},
        {"flux2-dev", "Flux2Pipeline"},
        {"flux2-klein-4b", "Flux2KleinPipeline"},
        {"wan-1.3b", "WanPipeline"},
    };
    for (int i = 0; i < WEFT_COUNT(known); i++) {
        weft_model model;
        cr_assert_eq(weft_model_open(known[i][0], &model), WEFT_OK, "%s", weft_error_message());
        cr_expect_str_eq(weft_model_pipeline(&model, false), known[i][1], "%s", known[i][0]);
    }
    const weft_model first = model_of("{\"_class_name\":\"CosmosTransformer3DModel\","
                                      "\"in_channels\":17}");
    cr_expect_str_eq(weft_model_pipeline(&first, false), "CosmosVideoToWorldPipeline");
}

Test(sizes, pipelines_of_a_first_frame_have_their_own_class)
{
    static const char *const known[][2] = {
        {"WanTransformer3DModel", "WanImageToVideoPipeline"},
        {"CogVideoXTransformer3DModel", "CogVideoXImageToVideoPipeline"},
        {"HunyuanVideoTransformer3DModel", "HunyuanVideoImageToVideoPipeline"},
        {"LTXVideoTransformer3DModel", "LTXImageToVideoPipeline"},
        {"LTX2VideoTransformer3DModel", "LTX2ImageToVideoPipeline"},
        {"Kandinsky5Transformer3DModel", "Kandinsky5I2VPipeline"},
        {"SanaVideoTransformer3DModel", "SanaImageToVideoPipeline"},
        {"SkyReelsV2Transformer3DModel", "SkyReelsV2DiffusionForcingImageToVideoPipeline"},
        /* its class for images needs an image encoder, which exports do not have */
        {"HunyuanVideo15Transformer3DModel", "HunyuanVideo15Pipeline"},
    };
    for (int i = 0; i < WEFT_COUNT(known); i++) {
        char json[100];
        snprintf(json, sizeof json, "{\"_class_name\":\"%s\"}", known[i][0]);
        const weft_model model = model_of(json);
        cr_expect_str_eq(weft_model_pipeline(&model, true), known[i][1]);
    }
    const weft_model channels = model_of("{\"_class_name\":\"SkyReelsV2Transformer3DModel\","
                                         "\"in_channels\":36,\"out_channels\":16}");
    cr_expect_str_eq(weft_model_pipeline(&channels, true), "SkyReelsV2ImageToVideoPipeline");
    cr_expect_str_eq(weft_model_pipeline(&channels, false), "SkyReelsV2Pipeline");
}
