#include "plan/cost/graph_list.h"

#include "plan/cluster/cluster_path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 160, BUCKETS = 4096 };

/* ---- seconds of nodes, one lookup per distinct node ------------------------------------------ */

typedef struct known {
    char *key;
    double seconds; /* NAN: not measured */
    bool exact;
    struct known *next;
} known;

typedef struct timer {
    const weft_graph *g;
    const weft_device_type *device;
    weft_arena *arena;
    known *bucket[BUCKETS];
} timer;

/* Seconds of a node by the rates; NAN: its op was not timed. An op that was not timed in bf16 takes
 * the seconds in f32. They are divided by the relative speed of bf16 for this kind of work. */
static double rated_seconds(const timer *t, int32_t n, const char *key, bool *exact)
{
    const weft_rates *rates = t->device->rates;
    const weft_cost cost = weft_node_cost(t->g, n);
    const weft_node *node = weft_graph_node(t->g, n);
    const weft_work work = weft_node_work(node);
    char wide[WEFT_RATE_KEY];
    if (weft_node_dtype(t->g, node) != WEFT_BF16 || weft_rates_has_bf16(rates, key))
        return weft_rates_seconds(rates, key, (double)cost.flops, (double)cost.bytes, exact);
    const int64_t bytes = weft_rate_key_f32(t->g, n, wide);
    const double seconds =
        weft_rates_seconds(rates, wide, (double)cost.flops, (double)bytes, exact);
    *exact = false;
    return seconds * weft_device_flops(t->device, work, WEFT_F32) /
           weft_device_flops(t->device, work, WEFT_BF16);
}

static const known *find_known(timer *t, int32_t n, const char *key)
{
    uint32_t hash = 2166136261u;
    for (const char *p = key; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    known **list = &t->bucket[hash % BUCKETS];
    for (const known *k = *list; k; k = k->next)
        if (!strcmp(k->key, key))
            return k;
    known *made = weft_arena_alloc(t->arena, sizeof *made);
    if (!made || !(made->key = weft_arena_strdup(t->arena, key)))
        return NULL;
    made->seconds = rated_seconds(t, n, key, &made->exact);
    made->next = *list;
    return *list = made;
}

/* Sets the seconds of a node. *exact: measured at these shapes. Nodes without a kernel take no
 * time. */
static weft_status node_seconds(timer *t, int32_t n, double *out, bool *exact)
{
    const weft_cost cost = weft_node_cost(t->g, n);
    const weft_node *node = weft_graph_node(t->g, n);
    *exact = false;
    *out = 0;
    if (weft_op_has(node->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS))
        return WEFT_OK;
    if (t->device->rates) {
        char key[WEFT_RATE_KEY];
        if (node->in_count == 0 || (cost.flops == 0 && cost.bytes == 0)) /* is not measured */
            return WEFT_OK;
        weft_rate_key(t->g, n, key);
        const known *k = find_known(t, n, key);
        WEFT_TRY(WEFT_ALLOCATED(k, "the costs of a graph"));
        if (!isnan(k->seconds)) {
            *out = k->seconds;
            *exact = k->exact;
            return WEFT_OK;
        }
    }
    *out = weft_kernel_seconds(t->device, weft_node_work(node), weft_node_dtype(t->g, node),
                               (double)cost.flops, (double)cost.bytes);
    return WEFT_OK;
}

/* ---- parts of the graph ---------------------------------------------------------------------- */

static void divide(const weft_graph *g, weft_graph_part *of)
{
    const int32_t nodes = weft_graph_node_count(g);
    bool *late = weft_alloc(weft_graph_value_count(g));
    for (int32_t n = 0; n < nodes; n++) {
        const weft_node *node = weft_graph_node(g, n);
        bool after = node->backward;
        for (int i = 0; i < node->in_count; i++)
            after |= late && weft_value_ok(node->in[i]) && late[node->in[i].id];
        for (int i = 0; i < node->out_count; i++)
            if (late && weft_value_ok(node->out[i]))
                late[node->out[i].id] = after;
        of[n] = node->backward        ? WEFT_GRAPH_BACKWARD
                : after               ? WEFT_GRAPH_UPDATE
                : node->in_count == 0 ? WEFT_GRAPH_SOURCE
                                      : WEFT_GRAPH_FORWARD;
    }
    weft_free(late);
}

/* "transformer.blocks.3.attn1.to_q" -> block "transformer.blocks.3", label "blocks.attn1": the
 * component after the last number. A scope without a number is all block. */
static void name_part(const char *scope, char block[LABEL], char label[LABEL])
{
    const char *number = NULL;
    for (const char *p = scope; *p; p++)
        if (*p >= '0' && *p <= '9' && (p == scope || p[-1] == '.')) {
            const size_t digits = strspn(p, "0123456789");
            if (p[digits] == '.' || !p[digits])
                number = number ? number : p;
        }
    if (!number) {
        snprintf(block, LABEL, "%s", scope);
        snprintf(label, LABEL, "%s", scope);
        return;
    }
    const size_t digits = strspn(number, "0123456789"), head = (size_t)(number - scope);
    const char *inner = number[digits] ? number + digits + 1 : "";
    size_t from = head > 1 ? head - 1 : 0; /* the name before the number */
    while (from > 0 && scope[from - 1] != '.')
        from--;
    snprintf(block, LABEL, "%.*s", (int)(head + digits), scope);
    snprintf(label, LABEL, "%.*s%s%.*s", (int)(head ? head - 1 - from : 0), scope + from,
             *inner ? "." : "", (int)strcspn(inner, "."), inner);
}

typedef struct run {
    char block[LABEL], label[LABEL];
    weft_work kind;
    weft_op_cost cost;
    double forward, backward; /* seconds */
} run;

typedef struct maker {
    const weft_graph *g;
    timer t;
    weft_graph_part *part; /* by node */
    int32_t *of;           /* by node: run of a forward node; -1: none */
    int32_t *root;         /* by value: value whose storage it shares */
    run *run;
    int64_t runs, capacity;
    double scale; /* bytes in the planned run divided by bytes in the graph */
} maker;

static double value_bytes(const maker *m, int32_t v)
{
    const weft_value_info *info = weft_value_get(m->g, (weft_value){v});
    const double scale = info->dtype == WEFT_F32 ? m->scale : 1;
    return scale * (double)(weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype));
}

