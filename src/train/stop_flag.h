/* Whether any rank was told to stop (Ctrl-C, SIGTERM), known to all of them after the same step,
 * and without a message for it: the flag is one more element of sums that the step has anyway.
 *
 *   loss       all_reduce on dp ───────> all_reduce on cp ────────> clip
 *   norm                                                all_reduce on tp ───> clip
 *   interrupt  all_reduce on dp ───────> all_reduce on cp ──> all_reduce on tp ───> interrupted
 *
 * Each of its sums stands right behind a scalar's of the same mesh axis, so that they are one
 * bundle (runtime/bundle.c), and reads the one before when that has been waited for anyway. */
#ifndef WEFT_TRAIN_STOP_FLAG_H
#define WEFT_TRAIN_STOP_FLAG_H

#include "graph/graph.h"

/* Of the graph of one rank, which no other pass changes any more, *out is a copy with
 *
 *   input    "interrupt": f32, not 0 on a rank that was told to stop
 *   output   "interrupted": f32, not 0 where a rank was told along `axes`
 *
 * `before`: a set of mesh axes (bits) along which it was summed already. With `all` it is summed
 * along every other, where no scalar is by itself; else along those where one is. *axes: the axes
 * of both. With none to sum along *out is NULL. */
weft_status weft_stop_flag_add(const weft_graph *graph, uint32_t before, bool all, uint32_t *axes,
                               weft_graph **out);

#endif
