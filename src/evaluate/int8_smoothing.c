#include "evaluate/int8_smoothing.h"

#include "base/memory.h"
#include "format/tensors/quant_blocks.h"
#include "generate/generator/int8_layers.h"
#include "kernel/view.h"

#include <math.h>

/* Rows of x that a call measures, the distance of measured calls, and their largest number. */
enum { SAMPLES = 8, EACH = 7, MOST_CALLS = 32 };

typedef struct observed_layer {
    const char *name; /* arena */
    int64_t columns, block, calls;
    float *x_most, *w_most;  /* [columns] largest magnitudes; arena */
    int *step;               /* [columns] of the factors; NULL: not chosen yet; arena */
    float *factor, *inverse; /* [columns] of the steps; arena */
    double plain, smoothed;  /* squared errors of the measured rows */
} observed_layer;

struct weft_int8_smoothing {
    weft_arena *arena;
    observed_layer *layer; /* owned */
    int64_t count, capacity;
    weft_status_code status; /* the first failure of an observer */
};

weft_status weft_int8_smoothing_create(weft_int8_smoothing **out)
{
    WEFT_TRY(WEFT_NEW(*out, 1, "the smoothing"));
    (*out)->arena = weft_arena_create();
    return WEFT_ALLOCATED((*out)->arena, "the smoothing");
}

void weft_int8_smoothing_free(weft_int8_smoothing *s)
{
    if (!s)
        return;
    weft_arena_free(s->arena);
    weft_free(s->layer);
    weft_free(s);
}

/* ---- layers --------------------------------------------------------------------------------- */

/* The name of the matrix of a linear layer of tokens; NULL: another node, or a matrix that cannot
 * be int8. A matrix in another type than its parameter's is cast. */
static const char *matrix_of(const weft_graph *g, const weft_node *node)
{
    if (node->op != WEFT_OP_LINEAR)
        return NULL;
    weft_value w = node->in[1];
    const weft_node *from = weft_graph_node(g, weft_value_get(g, w)->node);
    if (from->op == WEFT_OP_CAST)
        from = weft_graph_node(g, weft_value_get(g, w = from->in[0])->node);
    const weft_shape *x = &weft_value_get(g, node->in[0])->shape;
    return from->op == WEFT_OP_PARAM && x->rank > 2 && weft_int8_block(x->dim[x->rank - 1])
               ? weft_value_get(g, w)->name
               : NULL;
}

static observed_layer *find_layer(weft_int8_smoothing *s, const char *name)
{
    for (int64_t i = 0; i < s->count; i++)
        if (strcmp(s->layer[i].name, name) == 0)
            return &s->layer[i];
    return NULL;
}

static weft_status add_layer(weft_int8_smoothing *s, const char *name, int64_t columns)
{
    WEFT_TRY(weft_grow((void **)&s->layer, s->count, &s->capacity, sizeof *s->layer));
    observed_layer l = {.name = weft_arena_strdup(s->arena, name),
                        .columns = columns,
                        .block = weft_int8_block(columns)};
    WEFT_TRY(WEFT_ALLOCATED(l.name, "layers"));
    WEFT_TRY(WEFT_ARENA_NEW(s->arena, l.x_most, columns, "layers"));
    WEFT_TRY(WEFT_ARENA_NEW(s->arena, l.w_most, columns, "layers"));
    s->layer[s->count++] = l;
    return WEFT_OK;
}

/* Copies row `m` of a view of a float type to f32. */
static void read_row(const weft_view *v, int64_t m, int64_t columns, float *to)
{
    const int64_t first = m * columns;
    for (int64_t k = 0; k < columns; k++)
        to[k] = v->dtype == WEFT_F32    ? ((const float *)v->data)[first + k]
                : v->dtype == WEFT_BF16 ? weft_bf16_to_f32(((const uint16_t *)v->data)[first + k])
                                        : (float)view_get(v, first + k);
}

/* ---- magnitudes ----------------------------------------------------------------------------- */

static weft_status raise(const weft_view *v, int64_t columns, float *most)
{
    const int64_t rows = columns ? view_count(v) / columns : 0;
    float *row = weft_alloc(columns * (int64_t)sizeof *row + 1);
    WEFT_TRY(WEFT_ALLOCATED(row, "magnitudes"));
    for (int64_t m = 0; m < rows; m++) {
        read_row(v, m, columns, row);
        for (int64_t k = 0; k < columns; k++)
            most[k] = fabsf(row[k]) > most[k] ? fabsf(row[k]) : most[k];
    }
    weft_free(row);
    return WEFT_OK;
}

