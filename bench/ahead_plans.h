/* Plans of simulated ranks whose encoders run one iteration ahead (`encoders: ahead`).
 *
 *     plan         s0.vae   s0.dit after s0.vae                 n = 1 sample
 *     ahead_put    s1.vae   s0.dit after s0.vae   kept: s0.vae, on the ranks that encoded it
 *
 * The encoders of the plan become encoders of the next iteration's samples, and the transformers
 * read the rows that the iteration before encoded. */
#ifndef WEFT_BENCH_AHEAD_PLANS_H
#define WEFT_BENCH_AHEAD_PLANS_H

#include "simulated_ranks.h"

enum { AHEAD_CASCADES = 3 * SIMULATED_RANKS / 4 };

/* Iterations that follow each other on the ranks. Any other execution loses the rows: set `batches`
 * to 0. */
typedef struct ahead_chain {
    int64_t batches; /* samples of its iterations so far; 0: no rows exist */
    /* executed encoders of samples of the next iteration, by sample and module */
    struct {
        int32_t device[SIMULATED_RANKS];
        int64_t degree;
    } kept[AHEAD_CASCADES];
} ahead_chain;

/* Memory of a rebuilt plan. */
typedef struct ahead_plan {
    weft_placed_sample sample[2 * AHEAD_CASCADES];
    weft_placed_cascade cascade[2 * AHEAD_CASCADES];
    char id[2 * AHEAD_CASCADES][16];
    int32_t after[AHEAD_CASCADES][2];
} ahead_plan;

/* Rebuilds `plan`, whose sample s has its encoders and its transformer. The encoders encode
 * next[s]. Without rows (batches 0) the transformers read nothing. */
void ahead_put(const ahead_chain *chain, const weft_placed_sample *next,
               weft_placed_iteration *plan, ahead_plan *to);
/* Remembers the ranks that have the rows of the next iteration, after an execution. `samples`: of
 * one iteration. */
void ahead_keep(ahead_chain *chain, int64_t samples);

#endif
