/* The network, in channels last:
 *
 *   frames (1,T,27,48,3) --stack--> (1,T,13,24,4F) --stack--> (1,T,6,12,8F) --> (1,T,3,6,16F)
 *     stack:  block, relu, block; relu of that, plus the first block's; means of 2 x 2
 *     block:  in each of four branches 3x3 in space, then 3 in time, 1, 2, 4 or 8 frames apart;
 *             batch norm of all
 *   means of the stacks' frames --linear, unit length--> products with frames around --linear-->
 *   histograms of colours, unit length ----------------> products with frames around --linear-->
 *   both and the last stack's places --linear, relu--> two logits of each frame */
#include "curate/shots/transnet.h"

#include "exec/execute.h"
#include "exec/program.h"
#include "format/tensors/tensors_finite.h"
#include "graph/builder_helpers.h"
#include "kernel/host.h"
#include "kernel/kernel.h"
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BINS = 512, DILATIONS = 4, MAX_STACKS = 8 };

struct weft_transnet {
    weft_transnet_config config;
    weft_transnet_listener listener;
    void *user;
    weft_graph *graph;
    weft_store *store;
    weft_program *program;
    const float *logits[2];
    /* [WEFT_TRANSNET_WINDOW] frames, `held` valid; the next frame to report is `reported` */
    uint8_t *frame;
    int64_t held, frames, reported;
    float histogram[BINS];
};

/* ---- the graph ------------------------------------------------------------------------------ */

static weft_value weight_of(weft_graph *g, const char *name, weft_shape shape)
{
    return weft_param(g, name, WEFT_F32, shape, (weft_init){.kind = WEFT_INIT_ZERO});
}

static weft_value relu(weft_graph *g, weft_value x)
{
    return weft_clamp(g, x, 0, INFINITY);
}

/* Convolution 3x3 in space, then 3 in time with frames `apart` from each other. The convolution in
 * time is a linear layer over the concatenated channels of the three frames. */
static weft_value branch(weft_graph *g, weft_value x, int64_t filters, int64_t apart)
{
    const weft_attr_conv conv = {
        .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}, .kernel = {1, 3, 3}};
    const int64_t in = weft_dim(g, x, 4), wide = 2 * filters, frames = weft_dim(g, x, 1);
    weft_value tap[3];
    weft_graph_push(g, "Conv3D_%d.layers", (int)apart);
    const weft_value space = weight_of(g, "0.weight", WEFT_SHAPE(wide, in, 1, 3, 3));
    x = weft_emit(g, WEFT_OP_CONV3D, (weft_value[]){x, space}, 2, &conv);
    x = weft_pad(g, x, 1, apart, apart);
    for (int i = 0; i < 3; i++)
        tap[i] = weft_slice(g, x, 1, i * apart, frames);
    weft_value time = weight_of(g, "1.weight", WEFT_SHAPE(filters, wide, 3, 1, 1));
    time = weft_permute(g, weft_reshape(g, time, WEFT_SHAPE(filters, wide, 3)), (int[]){0, 2, 1});
    time = weft_reshape(g, time, WEFT_SHAPE(filters, 3 * wide));
    const weft_value parts[2] = {weft_concat(g, tap, 3, 4), time};
    x = weft_emit(g, WEFT_OP_LINEAR, parts, 2, &(weft_attr_linear){WEFT_ACT_NONE});
    weft_graph_pop(g);
    return x;
}

/* Batch normalisation with the means and variances of training. */
static weft_value batch_norm(weft_graph *g, weft_value x)
{
    const weft_shape shape = WEFT_SHAPE(weft_dim(g, x, 4));
    weft_graph_push(g, "bn");
    const weft_value mean = weight_of(g, "running_mean", shape),
                     variance = weight_of(g, "running_var", shape),
                     weight = weight_of(g, "weight", shape), bias = weight_of(g, "bias", shape);
    weft_graph_pop(g);
    const weft_value scale =
        weft_mul(g, weight, weft_unary(g, WEFT_OP_RSQRT, weft_affine(g, variance, 1, 1e-3)));
    return weft_add(g, weft_mul(g, x, scale), weft_sub(g, bias, weft_mul(g, mean, scale)));
}

static weft_value block(weft_graph *g, weft_value x, int64_t filters)
{
    weft_value part[DILATIONS];
    for (int i = 0; i < DILATIONS; i++)
        part[i] = branch(g, x, filters, (int64_t)1 << i);
    return batch_norm(g, weft_concat(g, part, DILATIONS, 4));
}

