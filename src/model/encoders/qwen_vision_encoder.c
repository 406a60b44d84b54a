/* The vision part of Qwen2.5-VL (transformers' Qwen2_5_VisionTransformerPretrainedModel).
 * Parameters have the names of the class. Published files put "visual." or "model.visual." before
 * the names, which are key mappings here.
 *
 *   pixels, twice as two frames --patches--> (B,S,C), in the order of windows
 *          --blocks: RMS norm, attention, RMS norm, gated SiLU--> (B,S,C)
 *          --RMS norm, m x m neighbours joined, linear, GELU, linear--> (B,S/(m m),out)
 *
 * Attention is inside windows of `window` pixels, except in the blocks `full`. Rotary positions are
 * the row and the column of a patch. The image's sides are multiples of m patches. Shape letters: B
 * batch, S patches, C width, m merged patches of a side, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>

enum { MAX_FULL = 64 };

typedef struct qwen_vision {
    int64_t width, inner, layers, heads, out;
    int64_t patch, merge, window; /* pixels, patches and pixels of a side */
    double theta;
    int64_t fulls, full[MAX_FULL];
} qwen_vision;
_Static_assert(sizeof(qwen_vision) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

enum { FRAMES = 2 };
static const double eps = 1e-6;

/* Patches of an image in the order of windows. Memory is owned by the caller (windows_free). */
typedef struct windows {
    int64_t rows, columns;  /* patches */
    int64_t tokens, merged; /* patches and joined patches */
    int64_t count;          /* windows */
    int32_t *at;            /* [tokens] row * columns + column */
    int32_t *back;          /* [merged] position of each joined patch in the order of windows */
    int32_t *segment;       /* [count][4] as attention reads them */
} windows;

static void windows_free(windows *w)
{
    weft_free(w->at);
    weft_free(w->back);
    weft_free(w->segment);
}

/* Appends the m x m patches of the joined patch in row y and column x. */
static void append_joined(const qwen_vision *c, windows *w, int64_t y, int64_t x)
{
    const int64_t m = c->merge;
    w->back[y * (w->columns / m) + x] = (int32_t)w->merged++;
    for (int64_t i = 0; i < m * m; i++)
        w->at[w->tokens++] = (int32_t)((y * m + i / m) * w->columns + x * m + i % m);
}

static bool arrange(const qwen_vision *c, int64_t rows, int64_t columns, windows *w)
{
    const int64_t side = c->window / c->patch / c->merge, high = rows / c->merge,
                  wide = columns / c->merge;
    *w = (windows){.rows = rows, .columns = columns};
    w->at = weft_alloc(rows * columns * (int64_t)sizeof *w->at);
    w->back = weft_alloc(high * wide * (int64_t)sizeof *w->back);
    w->segment = weft_alloc(high * wide * 4 * (int64_t)sizeof *w->segment);
    if (!w->at || !w->back || !w->segment)
        return false;
    for (int64_t y = 0; y < high; y += side)
        for (int64_t x = 0; x < wide; x += side) {
            const int64_t first = w->tokens;
            for (int64_t i = y; i < high && i < y + side; i++)
                for (int64_t k = x; k < wide && k < x + side; k++)
                    append_joined(c, w, i, k);
            for (int i = 0; i < 4; i++)
                w->segment[4 * w->count + i] = (int32_t)(i % 2 ? w->tokens : first);
            w->count++;
        }
    return true;
}

/* x (B,S,C) with the rows `at` (count of S) of each item: (B,count,C) */
static weft_value reorder(weft_graph *g, weft_value x, const int32_t *at, int64_t count)
{
    const int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1), width = weft_dim(g, x, 2);
    int32_t *all = weft_alloc(batch * count * (int64_t)sizeof *all);
    if (!all)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for the order of patches");
    for (int64_t i = 0; i < batch * count; i++)
        all[i] = (int32_t)(i / count * length) + at[i % count];
    const weft_value ids = weft_constant(g, WEFT_I32, WEFT_SHAPE(batch, count), all);
    weft_free(all);
    const weft_value table = weft_reshape(g, x, WEFT_SHAPE(batch * length, width));
    return weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, ids}, 2, NULL);
}

/* cos and sin (S,D/2) in the order of windows: rows, then columns. */
static void rope_of(weft_graph *g, const qwen_vision *c, const windows *w, weft_value *rope)
{
    const int64_t half = c->width / c->heads / 2, pairs = half / 2;
    float *table = weft_alloc(2 * w->tokens * half * (int64_t)sizeof *table);
    if (!table) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for rotary positions");
        return;
    }
    for (int64_t s = 0; s < w->tokens; s++)
        for (int64_t i = 0; i < half; i++) {
            const int64_t at = i < pairs ? w->at[s] / w->columns : w->at[s] % w->columns;
            const double angle = (double)at / pow(c->theta, (double)(i % pairs) / (double)pairs);
            table[s * half + i] = (float)cos(angle);
            table[(w->tokens + s) * half + i] = (float)sin(angle);
        }
    for (int i = 0; i < 2; i++)
        rope[i] =
            weft_constant(g, WEFT_F32, WEFT_SHAPE(w->tokens, half), table + i * w->tokens * half);
    weft_free(table);
}

