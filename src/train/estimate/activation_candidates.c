#include "train/estimate/activation_candidates.h"

#include "comm/comm_world.h"
#include "plan/cost/graph_list.h"
#include "transform/memory/saved_activations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void weft_activation_candidates_free(weft_activation_candidates *k)
{
    weft_free(k->row);
    weft_free(k->item);
    weft_free(k->item_of);
    *k = (weft_activation_candidates){0};
}

static weft_status no_memory(void)
{
    return weft_no_memory("the saved activations of a step");
}

/* ---- rows ---------------------------------------------------------------------------------- */

typedef struct row_scan {
    const weft_graph *graph;
    weft_saved_activation *saved;
    double *seconds; /* seconds of each node */
    int32_t count;   /* nodes of the forward */
    int32_t *seen;   /* [nodes] 1 + the last node whose recompute included this node */
    int32_t *stack;
} row_scan;

/* Seconds of node n and of the unsaved nodes of its block that its recompute needs. */
static double recompute_seconds(row_scan *r, int32_t n)
{
    double sum = r->seconds[n];
    int32_t depth = 0;
    r->stack[depth++] = n;
    while (depth) {
        const weft_node *node = weft_graph_node(r->graph, r->stack[--depth]);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t made = weft_value_get(r->graph, node->in[i])->node;
            const weft_saved_activation *saved = &r->saved[made];
            if (r->seen[made] == n + 1 || saved->block != r->saved[n].block || saved->stays ||
                saved->bytes > 0)
                continue;
            r->seen[made] = n + 1;
            sum += r->seconds[made];
            r->stack[depth++] = made;
        }
    }
    return sum;
}

static weft_status merge(weft_activation_candidates *k, weft_activation_row row)
{
    for (int64_t i = 0; i < k->rows; i++)
        if (k->row[i].key == row.key) {
            k->row[i].bytes = fmax(k->row[i].bytes, row.bytes);
            k->row[i].seconds = fmax(k->row[i].seconds, row.seconds);
            return WEFT_OK;
        }
    WEFT_TRY(weft_grow((void **)&k->row, k->rows, &k->capacity, sizeof *k->row));
    k->row[k->rows++] = row;
    return WEFT_OK;
}

static weft_status add_rows(weft_activation_candidates *k, row_scan *r)
{
    for (int32_t n = 0; n < r->count; n++) {
        const weft_saved_activation *saved = &r->saved[n];
        if (!saved->key || saved->bytes == 0)
            continue;
        WEFT_TRY(merge(k, (weft_activation_row){
                              .key = saved->key,
                              .like = saved->like,
                              .op = weft_graph_node(r->graph, n)->op,
                              .bytes = (double)saved->bytes,
                              .seconds = saved->stays ? INFINITY : recompute_seconds(r, n)}));
    }
    return WEFT_OK;
}

weft_status weft_activation_candidates_add(weft_activation_candidates *k, const weft_graph *g,
                                           const weft_device_type *device)
{
    const int32_t nodes = weft_graph_node_count(g);
    row_scan r = {.graph = g};
    weft_status_code status = WEFT_OK;
    double run = 0;
    r.seconds = weft_calloc(nodes + 1, sizeof *r.seconds);
    r.seen = weft_calloc(nodes + 1, sizeof *r.seen);
    r.stack = weft_calloc(nodes + 1, sizeof *r.stack);
    WEFT_GO(WEFT_ALLOCATED(r.seconds && r.seen && r.stack, "the saved activations of a step"));
    WEFT_GO(weft_saved_activations_find(g, &r.saved, &r.count));
    WEFT_GO(weft_graph_node_times(g, device, r.seconds, NULL, NULL));
    for (int32_t n = 0; n < nodes; n++)
        run += r.seconds[n];
    k->run = fmax(k->run, run);
    if (r.count < nodes) /* the graph has a backward */
        status = add_rows(k, &r);
out:
    weft_free(r.saved);
    weft_free(r.seconds);
    weft_free(r.seen);
    weft_free(r.stack);
    return status;
}

