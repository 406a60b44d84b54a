/* Text and JSON of the estimate of one generation, for `weft estimate --model`. */
#ifndef WEFT_ESTIMATE_GENERATION_GENERATION_REPORT_H
#define WEFT_ESTIMATE_GENERATION_GENERATION_REPORT_H

#include "base/json.h"
#include "estimate/generation/generation_layouts.h"

/* `cluster`: name of the estimator's cluster. */
void weft_generation_report_print(const weft_generation_estimator *estimator, const char *cluster,
                                  const weft_generation_estimate *estimate, weft_buf *out);
/* NULL: out of memory. */
json_t *weft_generation_report_json(const weft_generation_estimator *estimator, const char *cluster,
                                    const weft_generation_estimate *estimate);

#endif
