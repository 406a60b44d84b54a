/* Shape letters: B batch, T/Y/X frames, rows, columns, C channels. */
#include "model/critics/lpips.h"

#include "base/config.h"
#include "graph/builder_helpers.h"
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

const char *const weft_lpips_trunk_names[] = {"vgg", "alex", NULL};

/* A convolution of a backbone and its ReLU. */
typedef struct conv_row {
    int index; /* "features.<index>" */
    int kernel, stride, pad;
    int pool;     /* window of the preceding max-pool with stride 2; 0: none */
    bool feature; /* the output of the ReLU is a feature */
} conv_row;

/* clang-format off */
static const conv_row vgg[] = {
    { 0, 3, 1, 1, 0, false}, { 2, 3, 1, 1, 0, true},
    { 5, 3, 1, 1, 2, false}, { 7, 3, 1, 1, 0, true},
    {10, 3, 1, 1, 2, false}, {12, 3, 1, 1, 0, false}, {14, 3, 1, 1, 0, true},
    {17, 3, 1, 1, 2, false}, {19, 3, 1, 1, 0, false}, {21, 3, 1, 1, 0, true},
    {24, 3, 1, 1, 2, false}, {26, 3, 1, 1, 0, false}, {28, 3, 1, 1, 0, true},
};
static const conv_row alex[] = {
    { 0, 11, 4, 2, 0, true},
    { 3,  5, 1, 2, 3, true},
    { 6,  3, 1, 1, 3, true},
    { 8,  3, 1, 1, 0, true},
    {10,  3, 1, 1, 0, true},
};
static const struct {
    const conv_row *row;
    int rows;
} trunks[] = {
    [WEFT_LPIPS_VGG] = {vgg, sizeof vgg / sizeof *vgg},
    [WEFT_LPIPS_ALEX] = {alex, sizeof alex / sizeof *alex},
};
/* clang-format on */

/* ---- files ---------------------------------------------------------------------------------- */

static const char remedy[] =
    "the trunk is torchvision's vgg16 or alexnet (vgg16-397923af.pth, alexnet-owt-7be5be79.pth), "
    "the heads are lpips' file of the same trunk (weights/v0.1/vgg.pth, alex.pth)";

static const weft_stored_tensor *find(const weft_tensors *file, const char *prefix, int index,
                                      const char *what)
{
    char name[256];
    snprintf(name, sizeof name, "%sfeatures.%d.%s", prefix, index, what);
    return weft_tensors_find(file, name);
}

/* "64 x 3 x 11 x 11" */
static const char *shape_of(const weft_stored_tensor *t, char text[96])
{
    int at = snprintf(text, 96, t->rank ? "" : "a scalar");
    for (int i = 0; i < t->rank && at < 80; i++)
        at += snprintf(text + at, (size_t)(96 - at), "%s%" PRId64, i ? " x " : "", t->dim[i]);
    return text;
}

static weft_status check_conv(const weft_tensors *file, const char *prefix, const conv_row *r,
                              int64_t in, int64_t *out)
{
    const char *path = weft_tensors_path(file);
    char text[96];
    static const char *const both[] = {"weight", "bias"};
    for (int i = 0; i < WEFT_COUNT(both); i++) {
        char full[320];
        snprintf(full, sizeof full, "%sfeatures.%d.%s", prefix, r->index, both[i]);
        if (!weft_tensors_find(file, full))
            return weft_error(WEFT_MSG_TENSOR_MISSING, WEFT_AT(.file = path, .key = full),
                              "the tensor is missing; %s", remedy);
    }
    const weft_stored_tensor *w = find(file, prefix, r->index, "weight"),
                             *b = find(file, prefix, r->index, "bias");
    if (w->rank != 4 || w->dim[0] < 1 || w->dim[1] != in || w->dim[2] != r->kernel ||
        w->dim[3] != r->kernel)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = path, .key = w->name),
                          "the shape is %s, not N x %" PRId64 " x %d x %d; %s", shape_of(w, text),
                          in, r->kernel, r->kernel, remedy);
    if (b->rank != 1 || b->dim[0] != w->dim[0])
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = path, .key = b->name),
                          "the shape is %s, not %" PRId64 "; %s", shape_of(b, text), w->dim[0],
                          remedy);
    *out = w->dim[0];
    return WEFT_OK;
}

