/* Kinds of ranks: ranks whose programs have the same shapes, planned once. Ranks are of one kind if
 * they have the same place on all axes but dp, and dp gives them parts of the same size. */
#ifndef WEFT_TRAIN_RANK_KINDS_H
#define WEFT_TRAIN_RANK_KINDS_H

#include "train/modelled.h"

typedef struct weft_rank_kind {
    int rank; /* the first of the kind, for which it is planned */
    weft_pipe *pipe;
    weft_step_cache *cache;
    weft_store *store;
    weft_stage_steps steps; /* not bound */
    int64_t bytes;          /* that a rank reserves: weights, programs, records */
    double kernels;         /* seconds of the kernels of a step's microbatches */
} weft_rank_kind;

typedef struct weft_rank_kinds {
    weft_rank_kind *kind;
    int count, ranks;
    int *of; /* [ranks] index of the kind */
} weft_rank_kinds;

/* Plans every kind of a pipeline's ranks on `backend` (borrowed), which has no memory. */
weft_status weft_rank_kinds_plan(const weft_modelled_setup *setup, const weft_mesh *mesh,
                                 const weft_backend *backend, weft_rank_kinds *kinds);
void weft_rank_kinds_free(weft_rank_kinds *kinds);

#endif