/* Means of 2 x 2 pixels; an odd last row or column is dropped. */
static weft_value halve(weft_graph *g, weft_value x)
{
    const int64_t t = weft_dim(g, x, 1), y = weft_dim(g, x, 2) / 2, w = weft_dim(g, x, 3) / 2,
                  c = weft_dim(g, x, 4);
    x = weft_slice(g, weft_slice(g, x, 2, 0, 2 * y), 3, 0, 2 * w);
    x = weft_reshape(g, x, WEFT_SHAPE(t, y, 2, w, 2, c));
    x = weft_affine(g, weft_sum(g, x, 1u << 2 | 1u << 4), 0.25, 0);
    return weft_reshape(g, x, WEFT_SHAPE(1, t, y, w, c));
}

static weft_value stack(weft_graph *g, const weft_transnet_config *c, int index, weft_value x)
{
    weft_value first = WEFT_NONE;
    for (int i = 0; i < c->blocks; i++) {
        weft_graph_push(g, "SDDCNN.%d.DDCNN.%d", index, i);
        x = block(g, x, c->filters << index);
        weft_graph_pop(g);
        if (i + 1 < c->blocks)
            x = relu(g, x);
        if (i == 0)
            first = x;
    }
    return halve(g, weft_add(g, relu(g, x), first));
}

static weft_value unit_length(weft_graph *g, weft_value x)
{
    const weft_value squares = weft_sum(g, weft_unary(g, WEFT_OP_SQUARE, x), 1u << 2);
    return weft_mul(g, x, weft_unary(g, WEFT_OP_RSQRT, weft_clamp(g, squares, 1e-24, INFINITY)));
}

/* x (1,T,C) of unit length -> (1,T,output): products with the frames around, 0 outside of the
 * window. Rows of T + 2 half products, read as rows of one more, begin where a frame's own do. */
static weft_value around(weft_graph *g, const weft_transnet_config *c, const char *name,
                         weft_value x)
{
    const int64_t frames = weft_dim(g, x, 1), half = (c->lookup - 1) / 2, row = frames + 2 * half;
    weft_value all = weft_pad(g, weft_matmul(g, x, x, false, true), 2, half, half);
    all = weft_pad(g, weft_reshape(g, all, WEFT_SHAPE(frames * row)), 0, 0, frames);
    all = weft_reshape(g, all, WEFT_SHAPE(1, frames, row + 1));
    all = weft_slice(g, all, 2, 0, c->lookup);
    return relu(g, weft_nn_linear(g, name, all, c->output, WEFT_LINEAR_XAVIER));
}

static void build(weft_graph *g, const weft_transnet_config *c)
{
    const int64_t frames = WEFT_TRANSNET_WINDOW;
    weft_value x = weft_input(g, "frames", WEFT_F32,
                              WEFT_SHAPE(1, frames, WEFT_TRANSNET_HEIGHT, WEFT_TRANSNET_WIDTH, 3));
    weft_value colours = weft_input(g, "histograms", WEFT_F32, WEFT_SHAPE(1, frames, BINS));
    weft_value mean[MAX_STACKS];
    for (int i = 0; i < c->stacks; i++) {
        x = stack(g, c, i, x);
        const double positions = (double)(weft_dim(g, x, 2) * weft_dim(g, x, 3));
        mean[i] = weft_affine(g, weft_sum(g, x, 1u << 2 | 1u << 3), 1 / positions, 0);
        mean[i] = weft_reshape(g, mean[i], WEFT_SHAPE(1, frames, weft_dim(g, x, 4)));
    }
    weft_value part[3];
    part[0] = around(g, c, "color_hist_layer.fc", unit_length(g, colours));
    weft_value seen = weft_concat(g, mean, (int)c->stacks, 2);
    seen = weft_nn_linear(g, "frame_sim_layer.projection", seen, c->similarity, WEFT_LINEAR_XAVIER);
    part[1] = around(g, c, "frame_sim_layer.fc", unit_length(g, seen));
    const int64_t positions = weft_dim(g, x, 2) * weft_dim(g, x, 3) * weft_dim(g, x, 4);
    part[2] = weft_reshape(g, x, WEFT_SHAPE(1, frames, positions));
    x = relu(g, weft_nn_linear(g, "fc1", weft_concat(g, part, 3, 2), c->dense, WEFT_LINEAR_XAVIER));
    weft_output(g, "single", weft_nn_linear(g, "cls_layer1", x, 1, WEFT_LINEAR_XAVIER));
    weft_output(g, "many", weft_nn_linear(g, "cls_layer2", x, 1, WEFT_LINEAR_XAVIER));
}

