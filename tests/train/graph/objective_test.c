/* The training objective and one AdamW step, compared with formulas that are written out here in
 * double precision: the weights of the autoencoder's losses, the KL divergence, and the parameters
 * to which weight decay applies. */
#include "../../model_of.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "train/step/train_step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char autoencoder[] =
    "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"dim_mult\":[1,1,1,1],\"z_dim\":4,"
    "\"num_res_blocks\":1}";
static const weft_bucket size = {.batch = 2, .frames = 5, .height = 16, .width = 16};
static const weft_exec_config place = {.backend = &weft_backend_cpu};

static weft_run_models models_of(bool denoises)
{
    weft_run_models models = {.autoencoder = model_of(autoencoder)};
    if (denoises) {
        models.denoiser =
            model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":2,"
                     "\"num_attention_heads\":2,\"attention_head_dim\":12,\"ffn_dim\":24,"
                     "\"freq_dim\":8,\"in_channels\":4,\"text_dim\":8}");
        models.text =
            captions_of(&models.denoiser, "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":8,"
                                          "\"num_heads\":2,\"num_layers\":1,\"ffn_dim\":16,"
                                          "\"max_length\":8}");
    }
    weft_run_models_connect(&models);
    return models;
}

static void fill_input(weft_tensor *t)
{
    for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
        switch (t->dtype) {
        case WEFT_F32: ((float *)t->data)[i] = (float)sin(0.37 * (double)i); break;
        case WEFT_I32: ((int32_t *)t->data)[i] = (int32_t)(i % 200); break;
        default: ((int64_t *)t->data)[i] = i + 1;
        }
}

static void fill_inputs(const weft_graph *g, weft_program *program)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op == WEFT_OP_INPUT)
            fill_input(weft_program_input(program, weft_value_get(g, node->out[0])->name));
    }
}

static void set(const weft_step *step, const char *name, double value)
{
    weft_tensor *t = weft_program_input(step->program, name);
    if (t)
        *(float *)t->data = (float)value;
}

/* Runs one step with rate `lr` on a new store, which the caller frees with `step`. */
static weft_store *run_step(const weft_run_loss *loss, bool denoises,
                            const weft_optimizer_config *optimizer, double lr, weft_step *step)
{
    const weft_run run = {.loss = *loss, .noise.flow = {.logit_std = 1, .shift = 3}};
    const weft_run_models models = models_of(denoises);
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_objective_build(g, &run, &models, &size);
    cr_assert_eq(weft_step_make(g, optimizer, &place, store, 7, step), WEFT_OK, "%s",
                 weft_error_message());
    fill_inputs(step->graph, step->program);
    set(step, "optimizer.lr", lr);
    set(step, "optimizer.step", 1);
    set(step, "optimizer.loss_limit", INFINITY);
    set(step, "optimizer.norm_limit", INFINITY);
    cr_assert_eq(weft_program_run(step->program), WEFT_OK, "%s", weft_error_message());
    return store;
}

/* ---- weight decay ---------------------------------------------------------------------------- */

static bool is_norm_or_bias(const char *name)
{
    const size_t length = strlen(name);
    return strstr(name, "norm") || (length > 5 && !strcmp(name + length - 5, ".bias"));
}

enum { NORMS_AND_BIASES, MATRICES, KINDS };

/* The parameters that weight decay of 0.25 at a rate of 0.5 has changed, in addition to the step
 * without weight decay, by kind; each has shrunk by an eighth of its initial value. */
static void count_decayed(bool decay_all, int64_t decayed[KINDS], int64_t all[KINDS])
{
    const double lr = 0.5, decay = 0.25;
    const weft_run_loss loss = {.l2 = 1};
    weft_optimizer_config with = {.beta1 = 0.9,
                                  .beta2 = 0.99,
                                  .eps = 1e-8,
                                  .weight_decay = decay,
                                  .clip_norm = 1,
                                  .decay_all = decay_all};
    weft_optimizer_config without = with;
    without.weight_decay = 0;
    weft_step step[3];
    weft_store *begun = run_step(&loss, true, &without, 0, &step[0]),
               *plain = run_step(&loss, true, &without, lr, &step[1]),
               *shrunk = run_step(&loss, true, &with, lr, &step[2]);
    for (int64_t i = 0; i < weft_store_count(begun); i++) {
        const weft_tensor *a = weft_store_at(begun, i);
        if (strstr(a->name, "adamw.") || a->dtype != WEFT_F32)
            continue;
        const float *was = a->data, *b = weft_store_find(plain, a->name)->data,
                    *c = weft_store_find(shrunk, a->name)->data;
        const int kind = is_norm_or_bias(a->name) ? NORMS_AND_BIASES : MATRICES;
        bool other = false;
        for (int64_t e = 0; e < weft_shape_count(&a->shape); e++) {
            other |= c[e] != b[e];
            cr_assert(c[e] == b[e] ||
                          fabs(c[e] - b[e] + lr * decay * was[e]) <= 1e-6 * (1 + fabs(was[e])),
                      "%s[%" PRId64 "]: from %g to %g without and %g with decay", a->name, e,
                      was[e], b[e], c[e]);
        }
        decayed[kind] += other;
        all[kind]++;
    }
    for (int i = 0; i < 3; i++)
        weft_step_free(&step[i]);
    weft_store_free(begun);
    weft_store_free(plain);
    weft_store_free(shrunk);
}

Test(objective, weight_decay_spares_norms_and_biases)
{
    int64_t decayed[KINDS] = {0}, all[KINDS] = {0};
    count_decayed(false, decayed, all);
    cr_expect_gt(all[NORMS_AND_BIASES], 10);
    cr_expect_eq(decayed[NORMS_AND_BIASES], 0, "%" PRId64 " of %" PRId64 " norms and biases decay",
                 decayed[NORMS_AND_BIASES], all[NORMS_AND_BIASES]);
    cr_expect_geq(decayed[MATRICES], all[MATRICES] - 2, "%" PRId64 " of %" PRId64 " matrices decay",
                  decayed[MATRICES], all[MATRICES]);
}

