/* The phase of a curation that runs the operators of the config. Private to curate/.
 *
 *     records ── limits ──> shots ── sample, all operators ──> prices ──> order
 *                                 └─ the others, in this order, until one rejects
 *
 * Scores are in OUT/state/ID.scores.json and do not depend on the order. The order is measured once
 * and is then fixed in OUT/state/operators.json, for all runs and machines of the folder. */
#ifndef WEFT_CURATE_CURATE_SCORES_H
#define WEFT_CURATE_CURATE_SCORES_H

#include "curate/curate_plan.h"

/* Checks the operators of the config. Does nothing without operators. */
weft_status weft_curate_scores_open(weft_curate_plan *plan);
void weft_curate_scores_close(weft_curate_plan *plan);
/* Reads the scores of a source with a record, and rejects shots accordingly. `begin`: ignores
 * scores that failed in the previous run. */
weft_status weft_curate_scores_load(const weft_curate_plan *plan, weft_curate_source *source,
                                    bool begin);
/* Scores the shots of this run's videos whose records are loaded. `final`: the order is decided
 * also from few shots. */
weft_status weft_curate_scores_run(weft_curate_plan *plan, int workers, int64_t memory, bool final);
/* Adds the scores of a shot to the metadata of its clip. */
void weft_curate_scores_add(const weft_curate_plan *plan, const weft_curate_source *source,
                            const json_t *shot, json_t *meta);
#endif
