/* Reorders nodes. Dead nodes are removed, and collectives start as early as their operands allow.
 * While a collective runs, nodes that do not need its result come first.
 *
 *   before   g1  R1  n1(R1)  g2  R2  n2(R2)  ...        R: a collective, n(R): reads its result
 *   after    g1  R1  g2  R2  ...  n1(R1)  n2(R2)
 *
 * The second attention reads the result of a ring shift, and the shift takes longer than most of
 * the work that can hide it. So nodes that lead to the shift (keys and values) come before other
 * nodes (queries):
 *
 *   before   q  k  v  S(k)  S(v)  attention(q, k, v)  attention(q, S(k), S(v))
 *   after    k  S(k)  v  S(v)  q  attention(q, k, v)  attention(q, S(k), S(v))
 *
 * In the backward, the gradients of keys and values return around the ring, and little work is left
 * to hide this shift. So while a ring shift is still ahead, up to STANDING heavy products that lead
 * to no ring shift are deferred. These gradients of weights run during the shift:
 *
 *   before   dx2  dw2  dx1  dw1  grad(far)  S(dk, dv)  grad(near)            dk + S(dk)
 *   after    dx2       dx1       grad(far)  S(dk, dv)  grad(near)  dw2  dw1  dk + S(dk)
 *
 * Collectives that need only sources (a gathered parameter) start ahead of their use. The bytes
 * gathered ahead are at most prefetch_bytes, or the two largest.
 *
 * Terms are added to a gradient state as soon as they are computed, although the graph adds them
 * after the complete backward. Their memory is then free, and the all-reduce of the state overlaps
 * with the rest of the backward.
 *
 *   before   dw3  dw2  dw1 ...  s3 += dw3  s2 += dw2  s1 += dw1        dw: heavy, of a layer
 *   after    dw3  s3 += dw3  dw2  s2 += dw2  dw1  s1 += dw1
 *
 * Every rank must start its collectives in the same order, and local shapes can differ between
 * ranks. So work is counted by kinds of nodes, and bytes by complete tensors, never by local
 * sizes. */
#include "transform/memory/comm_order.h"

#include "graph/rewrite.h"

#include <string.h>

enum {
    LOOKAHEAD = 96,    /* nodes of the old order to search for ready work */
    OVERLAP_WORK = 24, /* work after which a collective counts as finished */
    HEAVY_WORK = 8,    /* work of a contraction, attention or convolution; other nodes: 1 */
    NEAR = HEAVY_WORK, /* work between a node and its ring shift is below this */
    STANDING = 8,      /* maximum number of deferred products */
    ROUND = 1 << 20    /* OVERLAP_WORK of a ring shift: unlimited */
};

typedef struct order {
    weft_rewrite r;
    const weft_graph *from;
    int32_t nodes;
    bool *alive, *done;
    bool *early;                /* per node: depends on sources only */
    int32_t *lead;              /* per node: work until the next ring shift; NEAR: none */
    bool *rounds;               /* per node: a ring shift depends on the node */
    int32_t rings;              /* ring shifts not started yet */
    int32_t *unready;           /* per node: producers not placed yet */
    int32_t *first_user, *user; /* users of node n: user[first_user[n] .. first_user[n + 1]) */
    /* `producer`: of the current node. `left`, by collective: work until it counts as finished; 0:
     * finished, or not started */
    int32_t *producer;
    int32_t *left;
    int32_t *collective_of; /* per value: collective that computes it, through aliases; -1: none */
    int32_t *queue;         /* running collectives, oldest first */
    int32_t queue_count;
    bool *adds;   /* per node: adds to a state, or is only used for that */
    int32_t *due; /* ready at any position: collectives (gradient all-reduces), additions */
    int32_t due_count;
    /* Per node, for early collectives: bytes of the complete tensor; 0: already in use */
    int64_t *early_bytes;
    int64_t early_bytes_now, early_bytes_max; /* early collectives before their first use */
    int32_t first;                            /* all earlier nodes are placed */
} order;

