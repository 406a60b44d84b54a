/* Attributes: their text forms, and how one is restricted to a rank's shard. The columns `attr` and
 * `local` of op.def name the functions here. */
#include "graph/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---------------------------------------------------------------------------------- */

#define PRINT(name) void weft_print_##name(const weft_graph *g, const weft_node *n, weft_buf *out)

/* Prints the fewest digits that read back as the same number. */
static void put_number(weft_buf *out, const char *before, double value)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    weft_buf_printf(out, "%s%s", before, text);
}

static void put_list(weft_buf *out, const char *before, const int64_t *list, int count)
{
    weft_buf_printf(out, "%s", before);
    for (int i = 0; i < count; i++)
        weft_buf_printf(out, "%s%" PRId64, i ? "," : "", list[i]);
}

static void put_numbers(weft_buf *out, const char *before, const double list[3])
{
    for (int i = 0; i < 3; i++)
        put_number(out, i ? "," : before, list[i]);
}

static void put_shape(weft_buf *out, const char *before, const weft_shape *shape)
{
    char text[96];
    weft_buf_printf(out, "%s%s", before, weft_format_shape(shape, text));
}

/* Prints the start of a shard, if it is not the origin. */
static void put_start(weft_buf *out, const int64_t *start, int rank)
{
    bool origin = true;
    for (int d = 0; d < rank; d++)
        origin &= start[d] == 0;
    if (!origin)
        put_list(out, " at=", start, rank);
}

PRINT(none)
{
    (void)g, (void)n, (void)out;
}

PRINT(move)
{
    (void)g;
    const weft_attr_move *a = n->attr;
    weft_buf_printf(out, " {prefetch=%" PRId64 "}", a->prefetch_bytes);
}

PRINT(source)
{
    static const char *const kinds[] = {"zero", "fill", "normal", "uniform"};
    const weft_attr_source *a = n->attr;
    if (weft_op_has(n->op, WEFT_TRAIT_PERSISTENT)) {
        weft_buf_printf(out, " {init=%s", kinds[a->init.kind]);
        put_number(out, " ", a->init.value);
        put_shape(out,
                  a->slot        ? a->offloaded ? " slot away global=" : " slot global="
                  : a->offloaded ? " away global="
                  : a->frozen    ? " frozen global="
                                 : " global=",
                  &a->global);
    } else if (!weft_shape_equal(&a->global, &a->shape)) {
        put_shape(out, " {global=", &a->global);
    } else {
        return;
    }
    put_start(out, a->start, a->shape.rank);
    weft_buf_printf(out, "}");
    (void)g;
}

/* The data is not printed; the hash includes it. */
PRINT(constant)
{
    (void)g, (void)n, (void)out;
}

PRINT(fill)
{
    (void)g;
    put_number(out, " {value=", ((const weft_attr_fill *)n->attr)->value);
    weft_buf_printf(out, "}");
}

PRINT(random)
{
    (void)g;
    const weft_attr_random *a = n->attr;
    weft_buf_printf(out, " {purpose=%d", (int)a->purpose);
    if (!weft_shape_equal(&a->global, &a->shape))
        put_shape(out, " global=", &a->global);
    put_start(out, a->start, a->shape.rank);
    weft_buf_printf(out, "}");
}

PRINT(affine)
{
    (void)g;
    const weft_attr_affine *a = n->attr;
    put_number(out, " {scale=", a->scale);
    put_number(out, " offset=", a->offset);
    weft_buf_printf(out, "}");
}

PRINT(clamp)
{
    (void)g;
    const weft_attr_clamp *a = n->attr;
    put_number(out, " {lo=", a->lo);
    put_number(out, " hi=", a->hi);
    weft_buf_printf(out, "}");
}

/* The dtype is not printed: it is that of the output. */
PRINT(cast)
{
    (void)g, (void)n, (void)out;
}

PRINT(gelu)
{
    (void)g;
    weft_buf_printf(out, " {%s}", ((const weft_attr_gelu *)n->attr)->exact ? "erf" : "tanh");
}

/* " {%a = add(0,1); %b = cast(%a) bf16 out}" */
PRINT(pointwise)
{
    const weft_attr_pointwise *a = n->attr;
    weft_buf_printf(out, " {");
    for (int s = 0; s < a->count; s++) {
        const weft_pointwise_step *step = &a->step[s];
        weft_buf_printf(out, "%s%%%c = %s(", s ? "; " : "", 'a' + s, weft_op_get(step->op)->name);
        for (int i = 0; i < step->in_count; i++)
            if (step->in[i] >= WEFT_POINTWISE_STEP)
                weft_buf_printf(out, "%s%%%c", i ? "," : "",
                                'a' + step->in[i] - WEFT_POINTWISE_STEP);
            else
                weft_buf_printf(out, "%s%d", i ? "," : "", (int)step->in[i]);
        weft_buf_printf(out, ")");
        weft_op_get(step->op)->print(g, &(weft_node){.op = step->op, .attr = &step->attr}, out);
        weft_buf_printf(out, " %s%s", weft_dtype_name(step->dtype), step->out >= 0 ? " out" : "");
    }
    weft_buf_printf(out, "}");
}

