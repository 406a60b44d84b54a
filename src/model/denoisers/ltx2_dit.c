/* LTX-2 diffusion transformers (diffusers' LTX2VideoTransformer3DModel): 2.0, and 2.3 with gates
 * and a modulated text. Parameters have the names of the public checkpoints. Two streams of tokens,
 * of video and of audio, are denoised together. A token is one latent.
 *
 *   stream:  latents --linear--> x (B,S,C);  text --MLP--> y (B,L,C)
 *            timestep --sinusoid, MLP--> e; silu, linear --> (B,1 or S,6 or 9,C)
 *   block:   each stream:  x += gate1 attn(mod1(rms x));  x += cross(rms x, y)
 *            both:         h = rms x of each stream, before the streams change
 *                          video += gate attn(mod h_video, mod h_audio), and the other direction
 *            each stream:  x += gate2 ffn(mod2(rms x))
 *
 * Each stream has a width, heads and modulation of its own. Attention between the streams has the
 * audio's heads and rotary positions in seconds alone. RoPE is over the complete width, before the
 * split into heads.
 *
 * Shape letters: B batch, S tokens of a stream, L text tokens, C width of a stream, H heads, D head
 * width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/ltx2_layers.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

#include <math.h>
#include <string.h>

enum { VIDEO, AUDIO, STREAMS };
static const char *const prefix[STREAMS] = {"", "audio_"};

typedef struct stream {
    int64_t in_channels, out_channels, heads, head_dim, cross_dim, span;
    bool gated, text_mod, ff_bias;
} stream;

enum { INTERLEAVED, SPLIT };
typedef struct ltx2 {
    stream of[STREAMS];
    int64_t layers, text_dim, scale[3], side[2]; /* side: rows and columns of the base */
    int64_t audio_scale, rate, hop, causal_offset, rope_type;
    double eps, theta, time_unit, gate_time_unit;
    bool bias, out_bias, double_precision, project_text, prompt_adaln, perturbed;
} ltx2;
_Static_assert(sizeof(ltx2) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum { TIME_WIDTH = 256, MOST_AXES = 3 };
static const double last_eps = 1e-6, default_fps = 24;

static int64_t width_of(const ltx2 *c, int s)
{
    return c->of[s].heads * c->of[s].head_dim;
}

/* The text of both streams is modulated in every block (2.3). */
static bool modulates_text(const ltx2 *c)
{
    return c->of[VIDEO].text_mod || c->of[AUDIO].text_mod;
}

/* ---- positions ------------------------------------------------------------------------------ */

static float not_below_0(float x)
{
    return x > 0 ? x : 0;
}

/* Middle of a latent frame's first and last time, in frames of the video or steps of the
 * spectrogram. Frame 0 is shorter than the others. */
static void times_of(const ltx2 *c, int64_t frame, int64_t factor, float span[2])
{
    for (int i = 0; i < 2; i++)
        span[i] = not_below_0((float)((frame + i) * factor + c->causal_offset - factor));
}

/* Positions (1 or B,S,3) of the video in seconds, pixel rows and pixel columns. Quotients are
 * rounded to f32 one at a time, as in the reference: at angles of 15,708 the last bit matters. */
static weft_value video_positions(weft_graph *g, const ltx2 *c, const int64_t size[3],
                                  weft_value fps)
{
    const int64_t tokens = size[0] * size[1] * size[2];
    float *at = weft_calloc(tokens * 4, sizeof *at), *sides = at + 2 * tokens;
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    for (int64_t s = 0; s < tokens; s++) {
        const int64_t y = s / size[2] % size[1], x = s % size[2];
        float span[2];
        times_of(c, s / (size[1] * size[2]), c->scale[0], span);
        at[s] = span[0];
        at[tokens + s] = span[1];
        sides[2 * s] = (float)((2 * y + 1) * c->scale[1]) / 2;
        sides[2 * s + 1] = (float)((2 * x + 1) * c->scale[2]) / 2;
    }
    const float usual = (float)default_fps;
    if (!weft_value_ok(fps))
        fps = weft_constant(g, WEFT_F32, WEFT_SHAPE(1), &usual);
    const int64_t rates = weft_dim(g, fps, 0);
    const weft_value frames = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, 2, tokens), at);
    weft_value rest = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, tokens, 2), sides);
    weft_free(at);
    const weft_value seconds = weft_div(g, frames, weft_reshape(g, fps, WEFT_SHAPE(rates, 1, 1)));
    const weft_value middle = weft_affine(
        g, weft_add(g, weft_slice(g, seconds, 1, 0, 1), weft_slice(g, seconds, 1, 1, 1)), 0.5, 0);
    rest = weft_broadcast(g, rest, WEFT_SHAPE(rates, tokens, 2));
    return weft_concat(
        g, (weft_value[]){weft_reshape(g, middle, WEFT_SHAPE(rates, tokens, 1)), rest}, 2, 2);
}