/* A rotated part of `qkv` (B,S,3C): part 0 or 1. Part 2 is not rotated. */
static weft_value part_of(weft_graph *g, const qwen_vision *c, weft_value qkv, int part,
                          const weft_value *rope)
{
    const weft_value x =
        weft_nn_split_heads(g, weft_slice(g, qkv, 2, part * c->width, c->width), c->heads);
    return part < 2 ? weft_nn_rope(g, x, rope, true) : x;
}

static weft_value feed_forward(weft_graph *g, const qwen_vision *c, weft_value x)
{
    weft_graph_push(g, "mlp");
    const weft_value gate = weft_unary(
        g, WEFT_OP_SILU, weft_nn_linear(g, "gate_proj", x, c->inner, WEFT_LINEAR_XAVIER));
    x = weft_mul(g, gate, weft_nn_linear(g, "up_proj", x, c->inner, WEFT_LINEAR_XAVIER));
    x = weft_nn_linear(g, "down_proj", x, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

static weft_value block(weft_graph *g, const qwen_vision *c, int64_t index, weft_value x,
                        const weft_value *rope, weft_value segments)
{
    weft_graph_push(g, "blocks.%d", (int)index);
    weft_value h = weft_nn_rms_norm(g, "norm1", x, eps);
    weft_graph_push(g, "attn");
    const weft_value qkv = weft_nn_linear(g, "qkv", h, 3 * c->width, WEFT_LINEAR_XAVIER);
    h = weft_nn_attend_segments(g, part_of(g, c, qkv, 0, rope), part_of(g, c, qkv, 1, rope),
                                part_of(g, c, qkv, 2, rope), segments);
    h = weft_nn_linear(g, "proj", weft_nn_join_heads(g, h), c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    x = weft_add(g, x, h);
    x = weft_add(g, x, feed_forward(g, c, weft_nn_rms_norm(g, "norm2", x, eps)));
    weft_graph_pop(g);
    return x;
}

/* (B,S,C) in the order of windows to (B,S/(m m),out) in the order of rows. */
static weft_value merge(weft_graph *g, const qwen_vision *c, const windows *w, weft_value x)
{
    const int64_t joined = c->merge * c->merge * c->width;
    weft_graph_push(g, "merger");
    x = weft_nn_rms_norm(g, "ln_q", x, eps);
    x = weft_reshape(g, x, WEFT_SHAPE(weft_dim(g, x, 0), w->merged, joined));
    x = weft_nn_linear(g, "mlp.0", x, joined, WEFT_LINEAR_XAVIER);
    x = weft_nn_linear(g, "mlp.2", weft_nn_activate(g, WEFT_NN_GELU_ERF, x), c->out,
                       WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return reorder(g, x, w->back, w->merged);
}

static bool is_full(const qwen_vision *c, int64_t layer)
{
    for (int64_t i = 0; i < c->fulls; i++)
        if (c->full[i] == layer)
            return true;
    return false;
}

/* The segments of all items of a batch: (B,N,4). */
static weft_value segments_of(weft_graph *g, const windows *w, int64_t batch)
{
    const weft_value one = weft_constant(g, WEFT_I32, WEFT_SHAPE(1, w->count, 4), w->segment);
    return batch == 1 ? one : weft_broadcast(g, one, WEFT_SHAPE(batch, w->count, 4));
}

static void encode(weft_graph *g, const qwen_vision *c, const windows *w, weft_ports *p)
{
    const int64_t patch[3] = {FRAMES, c->patch, c->patch};
    const weft_value image = p->at[WEFT_PORT_VIDEO],
                     both = weft_concat(g, (weft_value[]){image, image}, FRAMES, 1);
    const weft_value segments = segments_of(g, w, weft_dim(g, image, 0));
    weft_value rope[WEFT_MAX_OUTPUTS] = {WEFT_NONE, WEFT_NONE};
    weft_value x =
        weft_nn_patch(g, "patch_embed.proj", both, c->width, patch, WEFT_PATCH_3D, false);
    x = reorder(g, x, w->at, w->tokens);
    rope_of(g, c, w, rope);
    for (int64_t i = 0; i < c->layers; i++)
        x = block(g, c, i, x, rope, is_full(c, i) ? WEFT_NONE : segments);
    p->at[WEFT_PORT_IMAGE] = merge(g, c, w, x);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *p)
{
    const qwen_vision *c = config;
    const weft_value image = p->at[WEFT_PORT_VIDEO];
    const int64_t step = c->patch * c->merge;
    windows w = {0};
    (void)call;
    if (!weft_value_ok(image) || weft_graph_check(g) != WEFT_OK)
        return;
    const int64_t height = weft_dim(g, image, 2), width = weft_dim(g, image, 3);
    if (height % step || width % step)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "an image of %" PRId64 "x%" PRId64 " pixels: both sides must be multiples "
                        "of %" PRId64,
                        width, height, step);
    else if (!arrange(c, height / c->patch, width / c->patch, &w))
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for the windows of an image");
    else
        encode(g, c, &w, p);
    windows_free(&w);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const qwen_vision *c = config;
    if (c->width % (4 * c->heads))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "hidden_size", c->width),
                          "%" PRId64 " is not a multiple of 4 x %" PRId64
                          " heads: half of a head's pairs are of rows, half of columns",
                          c->width, c->heads);
    if (c->window < c->patch * c->merge)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "window_size", c->window),
                          "a window of %" PRId64 " pixels is smaller than the %" PRId64
                          " pixels of the joined patches",
                          c->window, c->patch * c->merge);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const qwen_vision *c = config;
    const int64_t step = c->patch * c->merge;
    if (port != WEFT_PORT_VIDEO)
        return WEFT_SCALAR;
    const int64_t high = s->height / step, wide = s->width / step; /* joined patches */
    return WEFT_SHAPE(s->batch, 1, (high ? high : 1) * step, (wide ? wide : 1) * step, 3);
}

