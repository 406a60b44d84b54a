/* Layers of convolutional autoencoders: group norms, residual blocks, single-head attention. Values
 * are (B,T,Y,X,C). */
#ifndef WEFT_NN_RESNET_H
#define WEFT_NN_RESNET_H

#include "nn/nn.h"

/* Pads dim `dim` with `before` copies of its first and `after` copies of its last item. */
weft_value weft_nn_pad_edge(weft_graph *g, weft_value x, int dim, int64_t before, int64_t after);
/* Convolution of each frame with a kernel 1 x k x k (k odd), same size, weight stored as
 * (O,I,k,k). */
weft_value weft_nn_conv_2d(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k);

/* Convolution 1 x 1 x 1. */
weft_value weft_nn_conv_point(weft_graph *g, const char *name, weft_value x, int64_t out);

/* Convolution k x k x k "<name>.conv" of frames (B,T,Y,X,C) that reads preceding frames only. The
 * edge is repeated before the first frame and around the image. */
weft_value weft_nn_conv_edge(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k,
                             const int64_t stride[3]);
/* Number of halvings that give `factor`, a power of two. */
int64_t weft_nn_halvings(int64_t factor);

/* Settings of an autoencoder's blocks. */
typedef struct weft_nn_coder weft_nn_coder;
struct weft_nn_coder {
    weft_graph *g;
    int64_t groups;
    double eps;
    bool each_frame; /* norms and attention are per frame */
    /* Convolution k x k or k x k x k to `out` channels, same size. */
    weft_value (*conv)(weft_nn_coder *coder, const char *name, weft_value x, int64_t out,
                       int64_t k);
    /* NULL: weft_nn_group_norm */
    weft_value (*norm)(weft_nn_coder *coder, const char *name, weft_value x);
    void *user;
};
weft_value weft_nn_norm_silu(weft_nn_coder *coder, const char *name, weft_value x);
/* Residual block: norm1, silu, conv1, norm2, silu, conv2, plus x. If the channels change, x passes
 * through "conv_shortcut". */
weft_value weft_nn_res_block(weft_nn_coder *coder, const char *name, weft_value x, int64_t out);
/* `count` residual blocks "resnets.0", ... */
weft_value weft_nn_res_blocks(weft_nn_coder *coder, weft_value x, int64_t out, int64_t count);
/* Single-head attention by frames for q, k, v (B,T,S,C): a frame attends to itself and to preceding
 * frames. */
weft_value weft_nn_attend_frames(weft_graph *g, weft_value q, weft_value k, weft_value v);
/* Single-head attention over pixels, added to x: "group_norm", "to_q", "to_k", "to_v", "to_out.0".
 * With each_frame, attention stays within a frame. Otherwise a frame also attends to the preceding
 * frames. */
weft_value weft_nn_pixel_attention(weft_nn_coder *coder, const char *name, weft_value x);
/* "mid_block": a residual block, optional attention, a residual block. */
weft_value weft_nn_mid_block(weft_nn_coder *coder, weft_value x, bool attention);

#endif
