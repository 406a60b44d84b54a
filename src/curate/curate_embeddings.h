/* The phase of a curation that computes embeddings of shots. Private to curate/.
 *
 *     records ── limits ──> shots ── embeddings ── merge ──> operators      with merge, aesthetics
 *     records ── limits ── operators ──> accepted shots ── embeddings       otherwise
 *
 * Embeddings are in OUT/state/ID.embeddings.safetensors (embedding_file.h). */
#ifndef WEFT_CURATE_CURATE_EMBEDDINGS_H
#define WEFT_CURATE_CURATE_EMBEDDINGS_H

#include "curate/curate_plan.h"

/* Whether embeddings are computed before the operators see the shots. */
bool weft_curate_embeddings_are_first(const weft_curate_plan *plan);
/* Reads the embeddings of a source with a record. `begin`: ignores failed attempts of the previous
 * run. */
weft_status weft_curate_embeddings_load(const weft_curate_plan *plan, weft_curate_source *source,
                                        bool begin);
/* Joins neighbouring shots of a record by their embeddings, if all were computed. */
weft_status weft_curate_embeddings_merge(const weft_curate_plan *plan, weft_curate_source *source);
/* Sets source->unembedded: a shot that needs an embedding was not tried. */
void weft_curate_embeddings_mark(const weft_curate_plan *plan, weft_curate_source *source);
/* The embedding of a shot; NULL: none. */
const float *weft_curate_embedding_of(const weft_curate_source *source, const json_t *shot);
/* Computes the missing embeddings of this run's videos. */
weft_status weft_curate_embeddings_run(weft_curate_plan *plan, int workers, int64_t memory);

#endif
