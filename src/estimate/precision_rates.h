/* Whether bf16 is faster than f32: the rule of `precision: auto` and `--precision auto`. */
#ifndef WEFT_ESTIMATE_PRECISION_RATES_H
#define WEFT_ESTIMATE_PRECISION_RATES_H

#include "base/memory.h"
#include "kernel/kernel.h"
#include "plan/cluster/cluster.h"

/* The choice as far as rates alone decide. */
typedef struct weft_precision_rates {
    bool decided; /* `bf16` is the choice, and `why` of the call has the reason */
    bool bf16;
} weft_precision_rates;

/* Completes `cluster` for estimates in both precisions. Without measured rates of this machine
 * (`local`), measures the backend in under a second and sets name[512], of the rates, to "measured
 * now". `why` gets the reason of a decision. `backend` NULL: a plugin that is not loaded. */
weft_status weft_precision_rates_open(const weft_backend *backend, bool local,
                                      weft_cluster *cluster, char name[512], weft_buf *why,
                                      weft_precision_rates *rates);
/* Returns true if seconds[1], in bf16, are less than seconds[0], in f32, by at least a tenth, and
 * appends both to `why`: "WHAT predicted 2 s in f32 and 1 s in bf16 on one rank". */
bool weft_precision_gains(const double seconds[2], const char *what, weft_buf *why);

#endif
