/* Cuts layers with independent groups into slices that are exchanged separately (ScaleFusion: Yang
 * et al., MLSys'25).
 *
 *   uncut     x (B,T,N,C) | spatial layer: groups are frames | temporal layer: groups are positions
 *   cut       x_0 .. x_3    along T: layer(x_i) -> y_i         along N: layer(x_j) -> z_j
 *   between                 piece (i,j) = y_i[:, :, N_j], exchanged separately
 *                           x_j = concat of the pieces over i, after the permute if there was one
 *
 * On the graph of complete tensors the pass only adds slices, layers and concats. A row of the
 * recipe ("*.exchange:slice") marks a piece for exchange, and the shard pass emits the exchange. A
 * rank holds its shard of each T_i, not a contiguous shard of T. Cuts are multiples of the number
 * of ranks, so that shards are even. The last slice is padded with zeros before its exchange and
 * trimmed after it.
 *
 * Samples are cut first, in the same way along dim 0, because a layer stays split only if rows of
 * the split dim are contiguous. One sample's layer then hides the exchange of another. The number
 * of slices counts all samples: of four slices, two samples have two each.
 *
 *   sample 0   | x_0 x_1 x_2 x_3 |                 | z_0 z_1 ...          kernels of one layer
 *   sample 1                     | x_0 x_1 x_2 x_3 |
 *   wire            (0,0) (1,0) ..  (.,1) (.,2) (.,3)                     early ones, then the rest
 *
 * Padding is trimmed where the piece is read. An earlier trim would wait for the exchange.
 *
 * A piece is exchanged where it is emitted. The first `lift` slices of the next layer are exchanged
 * as soon as y_i is computed (§4.4), the others after the last y_i, slice by slice.
 *
 * Few groups: with 30 frames on 32 ranks a rank has one frame, and a spatial layer has one slice of
 * frames. Such a layer is folded: it runs on slices of positions, as the temporal layers around it.
 * Only keys and values are joined, because attention reads all positions of a frame. Slice j is
 * exchanged alone, in both directions, while the slices after it are computed.
 *
 *   folded    spatial layer   q_j, k_j, v_j | k, v joined | attention(q_j, k, v), ... -> y_j
 *   between   piece j = y_j
 *
 * A feature cache keeps results of a layer in slots. With recipe->slice_slots, each slice has its
 * own slot, padding included. Joined slices would be exchanged, because a rank's parts of the
 * slices are not its part of the joined value. */
#include "transform/sharding/layer_slices.h"

#include "graph/builder_helpers.h"
#include "graph/rewrite.h"

#include <stdio.h>
#include <string.h>

typedef struct slice_range {
    int64_t start, len; /* range of the uncut dim */
    int64_t filled;     /* length with zero padding */
} slice_range;

typedef struct slice_table {
    slice_range *at; /* owned */
    int count;
    int64_t whole; /* length of the dim */
} slice_table;

/* Cut of a value: into the slices of `table`, along `dim`. */
typedef struct slicing {
    int table; /* WHOLE: uncut */
    int dim;
} slicing;

enum { WHOLE = -1, SAMPLES = 0, TIME = WEFT_CUT_TIME, SPACE = WEFT_CUT_SPACE, TABLES = SPACE + 1 };

/* Changes the cut of `value` to the one that the region beginning at `node` needs. */
typedef struct conversion {
    int32_t value, node;
    slicing from, to;
    int32_t made;      /* region that computes the slices; -1: cut at `node` */
    bool between;      /* between layers: exchanged where it is joined or cut */
    weft_value *piece; /* [from * slices of `to` + to]; owned */
} conversion;

typedef struct slicer {
    const weft_graph *from;
    const weft_recipe *recipe;
    const char *axis;
    int64_t ranks, wanted[TABLES], lift[TABLES], samples_cut;
    bool samples; /* first of the two runs: cuts samples */
    bool mixed;   /* layers have different numbers of groups of a kind */
    weft_rewrite r;
    slice_table table[TABLES];
    int32_t nodes, values;
    int32_t *region;   /* one per node */
    slicing *mode;     /* per node: cut of its outputs; WHOLE: it runs once */
    slicing *state;    /* per value: its current cut */
    slicing *slot;     /* per value: cut of a slot that is read in slices; WHOLE: others */
    int32_t *consumer; /* per value: its only consumer; NONE, SEVERAL */
    weft_value **part; /* per value: its slices, owned; NULL: uncut */
    int64_t conversions, conversion_capacity;
    conversion *conversion; /* sorted by node; owned */
    int32_t regions;
    int32_t entry; /* node before which the first layer's input is cut; -1: none */
    int entry_kind, entry_dim;
    int folded; /* table whose layers run on the other table's slices; WHOLE: none */
    int only;   /* the only table to cut; WHOLE: both */
} slicer;

/* ---- where to cut --------------------------------------------------------------------------- */

