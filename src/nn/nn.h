/* Layers: ops with parameters under public names. Shape letters: B batch, S tokens, C channels, H
 * heads, D head width, T/Y/X frames, rows, columns. */
#ifndef WEFT_NN_NN_H
#define WEFT_NN_NN_H

#include "graph/graph.h"

/* Each layer pushes `name` as a scope. Its parameters there are "weight" and "bias" (or
 * "gamma"). */

typedef enum weft_linear_init {
    WEFT_LINEAR_XAVIER, /* uniform, half width sqrt(6 / (in + out)) */
    WEFT_LINEAR_ZERO,   /* zeros, for projections whose output starts at zero */
} weft_linear_init;
/* x (..., C) -> (..., out) with bias. */
weft_value weft_nn_linear(weft_graph *g, const char *name, weft_value x, int64_t out,
                          weft_linear_init init);
/* Like weft_nn_linear, without bias. */
weft_value weft_nn_linear_plain(weft_graph *g, const char *name, weft_value x, int64_t out);
/* Like weft_nn_linear, with an optional bias. */
weft_value weft_nn_dense(weft_graph *g, const char *name, weft_value x, int64_t out, bool bias);
typedef enum weft_nn_act {
    WEFT_NN_SILU,
    WEFT_NN_GELU_TANH,
    WEFT_NN_GELU_ERF,
} weft_nn_act;
weft_value weft_nn_activate(weft_graph *g, weft_nn_act act, weft_value x);
/* "linear_1", the activation, "linear_2", both `width` wide: embedder of timesteps and texts. */
weft_value weft_nn_embedder(weft_graph *g, const char *name, weft_value x, int64_t width,
                            weft_nn_act act);
/* "net.0.proj", the activation, "net.2" back to the width of x. */
weft_value weft_nn_feed_forward(weft_graph *g, const char *name, weft_value x, int64_t inner,
                                weft_nn_act act);
/* Parameters of a layer that is applied to several streams of tokens. */
typedef struct weft_nn_layer {
    const char *name; /* borrowed */
    weft_value weight, bias;
} weft_nn_layer;
weft_nn_layer weft_nn_linear_of(weft_graph *g, const char *name, int64_t in, int64_t out, bool bias,
                                weft_linear_init init);
weft_value weft_nn_linear_by(weft_graph *g, const weft_nn_layer *layer, weft_value x);
/* Norm parameters "weight" and, if `bias`, "bias". */
weft_nn_layer weft_nn_norm_of(weft_graph *g, const char *name, int64_t width, bool bias);
weft_value weft_nn_layer_norm_by(weft_graph *g, const weft_nn_layer *layer, weft_value x,
                                 double eps);
weft_value weft_nn_rms_norm_by(weft_graph *g, const weft_nn_layer *layer, weft_value x, double eps);
/* timestep (...) -> (..., width): cosines, then sines, of width / 2 frequencies from 1 down to
 * 1/10000. Frequencies are rounded to f32 after each step, as in the references, because their last
 * bit changes the angle at t near 1000. */
weft_value weft_nn_sinusoid(weft_graph *g, int64_t width, weft_value timestep);
/* Affine layer norm ("weight", "bias") over the last dim. */
weft_value weft_nn_layer_norm(weft_graph *g, const char *name, weft_value x, double eps);
/* Layer norm without parameters. */
weft_value weft_nn_plain_norm(weft_graph *g, weft_value x, double eps);
/* Group norm of x (B,T,Y,X,C): over all positions and the channels of a group, with "weight" and
 * "bias" per channel. */
weft_value weft_nn_group_norm(weft_graph *g, const char *name, weft_value x, int64_t groups,
                              double eps);
/* Like weft_nn_group_norm, over the positions of one frame. */
weft_value weft_nn_frame_norm(weft_graph *g, const char *name, weft_value x, int64_t groups,
                              double eps);
/* Group norm without parameters, and the scale and shift per channel alone. */
weft_value weft_nn_group_plain(weft_graph *g, weft_value x, int64_t groups, double eps,
                               bool each_frame);
weft_value weft_nn_scale_channels(weft_graph *g, const weft_nn_layer *layer, weft_value x);
/* RMS norm over the last dim, without parameters and with "weight". */
weft_value weft_nn_plain_rms_norm(weft_graph *g, weft_value x, double eps);
weft_value weft_nn_rms_norm(weft_graph *g, const char *name, weft_value x, double eps);