/* ---- weights -------------------------------------------------------------------------------- */

static const weft_stored_tensor *find(const weft_tensors *weights, const char *prefix,
                                      const char *name)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return weft_tensors_find(weights, full);
}

static weft_status not_these(const weft_tensors *weights, const char *name, const char *what)
{
    return weft_error(WEFT_MSG_TENSOR_MISSING,
                      WEFT_AT(.file = weft_tensors_path(weights), .key = name),
                      "the tensor is %s, so these are not the weights of TransNetV2. Give the "
                      "state of its PyTorch model (.pth or safetensors).",
                      what);
}

/* Dim 0 or 1 of a tensor; 0: no such tensor. */
static int64_t dim_of(const weft_tensors *weights, const char *prefix, const char *name, int dim)
{
    const weft_stored_tensor *t = find(weights, prefix, name);
    return t && t->rank > dim ? t->dim[dim] : 0;
}

static weft_status read_sizes(const weft_tensors *weights, const char *prefix,
                              weft_transnet_config *c)
{
    char name[100];
    const char *const marker = "SDDCNN.0.DDCNN.0.Conv3D_1.layers.1.weight";
    *c = (weft_transnet_config){
        .filters = dim_of(weights, prefix, marker, 0),
        .dense = dim_of(weights, prefix, "fc1.weight", 0),
        .lookup = dim_of(weights, prefix, "color_hist_layer.fc.weight", 1),
        .output = dim_of(weights, prefix, "color_hist_layer.fc.weight", 0),
        .similarity = dim_of(weights, prefix, "frame_sim_layer.projection.weight", 0)};
    for (;; c->stacks++) {
        snprintf(name, sizeof name, "SDDCNN.%d.DDCNN.0.Conv3D_1.layers.1.weight", (int)c->stacks);
        if (!find(weights, prefix, name))
            break;
    }
    for (;; c->blocks++) {
        snprintf(name, sizeof name, "SDDCNN.0.DDCNN.%d.Conv3D_1.layers.1.weight", (int)c->blocks);
        if (!find(weights, prefix, name))
            break;
    }
    if (!c->filters)
        return not_these(weights, marker, "missing");
    if (!c->dense || !c->output || !c->similarity)
        return not_these(weights, "fc1, color_hist_layer or frame_sim_layer", "missing");
    if (c->lookup % 2 == 0 || c->lookup > 2 * WEFT_TRANSNET_WINDOW || c->stacks > 4)
        return not_these(weights, "color_hist_layer.fc.weight", "of sizes that it cannot have");
    return WEFT_OK;
}

static weft_status take_weights(weft_transnet *t, const weft_tensors *weights, const char *prefix)
{
    for (int64_t i = 0; i < weft_store_count(t->store); i++) {
        weft_tensor *to = weft_store_at(t->store, i);
        const weft_stored_tensor *from = find(weights, prefix, to->name);
        if (!from)
            return not_these(weights, to->name, "missing");
        bool same = from->rank == to->shape.rank;
        for (int d = 0; same && d < from->rank; d++)
            same = from->dim[d] == to->shape.dim[d];
        if (!same)
            return not_these(weights, to->name, "of another shape");
        WEFT_TRY(weft_stored_check_finite(from));
        weft_tensor_to_f32(from, to->data);
    }
    return WEFT_OK;
}

static weft_status set_up(weft_transnet *t, const weft_tensors *weights, const char *prefix,
                          const weft_backend *backend)
{
    WEFT_TRY(read_sizes(weights, prefix, &t->config));
    t->graph = weft_graph_create();
    t->store = weft_store_create();
    t->frame = weft_alloc(WEFT_TRANSNET_WINDOW * (int64_t)WEFT_TRANSNET_BYTES);
    WEFT_TRY(WEFT_ALLOCATED(t->graph && t->store && t->frame, "the shot detector"));
    build(t->graph, &t->config);
    WEFT_TRY(weft_graph_check(t->graph));
    weft_store_defer_draws(t->store);
    WEFT_TRY(weft_store_init(t->store, t->graph, 0));
    WEFT_TRY(take_weights(t, weights, prefix));
    WEFT_TRY(
        weft_program_compile(t->graph, &(weft_program_options){.backend = backend}, &t->program));
    WEFT_TRY(weft_program_bind(t->program, t->store, NULL));
    t->logits[0] = weft_program_output(t->program, "single")->data;
    t->logits[1] = weft_program_output(t->program, "many")->data;
    return WEFT_OK;
}