/* Cuts a dim into slices of complete rows of `unit`. The last row may be shorter. */
static weft_status make_table(slice_table *c, int64_t whole, int64_t unit, int64_t wanted)
{
    const int64_t rows = (whole + unit - 1) / unit, most = rows > 1 ? rows : 1;
    const int64_t count = wanted < 1 ? 1 : wanted < most ? wanted : most;
    *c = (slice_table){.whole = whole, .at = weft_calloc(count, sizeof *c->at)};
    WEFT_TRY(WEFT_ALLOCATED(c->at, "slicing a graph"));
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = i * rows / count * unit, end = (i + 1) * rows / count * unit;
        c->at[i] = (slice_range){first, (end < whole ? end : whole) - first, end - first};
    }
    c->count = (int)count;
    return WEFT_OK;
}

static weft_status find_table(slicer *s, int table, int64_t whole)
{
    slice_table *c = &s->table[table];
    s->mixed = s->mixed || (c->at && c->whole != whole);
    return c->at ? WEFT_OK
                 : make_table(c, whole, table == SAMPLES ? 1 : s->ranks,
                              table == SAMPLES ? whole : s->wanted[table]);
}

/* ---- planning ------------------------------------------------------------------------------- */

static const weft_node *maker_of(const slicer *s, weft_value v)
{
    return weft_graph_node(s->from, weft_value_get(s->from, v)->node);
}

static bool is_slot(const slicer *s, weft_value v)
{
    if (!s->recipe->slice_slots || !weft_value_ok(v))
        return false;
    const weft_node *n = maker_of(s, v);
    return n->op == WEFT_OP_STATE && ((const weft_attr_source *)n->attr)->slot;
}

/* The row of a layer at the node that adds a slot to the residual stream. The slot replaces the
 * first nodes of the layer, its norm included. NULL: not such a node. */
static const weft_recipe_row *slot_row(const slicer *s, const weft_node *n)
{
    char name[512];
    if (n->in_count < 2 || is_slot(s, n->in[0]) || !is_slot(s, n->in[1]))
        return NULL;
    snprintf(name, sizeof name, "%s:layer_norm", n->scope);
    return weft_recipe_row_for(s->recipe, s->axis, name, false);
}

/* The kind of the layer that begins at this node; WEFT_CUT_NONE: none. */
static int begins(const slicer *s, const weft_node *n)
{
    const weft_recipe_row *norm = weft_comm_overlap_norm_row(s->recipe, s->axis, n),
                          *row = norm ? norm : slot_row(s, n);
    return row && (s->samples || row->cut != WEFT_CUT_SAMPLES) ? row->cut : WEFT_CUT_NONE;
}

static const weft_shape *shape_of(const slicer *s, weft_value v)
{
    return &weft_value_get(s->from, v)->shape;
}

static bool same(slicing a, slicing b)
{
    return a.table == b.table && (a.table == WHOLE || a.dim == b.dim);
}

/* Begins a region at node n. All values of earlier regions are computed before it, so they can be
 * joined or exchanged. */
static void begin_region(slicer *s, int32_t n)
{
    if (n > 0 && s->region[n - 1] == s->regions)
        s->regions++;
    s->region[n] = s->regions;
}

static weft_status add_conversion(slicer *s, weft_value v, int32_t n, slicing to)
{
    WEFT_TRY(weft_grow((void **)&s->conversion, s->conversions, &s->conversion_capacity,
                       sizeof *s->conversion));
    begin_region(s, n);
    const int32_t maker = weft_value_get(s->from, v)->node;
    const bool made_there = s->state[v.id].table != WHOLE && same(s->mode[maker], s->state[v.id]);
    s->conversion[s->conversions++] = (conversion){.value = v.id,
                                                   .node = n,
                                                   .from = s->state[v.id],
                                                   .to = to,
                                                   .made = made_there ? s->region[maker] : -1};
    s->state[v.id] = to;
    return WEFT_OK;
}

/* Returns true if slices along this dim contain complete groups. */
static bool holds_groups(const slicer *s, weft_value v, weft_layout l, int table)
{
    return !weft_value_ok(v) || l.kind != WEFT_S ||
           shape_of(s, v)->dim[l.dim] % s->table[table].whole == 0;
}

enum { NONE = -1, SEVERAL = -2 };

static void find_consumers(slicer *s)
{
    for (int32_t v = 0; v < s->values; v++)
        s->consumer[v] = NONE;
    for (int32_t n = 0; n < s->nodes; n++) {
        const weft_node *node = weft_graph_node(s->from, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i])) {
                int32_t *consumer = &s->consumer[node->in[i].id];
                *consumer = *consumer == NONE ? n : SEVERAL;
            }
    }
}

/* A reshape between (B,T,N,C) and (B,T*N,H,D). */
static bool merges(const slicer *s, const weft_node *n, weft_value four, weft_value merged)
{
    const weft_shape *x = shape_of(s, four), *y = shape_of(s, merged);
    return n->op == WEFT_OP_RESHAPE && x->rank == 4 && y->rank == 4 && x->dim[0] == y->dim[0] &&
           y->dim[1] == x->dim[1] * x->dim[2];
}

/* Returns true for the first node of a cross-attention over all frames: reshape, attention,
 * reshape. Positions of a frame are not contiguous in its queries (B,T*N,H,D). Queries are
 * independent, so a slice of positions of every frame can run alone. */
