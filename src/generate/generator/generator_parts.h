/* Internals of a generator, for the files generator*.c alone:
 *
 *     generator_read.c        folder and options -> shape of the video, checked
 *     generator_model.c          the model folder
 *     generator_trajectory.c     noise levels and guidance
 *     generator_inputs.c         images, videos and masks
 *     generator_graphs.c      -> graphs and programs of text encoders and experts
 *     generator_decoder.c     -> the decoder, in the memory that is left
 *     generator_weights.c     -> weights, from files or from resident_weights.c
 *     generator.c             -> memory
 *     latent_stages.c         stages with latents of several sizes
 *     generator_rows.c        latents, images and times -> inputs of a denoiser's rows
 *     generator_steps.c       noise levels and denoiser of each step
 *     generator_sound.c       guidance and decoding of videos with sound
 *     causal_blocks.c         blocks of causal models
 *     generator_denoise.c     prompts and noise -> latents -> frames
 *     generator_save.c        sampler state between two steps -> a file, and back */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_PARTS_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_PARTS_H

#include "base/scratch_map.h"
#include "exec/trace/run_trace.h"
#include "format/tensors/tensors.h"
#include "generate/generator/feature_cache.h"
#include "generate/generator/frame_levels.h"
#include "generate/generator/generator_decoder.h"
#include "generate/generator/generator_inputs.h"
#include "generate/generator/generator_trajectory.h"
#include "generate/generator/saved_latents.h"
#include "generate/generator/temporal_windows.h"
#include "model/frame_cache.h"
#include "model/video_sections.h"
#include "transform/sharding/recipes.h"
#include "transform/sharding/slices.h"

/* A model graph on this rank. `graph` is unsharded, `own` is this rank's graph (the same on one
 * rank). */
typedef struct weft_generator_part {
    weft_graph *graph, *own;
    weft_program *program;
    weft_tensors *file; /* file of streamed weights; NULL: none */
    /* Family and folder of matrices that stay quantized as in their files; NULL: none. */
    const weft_family *packed;
    const char *folder;
    char prefix[64];
    weft_feature_cache *cache; /* runs instead of `program`; NULL: none */
} weft_generator_part;

/* Graphs, programs and weights of this rank. Opened by weft_generator_build, bound once. */
typedef struct weft_generator_parts {
    weft_store *store;
    weft_generator_part encoder[WEFT_MAX_TEXT_ENCODERS], denoiser[2];
    /* Denoisers without the unconditional branch, for steps outside options.guided; no graph:
     * none. */
    weft_generator_part alone[2];
    weft_generator_part reasoning; /* the denoiser of reasoning_frames; no graph: none */
    weft_generator_part context;   /* adds a finished block to the cache; no graph: none */
    /* The denoiser in the smaller sizes of latent_stages.h, by stage; no graph: none. */
    weft_generator_part smaller[WEFT_MAX_STAGES - 1];
    weft_feature_cache_rule cache;
    bool cached;         /* a feature cache with that rule is on */
    json_t *int8_layers; /* of the model's folder (int8_layers.h); NULL: none */
} weft_generator_parts;

/* How the ranks split the work. Opened by weft_generator_build. */
typedef struct weft_generator_layout {
    weft_mesh mesh;
    int text_rank;                     /* the only rank with the text encoders; -1: all ranks */
    int64_t overlap_counts[WEFT_MADE]; /* layer slices of the denoiser by kind (slices.h) */
    weft_recipe recipe; /* sharding of the denoiser, and of text encoders with the same names */
} weft_generator_layout;

