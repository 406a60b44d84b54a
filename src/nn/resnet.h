/* Layers of convolutional autoencoders: group norms, residual blocks, attention of one head. Values
 * are (B,T,Y,X,C). */
#ifndef WEFT_NN_RESNET_H
#define WEFT_NN_RESNET_H

#include "nn/nn.h"

/* `before` and `after` more of dim `dim`, like the first and the last. */
weft_value weft_nn_pad_edge(weft_graph *g, weft_value x, int dim, int64_t before, int64_t after);
/* Kernel 1 x k x k of each frame (k odd), the same size, the weight as (O,I,k,k). */
weft_value weft_nn_conv_2d(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t k);

/* How an autoencoder's blocks compute. */
typedef struct weft_nn_coder weft_nn_coder;
struct weft_nn_coder {
    weft_graph *g;
    int64_t groups;
    double eps;
    bool each_frame; /* norms and attention look at one frame */
    /* k x k, or k x k x k, to `out` channels; the same size */
    weft_value (*conv)(weft_nn_coder *coder, const char *name, weft_value x, int64_t out,
                       int64_t k);
    /* NULL: weft_nn_group_norm */
    weft_value (*norm)(weft_nn_coder *coder, const char *name, weft_value x);
    void *user;
};
weft_value weft_nn_norm_silu(weft_nn_coder *coder, const char *name, weft_value x);
/* norm1, silu, conv1, norm2, silu, conv2, and x beside it, through "conv_shortcut" where the
 * channels change. */
weft_value weft_nn_res_block(weft_nn_coder *coder, const char *name, weft_value x, int64_t out);
/* "resnets.0", ... */
weft_value weft_nn_res_blocks(weft_nn_coder *coder, weft_value x, int64_t out, int64_t count);
/* "group_norm", "to_q", "to_k", "to_v", "to_out.0", one head, added to x. Frames see one another
 * only without each_frame, and then themselves and those before. */
weft_value weft_nn_pixel_attention(weft_nn_coder *coder, const char *name, weft_value x);
/* "mid_block": a residual block, attention if wanted, a residual block. */
weft_value weft_nn_mid_block(weft_nn_coder *coder, weft_value x, bool attention);

#endif
