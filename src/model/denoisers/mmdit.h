/* Blocks of multimodal diffusion transformers (Esser et al. 2024), as in HunyuanVideo and Flux,
 * with diffusers' names. Streams of tokens stay separate: only keys and values are joined.
 *
 *   double: each stream has the layers of its kind, video or text, then a feed-forward
 *   single: the same layers for all streams, attention parallel to the feed-forward
 *
 * Shape letters: B batch, S tokens of a stream, C width. */
#ifndef WEFT_MODEL_DENOISERS_MMDIT_H
#define WEFT_MODEL_DENOISERS_MMDIT_H

#include "nn/nn.h"

#define WEFT_MMDIT_EPS 1e-6
enum { WEFT_MMDIT_TIME = 256, WEFT_MMDIT_STREAMS = 3 }; /* sinusoid width; maximum streams */

typedef struct weft_mmdit {
    int64_t heads, head_dim, inner; /* inner: feed-forward width */
} weft_mmdit;

typedef struct weft_mmdit_stream {
    weft_value x, temb_bc; /* x (B,S,C): input and output of a block */
    bool text;
    weft_value rope[WEFT_MAX_OUTPUTS]; /* streams other than text */
} weft_mmdit_stream;

/* Runs one block on all streams. `bias` of the joined keys, in the order of the streams, or
 * WEFT_NONE. */
void weft_mmdit_double(weft_graph *g, const weft_mmdit *c, weft_mmdit_stream *stream, int count,
                       weft_value bias);
void weft_mmdit_single(weft_graph *g, const weft_mmdit *c, weft_mmdit_stream *stream, int count,
                       weft_value bias);
/* Modulation: silu, then a layer from C to rows C: (B,C) -> (B,rows,C). */
weft_value weft_mmdit_modulation(weft_graph *g, const weft_nn_layer *layer, weft_value temb_bc,
                                 int64_t rows);
/* "norm_out" and "proj_out": (B,S,C) -> (B,S,out) */
weft_value weft_mmdit_last(weft_graph *g, const weft_mmdit *c, weft_value x, weft_value temb_bc,
                           int64_t out);

#endif
