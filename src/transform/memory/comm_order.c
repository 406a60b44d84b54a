/* Order: dead nodes go, collectives start as early as their operands allow (those that only need
 * sources: a little ahead of their use, so that memory stays bounded), and while one is under way
 * nodes that do not need it come first.
 *
 *   before   g1  R1  n1(R1)  g2  R2  n2(R2)  ...        R: a collective, n(R): reads its result
 *   after    g1  R1  g2  R2  ...  n1(R1)  n2(R2)
 *
 * What goes round a ring is read by the second attention from there, and takes longer than most of
 * what can be done until then: so what leads to it (keys and values) comes before what does not
 * (queries).
 *
 *   before   q  k  v  S(k)  S(v)  attention(q, k, v)  attention(q, S(k), S(v))
 *   after    k  S(k)  v  S(v)  q  attention(q, k, v)  attention(q, S(k), S(v))
 *
 * In the backward the gradients of keys and values go home round the ring, and little is left to do
 * until they are there. So products that lead to no ring any more (gradients of weights) stand back
 * while there is one ahead, no more than some of them, and are done while it goes round:
 *
 *   before   dx2  dw2  dx1  dw1  grad(far)  S(dk, dv)  grad(near)            dk + S(dk)
 *   after    dx2       dx1       grad(far)  S(dk, dv)  grad(near)  dw2  dw1  dk + S(dk)
 *
 * Collectives that need only sources (a gathered parameter) start ahead of their use, as long as
 * what is there before its time is no more than `room`, or the two largest of them.
 *
 * What is added to a state of gradients is added as soon as it is there, although the graph says so
 * behind the whole backward: its memory is free then, and the state may be summed over ranks beside
 * what is left of the backward.
 *
 *   before   dw3  dw2  dw1 ...  s3 += dw3  s2 += dw2  s1 += dw1        dw: heavy, of a layer
 *   after    dw3  s3 += dw3  dw2  s2 += dw2  dw1  s1 += dw1
 *
 * Every rank must start its collectives in the same order, and local shapes can differ between
 * ranks; so work is counted by kinds of nodes, and bytes by whole tensors, never by local sizes. */
#include "pass/rewrite.h"

#include <string.h>

enum {
    AHEAD = 96,        /* nodes of the old order that are looked at for something to do */
    COVER = 24,        /* work after which a collective counts as finished */
    HEAVY_WORK = 8,    /* of a contraction, an attention, a convolution; other nodes are 1 */
    NEAR = HEAVY_WORK, /* work between a node and the ring that it leads to, less than that */
    STANDING = 8,      /* products that stand back at most, with what they read */
    ROUND = 1 << 20    /* COVER of what goes round a ring: all that there is */
};

typedef struct order {
    weft_rewrite r;
    const weft_graph *from;
    int32_t nodes;
    bool *alive, *done;
    bool *early;      /* by node: depends on sources only */
    int32_t *lead;    /* by node: work behind it until a ring begins; NEAR: there is none */
    bool *rounds;     /* by node: a ring begins somewhere behind it */
    int32_t rings;    /* that have not begun */
    int32_t *unready; /* by node: producers not placed yet */
    int32_t *first_user, *user; /* users of node n: user[first_user[n] .. first_user[n + 1]) */
    /* By collective: work until it counts as finished; 0: finished, or not started. */
    int32_t *producer; /* of the node that is looked at */
    int32_t *left;
    int32_t *behind; /* by value: the collective that makes it (through aliases), or -1 */
    int32_t *queue;  /* collectives under way, oldest first */
    int32_t queue_count;
    bool *adds;   /* by node: adds to a state, or leads to nothing but that */
    int32_t *due; /* ready wherever they stood: collectives (sums of gradients), and what adds */
    int32_t due_count;
    /* By node, of early collectives: bytes of the whole tensor; 0: in use already. */
    int64_t *ahead;
    int64_t ahead_now, ahead_most; /* of those that wait for their first use */
    int32_t first;                 /* all nodes before it are placed */
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
        /* who fills or saves them finds them in every program; and what others wait for */
        if (weft_op_has(node->op, WEFT_TRAIT_NAMED | WEFT_TRAIT_GIVES))
            o->alive[n] = true;
        for (int i = 0; i < node->in_count && o->alive[n]; i++)
            if (weft_value_ok(node->in[i]))
                o->alive[weft_value_get(o->from, node->in[i])->node] = true;
    }
}

