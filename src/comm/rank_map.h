/* Location of a rank's process, and the rank order that follows from the locations. Ranks of one
 * machine are consecutive, and within a machine the ranks of one NUMA node. The fastest axis of a
 * mesh then has the cheapest messages, however the launcher has distributed the processes.
 *
 *   started (by node, in turn)   a0 b0 a1 b1        numbered   a0 a1 b0 b1
 *                                0  1  2  3                    0  1  2  3 */
#ifndef WEFT_COMM_RANK_MAP_H
#define WEFT_COMM_RANK_MAP_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_rank_location {
    int32_t machine;     /* any number shared by all processes of the machine */
    int32_t numa;        /* NUMA node; -1: several */
    int32_t core, cores; /* first permitted core (-1: any), and number of permitted cores */
} weft_rank_location;

/* Returns the location of this process; `machine` is 0. An unbound process costs a system call, a
 * bound one the discovery of the machine by hwloc. */
weft_rank_location weft_rank_location_here(void);
/* Sets order[i] to the process that becomes rank i. Machines are in the order of their first
 * process. Processes with equal locations keep their order. */
weft_status weft_rank_order(const weft_rank_location *location, int count, int *order);

#endif