weft_status weft_activation_candidates_share(weft_activation_candidates *k, weft_comm *comm)
{
    const int ranks = comm ? weft_comm_ranks(comm) : 1;
    if (ranks == 1)
        return WEFT_OK;
    typedef struct head {
        int64_t rows;
        double run;
    } head;
    weft_activation_candidates all = {0};
    weft_activation_row *own = NULL, *gathered = NULL;
    const head mine = {k->rows, k->run};
    int64_t most = 1;
    head *heads = weft_calloc(ranks, sizeof *heads);
    weft_status_code status = WEFT_OK;
    WEFT_GO(heads ? weft_comm_all_gather(comm, &mine, sizeof mine, heads) : no_memory());
    for (int r = 0; r < ranks; r++) {
        most = heads[r].rows > most ? heads[r].rows : most;
        all.run = fmax(all.run, heads[r].run);
    }
    const int64_t bytes = most * (int64_t)sizeof *own;
    own = weft_alloc(bytes);
    gathered = weft_alloc(ranks * bytes);
    if (!own || !gathered)
        WEFT_GO(no_memory());
    if (k->rows)
        memcpy(own, k->row, (size_t)(k->rows * (int64_t)sizeof *own));
    WEFT_GO(weft_comm_all_gather(comm, own, bytes, gathered));
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < heads[r].rows; i++)
            WEFT_GO(merge(&all, gathered[r * most + i]));
    weft_activation_candidates_free(k);
    *k = all;
    all = (weft_activation_candidates){0};
out:
    weft_free(heads);
    weft_free(own);
    weft_free(gathered);
    weft_activation_candidates_free(&all);
    return status;
}

/* ---- items --------------------------------------------------------------------------------- */

weft_status weft_activation_candidates_items(weft_activation_candidates *k, bool allow_recompute,
                                             double rate, bool rest)
{
    weft_free(k->item);
    weft_free(k->item_of);
    k->items = 0;
    uint64_t *like = weft_calloc(k->rows + 1, sizeof *like);
    k->item = weft_calloc(k->rows + 1, sizeof *k->item);
    k->item_of = weft_calloc(k->rows + 1, sizeof *k->item_of);
    if (!like || !k->item || !k->item_of) {
        weft_free(like);
        return no_memory();
    }
    for (int64_t i = 0; i < k->rows; i++) {
        const weft_activation_row *row = &k->row[i];
        const double recompute = allow_recompute ? row->seconds : INFINITY;
        const bool leaves = rate > 0 && (!rest || isinf(recompute));
        int64_t at = 0;
        while (at < k->items && (like[at] != row->like || k->item[at].bytes != row->bytes ||
                                 isinf(k->item[at].recompute) != isinf(recompute)))
            at++;
        if (at == k->items) {
            like[at] = row->like;
            k->item[k->items++] =
                (weft_activation_item){.name = weft_op_get((weft_op)row->op)->name,
                                       .bytes = row->bytes,
                                       .recompute = recompute,
                                       .offload = leaves ? 2 * row->bytes / rate : INFINITY};
        }
        k->item[at].count++;
        k->item_of[i] = at;
    }
    weft_free(like);
    return WEFT_OK;
}

/* An item's first nodes are offloaded because they have the most time to be fetched back. */
weft_status weft_activation_candidates_plan(const weft_activation_candidates *k,
                                            const weft_activation_choice *choice,
                                            weft_activation_plan *activations)
{
    int64_t *met = weft_calloc(k->items + 1, sizeof *met);
    *activations =
        (weft_activation_plan){.row = weft_calloc(k->rows + 1, sizeof *activations->row)};
    if (!met || !activations->row) {
        weft_free(met);
        weft_free(activations->row);
        *activations = (weft_activation_plan){0};
        return no_memory();
    }
    for (int64_t i = 0; i < k->rows; i++) {
        const int64_t item = k->item_of[i], index = met[item]++;
        const int64_t offloaded = choice->offloaded[item], recomputed = choice->recomputed[item];
        if (index < offloaded + recomputed)
            activations->row[activations->count++] = (struct weft_activation_policy_row){
                k->row[i].key,
                index < offloaded ? WEFT_ACTIVATION_OFFLOAD : WEFT_ACTIVATION_RECOMPUTE};
    }
    weft_activation_plan_sort(activations);
    weft_free(met);
    return WEFT_OK;
}

int64_t weft_activation_candidates_print(const weft_activation_candidates *k,
                                         const weft_activation_plan *activations,
                                         weft_activation_policy policy, weft_buf *out)
{
    double bytes[WEFT_OP_COUNT] = {0}, sum = 0;
    int64_t count[WEFT_OP_COUNT] = {0};
    for (int64_t i = 0; i < k->rows; i++) {
        if (weft_activation_plan_find(activations, k->row[i].key) != policy)
            continue;
        bytes[k->row[i].op] += k->row[i].bytes;
        count[k->row[i].op]++;
        sum += k->row[i].bytes;
    }
    for (bool any = false;; any = true) {
        int most = 0;
        for (int op = 1; op < WEFT_OP_COUNT; op++)
            if (bytes[op] > bytes[most])
                most = op;
        if (!count[most])
            return (int64_t)sum;
        weft_buf_printf(out, "%s%s %" PRId64, any ? ", " : "", weft_op_get((weft_op)most)->name,
                        count[most]);
        bytes[most] = 0;
        count[most] = 0;
    }
}