PRINT(unpack)
{
    (void)g;
    const weft_attr_unpack *a = n->attr;
    weft_buf_printf(out, " {type=%" PRId64 " %" PRId64 "/%" PRId64 "}", a->type, a->elements,
                    a->bytes);
}

PRINT(sum)
{
    (void)g;
    weft_buf_printf(out, " {dims=0x%x}", (unsigned)((const weft_attr_sum *)n->attr)->dims);
}

/* The shape is not printed: it is that of the output. */
PRINT(shape)
{
    (void)g, (void)n, (void)out;
}

PRINT(permute)
{
    const int *perm = ((const weft_attr_permute *)n->attr)->perm;
    weft_buf_printf(out, " {perm=");
    for (int i = 0; i < weft_in_info(g, n->in[0])->shape.rank; i++)
        weft_buf_printf(out, "%d", perm[i]);
    weft_buf_printf(out, "}");
}

PRINT(slice)
{
    (void)g;
    const weft_attr_slice *a = n->attr;
    weft_buf_printf(out, " {dim=%d start=%" PRId64 " len=%" PRId64 "}", a->dim, a->start, a->len);
}

PRINT(pad)
{
    (void)g;
    const weft_attr_pad *a = n->attr;
    weft_buf_printf(out, " {dim=%d before=%" PRId64 " after=%" PRId64 "}", a->dim, a->before,
                    a->after);
}

PRINT(concat)
{
    (void)g;
    weft_buf_printf(out, " {dim=%d}", ((const weft_attr_concat *)n->attr)->dim);
}

PRINT(matmul)
{
    (void)g;
    const weft_attr_matmul *a = n->attr;
    weft_buf_printf(out, " {%c%c%s}", a->trans_a ? 'T' : 'N', a->trans_b ? 'T' : 'N',
                    a->tf32 ? " tf32" : "");
}

PRINT(linear)
{
    (void)g;
    static const char *const acts[] = {"none", "gelu_tanh", "silu"};
    const weft_attr_linear *a = n->attr;
    weft_buf_printf(out, " {act=%s", acts[a->act]);
    if (a->round != WEFT_F32)
        weft_buf_printf(out, " round=%s", weft_dtype_name(a->round));
    weft_buf_printf(out, "%s}", a->tf32 ? " tf32" : "");
}

PRINT(conv)
{
    (void)g;
    const weft_attr_conv *a = n->attr;
    put_list(out, " {stride=", a->stride, 3);
    put_list(out, " before=", a->before, 3);
    put_list(out, " after=", a->after, 3);
    weft_buf_printf(out, "%s}", a->tf32 ? " tf32" : "");
}

PRINT(attention)
{
    (void)g;
    const weft_attr_attention *a = n->attr;
    put_number(out, " {scale=", a->scale);
    weft_buf_printf(out, "%s%s%s}", a->causal ? " causal" : "", a->int8 ? " int8" : "",
                    a->tf32 ? " tf32" : "");
}

PRINT(norm)
{
    (void)g;
    const weft_attr_norm *a = n->attr;
    put_number(out, " {eps=", a->eps);
    weft_buf_printf(out, "%s}", a->l2 ? " l2" : "");
}

PRINT(rope)
{
    (void)g;
    const weft_attr_rope *a = n->attr;
    if (a->inverse || a->rotate_half)
        weft_buf_printf(out, " {%s}",
                        !a->rotate_half ? "inverse"
                        : a->inverse    ? "halves inverse"
                                        : "halves");
}

/* The length is not printed: it is that of the output. */
PRINT(rope_table)
{
    (void)g;
    const weft_attr_rope_table *a = n->attr;
    put_numbers(out, " {theta=", a->theta);
    put_numbers(out, " origin=", a->origin);
    put_numbers(out, " step=", a->step);
    put_list(out, " grid=", a->grid, 3);
    put_list(out, " pairs=", a->pairs, 3);
    weft_buf_printf(out, " around=%" PRId64 ",%" PRId64 " at=%" PRId64 "}", a->before, a->after,
                    a->start);
}

/* The rows are not printed: they are those of the output. */
PRINT(embed)
{
    (void)g, (void)n, (void)out;
}

