/* Visual conditioning: a first frame, a last frame, a video to edit, and an inpainting mask. */
#ifndef WEFT_GENERATE_CONDITIONING_VISUAL_CONDITION_H
#define WEFT_GENERATE_CONDITIONING_VISUAL_CONDITION_H

#include "base/scratch_map.h"
#include "generate/conditioning/edit_images.h"
#include "generate/conditioning/frame_inputs.h"
#include "generate/conditioning/refinement.h"
#include "model/tiling.h"

typedef struct weft_visual_inputs {
    const char *image, *last_image; /* first and last frame; NULL: none */
    /* Further images to edit, after `image`: [more_images], borrowed */
    const char *const *more_image;
    int more_images;
    const char *video;   /* video to edit, or an image used as every frame; NULL: none */
    const char *control; /* control video or image; NULL: none */
    /* Images of persons or things that the video shows: [references], borrowed. Each is a latent
     * frame of the control before the video. */
    const char *const *reference;
    int references;
    const char *face; /* video of the face of a character; NULL: none */
    /* image or video; white regions of `video` or `control` are generated; NULL: none */
    const char *mask;
    int64_t outpaint[4]; /* pixels generated left of, above, right of and below `video` */
    int fit;             /* weft_fit */
    /* Video whose last `before_frames` frames begin the generated video; NULL: none */
    const char *before;
    int64_t before_frames;
    weft_coarse_video coarse; /* coarse video that is refined; file NULL: none */
    /* Frames of the previous window at the start of each window (weft_visual_condition_set_prefix).
     * 0: the video has one window. */
    int64_t prefix_frames;
} weft_visual_inputs;

/* Model and size that the conditioning is for. All pointers are borrowed until the inputs are
 * read. */
typedef struct weft_visual_condition_setup {
    const char *folder, *vae_folder;
    const weft_model *denoiser;
    const weft_grid *grid;         /* pixels to latents */
    int64_t frames, height, width; /* pixels; frames: with the latent frames before the video */
    weft_refinement refinement;    /* of files->coarse */
    bool trained;    /* the model was trained with a given first frame, by its folder */
    bool controlled; /* the model was trained with control videos, by its folder */
    bool silent;     /* print no warnings about sizes: another rank prints them */
    /* conditioning latents after the image are zeros, not encoded grey frames */
    bool zeros;
    bool published; /* not trained by weft: use the image as the model's pipeline does */
    const weft_edit_pipeline *edit;     /* images to edit have sizes of their own; NULL: no */
    int64_t vision_side;                /* pixels per side of a text encoder's image; 0: none */
    const char *offload_dir;            /* folder for the per-cell arrays; NULL: in memory */
    const struct weft_backend *backend; /* NULL: cpu */
    const weft_tile *tile;      /* encoder tile; NULL: untiled if that fits in `memory` bytes */
    weft_products vae_products; /* precision of the encoder */
    int64_t memory;
} weft_visual_condition_setup;

/* Visual conditioning of one video, the same for all prompts. A cell is one position of the latents
 * (frame, row, column). Latents are normalised. An absent input has a NULL member. */
typedef struct weft_visual_condition {
    int64_t latent[3], channels;    /* shape of the latents */
    int64_t extra_channel_count;    /* conditioning channels after the noisy channels */
    weft_frame_condition_kind form; /* how the model takes the image; NONE: no image */
    /* Images to edit, or their tokens with `edit`; 0: none */
    int64_t edited;
    weft_edit_images edit; /* images to edit with sizes of their own; count 0: none */
    /* (T,Y,X,channels): latents of the video or of the clean frames; (edited,Y,X,channels): of the
     * images to edit or their tokens */
    float *latents;
    uint8_t *keep_mask;       /* (T,Y,X) 1: the result equals `latents` */
    uint8_t *clean_frames;    /* (T) 1: the frame enters the model without noise */
    double given_time;        /* timestep of clean frames (weft_frame_condition) */
    bool keeps_noise;         /* clean frames end with a part of their noise, too */
    float *extra_channels;    /* (T,Y,X,extra_channel_count) */
    int64_t control_channels; /* channels of WEFT_PORT_CONTROL; 0: the model has no such input */
    float *control;           /* (T,Y,X,control_channels) */
    float *image;             /* (tokens, width): output of the image encoder */
    int64_t image_tokens, image_width;
    float *face; /* (face_floats): pixels of WEFT_PORT_FACE in [-1,1] */
    int64_t face_floats;
    float *vision_image;      /* (2,side,side,3): the image for a text encoder, and a black image */
    double image_noise_share; /* share of the image's latents in the noise of each frame; 0: none */
    int64_t settled;          /* first latent frames whose statistics are adapted; 0: none */
    int64_t apart;            /* first latent frames that guidance does not see; 0: it sees all */
    /* `latents` cover the video: denoising may begin at an intermediate noise level */
    bool from_video;
    int64_t given;      /* first latent frames that are given to a refined video; 0: none */
    weft_scratch cells; /* memory of latents, extra_channels, control, keep_mask and clean_frames */
    struct weft_visual_condition_workspace *work;
} weft_visual_condition;

/* Opens a VAE encoder for `frames` x `height` x `width` pixels within setup->memory. */
struct weft_vae;
weft_status weft_visual_condition_encoder(const weft_visual_condition_setup *setup, int64_t frames,
                                          int64_t height, int64_t width, struct weft_vae **vae);
/* Returns true if the model generates from a given frame only. */
bool weft_visual_condition_needs_image(const weft_frame_condition *how);
/* Checks that the model supports the inputs; the error gives the reason and families that do.
 * Compiles the programs and opens the files' headers. Reserves no large memory. */
weft_status weft_visual_condition_open(const weft_visual_inputs *files,
                                       const weft_visual_condition_setup *setup,
                                       weft_visual_condition *visual);
/* The image's normalised latents (channels) at cell `at` of a frame. Requires image_noise_share >
 * 0. */
const float *weft_visual_condition_noise_image(const weft_visual_condition *visual, int64_t at);
/* Latents of images to edit. */
int64_t weft_visual_condition_edited_floats(const weft_visual_condition *visual);
/* Bytes that stay reserved, and temporary bytes needed while the inputs are read. */
int64_t weft_visual_condition_bytes(const weft_visual_condition *visual);
int64_t weft_visual_condition_workspace_bytes(const weft_visual_condition *visual);
int64_t weft_visual_condition_mapped(
    const weft_visual_condition *visual); /* bytes in files instead of memory */
/* Reads and encodes the inputs, then releases the encoders. With files->prefix_frames the memory is
 * reserved and the image encoders stay. */
weft_status weft_visual_condition_read(weft_visual_condition *visual);
/* Sets the first frames of a window, counted from 0, before its denoising: (prefix_frames, height,
 * width, 3) in [-1,1]. NULL: uses the image file, for the first window of a video. Requires
 * files->prefix_frames. */
weft_status weft_visual_condition_set_prefix(weft_visual_condition *visual, int64_t window,
                                             const float *frames);
void weft_visual_condition_free(weft_visual_condition *visual);

#endif
