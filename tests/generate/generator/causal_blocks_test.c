/* Videos of causal Wan, generated block by block, are bitwise identical on the device `far`.
 * Predicted memory is what is reserved, does not grow with the video, and blocks reserve nothing. A
 * video does not depend on the one before. A video after given frames (LongCat-Video) and a refined
 * video are tested likewise. */
#include "exec/execute.h"
#include "exec/store/tensor_copy.h"
#include "generate/generator/generator.h"
#include "generate/generator/generator_denoise.h"
#include "generate/generator/generator_parts.h"
#include "kernel/far/far.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, TILED = 256, SHORT = 29, LONG = 37, MOST = LONG * SIDE * SIDE * 3 };

/* The device `far`, which counts what is allocated and not yet freed. */
enum { ALLOCATIONS = 4096 };
static int64_t taken, allocations, sizes[ALLOCATIONS];
static const void *places[ALLOCATIONS];

static void *count(void *data, int64_t bytes)
{
    int at = 0;
    while (at < ALLOCATIONS && places[at])
        at++;
    cr_assert(at < ALLOCATIONS);
    places[at] = data;
    sizes[at] = bytes;
    taken += bytes;
    allocations++;
    return data;
}

static void uncount(const void *data)
{
    for (int i = 0; data && i < ALLOCATIONS; i++)
        if (places[i] == data) {
            taken -= sizes[i];
            places[i] = NULL;
        }
}

static void *count_alloc(const weft_device *device, int64_t bytes)
{
    return count(weft_backend_far.device->alloc(device, bytes), bytes);
}

static void count_free(const weft_device *device, void *data)
{
    uncount(data);
    weft_backend_far.device->free(device, data);
}

static void count_free_pinned(const weft_device *device, void *data)
{
    uncount(data);
    weft_backend_far.device->free_host(device, data);
}

static void *count_pinned(const weft_device *device, int64_t bytes)
{
    const int64_t staging = 4 << 20; /* buffer of transfers, which is not predicted */
    void *data = weft_backend_far.device->alloc_host(device, bytes);
    return bytes != staging ? count(data, bytes) : data;
}

static weft_status_code collect(void *user, int64_t prompt, int64_t first, int64_t count,
                                const float *frames)
{
    const int64_t frame = SIDE * SIDE * 3;
    (void)prompt;
    memcpy((float *)user + first * frame, frames, (size_t)(count * frame) * sizeof *frames);
    return WEFT_OK;
}

static const char model[] = "tests/golden/pipelines/causal_wan";

static weft_generator_options options_of(const weft_backend *backend, int64_t frames)
{
    return (weft_generator_options){.backend = backend,
                                    .frames = frames,
                                    .height = SIDE,
                                    .width = SIDE,
                                    .steps = 2,
                                    .guidance = 1,
                                    .batch = 1,
                                    .memory = 1 << 30,
                                    .offload_dir = "/tmp"};
}

typedef struct figures {
    int64_t predicted, reserved, allocations, while_running;
} figures;

static figures generate_from(const char *folder, weft_generator_options options, float *video)
{
    static const char *const prompts[] = {"a red cat"};
    const uint64_t seed = 3;
    const weft_generator_sink sink = {.frames = collect, .user = video};
    weft_generator *p;
    cr_assert_eq(weft_generator_open(folder, &options, NULL, &p), WEFT_OK, "%s",
                 weft_error_message());
    figures f = {.predicted = weft_generator_bytes(p)};
    taken = allocations = 0;
    memset(places, 0, sizeof places);
    cr_assert_eq(weft_generator_bind(p), WEFT_OK, "%s", weft_error_message());
    f.allocations = allocations;
    f.reserved = taken + p->shape.rows * p->model.text.floats * (int64_t)sizeof(float);
    const int64_t bound = taken;
    cr_assert_eq(weft_generator_run(p, prompts, &seed, 1, &sink), WEFT_OK, "%s",
                 weft_error_message());
    f.while_running = taken - bound;
    weft_generator_free(p);
    return f;
}

static figures generate(const weft_backend *backend, int64_t frames, float *video)
{
    return generate_from(model, options_of(backend, frames), video);
}

/* each tensor is rounded up to whole lines of 64 bytes */
static void expect_predicted(const figures *f)
{
    cr_expect_eq(f->while_running, 0);
    cr_expect(f->predicted >= f->reserved && f->predicted - f->reserved < 64 * f->allocations,
              "predicted %ld, reserved %ld", f->predicted, f->reserved);
}

