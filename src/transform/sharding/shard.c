/* From the graph of whole tensors to the graph of one rank.
 *
 * One mesh axis at a time: the result of one axis, collectives included, is the input of the next,
 * so that no rule ever sees two axes and nested splits of one dim come by themselves. Per axis each
 * node takes the cheapest of the choices that its layout rule lists, its operands are converted to
 * what that choice needs, and the node is emitted with local shapes. A value keeps all its
 * conversions (`version`), so each is made once: one all_gather serves q, k and v, and one `vary` a
 * parameter that many nodes read, whose gradient is then reduced once.
 *
 * Ranks must agree on every choice, or their collectives would not meet. After the first axis their
 * local shapes may differ, so the choices are made on the graph of rank 0, which has the largest
 * parts, and replayed on this rank's; the graph of the last rank, with the smallest, shows which
 * parts are uneven. */
#include "pass/pass.h"
#include "pass/rewrite.h"
#include "pass/shard_open.h"
#include "pass/stage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SLOT_R, SLOT_V, SLOT_P, SLOT_S, SLOTS = SLOT_S + WEFT_MAX_RANK };

static const weft_layout whole = {WEFT_R, 0};

typedef struct grouped grouped;

/* Readers of a value: nodes, and two for an output or an update, whose reader is not in the graph.
 */
typedef struct readers {
    int32_t all;
    int32_t others; /* than an attention, as its queries, keys or values */
} readers;

typedef struct axis_pass {
    const weft_graph *from;
    weft_graph *to;
    const weft_recipe *recipe;
    const char *axis_name;
    int axis, ranks, index;       /* index: this rank's coordinate */
    weft_value (*version)[SLOTS]; /* by value of `from`: values of `to` */
    weft_layout *home;            /* by value of `from`: the layout it is made in */
    weft_value *in;               /* of the node under way, in `to` */
    bool *gather;                 /* by value of `from`: a parameter split in memory only */
    const weft_graph *smallest;   /* like `from`, of the last rank */
    weft_layout_choice *plan;     /* by node of `from` */
    int32_t *portions; /* by node of `from`: in so many its work is exchanged; 1: whole */
    bool decides;      /* writes `plan` and `portions`; else follows them */
    bool again;        /* has written another plan behind what it made */
    bool held, piece;  /* what is exchanged now: see weft_recipe_row */
    bool last;         /* no axis behind this one lays out what nodes make */
    readers *readers;  /* by value of `from` */
    bool *waiting;     /* by value of `from`: a concat that is made with its attention */
    bool *done;        /* by node of `from`: emitted with a node before it */
    grouped *grouped;  /* by value of `from`; owned */
} axis_pass;

static int slot_of(weft_layout l)
{
    static const int slot[] = {
        [WEFT_R] = SLOT_R, [WEFT_V] = SLOT_V, [WEFT_P] = SLOT_P, [WEFT_S] = SLOT_S};
    return slot[l.kind] + (l.kind == WEFT_S ? l.dim : 0);
}

static bool same(weft_layout a, weft_layout b)
{
    return a.kind == b.kind && (a.kind != WEFT_S || a.dim == b.dim);
}

static const weft_value_info *info_of(const axis_pass *p, weft_value v)
{
    return weft_value_get(p->from, v);
}

/* ---- recipe -------------------------------------------------------------------------------- */

static const weft_recipe_row *row_for_node(const axis_pass *p, const weft_node *n)
{
    char name[512];
    snprintf(name, sizeof name, "%s:%s", n->scope, weft_op_get(n->op)->name);
    return weft_recipe_row_for(p->recipe, p->axis_name, name, false);
}

/* The same on all ranks, as it looks at the whole tensor only. */
static weft_layout row_layout(const weft_recipe_row *row, const weft_shape *global, int ranks)
{
    weft_layout l = row->layout;
    if (l.kind != WEFT_S || l.dim != WEFT_ANY_DIM)
        return l;
    if (global->rank == 0)
        return whole;
    l.dim = (int8_t)weft_part_dim(global, ranks);
    return l;
}

static bool check_row(axis_pass *p, const weft_recipe_row *row, weft_layout l, const char *name,
                      int rank)
{
    if (l.kind == WEFT_S && (l.dim < 0 || l.dim >= rank))
        weft_graph_fail(p->to, WEFT_E_SHAPE,
                        "recipe %s: row \"%s\" splits dim %d on axis %s, but %s has rank %d",
                        p->recipe->name, row->pattern, l.dim, row->axis, name, rank);
    else if (l.kind == WEFT_V || l.kind == WEFT_P)
        weft_graph_fail(p->to, WEFT_E_ARG,
                        "recipe %s: row \"%s\": %s can only be whole or split on axis %s",
                        p->recipe->name, row->pattern, name, row->axis);
    else
        return true;
    return false;
}

/* ---- emitting ------------------------------------------------------------------------------ */

/* Copies the layouts on the axes before, and sets the one of this axis. */
static void put_version(axis_pass *p, weft_value of, weft_layout layout, weft_value made)
{
    if (!weft_value_ok(made))
        return;
    weft_layout all[WEFT_MAX_AXES];
    memcpy(all, info_of(p, of)->layout, sizeof all);
    all[p->axis] = layout;
    weft_graph_set_layout(p->to, made, all);
    p->version[of.id][slot_of(layout)] = made;
}

static weft_value emit_comm(axis_pass *p, weft_op op, weft_value of, weft_value in,
                            weft_attr_comm attr, weft_layout to)
{
    attr.axis = p->axis;
    attr.late = p->held;
    attr.piece = p->piece && op == WEFT_OP_ALL_TO_ALL;
    const weft_value made = weft_emit(p->to, op, &in, 1, &attr);
    put_version(p, of, to, made);
    return made;
}

/* Room for the attribute struct of any op. */
typedef union local_attr {
#define WEFT_OP(ENUM, stem, in_min, in_max, out_max, attr, ...) weft_attr_##attr of_##stem;
#include "graph/op.def"
} local_attr;

/* The attribute of the node when its output is split along out.dim; most ops have none that depends
 * on it. */
static const void *localise(axis_pass *p, const weft_node *n, weft_layout out, local_attr *own)
{
    const weft_op_info *info = weft_op_get(n->op);
    if (out.kind != WEFT_S)
        return n->attr;
    int64_t start, len;
    weft_part(info_of(p, n->out[0])->shape.dim[out.dim], p->ranks, p->index, &start, &len);
    memcpy(own, n->attr, (size_t)info->attr_bytes);
    info->local(p->to, own, out.dim, start, len);
    return own;
}

/* A second proof of every rule: the local output is exactly this rank's part of the whole one. */
static void check_local_shape(axis_pass *p, const weft_node *n, weft_value of, weft_layout layout,
                              weft_value made)
{
    if (!weft_value_ok(made))
        return;
    weft_shape expected = info_of(p, of)->shape;
    int64_t start;
    if (layout.kind == WEFT_S)
        weft_part(expected.dim[layout.dim], p->ranks, p->index, &start, &expected.dim[layout.dim]);
    if (!weft_shape_equal(&expected, &weft_value_get(p->to, made)->shape))
        weft_graph_fail(p->to, WEFT_E_INTERNAL,
                        "layout rule of %s on axis %s: the local shape is not the part",
                        weft_op_get(n->op)->name, p->axis_name);
}

