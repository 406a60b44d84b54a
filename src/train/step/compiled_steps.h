/* Steps by what they are made from: the whole graph, the optimizer, the mesh, the backend and its
 * options. A stage whose shapes were seen before, whatever its learning rate or length, is neither
 * passed, planned nor compiled again. */
#ifndef WEFT_TRAIN_STEP_CACHE_H
#define WEFT_TRAIN_STEP_CACHE_H

#include "train/optimizer.h"
#include "train/step.h"

typedef struct weft_step_cache weft_step_cache;
weft_step_cache *weft_step_cache_create(void);     /* NULL: no memory */
void weft_step_cache_free(weft_step_cache *cache); /* accepts NULL */
/* The planned step of `whole` (taken, also on failure), made now or found; borrowed until the next
 * bind of others. Of those that are in use no more, the last GiB of graphs and plans stays
 * (runtime/program_cache.h). */
weft_status weft_step_cache_get(weft_step_cache *cache, weft_graph *whole,
                                const weft_optimizer_config *optimizer,
                                const weft_place_of_run *place, weft_step **step);
/* Reserves the memory of `count` steps that run one at a time (the buckets of a stage) and connects
 * them to `store`, initialising what the store does not have. What was bound before gives its
 * memory back first, unless it is the same. */
weft_status weft_step_cache_bind(weft_step_cache *cache, weft_step *const *steps, int count,
                                 weft_store *store, uint64_t seed);
/* Gives back the memory of those that are bound. */
void weft_step_cache_unbind(weft_step_cache *cache);
/* What they reserve. */
int64_t weft_step_cache_bytes(const weft_step_cache *cache);
/* What graphs and programs take beside that. */
int64_t weft_step_cache_kept(const weft_step_cache *cache);
/* Times that get planned a step, and that it found one. */
void weft_step_cache_counts(const weft_step_cache *cache, int64_t *made, int64_t *found);

#endif
