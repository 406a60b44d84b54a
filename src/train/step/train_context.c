#include "train/step/train_context.h"

weft_status weft_train_context_create(weft_train_context *c)
{
    int states;
    const char *const *offload_states = weft_step_offloaded_states(&states);
    c->progress.guard = weft_guard_make(&c->run->guard);
    c->store = weft_store_create_on(c->exec.backend->device);
    if (c->store && c->exec.offload_states)
        weft_store_set_offload(c->store, offload_states, states, c->exec.offload_dir);
    c->steps = weft_compiled_steps_create();
    WEFT_TRY(WEFT_ALLOCATED(c->store && c->steps, "the training run"));
    return weft_step_telemetry_create(c->exec.telemetry_floats, &c->telemetry);
}

void weft_train_context_free(weft_train_context *c)
{
    weft_compiled_steps_free(c->steps);
    weft_tokenizer_set_close(&c->tokenizers);
    weft_store_free(c->store);
    weft_step_telemetry_free(&c->telemetry);
}

weft_status weft_train_context_drop_programs(weft_train_context *c)
{
    weft_compiled_steps_free(c->steps);
    c->steps = weft_compiled_steps_create();
    return WEFT_ALLOCATED(c->steps, "the training run");
}
