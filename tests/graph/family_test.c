/* Every denoiser and autoencoder family with a small config. Gradients are compared with central
 * differences, and every recipe of the family with one rank: loss, prediction and all gradients, in
 * f64. */
#include "../model_of.h"
#include "doctor/gpu_families.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "lockstep.h"
#include "sharded.h"
#include "transform/numeric/pointwise.h"
#include "transform/numeric/rounding.h"
#include "transform/passes.h"
#include "transform/sharding/input_footprint.h"
#include "transform/sharding/shard.h"
#include "transform/sharding/token_sharding.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef weft_gpu_family setup;

#define GIVEN(port) ((uint64_t)1 << WEFT_PORT_##port)

/* Other configs and sizes of the families of doctor/gpu_families.h. */
/* clang-format off */
static const setup variants[] = {
    {"{\"_class_name\":\"AutoencoderKLLTXVideo\",\"block_out_channels\":[4,8],"
     "\"down_block_types\":[\"LTXVideo095DownBlock3D\"],\"downsample_type\":[\"spatiotemporal\"],"
     "\"decoder_block_out_channels\":[8],\"latent_channels\":2,\"layers_per_block\":[1,1],"
     "\"decoder_layers_per_block\":[1,1],\"spatio_temporal_scaling\":[true],"
     "\"decoder_spatio_temporal_scaling\":[true],\"patch_size\":2,\"upsample_factor\":[2],"
     "\"upsample_residual\":[true],\"timestep_conditioning\":true,"
     "\"decoder_inject_noise\":[true,false]}",
     {2, 3, 4, 4, 0, .present_ports = GIVEN(TIMESTEP)}},
    {"{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,\"attention_head_dim\":6,"
     "\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,\"num_layers\":1}",
     {2, 2, 4, 4, 3, .times = 8}},
    {"{\"_class_name\":\"ChronoEditTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1,\"rope_temporal_skip_len\":5}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"SkyReelsV2Transformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1,\"num_frame_per_block\":2}",
     {2, 4, 4, 4, 3}},
    {"{\"_class_name\":\"HeliosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"text_dim\":5,"
     "\"freq_dim\":4,\"ffn_dim\":10,\"num_layers\":1,\"rope_dim\":[2,2,2],"
     "\"cross_attn_norm\":false,\"guidance_cross_attn\":false,"
     "\"zero_history_timestep\":false,\"is_amplify_history\":true,"
     "\"history_scale_mode\":\"scalar\"}",
     {2, 2, 4, 4, 3, .history = {2, 1, 4},
      .present_ports = GIVEN(HISTORY) | GIVEN(HISTORY_2X) | GIVEN(HISTORY_4X)}},
    {"{\"_class_name\":\"HeliosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"text_dim\":5,"
     "\"freq_dim\":4,\"ffn_dim\":10,\"num_layers\":1,\"rope_dim\":[2,2,2],"
     "\"has_multi_term_memory_patch\":false}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"CausalWanTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1,\"num_frames_per_block\":2,\"local_attn_size\":3,\"sink_size\":1}",
     {2, 4, 4, 4, 3, .times = 4}},
    {"{\"_class_name\":\"CausalWanTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1,\"num_frames_per_block\":2}",
     {2, 4, 4, 4, 3, .present_ports = GIVEN(CLEAN)}},
    {"{\"_class_name\":\"CogVideoXTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":16,\"in_channels\":3,\"out_channels\":2,\"time_embed_dim\":6,"
     "\"ofs_embed_dim\":6,\"text_embed_dim\":5,\"num_layers\":1,\"patch_size_t\":2,"
     "\"use_rotary_positional_embeddings\":true,\"sample_width\":8,\"sample_height\":4}",
     {2, 4, 4, 8, 3}},
    {"{\"_class_name\":\"HunyuanVideo15Transformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"num_refiner_layers\":1,\"text_embed_dim\":5,\"text_embed_2_dim\":3,"
     "\"text_embed_2_hidden_dim\":4,\"image_embed_dim\":3,\"rope_axes_dim\":[2,2,2]}",
     {2, 2, 2, 2, 4, .text2 = 3}},
    {"{\"_class_name\":\"MotifVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"num_single_layers\":1,\"text_embed_dim\":5,\"rope_axes_dim\":[2,2,2],"
     "\"enable_text_cross_attention_single\":true}",
     {2, 2, 4, 4, 4}},
    {"{\"_class_name\":\"CosmosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":12,\"in_channels\":3,\"out_channels\":2,\"num_layers\":1,"
     "\"text_embed_dim\":5,\"adaln_lora_dim\":3,\"extra_pos_embed_type\":null,"
     "\"use_crossattn_projection\":true,\"crossattn_proj_in_channels\":4,"
     "\"encoder_hidden_states_channels\":5}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"CosmosTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":12,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"text_embed_dim\":5,\"adaln_lora_dim\":3,\"extra_pos_embed_type\":null}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"LTXVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"caption_channels\":5,\"attention_bias\":false}",
     {2, 2, 2, 2, 5, .times = 8, .present_ports = GIVEN(POSITIONS)}},
    {"{\"_class_name\":\"OpenSoraT2V_v1_3\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":4,"
     "\"caption_channels\":5,\"sparse_n\":2}",
     {2, 2, 4, 6, 5}},
    {"{\"_class_name\":\"LongCatVideoTransformer3DModel\",\"hidden_size\":16,\"num_heads\":2,"
     "\"in_channels\":2,\"out_channels\":2,\"depth\":1,\"caption_channels\":5,"
     "\"adaln_tembed_dim\":4,\"frequency_embedding_size\":4,\"text_tokens_zero_pad\":true}",
     {2, 4, 4, 4, 5, .times = 4, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"LongCatVideoTransformer3DModel\",\"hidden_size\":16,\"num_heads\":2,"
     "\"in_channels\":2,\"out_channels\":2,\"depth\":1,\"caption_channels\":5,"
     "\"adaln_tembed_dim\":4,\"frequency_embedding_size\":4}",
     {2, 2, 4, 4, 4}},
    {"{\"_class_name\":\"SparseUMMDiT\",\"num_heads\":2,\"head_dim\":16,\"in_channels\":2,"
     "\"out_channels\":2,\"num_layers\":[2,2,2],\"sparse_n\":[1,2,1],"
     "\"timestep_embed_dim\":4,\"caption_channels\":5,\"pooled_projection_dim\":3}",
     {2, 2, 4, 6, 4}},
    {"{\"_class_name\":\"LTX2VideoTransformer3DModel\",\"in_channels\":2,\"out_channels\":2,"
     "\"num_attention_heads\":4,\"attention_head_dim\":6,\"audio_in_channels\":3,"
     "\"audio_out_channels\":3,\"audio_num_attention_heads\":2,\"audio_attention_head_dim\":8,"
     "\"num_layers\":1,\"rope_type\":\"split\",\"gated_attn\":true,"
     "\"audio_gated_attn\":true,\"cross_attn_mod\":true,\"audio_cross_attn_mod\":true,"
     "\"use_prompt_embeddings\":false}",
     {2, 2, 2, 3, 4, .audio = 4}},
    {"{\"_class_name\":\"QwenImageTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":2,\"num_layers\":1,"
     "\"joint_attention_dim\":5,\"axes_dims_rope\":[2,2,2],\"zero_cond_t\":true,"
     "\"use_additional_t_cond\":true}",
     {2, 1, 2, 16, 4, .times = 8, .present_ports = GIVEN(POSITIONS)}},
};
/* clang-format on */

/* Number of families of weft doctor that denoise or decode: they are first, before encoders. */
static int shared_count(void)
{
    int count = 0;
    while (weft_gpu_families[count].config &&
           model_of(weft_gpu_families[count].config).family->role <= WEFT_ROLE_AUDIO_AUTOENCODER)
        count++;
    return count;
}

/* Setup i: these families, then the variants. NULL: the end. */
static const setup *setup_at(int i)
{
    static int shared;
    shared = shared ? shared : shared_count();
    if (i < shared)
        return &weft_gpu_families[i];
    return i - shared < (int)WEFT_COUNT(variants) ? &variants[i - shared] : NULL;
}

static int setup_count(void)
{
    int count = 0;
    while (setup_at(count))
        count++;
    return count;
}

/* Encoded, sampled, decoded; not clamped, which has no gradient outside. */
static weft_value autoencode(weft_graph *g, const weft_model *model, const weft_model_size *size,
                             bool scoped)
{
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_VIDEO] = weft_model_input(g, model, size, WEFT_PORT_VIDEO, "batch.");
    weft_model_call(g, model, (weft_call){WEFT_CALL_ENCODE, WEFT_STREAM_ALONE}, scoped, &p);
    const weft_value mean = p.at[WEFT_PORT_MEAN], logvar = p.at[WEFT_PORT_LOGVAR];
    p.at[WEFT_PORT_LATENTS] = mean;
    if (weft_value_ok(logvar))
        p.at[WEFT_PORT_LATENTS] = weft_add(g, mean, weft_unary(g, WEFT_OP_EXP, logvar));
    weft_model_call(g, model, (weft_call){WEFT_CALL_DECODE, WEFT_STREAM_ALONE}, scoped, &p);
    return p.at[WEFT_PORT_RECONSTRUCTION];
}

