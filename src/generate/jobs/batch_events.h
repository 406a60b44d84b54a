/* The generator's sink for a batch: saved files, previews, the video, and progress. */
#ifndef WEFT_GENERATE_JOBS_BATCH_EVENTS_H
#define WEFT_GENERATE_JOBS_BATCH_EVENTS_H

#include "generate/jobs/generation_batch.h"

/* The sink borrows the batch. */
weft_generator_sink weft_batch_events_sink(weft_generation_batch *batch);

#endif