static weft_status record(weft_int8_smoothing *s, const char *name, const weft_kernel_args *args)
{
    const int64_t columns = view_last(&args->in[0]);
    if (!find_layer(s, name)) {
        WEFT_TRY(add_layer(s, name, columns));
        WEFT_TRY(raise(&args->in[1], columns, s->layer[s->count - 1].w_most));
    }
    return raise(&args->in[0], columns, find_layer(s, name)->x_most);
}

void weft_int8_smoothing_record(void *user, const weft_graph *graph, const weft_node *node,
                                const weft_kernel_args *args)
{
    weft_int8_smoothing *s = user;
    const char *name = matrix_of(graph, node);
    if (name && s->status == WEFT_OK)
        s->status = record(s, name, args);
}

/* ---- factors -------------------------------------------------------------------------------- */

/* Chooses the steps: the mean step is 0, so that scales of weights stay in the range of f16.
 * Channels without values have step 0. */
static weft_status choose_steps(weft_int8_smoothing *s, observed_layer *l)
{
    double sum = 0, used = 0;
    WEFT_TRY(WEFT_ARENA_NEW(s->arena, l->step, l->columns, "factors"));
    WEFT_TRY(WEFT_ARENA_NEW(s->arena, l->factor, l->columns, "factors"));
    WEFT_TRY(WEFT_ARENA_NEW(s->arena, l->inverse, l->columns, "factors"));
    for (int64_t k = 0; k < l->columns; k++) {
        const double ratio = (double)l->x_most[k] / (double)l->w_most[k];
        l->factor[k] = isfinite(ratio) && ratio > 0 ? (float)(1.5 * log2(ratio)) : NAN;
        sum += isnan(l->factor[k]) ? 0 : (double)l->factor[k];
        used += isnan(l->factor[k]) ? 0 : 1;
    }
    for (int64_t k = 0; k < l->columns; k++) {
        const double step = isnan(l->factor[k]) ? 0 : rint((double)l->factor[k] - sum / used);
        l->step[k] = (int)fmax(-WEFT_INT8_STEPS, fmin(WEFT_INT8_STEPS, step));
    }
    weft_int8_factors(l->step, l->columns, false, l->factor);
    weft_int8_factors(l->step, l->columns, true, l->inverse);
    return WEFT_OK;
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Rounds a row of x to int8 and back, as a layer in int8 does (graph/op.h). */
static void round_x(const observed_layer *l, float *x)
{
    for (int64_t b = 0; b < l->columns; b += l->block) {
        float most = 0;
        for (int64_t k = b; k < b + l->block; k++)
            most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
        const float inverse = most > WEFT_INT8_LEAST ? 127 / most : 0, unit = most / 127;
        for (int64_t k = b; k < b + l->block; k++)
            x[k] = rintf(x[k] * inverse) * unit;
    }
}

/* Rounds a row of weights to int8 and back. `packed`: scratch. */
static void round_w(const observed_layer *l, float *w, unsigned char *packed)
{
    const int64_t bytes = l->block + 2;
    weft_int8_pack(w, l->columns / l->block, l->block, packed);
    for (int64_t k = 0; k < l->columns; k++) {
        const unsigned char *block = packed + k / l->block * bytes;
        const float scale = weft_f16_to_f32((uint16_t)(block[0] | block[1] << 8));
        w[k] = scale * (float)(int8_t)block[2 + k % l->block];
    }
}

/* The samples of a call in three forms, [columns][SAMPLES]: plain, rounded, and smoothed and
 * rounded. */
typedef struct samples {
    float *form[3];
} samples;

static void read_samples(const observed_layer *l, const weft_view *x, float *row, const samples *to)
{
    const int64_t K = l->columns, rows = view_count(x) / K;
    for (int64_t i = 0; i < SAMPLES; i++)
        for (int f = 0; f < 3; f++) {
            read_row(x, i * rows / SAMPLES, K, row);
            for (int64_t k = 0; f == 2 && k < K; k++)
                row[k] *= l->inverse[k];
            if (f > 0)
                round_x(l, row);
            for (int64_t k = 0; k < K; k++)
                to->form[f][k * SAMPLES + i] = row[k];
        }
}

/* Adds the products of the samples and w to sum[SAMPLES]. */
static void multiply(const float *x, const float *w, int64_t columns, float sum[SAMPLES])
{
    for (int i = 0; i < SAMPLES; i++)
        sum[i] = 0;
    for (int64_t k = 0; k < columns; k++)
        for (int i = 0; i < SAMPLES; i++)
            sum[i] += x[k * SAMPLES + i] * w[k];
}

/* Sets error[2]: squared errors of output column n without and with factors. `row`: [2][columns] */
static void measure_column(const observed_layer *l, const weft_view *w, int64_t n, const samples *x,
                           float *row, unsigned char *packed, double error[2])
{
    const int64_t K = l->columns;
    float exact[SAMPLES], sum[SAMPLES];
    read_row(w, n, K, row);
    multiply(x->form[0], row, K, exact);
    for (int f = 0; f < 2; f++) {
        for (int64_t k = 0; k < K; k++)
            row[K + k] = f ? row[k] * l->factor[k] : row[k];
        round_w(l, row + K, packed);
        multiply(x->form[1 + f], row + K, K, sum);
        error[f] = 0;
        for (int i = 0; i < SAMPLES; i++)
            error[f] += (double)(sum[i] - exact[i]) * (double)(sum[i] - exact[i]);
    }
}

/* Errors of columns are summed in order, so that the choice does not depend on threads. */
static weft_status measure_call(observed_layer *l, const weft_kernel_args *args)
{
    const int64_t K = l->columns, N = view_count(&args->in[1]) / K;
    float *space = weft_alloc(3 * K * SAMPLES * (int64_t)sizeof *space);
    double *error = weft_calloc(N + 1, 2 * sizeof *error);
    float *row = weft_alloc(K * (int64_t)sizeof *row);
    const samples x = {{space, space + K * SAMPLES, space + 2 * K * SAMPLES}};
    bool complete = true;
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(space && error && row, "errors of layers"));
    read_samples(l, &args->in[0], row, &x);
#pragma omp parallel num_threads(args->threads) reduction(&& : complete)
    {
        float *own = weft_alloc(2 * K * (int64_t)sizeof *own);
        unsigned char *packed = weft_alloc(K / l->block * (l->block + 2));
        complete = complete && own && packed;
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n++)
            if (complete)
                measure_column(l, &args->in[1], n, &x, own, packed, error + 2 * n);
        weft_free(own);
        weft_free(packed);
    }
    WEFT_GO(WEFT_ALLOCATED(complete, "errors of layers"));
    for (int64_t n = 0; n < N; n++) {
        l->plain += error[2 * n];
        l->smoothed += error[2 * n + 1];
    }
