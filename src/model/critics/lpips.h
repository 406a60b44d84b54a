/* LPIPS 0.1: how far apart two pictures look, by the features of a trunk that was trained to name
 * what is in pictures (VGG16 or AlexNet) and of linear heads that people's judgements taught which
 * features count (Zhang et al., CVPR'18). The frames of a video are pictures of their own.
 *
 *   x, y in [-1, 1] ── minus shift, by scale ──> trunk ──> 5 features, behind ReLUs
 *                                                         │ each by its length over channels
 *   distance of a frame = sum over features of  mean over places of  lin (fx - fy)^2
 *
 * Parameters have torchvision's names ("features.0.weight") and those of lpips' heads
 * ("lin0.model.1.weight"), in the scope where they are declared. */
#ifndef WEFT_MODEL_LPIPS_H
#define WEFT_MODEL_LPIPS_H

#include "format/tensors.h"
#include "graph/graph.h"

enum { WEFT_LPIPS_FEATURES = 5, WEFT_LPIPS_MAX_CONVS = 13 };

typedef enum weft_lpips_trunk { WEFT_LPIPS_VGG, WEFT_LPIPS_ALEX } weft_lpips_trunk;
extern const char *const weft_lpips_trunk_names[]; /* "vgg", "alex", NULL */

typedef struct weft_lpips {
    weft_lpips_trunk trunk;
    int64_t width[WEFT_LPIPS_MAX_CONVS]; /* channels that each convolution makes */
    bool trained; /* its parameters are weights that get gradients; else they stay */
    /* Where the gradients of ReLUs change from 0 to 1: 0, except to see on which side of its kink
     * rounding has put a unit */
    double kink;
} weft_lpips;

/* The trunk that a file of parameters is of, by its names and shapes, which stand behind `prefix`
 * in it. Tensors that are missing or cannot follow one another are told by file and name. */
weft_status weft_lpips_read(const weft_tensors *file, const char *prefix, weft_lpips *out);
/* The heads that `file` has fit the trunk. */
weft_status weft_lpips_check_heads(const weft_lpips *c, const weft_tensors *file,
                                   const char *prefix);

/* Least rows and columns of a picture: each feature has a place. */
int64_t weft_lpips_least(const weft_lpips *c);

typedef struct weft_lpips_distance {
    weft_value all;                        /* (B,T,1,1,1) */
    weft_value layer[WEFT_LPIPS_FEATURES]; /* its terms, of the same shape */
    weft_value map[WEFT_LPIPS_FEATURES];   /* (B,T,Y',X',1): before the mean over places */
} weft_lpips_distance;

/* x, y (B,T,Y,X,3) in [-1, 1]. Declares the parameters: once in a scope. */
void weft_lpips_build(weft_graph *g, const weft_lpips *c, weft_value x, weft_value y,
                      weft_lpips_distance *out);

#endif
