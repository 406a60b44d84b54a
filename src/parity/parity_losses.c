/* weft parity of perceptual and adversarial losses. */
#include "parity/parity_losses.h"

#include "base/config.h"
#include "graph/builder_helpers.h"
#include "model/critics/lpips.h"
#include "model/critics/patchgan.h"
#include "parity/parity.h"
#include "parity/parity_model.h"
#include "train/graph/adversarial_term.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- LPIPS ---------------------------------------------------------------------------------- */

/* Returns element `i` of tensor `k` of the weights that the file defines by a formula, in [-1,
 * 1). */
static double drawn(uint64_t k, uint64_t i)
{
    uint64_t x = (k << 32) + i + 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 40) / 8388608.0 - 1;
}

static const char by_formula[] = "weights_from_formula";

static weft_status fill_lpips(weft_parity *p)
{
    const json_t *order = json_object_get(json_object_get(p->json, by_formula), "order");
    if ((int64_t)json_array_size(order) != weft_store_count(p->store))
        return weft_error(
            WEFT_MSG_FORMAT_DAMAGED,
            WEFT_AT(.file = p->config_file, .key = by_formula, WEFT_NUMBER(json_array_size(order))),
            "\"order\" has %zu tensors, but the network has %" PRId64, json_array_size(order),
            weft_store_count(p->store));
    for (size_t k = 0; k < json_array_size(order); k++) {
        const char *name = json_string_value(json_array_get(order, k));
        weft_tensor *t = name ? weft_store_find(p->store, name) : NULL;
        if (!t)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = p->config_file, .key = by_formula, .value = name),
                              "the network has no parameter \"%s\"", name ? name : "?");
        const int64_t count = weft_shape_count(&t->shape);
        const bool head = !strncmp(name, "lin", 3);
        const double fan = (double)(count / t->shape.dim[0]),
                     deviation = t->shape.rank == 1 ? 0.1 : sqrt(2 / fan);
        float *to = t->data;
        for (int64_t i = 0; i < count; i++) {
            const double u = drawn(k, (uint64_t)i);
            to[i] = (float)(head ? fabs(u) : u * sqrt(3.0) * deviation);
        }
    }
    return WEFT_OK;
}

static weft_status open_lpips(weft_parity *p, weft_lpips *c)
{
    static const weft_lpips real[] = {
        [WEFT_LPIPS_VGG] = {WEFT_LPIPS_VGG,
                            {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512},
                            true},
        [WEFT_LPIPS_ALEX] = {WEFT_LPIPS_ALEX, {64, 192, 384, 256, 256}, true},
    };
    const char *net;
    int trunk = 0;
    WEFT_TRY(weft_json_get_string(p->json, "net", p->config_file, &net));
    while (weft_lpips_trunk_names[trunk] && strcmp(weft_lpips_trunk_names[trunk], net))
        trunk++;
    if (!weft_lpips_trunk_names[trunk])
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = p->config_file, .key = "net", .value = net),
                          "unknown network '%.80s'; use vgg or alex", net);
    if (json_object_get(p->json, by_formula)) {
        *c = real[trunk];
        p->fill = fill_lpips;
        return WEFT_OK;
    }
    WEFT_TRY(weft_lpips_read(p->golden, "param.", c));
    c->trained = true;
    return (int)c->trunk == trunk
               ? WEFT_OK
               : weft_error(WEFT_MSG_FORMAT_DAMAGED,
                            WEFT_AT(.file = p->file, .key = "net", .value = net),
                            "the parameters are those of %s, but the config has %s",
                            weft_lpips_trunk_names[c->trunk], net);
}

/* Returns the interpolation position of index `i` of `to` in `from` (corners not aligned), and sets
 * `at` to its two neighbours. */
static double source_position(int64_t i, int64_t from, int64_t to, int64_t at[2])
{
    const double x = fmax(((double)i + 0.5) * (double)from / (double)to - 0.5, 0);
    at[0] = (int64_t)x < from - 1 ? (int64_t)x : from - 1;
    at[1] = at[0] + 1 < from ? at[0] + 1 : from - 1;
    return x - (double)at[0];
}

