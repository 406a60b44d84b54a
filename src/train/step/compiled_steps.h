/* Cache of compiled steps. The key is the unsharded graph, the optimizer, the mesh, the backend and
 * its options. A training stage with known shapes reuses its programs, whatever its learning rate
 * or length. */
#ifndef WEFT_TRAIN_STEP_COMPILED_STEPS_H
#define WEFT_TRAIN_STEP_COMPILED_STEPS_H

#include "train/graph/optimizer.h"
#include "train/step/train_step.h"

typedef struct weft_compiled_steps weft_compiled_steps;
weft_compiled_steps *weft_compiled_steps_create(void);     /* NULL: out of memory */
void weft_compiled_steps_free(weft_compiled_steps *cache); /* accepts NULL */
/* Returns the planned step of `whole` (taken, also on failure), from the cache if possible. The
 * step is borrowed until weft_compiled_steps_bind binds other steps. Of unused steps, up to 1 GiB
 * of graphs and plans stay cached (exec/program_cache.h). */
weft_status weft_compiled_steps_get(weft_compiled_steps *cache, weft_graph *whole,
                                    const weft_optimizer_config *optimizer,
                                    const weft_exec_config *exec, weft_step **step);
/* Reserves memory for `count` steps that run one at a time (the buckets of a training stage) and
 * connects them to `store`. Missing tensors are added and initialised. Steps that were bound before
 * release their memory first, unless they are the same steps. */
weft_status weft_compiled_steps_bind(weft_compiled_steps *cache, weft_step *const *steps, int count,
                                     weft_store *store, uint64_t seed);
/* Releases the memory of the bound steps. */
void weft_compiled_steps_unbind(weft_compiled_steps *cache);
/* Bytes that the bound steps reserve. */
int64_t weft_compiled_steps_bytes(const weft_compiled_steps *cache);
/* Bytes of the graphs and programs themselves. */
int64_t weft_compiled_steps_program_bytes(const weft_compiled_steps *cache);
/* Number of steps that weft_compiled_steps_get planned (*made) and found in the cache (*found). */
void weft_compiled_steps_counts(const weft_compiled_steps *cache, int64_t *made, int64_t *found);

#endif