static bool begins_cross(const slicer *s, const weft_node *n)
{
    if (!merges(s, n, n->in[0], n->out[0]) || s->state[n->in[0].id].table == WHOLE ||
        s->state[n->in[0].id].dim != 2)
        return false;
    const int32_t at = s->consumer[n->out[0].id];
    const weft_node *a = at < 0 ? NULL : weft_graph_node(s->from, at);
    if (!a || a->op != WEFT_OP_ATTENTION || a->in[0].id != n->out[0].id ||
        (a->in_count > 3 && weft_value_ok(a->in[3])))
        return false;
    const int32_t end = s->consumer[a->out[0].id];
    const weft_node *last = end < 0 ? NULL : weft_graph_node(s->from, end);
    return last && merges(s, last, last->out[0], last->in[0]);
}

static bool ends_cross(const slicer *s, const weft_node *n)
{
    if (!merges(s, n, n->out[0], n->in[0]))
        return false;
    const weft_node *a = maker_of(s, n->in[0]);
    return a->op == WEFT_OP_ATTENTION && begins_cross(s, maker_of(s, a->in[0]));
}

/* Sets the row of a reshape before or after such a cross-attention. */
static bool find_cross(const slicer *s, const weft_node *n, weft_layout_choice *found, slicing *out)
{
    if (s->folded == WHOLE || n->op != WEFT_OP_RESHAPE)
        return false;
    const slicing is = s->state[n->in[0].id];
    const bool begin = begins_cross(s, n);
    if (!begin && !(is.table != WHOLE && ends_cross(s, n)))
        return false;
    *found = (weft_layout_choice){.need = {{WEFT_S, (int8_t)is.dim}},
                                  .out = {{WEFT_S, (int8_t)(begin ? 1 : 2)}}};
    *out = (slicing){is.table, begin ? 1 : 2};
    return true;
}

/* Finds the row by which the node runs on slices. Returns false if it needs uncut operands.
 * `joined` gets a bit for each sliced operand that the row needs uncut; NULL: no operand may be
 * joined. */
static bool find_row(const slicer *s, const weft_node *n, weft_layout_choice *found, slicing *out,
                     unsigned *joined)
{
    weft_layout_choice row[WEFT_MAX_CHOICES];
    if (find_cross(s, n, found, out))
        return true;
    const int rows = weft_op_get(n->op)->layout(s->from, n, 1, row);
    out->table = WHOLE;
    for (int i = 0; i < n->in_count; i++) {
        const int table = weft_value_ok(n->in[i]) ? s->state[n->in[i].id].table : WHOLE;
        if (table != WHOLE && out->table != WHOLE && out->table != table)
            return false;
        out->table = table != WHOLE ? table : out->table;
    }
    if (out->table == WHOLE)
        return false;
    for (int k = 0; k < rows; k++) {
        bool fits = !row[k].expansion, sliced = false;
        unsigned joins = 0;
        for (int i = 0; i < n->in_count && fits; i++) {
            const weft_layout need = weft_layout_need(&row[k], i);
            const slicing is = weft_value_ok(n->in[i]) ? s->state[n->in[i].id] : (slicing){WHOLE};
            fits = need.kind == WEFT_R || need.kind == WEFT_S;
            if (is.table != WHOLE && joined && need.kind == WEFT_R) {
                joins |= 1u << i;
            } else if (is.table != WHOLE) {
                fits = need.kind == WEFT_S && need.dim == is.dim;
                sliced = true;
            }
            fits = fits && holds_groups(s, n->in[i], need, out->table);
        }
        fits = fits && sliced;
        for (int o = 0; o < n->out_count && fits; o++)
            fits = row[k].out[o].kind == WEFT_S &&
                   holds_groups(s, n->out[o], row[k].out[o], out->table);
        if (!fits)
            continue;
        *found = row[k];
        out->dim = row[k].out[0].dim;
        if (joined)
            *joined = joins;
        return true;
    }
    return false;
}

/* The kind of the next layer from node n on, into whose groups a permute converts. */
static int layer_after(const slicer *s, int32_t n)
{
    for (; n < s->nodes; n++)
        if (begins(s, weft_graph_node(s->from, n)))
            return begins(s, weft_graph_node(s->from, n));
    return WEFT_CUT_NONE;
}

/* Returns true if the permute swaps dims 1 and 2 of (B,T,N,C) or (B,N,T,C). */
static bool transposes_groups(const slicer *s, const weft_node *n)
{
    const weft_attr_permute *a = n->attr;
    return shape_of(s, n->in[0])->rank == 4 && a->perm[0] == 0 && a->perm[1] == 2 &&
           a->perm[2] == 1;
}

/* Returns true for a permute of a sliced value between layers. */
static bool is_between(const slicer *s, const weft_node *n)
{
    char name[512];
    if (n->op != WEFT_OP_PERMUTE)
        return false;
    if (s->state[n->in[0].id].table == WHOLE && (s->only == WHOLE || !transposes_groups(s, n)))
        return false;
    snprintf(name, sizeof name, "%s:layer_norm", n->scope);
    const weft_recipe_row *row = weft_recipe_row_for(s->recipe, s->axis, name, false);
    return !row || !row->cut;
}

/* The row that computes the node's output in slices along `dim` from slices of operand 0 alone;
 * NULL: none. */
