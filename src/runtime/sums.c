/* Sums of what ranks send: vectors of one core, each element along the same tree (moves.h). */
#include "runtime/comm_internal.h"

#include <string.h>

enum { BLOCK = 4096 }; /* elements that stay in the nearest cache on their way up the tree */

weft_dtype weft_sum_dtype(weft_dtype dtype)
{
    return dtype == WEFT_BF16 || dtype == WEFT_F16 ? WEFT_F32 : dtype;
}

#define ADD(type, wide)                                                                            \
    {                                                                                              \
        const type *x = a, *y = b;                                                                 \
        type *z = out;                                                                             \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) z[i] =                             \
            (type)((wide)x[i] + (wide)y[i]);                                                       \
    }                                                                                              \
    break

/* Integers wrap around. */
void weft_sum_two(weft_dtype dtype, const void *a, const void *b, void *out, int64_t count)
{
    switch (dtype) {
    case WEFT_F32: ADD(float, float);
    case WEFT_F64: ADD(double, double);
    case WEFT_I32: ADD(int32_t, uint32_t);
    case WEFT_I64: ADD(int64_t, uint64_t);
    default: break; /* refused when the exchange was made */
    }
}

int64_t weft_sum_temp_bytes(weft_dtype dtype, int k)
{
    const int64_t each = weft_sum_dtype(dtype) != dtype ? WEFT_SUM_BLOCK * (int64_t)sizeof(float)
                                                        : (int64_t)sizeof(char *);
    return (k * each + 63) / 64 * 64;
}

typedef struct tree {
    weft_dtype dtype;
    int64_t element, at, count;
    const char **from; /* by term: where it is now */
    char *const *slot;
    char *out;
    int left; /* additions */
} tree;

static void add(void *user, int to, int from)
{
    tree *t = user;
    char *into = --t->left ? t->slot[to] + t->at * t->element : t->out;
    weft_sum_two(t->dtype, t->from[to], t->from[from], into, t->count);
    t->from[to] = into;
}

void weft_sum_widen(weft_dtype dtype, const void *data, float *out, int64_t count)
{
    const uint16_t *x = data;
    if (dtype == WEFT_BF16)
        for (int64_t i = 0; i < count; i++)
            out[i] = weft_bf16_to_f32(x[i]);
    else
        for (int64_t i = 0; i < count; i++)
            out[i] = weft_f16_to_f32(x[i]);
}

void weft_sum_narrow(weft_dtype dtype, const float *x, void *data, int64_t count)
{
    uint16_t *out = data;
    if (dtype == WEFT_BF16)
        for (int64_t i = 0; i < count; i++)
            out[i] = weft_f32_to_bf16(x[i]);
    else
        for (int64_t i = 0; i < count; i++)
            out[i] = weft_f32_to_f16(x[i]);
}

static void add_floats(void *user, int to, int from)
{
    float *sum = user;
    weft_sum_two(WEFT_F32, sum + (int64_t)to * WEFT_SUM_BLOCK, sum + (int64_t)from * WEFT_SUM_BLOCK,
                 sum + (int64_t)to * WEFT_SUM_BLOCK, WEFT_SUM_BLOCK);
}

void weft_sum_terms(weft_dtype dtype, int k, const void *const *term, void *const *slot, void *temp,
                    int64_t count, void *out)
{
    const int64_t e = weft_dtype_bytes(dtype);
    if (weft_sum_dtype(dtype) != dtype) {
        float *narrow = temp;
        for (int64_t at = 0; at < count; at += WEFT_SUM_BLOCK) {
            const int64_t n = count - at < WEFT_SUM_BLOCK ? count - at : WEFT_SUM_BLOCK;
            for (int r = 0; r < k; r++)
                weft_sum_widen(dtype, (const char *)term[r] + at * e,
                               narrow + (int64_t)r * WEFT_SUM_BLOCK, n);
            weft_sum_tree(k, add_floats, narrow);
            weft_sum_narrow(dtype, narrow, (char *)out + at * e, n);
        }
        return;
    }
    const char **from = temp;
    for (int64_t at = 0; at < count; at += BLOCK) {
        tree t = {.dtype = dtype,
                  .element = e,
                  .at = at,
                  .count = count - at < BLOCK ? count - at : BLOCK,
                  .from = from,
                  .slot = (char *const *)slot,
                  .out = (char *)out + at * e,
                  .left = k - 1};
        for (int r = 0; r < k; r++)
            from[r] = (const char *)term[r] + at * e;
        weft_sum_tree(k, add, &t);
    }
}