weft_status weft_transnet_create(const weft_tensors *weights, const char *prefix,
                                 const weft_backend *backend, int threads,
                                 weft_transnet_listener listener, void *user, weft_transnet **out)
{
    weft_transnet *t;
    WEFT_TRY(WEFT_NEW(t, 1, "the shot detector"));
    t->listener = listener;
    t->user = user;
    const int before = weft_host_set_threads(threads);
    const weft_status_code status = set_up(t, weights, prefix, backend);
    weft_host_set_threads(before);
    if (status != WEFT_OK)
        weft_transnet_free(t);
    else
        *out = t;
    return status;
}

void weft_transnet_free(weft_transnet *t)
{
    if (!t)
        return;
    weft_program_free(t->program);
    weft_store_free(t->store);
    weft_graph_free(t->graph);
    weft_free(t->frame);
    weft_free(t);
}

const weft_transnet_config *weft_transnet_sizes(const weft_transnet *t)
{
    return &t->config;
}

const float *weft_transnet_logits(const weft_transnet *t, bool many)
{
    return t->logits[many];
}

/* ---- windows -------------------------------------------------------------------------------- */

/* Three bits of each colour. */
static void count_colours(const uint8_t *rgb, float histogram[BINS])
{
    memset(histogram, 0, BINS * sizeof *histogram);
    for (int i = 0; i < WEFT_TRANSNET_BYTES; i += 3)
        histogram[rgb[i] >> 5 << 6 | rgb[i + 1] >> 5 << 3 | rgb[i + 2] >> 5]++;
}

/* Runs a window and reports the first `count` of its middle frames. */
static weft_status run_window(weft_transnet *t, int64_t count)
{
    float *frames = weft_program_input(t->program, "frames")->data,
          *histograms = weft_program_input(t->program, "histograms")->data;
    for (int64_t i = 0; i < WEFT_TRANSNET_WINDOW * (int64_t)WEFT_TRANSNET_BYTES; i++)
        frames[i] = (float)t->frame[i] / 255.0f;
    for (int64_t i = 0; i < WEFT_TRANSNET_WINDOW; i++)
        count_colours(t->frame + i * WEFT_TRANSNET_BYTES, histograms + i * BINS);
    WEFT_TRY(weft_program_run(t->program));
    for (int64_t i = 0; i < count; i++, t->reported++) {
        const int64_t at = WEFT_TRANSNET_MARGIN + i;
        const weft_transnet_said said = {t->reported, 1 / (1 + expf(-t->logits[0][at])),
                                         1 / (1 + expf(-t->logits[1][at]))};
        WEFT_TRY(t->listener(t->user, &said));
    }
    const int64_t kept = WEFT_TRANSNET_WINDOW - WEFT_TRANSNET_STEP;
    memmove(t->frame, t->frame + WEFT_TRANSNET_STEP * (int64_t)WEFT_TRANSNET_BYTES,
            (size_t)(kept * WEFT_TRANSNET_BYTES));
    t->held = kept;
    return WEFT_OK;
}

/* Adds a frame to the window. `is_source`: a frame of the video, not a padding copy. */
static weft_status add(weft_transnet *t, const uint8_t *rgb, bool is_source)
{
    memmove(t->frame + t->held++ * WEFT_TRANSNET_BYTES, rgb, WEFT_TRANSNET_BYTES);
    t->frames += is_source;
    if (t->held < WEFT_TRANSNET_WINDOW)
        return WEFT_OK;
    const int64_t rest = t->frames - t->reported;
    return run_window(t, rest < WEFT_TRANSNET_STEP ? rest : WEFT_TRANSNET_STEP);
}

weft_status weft_transnet_push(weft_transnet *t, const uint8_t *rgb)
{
    for (int i = 0; t->frames == 0 && i < WEFT_TRANSNET_MARGIN; i++)
        WEFT_TRY(add(t, rgb, false));
    return add(t, rgb, true);
}

weft_status weft_transnet_finish(weft_transnet *t)
{
    uint8_t last[WEFT_TRANSNET_BYTES];
    if (t->frames)
        memcpy(last, t->frame + (t->held - 1) * WEFT_TRANSNET_BYTES, sizeof last);
    while (t->reported < t->frames)
        WEFT_TRY(add(t, last, false));
    return WEFT_OK;
}

/* ---- shots ---------------------------------------------------------------------------------- */

bool weft_transnet_run_add(weft_transnet_run *run, int64_t frame, float probability)
{
    const bool on = (double)probability > run->threshold, ends = run->on && !on;
    if (on && !run->on) {
        run->first = frame;
        run->best = 0;
    }
    run->best = on && probability > run->best ? probability : run->best;
    run->on = on;
    return ends;
}
