/* The image encoder of a denoiser with an input for an image. */
#ifndef WEFT_GENERATE_CONDITIONING_IMAGE_ENCODER_H
#define WEFT_GENERATE_CONDITIONING_IMAGE_ENCODER_H

#include "exec/program.h"
#include "generate/conditioning/visual_condition.h"
#include "video/clip_processor.h"

/* Zero-initialise; free with weft_image_encoder_free, also after an error. */
typedef struct weft_image_encoder {
    weft_model model;
    char *folder;
    weft_clip_processor processor;
    weft_graph *graph;
    weft_program *program; /* "in" (images,1,side,side,3) to "out" (images,tokens,width) */
    weft_store *store;
    int64_t side, images;
    bool embeds; /* "out" is the vector of the image (images,1,width) */
    bool bound;
} weft_image_encoder;

/* Compiles encoder->model, whose weights are in encoder->folder (heap; both set by the caller), for
 * `pixels` (images,1,height,width,3). *made: shape of "out". */
weft_status weft_image_encoder_compile(const weft_backend *backend, weft_shape pixels,
                                       weft_image_encoder *encoder, weft_shape *made);
/* False if the folder has no encoder. A model that also works without an image may be trained
 * without image tokens; published folders have the encoder. */
bool weft_image_encoder_there(const weft_visual_condition_setup *setup);
/* Compiles the program for `images` images, and sets visual->image_tokens and image_width. The
 * error of an encoder that does not fit the denoiser has the sizes of both. */
weft_status weft_image_encoder_open(const weft_visual_condition_setup *setup, int images,
                                    weft_visual_condition *visual, weft_image_encoder *encoder);
/* Bytes that a compiled encoder reserves with its weights, and to read an image. */
int64_t weft_image_encoder_bytes(const weft_image_encoder *encoder);
/* Reads the weights, once. */
weft_status weft_image_encoder_bind(weft_image_encoder *encoder);
void weft_image_encoder_free(weft_image_encoder *encoder);

#endif