/* Positions (1,S,1) of the audio in seconds. */
static weft_value audio_positions(weft_graph *g, const ltx2 *c, int64_t tokens)
{
    float *at = weft_calloc(tokens + 1, sizeof *at);
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    for (int64_t s = 0; s < tokens; s++) {
        float span[2];
        times_of(c, s, c->audio_scale, span);
        for (int i = 0; i < 2; i++)
            span[i] = span[i] * (float)c->hop / (float)c->rate;
        at[s] = (span[0] + span[1]) / 2;
    }
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, tokens, 1), at);
    weft_free(at);
    return v;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Values of a stream that its blocks share. Rows: (B,1 or S,rows,C) or (B,rows,C). */
typedef struct values {
    weft_value text, bias; /* bias of the text's keys, or WEFT_NONE */
    weft_value rows, cross_rows, gate_row, text_rows;
    weft_value joined;          /* (B): factor of the gates between the streams, or WEFT_NONE */
    const weft_value *attended; /* (B): of the current block, as in weft_ltx2_attention */
    weft_ltx2_tables rope, cross_rope;
} values;

/* Attention with the heads of `heads_of`. */
static weft_ltx2_attention attention_of(const ltx2 *c, const stream *heads_of, bool gated)
{
    return (weft_ltx2_attention){.heads = heads_of->heads,
                                 .head_dim = heads_of->head_dim,
                                 .bias = c->bias,
                                 .out_bias = c->out_bias,
                                 .gated = gated,
                                 .halves = c->rope_type == SPLIT};
}

static weft_value normed(weft_graph *g, const char *name, weft_value x, double eps)
{
    weft_graph_push(g, "%s", name);
    x = weft_nn_plain_rms_norm(g, x, eps);
    weft_graph_pop(g);
    return x;
}

static weft_value table(weft_graph *g, const char *name, int64_t rows, int64_t width)
{
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1.0 / sqrt((double)width)};
    return weft_param(g, name, WEFT_F32, WEFT_SHAPE(rows, width), init);
}

/* "PREFIX" "NAME" of a stream, in the arena of the graph. */
static const char *own(weft_graph *g, int s, const char *name)
{
    return weft_arena_printf(weft_graph_arena(g), "%s%s", prefix[s], name);
}

/* Rows `shift` and `scale` of a modulation applied to x. */
static weft_value modulated(weft_graph *g, weft_value x, weft_value rows, int64_t shift,
                            int64_t scale)
{
    return weft_nn_modulate(g, x, weft_nn_row(g, rows, scale), weft_nn_row(g, rows, shift));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Rows of a stream's table. The last three are of the attention to the text (2.3). */
enum {
    SHIFT1,
    SCALE1,
    GATE1,
    SHIFT2,
    SCALE2,
    GATE2,
    ROWS,
    SHIFT_TEXT = ROWS,
    SCALE_TEXT,
    GATE_TEXT,
    TEXT_ROWS
};

static int64_t rows_of(const stream *s)
{
    return s->text_mod ? TEXT_ROWS : ROWS;
}

/* Attention of a stream to itself and to its text. `mod`: its rows in this block. */
static weft_value attend_alone(weft_graph *g, const ltx2 *c, int s, const values *in, weft_value x,
                               weft_value mod)
{
    const stream *st = &c->of[s];
    const weft_ltx2_tables *const ropes[2] = {&in->rope, &in->rope};
    weft_value h = modulated(g, normed(g, own(g, s, "norm1"), x, c->eps), mod, SHIFT1, SCALE1);
    weft_ltx2_attention how = attention_of(c, st, st->gated);
    how.attended = in->attended;
    h = weft_ltx2_attend(g, &how, own(g, s, "attn1"), h, h, ropes, WEFT_NONE);
    how.attended = NULL;
    x = weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, GATE1));
    h = normed(g, own(g, s, "norm2"), x, c->eps);
    if (st->text_mod)
        h = modulated(g, h, mod, SHIFT_TEXT, SCALE_TEXT);
    weft_value text = in->text;
    if (modulates_text(c)) {
        weft_value rows = table(g, own(g, s, "prompt_scale_shift_table"), 2, width_of(c, s));
        rows = weft_value_ok(in->text_rows)
                   ? weft_add(g, in->text_rows, rows)
                   : weft_reshape(g, rows, WEFT_SHAPE(1, 2, width_of(c, s)));
        text = modulated(g, text, rows, 0, 1);
    }
    h = weft_ltx2_attend(g, &how, own(g, s, "attn2"), h, text, NULL, in->bias);
    return st->text_mod ? weft_nn_gated_add(g, x, h, weft_nn_row(g, mod, GATE_TEXT))
                        : weft_add(g, x, h);
}

