/* What memory.limit decides: what a step's forward leaves for its backward, as items of the planner
 * (plan/pipeline/keep.h), and its choice as fates of nodes (pass/pass.h).
 *
 *     graphs of this rank ──> rows, one a node ──> the largest of all ranks
 *                                                    │ like nodes of all blocks are one
 *     fates <── the first of an item's nodes leave,  items ──> planner ─┐
 *               the next are made again <────────────────────── choice ─┘ */
#ifndef WEFT_TRAIN_KEEPS_H
#define WEFT_TRAIN_KEEPS_H

#include "pass/pass.h"
#include "plan/cluster/cluster.h"
#include "plan/pipeline/keep.h"
#include "runtime/runtime.h"

typedef struct weft_keep_row {
    uint64_t key, like;
    int64_t op;            /* weft_op */
    double bytes, seconds; /* INFINITY: it cannot be made again */
} weft_keep_row;

/* Everything heap, owned; zero-initialise. */
typedef struct weft_keeps {
    weft_keep_row *row; /* in the order of the graphs */
    int64_t rows, room;
    double run; /* seconds of the longest of the graphs */
    weft_keep_item *item;
    int64_t items;
    int64_t *item_of; /* by row */
} weft_keeps;
void weft_keeps_free(weft_keeps *keeps);

/* Adds the nodes of a graph that no pass has shortened yet; of a node that is there already, from
 * another bucket, the larger bytes and seconds stay. */
weft_status weft_keeps_add(weft_keeps *keeps, const weft_graph *graph,
                           const weft_device_type *device);
/* Collective: the same rows on all ranks, what each of them has. */
weft_status weft_keeps_share(weft_keeps *keeps, weft_comm *comm);
/* Makes the items. `again`: nodes may be made again; `rate`: bytes a second on their way out and
 * back, 0: none may leave; `rest`: only what cannot be made again may. */
weft_status weft_keeps_items(weft_keeps *keeps, bool again, double rate, bool rest);
/* What the planner chose, for the passes; *fates is the caller's to free (row). */
weft_status weft_keeps_fates(const weft_keeps *keeps, const weft_keep_choice *choice,
                             weft_fates *fates);
/* "gelu 12, rope 24": ops of that fate, the most bytes first; *bytes of all of them. */
int64_t weft_keeps_tell(const weft_keeps *keeps, const weft_fates *fates, weft_fate fate,
                        weft_buf *out);

#endif