/* `audio`: a second output, or WEFT_NONE. */
static weft_graph *finish(weft_graph *g, weft_value made, weft_value audio)
{
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    const weft_value target =
        weft_input(g, "batch.target", WEFT_F32, weft_value_get(g, made)->shape);
    weft_value loss = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, made, target)));
    weft_output(g, "prediction", made);
    if (weft_value_ok(audio)) { /* its loss is compared with zeros */
        weft_output(g, "audio_prediction", audio);
        loss = weft_add(g, loss, weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, audio)));
    }
    weft_output(g, "loss", loss);
    return g;
}

static weft_graph *build_as(const setup *s, bool scoped)
{
    const weft_model model = model_of(s->config);
    const weft_family *f = model.family;
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    if (weft_family_is_autoencoder(f))
        return finish(g, autoencode(g, &model, &s->size, scoped), WEFT_NONE);
    for (int i = 0; i < f->ports; i++) {
        const weft_port port = f->port[i].port;
        if (!f->port[i].output && weft_model_takes(&model, port) &&
            (!f->port[i].optional || s->size.present_ports >> port & 1))
            p.at[port] = weft_model_input(g, &model, &s->size, port, "batch.");
    }
    weft_model_call(g, &model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, scoped, &p);
    return finish(g, p.at[f->role == WEFT_ROLE_DENOISER ? WEFT_PORT_PREDICTION : WEFT_PORT_IMAGE],
                  p.at[WEFT_PORT_AUDIO_PREDICTION]);
}

