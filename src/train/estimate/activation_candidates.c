#include "train/keeps.h"

#include "plan/cost/graph_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void weft_keeps_free(weft_keeps *k)
{
    weft_free(k->row);
    weft_free(k->item);
    weft_free(k->item_of);
    *k = (weft_keeps){0};
}

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for what a step keeps");
}

/* ---- rows ---------------------------------------------------------------------------------- */

typedef struct reader {
    const weft_graph *graph;
    weft_kept *kept;
    double *seconds; /* by node */
    int32_t count;   /* nodes of the forward */
    int32_t *seen;   /* by node: 1 + the one for whose sake it was counted last */
    int32_t *stack;
} reader;

/* Of node n and all that is made again only because it, or others that are not kept, read it. */
static double seconds_again(reader *r, int32_t n)
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
            const weft_kept *kept = &r->kept[made];
            if (r->seen[made] == n + 1 || kept->block != r->kept[n].block || kept->stays ||
                kept->bytes > 0)
                continue;
            r->seen[made] = n + 1;
            sum += r->seconds[made];
            r->stack[depth++] = made;
        }
    }
    return sum;
}

static weft_status merge(weft_keeps *k, weft_keep_row row)
{
    for (int64_t i = 0; i < k->rows; i++)
        if (k->row[i].key == row.key) {
            k->row[i].bytes = fmax(k->row[i].bytes, row.bytes);
            k->row[i].seconds = fmax(k->row[i].seconds, row.seconds);
            return WEFT_OK;
        }
    WEFT_TRY(weft_grow((void **)&k->row, k->rows, &k->room, sizeof *k->row));
    k->row[k->rows++] = row;
    return WEFT_OK;
}

static weft_status add_rows(weft_keeps *k, reader *r)
{
    for (int32_t n = 0; n < r->count; n++) {
        const weft_kept *kept = &r->kept[n];
        if (!kept->key || kept->bytes == 0)
            continue;
        WEFT_TRY(
            merge(k, (weft_keep_row){.key = kept->key,
                                     .like = kept->like,
                                     .op = weft_graph_node(r->graph, n)->op,
                                     .bytes = (double)kept->bytes,
                                     .seconds = kept->stays ? INFINITY : seconds_again(r, n)}));
    }
    return WEFT_OK;
}

weft_status weft_keeps_add(weft_keeps *k, const weft_graph *g, const weft_device_type *device)
{
    const int32_t nodes = weft_graph_node_count(g);
    reader r = {.graph = g};
    weft_status_code status = WEFT_OK;
    double run = 0;
    r.seconds = weft_alloc((nodes + 1) * (int64_t)sizeof *r.seconds);
    r.seen = weft_alloc((nodes + 1) * (int64_t)sizeof *r.seen);
    r.stack = weft_alloc((nodes + 1) * (int64_t)sizeof *r.stack);
    if (!r.seconds || !r.seen || !r.stack)
        WEFT_GO(no_memory());
    WEFT_GO(weft_kept_find(g, &r.kept, &r.count));
    WEFT_GO(weft_graph_node_times(g, device, r.seconds, NULL, NULL));
    for (int32_t n = 0; n < nodes; n++)
        run += r.seconds[n];
    k->run = fmax(k->run, run);
    if (r.count < nodes) /* it has a backward */
        status = add_rows(k, &r);
out:
    weft_free(r.kept);
    weft_free(r.seconds);
    weft_free(r.seen);
    weft_free(r.stack);
    return status;
}

