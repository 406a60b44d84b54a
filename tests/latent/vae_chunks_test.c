/* A VAE as a stream of temporal chunks whose length does not divide the video. */
#include "latent/vae_chunks.h"

#include "../model_of.h"
#include "exec/execute.h"
#include "kernel/cpu/table.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/ref/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 8, W = 8, MOST = 25 * H * W * 3 };

typedef struct seen {
    const float *video;
    float made[MOST];
    int64_t frames, asked, given; /* of the video; frames that the encoder wanted; decoded ones */
} seen;

static weft_status_code give_box(void *user, const int64_t first[3], const int64_t size[3],
                                 float *to)
{
    seen *s = user;
    cr_assert_leq(first[0] + size[0], s->frames, "the video has no frame %" PRId64,
                  first[0] + size[0] - 1);
    cr_assert(size[1] == H && size[2] == W);
    memcpy(to, s->video + first[0] * H * W * 3, (size_t)(size[0] * H * W * 3) * sizeof *to);
    s->asked += size[0];
    return WEFT_OK;
}

static weft_status_code take_frames(void *user, int64_t first, int64_t count, const float *frames)
{
    seen *s = user;
    cr_assert_eq(first, s->given, "frames come in order");
    cr_assert_leq(first + count, s->frames, "more frames than the video has");
    memcpy(s->made + first * H * W * 3, frames, (size_t)(count * H * W * 3) * sizeof *frames);
    s->given += count;
    return WEFT_OK;
}

static double relative(const float *a, const float *b, int64_t count)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(off / size);
}

/* CogVideoX takes two latent frames at a time and normalises each chunk separately. An odd latent
 * frame belongs to the first chunk. Every frame is an input once and an output once. */
