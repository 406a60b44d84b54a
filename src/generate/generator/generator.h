/* Generates videos from prompts: text encoding, denoising with guidance, streaming VAE decode. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_H

#include "base/given.h"
#include "base/json.h"
#include "comm/comm.h"
#include "diffusion/guidance.h"
#include "diffusion/scheduler.h"
#include "generate/conditioning/identity.h"
#include "generate/conditioning/visual_condition.h"
#include "generate/generator/adapters.h"
#include "generate/generator/decode_time.h"
#include "latent/vae_chunks.h"
#include "transform/passes.h"
#include "transform/sharding/mesh_config.h"
#include "video/sound.h"

typedef struct weft_generator_part weft_generator_part;

/* The parts with a denoiser: two experts, each with and without guidance. */
enum { WEFT_GENERATOR_DENOISERS = 4 };

/* Storage of weights: as in the files; f32; bf16, half the bytes of f32; quantized as in GGUF
 * files; int8, in which linear layers also compute. */
typedef enum weft_weights_kind {
    WEFT_WEIGHTS_AS_STORED,
    WEFT_WEIGHTS_F32,
    WEFT_WEIGHTS_BF16,
    WEFT_WEIGHTS_GGUF,
    WEFT_WEIGHTS_INT8
} weft_weights_kind;

enum { WEFT_MAX_STG_BLOCKS = 64 };

/* Given levels of the steps: noise levels or timesteps, [count]; NULL: none. `ends`: the levels are
 * followed by 0, the end of the last step. Borrowed. */
typedef struct weft_timestep_schedule {
    const double *sigmas, *timesteps;
    int64_t count;
    bool ends;
} weft_timestep_schedule;

/* Block-sparse attention: as the config of the model says, on, or off. */
typedef enum weft_block_sparse {
    WEFT_BLOCK_SPARSE_CONFIG,
    WEFT_BLOCK_SPARSE_ON,
    WEFT_BLOCK_SPARSE_OFF
} weft_block_sparse;

