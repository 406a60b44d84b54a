/* Rounding: the results of a training step are bitwise independent of the memory plan. Small models
 * of several families train two steps in bf16 (and in f32) on the backend `cpu`:
 *
 *   base       nothing is recomputed or offloaded, all passes are on
 *   passes     each pass that preserves rounding, switched off
 *   recompute  each op of the forward, each block, everything
 *   plans      activation plans as memory.limit makes them: recomputed, offloaded, both alternately
 *
 * Losses, gradient norms, parameters, moments and EMA of each are compared bitwise with those of
 * base. */
#include "../../model_of.h"
#include "base/rng.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "train/step/train_step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 2 };

#define GIVEN(port) ((uint64_t)1 << WEFT_PORT_##port)

typedef struct setup {
    const char *config;
    weft_model_size size;
} setup;

/* clang-format off */
static const setup families[] = {
    {"{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,\"attention_head_dim\":12,"
     "\"in_channels\":4,\"out_channels\":4,\"text_dim\":10,\"freq_dim\":16,\"ffn_dim\":40,"
     "\"num_layers\":2}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"CogVideoXTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":16,\"in_channels\":2,\"out_channels\":2,\"time_embed_dim\":6,"
     "\"text_embed_dim\":5,\"num_layers\":2,\"sample_width\":4,\"sample_height\":4,"
     "\"max_text_seq_length\":3}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"HunyuanVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"out_channels\":2,\"num_layers\":1,"
     "\"num_single_layers\":1,\"num_refiner_layers\":1,\"text_embed_dim\":5,"
     "\"pooled_projection_dim\":3,\"rope_axes_dim\":[2,2,2]}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"LTXVideoTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":8,\"in_channels\":2,\"out_channels\":2,\"num_layers\":2,"
     "\"caption_channels\":5}",
     {2, 2, 2, 4, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"LatteTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"num_layers\":2,\"sample_size\":4,"
     "\"caption_channels\":5}",
     {1, 2, 4, 4, 3}},
    {"{\"_class_name\":\"STDiT3\",\"hidden_size\":12,\"num_heads\":2,\"in_channels\":2,"
     "\"depth\":2,\"caption_channels\":5,\"input_sq_size\":32}",
     {1, 2, 4, 3, 5, .present_ports = GIVEN(TEXT_MASK) | GIVEN(FPS)}},
    {"{\"_class_name\":\"MochiTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"num_layers\":2,\"time_embed_dim\":4,"
     "\"text_embed_dim\":8,\"pooled_projection_dim\":5}",
     {2, 2, 4, 4, 5, .present_ports = GIVEN(TEXT_MASK)}},
    {"{\"_class_name\":\"FluxTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":8,\"out_channels\":4,\"num_layers\":1,"
     "\"num_single_layers\":1,\"joint_attention_dim\":5,\"pooled_projection_dim\":3,"
     "\"guidance_embeds\":true,\"axes_dims_rope\":[2,2,2]}",
     {2, 1, 4, 8, 4}},
    {"{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
     "\"ffn_dim\":22,\"num_layers\":2,\"patch_size\":[1,2,2],\"first_k_dense_replace\":1,"
     "\"num_activated_experts\":2,\"moe_intermediate_size\":9,\"n_shared_experts\":1,"
     "\"num_routed_experts\":5}",
     {2, 2, 4, 4, 3}},
    {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":2,\"decoder_base_dim\":3,\"z_dim\":2,"
     "\"dim_mult\":[2,2],\"num_res_blocks\":1,\"temperal_downsample\":[true]}",
     {2, 5, 8, 8, 0}},
    {"{\"_class_name\":\"AutoencoderKLHunyuanVideo\",\"block_out_channels\":[2,2,4],"
     "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1,"
     "\"spatial_compression_ratio\":2}",
     {2, 5, 4, 4, 0}},
};
/* clang-format on */

/* The model with the complete batch; the loss is the mean square of its first output. */
static weft_graph *whole_graph(const setup *s)
{
    const weft_model model = model_of(s->config);
    weft_graph *g = weft_graph_create();
    int count;
    weft_model_build(g, &model, &s->size, true);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    const weft_value made = weft_graph_outputs(g, &count)[0].value;
    weft_output(g, "objective",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_affine(g, made, 1, -0.3))));
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

/* ---- one run ------------------------------------------------------------------------------- */

typedef struct result {
    weft_store *store;
    double loss[STEPS], norm[STEPS];
} result;

static double value_of(const char *name, weft_dtype dtype, int64_t index)
{
    uint64_t seed = 77;
    for (const char *c = name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    if (strstr(name, "mask"))
        return 1;
    const double normal = weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)index);
    return strstr(name, "time")       ? 500 + 300 * tanh(normal)
           : dtype == WEFT_F32        ? normal
           : strstr(name, "guidance") ? 4
                                      : floor(fabs(normal) * 3);
}

