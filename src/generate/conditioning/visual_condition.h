/* What a video is made from beside its noise and its prompt: an image that it begins (and one that
 * it ends) with, a video that is made over, a mask of what is painted. */
#ifndef WEFT_GENERATE_GIVEN_H
#define WEFT_GENERATE_GIVEN_H

#include "base/scratch_map.h"
#include "generate/pictures.h"
#include "model/tiling.h"

typedef struct weft_given_files {
    const char *image, *last_image; /* the first frame and the last; NULL: none */
    const char *video;              /* that is made over, or a picture: every frame; NULL: none */
    const char *mask;    /* of the video, a picture or a video: white is made anew; NULL: none */
    int64_t outpaint[4]; /* pixels that are made to the left of the video, above, right, below */
    int fit;             /* weft_fit */
    /* Frames of the walk before that a walk begins with (weft_given_carry); 0: there is one walk */
    int64_t carry;
} weft_given_files;

/* Where it is used. All borrowed while it is read. */
typedef struct weft_given_place {
    const char *folder, *vae_folder;
    const weft_model *denoiser;
    const weft_grid *grid;         /* pixels to latents */
    int64_t frames, height, width; /* pixels */
    bool trained;          /* the folder says that its model was trained with a given first frame */
    bool silent;           /* says nothing of sizes: another rank does */
    bool zeros;            /* and with zeros where others have latents of grey pixels */
    bool published;        /* no training of ours: the image is used as the model's pipeline does */
    int64_t picture;       /* side of the picture that a text encoder sees; 0: none does */
    const char *away;      /* folder for what is known of each cell; NULL: in memory */
    const weft_tile *tile; /* of encoding; NULL: whole where that fits into `memory` bytes */
    int64_t memory;
} weft_given_place;

/* Of one video, the same for all prompts. Cells are latent frames, rows, columns; latents are
 * normalised. A member is NULL where nothing says it. */
typedef struct weft_given {
    int64_t latent[3], channels; /* of the latents */
    int64_t behind;              /* channels that follow the noisy ones */
    weft_given_form form;        /* how the image is told; NOT: none is given */
    float *known;                /* (T,Y,X,channels): of the video, and of frames that are clean */
    uint8_t *keep;               /* (T,Y,X) 1: ends as it is known */
    uint8_t *clean;              /* (T) 1: goes into the model without noise */
    float *follow;               /* (T,Y,X,behind) */
    float *image;                /* (tokens, width): of the image encoder */
    int64_t image_tokens, image_width;
    float *picture;     /* (2,side,side,3): the image as a text encoder sees it, and a black one */
    double tint;        /* share of the image's latents in the noise of every frame; 0: none */
    bool from_video;    /* all of `known` is the video's: denoising may begin in between */
    weft_scratch cells; /* known, follow, keep and clean are in it */
    struct weft_given_work *work;
} weft_given;

/* An encoder of pixels for such a place. */
struct weft_vae;
weft_status weft_given_encoder(const weft_given_place *place, int64_t frames, int64_t height,
                               int64_t width, struct weft_vae **vae);
/* Whether the model can be given that, with a reason and families that can; lays the programs and
 * opens the files' headers. Nothing large is reserved. */
weft_status weft_given_open(const weft_given_files *files, const weft_given_place *place,
                            weft_given *given);
/* The normalised latents (channels) of the image at place `at` of a frame; with `tint` only. */
const float *weft_given_tint(const weft_given *given, int64_t at);
/* Bytes of what stays, and of what is needed beside it while it is made. */
int64_t weft_given_bytes(const weft_given *given);
int64_t weft_given_work_bytes(const weft_given *given);
int64_t weft_given_mapped(const weft_given *given); /* and what stays in files instead */
/* Reads and encodes; what was needed for that is gone afterwards. With files->carry it is only laid
 * out, */
weft_status weft_given_read(weft_given *given);
/* and this is said before each walk: frames (carry, height, width, 3) in [-1,1]; NULL: what the
 * files say, for a video's first walk. */
weft_status weft_given_carry(weft_given *given, const float *frames);
void weft_given_free(weft_given *given);

#endif