static bool is_free(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS);
}

static int32_t work(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_HEAVY) ? HEAVY_WORK : is_free(op) ? 0 : 1;
}

static void mark_alive(order *o)
{
    int count;
    const weft_named *output = weft_graph_outputs(o->from, &count);
    for (int i = 0; i < count; i++)
        o->alive[weft_value_get(o->from, output[i].value)->node] = true;
    const weft_pair *update = weft_graph_updates(o->from, &count);
    for (int i = 0; i < count; i++)
        o->alive[weft_value_get(o->from, update[i].value)->node] = true;
    for (int32_t n = o->nodes - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(o->from, n);
        /* named sources are part of every program; other ranks wait for WEFT_TRAIT_GIVES */
        if (weft_op_has(node->op, WEFT_TRAIT_NAMED | WEFT_TRAIT_GIVES))
            o->alive[n] = true;
        for (int i = 0; i < node->in_count && o->alive[n]; i++)
            if (weft_value_ok(node->in[i]))
                o->alive[weft_value_get(o->from, node->in[i])->node] = true;
    }
}

/* Sets `producer` to the distinct producers of a node's inputs and returns their number. */
static int producers(const order *o, const weft_node *node)
{
    int32_t *producer = o->producer;
    int count = 0;
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_value_ok(node->in[i]))
            continue;
        const int32_t made = weft_value_get(o->from, node->in[i])->node;
        bool seen = false;
        for (int k = 0; k < count; k++)
            seen = seen || producer[k] == made;
        if (!seen)
            producer[count++] = made;
    }
    return count;
}

static void link_users(order *o)
{
    const int32_t *producer = o->producer;
    for (int32_t n = 0; n < o->nodes; n++) {
        const weft_node *node = weft_graph_node(o->from, n);
        const int count = o->alive[n] ? producers(o, node) : 0;
        o->unready[n] = count;
        o->early[n] =
            weft_op_has(node->op, WEFT_TRAIT_GIVEN) ||
            (count > 0 && weft_op_has(node->op, WEFT_TRAIT_ALIAS | WEFT_TRAIT_COLLECTIVE));
        for (int k = 0; k < count; k++) {
            o->first_user[producer[k] + 1]++;
            o->early[n] = o->early[n] && o->early[producer[k]];
        }
    }
    for (int32_t n = 0; n < o->nodes; n++)
        o->first_user[n + 1] += o->first_user[n];
    int32_t *at = o->left; /* borrowed as a cursor, cleared below */
    for (int32_t n = 0; n < o->nodes; n++) {
        const int count = o->alive[n] ? producers(o, weft_graph_node(o->from, n)) : 0;
        for (int k = 0; k < count; k++)
            o->user[o->first_user[producer[k]] + at[producer[k]]++] = n;
    }
    memset(at, 0, (size_t)o->nodes * sizeof *at);
}

/* Marks updates of a state that add a term to the old value, and the cheap nodes that only lead to
 * such updates. */
static void mark_accumulations(order *o)
{
    int count;
    const weft_pair *update = weft_graph_updates(o->from, &count);
    for (int i = 0; i < count; i++) {
        const int32_t n = weft_value_get(o->from, update[i].value)->node;
        const weft_node *node = weft_graph_node(o->from, n),
                        *source = weft_graph_node(o->from,
                                                  weft_value_get(o->from, update[i].source)->node);
        o->adds[n] =
            node->op == WEFT_OP_ADD && source->op == WEFT_OP_STATE &&
            (node->in[0].id == update[i].source.id || node->in[1].id == update[i].source.id);
    }
    for (int32_t n = o->nodes - 1; n >= 0; n--) {
        const weft_op op = weft_graph_node(o->from, n)->op;
        if (o->first_user[n + 1] == o->first_user[n] + 1 && o->adds[o->user[o->first_user[n]]])
            o->adds[n] = o->adds[n] || (!weft_op_has(op, WEFT_TRAIT_GIVEN) &&
                                        work(op) < HEAVY_WORK && !weft_op_is_collective(op));
    }
}

