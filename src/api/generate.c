/* weft/generate.h: a generator with its own copies of options, and with cancellation. */
#include "weft/generate.h"

#include "api/sized.h"
#include "comm/comm_world.h"
#include "diffusion/sampler.h"
#include "generate/generator/decode.h"
#include "generate/generator/generator.h"
#include "generate/generator/generator_denoise.h"
#include "generate/generator/generator_save.h"
#include "generate/generator/own_settings.h"
#include "model/encoders/identity_encoder.h"
#include "video/image.h"
#include "video/writer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* A video file that frames are written to as they are decoded. */
typedef struct video_file {
    const char *path; /* borrowed; NULL: no file */
    weft_video_writer *writer;
    weft_video_writer_options options;
    uint8_t *rgb; /* a frame */
} video_file;

struct weft_video_generator {
    weft_generator *generator;
    weft_arena *arena;                        /* strings and adapters of the options */
    weft_comm *comm;                          /* borrowed; NULL: one rank */
    const weft_generate_callbacks *callbacks; /* callbacks of the current run */
    video_file file;                          /* file of weft_video_generator_write */
    atomic_int cancelled;
};

/* ---- video files ----------------------------------------------------------------------------- */

static weft_status file_begin(video_file *file, const char *path, int64_t frames, int64_t height,
                              int64_t width, double fps)
{
    WEFT_TRY(weft_video_writer_check(path, frames, fps));
    WEFT_TRY(WEFT_NEW(file->rgb, height * width * 3, "a frame"));
    file->path = path;
    file->options = (weft_video_writer_options){.width = width, .height = height, .fps = fps};
    return WEFT_OK;
}

/* Frames begin again with 0 if decoding ran out of memory: the file does, too. */
static weft_status file_add(video_file *file, int64_t first, int64_t count, const float *values)
{
    const int64_t height = file->options.height, width = file->options.width;
    if (first == 0) {
        weft_video_writer_close(file->writer);
        file->writer = NULL;
        WEFT_TRY(weft_video_writer_open(file->path, &file->options, &file->writer));
    }
    for (int64_t t = 0; t < count; t++) {
        weft_clip_to_u8(values + t * height * width * 3, 1, height, width, false, file->rgb);
        WEFT_TRY(weft_video_writer_rgb(file->writer, file->rgb, width * 3));
    }
    return WEFT_OK;
}

/* Completes the file if `status`, the result of the frames, is WEFT_OK, and removes it otherwise.
 * Ranks without frames have no file. */
static weft_status file_end(video_file *file, weft_status_code status)
{
    if (status == WEFT_OK && file->writer)
        status = weft_video_writer_finish(file->writer);
    weft_video_writer_close(file->writer);
    weft_free(file->rgb);
    *file = (video_file){0};
    return status;
}

/* ---- options --------------------------------------------------------------------------------- */

static weft_status copy_text(weft_arena *arena, const char **text)
{
    if (*text)
        WEFT_TRY(WEFT_ALLOCATED(*text = weft_arena_strdup(arena, *text), "the options"));
    return WEFT_OK;
}

static weft_status copy_adapters(weft_arena *arena, const weft_generate_options *own,
                                 weft_generator_options *to)
{
    weft_adapter_choice *adapter;
    if (own->loras < 0 || own->loras > INT32_MAX || (own->loras > 0 && !own->lora))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                          WEFT_AT(.key = "loras", WEFT_NUMBER(own->loras)),
                          "%" PRId64 " LoRA files, but the list is missing", own->loras);
    WEFT_TRY(WEFT_ARENA_NEW(arena, adapter, own->loras, "the LoRA files"));
    for (int64_t i = 0; i < own->loras; i++) {
        adapter[i] = (weft_adapter_choice){.path = own->lora[i].path,
                                           .weight = own->lora[i].weight,
                                           .expert = own->lora[i].expert};
        WEFT_TRY(copy_text(arena, &adapter[i].path));
    }
    to->adapters = adapter;
    to->adapter_count = (int)own->loras;
    return WEFT_OK;
}

