/* From prompts to videos: text encoder, denoising with guidance, streaming VAE decode. */
#ifndef WEFT_GENERATE_GENERATOR_H
#define WEFT_GENERATE_GENERATOR_H

#include "diffusion/guidance.h"
#include "diffusion/scheduler.h"
#include "generate/adapters.h"
#include "generate/given.h"
#include "generate/likeness.h"
#include "latent/vae_stream.h"
#include "pass/parallel.h"
#include "pass/passes.h"

/* As in the files; f32; rounded to bf16, which halves them; as GGUF files pack them, where they do.
 * Computed with in f32 all the same. */
typedef enum weft_weights_kind {
    WEFT_WEIGHTS_AS_STORED,
    WEFT_WEIGHTS_F32,
    WEFT_WEIGHTS_BF16,
    WEFT_WEIGHTS_GGUF
} weft_weights_kind;

typedef struct weft_generator_options {
    int64_t frames, height, width; /* of the video; 0: what the model was trained on */
    int64_t steps;
    double guidance;             /* scale; 1: none, and half the work */
    const weft_guidance *guide;  /* how it is used; NULL: what the scale asks for */
    double guidance_rescale;     /* of the row that has it */
    const char *negative;        /* what guidance leads away from; NULL: the empty text */
    double guidance_low;         /* the scale below `boundary`; 0: the same */
    double boundary;             /* part of the times, 0..1; 0: the model's own, or none */
    double shift;                /* 0: the model's scheduler's */
    double eta;                  /* noise of samplers that may add some: 0 none, 1 DDPM's */
    const weft_sampler *sampler; /* NULL: the model's scheduler's */
    int64_t batch;               /* prompts denoised together */
    const weft_tile *tile; /* of decoding, read while it is opened; NULL: whole where that fits */
    int64_t memory;        /* bytes that a rank may take; 0: what the machine has free */
    const weft_pass_switches *passes; /* read while it is opened; NULL: weft_pass_defaults */
    const weft_parallel *parallel;    /* read while it is opened; NULL: all ranks on dp */
    /* weft_weights_kind: how the transformer's and the text encoder's matrices are kept */
    int weights;
    /* Large matrices stay in the files and are read for each use, or, where they have to be
     * converted or adapters change them, in unnamed files of the folder `away` (NULL: in memory) */
    bool stream;
    const char *away;
    const weft_adapter_choice *adapters; /* [adapter_count], read while it is bound */
    int adapter_count;
    weft_given_files given;       /* read until it is bound */
    weft_likeness_files likeness; /* the same */
    /* How much of the walk is gone of which `given.video` is the end: 1 begins with noise alone; 0:
     * 1 with a mask, else 0.8. */
    double strength;
    /* Frames that are denoised together, and that two windows share; 0: all, and a quarter. */
    int64_t window, window_overlap;
    /* Windows are not blended but made one behind the other, each beginning with the last
     * window_overlap frames (0: 1) of the one before: where `frames` are more than `window` a
     * generator makes a window, and its settings say so in frames and given.carry. */
    bool continues;
    int64_t preview; /* a picture of what is denoised behind every so many steps; 0: none */
    double fps;      /* that the model is told, where it takes one; 0: as trained */
    /* Shares of the steps from which on and until which there is guidance; both 0: in all */
    double guided[2];
    const char *cache; /* as weft_cache_choose takes it; NULL: off */
    /* Folder of a file for each rank, of what took place when in the last denoising step of each
     * batch (weft_timeline_write), of the last one in the end; NULL: none */
    const char *trace;
    /* To measure: programs time every node, and wait for exchanges where they start */
    bool profile;
} weft_generator_options;

typedef struct weft_generator weft_generator;

/* Frames, height and width that are 0 become what the folder's model was trained on. WEFT_E_ARG
 * where it does not say, WEFT_E_NOT_FOUND where there is no such folder. */
weft_status weft_generator_size(const char *folder, int64_t size[3]);

/* Reads a model folder (transformer/, text_encoder/, vae/, scheduler/, weft.json) as weft train
 * writes it or as models are published, builds and plans everything. With transformer_2/ that one
 * denoises below the boundary of model_index.json's "boundary_ratio". No weights are loaded and
 * nothing large is reserved, so that weft_generator_bytes() can be told first; what is more than
 * options->memory is WEFT_E_MEMORY, unless decoding in tiles makes it less. `comm` may be NULL.
 * Of several ranks those on dp and fsdp split the denoising batch (prompts x guidance halves),
 * those on other axes the transformer. */
weft_status weft_generator_open(const char *folder, const weft_generator_options *options,
                                weft_comm *comm, weft_generator **generator);
void weft_generator_free(weft_generator *generator); /* accepts NULL */
/* Bytes that binding reserves on this rank at most: programs, weights, caches, latents; before
 * those what encodes the pictures that are given, which is gone by then. */
int64_t weft_generator_bytes(const weft_generator *generator);
/* The same of a rank that has the text encoders, or has none (parallel.text). */
int64_t weft_generator_bytes_of(const weft_generator *generator, bool texts);
/* The one rank that has them; -1: all do. */
int weft_generator_text_rank(const weft_generator *generator);
/* With a folder `away` that which grows with the length of a video of several windows is not in
 * memory but in files without a name; so many bytes. */
int64_t weft_generator_away_bytes(const weft_generator *generator);
weft_status weft_generator_bind(weft_generator *generator);
/* Calls `with` for every program of a video but those of caches: text encoders, denoisers, the
 * decoder's (latent/vae_stream.h), in the same order on all ranks. */
