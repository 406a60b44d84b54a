/* Autoencoders in temporal chunks: FIRST, then NEXT, and LAST if the decoder lags, with their states, give the result of the
 * complete video. In f64, so that a missing frame in a state shows. */
#include "../model_of.h"
#include "lockstep.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct setup {
    const char *config;
    int64_t latents, height, width; /* latent frames; pixels */
} setup;

/* clang-format off */
static const setup setups[] = {
    {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":2,\"z_dim\":2,\"dim_mult\":[1,2,2],"
     "\"num_res_blocks\":1,\"temperal_downsample\":[true,true]}", 4, 4, 8},
    {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":2,\"decoder_base_dim\":3,\"z_dim\":2,"
     "\"dim_mult\":[2,2,2],\"num_res_blocks\":1,\"temperal_downsample\":[false,true],"
     "\"is_residual\":true,\"in_channels\":12,\"out_channels\":12,\"patch_size\":2}", 4, 8, 16},
    {"{\"_class_name\":\"AutoencoderKL\",\"block_out_channels\":[2,4],\"norm_num_groups\":2,"
     "\"latent_channels\":2}", 3, 4, 6},
    {"{\"_class_name\":\"AutoencoderKLCogVideoX\",\"block_out_channels\":[2,2,4],"
     "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1}", 7, 4, 8},
    {"{\"_class_name\":\"WFVAEModel\",\"latent_dim\":2,\"base_channels\":2,"
     "\"encoder_num_resblocks\":1,\"encoder_energy_flow_hidden_size\":2,"
     "\"decoder_num_resblocks\":1,\"decoder_energy_flow_hidden_size\":2,"
     "\"l1_dowmsample_block\":\"Spatial2xTime2x3DDownsample\","
     "\"l1_downsample_wavelet\":\"HaarWaveletTransform3D\","
     "\"l1_upsample_block\":\"Spatial2xTime2x3DUpsample\","
     "\"l1_upsample_wavelet\":\"InverseHaarWaveletTransform3D\","
     "\"t_interpolation\":\"trilinear\"}", 7, 8, 16},
    {"{\"_class_name\":\"WFVAEModel\",\"latent_dim\":2,\"base_channels\":2,"
     "\"encoder_num_resblocks\":1,\"encoder_energy_flow_hidden_size\":2,"
     "\"decoder_num_resblocks\":1,\"decoder_energy_flow_hidden_size\":2,"
     "\"t_interpolation\":\"trilinear\"}", 6, 8, 16},
    {"{\"_class_name\":\"WFVAEModel\",\"latent_dim\":2,\"base_channels\":2,"
     "\"encoder_num_resblocks\":1,\"encoder_energy_flow_hidden_size\":2,"
     "\"decoder_num_resblocks\":1,\"decoder_energy_flow_hidden_size\":2,"
     "\"t_interpolation\":\"nearest\"}", 5, 8, 8},
    {"{\"_class_name\":\"VideoAutoencoderPipeline\",\"block_out_channels\":[2,4],"
     "\"layers_per_block\":1,\"latent_channels\":2,\"norm_num_groups\":2,\"filters\":2,"
     "\"num_res_blocks\":1,\"channel_multipliers\":[1,2],\"temporal_downsample\":[true],"
     "\"num_groups\":2,\"micro_frame_size\":5}", 9, 4, 6},
};
/* clang-format on */

/* The states between two chunks. */
typedef struct kept {
    const char *name[512];
    double *data[512];
    int count;
    int64_t offset; /* of the chunk in the complete input */
} kept;

static double fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    const kept *k = user;
    (void)dtype;
    for (int i = 0; i < k->count; i++)
        if (!strcmp(k->name[i], name))
            return k->data[i][index];
    if (strstr(name, "cache"))
        return NAN; /* before FIRST nothing is read */
    uint64_t seed = 3;
    for (const char *c = name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    if (!strcmp(name, "in"))
        index += k->offset;
    return 0.5 * (double)weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)index) +
           (strstr(name, "gamma") || strstr(name, "norm") ? 1 : 0);
}

static weft_graph *build(const setup *s, bool decoder, weft_stream stream, int64_t frames)
{
    const weft_model model = model_of(s->config);
    const weft_grid grid = weft_model_grid(&model);
    weft_graph *g = weft_graph_create();
    weft_ports p = weft_ports_none();
    const weft_port port = decoder ? WEFT_PORT_LATENTS : WEFT_PORT_VIDEO;
    const weft_model_size size = {1, frames, decoder ? s->height / grid.factor[1] : s->height,
                                  decoder ? s->width / grid.factor[2] : s->width, 0};
    p.at[port] = weft_input(g, "in", WEFT_F32, weft_model_shape(&model, &size, port));
    weft_model_call(g, &model, (weft_call){decoder ? WEFT_CALL_DECODE : WEFT_CALL_ENCODE, stream},
                    false, &p);
    weft_output(g, "out", p.at[decoder ? WEFT_PORT_RECONSTRUCTION : WEFT_PORT_MEAN]);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

/* Copies the new states that the run returns. */
static void keep(kept *k, const weft_graph *g, const lockstep *l)
{
    int count;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++) {
        const weft_view *v = &l->value[0][update[i].value.id];
        const int64_t n = weft_shape_count(&v->shape);
        double *data = malloc((size_t)n * sizeof *data);
        for (int64_t e = 0; e < n; e++)
            data[e] = view_get(v, e);
        const char *name = weft_value_get(g, update[i].source)->name;
        int at = 0;
        while (at < k->count && strcmp(k->name[at], name) != 0)
            at++;
        if (at == k->count) {
            k->name[k->count++] = strdup(name);
        } else {
            free(k->data[at]);
        }
        k->data[at] = data;
    }
}