static const weft_layout_choice *row_of_slices(const slicer *s, const weft_node *n, int dim,
                                               weft_layout_choice row[WEFT_MAX_CHOICES])
{
    if (weft_op_has(n->op, WEFT_TRAIT_GIVEN) || n->out_count != 1)
        return NULL;
    const int rows = weft_op_get(n->op)->layout(s->from, n, 1, row);
    for (int k = 0; k < rows; k++) {
        bool fits = !row[k].expansion && row[k].out[0].kind == WEFT_S && row[k].out[0].dim == dim &&
                    row[k].need[0].kind == WEFT_S;
        for (int i = 1; i < n->in_count && fits; i++)
            fits = weft_layout_need(&row[k], i).kind == WEFT_R;
        if (fits)
            return &row[k];
    }
    return NULL;
}

/* Moves the cut of the first layer's input to the earliest possible node: patches or latents. So no
 * rank embeds data that it does not keep. *node: first consumer of the slices; *dim: dim of its
 * operand. */
static void cut_early(const slicer *s, int32_t *node, int *dim)
{
    const int64_t groups = shape_of(s, weft_graph_node(s->from, *node)->in[0])->dim[*dim];
    int32_t at = *node;
    for (int d = *dim;;) {
        weft_layout_choice row[WEFT_MAX_CHOICES];
        at = weft_value_get(s->from, weft_graph_node(s->from, at)->in[0])->node;
        const weft_node *maker = weft_graph_node(s->from, at);
        const weft_layout_choice *found = row_of_slices(s, maker, d, row);
        if (!found)
            return;
        d = found->need[0].dim;
        const int64_t size = shape_of(s, maker->in[0])->dim[d];
        if (size % groups) /* after a reshape, rows of a group are contiguous */
            return;
        if (size == groups) {
            *node = at;
            *dim = d;
        }
    }
}

/* Number of slices of `table` that its groups allow. */
static int64_t slice_count(const slicer *s, int table, int64_t groups)
{
    const int64_t rows = (groups + s->ranks - 1) / s->ranks;
    return s->wanted[table] < rows ? s->wanted[table] : rows;
}

static int other_table(int table)
{
    return table == TIME ? SPACE : TIME;
}

/* The table whose layers are folded: its groups allow one slice but more are requested, and the
 * groups of the other table allow more. WHOLE: none. */
static int find_folded(const slicer *s)
{
    for (int32_t n = 0; n < weft_graph_node_count(s->from); n++) {
        const weft_node *node = weft_graph_node(s->from, n);
        const int table = begins(s, node), other = other_table(table);
        if (!table || shape_of(s, node->in[0])->rank != 4)
            continue;
        const weft_shape *x = shape_of(s, node->in[0]); /* (B,groups,others,C) */
        const int64_t count = slice_count(s, table, x->dim[1]),
                      others = slice_count(s, other, x->dim[2]);
        if (s->wanted[table] > 1 && count == 1 && others > 1)
            return table;
        return s->wanted[other] > 1 && others == 1 && count > 1 ? other : WHOLE;
    }
    return WHOLE;
}

/* Finds the node before which the first layer's input is cut, and the dim. */
static void find_entry(slicer *s)
{
    s->entry = -1;
    for (int32_t n = 0; n < s->nodes && s->entry < 0; n++) {
        const weft_node *node = weft_graph_node(s->from, n);
        s->entry_kind = begins(s, node);
        if (!s->entry_kind || shape_of(s, node->in[0])->rank != 4)
            continue;
        s->entry = n;
        s->entry_dim = s->samples ? 0 : 1;
        if (s->folded == s->entry_kind)
            s->entry_dim = 2;
        cut_early(s, &s->entry, &s->entry_dim);
    }
}

static weft_status convert_before(slicer *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->from, n);
    const weft_value x = node->in_count ? node->in[0] : WEFT_NONE;
    const bool enters = n == s->entry;
    const bool between = is_between(s, node);
    int kind = enters ? s->entry_kind : begins(s, node), dim = s->samples ? 0 : 1;
    if (enters)
        dim = s->entry_dim;
    if (between && (s->samples || s->folded != WHOLE))
        begin_region(s, n); /* a region per layer for all samples; a folded graph has one cut */
    if (between && s->folded != WHOLE)
        return WEFT_OK;
    if (between && !s->samples) {
        kind = layer_after(s, n);
        dim = ((const weft_attr_permute *)node->attr)->perm[1];
    }
    if (kind && kind == s->folded) {
        kind = other_table(kind);
        dim = enters ? dim : 2;
    }
    if (!kind || (shape_of(s, x)->rank != 4 && !enters))
        return WEFT_OK;
    const bool is_cut = shape_of(s, x)->dim[dim] > 1 && (s->only == WHOLE || s->only == kind);
    const slicing to = {!is_cut ? WHOLE : s->samples ? SAMPLES : kind, dim};
    if (to.table != WHOLE)
        WEFT_TRY(find_table(s, to.table, shape_of(s, x)->dim[dim]));
    if (same(s->state[x.id], to))
        return WEFT_OK;
    WEFT_TRY(add_conversion(s, x, n, to));
    s->conversion[s->conversions - 1].between = between && s->only != WHOLE;
    return WEFT_OK;
}

/* Plans a node of a folded layer that reads some operands joined (keys and values of attention) and
 * others in slices. */