static void add_enlarged(const weft_tensor *map, int64_t y, int64_t x, float *to)
{
    const int64_t count = map->shape.dim[0] * map->shape.dim[1], rows = map->shape.dim[2],
                  columns = map->shape.dim[3];
    for (int64_t n = 0; n < count; n++)
        for (int64_t i = 0; i < y; i++)
            for (int64_t k = 0; k < x; k++) {
                int64_t r[2], c[2];
                const double fr = source_position(i, rows, y, r),
                             fc = source_position(k, columns, x, c);
                const float *m = (const float *)map->data + n * rows * columns;
                const double top = (1 - fc) * (double)m[r[0] * columns + c[0]] +
                                   fc * (double)m[r[0] * columns + c[1]],
                             bottom = (1 - fc) * (double)m[r[1] * columns + c[0]] +
                                      fc * (double)m[r[1] * columns + c[1]];
                to[(n * y + i) * x + k] += (float)((1 - fr) * top + fr * bottom);
            }
}

static void layer_name(int k, const char *what, char name[32])
{
    snprintf(name, 32, "%s%d", what, k);
}

/* Compares distances per position: the sum of the enlarged maps of the layers. */
static weft_status compare_spatial(weft_parity *p, double *worst)
{
    const weft_stored_tensor *t = weft_tensors_find(p->golden, "out.spatial");
    if (!t)
        return WEFT_OK;
    const int64_t y = t->rank == 4 ? t->dim[2] : 0, x = t->rank == 4 ? t->dim[3] : 0;
    float *actual = weft_alloc(t->count * 4), *expected = weft_alloc(t->count * 4);
    weft_status_code status = WEFT_OK;
    if (!actual || !expected)
        WEFT_GO(weft_no_memory("%s", p->file));
    for (int k = 0; k < WEFT_LPIPS_FEATURES; k++) {
        char name[32];
        layer_name(k, "map", name);
        const weft_tensor *map = weft_program_output(p->program, name);
        if (map->shape.dim[0] * map->shape.dim[1] * y * x != t->count)
            WEFT_GO(
                weft_error(WEFT_MSG_TENSOR_SHAPE,
                           WEFT_AT(.file = p->file, .key = "out.spatial", WEFT_NUMBER(t->count)),
                           "%" PRId64 " elements do not match the size of the images", t->count));
        else
            add_enlarged(map, y, x, actual);
    }
    weft_tensor_to_f32(t, expected);
    weft_parity_judge(p, "output", "spatial", actual, expected, t->count,
                      weft_parity_norm(expected, t->count), p->output_tolerance, worst);
out:
    weft_free(actual);
    weft_free(expected);
    return status;
}

static weft_status try_lpips(weft_parity *p, const weft_lpips *c, double worst[2])
{
    weft_lpips_distance d;
    WEFT_TRY(weft_parity_open_graph(p));
    weft_graph *g = p->graph;
    weft_value in[2] = {weft_parity_input(p, "in.in0"), weft_parity_input(p, "in.in1")};
    for (int i = 0; i < 2 && json_is_true(json_object_get(p->json, "normalize")); i++)
        in[i] = weft_affine(g, in[i], 2, -1);
    weft_lpips_build(g, c, in[0], in[1], &d);
    const weft_value loss = weft_mean_all(g, d.all);
    weft_output(g, "distance", d.all);
    weft_output(g, "loss", loss);
    for (int k = 0; k < WEFT_LPIPS_FEATURES; k++) {
        char name[32];
        layer_name(k, "layer", name);
        weft_output(g, name, d.layer[k]);
        layer_name(k, "map", name);
        weft_output(g, name, d.map[k]);
    }
    weft_parity_output_slopes(p, loss);
    return weft_parity_run(p, (const char *const[]){"out.spatial", NULL}, worst);
}

/* Compares the gradients `before` on one side of the kinks; NULL: all, and the other outputs.
 * p->missed gets the gradients that fail, except on the last side. */
static weft_status try_kink(weft_parity *p, const weft_lpips *c, const json_t *before, bool last,
                            double worst[2])
{
    p->missed = last ? NULL : json_object();
    WEFT_TRY(WEFT_ALLOCATED(last || p->missed, "%s", p->file));
    WEFT_TRY(try_lpips(p, c, worst));
    if (!before)
        return compare_spatial(p, &worst[0]);
    if (!last && json_object_size(p->missed) < json_object_size(before))
        weft_parity_say(
            p, "  %d gradients are those of ReLUs within %.0e of their kink on its other side",
            (int)(json_object_size(before) - json_object_size(p->missed)), fabs(c->kink));
    return WEFT_OK;
}

