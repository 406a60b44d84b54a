/* Layers whose groups do not see each other, cut into slices that are exchanged one by one
 * (ScaleFusion: Yang et al., MLSys'25).
 *
 *   whole      x (B,T,N,C) | spatial layer: groups are frames   | temporal layer: groups are places
 *   cut        x_0 .. x_3    along T: layer(x_i) -> y_i           along N: layer(x_j) -> z_j
 *   between                  piece (i,j) = y_i[:, :, N_j], exchanged by itself
 *                            x_j = concat over i of the pieces, turned (a permute) where it was
 *
 * On the graph of whole tensors nothing but slices, layers and concats: that a piece (i,j) is
 * exchanged is a row of the recipe ("*.exchange:slice"), and how, the shard pass knows. What a rank
 * holds of T_i is its part of each T_i, not a part of T; places are told apart by what is sliced
 * beside them. Cuts are at multiples of the ranks, so that parts are even; the last slice is filled
 * up with zeros before its exchange and freed of them behind it.
 *
 * Samples are cut first, by the same means along dim 0: rows of a split dim have to lie together
 * for a layer to stay split inside. One sample's layer then runs behind the exchange of the other,
 * and their slices count together: two samples have two each of four.
 *
 *   sample 0   | x_0 x_1 x_2 x_3 |                 | z_0 z_1 ...          kernels of one layer
 *   sample 1                     | x_0 x_1 x_2 x_3 |
 *   wire            (0,0) (1,0) ..  (.,1) (.,2) (.,3)                     lifted, then the others
 *
 * What a piece was filled up with goes where it is read, not before: that would wait for it.
 *
 * A piece is started where it is emitted: of the first `lift` slices of the layer to come as soon
 * as y_i is there (§4.4), of the others behind the last y_i, slice by slice.
 *
 * Few groups: with 30 frames on 32 ranks a rank has one frame, and a spatial layer has one slice of
 * frames. Such a layer is folded: it runs on slices of places, as the temporal layers around it.
 * Only keys and values are joined, because attention reads all places of a frame. Slice j is
 * exchanged alone, in both directions, while the slices after it are computed.
 *
 *   folded     spatial layer   q_j, k_j, v_j | k, v joined | attention(q_j, k, v), ... -> y_j
 *   between    piece j = y_j */
#include "pass/pass.h"
#include "pass/rewrite.h"

#include <stdio.h>
#include <string.h>

typedef struct cut {
    int64_t start, len; /* of the whole dim */
    int64_t filled;     /* with zeros to so many */
} cut;

typedef struct cuts {
    cut *at; /* owned */
    int count;
    int64_t whole; /* the dim */
} cuts;

/* How a value is cut: into slices of `table`, along `dim`. */
typedef struct cutting {
    int table; /* WHOLE: it is not */
    int dim;
} cutting;

enum { WHOLE = -1, SAMPLES = 0, TIME = WEFT_CUT_TIME, SPACE = WEFT_CUT_SPACE, TABLES = SPACE + 1 };

/* From how `value` is cut to how the region that begins at `node` needs it. */
typedef struct turn {
    int32_t value, node;
    cutting from, to;
    int32_t made;      /* the region that makes the slices; -1: cut where it is needed */
    bool between;      /* layers: it is exchanged where it becomes whole or sliced */
    weft_value *piece; /* [from * slices of `to` + to]; owned */
} turn;

typedef struct slicer {
    const weft_graph *from;
    const weft_recipe *recipe;
    const char *axis;
    int64_t ranks, wanted[TABLES], lift[TABLES], samples_cut;
    bool samples; /* the first of both runs */
    bool mixed;   /* layers differ in how many groups of a kind they have */
    weft_rewrite r;
    cuts table[TABLES];
    int32_t nodes, values;
    int32_t *region;   /* by node */
    cutting *mode;     /* by node: its outputs; table WHOLE: it runs once */
    cutting *state;    /* by value */
    weft_value **part; /* by value: its slices, owned; NULL: it is whole */
    int64_t turns, turns_room;
    turn *turn; /* in the order of nodes; owned */
    int32_t regions;
    int32_t entry; /* the node before which the first layer's x is cut; -1: there is no layer */
    int entry_kind, entry_dim;
    int folded; /* the table whose layers run on slices of the other one; WHOLE: none */
    int only;   /* the one table that is cut; WHOLE: both */
} slicer;