static void emit_node(axis_pass *p, const weft_node *n, const weft_value *in,
                      const weft_layout *out_layout)
{
    local_attr own;
    weft_value made[WEFT_MAX_OUTPUTS];
    weft_emit_all(p->to, n->op, in, n->in_count, localise(p, n, out_layout[0], &own), made);
    for (int o = 0; o < n->out_count; o++) {
        put_version(p, n->out[o], out_layout[o], made[o]);
        check_local_shape(p, n, n->out[o], out_layout[o], made[o]);
    }
    if (weft_graph_check(p->to) == WEFT_OK)
        weft_graph_node_mut(p->to, weft_value_get(p->to, made[0])->node)->backward = n->backward;
}

/* ---- conversions --------------------------------------------------------------------------- */

/* What each rank can make by itself in this split, from whole operands: constants, fills, tables,
 * random numbers of whole keys. */
static bool remake(axis_pass *p, weft_value v, weft_layout to)
{
    const weft_node *n = weft_graph_node(p->from, info_of(p, v)->node);
    if (!weft_op_has(n->op, WEFT_TRAIT_ANYWHERE))
        return false;
    weft_layout_choice row[WEFT_MAX_CHOICES];
    const int rows = weft_op_get(n->op)->layout(p->from, n, p->ranks, row);
    for (int r = 0; r < rows; r++) {
        bool fits = same(row[r].out[info_of(p, v)->output], to);
        weft_value in[WEFT_MAX_INPUTS];
        for (int i = 0; i < n->in_count; i++) {
            in[i] = p->version[n->in[i].id][SLOT_R];
            fits = fits && row[r].need[i].kind == WEFT_R;
        }
        if (fits) {
            emit_node(p, n, in, row[r].out);
            return true;
        }
    }
    return false;
}

static bool needs_no_vary(const axis_pass *p, weft_value v)
{
    const weft_node *n = weft_graph_node(p->from, info_of(p, v)->node);
    return (weft_op_has(n->op, WEFT_TRAIT_ANYWHERE) && n->in_count == 0) ||
           !weft_dtype_is_float(info_of(p, v)->dtype);
}

static weft_value convert(axis_pass *p, weft_value v, weft_layout to);

static weft_value split_version(axis_pass *p, weft_value v, weft_layout to)
{
    const weft_layout home = p->home[v.id];
    const int64_t n = info_of(p, v)->shape.dim[to.dim];
    weft_attr_comm attr = {.dim = to.dim, .global = n};
    if (home.kind == WEFT_P)
        return emit_comm(p, WEFT_OP_REDUCE_SCATTER, v, p->version[v.id][SLOT_P], attr, to);
    if (home.kind == WEFT_R) {
        if (remake(p, v, to))
            return p->version[v.id][slot_of(to)];
        return emit_comm(p, WEFT_OP_SLICE_OWN, v, p->version[v.id][SLOT_R], attr, to);
    }
    attr = (weft_attr_comm){.dim = home.dim,
                            .global = info_of(p, v)->shape.dim[home.dim],
                            .dim2 = to.dim,
                            .global2 = n};
    return emit_comm(p, WEFT_OP_ALL_TO_ALL, v, p->version[v.id][slot_of(home)], attr, to);
}

/* From the layout in which the value was made to `to`. */
static weft_value convert(axis_pass *p, weft_value v, weft_layout to)
{
    const weft_value done = p->version[v.id][slot_of(to)];
    if (weft_value_ok(done) || weft_graph_check(p->to) != WEFT_OK)
        return done;
    const weft_layout home = p->home[v.id];
    const weft_value at_home = p->version[v.id][slot_of(home)];
    if (to.kind == WEFT_S)
        return split_version(p, v, to);
    if (home.kind == WEFT_S) {
        const weft_attr_comm attr = {.dim = home.dim,
                                     .global = info_of(p, v)->shape.dim[home.dim],
                                     .invariant = to.kind == WEFT_R};
        return emit_comm(p, WEFT_OP_ALL_GATHER, v, at_home, attr, to);
    }
    if (to.kind == WEFT_R)
        return emit_comm(p, WEFT_OP_ALL_REDUCE, v, at_home, (weft_attr_comm){0}, to);
    const weft_value invariant = convert(p, v, whole);
    if (needs_no_vary(p, v)) {
        p->version[v.id][SLOT_V] = invariant;
        return invariant;
    }
    return emit_comm(p, WEFT_OP_VARY, v, invariant, (weft_attr_comm){0}, to);
}

/* ---- choosing ------------------------------------------------------------------------------ */

static double bytes_of(const axis_pass *p, weft_value v)
{
    const weft_value_info *info = info_of(p, v);
    return (double)weft_shape_count(&info->shape) * (double)weft_dtype_bytes(info->dtype);
}

/* The largest part times the ranks over the whole: what uneven splits waste. */
static double imbalance(const axis_pass *p, weft_value v, weft_layout l)
{
    if (l.kind != WEFT_S)
        return 1;
    const int64_t n = info_of(p, v)->shape.dim[l.dim], chunk = (n + p->ranks - 1) / p->ranks;
    return n ? (double)(chunk * p->ranks) / (double)n : 1;
}

/* The source that `v` merely hands on; conversions of the axes before lie between a parameter and
 * its use. */
static weft_value handed_on(const axis_pass *p, weft_value v)
{
    for (;;) {
        const weft_node *n = weft_graph_node(p->from, info_of(p, v)->node);
        if (n->op != WEFT_OP_VARY && n->op != WEFT_OP_ALL_GATHER && n->op != WEFT_OP_CAST &&
            n->op != WEFT_OP_RESHAPE)
            return v;
        v = n->in[0];
    }
}

/* Bytes on the wire of a ring algorithm, in the forward. Work without the wire counts a little, so
 * that of two free choices the one with less of it wins. A parameter that is split for good is not
 * gathered for less than a thousand times its size. */
static double conversion_cost(const axis_pass *p, weft_value v, weft_layout to)
{
    const weft_layout home = p->home[v.id];
    const double bytes = bytes_of(p, v), others = (double)(p->ranks - 1) / p->ranks;
    if (same(home, to))
        return 0;
    if (to.kind == WEFT_P)
        return INFINITY;
    if (home.kind == WEFT_R)
        return bytes * (to.kind == WEFT_V ? 1e-7 : 1e-6);
    if (home.kind == WEFT_P)
        return bytes * others * (to.kind == WEFT_S ? imbalance(p, v, to) : 2);
    const weft_value source = handed_on(p, v);
    if (p->gather[source.id] && to.kind != WEFT_S)
        return bytes * 1e-6;
    const bool param = weft_graph_node(p->from, info_of(p, source)->node)->op == WEFT_OP_PARAM;
    const double kept = param && !p->gather[source.id] ? 1e3 : 1;
    return kept * bytes * others * (to.kind == WEFT_S ? imbalance(p, v, to) / p->ranks : 1);
}

/* Whole operands of a node that does different work on each rank are V. */
static void mark_varying(const weft_node *n, weft_layout_choice *c)
{
    bool differs = false;
    for (int i = 0; i < n->in_count; i++)
        differs |= weft_value_ok(n->in[i]) && weft_layout_need(c, i).kind != WEFT_R;
    for (int o = 0; o < n->out_count; o++)
        differs |= c->out[o].kind != WEFT_R;
    for (int i = 0; differs && i < n->in_count && i < WEFT_MAX_INPUTS; i++)
        if (c->need[i].kind == WEFT_R)
            c->need[i].kind = WEFT_V;
}

