/* The computation of convolutions, with dense copies of the tensors. */
#include "emu_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t dnn_bytes(int type)
{
    return type == DATA_FLOAT ? 4 : type == DATA_HALF || type == DATA_BFLOAT16 ? 2 : 0;
}

int64_t dnn_count(const dnn_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++)
        count *= t->dim[i];
    return count;
}

float dnn_round(float value, int type)
{
    return type == DATA_BFLOAT16 ? emu_library_round(value, 7)
           : type == DATA_HALF   ? (float)(_Float16)value
                                 : value;
}

static float read_value(const char *at, int type)
{
    float value = 0;
    _Float16 half;
    if (type == DATA_FLOAT) {
        memcpy(&value, at, 4);
    } else if (type == DATA_HALF) {
        memcpy(&half, at, 2);
        value = (float)half;
    } else {
        memcpy((char *)&value + 2, at, 2);
    }
    return value;
}

static void write_value(char *at, int type, float value)
{
    const float narrow = dnn_round(value, type);
    const _Float16 half = (_Float16)value;
    if (type == DATA_FLOAT)
        memcpy(at, &value, 4);
    else if (type == DATA_HALF)
        memcpy(at, &half, 2);
    else
        memcpy(at, (const char *)&narrow + 2, 2);
}

int64_t dnn_place(const dnn_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->rank; d-- > 0; i /= t->dim[d])
        at += i % t->dim[d] * t->stride[d];
    return at;
}

int64_t dnn_span(const dnn_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->rank; i++)
        last += (t->dim[i] - 1) * t->stride[i];
    return last + 1;
}

static void *get_memory(int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count + 1, bytes);
    if (!memory)
        dnn_stop("out of memory");
    return memory;
}

float *dnn_load(const dnn_execution *e, int tensor)
{
    const dnn_tensor *t = &e->tensor[tensor];
    const int64_t count = dnn_count(t);
    float *values = get_memory(count, sizeof *values);
    const char *data = e->range[t->range].inside;
    for (int64_t i = 0; i < count; i++)
        values[i] = read_value(data + dnn_place(t, i) * (int64_t)dnn_bytes(t->type), t->type);
    return values;
}

void dnn_store(const dnn_execution *e, int tensor, const float *values)
{
    const dnn_tensor *t = &e->tensor[tensor];
    char *data = e->range[t->range].inside;
    const float extra = emu_library_fault("cudnn-result") ? 1 : 0;
    for (int64_t i = 0; i < dnn_count(t); i++)
        write_value(data + dnn_place(t, i) * (int64_t)dnn_bytes(t->type), t->type,
                    i ? values[i] : values[i] + extra * (1 + fabsf(values[i])));
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* A convolution with three spatial dimensions. A missing dimension has extent 1. */
typedef struct convolution {
    int64_t n, c, k, groups; /* samples, channels of the image and of the response */
    int64_t x[3], w[3], y[3], step[3], dilation[3], pre[3];
    bool flips;
} convolution;

static convolution convolution_of(const dnn_execution *e)
{
    const dnn_tensor *w = &e->tensor[CONV_W], *x = &e->tensor[CONV_X], *y = &e->tensor[CONV_Y];
    convolution c = {.n = x->dim[0],
                     .c = x->dim[1],
                     .k = y->dim[1],
                     .groups = x->dim[1] / w->dim[1],
                     .flips = e->flips};
    const int64_t missing = 3 - e->spatial;
    for (int64_t i = 0; i < 3; i++) {
        const int64_t at = i - missing;
        const bool is = at >= 0;
        c.x[i] = is ? x->dim[at + 2] : 1;
        c.w[i] = is ? w->dim[at + 2] : 1;
        c.y[i] = is ? y->dim[at + 2] : 1;
        c.step[i] = is ? e->step[at] : 1;
        c.dilation[i] = is ? e->dilation[at] : 1;
        c.pre[i] = is ? e->pre[at] : 0;
    }
    return c;
}

/* The position of the image that filter position `w` of output position `y` reads; -1: padding. */
static int64_t image_at(const convolution *c, const int64_t y[3], const int64_t w[3])
{
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t tap = c->flips ? c->w[i] - 1 - w[i] : w[i];
        const int64_t x = y[i] * c->step[i] - c->pre[i] + tap * c->dilation[i];
        if (x < 0 || x >= c->x[i])
            return -1;
        at = at * c->x[i] + x;
    }
    return at;
}