/* Copies the paths of the reference images. */
static weft_status copy_identities(weft_arena *arena, const weft_generate_options *own,
                                   weft_identity_inputs *to)
{
    const char **image;
    if (own->more_identities < 0 || own->more_identities >= WEFT_IDENTITY_MOST_IMAGES ||
        (own->more_identities && (!own->more_identity || !own->identity)))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                          WEFT_AT(.key = "more_identities", WEFT_NUMBER(own->more_identities)),
                          "%" PRId64 " further images of an identity are not possible. Give the "
                          "first one as identity, and up to %d in more_identity.",
                          own->more_identities, WEFT_IDENTITY_MOST_IMAGES - 1);
    if (!own->identity)
        return WEFT_OK;
    to->images = 1 + (int)own->more_identities;
    WEFT_TRY(WEFT_ARENA_NEW(arena, image, to->images, "the images of an identity"));
    for (int i = 0; i < to->images; i++) {
        image[i] = i ? own->more_identity[i - 1] : own->identity;
        if (!image[i])
            return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                              WEFT_AT(.key = "more_identity", WEFT_NUMBER(i - 1)),
                              "a path is missing");
        WEFT_TRY(copy_text(arena, &image[i]));
    }
    to->image = image;
    return WEFT_OK;
}

/* Copies the paths of the reference images of a control. */
static weft_status copy_references(weft_arena *arena, const weft_generate_options *own,
                                   weft_visual_inputs *to)
{
    const char **image;
    const int64_t count = own->reference_images;
    if (count < 0 || count > INT16_MAX || (count > 0 && !own->reference_image))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                          WEFT_AT(.key = "reference_images", WEFT_NUMBER(count)),
                          "%" PRId64 " reference images are not possible. Give up to %d in "
                          "reference_image.",
                          count, INT16_MAX);
    WEFT_TRY(WEFT_ARENA_NEW(arena, image, count, "the reference images"));
    for (int64_t i = 0; i < count; i++) {
        image[i] = own->reference_image[i];
        if (!image[i])
            return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                              WEFT_AT(.key = "reference_image", WEFT_NUMBER(i)),
                              "a path is missing");
        WEFT_TRY(copy_text(arena, &image[i]));
    }
    to->reference = image;
    to->references = (int)count;
    return WEFT_OK;
}

static weft_status unknown_sampler(const char *name)
{
    char names[512] = "";
    for (int i = 0; weft_samplers[i]; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", weft_samplers[i]->name);
    }
    return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "sampler", .value = name),
                      "no sampler has the name \"%s\"; use one of %s", name, names);
}

static weft_status set_options(weft_arena *arena, const weft_generate_options *own,
                               weft_generator_options *to)
{
    *to = (weft_generator_options){
        .frames = own->frames,
        .height = own->height,
        .width = own->width,
        .steps = own->steps,
        .guidance = own->guidance != 0 ? own->guidance : -1,
        .guidance_rescale = own->guidance_rescale,
        .negative = own->negative_prompt,
        .shift = own->shift,
        .batch = own->batch ? own->batch : 1,
        .memory = own->memory,
        .weights = own->bf16_weights ? WEFT_WEIGHTS_BF16 : WEFT_WEIGHTS_AS_STORED,
        .stream = own->stream,
        .visual = {.image = own->image,
                   .last_image = own->last_image,
                   .video = own->video,
                   .control = own->control,
                   .mask = own->mask},
        .identity = {.scale = own->identity_scale != 0 ? own->identity_scale : 1},
        .strength = own->strength,
        .preview = own->preview_steps,
        .fps = own->frames_per_second,
        .cache = own->cache,
    };
    if (own->sampler) {
        to->sampler = weft_sampler_find(own->sampler);
        if (!to->sampler)
            return unknown_sampler(own->sampler);
    }
    const char **text[] = {&to->negative,     &to->visual.image, &to->visual.last_image,
                           &to->visual.video, &to->visual.mask,  &to->visual.control,
                           &to->cache};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        WEFT_TRY(copy_text(arena, text[i]));
    WEFT_TRY(copy_identities(arena, own, &to->identity));
    WEFT_TRY(copy_references(arena, own, &to->visual));
    return copy_adapters(arena, own, to);
}

