/* Seconds of a compiled program on one rank: kernels by a device's rates, exchanges by a cluster's
 * links, put on a clock as the program runs them (runtime/foresee.h). */
#ifndef WEFT_RUNTIME_PROGRAM_PRICE_H
#define WEFT_RUNTIME_PROGRAM_PRICE_H

#include "plan/cluster/cluster.h"
#include "runtime/foresee.h"

/* Ranks of the mesh fill one node of the cluster after the other, with `per_node` on each; 0: as
 * many as a node has devices. Borrowed. */
typedef struct weft_priced_links {
    const weft_cluster *cluster;
    const weft_mesh *mesh;
    int64_t per_node;
} weft_priced_links;

/* Of an exchange along an axis: as measured (plan/cost/rates.h), else by the links. */
double weft_exchange_price(const weft_priced_links *links, const char *op, weft_collective kind,
                           int axis, int64_t bytes);
/* `kernel`: seconds by node of the program's graph. */
weft_status weft_program_price(const weft_priced_links *links, const weft_program *program,
                               const double *kernel, weft_foreseen *out);

/* Of one run. */
typedef struct weft_program_cost {
    double seconds, forward, update, exposed, hidden;
    double exact; /* seconds of kernels that were measured at these shapes */
} weft_program_cost;
/* By the rates of the cluster's device: of this very program, where it was timed whole, else of its
 * kernels and exchanges; or by the device's figures. `updates`: all of it is the update. */
weft_status weft_program_cost_of(const weft_priced_links *links, const weft_program *program,
                                 bool updates, weft_program_cost *cost);
void weft_program_cost_add(weft_program_cost *to, const weft_program_cost *cost, double times);

#endif
