/* What a run of a planned program will take: its instructions on a clock, with seconds of kernels
 * and exchanges that were measured elsewhere.
 *
 *     kernels    [ n0 ][ n1 ]    [ n3 ][   n4   ]xx[ n5 ]
 *     exchanges       a [==========]  b [===]
 *
 * x is a wait for a; that, and what kernels beside exchanges lose to them, is exposed.
 *
 * Exchanges of all axes and channels follow one another, as one thread drives them; bundles and the
 * places of starts and waits are those of the program. */
#ifndef WEFT_RUNTIME_FORESEE_H
#define WEFT_RUNTIME_FORESEE_H

#include "runtime/moves.h"
#include "runtime/runtime.h"

typedef struct weft_part_times {
    const double *kernel; /* seconds by node */
    /* Of an exchange along a mesh axis; `bytes` as weft_algorithm_cost has them. */
    double (*exchange)(const void *self, int axis, weft_comm_op op, int64_t bytes);
    const void *self;
    double copy; /* of a byte that is copied: values of states that are not made in place */
    double drag; /* of the seconds of an exchange behind kernels, the share that these lose, 0..1 */
    double move_drag; /* the same of copies elsewhere and back */
} weft_part_times;

typedef struct weft_foreseen {
    double seconds, kernels, exposed;
    double busy; /* exchanges: hidden or exposed */
} weft_foreseen;

weft_status weft_program_foresee(const weft_program *program, const weft_part_times *times,
                                 weft_foreseen *out);

#endif
