/* The computation of graphs of steps. Each tensor has a copy in f32 with its strides. */
#include "emu_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The position of element `i` of a tensor in another one, which repeats where its extent is 1. */
static int64_t place_in(const dnn_tensor *of, const dnn_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->rank; d-- > 0; i /= t->dim[d])
        at += of->dim[d] == 1 ? 0 : i % t->dim[d] * of->stride[d];
    return at;
}

static void run_pointwise(const dnn_execution *e, const dnn_step *s, float *const *copy)
{
    const dnn_tensor *out = &e->tensor[s->out], *a = &e->tensor[s->a];
    const dnn_tensor *b = s->b < 0 ? NULL : &e->tensor[s->b];
    for (int64_t i = 0; i < dnn_count(out); i++) {
        const float x = copy[s->a][place_in(a, out, i)],
                    y = b ? copy[s->b][place_in(b, out, i)] : 0;
        float *to = &copy[s->out][dnn_place(out, i)];
        *to = dnn_round(s->mode == MODE_ADD   ? x + y
                        : s->mode == MODE_SUB ? x - y
                        : s->mode == MODE_MUL ? x * y
                        : s->mode == MODE_EXP ? expf(x)
                                              : x,
                        out->type);
    }
}

static void run_reduction(const dnn_execution *e, const dnn_step *s, float *const *copy)
{
    const dnn_tensor *out = &e->tensor[s->out], *a = &e->tensor[s->a];
    double *sum = calloc((size_t)dnn_span(out), sizeof *sum);
    if (!sum)
        dnn_stop("out of memory");
    for (int64_t i = dnn_count(a); i-- > 0;)
        sum[place_in(out, a, i)] += (double)copy[s->a][dnn_place(a, i)];
    for (int64_t i = 0; i < dnn_span(out); i++)
        copy[s->out][i] = dnn_round((float)sum[i], out->type);
    free(sum);
}

/* Elements keep their places in memory. */
static void run_reshape(const dnn_execution *e, const dnn_step *s, float *const *copy)
{
    const int64_t span = dnn_span(&e->tensor[s->out]);
    if (span != dnn_span(&e->tensor[s->a]))
        dnn_stop("a reshape has another extent in memory");
    for (int64_t i = 0; i < span; i++)
        copy[s->out][i] = dnn_round(copy[s->a][i], e->tensor[s->out].type);
}

/* Operands are rounded to their types when they are written. */
static void run_matmul(const dnn_execution *e, const dnn_step *s, float *const *copy)
{
    const dnn_tensor *out = &e->tensor[s->out], *a = &e->tensor[s->a], *b = &e->tensor[s->b];
    const int rows = out->rank - 2, columns = out->rank - 1;
    const int64_t depth = a->dim[columns], n = out->dim[columns], m = out->dim[rows];
    for (int64_t i = 0; i < dnn_count(out); i++) {
        int64_t batch = i / (m * n), at_a = i / n % m * a->stride[rows],
                at_b = i % n * b->stride[columns];
        for (int d = rows; d-- > 0; batch /= out->dim[d]) {
            at_a += batch % out->dim[d] * a->stride[d];
            at_b += batch % out->dim[d] * b->stride[d];
        }
        double sum = 0;
        for (int64_t k = depth; k-- > 0;)
            sum += (double)copy[s->a][at_a + k * a->stride[columns]] *
                   (double)copy[s->b][at_b + k * b->stride[rows]];
        copy[s->out][dnn_place(out, i)] = dnn_round((float)sum, out->type);
    }
}

/* The copy of a tensor. Inputs are read from memory. */
static float *copy_of(const dnn_execution *e, int i)
{
    const dnn_tensor *t = &e->tensor[i];
    float *copy = calloc((size_t)dnn_span(t), sizeof *copy);
    if (!copy)
        dnn_stop("out of memory");
    if (t->range < 0) {
        copy[0] = t->value; /* a virtual tensor is written later */
    } else if (!e->range[t->range].writes) {
        float *dense = dnn_load(e, i);
        for (int64_t k = 0; k < dnn_count(t); k++)
            copy[dnn_place(t, k)] = dense[k];
        free(dense);
    }
    return copy;
}

static void write_output(const dnn_execution *e, int i, const float *copy)
{
    const dnn_tensor *t = &e->tensor[i];
    float *dense = malloc((size_t)dnn_count(t) * sizeof *dense);
    if (!dense)
        dnn_stop("out of memory");
    for (int64_t k = 0; k < dnn_count(t); k++)
        dense[k] = copy[dnn_place(t, k)];
    dnn_store(e, i, dense);
    free(dense);
}

void dnn_run_steps(dnn_execution *e)
{
    float *copy[DNN_TENSORS] = {0};
    for (int i = 0; i < DNN_TENSORS && e->tensor[i].rank; i++)
        copy[i] = copy_of(e, i);
    for (int i = 0; i < e->steps; i++) {
        const dnn_step *s = &e->operation[i];
        if (s->kind == KIND_OP_POINTWISE)
            run_pointwise(e, s, copy);
        else if (s->kind == KIND_OP_MATMUL)
            run_matmul(e, s, copy);
        else if (s->kind == KIND_OP_REDUCTION)
            run_reduction(e, s, copy);
        else
            run_reshape(e, s, copy);
    }
    for (int i = 0; i < DNN_TENSORS && e->tensor[i].rank; i++) {
        const int range = e->tensor[i].range;
        if (range >= 0 && e->range[range].writes)
            write_output(e, i, copy[i]);
        free(copy[i]);
    }
}
