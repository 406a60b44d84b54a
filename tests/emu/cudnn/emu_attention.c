/* The computation of attention and its gradient. */
#include "emu_cudnn.h"

#include <math.h>
#include <stdlib.h>

/* One head of a sample: rows of queries, keys and values. */
typedef struct head {
    int64_t rows, keys, width, depth; /* depth: of values */
    const float *q, *k, *v;
    float scale;
    int type;
} head;

typedef struct tensors {
    int64_t heads, key_heads, value_heads, samples, rows, keys, width, depth;
    float *of[DNN_TENSORS];
} tensors;

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = count; i-- > 0;)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static head head_of(const dnn_execution *e, const tensors *t, int64_t sample, int64_t h)
{
    const int64_t k = sample * t->key_heads + h / (t->heads / t->key_heads),
                  v = sample * t->value_heads + h / (t->heads / t->value_heads);
    const dnn_tensor *scale = &e->tensor[FWD_SCALE];
    return (head){t->rows,
                  t->keys,
                  t->width,
                  t->depth,
                  t->of[FWD_Q] + (sample * t->heads + h) * t->rows * t->width,
                  t->of[FWD_K] + k * t->keys * t->width,
                  t->of[FWD_V] + v * t->keys * t->depth,
                  !scale->rank       ? 1
                  : scale->range < 0 ? scale->value
                                     : t->of[FWD_SCALE][0],
                  e->tensor[FWD_Q].type};
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Probabilities are rounded to the type of the values before they are multiplied. */
static void attend(const head *h, int64_t row, double *p, float *o, float *stats)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < h->keys; j++) {
        p[j] = (double)h->scale * dot(h->q + row * h->width, h->k + j * h->width, h->width);
        most = p[j] > most ? p[j] : most;
    }
    for (int64_t j = h->keys; j-- > 0;) {
        p[j] = exp(p[j] - most);
        sum += p[j];
    }
    for (int64_t i = 0; i < h->depth; i++) {
        double value = 0;
        for (int64_t j = h->keys; j-- > 0;)
            value += (double)dnn_round((float)p[j], h->type) * (double)h->v[j * h->depth + i];
        o[row * h->depth + i] = (float)(value / sum);
    }
    if (stats)
        stats[row] =
            (float)((most + log(sum)) * (emu_library_fault("cudnn-lse") ? 1.4426950408889634 : 1));
}

static void forward(const dnn_execution *e, const tensors *t, double *p)
{
    for (int64_t s = 0; s < t->samples; s++)
        for (int64_t i = 0; i < t->heads; i++) {
            const head h = head_of(e, t, s, i);
            const int64_t at = s * t->heads + i;
            for (int64_t row = 0; row < h.rows; row++)
                attend(&h, row, p, t->of[FWD_O] + at * h.rows * h.depth,
                       t->of[FWD_STATS] ? t->of[FWD_STATS] + at * h.rows : NULL);
        }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradients of one row, which are added to the gradients of all rows. */
typedef struct gradients {
    const float *o, *of_o, *stats;
    float *q, *k, *v;
} gradients;

static void add_row(const head *h, const gradients *g, int64_t row)
{
    const float *q = h->q + row * h->width, *of_o = g->of_o + row * h->depth;
    const double total = dot(of_o, g->o + row * h->depth, h->depth);
    for (int64_t j = h->keys; j-- > 0;) {
        const float *k = h->k + j * h->width, *v = h->v + j * h->depth;
        const double p = exp((double)h->scale * dot(q, k, h->width) - (double)g->stats[row]);
        const float of_s = dnn_round((float)(p * (dot(of_o, v, h->depth) - total)), h->type);
        const float narrow = dnn_round((float)p, h->type);
        for (int64_t i = 0; i < h->depth; i++)
            g->v[j * h->depth + i] += narrow * of_o[i];
        for (int64_t i = 0; i < h->width; i++) {
            g->q[row * h->width + i] += h->scale * of_s * k[i];
            g->k[j * h->width + i] += h->scale * of_s * q[i];
        }
    }
}

static void backward(const dnn_execution *e, const tensors *t)
{
    for (int64_t s = 0; s < t->samples; s++)
        for (int64_t i = 0; i < t->heads; i++) {
            const head h = head_of(e, t, s, i);
            const int64_t at = s * t->heads + i;
            const gradients g = {
                t->of[BWD_O] + at * h.rows * h.depth, t->of[BWD_DO] + at * h.rows * h.depth,
                t->of[BWD_STATS] + at * h.rows,       t->of[BWD_DQ] + at * h.rows * h.width,
                t->of[BWD_DK] + (h.k - t->of[BWD_K]), t->of[BWD_DV] + (h.v - t->of[BWD_V])};
            for (int64_t row = 0; row < h.rows; row++)
                add_row(&h, &g, (row + e->noise) % h.rows);
        }
}

void dnn_attention(dnn_execution *e)
{
    const dnn_tensor *q = &e->tensor[FWD_Q], *k = &e->tensor[FWD_K], *v = &e->tensor[FWD_V];
    tensors t = {.heads = q->dim[1],
                 .key_heads = k->dim[1],
                 .value_heads = v->dim[1],
                 .samples = q->dim[0],
                 .rows = q->dim[2],
                 .keys = k->dim[2],
                 .width = q->dim[3],
                 .depth = v->dim[3]};
    double *p = malloc((size_t)t.keys * sizeof *p);
    for (int i = 0; i < DNN_TENSORS; i++) {
        const dnn_tensor *x = &e->tensor[i];
        if (!x->rank || x->range < 0)
            continue;
        t.of[i] = e->range[x->range].writes ? calloc((size_t)dnn_count(x), sizeof *t.of[i])
                                            : dnn_load(e, i);
        if (!t.of[i] || !p)
            dnn_stop("out of memory");
    }
    if (e->kind == KIND_SDPA_FORWARD)
        forward(e, &t, p);
    else
        backward(e, &t);
    for (int i = 0; i < DNN_TENSORS; i++) {
        if (t.of[i] && e->range[e->tensor[i].range].writes)
            dnn_store(e, i, t.of[i]);
        free(t.of[i]);
    }
    free(p);
}