/* Rows (B,...) times the factors (B); WEFT_NONE: 1. */
static weft_value scaled(weft_graph *g, weft_value rows, weft_value factors)
{
    if (weft_graph_check(g) != WEFT_OK || !weft_value_ok(factors))
        return rows;
    weft_shape each = weft_value_get(g, rows)->shape;
    each.dim[0] = weft_dim(g, factors, 0);
    for (int i = 1; i < each.rank; i++)
        each.dim[i] = 1;
    return weft_mul(g, rows, weft_reshape(g, factors, each));
}

/* Attention between the streams: both read the streams before they change. */
static void attend_each_other(weft_graph *g, const ltx2 *c, const values in[STREAMS],
                              weft_value x[STREAMS])
{
    static const char *const norms[STREAMS] = {"audio_to_video_norm", "video_to_audio_norm"},
                             *const names[STREAMS] = {"audio_to_video_attn", "video_to_audio_attn"},
                             *const tables_of[STREAMS] = {"video_a2v_cross_attn_scale_shift_table",
                                                          "audio_a2v_cross_attn_scale_shift_table"};
    weft_value h[STREAMS], rows[STREAMS], gate[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        const weft_value all = table(g, tables_of[s], 5, width_of(c, s));
        h[s] = normed(g, norms[s], x[s], c->eps);
        rows[s] = weft_add(g, in[s].cross_rows, weft_slice(g, all, 0, 0, 4));
        gate[s] = weft_add(g, in[s].gate_row, weft_slice(g, all, 0, 4, 1));
        gate[s] = scaled(g, gate[s], in[s].joined);
    }
    for (int s = 0; s < STREAMS; s++) { /* rows 0, 1: audio to video; 2, 3: video to audio */
        const weft_ltx2_tables *const ropes[2] = {&in[s].cross_rope, &in[1 - s].cross_rope};
        const weft_value to = modulated(g, h[s], rows[s], 2 * s + 1, 2 * s),
                         from = modulated(g, h[1 - s], rows[1 - s], 2 * s + 1, 2 * s);
        const weft_ltx2_attention how = attention_of(c, &c->of[AUDIO], c->of[s].gated);
        const weft_value made = weft_ltx2_attend(g, &how, names[s], to, from, ropes, WEFT_NONE);
        x[s] = weft_nn_gated_add(g, x[s], made, weft_nn_row(g, gate[s], 0));
    }
}

