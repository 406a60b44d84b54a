/* Small denoisers of every family with residual blocks, for tests of feature caches. */
#ifndef TESTS_DENOISERS_OF_H
#define TESTS_DENOISERS_OF_H

#include "model_of.h"

#include <criterion/criterion.h>

typedef struct example {
    const char *config;
    weft_model_size size;
    int blocks, attentions;
    bool told; /* its blocks read values that depend on the timestep only */
} example;

#define GIVEN(port) ((uint64_t)1 << WEFT_PORT_##port)

/* clang-format off */
static const example denoisers_of[] = {
    {"{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,\"attention_head_dim\":6,"
     "\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,\"num_layers\":3}",
     {2, 2, 4, 4, 3}, 3, 6, true},
    {"{\"_class_name\":\"WanAnimateTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"latent_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":3,\"inject_face_latents_blocks\":3,\"motion_encoder_size\":4,"
     "\"motion_encoder_channel_sizes\":{\"4\":3},\"motion_style_dim\":4,\"motion_dim\":2,"
     "\"motion_encoder_dim\":3,\"face_encoder_hidden_dim\":3,\"face_encoder_num_heads\":2}",
     {2, 3, 4, 4, 3}, 4, 7, true}, /* the adapter is a block with attention, too */
    {"{\"_class_name\":\"CogVideoXTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":16,\"in_channels\":2,\"out_channels\":2,\"time_embed_dim\":6,"
     "\"text_embed_dim\":5,\"num_layers\":3,\"sample_width\":4,\"sample_height\":4,"
     "\"max_text_seq_length\":3}",
     {2, 2, 4, 4, 3}, 3, 3, true},
    {"{\"_class_name\":\"HunyuanVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":2,"
     "\"num_single_layers\":2,\"num_refiner_layers\":1,\"text_embed_dim\":5,"
     "\"pooled_projection_dim\":3,\"rope_axes_dim\":[2,2,2]}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 4, 4, false},
    {"{\"_class_name\":\"HunyuanVideoFramepackTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":2,"
     "\"num_single_layers\":2,\"num_refiner_layers\":1,\"text_embed_dim\":5,"
     "\"pooled_projection_dim\":3,\"image_proj_dim\":3,\"rope_axes_dim\":[2,2,2]}",
     {2, 2, 4, 4, 5, .history = {2, 1, 4},
      .present_ports = GIVEN(TEXT_MASK) | GIVEN(HISTORY) | GIVEN(HISTORY_2X) |
                       GIVEN(HISTORY_4X)},
     4, 4, false},
    {"{\"_class_name\":\"HeliosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"text_dim\":5,"
     "\"freq_dim\":4,\"ffn_dim\":10,\"num_layers\":3,\"rope_dim\":[2,2,2]}",
     {2, 2, 4, 4, 3, .history = {2, 1, 4},
      .present_ports = GIVEN(HISTORY) | GIVEN(HISTORY_2X) | GIVEN(HISTORY_4X)},
     3, 6, true},
    {"{\"_class_name\":\"CosmosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":12,\"in_channels\":2,\"out_channels\":2,\"num_layers\":3,"
     "\"text_embed_dim\":5,\"adaln_lora_dim\":3,\"extra_pos_embed_type\":null}",
     {2, 2, 4, 4, 3}, 3, 6, true},
    {"{\"_class_name\":\"LTXVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":8,\"in_channels\":2,\"out_channels\":2,\"num_layers\":3,"
     "\"caption_channels\":5}",
     {2, 2, 2, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 3, 6, true},
    {"{\"_class_name\":\"MochiTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"num_layers\":3,\"time_embed_dim\":4,"
     "\"text_embed_dim\":8,\"pooled_projection_dim\":5}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 3, 3, false},
    {"{\"_class_name\":\"LatteTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"num_layers\":2,\"sample_size\":4,"
     "\"caption_channels\":5}",
     {1, 2, 4, 4, 3}, 4, 6, true},
    {"{\"_class_name\":\"STDiT3\",\"hidden_size\":12,\"num_heads\":2,\"in_channels\":2,"
     "\"depth\":2,\"caption_channels\":5,\"input_sq_size\":32}",
     {1, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(FPS)}, 4, 8, false},
    {"{\"_class_name\":\"AllegroTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":3,"
     "\"caption_channels\":5}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 3, 6, true},
    {"{\"_class_name\":\"OpenSoraT2V_v1_3\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":4,"
     "\"caption_channels\":5,\"sparse_n\":2}",
     {2, 2, 4, 6, 5}, 4, 8, true},
    {"{\"_class_name\":\"LongCatVideoTransformer3DModel\",\"hidden_size\":16,\"num_heads\":2,"
     "\"in_channels\":2,\"out_channels\":2,\"depth\":3,\"caption_channels\":5,"
     "\"adaln_tembed_dim\":4,\"frequency_embedding_size\":4}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 3, 6, true},
    {"{\"_class_name\":\"SanaVideoTransformer3DModel\",\"in_channels\":2,"
     "\"out_channels\":2,\"num_attention_heads\":2,\"attention_head_dim\":6,\"num_layers\":3,"
     "\"num_cross_attention_heads\":2,\"cross_attention_head_dim\":6,"
     "\"cross_attention_dim\":12,\"caption_channels\":5,\"mlp_ratio\":0.75}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 3, 3, true},
    {"{\"_class_name\":\"Kandinsky5Transformer3DModel\",\"in_visual_dim\":2,"
     "\"out_visual_dim\":2,\"in_text_dim\":5,\"in_text_dim2\":3,\"time_dim\":4,"
     "\"model_dim\":12,\"ff_dim\":10,\"num_text_blocks\":1,\"num_visual_blocks\":3,"
     "\"axes_dims\":[2,2,2]}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 3, 6, false},
    {"{\"_class_name\":\"FluxTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":4,\"num_layers\":2,"
     "\"num_single_layers\":2,\"joint_attention_dim\":5,\"pooled_projection_dim\":3,"
     "\"guidance_embeds\":true,\"axes_dims_rope\":[2,2,2]}",
     {2, 1, 4, 8, 4}, 4, 4, false},
    {"{\"_class_name\":\"QwenImageTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":2,\"num_layers\":3,"
     "\"joint_attention_dim\":5,\"axes_dims_rope\":[2,2,2]}",
     {2, 1, 4, 8, 4, .present_ports = GIVEN(TEXT_MASK)}, 3, 3, false},
    {"{\"_class_name\":\"HunyuanVideo15Transformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":3,"
     "\"num_refiner_layers\":1,\"text_embed_dim\":5,\"text_embed_2_dim\":3,"
     "\"text_embed_2_hidden_dim\":4,\"image_embed_dim\":3,\"rope_axes_dim\":[2,2,2]}",
     {2, 2, 4, 4, 4, .text2 = 3, .present_ports = GIVEN(TEXT_MASK) | GIVEN(TEXT2_MASK)},
     3, 3, false},
    {"{\"_class_name\":\"MotifVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"num_single_layers\":3,\"text_embed_dim\":5,"
     "\"rope_axes_dim\":[2,2,2],\"enable_text_cross_attention_dual\":true,"
     "\"enable_text_cross_attention_single\":true}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}, 4, 8, true},
    /* experts: blocks sum their load as well */
    {"{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":3,\"num_routed_experts\":4,\"num_activated_experts\":2,"
     "\"moe_intermediate_size\":6,\"n_shared_experts\":1}",
     {2, 2, 4, 4, 3}, 3, 6, true},
    {"{\"_class_name\":\"Flux2Transformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":8,\"in_channels\":8,\"num_layers\":2,\"num_single_layers\":2,"
     "\"joint_attention_dim\":5,\"timestep_guidance_channels\":4,\"axes_dims_rope\":[2,2,2,2]}",
     {2, 1, 4, 4, 4}, 4, 4, false},
    {"{\"_class_name\":\"ChromaTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":8,\"num_layers\":2,"
     "\"num_single_layers\":2,\"joint_attention_dim\":5,\"approximator_num_channels\":8,"
     "\"approximator_hidden_dim\":6,\"approximator_layers\":1,\"axes_dims_rope\":[2,2,2]}",
     {2, 1, 4, 8, 4, .present_ports = GIVEN(TEXT_MASK)}, 4, 4, false},
    {"{\"_class_name\":\"ZImageTransformer2DModel\",\"dim\":12,\"n_layers\":3,"
     "\"n_refiner_layers\":1,\"n_heads\":2,\"in_channels\":2,\"cap_feat_dim\":5,"
     "\"axes_dims\":[2,2,2],\"t_embedder_mid_dim\":4}",
     {2, 1, 4, 4, 4, .present_ports = GIVEN(TEXT_MASK)}, 4, 4, true},
    {"{\"_class_name\":\"WanVACETransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":3,\"vace_layers\":[0,2],\"vace_in_channels\":6}",
     {2, 2, 4, 4, 3}, 5, 10, true},
};
/* clang-format on */
enum { DENOISERS_OF = sizeof denoisers_of / sizeof *denoisers_of };

static inline weft_graph *denoiser_graph(const example *s)
{
    const weft_model model = model_of(s->config);
    const weft_family *f = model.family;
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    for (int i = 0; i < f->ports; i++) {
        const weft_port port = f->port[i].port;
        if (!f->port[i].output && weft_model_takes(&model, port) &&
            (!f->port[i].optional || s->size.present_ports >> port & 1))
            p.at[port] = weft_model_input(g, &model, &s->size, port, "batch.");
    }
    weft_model_call(g, &model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, true, &p);
    weft_output(g, "prediction", p.at[WEFT_PORT_PREDICTION]);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

#endif
