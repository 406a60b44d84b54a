/* CLIP's image encoder, for models that contain one. */
#ifndef WEFT_MODEL_ENCODERS_CLIP_ENCODER_H
#define WEFT_MODEL_ENCODERS_CLIP_ENCODER_H

#include "model/model.h"

typedef struct weft_clip_config {
    int64_t vocabulary, width, inner, projection, layers, heads;
    int64_t positions;    /* text only */
    int64_t image, patch; /* sides in pixels */
    int64_t exact;        /* 0: GELU as x sigmoid(1.702 x), 1: by erf */
    double eps;
    int64_t end; /* end token */
    bool masks;  /* pipelines hide padding from the text encoder */
} weft_clip_config;
_Static_assert(sizeof(weft_clip_config) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit a weft_model");

int64_t weft_clip_patches(const weft_clip_config *c); /* per image */
/* Encodes WEFT_PORT_VIDEO (B,1,image,image,3), preprocessed by CLIP's processor. Writes the
 * second-to-last layer for class token and patches to WEFT_PORT_IMAGE (B,1 + patches,width), and
 * the last layer for the class token to WEFT_PORT_POOLED (B,width). */
void weft_clip_vision_encode(weft_graph *g, const weft_clip_config *c, weft_ports *ports);

#endif