static void block(weft_graph *g, const ltx2 *c, const values in[STREAMS], weft_value x[STREAMS])
{
    weft_value mod[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        mod[s] =
            weft_add(g, in[s].rows,
                     table(g, own(g, s, "scale_shift_table"), rows_of(&c->of[s]), width_of(c, s)));
        x[s] = attend_alone(g, c, s, &in[s], x[s], mod[s]);
    }
    attend_each_other(g, c, in, x);
    for (int s = 0; s < STREAMS; s++) {
        weft_value h =
            modulated(g, normed(g, own(g, s, "norm3"), x[s], c->eps), mod[s], SHIFT2, SCALE2);
        h = weft_ltx2_feed_forward(g, own(g, s, "ff"), h, c->of[s].ff_bias);
        x[s] = weft_nn_gated_add(g, x[s], h, weft_nn_row(g, mod[s], GATE2));
    }
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Timesteps of the streams: their own, and for the attention between streams. */
typedef struct times {
    weft_value own[STREAMS], level[STREAMS], cross[STREAMS];
} times;

static int rank_of(const weft_graph *g, weft_value v)
{
    return weft_value_get(g, v)->shape.rank;
}

/* a if flag (1) is 1, b if 0. Per-token times (B,S) of one of the two give (B,S). */
static weft_value choose(weft_graph *g, weft_value flag, weft_value a, weft_value b)
{
    if (rank_of(g, a) < rank_of(g, b))
        a = weft_reshape(g, a, WEFT_SHAPE(weft_dim(g, a, 0), 1));
    if (rank_of(g, b) < rank_of(g, a))
        b = weft_reshape(g, b, WEFT_SHAPE(weft_dim(g, b, 0), 1));
    const weft_value on = weft_cast(g, flag, WEFT_F32);
    return weft_add(g, weft_mul(g, on, a), weft_mul(g, weft_affine(g, on, -1, 1), b));
}

static bool find_times(weft_graph *g, const ltx2 *c, const weft_ports *in, times *t)
{
    const weft_value flag = in->at[WEFT_PORT_CROSS_TIMES];
    t->own[VIDEO] = in->at[WEFT_PORT_TIMESTEP];
    t->own[AUDIO] = in->at[WEFT_PORT_AUDIO_TIMESTEP];
    t->level[VIDEO] = in->at[WEFT_PORT_LEVEL];
    t->level[AUDIO] = in->at[WEFT_PORT_AUDIO_LEVEL];
    if (weft_graph_check(g) != WEFT_OK)
        return false;
    if (!weft_value_ok(t->own[AUDIO]))
        t->own[AUDIO] = weft_value_ok(t->level[AUDIO])   ? t->level[AUDIO]
                        : weft_value_ok(t->level[VIDEO]) ? t->level[VIDEO]
                                                         : t->own[VIDEO];
    for (int s = 0; s < STREAMS; s++)
        if (!weft_value_ok(t->level[s]))
            t->level[s] =
                s == AUDIO && weft_value_ok(t->level[VIDEO]) ? t->level[VIDEO] : t->own[s];
    const bool cross = !weft_value_ok(flag) && modulates_text(c);
    for (int s = 0; s < STREAMS; s++)
        t->cross[s] = weft_value_ok(flag) ? choose(g, flag, t->level[1 - s], t->own[s])
                      : cross             ? t->level[1 - s]
                                          : t->own[s];
    for (int s = 0; s < STREAMS; s++)
        if ((modulates_text(c) || cross) && rank_of(g, t->level[s]) != 1) {
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "%stimesteps per token need the port %ssigma as well", prefix[s],
                            prefix[s]);
            return false;
        }
    return true;
}

static weft_value time_rows(weft_graph *g, const char *name, weft_value time, int64_t width,
                            int64_t rows, weft_value *embedded)
{
    weft_value unused;
    return weft_nn_time_rows(g, name, weft_nn_sinusoid(g, TIME_WIDTH, time), width, rows,
                             embedded ? embedded : &unused);
}

/* Modulation rows of a stream. *embedded: its embedded time, for the last norm. */
static void set_rows(weft_graph *g, const ltx2 *c, int s, const times *t, values *v,
                     weft_value *embedded)
{
    static const char *const cross[STREAMS] = {"av_cross_attn_video_scale_shift",
                                               "av_cross_attn_audio_scale_shift"},
                             *const gates[STREAMS] = {"av_cross_attn_video_a2v_gate",
                                                      "av_cross_attn_audio_v2a_gate"};
    const int64_t width = width_of(c, s);
    v->rows = time_rows(g, own(g, s, "time_embed"), t->own[s], width, rows_of(&c->of[s]), embedded);
    v->cross_rows = time_rows(g, cross[s], t->cross[s], width, 4, NULL);
    v->gate_row =
        time_rows(g, gates[s], weft_affine(g, t->cross[s], c->gate_time_unit / c->time_unit, 0),
                  width, 1, NULL);
    v->text_rows = WEFT_NONE;
    if (modulates_text(c) && c->prompt_adaln)
        v->text_rows = time_rows(g, own(g, s, "prompt_adaln"), t->level[s], width, 2, NULL);
}

/* Masked keys have a bias of -10000, as in the reference: an empty prompt is attended to
 * completely. */
static weft_value text_bias(weft_graph *g, weft_value mask)
{
    return weft_value_ok(mask) ? weft_affine(g, weft_cast(g, mask, WEFT_F32), 10000, -10000)
                               : WEFT_NONE;
}

static void set_text(weft_graph *g, const ltx2 *c, const weft_ports *in, values v[STREAMS])
{
    static const weft_port text[STREAMS] = {WEFT_PORT_TEXT, WEFT_PORT_AUDIO_TEXT},
                           mask[STREAMS] = {WEFT_PORT_TEXT_MASK, WEFT_PORT_AUDIO_TEXT_MASK};
    for (int s = 0; s < STREAMS; s++) {
        v[s].bias = text_bias(g, in->at[mask[s]]);
        v[s].text = in->at[text[s]];
        if (c->project_text)
            v[s].text = weft_nn_embedder(g, own(g, s, "caption_projection"), v[s].text,
                                         width_of(c, s), WEFT_NN_GELU_TANH);
    }
}

