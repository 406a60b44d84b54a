#include "model/denoisers/latent_history.h"

#include "graph/builder_helpers.h"
#include "model/denoisers/mmdit.h"
#include "nn/nn.h"

#include <math.h>

/* Latent frames as published. */
static const int64_t published[WEFT_LATENT_HISTORIES] = {2, 2, 16};
static const weft_port ports[WEFT_LATENT_HISTORIES] = {WEFT_PORT_HISTORY, WEFT_PORT_HISTORY_2X,
                                                       WEFT_PORT_HISTORY_4X},
                       index_ports[WEFT_LATENT_HISTORIES] = {WEFT_PORT_HISTORY_INDEX,
                                                             WEFT_PORT_HISTORY_2X_INDEX,
                                                             WEFT_PORT_HISTORY_4X_INDEX};

/* A multiple of `by` in dim `dim`: the last item is repeated. */
static weft_value pad_end(weft_graph *g, weft_value x, int dim, int64_t by)
{
    enum { MOST = 8 };
    weft_value part[MOST] = {x};
    const int64_t length = weft_dim(g, x, dim), more = (by - length % by) % by;
    for (int64_t i = 0; i < more; i++)
        part[1 + i] = weft_slice(g, x, dim, length - 1, 1);
    return more ? weft_concat(g, part, (int)more + 1, dim) : x;
}

/* Means of cos and sin of the positions 0 to length - 1 in groups of `by`; the last position is
 * repeated up to a multiple. Writes (groups, pairs) to cos_sin[2]. */
static void mean_axis(double theta, int64_t pairs, int64_t length, int64_t by, float *cos_sin[2])
{
    const int64_t groups = (length + by - 1) / by;
    for (int64_t i = 0; i < groups * pairs; i++) {
        const float frequency = 1.0f / (float)pow(theta, (double)(i % pairs) / (double)pairs);
        double mean[2] = {0, 0};
        for (int64_t k = i / pairs * by; k < (i / pairs + 1) * by; k++) {
            const float angle = (float)(k < length ? k : length - 1) * frequency;
            mean[0] += cos((double)angle) / (double)by;
            mean[1] += sin((double)angle) / (double)by;
        }
        cos_sin[0][i] = (float)mean[0];
        cos_sin[1][i] = (float)mean[1];
    }
}

/* Tables (1,1,Y,X,pairs of rows and columns) of groups of by x by tokens among rows x columns. */
static void mean_places(weft_graph *g, const weft_latent_history *h, int64_t by,
                        weft_value table[2])
{
    weft_value part[2][2] = {{WEFT_NONE, WEFT_NONE}, {WEFT_NONE, WEFT_NONE}};
    const int64_t rows = (h->size[0] + by - 1) / by, columns = (h->size[1] + by - 1) / by;
    for (int d = 0; d < 2; d++) {
        const int64_t pairs = h->axes[d + 1] / 2, groups = d ? columns : rows;
        float *cos_sin[2] = {weft_calloc(groups * pairs + 1, sizeof(float)),
                             weft_calloc(groups * pairs + 1, sizeof(float))};
        if (cos_sin[0] && cos_sin[1])
            mean_axis(h->theta, pairs, h->size[d], by, cos_sin);
        else
            weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
        for (int i = 0; i < 2 && cos_sin[0] && cos_sin[1]; i++) {
            const weft_shape own =
                d ? WEFT_SHAPE(1, 1, 1, columns, pairs) : WEFT_SHAPE(1, 1, rows, 1, pairs);
            part[i][d] = weft_broadcast(g, weft_constant(g, WEFT_F32, own, cos_sin[i]),
                                        WEFT_SHAPE(1, 1, rows, columns, pairs));
        }
        weft_free(cos_sin[0]);
        weft_free(cos_sin[1]);
    }
    for (int i = 0; i < 2; i++)
        table[i] = weft_concat(g, part[i], 2, 4);
}

