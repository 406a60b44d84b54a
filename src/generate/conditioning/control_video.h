/* A control video as an input of a denoiser with WEFT_PORT_CONTROL, in the form of VACE: latents
 * of its kept pixels, the latents of its new pixels, and its mask. Pixels of the other kind are
 * grey. The mask's pixels of a latent cell are channels, row by row. */
#ifndef WEFT_GENERATE_CONDITIONING_CONTROL_VIDEO_H
#define WEFT_GENERATE_CONDITIONING_CONTROL_VIDEO_H

#include "generate/conditioning/frame_inputs.h"
#include "latent/vae_chunks.h"

typedef struct weft_control_video {
    const char *video, *mask; /* NULL: grey frames; NULL: all pixels are new */
    weft_canvas canvas;
    weft_grid grid;
} weft_control_video;

/* Channels of the control: twice the latents, and the pixels of a cell. */
int64_t weft_control_channels(const weft_grid *grid);
/* Temporary bytes of weft_control_encode, without the encoder. */
int64_t weft_control_workspace_bytes(const weft_control_video *control);
/* Fills control (latent frames, rows, columns, weft_control_channels), normalised. `vae` is a bound
 * encoder of the canvas. */
weft_status weft_control_encode(const weft_control_video *control, weft_vae *vae, float *to);

#endif
