#include "nn/nn.h"

#include "graph/builder_helpers.h"

#include <math.h>

int64_t weft_dim(const weft_graph *g, weft_value v, int d)
{
    return weft_value_ok(v) ? weft_value_get(g, v)->shape.dim[d] : 1;
}

static int64_t last_dim(const weft_graph *g, weft_value v)
{
    return weft_value_ok(v) ? weft_dim(g, v, weft_value_get(g, v)->shape.rank - 1) : 1;
}

weft_nn_layer weft_nn_linear_of(weft_graph *g, const char *name, int64_t in, int64_t out, bool bias,
                                weft_linear_init init)
{
    const weft_init zero = {.kind = WEFT_INIT_ZERO};
    const weft_init xavier = {.kind = WEFT_INIT_UNIFORM, .value = sqrt(6.0 / (double)(in + out))};
    weft_nn_layer layer = {.name = name, .bias = WEFT_NONE};
    weft_graph_push(g, "%s", name);
    layer.weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, in),
                              init == WEFT_LINEAR_ZERO ? zero : xavier);
    if (bias)
        layer.bias = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(out), zero);
    weft_graph_pop(g);
    return layer;
}

weft_value weft_nn_linear_by(weft_graph *g, const weft_nn_layer *layer, weft_value x)
{
    const weft_attr_linear attr = {.act = WEFT_ACT_NONE};
    weft_graph_push(g, "%s", layer->name);
    const weft_value y = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, layer->weight, layer->bias},
                                   weft_value_ok(layer->bias) ? 3 : 2, &attr);
    weft_graph_pop(g);
    return y;
}

weft_value weft_nn_linear(weft_graph *g, const char *name, weft_value x, int64_t out,
                          weft_linear_init init)
{
    const weft_nn_layer layer = weft_nn_linear_of(g, name, last_dim(g, x), out, true, init);
    return weft_nn_linear_by(g, &layer, x);
}

weft_value weft_nn_linear_plain(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    const weft_nn_layer layer =
        weft_nn_linear_of(g, name, last_dim(g, x), out, false, WEFT_LINEAR_XAVIER);
    return weft_nn_linear_by(g, &layer, x);
}

weft_value weft_nn_dense(weft_graph *g, const char *name, weft_value x, int64_t out, bool bias)
{
    return bias ? weft_nn_linear(g, name, x, out, WEFT_LINEAR_XAVIER)
                : weft_nn_linear_plain(g, name, x, out);
}

weft_nn_layer weft_nn_norm_of(weft_graph *g, const char *name, int64_t width, bool bias)
{
    weft_nn_layer layer = {.name = name, .bias = WEFT_NONE};
    weft_graph_push(g, "%s", name);
    layer.weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(width),
                              (weft_init){.kind = WEFT_INIT_FILL, .value = 1});
    if (bias)
        layer.bias =
            weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(width), (weft_init){.kind = WEFT_INIT_ZERO});
    weft_graph_pop(g);
    return layer;
}

static weft_value norm_by(weft_graph *g, weft_op op, const weft_nn_layer *layer, weft_value x,
                          double eps)
{
    const weft_attr_norm attr = {.eps = eps};
    weft_graph_push(g, "%s", layer->name);
    const weft_value y = weft_emit(g, op, (weft_value[]){x, layer->weight, layer->bias},
                                   weft_value_ok(layer->bias) ? 3 : 2, &attr);
    weft_graph_pop(g);
    return y;
}

weft_value weft_nn_layer_norm_by(weft_graph *g, const weft_nn_layer *layer, weft_value x,
                                 double eps)
{
    return norm_by(g, WEFT_OP_LAYER_NORM, layer, x, eps);
}

weft_value weft_nn_rms_norm_by(weft_graph *g, const weft_nn_layer *layer, weft_value x, double eps)
{
    return norm_by(g, WEFT_OP_RMS_NORM, layer, x, eps);
}