/* clang-format off */
#define AT(member) offsetof(qwen_vision, member)
static const weft_field fields[] = {
    {"hidden_size", WEFT_FIELD_I64, AT(width), "3584", 1, 1 << 16, .help = "width"},
    {"intermediate_size", WEFT_FIELD_I64, AT(inner), "3420", 1, 1 << 20,
     .help = "inner width of the feed-forward layer"},
    {"depth", WEFT_FIELD_I64, AT(layers), "32", 1, 1024, .help = "blocks"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "16", 1, 1024, .help = "attention heads"},
    {"out_hidden_size", WEFT_FIELD_I64, AT(out), "3584", 1, 1 << 16,
     .help = "width of the language model"},
    {"hidden_act", WEFT_FIELD_FIXED, .fallback = "\"silu\""},
    {"in_channels", WEFT_FIELD_FIXED, .fallback = "3", .also = "in_chans"},
    {"patch_size", WEFT_FIELD_I64, AT(patch), "14", 1, 1 << 10, .also = "spatial_patch_size",
     .help = "side of a patch in pixels"},
    {"temporal_patch_size", WEFT_FIELD_FIXED, .fallback = "2"},
    {"spatial_merge_size", WEFT_FIELD_I64, AT(merge), "2", 1, 64,
     .help = "side of the patches that are joined"},
    {"window_size", WEFT_FIELD_I64, AT(window), "112", 1, 1 << 14,
     .help = "side of an attention window in pixels"},
    {"fullatt_block_indexes", WEFT_FIELD_I64S, AT(full), "[7, 15, 23, 31]", 0, 1023,
     .capacity = MAX_FULL, .count = AT(fulls), .help = "blocks without windows"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "10000", 1, 1e12,
     .also = "rope_parameters.rope_theta", .help = "base of the rotary frequencies"},
    {"rope_type", WEFT_FIELD_FIXED, .fallback = "\"axial\"", .also = "rope_parameters.rope_type"},
};

static const weft_unused_field unused[] = {
    {"tokens_per_second"}, /* videos */
    {NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_VIDEO, false, "pixel_values"},
    {WEFT_PORT_IMAGE, true,  "pooler_output", .target = "target"},
};

static const weft_named_config sizes[] = {
    {"qwen2.5-vl-7b-vision", "{\"hidden_size\": 1280}"},
    {NULL, NULL},
};

static const weft_rename_rule prefix_rules[] = {{"model.visual.", ""}, {"visual.", ""}};
static const weft_key_mapping mappings[] = {
    {"transformers", "visual.blocks.0.attn.qkv.bias", prefix_rules, 2},
    {"transformers", "model.visual.blocks.0.attn.qkv.bias", prefix_rules, 2},
    {"bare", "patch_embed.proj.weight", NULL, 0, .also = "merger.ln_q.weight"},
};

const weft_family weft_family_qwen_vision = {
    .class_name = "Qwen2_5_VisionTransformerPretrainedModel", .role = WEFT_ROLE_IMAGE_ENCODER,
    .scope = "image_encoder", .stem = "model", .library = "transformers",
    .model_type = "qwen2_5_vl_vision", .joint = {"qwen2_5_vl", "vision_config", NULL},
    .config_bytes = sizeof(qwen_vision), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .unused = unused, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
