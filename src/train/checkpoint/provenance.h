/* The provenance of a run: hashes of the data, of the encoders' weights, and of the sizes of every
 * training stage. Each checkpoint contains the provenance, so that a run does not resume by mistake
 * with another data set, autoencoder or clip length. The number of threads is not included because
 * the results do not depend on it. */
#ifndef WEFT_TRAIN_CHECKPOINT_PROVENANCE_H
#define WEFT_TRAIN_CHECKPOINT_PROVENANCE_H

#include "base/json.h"
#include "data/loader.h"
#include "train/graph/objective.h"

/* Checks that the data set has samples for every training stage; the error names the stage. Warns
 * of training stages that repeat samples within a step. `fingerprint` receives the data set's. */
weft_status weft_run_check_data(const weft_run *run, uint64_t *fingerprint);
/* Sets *made_of to the provenance: hashes of "data", "autoencoder", "base" (weights of a partly
 * trained model), "lpips", text encoders, tokenizers and "stages": [...]; also "tile", "lora" and
 * the "blend" of sources. Reads the encoders' weights. */
weft_status weft_provenance_make(const weft_run *run, const weft_run_models *models,
                                 uint64_t fingerprint, json_t **made_of);
/* The provenance in a checkpoint's state.json: "provenance", or "made_of" of earlier versions.
 * NULL: none. */
const json_t *weft_provenance_of_state(const json_t *state);
/* Compares the run's provenance `now` with `before` (NULL: unknown). Differences are listed in
 * WEFT_E_CONFIG, or in warnings with checkpoint.allow_changes. Additional training stages are not a
 * difference. `where` names the checkpoint. */
weft_status weft_provenance_check(const weft_run *run, const json_t *before, const json_t *now,
                                  const char *where);
/* Logs the keys of the config `yaml` that differ from <folder>/config.yaml, one per line. */
void weft_provenance_log_changes(const char *folder, const char *yaml);
/* Whether <folder>/config.yaml contains `text`; true if the file cannot be read. */
bool weft_provenance_config_has(const char *folder, const char *text);

/* Prints the layers that lora.targets: auto is. */
weft_status weft_run_print_targets(const weft_run *run, const weft_run_models *models);
/* Warns of settings that are legal but probably unintended. */
void weft_run_warn_unusual(const weft_run *run);
/* Warns of samples without a caption before training. A model trained without captions does not
 * follow prompts, which is noticed only days later. */
void weft_run_warn_captions(const weft_loader *loader);

#endif