static void find_leads(order *o)
{
    for (int32_t n = o->nodes - 1; n >= 0; n--) {
        o->lead[n] = NEAR;
        o->rings += o->alive[n] && weft_graph_node(o->from, n)->op == WEFT_OP_RING_SHIFT;
        for (int32_t u = o->first_user[n]; u < o->first_user[n + 1]; u++) {
            const int32_t user = o->user[u];
            const weft_op op = weft_graph_node(o->from, user)->op;
            const int32_t distance = op == WEFT_OP_RING_SHIFT    ? 0
                                     : weft_op_is_collective(op) ? NEAR
                                                                 : o->lead[user] + work(op);
            o->lead[n] = distance < o->lead[n] ? distance : o->lead[n];
            o->rounds[n] = o->rounds[n] || op == WEFT_OP_RING_SHIFT || o->rounds[user];
        }
    }
}

/* Bytes of the complete tensor of an early collective: equal on all ranks. */
static int64_t whole_bytes(const order *o, int32_t n)
{
    const weft_node *node = weft_graph_node(o->from, n);
    while (node->in_count)
        node = weft_graph_node(o->from, weft_value_get(o->from, node->in[0])->node);
    const weft_value_info *info = weft_value_get(o->from, node->out[0]);
    const weft_shape *shape = weft_op_has(node->op, WEFT_TRAIT_NAMED)
                                  ? &((const weft_attr_source *)node->attr)->global
                                  : &info->shape;
    return weft_shape_count(shape) * weft_dtype_bytes(info->dtype);
}

static void measure_early(order *o, int64_t prefetch_bytes)
{
    int64_t most = 0;
    for (int32_t n = 0; n < o->nodes; n++) {
        if (!o->early[n] || !weft_op_is_collective(weft_graph_node(o->from, n)->op))
            continue;
        o->early_bytes[n] = whole_bytes(o, n);
        most = 2 * o->early_bytes[n] > most ? 2 * o->early_bytes[n] : most;
    }
    o->early_bytes_max = prefetch_bytes ? prefetch_bytes : most;
}

/* Removes the node's operands from the bytes gathered ahead of use. */
static void use(order *o, const weft_node *node)
{
    for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
        const int32_t c = weft_value_ok(node->in[i]) ? o->collective_of[node->in[i].id] : -1;
        if (c < 0)
            continue;
        o->early_bytes_now -= o->early_bytes[c];
        o->early_bytes[c] = 0;
    }
}

/* Returns true for exchanges between layer slices. These start as early, and their consumers run as
 * late, as layer_slices.c found best from the work in between. Counting nodes instead could report
 * a finished exchange as running, and start layers before their turn. */
static bool is_piece(const weft_node *node)
{
    return node->op == WEFT_OP_ALL_TO_ALL && ((const weft_attr_comm *)node->attr)->piece;
}

static void emit_node(order *o, int32_t n)
{
    const weft_node *node = weft_graph_node(o->from, n);
    use(o, node);
    weft_rewrite_node(&o->r, n, NULL);
    o->done[n] = true;
    for (int32_t u = o->first_user[n]; u < o->first_user[n + 1]; u++) {
        const int32_t user = o->user[u];
        if (--o->unready[user] == 0 && !o->early[user] &&
            (o->adds[user] || weft_op_is_collective(weft_graph_node(o->from, user)->op)))
            o->due[o->due_count++] = user;
    }
    for (int i = 0; i < node->out_count; i++)
        if (weft_value_ok(node->out[i]))
            o->collective_of[node->out[i].id] =
                weft_op_is_alias(node->op) ? o->collective_of[node->in[0].id] : -1;
    if (weft_op_is_collective(node->op) && !is_piece(node)) {
        o->left[n] = node->op == WEFT_OP_RING_SHIFT ? ROUND : OVERLAP_WORK;
        o->rings -= node->op == WEFT_OP_RING_SHIFT;
        o->queue[o->queue_count++] = n;
        o->early_bytes_now += o->early_bytes[n];
        o->collective_of[node->out[0].id] = n;
    }
    while (o->first < o->nodes && (o->done[o->first] || !o->alive[o->first]))
        o->first++;
}

