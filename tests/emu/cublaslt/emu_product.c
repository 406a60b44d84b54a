/* The computation of a product, in f32, as work of a stream. */
#include "emu_cublaslt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float read_value(const char *data, uint32_t type, int64_t i)
{
    float value;
    uint32_t bits;
    uint16_t half;
    _Float16 f16;
    if (type == CUDA_R_32F) {
        memcpy(&value, data + 4 * i, 4);
        return value;
    }
    memcpy(&half, data + 2 * i, 2);
    if (type == CUDA_R_16F) {
        memcpy(&f16, &half, 2);
        return (float)f16;
    }
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, 4);
    return value;
}

static void write_value(char *data, uint32_t type, int64_t i, float value)
{
    if (type == CUDA_R_32F) {
        memcpy(data + 4 * i, &value, 4);
    } else if (type == CUDA_R_16F) {
        const _Float16 f16 = (_Float16)value;
        memcpy(data + 2 * i, &f16, 2);
    } else {
        const float narrow = emu_library_round(value, 7);
        memcpy(data + 2 * i, (const char *)&narrow + 2, 2);
    }
}

static float narrow_input(float value, int32_t compute)
{
    if (compute == COMPUTE_32F_FAST_16BF)
        return emu_library_round(value, 7);
    if (compute == COMPUTE_32F_FAST_16F || compute == COMPUTE_32F_FAST_TF32)
        return emu_library_round(value, 10);
    return value;
}

static char *inside(const lt_product *p, int operand)
{
    return p->place[operand] < 0 ? NULL : p->range[p->place[operand]].inside;
}

/* Copies a matrix of a batch to (cols, rows) in f32. */
static void load(const lt_matrix *x, const char *data, int64_t b, int64_t rows, int64_t cols,
                 float *to)
{
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            to[j * rows + i] =
                read_value(data, x->type, b * x->batch + i * x->by_row + j * x->by_col);
}

static void narrow(const lt_product *p, float *values, int64_t count)
{
    if (p->a.type == CUDA_R_32F)
        for (int64_t i = 0; i < count; i++)
            values[i] = narrow_input(values[i], p->compute);
}

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    const float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

/* The bit of ReLU's mask of element (i, j). */
static bool mask(char *aux, int64_t bit, int write)
{
    unsigned char *byte = (unsigned char *)aux + bit / 8;
    const unsigned char one = (unsigned char)(1u << (bit % 8));
    if (write >= 0)
        *byte = (unsigned char)(write ? *byte | one : *byte & ~one);
    return *byte & one;
}

/* Applies the epilogue to one element; `at`: its position in the auxiliary matrix. */
static float finish(const lt_product *p, float x, int64_t at)
{
    char *aux = inside(p, RANGE_AUX);
    const uint32_t e = p->epilogue;
    if (e & EPILOGUE_RELU) {
        if (e & EPILOGUE_AUX)
            mask(aux, at, x > 0);
        return x > 0 ? x : 0;
    }
    if (e & EPILOGUE_GELU) {
        if (e & EPILOGUE_AUX)
            write_value(aux, p->d.type, at, x);
        return gelu(x);
    }
    if (e & EPILOGUE_DRELU)
        return mask(aux, at, -1) ? x : 0;
    if (e & EPILOGUE_DGELU)
        return x * gelu_slope(read_value(aux, p->d.type, at));
    return x;
}

static float scalar(const lt_product *p, int operand, float host)
{
    const char *data = inside(p, operand);
    return data ? read_value(data, CUDA_R_32F, 0) : host;
}

/* Column j of batch b, whose sums are in `sum`; *row_sums: of the gradient of a bias. */
static void store_column(const lt_product *p, int64_t b, int64_t j, const float *sum,
                         float *row_sums)
{
    const float alpha = scalar(p, RANGE_ALPHA, p->alpha), beta = scalar(p, RANGE_BETA, p->beta);
    const lt_matrix *c = &p->c, *d = &p->d;
    for (int64_t i = 0; i < p->m; i++) {
        float x = alpha * sum[i];
        if (p->reads_c)
            x += beta * read_value(inside(p, p->place[RANGE_C] < 0 ? RANGE_D : RANGE_C), c->type,
                                   b * c->batch + i * c->by_row + j * c->by_col);
        if (p->epilogue & EPILOGUE_BIAS)
            x += read_value(inside(p, RANGE_BIAS), d->type, b * p->bias_stride + i);
        x = finish(p, x, b * p->aux_stride + j * p->aux_ld + i);
        row_sums[i] += x;
        write_value(inside(p, RANGE_D), d->type, b * d->batch + i * d->by_row + j * d->by_col, x);
    }
}

static void store_gradient(const lt_product *p, int64_t b, const float *sums, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        write_value(inside(p, RANGE_BIAS), p->d.type, b * p->bias_stride + i, sums[i]);
}

/* Sums of a matrix (depth, rows) over the depth. */
static void sum_depth(const float *x, int64_t rows, int64_t depth, float *sums)
{
    for (int64_t i = 0; i < rows; i++) {
        sums[i] = 0;
        for (int64_t l = depth - 1; l >= 0; l--)
            sums[i] += x[l * rows + i];
    }
}

static void run_batch(const lt_product *p, int64_t b, float *a, float *bt, float *sum)
{
    float *row_sums = sum + p->m;
    const int64_t most = p->m > p->n ? p->m : p->n;
    memset(row_sums, 0, (size_t)most * sizeof *row_sums);
    load(&p->a, inside(p, RANGE_A), b, p->m, p->k, a);
    load(&p->b, inside(p, RANGE_B), b, p->k, p->n, bt);
    narrow(p, a, p->m * p->k);
    narrow(p, bt, p->k * p->n);
    for (int64_t j = 0; j < p->n; j++) {
        memset(sum, 0, (size_t)p->m * sizeof *sum);
        for (int64_t l = p->k - 1; l >= 0; l--) {
            const float factor = bt[j * p->k + l], *column = a + l * p->m;
            for (int64_t i = 0; i < p->m; i++)
                sum[i] += column[i] * factor;
        }
        store_column(p, b, j, sum, row_sums);
    }
    if (p->epilogue & EPILOGUE_BGRAD)
        store_gradient(p, b, row_sums, p->m);
    if (p->epilogue & EPILOGUE_BGRADA) {
        sum_depth(a, p->m, p->k, row_sums);
        store_gradient(p, b, row_sums, p->m);
    }
    if (p->epilogue & EPILOGUE_BGRADB) {
        for (int64_t j = 0; j < p->n; j++) {
            row_sums[j] = 0;
            for (int64_t l = p->k - 1; l >= 0; l--)
                row_sums[j] += bt[j * p->k + l];
        }
        store_gradient(p, b, row_sums, p->n);
    }
}

void lt_product_run(void *user)
{
    const lt_product *p = user;
    const int64_t most = p->m > p->n ? p->m : p->n;
    float *a = malloc((size_t)(p->m * p->k + p->k * p->n + p->m + most) * sizeof *a);
    if (!a)
        lt_stop("out of memory");
    float *b = a + p->m * p->k, *sum = b + p->k * p->n;
    if (inside(p, RANGE_SPACE))
        memset(inside(p, RANGE_SPACE), 0x7f, p->range[p->place[RANGE_SPACE]].bytes);
    for (int64_t i = 0; i < p->batch; i++)
        run_batch(p, i, a, b, sum);
    if (emu_library_fault("cublaslt-result"))
        write_value(inside(p, RANGE_D), p->d.type, 0,
                    2 * read_value(inside(p, RANGE_D), p->d.type, 0) + 1);
    free(a);
}
