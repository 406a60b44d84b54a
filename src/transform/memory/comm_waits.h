#ifndef WEFT_TRANSFORM_MEMORY_COMM_WAITS_H
#define WEFT_TRANSFORM_MEMORY_COMM_WAITS_H

#include "base/memory.h"
#include "graph/op.h"

/* Sets wait[n] for each collective or copy n to the node before which the wait takes place. This is
 * the first node that reads the result (aliases read nothing). The wait is earlier if operands of
 * running requests would exceed the bytes of the two largest collectives, or the prefetch budget of
 * copies. The node count: wait at the end of the run. -1: other nodes. */
weft_status weft_comm_waits(const weft_graph *g, int32_t *wait);
/* Prints the graph as weft_graph_print does, with "start" before each collective and a line "wait
 * %9" at each wait. */
weft_status weft_pp_schedule_print(const weft_graph *g, weft_buf *out);

#endif
