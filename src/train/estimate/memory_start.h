/* Memory of a run at its start: checks, cached latents, activation plans, and the prediction. */
#ifndef WEFT_TRAIN_ESTIMATE_MEMORY_START_H
#define WEFT_TRAIN_ESTIMATE_MEMORY_START_H

#include "train/estimate/memory_fit.h"
#include "train/estimate/process_memory.h"
#include "train/step/stage_state.h"

/* Checks that files can be created in the folder of memory.offload, before the first offload needs
 * one. */
weft_status weft_run_check_offload(const weft_run *run);

/* Predicted memory of a run. Zero-initialise; free with weft_memory_start_free. */
typedef struct weft_memory_start {
    weft_process_memory process; /* program and libraries, before the run reserves memory */
    weft_fit_rates rates;        /* measured with memory.limit only */
    int64_t predicted;           /* predicted peak bytes of this process; 0: not predicted */
    int64_t reserved; /* bytes of `predicted` that the run reserves; the others are measured */
    /* [training stages] activation plans; NULL: no memory.limit */
    weft_activation_plan *activations;
    bool *encoded; /* [training stages] latents are already cached; NULL: none */
    int64_t train_stages;
} weft_memory_start;

void weft_memory_start_free(weft_memory_start *memory);
/* Collective; rank 0 reads the files. Finds the training stages whose latents are already cached,
 * and measures the process. Call before the run reserves memory. */
weft_status weft_memory_start_measure(weft_memory_start *memory, weft_train_context *context);
/* Collective. Chooses the activation plan of every training stage if memory.limit is set, and
 * prints it. Reads the plan of the run folder and, if it changes, writes it; a dry run uses no
 * files. The cache of programs is empty afterwards. */
weft_status weft_memory_start_fit(weft_memory_start *memory, weft_train_context *context);
/* Collective. Predicts the peak of this process, and prints the prediction of the rank with the
 * highest peak. */
weft_status weft_memory_start_predict(weft_memory_start *memory, const weft_train_context *context);
/* Collective. Prints the programs of a training stage that begins, on the rank with the highest
 * predicted peak. The stage is bound. */
weft_status weft_memory_start_print_stage(const weft_memory_start *memory,
                                          const weft_train_context *context,
                                          const weft_stage_state *train_stage);
/* Completes `status`, an error of binding programs: if a device lacks memory for their activations
 * and memory.limit is not set, names the limit that this device has memory for. Returns it. */
weft_status_code weft_memory_start_name_limit(const weft_memory_start *memory,
                                              const weft_train_context *context,
                                              weft_status_code status);
/* Prints the measured peak of this process next to the prediction. */
void weft_memory_start_print_peak(const weft_memory_start *memory);

#endif
