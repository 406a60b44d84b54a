#include "train/estimate/meta_store.h"

#include "base/memory.h"
#include "kernel/registry/backend.h"

/* Puts the tensors of a stage's programs into the store. */
static weft_status fill(const weft_run *run, const weft_run_models *models,
                        const weft_train_stage *stage, const weft_exec_config *exec,
                        weft_compiled_steps *cache, weft_store *store)
{
    weft_stage_programs s = {0};
    weft_exec_config own = *exec;
    own.comm = NULL; /* local names only: other ranks fill stores of their own */
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_stage_programs_plan(cache, run, models, stage, exec, &s));
    WEFT_GO(weft_steps_fill(s.bucket, s.count, &own, store, 0));
out:
    weft_stage_programs_free(&s);
    return status;
}

weft_status weft_meta_store_create(const weft_run *run, const weft_run_models *models,
                                   const weft_exec_config *exec, weft_compiled_steps *cache,
                                   weft_store **store)
{
    *store = weft_store_create_on(weft_backend_find("virtual")->device);
    WEFT_TRY(WEFT_ALLOCATED(*store, "the prediction"));
    int states;
    const char *const *offload_states = weft_step_offloaded_states(&states);
    if (exec->offload_states)
        weft_store_set_offload(*store, offload_states, states, exec->offload_dir);
    for (int64_t i = 0; i < run->train_stages.count; i++)
        WEFT_TRY(fill(run, models, (const weft_train_stage *)run->train_stages.item + i, exec,
                      cache, *store));
    return WEFT_OK;
}
