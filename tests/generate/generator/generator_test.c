#include "base/fs.h"
#include "exec/store/weights.h"
#include "generate/generator/generator.h"

#include "../../model_of.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "generate/generator/generator_denoise.h"
#include "generate/generator/resident_weights.h"
#include "kernel/far/far.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static char folder[] = "/tmp/weft-generate-XXXXXX";

/* Random weights, config and files of one part, all parameters non-zero. */
static void make_part(const char *name, const char *config, weft_model_size size, const char *stem)
{
    char path[200];
    const weft_model model = model_of(config);
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_model_build(g, &model, &size, false);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_store_init(store, g, 5), WEFT_OK);
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *t = weft_store_at(store, i);
        float *x = t->data;
        for (int64_t k = 0; k < weft_shape_count(&t->shape); k++)
            x[k] += 0.05f * weft_random_normal((uint64_t)i, WEFT_RNG_TEST, (uint64_t)k);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(weft_weights_save(store, NULL, g, "", path, stem, WEFT_F32, 0), WEFT_OK, "%s",
                 weft_error_message());
    snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
    cr_assert_eq(weft_file_write_atomic(path, config, (int64_t)strlen(config)), WEFT_OK);
    weft_store_free(store);
    weft_graph_free(g);
}

static const char vae_config[] =
    "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"z_dim\":4,\"num_res_blocks\":1,"
    "\"latents_mean\":[0.1,0.2,0,0],\"latents_std\":[1,2,1,1]}";

static void setup(void)
{
    char path[200];
    cr_assert(mkdtemp(folder));
    make_part("vae", vae_config, (weft_model_size){1, 9, 16, 16, 0}, "diffusion_pytorch_model");
    make_part("transformer",
              "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,\"attention_"
              "head_dim\":12,\"in_channels\":4,"
              "\"out_channels\":4,\"text_dim\":8,\"freq_dim\":16,\"ffn_dim\":32,\"num_layers\":1}",
              (weft_model_size){1, 3, 2, 4, 6}, "diffusion_pytorch_model");
    make_part("text_encoder",
              "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":8,\"num_heads\":2,\"num_layers\":1,"
              "\"max_length\":6}",
              (weft_model_size){1, 0, 0, 0, 6}, "model");
    snprintf(path, sizeof path, "%s/weft.json", folder);
    const char *sizes = "{\"frames\":9,\"height\":16,\"width\":32,\"fps\":8}";
    cr_assert_eq(weft_file_write_atomic(path, sizes, (int64_t)strlen(sizes)), WEFT_OK);
}

static void teardown(void)
{
    (void)!weft_remove_tree(folder);
}

enum { FRAME = 16 * 32 * 3, VIDEO = 9 * FRAME };

static weft_status_code collect(void *user, int64_t prompt, int64_t first_frame, int64_t count,
                                const float *frames)
{
    memcpy((float *)user + prompt * VIDEO + first_frame * FRAME, frames,
           sizeof(float) * (size_t)(count * FRAME));
    return WEFT_OK;
}