weft_status weft_lpips_read(const weft_tensors *file, const char *prefix, weft_lpips *out)
{
    /* tensors that only one net has: the last of VGG16, the last of AlexNet */
    const bool is_vgg = find(file, prefix, 28, "weight") != NULL;
    weft_lpips c = {.trunk = is_vgg ? WEFT_LPIPS_VGG : WEFT_LPIPS_ALEX};
    for (int i = 0; i < trunks[c.trunk].rows; i++)
        WEFT_TRY(
            check_conv(file, prefix, &trunks[c.trunk].row[i], i ? c.width[i - 1] : 3, &c.width[i]));
    *out = c;
    return WEFT_OK;
}

static void head_name(int k, char name[64])
{
    snprintf(name, 64, "lin%d.model.1.weight", k);
}

/* Channels of feature `k`. */
static int64_t feature_width(const weft_lpips *c, int k)
{
    for (int i = 0; i < trunks[c->trunk].rows; i++)
        if (trunks[c->trunk].row[i].feature && k-- == 0)
            return c->width[i];
    return 0;
}

weft_status weft_lpips_check_heads(const weft_lpips *c, const weft_tensors *file,
                                   const char *prefix)
{
    const char *path = weft_tensors_path(file);
    for (int k = 0; k < WEFT_LPIPS_FEATURES; k++) {
        char name[64], full[320], text[96];
        head_name(k, name);
        snprintf(full, sizeof full, "%s%s", prefix, name);
        const weft_stored_tensor *t = weft_tensors_find(file, full);
        if (!t)
            return weft_error(WEFT_MSG_TENSOR_MISSING, WEFT_AT(.file = path, .key = full),
                              "the tensor is missing; %s", remedy);
        const int64_t width = feature_width(c, k);
        if (t->rank != 4 || t->dim[0] != 1 || t->dim[1] != width || t->count != width)
            return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = path, .key = full),
                              "the shape is %s, but the trunk (%s) has %" PRId64
                              " channels here; %s",
                              shape_of(t, text), weft_lpips_trunk_names[c->trunk], width, remedy);
    }
    return WEFT_OK;
}

int64_t weft_lpips_least(const weft_lpips *c)
{
    return c->trunk == WEFT_LPIPS_VGG ? 16 : 31; /* four halvings; 11 by 4, and two pools of 3 */
}

/* ---- the graph ------------------------------------------------------------------------------ */

typedef struct net {
    weft_nn_layer conv[WEFT_LPIPS_MAX_CONVS];
    weft_value lin[WEFT_LPIPS_FEATURES]; /* (1,C) */
} net;

static weft_value declare(weft_graph *g, const weft_lpips *c, const char *name, weft_shape shape,
                          weft_init init)
{
    return c->trained ? weft_param(g, name, WEFT_F32, shape, init)
                      : weft_buffer(g, name, WEFT_F32, shape, init);
}

/* Declares the parameters with He's initial values, which a run replaces by those of a file. */
static void declare_net(weft_graph *g, const weft_lpips *c, net *n)
{
    const weft_init zero = {.kind = WEFT_INIT_ZERO}, one = {.kind = WEFT_INIT_FILL, .value = 1};
    for (int i = 0; i < trunks[c->trunk].rows; i++) {
        const conv_row *r = &trunks[c->trunk].row[i];
        const int64_t in = i ? c->width[i - 1] : 3, k = r->kernel;
        const weft_init init = {.kind = WEFT_INIT_NORMAL,
                                .value = sqrt(2.0 / (double)(in * k * k))};
        weft_graph_push(g, "features.%d", r->index);
        const weft_value w = declare(g, c, "weight", WEFT_SHAPE(c->width[i], in, k, k), init);
        n->conv[i] =
            (weft_nn_layer){.weight = weft_reshape(g, w, WEFT_SHAPE(c->width[i], in, 1, k, k)),
                            .bias = declare(g, c, "bias", WEFT_SHAPE(c->width[i]), zero)};
        weft_graph_pop(g);
    }
    for (int k = 0; k < WEFT_LPIPS_FEATURES; k++) {
        const int64_t width = feature_width(c, k);
        char name[64];
        head_name(k, name);
        n->lin[k] = weft_reshape(g, declare(g, c, name, WEFT_SHAPE(1, width, 1, 1), one),
                                 WEFT_SHAPE(1, width));
    }
}

static weft_value relu(weft_graph *g, const weft_lpips *c, weft_value x)
{
    const weft_value y = weft_clamp(g, x, 0, INFINITY);
    if (c->kink == 0)
        return y;
    const weft_value as = weft_clamp(g, x, c->kink, INFINITY);
    return weft_add(g, weft_unary(g, WEFT_OP_STOP, y),
                    weft_sub(g, as, weft_unary(g, WEFT_OP_STOP, as)));
}