static void finish_oldest(order *o)
{
    o->left[o->queue[0]] = 0;
    memmove(o->queue, o->queue + 1, (size_t)--o->queue_count * sizeof *o->queue);
}

/* Hides collectives by `amount` of work, the oldest first, because a channel runs one at a time. */
static void overlap_work(order *o, int32_t amount)
{
    while (amount > 0 && o->queue_count) {
        int32_t *left = &o->left[o->queue[0]];
        const int32_t part = *left < amount ? *left : amount;
        *left -= part;
        amount -= part;
        if (*left == 0)
            finish_oldest(o);
    }
}

/* Returns true if the node needs a running collective. With `wait`, that collective and older ones
 * count as finished. */
static bool waits(order *o, int32_t n, bool wait)
{
    const weft_node *node = weft_graph_node(o->from, n);
    bool any = false;
    for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
        const int32_t c = weft_value_ok(node->in[i]) ? o->collective_of[node->in[i].id] : -1;
        if (c < 0 || !o->left[c])
            continue;
        any = true;
        while (wait && o->left[c])
            finish_oldest(o);
    }
    return any;
}

/* Returns true for a `late` collective whose turn in the old order has not come. */
static bool is_late(const order *o, int32_t n)
{
    const weft_node *node = weft_graph_node(o->from, n);
    return weft_op_is_collective(node->op) && ((const weft_attr_comm *)node->attr)->late &&
           n != o->first;
}

/* Places ready nodes without work, and ready collectives. Returns true if any was placed. */
static bool start_ready(order *o)
{
    bool any = false;
    int32_t seen = 0;
    for (int32_t n = o->first; n < o->nodes && seen < LOOKAHEAD; n++) {
        if (!o->alive[n] || o->done[n])
            continue;
        seen++;
        const weft_op op = weft_graph_node(o->from, n)->op;
        if (o->unready[n] || !(weft_op_is_collective(op) || is_free(op)) || is_late(o, n))
            continue;
        if (weft_op_is_collective(op) &&
            (waits(o, n, false) ||
             (o->early_bytes_now && o->early_bytes_now + o->early_bytes[n] > o->early_bytes_max)))
            continue;
        emit_node(o, n);
        any = true;
    }
    int32_t remaining = 0;
    for (int32_t i = 0; i < o->due_count; i++) {
        const int32_t n = o->due[i];
        if (!o->done[n] && (is_late(o, n) || waits(o, n, false))) {
            o->due[remaining++] = n;
        } else if (!o->done[n]) {
            emit_node(o, n);
            any = true;
        }
    }
    o->due_count = remaining;
    return any;
}

/* The ready node with the least work before a ring shift; `chosen` if none leads to one. */
static int32_t leading(order *o, int32_t chosen)
{
    int32_t seen = 0, least = NEAR;
    for (int32_t n = chosen; n >= 0 && n < o->nodes && seen < LOOKAHEAD; n++) {
        if (!o->alive[n] || o->done[n])
            continue;
        seen++;
        if (o->lead[n] >= least || o->unready[n] ||
            weft_op_is_collective(weft_graph_node(o->from, n)->op) || waits(o, n, false))
            continue;
        least = o->lead[n];
        chosen = n;
    }
    return chosen;
}

/* The first ready node. Returns a heavy product that leads to no ring shift only if no other node
 * is ready or more than STANDING are deferred. */
static int32_t first_ready(order *o)
{
    int32_t standing = -1, seen = 0, back = 0;
    for (int32_t n = o->first; n < o->nodes && seen < LOOKAHEAD && back <= STANDING; n++) {
        if (!o->alive[n] || o->done[n])
            continue;
        seen++;
        const weft_op op = weft_graph_node(o->from, n)->op;
        if (o->unready[n] || weft_op_is_collective(op) || waits(o, n, false))
            continue;
        if (!o->rings || o->rounds[n] || !weft_op_has(op, WEFT_TRAIT_HEAVY))
            return n;
        standing = back++ ? standing : n;
    }
    return standing;
}

