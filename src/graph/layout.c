/* Layout rules: the legal ways to compute an op with its operands laid out over the ranks of one
 * mesh axis.
 *
 * A rule lists rows (required layouts of the inputs, resulting layouts of the outputs). The
 * sharding pass chooses the cheapest row. "Everything replicated" is legal for every op and is not
 * listed. R in a row with another layout means unsharded on every rank: the pass makes it V, so
 * that its gradient is summed. */
#include "graph/conversion.h"
#include "graph/internal.h"

#define RULE(name)                                                                                 \
    int weft_layout_##name(const weft_graph *g, const weft_node *n, int ranks,                     \
                           weft_layout_choice *choice)

static const weft_layout whole = {WEFT_R, 0}, partial = {WEFT_P, 0};

static weft_layout split(int dim)
{
    return (weft_layout){WEFT_S, (int8_t)dim};
}

static const weft_shape *shape_of(const weft_graph *g, weft_value v)
{
    return &g->value[v.id].shape;
}

static bool has_input(const weft_node *n, int i)
{
    return i < n->in_count && weft_value_ok(n->in[i]);
}

static weft_layout_choice *add_row(weft_layout_choice *choice, int *count)
{
    weft_layout_choice *row = &choice[(*count)++];
    *row = (weft_layout_choice){0}; /* WEFT_R everywhere */
    return row;
}

/* One input, one output. */
static void add_map(weft_layout_choice *choice, int *count, weft_layout in, weft_layout out)
{
    weft_layout_choice *row = add_row(choice, count);
    row->need[0] = in;
    row->out[0] = out;
}

/* Whether `v` is split along `dim` on some axis, which shards of size 1 do not show. */
static bool has_split(const weft_graph *g, weft_value v, int dim)
{
    bool any = false;
    for (int a = 0; a < g->mesh.axis_count; a++) {
        const weft_layout l = g->value[v.id].layout[a];
        any |= l.kind == WEFT_S && l.dim == dim;
    }
    return any;
}

/* The layout of an operand that is broadcast to a result split along `dim`. */
static weft_layout split_or_whole(const weft_graph *g, weft_value operand, int dim, int64_t size)
{
    const bool splits =
        size == 1 ? has_split(g, operand, dim) : shape_of(g, operand)->dim[dim] == size;
    return splits ? split(dim) : whole;
}

/* Adds the rows of a product with P in one operand and the others unsharded: the result is P. */
static void add_bilinear(weft_layout_choice *choice, int *count)
{
    for (int i = 0; i < 2; i++) {
        weft_layout_choice *row = add_row(choice, count);
        row->need[i] = partial;
        row->out[0] = partial;
    }
}

/* ---- sources ------------------------------------------------------------------------------- */

/* No rows: the recipe sets the layout. */
RULE(source)
{
    (void)g, (void)n, (void)ranks, (void)choice;
    return 0;
}

/* Each rank fills its own shard. */
RULE(fill)
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->out[0])->rank; d++)
        add_map(choice, &count, whole, split(d));
    return count;
}

RULE(random)
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->out[0])->rank; d++)
        add_map(choice, &count, d ? whole : split(0), split(d));
    return count;
}

/* ---- elementwise --------------------------------------------------------------------------- */

RULE(elementwise)
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->out[0])->rank; d++) {
        weft_layout_choice *row = add_row(choice, &count);
        for (int i = 0; i < n->in_count; i++)
            row->need[i] = split(d);
        row->out[0] = split(d);
    }
    return count;
}

RULE(linear_unary)
{
    int count = weft_layout_elementwise(g, n, ranks, choice);
    add_map(choice, &count, partial, partial);
    return count;
}

/* P is legal without an offset only: the offset would be added once per rank. */
RULE(affine)
{
    int count = weft_layout_elementwise(g, n, ranks, choice);
    if (((const weft_attr_affine *)n->attr)->offset == 0)
        add_map(choice, &count, partial, partial);
    return count;
}

/* Dims of 1 of broadcast operands are not split. Whether they are 1 would depend on the shards of
 * earlier axes, and a split gains nothing. */