Test(objective, decay_all_includes_norms)
{
    int64_t decayed[KINDS] = {0}, all[KINDS] = {0};
    count_decayed(true, decayed, all);
    cr_expect_gt(decayed[NORMS_AND_BIASES], 2, "gains of norms begin at 1 and decay");
}

/* ---- the autoencoder's loss ------------------------------------------------------------------ */

/* The sum over a latent of KL(N(mean, var) || N(0, 1)), its mean over the batch. */
static double divergence_of(weft_store *store, const weft_run_models *models)
{
    const weft_model *model = &models->autoencoder;
    const weft_model_size pixels = {size.batch, size.frames, size.height, size.width, 0};
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_VIDEO] = weft_model_input(g, model, &pixels, WEFT_PORT_VIDEO, "batch.");
    weft_graph_push(g, "%s", model->family->scope);
    weft_model_call(g, model, (weft_call){WEFT_CALL_ENCODE, WEFT_STREAM_ALONE}, false, &p);
    weft_graph_pop(g);
    weft_output(g, "mean", p.at[WEFT_PORT_MEAN]);
    weft_output(g, "logvar", p.at[WEFT_PORT_LOGVAR]);
    weft_step step = {0};
    cr_assert_eq(weft_step_make(g, NULL, &place, store, 7, &step), WEFT_OK, "%s",
                 weft_error_message());
    fill_inputs(step.graph, step.program);
    cr_assert_eq(weft_program_run(step.program), WEFT_OK, "%s", weft_error_message());
    const weft_tensor *mean = weft_program_output(step.program, "mean"),
                      *logvar = weft_program_output(step.program, "logvar");
    double sum = 0;
    for (int64_t i = 0; i < weft_shape_count(&mean->shape); i++) {
        const double m = ((float *)mean->data)[i], l = ((float *)logvar->data)[i];
        sum += 0.5 * (m * m + exp(l) - 1 - l);
    }
    weft_step_free(&step);
    return sum / (double)size.batch;
}

Test(objective, autoencoder_loss_is_the_weighted_sum)
{
    const weft_run_loss weights[] = {{.l2 = 1}, {.l2 = 3, .kl = 0.5}, {.l2 = 1, .kl = 1e-6}};
    const weft_optimizer_config optimizer = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1};
    const weft_run_models models = models_of(false);
    for (int i = 0; i < 3; i++) {
        weft_step step;
        weft_store *store = run_step(&weights[i], false, &optimizer, 0, &step);
        const double loss = weft_step_scalar(&step, "loss"), mse = weft_step_scalar(&step, "mse"),
                     kl = weft_step_scalar(&step, "kl"), expected = divergence_of(store, &models);
        cr_expect(expected > 0 && mse > 0);
        cr_expect_float_eq(kl, expected, 1e-5 * expected, "kl %g, not %g", kl, expected);
        const double whole = weights[i].l2 * mse + weights[i].kl * expected;
        cr_expect_float_eq(loss, whole, 1e-5 * whole, "loss %g, not %g", loss, whole);
        weft_step_free(&step);
        weft_store_free(store);
    }
}

/* ---- a discriminator ------------------------------------------------------------------------- */

/* Values of the two parameters after a step with these decays, at rates of 0.5 and 0.25. */
static void step_apart(double decay, double decay_apart, float value[2])
{
    static const char *const names[] = {"net.w", WEFT_DISCRIMINATOR_SCOPE ".w"};
    const weft_optimizer_config config = {
        .beta1 = 0.9,
        .beta2 = 0.99,
        .eps = 1e-8,
        .weight_decay = decay,
        .clip_norm = 1,
        .discriminator = {
            .lr = 0.5, .beta1 = 0.5, .beta2 = 0.9, .weight_decay = decay_apart, .clip_norm = 1}};
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_value sum = WEFT_NONE;
    weft_step step;
    for (int i = 0; i < 2; i++) {
        const weft_value w = weft_param(g, names[i], WEFT_F32, WEFT_SHAPE(2, 2),
                                        (weft_init){.kind = WEFT_INIT_FILL, .value = 2}),
                         square = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, w));
        sum = i ? weft_add(g, sum, square) : square;
    }
    weft_output(g, "objective", sum);
    cr_assert_eq(weft_step_make(g, &config, &place, store, 7, &step), WEFT_OK, "%s",
                 weft_error_message());
    set(&step, "optimizer.lr", 0.5);
    set(&step, "optimizer.step", 1);
    set(&step, "optimizer.loss_limit", INFINITY);
    set(&step, "optimizer.norm_limit", INFINITY);
    set(&step, "optimizer.discriminator_step", 1);
    set(&step, "optimizer.discriminator_limit", INFINITY);
    cr_assert_eq(weft_program_run(step.program), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < 2; i++)
        value[i] = *(float *)weft_store_find(store, names[i])->data;
    weft_step_free(&step);
    weft_store_free(store);
}

Test(objective, a_discriminator_has_its_own_weight_decay)
{
    float none[2], own[2], apart[2];
    step_apart(0, 0, none);
    step_apart(0.25, 0, own);
    step_apart(0, 0.125, apart);
    cr_expect_float_eq(none[0] - own[0], 0.5 * 0.25 * 2, 1e-6);
    cr_expect_eq(none[1], own[1]);
    cr_expect_eq(none[0], apart[0]);
    cr_expect_float_eq(none[1] - apart[1], 0.25 * 0.125 * 2, 1e-6);
}
