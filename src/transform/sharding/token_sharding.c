/* Data and loss in token order: a preparation of the shard pass if an axis splits tokens.
 *
 * A model begins by cutting data into patches, and ends by joining tokens to a prediction with the
 * data's shape. So noise, target and loss would be computed for all data on every rank. None of
 * these nodes mixes positions, so they are moved after the views, where they can be split by
 * tokens.
 *
 *     x, noise (B,T,Y,X,Z) ─ mix ─ conv3d ─ view (B,S,C) ─ blocks ─ y (B,S,K) ─ views ─┐
 *          └────────── target ───────────────────────────────────────────────────────── sub ─ sum
 *   becomes
 *     x, noise ─ views (B,S,K) ─ mix ─ linear (B,S,C) ─ blocks ─ y (B,S,K) ─┐
 *          └──── views (B,S,K) ─ target ───────────────────────────────────── sub ─ sum
 *
 * Moved nodes: a sum over all elements after elementwise ops, each with one trained operand that
 * comes through views that keep the batch (reshapes, permutes). Also elementwise ops on untrained
 * data, before views and before convolutions whose windows do not overlap. All other nodes (a given
 * frame, a layer after the views) read the same values as before. */
#include "transform/sharding/token_sharding.h"

#include "graph/builder_helpers.h"
#include "graph/rewrite.h"

enum { TOKENS_DIM = 1, STEPS_MOST = 12, CHAINS_MOST = 16, SPINE_MOST = 32, CONSUMERS_MANY = 2 };

/* Consecutive reshapes and permutes that keep dim 0. */
typedef struct chain {
    weft_shape from, to;
    int count;
    struct {
        bool permutes;
        weft_shape shape; /* shape of the result */
        int perm[WEFT_MAX_RANK];
    } step[STEPS_MOST];
} chain;

typedef struct tokens {
    weft_rewrite r;
    bool *trained;           /* per value: depends on a parameter */
    int32_t *consumer_count; /* per value; an output or update counts as several */
    int32_t *consumer;       /* per value: node of its last consumer */
    bool *skipped;           /* per node: emitted by another node's rewrite, or removed */
    int32_t *loss;           /* per node: index in `spine` of a loss sum; -1: none */
    struct spine {
        int count;
        int32_t node[SPINE_MOST]; /* sorted from the sum to the prediction */
        int32_t side[SPINE_MOST]; /* binary op: index of the untrained operand; -1: unary op */
        weft_value tokens;
        int chain; /* index of the chain from the data's order to token order */
    } spine[CHAINS_MOST];
    int spines;
    chain chain[CHAINS_MOST];
    weft_value *viewed[CHAINS_MOST]; /* per value: the value after the chain */
    int chains;
} tokens;

static const weft_node *maker_of(const weft_graph *g, weft_value v)
{
    return weft_graph_node(g, weft_value_get(g, v)->node);
}

static const weft_shape *shape_of(const weft_graph *g, weft_value v)
{
    return &weft_value_get(g, v)->shape;
}

static bool is_pointwise(weft_op op)
{
    return weft_op_get(op)->position == WEFT_POSITION_point;
}

/* Returns true for one value per sample, or one value in total. */
static bool is_row(const weft_shape *s)
{
    for (int d = 1; d < s->rank; d++)
        if (s->dim[d] != 1)
            return false;
    return true;
}

static bool is_view(const weft_graph *g, const weft_node *n)
{
    if (n->op == WEFT_OP_PERMUTE)
        return ((const weft_attr_permute *)n->attr)->perm[0] == 0;
    if (n->op != WEFT_OP_RESHAPE)
        return false;
    const weft_shape *in = shape_of(g, n->in[0]), *out = shape_of(g, n->out[0]);
    return in->rank >= 3 && out->rank >= 3 && in->dim[0] == out->dim[0];
}

static bool chain_add(const weft_graph *g, const weft_node *n, chain *c)
{
    if (c->count == STEPS_MOST)
        return false;
    c->to = *shape_of(g, n->out[0]);
    c->step[c->count].permutes = n->op == WEFT_OP_PERMUTE;
    c->step[c->count].shape = c->to;
    if (n->op == WEFT_OP_PERMUTE)
        memcpy(c->step[c->count].perm, ((const weft_attr_permute *)n->attr)->perm,
               sizeof c->step[c->count].perm);
    c->count++;
    return true;
}