void weft_latent_history_rope(weft_graph *g, const weft_latent_history *h, weft_value index,
                              int64_t by, weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t batch = weft_dim(g, index, 0), pairs = h->axes[0] / 2,
                  rest = (h->axes[1] + h->axes[2]) / 2;
    weft_value at = pad_end(g, index, 1, by), places[2];
    const int64_t frames = weft_dim(g, at, 1) / by, rows = (h->size[0] + by - 1) / by,
                  columns = (h->size[1] + by - 1) / by;
    at = weft_reshape(g, at, WEFT_SHAPE(batch, frames * by, 1));
    const weft_value angle = weft_mmdit_angles(g, at, h->theta, pairs);
    mean_places(g, h, by, places);
    for (int i = 0; i < 2; i++) {
        weft_value time = weft_unary(g, i ? WEFT_OP_SIN : WEFT_OP_COS, angle);
        time = weft_mean(g, weft_reshape(g, time, WEFT_SHAPE(batch, frames, by, pairs)), 1u << 2);
        const weft_value part[] = {
            weft_broadcast(g, weft_reshape(g, time, WEFT_SHAPE(batch, frames, 1, 1, pairs)),
                           WEFT_SHAPE(batch, frames, rows, columns, pairs)),
            weft_broadcast(g, places[i], WEFT_SHAPE(batch, frames, rows, columns, rest))};
        cos_sin[i] = weft_reshape(g, weft_concat(g, part, 2, 4),
                                  WEFT_SHAPE(batch, frames * rows * columns, 1, pairs + rest));
    }
}

weft_value weft_latent_history_index(weft_graph *g, weft_value index, weft_value latents,
                                     int64_t first, int64_t frames)
{
    if (weft_value_ok(index))
        return index;
    float *at = weft_calloc(frames + 1, sizeof *at);
    if (!at)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    for (int64_t i = 0; i < frames; i++)
        at[i] = (float)(first + i);
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, frames), at);
    weft_free(at);
    return weft_broadcast(g, v, WEFT_SHAPE(weft_dim(g, latents, 0), frames));
}

weft_history_part weft_latent_history_part(weft_graph *g, const weft_ports *in, int at,
                                           weft_value latents)
{
    weft_history_part part = {in->at[ports[at]], in->at[index_ports[at]]};
    if (!weft_value_ok(part.latents) && weft_value_ok(latents)) {
        weft_shape shape = weft_value_get(g, latents)->shape;
        shape.dim[1] = published[at];
        part.latents = weft_fill(g, WEFT_F32, shape, 0);
    }
    return part;
}

weft_value weft_latent_history_tokens(weft_graph *g, const weft_latent_history *h,
                                      const weft_history_part part[WEFT_LATENT_HISTORIES],
                                      weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    enum { LAST = WEFT_LATENT_HISTORIES - 1 };
    weft_value token[WEFT_LATENT_HISTORIES], table[2][WEFT_LATENT_HISTORIES], one[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < WEFT_LATENT_HISTORIES; i++) {
        const int64_t by = 1 << i, patch[3] = {by, 2 * by, 2 * by};
        weft_value latents = part[i].latents;
        weft_latent_history_rope(g, h, part[i].index, by, one);
        for (int d = 0; d < 3; d++)
            latents = pad_end(g, latents, d + 1, patch[d]);
        token[LAST - i] =
            weft_nn_patch(g, h->layer[i], latents, h->width, patch, WEFT_PATCH_3D, true);
        for (int k = 0; k < 2; k++)
            table[k][LAST - i] = one[k];
    }
    for (int k = 0; k < 2; k++)
        cos_sin[k] = weft_concat(g, table[k], WEFT_LATENT_HISTORIES, 1);
    return weft_concat(g, token, WEFT_LATENT_HISTORIES, 1);
}

weft_shape weft_latent_history_shape(const weft_model_size *s, weft_port port, int64_t channels)
{
    const int64_t rows = s->history_area[0] ? s->history_area[0] : s->height,
                  columns = s->history_area[1] ? s->history_area[1] : s->width;
    for (int i = 0; i < WEFT_LATENT_HISTORIES; i++) {
        const int64_t frames = s->history[i] ? s->history[i] : published[i];
        if (port == ports[i])
            return WEFT_SHAPE(s->batch, frames, rows, columns, channels);
        if (port == index_ports[i])
            return WEFT_SHAPE(s->batch, frames);
    }
    return port == WEFT_PORT_INDEX ? WEFT_SHAPE(s->batch, s->frames) : WEFT_SCALAR;
}
