#include "model/halo.h"

#include "graph/builder_helpers.h"
#include "nn/resnet.h"

#include <stdio.h>

enum { MOST_FRAMES = 8 };

/* The last `frames` frames of x. A shorter x is padded at the front with zeros, or with `edge` with
 * its first frame. */
static weft_value last_of(weft_graph *g, weft_value x, int64_t frames, bool edge)
{
    const int64_t t = weft_dim(g, x, 1);
    if (t >= frames)
        return weft_slice(g, x, 1, t - frames, frames);
    return edge ? weft_nn_pad_edge(g, x, 1, frames - t, 0) : weft_pad(g, x, 1, frames - t, 0);
}

static weft_value joined(weft_graph *g, weft_value before, weft_value x)
{
    return weft_concat(g, (weft_value[]){before, x}, 2, 1);
}

/* Sends each rank's last frame to the next rank, then the frame before that, and so on. If the rank
 * has no more frames of its own, it forwards the frames that it received. */
static weft_value from_rank_before(weft_graph *g, weft_stream stream, weft_value x, int64_t frames,
                                   bool edge)
{
    const int64_t t = weft_dim(g, x, 1);
    const bool begins = stream == WEFT_STREAM_FIRST;
    const weft_value own = begins && t < frames ? last_of(g, x, frames, edge) : x;
    const int64_t have = weft_dim(g, own, 1);
    weft_value got[MOST_FRAMES];
    for (int64_t k = 0; k < frames; k++) {
        const weft_value one =
            k < have ? weft_slice(g, own, 1, have - 1 - k, 1) : got[frames - 1 - (k - have)];
        got[frames - 1 - k] = weft_emit(g, WEFT_OP_RELAY, &one, 1, &(weft_attr_comm){.dim = 1});
    }
    if (begins)
        return WEFT_NONE;
    return frames == 1 ? got[0] : weft_concat(g, got, (int)frames, 1);
}

bool weft_halo_join(weft_graph *g, weft_stream stream, int *caches, weft_value *x, int64_t frames,
                    bool edge)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    const bool goes_on = stream == WEFT_STREAM_NEXT;
    if (stream == WEFT_STREAM_ALONE || !weft_value_ok(*x))
        return false;
    if (frames > MOST_FRAMES) {
        weft_graph_fail(g, WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                        "a stream looks back %d frames at most, not %" PRId64, MOST_FRAMES, frames);
        return false;
    }
    if (mesh->axis_count && mesh->axis[0].size > 1) {
        const weft_value before = from_rank_before(g, stream, *x, frames, edge);
        if (goes_on)
            *x = joined(g, before, *x);
        return goes_on;
    }
    char name[32];
    snprintf(name, sizeof name, "cache.%d", (*caches)++);
    weft_shape shape = weft_value_get(g, *x)->shape;
    shape.dim[1] = frames;
    const weft_value cache =
        weft_state(g, name, WEFT_F32, shape, (weft_init){.kind = WEFT_INIT_ZERO});
    if (goes_on)
        *x = joined(g, cache, *x);
    weft_update(g, cache, last_of(g, *x, frames, edge));
    return goes_on;
}