/* Compares gradients at both sides of ReLU kinks. In a deep net a unit may be so near the kink that
 * the reference's rounding selects the side. The gradient of either side is correct. Gradients over
 * the tolerance are compared again with the near units on the other side. Gradients that fail on
 * both sides are judged at kink 0. */
static weft_status try_kinks(weft_parity *p, weft_lpips c, double worst[2])
{
    static const double kinks[] = {0, -3e-7, 3e-7, -1e-6, 1e-6, 0};
    json_t *before = NULL;
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < WEFT_COUNT(kinks); i++) {
        if (i && json_object_size(before) == 0)
            break;
        c.kink = kinks[i];
        p->only = before;
        status = try_kink(p, &c, before, i == WEFT_COUNT(kinks) - 1, worst);
        json_decref(before);
        before = p->missed;
        WEFT_GO(status);
    }
out:
    json_decref(before);
    p->only = p->missed = NULL;
    return status;
}

static weft_status compare_lpips(weft_parity *p)
{
    weft_lpips c;
    double worst[2] = {0, 0};
    WEFT_TRY(open_lpips(p, &c));
    WEFT_TRY(try_kinks(p, c, worst));
    weft_parity_measured_both(p, worst);
    return WEFT_OK;
}

static bool is_lpips(const json_t *json)
{
    return weft_parity_is_class(json, "LPIPS");
}

const weft_parity_kind weft_parity_lpips = {"lpips", is_lpips, compare_lpips};

/* ---- PatchGAN ------------------------------------------------------------------------------- */

static weft_status read_patchgan(const weft_parity *p, const json_t *json, bool video,
                                 weft_patchgan *c)
{
    *c = (weft_patchgan){.video = video, .running = true};
    WEFT_TRY(weft_json_get_i64_or(json, "input_nc", p->config_file, 3, &c->in));
    WEFT_TRY(weft_json_get_i64_or(json, "ndf", p->config_file, 64, &c->channels));
    WEFT_TRY(weft_json_get_i64_or(json, "n_layers", p->config_file, 3, &c->layers));
    if (c->in < 1 || c->channels < 1 || c->channels > 65536 || c->layers < 1 ||
        c->layers > WEFT_PATCHGAN_MAX_LAYERS)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file),
                          "a discriminator cannot have %" PRId64
                          " input channels (input_nc), %" PRId64 " "
                          "channels (ndf) and %" PRId64 " layers (n_layers, at most %d)",
                          c->in, c->channels, c->layers, WEFT_PATCHGAN_MAX_LAYERS);
    return WEFT_OK;
}

/* Updates the running statistics of a call: momentum 0.1, variance with n - 1. */
static void run_on(weft_graph *g, const weft_patchgan_net *net, const weft_patchgan_statistics *s,
                   weft_value mean[], weft_value variance[])
{
    const double momentum = 0.1;
    for (int i = 0; i < net->convs; i++) {
        if (!weft_value_ok(s->mean[i]))
            continue;
        const double n = (double)s->count[i], unbiased = n > 1 ? n / (n - 1) : 1;
        const weft_shape flat = weft_value_get(g, mean[i])->shape;
        mean[i] = weft_add(g, weft_affine(g, mean[i], 1 - momentum, 0),
                           weft_affine(g, weft_reshape(g, s->mean[i], flat), momentum, 0));
        variance[i] =
            weft_add(g, weft_affine(g, variance[i], 1 - momentum, 0),
                     weft_affine(g, weft_reshape(g, s->variance[i], flat), momentum * unbiased, 0));
    }
}

/* Compares a statistic, or a counter, which has increased by two. */
static weft_status compare_statistic(weft_parity *p, const weft_stored_tensor *t, double *worst)
{
    const weft_tensor *actual = weft_program_output(p->program, t->name);
    const weft_stored_tensor *before;
    float *expected, counted = 0;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(expected, t->count, "%s", p->file));
    weft_tensor_to_f32(t, expected);
    if (!actual && t->count == 1) {
        char name[256];
        snprintf(name, sizeof name, "param.%s", t->name + 6);
        WEFT_GO(weft_parity_need(p, name, &before));
        if (before->count == 1)
            weft_tensor_to_f32(before, &counted);
        counted += 2;
    }
    const float *at = actual ? actual->data : &counted;
    if (t->count != (actual ? weft_shape_count(&actual->shape) : 1))
        WEFT_GO(weft_error(
            WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = t->name, WEFT_NUMBER(t->count)),
            "%" PRId64 " elements do not match a statistic of the network", t->count));
    weft_parity_judge(p, "after", t->name + 6, at, expected, t->count,
                      weft_parity_norm(expected, t->count), p->output_tolerance, worst);
