/* Short forms of the builder. */
#include "graph/builder_helpers.h"

#include "graph/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const weft_value_info *info_of(const weft_graph *g, weft_value v)
{
    return g->error == WEFT_OK && weft_value_ok(v) ? &g->value[v.id] : NULL;
}

/* Prepends dims of 1 until `v` has `rank`. */
static weft_value align_rank(weft_graph *g, weft_value v, int rank)
{
    const weft_value_info *info = info_of(g, v);
    if (!info || info->shape.rank >= rank)
        return v;
    weft_shape shape = {.rank = rank};
    const int missing = rank - info->shape.rank;
    for (int i = 0; i < rank; i++)
        shape.dim[i] = i < missing ? 1 : info->shape.dim[i - missing];
    return weft_reshape(g, v, shape);
}

static weft_value binary(weft_graph *g, weft_op op, weft_value a, weft_value b)
{
    const weft_value_info *ia = info_of(g, a), *ib = info_of(g, b);
    if (!ia || !ib)
        return WEFT_NONE;
    const int rank_a = ia->shape.rank, rank_b = ib->shape.rank;
    a = align_rank(g, a, rank_b);
    b = align_rank(g, b, rank_a);
    return weft_emit(g, op, (weft_value[]){a, b}, 2, NULL);
}

weft_value weft_add(weft_graph *g, weft_value a, weft_value b)
{
    return binary(g, WEFT_OP_ADD, a, b);
}

weft_value weft_sub(weft_graph *g, weft_value a, weft_value b)
{
    return binary(g, WEFT_OP_SUB, a, b);
}

weft_value weft_mul(weft_graph *g, weft_value a, weft_value b)
{
    return binary(g, WEFT_OP_MUL, a, b);
}

weft_value weft_div(weft_graph *g, weft_value a, weft_value b)
{
    return binary(g, WEFT_OP_DIV, a, b);
}

weft_value weft_affine(weft_graph *g, weft_value x, double scale, double offset)
{
    return weft_emit(g, WEFT_OP_AFFINE, &x, 1, &(weft_attr_affine){scale, offset});
}

weft_value weft_unary(weft_graph *g, weft_op op, weft_value x)
{
    return weft_emit(g, op, &x, 1, NULL);
}

weft_value weft_gelu_tanh(weft_graph *g, weft_value x)
{
    return weft_emit(g, WEFT_OP_GELU, &x, 1, &(weft_attr_gelu){.exact = false});
}

weft_value weft_clamp(weft_graph *g, weft_value x, double lo, double hi)
{
    return weft_emit(g, WEFT_OP_CLAMP, &x, 1, &(weft_attr_clamp){lo, hi});
}

weft_value weft_cast(weft_graph *g, weft_value x, weft_dtype dtype)
{
    return weft_emit(g, WEFT_OP_CAST, &x, 1, &(weft_attr_cast){dtype});
}

weft_value weft_sum(weft_graph *g, weft_value x, uint32_t dims)
{
    return weft_emit(g, WEFT_OP_SUM, &x, 1, &(weft_attr_sum){dims});
}

weft_value weft_mean(weft_graph *g, weft_value x, uint32_t dims)
{
    const weft_value_info *info = info_of(g, x);
    if (!info)
        return WEFT_NONE;
    int64_t count = 1;
    for (int i = 0; i < info->shape.rank; i++)
        count *= dims >> i & 1 ? info->shape.dim[i] : 1;
    return weft_affine(g, weft_sum(g, x, dims), count ? 1.0 / (double)count : 0, 0);
}

weft_value weft_sum_all(weft_graph *g, weft_value x)
{
    const weft_value_info *info = info_of(g, x);
    if (!info)
        return WEFT_NONE;
    if (info->shape.rank == 0)
        return x;
    return weft_reshape(g, weft_sum(g, x, (1u << info->shape.rank) - 1), WEFT_SCALAR);
}

weft_value weft_mean_all(weft_graph *g, weft_value x)
{
    const weft_value_info *info = info_of(g, x);
    if (!info)
        return WEFT_NONE;
    const int64_t count = weft_shape_count(&info->shape);
    return weft_affine(g, weft_sum_all(g, x), count ? 1.0 / (double)count : 0, 0);
}