static weft_status new_run(maker *m, const char *block, const char *label, weft_work kind)
{
    if (m->runs == m->capacity) {
        const int64_t capacity = m->capacity ? 2 * m->capacity : 64;
        run *larger;
        WEFT_TRY(WEFT_ARENA_NEW(m->t.arena, larger, capacity, "the operators of a graph"));
        if (m->runs)
            memcpy(larger, m->run, (size_t)m->runs * sizeof *larger);
        m->run = larger;
        m->capacity = capacity;
    }
    run *r = &m->run[m->runs++];
    *r = (run){.kind = kind};
    snprintf(r->block, LABEL, "%s", block);
    snprintf(r->label, LABEL, "%s", label);
    return WEFT_OK;
}

static bool renames(const weft_node *node)
{
    return node->op == WEFT_OP_RESHAPE || node->op == WEFT_OP_VARY;
}

static weft_status forward_runs(maker *m)
{
    for (int32_t n = 0; n < weft_graph_node_count(m->g); n++) {
        const weft_node *node = weft_graph_node(m->g, n);
        m->of[n] = -1;
        for (int i = 0; i < node->out_count; i++)
            if (weft_value_ok(node->out[i]))
                m->root[node->out[i].id] =
                    renames(node) ? m->root[node->in[0].id] : node->out[i].id;
        if (m->part[n] != WEFT_GRAPH_FORWARD)
            continue;
        const weft_cost cost = weft_node_cost(m->g, n);
        const weft_work kind = weft_node_work(node);
        char block[LABEL], label[LABEL];
        name_part(node->scope, block, label);
        const run *last = m->runs ? &m->run[m->runs - 1] : NULL;
        if (!last || (cost.bytes > 0 && (last->kind != kind || strcmp(last->block, block) ||
                                         strcmp(last->label, label))))
            WEFT_TRY(new_run(m, block, label, kind));
        run *r = &m->run[m->runs - 1];
        double seconds;
        bool exact;
        WEFT_TRY(node_seconds(&m->t, n, &seconds, &exact));
        m->of[n] = (int32_t)(m->runs - 1);
        r->forward += seconds;
        r->cost.forward_flops += (double)cost.flops;
        r->cost.forward_bytes += m->scale * (double)cost.bytes;
        for (int i = 0; i < node->in_count; i++) { /* a parameter belongs to its first consumer */
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t v = m->root[node->in[i].id],
                          from = weft_value_get(m->g, (weft_value){v})->node;
            if (weft_graph_node(m->g, from)->op == WEFT_OP_PARAM && m->of[from] < 0) {
                m->of[from] = (int32_t)(m->runs - 1);
                r->cost.param_bytes += value_bytes(m, v);
            }
        }
    }
    return m->runs ? WEFT_OK
                   : weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                                "the graph has no operations to price");
}