static weft_status plan_joined(slicer *s, int32_t n, bool *found)
{
    const weft_node *node = weft_graph_node(s->from, n);
    weft_layout_choice row;
    slicing out;
    unsigned joined = 0;
    *found = s->folded != WHOLE && find_row(s, node, &row, &out, &joined);
    for (int i = 0; i < node->in_count && *found; i++)
        if ((joined >> i & 1) && s->state[node->in[i].id].table != WHOLE)
            WEFT_TRY(add_conversion(s, node->in[i], n, (slicing){WHOLE}));
    return WEFT_OK;
}

/* Cuts the slots that only this node reads as the node is cut. */
static void plan_slots(slicer *s, int32_t n, const weft_layout_choice *row, int table)
{
    const weft_node *node = weft_graph_node(s->from, n);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        const weft_layout need = weft_layout_need(row, i);
        if (is_slot(s, v) && s->consumer[v.id] == n && need.kind == WEFT_S)
            s->slot[v.id] = (slicing){table, need.dim};
    }
}

static weft_status plan_node(slicer *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->from, n);
    weft_layout_choice row;
    slicing out;
    s->region[n] = s->regions;
    s->mode[n] = (slicing){WHOLE};
    WEFT_TRY(convert_before(s, n));
    bool found = find_row(s, node, &row, &out, NULL);
    if (!found) {
        WEFT_TRY(plan_joined(s, n, &found));
        found = found && find_row(s, node, &row, &out, NULL);
    }
    if (found) {
        s->mode[n] = out;
        plan_slots(s, n, &row, out.table);
        for (int o = 0; o < node->out_count; o++)
            s->state[node->out[o].id] = (slicing){out.table, row.out[o].dim};
        return WEFT_OK;
    }
    for (int i = 0; i < node->in_count; i++)
        if (weft_value_ok(node->in[i]) && s->state[node->in[i].id].table != WHOLE)
            WEFT_TRY(add_conversion(s, node->in[i], n, (slicing){WHOLE}));
    return WEFT_OK;
}

static weft_status plan(slicer *s)
{
    for (int32_t v = 0; v < s->values; v++)
        s->state[v] = s->slot[v] = (slicing){WHOLE};
    find_entry(s);
    for (int32_t n = 0; n < s->nodes; n++)
        WEFT_TRY(plan_node(s, n));
    for (int32_t v = 0; v < s->values; v++)
        s->state[v] = (slicing){WHOLE};
    return WEFT_OK;
}

/* ---- slices of values ----------------------------------------------------------------------- */

/* Gives a new value the layouts of the value that it is a part of. */
static void copy_layout(slicer *s, weft_value made, weft_value like)
{
    if (weft_value_ok(made))
        weft_graph_set_layout(s->r.to, made, weft_value_get(s->from, like)->layout);
}

/* Emits slice k of `x` along `dim`, with padding. `what`: scope of its last node, which recipe rows
 * match; NULL: none. */
static weft_value emit_slice(slicer *s, weft_value x, weft_value like, int table, int dim, int k,
                             const char *what)
{
    weft_graph *to = s->r.to;
    const slice_table *c = &s->table[table];
    const int64_t scale = weft_value_get(to, x)->shape.dim[dim] / c->whole;
    const slice_range *at = &c->at[k];
    const bool fills = at->filled > at->len;
    if (what && !fills)
        weft_graph_push(to, "%s", what);
    weft_value made = weft_slice(to, x, dim, at->start * scale, at->len * scale);
    copy_layout(s, made, like);
    if (fills) {
        if (what)
            weft_graph_push(to, "%s", what);
        made = weft_pad(to, made, dim, 0, (at->filled - at->len) * scale);
        copy_layout(s, made, like);
    }
    if (what)
        weft_graph_pop(to);
    return made;
}

/* Emits a slice of the unpadded rows of slice k, as a separate node. */
static weft_value emit_unpadded(slicer *s, weft_value x, weft_value like, slicing how, int k)
{
    const slice_range *at = &s->table[how.table].at[k];
    const int64_t scale = weft_value_get(s->r.to, x)->shape.dim[how.dim] / at->filled;
    x = weft_slice(s->r.to, x, how.dim, 0, at->len * scale);
    copy_layout(s, x, like);
    return x;
}

/* Removes the padding of slice k, if any. */
static weft_value trim(slicer *s, weft_value x, weft_value like, slicing how, int k)
{
    const slice_range *at = &s->table[how.table].at[k];
    return at->filled == at->len ? x : emit_unpadded(s, x, like, how, k);
}

static weft_value emit_concat(slicer *s, const weft_value *part, weft_value like, int count,
                              int dim)
{
    if (count == 1)
        return part[0];
    const weft_value made = weft_concat(s->r.to, part, count, dim);
    copy_layout(s, made, like);
    return made;
}

static void set_parts(slicer *s, int32_t v, slicing how, weft_value *part)
{
    weft_free(s->part[v]);
    s->part[v] = part;
    s->state[v] = how;
}

static weft_value *new_parts(slicer *s, int64_t count)
{
    weft_value *part = weft_calloc(count, sizeof *part);
    if (!part)
        weft_graph_fail(s->r.to, WEFT_MSG_OUT_OF_MEMORY, "out of memory slicing a graph");
    return part;
}