static chain chain_back(const chain *c)
{
    chain back = {.from = c->to, .to = c->from, .count = c->count};
    for (int i = 0; i < c->count; i++) {
        const int was = c->count - 1 - i;
        back.step[i].permutes = c->step[was].permutes;
        back.step[i].shape = was ? c->step[was - 1].shape : c->from;
        for (int d = 0; c->step[was].permutes && d < c->to.rank && d < WEFT_MAX_RANK; d++)
            if (d < back.step[i].shape.rank)
                back.step[i].perm[c->step[was].perm[d]] = d;
    }
    return back;
}

static bool chain_same(const chain *a, const chain *b)
{
    bool same = a->count == b->count && weft_shape_equal(&a->from, &b->from);
    for (int i = 0; same && i < a->count; i++) {
        same = a->step[i].permutes == b->step[i].permutes &&
               weft_shape_equal(&a->step[i].shape, &b->step[i].shape);
        for (int d = 0; same && a->step[i].permutes && d < a->step[i].shape.rank; d++)
            same = a->step[i].perm[d] == b->step[i].perm[d];
    }
    return same;
}

/* Index of the chain, which is added if it is new; -1: the limit is reached. */
static int chain_intern(tokens *t, const chain *c)
{
    for (int i = 0; i < t->chains; i++)
        if (chain_same(&t->chain[i], c))
            return i;
    if (t->chains == CHAINS_MOST)
        return -1;
    const int64_t values = weft_graph_value_count(t->r.from);
    weft_value *viewed = weft_calloc(values + 1, sizeof *viewed);
    if (!viewed) {
        weft_graph_fail(t->r.to, WEFT_MSG_OUT_OF_MEMORY, "out of memory for views");
        return -1;
    }
    for (int64_t v = 0; v < values; v++)
        viewed[v] = WEFT_NONE;
    t->viewed[t->chains] = viewed;
    t->chain[t->chains] = *c;
    return t->chains++;
}

/* ---- moving values after the views --------------------------------------------------------- */

static weft_value view_as_is(tokens *t, const chain *c, weft_value v)
{
    weft_value x = t->r.map[v.id];
    for (int i = 0; i < c->count; i++)
        x = c->step[i].permutes ? weft_permute(t->r.to, x, c->step[i].perm)
                                : weft_reshape(t->r.to, x, c->step[i].shape);
    return x;
}

/* Emits a row in the rank of the chain's result. */
static weft_value row_as_is(tokens *t, const chain *c, weft_value v)
{
    weft_shape row = {.rank = c->to.rank};
    for (int d = 0; d < row.rank; d++)
        row.dim[d] = d ? 1 : shape_of(t->r.from, v)->dim[0];
    return weft_reshape(t->r.to, t->r.map[v.id], row);
}

/* Returns true if an untrained elementwise op computes `v` from operands with all elements or one
 * per sample. */
static bool can_move_after(const tokens *t, const chain *c, weft_value v)
{
    const weft_graph *g = t->r.from;
    const weft_node *n = maker_of(g, v);
    bool goes = is_pointwise(n->op) && !t->trained[v.id];
    for (int i = 0; goes && i < n->in_count; i++) {
        const weft_shape *in = shape_of(g, n->in[i]);
        goes = weft_shape_equal(in, &c->from) || (in->rank == c->from.rank && is_row(in));
    }
    return goes;
}

/* Emits `v`, which has the chain's first shape, in the order after the chain. */
static weft_value apply_chain(tokens *t, int which, weft_value v)
{
    const chain *c = &t->chain[which];
    weft_value *made = &t->viewed[which][v.id];
    if (weft_value_ok(*made) || weft_graph_check(t->r.to) != WEFT_OK)
        return *made;
    const weft_node *n = maker_of(t->r.from, v);
    if (!can_move_after(t, c, v)) {
        *made = view_as_is(t, c, v);
        return *made;
    }
    weft_value in[2] = {WEFT_NONE, WEFT_NONE};
    for (int i = 0; i < n->in_count; i++)
        in[i] = weft_shape_equal(shape_of(t->r.from, n->in[i]), &c->from)
                    ? apply_chain(t, which, n->in[i])
                    : row_as_is(t, c, n->in[i]);
    *made = weft_emit(t->r.to, n->op, in, n->in_count, n->attr);
    return *made;
}

/* ---- the loss -------------------------------------------------------------------------------- */

static bool read_once(const tokens *t, weft_value v)
{
    return t->consumer_count[v.id] == 1;
}

/* Index of the only trained operand of an elementwise op, with the result's shape. The other
 * operand must have the same shape or one value per sample. -1: not such an op. */
