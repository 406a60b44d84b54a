/* Enumerates the layouts of training and of generation: the degrees (plan/layout/degree_space.h),
 * and the variants of each. */
#ifndef WEFT_ESTIMATE_LAYOUT_VARIANTS_H
#define WEFT_ESTIMATE_LAYOUT_VARIANTS_H

#include "transform/sharding/mesh_config.h"

/* The layouts to visit. Keys that do not vary have the value in `base`. */
typedef struct weft_layout_space {
    int ranks;
    weft_parallel base;
    int64_t rows;  /* generation: rows of a denoising batch, the limit of cfg x dp; 0: no limit */
    int branches;  /* generation: CFG branches, which cfg splits; else 1 */
    bool experts;  /* the model supports ep */
    bool heads;    /* the model supports context kind heads */
    bool train;    /* zero, pp and its schedules vary */
    int64_t batch; /* training: greatest common divisor of all batches */
} weft_layout_space;

typedef weft_status_code (*weft_layout_visit)(void *self, const weft_parallel *parallel);

/* Visits every product of dp (with cfg), fsdp, ep, tp, cp and pp that equals the ranks. Variants:
 *
 *   cfg           2 if there are two branches and they divide dp
 *   zero          training: 0 to 2 with dp, else 0
 *   sequence      off and on with tp
 *   context       every pair of ulysses and ring with product cp; with `heads` also kind heads
 *   schedule      training: gpipe, 1f1b, interleaved, wave and zero-bubble with pp
 *   microbatches  training: with pp every divisor of the batches from pp to 4 pp; without such a
 *                 divisor the largest number that the run permits
 *
 * Layouts that the run or the generator rejects are visited too. */
weft_status weft_layout_variants(const weft_layout_space *space, weft_layout_visit visit,
                                 void *self);

#endif