/* Places the states that are added to first. In the old order they follow the complete backward,
 * out of reach of LOOKAHEAD. Additions then wait for their terms only. */
static void emit_states(order *o)
{
    for (int32_t n = 0; n < o->nodes && weft_graph_check(o->r.to) == WEFT_OK; n++) {
        bool added_to = false;
        for (int32_t u = o->first_user[n]; u < o->first_user[n + 1]; u++)
            added_to = added_to || o->adds[o->user[u]];
        if (added_to && o->alive[n] && weft_graph_node(o->from, n)->op == WEFT_OP_STATE)
            emit_node(o, n);
    }
}

static void schedule(order *o)
{
    emit_states(o);
    while (o->first < o->nodes && weft_graph_check(o->r.to) == WEFT_OK) {
        if (start_ready(o))
            continue;
        int32_t chosen = leading(o, first_ready(o));
        if (chosen < 0) {
            chosen = o->first;
            waits(o, chosen, true);
        }
        emit_node(o, chosen);
        overlap_work(o, work(weft_graph_node(o->from, chosen)->op));
    }
}

static int64_t count_inputs(const weft_graph *g)
{
    int64_t count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->in_count;
    return count;
}

weft_status weft_pass_order(const weft_graph *g, int64_t prefetch_bytes, weft_graph **out)
{
    order o = {.from = g, .nodes = weft_graph_node_count(g)};
    weft_status_code status = WEFT_OK;
    const int64_t nodes = o.nodes + 2, values = weft_graph_value_count(g) + 1,
                  word = (int64_t)sizeof(int32_t);
    WEFT_TRY(weft_rewrite_begin(g, &o.r));
    o.alive = weft_alloc(nodes);
    o.done = weft_alloc(nodes);
    o.early = weft_alloc(nodes);
    o.adds = weft_alloc(nodes);
    o.lead = weft_alloc(nodes * word);
    o.rounds = weft_alloc(nodes);
    o.unready = weft_alloc(nodes * word);
    o.first_user = weft_alloc(nodes * word);
    o.user = weft_alloc((count_inputs(g) + 1) * word);
    o.producer = weft_alloc(weft_graph_most_inputs(g) * word);
    o.left = weft_alloc(nodes * word);
    o.collective_of = weft_alloc(values * word);
    o.queue = weft_alloc(nodes * word);
    o.due = weft_alloc(nodes * word);
    o.early_bytes = weft_calloc(nodes, sizeof *o.early_bytes);
    if (!o.alive || !o.done || !o.early || !o.adds || !o.lead || !o.rounds || !o.unready ||
        !o.first_user || !o.user || !o.producer || !o.left || !o.collective_of || !o.queue ||
        !o.due || !o.early_bytes) {
        weft_rewrite_abandon(&o.r);
        WEFT_GO(weft_no_memory("pass order"));
    }
    mark_alive(&o);
    link_users(&o);
    mark_accumulations(&o);
    find_leads(&o);
    measure_early(&o, prefetch_bytes);
    memset(o.collective_of, 0xff, (size_t)values * sizeof *o.collective_of);
    while (o.first < o.nodes && !o.alive[o.first])
        o.first++;
    schedule(&o);
    status = weft_rewrite_finish(&o.r, "order", out);
out:
    weft_free(o.alive);
    weft_free(o.done);
    weft_free(o.early);
    weft_free(o.adds);
    weft_free(o.lead);
    weft_free(o.rounds);
    weft_free(o.unready);
    weft_free(o.first_user);
    weft_free(o.user);
    weft_free(o.producer);
    weft_free(o.left);
    weft_free(o.collective_of);
    weft_free(o.queue);
    weft_free(o.due);
    weft_free(o.early_bytes);
    return status;
}
