/* Placed iterations as lines of JSON. Rank 0 sends them to the other ranks, a run writes them to
 * <out>/cascades/plans.jsonl, and `parallel.cascades.plan: FILE` replays them.
 *
 *     {"format": "weft.placed/1", "ranks": 4, "model": HASH, "sizes": ["1x1x32x32", ...]}
 *     {"step": 0, "policy": "arachne", "makespan": .., "samples": [..], "cascades": [..]}
 *     {"step": 1, ...}
 *
 * A training stage with other sizes, or a run resumed on other ranks, writes a new head line.
 * Plans belong to the head before them. Plans for other ranks, models or sizes are skipped. A file
 * can have fewer iterations than a run: plans of the same step are preferred, then any plan with
 * the same number of samples of each bucket. */
#ifndef WEFT_TRAIN_CASCADE_PLAN_REPLAY_H
#define WEFT_TRAIN_CASCADE_PLAN_REPLAY_H

#include "base/json.h"
#include "train/cascade/iteration_layout.h"

/* Identity of the run that plans belong to. */
typedef struct weft_plans_stamp {
    int ranks;
    const char *model;       /* hash of the trained model */
    const char *name;        /* class of the model, for messages */
    const char *const *size; /* [sizes] of the stage's buckets, from weft_plans_size */
    int sizes;
} weft_plans_stamp;
/* Formats a size such as "4x17x256x448": clips, frames, height, width. */
void weft_plans_size(const weft_bucket *bucket, char text[64]);

/* Return new references; NULL: out of memory. `policy` and `idle` (planned idle share) are for
 * readers of the file only. */
json_t *weft_plans_head(const weft_plans_stamp *stamp);
json_t *weft_plans_line(const weft_placed_iteration *plan, const char *policy, double idle);
/* Parses one iteration into the arena. Returns WEFT_E_FORMAT if the line is invalid. */
weft_status weft_plans_parse(const json_t *line, const char *where, weft_arena *arena,
                             weft_placed_iteration *out);

typedef struct weft_plans weft_plans;
/* Reads the plans that match `stamp`. Returns WEFT_E_CONFIG if all plans are for another number of
 * ranks, model or list of sizes, with the difference of the first head. */
weft_status weft_plans_open(const char *path, const weft_plans_stamp *stamp, weft_plans **out);
void weft_plans_close(weft_plans *plans); /* accepts NULL */
/* Creates an empty list for weft_plans_add. */
weft_status weft_plans_create(weft_plans **out);
weft_status weft_plans_add(weft_plans *plans, const weft_placed_iteration *plan);
/* Finds a plan for `samples` (buckets and clips) and copies it to `out`, with the given step and
 * samples. Groups, starts and order are those of the found plan. *found false: no plan has these
 * sizes. */
weft_status weft_plans_find(const weft_plans *plans, int64_t step, const weft_placed_sample *sample,
                            int64_t samples, weft_arena *arena, weft_placed_iteration *out,
                            bool *found);

#endif