/* Runs a chunk and compares it with its part of the video. Returns the number of elements. */
static int64_t run_piece(const setup *s, bool decoder, weft_stream stream, int64_t frames, kept *k,
                         const weft_view *whole, int64_t made)
{
    weft_graph *g = build(s, decoder, stream, frames);
    lockstep *l = lockstep_run(1, &g, fill, k);
    cr_assert_str_empty(l->error, "%s", l->error);
    const weft_view *out = &l->value[0][weft_graph_find(g, "out").id];
    const int64_t count = weft_shape_count(&out->shape);
    double worst = 0;
    cr_assert_leq(made + count, weft_shape_count(&whole->shape));
    for (int64_t i = 0; i < count; i++) {
        const double off = fabs(view_get(out, i) - view_get(whole, made + i));
        worst = off >= worst || isnan(off) ? off : worst;
    }
    cr_expect(worst < 1e-10, "%.40s: %s: a piece is %g off", s->config + 16,
              decoder ? "decoder" : "encoder", worst);
    keep(k, g, l);
    k->offset += weft_shape_count(&weft_value_get(g, weft_graph_find(g, "in"))->shape);
    lockstep_free(l);
    weft_graph_free(g);
    return count;
}

/* Frames of a chunk of `latents`, the first of the video or a later one. */
static int64_t frames_of(const weft_grid *grid, bool first, int64_t latents)
{
    return first || grid->clip ? weft_grid_frames(grid, latents) : latents * grid->factor[0];
}

static void check(const setup *s, bool decoder)
{
    const weft_model model = model_of(s->config);
    const weft_grid grid = weft_model_grid(&model);
    kept k = {0};
    const int64_t whole_frames = decoder ? s->latents : weft_grid_frames(&grid, s->latents);
    weft_graph *g = build(s, decoder, WEFT_STREAM_ALONE, whole_frames);
    lockstep *l = lockstep_run(1, &g, fill, &k);
    cr_assert_str_empty(l->error, "%s", l->error);
    const weft_view *whole = &l->value[0][weft_graph_find(g, "out").id];
    int64_t made = 0;
    int64_t piece = grid.piece + s->latents % grid.piece;
    for (int64_t t = 0; t < s->latents; t += piece, piece = grid.piece) {
        const int64_t frames = frames_of(&grid, !t, piece);
        const bool lags = decoder && grid.lag && t + piece == s->latents;
        const weft_stream stream = !t     ? WEFT_STREAM_FIRST
                                   : lags ? WEFT_STREAM_LAST
                                          : WEFT_STREAM_NEXT;
        made += run_piece(s, decoder, stream, decoder ? piece : frames, &k, whole, made);
    }
    cr_expect_eq(made, weft_shape_count(&whole->shape));
    for (int i = 0; i < k.count; i++) {
        free((char *)(uintptr_t)k.name[i]);
        free(k.data[i]);
    }
    lockstep_free(l);
    weft_graph_free(g);
}

Test(stream, pieces_are_one_shot)
{
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        check(&setups[i], false);
        check(&setups[i], true);
    }
}

/* A cache exists once: new frames overwrite the old ones as soon as those have been read, and are
 * not stored elsewhere until the end of the program. */
static void caches_in_place(const setup *s, bool decoder)
{
    const weft_model model = model_of(s->config);
    const weft_grid grid = weft_model_grid(&model);
    weft_graph *g = build(s, decoder, WEFT_STREAM_NEXT,
                          decoder ? grid.piece : frames_of(&grid, false, grid.piece));
    weft_memory_plan plan;
    cr_assert_eq(weft_pass_lifetime(g, NULL, &plan), WEFT_OK, "%s", weft_error_message());
    int count;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        cr_expect_eq(weft_memory_plan_root(&plan, update[i].value.id), update[i].source.id,
                     "%.40s: %s: the new %s is stored in addition to the old one", s->config + 16,
                     decoder ? "decoder" : "encoder", weft_value_get(g, update[i].source)->name);
    weft_memory_plan_free(&plan);
    weft_graph_free(g);
}

Test(stream, caches_are_there_once)
{
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        caches_in_place(&setups[i], false);
        caches_in_place(&setups[i], true);
    }
}