static int broadcast_rows(const weft_graph *g, const weft_node *n, int ranks,
                          weft_layout_choice *choice)
{
    const weft_shape *out = shape_of(g, n->out[0]);
    int count = 0;
    for (int d = 0; d < out->rank; d++) {
        if (out->dim[d] == 1 && ranks > 0)
            continue;
        weft_layout_choice *row = add_row(choice, &count);
        for (int i = 0; i < n->in_count; i++)
            row->need[i] = split_or_whole(g, n->in[i], d, out->dim[d]);
        row->out[0] = split(d);
    }
    return count;
}

RULE(add)
{
    int count = broadcast_rows(g, n, ranks, choice);
    weft_layout_choice *row = add_row(choice, &count);
    row->need[0] = row->need[1] = row->out[0] = partial;
    return count;
}

RULE(mul)
{
    int count = broadcast_rows(g, n, ranks, choice);
    add_bilinear(choice, &count);
    return count;
}

RULE(div)
{
    int count = broadcast_rows(g, n, ranks, choice);
    add_map(choice, &count, partial, partial);
    return count;
}

/* ---- reductions and shapes ----------------------------------------------------------------- */

RULE(sum)
{
    (void)ranks;
    const uint32_t dims = ((const weft_attr_sum *)n->attr)->dims;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->in[0])->rank; d++)
        add_map(choice, &count, split(d), dims >> d & 1 ? partial : split(d));
    add_map(choice, &count, partial, partial);
    return count;
}

RULE(broadcast)
{
    const weft_shape *to = shape_of(g, n->out[0]);
    int count = 0;
    for (int d = 0; d < to->rank; d++)
        if (to->dim[d] != 1 || ranks == 0)
            add_map(choice, &count, split_or_whole(g, n->in[0], d, to->dim[d]), split(d));
    add_map(choice, &count, partial, partial);
    return count;
}

/* Rows for existing shards: a split may move to any dim of its group. Dims of size 1 belong to the
 * groups on both sides. */
static void add_pairs(const weft_shape *a, const weft_shape *b, const int *group_a,
                      const int *group_b, weft_layout_choice *choice, int *count)
{
    for (int i = 0; i < a->rank; i++)
        for (int j = 0; j < b->rank; j++)
            if (group_a[i] == group_b[j] || a->dim[i] <= 1 || b->dim[j] <= 1)
                add_map(choice, count, split(i), split(j));
}

/* Splits of a reshape. The dims of both sides form groups of equal products. In a group, shards of
 * the first dim that is not 1 coincide if the chunks have the same number of elements on both
 * sides. A reshape of existing shards (`ranks` 0) is always legal. */
RULE(reshape)
{
    const weft_shape *a = shape_of(g, n->in[0]), *b = shape_of(g, n->out[0]);
    int count = 0;
    int group_a[WEFT_MAX_RANK] = {0}, group_b[WEFT_MAX_RANK] = {0}, group = 0;
    const bool empty = weft_shape_count(a) == 0;
    if (empty && ranks > 0)
        return 0;
    for (int i = 0, j = 0; !empty && i < a->rank && j < b->rank;) {
        const int first_i = i, first_j = j;
        int64_t size_a = a->dim[i++], size_b = b->dim[j++];
        while (size_a != size_b) {
            if (size_a < size_b)
                size_a *= a->dim[i++];
            else
                size_b *= b->dim[j++];
        }
        int from = first_i, to = first_j;
        while (from < i - 1 && a->dim[from] == 1)
            from++;
        while (to < j - 1 && b->dim[to] == 1)
            to++;
        group++;
        for (int d = first_i; d < i; d++)
            group_a[d] = group;
        for (int d = first_j; d < j; d++)
            group_b[d] = group;
        const int64_t inner_a = size_a / a->dim[from], inner_b = size_b / b->dim[to];
        const int64_t chunk_a = ranks ? (a->dim[from] + ranks - 1) / ranks : 0,
                      chunk_b = ranks ? (b->dim[to] + ranks - 1) / ranks : 0;
        if (chunk_a * inner_a == chunk_b * inner_b)
            add_map(choice, &count, split(from), split(to));
    }
    if (ranks == 0)
        add_pairs(a, b, group_a, group_b, choice, &count);
    add_map(choice, &count, partial, partial);
    return count;
}

