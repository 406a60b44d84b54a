/* Groups ranks that run the same programs into kinds, each planned once. Programs of two
 * ranks are the same if their graphs differ only in where shards start. Even shards give one kind
 * per pipeline device, and an uneven split gives one kind for each combination of sizes. */
#ifndef WEFT_TRAIN_ESTIMATE_RANK_KINDS_H
#define WEFT_TRAIN_ESTIMATE_RANK_KINDS_H

#include "train/estimate/simulated_step.h"

typedef struct weft_rank_kind {
    int rank; /* first rank of the kind, for which the programs are planned */
    weft_pp_layout *pp;
    weft_compiled_steps *cache;
    weft_store *store;
    weft_stage_programs steps; /* not bound */
    uint64_t hash;             /* of the programs' graphs without the starts of shards */
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

typedef enum weft_rank_kinds_which {
    WEFT_RANK_KINDS_ALL,
    /* One kind represents all ranks of a pipeline device: its first rank has the largest shard on
     * every axis. */
    WEFT_RANK_KINDS_FIRSTS,
    WEFT_RANK_KINDS_SEPARATE /* one kind per rank, for comparison */
} weft_rank_kinds_which;
/* Plans the kinds on `backend` (borrowed), which allocates no memory. */
weft_status weft_rank_kinds_plan(const weft_simulated_setup *setup, const weft_mesh *mesh,
                                 const weft_backend *backend, weft_rank_kinds_which which,
                                 weft_rank_kinds *kinds);
void weft_rank_kinds_free(weft_rank_kinds *kinds);

/* Planned messages of a step on one rank. sent[WEFT_MAX_AXES]: by mesh axis, all 0 before the call;
 * *inside: those of the microbatches. `pp` (NULL: no pipeline) and `pp_axis` are the rank's;
 * `per_node` is the number of ranks per node. */
weft_status weft_stage_programs_sent(const weft_stage_programs *steps, const weft_pp_layout *pp,
                                     int pp_axis, int per_node, weft_sent *inside, weft_sent *sent);

#endif
