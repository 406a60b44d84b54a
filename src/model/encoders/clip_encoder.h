/* CLIP's image encoder, for models that have one inside. */
#ifndef WEFT_MODEL_CLIP_ENCODER_H
#define WEFT_MODEL_CLIP_ENCODER_H

#include "model/model.h"

typedef struct weft_clip {
    int64_t vocabulary, width, inner, projection, layers, heads;
    int64_t positions;    /* text */
    int64_t image, patch; /* sides, in pixels */
    int64_t exact;        /* 0: GELU as x sigmoid(1.702 x), 1: by erf */
    double eps;
    int64_t end; /* token */
} weft_clip;
_Static_assert(sizeof(weft_clip) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit a weft_model");

int64_t weft_clip_patches(const weft_clip *c); /* of a picture */
/* WEFT_PORT_VIDEO (B,1,image,image,3), as CLIP's processor makes it, to what the layer before the
 * last says of the class and of each patch, WEFT_PORT_IMAGE (B,1 + patches,width), and the class
 * token's last word, WEFT_PORT_POOLED (B,width). */
void weft_clip_see(weft_graph *g, const weft_clip *c, weft_ports *ports);

#endif