static weft_graph *build(void *user)
{
    return build_as(user, false);
}

static double fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    static char last[256]; /* of the elements of one source, the name is mixed once */
    static uint64_t seed;
    (void)user;
    if (strcmp(last, name)) {
        snprintf(last, sizeof last, "%s", name);
        seed = 5;
        for (const char *c = name; *c; c++)
            seed = weft_seed_mix(seed, (uint64_t)*c);
    }
    if (!strcmp(name, "batch.label"))
        return 0;
    if (!weft_dtype_is_float(dtype))
        return index % 5 < 3;
    const double value = 0.5 * (double)weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)index);
    if (!strcmp(name, "batch.fps"))
        return 20 + value;
    return strstr(name, "norm") && strstr(name, ".weight") ? 1 + value : value;
}

/* ---- gradients ----------------------------------------------------------------------------- */

typedef struct nudge {
    const char *const *name; /* of the sources that move */
    int count;
    double by;
} nudge;

static double way(const char *name, int64_t index)
{
    return fill(NULL, name, WEFT_F32, index + 1000);
}

static double nudged(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    const nudge *n = user;
    bool moves = false;
    for (int i = 0; i < n->count && !moves; i++)
        moves = !strcmp(n->name[i], name);
    return fill(NULL, name, dtype, index) + (moves ? n->by * way(name, index) : 0);
}

static double loss_of(weft_graph *g, nudge n)
{
    lockstep *l = lockstep_run(1, &g, nudged, &n);
    cr_assert_str_empty(l->error, "%s", l->error);
    const double loss = view_get(&l->value[0][weft_graph_find(g, "loss").id], 0);
    lockstep_free(l);
    return loss;
}

/* Compares the gradients of `count` parameters with the difference of the loss, along one direction
 * in which they all move. */
