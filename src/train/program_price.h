/* Seconds of a compiled program on one rank: kernels by a device's rates, exchanges by a cluster's
 * links, put on a clock as the program runs them (runtime/foresee.h). */
#ifndef WEFT_TRAIN_PROGRAM_PRICE_H
#define WEFT_TRAIN_PROGRAM_PRICE_H

#include "plan/cluster/cluster.h"
#include "runtime/foresee.h"

/* Ranks of the mesh fill one node of the cluster after the other. Borrowed. */
typedef struct weft_priced_links {
    const weft_cluster *cluster;
    const weft_mesh *mesh;
} weft_priced_links;

/* Of an exchange along an axis: as measured (plan/cost/rates.h), else by the links. */
double weft_exchange_price(const weft_priced_links *links, const char *op, weft_collective kind,
                           int axis, int64_t bytes);
/* `kernel`: seconds by node of the program's graph. */
weft_status weft_program_price(const weft_priced_links *links, const weft_program *program,
                               const double *kernel, weft_foreseen *out);

#endif