/* ---- where to cut --------------------------------------------------------------------------- */

/* Slices of whole rows of `unit`; the last row may be shorter. */
static weft_status make_cuts(cuts *c, int64_t whole, int64_t unit, int64_t wanted)
{
    const int64_t rows = (whole + unit - 1) / unit, most = rows > 1 ? rows : 1;
    const int64_t count = wanted < 1 ? 1 : wanted < most ? wanted : most;
    *c = (cuts){.whole = whole, .at = weft_alloc(count * (int64_t)sizeof *c->at)};
    if (!c->at)
        return weft_fail(WEFT_E_MEMORY, "out of memory slicing a graph");
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = i * rows / count * unit, behind = (i + 1) * rows / count * unit;
        c->at[i] = (cut){first, (behind < whole ? behind : whole) - first, behind - first};
    }
    c->count = (int)count;
    return WEFT_OK;
}

static weft_status find_cuts(slicer *s, int table, int64_t whole)
{
    cuts *c = &s->table[table];
    s->mixed = s->mixed || (c->at && c->whole != whole);
    return c->at ? WEFT_OK
                 : make_cuts(c, whole, table == SAMPLES ? 1 : s->ranks,
                             table == SAMPLES ? whole : s->wanted[table]);
}

/* ---- planning ------------------------------------------------------------------------------- */

/* The layer that begins at this node, or WEFT_CUT_NONE. */
static int begins(const slicer *s, const weft_node *n)
{
    const weft_recipe_row *row = weft_slices_norm_row(s->recipe, s->axis, n);
    return row && (s->samples || row->cut != WEFT_CUT_SAMPLES) ? row->cut : WEFT_CUT_NONE;
}

static const weft_shape *shape_of(const slicer *s, weft_value v)
{
    return &weft_value_get(s->from, v)->shape;
}

static bool same(cutting a, cutting b)
{
    return a.table == b.table && (a.table == WHOLE || a.dim == b.dim);
}

/* The values of the region before are there: what is concatenated or exchanged comes from it. */
static void begin_region(slicer *s, int32_t n)
{
    if (n > 0 && s->region[n - 1] == s->regions)
        s->regions++;
    s->region[n] = s->regions;
}

static weft_status add_turn(slicer *s, weft_value v, int32_t n, cutting to)
{
    WEFT_TRY(weft_grow((void **)&s->turn, s->turns, &s->turns_room, sizeof *s->turn));
    begin_region(s, n);
    const int32_t maker = weft_value_get(s->from, v)->node;
    const bool made_there = s->state[v.id].table != WHOLE && same(s->mode[maker], s->state[v.id]);
    s->turn[s->turns++] = (turn){.value = v.id,
                                 .node = n,
                                 .from = s->state[v.id],
                                 .to = to,
                                 .made = made_there ? s->region[maker] : -1};
    s->state[v.id] = to;
    return WEFT_OK;
}

/* A row that cuts this dim cuts it between whole groups. */
static bool holds_groups(const slicer *s, weft_value v, weft_layout l, int table)
{
    return !weft_value_ok(v) || l.kind != WEFT_S ||
           shape_of(s, v)->dim[l.dim] % s->table[table].whole == 0;
}

/* The node that alone reads `v`; -1: none or several. */
static int32_t only_reader(const slicer *s, weft_value v)
{
    int32_t found = -1;
    for (int32_t n = weft_value_get(s->from, v)->node + 1; n < s->nodes; n++)
        for (int i = 0; i < weft_graph_node(s->from, n)->in_count; i++) {
            if (weft_graph_node(s->from, n)->in[i].id != v.id)
                continue;
            if (found >= 0)
                return -1;
            found = n;
        }
    return found;
}

