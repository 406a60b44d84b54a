/* What a run is made of beside its config: hashes of the data, of the encoders' weights, of every
 * stage's sizes. It stands in each checkpoint, so that nobody goes on with another data set,
 * autoencoder or length of clips without knowing. The number of threads is not in it: it changes no
 * bit. */
#ifndef WEFT_TRAIN_MADE_OF_H
#define WEFT_TRAIN_MADE_OF_H

#include "base/json.h"
#include "train/objective.h"

/* Every stage against the data: each needs samples that fit. Says which stage does not, and which
 * repeats samples inside of a step. `fingerprint`: of the data set. */
weft_status weft_run_check_data(const weft_run *run, uint64_t *fingerprint);
/* {"data", "autoencoder", "base" (of a model that is tuned), "text_encoder", "stages": [...]}:
 * hashes. Reads the encoders' weights. */
weft_status weft_made_of(const weft_run *run, const weft_run_models *models, uint64_t fingerprint,
                         json_t **made_of);
/* 16 hexadecimal digits; NULL: out of memory. */
json_t *weft_hash_text(uint64_t hash);
/* What of `now` is not as it was `before` (NULL: not known): WEFT_E_CONFIG lists it, or, when
 * changes are allowed, warnings. Stages may have been added. `where` names the checkpoint. */
weft_status weft_made_of_compare(const json_t *before, const json_t *now, bool allowed,
                                 const char *where);
/* Logs the keys of the config `yaml` that differ from <folder>/config.yaml, a line each. */
void weft_made_of_log_changes(const char *folder, const char *yaml);

#endif