static double choice_cost(const axis_pass *p, const weft_node *n, const weft_layout_choice *c)
{
    double cost = 0;
    for (int i = 0; i < n->in_count; i++)
        if (weft_value_ok(n->in[i]))
            cost += conversion_cost(p, n->in[i], weft_layout_need(c, i));
    for (int o = 0; o < n->out_count; o++)
        if (c->out[o].kind == WEFT_P)
            cost += bytes_of(p, n->out[o]) * (p->ranks - 1) / p->ranks;
    return cost + c->wire_bytes * (1 + 1e-6);
}

/* Rules that look at how parts fit (reshape, windows of convolutions) hold for rank 0; along dims
 * whose parts differ between ranks nothing is known of the others. */
static bool fits_all_ranks(const axis_pass *p, const weft_node *n, const weft_layout_choice *c)
{
    if (!weft_op_has(n->op, WEFT_TRAIT_FITS))
        return true;
    for (int i = 0; i < n->in_count + n->out_count; i++) {
        const weft_value v = i < n->in_count ? n->in[i] : n->out[i - n->in_count];
        const weft_layout l = i < n->in_count ? weft_layout_need(c, i) : c->out[i - n->in_count];
        if (weft_value_ok(v) && l.kind == WEFT_S &&
            info_of(p, v)->shape.dim[l.dim] != weft_value_get(p->smallest, v)->shape.dim[l.dim])
            return false;
    }
    return true;
}

