/* LPIPS 0.1 (Zhang et al., CVPR'18): perceptual distance of two images. A backbone trained for
 * image classification (VGG16 or AlexNet) computes features. Linear heads, trained on human
 * judgements, weight the features. The frames of a video are separate images.
 *
 *   x, y in [-1, 1] ── minus shift, by scale ──> backbone ──> 5 features, after ReLUs
 *                                                            │ normalised over channels
 *   distance of a frame = sum over features of  mean over positions of  lin (fx - fy)^2
 *
 * Parameters have torchvision's names ("features.0.weight") and lpips' names of the heads
 * ("lin0.model.1.weight"), in the scope where they are declared. */
#ifndef WEFT_MODEL_CRITICS_LPIPS_H
#define WEFT_MODEL_CRITICS_LPIPS_H

#include "format/tensors/tensors.h"
#include "graph/graph.h"

enum { WEFT_LPIPS_FEATURES = 5, WEFT_LPIPS_MAX_CONVS = 13 };

typedef enum weft_lpips_trunk { WEFT_LPIPS_VGG, WEFT_LPIPS_ALEX } weft_lpips_trunk;
extern const char *const weft_lpips_trunk_names[]; /* "vgg", "alex", NULL */

typedef struct weft_lpips {
    weft_lpips_trunk trunk;
    int64_t width[WEFT_LPIPS_MAX_CONVS]; /* output channels of each convolution */
    bool trained;                        /* parameters get gradients; false: frozen */
    /* Input at which ReLU gradients change from 0 to 1. Always 0, except in tests of rounding at
     * the kink. */
    double kink;
} weft_lpips;

/* Identifies the backbone in a weights file by names, which begin with `prefix`, and shapes. Errors
 * name the file and the tensor that is missing or has an incompatible shape. */
weft_status weft_lpips_read(const weft_tensors *file, const char *prefix, weft_lpips *out);
/* Checks that the heads in `file` fit the backbone. */
weft_status weft_lpips_check_heads(const weft_lpips *c, const weft_tensors *file,
                                   const char *prefix);

/* Returns the minimum rows and columns of an image for which every feature has a position. */
int64_t weft_lpips_least(const weft_lpips *c);

typedef struct weft_lpips_distance {
    weft_value all;                        /* (B,T,1,1,1) */
    weft_value layer[WEFT_LPIPS_FEATURES]; /* distance per feature, of the same shape */
    /* (B,T,Y',X',1): distance before the mean over positions */
    weft_value map[WEFT_LPIPS_FEATURES];
} weft_lpips_distance;

/* Builds the distance of x, y (B,T,Y,X,3) in [-1, 1]. Declares the parameters; call once per
 * scope. */
void weft_lpips_build(weft_graph *g, const weft_lpips *c, weft_value x, weft_value y,
                      weft_lpips_distance *out);

#endif