static void generate_with(const weft_generator_options *options, int64_t count,
                          const uint64_t *seeds, float *videos)
{
    static const char *const prompts[] = {"red", "blue", "green"};
    weft_generator *p;
    cr_assert_eq(weft_generator_open(folder, options, NULL, &p), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_gt(weft_generator_bytes(p), 0);
    cr_assert_eq(weft_generator_bind(p), WEFT_OK, "%s", weft_error_message());
    const weft_generator_sink sink = {.frames = collect, .user = videos};
    cr_assert_eq(weft_generator_run(p, prompts, seeds, count, &sink), WEFT_OK, "%s",
                 weft_error_message());
    weft_generator_free(p);
}

static void generate(int64_t count, int64_t batch, const weft_sampler *sampler,
                     const uint64_t *seeds, float *videos)
{
    const weft_generator_options options = {
        .steps = 3, .guidance = 2, .batch = batch, .sampler = sampler};
    generate_with(&options, count, seeds, videos);
}

static double relative(const float *a, const float *b, int count)
{
    double sum = 0, norm = 0;
    for (int i = 0; i < count; i++) {
        sum += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / norm);
}

static double distance(const float *a, const float *b)
{
    return relative(a, b, VIDEO);
}

Test(generator, same_seed_same_bits, .init = setup, .fini = teardown)
{
    const uint64_t seeds[] = {7, 8, 9};
    float *a = calloc(3 * VIDEO, 4), *b = calloc(3 * VIDEO, 4), *c = calloc(3 * VIDEO, 4);
    generate(3, 1, &weft_sampler_euler, seeds, a);
    generate(3, 1, &weft_sampler_euler, seeds, b);
    cr_assert_eq(memcmp(a, b, 3 * VIDEO * 4), 0);
    for (int i = 0; i < 3 * VIDEO; i++)
        cr_assert(isfinite(a[i]) && fabsf(a[i]) <= 1.0f);
    /* together they are close: batched products may sum in another order */
    generate(3, 2, &weft_sampler_euler, seeds, c);
    for (int i = 0; i < 3; i++)
        cr_assert(distance(c + i * VIDEO, a + i * VIDEO) < 1e-5, "prompt %d: %g", i,
                  distance(c + i * VIDEO, a + i * VIDEO));
    cr_assert_gt(distance(a, a + VIDEO), 1e-3);
    /* another seed and another sampler give other videos */
    const uint64_t other[] = {70, 8, 9};
    generate(2, 1, &weft_sampler_euler, other, b);
    cr_assert_gt(distance(b, a), 1e-3);
    cr_assert_eq(memcmp(b + VIDEO, a + VIDEO, VIDEO * 4), 0);
    generate(1, 1, &weft_sampler_heun, seeds, b);
    cr_assert_gt(distance(b, a), 1e-6);
    free(a);
    free(b);
    free(c);
}

/* A batch of two with guidance, in one window and in windows. */
Test(generator, far_has_the_bits_of_cpu, .init = setup, .fini = teardown)
{
    const uint64_t seeds[] = {7, 8};
    float *near = calloc(2 * VIDEO, 4), *far = calloc(2 * VIDEO, 4);
    for (int windows = 0; windows < 2; windows++) {
        weft_generator_options options = {.steps = 3,
                                          .guidance = 2,
                                          .batch = 2,
                                          .sampler = &weft_sampler_euler,
                                          .window = windows ? 5 : 0};
        generate_with(&options, 2, seeds, near);
        options.backend = &weft_backend_far;
        generate_with(&options, 2, seeds, far);
        cr_expect_eq(memcmp(near, far, 2 * VIDEO * 4), 0, "%s",
                     windows ? "in windows" : "in one window");
    }
    free(near);
    free(far);
}

static int64_t number(weft_resident_weights *r, const char *key)
{
    json_t *state = weft_resident_json(r);
    const json_t *value = json_object_get(state, key);
    const int64_t n =
        json_is_array(value) ? (int64_t)json_array_size(value) : json_integer_value(value);
    json_decref(state);
    return n;
}

/* Three parts are loaded once for generators of all sizes, again after a change of their files, and
 * apart for each device. A limit unloads what is not used. */
Test(generator, resident_weights_give_the_same_bits, .init = setup, .fini = teardown)
{
    const uint64_t seeds[] = {7};
    float *a = calloc(VIDEO, 4), *b = calloc(VIDEO, 4);
    char path[200];
    weft_resident_weights *r;
    weft_generator_options o = {
        .steps = 3, .guidance = 2, .batch = 1, .sampler = &weft_sampler_euler};
    generate_with(&o, 1, seeds, a);
    cr_assert_eq(weft_resident_create(&(weft_resident_options){0}, &r), WEFT_OK);
    o.resident = r;
    for (int run = 0; run < 3; run++) {
        memset(b, 0, VIDEO * 4);
        o.height = run == 1 ? 32 : 16;
        o.width = run == 1 ? 16 : 32;
        generate_with(&o, 1, seeds, b);
        cr_assert(run == 1 || memcmp(a, b, VIDEO * 4) == 0, "run %d", run);
        cr_assert(number(r, "loads") == 3 && number(r, "unloads") == 0, "run %d", run);
    }
    snprintf(path, sizeof path, "%s/transformer/config.json", folder);
    cr_assert_eq(utimes(path, (struct timeval[2]){{1, 0}, {1, 0}}), 0);
    generate_with(&o, 1, seeds, b);
    cr_assert(memcmp(a, b, VIDEO * 4) == 0);
    cr_assert(number(r, "loads") == 4 && number(r, "unloads") == 1);
    const int64_t bytes = weft_resident_bytes(r);
    o.backend = &weft_backend_far;
    generate_with(&o, 1, seeds, b);
    cr_assert(memcmp(a, b, VIDEO * 4) == 0);
    cr_assert(number(r, "loads") == 7 && number(r, "weights") == 6);
    cr_assert_eq(weft_resident_bytes(r), 2 * bytes);
    weft_generator *p;
    cr_assert_eq(weft_generator_open(folder, &o, NULL, &p), WEFT_OK);
    o.memory = weft_generator_bytes(p); /* nothing else may stay */
    weft_generator_free(p);
    generate_with(&o, 1, seeds, b);
    cr_assert(memcmp(a, b, VIDEO * 4) == 0);
    cr_assert(number(r, "loads") == 7 && number(r, "weights") == 3);
    cr_assert_eq(weft_resident_bytes(r), bytes);
    weft_resident_make_room(r, 0);
    cr_assert(number(r, "unloads") == 7 && weft_resident_bytes(r) == 0);
    weft_resident_free(r);
    free(a);
    free(b);
}

Test(generator, wrong_sizes_are_explained, .init = setup, .fini = teardown)
{
    weft_generator_options options = {.steps = 3, .guidance = 2, .batch = 1, .frames = 10};
    weft_generator *p;
    cr_assert_eq(weft_generator_open(folder, &options, NULL, &p), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_VIDEO_SIZE, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->key, "--frames");
    cr_expect_eq(weft_error_fields()->number, 10);
    cr_expect(strstr(weft_error_text(), " 9"), "%s", weft_error_text());
    options = (weft_generator_options){.steps = 3, .guidance = 2, .batch = 1, .height = 20};
    cr_assert_eq(weft_generator_open(folder, &options, NULL, &p), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_VIDEO_SIZE, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->key, "--height");
    cr_expect_eq(weft_error_fields()->number, 20);
}

static weft_status_code append(void *user, int64_t first_frame, int64_t count, const float *frames)
{
    memcpy((float *)user + first_frame * 16 * 16 * 3, frames,
           sizeof(float) * (size_t)(count * 16 * 16 * 3));
    return WEFT_OK;
}

/* The stream against the whole video at once: the same sums, so close to rounding; its memory does
 * not grow. */
Test(vae, stream_equals_one_shot, .init = setup, .fini = teardown)
{
    enum { T = 17, N = T * 16 * 16 * 3, L = 5 * 2 * 2 * 4 };
    char path[200];
    snprintf(path, sizeof path, "%s/vae", folder);
    float *video = malloc(N * 4), latents[L], *decoded = malloc(N * 4);
    for (int i = 0; i < N; i++)
        video[i] = tanhf(weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i));

    const weft_model model = model_of(vae_config);
    const weft_model_size size = {1, T, 16, 16, 0};
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *program;
    weft_model_build(g, &model, &size, false);
    cr_assert_eq(weft_store_init(store, g, 0), WEFT_OK);
    weft_tensors *file;
    cr_assert_eq(weft_tensors_open(path, &file), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_weights_load(store, g, "", file, false), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){0}, &program), WEFT_OK);
    cr_assert_eq(weft_program_bind(program, store, NULL), WEFT_OK);
    memcpy(weft_program_input(program, "video")->data, video, N * 4);
    memset(weft_program_input(program, "noise")->data, 0, L * 4);
    cr_assert_eq(weft_program_run(program), WEFT_OK);
    const float *mean = weft_program_output(program, "mean")->data;
    const float *whole = weft_program_output(program, "reconstruction")->data;

    weft_vae *vae;
    const weft_vae_options options = {
        .halves = WEFT_VAE_ENCODER | WEFT_VAE_DECODER, .frames = T, .height = 16, .width = 16};
    cr_assert_eq(weft_vae_open(path, &options, &vae), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_bind(vae), WEFT_OK);
    for (int round = 0; round < 2;
         round++) { /* a second video does not see the first one's caches */
        cr_assert_eq(weft_vae_encode(vae, video, T, latents), WEFT_OK);
        cr_assert_eq(weft_vae_decode(vae, latents, 5, append, decoded), WEFT_OK);
        cr_assert(relative(latents, mean, L) <= 2e-6, "latents differ by %g",
                  relative(latents, mean, L));
        cr_assert(relative(decoded, whole, N) <= 2e-6, "frames differ by %g",
                  relative(decoded, whole, N));
    }
    weft_vae_free(vae);
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    free(video);
    free(decoded);
}