/* ---- opening --------------------------------------------------------------------------------- */

weft_status_code weft_video_generator_open(const char *folder, const weft_generate_options *options,
                                           weft_comm *comm, weft_video_generator **generator)
{
    weft_generate_options own;
    weft_generator_options inner;
    weft_video_generator *made = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    WEFT_TRY(WEFT_NEW(made, 1, "a generator"));
    made->comm = comm;
    WEFT_GO(WEFT_ALLOCATED(made->arena = weft_arena_create(), "a generator"));
    WEFT_GO(set_options(made->arena, &own, &inner));
    WEFT_GO(weft_own_settings_take(folder, false, WEFT_USUAL_STEPS, &inner));
    WEFT_GO(weft_generator_open(folder, &inner, comm, &made->generator));
    *generator = made;
    made = NULL;
out:
    weft_video_generator_free(made);
    return status;
}

void weft_video_generator_free(weft_video_generator *generator)
{
    if (!generator)
        return;
    weft_generator_free(generator->generator);
    weft_arena_free(generator->arena);
    weft_free(generator);
}

weft_status_code weft_video_generator_bind(weft_video_generator *generator)
{
    return weft_generator_bind(generator->generator);
}

weft_status_code weft_video_generator_describe(const weft_video_generator *generator,
                                               weft_generator_description *description)
{
    const weft_generator_options *settings = weft_generator_settings(generator->generator);
    weft_generator_description filled = {.frames = settings->frames,
                                         .height = settings->height,
                                         .width = settings->width,
                                         .frames_per_second =
                                             weft_generator_fps(generator->generator),
                                         .steps = weft_generator_steps(generator->generator),
                                         .bytes = weft_generator_bytes(generator->generator)};
    weft_generator_latents(generator->generator, filled.latent);
    return WEFT_SIZED_WRITE(description, filled);
}

/* ---- running --------------------------------------------------------------------------------- */

void weft_video_generator_cancel(weft_video_generator *generator)
{
    atomic_store(&generator->cancelled, 1);
}

static weft_status end_if(bool cancelled)
{
    if (cancelled)
        return weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "the generation was cancelled");
    return WEFT_OK;
}

/* Sums `cancelled` over the ranks. Returns this rank's `status` and keeps its error. */
static weft_status sum_with_error(weft_comm *comm, double *cancelled, weft_status_code status)
{
    weft_error_copy *error = status == WEFT_OK ? NULL : weft_error_save();
    const weft_status_code sum = weft_comm_sum(comm, cancelled, 1);
    if (sum == WEFT_OK && error)
        weft_error_restore(error);
    weft_free(error);
    return sum == WEFT_OK ? status : sum;
}

static weft_status_code on_step(void *user, int64_t first, int64_t done, int64_t steps)
{
    weft_video_generator *own = user;
    weft_status_code status = WEFT_OK;
    if (own->callbacks->step)
        status = own->callbacks->step(own->callbacks->user, first, done, steps);
    double cancelled = status != WEFT_OK || atomic_load(&own->cancelled);
    if (own->comm) /* all ranks end after the same step */
        status = sum_with_error(own->comm, &cancelled, status);
    WEFT_TRY(status);
    return end_if(cancelled != 0);
}

static weft_status_code on_preview(void *user, int64_t prompt, const float *image)
{
    const weft_generate_callbacks *to = ((weft_video_generator *)user)->callbacks;
    return to->preview ? to->preview(to->user, prompt, image) : WEFT_OK;
}

static weft_status_code on_latents(void *user, int64_t prompt, const int64_t dim[4], const float *x)
{
    const weft_generate_callbacks *to = ((weft_video_generator *)user)->callbacks;
    return to->latents ? to->latents(to->user, prompt, dim, x) : WEFT_OK;
}

static weft_status_code on_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                  const float *values)
{
    weft_video_generator *own = user;
    const weft_generate_callbacks *to = own->callbacks;
    if (own->file.path)
        WEFT_TRY(file_add(&own->file, first, count, values));
    if (to->frames)
        WEFT_TRY(to->frames(to->user, prompt, first, count, values));
    return end_if(!own->comm && atomic_load(&own->cancelled));
}