/* A reshape between (B,T,N,C) and (B,T*N,H,D). */
static bool merges(const slicer *s, const weft_node *n, weft_value four, weft_value merged)
{
    const weft_shape *x = shape_of(s, four), *y = shape_of(s, merged);
    return n->op == WEFT_OP_RESHAPE && x->rank == 4 && y->rank == 4 && x->dim[0] == y->dim[0] &&
           y->dim[1] == x->dim[1] * x->dim[2];
}

static const weft_node *maker_of(const slicer *s, weft_value v)
{
    return weft_graph_node(s->from, weft_value_get(s->from, v)->node);
}

/* Cross-attention of all frames: places of a frame lie apart in the queries (B,T*N,H,D). Queries do
 * not see each other, so a slice of places of every frame runs alone: reshape, attention, reshape.
 * True for the first of the three nodes. */
static bool begins_cross(const slicer *s, const weft_node *n)
{
    if (!merges(s, n, n->in[0], n->out[0]) || s->state[n->in[0].id].table == WHOLE ||
        s->state[n->in[0].id].dim != 2)
        return false;
    const int32_t at = only_reader(s, n->out[0]);
    const weft_node *a = at < 0 ? NULL : weft_graph_node(s->from, at);
    if (!a || a->op != WEFT_OP_ATTENTION || a->in[0].id != n->out[0].id ||
        (a->in_count > 3 && weft_value_ok(a->in[3])))
        return false;
    const int32_t end = only_reader(s, a->out[0]);
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

/* The row of a reshape before or after such cross-attention. */
static bool find_cross(const slicer *s, const weft_node *n, weft_layout_choice *found, cutting *out)
{
    if (s->folded == WHOLE || n->op != WEFT_OP_RESHAPE)
        return false;
    const cutting is = s->state[n->in[0].id];
    const bool begin = begins_cross(s, n);
    if (!begin && !(is.table != WHOLE && ends_cross(s, n)))
        return false;
    *found = (weft_layout_choice){.need = {{WEFT_S, (int8_t)is.dim}},
                                  .out = {{WEFT_S, (int8_t)(begin ? 1 : 2)}}};
    *out = (cutting){is.table, begin ? 1 : 2};
    return true;
}

/* The row by which the node runs on slices; false: it needs whole operands. `joined` gets a bit for
 * each sliced operand that the row needs whole; NULL: no operand may be joined. */
static bool find_row(const slicer *s, const weft_node *n, weft_layout_choice *found, cutting *out,
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
            const cutting is = weft_value_ok(n->in[i]) ? s->state[n->in[i].id] : (cutting){WHOLE};
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

/* A permute turns groups of one kind into those of the other: the layer behind it says which. */
static int layer_behind(const slicer *s, int32_t n)
{
    for (; n < s->nodes; n++)
        if (begins(s, weft_graph_node(s->from, n)))
            return begins(s, weft_graph_node(s->from, n));
    return WEFT_CUT_NONE;
}

/* It exchanges dims 1 and 2 of (B,T,N,C) or (B,N,T,C). */
static bool turns_groups(const slicer *s, const weft_node *n)
{
    const weft_attr_permute *a = n->attr;
    return shape_of(s, n->in[0])->rank == 4 && a->perm[0] == 0 && a->perm[1] == 2 &&
           a->perm[2] == 1;
}

/* A permute between layers, of what is sliced. */
static bool is_between(const slicer *s, const weft_node *n)
{
    char name[512];
    if (n->op != WEFT_OP_PERMUTE)
        return false;
    if (s->state[n->in[0].id].table == WHOLE && (s->only == WHOLE || !turns_groups(s, n)))
        return false;
    snprintf(name, sizeof name, "%s:layer_norm", n->scope);
    const weft_recipe_row *row = weft_recipe_row_for(s->recipe, s->axis, name, false);
    return !row || !row->cut;
}

/* The row that makes the node's output in slices along `dim` of slices of operand 0 alone; NULL:
 * there is none. */
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

/* The first layer's x is cut as early as it can be: as patches, or latents, so that no rank embeds
 * what it does not keep. *node: what reads it, from there on sliced; *dim: of its operand. */
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
        if (size % groups) /* behind a reshape rows of a group lie together */
            return;
        if (size == groups) {
            *node = at;
            *dim = d;
        }
    }
}

