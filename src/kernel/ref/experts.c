/* Experts: the choice of experts per token, the dispatch of tokens and back, and the products. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <stdbool.h>

/* ---- choice -------------------------------------------------------------------------------- */

/* Returns the score of expert e for a row, including its bias. */
static double worth(const weft_kernel_args *args, int64_t row, int64_t e)
{
    const int64_t experts = view_last(&args->in[0]);
    const bool biased = args->in_count > 1 && view_present(&args->in[1]);
    return view_get(&args->in[0], row * experts + e) + (biased ? view_get(&args->in[1], e) : 0);
}

/* Returns the sum of the two largest scores of group q. */
static double best_two(const weft_kernel_args *args, int64_t row, int64_t q, int64_t each)
{
    double first = -INFINITY, second = -INFINITY;
    for (int64_t e = q * each; e < (q + 1) * each; e++) {
        const double w = worth(args, row, e);
        second = w > first ? first : fmax(second, w);
        first = fmax(first, w);
    }
    return each > 1 ? first + second : first;
}

/* Returns the number of groups that precede q: groups with a larger score, or an equal score and a
 * smaller index. */
static int64_t group_order(const weft_kernel_args *args, int64_t row, int64_t q, int64_t groups)
{
    const int64_t each = view_last(&args->in[0]) / groups;
    const double own = best_two(args, row, q, each);
    int64_t order = 0;
    for (int64_t p = 0; p < groups; p++) {
        const double other = best_two(args, row, p, each);
        order += other > own || (other == own && p < q);
    }
    return order;
}

REF_KERNEL(top_k)
{
    const weft_attr_top_k *attr = args->attr;
    const int64_t experts = view_last(&args->in[0]), rows = view_count(&args->out[0]) / attr->count;
    const int64_t groups = attr->groups ? attr->groups : 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e < experts; e++) {
            const int64_t each = experts / groups;
            if (attr->groups && group_order(args, r, e / each, groups) >= attr->top_groups)
                continue;
            int64_t order = 0; /* number of allowed experts that precede e */
            for (int64_t o = 0; o < experts; o++) {
                const bool open =
                    !attr->groups || group_order(args, r, o / each, groups) < attr->top_groups;
                const double own = worth(args, r, e), other = worth(args, r, o);
                order += open && (other > own || (other == own && o < e));
            }
            if (order < attr->count)
                view_set_int(&args->out[0], r * attr->count + order, e);
        }
    return WEFT_OK;
}

REF_KERNEL(pick)
{
    const weft_view *x = &args->in[0], *ids = &args->in[1];
    const int64_t experts = view_last(x), k = view_last(ids), count = view_count(ids);
    WEFT_TRY(experts_check_ids(ids, experts));
    for (int64_t i = 0; i < count; i++) {
        const int64_t e = view_get_int(ids, i);
        view_set(&args->out[0], i, e < 0 ? 0 : view_get(x, i / k * experts + e));
    }
    return WEFT_OK;
}

REF_KERNEL(pick_grad)
{
    const weft_view *ids = &args->in[0], *out = &args->out[0];
    const int64_t experts = view_last(out), k = view_last(ids), count = view_count(ids);
    WEFT_TRY(experts_check_ids(ids, experts));
    for (int64_t i = 0; i < view_count(out); i++)
        view_set(out, i, 0);
    for (int64_t i = 0; i < count; i++) {
        const int64_t e = view_get_int(ids, i), to = i / k * experts + e;
        if (e >= 0)
            view_set(out, to, view_get(out, to) + view_get(&args->in[1], i));
    }
    return WEFT_OK;
}

/* ---- there and back ------------------------------------------------------------------------ */

/* Returns the row of (E,B,slots) for choice j of token s of sample b; -1: none. */
static int64_t row_of(const weft_view *ids, const weft_attr_experts *attr, int64_t b, int64_t s,
                      int64_t j)
{
    const int64_t B = ids->shape.dim[0], S = ids->shape.dim[1], k = ids->shape.dim[2];
    const int64_t first = b * S * k, own = (b * S + s) * k + j, e = view_get_int(ids, own);
    int64_t slot = attr->slots ? 0 : s;
    for (int64_t i = first; attr->slots && i < own; i++)
        slot += view_get_int(ids, i) == e;
    const int64_t slots = attr->slots ? attr->slots : S;
    return e < 0 || slot >= slots ? -1 : (e * B + b) * slots + slot;
}

