/* The programs of a stage: one for each bucket, and, where a step has several contributions, the
 * update that follows them (train/optimizer.h). They are bound together and share one arena. */
#ifndef WEFT_TRAIN_STAGE_STEPS_H
#define WEFT_TRAIN_STAGE_STEPS_H

#include "train/pipe_run.h"
#include "train/step_cache.h"

typedef struct weft_stage_steps {
    weft_step **bucket; /* [buckets] of the cache */
    int buckets;
    weft_step *share;  /* before the update, what stages share; NULL: there are none */
    weft_step *update; /* NULL: the buckets' programs update by themselves */
    int count;         /* of all: behind the buckets in bucket[] come share and update */
    int64_t parts;     /* microbatches of a batch: each is a run of a bucket's program */
    int64_t runs;      /* of buckets' programs in a step: parts of each batch that it accumulates */
    const weft_pipe *pipe; /* NULL: no stages */
    /* With an update: axes along which the bulletin of its step is summed before it, by whichever
     * contribution; 0: the update sums what this rank has itself */
    uint32_t told;
} weft_stage_steps;

/* What a config says of the place of any rank: backend (NULL: there is none of this name), passes,
 * what is made again, kept in parts and in how many digits; and of its models, unless they are
 * NULL. Mesh, rank, communicator, pipe, bulletin and what is moved away are the caller's. */
weft_place_of_run weft_place_by(const weft_run *run, const weft_run_models *models);

/* Plans them, or finds them in the cache; nothing is bound. */
weft_status weft_stage_steps_plan(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *steps);
void weft_stage_steps_free(weft_stage_steps *steps); /* the list, not the steps */
/* One by one: begins an empty list, and adds the next as long as there are any left. */
weft_status weft_stage_steps_begin(const weft_run *run, const weft_stage *stage,
                                   const weft_place_of_run *place, weft_stage_steps *steps);
bool weft_stage_steps_left(const weft_stage_steps *steps);
weft_status weft_stage_steps_next(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *steps);
/* Bytes that they reserve when they are bound together, with the records of stages. */
weft_status weft_stage_steps_bytes(const weft_stage_steps *steps, int64_t *bytes);
/* And elsewhere. */
weft_status weft_stage_steps_away_bytes(const weft_stage_steps *steps, int64_t *bytes);
/* What runs the buckets' stages by the table (train/pipe_run.h): planned, not bound. */
weft_status weft_stage_steps_pipe(const weft_stage_steps *steps, weft_pipe_run **run);
/* Bytes in the store of every parameter and state that one of them has. */
weft_status weft_stage_steps_weights(const weft_stage_steps *steps, int64_t *bytes);
/* How `place` lays them over its ranks, a line per axis; nothing for one rank. */
void weft_stage_steps_layout(const weft_stage_steps *steps, const weft_stage *stage,
                             const weft_place_of_run *place, weft_buf *out);

#endif