static void set_positions(weft_graph *g, const ltx2 *c, const weft_ports *in, const int64_t size[3],
                          values v[STREAMS])
{
    const stream *a = &c->of[AUDIO], *p = &c->of[VIDEO];
    const float whole[MOST_AXES] = {(float)p->span, (float)c->side[0], (float)c->side[1]},
                seconds = (float)a->span, longest = (float)(p->span > a->span ? p->span : a->span);
    const weft_value video = video_positions(g, c, size, in->at[WEFT_PORT_FPS]),
                     audio = audio_positions(g, c, weft_dim(g, in->at[WEFT_PORT_AUDIO], 1));
    const weft_ltx2_rope rope = {c->theta, c->double_precision, c->rope_type == SPLIT};
    weft_ltx2_rope_tables(g, &rope, video, whole, width_of(c, VIDEO), p->heads, &v[VIDEO].rope);
    weft_ltx2_rope_tables(g, &rope, audio, &seconds, width_of(c, AUDIO), a->heads, &v[AUDIO].rope);
    /* split angles are cut into the heads of their stream, interleaved ones belong to pairs */
    weft_ltx2_rope_tables(g, &rope, weft_slice(g, video, 2, 0, 1), &longest, width_of(c, AUDIO),
                          c->rope_type == SPLIT ? p->heads : a->heads, &v[VIDEO].cross_rope);
    weft_ltx2_rope_tables(g, &rope, audio, &longest, width_of(c, AUDIO), a->heads,
                          &v[AUDIO].cross_rope);
}

static weft_value project_out(weft_graph *g, const ltx2 *c, int s, weft_value x,
                              weft_value embedded)
{
    const weft_value rows =
        weft_add(g, embedded, table(g, own(g, s, "scale_shift_table"), 2, width_of(c, s)));
    x = modulated(g, weft_nn_plain_norm(g, x, last_eps), rows, 0, 1);
    return weft_nn_linear(g, own(g, s, "proj_out"), x, c->of[s].out_channels, WEFT_LINEAR_ZERO);
}

/* The port `attended` if block i is perturbed in this call, otherwise NULL. */
static const weft_value *attended_in(const weft_ports *ports, int64_t i)
{
    const int64_t *at = ports->perturbed;
    while (at && *at >= 0 && *at != i)
        at++;
    return at && *at == i ? &ports->at[WEFT_PORT_ATTENDED] : NULL;
}

static void check_perturbed(weft_graph *g, const ltx2 *c, const int64_t *block)
{
    for (; block && *block >= 0; block++)
        if (*block >= c->layers)
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "the model has blocks 0 to %" PRId64 ", and block %" PRId64
                            " is to have no self-attention. Change --stg-blocks.",
                            c->layers - 1, *block);
}