weft_value weft_nn_layer_norm(weft_graph *g, const char *name, weft_value x, double eps)
{
    const weft_nn_layer layer = weft_nn_norm_of(g, name, last_dim(g, x), true);
    return weft_nn_layer_norm_by(g, &layer, x, eps);
}

weft_value weft_nn_plain_norm(weft_graph *g, weft_value x, double eps)
{
    const weft_attr_norm attr = {.eps = eps};
    return weft_emit(g, WEFT_OP_LAYER_NORM, &x, 1, &attr);
}

weft_value weft_nn_group_plain(weft_graph *g, weft_value x, int64_t groups, double eps,
                               bool each_frame)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4), each = c / groups;
    const int64_t parts = each_frame ? t : 1, positions = each_frame ? y * w : t * y * w;
    if (c % groups)
        return weft_graph_fail(g, WEFT_MSG_TENSOR_SHAPE,
                               "%" PRId64 " channels do not divide into %" PRId64 " groups", c,
                               groups);
    /* Moves the values of a group into one row, so that a layer norm applies. */
    x = weft_reshape(g, x, WEFT_SHAPE(b, parts, positions, groups, each));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    x = weft_reshape(g, x, WEFT_SHAPE(b, parts, groups, positions * each));
    x = weft_nn_plain_norm(g, x, eps);
    x = weft_reshape(g, x, WEFT_SHAPE(b, parts, groups, positions, each));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y, w, c));
}

weft_value weft_nn_scale_channels(weft_graph *g, const weft_nn_layer *layer, weft_value x)
{
    return weft_add(g, weft_mul(g, x, layer->weight), layer->bias);
}

static weft_value group_norm(weft_graph *g, const char *name, weft_value x, int64_t groups,
                             double eps, bool each_frame)
{
    const weft_nn_layer layer = weft_nn_norm_of(g, name, weft_dim(g, x, 4), true);
    weft_graph_push(g, "%s", name);
    x = weft_nn_group_plain(g, x, groups, eps, each_frame);
    x = weft_nn_scale_channels(g, &layer, x);
    weft_graph_pop(g);
    return x;
}

weft_value weft_nn_group_norm(weft_graph *g, const char *name, weft_value x, int64_t groups,
                              double eps)
{
    return group_norm(g, name, x, groups, eps, false);
}

weft_value weft_nn_frame_norm(weft_graph *g, const char *name, weft_value x, int64_t groups,
                              double eps)
{
    return group_norm(g, name, x, groups, eps, true);
}

weft_value weft_nn_plain_rms_norm(weft_graph *g, weft_value x, double eps)
{
    const weft_attr_norm attr = {.eps = eps};
    return weft_emit(g, WEFT_OP_RMS_NORM, &x, 1, &attr);
}

weft_value weft_nn_rms_norm(weft_graph *g, const char *name, weft_value x, double eps)
{
    const weft_nn_layer layer = weft_nn_norm_of(g, name, last_dim(g, x), false);
    return weft_nn_rms_norm_by(g, &layer, x, eps);
}

static weft_value conv(weft_graph *g, weft_value x, weft_value weight, weft_value bias,
                       const weft_conv_shape *shape)
{
    weft_attr_conv attr = {0};
    for (int i = 0; i < 3; i++) {
        attr.stride[i] = shape->stride[i];
        attr.before[i] = shape->before[i];
        attr.after[i] = shape->after[i];
        attr.kernel[i] = shape->kernel[i];
    }
    return weft_emit(g, WEFT_OP_CONV3D, (weft_value[]){x, weight, bias},
                     weft_value_ok(bias) ? 3 : 2, &attr);
}