static void check(const weft_model *model, int64_t latents)
{
    const weft_grid grid = weft_model_grid(model);
    const int64_t frames = weft_grid_frames(&grid, latents), floats = frames * H * W * 3;
    const weft_model_size size = {1, frames, H, W, 0};
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *whole;
    weft_vae *vae;
    weft_model_build(g, model, &size, false);
    cr_assert_eq(weft_store_init(store, g, 3), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){0}, &whole), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_program_bind(whole, store, NULL), WEFT_OK);
    seen s = {.video = weft_program_input(whole, "video")->data, .frames = frames};
    for (int64_t i = 0; i < floats; i++)
        ((float *)weft_program_input(whole, "video")->data)[i] =
            tanhf(weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i));
    const weft_tensor *noise = weft_program_input(whole, "noise");
    memset(noise->data, 0, (size_t)weft_shape_count(&noise->shape) * 4);
    cr_assert_eq(weft_program_run(whole), WEFT_OK, "%s", weft_error_message());
    const weft_tensor *mean = weft_program_output(whole, "mean");
    const int64_t count = weft_shape_count(&mean->shape);
    float *made = calloc((size_t)count, sizeof *made);
    const weft_vae_options options = {.halves = WEFT_VAE_ENCODER | WEFT_VAE_DECODER,
                                      .frames = frames,
                                      .height = H,
                                      .width = W,
                                      .raw = false};
    cr_assert_eq(weft_vae_open_model(model, &options, &vae), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_bind_to(vae, store), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_encode_boxes(vae, give_box, &s, frames, made), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(s.asked, frames);
    cr_expect(relative(made, mean->data, count) < 1e-5, "%" PRId64 " latent frames are %g off",
              latents, relative(made, mean->data, count));
    cr_assert_eq(weft_vae_decode(vae, made, latents, take_frames, &s), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(s.given, frames);
    float *expected = weft_program_output(whole, "reconstruction")->data;
    for (int64_t i = 0; i < floats; i++)
        expected[i] = fminf(fmaxf(expected[i], -1), 1);
    cr_expect(relative(s.made, expected, floats) < 1e-5, "%" PRId64 " frames are %g off", frames,
              relative(s.made, expected, floats));
    weft_vae_free(vae);
    weft_program_free(whole);
    weft_store_free(store);
    weft_graph_free(g);
    free(made);
}

Test(vae, what_is_left_over_goes_with_the_first_piece)
{
    const weft_model model =
        model_of("{\"_class_name\":\"AutoencoderKLCogVideoX\",\"block_out_channels\":[2,2,4],"
                 "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1}");
    for (int64_t latents = 1; latents <= 7; latents += 2)
        check(&model, latents);
}

/* WFVAE's decoder interpolates frames: the last ones of a chunk need the next chunk, which returns
 * them. */
Test(vae, frames_that_lag_come_with_the_last_piece)
{
    static const char *const more[] = {"",
                                       ",\"l1_dowmsample_block\":\"Spatial2xTime2x3DDownsample\","
                                       "\"l1_downsample_wavelet\":\"HaarWaveletTransform3D\","
                                       "\"l1_upsample_block\":\"Spatial2xTime2x3DUpsample\","
                                       "\"l1_upsample_wavelet\":\"InverseHaarWaveletTransform3D\""};
    for (int i = 0; i < 2; i++) {
        char config[1024];
        snprintf(config, sizeof config,
                 "{\"_class_name\":\"WFVAEModel\",\"latent_dim\":2,\"base_channels\":4,"
                 "\"encoder_num_resblocks\":1,\"encoder_energy_flow_hidden_size\":3,"
                 "\"decoder_num_resblocks\":1,\"decoder_energy_flow_hidden_size\":4,"
                 "\"t_interpolation\":\"trilinear\"%s}",
                 more[i]);
        const weft_model model = model_of(config);
        for (int64_t latents = 1; latents <= (i ? 4 : 7); latents++)
            check(&model, latents);
    }
}

/* The clips of Open-Sora 1.2 are videos of their own, in a stream and in the complete video. */
Test(vae, clips_are_pieces)
{
    const weft_model model =
        model_of("{\"_class_name\":\"VideoAutoencoderPipeline\",\"block_out_channels\":[2,4],"
                 "\"layers_per_block\":1,\"latent_channels\":2,\"norm_num_groups\":2,"
                 "\"filters\":2,\"num_res_blocks\":1,\"channel_multipliers\":[1,2],"
                 "\"temporal_downsample\":[true],\"num_groups\":2,\"micro_frame_size\":5}");
    static const int64_t latents[] = {1, 2, 3, 6, 9};
    for (size_t i = 0; i < sizeof latents / sizeof *latents; i++)
        check(&model, latents[i]);
}

/* A stream needs the memory of its longest chunk: as much for 57 frames as for 121. */
Test(vae, memory_does_not_grow_with_the_video)
{
    const weft_model model = model_of(
        "{\"_class_name\":\"WFVAEModel\",\"latent_dim\":2,\"base_channels\":4,"
        "\"t_interpolation\":\"trilinear\",\"l1_dowmsample_block\":\"Spatial2xTime2x3DDownsample\","
        "\"l1_downsample_wavelet\":\"HaarWaveletTransform3D\","
        "\"l1_upsample_block\":\"Spatial2xTime2x3DUpsample\","
        "\"l1_upsample_wavelet\":\"InverseHaarWaveletTransform3D\"}");
    for (int half = WEFT_VAE_ENCODER; half <= WEFT_VAE_DECODER; half++) {
        int64_t bytes[3];
        for (int i = 0; i < 3; i++) {
            weft_vae *vae;
            const weft_vae_options options = {.halves = half,
                                              .frames = (const int64_t[]){17, 57, 121}[i],
                                              .height = 32,
                                              .width = 32};
            cr_assert_eq(weft_vae_open_model(&model, &options, &vae), WEFT_OK, "%s",
                         weft_error_message());
            bytes[i] = weft_vae_bytes(vae);
            weft_vae_free(vae);
        }
        cr_expect_eq(bytes[1], bytes[2]);
        cr_expect_lt(bytes[2], bytes[0] * 3 / 2, "%" PRId64 " bytes, and %" PRId64 " for 17 frames",
                     bytes[2], bytes[0]);
    }
}

/* Latents and frames of one VAE; the frames are decoded from `given`. NULL: from the latents. */
static void run_in(const weft_model *model, weft_store *store, const weft_backend *backend,
                   weft_products products, const float *given, seen *s, float *latents)
{
    const weft_grid grid = weft_model_grid(model);
    const weft_vae_options options = {.backend = backend,
                                      .halves = WEFT_VAE_ENCODER | WEFT_VAE_DECODER,
                                      .frames = s->frames,
                                      .height = H,
                                      .width = W,
                                      .products = products};
    weft_vae *vae;
    cr_assert_eq(weft_vae_open_model(model, &options, &vae), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_bind_to(vae, store), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_vae_encode_boxes(vae, give_box, s, s->frames, latents), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_vae_decode(vae, given ? given : latents,
                                 weft_grid_latent_frames(&grid, s->frames), take_frames, s),
                 WEFT_OK, "%s", weft_error_message());
    weft_vae_free(vae);
}

/* A streamed VAE in bf16 is close to f32, but not equal: values have 8 significant bits. */
Test(vae, computes_in_bf16)
{
    enum { FRAMES = 9, LATENTS = 3 * 16 };
    const weft_model model = model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":16}");
    const weft_model_size size = {1, FRAMES, H, W, 0};
    static float video[FRAMES * H * W * 3], latents[2][LATENTS];
    static seen s[2];
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_model_build(g, &model, &size, false);
    cr_assert_eq(weft_store_init(store, g, 3), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < FRAMES * H * W * 3; i++)
        video[i] = tanhf(weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i));
    for (int i = 0; i < 2; i++) {
        s[i].video = video;
        s[i].frames = FRAMES;
        run_in(&model, store, NULL, i ? WEFT_PRODUCTS_BF16 : WEFT_PRODUCTS_F32,
               i ? latents[0] : NULL, &s[i], latents[i]);
    }
    const double encoded = relative(latents[1], latents[0], LATENTS),
                 decoded = relative(s[1].made, s[0].made, FRAMES * H * W * 3);
    cr_expect(encoded > 1e-4 && encoded < 5e-2, "latents differ by %g", encoded);
    cr_expect(decoded > 1e-4 && decoded < 5e-2, "frames differ by %g", decoded);
    weft_store_free(store);
    weft_graph_free(g);
}