/* Number of slices of `table` that its groups allow. */
static int64_t slices_of(const slicer *s, int table, int64_t groups)
{
    const int64_t rows = (groups + s->ranks - 1) / s->ranks;
    return s->wanted[table] < rows ? s->wanted[table] : rows;
}

static int other_table(int table)
{
    return table == TIME ? SPACE : TIME;
}

/* The table whose layers are folded: more slices are wanted than its groups allow, which is one,
 * and the other kind of groups allows more. WHOLE: none. */
static int find_folded(const slicer *s)
{
    for (int32_t n = 0; n < weft_graph_node_count(s->from); n++) {
        const weft_node *node = weft_graph_node(s->from, n);
        const int table = begins(s, node), other = other_table(table);
        if (!table || shape_of(s, node->in[0])->rank != 4)
            continue;
        const weft_shape *x = shape_of(s, node->in[0]); /* (B,groups,others,C) */
        const int64_t count = slices_of(s, table, x->dim[1]),
                      others = slices_of(s, other, x->dim[2]);
        if (s->wanted[table] > 1 && count == 1 && others > 1)
            return table;
        return s->wanted[other] > 1 && others == 1 && count > 1 ? other : WHOLE;
    }
    return WHOLE;
}

/* Of the first layer: the node before which the turn is made, and the dim. */
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

static weft_status turn_before(slicer *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->from, n);
    const weft_value x = node->in_count ? node->in[0] : WEFT_NONE;
    const bool enters = n == s->entry;
    const bool between = is_between(s, node);
    int kind = enters ? s->entry_kind : begins(s, node), dim = s->samples ? 0 : 1;
    if (enters)
        dim = s->entry_dim;
    if (between && (s->samples || s->folded != WHOLE))
        begin_region(s, n); /* layer by layer, whatever sample; a folded graph has one cut */
    if (between && s->folded != WHOLE)
        return WEFT_OK;
    if (between && !s->samples) {
        kind = layer_behind(s, n);
        dim = ((const weft_attr_permute *)node->attr)->perm[1];
    }
    if (kind && kind == s->folded) {
        kind = other_table(kind);
        dim = enters ? dim : 2;
    }
    if (!kind || (shape_of(s, x)->rank != 4 && !enters))
        return WEFT_OK;
    const bool is_cut = shape_of(s, x)->dim[dim] > 1 && (s->only == WHOLE || s->only == kind);
    const cutting to = {!is_cut ? WHOLE : s->samples ? SAMPLES : kind, dim};
    if (to.table != WHOLE)
        WEFT_TRY(find_cuts(s, to.table, shape_of(s, x)->dim[dim]));
    if (same(s->state[x.id], to))
        return WEFT_OK;
    WEFT_TRY(add_turn(s, x, n, to));
    s->turn[s->turns - 1].between = between && s->only != WHOLE;
    return WEFT_OK;
}

/* A node of a folded layer reads some operands whole (attention: keys and values), others in
 * slices. */
static weft_status plan_joined(slicer *s, int32_t n, bool *found)
{
    const weft_node *node = weft_graph_node(s->from, n);
    weft_layout_choice row;
    cutting out;
    unsigned joined = 0;
    *found = s->folded != WHOLE && find_row(s, node, &row, &out, &joined);
    for (int i = 0; i < node->in_count && *found; i++)
        if ((joined >> i & 1) && s->state[node->in[i].id].table != WHOLE)
            WEFT_TRY(add_turn(s, node->in[i], n, (cutting){WHOLE}));
    return WEFT_OK;
}