weft_value weft_reshape(weft_graph *g, weft_value x, weft_shape shape)
{
    const weft_value_info *info = info_of(g, x);
    if (!info)
        return WEFT_NONE;
    int64_t known = 1;
    int free_dim = -1;
    for (int i = 0; i < shape.rank && i < WEFT_MAX_RANK; i++) {
        if (shape.dim[i] == -1 && free_dim < 0)
            free_dim = i;
        else
            known *= shape.dim[i];
    }
    if (free_dim >= 0)
        shape.dim[free_dim] = known ? weft_shape_count(&info->shape) / known : 0;
    /* on a mesh the sizes are those of shards: all ranks must build the same nodes */
    if (g->mesh.axis_count == 0 && weft_shape_equal(&shape, &info->shape))
        return x;
    return weft_emit(g, WEFT_OP_RESHAPE, &x, 1, &(weft_attr_shape){shape});
}

weft_value weft_broadcast(weft_graph *g, weft_value x, weft_shape shape)
{
    return weft_emit(g, WEFT_OP_BROADCAST, &x, 1, &(weft_attr_shape){shape});
}

weft_value weft_permute(weft_graph *g, weft_value x, const int *perm)
{
    const weft_value_info *info = info_of(g, x);
    weft_attr_permute attr = {{0}};
    for (int i = 0; info && i < info->shape.rank; i++)
        attr.perm[i] = perm[i];
    return weft_emit(g, WEFT_OP_PERMUTE, &x, 1, &attr);
}

weft_value weft_slice(weft_graph *g, weft_value x, int dim, int64_t start, int64_t len)
{
    return weft_emit(g, WEFT_OP_SLICE, &x, 1, &(weft_attr_slice){dim, start, len});
}

weft_value weft_pad(weft_graph *g, weft_value x, int dim, int64_t before, int64_t after)
{
    if (before == 0 && after == 0)
        return x;
    return weft_emit(g, WEFT_OP_PAD, &x, 1, &(weft_attr_pad){dim, before, after});
}

weft_value weft_concat(weft_graph *g, const weft_value *in, int count, int dim)
{
    if (count == 1)
        return in[0];
    return weft_emit(g, WEFT_OP_CONCAT, in, count, &(weft_attr_concat){dim});
}

weft_value weft_matmul(weft_graph *g, weft_value a, weft_value b, bool trans_a, bool trans_b)
{
    return weft_emit(g, WEFT_OP_MATMUL, (weft_value[]){a, b}, 2,
                     &(weft_attr_matmul){trans_a, trans_b});
}

weft_value weft_random_like(weft_graph *g, weft_op op, weft_value key, weft_rng_purpose purpose,
                            weft_shape shape)
{
    const weft_attr_random attr = {.purpose = purpose, .shape = shape, .global = shape};
    return weft_emit(g, op, &key, 1, &attr);
}

static uint32_t split_axes(const weft_graph *g, weft_value v)
{
    uint32_t axes = 0;
    for (int a = 0; a < g->mesh.axis_count; a++)
        axes |= g->value[v.id].layout[a].kind == WEFT_S ? 1u << a : 0;
    return axes;
}

static weft_value add_up(weft_graph *g, weft_value sum, weft_value term)
{
    return weft_value_ok(sum) ? weft_add(g, sum, term) : term;
}

/* Sum of squares of the values that are split over exactly `axes`: a term of a sum along these
 * axes. */
static weft_value sum_split(weft_graph *g, const weft_value *value, int count, uint32_t axes)
{
    weft_value sum = WEFT_NONE;
    for (int i = 0; i < count; i++)
        if (weft_value_ok(value[i]) && split_axes(g, value[i]) == axes)
            sum = add_up(g, sum, weft_unary(g, WEFT_OP_SUM_SQUARES, value[i]));
    return sum;
}

/* `sum` is equal on all ranks along `axes`. Divides it by the number of ranks, so that it is a term
 * of a sum along these axes, too. */
