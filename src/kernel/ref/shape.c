/* Reductions and data movement. */
#include "format/tensors/quant_blocks.h"
#include "kernel/ref/ref.h"

REF_KERNEL(sum)
{
    const weft_view *x = &args->in[0], *out = &args->out[0];
    const int64_t count = view_count(x), out_count = view_count(out);
    int64_t index[WEFT_MAX_RANK] = {0}, so[WEFT_MAX_RANK];
    shape_strides(&out->shape, so);
    for (int64_t o = 0; o < out_count; o++)
        view_set(out, o, 0);
    for (int64_t i = 0; i < count; i++, shape_next(&x->shape, index)) {
        int64_t offset = 0;
        for (int d = 0; d < x->shape.rank; d++)
            offset += index[d] * so[d];
        view_set(out, offset, view_get(out, offset) + view_get(x, i));
    }
    return WEFT_OK;
}

REF_KERNEL(broadcast)
{
    const weft_view *out = &args->out[0];
    const int64_t count = view_count(out);
    int64_t index[WEFT_MAX_RANK] = {0}, sx[WEFT_MAX_RANK];
    shape_strides(&args->in[0].shape, sx);
    for (int64_t i = 0; i < count; i++, shape_next(&out->shape, index)) {
        int64_t offset = 0;
        for (int d = 0; d < out->shape.rank; d++)
            offset += index[d] * sx[d];
        view_set(out, i, view_get(&args->in[0], offset));
    }
    return WEFT_OK;
}

REF_KERNEL(permute)
{
    const weft_attr_permute *attr = args->attr;
    const weft_view *x = &args->in[0], *out = &args->out[0];
    const int64_t count = view_count(out);
    int64_t index[WEFT_MAX_RANK] = {0}, sx[WEFT_MAX_RANK];
    shape_strides(&x->shape, sx);
    for (int64_t i = 0; i < count; i++, shape_next(&out->shape, index)) {
        int64_t offset = 0;
        for (int d = 0; d < out->shape.rank; d++)
            offset += index[d] * sx[attr->perm[d]];
        view_set(out, i, view_get(x, offset));
    }
    return WEFT_OK;
}

/* Ops along one dim are three loops over (outer, dim, inner). */
REF_KERNEL(slice)
{
    const weft_attr_slice *attr = args->attr;
    const weft_shape *s = &args->in[0].shape;
    const int64_t outer = shape_span(s, 0, attr->dim),
                  inner = shape_span(s, attr->dim + 1, s->rank);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < attr->len; k++)
            for (int64_t i = 0; i < inner; i++)
                view_set(
                    &args->out[0], (o * attr->len + k) * inner + i,
                    view_get(&args->in[0], (o * s->dim[attr->dim] + attr->start + k) * inner + i));
    return WEFT_OK;
}

REF_KERNEL(pad)
{
    const weft_attr_pad *attr = args->attr;
    const weft_shape *s = &args->in[0].shape;
    const int64_t outer = shape_span(s, 0, attr->dim),
                  inner = shape_span(s, attr->dim + 1, s->rank);
    const int64_t len = s->dim[attr->dim], out_len = attr->before + len + attr->after;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < out_len; k++)
            for (int64_t i = 0; i < inner; i++) {
                const int64_t from = k - attr->before;
                const bool inside = from >= 0 && from < len;
                view_set(&args->out[0], (o * out_len + k) * inner + i,
                         inside ? view_get(&args->in[0], (o * len + from) * inner + i) : 0);
            }
    return WEFT_OK;
}

REF_KERNEL(concat)
{
    const weft_attr_concat *attr = args->attr;
    const weft_shape *s = &args->out[0].shape;
    const int64_t outer = shape_span(s, 0, attr->dim),
                  inner = shape_span(s, attr->dim + 1, s->rank);
    int64_t start = 0;
    for (int n = 0; n < args->in_count; n++) {
        const int64_t len = args->in[n].shape.dim[attr->dim];
        for (int64_t o = 0; o < outer; o++)
            for (int64_t k = 0; k < len; k++)
                for (int64_t i = 0; i < inner; i++)
                    view_set(&args->out[0], (o * s->dim[attr->dim] + start + k) * inner + i,
                             view_get(&args->in[n], (o * len + k) * inner + i));
        start += len;
    }
    return WEFT_OK;
}

REF_KERNEL(embed)
{
    const weft_view *table = &args->in[0], *ids = &args->in[1];
    const int64_t count = view_count(ids), width = table->shape.dim[1];
    WEFT_TRY(embed_check_ids(ids, table->shape.dim[0]));
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++)
            view_set(&args->out[0], i * width + c,
                     view_get(table, view_get_int(ids, i) * width + c));
    return WEFT_OK;
}

REF_KERNEL(unpack)
{
    const weft_attr_unpack *a = args->attr;
    const weft_packing *p = weft_packing_gguf(a->type);
    const weft_view *in = &args->in[0], *out = &args->out[0];
    const bool picks = args->in_count > 1 && view_present(&args->in[1]);
    const int64_t width = view_last(out), blocks = view_count(out) / a->elements,
                  each = width / a->elements; /* blocks of a row */
    float block[WEFT_PACKING_MOST];
    if (picks)
        WEFT_TRY(embed_check_ids(&args->in[1], in->shape.dim[0]));
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t row = picks ? view_get_int(&args->in[1], b / each) : b / each;
        p->expand((const unsigned char *)in->data + (row * each + b % each) * a->bytes, block);
        for (int64_t i = 0; i < a->elements; i++)
            view_set(out, b * a->elements + i, (double)block[i]);
    }
    return WEFT_OK;
}

/* Adds dy (..., C) at ids (...) to rows of (rows, C). */
REF_KERNEL(embed_grad)
{
    const bool ids_first = dtype_is_int(args->in[0].dtype);
    const weft_view *ids = &args->in[!ids_first], *dy = &args->in[ids_first], *out = &args->out[0];
    const int64_t count = view_count(ids), rows = out->shape.dim[0], width = out->shape.dim[1];
    WEFT_TRY(embed_check_ids(ids, rows));
    for (int64_t i = 0; i < rows * width; i++)
        view_set(out, i, 0);
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++) {
            const int64_t source = view_get_int(ids, i) * width + c;
            view_set(out, source, view_get(out, source) + view_get(dy, i * width + c));
        }
    return WEFT_OK;
}