/* Weight in its public shape, returned as (O,I,T,Y,X). */
static weft_value conv_weight(weft_graph *g, int64_t out, int64_t in, const int64_t k[3],
                              weft_patch_form form)
{
    const int64_t each = in * k[0] * k[1] * k[2];
    const weft_init init = {.kind = WEFT_INIT_UNIFORM, .value = 1.0 / sqrt((double)each)};
    weft_value weight;
    if (form == WEFT_PATCH_3D)
        return weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, in, k[0], k[1], k[2]), init);
    if (form == WEFT_PATCH_2D)
        weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, in, k[1], k[2]), init);
    else
        weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, each), init);
    return weft_reshape(g, weight, WEFT_SHAPE(out, in, k[0], k[1], k[2]));
}

weft_value weft_nn_conv(weft_graph *g, const char *name, weft_value x, int64_t out,
                        weft_conv_shape shape, bool two_d)
{
    weft_graph_push(g, "%s", name);
    const weft_value weight =
        conv_weight(g, out, last_dim(g, x), shape.kernel, two_d ? WEFT_PATCH_2D : WEFT_PATCH_3D);
    const weft_value bias =
        weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(out), (weft_init){.kind = WEFT_INIT_ZERO});
    const weft_value y = conv(g, x, weight, bias, &shape);
    weft_graph_pop(g);
    return y;
}

weft_value weft_nn_conv_by(weft_graph *g, const weft_nn_layer *layer, weft_value x,
                           const weft_conv_shape *shape)
{
    return conv(g, x, layer->weight, layer->bias, shape);
}

weft_value weft_nn_conv_channels(weft_graph *g, weft_value x, int dim, int64_t side,
                                 weft_value kernel, weft_value bias)
{
    const int64_t rows = weft_dim(g, x, dim), columns = weft_dim(g, x, dim + 1), around = side / 2,
                  channels = last_dim(g, x);
    const weft_value padded =
        weft_pad(g, weft_pad(g, x, dim, around, around), dim + 1, around, around);
    weft_value sum = bias;
    for (int64_t i = 0; i < side * side; i++) {
        const weft_value moved = weft_slice(g, weft_slice(g, padded, dim, i / side, rows), dim + 1,
                                            i % side, columns),
                         tap =
                             weft_reshape(g, weft_slice(g, kernel, 1, i, 1), WEFT_SHAPE(channels)),
                         term = weft_mul(g, moved, tap);
        sum = weft_value_ok(sum) ? weft_add(g, term, sum) : term;
    }
    return sum;
}

void weft_nn_count_tokens(weft_graph *g, weft_value latents, const int64_t patch[3],
                          int64_t size[3])
{
    for (int i = 0; i < 3; i++) {
        const int64_t extent = weft_dim(g, latents, 1 + i);
        size[i] = extent / patch[i];
        if (extent % patch[i])
            weft_graph_fail(g, WEFT_MSG_TENSOR_SHAPE,
                            "latent %s %" PRId64 " is not a multiple of the patch %" PRId64,
                            (const char *[]){"frames", "height", "width"}[i], extent, patch[i]);
    }
}

weft_value weft_nn_patch(weft_graph *g, const char *name, weft_value latents, int64_t out,
                         const int64_t patch[3], weft_patch_form form, bool bias)
{
    weft_conv_shape shape = {0};
    weft_value b = WEFT_NONE;
    for (int i = 0; i < 3; i++)
        shape.kernel[i] = shape.stride[i] = patch[i];
    weft_graph_push(g, "%s", name);
    const weft_value weight = conv_weight(g, out, last_dim(g, latents), patch, form);
    if (bias)
        b = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(out), (weft_init){.kind = WEFT_INIT_ZERO});
    const weft_value y = conv(g, latents, weight, b, &shape);
    weft_graph_pop(g);
    return weft_reshape(g, y,
                        WEFT_SHAPE(weft_dim(g, y, 0),
                                   weft_dim(g, y, 1) * weft_dim(g, y, 2) * weft_dim(g, y, 3), out));
}