RULE(permute)
{
    (void)ranks;
    const int *perm = ((const weft_attr_permute *)n->attr)->perm;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->out[0])->rank; d++)
        add_map(choice, &count, split(perm[d]), split(d));
    add_map(choice, &count, partial, partial);
    return count;
}

/* Rows for an op that works along `dim`: all other dims may be split. For existing shards (`ranks`
 * 0) each rank may slice and concatenate its own along `dim`, too. */
static int other_dim_rows(const weft_graph *g, const weft_node *n, int dim, int ranks,
                          weft_layout_choice *choice)
{
    int count = 0;
    for (int d = 0; d <= shape_of(g, n->out[0])->rank; d++) {
        const bool last = d == shape_of(g, n->out[0])->rank;
        if (d == dim && ranks > 0)
            continue;
        weft_layout_choice *row = add_row(choice, &count);
        for (int i = 0; i < n->in_count && i < WEFT_MAX_INPUTS; i++)
            row->need[i] = last ? partial : split(d);
        row->out[0] = last ? partial : split(d);
    }
    return count;
}

RULE(slice)
{
    return other_dim_rows(g, n, ((const weft_attr_slice *)n->attr)->dim, ranks, choice);
}

RULE(pad)
{
    return other_dim_rows(g, n, ((const weft_attr_pad *)n->attr)->dim, ranks, choice);
}

RULE(concat)
{
    return other_dim_rows(g, n, ((const weft_attr_concat *)n->attr)->dim, ranks, choice);
}

/* ---- contractions -------------------------------------------------------------------------- */

static void add_product(weft_layout_choice *choice, int *count, weft_layout a, weft_layout b,
                        weft_layout out)
{
    weft_layout_choice *row = add_row(choice, count);
    row->need[0] = a;
    row->need[1] = b;
    row->out[0] = out;
}

RULE(matmul)
{
    (void)ranks;
    const weft_attr_matmul *t = n->attr;
    const int ra = shape_of(g, n->in[0])->rank, rb = shape_of(g, n->in[1])->rank;
    int count = 0;
    for (int d = 0; d < ra - 2; d++)
        add_product(choice, &count, split(d), ra == rb ? split(d) : whole, split(d));
    add_product(choice, &count, split(t->trans_a ? ra - 1 : ra - 2), whole, split(ra - 2));
    add_product(choice, &count, whole, split(t->trans_b ? rb - 2 : rb - 1), split(ra - 1));
    add_product(choice, &count, split(t->trans_a ? ra - 2 : ra - 1),
                split(t->trans_b ? rb - 1 : rb - 2), partial);
    add_bilinear(choice, &count);
    return count;
}

/* No row for a P operand with a bias: the bias would be added once per rank. */
/* Whether chunks of K elements are chunks of complete blocks. */
static bool blocks_split(int64_t blocks, int64_t elements, int64_t K, int ranks)
{
    return ranks == 0 || (blocks + ranks - 1) / ranks * elements == (K + ranks - 1) / ranks;
}

RULE(linear)
{
    const weft_shape *x = shape_of(g, n->in[0]), *w = shape_of(g, n->in[1]);
    const int64_t elements = weft_int8_elements(g->value[n->in[1].id].dtype, w);
    const int rank = x->rank;
    int count = 0;
    for (int d = 0; d < rank - 1; d++)
        add_product(choice, &count, split(d), whole, split(d));
    add_product(choice, &count, whole, split(0), split(rank - 1));
    choice[count - 1].need[2] = split(0);
    if (has_input(n, 2) || ((const weft_attr_linear *)n->attr)->act != WEFT_ACT_NONE)
        return count;
    if (!elements || blocks_split(w->dim[1], elements, x->dim[rank - 1], ranks)) {
        add_product(choice, &count, split(rank - 1), split(1), partial);
        choice[count - 1].need[3] = split(0);
    }
    if (!elements) /* a rank's part of a sum would be rounded to int8 on its own */
        add_bilinear(choice, &count);
    return count;
}

