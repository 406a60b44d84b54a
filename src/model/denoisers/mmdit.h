/* Blocks of multimodal diffusion transformers (Esser et al. 2024), as in HunyuanVideo, Flux and
 * Qwen-Image, with diffusers' names. Streams of tokens stay separate: only keys and values are
 * joined.
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

/* Names of a double block's layers of video and text outside attention. */
typedef struct weft_mmdit_names {
    const char *modulation[2], *layer; /* scopes, and the layer in a scope */
    const char *ff[2];
} weft_mmdit_names;

typedef struct weft_mmdit {
    int64_t heads, head_dim, inner; /* inner: feed-forward width */
    const weft_mmdit_names *names;  /* NULL: norm1.linear and ff.net, with _context for text */
    bool text_rope;                 /* the text has rotary positions, too */
    bool given_mod;                 /* streams have the modulation; the blocks do not compute it */
    /* "cross_attn": the attention's output of the first stream also attends to the last stream, a
     * text. Bias of its keys, or WEFT_NONE; borrowed. NULL: the blocks do not have it */
    const weft_value *text_cross;
} weft_mmdit;

typedef struct weft_mmdit_stream {
    weft_value x, temb_bc; /* x (B,S,C): input and output of a block; temb (B,C) or (B,S,C) */
    /* shift, scale and gate of attention, in double blocks also of the feed-forward (B,rows,C);
     * used with given_mod only */
    weft_value mod;
    bool text;
    bool last;                         /* the block's output is not used */
    weft_value rope[WEFT_MAX_OUTPUTS]; /* streams other than text, or all */
} weft_mmdit_stream;

/* Runs one block on all streams. `bias` of the joined keys, in the order of the streams, or
 * WEFT_NONE. */
void weft_mmdit_double(weft_graph *g, const weft_mmdit *c, weft_mmdit_stream *stream, int count,
                       weft_value bias);
void weft_mmdit_single(weft_graph *g, const weft_mmdit *c, weft_mmdit_stream *stream, int count,
                       weft_value bias);
/* x, with a gradient of zero to `unused`. In the references, one attention has the queries of all
 * streams, so parameters of unused queries have a gradient of zero, and AdamW decays them. Without
 * a gradient they would stay. */
weft_value weft_mmdit_with_no_effect(weft_graph *g, weft_value x_bshd, weft_value unused_bshd);
/* Modulation: silu, then a layer from C to rows C: (B,C) -> (B,rows,C), (B,S,C) -> (B,S,rows,C). */
weft_value weft_mmdit_modulation(weft_graph *g, const weft_nn_layer *layer, weft_value temb_bc,
                                 int64_t rows);
/* Rotary tables of the tokens of a video's frames from `first` on. `axes`: channels of a head that
 * frames, rows and columns rotate. */
void weft_mmdit_video_rope(weft_graph *g, double theta, const int64_t axes[3], int64_t first,
                           const int64_t size[3], weft_value cos_sin[WEFT_MAX_OUTPUTS]);
/* Angles (B or 1,N,pairs) of the pairs that one axis rotates, at positions (B or 1,N,1).
 * Frequencies are rounded to f32, as in the references. */
weft_value weft_mmdit_angles(weft_graph *g, weft_value at_bn, double theta, int64_t pairs);
/* Bias of the joined keys (B,S+L) from a mask of the text (B,L), for streams of image and text.
 * WEFT_NONE without a mask. */
weft_value weft_mmdit_key_bias(weft_graph *g, weft_value mask, int64_t tokens);
/* "image_embedder": embeddings of an image encoder (B,L,D) -> (B,L,width) */
weft_value weft_mmdit_image_tokens(weft_graph *g, weft_value image_bld, int64_t width);
/* "norm_out" and "proj_out": (B,S,C) -> (B,S,out) */
weft_value weft_mmdit_last(weft_graph *g, const weft_mmdit *c, weft_value x, weft_value temb_bc,
                           int64_t out);

#endif