weft_value weft_nn_split_heads(weft_graph *g, weft_value x, int64_t heads)
{
    const int64_t c = weft_dim(g, x, 2);
    if (c % heads)
        return weft_graph_fail(
            g, WEFT_MSG_TENSOR_SHAPE,
            "attention: width %" PRId64 " does not divide into %" PRId64 " heads", c, heads);
    return weft_reshape(g, x, WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1), heads, c / heads));
}

weft_value weft_nn_join_heads(weft_graph *g, weft_value x)
{
    return weft_reshape(
        g, x,
        WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1), weft_dim(g, x, 2) * weft_dim(g, x, 3)));
}

weft_value weft_nn_group_heads(weft_graph *g, weft_value x, int64_t heads)
{
    return weft_reshape(g, x,
                        WEFT_SHAPE(weft_dim(g, x, 0) * weft_dim(g, x, 1), weft_dim(g, x, 2), heads,
                                   weft_dim(g, x, 3) / heads));
}

weft_value weft_nn_ungroup_heads(weft_graph *g, weft_value x, int64_t groups)
{
    return weft_reshape(g, x,
                        WEFT_SHAPE(weft_dim(g, x, 0) / groups, groups, weft_dim(g, x, 1),
                                   weft_dim(g, x, 2) * weft_dim(g, x, 3)));
}

int64_t weft_nn_skip_padding(int64_t tokens, int64_t n)
{
    const int64_t over = tokens % (n * n);
    return over ? n * n - over : 0;
}

/* Swaps dims 1 and 2 of (B, first, second, ...) and reshapes to `shape`. */
static weft_value swap_dims(weft_graph *g, weft_value x, int64_t batch, int64_t first,
                            int64_t second, weft_shape shape)
{
    const int64_t rest = weft_shape_count(&weft_value_get(g, x)->shape) / (batch * first * second);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, first, second, rest));
    return weft_reshape(g, weft_permute(g, x, (int[]){0, 2, 1, 3}), shape);
}

weft_value weft_nn_skip_split(weft_graph *g, weft_value x, int64_t n, bool grouped)
{
    if (!weft_value_ok(x))
        return x;
    weft_shape shape = weft_value_get(g, x)->shape;
    const int64_t batch = shape.dim[0], tokens = shape.dim[1];
    shape.dim[0] = batch * n;
    shape.dim[1] = tokens / n;
    return swap_dims(g, x, batch, grouped ? tokens / (n * n) : tokens / n, n, shape);
}

weft_value weft_nn_skip_join(weft_graph *g, weft_value x, int64_t n, bool grouped)
{
    if (!weft_value_ok(x))
        return x;
    weft_shape shape = weft_value_get(g, x)->shape;
    const int64_t batch = shape.dim[0] / n, tokens = shape.dim[1] * n;
    shape.dim[0] = batch;
    shape.dim[1] = tokens;
    return swap_dims(g, x, batch, n, grouped ? tokens / (n * n) : tokens / n, shape);
}

void weft_nn_fit_positions(const int64_t grid[2], const int64_t base[2], double origin[2],
                           double step[2])
{
    const double rows = (double)grid[0], columns = (double)grid[1], tall = (double)base[0],
                 wide = (double)base[1];
    const bool upright = rows / columns > tall / wide;
    const double covered[2] = {upright ? tall : rint(wide / columns * rows),
                               upright ? rint(tall / rows * columns) : wide};
    for (int i = 0; i < 2; i++) { /* positions from `origin` to one step before the end */
        const double n = (double)grid[i], start = rint(((double)base[i] - covered[i]) / 2);
        origin[i] = start;
        step[i] = n > 1 ? ((start + covered[i]) * (n - 1) / n - start) / (n - 1) : 0;
    }
}