/* The distinct producer of a node's inputs. */
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

/* A new value of a state that is the old one and something. */
static void mark_sums(order *o)
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
            const int32_t way = op == WEFT_OP_RING_SHIFT    ? 0
                                : weft_op_is_collective(op) ? NEAR
                                                            : o->lead[user] + work(op);
            o->lead[n] = way < o->lead[n] ? way : o->lead[n];
            o->rounds[n] = o->rounds[n] || op == WEFT_OP_RING_SHIFT || o->rounds[user];
        }
    }
}

/* Bytes of the whole tensor that an early collective hands on: the same on all ranks. */
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

static void measure_early(order *o, int64_t room)
{
    int64_t most = 0;
    for (int32_t n = 0; n < o->nodes; n++) {
        if (!o->early[n] || !weft_op_is_collective(weft_graph_node(o->from, n)->op))
            continue;
        o->ahead[n] = whole_bytes(o, n);
        most = 2 * o->ahead[n] > most ? 2 * o->ahead[n] : most;
    }
    o->ahead_most = room ? room : most;
}

/* What the node reads is no longer ahead of its use. */
static void use(order *o, const weft_node *node)
{
    for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
        const int32_t c = weft_value_ok(node->in[i]) ? o->behind[node->in[i].id] : -1;
        if (c < 0)
            continue;
        o->ahead_now -= o->ahead[c];
        o->ahead[c] = 0;
    }
}

/* Exchanges between layers in slices stand as early, and their readers as late, as the slicing pass
 * found best (slice.c), which knows what is computed meanwhile. By a count of nodes some would look
 * as if they were not there yet when they are, and layers be begun before their turn. */
static bool is_piece(const weft_node *node)
{
    return node->op == WEFT_OP_ALL_TO_ALL && ((const weft_attr_comm *)node->attr)->piece;
}

static void place(order *o, int32_t n)
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
            o->behind[node->out[i].id] =
                weft_op_is_alias(node->op) ? o->behind[node->in[0].id] : -1;
    if (weft_op_is_collective(node->op) && !is_piece(node)) {
        o->left[n] = node->op == WEFT_OP_RING_SHIFT ? ROUND : COVER;
        o->rings -= node->op == WEFT_OP_RING_SHIFT;
        o->queue[o->queue_count++] = n;
        o->ahead_now += o->ahead[n];
        o->behind[node->out[0].id] = n;
    }
    while (o->first < o->nodes && (o->done[o->first] || !o->alive[o->first]))
        o->first++;
}

static void finish_oldest(order *o)
{
    o->left[o->queue[0]] = 0;
    memmove(o->queue, o->queue + 1, (size_t)--o->queue_count * sizeof *o->queue);
}

/* The lane runs one collective after the other: work covers the oldest first. */
static void cover(order *o, int32_t amount)
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

/* The node needs a collective under way; with `wait` those count as finished from now on. */
static bool waits(order *o, int32_t n, bool wait)
{
    const weft_node *node = weft_graph_node(o->from, n);
    bool any = false;
    for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
        const int32_t c = weft_value_ok(node->in[i]) ? o->behind[node->in[i].id] : -1;
        if (c < 0 || !o->left[c])
            continue;
        any = true;
        while (wait && o->left[c])
            finish_oldest(o);
    }
    return any;
}

/* A collective that waits for its place in the old order. */
static bool is_late(const order *o, int32_t n)
{
    const weft_node *node = weft_graph_node(o->from, n);
    return weft_op_is_collective(node->op) && ((const weft_attr_comm *)node->attr)->late &&
           n != o->first;
}

