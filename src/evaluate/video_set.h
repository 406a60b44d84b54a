/* Videos of a list of prompts as 8-bit RGB, generated to compare settings. One rank. */
#ifndef WEFT_EVALUATE_VIDEO_SET_H
#define WEFT_EVALUATE_VIDEO_SET_H

#include "generate/generator/generator.h"

/* Model, prompts and seeds of the videos of a comparison. Borrowed. */
typedef struct weft_video_request {
    const char *model;
    const char *const *prompt; /* [count] */
    int64_t count, seed;       /* seed of the first prompt; prompt i has seed + i */
} weft_video_request;

typedef struct weft_video_set {
    int64_t count, frames, height, width, bytes; /* bytes: of one video */
    uint8_t *video;                              /* [count] videos, owned */
    double seconds;                              /* denoising time of a video */
    weft_generator_cache_stats cache;
} weft_video_set; /* zero-initialise */

/* Generates the videos, which replace the videos of an earlier call. `opened` (NULL: none) is
 * called with the generator before its weights are loaded. */
typedef weft_status_code weft_video_set_fn(void *user, const weft_generator *p);
weft_status weft_video_set_generate(const weft_video_request *request,
                                    const weft_generator_options *options,
                                    weft_video_set_fn *opened, void *user, weft_video_set *set);
/* PSNR of video i of both sets; infinity: identical. */
double weft_video_set_psnr(const weft_video_set *a, const weft_video_set *b, int64_t i);
void weft_video_set_free(weft_video_set *set);

#endif
