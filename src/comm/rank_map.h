/* Where the process of a rank runs, and the order of ranks that follows: those of a machine one
 * after the other, and there those of a NUMA node, so that the fastest axis of a mesh lies where
 * messages are cheapest, however the launcher dealt its processes out.
 *
 *   started (by node, in turn)   a0 b0 a1 b1        numbered   a0 a1 b0 b1
 *                                0  1  2  3                    0  1  2  3                        */
#ifndef WEFT_RUNTIME_SEAT_H
#define WEFT_RUNTIME_SEAT_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_seat {
    int32_t machine;     /* any number that the machine's other processes have too */
    int32_t numa;        /* node; -1: on several */
    int32_t core, cores; /* the first one that it may run on (-1: on any), and how many */
} weft_seat;

/* Of this process; `machine` is 0. A process that no launcher has bound costs a system call, others
 * the discovery of the machine by hwloc. */
weft_seat weft_seat_here(void);
/* order[i]: who becomes number i. Machines in the order of their first process; where seats are
 * alike, processes stay in their order. */
weft_status weft_seats_order(const weft_seat *seat, int count, int *order);

#endif