static weft_value larger(weft_graph *g, const weft_lpips *c, weft_value a, weft_value b)
{
    return weft_add(g, a, relu(g, c, weft_sub(g, b, a)));
}

/* Max-pool with stride 2 of (B,T,Y,X,C) along dim 2 (rows) or dim 3 (columns), `window` 2 or 3. An
 * incomplete window at the end is dropped.
 *
 *   rows    0 1 2 3 4 5 6        even  0 2 4 6
 *   window  ─────                odd   1 3 5 .      window 3: even, odd, and the next even one
 *               ─────
 *                   ───── */
static weft_value pool_along(weft_graph *g, const weft_lpips *of, weft_value x, int dim,
                             int64_t window)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4), n = dim == 2 ? y : w,
                  out = (n - window) / 2 + 1, pairs = out + window - 2;
    if (n < window)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "an image of %" PRId64 " x %" PRId64 " is too small to be pooled", y,
                               w);
    x = 2 * pairs > n ? weft_pad(g, x, dim, 0, 2 * pairs - n) : weft_slice(g, x, dim, 0, 2 * pairs);
    x = weft_reshape(
        g, x, dim == 2 ? WEFT_SHAPE(b, t, pairs, 2, w * c) : WEFT_SHAPE(b, t * y, pairs, 2, c));
    const weft_value even = weft_slice(g, x, 3, 0, 1), odd = weft_slice(g, x, 3, 1, 1);
    weft_value most = larger(g, of, weft_slice(g, even, 2, 0, out), weft_slice(g, odd, 2, 0, out));
    if (window == 3)
        most = larger(g, of, most, weft_slice(g, even, 2, 1, out));
    return weft_reshape(g, most,
                        dim == 2 ? WEFT_SHAPE(b, t, out, w, c) : WEFT_SHAPE(b, t, y, out, c));
}

/* f divided by its length over the channels. At length 0 the gradient is 0, because the derivative
 * of the square root is infinite there. */
static weft_value unit(weft_graph *g, weft_value f)
{
    const double tiny = 1e-30, eps = 1e-10;
    weft_value length = weft_sum(g, weft_unary(g, WEFT_OP_SQUARE, f), 1u << 4);
    length = weft_unary(g, WEFT_OP_SQRT, weft_clamp(g, length, tiny, INFINITY));
    return weft_div(g, f, weft_affine(g, length, 1, eps));
}

static void features(weft_graph *g, const weft_lpips *c, const net *n, weft_value x,
                     weft_value out[WEFT_LPIPS_FEATURES])
{
    static const float shift[3] = {-.030f, -.088f, -.188f}, scale[3] = {.458f, .448f, .450f};
    const weft_shape row = WEFT_SHAPE(1, 1, 1, 1, 3);
    int found = 0;
    x = weft_sub(g, x, weft_constant(g, WEFT_F32, row, shift));
    x = weft_div(g, x, weft_constant(g, WEFT_F32, row, scale));
    for (int i = 0; i < trunks[c->trunk].rows; i++) {
        const conv_row *r = &trunks[c->trunk].row[i];
        const weft_conv_shape shape = {.kernel = {1, r->kernel, r->kernel},
                                       .stride = {1, r->stride, r->stride},
                                       .before = {0, r->pad, r->pad},
                                       .after = {0, r->pad, r->pad}};
        weft_graph_push(g, "features.%d", r->index);
        if (r->pool)
            x = pool_along(g, c, pool_along(g, c, x, 2, r->pool), 3, r->pool);
        x = relu(g, c, weft_nn_conv_by(g, &n->conv[i], x, &shape));
        if (r->feature)
            out[found++] = unit(g, x);
        weft_graph_pop(g);
    }
}

void weft_lpips_build(weft_graph *g, const weft_lpips *c, weft_value x, weft_value y,
                      weft_lpips_distance *out)
{
    net n;
    weft_value fx[WEFT_LPIPS_FEATURES], fy[WEFT_LPIPS_FEATURES];
    const weft_attr_linear plain = {.act = WEFT_ACT_NONE};
    declare_net(g, c, &n);
    features(g, c, &n, x, fx);
    features(g, c, &n, y, fy);
    out->all = WEFT_NONE;
    for (int k = 0; k < WEFT_LPIPS_FEATURES; k++) {
        weft_graph_push(g, "lin%d", k);
        const weft_value apart = weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, fx[k], fy[k]));
        out->map[k] = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){apart, n.lin[k]}, 2, &plain);
        out->layer[k] = weft_mean(g, out->map[k], 1u << 2 | 1u << 3);
        out->all = k ? weft_add(g, out->all, out->layer[k]) : out->layer[k];
        weft_graph_pop(g);
    }
}
