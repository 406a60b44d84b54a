/* Implements memory.limit: chooses the saved activations to keep, recompute or offload, so that the
 * predicted peak of every rank is within the limit at the lowest cost. */
#ifndef WEFT_TRAIN_ESTIMATE_MEMORY_FIT_H
#define WEFT_TRAIN_ESTIMATE_MEMORY_FIT_H

#include "exec/copy_engine.h"
#include "train/estimate/activation_plan.h"
#include "train/estimate/memory_estimate.h"

/* Rates of this machine, measured. */
typedef struct weft_fit_rates {
    double gflops, bf16_gflops,
        bytes_per_second;          /* 0: not measured; the rates of memory.profile are used */
    weft_copy_engine_rates copies; /* 0 bytes/s: not measured */
} weft_fit_rates;
/* Measures what weft_run_fit_memory needs. Call before the run reserves memory: the buffers of the
 * measurement (8 MiB at a time) then do not add to the peak of the run. */
weft_status weft_fit_rates_measure(const weft_run *run, const weft_backend *backend,
                                   weft_fit_rates *rates);

/* Fills activations[] by training stage for weft_exec_config.stage_activations, which `exec` need
 * not have. Free it with weft_activation_plans_free, also on failure. The planner
 * (activation_planner.h) chooses from the activations that this rank's graphs save, with
 * exec->fit_rates, rates measured now, or those of memory.profile. The peak is computed from the
 * planned programs of every rank. `message` receives a line for each stage that does not keep
 * all activations. Collective over `together`; NULL: this rank decides alone. WEFT_E_MEMORY: no
 * choice fits; the message names the lowest sufficient limit.
 *
 * `stored` (NULL: none): the activation plan of the run, the same on all ranks. A stage uses the
 * stored choice if the config, the layout and the sizes are unchanged. The process may be larger
 * than at the start that chose. Otherwise the new choice replaces the stored one. */
weft_status weft_run_fit_memory(const weft_run *run, const weft_run_models *models,
                                const weft_exec_config *exec, weft_comm *together,
                                weft_store *store, int64_t process_bytes,
                                weft_stored_activations *stored, weft_activation_plan *activations,
                                weft_buf *message);
/* Frees the rows and the array. Accepts NULL. */
void weft_activation_plans_free(weft_activation_plan *activations, int64_t train_stages);

#endif