/* `by`: the expansion that the recipe asks for, or NULL. */
static void choose(axis_pass *p, const weft_node *n, const char *by, weft_layout_choice *best)
{
    weft_layout_choice choice[WEFT_MAX_CHOICES];
    const int count = weft_op_get(n->op)->layout(p->from, n, p->ranks, choice);
    *best = (weft_layout_choice){0}; /* everything R */
    double least = by ? INFINITY : choice_cost(p, n, best);
    for (int i = 0; i < count; i++) {
        const weft_expansion *e = choice[i].expansion;
        if (!fits_all_ranks(p, n, &choice[i]) || (by && (!e || strcmp(e->name, by) != 0)))
            continue;
        mark_varying(n, &choice[i]);
        const double cost = choice_cost(p, n, &choice[i]);
        if (cost < least) {
            least = cost;
            *best = choice[i];
        }
    }
    if (isinf(least))
        weft_graph_fail(p->to, WEFT_E_UNSUPPORTED,
                        "recipe %s: on axis %s %s cannot be computed by \"%s\": its layout rule "
                        "does not offer that for these operands; take \"by\" out of the row",
                        p->recipe->name, p->axis_name, weft_op_get(n->op)->name, by ? by : "");
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void emit_source(axis_pass *p, const weft_node *n, weft_layout layout)
{
    const weft_value v = n->out[0];
    weft_attr_source attr = *(const weft_attr_source *)n->attr;
    if (layout.kind == WEFT_S) {
        int64_t start;
        weft_part(attr.shape.dim[layout.dim], p->ranks, p->index, &start,
                  &attr.shape.dim[layout.dim]);
        attr.start[layout.dim] += start;
    }
    p->home[v.id] = layout;
    put_version(p, v, layout, weft_source(p->to, n->op, info_of(p, v)->name, &attr));
}

static void shard_source(axis_pass *p, const weft_node *n)
{
    const weft_value v = n->out[0];
    const weft_value_info *info = info_of(p, v);
    const weft_attr_source *attr = n->attr;
    weft_layout layout = whole;
    const weft_recipe_row *row =
        weft_recipe_row_for(p->recipe, p->axis_name, info->name, n->op == WEFT_OP_PARAM);
    if (!row && attr->slot && !p->readers[v.id].all)
        return; /* shard_ends emits the record in the layout of the value that is written to it */
    if (row) {
        layout = row_layout(row, &attr->global, p->ranks);
        if (!check_row(p, row, layout, info->name, info->shape.rank))
            return;
        p->gather[v.id] = row->gather && n->op == WEFT_OP_PARAM;
    }
    emit_source(p, n, layout);
}

/* ---- attention, heads by groups ------------------------------------------------------------- */

/* Where ranks exchange tokens for heads (Ulysses), or for samples, that is done group of heads by
 * group, so that one group is on its way while another is attended to:
 *
 *   kernels  q k v | slices |     | attend 0 | attend 1   | attend 2   | attend 3 |       | concat
 *   wire                    | 0 1              | 2 | out 0  | 3 | out 1  |  out 2   | out 3 |
 *
 * Two groups are under way or there before their use, no more, so that received keys take less
 * memory than those of all heads. A group has so many heads of every rank; the last what is left.
 * Keys of two kinds of tokens that lie behind one another, the text's and the video's, are
 * exchanged each by itself: their concat is of a group, too. */
enum { SAMPLES_DIM = 0, HEADS_DIM = 2, GROUPS_AHEAD = 2 };

typedef struct heads {
    int32_t count; /* groups */
    int dim;       /* that tokens are exchanged for */
} heads;

/* By value of `from`: what is known of its groups. */
struct grouped {
    int32_t count;     /* 0: not cut */
    weft_value *slice; /* as it was made; NULL: a concat of such */
    weft_value *made;  /* exchanged */
};

/* Tokens, or something else that becomes `dim`, are split over the ranks. */
static bool comes_split(const axis_pass *p, weft_value v, int dim)
{
    const weft_layout home = p->home[v.id];
    return home.kind == WEFT_S && home.dim != dim && home.dim != HEADS_DIM;
}

/* A concat of tokens that only attention reads, exchanged before it: not made before that. */
static bool waits_for_heads(const axis_pass *p, const weft_node *n,
                            const weft_layout_choice *choice)
{
    const weft_layout out = choice->out[0];
    if (n->op != WEFT_OP_CONCAT || out.kind != WEFT_S ||
        (out.dim != HEADS_DIM && out.dim != SAMPLES_DIM) ||
        info_of(p, n->out[0])->shape.rank != 4 ||
        ((const weft_attr_concat *)n->attr)->dim == HEADS_DIM || p->readers[n->out[0].id].others)
        return false;
    for (int i = 0; i < n->in_count; i++)
        if (!comes_split(p, n->in[i], out.dim) || p->waiting[n->in[i].id])
            return false;
    return true;
}

/* How many groups there can be; 1: it is not exchanged so. */
static int64_t heads_apart(const axis_pass *p, const weft_node *n, const weft_recipe_row *row,
                           const weft_layout_choice *choice)
{
    const weft_layout need = weft_layout_need(choice, 0);
    if (need.kind != WEFT_S || (need.dim != HEADS_DIM && need.dim != SAMPLES_DIM) ||
        row->layout.kind != WEFT_S || row->layout.dim == HEADS_DIM || row->layout.dim == need.dim ||
        p->readers[n->out[1].id].all)
        return 1;
    for (int i = 0; i < 3; i++) {
        const weft_layout each = weft_layout_need(choice, i);
        if (!same(each, need) || !(p->waiting[n->in[i].id] || comes_split(p, n->in[i], need.dim)))
            return 1;
    }
    return weft_value_get(p->smallest, n->in[0])->shape.dim[HEADS_DIM] /
           (need.dim == HEADS_DIM ? p->ranks : 1);
}

static void group_of(const axis_pass *p, const heads *h, weft_value v, int32_t g, int64_t *start,
                     int64_t *len)
{
    const int64_t all = info_of(p, v)->shape.dim[HEADS_DIM],
                  unit = h->dim == HEADS_DIM ? p->ranks : 1, each = all / unit;
    *start = g * each / h->count * unit;
    *len = (g + 1 == h->count ? all : (g + 1) * each / h->count * unit) - *start;
}

static weft_value emit_turn(axis_pass *p, weft_value x, int dim, int64_t global, int dim2,
                            int64_t global2, bool late)
{
    const weft_attr_comm attr = {.axis = p->axis,
                                 .dim = dim,
                                 .global = global,
                                 .dim2 = dim2,
                                 .global2 = global2,
                                 .late = late};
    return weft_emit(p->to, WEFT_OP_ALL_TO_ALL, &x, 1, &attr);
}

/* Slices of all groups, where they are not there. */
static void cut_heads(axis_pass *p, const heads *h, weft_value v)
{
    const weft_node *maker = weft_graph_node(p->from, info_of(p, v)->node);
    grouped *x = &p->grouped[v.id];
    for (int i = 0; p->waiting[v.id] && i < maker->in_count; i++)
        cut_heads(p, h, maker->in[i]);
    if (x->count)
        return;
    x->made = weft_alloc(h->count * (int64_t)sizeof *x->made);
    x->slice = p->waiting[v.id] ? NULL : weft_alloc(h->count * (int64_t)sizeof *x->slice);
    if (!x->made || (!x->slice && !p->waiting[v.id])) {
        weft_graph_fail(p->to, WEFT_E_MEMORY, "out of memory sharding a graph");
        return;
    }
    x->count = h->count;
    for (int32_t g = 0; g < h->count; g++) {
        int64_t start, len;
        x->made[g] = WEFT_NONE;
        group_of(p, h, v, g, &start, &len);
        if (x->slice)
            x->slice[g] =
                weft_slice(p->to, p->version[v.id][slot_of(p->home[v.id])], HEADS_DIM, start, len);
    }
}

/* Group g, exchanged, or under way. */
static weft_value fetch_heads(axis_pass *p, const heads *h, weft_value v, int32_t g)
{
    const weft_node *maker = weft_graph_node(p->from, info_of(p, v)->node);
    const grouped *x = &p->grouped[v.id];
    if (weft_graph_check(p->to) != WEFT_OK || weft_value_ok(x->made[g]))
        return weft_graph_check(p->to) != WEFT_OK ? WEFT_NONE : x->made[g];
    int64_t start, len;
    const weft_layout home = p->home[v.id];
    group_of(p, h, v, g, &start, &len);
    if (x->slice) {
        x->made[g] = emit_turn(p, x->slice[g], home.dim, info_of(p, v)->shape.dim[home.dim], h->dim,
                               h->dim == HEADS_DIM ? len : info_of(p, v)->shape.dim[h->dim], g > 0);
        return x->made[g];
    }
    weft_value *part = weft_alloc(maker->in_count * (int64_t)sizeof *part);
    if (!part) {
        weft_graph_fail(p->to, WEFT_E_MEMORY, "out of memory sharding a graph");
        return WEFT_NONE;
    }
    for (int i = 0; i < maker->in_count; i++)
        part[i] = fetch_heads(p, h, maker->in[i], g);
    x->made[g] =
        weft_concat(p->to, part, maker->in_count, ((const weft_attr_concat *)maker->attr)->dim);
    weft_free(part);
    return x->made[g];
}

/* What is under way needs no other: parts of a concat are not put together before their turn. */
static void start_heads(axis_pass *p, const heads *h, const weft_node *n, int32_t g)
{
    for (int i = 0; g < h->count && i < 3; i++) {
        const weft_node *maker = weft_graph_node(p->from, info_of(p, n->in[i])->node);
        for (int k = 0; p->waiting[n->in[i].id] && k < maker->in_count; k++)
            fetch_heads(p, h, maker->in[k], g);
        if (!p->waiting[n->in[i].id])
            fetch_heads(p, h, n->in[i], g);
    }
}

static weft_value attend_heads(axis_pass *p, const heads *h, const weft_node *n, int32_t g)
{
    const weft_op_info *info = weft_op_get(n->op);
    weft_value made[WEFT_MAX_OUTPUTS] = {WEFT_NONE, WEFT_NONE, WEFT_NONE};
    int64_t start, len;
    local_attr attr = {0};
    group_of(p, h, n->in[0], g, &start, &len);
    if (h->dim == HEADS_DIM)
        weft_part(len, p->ranks, p->index, &start, &len);
    else
        weft_part(info_of(p, n->out[0])->shape.dim[h->dim], p->ranks, p->index, &start, &len);
    memcpy(&attr, n->attr, (size_t)info->attr_bytes);
    info->local(p->to, &attr, h->dim, start, len);
    for (int i = 0; i < 3; i++)
        p->in[i] = fetch_heads(p, h, n->in[i], g);
    weft_emit_all(p->to, n->op, p->in, n->in_count, &attr, made);
    return made[0];
}

static void emit_heads(axis_pass *p, const weft_node *n, const weft_recipe_row *row,
                       const weft_layout_choice *choice, int32_t count)
{
    const heads h = {.count = count, .dim = weft_layout_need(choice, 0).dim};
    const weft_value out = n->out[0];
    const weft_layout back = row->layout;
    weft_value *part = weft_alloc(count * (int64_t)sizeof *part);
    if (!part) {
        weft_graph_fail(p->to, WEFT_E_MEMORY, "out of memory sharding a graph");
        return;
    }
    for (int i = 0; i < 3; i++)
        cut_heads(p, &h, n->in[i]);
    for (int i = 3; i < n->in_count; i++)
        p->in[i] =
            weft_value_ok(n->in[i]) ? convert(p, n->in[i], weft_layout_need(choice, i)) : WEFT_NONE;
    for (int32_t g = 0; g < GROUPS_AHEAD; g++)
        start_heads(p, &h, n, g);
    for (int32_t g = 0; g < count && weft_graph_check(p->to) == WEFT_OK; g++) {
        int64_t start, len;
        part[g] = attend_heads(p, &h, n, g);
        start_heads(p, &h, n, g + GROUPS_AHEAD);
        group_of(p, &h, out, g, &start, &len);
        const weft_shape *all = &info_of(p, out)->shape;
        part[g] = emit_turn(p, part[g], h.dim, h.dim == HEADS_DIM ? len : all->dim[h.dim], back.dim,
                            all->dim[back.dim], false);
    }
    if (weft_graph_check(p->to) == WEFT_OK) {
        p->home[out.id] = back;
        p->home[n->out[1].id] = choice->out[1];
        put_version(p, out, back, weft_concat(p->to, part, count, HEADS_DIM));
        check_local_shape(p, n, out, back, p->version[out.id][slot_of(back)]);
    }
    weft_free(part);
}

/* ---- products, tokens by chunks ------------------------------------------------------------- */

/* A product whose rows are sums over ranks (tensor parallel), chunk of tokens by chunk, and with it
 * what leads to it alone and looks at no other token: the first product of a feed-forward, or
 * attention of a chunk's queries to all keys:
 *
 *   kernels   attend 0, product 0 | attend 1, product 1 | attend 2, product 2 |       | concat
 *   wire                          | sum 0               | sum 1               | sum 2 |
 *
 * Where ranks keep tokens of the sums, each its own, a chunk has the same part of every rank's, so
 * that what a rank gets of all chunks are its tokens in their order. */
enum { TOKENS_DIM = 1 };

/* How many chunks there can be; 1: it is no such product. */
static int64_t chunks_apart(const axis_pass *p, const weft_node *n, const weft_recipe_row *row,
                            const weft_layout_choice *choice)
{
    const weft_shape *out = &weft_value_get(p->smallest, n->out[0])->shape,
                     *largest = &info_of(p, n->out[0])->shape;
    if (choice->out[0].kind != WEFT_P || out->rank < 3 || !out->dim[TOKENS_DIM])
        return 1;
    if (row->layout.kind == WEFT_R)
        return out->dim[TOKENS_DIM];
    const bool even =
        out->dim[TOKENS_DIM] % p->ranks == 0 && largest->dim[TOKENS_DIM] % p->ranks == 0;
    return row->layout.kind == WEFT_S && row->layout.dim == TOKENS_DIM && even
               ? out->dim[TOKENS_DIM] / p->ranks
               : 1;
}

/* Chunk c of the operand. */
static weft_value take_chunk(axis_pass *p, weft_value x, bool scatters, int32_t c, int32_t count)
{
    const int64_t tokens = weft_value_get(p->to, x)->shape.dim[TOKENS_DIM],
                  each = scatters ? tokens / p->ranks : tokens, start = c * each / count,
                  len = (c + 1) * each / count - start;
    if (!scatters)
        return weft_slice(p->to, x, TOKENS_DIM, start, len);
    weft_value *part = weft_alloc(p->ranks * (int64_t)sizeof *part), made = WEFT_NONE;
    if (!part) {
        weft_graph_fail(p->to, WEFT_E_MEMORY, "out of memory sharding a graph");
        return made;
    }
    for (int r = 0; r < p->ranks; r++)
        part[r] = weft_slice(p->to, x, TOKENS_DIM, r * each + start, len);
    made = weft_concat(p->to, part, p->ranks, TOKENS_DIM);
    weft_free(part);
    return made;
}

enum { CHAIN_MOST = 8 };
/* What leads to a product, from it backward, nodes of `to`; and what the first of them reads. */
typedef struct chain {
    const weft_node *node[CHAIN_MOST];
    int count;
    weft_value begin;
} chain;

/* A token of what it makes is made of that of its first operand, whatever the others are. */
static bool keeps_tokens(const weft_graph *g, const weft_node *n)
{
    const bool attends = n->op == WEFT_OP_ATTENTION;
    if (n->op != WEFT_OP_LINEAR && n->op != WEFT_OP_RESHAPE && n->op != WEFT_OP_GELU &&
        n->op != WEFT_OP_SILU && !attends)
        return false;
    const weft_shape *in = &weft_value_get(g, n->in[0])->shape,
                     *out = &weft_value_get(g, n->out[0])->shape;
    if (attends && (((const weft_attr_attention *)n->attr)->causal ||
                    (n->in_count > 3 && weft_value_ok(n->in[3]))))
        return false;
    return in->rank >= 3 && out->rank >= 3 && in->dim[0] == out->dim[0] &&
           in->dim[TOKENS_DIM] == out->dim[TOKENS_DIM];
}

/* Nothing of it is exchanged before the product: what is made of its nodes is as they were. What is
 * there of them whole is read by nobody then, and goes with the pass `order`. */
static void find_chain(const axis_pass *p, const weft_node *n, weft_value x, chain *c)
{
    weft_value v = n->in[0];
    *c = (chain){.begin = x};
    while (c->count < CHAIN_MOST) {
        const weft_node *was = weft_graph_node(p->from, info_of(p, v)->node),
                        *is = weft_graph_node(p->to, weft_value_get(p->to, c->begin)->node);
        const bool attends = is->op == WEFT_OP_ATTENTION;
        if (was->op != is->op || !keeps_tokens(p->to, is) || p->readers[v.id].all != 1 ||
            (attends && p->readers[was->out[1].id].all))
            return;
        c->node[c->count++] = is;
        c->begin = is->in[0];
        v = was->in[0];
        if (attends)
            return;
    }
}

/* The product's operand, of a chunk of what its chain begins with. */
static weft_value follow_chain(axis_pass *p, const chain *c, const char *scope, weft_value x)
{
    for (int k = c->count - 1; k >= 0 && weft_graph_check(p->to) == WEFT_OK; k--) {
        const weft_node *n = c->node[k];
        weft_value in[WEFT_MAX_INPUTS], made[WEFT_MAX_OUTPUTS];
        weft_shape shape = weft_value_get(p->to, n->out[0])->shape;
        shape.dim[TOKENS_DIM] = weft_value_get(p->to, x)->shape.dim[TOKENS_DIM];
        for (int i = 0; i < n->in_count; i++)
            in[i] = i ? n->in[i] : x;
        weft_graph_pop(p->to);
        weft_graph_push(p->to, "%s", n->scope);
        if (n->op == WEFT_OP_RESHAPE)
            made[0] = weft_reshape(p->to, x, shape);
        else
            weft_emit_all(p->to, n->op, in, n->in_count, n->attr, made);
        weft_graph_pop(p->to);
        weft_graph_push(p->to, "%s", scope);
        x = made[0];
        if (weft_value_ok(x)) /* that of a reshape of one head is not told by its operand */
            weft_graph_set_layout(p->to, x, weft_value_get(p->to, n->out[0])->layout);
    }
    return x;
}

static void emit_chunks(axis_pass *p, const weft_node *n, const weft_recipe_row *row,
                        const weft_layout_choice *choice, int32_t count)
{
    const bool scatters = row->layout.kind == WEFT_S;
    const weft_value out = n->out[0];
    weft_value *part = weft_alloc(count * (int64_t)sizeof *part);
    if (!part) {
        weft_graph_fail(p->to, WEFT_E_MEMORY, "out of memory sharding a graph");
        return;
    }
    for (int i = 0; i < n->in_count; i++)
        p->in[i] =
            weft_value_ok(n->in[i]) ? convert(p, n->in[i], weft_layout_need(choice, i)) : WEFT_NONE;
    chain lead;
    find_chain(p, n, p->in[0], &lead);
    for (int32_t c = 0; c < count && weft_graph_check(p->to) == WEFT_OK; c++) {
        p->in[0] = follow_chain(p, &lead, n->scope, take_chunk(p, lead.begin, scatters, c, count));
        weft_emit_all(p->to, n->op, p->in, n->in_count, n->attr, &part[c]);
        if (weft_graph_check(p->to) != WEFT_OK)
            break;
        weft_attr_comm attr = {.axis = p->axis};
        if (scatters) {
            attr.dim = TOKENS_DIM;
            attr.global = weft_value_get(p->to, part[c])->shape.dim[TOKENS_DIM];
        }
        part[c] = weft_emit(p->to, scatters ? WEFT_OP_REDUCE_SCATTER : WEFT_OP_ALL_REDUCE, &part[c],
                            1, &attr);
    }
    if (weft_graph_check(p->to) == WEFT_OK) {
        p->home[out.id] = row->layout;
        put_version(p, out, row->layout, weft_concat(p->to, part, count, TOKENS_DIM));
        check_local_shape(p, n, out, row->layout, p->version[out.id][slot_of(row->layout)]);
    }
    weft_free(part);
}

/* In how many portions the node's work is exchanged; WAITS: in those of the attention behind it. */
enum { WAITS = -1 };
static int32_t portions_of(const axis_pass *p, const weft_node *n, const weft_recipe_row *row,
                           const weft_layout_choice *choice)
{
    const weft_slices *slices = p->recipe->slices;
    if (!slices || slices->kind == WEFT_SLICES_OFF || choice->expansion || !p->last)
        return 1;
    const bool attends = row && n->op == WEFT_OP_ATTENTION && slices->heads > 1,
               sums = row && n->op == WEFT_OP_LINEAR && slices->chunks > 1;
    const int64_t most = attends ? heads_apart(p, n, row, choice)
                         : sums  ? chunks_apart(p, n, row, choice)
                                 : 1,
                  wanted = attends ? slices->heads : slices->chunks;
    if (slices->heads > 1 && waits_for_heads(p, n, choice))
        return WAITS;
    return (int32_t)(most < 2 ? 1 : wanted < most ? wanted : most);
}

static void convert_inputs(axis_pass *p, const weft_node *n, const weft_layout_choice *choice,
                           weft_value *in)
{
    for (int i = 0; i < n->in_count; i++)
        in[i] =
            weft_value_ok(n->in[i]) ? convert(p, n->in[i], weft_layout_need(choice, i)) : WEFT_NONE;
    for (int o = 0; o < n->out_count; o++)
        p->home[n->out[o].id] = choice->out[o];
}

static void set_outputs(axis_pass *p, const weft_expanded *m, const weft_layout_choice *choice)
{
    for (int o = 0; o < m->node->out_count; o++) {
        put_version(p, m->node->out[o], choice->out[o], m->out[o]);
        check_local_shape(p, m->node, m->node->out[o], choice->out[o], m->out[o]);
    }
}

/* The result in the layout of the recipe's row. */
static void convert_output(axis_pass *p, const weft_node *n, const weft_recipe_row *row)
{
    if (!row || weft_graph_check(p->to) != WEFT_OK ||
        !check_row(p, row, row->layout, n->scope, info_of(p, n->out[0])->shape.rank))
        return;
    p->held = row->held;
    p->piece = row->piece && p->recipe->slices && p->recipe->slices->kind != WEFT_SLICES_OFF;
    convert(p, n->out[0], row->layout);
    p->held = p->piece = false;
    p->home[n->out[0].id] = row->layout;
}

/* A later node of the same scope that reads the same operands but the first, which exists before
 * node `first`: its queries can read what is exchanged for that node. */
static bool joins(const axis_pass *p, int32_t first, int32_t later)
{
    const weft_node *a = weft_graph_node(p->from, first), *b = weft_graph_node(p->from, later);
    if (a->op != b->op || a->in_count != b->in_count || strcmp(a->scope, b->scope) ||
        info_of(p, b->in[0])->node >= first)
        return false;
    for (int i = 1; i < a->in_count; i++)
        if (a->in[i].id != b->in[i].id)
            return false;
    return true;
}

/* Expands node `first` and the nodes that join it. */
static void expand_group(axis_pass *p, int32_t first, const weft_layout_choice *choice)
{
    enum { NEAR = 64 }; /* nodes between the attentions of one block */
    weft_expanded member[WEFT_EXPANDED_MOST] = {{.node = weft_graph_node(p->from, first)}};
    const int32_t nodes = weft_graph_node_count(p->from), emitted = weft_graph_node_count(p->to);
    int count = 1;
    convert_inputs(p, member[0].node, choice, member[0].in);
    for (int32_t i = first + 1; i < nodes && i < first + NEAR && count < WEFT_EXPANDED_MOST; i++) {
        if (!joins(p, first, i))
            continue;
        p->plan[i] = *choice;
        p->portions[i] = 1;
        p->done[i] = true;
        member[count].node = weft_graph_node(p->from, i);
        convert_inputs(p, member[count].node, choice, member[count].in);
        count++;
    }
    choice->expansion->emit(p->to, p->from, member, count, p->axis);
    for (int32_t i = emitted; i < weft_graph_node_count(p->to); i++)
        weft_graph_node_mut(p->to, i)->backward = member[0].node->backward;
    for (int m = 0; m < count; m++) {
        set_outputs(p, &member[m], choice);
        if (m)
            convert_output(p, member[m].node, row_for_node(p, member[m].node));
    }
}

static void emit_plainly(axis_pass *p, const weft_node *n, const weft_layout_choice *choice)
{
    if (choice->expansion) {
        expand_group(p, info_of(p, n->out[0])->node, choice);
        return;
    }
    convert_inputs(p, n, choice, p->in);
    emit_node(p, n, p->in, choice->out);
}

/* Where attention is not in groups after all, or only other groups are there. */
static void make_waiting(axis_pass *p, const weft_node *n, int32_t portions)
{
    for (int i = 0; i < n->in_count && portions == 1; i++) {
        if (!weft_value_ok(n->in[i]) || !p->waiting[n->in[i].id])
            continue;
        const int32_t at = info_of(p, n->in[i])->node;
        p->waiting[n->in[i].id] = false;
        emit_plainly(p, weft_graph_node(p->from, at), &p->plan[at]);
    }
}

static void shard_node(axis_pass *p, const weft_node *n, weft_layout_choice *choice,
                       int32_t *portions)
{
    const weft_recipe_row *row = row_for_node(p, n);
    if (p->decides) {
        choose(p, n, row ? row->by : NULL, choice);
        *portions = portions_of(p, n, row, choice);
    }
    if (*portions == WAITS) {
        p->waiting[n->out[0].id] = true;
        p->home[n->out[0].id] = choice->out[0];
        return;
    }
    make_waiting(p, n, *portions);
    if (*portions > 1) {
        (n->op == WEFT_OP_ATTENTION ? emit_heads : emit_chunks)(p, n, row, choice, *portions);
        return;
    }
    emit_plainly(p, n, choice);
    convert_output(p, n, row);
}

static void shard_ends(axis_pass *p)
{
    int count;
    const weft_named *outputs = weft_graph_outputs(p->from, &count);
    for (int i = 0; i < count; i++) {
        const weft_recipe_row *row =
            weft_recipe_row_for(p->recipe, p->axis_name, outputs[i].name, false);
        if (row && !check_row(p, row, row->layout, outputs[i].name,
                              info_of(p, outputs[i].value)->shape.rank))
            return;
        weft_output(p->to, outputs[i].name,
                    convert(p, outputs[i].value, row ? row->layout : whole));
    }
    const weft_pair *updates = weft_graph_updates(p->from, &count);
    for (int i = 0; i < count; i++) {
        const weft_value source = updates[i].source, value = updates[i].value;
        if (!weft_value_ok(p->version[source.id][slot_of(p->home[source.id])]))
            emit_source(p, weft_graph_node(p->from, info_of(p, source)->node),
                        p->home[value.id].kind == WEFT_S ? p->home[value.id] : whole);
        const weft_layout home = p->home[source.id];
        weft_update(p->to, p->version[source.id][slot_of(home)], convert(p, value, home));
    }
}

static void count_readers(axis_pass *p)
{
    int count;
    const weft_named *output = weft_graph_outputs(p->from, &count);
    for (int i = 0; i < count; i++) {
        p->readers[output[i].value.id].all += 2;
        p->readers[output[i].value.id].others += 2;
    }
    const weft_pair *update = weft_graph_updates(p->from, &count);
    for (int i = 0; i < count; i++) {
        p->readers[update[i].value.id].all += 2;
        p->readers[update[i].value.id].others += 2;
    }
    for (int32_t n = 0; n < weft_graph_node_count(p->from); n++) {
        const weft_node *node = weft_graph_node(p->from, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            p->readers[node->in[i].id].all++;
            p->readers[node->in[i].id].others += node->op != WEFT_OP_ATTENTION || i >= 3;
        }
    }
}

/* ---- what is split early --------------------------------------------------------------------- */

/* A choice looks at operands only, so what stands before the first split of tokens is chosen whole
 * on every rank, and cut where that row stands:
 *
 *     data R ── views ── mix ── linear ── norm ─slice_own─> S(1)          as it was chosen first
 *     data R ── views ─slice_own─> S(1) ── mix ── linear ── norm          of the own tokens only
 *
 * What is whole and read in one split of dim 1 alone is made in that split instead, where its rule
 * offers that. In the backward the gradient of what is cut is gathered, and that of a parameter
 * which is read by the own tokens is summed: the cheaper of both. */
enum { NEVER_READ = -1, READ_OTHERWISE = -2 };

typedef struct early {
    axis_pass *p;
    bool *trained; /* by value: it has a gradient */
    int8_t *read;  /* by value: the dim along which its readers want it, or one of those above */
} early;

static double gradient_bytes(const early *e, weft_value v)
{
    return e->trained[v.id] ? bytes_of(e->p, v) * (e->p->ranks - 1) / e->p->ranks : 0;
}

/* What the gradients of its operands put on the wire more than now; INFINITY: it cannot be. */
static double early_cost(const early *e, const weft_node *n, const weft_layout_choice *c)
{
    const axis_pass *p = e->p;
    double cost = 0;
    for (int i = 0; i < n->in_count; i++) {
        if (!weft_value_ok(n->in[i]))
            continue;
        const weft_layout home = p->home[n->in[i].id], need = weft_layout_need(c, i);
        const int32_t at = info_of(p, n->in[i])->node;
        const bool source = weft_op_has(weft_graph_node(p->from, at)->op, WEFT_TRAIT_NAMED);
        if (same(home, need))
            continue;
        if (home.kind != WEFT_R || need.kind == WEFT_P)
            return INFINITY;
        if (weft_value_ok(
                p->version[n->in[i].id][slot_of(need)])) /* somebody wants it so already */
            continue;
        if (need.kind == WEFT_S) /* else it may be split early itself */
            cost += source || p->readers[n->in[i].id].all > 1 ? gradient_bytes(e, n->in[i]) : 0;
        else
            cost += 2 * gradient_bytes(e, n->in[i]);
    }
    return cost;
}

static bool find_early(const early *e, const weft_node *n, int dim, weft_layout_choice *best)
{
    const axis_pass *p = e->p;
    weft_layout_choice choice[WEFT_MAX_CHOICES];
    const int count = weft_op_get(n->op)->layout(p->from, n, p->ranks, choice);
    const double gain = gradient_bytes(e, n->out[0]);
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        const weft_layout out = choice[i].out[0];
        if (choice[i].expansion || out.kind != WEFT_S || out.dim != dim ||
            !fits_all_ranks(p, n, &choice[i]))
            continue;
        mark_varying(n, &choice[i]);
        const double cost = early_cost(e, n, &choice[i]);
        if (cost < least && cost <= gain) {
            least = cost;
            *best = choice[i];
        }
    }
    return !isinf(least);
}