static weft_status plan_node(slicer *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->from, n);
    weft_layout_choice row;
    cutting out;
    s->region[n] = s->regions;
    s->mode[n] = (cutting){WHOLE};
    WEFT_TRY(turn_before(s, n));
    bool found = find_row(s, node, &row, &out, NULL);
    if (!found) {
        WEFT_TRY(plan_joined(s, n, &found));
        found = found && find_row(s, node, &row, &out, NULL);
    }
    if (found) {
        s->mode[n] = out;
        for (int o = 0; o < node->out_count; o++)
            s->state[node->out[o].id] = (cutting){out.table, row.out[o].dim};
        return WEFT_OK;
    }
    for (int i = 0; i < node->in_count; i++)
        if (weft_value_ok(node->in[i]) && s->state[node->in[i].id].table != WHOLE)
            WEFT_TRY(add_turn(s, node->in[i], n, (cutting){WHOLE}));
    return WEFT_OK;
}

static weft_status plan(slicer *s)
{
    for (int32_t v = 0; v < s->values; v++)
        s->state[v] = (cutting){WHOLE};
    find_entry(s);
    for (int32_t n = 0; n < s->nodes; n++)
        WEFT_TRY(plan_node(s, n));
    for (int32_t v = 0; v < s->values; v++)
        s->state[v] = (cutting){WHOLE};
    return WEFT_OK;
}

/* ---- slices of values ----------------------------------------------------------------------- */

static void lay(slicer *s, weft_value made, weft_value like)
{
    if (weft_value_ok(made))
        weft_graph_set_layout(s->r.to, made, weft_value_get(s->from, like)->layout);
}

/* Slice k of `x` along `dim`, filled up; `what` is the scope of the node that others know it by. */
static weft_value take(slicer *s, weft_value x, weft_value like, int table, int dim, int k,
                       const char *what)
{
    weft_graph *to = s->r.to;
    const cuts *c = &s->table[table];
    const int64_t scale = weft_value_get(to, x)->shape.dim[dim] / c->whole;
    const cut *at = &c->at[k];
    const bool fills = at->filled > at->len;
    if (what && !fills)
        weft_graph_push(to, "%s", what);
    weft_value made = weft_slice(to, x, dim, at->start * scale, at->len * scale);
    lay(s, made, like);
    if (fills) {
        if (what)
            weft_graph_push(to, "%s", what);
        made = weft_pad(to, made, dim, 0, (at->filled - at->len) * scale);
        lay(s, made, like);
    }
    if (what)
        weft_graph_pop(to);
    return made;
}

/* The rows of slice k alone, as a node of its own. */
static weft_value take_len(slicer *s, weft_value x, weft_value like, cutting how, int k)
{
    const cut *at = &s->table[how.table].at[k];
    const int64_t scale = weft_value_get(s->r.to, x)->shape.dim[how.dim] / at->filled;
    x = weft_slice(s->r.to, x, how.dim, 0, at->len * scale);
    lay(s, x, like);
    return x;
}

/* Slice k without what it was filled up with. */
static weft_value trim(slicer *s, weft_value x, weft_value like, cutting how, int k)
{
    const cut *at = &s->table[how.table].at[k];
    return at->filled == at->len ? x : take_len(s, x, like, how, k);
}

static weft_value join(slicer *s, const weft_value *part, weft_value like, int count, int dim)
{
    if (count == 1)
        return part[0];
    const weft_value made = weft_concat(s->r.to, part, count, dim);
    lay(s, made, like);
    return made;
}

static void set_parts(slicer *s, int32_t v, cutting how, weft_value *part)
{
    weft_free(s->part[v]);
    s->part[v] = part;
    s->state[v] = how;
}

static weft_value *new_parts(slicer *s, int64_t count)
{
    weft_value *part = weft_alloc(count * (int64_t)sizeof *part);
    if (!part)
        weft_graph_fail(s->r.to, WEFT_E_MEMORY, "out of memory slicing a graph");
    return part;
}

/* ---- emitting ------------------------------------------------------------------------------- */

/* Room for the attribute struct of any op. */
typedef union local_attr {
#define WEFT_OP(ENUM, stem, in_min, in_max, out_max, attr, ...) weft_attr_##attr of_##stem;
#include "graph/op.def"
} local_attr;

