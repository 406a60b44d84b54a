#include "kernel/sums.h"

#include "base/convert.h"
#include "base/memory.h"

/* Elements that stay in the first-level cache for the complete tree; NARROW_BLOCK for widened
 * types. */
enum { BLOCK = 4096, NARROW_BLOCK = 512 };

int weft_sum_power(int n)
{
    int p = 1;
    while (2 * p <= n)
        p *= 2;
    return p;
}

int weft_sum_stand_in(int v, int extras)
{
    return v < extras ? 2 * v : v + extras;
}

void weft_sum_tree(int terms, void (*add)(void *user, int to, int from), void *user)
{
    const int p = weft_sum_power(terms), extras = terms - p;
    for (int i = 0; i < extras; i++)
        add(user, 2 * i, 2 * i + 1);
    for (int distance = 1; distance < p; distance *= 2)
        for (int v = 0; v < p; v += 2 * distance)
            add(user, weft_sum_stand_in(v, extras), weft_sum_stand_in(v + distance, extras));
}

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

void weft_sum_two(weft_dtype dtype, void *out, const void *a, const void *b, int64_t count)
{
    switch (dtype) {
    case WEFT_F32: ADD(float, float);
    case WEFT_F64: ADD(double, double);
    case WEFT_I32: ADD(int32_t, uint32_t);
    case WEFT_I64: ADD(int64_t, uint64_t);
    default: break; /* rejected when the request was created */
    }
}

int64_t weft_sum_temp_bytes(weft_dtype dtype, int k)
{
    const int64_t each = weft_sum_dtype(dtype) != dtype ? NARROW_BLOCK * (int64_t)sizeof(float)
                                                        : (int64_t)sizeof(char *);
    return weft_aligned(k * each);
}

typedef struct tree {
    weft_dtype dtype;
    int64_t element, at, count;
    const char **from; /* index: term; address of its current value */
    char *const *slot;
    char *out;
    int left; /* remaining additions */
} tree;

static void add(void *user, int to, int from)
{
    tree *t = user;
    char *into = --t->left ? t->slot[to] + t->at * t->element : t->out;
    weft_sum_two(t->dtype, into, t->from[to], t->from[from], t->count);
    t->from[to] = into;
}

static void add_floats(void *user, int to, int from)
{
    float *sum = user, *into = sum + (int64_t)to * NARROW_BLOCK;
    weft_sum_two(WEFT_F32, into, into, sum + (int64_t)from * NARROW_BLOCK, NARROW_BLOCK);
}

void weft_sum_terms(weft_dtype dtype, int k, const void *const *term, void *const *slot, void *temp,
                    void *out, int64_t count)
{
    const int64_t e = weft_dtype_bytes(dtype);
    if (weft_sum_dtype(dtype) != dtype) {
        float *wide = temp;
        for (int64_t at = 0; at < count; at += NARROW_BLOCK) {
            const int64_t n = count - at < NARROW_BLOCK ? count - at : NARROW_BLOCK;
            for (int r = 0; r < k; r++)
                weft_convert(wide + (int64_t)r * NARROW_BLOCK, WEFT_F32,
                             (const char *)term[r] + at * e, dtype, n);
            weft_sum_tree(k, add_floats, wide);
            weft_convert((char *)out + at * e, dtype, wide, WEFT_F32, n);
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
