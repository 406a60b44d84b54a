/* Messages of a program's collectives by mesh axis: planned, and as sent. */
#ifndef WEFT_EXEC_PROGRAM_SENT_H
#define WEFT_EXEC_PROGRAM_SENT_H

#include "comm/comm.h"
#include "exec/program.h"
#include "graph/mesh.h"

/* Distribution of ranks over nodes of `per_node` ranks each, for the ranks that differ from rank
 * `index` along `axis` only. */
weft_status weft_axis_span(const weft_mesh *mesh, int index, int axis, int per_node,
                           weft_span *span);
/* Adds the planned messages of `times` runs of a program that is not bound, with `per_node` mesh
 * ranks per node. Plans the program's collectives for these nodes. `by_axis`: [WEFT_MAX_AXES]. */
weft_status weft_program_add_planned(const weft_program *program, int per_node, int64_t times,
                                     weft_sent *by_axis);
/* Adds the messages of all runs until now, multiplied by `times`. */
void weft_program_add_sent(const weft_program *program, int64_t times, weft_sent *by_axis);

#endif