/* Encodes and decodes one stream of chunks on a backend, with weights of one seed. */
static void run_stream(const weft_model *model, const weft_backend *backend, weft_products products,
                       const float *given, seen *s, float *latents)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create_for(backend);
    const weft_model_size size = {1, s->frames, H, W, 0};
    weft_model_build(g, model, &size, false);
    cr_assert_eq(weft_store_init(store, g, 3), WEFT_OK, "%s", weft_error_message());
    run_in(model, store, backend, products, given, s, latents);
    weft_store_free(store);
    weft_graph_free(g);
}

/* Results are close: the kernels of the two backends add in different orders. The second chunk
 * starts from caches that the first one left in the memory of the GPU. */
static void compare_with_cpu(const char *config, int64_t frames)
{
    static float video[MOST], latents[2][MOST];
    static seen s[2];
    const weft_model model = model_of(config);
    const weft_grid grid = weft_model_grid(&model);
    const int64_t count = weft_grid_latent_frames(&grid, frames) * (H / grid.factor[1]) *
                          (W / grid.factor[2]) * grid.channels;
    for (int64_t i = 0; i < frames * H * W * 3; i++)
        video[i] = tanhf(weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i));
    cr_assert_leq(count, MOST);
    for (int i = 0; i < 2; i++) {
        s[i] = (seen){.video = video, .frames = frames};
        run_stream(&model, i ? &weft_backend_cuda : &weft_backend_cpu, WEFT_PRODUCTS_F32,
                   i ? latents[0] : NULL, &s[i], latents[i]);
        cr_expect_eq(s[i].given, frames);
    }
    cr_expect(relative(latents[1], latents[0], count) < 1e-5, "latents are %g off",
              relative(latents[1], latents[0], count));
    cr_expect(relative(s[1].made, s[0].made, frames * H * W * 3) < 1e-5, "frames are %g off",
              relative(s[1].made, s[0].made, frames * H * W * 3));
}

Test(vae, a_gpu_streams_like_cpu)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    if (weft_cuda_module_check() != WEFT_OK)
        cr_skip_test("no clang");
    compare_with_cpu("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"z_dim\":3,"
                     "\"latents_mean\":[0,0,0],\"latents_std\":[1,1,1]}",
                     9);
    compare_with_cpu("{\"_class_name\":\"AutoencoderKLCogVideoX\",\"block_out_channels\":[2,2,4],"
                     "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1}",
                     17);
}

