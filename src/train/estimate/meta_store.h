/* The store of a run on a device without memory, to predict bytes without reserving them. */
#ifndef WEFT_TRAIN_ESTIMATE_META_STORE_H
#define WEFT_TRAIN_ESTIMATE_META_STORE_H

#include "train/step/stage_programs.h"

/* Creates the store, and plans the programs of all stages in `cache`. exec->comm is not
 * used: the store has the names of this rank. *store is set also on failure. */
weft_status weft_meta_store_create(const weft_run *run, const weft_run_models *models,
                                   const weft_exec_config *exec, weft_compiled_steps *cache,
                                   weft_store **store);

#endif