/* Returns the run from which autodiff made a backward node: the best match of block, label and
 * kind. */
static int64_t run_of(const maker *m, const char *block, const char *label, weft_work kind,
                      int64_t guess)
{
    int64_t best = m->runs - 1, most = -1;
    for (int64_t k = 0; k < m->runs;
         k++) { /* gradients come in descending order: start at the guess */
        const int64_t i = (guess - k + m->runs) % m->runs;
        const run *r = &m->run[i];
        const bool here = !strcmp(r->block, block);
        const int64_t match =
            here ? 4 + 2 * !strcmp(r->label, label) + (r->kind == kind) : r->kind == kind;
        if (match > most) {
            most = match;
            best = i;
        }
        if (most == 7)
            break;
    }
    return best;
}

static weft_status backward_nodes(maker *m, double *update)
{
    int64_t at = m->runs - 1;
    *update = 0;
    for (int32_t n = 0; n < weft_graph_node_count(m->g); n++) {
        const weft_node *node = weft_graph_node(m->g, n);
        if (m->part[n] != WEFT_GRAPH_BACKWARD && m->part[n] != WEFT_GRAPH_UPDATE)
            continue;
        double seconds;
        bool exact;
        WEFT_TRY(node_seconds(&m->t, n, &seconds, &exact));
        if (m->part[n] == WEFT_GRAPH_UPDATE) {
            *update += seconds;
            continue;
        }
        const weft_cost cost = weft_node_cost(m->g, n);
        if (cost.flops == 0 && cost.bytes == 0)
            continue;
        char block[LABEL], label[LABEL];
        name_part(node->scope, block, label);
        at = run_of(m, block, label, weft_node_work(node), at);
        m->run[at].backward += seconds;
        m->run[at].cost.backward_flops += (double)cost.flops;
        m->run[at].cost.backward_bytes += m->scale * (double)cost.bytes;
    }
    return WEFT_OK;
}

/* Finds the values read by a later run, and the values read by the backward. */
static weft_status mark_saved(maker *m)
{
    const int32_t values = weft_graph_value_count(m->g);
    int32_t *last = weft_arena_calloc(m->t.arena, values, sizeof *last);
    bool *saved = weft_arena_alloc(m->t.arena, values);
    double *change = weft_arena_calloc(m->t.arena, m->runs + 1, sizeof *change);
    WEFT_TRY(WEFT_ALLOCATED(last && saved && change, "the operators of a graph"));
    for (int32_t v = 0; v < values; v++)
        last[v] = -1;
    for (int32_t n = 0; n < weft_graph_node_count(m->g); n++) {
        const weft_node *node = weft_graph_node(m->g, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t v = m->root[node->in[i].id];
            if (m->part[n] == WEFT_GRAPH_FORWARD && m->of[n] > last[v])
                last[v] = m->of[n];
            saved[v] |= m->part[n] == WEFT_GRAPH_BACKWARD && !renames(node);
        }
    }
    for (int32_t v = 0; v < values; v++) {
        const int32_t from = weft_value_get(m->g, (weft_value){v})->node;
        if (m->root[v] != v || m->part[from] != WEFT_GRAPH_FORWARD)
            continue;
        const int32_t made = m->of[from];
        if (saved[v])
            m->run[made].cost.activation_bytes += value_bytes(m, v);
        if (last[v] > made) {
            change[made] += value_bytes(m, v);
            change[last[v]] -= value_bytes(m, v);
        }
    }
    double crossing = 0;
    for (int64_t r = 0; r < m->runs; r++)
        m->run[r].cost.output_bytes = fmax(0, crossing += change[r]);
    return WEFT_OK;
}

/* Sets layers, heads, width and tokens from the largest self-attentions: (B,S,H,D), equal for
 * queries and keys. */