static weft_value share_along(weft_graph *g, weft_value sum, uint32_t axes)
{
    weft_layout layout[WEFT_MAX_AXES];
    double share = 1;
    if (!weft_value_ok(sum) || !axes)
        return sum;
    memcpy(layout, g->value[sum.id].layout, sizeof layout);
    for (int a = 0; a < g->mesh.axis_count; a++)
        if (axes >> a & 1) {
            share /= g->mesh.axis[a].size;
            layout[a] = (weft_layout){.kind = WEFT_P};
        }
    sum = weft_affine(g, sum, share, 0);
    weft_graph_set_layout(g, sum, layout);
    return sum;
}

weft_value weft_sum_squares_all(weft_graph *g, const weft_value *value, int count)
{
    weft_value total = WEFT_NONE;
    const int pp_axis = weft_mesh_axis(&g->mesh, WEFT_PP_STAGES_AXIS);
    /* Every pipeline stage participates in the all-reduce along pp, also one without values. */
    const uint32_t apart = pp_axis >= 0 && g->mesh.axis[pp_axis].size > 1 ? 1u << pp_axis : 0;
    uint32_t all = apart;
    for (int i = 0; i < count; i++)
        all |= weft_value_ok(value[i]) ? split_axes(g, value[i]) : 0;
    for (uint32_t axes = 1; axes < 1u << g->mesh.axis_count && g->error == WEFT_OK; axes++) {
        const weft_value sum = sum_split(g, value, count, axes);
        if (weft_value_ok(sum))
            total = add_up(g, total, share_along(g, sum, all & ~axes));
    }
    if (apart && !weft_value_ok(total))
        total = share_along(g, weft_fill(g, WEFT_F32, WEFT_SCALAR, 0), apart);
    /* Pipeline stages have different parameters, which other axes may split or not. The all-reduce
     * along pp is therefore the last one. */
    for (int i = 0; weft_value_ok(total) && i <= g->mesh.axis_count; i++) {
        const int a = i < g->mesh.axis_count ? i : pp_axis;
        if (a >= 0 && all >> a & 1 && (a != pp_axis || i == g->mesh.axis_count))
            total = weft_emit(g, WEFT_OP_ALL_REDUCE, &total, 1, &(weft_attr_comm){.axis = a});
    }
    const weft_value whole = sum_split(g, value, count, 0);
    return weft_value_ok(whole) && weft_value_ok(total) ? weft_add(g, whole, total)
           : weft_value_ok(whole)                       ? whole
                                                        : total;
}

/* ---- names of stacks ----------------------------------------------------------------------- */

void weft_stack_item(const char *name, int64_t i, char *out, size_t size)
{
    const char *star = strchr(name, '*');
    if (star)
        snprintf(out, size, "%.*s%" PRId64 "%s", (int)(star - name), name, i, star + 1);
    else
        snprintf(out, size, "%s", name);
}

bool weft_stack_of(const char *name, int which, char *out, size_t size, int64_t *item)
{
    for (const char *at = name; *at;) {
        char *end;
        const size_t length = strcspn(at, ".");
        const bool digits = length > 0 && strspn(at, "0123456789") == length;
        if (digits && which-- == 0) {
            *item = strtoll(at, &end, 10);
            snprintf(out, size, "%.*s*%s", (int)(at - name), name, end);
            return true;
        }
        at += length + (at[length] == '.');
    }
    return false;
}

bool weft_graph_knows(const weft_graph *g, const char *name)
{
    char stack[700];
    int64_t item;
    bool known = weft_value_ok(weft_graph_find(g, name));
    for (int i = 0; !known && weft_stack_of(name, i, stack, sizeof stack, &item); i++) {
        const weft_value v = weft_graph_find(g, stack);
        const weft_node *made =
            weft_value_ok(v) ? weft_graph_node(g, weft_value_get(g, v)->node) : NULL;
        known = made && made->op == WEFT_OP_PARAM &&
                item < ((const weft_attr_source *)made->attr)->global.dim[0];
    }
    return known;
}