/* ---- TF32 ------------------------------------------------------------------------------------ */

enum { REF, GPU, REF_TF32, GPU_TF32, GPU_BF16, CPU, CPU_TF32, RUNS };

typedef struct tf32_runs {
    seen s[RUNS];
    float latents[RUNS][MOST];
    int64_t frames;
} tf32_runs;

/* All runs decode the latents of REF. */
static void run_all(tf32_runs *r, const weft_model *model)
{
    static const struct {
        const weft_backend *backend;
        weft_products products;
    } run[RUNS] = {
        [REF] = {&weft_backend_ref, WEFT_PRODUCTS_F32},
        [GPU] = {&weft_backend_cuda, WEFT_PRODUCTS_F32},
        [REF_TF32] = {&weft_backend_ref, WEFT_PRODUCTS_TF32},
        [GPU_TF32] = {&weft_backend_cuda, WEFT_PRODUCTS_TF32},
        [GPU_BF16] = {&weft_backend_cuda, WEFT_PRODUCTS_BF16},
        [CPU] = {&weft_backend_cpu, WEFT_PRODUCTS_F32},
        [CPU_TF32] = {&weft_backend_cpu, WEFT_PRODUCTS_TF32},
    };
    static float video[MOST];
    for (int64_t i = 0; i < r->frames * H * W * 3; i++)
        video[i] = tanhf(weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i));
    for (int i = 0; i < RUNS; i++) {
        r->s[i] = (seen){.video = video, .frames = r->frames};
        run_stream(model, run[i].backend, run[i].products, i ? r->latents[REF] : NULL, &r->s[i],
                   r->latents[i]);
    }
}

/* Differences of the encoder's and the decoder's results. */
typedef struct difference {
    double latents, frames;
} difference;

static difference between(const tf32_runs *r, int a, int b)
{
    const int64_t latents = (r->frames + 3) / 4 * 8;
    return (difference){relative(r->latents[a], r->latents[b], latents),
                        relative(r->s[a].made, r->s[b].made, r->frames * H * W * 3)};
}

static bool is_below(difference a, double factor, difference b)
{
    return a.latents < factor * b.latents && a.frames < factor * b.frames;
}

/* Channels are multiples of 8, which tensor cores need. TF32 changes results as much as the rounding
 * of the operands on `ref` does. This is more than 100 times the error of f32, and less than half of
 * the error of bf16, whose values have three bits less. Results of GPU and `ref` are close only: the
 * GPU computes convolutions of 3 channels in f32. cpu has no TF32 and gives the bits of f32. */
Test(vae, tf32_rounds_products_on_a_gpu)
{
    static tf32_runs r = {.frames = 5};
    const weft_model model =
        model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":8,\"z_dim\":8,"
                 "\"num_res_blocks\":1,\"latents_mean\":[0,0,0,0,0,0,0,0],"
                 "\"latents_std\":[1,1,1,1,1,1,1,1]}");
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    if (weft_cuda_module_check() != WEFT_OK)
        cr_skip_test("no clang");
    run_all(&r, &model);
    const difference f32 = between(&r, GPU, REF), tf32 = between(&r, GPU_TF32, REF),
                     rounded = between(&r, REF_TF32, REF), bf16 = between(&r, GPU_BF16, REF),
                     cpu = between(&r, CPU_TF32, CPU);
    printf("from f32 on ref, latents and frames: f32 %.2g %.2g, tf32 %.2g %.2g, tf32 on ref %.2g "
           "%.2g, bf16 %.2g %.2g\n",
           f32.latents, f32.frames, tf32.latents, tf32.frames, rounded.latents, rounded.frames,
           bf16.latents, bf16.frames);
    cr_expect(is_below(f32, 0.01, tf32), "tf32 does not round");
    cr_expect(is_below(tf32, 2, rounded), "tf32 rounds more than ref");
    cr_expect(is_below(rounded, 2, tf32), "tf32 rounds less than ref");
    cr_expect(is_below(tf32, 0.5, bf16), "tf32 is as coarse as bf16");
    cr_expect(cpu.latents == 0 && cpu.frames == 0, "cpu rounds");
}