/* Along T, Y or X shards are independent on three conditions: kernel and stride are equal
 * (patches), nothing is padded, and every rank has the same number of complete windows. */
static bool windows_split(const weft_attr_conv *a, const weft_shape *x, const weft_shape *y, int d,
                          int ranks, int64_t kernel)
{
    return a->before[d] == 0 && a->after[d] == 0 && a->stride[d] == kernel &&
           x->dim[1 + d] == y->dim[1 + d] * kernel &&
           (ranks == 0 || (y->dim[1 + d] % ranks == 0 && y->dim[1 + d] > 0));
}

RULE(conv3d)
{
    const weft_shape *x = shape_of(g, n->in[0]), *w = shape_of(g, n->in[1]),
                     *y = shape_of(g, n->out[0]);
    int count = 0;
    add_product(choice, &count, split(0), whole, split(0));
    for (int d = 0; d < 3; d++)
        if (windows_split(n->attr, x, y, d, ranks, w->dim[2 + d]))
            add_product(choice, &count, split(1 + d), whole, split(1 + d));
    add_product(choice, &count, whole, split(0), split(4));
    choice[count - 1].need[2] = split(0);
    if (has_input(n, 2))
        return count;
    add_product(choice, &count, split(4), split(1), partial);
    add_bilinear(choice, &count);
    return count;
}

RULE(conv3d_dx) /* dy, w -> dx */
{
    const weft_shape *dy = shape_of(g, n->in[0]), *w = shape_of(g, n->in[1]),
                     *x = shape_of(g, n->out[0]);
    int count = 0;
    add_product(choice, &count, split(0), whole, split(0));
    for (int d = 0; d < 3; d++)
        if (windows_split(n->attr, x, dy, d, ranks, w->dim[2 + d]))
            add_product(choice, &count, split(1 + d), whole, split(1 + d));
    add_product(choice, &count, whole, split(1), split(4));
    add_product(choice, &count, split(4), split(0), partial);
    add_bilinear(choice, &count);
    return count;
}

RULE(conv3d_dw) /* x, dy -> dw (O,I,...) */
{
    const weft_attr_conv *a = n->attr;
    const weft_shape *x = shape_of(g, n->in[0]), *dy = shape_of(g, n->in[1]);
    int count = 0;
    add_product(choice, &count, split(0), split(0), partial);
    for (int d = 0; d < 3; d++)
        if (windows_split(a, x, dy, d, ranks, a->kernel[d]))
            add_product(choice, &count, split(1 + d), split(1 + d), partial);
    add_product(choice, &count, whole, split(4), split(0));
    add_product(choice, &count, split(4), whole, split(1));
    add_bilinear(choice, &count);
    return count;
}

/* Ring attention (Liu et al.): every rank keeps its queries, and the blocks of keys and values move
 * around the ring. The results over the blocks are merged. Block i + 1 is sent while block i is
 * attended to:
 *
 *     k, v --attention-----------------.
 *      |                                |
 *      `--ring_shift--k, v--attention--merge--.
 *                      |                       |
 *                      `--ring_shift--...  --merge-- out, lse */
static void attend_block(weft_graph *to, weft_expanded *m, weft_value k, weft_value v,
                         weft_value bias, bool first)
{
    const weft_value block[5] = {m->in[0], k, v, WEFT_NONE, bias};
    weft_value part[WEFT_MAX_OUTPUTS];
    weft_emit_all(to, WEFT_OP_ATTENTION, block, weft_value_ok(bias) ? 5 : 3, m->node->attr, part);
    if (first)
        m->out[0] = part[0], m->out[1] = part[1];
    else
        weft_emit_all(to, WEFT_OP_ATTENTION_MERGE,
                      (weft_value[]){m->out[0], m->out[1], part[0], part[1]}, 4, NULL, m->out);
}