static void check_direction(const setup *s, weft_graph *forward, const char *const *name, int count,
                            const weft_view *const *grad, double loss)
{
    double h = 1e-5, got = 0, size = 1e-3 + 0.01 * loss;
    for (int i = 0; i < count; i++) {
        if (strstr(name[i], "frequencies"))
            h = 1e-7; /* places go up to 100 */
        for (int64_t e = 0; grad[i] && e < weft_shape_count(&grad[i]->shape); e++) {
            const double term = view_get(grad[i], e) * way(name[i], e);
            got += term;
            size += fabs(term);
        }
    }
    const double expected =
        (loss_of(forward, (nudge){name, count, h}) - loss_of(forward, (nudge){name, count, -h})) /
        (2 * h);
    cr_expect(fabs(got - expected) <= 1e-6 * size, "%.40s: %s%s: %.9g, differences say %.9g",
              s->config + 16, name[0], count > 1 ? " and the next" : "", got, expected);
}

/* The directional derivative of each parameter in a separate direction; of a model with many, of
 * eight parameters at once, because every direction costs two forward passes. */
static void check_gradients(const setup *s)
{
    enum { MANY = 60, TOGETHER = 8 };
    weft_graph *forward = build((void *)(uintptr_t)s), *g = build((void *)(uintptr_t)s);
    int count;
    const weft_value *param = weft_graph_params(g, &count);
    weft_value *grad = weft_alloc(count * (int64_t)sizeof *grad);
    nudge none = {0};
    weft_autodiff(g, weft_graph_find(g, "loss"), param, count, grad);
    cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s", weft_error_message());
    lockstep *l = lockstep_run(1, &g, nudged, &none);
    cr_assert_str_empty(l->error, "%s", l->error);
    const double loss = loss_of(forward, none);
    const int together = count > MANY ? TOGETHER : 1;
    for (int first = 0; first < count; first += together) {
        const char *name[TOGETHER];
        const weft_view *of[TOGETHER];
        int taken = 0;
        for (int i = first; i < count && taken < together; i++, taken++) {
            name[taken] = weft_value_get(g, param[i])->name;
            of[taken] = weft_value_ok(grad[i]) ? &l->value[0][grad[i].id] : NULL;
        }
        check_direction(s, forward, name, taken, of, loss);
    }
    lockstep_free(l);
    weft_free(grad);
    weft_graph_free(g);
    weft_graph_free(forward);
}

ParameterizedTestParameters(family, gradients_against_differences)
{
    static int index[128];
    const int count = setup_count();
    cr_assert(count <= (int)WEFT_COUNT(index));
    for (int i = 0; i < count; i++)
        index[i] = i;
    return cr_make_param_array(int, index, (size_t)count);
}

ParameterizedTest(int *index, family, gradients_against_differences)
{
    check_gradients(setup_at(*index));
}

/* ---- ranks --------------------------------------------------------------------------------- */

static void check_mesh(const setup *s, const char *mesh_text)
{
    weft_mesh mesh;
    weft_recipe recipe;
    const weft_model model = model_of(s->config);
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    cr_assert_eq(weft_recipe_compose(model.family->recipe, model.family->recipes, &mesh, &recipe),
                 WEFT_OK, "%s", weft_error_message());
    weft_graph *g = build((void *)(uintptr_t)s);
    cr_expect_eq(weft_recipe_check(&recipe, g, &mesh), WEFT_OK, "%s: %s", model.family->class_name,
                 weft_error_message());
    weft_graph_free(g);
    cr_expect(
        sharded_agrees(build, sharded_gradients, fill, (void *)(uintptr_t)s, &mesh, &recipe, 1e-9),
        "%s: %s on %s", model.family->class_name, recipe.name, mesh_text);
    weft_recipe_free(&recipe);
}

Test(family, ranks_agree_with_one)
{
    for (int i = 0; setup_at(i); i++) {
        const weft_model model = model_of(setup_at(i)->config);
        check_mesh(setup_at(i), "dp=2");
        check_mesh(setup_at(i), "fsdp=2");
        for (int r = 0; r < model.family->recipes; r++) {
            char mesh[32];
            snprintf(mesh, sizeof mesh, "%s=2", model.family->recipe[r]->axis);
            check_mesh(setup_at(i), mesh);
        }
    }
}