typedef struct weft_generator_options {
    const weft_backend *backend;   /* NULL: cpu */
    int64_t frames, height, width; /* size of the video; 0 (default): the trained size */
    int64_t steps;
    /* guidance scale; 1: no guidance, half the work; below 0: the model's own (of its weft.json;
     * 4, or 1 if the model is distilled and has no input for the scale) */
    double guidance;
    bool own_guidance;   /* the scale is of a distilled model or adapter: off at 1 */
    double true_cfg;     /* scale of cfg in addition to embedded guidance; 0 or 1: no cfg */
    int64_t text_length; /* tokens of a prompt; 0: the model's own */
    const weft_guidance *guidance_method; /* NULL: chosen by model and scale */
    double guidance_rescale;              /* guidance rescale, for the method that has it */
    /* Scale of the differences to a pass without self-attention in the blocks stg_blocks (0: none),
     * and to a pass without attention between video and sound (not given, or up to 1: none). */
    double stg_scale;
    weft_given_number modality_scale;
    /* scales of the sound; by default the scales of the video */
    weft_given_number audio_guidance, audio_guidance_rescale, audio_stg_scale, audio_modality_scale;
    /* blocks from 0, then -1; read until the graphs are built */
    int64_t stg_blocks[WEFT_MAX_STG_BLOCKS + 1];
    bool stg_blocks_given;
    double control_scale;           /* strength of the control; 0: 1, as in training */
    const char *negative;           /* negative prompt; NULL: the empty text */
    weft_given_number guidance_low; /* guidance scale below `boundary`; by default the same scale */
    /* time, 0 to 1, where experts change; by default the model's own, or none. 0: only the first */
    weft_given_number boundary;
    double shift;                /* 0: the shift of the model's scheduler */
    double eta;                  /* noise added by samplers that support it: 0 none, 1 as in DDPM */
    const weft_sampler *sampler; /* NULL: the sampler of the model's scheduler */
    /* decoders with WEFT_PORT_TIMESTEP; zeros (default): timestep 0, no noise */
    weft_decode_time decode_time;
    /* levels or timesteps of the steps; all 0: the scheduler's */
    weft_timestep_schedule timestep_schedule;
    int64_t batch;              /* prompts denoised together */
    const weft_tile *tile;      /* decoder tile, read while opening; NULL: untiled if that fits */
    weft_products vae_products; /* precision of the VAE */
    int64_t memory;             /* memory limit of a rank in bytes; 0: the free memory */
    const weft_pass_switches *passes; /* read while opening; NULL: weft_pass_defaults */
    const weft_parallel *parallel;    /* read while opening; NULL: all ranks on dp */
    /* weft_weights_kind: storage of the transformer's and the text encoders' matrices */
    int weights;
    bool bf16; /* the transformer and the text encoders compute in bf16, else in f32 */
    bool tf32; /* without bf16: their products may be computed in TF32 */
    /* `bf16` is still to be chosen (estimate/generation/generation_precision.h) */
    bool precision_auto;
    /* Layers that stay out of int8, and smoothed layers (int8_layers.h), borrowed; NULL: the layers
     * that the model's folder lists. */
    const json_t *int8_layers;
    weft_program_observer *observe; /* of the denoisers' kernels; NULL: none */
    void *observe_user;
    /* Weight streaming: large matrices stay in the files and are read for each use. Matrices that
     * are converted or changed by adapters are in unnamed files of the folder `offload_dir` (NULL:
     * memory). */
    bool stream;
    const char *offload_dir;
    /* Weights that stay loaded after the generator (resident_weights.h); NULL: none. Without a
     * memory limit, their memory counts as free. Streamed weights are not among them. */
    struct weft_resident_weights *resident;
    const weft_adapter_choice *adapters; /* [adapter_count], read while binding */
    int adapter_count;
    weft_visual_inputs visual;     /* read until bound */
    weft_identity_inputs identity; /* read until bound */
    /* Share of the denoising steps to run on `visual.video`: 1 starts from pure noise. 0: 1 with a
     * mask or outpainting, else 0.8. */
    double strength;
    /* Frames of a temporal window, and frames that two windows share. 0: all frames, and a quarter
     * of the window. */
    int64_t window, window_overlap;
    /* Video continuation: windows are generated in sequence, not blended. Each begins with the last
     * window_overlap frames (0: 1) of the one before. If `frames` exceeds `window`, the generator
     * makes one window; its settings then have frames and visual.prefix_frames set. */
    bool continues;
    /* Causal models: without a cache of keys and values; each step computes all frames. */
    bool no_kv_cache;
    /* Causal models: timestep at which a block sees finished ones, which have no noise. By default
     * of the model's weft.json, or 0. */
    weft_given_number context_noise;
    /* Models that denoise section by section: `window` is the length of a section in frames, and
     * sections are denoised from the first to the last (forward), or from the last to the first
     * (reverse). Neither (default): as the model was trained, or in reverse. */
    bool sections_forward, sections_reverse;
    /* Models with noise levels per frame: steps by which a block of frames is noisier than the
     * block before it; frames of a block, 0: of the config. */
    int64_t frame_lag, block_frames;
    /* Windows are generated in sequence in the latents. Each begins with the last window_overlap
     * frames of the one before, and the first with those of visual.video, if given. */
    bool chains;
    /* Models that edit an image (ChronoEdit): frames of the video in the first reasoning_steps
     * steps. The frames between the first and the last latent frame are then dropped. 0: none */
    int64_t reasoning_frames, reasoning_steps;
    /* Models that denoise in stages of growing latents (Helios): steps of each stage, from the
     * smallest latents; 0: `steps` in equal parts. Distilled models: the first section has twice
     * the steps. */
    int64_t stage_steps[WEFT_MAX_STAGES], stage_count;
    bool doubles_first_section;
    /* zero_star: first steps whose prediction is 0; 0: of the model's guider; below 0: none */
    int64_t zero_steps;
    /* Flow matching: last steps, at even levels from 0.5 on, in place of the schedule's below 0.5.
     * 0: of the model's own pipeline; below 0: none. */
    int64_t tail_steps;
    /* Noise level at which the refinement of visual.coarse begins; 0: of the model's pipeline */
    double refine_level;
    weft_block_sparse block_sparse;
    int64_t preview; /* steps between preview images; 0: no previews */
    double fps;      /* frame rate passed to models that take one; 0: as trained */
    /* Shares of the steps at which guidance begins and ends; both 0: guidance in all steps */
    double guided[2];
    const char *cache; /* feature cache rule for weft_feature_cache_choose; NULL: off */
    /* Folder for one timeline file per rank (weft_timeline_write) of the last denoising step. Each
     * batch replaces the files. NULL: none. */
    const char *trace;
    bool profile; /* programs time every node, and wait for collectives where they start */
} weft_generator_options;

