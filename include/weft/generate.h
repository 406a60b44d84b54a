/* Generation: from prompts to videos.
 *
 *   weft_video_generator_open(folder, &options, NULL, &generator);   reads configs, plans memory
 *   weft_video_generator_describe(generator, &description);          before memory is reserved
 *   weft_video_generator_bind(generator);                            reads the weights
 *   weft_video_generator_run(generator, &request, &callbacks);
 *   weft_video_generator_free(generator); */
#ifndef WEFT_GENERATE_H
#define WEFT_GENERATE_H

#include "weft/core.h"
#include "weft/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_video_generator weft_video_generator;

/* A LoRA file (PEFT, diffusers, kohya, ComfyUI), merged into the weights. */
typedef struct weft_lora {
    const char *path;
    double weight; /* 1: as trained */
    int expert;    /* 0: transformer, 1: transformer_2; -1: both */
} weft_lora;

typedef struct weft_generate_options {
    size_t size;
    int64_t frames, height, width; /* 0: the trained size */
    int64_t steps;                 /* denoising steps; 0: the model's own, or 30 */
    double guidance;               /* guidance scale; 1: none; 0: the model's own, usually 4 */
    double guidance_rescale;
    const char *negative_prompt; /* NULL: "" */
    const char *sampler;         /* "euler", ...; NULL: the sampler of the model */
    double shift;                /* shift of the noise schedule; 0: the model's */
    int64_t batch;               /* prompts denoised together; 0: 1 */
    int64_t memory;              /* limit of a rank in bytes; 0: the free memory */
    int stream;                  /* 1: large weights stay in files and are read for each use */
    int bf16_weights;            /* 1: keep weights of f32 in bf16 */
    double frames_per_second;    /* frame rate passed to the model; 0: the trained rate */
    const weft_lora *lora;       /* [loras] */
    int64_t loras;
    /* images and videos that condition the result; NULL: none */
    const char *image, *last_image; /* first and last frame */
    const char *video;              /* video to edit */
    const char *mask;               /* white regions of `video` or `control` are generated */
    double strength;       /* share of the steps to run on `video`; 0: 0.8, or 1 with a mask */
    const char *identity;  /* reference image of a person or thing */
    double identity_scale; /* 0: 1 */
    const char *cache;     /* feature cache, "conservative" or "fast"; NULL: none */
    int64_t preview_steps; /* steps between previews; 0 (default): no previews */
    const char *control;   /* control video, for models with such an input; NULL: none */
    const char *const *more_identity; /* [more_identities] images in addition to `identity` */
    int64_t more_identities;
    /* [reference_images] images of persons or things that the video shows, for Wan VACE */
    const char *const *reference_image;
    int64_t reference_images;
} weft_generate_options;

/* Reads the model folder (transformer/, text_encoder/, vae/, scheduler/), checks the options and
 * plans the memory; reads no weights. WEFT_E_MEMORY: more memory than the limit is needed.
 * Collective with `comm`, which is borrowed; NULL: one rank. `options` NULL: defaults. Free with
 * weft_video_generator_free. */
weft_status_code weft_video_generator_open(const char *folder, const weft_generate_options *options,
                                           weft_comm *comm, weft_video_generator **generator);
void weft_video_generator_free(weft_video_generator *generator);
/* Reads and reserves everything. Collective. */
weft_status_code weft_video_generator_bind(weft_video_generator *generator);

/* Size of the videos, and memory. */
typedef struct weft_generator_description {
    size_t size;
    int64_t frames, height, width;
    double frames_per_second;
    int64_t steps;     /* denoising steps that run */
    int64_t latent[4]; /* frames, rows, columns, channels of the latents */
    int64_t bytes;     /* peak memory of this rank */
} weft_generator_description;
weft_status_code weft_video_generator_describe(const weft_video_generator *generator,
                                               weft_generator_description *description);

/* The videos of a run. All arrays are borrowed during the call. */
typedef struct weft_generate_request {
    size_t size;
    int64_t count;
    const char *const *prompt;   /* [count] */
    const uint64_t *seed;        /* [count] */
    const char *const *negative; /* [count] negative prompts; an entry that is NULL means the
                                  * options' one. NULL: the options' one for all */
    const float
        *noise; /* [noises, latent] initial latents of the first prompts; NULL: from seeds */
    int64_t noises;
} weft_generate_request;

/* Calls of a run, on the thread that runs it. NULL members are not called. A status other than
 * WEFT_OK ends the run, which returns it: call weft_error_set before. */
typedef struct weft_generate_callbacks {
    size_t size;
    void *user;
    /* Step `done` of `steps` is finished for the batch that begins with prompt `first`. */
    weft_status_code (*step)(void *user, int64_t first, int64_t done, int64_t steps);
    /* A preview of the middle frame, [height, width, 3] in [-1,1]; rank 0. */
    weft_status_code (*preview)(void *user, int64_t prompt, const float *image);
    /* The finished latents, values[dim[0], dim[1], dim[2], dim[3]], normalised; rank 0. */
    weft_status_code (*latents)(void *user, int64_t prompt, const int64_t *dim,
                                const float *values);
    /* `count` decoded frames from frame `first` on, [count, height, width, 3] in [-1,1]; rank 0.
     * If decoding runs out of memory, frames come again from frame 0. */
    weft_status_code (*frames)(void *user, int64_t prompt, int64_t first, int64_t count,
                               const float *values);
} weft_generate_callbacks;
/* Generates a video for each prompt of the request. The same seed, options and batch give bitwise identical
 * results. Collective. WEFT_E_CANCELLED: weft_video_generator_cancel. */
weft_status_code weft_video_generator_run(weft_video_generator *generator,
                                          const weft_generate_request *request,
                                          const weft_generate_callbacks *callbacks);
/* Generates one video and writes it to a file (.mp4, .webm, .gif). `callbacks` may be NULL; their
 * frames are called, too. Collective; rank 0 writes. */
weft_status_code weft_video_generator_write(weft_video_generator *generator, const char *prompt,
                                            uint64_t seed, const char *path,
                                            const weft_generate_callbacks *callbacks);
/* Ends the current run after its step or chunk of frames with WEFT_E_CANCELLED, on all ranks that
 * are cancelled. The generator can run again. A call between runs ends the next run. Thread-safe,
 * also in signal handlers. */
void weft_video_generator_cancel(weft_video_generator *generator);

/* Saves the state of the current batch to `path` (.safetensors). Call in `step`: the sampler
 * state; or in `latents`: finished latents. */
weft_status_code weft_video_generator_save(weft_video_generator *generator, const char *path);
/* Restores a saved state. The next run, with the same request, resumes after step *step with
 * bitwise identical results. WEFT_E_ARG names what differs. */
weft_status_code weft_video_generator_resume(weft_video_generator *generator, const char *path,
                                             const weft_generate_request *request, int64_t *step);

/* Decodes video `index`, from 0, of finished latents (weft_video_generator_save in `latents`) with
 * the VAE of the model folder, and writes the video to `path`. `memory`: limit in bytes; 0: the
 * free memory. WEFT_E_ARG: latents of another VAE, or no such video. */
weft_status_code weft_latents_decode(const char *latents, const char *model, int64_t index,
                                     int64_t memory, const char *path);

#ifdef __cplusplus
}
#endif

#endif
