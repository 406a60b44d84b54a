/* Access to views: counts, strides, and elements of any dtype as f64. For `ref`, and for parts of
 * `cpu` where speed does not matter. */
#ifndef WEFT_KERNEL_VIEW_H
#define WEFT_KERNEL_VIEW_H

#include "kernel/kernel.h"

#include <string.h>

static inline int64_t view_count(const weft_view *v)
{
    int64_t count = 1;
    for (int d = 0; d < v->shape.rank; d++)
        count *= v->shape.dim[d];
    return count;
}

/* Returns true if the optional input or output is present. */
static inline bool view_present(const weft_view *v)
{
    return v->shape.rank >= 0;
}

/* Returns the product of the dims [from, to). */
static inline int64_t shape_span(const weft_shape *s, int from, int to)
{
    int64_t count = 1;
    for (int d = from; d < to; d++)
        count *= s->dim[d];
    return count;
}

static inline int64_t view_last(const weft_view *v)
{
    return v->shape.rank > 0 ? v->shape.dim[v->shape.rank - 1] : 1;
}

/* Sets the strides, in elements, of the dense tensor `s`; 0 along dims of length 1. The strides map
 * an index of the broadcast shape to an offset in `s`. */
static inline void shape_strides(const weft_shape *s, int64_t stride[WEFT_MAX_RANK])
{
    int64_t step = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        stride[d] = s->dim[d] == 1 ? 0 : step;
        step *= s->dim[d];
    }
}

/* Advances a row-major index of `s`. Returns false when it wraps to the start. */
static inline bool shape_next(const weft_shape *s, int64_t index[WEFT_MAX_RANK])
{
    for (int d = s->rank - 1; d >= 0; d--) {
        if (++index[d] < s->dim[d])
            return true;
        index[d] = 0;
    }
    return false;
}

double view_get(const weft_view *v, int64_t i);
int64_t view_get_int(const weft_view *v, int64_t i); /* exact for integers */
void view_set(const weft_view *v, int64_t i, double value);
void view_set_int(const weft_view *v, int64_t i, int64_t value);

static inline bool dtype_is_int(weft_dtype dtype)
{
    return dtype == WEFT_I32 || dtype == WEFT_I64 || dtype == WEFT_U8;
}

/* Checks the ids of embed and embed_grad. WEFT_E_ARG names the first id outside [0, rows). */
weft_status_code embed_check_ids(const weft_view *ids, int64_t rows);
/* Checks ids of experts. Negative ids are valid: no expert. */
weft_status_code experts_check_ids(const weft_view *ids, int64_t experts);

#endif