/* Several queries over the same keys (streams of text and video) attend to each block in turn. */
static void emit_ring(weft_graph *to, const weft_graph *from, weft_expanded *m, int count, int axis)
{
    const int ranks = to->mesh.axis[axis].size;
    weft_attr_comm shift = {
        .axis = axis, .dim = 1, .global = shape_of(from, m->node->in[1])->dim[1], .shift = 1};
    weft_value k = m->in[1], v = m->in[2], bias = has_input(m->node, 4) ? m->in[4] : WEFT_NONE;
    for (int i = 0; i < ranks && to->error == WEFT_OK; i++) {
        const weft_value own[3] = {k, v, bias};
        shift.held = i;
        if (i + 1 < ranks) {
            k = weft_emit(to, WEFT_OP_RING_SHIFT, &k, 1, &shift);
            v = weft_emit(to, WEFT_OP_RING_SHIFT, &v, 1, &shift);
            if (weft_value_ok(bias))
                bias = weft_emit(to, WEFT_OP_RING_SHIFT, &bias, 1, &shift);
        }
        for (int q = 0; q < count; q++)
            attend_block(to, &m[q], own[0], own[1], own[2], i == 0);
    }
}

static const weft_expansion ring = {"ring", emit_ring};

/* Local queries and blocks of keys: one step of an existing ring (`ranks` 0), or a complete
 * ring. */
static void add_ring(const weft_graph *g, const weft_node *n, int ranks, weft_layout_choice *choice,
                     int *count)
{
    weft_layout_choice *row = add_row(choice, count);
    row->need[0] = row->need[1] = row->need[2] = row->need[4] = row->out[0] = split(1);
    row->out[1] = split(2);
    if (ranks == 0)
        return;
    row->expansion = &ring;
    const weft_shape *k = shape_of(g, n->in[1]);
    const int64_t block = (k->dim[1] + ranks - 1) / ranks;
    row->wire_bytes = 2 * (double)(ranks - 1) * (double)(k->dim[0] * block * k->dim[2]) *
                      (double)(k->dim[3] * weft_dtype_bytes(g->value[n->in[1].id].dtype));
}

/* q (B,Sq,H,D), k, v (B,Sk,H,D), bias (B,Sk): split over B, over H, over queries with all keys, or
 * as a ring. Segments (N,4) are rows of B*S of all samples, so only heads may be split; segments
 * (B,N,4) are split with B. */
RULE(attention)
{
    const bool packed = has_input(n, 3), causal = ((const weft_attr_attention *)n->attr)->causal,
               by_item = packed && shape_of(g, n->in[3])->rank == 3;
    int count = 0;
    for (int d = 0; d < 3; d++) {
        if ((d == 0 && packed && !by_item) || (d == 1 && (packed || causal)))
            continue;
        weft_layout_choice *row = add_row(choice, &count);
        row->need[0] = row->out[0] = split(d);
        row->need[1] = row->need[2] = d == 1 ? whole : split(d);
        row->need[3] = row->need[4] = d == 0 ? split(0) : whole;
        row->out[1] = split((int[]){0, 2, 1}[d]);
    }
    if (!packed && !causal)
        add_ring(g, n, ranks, choice, &count);
    return count;
}

RULE(attention_grad) /* q, k, v, out, lse, dout, segments, dlse, bias -> dq, dk, dv */
{
    const bool packed = has_input(n, 6), causal = ((const weft_attr_attention *)n->attr)->causal,
               by_item = packed && shape_of(g, n->in[6])->rank == 3;
    int count = 0;
    for (int d = 0; d < 3; d++) {
        if ((d == 0 && packed && !by_item) || (d == 1 && (packed || causal)))
            continue;
        weft_layout_choice *row = add_row(choice, &count);
        row->need[0] = row->need[3] = row->need[5] = row->out[0] = split(d);
        row->need[1] = row->need[2] = d == 1 ? whole : split(d);
        row->need[4] = row->need[7] = split((int[]){0, 2, 1}[d]);
        row->need[6] = row->need[8] = d == 0 ? split(0) : whole;
        row->out[1] = row->out[2] = d == 1 ? partial : split(d);
    }
    if (ranks == 0) {
        weft_layout_choice *row = add_row(choice, &count);
        for (int i = 0; i < 6; i++)
            row->need[i] = split(1);
        row->need[4] = row->need[7] = split(2);
        row->need[8] = split(1);
        row->out[0] = row->out[1] = row->out[2] = split(1);
    }
    return count;
}

