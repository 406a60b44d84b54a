/* Images to edit that have sizes of their own (weft_edit_pipeline). The autoencoder and the vision
 * encoder read each image alone, at two sizes. */
#ifndef WEFT_GENERATE_CONDITIONING_EDIT_IMAGES_H
#define WEFT_GENERATE_CONDITIONING_EDIT_IMAGES_H

#include "model/model.h"

struct weft_visual_condition_setup;
struct weft_visual_inputs;
typedef struct weft_edit_size {
    int64_t height, width; /* pixels */
} weft_edit_size;

/* Qwen2-VL's image processor: sides are multiples of `factor` pixels, the area is in a range. */
typedef struct weft_patch_processor {
    int64_t factor, least, most; /* pixels of a side, pixels of an image */
    double mean[3], deviation[3];
} weft_patch_processor;

typedef struct weft_edit_images {
    int count; /* 0: none */
    const char *file[WEFT_MAX_IMAGES];
    /* sizes for the autoencoder; for the text encoder, before and after its processor */
    weft_edit_size size[WEFT_MAX_IMAGES], scaled[WEFT_MAX_IMAGES], shown[WEFT_MAX_IMAGES];
    weft_image_tokens tokens, seen_tokens; /* of the denoiser and of the text encoder */
    int64_t token_floats;                  /* latents of a token */
    int64_t seen_width;
    float *seen;  /* (tokens, seen_width): output of the vision encoder; NULL before reading */
    int64_t peak; /* temporary bytes while the images are read */
    weft_model vision;
    weft_patch_processor processor;
} weft_edit_images;

/* Reads the sizes of the image files (borrowed), and opens the config of the vision encoder. */
weft_status weft_edit_images_open(const struct weft_visual_condition_setup *setup,
                                  const struct weft_visual_inputs *files, weft_edit_images *edit);
/* Latents of all images. */
int64_t weft_edit_images_floats(const weft_edit_images *edit);
/* Bytes of the vision encoder's output. */
int64_t weft_edit_images_bytes(const weft_edit_images *edit);
/* Encodes the images: latents are (tokens, rows, columns, channels) of a token. */
weft_status weft_edit_images_read(const struct weft_visual_condition_setup *setup,
                                  weft_edit_images *edit, float *latents);
void weft_edit_images_free(weft_edit_images *edit);

#endif