static void read_facts(const maker *m, weft_op_list *list)
{
    int64_t most = 0;
    for (int32_t n = 0; n < weft_graph_node_count(m->g); n++) {
        const weft_node *node = weft_graph_node(m->g, n);
        if (node->op != WEFT_OP_ATTENTION || m->part[n] != WEFT_GRAPH_FORWARD)
            continue;
        const weft_shape *q = &weft_value_get(m->g, node->in[0])->shape,
                         *k = &weft_value_get(m->g, node->in[1])->shape;
        if (q->dim[1] != k->dim[1] || q->dim[1] < most)
            continue;
        list->layers = q->dim[1] > most ? 1 : list->layers + 1;
        most = list->tokens = q->dim[1];
        list->heads = q->dim[2];
        list->hidden = q->dim[2] * q->dim[3];
    }
}

/* Fills the list. The input of a recomputed layer remains saved: one stream of width x tokens at
 * each block's begin, which otherwise counts in the previous run. */
static weft_status fill(maker *m, weft_arena *arena, weft_op_list *list)
{
    static const char *const kinds[] = {"product", "attention", "convolution", "pointwise"};
    const double stream = (double)(list->tokens * list->hidden * list->dtype_bytes);
    for (int64_t r = 0; r < m->runs; r++) {
        run *x = &m->run[r];
        if (r && strcmp(x->block, x[-1].block) && list->layers > 0) {
            weft_op_cost *before = &list->op[list->count - 1];
            if (before->activation_bytes >= stream) {
                before->activation_bytes -= stream;
                WEFT_TRY(weft_op_list_add(arena, list,
                                          (weft_op_cost){.name = "layer input",
                                                         .kind = WEFT_WORK_MEMORY,
                                                         .activation_bytes = stream,
                                                         .output_bytes = before->output_bytes}));
            }
        }
        x->cost.name = weft_arena_printf(arena, "%s %s", x->label, kinds[x->kind]);
        WEFT_TRY(WEFT_ALLOCATED(x->cost.name, "the operators of a graph"));
        x->cost.kind = x->kind;
        x->cost.recompute_flops = x->cost.forward_flops;
        if (m->t.device->rates) {
            x->cost.forward_seconds = x->forward;
            x->cost.backward_seconds = x->backward;
        }
        WEFT_TRY(weft_op_list_add(arena, list, x->cost));
    }
    return WEFT_OK;
}

static weft_status maker_init(const weft_graph *g, const weft_device_type *device, maker *m)
{
    *m = (maker){.g = g, .scale = 1, .t = {.g = g, .device = device}};
    weft_arena *arena = m->t.arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the costs of a graph"));
    const int64_t nodes = weft_graph_node_count(g), values = weft_graph_value_count(g);
    m->part = weft_arena_calloc(arena, nodes + 1, sizeof *m->part);
    m->of = weft_arena_calloc(arena, nodes + 1, sizeof *m->of);
    m->root = weft_arena_calloc(arena, values + 1, sizeof *m->root);
    if (m->part && m->of && m->root) {
        divide(g, m->part);
        return WEFT_OK;
    }
    weft_arena_free(arena);
    return weft_no_memory("the costs of a graph");
}

weft_status weft_op_list_from_graph(weft_arena *arena, const weft_graph *g,
                                    const weft_device_type *device, int64_t float_bytes,
                                    weft_op_list *out)
{
    maker m;
    weft_op_list list = {.dtype_bytes = float_bytes};
    weft_status_code status = WEFT_OK;
    WEFT_TRY(maker_init(g, device, &m));
    m.scale = (double)float_bytes / 4;
    read_facts(&m, &list);
    double update;
    WEFT_GO(forward_runs(&m));
    WEFT_GO(backward_nodes(&m, &update));
    WEFT_GO(mark_saved(&m));
    WEFT_GO(fill(&m, arena, &list));
    list.update_seconds = device->rates ? update : 0;
    *out = list;
out:
    weft_arena_free(m.t.arena);
    return status;
}

weft_status weft_graph_node_times(const weft_graph *g, const weft_device_type *device,
                                  double *seconds, weft_graph_part *part, bool *exact)
{
    maker m;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(maker_init(g, device, &m));
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        bool same = false;
        seconds[n] = 0;
        if (!weft_op_is_collective(weft_graph_node(g, n)->op))
            WEFT_GO(node_seconds(&m.t, n, &seconds[n], &same));
        if (part)
            part[n] = m.part[n];
        if (exact)
            exact[n] = same;
    }
out:
    weft_arena_free(m.t.arena);
    return status;
}