/* x (1 + scale) + shift, and x + gate y; scale, shift and gate are broadcast to x. */
weft_value weft_nn_modulate(weft_graph *g, weft_value x, weft_value scale, weft_value shift);
weft_value weft_nn_gated_add(weft_graph *g, weft_value x, weft_value y, weft_value gate);
/* Timestep modulation of PixArt and related models for all blocks, from times (B,W) or (B,N,W):
 * embedder "emb.timestep_embedder", silu and "linear" to (B,rows,C) or (B,N,rows,C). *embedded is
 * the embedder's output, (B,1,C) or (B,N,1,C). */
weft_value weft_nn_time_rows(weft_graph *g, const char *name, weft_value sinusoid, int64_t width,
                             int64_t rows, weft_value *embedded);
/* Learned "scale_shift_table" (rows,C), and its sum with modulation rows. */
weft_value weft_nn_table(weft_graph *g, int64_t rows, int64_t width);
weft_value weft_nn_add_table(weft_graph *g, weft_value rows_c, int64_t rows);
/* Row `index` of a modulation table: (B, rows, C) -> (B, 1, C), or per token (B, S, rows, C) -> (B,
 * S, C). */
weft_value weft_nn_row(weft_graph *g, weft_value table, int64_t index);

typedef struct weft_conv_shape {
    int64_t kernel[3], stride[3], before[3], after[3];
} weft_conv_shape;
/* x (B,T,Y,X,C) -> (B,T',Y',X',out), with bias. `two_d` stores the weight as (O,I,ky,kx). */
weft_value weft_nn_conv(weft_graph *g, const char *name, weft_value x, int64_t out,
                        weft_conv_shape shape, bool two_d);
/* Convolution with given parameters: a weight (out,in,kt,ky,kx) and an optional bias. layer->name
 * is not used. */
weft_value weft_nn_conv_by(weft_graph *g, const weft_nn_layer *layer, weft_value x,
                           const weft_conv_shape *shape);
/* Convolves each channel of x with its own kernel over two neighbouring dims, `dim` (rows) and the
 * next (columns), with zeros around, same size. The last dim has the channels I. `kernel` (I, side
 * side), side odd; `bias` (I) or WEFT_NONE. */
weft_value weft_nn_conv_channels(weft_graph *g, weft_value x, int dim, int64_t side,
                                 weft_value kernel, weft_value bias);

/* Storage of the weight of a patch embedding. */
typedef enum weft_patch_form {
    WEFT_PATCH_3D,     /* (O,I,pt,py,px) */
    WEFT_PATCH_2D,     /* (O,I,py,px)    */
    WEFT_PATCH_LINEAR, /* (O,I pt py px) */
} weft_patch_form;
/* Tokens along frames, rows and columns of latents (B,T,Y,X,C). Fails if a side is not a multiple
 * of the patch. */
void weft_nn_count_tokens(weft_graph *g, weft_value latents, const int64_t patch[3],
                          int64_t size[3]);
/* latents (B,T,Y,X,I) to tokens (B,S,out). */
weft_value weft_nn_patch(weft_graph *g, const char *name, weft_value latents, int64_t out,
                         const int64_t patch[3], weft_patch_form form, bool bias);

/* (B,S,C) -> (B,S,heads,C/heads), and back. */
weft_value weft_nn_split_heads(weft_graph *g, weft_value x_bsc, int64_t heads);
weft_value weft_nn_join_heads(weft_graph *g, weft_value x_bshd);
/* Heads of grouped tokens with attention inside each group: (B,G,S,C) -> (B G,S,heads,C/heads), and
 * back. */
weft_value weft_nn_group_heads(weft_graph *g, weft_value x_bgsc, int64_t heads);
weft_value weft_nn_ungroup_heads(weft_graph *g, weft_value x, int64_t groups);
/* Skiparse (Open-Sora-Plan 1.3): splits tokens (B,S,...) into n subsequences (B n,S/n,...), and
 * joins them again. S is a multiple of n n. Token g n + k is token g of subsequence k. `grouped`:
 * token (a n + m) n + k is token a n + k of subsequence m. */
weft_value weft_nn_skip_split(weft_graph *g, weft_value x, int64_t n, bool grouped);
weft_value weft_nn_skip_join(weft_graph *g, weft_value x, int64_t n, bool grouped);
int64_t weft_nn_skip_padding(int64_t tokens, int64_t n); /* padding up to a multiple of n n */
/* Fits the positions of `grid` rows and columns into a base grid. The grid covers the largest
 * centred area of the base with the same aspect ratio. Sets the first position and the step of each
 * side. */
void weft_nn_fit_positions(const int64_t grid[2], const int64_t base[2], double origin[2],
                           double step[2]);
/* Sines, then cosines, of the positions along each axis of `order`: (S, 2 x number of pairs). */
weft_value weft_nn_sines(weft_graph *g, const weft_attr_rope_table *rope_attr, const int *order,
                         int count);