/* Blocks are of a rank's tokens in no layout that splits tokens: splits B or H. */
static weft_layout_choice *add_blocks(weft_layout_choice *choice, int *count, int d, int chosen)
{
    weft_layout_choice *row = add_row(choice, count);
    row->need[0] = row->need[1] = row->need[2] = row->out[0] = split(d);
    row->need[chosen] = split(d / 2);
    return row;
}

RULE(block_attention) /* q, k, v, chosen (B,H,M,N) -> out, lse */
{
    (void)g, (void)n, (void)ranks;
    int count = 0;
    for (int d = 0; d < 3; d += 2)
        add_blocks(choice, &count, d, 3)->out[1] = split(d / 2);
    return count;
}

RULE(block_attention_grad) /* q, k, v, out, lse, dout, chosen, dlse -> dq, dk, dv */
{
    (void)g, (void)n, (void)ranks;
    int count = 0;
    for (int d = 0; d < 3; d += 2) {
        weft_layout_choice *row = add_blocks(choice, &count, d, 6);
        row->need[3] = row->need[5] = row->out[1] = row->out[2] = split(d);
        row->need[4] = row->need[7] = split(d / 2);
    }
    return count;
}

/* out (B,S,H,D) and lse (B,H,S), alternating: splits B, S or H of both. */
static int out_and_lse_rows(const weft_node *n, weft_layout_choice *choice)
{
    int count = 0;
    for (int d = 0; d < 3; d++) {
        weft_layout_choice *row = add_row(choice, &count);
        const weft_layout of_out = split(d), of_lse = split((int[]){0, 2, 1}[d]);
        for (int i = 0; i < n->in_count; i++)
            row->need[i] = i % 2 ? of_lse : of_out;
        row->out[0] = of_out;
        row->out[1] = of_lse;
    }
    return count;
}

RULE(attention_merge)
{
    (void)g, (void)ranks;
    return out_and_lse_rows(n, choice);
}

RULE(attention_merge_grad)
{
    (void)g, (void)ranks;
    return out_and_lse_rows(n, choice);
}

/* ---- normalisation and modulation ---------------------------------------------------------- */

RULE(norm)
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->in[0])->rank - 1; d++)
        add_map(choice, &count, split(d), split(d));
    return count;
}

RULE(norm_grad) /* x, dy, gamma -> dx, dgamma, dbeta */
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->in[0])->rank - 1; d++) {
        weft_layout_choice *row = add_row(choice, &count);
        row->need[0] = row->need[1] = row->out[0] = split(d);
        row->out[1] = row->out[2] = partial;
    }
    return count;
}

RULE(modulate)
{
    return broadcast_rows(g, n, ranks, choice);
}

/* Rows for gradients of the operand `small`, which was broadcast to the shape of input 0. */
static int broadcast_grad_rows(const weft_graph *g, const weft_node *n, int small, int ranks,
                               weft_layout_choice *choice)
{
    const weft_shape *x = shape_of(g, n->in[0]);
    int count = 0;
    for (int d = 0; d < x->rank; d++) {
        if (x->dim[d] == 1 && ranks > 0)
            continue;
        weft_layout_choice *row = add_row(choice, &count);
        const weft_layout l = split_or_whole(g, n->in[small], d, x->dim[d]);
        for (int i = 0; i < n->in_count; i++)
            row->need[i] = i == small ? l : split(d);
        row->out[0] = split(d);
        for (int o = 1; o < n->out_count; o++)
            row->out[o] = l.kind == WEFT_S ? l : partial;
    }
    return count;
}

RULE(modulate_grad) /* x, scale, dy -> dx, dscale, dshift */
{
    return broadcast_grad_rows(g, n, 1, ranks, choice);
}

RULE(gated_add)
{
    int count = broadcast_rows(g, n, ranks, choice);
    weft_layout_choice *row = add_row(choice, &count);
    row->need[0] = row->need[1] = row->out[0] = partial;
    return count;
}