PRINT(top_k)
{
    (void)g;
    const weft_attr_top_k *a = n->attr;
    weft_buf_printf(out, " {count=%" PRId64, a->count);
    if (a->groups || a->top_groups)
        weft_buf_printf(out, " of %" PRId64 " of %" PRId64 " groups", a->top_groups, a->groups);
    weft_buf_printf(out, "}");
}

PRINT(top_p)
{
    (void)g;
    weft_buf_printf(out, " {mass=%.17g}", ((const weft_attr_top_p *)n->attr)->mass);
}

PRINT(top_share)
{
    (void)g;
    weft_buf_printf(out, " {share=%.17g}", ((const weft_attr_top_share *)n->attr)->share);
}

PRINT(experts)
{
    (void)g;
    const weft_attr_experts *a = n->attr;
    weft_buf_printf(out, " {experts=%" PRId64, a->experts);
    if (a->slots)
        weft_buf_printf(out, " slots=%" PRId64, a->slots);
    weft_buf_printf(out, "}");
}

PRINT(expert_matmul)
{
    (void)g;
    const weft_attr_expert_matmul *a = n->attr;
    weft_buf_printf(out, " {%s%s", a->trans_b ? "NT" : "NN", a->by_expert ? " by expert" : "");
    if (a->experts)
        weft_buf_printf(out, " experts=%" PRId64, a->experts);
    weft_buf_printf(out, "%s}", a->tf32 ? " tf32" : "");
}

PRINT(adamw)
{
    (void)g;
    const weft_attr_adamw *a = n->attr;
    put_number(out, " {beta1=", a->beta1);
    put_number(out, " beta2=", a->beta2);
    put_number(out, " eps=", a->eps);
    put_number(out, " weight_decay=", a->weight_decay);
    weft_buf_printf(out, "}");
}

PRINT(comm)
{
    (void)g;
    const weft_attr_comm *a = n->attr;
    weft_buf_printf(out, " {axis=%d", a->axis);
    if (a->shift)
        weft_buf_printf(out, " shift=%d", a->shift);
    if (a->held)
        weft_buf_printf(out, " held=%d", a->held);
    if (a->global)
        weft_buf_printf(out, " dim=%d of %" PRId64, a->dim, a->global);
    if (a->global2)
        weft_buf_printf(out, " to dim=%d of %" PRId64, a->dim2, a->global2);
    weft_buf_printf(out, "%s%s%s}", a->invariant ? " invariant" : "", a->late ? " late" : "",
                    a->piece ? " piece" : "");
}

/* ---- shards -------------------------------------------------------------------------------- */

#define LOCAL(name)                                                                                \
    void weft_local_##name(weft_graph *to, void *attr, int dim, int64_t start, int64_t len)

LOCAL(none)
{
    (void)to, (void)attr, (void)dim, (void)start, (void)len;
}

/* A range of leading rows shares the data. A range of another dim is copied to a new blob. */
LOCAL(constant)
{
    weft_attr_constant *a = attr;
    int64_t outer = 1, inner = weft_dtype_bytes(a->dtype);
    for (int i = 0; i < a->shape.rank; i++) {
        outer *= i < dim ? a->shape.dim[i] : 1;
        inner *= i > dim ? a->shape.dim[i] : 1;
    }
    const int64_t row = a->shape.dim[dim] * inner;
    const char *from = (const char *)a->data + start * inner;
    a->shape.dim[dim] = len;
    a->data = from;
    if (outer == 1)
        return;
    char *own = weft_graph_blob(to, outer * len * inner, &a->blob);
    a->data = own;
    for (int64_t i = 0; own && i < outer; i++)
        memcpy(own + i * len * inner, from + i * row, (size_t)(len * inner));
}

LOCAL(fill)
{
    (void)to, (void)start;
    ((weft_attr_fill *)attr)->shape.dim[dim] = len;
}

LOCAL(random)
{
    (void)to;
    weft_attr_random *a = attr;
    a->shape.dim[dim] = len;
    a->start[dim] += dim ? start : 0; /* dim 0: the samples' keys distinguish them */
}

LOCAL(rope_table)
{
    (void)to, (void)dim; /* always the token dim */
    weft_attr_rope_table *a = attr;
    a->start += start;
    a->len = len;
}

LOCAL(shape)
{
    (void)to, (void)start;
    ((weft_attr_shape *)attr)->shape.dim[dim] = len;
}

LOCAL(conv)
{
    (void)to, (void)start;
    ((weft_attr_conv *)attr)->x_shape.dim[dim] = len;
}

LOCAL(experts)
{
    (void)to, (void)start;
    if (dim == 0)
        ((weft_attr_expert_matmul *)attr)->experts = len;
}