static void read_as(early *e, weft_value v, weft_layout need, bool counts)
{
    const int8_t dim = counts && need.kind == WEFT_S ? need.dim : READ_OTHERWISE;
    int8_t *read = &e->read[v.id];
    *read = *read == NEVER_READ || *read == dim ? dim : READ_OTHERWISE;
}

static bool split_early(early *e, int32_t index)
{
    axis_pass *p = e->p;
    const weft_node *n = weft_graph_node(p->from, index);
    const weft_recipe_row *row = row_for_node(p, n);
    weft_layout_choice *choice = &p->plan[index];
    const bool cut = row && row->layout.kind == WEFT_S && row->layout.dim == TOKENS_DIM;
    const int dim = cut ? TOKENS_DIM : e->read[n->out[0].id];
    bool made = false;
    if (n->out_count == 1 && p->portions[index] == 1 && choice->out[0].kind == WEFT_R &&
        !choice->expansion && (!row || (cut && !row->by && !row->held && !row->piece)) && dim >= 0)
        made = find_early(e, n, dim, choice);
    for (int i = 0; i < n->in_count; i++) {
        const weft_layout need = weft_layout_need(choice, i);
        if (weft_value_ok(n->in[i]))
            read_as(e, n->in[i], need, p->portions[index] == 1 && (made || need.dim == TOKENS_DIM));
    }
    return made;
}

