/* One clock for all ranks of a communicator: the clock of rank 0.
 *
 * Each rank measures the offset of its own clock by round trips to its parent in a binomial tree
 * whose root is rank 0:
 *
 *     this rank   asks at t0 ────┐                 ┌──> has the answer at t1
 *     parent                     └─> common time c ┘
 *
 * The fastest of several round trips is used: offset = c - (t0 + t1) / 2, with an error of at most
 * (t1 - t0) / 2 (Cristian, 1989; the Network Time Protocol uses the same estimate). Errors add up
 * along the tree. Ranks of one machine share its clock: a difference to the parent's offset within
 * the error of the round trip is set to zero. */
#ifndef WEFT_COMM_COMMON_CLOCK_H
#define WEFT_COMM_COMMON_CLOCK_H

#include "comm/comm.h"

/* Clock of one rank, in seconds. `now` NULL: weft_now(). */
typedef struct weft_own_clock {
    double (*now)(void *user);
    void *user;
} weft_own_clock;

typedef struct weft_common_clock {
    weft_own_clock own;
    double offset;      /* seconds from the own clock to the common one */
    double error;       /* largest error of the offset in seconds, when measured */
    double measured_at; /* time of the last measurement, own clock */
    bool measured;
} weft_common_clock;

/* Collective: measures the offset of clock->own. Sets the other members on success. */
weft_status weft_common_clock_measure(weft_comm *comm, weft_common_clock *clock);
/* Seconds on the common clock; before a measurement, on this rank's own. */
double weft_common_now(const weft_common_clock *clock);
/* Seconds since the last measurement; infinite before the first one. */
double weft_common_clock_age(const weft_common_clock *clock);

#endif