/* Linears of tensor parallelism: by columns, or by rows. */
static const struct {
    const char *name;
    int dim;
} tensor_parallel[] = {
    {".to_q.weight", 0},       {".to_k.weight", 0},       {".to_v.weight", 0},
    {".add_q_proj.weight", 0}, {".add_k_proj.weight", 0}, {".add_v_proj.weight", 0},
    {".to_out.0.weight", 1},   {".to_add_out.weight", 1}, {".net.0.proj.weight", 0},
    {".net.2.weight", 1},
};

/* Counts a family's linears of each kind, of which a rank has to have half. */
static void count_split(const setup *s, const char *axes, int split[10])
{
    weft_mesh mesh;
    weft_recipe recipe;
    const weft_model model = model_of(s->config);
    weft_graph *all = build((void *)(uintptr_t)s), *part;
    int count;
    cr_assert_eq(weft_mesh_parse(axes, &mesh), WEFT_OK);
    cr_assert_eq(weft_recipe_compose(model.family->recipe, model.family->recipes, &mesh, &recipe),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_shard(all, &mesh, 0, &recipe, &part), WEFT_OK, "%s",
                 weft_error_message());
    const weft_value *param = weft_graph_params(part, &count);
    for (int i = 0; i < count; i++) {
        const weft_value_info *own = weft_value_get(part, param[i]);
        const weft_shape shape = weft_value_get(all, weft_graph_find(all, own->name))->shape;
        for (int k = 0; k < 10; k++) {
            const size_t name = strlen(own->name), end = strlen(tensor_parallel[k].name);
            if (!strstr(own->name, "blocks.") || !strstr(own->name, k < 8 ? "attn" : ".net.") ||
                name < end || strcmp(own->name + name - end, tensor_parallel[k].name) != 0)
                continue;
            const int d = tensor_parallel[k].dim;
            split[k]++;
            cr_expect(own->shape.dim[d] <= (shape.dim[d] + 1) / 2, "%s, %s: a rank has all of %s",
                      model.family->class_name, axes, own->name);
        }
    }
    weft_recipe_free(&recipe);
    weft_graph_free(part);
    weft_graph_free(all);
}

/* With tp or sp a rank has half of each linear layer around attention and in feed-forwards. A
 * missing row of a recipe would give the same results, but need more memory and a gather in each
 * block. */
Test(family, tensor_parallel_splits_every_linear_of_the_blocks)
{
    static const char *const axes[] = {"tp", "sp"};
    for (int a = 0; a < 2; a++) {
        int split[10] = {0};
        for (int i = 0; setup_at(i); i++) {
            const weft_model model = model_of(setup_at(i)->config);
            char mesh[32];
            snprintf(mesh, sizeof mesh, "%s=2", axes[a]);
            for (int r = 0; r < model.family->recipes; r++)
                if (!strcmp(model.family->recipe[r]->axis, axes[a]))
                    count_split(setup_at(i), mesh, split);
        }
        for (int k = 0; k < 10; k++)
            cr_expect(split[k] > 0, "%s: no family has %s", axes[a], tensor_parallel[k].name);
    }
}

/* ---- tokens -------------------------------------------------------------------------------- */

typedef struct own_tokens {
    const setup *setup;
    weft_mesh mesh;
    weft_recipe recipe;
    bool moved; /* by the pass */
} own_tokens;

/* Noised data and the loss of training: the target is computed from data and noise. */
static weft_graph *build_noised(const setup *s)
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
    const weft_value x = p.at[WEFT_PORT_LATENTS];
    const int64_t batch = weft_value_get(g, x)->shape.dim[0];
    const weft_value noise = weft_input(g, "noise", WEFT_F32, weft_value_get(g, x)->shape),
                     level = weft_reshape(g, weft_input(g, "level", WEFT_F32, WEFT_SHAPE(batch)),
                                          WEFT_SHAPE(batch, 1, 1, 1, 1));
    p.at[WEFT_PORT_LATENTS] = weft_add(g, weft_affine(g, x, 0.7, 0), weft_mul(g, noise, level));
    weft_model_call(g, &model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    weft_value error = weft_sub(g, weft_model_answer(g, &model, &p), weft_sub(g, noise, x));
    error = weft_mul(g, weft_unary(g, WEFT_OP_SQUARE, error), level);
    weft_output(g, "loss", weft_mean_all(g, error));
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s: %s", f->class_name, weft_error_message());
    return g;
}

