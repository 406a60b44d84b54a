/* One clock for all ranks of a communicator: that of rank 0.
 *
 * Each rank measures the offset of its own clock by round trips to its parent in a binomial tree
 * whose root is rank 0:
 *
 *     this rank   asks at t0 ────┐                 ┌──> has the answer at t1
 *     parent                     └─> common time c ┘
 *
 * Of several round trips the quickest counts: offset = c - (t0 + t1) / 2, which is off by at most
 * (t1 - t0) / 2 (Cristian, 1989; the Network Time Protocol does the same). Errors add up along the
 * tree. Ranks of one machine share its clock: an offset that the round trip cannot tell from zero
 * is zero there. */
#ifndef WEFT_RUNTIME_COMMON_CLOCK_H
#define WEFT_RUNTIME_COMMON_CLOCK_H

#include "runtime/runtime.h"

/* The clock of a rank by itself, in seconds. `now` NULL: weft_now(). */
typedef struct weft_own_clock {
    double (*now)(void *user);
    void *user;
} weft_own_clock;

typedef struct weft_common_clock {
    weft_own_clock own;
    double offset;      /* seconds from the own clock to the common one */
    double error;       /* seconds by which the offset is off, at most, when it was measured */
    double measured_at; /* own seconds of the last measurement */
    bool measured;
} weft_common_clock;

/* Collective: measures the offset of clock->own. Other members are outputs, set on success. */
weft_status weft_common_clock_measure(weft_comm *comm, weft_common_clock *clock);
/* Seconds on the common clock; before a measurement, on this rank's own. */
double weft_common_now(const weft_common_clock *clock);
/* Seconds since the last measurement; infinite before the first one. */
double weft_common_clock_age(const weft_common_clock *clock);

/* Collective: opens the timelines of all ranks with one origin on the common clock, so that times
 * of two ranks can be compared. `own`: this rank's clock, which counts the times that are added;
 * NULL: weft_now(). */
weft_status weft_timeline_open_together(weft_comm *comm, const weft_own_clock *own,
                                        weft_timeline *timeline);

#endif