static int trained_operand(const tokens *t, const weft_node *n)
{
    const weft_graph *g = t->r.from;
    const weft_shape *out = shape_of(g, n->out[0]);
    int which = -1;
    for (int i = 0; i < n->in_count; i++) {
        const weft_shape *in = shape_of(g, n->in[i]);
        const bool all = weft_shape_equal(in, out);
        if (t->trained[n->in[i].id]) {
            if (which >= 0 || !all)
                return -1;
            which = i;
        } else if (!all && !(in->rank == out->rank && is_row(in))) {
            return -1;
        }
    }
    return which;
}

/* Finds a loss: traces a sum over all elements back to the views. */
static void find_loss(tokens *t, int32_t index)
{
    const weft_graph *g = t->r.from;
    const weft_node *n = weft_graph_node(g, index);
    struct spine *s = &t->spine[t->spines];
    const weft_node *view[STEPS_MOST];
    weft_value v = n->in[0];
    chain c = {0};
    int views = 0, trained;
    if (t->spines == CHAINS_MOST || !t->trained[v.id] || shape_of(g, v)->rank < 3 ||
        ((const weft_attr_sum *)n->attr)->dims != (1u << shape_of(g, v)->rank) - 1)
        return;
    *s = (struct spine){.count = 1, .node = {index}};
    for (n = maker_of(g, v); is_pointwise(n->op) && read_once(t, v) && s->count < SPINE_MOST;
         n = maker_of(g, v)) {
        if ((trained = trained_operand(t, n)) < 0)
            return;
        s->side[s->count] = n->in_count == 2 ? 1 - trained : -1;
        s->node[s->count++] = weft_value_get(g, v)->node;
        v = n->in[trained];
    }
    for (; views < STEPS_MOST && is_view(g, n) && read_once(t, v); n = maker_of(g, v)) {
        view[views++] = n;
        v = n->in[0];
    }
    if (!views || s->count == 1)
        return;
    c.from = *shape_of(g, v);
    for (int i = views - 1; i >= 0; i--)
        chain_add(g, view[i], &c);
    c = chain_back(&c);
    s->tokens = v;
    s->chain = chain_intern(t, &c);
    if (s->chain < 0)
        return;
    for (int i = 0; i < s->count; i++)
        t->skipped[s->node[i]] = true;
    for (int i = 0; i < views; i++)
        t->skipped[weft_value_get(g, view[i]->out[0])->node] = true;
    t->loss[index] = t->spines++;
}

