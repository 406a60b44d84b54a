/* PatchGAN: a discriminator of pictures or of videos that judges patches, one logit each (Isola et
 * al., CVPR'17).
 *
 *   main.0   convolution                                     -> channels
 *   main.2   convolution without bias, main.3 batch norm     -> 2 channels   \  layers
 *   main.5   ...                                             -> 4 channels   /  of these
 *   main.N   convolution                                     -> 1
 *
 * with leaky ReLUs (0.2) between; strides are 2, of the last two 1; channels end at 8 times the
 * first. Pictures: 4 x 4, each frame for itself. Videos: 3 x 3 x 3; main.0 and main.2 halve
 * the frames. */
#ifndef WEFT_MODEL_PATCHGAN_H
#define WEFT_MODEL_PATCHGAN_H

#include "nn/nn.h"

enum { WEFT_PATCHGAN_MAX_LAYERS = 8 };

typedef struct weft_patchgan {
    int64_t in, channels, layers;
    bool video;
    bool running; /* it has running statistics, as states that stay */
} weft_patchgan;

/* Its parameters in a graph. */
typedef struct weft_patchgan_net {
    weft_nn_layer conv[WEFT_PATCHGAN_MAX_LAYERS + 2], norm[WEFT_PATCHGAN_MAX_LAYERS + 2];
    weft_value mean[WEFT_PATCHGAN_MAX_LAYERS + 2]; /* running, (C) */
    weft_value variance[WEFT_PATCHGAN_MAX_LAYERS + 2];
    int convs;
} weft_patchgan_net;

/* Of one call, by convolution, (1,1,1,1,C); WEFT_NONE where there is no norm. */
typedef struct weft_patchgan_statistics {
    weft_value mean[WEFT_PATCHGAN_MAX_LAYERS + 2];
    weft_value variance[WEFT_PATCHGAN_MAX_LAYERS + 2]; /* over all elements, not one less */
    int64_t count[WEFT_PATCHGAN_MAX_LAYERS + 2];       /* elements that they are of */
} weft_patchgan_statistics;

/* Declares the parameters in the scope that is open. */
void weft_patchgan_declare(weft_graph *g, const weft_patchgan *c, weft_patchgan_net *net);
/* x (B,T,Y,X,in) -> logits (B,T',Y',X',1), with the statistics of the batch, which are told
 * (`told` NULL: nobody asks), over all ranks. */
weft_value weft_patchgan_call(weft_graph *g, const weft_patchgan *c, const weft_patchgan_net *net,
                              weft_value x, weft_patchgan_statistics *told);
/* The same with the running ones. */
weft_value weft_patchgan_judge(weft_graph *g, const weft_patchgan *c, const weft_patchgan_net *net,
                               weft_value x);
/* Name of the module of convolution `i`, "main.5", or of the norm behind it. */
void weft_patchgan_name(int i, bool norm, char name[32]);
/* Least frames, rows and columns that leave a logit. */
void weft_patchgan_least(const weft_patchgan *c, int64_t least[3]);

typedef enum weft_gan_loss { WEFT_GAN_HINGE, WEFT_GAN_VANILLA } weft_gan_loss;
extern const char *const weft_gan_loss_names[]; /* "hinge", "vanilla", NULL */
/* Of logits of what is real and of what is made: scalar. */
weft_value weft_gan_discriminator_loss(weft_graph *g, weft_gan_loss kind, weft_value real,
                                       weft_value made);
/* What makes would have its logits high: minus their mean. */
weft_value weft_gan_generator_loss(weft_graph *g, weft_value made);

#endif
