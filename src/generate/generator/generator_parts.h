/* Internals of a generator, for the files generator*.c alone:
 *
 *     generator_read.c    folder and options -> sizes and settings, checked
 *     generator_graphs.c  -> graphs and programs of text encoders and experts
 *     generator.c         -> memory, weights, noise levels
 *     generator_denoise.c    prompts and noise -> latents -> frames
 *     generator_save.c    sampler state between two steps -> a file, and back */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_PARTS_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_PARTS_H

#include "base/scratch_map.h"
#include "exec/trace/run_trace.h"
#include "format/tensors/tensors.h"
#include "generate/generator/feature_cache.h"
#include "generate/generator/generator.h"
#include "generate/generator/saved_latents.h"
#include "generate/generator/temporal_windows.h"
#include "prompt/text_conditioning.h"
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

struct weft_generator {
    weft_generator_options options;
    char *folder;
    weft_comm *comm; /* borrowed; NULL: one rank */
    weft_mesh mesh;
    int text_rank;                     /* the only rank with the text encoders; -1: all ranks */
    int64_t overlap_counts[WEFT_MADE]; /* layer slices of the denoiser by kind (slices.h) */
    weft_recipe recipe; /* sharding of the denoiser, and of text encoders with the same names */
    /* one denoiser, or a high-noise and a low-noise expert */
    int experts;
    weft_model denoiser_model[2];
    weft_text_conditioning text;
    weft_tokenizer_set tokenizers;
    char *denoiser_folder[2], *encoder_folder[WEFT_MAX_TEXT_ENCODERS], *vae_folder;
    weft_grid patch; /* latents to tokens */
    weft_grid grid;  /* pixels to latents */
    weft_scheduler scheduler;
    const weft_guidance *guidance;
    double fps;
    /* no weft.json: conditioning as in the model's pipeline */
    bool published;
    weft_visual_condition_setup visual_setup; /* its pointers are into this struct */
    weft_visual_condition visual;
    weft_identity_condition identity_condition;
    weft_temporal_windows windows; /* sizes in latent frames */
    int64_t latent[3];             /* frames, height, width */
    int64_t before;                /* leading latent frames that only complete a token; dropped */
    int64_t lead;                  /* next latent frames, decoded and then dropped */
    int64_t skipped;               /* first steps of the schedule that are not run (strength) */
    int64_t longest;               /* options.continues: frames of a window; 0: one window */
    int64_t latent_floats, rows;   /* rows: of the denoising batch, prompts x CFG branches */
    weft_store *store;
    weft_generator_part encoder[WEFT_MAX_TEXT_ENCODERS], denoiser[2];
    /* Denoisers without the unconditional branch, for steps outside options.guided; no graph:
     * none. */
    weft_generator_part alone[2];
    weft_feature_cache_rule cache;
    bool cached;        /* a feature cache with that rule is on */
    const float *noise; /* (noises, latents) initial noise, borrowed; NULL: from the seeds */
    int64_t noises;
    weft_vae *vae;
    weft_vae *preview;             /* decodes one latent frame, on rank 0 only; NULL: none */
    float *seen;                   /* (batch, frame) latents for the preview, and one work frame */
    weft_solver_step *solver_step; /* [steps] */
    /* x, other (batch, latents): the sample, and the unconditional prediction. work: the sampler's
     * memory. All are in sampler_buffer. context (rows, text floats per prompt): text
     * conditioning. */
    weft_scratch sampler_buffer;
    float *x, *work, *other, *context;
    const char *const *negatives; /* negative prompts of a run, borrowed; NULL: options.negative */
    /* Current batch: prompts first.. of a run, and the sampler's cursor. */
    const char *const *prompts;
    const uint64_t *seeds;
    int64_t first, count; /* count: prompts of the run */
    weft_sampler_cursor cursor;
    bool tile_set;           /* options.tile was set */
    bool goes_on;            /* x and cursor were restored from saved latents */
    weft_timeline *timeline; /* timeline of the current step, borrowed; NULL: not recorded */
    json_t *identity;        /* settings that determine the result; NULL: not computed yet */
};

/* Model inputs that are one value per video. */
enum { WEFT_GENERATOR_NUMBERS = 4 };

#endif
