/* Wan 2.1 text-to-video DiT.
 *
 *   latents --patch--> x (B,S,C) --[ layers x block ]--> norm, modulate, project --unpatch-->
 * prediction timestep --sinusoid, MLP--> temb (B,C) --silu, linear--> six modulations per block
 * (B,6,C) text --MLP--> context (B,L,C)
 *
 *   block: x += gate1 attn(mod1(norm x));  x += cross(norm x, context);  x += gate2 ffn(mod2(norm
 * x))
 *
 * Shape letters: B batch, S video tokens, L text tokens, C width, D head width. */
#include "model/wan_dit.h"

#include "model/json_fields.h"
#include "nn/nn.h"

#include <math.h>

weft_status weft_wan_dit_config_read(const json_t *json, const char *where,
                                     weft_wan_dit_config *config)
{
    weft_wan_dit_config c = {.patch = {1, 2, 2}};
    WEFT_TRY(weft_model_read_i64s(json, "patch_size", where, 3, c.patch));
    for (int i = 0; i < 3; i++)
        if (c.patch[i] < 1 || c.patch[i] > 64)
            return weft_fail(WEFT_E_FORMAT, "%s: \"patch_size\"[%d] is %lld; it must lie in 1..64",
                             where, i, (long long)c.patch[i]);
    WEFT_TRY(weft_model_read_count(json, "num_attention_heads", where, 40, 1, &c.heads));
    WEFT_TRY(weft_model_read_count(json, "attention_head_dim", where, 128, 2, &c.head_dim));
    WEFT_TRY(weft_model_read_count(json, "in_channels", where, 16, 1, &c.in_channels));
    WEFT_TRY(weft_model_read_count(json, "out_channels", where, c.in_channels, 1, &c.out_channels));
    WEFT_TRY(weft_model_read_count(json, "text_dim", where, 4096, 1, &c.text_dim));
    WEFT_TRY(weft_model_read_count(json, "freq_dim", where, 256, 2, &c.freq_dim));
    WEFT_TRY(weft_model_read_count(json, "ffn_dim", where, 13824, 1, &c.ffn_dim));
    WEFT_TRY(weft_model_read_count(json, "num_layers", where, 40, 0, &c.layers));
    WEFT_TRY(weft_model_read_count(json, "rope_max_seq_len", where, 1024, 1, &c.rope_max_seq_len));
    WEFT_TRY(weft_json_get_bool_or(json, "cross_attn_norm", where, true, &c.cross_attn_norm));
    WEFT_TRY(weft_json_get_f64_or(json, "eps", where, 1e-6, &c.eps));
    WEFT_TRY(weft_model_require(json, "qk_norm", where, "\"rms_norm_across_heads\""));
    WEFT_TRY(weft_model_require(json, "image_dim", where, "null"));
    WEFT_TRY(weft_model_require(json, "added_kv_proj_dim", where, "null"));
    if (c.head_dim % 2)
        return weft_fail(
            WEFT_E_FORMAT,
            "%s: \"attention_head_dim\" is %lld; rotary embedding needs an even number", where,
            (long long)c.head_dim);
    *config = c;
    return WEFT_OK;
}

json_t *weft_wan_dit_config_write(const weft_wan_dit_config *c)
{
    return json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:f, s:n, s:n, s:I, s:n}",
        "_class_name", "WanTransformer3DModel", "patch_size", weft_model_write_i64s(c->patch, 3),
        "num_attention_heads", (json_int_t)c->heads, "attention_head_dim", (json_int_t)c->head_dim,
        "in_channels", (json_int_t)c->in_channels, "out_channels", (json_int_t)c->out_channels,
        "text_dim", (json_int_t)c->text_dim, "freq_dim", (json_int_t)c->freq_dim, "ffn_dim",
        (json_int_t)c->ffn_dim, "num_layers", (json_int_t)c->layers, "cross_attn_norm",
        c->cross_attn_norm, "qk_norm", "rms_norm_across_heads", "eps", c->eps, "image_dim",
        "added_kv_proj_dim", "rope_max_seq_len", (json_int_t)c->rope_max_seq_len,
        "pos_embed_seq_len");
}

int64_t weft_wan_dit_tokens(const weft_wan_dit_config *c, int64_t t, int64_t y, int64_t x)
{
    return (t / c->patch[0]) * (y / c->patch[1]) * (x / c->patch[2]);
}

/* cos and sin of 3D rotary positions, (S, D/2): the head's pairs are dealt to T, Y, X in this
 * order; Y and X get floor(D/6) pairs each. Angles in f64, as the reference has them. */