static void fill(const weft_step *step, int64_t i)
{
    static const struct {
        const char *name;
        float value;
    } scalar[] = {
        {"optimizer.lr", 1e-3f}, {"optimizer.loss_limit", 1e30f}, {"optimizer.norm_limit", 1e30f}};
    for (int32_t n = 0; n < weft_graph_node_count(step->graph); n++) {
        const weft_node *node = weft_graph_node(step->graph, n);
        const weft_value_info *info = weft_value_get(step->graph, node->out[0]);
        if (node->op != WEFT_OP_INPUT || !strncmp(info->name, "optimizer.", 10))
            continue;
        weft_tensor *to = weft_program_input(step->program, info->name);
        for (int64_t e = 0; e < weft_shape_count(&to->shape); e++) {
            const double v = value_of(info->name, to->dtype, e + 100000 * i);
            if (to->dtype == WEFT_F32)
                ((float *)to->data)[e] = (float)v;
            else if (to->dtype == WEFT_I64)
                ((int64_t *)to->data)[e] = (int64_t)v;
            else
                ((int32_t *)to->data)[e] = (int32_t)v;
        }
    }
    for (int k = 0; k < WEFT_COUNT(scalar); k++)
        *(float *)weft_program_input(step->program, scalar[k].name)->data = scalar[k].value;
    *(float *)weft_program_input(step->program, "optimizer.step")->data = (float)(i + 1);
}

static const weft_optimizer_config adamw = {.beta1 = 0.9,
                                            .beta2 = 0.99,
                                            .eps = 1e-3,
                                            .weight_decay = 0.01,
                                            .clip_norm = 0.5,
                                            .ema_decay = 0.9};

static result train(const setup *s, const weft_exec_config *place)
{
    result r = {.store = weft_store_create()};
    weft_step step;
    if (place->offload_states) {
        int count;
        const char *const *away = weft_step_offloaded_states(&count);
        weft_store_set_offload(r.store, away, count, place->offload_dir);
    }
    cr_assert_eq(weft_step_make(whole_graph(s), &adamw, place, r.store, 7, &step), WEFT_OK,
                 "%.60s: %s", s->config, weft_error_message());
    cr_assert_eq(weft_step_begin_averages(r.store), WEFT_OK);
    for (int64_t i = 0; i < STEPS; i++) {
        fill(&step, i);
        cr_assert_eq(weft_program_run(step.program), WEFT_OK, "%s", weft_error_message());
        r.loss[i] = weft_step_scalar(&step, "loss");
        r.norm[i] = weft_step_scalar(&step, "grad_norm");
        cr_expect(isfinite(r.loss[i]) && r.norm[i] > 0, "%.60s: loss %g, norm %g", s->config,
                  r.loss[i], r.norm[i]);
    }
    weft_step_free(&step);
    return r;
}

/* Tensors whose bits differ; states that are offloaded show in the parameters they change. */
static int differing(weft_store *a, weft_store *b, const char **first)
{
    int count = 0;
    for (int64_t t = 0; t < weft_store_count(a); t++) {
        const weft_tensor *x = weft_store_at(a, t), *y = weft_store_find(b, x->name);
        const int64_t bytes = weft_shape_count(&x->shape) * weft_dtype_bytes(x->dtype);
        cr_assert(y, "%s", x->name);
        if (!x->data || !y->data || !memcmp(x->data, y->data, (size_t)bytes))
            continue;
        *first = count++ ? *first : x->name;
    }
    return count;
}

static void compare(const setup *s, const result *base, const weft_exec_config *place,
                    const char *what)
{
    const char *first = "";
    const result r = train(s, place);
    for (int i = 0; i < STEPS; i++)
        cr_expect(r.loss[i] == base->loss[i] && r.norm[i] == base->norm[i],
                  "%.40s, %s, %s, step %d: loss %.9g and norm %.9g, not %.9g and %.9g",
                  s->config + 16, place->bf16_compute ? "bf16" : "f32", what, i, r.loss[i],
                  r.norm[i], base->loss[i], base->norm[i]);
    const int count = differing(base->store, r.store, &first);
    cr_expect(count == 0, "%.40s, %s, %s: %d tensors differ, the first is %s", s->config + 16,
              place->bf16_compute ? "bf16" : "f32", what, count, first);
    weft_store_free(r.store);
}

/* ---- variants ------------------------------------------------------------------------------ */

/* The op whose recomputation lets most of the other passes do more: activations of autoencoders
 * follow convolutions. */
static const char *recomputed(const setup *s)
{
    return strstr(s->config, "Autoencoder") ? "conv3d" : "linear";
}

