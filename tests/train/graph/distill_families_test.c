/* The first step of step distillation and preference tuning of every family with flow matching, in
 * full and with LoRA, has a known loss. Models with a control have no preferences. The losses:
 * - preferences: log 2, because the model is its reference;
 * - distribution matching without guidance: 0, because both scores are the teacher. With guidance it
 *   is not 0;
 * - LoRA: the loss of the full training, because its matrices begin with 0.
 * A mixture of experts adds its load-balancing loss, which is subtracted here.
 * tests/train/graph/distillation_test.c compares the steps with PyTorch. */
#include "../../denoisers_of.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "exec/execute.h"
#include "exec/store/tensor_copy.h"
#include "kernel/cpu/table.h"
#include "model/registry.h"
#include "train/step/train_step.h"

#include <math.h>
#include <stdio.h>

/* Families that are not in denoisers_of, and models with a control. */
static const example others[] = {
    {"{\"_class_name\":\"UViT\",\"img_size\":4,\"patch_size\":2,\"in_chans\":2,"
     "\"embed_dim\":12,\"depth\":2,\"num_heads\":2,\"clip_dim\":5,\"num_clip_token\":4}",
     {2, 1, 4, 4, 4},
     0,
     0,
     false},
    {"{\"_class_name\":\"HiDreamImageTransformer2DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"num_layers\":1,\"num_single_layers\":1,"
     "\"caption_channels\":[5,3],\"text_emb_dim\":3,\"num_routed_experts\":2,"
     "\"num_activated_experts\":1,\"axes_dims_rope\":[2,2,2],\"max_resolution\":[8,8],"
     "\"llama_layers\":[0,1]}",
     {2, 1, 4, 4, 4},
     0,
     0,
     false},
    {"{\"_class_name\":\"ChronoEditTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1}",
     {2, 2, 4, 4, 3},
     0,
     0,
     false},
    {"{\"_class_name\":\"SkyReelsV2Transformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1}",
     {2, 2, 4, 4, 3},
     0,
     0,
     false},
    {"{\"_class_name\":\"CausalWanTransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1,\"num_frames_per_block\":1}",
     {2, 2, 4, 4, 3},
     0,
     0,
     false},
    {"{\"_class_name\":\"SparseUMMDiT\",\"num_heads\":2,\"head_dim\":16,\"in_channels\":2,"
     "\"out_channels\":2,\"num_layers\":[2,2,2],\"sparse_n\":[1,2,1],"
     "\"timestep_embed_dim\":4,\"caption_channels\":5,\"pooled_projection_dim\":3}",
     {2, 2, 4, 6, 4},
     0,
     0,
     false},
    {"{\"_class_name\":\"WanVACETransformer3DModel\",\"num_attention_heads\":2,"
     "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":2,\"vace_layers\":[0],\"vace_in_channels\":68}",
     {2, 2, 4, 4, 3},
     0,
     0,
     false},
    /* the control on channels, and the control branch of Cosmos Transfer 2.5 */
    {"{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,\"attention_head_dim\":"
     "6,"
     "\"in_channels\":4,\"out_channels\":2,\"text_dim\":5,\"freq_dim\":4,\"ffn_dim\":10,"
     "\"num_layers\":1}",
     {2, 2, 4, 4, 3},
     0,
     0,
     false},
    {"{\"_class_name\":\"CosmosTransformer3DModel\",\"in_channels\":3,\"out_channels\":2,"
     "\"num_layers\":1,\"controlnet_block_every_n\":1,\"num_attention_heads\":2,"
     "\"attention_head_dim\":12,\"mlp_ratio\":2.0,\"text_embed_dim\":5,\"adaln_lora_dim\":3,"
     "\"extra_pos_embed_type\":null,\"controlnet\":{\"n_controlnet_blocks\":1,\"in_channels\":6,"
     "\"latent_channels\":4,\"model_channels\":24,\"num_attention_heads\":2,"
     "\"attention_head_dim\":12,\"mlp_ratio\":2.0,\"text_embed_dim\":5,\"adaln_lora_dim\":3,"
     "\"extra_pos_embed_type\":null}}",
     {2, 2, 4, 4, 3},
     0,
     0,
     false},
};

/* Denoisers without a first loss here: not of flow matching, or with other inputs. */
static const char *const elsewhere[] = {
    "LTX2VideoTransformer3DModel", /* its sound: distillation_test.c has both streams */
    "HunyuanDiT2DModel",           /* it predicts noise, and training gives no image sizes */
    "UNet2DConditionModel",        /* it predicts noise */
};

enum { CHOICES = 7 };
static const struct choice {
    const char *name;
    int method;
    double guidance;
    bool lora;
} choices[CHOICES] = {{"preferences", WEFT_DISTILL_NONE, 1, false},
                      {"preferences with LoRA", WEFT_DISTILL_NONE, 1, true},
                      {"lcm", WEFT_DISTILL_LCM, 3, false},
                      {"lcm with LoRA", WEFT_DISTILL_LCM, 3, true},
                      {"dmd2", WEFT_DISTILL_DMD2, 3, false},
                      {"dmd2 with LoRA", WEFT_DISTILL_DMD2, 3, true},
                      {"dmd2 without guidance", WEFT_DISTILL_DMD2, 1, false}};