weft_value weft_nn_sines(weft_graph *g, const weft_attr_rope_table *rope_attr, const int *order,
                         int count)
{
    weft_value cos_sin[WEFT_MAX_OUTPUTS], part[6];
    int parts = 0;
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, rope_attr, cos_sin);
    for (int i = 0; i < count; i++) {
        int64_t first = 0;
        for (int d = 0; d < order[i]; d++)
            first += rope_attr->pairs[d];
        for (int sine = 1; sine >= 0; sine--)
            part[parts++] = weft_slice(g, cos_sin[sine], 1, first, rope_attr->pairs[order[i]]);
    }
    return weft_concat(g, part, parts, 1);
}

weft_value weft_nn_rope(weft_graph *g, weft_value x_bshd, const weft_value *cos_sin,
                        bool rotate_half)
{
    const weft_attr_rope attr = {.rotate_half = rotate_half};
    return weft_emit(g, WEFT_OP_ROPE, (weft_value[]){x_bshd, cos_sin[0], cos_sin[1]}, 3, &attr);
}

static weft_value attend(weft_graph *g, weft_value q, weft_value k, weft_value v, weft_value bias,
                         bool causal)
{
    const weft_attr_attention attr = {.scale = 1.0 / sqrt((double)weft_dim(g, q, 3)),
                                      .causal = causal};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ATTENTION, (weft_value[]){q, k, v, WEFT_NONE, bias},
                  weft_value_ok(bias) ? 5 : 3, &attr, out);
    return out[0];
}

weft_value weft_nn_attend(weft_graph *g, weft_value q, weft_value k, weft_value v, weft_value bias)
{
    return attend(g, q, k, v, bias, false);
}

weft_value weft_nn_attend_back(weft_graph *g, weft_value q, weft_value k, weft_value v,
                               weft_value bias)
{
    return attend(g, q, k, v, bias, true);
}

void weft_nn_attend_jointly(weft_graph *g, int streams, const weft_value *q, const weft_value *k,
                            const weft_value *v, weft_value bias, weft_value *out)
{
    const weft_value keys = weft_concat(g, k, streams, 1), values = weft_concat(g, v, streams, 1);
    for (int i = 0; i < streams; i++)
        out[i] = weft_nn_attend(g, q[i], keys, values, bias);
}

weft_value weft_nn_hide(weft_graph *g, weft_value mask)
{
    return weft_affine(g, mask, 1e30, -1e30);
}

weft_value weft_nn_attend_segments(weft_graph *g, weft_value q, weft_value k, weft_value v,
                                   weft_value segments)
{
    if (!weft_value_ok(segments))
        return weft_nn_attend(g, q, k, v, WEFT_NONE);
    weft_value out[WEFT_MAX_OUTPUTS];
    const weft_attr_attention attr = {.scale = 1.0 / sqrt((double)weft_dim(g, q, 3))};
    weft_emit_all(g, WEFT_OP_ATTENTION, (weft_value[]){q, k, v, segments}, 4, &attr, out);
    return out[0];
}

weft_value weft_nn_attention_segments(weft_graph *g, const weft_value qkv_bsc[3], int64_t heads,
                                      const weft_value *rope_cos_sin, weft_value segments)
{
    weft_value q = weft_nn_split_heads(g, qkv_bsc[0], heads), k, v;
    if (rope_cos_sin)
        q = weft_nn_rope(g, q, rope_cos_sin, false);
    k = weft_nn_split_heads(g, qkv_bsc[1], heads);
    if (rope_cos_sin)
        k = weft_nn_rope(g, k, rope_cos_sin, false);
    v = weft_nn_split_heads(g, qkv_bsc[2], heads);
    return weft_nn_join_heads(g, weft_nn_attend_segments(g, q, k, v, segments));
}

weft_value weft_nn_attention(weft_graph *g, weft_value q_bsc, weft_value k_bsc, weft_value v_bsc,
                             int64_t heads, const weft_value *rope_cos_sin)
{
    return weft_nn_attention_segments(g, (weft_value[]){q_bsc, k_bsc, v_bsc}, heads, rope_cos_sin,
                                      WEFT_NONE);
}

