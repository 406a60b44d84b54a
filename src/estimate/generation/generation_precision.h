/* Resolves `--precision auto` of a generation. */
#ifndef WEFT_ESTIMATE_GENERATION_GENERATION_PRECISION_H
#define WEFT_ESTIMATE_GENERATION_GENERATION_PRECISION_H

#include "estimate/generation/generation_estimate.h"

/* Sets *bf16 to whether a denoising step is faster in bf16 by at least a tenth, and prints the
 * choice and its reason. The step runs on one rank at the rates of the cluster, by the rule of
 * training (estimate/precision_rates.h). `spec`: the cluster's name. The estimator's options may
 * have any precision, and its layout is not used. */
weft_status weft_generation_choose_precision(const weft_generation_estimator *estimator,
                                             const char *spec, bool *bf16);

#endif