out:
    weft_free(expected);
    return status;
}

/* Compares the file's after.*, and its counters, which have increased by two. */
static weft_status compare_after(weft_parity *p, double *worst)
{
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const weft_stored_tensor *t = weft_tensors_at(p->golden, i);
        if (strncmp(t->name, "after.", 6) == 0)
            WEFT_TRY(compare_statistic(p, t, worst));
    }
    return WEFT_OK;
}

/* A mean of logits of both signs may be near 0, so the error scales with the size of the logits. */
static weft_status compare_generator_loss(weft_parity *p, double *worst)
{
    const weft_stored_tensor *t = weft_tensors_find(p->golden, "out.generator_loss");
    const weft_tensor *logits = weft_program_output(p->program, "logits_fake");
    const int64_t count = weft_shape_count(&logits->shape);
    const float *actual = weft_program_output(p->program, "generator_loss")->data;
    double size = 0;
    float expected;
    if (!t)
        return WEFT_OK;
    if (t->count != 1)
        return weft_error(
            WEFT_MSG_TENSOR_SHAPE,
            WEFT_AT(.file = p->file, .key = "out.generator_loss", WEFT_NUMBER(t->count)),
            "the tensor has %" PRId64 " elements, not one", t->count);
    weft_tensor_to_f32(t, &expected);
    for (int64_t i = 0; i < count; i++)
        size += fabs((double)((const float *)logits->data)[i]) / (double)count;
    weft_parity_judge(p, "output", "generator_loss", actual, &expected, 1, size,
                      p->output_tolerance, worst);
    return WEFT_OK;
}

static weft_status read_gan_loss(const weft_parity *p, weft_gan_loss *kind)
{
    const char *name;
    int i = 0;
    WEFT_TRY(weft_json_get_string_or(p->json, "disc_loss", p->config_file, "hinge", &name));
    while (weft_gan_loss_names[i] && strcmp(weft_gan_loss_names[i], name))
        i++;
    *kind = (weft_gan_loss)i;
    return weft_gan_loss_names[i]
               ? WEFT_OK
               : weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                            WEFT_AT(.file = p->config_file, .key = "disc_loss", .value = name),
                            "unknown loss '%.80s'; use hinge or vanilla", name);
}

static weft_status compare_patchgan(weft_parity *p)
{
    weft_patchgan c;
    weft_patchgan_net net;
    weft_patchgan_statistics of_real, of_made;
    weft_gan_loss kind;
    double worst[2] = {0, 0};
    WEFT_TRY(weft_parity_open_graph(p));
    WEFT_TRY(read_patchgan(p, p->json, weft_parity_is_class(p->json, "Patch3d"), &c));
    WEFT_TRY(read_gan_loss(p, &kind));
    weft_graph *g = p->graph;
    const weft_value real = weft_parity_input(p, "in.real"), made = weft_parity_input(p, "in.fake");
    weft_patchgan_declare(g, &c, &net);
    const weft_value of[2] = {weft_patchgan_call(g, &c, &net, real, &of_real),
                              weft_patchgan_call(g, &c, &net, made, &of_made)};
    weft_output(g, "logits_real", of[0]);
    weft_output(g, "logits_fake", of[1]);
    weft_output(g, "eval_real", weft_patchgan_judge(g, &c, &net, real));
    weft_output(g, "generator_loss", weft_gan_generator_loss(g, of[1]));
    const weft_value loss = weft_gan_discriminator_loss(g, kind, of[0], of[1]);
    weft_output(g, "loss", loss);
    weft_value mean[WEFT_PATCHGAN_MAX_LAYERS + 2], variance[WEFT_PATCHGAN_MAX_LAYERS + 2];
    memcpy(mean, net.mean, sizeof mean);
    memcpy(variance, net.variance, sizeof variance);
    WEFT_TRY(weft_graph_check(g));
    run_on(g, &net, &of_real, mean, variance);
    run_on(g, &net, &of_made, mean, variance);
    for (int i = 0; i < net.convs; i++) {
        char name[32], full[64];
        if (!weft_value_ok(mean[i]))
            continue;
        weft_patchgan_name(i, true, name);
        snprintf(full, sizeof full, "after.%s.running_mean", name);
        weft_output(g, full, mean[i]);
        snprintf(full, sizeof full, "after.%s.running_var", name);
        weft_output(g, full, variance[i]);
    }
    weft_parity_output_slopes(p, loss);
    WEFT_TRY(weft_parity_run(p, (const char *const[]){"out.generator_loss", NULL}, worst));
    WEFT_TRY(compare_generator_loss(p, &worst[0]));
    WEFT_TRY(compare_after(p, &worst[0]));
    weft_parity_measured_both(p, worst);
    return WEFT_OK;
}