weft_value weft_nn_rows_of_tokens(weft_graph *g, weft_value owner, weft_value rows)
{
    const weft_attr_matmul attr = {0};
    rows = weft_reshape(
        g, rows, WEFT_SHAPE(weft_dim(g, owner, 0), weft_dim(g, owner, 2), last_dim(g, rows)));
    return weft_emit(g, WEFT_OP_MATMUL, (weft_value[]){owner, rows}, 2, &attr);
}

void weft_nn_rope_at(weft_graph *g, const weft_attr_rope_table *table, const weft_value position[3],
                     weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    weft_value part[2][3];
    int parts = 0;
    for (int d = 0; d < 3; d++) {
        weft_value of_axis[WEFT_MAX_OUTPUTS];
        const weft_attr_rope_table axis = {.theta = {table->theta[d], 1, 1},
                                           .origin = {table->origin[d]},
                                           .step = {table->step[d], 1, 1},
                                           .grid = {table->grid[d], 1, 1},
                                           .pairs = {table->pairs[d]},
                                           .len = table->grid[d]};
        if (!table->pairs[d])
            continue;
        weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &axis, of_axis);
        for (int i = 0; i < 2; i++)
            part[i][parts] =
                weft_emit(g, WEFT_OP_EMBED, (weft_value[]){of_axis[i], position[d]}, 2, NULL);
        parts++;
    }
    for (int i = 0; i < 2; i++) {
        const weft_value all = weft_concat(g, part[i], parts, 2);
        cos_sin[i] = weft_reshape(
            g, all, WEFT_SHAPE(weft_dim(g, all, 0), weft_dim(g, all, 1), 1, weft_dim(g, all, 2)));
    }
}

weft_value weft_nn_activate(weft_graph *g, weft_nn_act act, weft_value x)
{
    const weft_attr_gelu gelu = {.exact = act == WEFT_NN_GELU_ERF};
    return act == WEFT_NN_SILU ? weft_unary(g, WEFT_OP_SILU, x)
                               : weft_emit(g, WEFT_OP_GELU, &x, 1, &gelu);
}

