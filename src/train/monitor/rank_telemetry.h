/* What each rank tells all others in every step, and without a message for it: whether it was told
 * to stop (Ctrl-C, SIGTERM), and how it spent its last step. It is one more small tensor of sums
 * that the step has anyway; a rank leaves the others' places 0.
 *
 *   loss       all_reduce on dp ───────> all_reduce on cp ────────> clip
 *   norm                                                all_reduce on tp ───> clip
 *   bulletin   all_reduce on dp ───────> all_reduce on cp ──> all_reduce on tp ───> bulletin of all
 *
 * Each of its sums stands right behind a scalar's of the same mesh axis, so that they are one
 * bundle (runtime/bundle.c), and reads the one before when that has been waited for anyway.
 *
 *   | told to stop | rank 0: kernels, waits, data | rank 1: ... | ...                            */
#ifndef WEFT_TRAIN_BULLETIN_H
#define WEFT_TRAIN_BULLETIN_H

#include "graph/graph.h"

/* Seconds of a step: in kernels, waiting for other ranks, and until its batch was there. */
typedef struct weft_pace {
    float kernels, waits, data;
} weft_pace;

/* Floats of the bulletin: whether a rank was told to stop, alone or with the pace of so many. */
int64_t weft_bulletin_floats(int ranks);

/* Of the graph of one rank, which no other pass changes any more, *out is a copy with
 *
 *   input    "bulletin": f32 (floats), this rank's own
 *   output   "bulletin.all": its sum over the ranks along `axes`
 *
 * `before`: a set of mesh axes (bits) along which it was summed already. With `all` it is summed
 * along every other, where no scalar is by itself; else along those where one is. *axes: the axes
 * of both. With none to sum along *out is NULL. */
weft_status weft_bulletin_add(const weft_graph *graph, int64_t floats, uint32_t before, bool all,
                              uint32_t *axes, weft_graph **out);

#endif