/* Places what costs nothing and is ready, then collectives that are ready. True if anything was. */
static bool start_ready(order *o)
{
    bool any = false;
    int32_t seen = 0;
    for (int32_t n = o->first; n < o->nodes && seen < AHEAD; n++) {
        if (!o->alive[n] || o->done[n])
            continue;
        seen++;
        const weft_op op = weft_graph_node(o->from, n)->op;
        if (o->unready[n] || !(weft_op_is_collective(op) || is_free(op)) || is_late(o, n))
            continue;
        if (weft_op_is_collective(op) &&
            (waits(o, n, false) || (o->ahead_now && o->ahead_now + o->ahead[n] > o->ahead_most)))
            continue;
        place(o, n);
        any = true;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < o->due_count; i++) {
        const int32_t n = o->due[i];
        if (!o->done[n] && (is_late(o, n) || waits(o, n, false))) {
            o->due[kept++] = n;
        } else if (!o->done[n]) {
            place(o, n);
            any = true;
        }
    }
    o->due_count = kept;
    return any;
}

/* What leads to a ring, can be done now and is the nearest to it; else `chosen`. */
static int32_t leading(order *o, int32_t chosen)
{
    int32_t seen = 0, least = NEAR;
    for (int32_t n = chosen; n >= 0 && n < o->nodes && seen < AHEAD; n++) {
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

/* The first that can be done now; products that lead to no ring where nothing else can be, or where
 * too many of them stand back. */
static int32_t first_ready(order *o)
{
    int32_t standing = -1, seen = 0, back = 0;
    for (int32_t n = o->first; n < o->nodes && seen < AHEAD && back <= STANDING; n++) {
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

/* States that are added to stand behind the whole backward in the old order, out of sight: they
 * come first, so that what adds waits for what is added only. */
static void place_states(order *o)
{
    for (int32_t n = 0; n < o->nodes && weft_graph_check(o->r.to) == WEFT_OK; n++) {
        bool added_to = false;
        for (int32_t u = o->first_user[n]; u < o->first_user[n + 1]; u++)
            added_to = added_to || o->adds[o->user[u]];
        if (added_to && o->alive[n] && weft_graph_node(o->from, n)->op == WEFT_OP_STATE)
            place(o, n);
    }
}

static void schedule(order *o)
{
    place_states(o);
    while (o->first < o->nodes && weft_graph_check(o->r.to) == WEFT_OK) {
        if (start_ready(o))
            continue;
        int32_t chosen = leading(o, first_ready(o));
        if (chosen < 0) {
            chosen = o->first;
            waits(o, chosen, true);
        }
        place(o, chosen);
        cover(o, work(weft_graph_node(o->from, chosen)->op));
    }
}

static int64_t count_inputs(const weft_graph *g)
{
    int64_t count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->in_count;
    return count;
}

weft_status weft_pass_order(const weft_graph *g, int64_t room, weft_graph **out)
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
    o.behind = weft_alloc(values * word);
    o.queue = weft_alloc(nodes * word);
    o.due = weft_alloc(nodes * word);
    o.ahead = weft_alloc(nodes * (int64_t)sizeof *o.ahead);
    if (!o.alive || !o.done || !o.early || !o.adds || !o.lead || !o.rounds || !o.unready ||
        !o.first_user || !o.user || !o.producer || !o.left || !o.behind || !o.queue || !o.due ||
        !o.ahead) {
        weft_rewrite_abandon(&o.r);
        status = weft_fail(WEFT_E_MEMORY, "no memory for pass order");
        goto out;
    }
    mark_alive(&o);
    link_users(&o);
    mark_sums(&o);
    find_leads(&o);
    measure_early(&o, room);
    memset(o.behind, 0xff, (size_t)values * sizeof *o.behind);
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
    weft_free(o.behind);
    weft_free(o.queue);
    weft_free(o.due);
    weft_free(o.ahead);
    return status;
}