static void emit_part(slicer *s, int32_t n, int k)
{
    const weft_node *node = weft_graph_node(s->from, n);
    const weft_op_info *info = weft_op_get(node->op);
    weft_value *in = new_parts(s, node->in_count + 1), made[WEFT_MAX_OUTPUTS];
    weft_layout_choice row;
    cutting out;
    local_attr own;
    if (!in || !find_row(s, node, &row, &out, NULL)) {
        weft_free(in);
        return;
    }
    const cuts *c = &s->table[out.table];
    weft_graph_push(s->r.to, "%s", node->scope);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        const weft_layout need = weft_layout_need(&row, i);
        in[i] = !weft_value_ok(v)     ? WEFT_NONE
                : s->part[v.id]       ? s->part[v.id][k]
                : need.kind == WEFT_S ? take(s, s->r.map[v.id], v, out.table, need.dim, k, NULL)
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
        s->state[v] = (cutting){out.table, row.out[o].dim};
        if (s->part[v])
            s->part[v][k] = made[o];
        lay(s, made[o], node->out[o]);
    }
    weft_graph_pop(s->r.to);
    weft_free(in);
}

/* All that there is goes as one piece, which nothing else is computed beside. */
static bool is_whole(const slicer *s, const turn *t)
{
    return s->table[t->from.table].count == 1 && s->table[t->to.table].count == 1;
}

/* Piece (i,j) of a turn: what is exchanged. `late`: behind all that is lifted. */
static void emit_piece(slicer *s, turn *t, int i, int j, bool late)
{
    const weft_value v = {t->value};
    const weft_node *maker = weft_graph_node(s->from, weft_value_get(s->from, v)->node);
    const int count = s->table[t->to.table].count;
    if (!t->piece)
        t->piece = new_parts(s, (int64_t)count * s->table[t->from.table].count);
    if (!t->piece || weft_graph_check(s->r.to) != WEFT_OK)
        return;
    weft_graph_push(s->r.to, "%s", maker->scope);
    const weft_value piece =
        take(s, s->part[t->value][i], v, t->to.table, t->to.dim, j, late ? "late" : "exchange");
    t->piece[i * count + j] = is_whole(s, t) ? trim(s, piece, v, t->from, i) : piece;
    weft_graph_pop(s->r.to);
}

static int lifted(const slicer *s, const turn *t)
{
    const int64_t lift = s->lift[t->to.table];
    const int count = s->table[t->to.table].count;
    return lift < count ? (int)lift : count;
}

static bool exchanges(const turn *t)
{
    return t->from.table != WHOLE && t->to.table != WHOLE;
}

/* Slice i of what region r makes is there. */
static void lift(slicer *s, int32_t r, int i)
{
    for (int64_t k = 0; k < s->turns; k++) {
        turn *t = &s->turn[k];
        for (int j = 0; t->made == r && exchanges(t) && j < lifted(s, t); j++)
            emit_piece(s, t, i, j, false);
    }
}

static void exchange_rest(slicer *s, int32_t r)
{
    for (int64_t k = 0; k < s->turns; k++) {
        turn *t = &s->turn[k];
        if (t->made != r || !exchanges(t))
            continue;
        for (int j = lifted(s, t); j < s->table[t->to.table].count; j++)
            for (int i = 0; i < s->table[t->from.table].count; i++)
                emit_piece(s, t, i, j, true);
    }
}

/* The value is whole again. */
static void leave(slicer *s, turn *t)
{
    const weft_value v = {t->value};
    const int count = s->table[t->from.table].count;
    weft_value *part = new_parts(s, count);
    weft_graph_push(s->r.to, t->between ? "%s.exchange" : "%s",
                    weft_graph_node(s->from, t->node)->scope);
    for (int k = 0; part && k < count && weft_graph_check(s->r.to) == WEFT_OK; k++)
        part[k] = t->between ? take_len(s, s->part[t->value][k], v, t->from, k)
                             : trim(s, s->part[t->value][k], v, t->from, k);
    if (part && weft_graph_check(s->r.to) == WEFT_OK)
        s->r.map[t->value] = join(s, part, v, count, t->from.dim);
    weft_graph_pop(s->r.to);
    weft_free(part);
    set_parts(s, t->value, (cutting){WHOLE}, NULL);
}