static void switch_passes(const setup *s, const result *base, const weft_exec_config *place)
{
    const char *const pattern[] = {recomputed(s)};
    for (int k = 0; k < weft_pass_section.key_count; k++) {
        weft_pass_switches switches = weft_pass_defaults;
        weft_exec_config own = *place;
        char text[40], what[80];
        snprintf(text, sizeof text, "%s=off", weft_pass_section.keys[k].name);
        snprintf(what, sizeof what, "%s, recompute=[%s]", text, pattern[0]);
        cr_assert_eq(weft_pass_switch(&switches, text), WEFT_OK);
        if (weft_pass_rounding_of(weft_pass_section.keys[k].name) != WEFT_ROUNDING_PRESERVED)
            continue;
        own.passes = &switches;
        own.recompute = pattern;
        own.recompute_count = 1;
        compare(s, base, &own, what);
    }
}

static void recompute_each(const setup *s, const result *base, const weft_exec_config *place)
{
    weft_graph *g = whole_graph(s);
    bool seen[WEFT_OP_COUNT] = {false};
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_op op = weft_graph_node(g, n)->op;
        const char *name = weft_op_get(op)->name;
        weft_exec_config own = *place;
        if (seen[op] || weft_op_has(op, WEFT_TRAIT_GIVEN))
            continue;
        seen[op] = true;
        own.recompute = &name;
        own.recompute_count = 1;
        compare(s, base, &own, name);
    }
    weft_graph_free(g);
}

typedef struct plan {
    weft_activation_plan fates;
    int kind; /* 0: all recomputed, 1: all offloaded, 2: alternately */
} plan;

static int by_key(const void *a, const void *b)
{
    const struct weft_activation_policy_row *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static weft_status make_plan(void *user, const weft_graph *g)
{
    plan *p = user;
    weft_saved_activation *kept;
    int32_t count;
    WEFT_TRY(weft_saved_activations_find(g, &kept, &count));
    p->fates.row = weft_alloc((count + 1) * (int64_t)sizeof *p->fates.row);
    for (int32_t n = 0; n < count; n++) {
        const weft_activation_policy again = kept[n].stays ? WEFT_ACTIVATION_OFFLOAD
                                                           : WEFT_ACTIVATION_RECOMPUTE,
                                     fate = p->kind == 1   ? WEFT_ACTIVATION_OFFLOAD
                                            : p->kind == 0 ? again
                                            : n % 2        ? again
                                                           : WEFT_ACTIVATION_OFFLOAD;
        if (kept[n].key && kept[n].bytes && (p->kind < 2 || n % 3))
            p->fates.row[p->fates.count++] = (struct weft_activation_policy_row){kept[n].key, fate};
    }
    qsort(p->fates.row, (size_t)p->fates.count, sizeof *p->fates.row, by_key);
    weft_free(kept);
    return WEFT_OK;
}

static void vary_plans(const setup *s, const result *base, const weft_exec_config *place)
{
    static const char *const names[] = {"all recomputed", "all offloaded", "both by turns"};
    for (int kind = 0; kind < 3; kind++) {
        plan p = {.kind = kind};
        weft_exec_config look = *place, own = *place;
        weft_step step;
        look.inspect = make_plan;
        look.inspect_user = &p;
        cr_assert_eq(weft_step_plan(whole_graph(s), &adamw, &look, &step), WEFT_OK, "%s",
                     weft_error_message());
        weft_step_free(&step);
        own.activations = &p.fates;
        own.offload_states = kind == 2;
        own.prefetch_bytes = kind == 2 ? 4096 : 0;
        compare(s, base, &own, names[kind]);
        weft_free(p.fates.row);
    }
}

static void vary_all(const setup *s, bool narrow)
{
    const weft_exec_config place = {.backend = &weft_backend_cpu, .bf16_compute = narrow};
    omp_set_num_threads(1); /* kernels are bitwise identical with any number */
    const result base = train(s, &place);
    if (narrow) {
        compare(s, &base, &place, "twice");
        switch_passes(s, &base, &place);
    }
    recompute_each(s, &base, &place);
    vary_plans(s, &base, &place);
    weft_store_free(base.store);
}

#define FAMILY(name, index)                                                                        \
    Test(rounding, name)                                                                           \
    {                                                                                              \
        vary_all(&families[index], true);                                                          \
        vary_all(&families[index], false);                                                         \
    }

FAMILY(wan, 0)
FAMILY(cogvideox, 1)
FAMILY(hunyuan_video, 2)
FAMILY(ltx, 3)
FAMILY(latte, 4)
FAMILY(stdit3, 5)
FAMILY(mochi, 6)
FAMILY(flux, 7)
FAMILY(experts, 8)
FAMILY(wan_vae, 9)
FAMILY(hunyuan_video_vae, 10)