/* The backend far with a device whose allocations are counted. */
static weft_backend counted(weft_device *device)
{
    weft_backend far = weft_backend_far;
    *device = *weft_backend_far.device;
    device->alloc = count_alloc;
    device->alloc_host = count_pinned;
    device->free = count_free;
    device->free_host = count_free_pinned;
    far.device = device;
    return far;
}

Test(causal_blocks, far_has_the_bits_of_cpu_in_constant_memory)
{
    weft_device device;
    const weft_backend far = counted(&device);
    float *near = calloc(MOST, sizeof *near), *apart = calloc(MOST, sizeof *apart);
    generate(NULL, LONG, near);
    const figures many = generate(&far, LONG, apart);
    cr_expect_eq(memcmp(near, apart, MOST * sizeof *near), 0);
    const figures few = generate(&far, SHORT, apart);
    cr_expect_eq(many.predicted, few.predicted);
    cr_expect_eq(many.reserved, few.reserved);
    expect_predicted(&many);
    free(near);
    free(apart);
}

static weft_generator_options options_after(const weft_backend *backend, bool cached)
{
    weft_generator_options options = options_of(backend, SHORT);
    options.guidance = 4;
    options.no_kv_cache = !cached;
    options.visual.before = "tests/golden/pipelines/longcat/video_video.png";
    options.visual.before_frames = 9;
    return options;
}

Test(causal_blocks, frames_after_given_ones_have_the_bits_of_cpu_in_predicted_memory)
{
    const char *folder = "tests/golden/pipelines/longcat";
    weft_device device;
    const weft_backend far = counted(&device);
    float *near = calloc(MOST, sizeof *near), *apart = calloc(MOST, sizeof *apart);
    for (int cached = 0; cached < 2; cached++) {
        generate_from(folder, options_after(NULL, cached), near);
        const figures f = generate_from(folder, options_after(&far, cached), apart);
        cr_expect_eq(memcmp(near, apart, MOST * sizeof *near), 0, "cached: %d", cached);
        expect_predicted(&f);
    }
    free(near);
    free(apart);
}

Test(causal_blocks, refined_videos_have_the_bits_of_cpu_in_predicted_memory)
{
    static const char *const folders[] = {"tests/golden/pipelines/longcat",
                                          "tests/golden/pipelines/longcat_blocks"};
    weft_device device;
    const weft_backend far = counted(&device);
    float *near = calloc(MOST, sizeof *near), *apart = calloc(MOST, sizeof *apart);
    for (int i = 0; i < 2; i++) {
        weft_generator_options options = options_of(NULL, 10);
        options.steps = 20;
        options.visual.coarse.file = "tests/golden/pipelines/longcat/refine_refine.png";
        options.visual.image = "tests/golden/pipelines/longcat/video_video.png";
        generate_from(folders[i], options, near);
        options.backend = &far;
        const figures f = generate_from(folders[i], options, apart);
        cr_expect_eq(memcmp(near, apart, MOST * sizeof *near), 0, "%s", folders[i]);
        cr_expect_neq(near[10 * SIDE * SIDE * 3 - 1], 0); /* the last frame */
        expect_predicted(&f);
    }
    free(near);
    free(apart);
}

/* Sets all cached keys and values to NaN. Returns their number. */
static int64_t spoil(const weft_generator *p)
{
    int64_t spoiled = 0;
    for (int64_t i = 0; i < weft_store_count(p->parts.store); i++) {
        const weft_tensor *t = weft_store_at(p->parts.store, i);
        const int64_t count = weft_shape_count(&t->shape);
        if (strncmp(t->name, WEFT_FRAME_CACHE_STATES, strlen(WEFT_FRAME_CACHE_STATES)) != 0)
            continue;
        float *values = malloc((size_t)count * sizeof *values);
        for (int64_t k = 0; k < count; k++)
            values[k] = NAN;
        cr_assert_eq(weft_tensor_put_bytes(t, 0, count * (int64_t)sizeof *values, values), WEFT_OK);
        free(values);
        spoiled += count;
    }
    return spoiled;
}