/* Reads the caller's request, and sets its negative prompts and initial latents. */
static weft_status set_request(weft_video_generator *generator, const weft_generate_request *given,
                               weft_generate_request *own)
{
    WEFT_TRY(weft_sized_read(own, sizeof *own, given, "request"));
    if (own->count < 0 || (own->count > 0 && (!own->prompt || !own->seed)))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                          WEFT_AT(.key = "count", WEFT_NUMBER(own->count)),
                          "%" PRId64 " videos, but prompts or seeds are missing", own->count);
    weft_generator_set_negative_prompts(generator->generator, own->negative);
    weft_generator_set_initial_latents(generator->generator, own->noise,
                                       own->noise ? own->noises : 0);
    return WEFT_OK;
}

/* Forgets the arrays of the caller. */
static void clear_request(weft_video_generator *generator)
{
    weft_generator_set_negative_prompts(generator->generator, NULL);
    weft_generator_set_initial_latents(generator->generator, NULL, 0);
}

weft_status_code weft_video_generator_run(weft_video_generator *generator,
                                          const weft_generate_request *request,
                                          const weft_generate_callbacks *callbacks)
{
    weft_generate_callbacks own;
    weft_generate_request videos;
    WEFT_TRY(WEFT_SIZED_READ(own, callbacks));
    WEFT_TRY(set_request(generator, request, &videos));
    generator->callbacks = &own;
    const weft_generator_sink sink = {.step = on_step,
                                      .preview = on_preview,
                                      .latents = on_latents,
                                      .frames = on_frames,
                                      .user = generator};
    const weft_status_code status =
        weft_generator_run(generator->generator, videos.prompt, videos.seed, videos.count, &sink);
    generator->callbacks = NULL;
    clear_request(generator);
    atomic_store(&generator->cancelled, 0);
    return status;
}

weft_status_code weft_video_generator_write(weft_video_generator *generator, const char *prompt,
                                            uint64_t seed, const char *path,
                                            const weft_generate_callbacks *callbacks)
{
    const weft_generator_options *size = weft_generator_settings(generator->generator);
    const weft_generate_request request = {
        .size = sizeof request, .count = 1, .prompt = &prompt, .seed = &seed};
    WEFT_TRY(file_begin(&generator->file, path, size->frames, size->height, size->width,
                        weft_generator_fps(generator->generator)));
    return file_end(&generator->file, weft_video_generator_run(generator, &request, callbacks));
}

/* ---- saved latents --------------------------------------------------------------------------- */

weft_status_code weft_video_generator_save(weft_video_generator *generator, const char *path)
{
    return weft_generator_save(generator->generator, path);
}

weft_status_code weft_video_generator_resume(weft_video_generator *generator, const char *path,
                                             const weft_generate_request *request, int64_t *step)
{
    weft_generate_request videos;
    WEFT_TRY(set_request(generator, request, &videos));
    const weft_status_code status = weft_generator_resume(generator->generator, path, videos.prompt,
                                                          videos.seed, videos.count, step);
    clear_request(generator);
    return status;
}

static weft_status_code on_decoded(void *user, int64_t first, int64_t count, const float *frames)
{
    return file_add(user, first, count, frames);
}

weft_status_code weft_latents_decode(const char *latents, const char *model, int64_t index,
                                     int64_t memory, const char *path)
{
    const weft_decode_options options = {.model = model, .memory = memory};
    weft_saved_latents saved = {0};
    weft_decoded_size size;
    video_file file = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_decode_open(latents, model, &saved, &size));
    if (index < 0 || index >= saved.videos)
        WEFT_GO(weft_error(
            WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = latents, .key = "index", WEFT_NUMBER(index)),
            "video %" PRId64 " of %" PRId64 " videos; the first one is 0", index, saved.videos));
    WEFT_GO(file_begin(&file, path, size.frames, size.height, size.width, saved.fps));
    status = file_end(&file, weft_decode_run(&options, latents, &saved, index, on_decoded, &file));
out:
    weft_saved_latents_close(&saved);
    return status;
}