weft_value weft_nn_embedder(weft_graph *g, const char *name, weft_value x, int64_t width,
                            weft_nn_act act)
{
    weft_graph_push(g, "%s", name);
    x = weft_nn_activate(g, act, weft_nn_linear(g, "linear_1", x, width, WEFT_LINEAR_XAVIER));
    x = weft_nn_linear(g, "linear_2", x, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

weft_value weft_nn_feed_forward(weft_graph *g, const char *name, weft_value x, int64_t inner,
                                weft_nn_act act)
{
    const int64_t width = last_dim(g, x);
    weft_graph_push(g, "%s.net", name);
    x = weft_nn_activate(g, act, weft_nn_linear(g, "0.proj", x, inner, WEFT_LINEAR_XAVIER));
    x = weft_nn_linear(g, "2", x, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

weft_value weft_nn_sinusoid(weft_graph *g, int64_t width, weft_value timestep)
{
    const int64_t half = width / 2;
    if (!weft_value_ok(timestep))
        return timestep;
    weft_shape shape = weft_value_get(g, timestep)->shape, row = {.rank = shape.rank + 1};
    float *frequency = weft_calloc(half, sizeof(float));
    if (!frequency)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY,
                               "out of memory for %" PRId64 " frequencies", half);
    for (int64_t i = 0; i < half; i++)
        frequency[i] = expf((float)-9.210340371976184 * (float)i / (float)half);
    shape.dim[shape.rank++] = 1;
    for (int d = 0; d < row.rank; d++)
        row.dim[d] = d == row.rank - 1 ? half : 1;
    const weft_value table = weft_constant(g, WEFT_F32, row, frequency);
    weft_free(frequency);
    const weft_value angle = weft_mul(g, weft_reshape(g, timestep, shape), table);
    const weft_value parts[2] = {weft_unary(g, WEFT_OP_COS, angle),
                                 weft_unary(g, WEFT_OP_SIN, angle)};
    return weft_concat(g, parts, 2, row.rank - 1);
}

weft_value weft_nn_modulate(weft_graph *g, weft_value x, weft_value scale, weft_value shift)
{
    return weft_emit(g, WEFT_OP_MODULATE, (weft_value[]){x, scale, shift}, 3, NULL);
}

weft_value weft_nn_gated_add(weft_graph *g, weft_value x, weft_value y, weft_value gate)
{
    return weft_emit(g, WEFT_OP_GATED_ADD, (weft_value[]){x, y, gate}, 3, NULL);
}

weft_value weft_nn_time_rows(weft_graph *g, const char *name, weft_value sinusoid, int64_t width,
                             int64_t rows, weft_value *embedded)
{
    const int64_t batch = weft_dim(g, sinusoid, 0), times = weft_dim(g, sinusoid, 1);
    const bool several = weft_value_ok(sinusoid) && weft_value_get(g, sinusoid)->shape.rank == 3;
    weft_graph_push(g, "%s", name);
    const weft_value e =
        weft_nn_embedder(g, "emb.timestep_embedder", sinusoid, width, WEFT_NN_SILU);
    const weft_value mod = weft_nn_linear(g, "linear", weft_unary(g, WEFT_OP_SILU, e), rows * width,
                                          WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    *embedded = weft_reshape(
        g, e, several ? WEFT_SHAPE(batch, times, 1, width) : WEFT_SHAPE(batch, 1, width));
    return weft_reshape(
        g, mod, several ? WEFT_SHAPE(batch, times, rows, width) : WEFT_SHAPE(batch, rows, width));
}

weft_value weft_nn_table(weft_graph *g, int64_t rows, int64_t width)
{
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1.0 / sqrt((double)width)};
    return weft_param(g, "scale_shift_table", WEFT_F32, WEFT_SHAPE(rows, width), init);
}

weft_value weft_nn_add_table(weft_graph *g, weft_value rows_c, int64_t rows)
{
    return weft_add(g, rows_c, weft_nn_table(g, rows, last_dim(g, rows_c)));
}

weft_value weft_nn_row(weft_graph *g, weft_value table, int64_t index)
{
    const int rank = weft_value_ok(table) ? weft_value_get(g, table)->shape.rank : 3;
    const weft_value row = weft_slice(g, table, rank - 2, index, 1);
    if (rank == 3)
        return row;
    return weft_reshape(
        g, row, WEFT_SHAPE(weft_dim(g, table, 0), weft_dim(g, table, 1), weft_dim(g, table, 3)));
}

weft_value weft_nn_channels_last(weft_graph *g, weft_value x, int64_t channels)
{
    const int64_t batch = weft_dim(g, x, 0), tokens = weft_dim(g, x, 1), all = weft_dim(g, x, 2);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, tokens, channels, all / channels));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2});
    return weft_reshape(g, x, WEFT_SHAPE(batch, tokens, all));
}

/* Two transposes keep the batch a separate dim. */
weft_value weft_nn_unpatch(weft_graph *g, weft_value x, const int64_t size[3],
                           const int64_t patch[3])
{
    const int64_t pt = patch[0], py = patch[1], px = patch[2], batch = weft_dim(g, x, 0),
                  out = weft_dim(g, x, 2) / (pt * py * px);
    if (pt > 1) {
        x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0], size[1] * size[2], pt, py * px * out));
        x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    }
    x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0] * pt * size[1], size[2], py, px * out));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    return weft_reshape(g, x, WEFT_SHAPE(batch, size[0] * pt, size[1] * py, size[2] * px, out));
}