static bool is_patchgan(const json_t *json)
{
    return weft_parity_is_class(json, "Patch2d") || weft_parity_is_class(json, "Patch3d");
}

const weft_parity_kind weft_parity_patchgan = {"patchgan", is_patchgan, compare_patchgan};

/* ---- both losses with an autoencoder -------------------------------------------------------- */

typedef struct vaegan {
    weft_lpips lpips;
    weft_patchgan disc;
    weft_gan_loss kind;
    double perceptual, adversarial, kl;
    bool squared;
} vaegan;

static weft_status read_vaegan(const weft_parity *p, vaegan *c)
{
    const char *where = p->config_file, *rec;
    const weft_stored_tensor *sample;
    WEFT_TRY(weft_parity_need(p, "in.sample", &sample));
    WEFT_TRY(weft_lpips_read(p->golden, "param.lpips.", &c->lpips));
    WEFT_TRY(weft_lpips_check_heads(&c->lpips, p->golden, "param.lpips."));
    const weft_stored_tensor *first = weft_tensors_find(p->golden, "param.disc.main.0.weight");
    WEFT_TRY(
        read_patchgan(p, json_object_get(p->json, "disc"), first && first->rank == 5, &c->disc));
    WEFT_TRY(read_gan_loss(p, &c->kind));
    WEFT_TRY(weft_json_get_f64_or(p->json, "perceptual_weight", where, 1, &c->perceptual));
    WEFT_TRY(weft_json_get_f64_or(p->json, "disc_weight", where, 1, &c->adversarial));
    WEFT_TRY(weft_json_get_f64_or(p->json, "kl_weight", where, 1, &c->kl));
    WEFT_TRY(weft_json_get_string_or(p->json, "rec", where, "l1", &rec));
    c->squared = !strcmp(rec, "l2") || !strcmp(rec, "mse") || !strcmp(rec, "squared");
    if (!c->squared && strcmp(rec, "l1"))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "rec", .value = rec),
                          "unknown loss '%.80s'; use l1 or l2", rec);
    return WEFT_OK;
}

static weft_value per_sample(weft_graph *g, weft_value x, int64_t batch)
{
    return weft_affine(g, weft_sum_all(g, x), 1.0 / (double)batch, 0);
}

/* Builds sum((|x - made| or its square, plus weighted distance) / exp(logvar) + logvar) / B. */
static weft_value likelihood(weft_graph *g, const vaegan *c, weft_value x, weft_value made,
                             weft_value distance, weft_value logvar)
{
    const weft_value e = weft_sub(g, x, made);
    weft_value rec =
        c->squared ? weft_unary(g, WEFT_OP_SQUARE, e)
                   : weft_sub(g, weft_clamp(g, e, 0, INFINITY), weft_clamp(g, e, -INFINITY, 0));
    rec = weft_add(g, rec, weft_affine(g, distance, c->perceptual, 0));
    const weft_value wide = weft_reshape(g, logvar, WEFT_SHAPE(1, 1, 1, 1, 1));
    rec = weft_div(g, rec, weft_unary(g, WEFT_OP_EXP, wide));
    return per_sample(g, weft_add(g, rec, wide), weft_dim(g, x, 0));
}

static weft_value divergence(weft_graph *g, weft_value mean, weft_value logvar)
{
    weft_value kl =
        weft_add(g, weft_unary(g, WEFT_OP_SQUARE, mean), weft_unary(g, WEFT_OP_EXP, logvar));
    kl = weft_sub(g, weft_affine(g, kl, 1, -1), logvar);
    return weft_affine(g, per_sample(g, kl, weft_dim(g, mean, 0)), 0.5, 0);
}