Test(causal_blocks, values_that_are_not_finite_stay_in_their_video)
{
    static const char *const prompts[] = {"a red cat"};
    const weft_backend *const backends[] = {NULL, &weft_backend_far};
    const uint64_t seed = 3;
    float *first = calloc(MOST, sizeof *first), *second = calloc(MOST, sizeof *second);
    for (int i = 0; i < 2; i++) {
        const weft_generator_options options = options_of(backends[i], LONG);
        weft_generator_sink sink = {.frames = collect, .user = first};
        weft_generator *p;
        cr_assert_eq(weft_generator_open(model, &options, NULL, &p), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert_eq(weft_generator_bind(p), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_generator_run(p, prompts, &seed, 1, &sink), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert(spoil(p) > 0);
        sink.user = second;
        cr_assert_eq(weft_generator_run(p, prompts, &seed, 1, &sink), WEFT_OK, "%s",
                     weft_error_message());
        cr_expect_eq(memcmp(first, second, MOST * sizeof *first), 0, "backend %d", i);
        weft_generator_free(p);
    }
    free(first);
    free(second);
}

typedef struct counting_sink {
    int64_t next; /* frame */
    int64_t fails_from;
    bool failed;
    float *video;
} counting_sink;

/* Fails once, at frame `fails_from` or later, as a decoder without memory does. */
static weft_status_code count_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                     const float *frames)
{
    counting_sink *s = user;
    const int64_t frame = TILED * TILED * 3;
    (void)prompt;
    if (first >= s->fails_from && !s->failed) {
        s->failed = true;
        return weft_error(WEFT_MSG_OUT_OF_MEMORY, WEFT_NOWHERE, "planted");
    }
    cr_expect_eq(first, s->next);
    s->next = first + count;
    memcpy(s->video + first * frame, frames, (size_t)(count * frame) * sizeof *frames);
    return WEFT_OK;
}

/* Generates 13 frames whose size is large enough for tiles. `frames` says whether to fail. */
static void generate_tiled(counting_sink *frames)
{
    static const char *const prompts[] = {"a red cat"};
    const uint64_t seed = 3;
    weft_generator_options options = options_of(NULL, 13);
    options.height = options.width = TILED;
    const weft_generator_sink sink = {.frames = count_frames, .user = frames};
    weft_generator *p;
    cr_assert_eq(weft_generator_open(model, &options, NULL, &p), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_generator_bind(p), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_generator_run(p, prompts, &seed, 1, &sink), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(frames->next, options.frames);
    weft_generator_free(p);
}

/* A decoder that begins again in the second block gets the latents of all blocks. Its frames are those
 * of a decoder that began again in the first block. */
Test(causal_blocks, frames_are_passed_once_if_the_decoder_begins_again)
{
    const size_t floats = (size_t)13 * TILED * TILED * 3;
    counting_sink early = {.video = calloc(floats, sizeof(float))},
                  late = {.fails_from = 1, .video = calloc(floats, sizeof(float))};
    generate_tiled(&early);
    generate_tiled(&late);
    cr_expect(early.failed && late.failed);
    /* frames before the failure were passed before */
    const size_t before = (size_t)9 * TILED * TILED * 3;
    cr_expect_eq(memcmp(early.video + before, late.video + before, (floats - before) * 4), 0);
    free(early.video);
    free(late.video);
}

typedef struct spoiling_sink {
    weft_generator *p;
    float video[MOST];
    int64_t spoiled; /* values of latents that the decoder has read */
} spoiling_sink;

/* Sets the decoder's latents of finished blocks to NaN. */
static weft_status_code spoil_latents(void *user, int64_t prompt, int64_t first, int64_t count,
                                      const float *frames)
{
    spoiling_sink *s = user;
    const weft_generator_shape *shape = &s->p->shape;
    const int64_t done = weft_grid_latent_frames(&s->p->model.grid, first + count) *
                         (shape->latent_floats / shape->latent[0]);
    for (s->spoiled = 0; s->spoiled < done; s->spoiled++)
        s->p->memory.other[s->spoiled] = NAN;
    return collect(s->video, prompt, first, count, frames);
}

/* Work per block does not grow with the video: the decoder's latents of earlier blocks are neither
 * computed again nor read. */
Test(causal_blocks, latents_are_prepared_for_the_decoder_once)
{
    static const char *const prompts[] = {"a red cat"};
    const uint64_t seed = 3;
    const weft_generator_options options = options_of(NULL, LONG);
    spoiling_sink *spoiling = calloc(1, sizeof *spoiling);
    float *video = calloc(MOST, sizeof *video);
    const weft_generator_sink sink = {.frames = spoil_latents, .user = spoiling};
    generate(NULL, LONG, video);
    cr_assert_eq(weft_generator_open(model, &options, NULL, &spoiling->p), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_generator_bind(spoiling->p), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_generator_run(spoiling->p, prompts, &seed, 1, &sink), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(memcmp(video, spoiling->video, sizeof spoiling->video), 0);
    cr_expect_eq(spoiling->spoiled, spoiling->p->shape.latent_floats);
    for (int64_t i = 0; i < spoiling->spoiled; i++)
        cr_assert(isnan(spoiling->p->memory.other[i]), "%ld of %ld", i, spoiling->spoiled);
    weft_generator_free(spoiling->p);
    free(spoiling);
    free(video);
}