static weft_graph *build_moved(void *user)
{
    own_tokens *o = user;
    weft_graph *g = build_noised(o->setup), *moved = NULL;
    cr_assert_eq(weft_pass_token_sharding(g, &o->mesh, &o->recipe, &moved), WEFT_OK, "%s",
                 weft_error_message());
    o->moved = moved;
    if (!moved)
        return g;
    weft_graph_free(g);
    return moved;
}

static void add_gradients(weft_graph *g)
{
    int count;
    const weft_value *param = weft_graph_params(g, &count);
    weft_value *grad = weft_alloc(count * (int64_t)sizeof *grad);
    weft_autodiff(g, weft_graph_find(g, "loss"), param, count, grad);
    for (int i = 0; i < count; i++)
        if (weft_value_ok(grad[i])) {
            char name[512];
            snprintf(name, sizeof name, "grad.%s", weft_value_get(g, param[i])->name);
            weft_output(g, name, grad[i]);
        }
    weft_free(grad);
}

/* On one rank loss and gradients are those of the graph before the pass. */
static void check_moved(own_tokens *o, const char *name)
{
    weft_graph *g[2] = {build_noised(o->setup), build_moved(o)};
    lockstep *l[2];
    int count;
    for (int i = 0; i < 2; i++) {
        add_gradients(g[i]);
        cr_assert_eq(weft_graph_verify(g[i]), WEFT_OK, "%s", weft_error_message());
        l[i] = lockstep_run(1, &g[i], fill, NULL);
        cr_assert_str_empty(l[i]->error, "%s: %s", name, l[i]->error);
    }
    const weft_named *output = weft_graph_outputs(g[0], &count);
    for (int k = 0; k < count; k++) {
        const weft_value other = weft_graph_find(g[1], output[k].name);
        cr_assert(weft_value_ok(other), "%s: no %s", name, output[k].name);
        const int64_t elements = weft_shape_count(&weft_value_get(g[0], output[k].value)->shape);
        for (int64_t e = 0; e < elements; e++) {
            const double a = view_get(&l[0]->value[0][output[k].value.id], e),
                         b = view_get(&l[1]->value[0][other.id], e);
            cr_expect(fabs(a - b) <= 1e-9 * (1 + fabs(a)), "%s: %s is %.12g, not %.12g", name,
                      output[k].name, b, a);
        }
    }
    for (int i = 0; i < 2; i++) {
        lockstep_free(l[i]);
        weft_graph_free(g[i]);
    }
}

/* How many ranks read an element of the data, all together; and how many elements there are. */
static int64_t count_reads(const weft_graph *whole, const own_tokens *o, int64_t *elements)
{
    weft_graph *g;
    int64_t reads = 0;
    cr_assert_eq(weft_pass_shard(whole, &o->mesh, 0, &o->recipe, &g), WEFT_OK, "%s",
                 weft_error_message());
    const weft_value x = weft_graph_find(g, "batch.latents");
    *elements = weft_shape_count(&weft_value_get(g, x)->shape);
    for (int r = 0; r < weft_mesh_ranks(&o->mesh); r++) {
        bool *read = weft_alloc(*elements + 1);
        cr_assert_eq(weft_input_footprint(g, x, r, read), WEFT_OK);
        for (int64_t e = 0; e < *elements; e++)
            reads += read[e];
        weft_free(read);
    }
    weft_graph_free(g);
    return reads;
}

/* The first layers need more than the local tokens: the first frame separately, a mask with the
 * channels, frames that do not divide, a timestep of a frame that two ranks share, two videos. */
static bool mixes(const setup *s, const char *class_name, int ranks)
{
    const bool by_frames =
        s->size.times == s->size.frames || s->size.present_ports & GIVEN(FRAME_MASK);
    return (by_frames && s->size.frames % ranks) || s->size.present_ports & GIVEN(CLEAN) ||
           !strcmp(class_name, "HunyuanVideoTransformer3DModel") ||
           !strcmp(class_name, "CosmosTransformer3DModel") ||
           !strcmp(class_name, "LatteTransformer3DModel");
}