RULE(gated_add_grad) /* y, gate, dout -> dy, dgate */
{
    int count = broadcast_grad_rows(g, n, 1, ranks, choice);
    if (ranks == 0) { /* y is P: its gradient is V, that of the gate P */
        weft_layout_choice *row = add_row(choice, &count);
        row->need[0] = row->out[1] = partial;
        row->out[0] = (weft_layout){WEFT_V, 0};
    }
    return count;
}

RULE(rope) /* x (B,S,H,D), cos, sin (S,D/2) or (B,S,H,D/2) */
{
    const weft_shape *x = shape_of(g, n->in[0]);
    const bool plain = shape_of(g, n->in[1])->rank == 2;
    int count = 0;
    for (int d = 0; d < 3; d++) {
        if (!plain && x->dim[d] == 1 && ranks > 0)
            continue;
        add_map(choice, &count, split(d), split(d));
        choice[count - 1].need[1] = choice[count - 1].need[2] =
            !plain   ? split_or_whole(g, n->in[1], d, x->dim[d])
            : d == 1 ? split(0)
                     : whole;
    }
    add_map(choice, &count, partial, partial);
    return count;
}

RULE(rope_table) /* -> cos, sin (S,D/2): tokens */
{
    (void)g, (void)n, (void)ranks;
    int count = 0;
    weft_layout_choice *row = add_row(choice, &count);
    row->out[0] = row->out[1] = split(0);
    return count;
}

RULE(embed) /* table (R,C), ids (...) -> (..., C) */
{
    (void)ranks;
    const int rank = shape_of(g, n->in[1])->rank;
    int count = 0;
    for (int d = 0; d < rank; d++)
        add_product(choice, &count, whole, split(d), split(d));
    add_product(choice, &count, split(1), whole, split(rank));
    add_product(choice, &count, partial, whole, partial);
    return count;
}

/* The last dim is split into complete blocks: legal if chunks of blocks and chunks of elements
 * coincide. */
RULE(unpack)
{
    const weft_shape *from = shape_of(g, n->in[0]), *to = shape_of(g, n->out[0]);
    const weft_attr_unpack *a = n->attr;
    const int last = to->rank - 1;
    const int64_t blocks = from->dim[from->rank - 2];
    const bool picks = has_input(n, 1),
               fits = blocks_split(blocks, a->elements, to->dim[last], ranks);
    int count = 0;
    for (int d = 0; d < last; d++)
        add_product(choice, &count, picks ? whole : split(d), picks ? split(d) : whole, split(d));
    if (fits)
        add_product(choice, &count, split(from->rank - 2), whole, split(last));
    return count;
}

RULE(embed_grad) /* ids, dy -> dtable */
{
    (void)ranks;
    const int rank = shape_of(g, n->in[0])->rank;
    int count = 0;
    for (int d = 0; d < rank; d++)
        add_product(choice, &count, split(d), split(d), partial);
    add_product(choice, &count, whole, split(rank), split(1));
    add_product(choice, &count, whole, partial, partial);
    return count;
}

/* ---- experts ------------------------------------------------------------------------------- */

static void add_three(weft_layout_choice *choice, int *count, weft_layout a, weft_layout b,
                      weft_layout c, weft_layout out)
{
    add_product(choice, count, a, b, out);
    choice[*count - 1].need[2] = c;
}

RULE(top_k) /* scores (...,E), bias (E) -> ids (...,k) */
{
    return weft_layout_norm(g, n, ranks, choice);
}

RULE(pick) /* x (...,E), ids (...,k) -> (...,k) */
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->in[1])->rank - 1; d++)
        add_product(choice, &count, split(d), split(d), split(d));
    add_product(choice, &count, partial, whole, partial);
    return count;
}

RULE(pick_grad) /* ids, dy -> dx */
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->in[0])->rank - 1; d++)
        add_product(choice, &count, split(d), split(d), split(d));
    add_product(choice, &count, whole, partial, partial);
    return count;
}

/* Number of leading dims of ids that may be split. Samples have separate slots, so samples may be
 * split; tokens also, if slot i belongs to token i (slots 0). */
