/* Sizes of videos and packed images in golden files. "img_shapes" has frames, rows and columns of
 * each image of hidden_states in tokens, the same for every sample. One image is a video of this
 * size.
 * Several images are one row of tokens with given positions, and times per token if the model
 * takes them. */
#ifndef WEFT_PARITY_PARITY_IMAGES_H
#define WEFT_PARITY_PARITY_IMAGES_H

#include "parity/parity_model.h"

enum { WEFT_PARITY_IMAGES = 16 };

typedef struct weft_parity_images {
    int64_t count, size[WEFT_PARITY_IMAGES][3]; /* 0: the file has no such sizes */
} weft_parity_images;

/* Reads the sizes from the tensor "in.img_shapes" or the JSON field "img_shapes". */
weft_status weft_parity_read_images(const weft_parity *p, weft_parity_images *images);
/* Sets frames, height and width of tokens of side x side latents, times and present ports. */
void weft_parity_size_images(const weft_parity_images *images, int64_t side, weft_model_size *size);
/* Sets frames, height and width from a video of a form that is not packed, or from an image (rank
 * 4). */
void weft_parity_size_video(const weft_stored_tensor *video, weft_video_form form,
                            weft_model_size *size);
/* Fills the positions (B,3,S+L) of the tokens and of the text, or the times (B,S) of several
 * images: the sample's for the first image, 0 for the others. *filled: whether the port is one of
 * the two. */
weft_status weft_parity_fill_images(const weft_parity *p, const weft_port_row *row, weft_tensor *to,
                                    bool *filled);

#endif