enum { CLIP = 17, CLIP_FLOATS = CLIP * 32 * 32 * 3, CLIP_LATENTS = 5 * 4 * 4 * 4 };

static weft_status_code append_clip(void *user, int64_t first_frame, int64_t count,
                                    const float *frames)
{
    memcpy((float *)user + first_frame * 32 * 32 * 3, frames,
           sizeof(float) * (size_t)(count * 32 * 32 * 3));
    return WEFT_OK;
}

/* Encodes and decodes a clip. */
static void code(const weft_backend *backend, const weft_tile *tile, float *latents, float *decoded)
{
    char path[200];
    weft_vae *vae;
    float *video = malloc(CLIP_FLOATS * 4);
    for (int i = 0; i < CLIP_FLOATS; i++)
        video[i] = tanhf(weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i));
    snprintf(path, sizeof path, "%s/vae", folder);
    const weft_vae_options options = {.backend = backend,
                                      .halves = WEFT_VAE_ENCODER | WEFT_VAE_DECODER,
                                      .frames = CLIP,
                                      .height = 32,
                                      .width = 32,
                                      .tile = tile};
    cr_assert_eq(weft_vae_open(path, &options, &vae), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_bind(vae), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_encode(vae, video, CLIP, latents), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_decode(vae, latents, 5, append_clip, decoded), WEFT_OK, "%s",
                 weft_error_message());
    weft_vae_free(vae);
    free(video);
}