weft_status weft_generator_programs(weft_generator *generator, weft_vae_program_fn *with,
                                    void *user);
/* "12 tiles of 256x256" that a picture is decoded in; "": whole. */
const char *weft_generator_tiles(const weft_generator *generator, char text[64]);
/* How the ranks split the work, for people: "2 ranks: cfg=2; ..." */
weft_status weft_generator_tell_layout(const weft_generator *generator, weft_buf *out);
/* WEFT_E_ARG, naming the nearest: its model makes no videos of these frames, height and width. */
weft_status weft_generator_takes(const weft_generator *generator, const int64_t size[3]);
/* With what the options left open filled in; fps is the model's. */
const weft_generator_options *weft_generator_settings(const weft_generator *generator);
double weft_generator_fps(const weft_generator *generator);
/* Denoising steps that are gone: fewer than asked for where they begin in a video. */
int64_t weft_generator_steps(const weft_generator *generator);
/* Tokens of a video, of which a denoising step works on all. */
int64_t weft_generator_tokens(const weft_generator *generator);
/* Frames, rows, columns and channels of its latents. */
void weft_generator_latents(const weft_generator *generator, int64_t dim[4]);
/* What the first `count` prompts of a run begin with instead of their seeds' noise: (count,
 * latents); borrowed. */
void weft_generator_begin_with(weft_generator *generator, const float *noise, int64_t count);
/* With given.carry, before each run, which is of window `window` of one video: the frames (carry,
 * height, width, 3) in [-1,1] that it begins with; NULL: what the options give, for the first. */
weft_status weft_generator_continue(weft_generator *generator, int64_t window, const float *frames);
/* What guidance leads each prompt of a run away from instead of options->negative; borrowed, NULL:
 * that one. */
void weft_generator_negatives(weft_generator *generator, const char *const *negatives);

/* What the caches between steps have left out so far: a line for each denoiser, empty without. */
weft_status weft_generator_tell_cache(const weft_generator *generator, weft_buf *out);
/* Of all of them: steps that were denoised and those that took again, how much sooner by FLOPs and
 * by the clock. */
typedef struct weft_generator_saved {
    int64_t runs, reused;
    double predicted, measured;
} weft_generator_saved;
weft_generator_saved weft_generator_cache(const weft_generator *generator);

typedef struct weft_generator_sink {
    /* The denoising of prompts first.. begins: their texts are encoded. May be NULL. */
    void (*begin)(void *user, int64_t first_prompt);
    /* Denoising step `done` of `steps` for prompts first..; may be NULL. */
    weft_status_code (*step)(void *user, int64_t first_prompt, int64_t done, int64_t steps);
    /* The middle of the video as it is seen now, (height, width, 3) in [-1,1]; on rank 0 only, with
     * options->preview; may be NULL. */
    weft_status_code (*preview)(void *user, int64_t prompt, const float *picture);
    /* What was denoised: (frames, rows, columns, channels) of dim, normalised; on rank 0 only,
     * all videos of a batch before the first of them is decoded; may be NULL. */
    weft_status_code (*latents)(void *user, int64_t prompt, const int64_t dim[4], const float *x);
    /* Decoded frames of prompt `prompt`, (count, height, width, 3) in [-1,1]; on rank 0 only. Frame
     * 0 comes again where decoding fails for want of memory and is begun anew in smaller tiles. */
    weft_status_code (*frames)(void *user, int64_t prompt, int64_t first_frame, int64_t count,
                               const float *frames);
    void *user;
} weft_generator_sink;

/* Noise of prompt i is a function of seeds[i] and the place in the video alone: the same seed and
 * batch give the same bits, whatever else is generated with it; another batch sums in another order
 * and gives the same numbers to rounding. */
weft_status weft_generator_run(weft_generator *generator, const char *const *prompts,
                               const uint64_t *seeds, int64_t count,
                               const weft_generator_sink *sink);

/* ---- what is kept (generate/walk_file.h) ---------------------------------------------------- */

/* In a sink's `step`: where the batch that is denoised stands, so that it can be gone on from; in
 * `latents`, on its rank: that it is denoised, so that going on decodes it. One rank writes it, all
 * have the same. With caches between steps all ranks come in a `step`: each writes what its caches
 * hold to a file of its own beside `path`, which counts when the first has written `path`; when one
 * cannot, all hear of it. The folder of `path` is made where it is missing. */
weft_status weft_generator_keep(weft_generator *generator, const char *path);
/* There are such caches. */
bool weft_generator_keeps_caches(const weft_generator *generator);
/* Removes what was kept there, of all ranks. */
void weft_generator_unkeep(const char *path);
/* In a sink's `latents` or `frames`: those of that prompt. `tries`: they are being decoded, so that
 * who finds the file without a video decodes it in less memory (generate/decode.h). */
weft_status weft_generator_keep_video(weft_generator *generator, int64_t prompt, bool tries,
                                      const char *path);
/* The next weft_generator_run, of a batch at most, goes on from what weft_generator_keep wrote, to
 * the same bits; `step`: behind which. WEFT_E_ARG names what differs: model, settings, prompts,
 * seeds. */
weft_status weft_generator_go_on(weft_generator *generator, const char *path,
                                 const char *const *prompts, const uint64_t *seeds, int64_t count,
                                 int64_t *step);

#endif