static void forward(weft_graph *g, const ltx2 *c, weft_ports *ports)
{
    const int64_t one[3] = {1, 1, 1};
    const weft_value latents = ports->at[WEFT_PORT_LATENTS];
    int64_t size[3];
    times t;
    values v[STREAMS];
    weft_value embedded[STREAMS], x[STREAMS];
    weft_nn_count_tokens(g, latents, one, size);
    if (weft_graph_check(g) != WEFT_OK || !find_times(g, c, ports, &t))
        return;
    const int64_t tokens = size[0] * size[1] * size[2], batch = weft_dim(g, latents, 0);
    x[VIDEO] = weft_reshape(g, latents, WEFT_SHAPE(batch, tokens, c->of[VIDEO].in_channels));
    x[AUDIO] = ports->at[WEFT_PORT_AUDIO];
    for (int s = 0; s < STREAMS; s++) {
        x[s] = weft_nn_linear(g, own(g, s, "proj_in"), x[s], width_of(c, s), WEFT_LINEAR_XAVIER);
        set_rows(g, c, s, &t, &v[s], &embedded[s]);
        v[s].joined = ports->at[WEFT_PORT_JOINED];
    }
    set_text(g, c, ports, v);
    set_positions(g, c, ports, size, v);
    check_perturbed(g, c, ports->perturbed);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        v[VIDEO].attended = v[AUDIO].attended = attended_in(ports, i);
        block(g, c, v, x);
        weft_graph_pop(g);
    }
    for (int s = 0; s < STREAMS; s++)
        x[s] = project_out(g, c, s, x[s], embedded[s]);
    ports->at[WEFT_PORT_PREDICTION] = weft_reshape(
        g, x[VIDEO], WEFT_SHAPE(batch, size[0], size[1], size[2], c->of[VIDEO].out_channels));
    ports->at[WEFT_PORT_AUDIO_PREDICTION] = x[AUDIO];
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const ltx2 *c = config;
    for (int s = 0; s < STREAMS; s++)
        if (c->of[s].head_dim % 2)
            return weft_error(
                WEFT_MSG_MODEL_CONFIG,
                WEFT_AT_FIELD(locations, s ? "audio_attention_head_dim" : "attention_head_dim",
                              c->of[s].head_dim),
                "%" PRId64 " is not even, which rotary embedding needs", c->of[s].head_dim);
    if (c->of[AUDIO].cross_dim != width_of(c, AUDIO))
        return weft_error(
            WEFT_MSG_MODEL_CONFIG,
            WEFT_AT_FIELD(locations, "audio_cross_attention_dim", c->of[AUDIO].cross_dim),
            "%" PRId64 " is not the audio's width of %" PRId64, c->of[AUDIO].cross_dim,
            width_of(c, AUDIO));
    if (c->rope_type == SPLIT && width_of(c, AUDIO) / 2 % c->of[VIDEO].heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "num_attention_heads", c->of[VIDEO].heads),
                          "the audio's width of %" PRId64
                          " is not a multiple of two angles per head of the video",
                          width_of(c, AUDIO));
    return weft_check_cross(locations, c->of[VIDEO].cross_dim, width_of(c, VIDEO));
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const ltx2 *c = config;
    const int64_t audio = s->audio > 0 ? s->audio : 1,
                  text_width = c->project_text ? c->text_dim : c->of[VIDEO].cross_dim;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_AUDIO_TIMESTEP:
        return s->audio_times > 1 ? WEFT_SHAPE(s->batch, s->audio_times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_LEVEL:
    case WEFT_PORT_AUDIO_LEVEL:
    case WEFT_PORT_JOINED:
    case WEFT_PORT_FPS: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_ATTENDED: return c->perturbed ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    case WEFT_PORT_CROSS_TIMES: return WEFT_SHAPE(1);
    case WEFT_PORT_AUDIO: return WEFT_SHAPE(s->batch, audio, c->of[AUDIO].in_channels);
    case WEFT_PORT_AUDIO_PREDICTION: return WEFT_SHAPE(s->batch, audio, c->of[AUDIO].out_channels);
    case WEFT_PORT_AUDIO_TEXT:
        return WEFT_SHAPE(s->batch, s->text,
                          c->project_text ? c->text_dim : c->of[AUDIO].cross_dim);
    case WEFT_PORT_AUDIO_TEXT_MASK: return WEFT_SHAPE(s->batch, s->text);
    default: return weft_denoiser_shape(s, port, c->of[VIDEO].in_channels, text_width);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const ltx2 *c = config;
    grid->factor[0] = grid->factor[1] = grid->factor[2] = 1;
    grid->channels = c->of[VIDEO].in_channels;
    grid->out_channels = c->of[VIDEO].out_channels;
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    cond->form = WEFT_FRAME_CONDITION_TIMES;
}

static int64_t video_width(const void *config)
{
    return width_of(config, VIDEO);
}

static int64_t audio_width(const void *config)
{
    return width_of(config, AUDIO);
}

