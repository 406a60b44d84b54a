/* Rank telemetry: the stop flag (Ctrl-C, SIGTERM) and the step timing of every rank, shared in
 * every step without additional messages. The telemetry is a small tensor that is all-reduced
 * together with other values of the step. A rank leaves the entries of other ranks 0.
 *
 *   loss       all_reduce on dp ───────> all_reduce on cp ────────> clip
 *   norm                                                all_reduce on tp ───> clip
 *   telemetry  all_reduce on dp ───────> all_reduce on cp ──> all_reduce on tp ──> all telemetry
 *
 * Each of its all-reduces follows a scalar's on the same axis, so that both are coalesced
 * (exec/coalesce.c). The previous all-reduce has already been waited for at this point.
 *
 *   | stop flag | rank 0: kernels, waits, data | rank 1: ... | ...                            | */
#ifndef WEFT_TRAIN_MONITOR_RANK_TELEMETRY_H
#define WEFT_TRAIN_MONITOR_RANK_TELEMETRY_H

#include "graph/graph.h"

/* Seconds of a step: in kernels, in waits for other ranks, and in waits for data. */
typedef struct weft_step_timing {
    float kernels, waits, data;
} weft_step_timing;

/* Number of floats: the stop flag and the timings of `ranks` ranks. 0 ranks: the stop flag only. */
int64_t weft_rank_telemetry_floats(int ranks);

/* Sets *out to a copy of the graph of one rank, after all other passes, with
 *
 *   input    "bulletin": f32 (floats), this rank's telemetry
 *   output   "bulletin.all": its sum over the ranks along `axes`
 *
 * `before`: mesh axes (bits) along which the telemetry is already reduced. With `all`, it is
 * reduced along all other axes, including axes without a scalar all-reduce; otherwise only along
 * axes with one. *axes: `before` and the axes added. If none is added, *out is NULL. */
weft_status weft_rank_telemetry_add(const weft_graph *graph, int64_t floats, uint32_t before,
                                    bool all, uint32_t *axes, weft_graph **out);

#endif