static void rope_tables(weft_graph *g, const weft_wan_dit_config *c, const int64_t size[3],
                        weft_value cos_sin[2])
{
    const int64_t pairs = c->head_dim / 2, side = c->head_dim / 6;
    const int64_t pairs_of[3] = {pairs - 2 * side, side, side};
    const int64_t tokens = size[0] * size[1] * size[2];
    cos_sin[0] = cos_sin[1] = WEFT_NONE;
    float *table = weft_alloc(2 * tokens * pairs * (int64_t)sizeof(float));
    if (!table) {
        weft_graph_fail(g, WEFT_E_MEMORY, "rope: out of memory for %lld tokens", (long long)tokens);
        return;
    }
    float *cosine = table, *sine = table + tokens * pairs;
    for (int64_t s = 0; s < tokens; s++) {
        const int64_t position[3] = {s / (size[1] * size[2]), s / size[2] % size[1], s % size[2]};
        int64_t at = s * pairs;
        for (int a = 0; a < 3; a++)
            for (int64_t i = 0; i < pairs_of[a]; i++, at++) {
                const double frequency = 1.0 / pow(10000.0, (double)i / (double)pairs_of[a]);
                cosine[at] = (float)cos((double)position[a] * frequency);
                sine[at] = (float)sin((double)position[a] * frequency);
            }
    }
    cos_sin[0] = weft_constant(g, WEFT_F32, WEFT_SHAPE(tokens, pairs), cosine);
    cos_sin[1] = weft_constant(g, WEFT_F32, WEFT_SHAPE(tokens, pairs), sine);
    weft_free(table);
}

/* timestep (B) -> (B, freq_dim): cosines, then sines. The frequencies are rounded to f32 at each
 * step, as in the reference: at t near 1000 their last bit shows in the angle. */
static weft_value sinusoid(weft_graph *g, int64_t freq_dim, weft_value timestep_b)
{
    const int64_t half = freq_dim / 2;
    float *frequency = weft_alloc(half * (int64_t)sizeof(float));
    if (!frequency)
        return weft_graph_fail(g, WEFT_E_MEMORY, "out of memory for %lld frequencies",
                               (long long)half);
    for (int64_t i = 0; i < half; i++)
        frequency[i] = expf((float)-9.210340371976184 * (float)i / (float)half);
    const weft_value table = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, half), frequency);
    weft_free(frequency);
    const weft_value t = weft_reshape(g, timestep_b, WEFT_SHAPE(weft_dim(g, timestep_b, 0), 1));
    const weft_value angle = weft_mul(g, t, table);
    const weft_value parts[2] = {weft_unary(g, WEFT_OP_COS, angle),
                                 weft_unary(g, WEFT_OP_SIN, angle)};
    return weft_concat(g, parts, 2, 1);
}

/* One row of the modulation table: (B, rows, C) -> (B, 1, C). */
static weft_value row(weft_graph *g, weft_value table_brc, int64_t index)
{
    return weft_slice(g, table_brc, 1, index, 1);
}

static weft_value modulate(weft_graph *g, weft_value x, weft_value scale, weft_value shift)
{
    return weft_emit(g, WEFT_OP_MODULATE, (weft_value[]){x, scale, shift}, 3, NULL);
}

/* Self-attention when context is x itself (rope given), else cross-attention. */
static weft_value attention(weft_graph *g, const weft_wan_dit_config *c, const char *name,
                            weft_value x_bsc, weft_value context_blc, const weft_value *rope)
{
    const int64_t width = c->heads * c->head_dim;
    weft_graph_push(g, "%s", name);
    weft_value q = weft_nn_linear(g, "to_q", x_bsc, width, WEFT_LINEAR_XAVIER);
    weft_value k = weft_nn_linear(g, "to_k", context_blc, width, WEFT_LINEAR_XAVIER);
    const weft_value v = weft_nn_linear(g, "to_v", context_blc, width, WEFT_LINEAR_XAVIER);
    q = weft_nn_rms_norm(g, "norm_q", q, c->eps);
    k = weft_nn_rms_norm(g, "norm_k", k, c->eps);
    const weft_value mixed = weft_nn_attention(g, q, k, v, c->heads, rope);
    const weft_value out = weft_nn_linear(g, "to_out.0", mixed, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

static weft_value feed_forward(weft_graph *g, const weft_wan_dit_config *c, weft_value x_bsc)
{
    weft_graph_push(g, "ffn.net");
    weft_value h = weft_nn_linear(g, "0.proj", x_bsc, c->ffn_dim, WEFT_LINEAR_XAVIER);
    h = weft_gelu_tanh(g, h);
    h = weft_nn_linear(g, "2", h, c->heads * c->head_dim, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return h;
}

static weft_value modulation_table(weft_graph *g, const weft_wan_dit_config *c, int64_t rows)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1.0 / sqrt((double)width)};
    return weft_param(g, "scale_shift_table", WEFT_F32, WEFT_SHAPE(1, rows, width), init);
}

static weft_value block(weft_graph *g, const weft_wan_dit_config *c, weft_value x_bsc,
                        weft_value context_blc, weft_value temb_b6c, const weft_value *rope)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 };
    const weft_value mod = weft_add(g, temb_b6c, modulation_table(g, c, 6));

    weft_value h =
        modulate(g, weft_nn_plain_norm(g, x_bsc, c->eps), row(g, mod, SCALE1), row(g, mod, SHIFT1));
    h = attention(g, c, "attn1", h, h, rope);
    x_bsc = weft_emit(g, WEFT_OP_GATED_ADD, (weft_value[]){x_bsc, h, row(g, mod, GATE1)}, 3, NULL);

    h = c->cross_attn_norm ? weft_nn_layer_norm(g, "norm2", x_bsc, c->eps) : x_bsc;
    x_bsc = weft_add(g, x_bsc, attention(g, c, "attn2", h, context_blc, NULL));

    h = modulate(g, weft_nn_plain_norm(g, x_bsc, c->eps), row(g, mod, SCALE2), row(g, mod, SHIFT2));
    h = feed_forward(g, c, h);
    return weft_emit(g, WEFT_OP_GATED_ADD, (weft_value[]){x_bsc, h, row(g, mod, GATE2)}, 3, NULL);
}