/* clang-format off */
#define AT(member) offsetof(ltx2, member)
#define OF(s, member) (offsetof(ltx2, of) + (s) * sizeof(stream) + offsetof(stream, member))
static const char *const rope_types[] = {"\"interleaved\"", "\"split\"", NULL};
static const weft_field fields[] = {
    WEFT_LATENTS_IN_FIELD(OF(VIDEO, in_channels), "128"),
    WEFT_LATENTS_OUT_FIELD(OF(VIDEO, out_channels), "128"),
    {"patch_size", WEFT_FIELD_FIXED, .fallback = "1"},
    {"patch_size_t", WEFT_FIELD_FIXED, .fallback = "1"},
    WEFT_HEADS_FIELD(OF(VIDEO, heads), "32"),
    {"attention_head_dim", WEFT_FIELD_I64, OF(VIDEO, head_dim), "128", 2, 4096,
     .help = "width of a head of the video, even"},
    {"cross_attention_dim", WEFT_FIELD_I64, OF(VIDEO, cross_dim), .length = video_width,
     .min = 1, .max = 1 << 20, .help = "width of the video's tokens"},
    {"vae_scale_factors", WEFT_FIELD_I64S, AT(scale), "[8, 32, 32]", 1, 1 << 16, .capacity = 3,
     .length = weft_three, .help = "frames, rows and columns of pixels per latent"},
    {"pos_embed_max_pos", WEFT_FIELD_I64, OF(VIDEO, span), "20", 1, 1 << 20,
     .help = "seconds of the longest video"},
    {"base_height", WEFT_FIELD_I64, AT(side[0]), "2048", 1, 1 << 20,
     .help = "pixel rows of the largest video"},
    {"base_width", WEFT_FIELD_I64, AT(side[1]), "2048", 1, 1 << 20,
     .help = "pixel columns of the largest video"},
    {"gated_attn", WEFT_FIELD_BOOL, OF(VIDEO, gated), "false",
     .help = "gates of the heads of the video's attention"},
    {"cross_attn_mod", WEFT_FIELD_BOOL, OF(VIDEO, text_mod), "false",
     .help = "modulation of the video's attention to the text"},
    {"audio_in_channels", WEFT_FIELD_I64, OF(AUDIO, in_channels), "128", 1, 1 << 16,
     .help = "channels of a noisy audio latent"},
    {"audio_out_channels", WEFT_FIELD_I64, OF(AUDIO, out_channels), "128", 1, 1 << 16,
     .help = "output channels of an audio latent"},
    {"audio_patch_size", WEFT_FIELD_FIXED, .fallback = "1"},
    {"audio_patch_size_t", WEFT_FIELD_FIXED, .fallback = "1"},
    {"audio_num_attention_heads", WEFT_FIELD_I64, OF(AUDIO, heads), "32", 1, 1024,
     .help = "heads of the audio, and between video and audio"},
    {"audio_attention_head_dim", WEFT_FIELD_I64, OF(AUDIO, head_dim), "64", 2, 4096,
     .help = "width of a head of the audio, even"},
    {"audio_cross_attention_dim", WEFT_FIELD_I64, OF(AUDIO, cross_dim), .length = audio_width,
     .min = 1, .max = 1 << 20, .help = "width of the audio's tokens"},
    {"audio_scale_factor", WEFT_FIELD_I64, AT(audio_scale), "4", 1, 1 << 16,
     .help = "steps of the spectrogram per audio latent"},
    {"audio_pos_embed_max_pos", WEFT_FIELD_I64, OF(AUDIO, span), "20", 1, 1 << 20,
     .help = "seconds of the longest audio"},
    {"audio_sampling_rate", WEFT_FIELD_I64, AT(rate), "16000", 1, 1 << 20,
     .help = "audio samples per second"},
    {"audio_hop_length", WEFT_FIELD_I64, AT(hop), "160", 1, 1 << 20,
     .help = "audio samples per step of the spectrogram"},
    {"audio_gated_attn", WEFT_FIELD_BOOL, OF(AUDIO, gated), "false",
     .help = "gates of the heads of the audio's attention"},
    {"audio_cross_attn_mod", WEFT_FIELD_BOOL, OF(AUDIO, text_mod), "false",
     .help = "modulation of the audio's attention to the text"},
    WEFT_BLOCKS_FIELD(AT(layers), "48"),
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"gelu-approximate\""},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm_across_heads\""},
    {"norm_elementwise_affine", WEFT_FIELD_FIXED, .fallback = "false"},
    WEFT_NORM_EPS_FIELD(AT(eps), "1e-6"),
    WEFT_TEXT_WIDTH_FIELD("caption_channels", AT(text_dim), "3840"),
    {"attention_bias", WEFT_FIELD_BOOL, AT(bias), "true",
     .help = "bias of queries, keys and values"},
    {"attention_out_bias", WEFT_FIELD_BOOL, AT(out_bias), "true", .help = "bias after attention"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "10000", 1e-3, 1e9,
     .help = "largest rotary frequency over the smallest"},
    {"rope_double_precision", WEFT_FIELD_BOOL, AT(double_precision), "true",
     .help = "rotary frequencies are computed in f64"},
    {"causal_offset", WEFT_FIELD_I64, AT(causal_offset), "1", 0, 1 << 16,
     .help = "frames of pixels in the first latent frame"},
    {"timestep_scale_multiplier", WEFT_FIELD_F64, AT(time_unit), "1000", 1e-6, 1e9,
     .help = "timestep of noise"},
    {"cross_attn_timestep_scale_multiplier", WEFT_FIELD_F64, AT(gate_time_unit), "1000", 0, 1e9,
     .help = "timestep of noise for the gates between video and audio"},
    {"rope_type", WEFT_FIELD_WORD, AT(rope_type), "\"interleaved\"", .words = rope_types,
     .help = "rotary pairs: neighbours, or from both halves of a head"},
    {"use_prompt_embeddings", WEFT_FIELD_BOOL, AT(project_text), "true",
     .help = "the text is projected to the width of each stream"},
    {"perturbed_attn", WEFT_FIELD_BOOL, AT(perturbed), "false",
     .help = "self-attention can be perturbed (--stg-scale)"},
    {"ff_bias", WEFT_FIELD_BOOL, OF(VIDEO, ff_bias), "true",
     .help = "bias of the video's feed-forward"},
    {"audio_ff_bias", WEFT_FIELD_BOOL, OF(AUDIO, ff_bias), "true",
     .help = "bias of the audio's feed-forward"},
    {"use_prompt_adaln_single", WEFT_FIELD_BOOL, AT(prompt_adaln), "true",
     .help = "the modulation of the text depends on the timestep"},
    {"use_keyframes_abs_pos_embedding", WEFT_FIELD_FIXED, .fallback = "false"},
};