out:
    weft_free(space);
    weft_free(error);
    weft_free(row);
    return status;
}

void weft_int8_smoothing_measure(void *user, const weft_graph *graph, const weft_node *node,
                                 const weft_kernel_args *args)
{
    weft_int8_smoothing *s = user;
    const char *name = matrix_of(graph, node);
    observed_layer *l = name ? find_layer(s, name) : NULL;
    if (!l || s->status != WEFT_OK || l->calls++ % EACH || l->calls > EACH * MOST_CALLS ||
        view_count(&args->in[0]) == 0)
        return;
    if (!l->step)
        s->status = choose_steps(s, l);
    if (s->status == WEFT_OK)
        s->status = measure_call(l, args);
}

weft_status weft_int8_smoothing_choose(const weft_int8_smoothing *s, json_t **smoothed)
{
    static const double gain = 0.9;
    weft_status_code status;
    json_t *made = json_object();
    WEFT_GO(s->status);
    WEFT_GO(WEFT_ALLOCATED(made, "the smoothing"));
    for (int64_t i = 0; i < s->count; i++) {
        const observed_layer *l = &s->layer[i];
        if (!l->step || !(l->smoothed < gain * l->plain))
            continue;
        char *text = weft_alloc(l->columns + 1);
        WEFT_GO(WEFT_ALLOCATED(text, "the smoothing"));
        weft_int8_write_steps(l->step, l->columns, text);
        json_object_set_new(made, l->name, json_string(text));
        weft_free(text);
    }
    *smoothed = json_incref(made);
out:
    json_decref(made);
    return status;
}
