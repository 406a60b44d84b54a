/* Cost table of cascades: seconds and bytes by module, bucket and degree. Each entry is estimated
 * once, from a profile and the programs that would run. Measured seconds refit the table after
 * every iteration, so the error of a wrong profile lasts for one iteration.
 *
 *     estimate  predicted seconds of the program, by (module, bucket, degree)
 *     measured  moving mean of the executed seconds; recent iterations have the largest weight
 *
 * A degree that was not measured is interpolated between the nearest measured degrees of its
 * bucket, in proportion to the estimates. With one such degree the estimate is scaled by its
 * measured / estimate. A bucket that was not measured is on a line through the module's other
 * buckets:
 *
 *     measured |            x .               measured = begin + slope * estimate
 *              |       . o                    x measured, o interpolated
 *              |  x .
 *              +----------------- estimate
 *
 * The table does not depend on programs: a callback returns the estimates. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_COST_TABLE_H
#define WEFT_TRAIN_CASCADE_CASCADE_COST_TABLE_H

#include "train/cascade/iteration_layout.h"

typedef struct weft_cascade_estimate {
    double seconds;
    double bytes; /* total bytes of a rank */
} weft_cascade_estimate;

typedef struct weft_cascade_facts {
    int buckets, ranks;
    void *user;
    weft_status (*estimate)(void *user, weft_cascade_module module, int bucket, int degree,
                            weft_cascade_estimate *out);
} weft_cascade_facts;

typedef struct weft_cascade_cost_table weft_cascade_cost_table;
weft_status weft_cascade_cost_table_create(const weft_cascade_facts *facts,
                                           weft_cascade_cost_table **out);
void weft_cascade_cost_table_free(weft_cascade_cost_table *cost_table); /* accepts NULL */
/* Sets *seconds to the measured or interpolated seconds and *bytes to the estimated bytes of a
 * rank. */
weft_status weft_cascade_cost_table_get(weft_cascade_cost_table *cost_table,
                                        weft_cascade_module module, int bucket, int degree,
                                        double *seconds, double *bytes);

/* Errors of the predicted seconds in one iteration: means of |ln(predicted / measured)|, so factors
 * of 2 and 1/2 count alike. NAN: the iteration has no cascade of the module. */
typedef struct weft_cascade_fit {
    double planned[WEFT_CASCADE_MODULES];   /* error of the seconds in the plan */
    double estimated[WEFT_CASCADE_MODULES]; /* error of the estimates without measurements */
    double factor;                          /* measured / estimate, geometric mean */
} weft_cascade_fit;
/* Adds the measurements of an executed plan to the table and sets *fit. `seconds` has one value per
 * cascade of the plan; NAN: not measured. `cold` marks the first run of a program, which counts
 * only until another measurement exists; NULL: none is cold. */
weft_status weft_cascade_cost_table_record(weft_cascade_cost_table *cost_table,
                                           const weft_placed_iteration *plan, const double *seconds,
                                           const bool *cold, weft_cascade_fit *fit);
/* Appends a warning about modules whose measured seconds differ from the estimates by more than a
 * factor of 3. Appends nothing after the first warning of a run. */
void weft_cascade_cost_table_format_outliers(weft_cascade_cost_table *cost_table, weft_buf *out);

#endif
