/* Halo frames of a temporal chunk (family.h, weft_stream): the preceding frames that each causal
 * layer reads.
 *
 *     chunks in sequence             states: FIRST and NEXT write their last frames, NEXT reads
 *
 *     chunks on the ranks of         rank 0 (FIRST)  x0 x1 x2 x3
 *     axis 0 of a mesh, at                                └──┴─> rank 1 (NEXT)  x4 x5
 *     the same time                                                         └──┴─> rank 2
 *                                    The halo is sent frame by frame. A chunk shorter than the halo
 *                                    forwards the frames that it received. */
#ifndef WEFT_MODEL_HALO_H
#define WEFT_MODEL_HALO_H

#include "model/model.h"

/* Prepends the `frames` preceding frames of the stream to *x (B,T,Y,X,C) and returns true. FIRST
 * and ALONE have no preceding frames and return false. FIRST and NEXT also pass their last frames
 * to the next chunk. At the start of a stream, missing frames are zeros, or copies of the first
 * frame with `edge`.
 *
 * *caches counts the states of a graph, from 0. The new value of a state is a slice of the joined
 * frames, so that the state is read before it is overwritten. */
bool weft_halo_join(weft_graph *g, weft_stream stream, int *caches, weft_value *x, int64_t frames,
                    bool edge);

#endif