typedef struct weft_generator weft_generator;

/* Reads a model folder (transformer/, text_encoder/, vae/, scheduler/, weft.json), written by weft
 * train or published, and builds all graphs and programs. If transformer_2/ exists, it denoises
 * below the boundary of model_index.json's "boundary_ratio".
 *
 * Loads no weights and reserves no large memory, so that weft_generator_bytes() is available first.
 * WEFT_E_MEMORY: more than options->memory is needed, even when decoding in tiles. `comm` may be
 * NULL. Ranks on dp and fsdp split the denoising batch (prompts x CFG branches); ranks on other
 * axes split the transformer. */
weft_status weft_generator_open(const char *folder, const weft_generator_options *options,
                                weft_comm *comm, weft_generator **generator);
void weft_generator_free(weft_generator *generator); /* accepts NULL */
/* Peak bytes on this rank: programs, weights, caches and latents, or the encoding of the visual
 * inputs before these are reserved. */
int64_t weft_generator_bytes(const weft_generator *generator);
/* Peak bytes of a rank with (`texts`) or without the text encoders (parallel.text). */
int64_t weft_generator_bytes_of(const weft_generator *generator, bool texts);
/* The only rank with the text encoders; -1: all ranks. */
int weft_generator_text_rank(const weft_generator *generator);
/* Bytes in unnamed files of `offload_dir`: the memory that grows with the length of a video of
 * several windows. 0 without such a folder or with one window. */
int64_t weft_generator_offloaded_bytes(const weft_generator *generator);
weft_status weft_generator_bind(weft_generator *generator);
/* "12 tiles of 256x256" of the decoder; "": untiled. */
const char *weft_generator_tiles(const weft_generator *generator, char text[64]);
/* Appends a description of how the ranks split the work: "2 ranks: cfg=2; ..." */
weft_status weft_generator_format_layout(const weft_generator *generator, weft_buf *out);
/* The options with unset values filled in; fps: the frame rate of the model. */
const weft_generator_options *weft_generator_settings(const weft_generator *generator);
double weft_generator_fps(const weft_generator *generator);
/* Rounds of denoising of section `at`, or of a video without sections; steps, unless blocks of
 * frames have levels of their own. */
int64_t weft_generator_rounds(const weft_generator *generator, int64_t at);
/* First blocks of section `at` that are given. */
int64_t weft_generator_ready_blocks(const weft_generator *generator, int64_t at);
/* Denoising steps that run, of all sections; fewer than requested if strength is below 1. */
int64_t weft_generator_steps(const weft_generator *generator);
/* Tokens of a video in one denoising step. */
int64_t weft_generator_tokens(const weft_generator *generator);
/* Frames, rows, columns and channels of a video's latents, and of its initial noise. */
void weft_generator_latents(const weft_generator *generator, int64_t dim[4]);
void weft_generator_noise_dims(const weft_generator *generator, int64_t dim[4]);
/* Steps and features of the audio latents of a video; steps 0: the model has no sound. */
void weft_generator_sound(const weft_generator *generator, int64_t dim[2]);
/* Floats of the initial noise of a video with its sound. */
int64_t weft_generator_noise_floats(const weft_generator *generator);
/* Sets the initial latents of the first `count` prompts of a run, in place of noise from their
 * seeds: (count, latents of the video, then of its sound); borrowed. */