static void find_trained(early *e)
{
    const weft_graph *g = e->p->from;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        bool trained = n->op == WEFT_OP_PARAM;
        for (int k = 0; k < n->in_count; k++)
            trained = trained || (weft_value_ok(n->in[k]) && e->trained[n->in[k].id]);
        for (int o = 0; o < n->out_count; o++)
            if (weft_value_ok(n->out[o]))
                e->trained[n->out[o].id] =
                    trained && weft_dtype_is_float(info_of(e->p, n->out[o])->dtype);
    }
}

/* Changes the plan; *changed: it has to be followed once more. */
static weft_status plan_early(axis_pass *p, bool *changed)
{
    const int64_t values = weft_graph_value_count(p->from) + 1;
    int count;
    early e = {.p = p, .trained = weft_alloc(values), .read = weft_alloc(values)};
    if (!e.trained || !e.read) {
        weft_free(e.trained);
        weft_free(e.read);
        return weft_fail(WEFT_E_MEMORY, "out of memory sharding a graph");
    }
    memset(e.read, NEVER_READ, (size_t)values);
    find_trained(&e);
    const weft_named *output = weft_graph_outputs(p->from, &count);
    for (int i = 0; i < count; i++)
        read_as(&e, output[i].value, whole, false);
    const weft_pair *update = weft_graph_updates(p->from, &count);
    for (int i = 0; i < count; i++)
        read_as(&e, update[i].value, whole, false);
    for (int32_t i = weft_graph_node_count(p->from) - 1; i >= 0; i--)
        if (!weft_op_has(weft_graph_node(p->from, i)->op, WEFT_TRAIT_NAMED))
            *changed = split_early(&e, i) || *changed;
    weft_free(e.trained);
    weft_free(e.read);
    return WEFT_OK;
}