/* Shape of the video and of the denoising batch. Set by weft_generator_read. */
typedef struct weft_generator_shape {
    weft_temporal_windows windows; /* sizes in latent frames */
    int64_t latent[3];             /* frames, height, width */
    int64_t before;                /* leading latent frames that only complete a token; dropped */
    int64_t lead;                  /* next latent frames, decoded and then dropped */
    int64_t longest;               /* options.continues: frames of a window; 0: one window */
    int64_t latent_floats, rows;   /* rows: of the denoising batch, prompts x branches */
    /* Branches of guidance: with prompt, without, then weakened ones. text_rows: prompts x the
     * first two. 0: there is no such weakened branch */
    int64_t branches, text_rows, perturbed_branch, isolated_branch;
    /* Audio latents, and their floats. In x they follow the latents of their video. 0: no sound */
    int64_t sound_steps, sound_floats;
    int64_t item_floats;        /* of a video with its sound, after the last step */
    weft_refinement refinement; /* frames of a refined video; frames 0: it is not refined */
    weft_video_sections sections;
    /* Frames and floats that a sampler denoises together: a section, or all. */
    int64_t sampled_frames, sampled_floats;
    /* Latent frames of a block with a noise level of its own; 0 (default): one level for all. */
    int64_t level_frames;
    /* Latent frames in the first `reasoning_steps` steps; 0 (default): of the video. */
    int64_t reasoning_frames, reasoning_steps;
    int64_t begun_floats; /* floats of x before the first step */
    /* Sizes of latents in which a section is denoised (latent_stages.h), and the present one, from
     * the smallest; 0 (default): one size. sampled_floats is of the present size. */
    int64_t stages, stage;
    /* Causal models: sections are blocks (causal_blocks.h), with a cache of earlier ones. */
    bool causal, cached;
    weft_frame_cache_size cache;
    /* First latent frames, of a given video, that are in such a cache. The other frames are the
     * only block. 0 (default): none */
    int64_t kept;
} weft_generator_shape;

/* Memory of a batch, reserved by weft_generator_bind and used by every batch.
 *
 * x, other (batch, latents): the sample, and the unconditional prediction. weakened (branches,
 * batch, latents): predictions of weakened branches. windows (3, batch,
 * channels): means of the first window with and without prompt, and the shift of another window.
 * average (batch, latents), directly before work: of the guider, if it averages; otherwise NULL.
 * work: the sampler's memory. All are in sampler_buffer. context (rows, text floats per prompt):
 * text conditioning. */
typedef struct weft_generator_memory {
    weft_scratch sampler_buffer;
    float *x, *average, *work, *other, *weakened, *windows, *context;
    float *prediction; /* prediction for all frames; NULL without level_frames */
} weft_generator_memory;

/* Prompts of a run, borrowed. Lives for a weft_generator_run. */
typedef struct weft_generator_request {
    const char *const *prompts;
    const uint64_t *seeds;
    const char *const *negatives; /* negative prompts; NULL: options.negative */
    const float *noise;           /* (noises, latents) initial noise; NULL: from the seeds */
    int64_t noises;
    int64_t first, count; /* first: first prompt of the current batch; count: prompts of the run */
} weft_generator_request;

/* Position in the trajectory of the current batch. Lives for a batch. */
typedef struct weft_generator_sampling {
    weft_sampler_cursor cursor; /* counts the steps of all sections */
    int64_t section;            /* being denoised */
    bool resumed; /* x and cursor were restored from saved latents, until the batch begins */
    weft_vae_place decoded; /* causal models: frames that are decoded */
} weft_generator_sampling;

/* Parts with weights: text encoders, denoisers and the decoder. */
enum { WEFT_GENERATOR_LOANS = WEFT_MAX_TEXT_ENCODERS + 3 };

struct weft_generator {
    weft_generator_options options;
    weft_comm *comm; /* borrowed; NULL: one rank */
    /* opened once, and the same for every batch */
    weft_generator_model model;
    weft_generator_trajectory trajectory;
    weft_generator_shape shape;
    weft_generator_inputs inputs;
    weft_generator_layout layout;
    weft_generator_parts parts;
    weft_generator_decoder decoder;
    weft_generator_memory memory;
    struct weft_resident_loan *loans[WEFT_GENERATOR_LOANS]; /* with options.resident; NULL: none */
    json_t *identity; /* settings that determine the result; NULL: not computed yet */
    /* a run, and its current batch */
    weft_generator_request request;
    weft_generator_sampling sampling;
};

/* Model inputs that are one value per video. */
enum { WEFT_GENERATOR_NUMBERS = 4 };

#endif