static void take_loss(tokens *t, const struct spine *s)
{
    const weft_graph *g = t->r.from;
    const chain *c = &t->chain[s->chain];
    const weft_node *sum = weft_graph_node(g, s->node[0]);
    weft_value x = t->r.map[s->tokens.id];
    for (int k = s->count - 1; k > 0; k--) {
        const weft_node *n = weft_graph_node(g, s->node[k]);
        const int side = s->side[k];
        weft_value in[2] = {x, WEFT_NONE};
        weft_graph_push(t->r.to, "%s", n->scope);
        if (side >= 0) {
            const weft_value other = n->in[side];
            in[1 - side] = x;
            in[side] = weft_shape_equal(shape_of(g, other), &c->from)
                           ? apply_chain(t, s->chain, other)
                           : row_as_is(t, c, other);
        }
        x = weft_emit(t->r.to, n->op, in, n->in_count, n->attr);
        weft_graph_pop(t->r.to);
    }
    weft_graph_push(t->r.to, "%s", sum->scope);
    x = weft_sum(t->r.to, x, (1u << c->to.rank) - 1);
    t->r.map[sum->out[0].id] = weft_reshape(t->r.to, x, *shape_of(g, sum->out[0]));
    weft_graph_pop(t->r.to);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Returns true for a convolution of untrained data with adjacent windows that do not overlap, whose
 * result is read as tokens: (B,T,Y,X,I) -> (B,S,O). */
static bool is_patches(const tokens *t, const weft_node *n)
{
    const weft_graph *g = t->r.from;
    if (n->op != WEFT_OP_CONV3D || t->trained[n->in[0].id] || !read_once(t, n->out[0]))
        return false;
    const weft_attr_conv *a = n->attr;
    const weft_shape *x = shape_of(g, n->in[0]), *w = shape_of(g, n->in[1]),
                     *y = shape_of(g, n->out[0]);
    const weft_node *consumer = weft_graph_node(g, t->consumer[n->out[0].id]);
    for (int d = 0; d < 3; d++)
        if (a->before[d] || a->after[d] || a->stride[d] != w->dim[2 + d] ||
            x->dim[1 + d] != y->dim[1 + d] * w->dim[2 + d])
            return false;
    if (consumer->op != WEFT_OP_RESHAPE)
        return false;
    const weft_shape *s = shape_of(g, consumer->out[0]);
    return s->rank == 3 && s->dim[0] == y->dim[0] && s->dim[2] == y->dim[4];
}

static void add_reshape(chain *c, weft_shape shape)
{
    c->to = shape;
    c->step[c->count].permutes = false;
    c->step[c->count++].shape = shape;
}

static void add_permute(chain *c, const int *perm)
{
    const weft_shape from = c->to;
    c->step[c->count].permutes = true;
    for (int d = 0; d < from.rank; d++) {
        c->step[c->count].perm[d] = perm[d];
        c->to.dim[d] = from.dim[perm[d]];
    }
    c->step[c->count++].shape = c->to;
}

/* The chain from (B,T,Y,X,I) to (B,S,I kt ky kx), with windows in the order of the weight. */
static chain patches_chain(const weft_shape *x, const weft_shape *w)
{
    static const int perm[] = {0, 1, 3, 2, 4}, last[] = {0, 1, 3, 2};
    const int64_t b = x->dim[0], kt = w->dim[2], ky = w->dim[3], kx = w->dim[4], i = x->dim[4],
                  t = x->dim[1] / kt, rows = x->dim[2] / ky, columns = x->dim[3] / kx;
    chain c = {.from = *x};
    if (ky > 1) {
        add_reshape(&c, WEFT_SHAPE(b, x->dim[1] * rows, ky, columns, kx * i));
        add_permute(&c, perm);
    }
    if (kt > 1) {
        add_reshape(&c, WEFT_SHAPE(b, t, kt, rows * columns, ky * kx * i));
        add_permute(&c, perm);
    }
    add_reshape(&c, WEFT_SHAPE(b, t * rows * columns, kt * ky * kx, i));
    if (kt * ky * kx > 1 && i > 1)
        add_permute(&c, last);
    add_reshape(&c, WEFT_SHAPE(b, t * rows * columns, kt * ky * kx * i));
    return c;
}

static bool take_patches(tokens *t, const weft_node *n)
{
    const weft_graph *g = t->r.from;
    const weft_shape *x = shape_of(g, n->in[0]), *w = shape_of(g, n->in[1]);
    const chain c = patches_chain(x, w);
    const int which = chain_intern(t, &c);
    if (which < 0)
        return false;
    const int64_t inner = c.to.dim[2];
    const bool biased = n->in_count > 2 && weft_value_ok(n->in[2]);
    const weft_value in[3] = {
        apply_chain(t, which, n->in[0]),
        weft_reshape(t->r.to, t->r.map[n->in[1].id], WEFT_SHAPE(w->dim[0], inner)),
        biased ? t->r.map[n->in[2].id] : WEFT_NONE};
    const int32_t consumer = t->consumer[n->out[0].id];
    t->r.map[weft_graph_node(g, consumer)->out[0].id] =
        weft_emit(t->r.to, WEFT_OP_LINEAR, in, biased ? 3 : 2, &(weft_attr_linear){0});
    t->skipped[consumer] = true;
    return true;
}

/* Replaces a view of elementwise results by elementwise ops after the view. Returns false if it
 * cannot. */
static bool take_view(tokens *t, const weft_node *n)
{
    const weft_graph *g = t->r.from;
    const weft_node *view[STEPS_MOST];
    int views = 0, which;
    chain c = {0};
    weft_value v = n->out[0];
    if (t->trained[v.id] || !is_view(g, n))
        return false;
    for (; views < STEPS_MOST && is_view(g, maker_of(g, v)); v = view[views - 1]->in[0])
        view[views++] = maker_of(g, v);
    c.from = *shape_of(g, v);
    if (!can_move_after(t, &c, v))
        return false;
    for (int i = views - 1; i >= 0; i--)
        chain_add(g, view[i], &c);
    if ((which = chain_intern(t, &c)) < 0)
        return false;
    t->r.map[n->out[0].id] = apply_chain(t, which, v);
    return true;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static bool splits_tokens(const weft_mesh *mesh, const weft_recipe *recipe)
{
    for (int i = 0; i < recipe->count; i++) {
        const weft_recipe_row *row = &recipe->row[i];
        const int axis = weft_mesh_axis(mesh, row->axis);
        if (axis >= 0 && mesh->axis[axis].size > 1 && strchr(row->pattern, ':') &&
            row->layout.kind == WEFT_S && row->layout.dim == TOKENS_DIM)
            return true;
    }
    return false;
}

static void analyse(tokens *t)
{
    const weft_graph *g = t->r.from;
    int count;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        bool trained = n->op == WEFT_OP_PARAM;
        for (int k = 0; k < n->in_count; k++) {
            if (!weft_value_ok(n->in[k]))
                continue;
            trained = trained || t->trained[n->in[k].id];
            t->consumer_count[n->in[k].id]++;
            t->consumer[n->in[k].id] = i;
        }
        for (int o = 0; o < n->out_count; o++)
            if (weft_value_ok(n->out[o]))
                t->trained[n->out[o].id] = trained;
        t->loss[i] = -1;
    }
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        t->consumer_count[output[i].value.id] += CONSUMERS_MANY;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        t->consumer_count[update[i].value.id] += CONSUMERS_MANY;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++)
        if (weft_graph_node(g, i)->op == WEFT_OP_SUM)
            find_loss(t, i);
}