static weft_status shard_axis(axis_pass *p)
{
    weft_status_code status = WEFT_OK;
    const int64_t values = weft_graph_value_count(p->from);
    p->version = weft_alloc(values * (int64_t)sizeof *p->version);
    p->home = weft_alloc(values * (int64_t)sizeof *p->home);
    p->gather = weft_alloc(values);
    p->in = weft_alloc(weft_graph_most_inputs(p->from) * (int64_t)sizeof *p->in);
    p->readers = weft_alloc(values * (int64_t)sizeof *p->readers);
    p->waiting = weft_alloc(values);
    p->grouped = weft_alloc(values * (int64_t)sizeof *p->grouped);
    p->done = weft_alloc((int64_t)weft_graph_node_count(p->from) + 1);
    if (!p->version || !p->home || !p->gather || !p->in || !p->readers || !p->waiting ||
        !p->grouped || !p->done) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory sharding a graph of %lld values",
                           (long long)values);
        goto out;
    }
    count_readers(p);
    for (int64_t v = 0; v < values; v++)
        for (int s = 0; s < SLOTS; s++)
            p->version[v][s] = WEFT_NONE;
    for (int32_t i = 0; i < weft_graph_node_count(p->from) && weft_graph_check(p->to) == WEFT_OK;
         i++) {
        const weft_node *n = weft_graph_node(p->from, i);
        if (weft_op_has(n->op, WEFT_TRAIT_NAMED)) {
            shard_source(p, n);
            continue;
        }
        if (p->done[i])
            continue;
        weft_graph_push(p->to, "%s", n->scope);
        shard_node(p, n, &p->plan[i], &p->portions[i]);
        weft_graph_pop(p->to);
    }
    if (weft_graph_check(p->to) == WEFT_OK)
        shard_ends(p);
    status = weft_graph_check(p->to);
    if (status == WEFT_OK && p->decides)
        status = plan_early(p, &p->again);
