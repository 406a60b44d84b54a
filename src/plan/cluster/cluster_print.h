#ifndef WEFT_PLAN_CLUSTER_CLUSTER_PRINT_H
#define WEFT_PLAN_CLUSTER_CLUSTER_PRINT_H

#include "plan/cluster/cluster.h"

/* Prints devices, links, NICs, switches and the routes from device 0 on standard output. */
void weft_cluster_print(const weft_cluster *cluster);
/* Writes "12.5 GB/s", or "-" if the rate is not finite, to `text` and returns it. */
const char *weft_cluster_rate_text(double bytes_per_second, char text[32]);

#endif
