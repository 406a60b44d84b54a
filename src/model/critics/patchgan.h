/* PatchGAN (Isola et al., CVPR'17): a discriminator of images or videos with one logit per
 * patch.
 *
 *   main.0   convolution                                     -> channels
 *   main.2   convolution without bias, main.3 batch norm     -> 2 channels   \  `layers`
 *   main.5   ...                                             -> 4 channels   /  times
 *   main.N   convolution                                     -> 1
 *
 * Leaky ReLUs (0.2) separate the modules. Strides are 2, and 1 in the last two modules. Channels
 * grow to at most 8 times the first. Images: 4 x 4 kernels on separate frames. Videos: 3 x 3 x 3
 * kernels; main.0 and main.2 halve the frames. */
#ifndef WEFT_MODEL_CRITICS_PATCHGAN_H
#define WEFT_MODEL_CRITICS_PATCHGAN_H

#include "nn/nn.h"

enum { WEFT_PATCHGAN_MAX_LAYERS = 8 };

typedef struct weft_patchgan {
    int64_t in, channels, layers;
    bool video;
    bool running; /* has running statistics, stored as states */
} weft_patchgan;

/* Parameters of a PatchGAN in a graph. */
typedef struct weft_patchgan_net {
    weft_nn_layer conv[WEFT_PATCHGAN_MAX_LAYERS + 2], norm[WEFT_PATCHGAN_MAX_LAYERS + 2];
    weft_value mean[WEFT_PATCHGAN_MAX_LAYERS + 2]; /* running, (C) */
    weft_value variance[WEFT_PATCHGAN_MAX_LAYERS + 2];
    int convs;
} weft_patchgan_net;

/* Batch statistics of one call, per convolution, (1,1,1,1,C). WEFT_NONE: no norm. */
typedef struct weft_patchgan_statistics {
    weft_value mean[WEFT_PATCHGAN_MAX_LAYERS + 2];
    weft_value variance[WEFT_PATCHGAN_MAX_LAYERS + 2]; /* biased: divided by `count` */
    int64_t count[WEFT_PATCHGAN_MAX_LAYERS + 2];       /* elements per channel */
} weft_patchgan_statistics;

/* Declares the parameters in the open scope. */
void weft_patchgan_declare(weft_graph *g, const weft_patchgan *c, weft_patchgan_net *net);
/* x (B,T,Y,X,in) -> logits (B,T',Y',X',1). Norms use the statistics of the batch over all ranks,
 * which are written to the last argument (NULL: not needed). */
weft_value weft_patchgan_call(weft_graph *g, const weft_patchgan *c, const weft_patchgan_net *net,
                              weft_value x, weft_patchgan_statistics *statistics);
/* Like weft_patchgan_call, with the running statistics. */
weft_value weft_patchgan_judge(weft_graph *g, const weft_patchgan *c, const weft_patchgan_net *net,
                               weft_value x);
/* Writes the module name of convolution `i` ("main.5"), or of the norm after it. */
void weft_patchgan_name(int i, bool norm, char name[32]);
/* Sets the minimum frames, rows and columns that give a logit. */
void weft_patchgan_least(const weft_patchgan *c, int64_t least[3]);

typedef enum weft_gan_loss { WEFT_GAN_HINGE, WEFT_GAN_VANILLA } weft_gan_loss;
extern const char *const weft_gan_loss_names[]; /* "hinge", "vanilla", NULL */
/* Scalar loss from the logits of real and generated samples. */
weft_value weft_gan_discriminator_loss(weft_graph *g, weft_gan_loss kind, weft_value real,
                                       weft_value made);
/* Generator loss: minus the mean logit of generated samples. */
weft_value weft_gan_generator_loss(weft_graph *g, weft_value made);

#endif