/* Emits the slot of slice k of a slot. Its name contains its cut, so equal names are equal cuts. */
static weft_value emit_slot(slicer *s, weft_value v, slicing how, int k)
{
    static const char *const names[TABLES] = {
        [SAMPLES] = "samples", [TIME] = "time", [SPACE] = "space"};
    const slice_table *c = &s->table[how.table];
    weft_attr_source attr = *(const weft_attr_source *)maker_of(s, v)->attr;
    char name[256];
    attr.shape.dim[how.dim] = c->at[k].filled * (attr.shape.dim[how.dim] / c->whole);
    attr.global.dim[how.dim] = attr.shape.dim[how.dim];
    attr.start[how.dim] = 0;
    snprintf(name, sizeof name, "%s" WEFT_SLOT_SLICE "%s%d.%dof%d",
             weft_value_get(s->from, v)->name, names[how.table], how.dim, k, c->count);
    const weft_value made = weft_source(s->r.to, WEFT_OP_STATE, name, &attr);
    copy_layout(s, made, v);
    return made;
}

/* ---- emitting ------------------------------------------------------------------------------- */

static void emit_part(slicer *s, int32_t n, int k)
{
    const weft_node *node = weft_graph_node(s->from, n);
    const weft_op_info *info = weft_op_get(node->op);
    weft_value *in = new_parts(s, node->in_count + 1), made[WEFT_MAX_OUTPUTS];
    weft_layout_choice row;
    slicing out;
    weft_any_attr own;
    if (!in || !find_row(s, node, &row, &out, NULL)) {
        weft_free(in);
        return;
    }
    const slice_table *c = &s->table[out.table];
    weft_graph_push(s->r.to, "%s", node->scope);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        const weft_layout need = weft_layout_need(&row, i);
        in[i] = !weft_value_ok(v)              ? WEFT_NONE
                : s->part[v.id]                ? s->part[v.id][k]
                : s->slot[v.id].table != WHOLE ? emit_slot(s, v, s->slot[v.id], k)
                : need.kind == WEFT_S
                    ? emit_slice(s, s->r.map[v.id], v, out.table, need.dim, k, NULL)
                    : s->r.map[v.id];
    }
    const int64_t scale = shape_of(s, node->out[0])->dim[out.dim] / c->whole;
    memcpy(&own, node->attr, (size_t)info->attr_bytes);
    info->local(s->r.to, &own, out.dim, c->at[k].start * scale, c->at[k].filled * scale);
    weft_emit_all(s->r.to, node->op, in, node->in_count, &own, made);
    for (int o = 0; o < node->out_count && weft_graph_check(s->r.to) == WEFT_OK; o++) {
        const int32_t v = node->out[o].id;
        if (!s->part[v])
            s->part[v] = new_parts(s, c->count);
        s->state[v] = (slicing){out.table, row.out[o].dim};
        if (s->part[v])
            s->part[v][k] = made[o];
        copy_layout(s, made[o], node->out[o]);
    }
    weft_graph_pop(s->r.to);
    weft_free(in);
}

/* Returns true if the conversion has one piece only, whose exchange overlaps with no layer. */
static bool is_whole(const slicer *s, const conversion *t)
{
    return s->table[t->from.table].count == 1 && s->table[t->to.table].count == 1;
}

/* Emits piece (i,j) of a conversion, which is exchanged. `late`: not an early exchange. */
static void emit_piece(slicer *s, conversion *t, int i, int j, bool late)
{
    const weft_value v = {t->value};
    const weft_node *maker = weft_graph_node(s->from, weft_value_get(s->from, v)->node);
    const int count = s->table[t->to.table].count;
    if (!t->piece)
        t->piece = new_parts(s, (int64_t)count * s->table[t->from.table].count);
    if (!t->piece || weft_graph_check(s->r.to) != WEFT_OK)
        return;
    weft_graph_push(s->r.to, "%s", maker->scope);
    const weft_value piece = emit_slice(s, s->part[t->value][i], v, t->to.table, t->to.dim, j,
                                        late ? "late" : "exchange");
    t->piece[i * count + j] = is_whole(s, t) ? trim(s, piece, v, t->from, i) : piece;
    weft_graph_pop(s->r.to);
}

/* Slices of the next layer whose exchange starts as early as possible. */
static int early_slices(const slicer *s, const conversion *t)
{
    const int64_t lift = s->lift[t->to.table];
    const int count = s->table[t->to.table].count;
    return lift < count ? (int)lift : count;
}

static bool needs_all_to_all(const conversion *t)
{
    return t->from.table != WHOLE && t->to.table != WHOLE;
}

/* Emits the early pieces of slice i of region r, which is computed. */
static void emit_early(slicer *s, int32_t r, int i)
{
    for (int64_t k = 0; k < s->conversions; k++) {
        conversion *t = &s->conversion[k];
        for (int j = 0; t->made == r && needs_all_to_all(t) && j < early_slices(s, t); j++)
            emit_piece(s, t, i, j, false);
    }
}

