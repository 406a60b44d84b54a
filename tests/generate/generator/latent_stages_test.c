/* Helios in stages of growing latents: bitwise identical on the device `far`. Predicted memory
 * is reserved from the heap, and running reserves nothing. */
#include "generate/generator/latent_stages.h"

#include "generate/generator/generator_denoise.h"
#include "generate/generator/generator_steps.h"
#include "kernel/far/far.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 64, WIDTH = 128, FRAMES = 18, FLOATS = FRAMES * HEIGHT * WIDTH * 3 };
static const char mid[] = "tests/golden/pipelines/helios_mid",
                  distilled[] = "tests/golden/pipelines/helios_distilled";

/* The device `far`, which counts what is allocated. */
static int64_t taken;

static void *count_alloc(const weft_device *device, int64_t bytes)
{
    taken += bytes;
    return weft_backend_far.device->alloc(device, bytes);
}

static void *count_pinned(const weft_device *device, int64_t bytes)
{
    taken += bytes;
    return weft_backend_far.device->alloc_host(device, bytes);
}

static weft_status_code collect(void *user, int64_t prompt, int64_t first, int64_t count,
                                const float *frames)
{
    (void)prompt;
    memcpy((float *)user + first * HEIGHT * WIDTH * 3, frames,
           (size_t)(count * HEIGHT * WIDTH * 3) * sizeof *frames);
    return WEFT_OK;
}

static weft_status_code discard(void *user, int64_t prompt, int64_t first, int64_t count,
                                const float *frames)
{
    (void)user;
    (void)prompt;
    (void)first;
    (void)count;
    (void)frames;
    return WEFT_OK;
}

static weft_generator *open_sized(const char *model, const weft_backend *backend, double guidance,
                                  bool doubles, int64_t frames, int64_t scale)
{
    const weft_generator_options options = {.backend = backend,
                                            .frames = frames,
                                            .height = HEIGHT * scale,
                                            .width = WIDTH * scale,
                                            .window = 9,
                                            .steps = 7,
                                            .doubles_first_section = doubles,
                                            .guidance = guidance,
                                            .batch = 1,
                                            .memory = 1 << 30};
    weft_generator *p;
    cr_assert_eq(weft_generator_open(model, &options, NULL, &p), WEFT_OK, "%s",
                 weft_error_message());
    return p;
}

static weft_generator *open_model(const char *model, const weft_backend *backend, double guidance,
                                  bool doubles)
{
    return open_sized(model, backend, guidance, doubles, FRAMES, 1);
}

static void generate(weft_generator *p, float *video)
{
    static const char *const prompts[] = {"a red cat"};
    const uint64_t seed = 3;
    const weft_generator_sink sink = {.frames = collect, .user = video};
    cr_assert_eq(weft_generator_bind(p), WEFT_OK, "%s", weft_error_message());
    const int64_t reserved = taken;
    cr_assert_eq(weft_generator_run(p, prompts, &seed, 1, &sink), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(taken, reserved, "memory is reserved while running");
    weft_generator_free(p);
}

Test(latent_stages, far_has_the_bits_of_cpu)
{
    weft_device device = *weft_backend_far.device;
    weft_backend far = weft_backend_far;
    float *near = calloc(FLOATS, sizeof *near), *apart = calloc(FLOATS, sizeof *apart);
    device.alloc = count_alloc;
    device.alloc_host = count_pinned;
    far.device = &device;
    generate(open_model(mid, NULL, 4, false), near);
    weft_generator *p = open_model(mid, &far, 4, false);
    generate(p, apart);
    cr_expect_eq(memcmp(near, apart, FLOATS * sizeof *near), 0);
    free(near);
    free(apart);
}

static int64_t heap(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

/* Bytes of the heap after the generator is bound and after a run, and the prediction. */
typedef struct figures {
    int64_t predicted, bound, run;
} figures;

static figures bytes_of(int64_t scale)
{
    static const char *const prompts[] = {"a red cat"};
    const uint64_t seed = 3;
    const weft_generator_sink sink = {.frames = discard};
    weft_generator *p = open_sized(mid, NULL, 4, false, 9, scale);
    const int64_t before = heap();
    figures f = {.predicted = weft_generator_bytes(p)};
    cr_assert_eq(weft_generator_bind(p), WEFT_OK, "%s", weft_error_message());
    f.bound = heap() - before;
    cr_assert_eq(weft_generator_run(p, prompts, &seed, 1, &sink), WEFT_OK, "%s",
                 weft_error_message());
    f.run = heap() - before;
    weft_generator_free(p);
    return f;
}

/* Between two sizes of videos, so that structures of a fixed size do not count. */
Test(latent_stages, predicted_memory_is_reserved)
{
    for (int i = 0; i < 2; i++) /* buffers that kernels keep, and one-time allocations */
        (void)bytes_of(2 - i % 2);
    const figures few = bytes_of(1), many = bytes_of(2);
    cr_log_info("predicted %ld and %ld, bound %ld and %ld, after a run %ld and %ld", few.predicted,
                many.predicted, few.bound, many.bound, few.run, many.run);
    cr_expect_gt(many.predicted, 3 * few.predicted / 2);
    cr_expect_lt(labs(many.bound - few.bound - (many.predicted - few.predicted)), 262144);
    cr_expect_lt(many.run - many.bound, 16384);
}

/* Steps, in parts as equal as possible, and evaluations of each size. */
Test(latent_stages, evaluations_by_size)
{
    int64_t count[WEFT_GENERATOR_DENOISERS];
    weft_generator *p = open_model(mid, NULL, 4, false);
    cr_expect_eq(weft_generator_steps(p), 14);
    cr_assert_eq(weft_generator_answers(p, count), WEFT_OK);
    /* the list begins with the largest size; two predictions of each section are 0 */
    cr_expect_eq(count[0], 4);
    cr_expect_eq(count[1], 2);
    cr_expect_eq(count[2], 4);
    weft_generator_free(p);
    p = open_model(distilled, NULL, 1, true);
    cr_expect_eq(weft_generator_steps(p), 21);
    cr_assert_eq(weft_generator_answers(p, count), WEFT_OK);
    cr_expect_eq(count[0], 6);
    cr_expect_eq(count[1], 9);
    cr_expect_eq(count[2], 6);
    weft_generator_find_section(p, 13);
    cr_expect_eq(p->sampling.section, 0);
    weft_generator_find_section(p, 14);
    cr_expect_eq(p->sampling.section, 1);
    cr_expect_eq(weft_latent_stages_at(p, 0, 5), 0);
    cr_expect_eq(weft_latent_stages_at(p, 0, 6), 1);
    cr_expect_eq(weft_latent_stages_at(p, 1, 6), 2);
    weft_generator_free(p);
}