/* Whether the model is trained with condition: control. */
static bool is_controlled(const weft_model *model)
{
    const weft_grid grid = weft_model_grid(model);
    return weft_model_takes(model, WEFT_PORT_CONTROL) ||
           (model->family == weft_family_find("WanTransformer3DModel") &&
            grid.channels == 2 * grid.out_channels);
}

static weft_run run_of(const struct choice *c, bool controlled)
{
    static const char *target[] = {"all-linear"};
    weft_run run = {.noise = weft_noise_process_defaults, .guidance = 1};
    run.optimizer = (weft_optimizer_config){
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_norm = 1, .fake = {1, 0.9, 0.99, 0.01, 1}};
    run.distill = (weft_distill_config){.method = c->method,
                                        .guidance = c->guidance,
                                        .solver_steps = 50,
                                        .huber_c = 0.001,
                                        .student_steps = 4,
                                        .interval = 5,
                                        .teacher = "",
                                        .fake_weights = ""};
    if (!c->method)
        run.preference = (weft_preference_config){"given", 100};
    run.transformer.class_name = run.transformer.weights = "given";
    run.identity.class_name = run.identity.weights = "";
    run.control.background = "";
    if (controlled)
        run.condition = WEFT_CONDITION_CONTROL;
    if (c->lora)
        run.transformer.lora =
            (weft_run_lora){.rank = 2, .alpha = 2, .targets = {WEFT_COUNT(target), target}};
    return run;
}

/* ---- inputs and parameters ------------------------------------------------------------------ */

static uint64_t key_of(const char *name)
{
    uint64_t key = 1;
    for (const char *at = name; *at; at++)
        key = weft_seed_mix(key, (uint64_t)*at);
    return key;
}

/* A value from -0.5 to 0.5 of an element. */
static float value_of(uint64_t key, int64_t i)
{
    return (float)((double)(weft_seed_mix(key, (uint64_t)i) >> 40) / (1 << 24) - 0.5);
}

/* Parameters of one name have equal values in every network. lora_B is 0. */
static void begin(weft_store *store)
{
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *t = weft_store_at(store, i);
        const char *rest = strchr(t->name, '.');
        if (!rest || !strncmp(t->name, "adamw.", 6) || !strncmp(t->name, "grad.", 5))
            continue;
        const bool up = strstr(rest, "lora_B") != NULL;
        const uint64_t key = key_of(rest);
        for (int64_t k = 0; k < weft_shape_count(&t->shape); k++)
            ((float *)t->data)[k] = up ? 0 : value_of(key, k);
    }
}

/* Inputs that are not of a text. */
static bool is_other(weft_port port)
{
    return port == WEFT_PORT_LATENTS || port == WEFT_PORT_TIMESTEP || port == WEFT_PORT_GUIDANCE ||
           port == WEFT_PORT_CONTROL || port == WEFT_PORT_FACE || port == WEFT_PORT_IMAGE;
}

/* Random latents and texts, masks of ones, and a key for each sample. */
static void fill(const weft_step *step)
{
    for (int32_t n = 0; n < weft_graph_node_count(step->graph); n++) {
        const weft_node *node = weft_graph_node(step->graph, n);
        const weft_value_info *v = weft_value_get(step->graph, node->out[0]);
        weft_tensor *t =
            node->op == WEFT_OP_INPUT ? weft_program_input(step->program, v->name) : NULL;
        const uint64_t key = t ? key_of(v->name) : 0;
        for (int64_t k = 0; t && k < weft_shape_count(&t->shape); k++)
            if (t->dtype == WEFT_F32)
                ((float *)t->data)[k] = 4 * value_of(key, k);
            else if (t->dtype == WEFT_I64)
                ((int64_t *)t->data)[k] = k + 1;
            else
                ((int32_t *)t->data)[k] = 1;
    }
}

static void set(const weft_step *step, const char *name, double value)
{
    weft_tensor *t = weft_program_input(step->program, name);
    if (t)
        *(float *)t->data = (float)value;
}

/* ---- one step ------------------------------------------------------------------------------- */

/* The denoiser with its inputs of text, without their encoders. */
static weft_run_models models_of(const example *e, const struct choice *c)
{
    char vae[200];
    weft_run_models m = {
        .denoiser = model_of(e->config), .partly_trained = c->lora, .text_precomputed = true};
    const weft_family *f = m.denoiser.family;
    snprintf(vae, sizeof vae,
             "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"dim_mult\":[1,1,1,1],"
             "\"z_dim\":%d,\"num_res_blocks\":1}",
             (int)weft_model_denoised(&m.denoiser));
    m.autoencoder = model_of(vae);
    for (int i = 0; i < f->ports; i++) {
        const weft_port port = f->port[i].port;
        if (is_other(port) || f->port[i].output || !weft_model_takes(&m.denoiser, port) ||
            f->port[i].optional)
            continue;
        const int64_t rows = port == WEFT_PORT_TEXT2 ? e->size.text2 : e->size.text;
        const weft_shape shape = weft_model_shape(&m.denoiser, &e->size, port);
        const int64_t layers = port == WEFT_PORT_TEXT_LAYERS ? shape.dim[0] : 0;
        m.text.entry[m.text.entries++] =
            (weft_conditioning_entry){.port = port,
                                      .rows = layers ? layers * rows : rows,
                                      .width = shape.dim[shape.rank - 1],
                                      .layers = layers};
    }
    weft_run_models_connect(&m);
    return m;
}

