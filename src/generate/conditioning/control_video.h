/* A control video as an input of a denoiser with WEFT_PORT_CONTROL, in the form of VACE: latents
 * of its kept pixels, the latents of its new pixels, and its mask. Pixels of the other kind are
 * grey. The mask's pixels of a latent cell are channels, row by row.
 *
 * Reference images are latent frames before the video, the last image first: the latents of the
 * image, then zeros for the latents of new pixels and for the mask. */
#ifndef WEFT_GENERATE_CONDITIONING_CONTROL_VIDEO_H
#define WEFT_GENERATE_CONDITIONING_CONTROL_VIDEO_H

#include "generate/conditioning/frame_inputs.h"
#include "latent/vae_chunks.h"

typedef struct weft_control_video {
    const char *video, *mask;     /* NULL: grey frames; NULL: all pixels are new */
    const char *const *reference; /* [references] */
    int references;
    weft_canvas canvas; /* of the video, without the reference images */
    weft_grid grid;
} weft_control_video;

/* Channels of the control: twice the latents, and the pixels of a cell. */
int64_t weft_control_channels(const weft_grid *grid);
/* Temporary bytes of weft_control_encode, without the encoder. */
int64_t weft_control_workspace_bytes(const weft_control_video *control);
/* Checks the sizes of the reference images, by the headers of their files. */
weft_status weft_control_check_references(const weft_control_video *control);
/* Temporary bytes of weft_control_encode_references, without the encoder and the pixels of the
 * files. */
int64_t weft_control_reference_bytes(const weft_control_video *control);
/* Fills the latent frames of the reference images in control (references + latent frames, rows,
 * columns, weft_control_channels), normalised. `vae` is a bound encoder of one frame of the canvas.
 * As in the reference pipeline, the sides of an image are first rounded down to whole latents. The
 * image is then fitted into the canvas with its aspect ratio, centred on white. */
weft_status weft_control_encode_references(const weft_control_video *control, weft_vae *vae,
                                           float *to);
/* Fills the other latent frames of control. `vae` is a bound encoder of the canvas. */
weft_status weft_control_encode(const weft_control_video *control, weft_vae *vae, float *to);

#endif