/* Sizes that do not divide, so that parts of tokens begin inside of rows and frames. */
static void check_tokens(const setup *s, const char *axis, int ranks)
{
    setup many = *s;
    own_tokens o = {.setup = &many};
    char mesh[32];
    int64_t elements;
    const weft_model model = model_of(s->config);
    many.size.batch = 12; /* so that activations are larger than weights */
    snprintf(mesh, sizeof mesh, "%s=%d", axis, ranks);
    cr_assert_eq(weft_mesh_parse(mesh, &o.mesh), WEFT_OK);
    cr_assert_eq(
        weft_recipe_compose(model.family->recipe, model.family->recipes, &o.mesh, &o.recipe),
        WEFT_OK, "%s", weft_error_message());
    check_moved(&o, model.family->class_name);
    cr_expect(sharded_agrees(build_moved, sharded_gradients, fill, &o, &o.mesh, &o.recipe, 1e-9),
              "%s on %s", model.family->class_name, mesh);
    weft_graph *g = build_moved(&o);
    const int64_t reads = count_reads(g, &o, &elements);
    cr_expect(o.moved, "%s", model.family->class_name);
    cr_expect(reads == elements || mixes(s, model.family->class_name, ranks),
              "%s on %s: ranks read %" PRId64 " elements of %" PRId64, model.family->class_name,
              mesh, reads, elements);
    weft_graph_free(g);
    weft_recipe_free(&o.recipe);
}

Test(family, ranks_read_data_of_their_own_tokens)
{
    for (int i = 0; setup_at(i); i++) {
        const weft_model model = model_of(setup_at(i)->config);
        if (model.family->role != WEFT_ROLE_DENOISER || setup_at(i)->size.frames == 1 ||
            weft_model_grid(&model).channels != weft_model_grid(&model).out_channels)
            continue;
        for (int r = 0; r < model.family->recipes; r++) {
            const char *axis = model.family->recipe[r]->axis;
            if (strcmp(axis, "cp") && strcmp(axis, "ring"))
                continue;
            check_tokens(setup_at(i), axis, 2);
            check_tokens(setup_at(i), axis, 3);
        }
    }
}

/* ---- narrow -------------------------------------------------------------------------------- */

/* Gradients of learned angles, and wavelets of pixels, are products with a constant matrix. */
static bool by_constant(const weft_graph *g, const weft_node *product)
{
    const int32_t by = weft_value_get(g, product->in[1])->node;
    return weft_graph_node(g, by)->op == WEFT_OP_CONSTANT;
}

/* The gate of routed experts and its gradient stay in f32: rounding would choose other experts. */
static bool routes(const weft_node *node)
{
    const size_t length = strlen(node->scope);
    return length >= 5 && strcmp(node->scope + length - 5, ".gate") == 0;
}

/* After the pass, costly nodes compute in bf16: all matrix products and their gradients. */
static void check_types(const weft_graph *g, const char *name)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const bool product =
            node->op == WEFT_OP_CONV3D || node->op == WEFT_OP_ATTENTION ||
            node->op == WEFT_OP_ATTENTION_GRAD ||
            ((node->op == WEFT_OP_LINEAR || node->op == WEFT_OP_MATMUL) && !by_constant(g, node));
        const weft_value_info *made = weft_value_get(g, node->out[0]);
        if (node->op == WEFT_OP_PARAM)
            cr_expect_eq(made->dtype, WEFT_F32, "%s: %s", name, made->name);
        if (product && !routes(node))
            cr_expect_eq(made->dtype, WEFT_BF16, "%s: %s in %s", name, weft_op_get(node->op)->name,
                         node->scope);
    }
}

/* If nothing rounds, casts change nothing: loss and gradients are those of the graph before the
 * pass. Each parameter has one gradient, in f32. */
