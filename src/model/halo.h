/* What a piece of a stream (family.h, weft_stream) has to know of the frames before it, layer by
 * layer.
 *
 *     one after the other            states: FIRST and NEXT leave last frames, NEXT reads them
 *
 *     side by side, the graphs       rank 0 (FIRST)  x0 x1 x2 x3
 *     being those of a mesh's                              └──┴─> rank 1 (NEXT)  x4 x5
 *     ranks: pieces lie along                                                    └──┴─> rank 2
 *     its axis 0                     frame by frame, so that a piece may be shorter than what the
 *                                    next one has to know: it gives on what it got */
#ifndef WEFT_MODEL_STREAM_BEFORE_H
#define WEFT_MODEL_STREAM_BEFORE_H

#include "model/model.h"

/* Puts the `frames` frames before *x (B,T,Y,X,C) in a stream in front of it; false: there are none,
 * at its beginning, and for a video at once. Sees to it that the piece behind this one gets the
 * last frames: of a video that is shorter with zeros before them, or with `edge` its first frame
 * again. *caches counts the states of a graph, from 0. Their new values are parts of what is put
 * together, so that they are made after the old ones were read, in their place. */
bool weft_stream_join(weft_graph *g, weft_stream stream, int *caches, weft_value *x, int64_t frames,
                      bool edge);

#endif
