/* What cascades cost: seconds and bytes by module, bucket and number of ranks. They are told once
 * (by a profile and the programs that would run) and refitted after every iteration from what was
 * measured, so that a profile that is far off is far off for one iteration.
 *
 *     told      seconds by the graph, per (module, bucket, degree)
 *     measured  mean of what it took, the last ones count most; where a degree has not run yet,
 *               told times what its bucket's other degrees took over what they were told, else
 *               what the module's did
 *
 * Numbers only: whoever knows programs tells. */
#ifndef WEFT_TRAIN_CASCADE_COST_H
#define WEFT_TRAIN_CASCADE_COST_H

#include "train/cascade_plan.h"

typedef struct weft_cascade_told {
    double seconds;
    double bytes; /* of a rank, all in all */
} weft_cascade_told;

typedef struct weft_cascade_facts {
    int buckets, ranks;
    void *user;
    weft_status (*tell)(void *user, weft_cascade_module module, int bucket, int degree,
                        weft_cascade_told *out);
} weft_cascade_facts;

typedef struct weft_cascade_prices weft_cascade_prices;
weft_status weft_cascade_prices_create(const weft_cascade_facts *facts, weft_cascade_prices **out);
void weft_cascade_prices_free(weft_cascade_prices *prices); /* accepts NULL */
/* As known now. */
weft_status weft_cascade_prices_get(weft_cascade_prices *prices, weft_cascade_module module,
                                    int bucket, int degree, double *seconds, double *bytes);

/* How far prices were from the seconds of one iteration: means of |ln(predicted / measured)|, so
 * that twice and half count alike. NAN: no cascade. */
typedef struct weft_cascade_fit {
    double planned[WEFT_CASCADE_MODULES]; /* the seconds that it was planned with */
    double told[WEFT_CASCADE_MODULES];    /* without what was measured since */
    double factor;                        /* of all: measured over told */
} weft_cascade_fit;
/* `seconds` by cascade of the plan, as executed; NAN: not known. `cold` (NULL: none): the first run
 * of a program, which counts only until there is another. */
weft_status weft_cascade_prices_note(weft_cascade_prices *prices, const weft_placed_iteration *plan,
                                     const double *seconds, const bool *cold,
                                     weft_cascade_fit *fit);
/* A line on what was told and is more than 3 times off, once a run; else nothing. */
void weft_cascade_prices_odd(weft_cascade_prices *prices, weft_buf *out);

#endif
