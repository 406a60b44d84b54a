/* A list of videos made from beginning to end: generators one after the other, files, what is kept
 * on the way, and going on from it.
 *
 *     job ──> walk ─────────────────────────> latents ──────────────────────> video, line of JSON
 *             NAME.walk.safetensors           NAME.latents.safetensors        NAME.mp4
 *             after each step; goes when      before decoding; goes when the
 *             latents are there               video is there, or is kept
 *
 * Going on looks for them from the right to the left. */
#ifndef WEFT_GENERATE_PRODUCTION_H
#define WEFT_GENERATE_PRODUCTION_H

#include "generate/generator.h"
#include "generate/jobs.h"

typedef struct weft_production {
    const char *model, *out; /* out: .mp4 of one video, else a folder */
    const char *sheet;       /* NULL: none */
    bool raw;                /* also the numbers of the frames, .npy */
    bool latents;            /* also what was denoised, .latents.npy */
    bool keep;               /* what was denoised stays beside the video */
    bool resume;             /* goes on from what is there */
    const char *noise;       /* to begin with, .npy; NULL: seeds' */
    /* Each rank may make videos of its own where there are enough; else all work on each. */
    bool apart;
    /* Of all jobs that do not say otherwise; batch: at most */
    const weft_generator_options *options;
    /* By whose rates seconds are told before the first step; NULL: they are not */
    const struct weft_cluster *cluster;
    weft_jobs *jobs; /* brought to the run's settings */
    weft_comm *comm;
} weft_production;

weft_status weft_production_run(const weft_production *production);

/* Latents that were kept to `out`, with nothing but the VAE: several to a folder. */
weft_status weft_production_decode(const weft_production *production, const char *const *paths,
                                   int count);

#endif