/* Builds the last layer, 3 x 3 (with 3 frames if its weight has them). */
static weft_value last_layer(weft_parity *p, weft_value x, weft_value *weight)
{
    weft_graph *g = p->graph;
    const weft_stored_tensor *t = weft_tensors_find(p->golden, "param.last_layer.weight");
    if (!t || (t->rank != 4 && t->rank != 5))
        return weft_graph_fail(g, WEFT_MSG_FORMAT_DAMAGED,
                               "%s: \"param.last_layer.weight\" is not a kernel", p->file);
    const bool deep = t->rank == 5;
    const int64_t *k = t->dim + t->rank - 2, frames = deep ? t->dim[2] : 1;
    const weft_shape own = deep ? WEFT_SHAPE(t->dim[0], t->dim[1], frames, k[0], k[1])
                                : WEFT_SHAPE(t->dim[0], t->dim[1], k[0], k[1]);
    const weft_init none = {.kind = WEFT_INIT_ZERO};
    const weft_conv_shape same = {.kernel = {frames, k[0], k[1]},
                                  .stride = {1, 1, 1},
                                  .before = {frames / 2, k[0] / 2, k[1] / 2},
                                  .after = {frames / 2, k[0] / 2, k[1] / 2}};
    weft_graph_push(g, "last_layer");
    *weight = weft_param(g, "weight", WEFT_F32, own, none);
    const weft_nn_layer layer = {
        .weight = weft_reshape(g, *weight, WEFT_SHAPE(t->dim[0], t->dim[1], frames, k[0], k[1])),
        .bias = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(t->dim[0]), none)};
    x = weft_nn_conv_by(g, &layer, x, &same);
    weft_graph_pop(g);
    return x;
}

static void build_vaegan(weft_parity *p, const vaegan *c)
{
    weft_graph *g = p->graph;
    const weft_value x = weft_parity_input(p, "in.sample"), mean = weft_parity_input(p, "in.mean"),
                     spread = weft_parity_input(p, "in.logvar");
    weft_value last;
    const weft_value made = last_layer(p, weft_parity_input(p, "in.features"), &last),
                     seen = weft_unary(g, WEFT_OP_STOP, made),
                     logvar = weft_param(g, "logvar", WEFT_F32, WEFT_SHAPE(1),
                                         (weft_init){.kind = WEFT_INIT_ZERO});
    weft_lpips_distance d;
    weft_patchgan_net net;
    weft_adversarial_term pull;
    weft_graph_push(g, "lpips");
    weft_lpips_build(g, &c->lpips, x, seen, &d);
    weft_graph_pop(g);
    weft_graph_push(g, "disc");
    weft_patchgan_declare(g, &c->disc, &net);
    const weft_value real = weft_patchgan_call(g, &c->disc, &net, x, NULL),
                     logits = weft_patchgan_call(g, &c->disc, &net, seen, NULL);
    weft_graph_pop(g);
    const weft_value nll = likelihood(g, c, x, seen, d.all, logvar),
                     kl = divergence(g, mean, spread), against = weft_gan_generator_loss(g, logits),
                     judged = weft_gan_discriminator_loss(g, c->kind, real, logits),
                     base = weft_add(g, nll, weft_affine(g, kl, c->kl, 0));
    weft_adversarial_term_build(g, made, seen, nll, against, last,
                                weft_fill(g, WEFT_F32, WEFT_SCALAR, c->adversarial), &pull);
    if (weft_graph_check(g) != WEFT_OK)
        return;
    weft_value parts[8] = {nll,
                           kl,
                           against,
                           pull.weight,
                           weft_add(g, base, weft_mul(g, pull.weight, against)),
                           judged,
                           pull.norm[0],
                           pull.norm[1]};
    for (int i = 0; i < 8; i++)
        parts[i] = weft_reshape(g, parts[i], WEFT_SHAPE(1));
    weft_output(g, "loss", weft_concat(g, parts, 8, 0));
    weft_output(g, "perceptual", d.all);
    weft_output(g, "reconstruction", made);
    weft_parity_output_slopes(p, weft_add(g, weft_add(g, base, pull.pull), judged));
}

static weft_status compare_vaegan(weft_parity *p)
{
    vaegan c = {0};
    double worst[2] = {0, 0};
    WEFT_TRY(weft_parity_open_graph(p));
    WEFT_TRY(read_vaegan(p, &c));
    build_vaegan(p, &c);
    WEFT_TRY(weft_parity_run(p, NULL, worst));
    weft_parity_measured_both(p, worst);
    return WEFT_OK;
}

static bool is_vaegan(const json_t *json)
{
    return weft_parity_is_class(json, "LPIPSWithDiscriminator step");
}

const weft_parity_kind weft_parity_vaegan = {"vaegan", is_vaegan, compare_vaegan};