weft_status weft_keeps_share(weft_keeps *k, weft_comm *comm)
{
    const int ranks = comm ? weft_comm_ranks(comm) : 1;
    if (ranks == 1)
        return WEFT_OK;
    typedef struct head {
        int64_t rows;
        double run;
    } head;
    weft_keeps all = {0};
    weft_keep_row *own = NULL, *theirs = NULL;
    const head mine = {k->rows, k->run};
    int64_t most = 1;
    head *heads = weft_alloc(ranks * (int64_t)sizeof *heads);
    weft_status_code status =
        heads ? weft_comm_all_gather(comm, &mine, sizeof mine, heads) : no_memory();
    for (int r = 0; r < ranks && status == WEFT_OK; r++) {
        most = heads[r].rows > most ? heads[r].rows : most;
        all.run = fmax(all.run, heads[r].run);
    }
    const int64_t bytes = most * (int64_t)sizeof *own;
    own = weft_alloc(bytes);
    theirs = weft_alloc(ranks * bytes);
    if (status == WEFT_OK && (!own || !theirs))
        status = no_memory();
    if (status == WEFT_OK) {
        if (k->rows)
            memcpy(own, k->row, (size_t)(k->rows * (int64_t)sizeof *own));
        status = weft_comm_all_gather(comm, own, bytes, theirs);
    }
    for (int r = 0; r < ranks && status == WEFT_OK; r++)
        for (int64_t i = 0; i < heads[r].rows && status == WEFT_OK; i++)
            status = merge(&all, theirs[r * most + i]);
    weft_free(heads);
    weft_free(own);
    weft_free(theirs);
    weft_keeps_free(status == WEFT_OK ? k : &all);
    if (status == WEFT_OK)
        *k = all;
    return status;
}

/* ---- items --------------------------------------------------------------------------------- */

weft_status weft_keeps_items(weft_keeps *k, bool again, double rate, bool rest)
{
    weft_free(k->item);
    weft_free(k->item_of);
    k->items = 0;
    uint64_t *like = weft_alloc((k->rows + 1) * (int64_t)sizeof *like);
    k->item = weft_alloc((k->rows + 1) * (int64_t)sizeof *k->item);
    k->item_of = weft_alloc((k->rows + 1) * (int64_t)sizeof *k->item_of);
    if (!like || !k->item || !k->item_of) {
        weft_free(like);
        return no_memory();
    }
    for (int64_t i = 0; i < k->rows; i++) {
        const weft_keep_row *row = &k->row[i];
        const double recompute = again ? row->seconds : INFINITY;
        const bool leaves = rate > 0 && (!rest || isinf(recompute));
        int64_t at = 0;
        while (at < k->items && (like[at] != row->like || k->item[at].bytes != row->bytes ||
                                 isinf(k->item[at].recompute) != isinf(recompute)))
            at++;
        if (at == k->items) {
            like[at] = row->like;
            k->item[k->items++] =
                (weft_keep_item){.name = weft_op_get((weft_op)row->op)->name,
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

static int by_key(const void *a, const void *b)
{
    const struct weft_fate_row *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* What leaves first has the most time to come back. */
weft_status weft_keeps_fates(const weft_keeps *k, const weft_keep_choice *choice, weft_fates *fates)
{
    int64_t *met = weft_alloc((k->items + 1) * (int64_t)sizeof *met);
    *fates = (weft_fates){.row = weft_alloc((k->rows + 1) * (int64_t)sizeof *fates->row)};
    if (!met || !fates->row) {
        weft_free(met);
        weft_free(fates->row);
        *fates = (weft_fates){0};
        return no_memory();
    }
    for (int64_t i = 0; i < k->rows; i++) {
        const int64_t item = k->item_of[i], place = met[item]++;
        const int64_t away = choice->offloaded[item], again = choice->recomputed[item];
        if (place < away + again)
            fates->row[fates->count++] = (struct weft_fate_row){
                k->row[i].key, place < away ? WEFT_FATE_AWAY : WEFT_FATE_AGAIN};
    }
    qsort(fates->row, (size_t)fates->count, sizeof *fates->row, by_key);
    weft_free(met);
    return WEFT_OK;
}

int64_t weft_keeps_tell(const weft_keeps *k, const weft_fates *fates, weft_fate fate, weft_buf *out)
{
    double bytes[WEFT_OP_COUNT] = {0}, sum = 0;
    int64_t count[WEFT_OP_COUNT] = {0};
    for (int64_t i = 0; i < k->rows; i++) {
        if (weft_fates_find(fates, k->row[i].key) != fate)
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
        weft_buf_printf(out, "%s%s %lld", any ? ", " : "", weft_op_get((weft_op)most)->name,
                        (long long)count[most]);
        bytes[most] = 0;
        count[most] = 0;
    }
}
