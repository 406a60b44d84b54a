/* Groups ranks whose programs have the same shapes into kinds, each of which is planned once. Ranks
 * are of one kind if they have the same coordinates on all axes but dp and their dp shards have the
 * same sizes. With `firsts`, one kind represents all ranks of a pipeline device: its first rank has
 * the largest shard on every axis. */
#ifndef WEFT_TRAIN_ESTIMATE_RANK_KINDS_H
#define WEFT_TRAIN_ESTIMATE_RANK_KINDS_H

#include "train/estimate/simulated_step.h"

typedef struct weft_rank_kind {
    int rank; /* first rank of the kind, for which the programs are planned */
    weft_pp_layout *pp;
    weft_compiled_steps *cache;
    weft_store *store;
    weft_stage_programs steps; /* not bound */
    /* bytes reserved by a rank: weights, programs, microbatch buffers */
    int64_t bytes;
    double kernels;                /* kernel seconds of a step's microbatches */
    weft_sent inside;              /* planned messages of a step's microbatches */
    weft_sent sent[WEFT_MAX_AXES]; /* planned messages of a step, by mesh axis */
} weft_rank_kind;

typedef struct weft_rank_kinds {
    weft_rank_kind *kind;
    int count, ranks;
    int *of; /* [ranks] index of the kind */
} weft_rank_kinds;

/* Plans every kind on `backend` (borrowed), which allocates no memory. `firsts`: one kind per
 * pipeline device. */
weft_status weft_rank_kinds_plan(const weft_modelled_setup *setup, const weft_mesh *mesh,
                                 const weft_backend *backend, bool firsts, weft_rank_kinds *kinds);
void weft_rank_kinds_free(weft_rank_kinds *kinds);

/* Planned messages of a step on one rank. sent[WEFT_MAX_AXES]: by mesh axis, all 0 before the call;
 * *inside: those of the microbatches. `pp` (NULL: no pipeline) and `pp_axis` are the rank's;
 * `per_node` is the number of ranks per node. */
weft_status weft_stage_programs_sent(const weft_stage_programs *steps, const weft_pp_layout *pp,
                                     int pp_axis, int per_node, weft_sent *inside, weft_sent *sent);

#endif
