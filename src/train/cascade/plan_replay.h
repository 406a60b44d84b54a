/* Placed iterations as lines of JSON: what rank 0 sends to the others, what a run keeps in
 * <out>/cascades/plans.jsonl, and what `parallel.cascades.plan: FILE` replays.
 *
 *     {"format": "weft.placed/1", "ranks": 4, "model": HASH, "sizes": ["1x1x32x32", ...]}
 *     {"step": 0, "policy": "arachne", "makespan": .., "samples": [..], "cascades": [..]}
 *     {"step": 1, ...}
 *
 * A stage with other sizes, or the run going on on other ranks, writes a head of its own: plans are
 * of the head before them, and those for another run's ranks, model and sizes are passed over.
 * A file with fewer iterations than a run serves by its sizes: what it has of the same step comes
 * first, then any with the same number of samples of each bucket. */
#ifndef WEFT_TRAIN_CASCADE_PLANS_H
#define WEFT_TRAIN_CASCADE_PLANS_H

#include "base/json.h"
#include "train/cascade_plan.h"

/* What a file of plans is of. */
typedef struct weft_plans_stamp {
    int ranks;
    const char *model;       /* a hash of what is trained, */
    const char *name;        /* and its class, for messages */
    const char *const *size; /* [sizes] of the stage's buckets, as weft_plans_size writes them */
    int sizes;
} weft_plans_stamp;
/* "4x17x256x448": clips, frames, height, width. */
void weft_plans_size(const weft_bucket *bucket, char text[64]);

/* New references; NULL: out of memory. `policy` and the planned idle share are for readers. */
json_t *weft_plans_head(const weft_plans_stamp *stamp);
json_t *weft_plans_line(const weft_placed_iteration *plan, const char *policy, double idle);
/* One iteration read back, in the arena; items as they were. WEFT_E_FORMAT. */
weft_status weft_plans_parse(const json_t *line, const char *where, weft_arena *arena,
                             weft_placed_iteration *out);

typedef struct weft_plans weft_plans;
/* WEFT_E_CONFIG: all are for another number of ranks, model or list of sizes, with the difference
 * of the first. */
weft_status weft_plans_open(const char *path, const weft_plans_stamp *stamp, weft_plans **out);
void weft_plans_close(weft_plans *plans); /* accepts NULL */
/* An empty list of plans, to which they are added. */
weft_status weft_plans_create(weft_plans **out);
weft_status weft_plans_add(weft_plans *plans, const weft_placed_iteration *plan);
/* The plan of `samples` (buckets, clips, items, weights; of `step`): groups, starts and order of
 * one that is there, in the arena. *found false: there is none for these sizes. */
weft_status weft_plans_find(const weft_plans *plans, int64_t step, const weft_placed_sample *sample,
                            int64_t samples, weft_arena *arena, weft_placed_iteration *out,
                            bool *found);

#endif
