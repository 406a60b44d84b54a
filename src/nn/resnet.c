#include "nn/resnet.h"

#include "graph/builder_helpers.h"

#include <stdio.h>

weft_value weft_nn_pad_edge(weft_graph *g, weft_value x, int dim, int64_t before, int64_t after)
{
    if (!weft_value_ok(x) || before + after == 0)
        return x;
    weft_value part[3];
    int count = 0;
    const int64_t size = weft_dim(g, x, dim);
    weft_shape shape = weft_value_get(g, x)->shape;
    if (before) {
        shape.dim[dim] = before;
        part[count++] = weft_broadcast(g, weft_slice(g, x, dim, 0, 1), shape);
    }
    part[count++] = x;
    if (after) {
        shape.dim[dim] = after;
        part[count++] = weft_broadcast(g, weft_slice(g, x, dim, size - 1, 1), shape);
    }
    return weft_concat(g, part, count, dim);
}

weft_value weft_nn_conv_2d(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k)
{
    const int64_t p = k / 2;
    const weft_conv_shape same = {
        .kernel = {1, k, k}, .stride = {1, 1, 1}, .before = {0, p, p}, .after = {0, p, p}};
    return weft_nn_conv(g, name, x, out, same, true);
}

weft_value weft_nn_conv_point(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    const weft_conv_shape one = {.kernel = {1, 1, 1}, .stride = {1, 1, 1}};
    return weft_nn_conv(g, name, x, out, one, false);
}

weft_value weft_nn_conv_edge(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k,
                             const int64_t stride[3])
{
    const weft_conv_shape shape = {.kernel = {k, k, k},
                                   .stride = {stride[0], stride[1], stride[2]}};
    x = weft_nn_pad_edge(g, x, 1, k - 1, 0);
    x = weft_nn_pad_edge(g, x, 2, k / 2, k / 2);
    x = weft_nn_pad_edge(g, x, 3, k / 2, k / 2);
    weft_graph_push(g, "%s", name);
    x = weft_nn_conv(g, "conv", x, out, shape, false);
    weft_graph_pop(g);
    return x;
}

int64_t weft_nn_halvings(int64_t factor)
{
    int64_t count = 0;
    for (; factor > 1; factor /= 2)
        count++;
    return count;
}

static weft_value norm(weft_nn_coder *co, const char *name, weft_value x)
{
    if (co->norm)
        return co->norm(co, name, x);
    return co->each_frame ? weft_nn_frame_norm(co->g, name, x, co->groups, co->eps)
                          : weft_nn_group_norm(co->g, name, x, co->groups, co->eps);
}

weft_value weft_nn_norm_silu(weft_nn_coder *co, const char *name, weft_value x)
{
    return weft_unary(co->g, WEFT_OP_SILU, norm(co, name, x));
}

weft_value weft_nn_res_block(weft_nn_coder *co, const char *name, weft_value x, int64_t out)
{
    weft_graph_push(co->g, "%s", name);
    weft_value h = co->conv(co, "conv1", weft_nn_norm_silu(co, "norm1", x), out, 3);
    h = co->conv(co, "conv2", weft_nn_norm_silu(co, "norm2", h), out, 3);
    if (weft_dim(co->g, x, 4) != out)
        x = co->conv(co, "conv_shortcut", x, out, 1);
    weft_graph_pop(co->g);
    return weft_add(co->g, x, h);
}

weft_value weft_nn_res_blocks(weft_nn_coder *co, weft_value x, int64_t out, int64_t count)
{
    for (int64_t r = 0; r < count; r++) {
        char name[32];
        snprintf(name, sizeof name, "resnets.%d", (int)r);
        x = weft_nn_res_block(co, name, x, out);
    }
    return x;
}

weft_value weft_nn_attend_frames(weft_graph *g, weft_value q, weft_value k, weft_value v)
{
    const int64_t b = weft_dim(g, q, 0), t = weft_dim(g, q, 1), s = weft_dim(g, q, 2),
                  c = weft_dim(g, q, 3);
    weft_value out = WEFT_NONE;
    for (int64_t i = 0; i < t; i++) {
        const weft_shape all = WEFT_SHAPE(b, (i + 1) * s, c);
        const weft_value frame =
            weft_nn_attention(g, weft_reshape(g, weft_slice(g, q, 1, i, 1), WEFT_SHAPE(b, s, c)),
                              weft_reshape(g, weft_slice(g, k, 1, 0, i + 1), all),
                              weft_reshape(g, weft_slice(g, v, 1, 0, i + 1), all), 1, NULL);
        out = i ? weft_concat(g, (weft_value[]){out, frame}, 2, 1) : frame;
    }
    return out;
}

weft_value weft_nn_pixel_attention(weft_nn_coder *co, const char *name, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    weft_graph_push(g, "%s", name);
    weft_value h = norm(co, "group_norm", x);
    h = weft_reshape(g, h,
                     co->each_frame ? WEFT_SHAPE(b * t, y * w, c) : WEFT_SHAPE(b, t, y * w, c));
    const weft_value q = weft_nn_linear(g, "to_q", h, c, WEFT_LINEAR_XAVIER),
                     k = weft_nn_linear(g, "to_k", h, c, WEFT_LINEAR_XAVIER),
                     v = weft_nn_linear(g, "to_v", h, c, WEFT_LINEAR_XAVIER);
    h = co->each_frame ? weft_nn_attention(g, q, k, v, 1, NULL) : weft_nn_attend_frames(g, q, k, v);
    h = weft_nn_linear(g, "to_out.0", h, c, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return weft_add(g, x, weft_reshape(g, h, WEFT_SHAPE(b, t, y, w, c)));
}

weft_value weft_nn_mid_block(weft_nn_coder *co, weft_value x, bool attention)
{
    const int64_t c = weft_dim(co->g, x, 4);
    weft_graph_push(co->g, "mid_block");
    x = weft_nn_res_block(co, "resnets.0", x, c);
    if (attention)
        x = weft_nn_pixel_attention(co, "attentions.0", x);
    x = weft_nn_res_block(co, "resnets.1", x, c);
    weft_graph_pop(co->g);
    return x;
}
