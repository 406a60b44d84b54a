/* Which activations to keep, recompute or offload (Aquarius §5.2).
 *
 * An item is something that one layer keeps from forward to backward; `count` layers have the same.
 * Recomputing costs its forward time again; offloading costs transfer time, which hides behind
 * compute as long as the sum of all transfers fits into a window. What is to be minimised is
 *     sum of recompute seconds + max(0, sum of offload seconds - window)
 * with the kept bytes within a limit. */
#ifndef WEFT_PLAN_MEMORY_H
#define WEFT_PLAN_MEMORY_H

#include "base/json.h"
#include "base/memory.h"

typedef struct weft_memory_item {
    const char *name; /* borrowed */
    double bytes;     /* kept, per layer */
    double recompute; /* seconds per layer; INFINITY: impossible */
    double offload;   /* seconds of transfer out and back, per layer; INFINITY: impossible */
    int64_t count;    /* layers */
} weft_memory_item;

typedef struct weft_memory_choice {
    int64_t *recomputed, *offloaded; /* [items]: how many of `count`; owned */
    double kept;                     /* bytes, <= limit */
    double seconds;                  /* extra time */
    double lower_bound;              /* no choice is faster (exact search only) */
    bool proved;                     /* seconds is the optimum (exact search only) */
    int64_t nodes;                   /* searched */
} weft_memory_choice;
void weft_memory_choice_free(weft_memory_choice *choice);

/* Greedy by memory-latency ratio: the item that frees most bytes per added second goes first,
 * offload before recompute while the window lasts; at the end, choices that turn out to be
 * unnecessary are taken back, dearest first. WEFT_E_INFEASIBLE says how much is needed at least. */
weft_status weft_memory_greedy(const weft_memory_item *item, int64_t items, double window,
                               double limit, weft_memory_choice *out);
/* Exact: branch and bound over the items with a Lagrangian bound; node_limit 0: 2 million, then
 * `proved` is false, the best found stands and the lower bound gives its gap. */
weft_status weft_memory_exact(const weft_memory_item *item, int64_t items, double window,
                              double limit, int64_t node_limit, weft_memory_choice *out);

/* A transformer block in the nine pieces of Aquarius' Table 2. Sizes per device with tensor and
 * sequence parallel degree tp; 2-byte activations. */
typedef struct weft_block_shape {
    double batch, tokens, hidden, heads, tp;
    double layers;
} weft_block_shape;
enum { WEFT_BLOCK_PIECES = 9 };
typedef struct weft_block_rates { /* achieved */
    double gemm, attention;       /* FLOP/s */
    double memory;                /* B/s */
    double link;                  /* B/s between the tp ranks */
    double host;                  /* B/s to host memory; 0: no offload */
} weft_block_rates;
/* Bytes from the paper's formulas; seconds from the rates. item has room for WEFT_BLOCK_PIECES. */
void weft_memory_block_items(const weft_block_shape *shape, const weft_block_rates *rates,
                             weft_memory_item *item);

/* {"items": [{"name", "bytes", "recompute", "offload", "count"}], "window": seconds} */
weft_status weft_memory_items_from_json(weft_arena *arena, const json_t *json, const char *name,
                                        weft_memory_item **item, int64_t *items, double *window);
weft_status weft_memory_items_check(const weft_memory_item *item, int64_t items, double window);
/* {"format": "weft.memory/1", "limit", "kept", "seconds", "proved", "items": [...]} */
json_t *weft_memory_choice_json(const weft_memory_item *item, int64_t items, double limit,
                                const weft_memory_choice *greedy, const weft_memory_choice *exact);
void weft_memory_choice_print(const weft_memory_item *item, int64_t items, double limit,
                              const weft_memory_choice *greedy, const weft_memory_choice *exact,
                              weft_buf *out);
/* A bar per item: kept, recomputed, offloaded. Appends an SVG document. */
void weft_memory_choice_draw(const weft_memory_item *item, int64_t items,
                             const weft_memory_choice *choice, weft_buf *out);

#endif
