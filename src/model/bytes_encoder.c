#include "model/bytes_encoder.h"

#include "model/json_fields.h"
#include "nn/nn.h"

#include <string.h>

weft_status weft_bytes_config_read(const json_t *json, const char *where, weft_bytes_config *config)
{
    weft_bytes_config c;
    WEFT_TRY(weft_model_read_count(json, "dim", where, 128, 1, &c.dim));
    WEFT_TRY(weft_model_read_count(json, "num_heads", where, 4, 1, &c.heads));
    WEFT_TRY(weft_model_read_count(json, "num_layers", where, 2, 0, &c.layers));
    WEFT_TRY(weft_model_read_count(json, "ffn_dim", where, 4 * c.dim, 1, &c.ffn_dim));
    WEFT_TRY(weft_model_read_count(json, "max_length", where, 64, 1, &c.max_length));
    if (c.dim % c.heads)
        return weft_fail(WEFT_E_FORMAT, "%s: \"dim\" %lld does not divide into \"num_heads\" %lld",
                         where, (long long)c.dim, (long long)c.heads);
    *config = c;
    return WEFT_OK;
}

json_t *weft_bytes_config_write(const weft_bytes_config *c)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "_class_name", "WeftBytesEncoder", "dim",
                     (json_int_t)c->dim, "num_heads", (json_int_t)c->heads, "num_layers",
                     (json_int_t)c->layers, "ffn_dim", (json_int_t)c->ffn_dim, "max_length",
                     (json_int_t)c->max_length);
}

static weft_value layer(weft_graph *g, const weft_bytes_config *c, weft_value x_blc)
{
    weft_value h = weft_nn_layer_norm(g, "norm1", x_blc, 1e-6);
    const weft_value q = weft_nn_linear(g, "to_q", h, c->dim, WEFT_LINEAR_XAVIER);
    const weft_value k = weft_nn_linear(g, "to_k", h, c->dim, WEFT_LINEAR_XAVIER);
    const weft_value v = weft_nn_linear(g, "to_v", h, c->dim, WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "to_out", weft_nn_attention(g, q, k, v, c->heads, NULL), c->dim,
                       WEFT_LINEAR_XAVIER);
    x_blc = weft_add(g, x_blc, h);
    h = weft_nn_linear(g, "fc1", weft_nn_layer_norm(g, "norm2", x_blc, 1e-6), c->ffn_dim,
                       WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "fc2", weft_gelu_tanh(g, h), c->dim, WEFT_LINEAR_XAVIER);
    return weft_add(g, x_blc, h);
}

weft_value weft_bytes_encoder(weft_graph *g, const weft_bytes_config *c, weft_value tokens_bl)
{
    const int64_t length = weft_dim(g, tokens_bl, 1);
    if (length > c->max_length)
        return weft_graph_fail(g, WEFT_E_SHAPE,
                               "%lld tokens, but the text encoder has %lld positions",
                               (long long)length, (long long)c->max_length);
    const weft_init normal = {.kind = WEFT_INIT_NORMAL, .value = 1.0};
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.5};
    const weft_value table =
        weft_param(g, "embed.weight", WEFT_F32, WEFT_SHAPE(WEFT_BYTES_VOCAB, c->dim), normal);
    weft_value position =
        weft_param(g, "position.weight", WEFT_F32, WEFT_SHAPE(c->max_length, c->dim), small);
    position =
        weft_reshape(g, weft_slice(g, position, 0, 0, length), WEFT_SHAPE(1, length, c->dim));
    weft_value x = weft_add(
        g, weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, tokens_bl}, 2, NULL), position);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "layers.%d", (int)i);
        x = layer(g, c, x);
        weft_graph_pop(g);
    }
    return weft_nn_layer_norm(g, "norm", x, 1e-6);
}

void weft_bytes_tokens(const weft_bytes_config *c, const char *caption, int32_t *tokens)
{
    int64_t n = (int64_t)strlen(caption);
    if (n > c->max_length - 1)
        n = c->max_length - 1;
    for (int64_t i = 0; i < c->max_length; i++)
        tokens[i] = i < n    ? (int32_t)(unsigned char)caption[i]
                    : i == n ? WEFT_BYTES_END
                             : WEFT_BYTES_PAD;
}