static void take_node(tokens *t, int32_t index)
{
    const weft_node *n = weft_graph_node(t->r.from, index);
    if (t->loss[index] >= 0)
        take_loss(t, &t->spine[t->loss[index]]);
    if (t->skipped[index])
        return;
    weft_graph_push(t->r.to, "%s", n->scope);
    const bool taken = (is_patches(t, n) && take_patches(t, n)) || take_view(t, n);
    weft_graph_pop(t->r.to);
    if (!taken)
        weft_rewrite_node(&t->r, index, NULL);
}

/* Copies the graph without dead nodes. Sources stay. */
static weft_status without_dead(const weft_graph *g, weft_graph **out)
{
    const int32_t nodes = weft_graph_node_count(g);
    weft_rewrite r;
    int count;
    bool *live;
    WEFT_TRY(WEFT_NEW(live, nodes + 1, "%d nodes", (int)nodes));
    const weft_status_code begun = weft_rewrite_begin(g, &r);
    if (begun != WEFT_OK) {
        weft_free(live);
        return begun;
    }
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        live[weft_value_get(g, output[i].value)->node] = true;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        live[weft_value_get(g, update[i].value)->node] = true;
    for (int32_t i = nodes - 1; i >= 0; i--) {
        const weft_node *n = weft_graph_node(g, i);
        live[i] = live[i] || weft_op_has(n->op, WEFT_TRAIT_NAMED);
        for (int k = 0; live[i] && k < n->in_count; k++)
            if (weft_value_ok(n->in[k]))
                live[weft_value_get(g, n->in[k])->node] = true;
    }
    for (int32_t i = 0; i < nodes; i++)
        if (live[i])
            weft_rewrite_node(&r, i, NULL);
    weft_free(live);
    return weft_rewrite_finish(&r, "tokens", out);
}

static void end(tokens *t)
{
    weft_rewrite_abandon(&t->r);
    weft_free(t->trained);
    weft_free(t->consumer_count);
    weft_free(t->consumer);
    weft_free(t->skipped);
    weft_free(t->loss);
    for (int i = 0; i < t->chains; i++)
        weft_free(t->viewed[i]);
}

weft_status weft_pass_token_sharding(const weft_graph *g, const weft_mesh *mesh,
                                     const weft_recipe *recipe, weft_graph **out)
{
    const int64_t values = weft_graph_value_count(g) + 1, nodes = weft_graph_node_count(g) + 1;
    weft_graph *all = NULL;
    tokens t = {0};
    *out = NULL;
    if (!splits_tokens(mesh, recipe))
        return WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &t.r));
    t.trained = weft_alloc(values);
    t.consumer_count = weft_calloc(values, sizeof *t.consumer_count);
    t.consumer = weft_calloc(values, sizeof *t.consumer);
    t.skipped = weft_alloc(nodes);
    t.loss = weft_calloc(nodes, sizeof *t.loss);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(t.trained && t.consumer_count && t.consumer && t.skipped && t.loss,
                           "tokens"));
    analyse(&t);
    if (!t.spines)
        goto out;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++)
        take_node(&t, i);
    WEFT_GO(weft_rewrite_finish(&t.r, "tokens", &all));
    WEFT_GO(without_dead(all, out));
out:
    weft_graph_free(all);
    end(&t);
    return status;
}