static void check_narrow(const setup *s)
{
    const weft_pass_setup narrow = {.bf16_compute = true};
    weft_graph *g[2] = {build_as(s, true), build_as(s, true)};
    lockstep *l[2];
    weft_value *grad[2];
    int count;
    cr_assert_eq(weft_passes_run(WEFT_PASS_WHOLE, &narrow, false, &g[1], NULL), WEFT_OK, "%s: %s",
                 s->config, weft_error_message());
    for (int i = 0; i < 2; i++) {
        nudge none = {0};
        const weft_value *param = weft_graph_params(g[i], &count);
        grad[i] = weft_alloc(count * (int64_t)sizeof **grad);
        weft_autodiff(g[i], weft_graph_find(g[i], "loss"), param, count, grad[i]);
        cr_assert_eq(weft_graph_verify(g[i]), WEFT_OK, "%s", weft_error_message());
        l[i] = lockstep_run(1, &g[i], nudged, &none);
        cr_assert_str_empty(l[i]->error, "%s", l[i]->error);
    }
    check_types(g[1], s->config + 16);
    for (int p = 0; p < count; p++) {
        cr_assert_eq(weft_value_ok(grad[0][p]), weft_value_ok(grad[1][p]));
        if (!weft_value_ok(grad[0][p]))
            continue;
        const weft_view *a = &l[0]->value[0][grad[0][p].id], *b = &l[1]->value[0][grad[1][p].id];
        cr_expect_eq(weft_value_get(g[1], grad[1][p])->dtype, WEFT_F32);
        for (int64_t e = 0; e < view_count(a); e++)
            cr_assert_eq(view_get(a, e), view_get(b, e), "%s: parameter %d", s->config + 16, p);
    }
    for (int i = 0; i < 2; i++) {
        lockstep_free(l[i]);
        weft_free(grad[i]);
        weft_graph_free(g[i]);
    }
}

Test(family, narrow_is_casts_alone)
{
    for (int i = 0; setup_at(i); i++)
        check_narrow(setup_at(i));
}

/* ---- chains of elementwise ops --------------------------------------------------------------- */

/* Chains of the mixed-precision graph are joined. Loss and gradients are bitwise identical to the
 * graph before the pass. Returns the number of joined nodes. */
static int check_joined(const setup *s)
{
    const weft_pass_setup narrow = {.bf16_compute = true};
    weft_graph *g[2] = {build_as(s, true)};
    lockstep *l[2];
    int count, outputs;
    cr_assert_eq(weft_passes_run(WEFT_PASS_WHOLE, &narrow, false, &g[0], NULL), WEFT_OK);
    const weft_value *param = weft_graph_params(g[0], &count);
    weft_value *grad = weft_alloc(count * (int64_t)sizeof *grad);
    weft_autodiff(g[0], weft_graph_find(g[0], "loss"), param, count, grad);
    for (int p = 0; p < count; p++) {
        char name[24];
        snprintf(name, sizeof name, "grad%d", p);
        if (weft_value_ok(grad[p]))
            weft_output(g[0], name, grad[p]);
    }
    cr_assert_eq(weft_pass_pointwise(g[0], 2, &g[1]), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_graph_verify(g[1]), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_rounding_check(g[0], g[1], "pointwise"), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < 2; i++) {
        nudge none = {0};
        l[i] = lockstep_run(1, &g[i], nudged, &none);
        cr_assert_str_empty(l[i]->error, "%s", l[i]->error);
    }
    const weft_named *was = weft_graph_outputs(g[0], &outputs),
                     *is = weft_graph_outputs(g[1], &outputs);
    for (int o = 0; o < outputs; o++) {
        const weft_view *a = &l[0]->value[0][was[o].value.id], *b = &l[1]->value[0][is[o].value.id];
        for (int64_t e = 0; e < view_count(a); e++)
            cr_assert_eq(view_get(a, e), view_get(b, e), "%s: %s", s->config + 16, was[o].name);
    }
    const int fewer = (int)(weft_graph_node_count(g[0]) - weft_graph_node_count(g[1]));
    for (int i = 0; i < 2; i++) {
        lockstep_free(l[i]);
        weft_graph_free(g[i]);
    }
    weft_free(grad);
    return fewer;
}

Test(family, joined_chains_keep_all_bits)
{
    int families_joined = 0;
    for (int i = 0; setup_at(i); i++)
        families_joined += check_joined(setup_at(i)) > 0;
    cr_expect_gt(families_joined, setup_count() / 2);
}