/* Slice j of what a region begins with: cut from the whole, or joined of the pieces. */
static weft_value arrive(slicer *s, turn *t, int j, weft_value *scratch)
{
    const weft_value v = {t->value};
    const int count = s->table[t->to.table].count;
    if (t->from.table == WHOLE)
        return take(s, s->r.map[t->value], v, t->to.table, t->to.dim, j,
                    s->samples   ? NULL
                    : t->between ? "exchange"
                                 : "enter");
    for (int i = 0; i < s->table[t->from.table].count; i++)
        scratch[i] = is_whole(s, t) ? t->piece[0] : trim(s, t->piece[i * count + j], v, t->from, i);
    return join(s, scratch, v, s->table[t->from.table].count, t->from.dim);
}

typedef struct span {
    int32_t region, first, behind; /* nodes */
    int64_t turn, turns;           /* those at its beginning */
} span;

static void begin_turns(slicer *s, const span *at)
{
    for (int64_t k = at->turn; k < at->turn + at->turns; k++) {
        turn *t = &s->turn[k];
        if (t->to.table == WHOLE) {
            leave(s, t);
            continue;
        }
        for (int i = 0; t->made < 0 && exchanges(t) && i < s->table[t->from.table].count; i++)
            for (int j = 0; j < s->table[t->to.table].count; j++)
                emit_piece(s, t, i, j, false);
    }
}

/* The values in their new slices, as the layer's k-th begins. */
static void arrive_all(slicer *s, const span *at, int k)
{
    for (int64_t i = at->turn; i < at->turn + at->turns; i++) {
        turn *t = &s->turn[i];
        if (t->to.table == WHOLE || weft_graph_check(s->r.to) != WEFT_OK)
            continue;
        weft_value *scratch =
            new_parts(s, t->from.table == WHOLE ? 1 : s->table[t->from.table].count);
        if (!scratch)
            return;
        weft_graph_push(s->r.to, "%s", weft_graph_node(s->from, t->node)->scope);
        const weft_value made = arrive(s, t, k, scratch);
        weft_graph_pop(s->r.to);
        weft_free(scratch);
        if (k == 0)
            set_parts(s, t->value, t->to, new_parts(s, s->table[t->to.table].count));
        if (s->part[t->value])
            s->part[t->value][k] = made;
    }
}

static void emit_region(slicer *s, const span *at)
{
    int table = WHOLE;
    begin_turns(s, at);
    for (int32_t n = at->first; n < at->behind; n++)
        if (s->mode[n].table == WHOLE)
            weft_rewrite_node(&s->r, n, NULL);
        else
            table = s->mode[n].table;
    for (int64_t k = at->turn; k < at->turn + at->turns; k++)
        table = s->turn[k].to.table != WHOLE ? s->turn[k].to.table : table;
    for (int k = 0; table != WHOLE && k < s->table[table].count; k++) {
        arrive_all(s, at, k);
        for (int32_t n = at->first; n < at->behind && weft_graph_check(s->r.to) == WEFT_OK; n++)
            if (s->mode[n].table != WHOLE)
                emit_part(s, n, k);
        lift(s, at->region, k);
    }
    exchange_rest(s, at->region);
}

static void emit(slicer *s)
{
    int64_t next = 0;
    for (int32_t n = 0; n < s->nodes && weft_graph_check(s->r.to) == WEFT_OK;) {
        span at = {.region = s->region[n], .first = n, .turn = next};
        while (n < s->nodes && s->region[n] == at.region)
            n++;
        at.behind = n;
        while (next < s->turns && s->turn[next].node < n)
            next++;
        at.turns = next - at.turn;
        emit_region(s, &at);
    }
}

/* Outputs and updates read whole values. */
static void leave_ends(slicer *s)
{
    int count;
    const weft_named *output = weft_graph_outputs(s->from, &count);
    for (int i = 0; i < count; i++)
        if (s->part[output[i].value.id])
            leave(s, &(turn){.value = output[i].value.id,
                             .node = s->nodes - 1,
                             .from = s->state[output[i].value.id]});
    const weft_pair *update = weft_graph_updates(s->from, &count);
    for (int i = 0; i < count; i++)
        if (s->part[update[i].value.id])
            leave(s, &(turn){.value = update[i].value.id,
                             .node = s->nodes - 1,
                             .from = s->state[update[i].value.id]});
}