/* (B, S, pt ph pw C) -> (B,T,Y,X,C): two transposes, so that the batch stays a dim of its own. */
static weft_value unpatch(weft_graph *g, const weft_wan_dit_config *c, weft_value x, int64_t batch,
                          const int64_t size[3])
{
    const int64_t pt = c->patch[0], py = c->patch[1], px = c->patch[2], out = c->out_channels;
    if (pt > 1) {
        x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0], size[1] * size[2], pt, py * px * out));
        x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    }
    x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0] * pt * size[1], size[2], py, px * out));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    return weft_reshape(g, x, WEFT_SHAPE(batch, size[0] * pt, size[1] * py, size[2] * px, out));
}

/* timestep and text to (temb (B,C), block modulations (B,6,C), context (B,L,C)). */
static void condition(weft_graph *g, const weft_wan_dit_config *c, weft_value timestep_b,
                      weft_value text_blc, weft_value *temb_bc, weft_value *modulation_b6c,
                      weft_value *context_blc)
{
    const int64_t width = c->heads * c->head_dim, batch = weft_dim(g, timestep_b, 0);
    weft_graph_push(g, "condition_embedder");
    weft_graph_push(g, "time_embedder");
    weft_value t = weft_nn_linear(g, "linear_1", sinusoid(g, c->freq_dim, timestep_b), width,
                                  WEFT_LINEAR_XAVIER);
    t = weft_nn_linear(g, "linear_2", weft_unary(g, WEFT_OP_SILU, t), width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    *temb_bc = t;
    t = weft_nn_linear(g, "time_proj", weft_unary(g, WEFT_OP_SILU, t), 6 * width,
                       WEFT_LINEAR_XAVIER);
    *modulation_b6c = weft_reshape(g, t, WEFT_SHAPE(batch, 6, width));
    weft_graph_push(g, "text_embedder");
    weft_value text = weft_nn_linear(g, "linear_1", text_blc, width, WEFT_LINEAR_XAVIER);
    *context_blc =
        weft_nn_linear(g, "linear_2", weft_gelu_tanh(g, text), width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    weft_graph_pop(g);
}

weft_value weft_wan_dit(weft_graph *g, const weft_wan_dit_config *c, weft_value latents_btyxc,
                        weft_value timestep_b, weft_value text_blc)
{
    const int64_t width = c->heads * c->head_dim, batch = weft_dim(g, latents_btyxc, 0);
    int64_t size[3]; /* in patches */
    weft_conv_shape patch = {0};
    for (int i = 0; i < 3; i++) {
        const int64_t extent = weft_dim(g, latents_btyxc, 1 + i);
        if (extent % c->patch[i])
            return weft_graph_fail(g, WEFT_E_SHAPE,
                                   "latent %s %lld is not a multiple of the patch %lld",
                                   (const char *[]){"frames", "height", "width"}[i],
                                   (long long)extent, (long long)c->patch[i]);
        size[i] = extent / c->patch[i];
        if (size[i] > c->rope_max_seq_len)
            return weft_graph_fail(g, WEFT_E_SHAPE,
                                   "%lld patches along %s exceed rope_max_seq_len %lld",
                                   (long long)size[i], (const char *[]){"T", "Y", "X"}[i],
                                   (long long)c->rope_max_seq_len);
        patch.kernel[i] = patch.stride[i] = c->patch[i];
    }
    weft_value rope[2];
    rope_tables(g, c, size, rope);
    weft_value x = weft_nn_conv(g, "patch_embedding", latents_btyxc, width, patch, false);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, size[0] * size[1] * size[2], width));

    weft_value temb_bc, modulation_b6c, context_blc;
    condition(g, c, timestep_b, text_blc, &temb_bc, &modulation_b6c, &context_blc);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "blocks.%d", (int)i);
        x = block(g, c, x, context_blc, modulation_b6c, rope);
        weft_graph_pop(g);
    }
    const weft_value temb_b1c = weft_reshape(g, temb_bc, WEFT_SHAPE(batch, 1, width));
    const weft_value mod = weft_add(g, temb_b1c, modulation_table(g, c, 2)); /* shift, scale */
    x = modulate(g, weft_nn_plain_norm(g, x, c->eps), row(g, mod, 1), row(g, mod, 0));
    x = weft_nn_linear(g, "proj_out", x, c->patch[0] * c->patch[1] * c->patch[2] * c->out_channels,
                       WEFT_LINEAR_ZERO);
    return unpatch(g, c, x, batch, size);
}