static int split_slots(const weft_node *n)
{
    return ((const weft_attr_experts *)n->attr)->slots ? 1 : 2;
}

RULE(expert_slots) /* ids (B,S,k) -> (E,B,slots) */
{
    (void)g, (void)ranks;
    int count = 0;
    for (int d = 0; d < split_slots(n); d++)
        add_map(choice, &count, split(d), split(d + 1));
    return count;
}

RULE(dispatch) /* x (B,S,k,C), ids (B,S,k) -> (E,B,slots,C) */
{
    (void)g, (void)ranks;
    int count = 0;
    for (int d = 0; d < split_slots(n); d++)
        add_product(choice, &count, split(d), split(d), split(d + 1));
    add_product(choice, &count, split(3), whole, split(3));
    add_product(choice, &count, partial, whole, partial);
    return count;
}

RULE(collect) /* rows (E,B,slots,C), ids (B,S,k) -> (B,S,k,C) */
{
    (void)g, (void)ranks;
    int count = 0;
    for (int d = 0; d < split_slots(n); d++)
        add_product(choice, &count, split(d + 1), split(d), split(d));
    add_product(choice, &count, split(3), whole, split(3));
    add_product(choice, &count, partial, whole, partial);
    return count;
}

/* x, w (E,N,K), ids: split over tokens, rows by expert or experts; over the outputs N; over the
 * summed K. */
RULE(expert_matmul)
{
    (void)g, (void)ranks;
    const weft_attr_expert_matmul *a = n->attr;
    int count = 0;
    for (int d = 0; d < (a->by_expert ? 3 : 2); d++)
        add_three(choice, &count, split(d), a->by_expert && d == 0 ? split(0) : whole, split(d),
                  split(d));
    add_three(choice, &count, whole, split(a->trans_b ? 1 : 2), whole, split(3));
    add_three(choice, &count, split(3), split(a->trans_b ? 2 : 1), whole, partial);
    add_bilinear(choice, &count);
    return count;
}

RULE(expert_matmul_dw) /* a (...,N), b (...,K), ids -> (E,N,K) */
{
    (void)g, (void)ranks;
    const bool by_expert = ((const weft_attr_expert_matmul *)n->attr)->by_expert;
    int count = 0;
    for (int d = 0; d < (by_expert ? 3 : 2); d++)
        add_three(choice, &count, split(d), split(d), split(d),
                  by_expert && d == 0 ? split(0) : partial);
    add_three(choice, &count, split(3), whole, whole, split(1));
    add_three(choice, &count, whole, split(3), whole, split(2));
    add_bilinear(choice, &count);
    return count;
}

/* ---- optimizer ----------------------------------------------------------------------------- */

RULE(sum_squares)
{
    (void)ranks;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->in[0])->rank; d++)
        add_map(choice, &count, split(d), partial);
    return count;
}

RULE(replicated)
{
    (void)g, (void)n, (void)ranks, (void)choice;
    return 0;
}

RULE(adamw) /* p, g, m, v (ema: e, p); then scalars */
{
    (void)ranks;
    const int tensors = n->op == WEFT_OP_ADAMW ? 4 : 2;
    int count = 0;
    for (int d = 0; d < shape_of(g, n->in[0])->rank; d++) {
        weft_layout_choice *row = add_row(choice, &count);
        for (int i = 0; i < tensors; i++)
            row->need[i] = split(d);
        for (int o = 0; o < n->out_count; o++)
            row->out[o] = split(d);
    }
    return count;
}

/* ---- layout conversions on another axis ---------------------------------------------------- */

/* Rows for an axis other than the conversion's: it may not split a dim that the conversion moves.
 * Existing shards (`ranks` 0) may be split further and gathered. */
RULE(converted)
{
    int count = 0;
    for (int d = 0; d < shape_of(g, n->out[0])->rank; d++)
        if (ranks == 0 || !weft_conversion_moves_dim(n, d))
            add_map(choice, &count, split(d), split(d));
    add_map(choice, &count, partial, partial);
    return count;
}
