/* A layout as a file: what `weft plan layout --for` writes and `parallel: {plan: FILE}` takes.
 *
 *   {"format": "weft.run-layout/1", "weft": VERSION, "id": hash of all of it,
 *    "cluster": {"spec", "id"},
 *    "run": {"model": "WanTransformer3DModel", "parameters": N, "id": hash of its graphs},
 *    "workload": {"ranks": N, "stages": [{"accumulate": 1, "sizes": ["16 x 13x64x64"]}, ...]},
 *    "parallel": {"dp": 2, ...},   keys of the config's section that are not as usual
 *    "memory_limit": bytes,        stages make something again for it; 0: nothing
 *    "predicted": {"seconds", "compute", "exchange", "optimizer", "pauses", "exact", "peak_bytes",
 *        "device_bytes", "host_bytes", "elsewhere_bytes"},
 *    "candidates": [{"layout": "dp=2", ..., "why": text}, ...]} */
#ifndef WEFT_TRAIN_LAYOUT_FILE_H
#define WEFT_TRAIN_LAYOUT_FILE_H

#include "base/json.h"
#include "train/layouts.h"

#define WEFT_RUN_LAYOUT_FORMAT "weft.run-layout/1"

/* The best of `layouts`, sealed. `spec`: of the cluster. */
weft_status weft_layout_to_json(const weft_pricer *pricer, const weft_layouts *layouts,
                                const char *spec, json_t **json);
/* Sets run->parallel, and run->memory_limit where it has none, as the file says. WEFT_E_CONFIG: it
 * was made for another model, for other sizes or another number of ranks (`ranks` 0: as many as it
 * was made for); WEFT_E_FORMAT: it is none, or was changed. Strings live in `arena`. */
weft_status weft_layout_load(weft_arena *arena, const char *file, const char *path, int ranks,
                             const weft_run_models *models, weft_run *run);

#endif