Test(vae, far_streams_and_tiles_with_the_bits_of_cpu, .init = setup, .fini = teardown)
{
    static const weft_tile tile = {.on = true, .size = {0, 16, 16}, .step = {0, 16, 16}};
    float latents[2][CLIP_LATENTS], *decoded[2];
    for (int i = 0; i < 2; i++)
        decoded[i] = calloc(CLIP_FLOATS, 4);
    for (int tiled = 0; tiled < 2; tiled++) {
        code(NULL, tiled ? &tile : NULL, latents[0], decoded[0]);
        code(&weft_backend_far, tiled ? &tile : NULL, latents[1], decoded[1]);
        cr_expect_eq(memcmp(latents[0], latents[1], sizeof latents[0]), 0);
        cr_expect_eq(memcmp(decoded[0], decoded[1], CLIP_FLOATS * 4), 0);
    }
    for (int i = 0; i < 2; i++)
        free(decoded[i]);
}

/* ---- tiles ---------------------------------------------------------------------------------- */

enum { SIDE = 64, FRAMES = 5, ALL = FRAMES * SIDE * SIDE * 3, LATENTS = 2 * 8 * 8 * 4 };
static const weft_tile small_tiles = {.on = true, .size = {0, 32, 32}, .step = {0, 24, 24}};

typedef struct one_rank {
    weft_comm *comm;
    float latents[LATENTS], *video;
    int64_t given; /* frames */
    weft_status_code status;
} one_rank;

static weft_status_code keep_frames(void *user, int64_t first_frame, int64_t count,
                                    const float *frames)
{
    one_rank *r = user;
    memcpy(r->video + first_frame * SIDE * SIDE * 3, frames,
           (size_t)(count * SIDE * SIDE * 3) * sizeof *frames);
    r->given += count;
    return WEFT_OK;
}

static void fill_latents(float *latents)
{
    for (int i = 0; i < LATENTS; i++)
        latents[i] = weft_random_normal(2, WEFT_RNG_TEST, (uint64_t)i);
}

static weft_status_code decode_shared(one_rank *r, const weft_tile *tile)
{
    char path[200];
    snprintf(path, sizeof path, "%s/vae", folder);
    const weft_vae_options options = {
        .halves = WEFT_VAE_DECODER, .frames = FRAMES, .height = SIDE, .width = SIDE, .tile = tile};
    weft_vae *vae = NULL;
    weft_group *group = NULL;
    weft_status_code status = weft_vae_open(path, &options, &vae);
    if (status == WEFT_OK && r->comm)
        status = weft_comm_world(r->comm, &group);
    if (status == WEFT_OK)
        status = weft_vae_bind(vae);
    if (status == WEFT_OK) {
        weft_vae_share(vae, group);
        status = weft_vae_decode(vae, r->latents, 2, keep_frames, r);
    }
    weft_vae_free(vae);
    return status;
}