/* ---- the pass ------------------------------------------------------------------------------- */

static weft_status run(slicer *s, weft_graph **out)
{
    weft_status_code status = WEFT_OK;
    const int64_t nodes = weft_graph_node_count(s->from), values = weft_graph_value_count(s->from);
    s->nodes = (int32_t)nodes;
    s->values = (int32_t)values;
    WEFT_TRY(weft_rewrite_begin(s->from, &s->r));
    s->region = weft_alloc((nodes + 1) * (int64_t)sizeof *s->region);
    s->mode = weft_alloc((nodes + 1) * (int64_t)sizeof *s->mode);
    s->state = weft_alloc((values + 1) * (int64_t)sizeof *s->state);
    s->part = weft_alloc((values + 1) * (int64_t)sizeof *s->part);
    if (!s->region || !s->mode || !s->state || !s->part) {
        weft_rewrite_abandon(&s->r);
        status = weft_fail(WEFT_E_MEMORY, "out of memory slicing a graph");
        goto out;
    }
    status = plan(s);
    if (status != WEFT_OK || s->mixed) {
        weft_rewrite_abandon(&s->r);
        goto out;
    }
    s->samples_cut = s->table[SAMPLES].count;
    emit(s);
    if (weft_graph_check(s->r.to) == WEFT_OK)
        leave_ends(s);
    status = weft_rewrite_finish(&s->r, "slice", out);
out:
    for (int64_t v = 0; s->part && v < values; v++)
        weft_free(s->part[v]);
    for (int64_t k = 0; k < s->turns; k++)
        weft_free(s->turn[k].piece);
    for (int t = 0; t < TABLES; t++)
        weft_free(s->table[t].at);
    weft_free(s->turn);
    weft_free(s->region);
    weft_free(s->mode);
    weft_free(s->state);
    weft_free(s->part);
    return status;
}

weft_status weft_pass_slice(const weft_graph *g, const weft_recipe *recipe,
                            const weft_slices *slices, weft_graph **out)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    const char *axis = weft_slices_axis(recipe, mesh);
    const bool on = slices->kind == WEFT_SLICES_ON;
    weft_graph *single = NULL, *filled = NULL;
    slicer s = {.from = g,
                .only = WHOLE,
                .folded = WHOLE,
                .recipe = recipe,
                .axis = axis,
                .ranks = axis ? mesh->axis[weft_mesh_axis(mesh, axis)].size : 1,
                .samples = true,
                .wanted = {0, on ? slices->time : 1, on ? slices->space : 1},
                .lift = {0, on ? slices->lift_time : 0, on ? slices->lift_space : 0}};
    slicer groups = s;
    *out = NULL;
    WEFT_TRY(run(&s, &single));
    if (s.mixed)
        return WEFT_OK;
    groups.from = single;
    groups.samples = false;
    for (int t = TIME; t < TABLES && s.samples_cut > 1; t++) { /* of all samples together */
        groups.wanted[t] = (groups.wanted[t] + s.samples_cut - 1) / s.samples_cut;
        groups.lift[t] = (groups.lift[t] + s.samples_cut - 1) / s.samples_cut;
    }
    if (s.samples_cut <= 1) /* the slices of one sample already cover another's exchange */
        groups.folded = find_folded(&groups);
    weft_status_code status = WEFT_OK;
    if (groups.folded != WHOLE) { /* its groups are filled up, so that they divide the ranks */
        slicer fills = groups;
        fills.only = groups.folded;
        fills.folded = WHOLE;
        fills.wanted[fills.only] = 1;
        status = run(&fills, &filled);
        groups.from = filled;
    }
    if (status == WEFT_OK)
        status = run(&groups, out);
    weft_graph_free(filled);
    weft_graph_free(single);
    return status;
}