/* Emits the other pieces of region r, after its last slice. */
static void emit_late(slicer *s, int32_t r)
{
    for (int64_t k = 0; k < s->conversions; k++) {
        conversion *t = &s->conversion[k];
        if (t->made != r || !needs_all_to_all(t))
            continue;
        for (int j = early_slices(s, t); j < s->table[t->to.table].count; j++)
            for (int i = 0; i < s->table[t->from.table].count; i++)
                emit_piece(s, t, i, j, true);
    }
}

/* Joins the slices of a value. */
static void emit_whole(slicer *s, conversion *t)
{
    const weft_value v = {t->value};
    const int count = s->table[t->from.table].count;
    weft_value *part = new_parts(s, count);
    weft_graph_push(s->r.to, t->between ? "%s.exchange" : "%s",
                    weft_graph_node(s->from, t->node)->scope);
    for (int k = 0; part && k < count && weft_graph_check(s->r.to) == WEFT_OK; k++)
        part[k] = t->between ? emit_unpadded(s, s->part[t->value][k], v, t->from, k)
                             : trim(s, s->part[t->value][k], v, t->from, k);
    if (part && weft_graph_check(s->r.to) == WEFT_OK)
        s->r.map[t->value] = emit_concat(s, part, v, count, t->from.dim);
    weft_graph_pop(s->r.to);
    weft_free(part);
    set_parts(s, t->value, (slicing){WHOLE}, NULL);
}

/* Slice j of a value at the beginning of a region: cut from the uncut value, or joined from
 * pieces. */
static weft_value slice_at_begin(slicer *s, conversion *t, int j, weft_value *scratch)
{
    const weft_value v = {t->value};
    const int count = s->table[t->to.table].count;
    if (t->from.table == WHOLE)
        return emit_slice(s, s->r.map[t->value], v, t->to.table, t->to.dim, j,
                          s->samples   ? NULL
                          : t->between ? "exchange"
                                       : "enter");
    for (int i = 0; i < s->table[t->from.table].count; i++)
        scratch[i] = is_whole(s, t) ? t->piece[0] : trim(s, t->piece[i * count + j], v, t->from, i);
    return emit_concat(s, scratch, v, s->table[t->from.table].count, t->from.dim);
}

typedef struct span {
    int32_t region, first, end;      /* nodes */
    int64_t conversion, conversions; /* conversions at its beginning */
} span;

static void begin_conversions(slicer *s, const span *at)
{
    for (int64_t k = at->conversion; k < at->conversion + at->conversions; k++) {
        conversion *t = &s->conversion[k];
        if (t->to.table == WHOLE) {
            emit_whole(s, t);
            continue;
        }
        for (int i = 0; t->made < 0 && needs_all_to_all(t) && i < s->table[t->from.table].count;
             i++)
            for (int j = 0; j < s->table[t->to.table].count; j++)
                emit_piece(s, t, i, j, false);
    }
}

/* Sets slice k of all values that are converted at the beginning of a region. */
static void set_slices(slicer *s, const span *at, int k)
{
    for (int64_t i = at->conversion; i < at->conversion + at->conversions; i++) {
        conversion *t = &s->conversion[i];
        if (t->to.table == WHOLE || weft_graph_check(s->r.to) != WEFT_OK)
            continue;
        weft_value *scratch =
            new_parts(s, t->from.table == WHOLE ? 1 : s->table[t->from.table].count);
        if (!scratch)
            return;
        weft_graph_push(s->r.to, "%s", weft_graph_node(s->from, t->node)->scope);
        const weft_value made = slice_at_begin(s, t, k, scratch);
        weft_graph_pop(s->r.to);
        weft_free(scratch);
        if (k == 0)
            set_parts(s, t->value, t->to, new_parts(s, s->table[t->to.table].count));
        if (s->part[t->value])
            s->part[t->value][k] = made;
    }
}

static bool is_sliced_slot(const slicer *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->from, n);
    return node->op == WEFT_OP_STATE && s->slot[node->out[0].id].table != WHOLE;
}

static void emit_region(slicer *s, const span *at)
{
    int table = WHOLE;
    begin_conversions(s, at);
    for (int32_t n = at->first; n < at->end; n++)
        if (s->mode[n].table != WHOLE)
            table = s->mode[n].table;
        else if (!is_sliced_slot(s, n))
            weft_rewrite_node(&s->r, n, NULL);
    for (int64_t k = at->conversion; k < at->conversion + at->conversions; k++)
        table = s->conversion[k].to.table != WHOLE ? s->conversion[k].to.table : table;
    for (int k = 0; table != WHOLE && k < s->table[table].count; k++) {
        set_slices(s, at, k);
        for (int32_t n = at->first; n < at->end && weft_graph_check(s->r.to) == WEFT_OK; n++)
            if (s->mode[n].table != WHOLE)
                emit_part(s, n, k);
        emit_early(s, at->region, k);
    }
    emit_late(s, at->region);
}

static void emit(slicer *s)
{
    int64_t next = 0;
    for (int32_t n = 0; n < s->nodes && weft_graph_check(s->r.to) == WEFT_OK;) {
        span at = {.region = s->region[n], .first = n, .conversion = next};
        while (n < s->nodes && s->region[n] == at.region)
            n++;
        at.end = n;
        while (next < s->conversions && s->conversion[next].node < n)
            next++;
        at.conversions = next - at.conversion;
        emit_region(s, &at);
    }
}