out:
    weft_free(p->version);
    weft_free(p->home);
    weft_free(p->gather);
    weft_free(p->in);
    weft_free(p->readers);
    weft_free(p->waiting);
    for (int64_t v = 0; p->grouped && v < values; v++) {
        weft_free(p->grouped[v].slice);
        weft_free(p->grouped[v].made);
    }
    weft_free(p->grouped);
    weft_free(p->done);
    return status;
}

/* ---- the pass ------------------------------------------------------------------------------ */

/* The axis before which layers are sliced; -1: they are not. Stages hand over one value. */
static int recipe_cuts(const weft_recipe *recipe, const weft_mesh *mesh)
{
    const char *axis = recipe->slices ? weft_slices_axis(recipe, mesh) : NULL;
    const int stages = weft_mesh_axis(mesh, WEFT_STAGES_AXIS);
    return axis && (stages < 0 || mesh->axis[stages].size == 1) ? weft_mesh_axis(mesh, axis) : -1;
}

/* Axes of more than one rank in the order in which the recipe first names them, and last that of
 * slices, so that they are cut of what a rank has; the others leave all values R. */
static int axis_order(const weft_mesh *mesh, const weft_recipe *recipe, int order[WEFT_MAX_AXES])
{
    int count = 0;
    const int cut = recipe_cuts(recipe, mesh);
    for (int r = 0; r < recipe->count; r++) {
        const int axis = weft_mesh_axis(mesh, recipe->row[r].axis);
        bool known = axis < 0 || mesh->axis[axis].size == 1 || axis == cut;
        for (int i = 0; i < count; i++)
            known |= order[i] == axis;
        if (!known)
            order[count++] = axis;
    }
    if (cut >= 0)
        order[count++] = cut;
    return count;
}

/* The graphs that are split in step: that on which the choices are made first. */
typedef struct team {
    int count;
    int rank[3];
    weft_graph *graph[3]; /* owned */
} team;

static void team_free(team *t)
{
    for (int i = 0; i < t->count; i++)
        weft_graph_free(t->graph[i]);
}

/* A row of the axis is about what nodes make. */
static bool lays_out(const weft_recipe *recipe, const weft_mesh *mesh, int axis)
{
    for (int r = 0; r < recipe->count; r++)
        if (!strcmp(recipe->row[r].axis, mesh->axis[axis].name) &&
            strchr(recipe->row[r].pattern, ':'))
            return true;
    return false;
}

/* In the place of *made. */
static weft_status follow_axis(axis_pass *p, const weft_mesh *mesh, int rank, weft_graph **made)
{
    weft_graph_free(*made);
    *made = p->to = weft_graph_create();
    if (!p->to)
        return weft_fail(WEFT_E_MEMORY, "out of memory sharding a graph");
    weft_graph_set_mesh(p->to, mesh, rank);
    return shard_axis(p);
}

static weft_status team_step(team *t, const weft_mesh *mesh, int axis, const weft_recipe *recipe,
                             bool last)
{
    weft_status_code status = WEFT_OK;
    weft_graph *next[3] = {NULL};
    const int64_t nodes = weft_graph_node_count(t->graph[0]);
    weft_layout_choice *plan = weft_alloc((nodes + 1) * (int64_t)sizeof *plan);
    int32_t *portions = weft_alloc((nodes + 1) * (int64_t)sizeof *portions);
    if (!plan || !portions) {
        weft_free(plan);
        weft_free(portions);
        return weft_fail(WEFT_E_MEMORY, "out of memory sharding a graph of %lld nodes",
                         (long long)nodes);
    }
    for (int i = 0; i < t->count && status == WEFT_OK; i++) {
        int coordinate[WEFT_MAX_AXES];
        weft_mesh_coordinates(mesh, t->rank[i], coordinate);
        axis_pass p = {.from = t->graph[i],
                       .recipe = recipe,
                       .axis_name = mesh->axis[axis].name,
                       .axis = axis,
                       .ranks = mesh->axis[axis].size,
                       .index = coordinate[axis],
                       .smallest = t->graph[t->count > 1 ? 1 : 0],
                       .plan = plan,
                       .portions = portions,
                       .decides = i == 0,
                       .last = last};
        status = follow_axis(&p, mesh, t->rank[i], &next[i]);
        if (status == WEFT_OK && p.again) {
            p.decides = false;
            status = follow_axis(&p, mesh, t->rank[i], &next[i]);
        }
    }
    weft_free(plan);
    weft_free(portions);
    for (int i = 0; i < t->count; i++) {
        weft_graph_free(status == WEFT_OK ? t->graph[i] : next[i]);
        t->graph[i] = status == WEFT_OK ? next[i] : t->graph[i];
    }
    return status;
}

/* All of the team alike; where axes before have left some ranks fewer samples, none. */
static weft_status team_slice(team *t, const weft_recipe *recipe)
{
    weft_status_code status = WEFT_OK;
    weft_graph *sliced[3] = {NULL};
    bool alike = true;
    for (int i = 0; i < t->count && status == WEFT_OK; i++) {
        status = weft_pass_slice(t->graph[i], recipe, recipe->slices, &sliced[i]);
        alike = alike && status == WEFT_OK && sliced[i] &&
                weft_graph_node_count(sliced[i]) == weft_graph_node_count(sliced[0]);
    }
    for (int i = 0; i < t->count; i++) {
        weft_graph_free(alike ? t->graph[i] : sliced[i]);
        t->graph[i] = alike ? sliced[i] : t->graph[i];
    }
    return status;
}

weft_status weft_pass_shard(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph **out)
{
    WEFT_TRY(weft_graph_check(g));
    const int ranks = weft_mesh_ranks(mesh);
    if (rank < 0 || rank >= ranks)
        return weft_fail(WEFT_E_ARG, "rank %d is not in a mesh of %d ranks", rank, ranks);
    WEFT_TRY(weft_recipe_check(recipe, g, mesh));
    int order[WEFT_MAX_AXES];
    const int axes = axis_order(mesh, recipe, order);
    weft_graph *by_expert = NULL; /* owned */
    WEFT_TRY(weft_pass_experts(g, mesh, recipe, &by_expert));
    g = by_expert ? by_expert : g;
    team t = {.count = 1, .rank = {rank}};
    if (axes > 1) /* the extremes, and this rank where it is neither */
        t = (team){.count = rank == 0 || rank == ranks - 1 ? 2 : 3, .rank = {0, ranks - 1, rank}};
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < t.count && status == WEFT_OK; i++) {
        t.graph[i] = weft_graph_create();
        status = t.graph[i] ? weft_shard_open(g, mesh, t.rank[i], recipe, t.graph[i])
                            : weft_fail(WEFT_E_MEMORY, "out of memory sharding a graph");
    }
    for (int i = 0; i < axes && status == WEFT_OK; i++) {
        if (order[i] == recipe_cuts(recipe, mesh))
            status = team_slice(&t, recipe);
        bool last = true;
        for (int k = i + 1; k < axes; k++)
            last = last && !lays_out(recipe, mesh, order[k]);
        if (status == WEFT_OK)
            status = team_step(&t, mesh, order[i], recipe, last);
    }
    const int own = axes > 1 && rank > 0 ? t.count - 1 : 0;
    if (status == WEFT_OK)
        status = weft_graph_verify(t.graph[own]);
    if (status == WEFT_OK) {
        *out = t.graph[own];
        t.graph[own] = NULL;
    }
    team_free(&t);
    weft_graph_free(by_expert);
    return status;
}
