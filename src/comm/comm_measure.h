#ifndef WEFT_COMM_COMM_MEASURE_H
#define WEFT_COMM_COMM_MEASURE_H

#include "comm/comm.h"

/* Collective: measures the link costs from rank 0 to the first other rank of its node, and to the
 * first rank of another node. Costs that cannot be measured keep their defaults. */
weft_status weft_comm_measure(weft_comm *comm, weft_link_costs *costs);
/* Collective: measures this rank's links in two rings, at the same time as all other ranks. One
 * ring has the ranks of its machine, the other the ranks with its index on other machines. Returns
 * the better result of two neighbours, so that a slow neighbour does not count. A speed of 0: no
 * such link. */
weft_status weft_comm_measure_links(weft_comm *comm, weft_link_speed *inside,
                                    weft_link_speed *between);

/* Measures the seconds of a collective of `bytes` (counted as in weft_algorithm_cost) among every
 * `ranks` consecutive ranks at the same time. `ranks` must divide the number of ranks. For a send:
 * one way between two ranks. */
weft_status weft_comm_measure_exchange(weft_comm *comm, int ranks, weft_comm_op op, int64_t bytes,
                                       double *seconds);
/* Measures the slowdown of kernels during communication, as a share of its seconds, 0 to 1. It is
 * near 0 if the progress thread has a free core. */
weft_status weft_comm_measure_drag(weft_comm *comm, double *slowdown);

#endif