static const weft_named_config sizes[] = {
    {"ltx-2-19b", "{\"rope_type\": \"split\"}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,          false, "hidden_states", .form = WEFT_VIDEO_PACKED},
    {WEFT_PORT_AUDIO,            false, "audio_hidden_states"},
    {WEFT_PORT_TIMESTEP,         false, "timestep"},
    {WEFT_PORT_AUDIO_TIMESTEP,   false, "audio_timestep", .optional = true},
    {WEFT_PORT_LEVEL,            false, "sigma", .optional = true},
    {WEFT_PORT_AUDIO_LEVEL,      false, "audio_sigma", .optional = true},
    {WEFT_PORT_CROSS_TIMES,      false, "use_cross_timestep", .optional = true},
    {WEFT_PORT_JOINED,           false, "joined", .optional = true},
    {WEFT_PORT_ATTENDED,         false, "attended", .optional = true},
    {WEFT_PORT_TEXT,             false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,        false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_AUDIO_TEXT,       false, "audio_encoder_hidden_states"},
    {WEFT_PORT_AUDIO_TEXT_MASK,  false, "audio_encoder_attention_mask", .optional = true},
    {WEFT_PORT_FPS,              false, "fps", .optional = true},
    {WEFT_PORT_PREDICTION,       true,  "sample", .form = WEFT_VIDEO_PACKED, .target = "target"},
    {WEFT_PORT_AUDIO_PREDICTION, true,  "audio_sample", .target = "target_audio_sample"},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 1024, .clean = WEFT_CLEAN_TRIM,
     .connectors = "connectors", .audio_text = WEFT_PORT_AUDIO_TEXT},
};

/* Key mapping of LTX's own files. */
static const weft_rename_rule original[] = {
    {"video_embeddings_connector",            ""}, /* of the text connectors */
    {"audio_embeddings_connector",            ""},
    {"patchify_proj",                         "proj_in"},
    {"audio_patchify_proj",                   "audio_proj_in"},
    {"adaln_single",                          "time_embed"},
    {"audio_adaln_single",                    "audio_time_embed"},
    {"prompt_adaln_single",                   "prompt_adaln"},
    {"audio_prompt_adaln_single",             "audio_prompt_adaln"},
    {"av_ca_video_scale_shift_adaln_single",  "av_cross_attn_video_scale_shift"},
    {"av_ca_audio_scale_shift_adaln_single",  "av_cross_attn_audio_scale_shift"},
    {"av_ca_a2v_gate_adaln_single",           "av_cross_attn_video_a2v_gate"},
    {"av_ca_v2a_gate_adaln_single",           "av_cross_attn_audio_v2a_gate"},
    {"scale_shift_table_a2v_ca_video",        "video_a2v_cross_attn_scale_shift_table"},
    {"scale_shift_table_a2v_ca_audio",        "audio_a2v_cross_attn_scale_shift_table"},
    {"q_norm",                                "norm_q"},
    {"k_norm",                                "norm_k"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "av_cross_attn_video_scale_shift.linear.weight", NULL, 0},
    {"original", "av_ca_video_scale_shift_adaln_single.linear.weight", original,
     sizeof original / sizeof *original},
};

const weft_family weft_family_ltx2_dit = {
    .class_name = "LTX2VideoTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "diffusers", .pipeline = "LTX2Pipeline",
    .autoencoder = "AutoencoderKLLTX2Video",
    .image_pipeline = "LTX2ImageToVideoPipeline",
    .marks = {"audio_in_channels", "audio_scale_factor"},
    .config_bytes = sizeof(ltx2), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition, .frame_condition_help = "first frame",
    .fps = 24, .noise_levels = WEFT_LEVELS_EVEN,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_across, .recipes = WEFT_SPLIT_CROSS_LISTS,
};
/* clang-format on */
