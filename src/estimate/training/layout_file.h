/* Layout file, written by `weft plan layout --run-config` and read by `parallel: {layout_file:
 * FILE}`.
 *
 *   {"format": "weft.run-layout/1", "weft": VERSION, "id": hash of the file's content,
 *    "cluster": {"spec", "id"},
 *    "run": {"model": "WanTransformer3DModel", "parameters": N, "id": hash of its graphs},
 *    "workload": {"ranks": N, "stages": [{"accumulate": 1, "sizes": ["16 x 13x64x64"]}, ...]},
 *    "parallel": {"dp": 2, ...},   keys of the config's section that differ from the defaults
 *    "memory_limit": bytes,        met by recomputing activations; 0: no limit
 *    "predicted": {"seconds", "peak_bytes", ...},   weft_layout_estimate_json; "reserved_bytes" is
 *        the peak without program and libraries, the same at every start
 *    "candidates": [{"layout": "dp=2", ..., "why": text}, ...]} */
#ifndef WEFT_ESTIMATE_TRAINING_LAYOUT_FILE_H
#define WEFT_ESTIMATE_TRAINING_LAYOUT_FILE_H

#include "base/json.h"
#include "estimate/training/layout_search.h"

#define WEFT_RUN_LAYOUT_FORMAT "weft.run-layout/1"

/* Writes the best of `layouts` as JSON with its hash. `spec` is the cluster's. */
weft_status weft_layout_to_json(const weft_layout_estimator *estimator,
                                const weft_layout_list *layouts, const char *spec, json_t **json);
/* Hash of a layout's workload: the graphs and sizes of all training stages, and the ranks. */
weft_status weft_layout_work_id(const weft_run *run, const weft_run_models *models, int ranks,
                                uint64_t *id);
/* Sets run->parallel from the file, and run->memory_limit if unset. `ranks` 0: any number of ranks.
 * WEFT_E_CONFIG: the file is for another model, other sizes or another number of ranks;
 * WEFT_E_FORMAT: not a layout file, or edited. `arena` owns the strings. */
weft_status weft_layout_load(weft_arena *arena, const char *file, const char *path, int ranks,
                             const weft_run_models *models, weft_run *run);

#endif