static double first_loss(const example *e, const struct choice *c)
{
    const weft_run_models models = models_of(e, c);
    const weft_run run = run_of(c, is_controlled(&models.denoiser));
    const weft_bucket size = {.batch = e->size.batch,
                              .frames = 1 + 4 * (e->size.frames - 1),
                              .height = 8 * e->size.height,
                              .width = 8 * e->size.width};
    weft_store *store = weft_store_create();
    weft_step step = {0};
    weft_graph *g;
    weft_exec_config place = {.backend = &weft_backend_cpu,
                              .recipes = models.recipe,
                              .recipe_count = models.recipes,
                              .kind = WEFT_STEP_WHOLE};
    cr_assert_eq(weft_mesh_parse("", &place.mesh), WEFT_OK);
    cr_assert_eq(weft_objective_make(&run, &models, &size, &g), WEFT_OK, "%s, %s: %s", e->config,
                 c->name, weft_error_message());
    cr_assert_eq(weft_step_make(g, &run.optimizer, &place, store, 7, &step), WEFT_OK, "%s, %s: %s",
                 e->config, c->name, weft_error_message());
    begin(store);
    fill(&step);
    set(&step, "optimizer.lr", 1e-3);
    set(&step, "optimizer.step", 1);
    set(&step, "optimizer.fake_step", 1);
    set(&step, "optimizer.generator", 1);
    set(&step, "optimizer.loss_limit", INFINITY);
    set(&step, "optimizer.norm_limit", INFINITY);
    set(&step, "optimizer.weight", 1);
    cr_assert_eq(weft_program_run(step.program), WEFT_OK, "%s", weft_error_message());
    const double norm = weft_step_scalar(&step, "grad_norm"),
                 balance = weft_step_scalar(&step, "balance"), /* of a mixture of experts */
        loss = weft_step_scalar(&step, "loss") - (balance > 0 ? balance : 0);
    const bool moves = balance > 0 || c->method != WEFT_DISTILL_DMD2 || c->guidance != 1;
    cr_expect(isfinite(norm) && (norm > 0) == moves, "%s, %s: the gradient norm is %g", e->config,
              c->name, norm);
    weft_program_unbind(step.program);
    weft_step_free(&step);
    weft_store_free(store);
    return loss;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

static void expect_losses(const example *e)
{
    const weft_model model = model_of(e->config);
    const int from = is_controlled(&model) ? 2 : 0; /* preferences have no control */
    double loss[CHOICES];
    for (int i = from; i < CHOICES; i++)
        loss[i] = first_loss(e, &choices[i]);
    for (int i = from; i < 2; i++)
        cr_expect(near(loss[i], log(2)), "%s, %s: the loss is %.9g", e->config, choices[i].name,
                  loss[i]);
    for (int i = 2; i < 6; i += 2)
        cr_expect(near(loss[i + 1], loss[i]), "%s, %s: the loss is %.9g, and in full %.9g",
                  e->config, choices[i].name, loss[i + 1], loss[i]);
    cr_expect(fabs(loss[6]) < 1e-8, "%s: the loss of equal scores is %g", e->config, loss[6]);
    cr_expect(loss[2] > 0 && loss[4] > 0, "%s: guidance has no effect", e->config);
}

static bool is_class(const example *e, const char *name)
{
    const weft_model model = model_of(e->config);
    return !strcmp(model.family->class_name, name);
}

static bool has_losses(const char *name)
{
    bool has = false;
    for (int i = 0; i < DENOISERS_OF && !has; i++)
        has = is_class(&denoisers_of[i], name);
    for (int i = 0; i < WEFT_COUNT(others) && !has; i++)
        has = is_class(&others[i], name);
    for (int i = 0; i < WEFT_COUNT(elsewhere) && !has; i++)
        has = !strcmp(elsewhere[i], name);
    return has;
}

Test(distill_families, first_losses_are_known)
{
    for (int i = 0; i < DENOISERS_OF; i++)
        if (!is_class(&denoisers_of[i], "WanVACETransformer3DModel")) /* without a mask */
            expect_losses(&denoisers_of[i]);
    for (int i = 0; i < WEFT_COUNT(others); i++)
        expect_losses(&others[i]);
}

Test(distill_families, every_denoiser_of_the_registry_is_covered)
{
    for (int i = 0; weft_families[i]; i++)
        cr_expect(weft_families[i]->role != WEFT_ROLE_DENOISER ||
                      has_losses(weft_families[i]->class_name),
                  "%s has no first loss", weft_families[i]->class_name);
}
