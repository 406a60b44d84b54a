/* The programs of a stage: one for each bucket, and, where a step has several contributions, the
 * update that follows them (train/optimizer.h). They are bound together and share one arena. */
#ifndef WEFT_TRAIN_STAGE_STEPS_H
#define WEFT_TRAIN_STAGE_STEPS_H

#include "train/step_cache.h"

typedef struct weft_stage_steps {
    weft_step **bucket; /* [buckets] of the cache */
    int buckets;
    weft_step *update; /* NULL: the buckets' programs update by themselves */
    int count;         /* of all: buckets, and the update behind them in bucket[] */
} weft_stage_steps;

/* Plans them, or finds them in the cache; nothing is bound. */
weft_status weft_stage_steps_plan(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *steps);
void weft_stage_steps_free(weft_stage_steps *steps); /* the list, not the steps */
/* One by one: how many there are, and the next of them (zero-initialise the list). */
int weft_stage_steps_count(const weft_stage *stage);
weft_status weft_stage_steps_next(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *steps);
/* Bytes that they reserve when they are bound together. */
weft_status weft_stage_steps_bytes(const weft_stage_steps *steps, int64_t *bytes);
/* Bytes in the store of every parameter and state that one of them has. */
weft_status weft_stage_steps_weights(const weft_stage_steps *steps, int64_t *bytes);
/* How `place` lays them over its ranks, a line per axis; nothing for one rank. */
void weft_stage_steps_layout(const weft_stage_steps *steps, const weft_stage *stage,
                             const weft_place_of_run *place, weft_buf *out);

#endif