/* Calls `visit` for every choice that has a row, with the row and the flat index of (b,s,j). */
static weft_status_code each_choice(const weft_kernel_args *args, const weft_view *ids,
                                    void (*visit)(const weft_kernel_args *, int64_t row,
                                                  int64_t choice))
{
    const weft_attr_experts *attr = args->attr;
    const int64_t S = ids->shape.dim[1], k = ids->shape.dim[2], count = view_count(ids);
    WEFT_TRY(experts_check_ids(ids, attr->experts));
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = row_of(ids, attr, i / k / S, i / k % S, i % k);
        if (row >= 0)
            visit(args, row, i);
    }
    return WEFT_OK;
}

static void mark(const weft_kernel_args *args, int64_t row, int64_t choice)
{
    view_set_int(&args->out[0], row, view_get_int(&args->in[0], choice));
}

REF_KERNEL(expert_slots)
{
    for (int64_t i = 0; i < view_count(&args->out[0]); i++)
        view_set_int(&args->out[0], i, -1);
    return each_choice(args, &args->in[0], mark);
}

static void send(const weft_kernel_args *args, int64_t row, int64_t choice)
{
    const int64_t C = view_last(&args->out[0]), k = args->in[1].shape.dim[2];
    const int64_t from = args->in[0].shape.dim[2] == 1 ? choice / k : choice;
    for (int64_t c = 0; c < C; c++)
        view_set(&args->out[0], row * C + c, view_get(&args->in[0], from * C + c));
}

REF_KERNEL(dispatch)
{
    for (int64_t i = 0; i < view_count(&args->out[0]); i++)
        view_set(&args->out[0], i, 0);
    return each_choice(args, &args->in[1], send);
}

static void take_back(const weft_kernel_args *args, int64_t row, int64_t choice)
{
    const int64_t C = view_last(&args->out[0]);
    for (int64_t c = 0; c < C; c++)
        view_set(&args->out[0], choice * C + c, view_get(&args->in[0], row * C + c));
}

REF_KERNEL(collect)
{
    for (int64_t i = 0; i < view_count(&args->out[0]); i++)
        view_set(&args->out[0], i, 0);
    return each_choice(args, &args->in[1], take_back);
}

/* ---- products ------------------------------------------------------------------------------ */

/* Returns the expert of row `i` of ids; -1: none. */
static int64_t expert_of(const weft_kernel_args *args, int64_t i)
{
    const weft_attr_expert_matmul *attr = args->attr;
    const weft_view *ids = &args->in[2];
    const int64_t id = view_get_int(ids, i);
    return id < 0 || !attr->by_expert ? id : i / (ids->shape.dim[1] * ids->shape.dim[2]);
}

/* Returns the row of operand `x` that belongs to row `i` of ids. */
static int64_t row_in(const weft_view *x, const weft_view *ids, int64_t i)
{
    return x->shape.dim[2] == ids->shape.dim[2] ? i : i / ids->shape.dim[2];
}

REF_KERNEL(expert_matmul)
{
    const weft_attr_expert_matmul *attr = args->attr;
    const weft_view *x = &args->in[0], *w = &args->in[1], *ids = &args->in[2];
    const int64_t rows = view_count(ids), N = w->shape.dim[1], K = w->shape.dim[2];
    const int64_t wide = attr->trans_b ? N : K, deep = attr->trans_b ? K : N;
    if (!attr->by_expert)
        WEFT_TRY(experts_check_ids(ids, w->shape.dim[0]));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < wide; o++) {
            const int64_t e = expert_of(args, i), from = row_in(x, ids, i) * deep;
            double sum = 0;
            for (int64_t d = 0; e >= 0 && d < deep; d++)
                sum +=
                    ref_operand(x, from + d, attr->tf32) *
                    ref_operand(w, e * N * K + (attr->trans_b ? o * K + d : d * K + o), attr->tf32);
            view_set(&args->out[0], i * wide + o, sum);
        }
    return WEFT_OK;
}

REF_KERNEL(expert_matmul_dw)
{
    const weft_attr_expert_matmul *attr = args->attr;
    const weft_view *a = &args->in[0], *b = &args->in[1], *ids = &args->in[2], *out = &args->out[0];
    const int64_t rows = view_count(ids), N = out->shape.dim[1], K = out->shape.dim[2];
    if (!attr->by_expert)
        WEFT_TRY(experts_check_ids(ids, attr->experts));
    for (int64_t i = 0; i < view_count(out); i++)
        view_set(out, i, 0);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t e = expert_of(args, i);
        for (int64_t n = 0; e >= 0 && n < N; n++)
            for (int64_t k = 0; k < K; k++) {
                const int64_t to = (e * N + n) * K + k;
                view_set(out, to,
                         view_get(out, to) +
                             ref_operand(a, row_in(a, ids, i) * N + n, attr->tf32) *
                                 ref_operand(b, row_in(b, ids, i) * K + k, attr->tf32));
            }
    }
    return WEFT_OK;
}
