/* Estimate of one layout of generation: the generator's own programs on a simulated clock of the
 * cluster, with the generator's predicted memory. Reserves nothing, reads no weights and starts no
 * rank.
 *
 *     model folder, size ──> generator of rank 0 of N ──> bytes, tiles
 *                                  │ text encoders x 1, denoiser x steps, decoder x tiles
 *     profile or cluster ──────────┴──────────────────────────────────────> seconds */
#ifndef WEFT_ESTIMATE_GENERATION_GENERATION_ESTIMATE_H
#define WEFT_ESTIMATE_GENERATION_GENERATION_ESTIMATE_H

#include "generate/generator/generator.h"
#include "plan/cluster/cluster.h"

/* Inputs common to all layouts; borrowed. */
typedef struct weft_generation_estimator {
    const char *folder;
    /* memory: bytes of a rank; parallel (may be NULL): only keys other than degrees are used */
    const weft_generator_options *options;
    const weft_cluster *cluster;
    int ranks;
    weft_arena *arena;
} weft_generation_estimator;

typedef struct weft_generation_estimate {
    weft_parallel parallel;
    bool stream; /* weights are streamed because they do not fit */
    bool legal;  /* generation accepts the layout */
    bool fits;   /* a rank's memory suffices */
    /* seconds of one video: decoding, and its share of the batch's texts and steps */
    double video;
    double step;   /* mean seconds of a denoising step of the batch: kernels and waits */
    int64_t steps; /* denoising steps of a trajectory */
    int64_t runs;  /* denoiser program runs in a trajectory, all windows */
    double compute, exposed, hidden; /* hidden: hidden behind compute */
    double text, decode;             /* text: of the batch; decode: of one video */
    double first; /* seconds of first use of memory, not part of `text` and the steps */
    double exact; /* share of kernel seconds that was measured */
    int64_t peak; /* bytes of the rank with the largest peak */
    int64_t wire; /* bytes sent by a rank per step */
    double flops; /* FLOPs of a rank per step */
    int64_t parameters, text_parameters; /* weights of denoisers, of text encoders */
    weft_mesh mesh;                      /* mesh of the denoiser */
    int64_t sent[WEFT_MAX_AXES];         /* `wire` by mesh axis */
    char tiles[64];                      /* decoder tiles; "": no tiling */
    const char *why;                     /* reason if not legal or does not fit; arena */
} weft_generation_estimate;

/* Estimates an open generator with its own layout. */
weft_status weft_generation_estimate_open(const weft_generation_estimator *estimator,
                                          weft_generator *generator, weft_generation_estimate *out);
/* Estimates a layout. An illegal layout is reported in `out`, not as an error. */
weft_status weft_generation_estimate_make(const weft_generation_estimator *estimator,
                                          const weft_parallel *parallel, bool stream,
                                          weft_generation_estimate *out);
/* Estimates the layout of options->parallel. Errors of an illegal layout are returned. */
weft_status weft_generation_estimate_own(const weft_generation_estimator *estimator,
                                         weft_generation_estimate *out);
/* Name of a layout, e.g. "cfg=2 tp=2, weights stream". */
void weft_generation_layout_name(const weft_generation_estimate *estimate, weft_buf *out);

#endif