/* Emits the complete value at the end of the graph. */
static weft_value join_at_end(slicer *s, weft_value v)
{
    if (s->part[v.id])
        emit_whole(s, &(conversion){.value = v.id, .node = s->nodes - 1, .from = s->state[v.id]});
    return s->r.map[v.id];
}

/* Emits outputs and updates. A slot that is only written gets the slices of its value. */
static void emit_ends(slicer *s)
{
    int count;
    const weft_named *output = weft_graph_outputs(s->from, &count);
    for (int i = 0; i < count && weft_graph_check(s->r.to) == WEFT_OK; i++)
        weft_output(s->r.to, output[i].name, join_at_end(s, output[i].value));
    const weft_pair *update = weft_graph_updates(s->from, &count);
    for (int i = 0; i < count && weft_graph_check(s->r.to) == WEFT_OK; i++) {
        const weft_value slot = update[i].source, v = update[i].value;
        if (!s->part[v.id] || !is_slot(s, slot) || s->consumer[slot.id] != NONE) {
            const weft_value value = join_at_end(s, v);
            weft_update(s->r.to, s->r.map[slot.id], value);
            continue;
        }
        for (int k = 0; k < s->table[s->state[v.id].table].count; k++)
            weft_update(s->r.to, emit_slot(s, slot, s->state[v.id], k), s->part[v.id][k]);
    }
}

/* ---- the pass ------------------------------------------------------------------------------- */

static weft_status run(slicer *s, weft_graph **out)
{
    weft_status_code status = WEFT_OK;
    const int64_t nodes = weft_graph_node_count(s->from), values = weft_graph_value_count(s->from);
    s->nodes = (int32_t)nodes;
    s->values = (int32_t)values;
    WEFT_TRY(weft_rewrite_begin(s->from, &s->r));
    s->region = weft_calloc(nodes + 1, sizeof *s->region);
    s->mode = weft_calloc(nodes + 1, sizeof *s->mode);
    s->state = weft_calloc(values + 1, sizeof *s->state);
    s->slot = weft_calloc(values + 1, sizeof *s->slot);
    s->part = weft_calloc(values + 1, sizeof *s->part);
    s->consumer = weft_calloc(values + 1, sizeof *s->consumer);
    if (!s->region || !s->mode || !s->state || !s->slot || !s->part || !s->consumer) {
        weft_rewrite_abandon(&s->r);
        WEFT_GO(weft_no_memory("slicing a graph"));
    }
    find_consumers(s);
    status = plan(s);
    if (status != WEFT_OK || s->mixed) {
        weft_rewrite_abandon(&s->r);
        goto out;
    }
    s->samples_cut = s->table[SAMPLES].count;
    emit(s);
    emit_ends(s);
    status = weft_rewrite_check(&s->r, "slice", out);
out:
    for (int64_t v = 0; s->part && v < values; v++)
        weft_free(s->part[v]);
    for (int64_t k = 0; k < s->conversions; k++)
        weft_free(s->conversion[k].piece);
    for (int t = 0; t < TABLES; t++)
        weft_free(s->table[t].at);
    weft_free(s->conversion);
    weft_free(s->region);
    weft_free(s->mode);
    weft_free(s->state);
    weft_free(s->slot);
    weft_free(s->part);
    weft_free(s->consumer);
    return status;
}

weft_status weft_pass_layer_slices(const weft_graph *g, const weft_recipe *recipe,
                                   const weft_comm_overlap *overlap, weft_graph **out)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    const char *axis = weft_comm_overlap_axis(recipe, mesh);
    const bool on = overlap->kind == WEFT_COMM_OVERLAP_ON;
    weft_graph *single = NULL, *filled = NULL;
    slicer s = {.from = g,
                .only = WHOLE,
                .folded = WHOLE,
                .recipe = recipe,
                .axis = axis,
                .ranks = axis ? mesh->axis[weft_mesh_axis(mesh, axis)].size : 1,
                .samples = true,
                .wanted = {0, on ? overlap->time : 1, on ? overlap->space : 1},
                .lift = {0, on ? overlap->lift_time : 0, on ? overlap->lift_space : 0}};
    slicer groups = s;
    *out = NULL;
    WEFT_TRY(run(&s, &single));
    if (s.mixed)
        return WEFT_OK;
    groups.from = single;
    groups.samples = false;
    for (int t = TIME; t < TABLES && s.samples_cut > 1; t++) { /* counts are for all samples */
        groups.wanted[t] = (groups.wanted[t] + s.samples_cut - 1) / s.samples_cut;
        groups.lift[t] = (groups.lift[t] + s.samples_cut - 1) / s.samples_cut;
    }
    if (s.samples_cut <= 1) /* slices of one sample already hide exchanges of another */
        groups.folded = find_folded(&groups);
    weft_status_code status = WEFT_OK;
    if (groups.folded != WHOLE) { /* pads its groups to a multiple of the ranks */
        slicer fills = groups;
        fills.only = groups.folded;
        fills.folded = WHOLE;
        fills.wanted[fills.only] = 1;
        WEFT_GO(run(&fills, &filled));
        groups.from = filled;
    }
    WEFT_GO(run(&groups, out));
out:
    weft_graph_free(filled);
    weft_graph_free(single);
    return status;
}