weft_value weft_nn_fold(weft_graph *g, weft_value x, const int64_t patch[3])
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2) / patch[1],
                  w = weft_dim(g, x, 3) / patch[2], frames = t / patch[0],
                  inner = patch[1] * patch[2] * weft_dim(g, x, 4);
    x = weft_reshape(g, x, WEFT_SHAPE(b, t * y, patch[1], w, inner / patch[1]));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    if (patch[0] > 1) {
        x = weft_reshape(g, x, WEFT_SHAPE(b, frames, patch[0], y * w, inner));
        x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    }
    return weft_reshape(g, x, WEFT_SHAPE(b, frames, y, w, patch[0] * inner));
}

weft_value weft_nn_pack(weft_graph *g, weft_value latents, int64_t side)
{
    const int64_t patch[3] = {1, side, side}, batch = weft_dim(g, latents, 0);
    const int64_t channels = weft_dim(g, latents, 4) * side * side;
    const weft_value x =
        weft_reshape(g, weft_nn_fold(g, latents, patch), WEFT_SHAPE(batch, -1, channels));
    return weft_nn_channels_last(g, x, side * side); /* inverse order: channels slowest */
}

weft_value weft_nn_unpack(weft_graph *g, weft_value x_bsc, const int64_t size[3], int64_t side)
{
    const int64_t patch[3] = {1, side, side}, channels = weft_dim(g, x_bsc, 2) / (side * side);
    return weft_nn_unpatch(g, weft_nn_channels_last(g, x_bsc, channels), size, patch);
}

weft_value weft_nn_pixel_unshuffle(weft_graph *g, weft_value x, int64_t side)
{
    if (!weft_value_ok(x))
        return x;
    const weft_shape whole = weft_value_get(g, x)->shape;
    const int64_t *d = whole.dim;
    return weft_reshape(g, weft_nn_pack(g, x, side),
                        WEFT_SHAPE(d[0], d[1], d[2] / side, d[3] / side, d[4] * side * side));
}

weft_value weft_nn_pixel_shuffle(weft_graph *g, weft_value x, int64_t side)
{
    if (!weft_value_ok(x))
        return x;
    const weft_shape whole = weft_value_get(g, x)->shape;
    const int64_t *d = whole.dim, size[3] = {d[1], d[2], d[3]};
    return weft_nn_unpack(g, weft_reshape(g, x, WEFT_SHAPE(d[0], d[1] * d[2] * d[3], d[4])), size,
                          side);
}

weft_value weft_nn_repeat(weft_graph *g, weft_value x, const int64_t times[3])
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    if (times[0] > 1) {
        x = weft_reshape(g, x, WEFT_SHAPE(b, t, 1, y * w * c));
        x = weft_broadcast(g, x, WEFT_SHAPE(b, t, times[0], y * w * c));
    }
    if (times[1] > 1 || times[2] > 1) {
        x = weft_reshape(g, x, WEFT_SHAPE(b, t * times[0] * y, 1, w, 1, c));
        x = weft_broadcast(g, x, WEFT_SHAPE(b, t * times[0] * y, times[1], w, times[2], c));
    }
    return weft_reshape(g, x, WEFT_SHAPE(b, t * times[0], y * times[1], w * times[2], c));
}

weft_value weft_nn_pixels_in(weft_graph *g, weft_value x, int64_t p)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2) / p,
                  w = weft_dim(g, x, 3) / p, c = weft_dim(g, x, 4);
    x = weft_reshape(g, x, WEFT_SHAPE(b, t * y, p, w, p, c));
    x = weft_permute(g, x, (int[]){0, 1, 3, 5, 4, 2});
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y, w, c * p * p));
}

weft_value weft_nn_pixels_out(weft_graph *g, weft_value x, int64_t p)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4) / (p * p);
    x = weft_reshape(g, x, WEFT_SHAPE(b, t * y, w, c, p, p));
    x = weft_permute(g, x, (int[]){0, 1, 5, 2, 4, 3});
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y * p, w * p, c));
}