weft_value weft_nn_rope(weft_graph *g, weft_value x_bshd, const weft_value *cos_sin,
                        bool rotate_half);
/* Attention of q (B,Sq,H,D) to k, v (B,Sk,H,D), scaled by 1/sqrt(D) -> (B,Sq,H,D). `bias` of the
 * keys is (B,Sk) or WEFT_NONE. */
weft_value weft_nn_attend(weft_graph *g, weft_value q, weft_value k, weft_value v, weft_value bias);
/* Like weft_nn_attend, inside the segments of weft_attr_attention. WEFT_NONE: each item of the
 * batch is a segment. */
weft_value weft_nn_attend_segments(weft_graph *g, weft_value q, weft_value k, weft_value v,
                                   weft_value segments);
/* Like weft_nn_attend, causal: a query attends to keys up to its own position. */
weft_value weft_nn_attend_back(weft_graph *g, weft_value q, weft_value k, weft_value v,
                               weft_value bias);
/* Joint attention of several streams of tokens: every query attends to the keys of all streams, in
 * this order. Queries stay separate, so that a split of tokens splits each stream. `bias` is for
 * the joined keys. `out` may be `q`. */
void weft_nn_attend_jointly(weft_graph *g, int streams, const weft_value *q, const weft_value *k,
                            const weft_value *v, weft_value bias, weft_value *out);

/* Attention bias of a key mask f32 (...): 0 where the mask is 1, otherwise -1e30. */
weft_value weft_nn_hide(weft_graph *g, weft_value mask);

/* q (B,Sq,C), k, v (B,Sk,C), C = heads * D -> (B,Sq,C), scaled by 1/sqrt(D). */
weft_value weft_nn_attention(weft_graph *g, weft_value q_bsc, weft_value k_bsc, weft_value v_bsc,
                             int64_t heads, const weft_value *rope_cos_sin);
/* Like weft_nn_attention, inside `segments`. qkv_bsc: q, k, v. */
weft_value weft_nn_attention_segments(weft_graph *g, const weft_value qkv_bsc[3], int64_t heads,
                                      const weft_value *rope_cos_sin, weft_value segments);
/* Rows of samples (R K,C) or (R K,1,C) for the tokens (R,N,C) of the samples. owner
 * (R,N,K). */
weft_value weft_nn_rows_of_tokens(weft_graph *g, weft_value owner, weft_value rows);
/* cos and sin (R,N,1,D/2) of rotary positions that place[3], i32 (R,N), gives for each token.
 * `table` describes the pairs and angles of each axis; its grid has the largest position + 1 of
 * each. */
void weft_nn_rope_at(weft_graph *g, const weft_attr_rope_table *table, const weft_value position[3],
                     weft_value cos_sin[WEFT_MAX_OUTPUTS]);

/* (B, S, C pt py px) to (B, S, pt py px C). */
weft_value weft_nn_channels_last(weft_graph *g, weft_value x, int64_t channels);
/* (B, S, pt py px C), channels fastest, to (B, T pt, Y py, X px, C); S = T Y X of `size`. */
weft_value weft_nn_unpatch(weft_graph *g, weft_value x, const int64_t size[3],
                           const int64_t patch[3]);

/* (B,T,Y,X,C) to (B,T/pt,Y/py,X/px, pt py px C), channels fastest. */
weft_value weft_nn_fold(weft_graph *g, weft_value x, const int64_t patch[3]);
/* Latents (B,T,Y,X,C) to tokens (B,S,C side side) of side x side latents, channels slowest, and
 * back for a grid of tokens. */
weft_value weft_nn_pack(weft_graph *g, weft_value latents, int64_t side);
weft_value weft_nn_unpack(weft_graph *g, weft_value x_bsc, const int64_t size[3], int64_t side);
/* (B,T,Y,X,C) to (B,T,Y/p,X/p,C p p), the channels as (C,py,px), and back. */
weft_value weft_nn_pixel_unshuffle(weft_graph *g, weft_value x, int64_t side);
weft_value weft_nn_pixel_shuffle(weft_graph *g, weft_value x, int64_t side);
/* Like weft_nn_pixel_unshuffle and weft_nn_pixel_shuffle, the channels as (C,px,py). */
weft_value weft_nn_pixels_in(weft_graph *g, weft_value x, int64_t patch);
weft_value weft_nn_pixels_out(weft_graph *g, weft_value x, int64_t patch);
/* Repeats every frame, row and column of (B,T,Y,X,C) the given number of times. */
weft_value weft_nn_repeat(weft_graph *g, weft_value x, const int64_t times[3]);

/* Dim `d` of the value's shape. */
int64_t weft_dim(const weft_graph *g, weft_value v, int d);

#endif