static void split(int64_t at, const int64_t extent[3], int64_t index[3])
{
    for (int i = 3; i-- > 0; at /= extent[i])
        index[i] = at % extent[i];
}

static int64_t volume(const int64_t extent[3])
{
    return extent[0] * extent[1] * extent[2];
}

/* Adds all products of one sample, filter position and output position: to the response, to the
 * image or to the filter. */
static void add_products(const convolution *c, int kind, int64_t n, double *out, const float *a,
                         const float *b)
{
    const int64_t xs = volume(c->x), ws = volume(c->w), ys = volume(c->y);
    const int64_t depth = c->c / c->groups, group = c->k / c->groups;
    int64_t y[3], w[3];
    for (int64_t yi = ys; yi-- > 0;)
        for (int64_t wi = ws; wi-- > 0;) {
            split(yi, c->y, y);
            split(wi, c->w, w);
            const int64_t xi = image_at(c, y, w);
            for (int64_t k = 0; xi >= 0 && k < c->k; k++)
                for (int64_t d = 0; d < depth; d++) {
                    const int64_t at_x = (n * c->c + k / group * depth + d) * xs + xi,
                                  at_w = (k * depth + d) * ws + wi, at_y = (n * c->k + k) * ys + yi;
                    if (kind == KIND_CONV_FORWARD)
                        out[at_y] += (double)a[at_w] * (double)b[at_x];
                    else if (kind == KIND_CONV_BWD_DATA)
                        out[at_x] += (double)a[at_w] * (double)b[at_y];
                    else
                        out[at_w] += (double)a[at_x] * (double)b[at_y];
                }
        }
}

static void narrow(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = emu_library_round(values[i], 10);
}

/* The virtual response has a type, which rounds before the sum. */
static void add_bias(const dnn_execution *e, const convolution *c, float *result)
{
    float *bias = dnn_load(e, CONV_BIAS);
    const int64_t points = volume(c->y);
    for (int64_t i = 0; i < c->n * c->k * points; i++)
        result[i] = dnn_round(result[i], e->tensor[CONV_Y].type) + bias[i / points % c->k];
    free(bias);
}

static void convolve(dnn_execution *e)
{
    const convolution c = convolution_of(e);
    const int out = e->kind == KIND_CONV_FORWARD    ? CONV_Y
                    : e->kind == KIND_CONV_BWD_DATA ? CONV_X
                                                    : CONV_W;
    const int first = out == CONV_W ? CONV_X : CONV_W, second = out == CONV_Y ? CONV_X : CONV_Y;
    const int64_t count = dnn_count(&e->tensor[out]);
    float *a = dnn_load(e, first), *b = dnn_load(e, second);
    float *result = e->beta != 0 ? dnn_load(e, out) : get_memory(count, sizeof *result);
    double *sum = get_memory(count, sizeof *sum);
    if (e->tf32) {
        narrow(a, dnn_count(&e->tensor[first]));
        narrow(b, dnn_count(&e->tensor[second]));
    }
    for (int64_t n = 0; n < c.n; n++)
        add_products(&c, e->kind, n, sum, a, b);
    for (int64_t i = 0; i < count; i++) {
        const float noise = 1 + 1e-7F * (float)(e->noise % 5);
        result[i] = e->alpha * (float)sum[i] * noise + (e->beta != 0 ? e->beta * result[i] : 0);
    }
    if (e->biased)
        add_bias(e, &c, result);
    dnn_store(e, e->biased ? CONV_SUM : out, result);
    free(a);
    free(b);
    free(result);
    free(sum);
}

void dnn_run(void *execution)
{
    dnn_execution *e = execution;
    if (e->space >= 0)
        memset(e->range[e->space].inside, 0x7f, e->range[e->space].bytes);
    if (e->kind == KIND_SDPA_FORWARD || e->kind == KIND_SDPA_BACKWARD)
        dnn_attention(e);
    else if (e->kind == KIND_GRAPH)
        dnn_run_steps(e);
    else
        convolve(e);
}