void weft_generator_set_initial_latents(weft_generator *generator, const float *noise,
                                        int64_t count);
/* Whether negative prompts have an effect: guidance evaluates the unconditional branch. */
bool weft_generator_uses_negatives(const weft_generator *generator);
/* Sets the negative prompt of each prompt of a run, in place of options->negative. Borrowed; a NULL
 * entry uses options->negative. */
void weft_generator_set_negative_prompts(weft_generator *generator, const char *const *negatives);

/* Appends one line per denoiser about the blocks that its feature cache skipped; nothing without a
 * cache. */
weft_status weft_generator_format_cache(const weft_generator *generator, weft_buf *out);
/* Totals of all denoisers: evaluations, evaluations that reused the cache, and the speedup by FLOPs
 * (predicted) and by time (measured). */
typedef struct weft_generator_cache_stats {
    int64_t runs, reused;
    double predicted, measured;
} weft_generator_cache_stats;
weft_generator_cache_stats weft_generator_get_cache_stats(const weft_generator *generator);

typedef struct weft_generator_sink {
    /* Denoising of prompts first.. begins; their texts are encoded. May be NULL. */
    void (*begin)(void *user, int64_t first_prompt);
    /* Step `done` of `steps` is finished for prompts first..; may be NULL. */
    weft_status_code (*step)(void *user, int64_t first_prompt, int64_t done, int64_t steps);
    /* Preview of the video's middle frame, (height, width, 3) in [-1,1]. On rank 0 only, with
     * options->preview; may be NULL. */
    weft_status_code (*preview)(void *user, int64_t prompt, const float *image);
    /* Finished latents (frames, rows, columns, channels) of dim, normalised. On rank 0 only, for
     * all videos of a batch before the first is decoded; may be NULL. */
    weft_status_code (*latents)(void *user, int64_t prompt, const int64_t dim[4], const float *x);
    /* Finished audio latents (steps, features) of dim, normalised. Called before `latents`, on rank
     * 0 only; may be NULL. */
    weft_status_code (*audio_latents)(void *user, int64_t prompt, const int64_t dim[2],
                                      const float *x);
    /* Decoded sound of prompt `prompt`, before its frames; valid during the call. On rank 0 only,
     * for models with sound; may be NULL. */
    weft_status_code (*sound)(void *user, int64_t prompt, const weft_sound *sound);
    /* Decoded frames of prompt `prompt`, (count, height, width, 3) in [-1,1]; on rank 0 only. If
     * decoding runs out of memory, it restarts with smaller tiles, and frames come again from frame
     * 0. */
    weft_status_code (*frames)(void *user, int64_t prompt, int64_t first_frame, int64_t count,
                               const float *frames);
    void *user;
} weft_generator_sink;

int weft_generator_denoisers(const weft_generator *p,
                             const weft_generator_part *list[WEFT_GENERATOR_DENOISERS]);
/* Folder for memory that grows with the length of a video of several windows; NULL: in memory. */
const char *weft_generator_offload_dir(const weft_generator *p);
/* Whether this rank has the text encoders. */
bool weft_generator_has_texts(const weft_generator *p);
/* Negative prompt of prompt `prompt` of a run. */
const char *weft_generator_negative(const weft_generator *p, int64_t prompt);
/* Factor between x and the normalised latents. */
double weft_generator_scale(const weft_generator *p);
/* Sets the prompts of a run, whose first batch begins. Borrowed. */
void weft_generator_set_request(weft_generator *p, const char *const *prompts,
                                const uint64_t *seeds, int64_t count);

#endif