static void *run_rank(void *user)
{
    one_rank *r = user;
    r->status = decode_shared(r, &small_tiles);
    return NULL;
}

/* Every rank decodes its tiles, the first rank blends them: bitwise the frames of one rank. */
Test(tiles, ranks_give_the_same_bits, .init = setup, .fini = teardown)
{
    enum { RANKS = 3 };
    static one_rank alone, rank[RANKS];
    weft_comm *comm[RANKS];
    pthread_t thread[RANKS];
    fill_latents(alone.latents);
    alone.video = malloc(ALL * 4);
    cr_assert_eq(decode_shared(&alone, &small_tiles), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(alone.given, FRAMES);
    cr_assert_eq(weft_comm_open_threads(RANKS, comm), WEFT_OK);
    for (int i = 0; i < RANKS; i++) {
        rank[i].comm = comm[i];
        rank[i].video = malloc(ALL * 4);
        fill_latents(rank[i].latents);
        pthread_create(&thread[i], NULL, run_rank, &rank[i]);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < RANKS; i++) {
        cr_expect_eq(rank[i].status, WEFT_OK, "rank %d", i);
        cr_expect_eq(rank[i].given, i ? 0 : FRAMES);
        weft_comm_free(comm[i]);
    }
    cr_expect(!memcmp(rank[0].video, alone.video, ALL * 4));
    for (int i = 0; i < RANKS; i++)
        free(rank[i].video);
    free(alone.video);
}

/* Tiles without need change nothing. Tiles under a memory limit give close frames within the limit.
 * */
Test(tiles, beside_the_whole, .init = setup, .fini = teardown)
{
    static one_rank whole, large, small;
    one_rank *all[3] = {&whole, &large, &small};
    const weft_tile one = {.on = true, .size = {0, SIDE, SIDE}};
    const weft_tile *const tile[3] = {NULL, &one, &small_tiles};
    for (int i = 0; i < 3; i++) {
        fill_latents(all[i]->latents);
        all[i]->video = malloc(ALL * 4);
        cr_assert_eq(decode_shared(all[i], tile[i]), WEFT_OK, "%s", weft_error_message());
    }
    cr_expect(!memcmp(whole.video, large.video, ALL * 4));
    const double error = relative(small.video, whole.video, ALL);
    cr_expect(error > 0 && error < 0.9, "%g", error);
    for (int i = 0; i < ALL; i++)
        cr_assert(fabsf(small.video[i]) <= 1);
    for (int i = 0; i < 3; i++)
        free(all[i]->video);
}

/* Tiles are used if complete frames do not fit. If tiles do not fit, the error has the minimum. */
Test(tiles, chosen_by_memory, .init = setup, .fini = teardown)
{
    char path[200], text[64];
    snprintf(path, sizeof path, "%s/vae", folder);
    const weft_vae_options options = {
        .halves = WEFT_VAE_DECODER, .frames = 5, .height = 512, .width = 512};
    weft_vae *vae;
    weft_tile chosen;
    cr_assert_eq(weft_vae_open_within(path, &options, INT64_MAX, &vae, &chosen), WEFT_OK);
    const int64_t whole = weft_vae_bytes(vae);
    cr_expect(!chosen.on);
    cr_expect_str_eq(weft_vae_tiles(vae, text), "");
    weft_vae_free(vae);

    cr_assert_eq(weft_vae_open_within(path, &options, whole - 1, &vae, &chosen), WEFT_OK);
    cr_expect(chosen.on && weft_vae_bytes(vae) < whole);
    cr_expect_str_eq(weft_vae_tiles(vae, text), "9 tiles of 256x256");
    const int64_t own = weft_vae_bytes(vae);
    weft_vae_free(vae);

    cr_assert_eq(weft_vae_open_within(path, &options, own - 1, &vae, &chosen), WEFT_OK);
    cr_expect_str_eq(weft_vae_tiles(vae, text), "36 tiles of 128x128");
    weft_vae_free(vae);

    cr_expect_eq(weft_vae_open_within(path, &options, 1000, &vae, &chosen), WEFT_E_MEMORY);
    cr_expect(strstr(weft_error_message(), "in the smallest, "), "%s", weft_error_message());
}
