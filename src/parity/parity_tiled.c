/* weft parity of autoencoders with tiles of images and videos. "tile_sample_..." in the JSON file
 * gives the tile sizes. The name of each output tensor defines the operation:
 *
 *     out.tiled..., out.untiled...      decoding of in.latents, with or without spatial tiles
 *     out.temporal_only...              decoding of in.latents with temporal tiles only
 *     out..._long                       the input is in.latents_long
 *     out..._moments                    encoding of in.sample: means, then log variances
 *
 * "tiles" gives "kernel" and "stride" of an autoencoder that always tiles. If both are equal, the
 * video is one tile, and parity_model.c compares the file. Otherwise out.mean and out.logvar are
 * from in.sample, and out.sample is decoded from out.mean + exp(out.logvar / 2) in.eps. Gradients
 * are not compared: training uses no tiles. */
#include "parity/parity_tiled.h"

#include "latent/vae_chunks.h"
#include "parity/parity_model.h"
#include "parity/parity_store.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_tiled(const json_t *json)
{
    const json_t *tiles = json_object_get(json, "tiles");
    const bool overlap =
        tiles && !json_equal(json_object_get(tiles, "kernel"), json_object_get(tiles, "stride"));
    return json_is_integer(json_object_get(json, "tile_sample_min_height")) || overlap;
}

/* Reads three numbers of "tiles". */
static weft_status read_three(const weft_parity *p, const char *key, int64_t to[3])
{
    const json_t *list = json_object_get(json_object_get(p->json, "tiles"), key);
    for (size_t i = 0; i < 3; i++) {
        to[i] = json_integer_value(json_array_get(list, i));
        if (to[i] < 1 || to[i] > 65536)
            return weft_error(
                WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file, .key = key),
                "\"tiles\" must have \"kernel\" and \"stride\", each with the frames, "
                "rows and columns of a tile");
    }
    return WEFT_OK;
}

static weft_status read_tile(const weft_parity *p, weft_tile *tile)
{
    static const char *const size[3] = {"tile_sample_min_num_frames", "tile_sample_min_height",
                                        "tile_sample_min_width"},
                             *const step[3] = {"tile_sample_stride_num_frames",
                                               "tile_sample_stride_height",
                                               "tile_sample_stride_width"};
    if (json_object_get(p->json, "tiles")) {
        WEFT_TRY(read_three(p, "kernel", tile->size));
        return read_three(p, "stride", tile->step);
    }
    for (int i = 0; i < 3; i++) {
        WEFT_TRY(weft_json_get_i64_or(p->json, size[i], p->config_file, 0, &tile->size[i]));
        WEFT_TRY(weft_json_get_i64_or(p->json, step[i], p->config_file, 0, &tile->step[i]));
    }
    return WEFT_OK;
}

/* Encodes or decodes one sample; `in` and `out` have weft's layout. */
static weft_status run_one(weft_vae *vae, bool encodes, const float *in, const int64_t dim[5],
                           float *out, int64_t frame)
{
    weft_frames_to f = {out, frame};
    return encodes ? weft_vae_encode(vae, in, dim[2], out)
                   : weft_vae_decode(vae, in, dim[2], weft_frames_collect, &f);
}

/* Runs all samples of `in`, and compares the results with `out`. */
static weft_status compare_samples(weft_parity *p, weft_vae *vae, const weft_stored_tensor *in,
                                   const weft_stored_tensor *out, bool encodes, double *worst)
{
    const int64_t each = out->count / out->dim[0];
    float *input = NULL, *actual = weft_alloc(each * 4), *turned = weft_alloc(out->count * 4),
          *expected = weft_alloc(out->count * 4);
    weft_store *store;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(actual && turned && expected, "%s", p->file));
    WEFT_GO(weft_parity_load(p, in->name, WEFT_PARITY_BCTYX, &input));
    WEFT_GO(weft_parity_device_store(p, &store));
    WEFT_GO(weft_vae_bind_to(vae, store));
    for (int64_t b = 0; b < in->dim[0]; b++) {
        WEFT_GO(run_one(vae, encodes, input + b * (in->count / in->dim[0]), in->dim, actual,
                        each / out->dim[2]));
        for (int64_t i = 0; i < each && p->model.family->clamps && !encodes; i++)
            actual[i] = actual[i] < -1 ? -1 : actual[i] > 1 ? 1 : actual[i];
        weft_parity_turn(actual, (int64_t[]){1, out->dim[1], out->dim[2], out->dim[3], out->dim[4]},
                         false, turned + b * each);
    }
    weft_tensor_to_f32(out, expected);
    weft_parity_judge(p, "output", out->name + strlen("out."), turned, expected, out->count,
                      weft_parity_norm(expected, out->count), p->output_tolerance, worst);
out:
    weft_free(input);
    weft_free(actual);
    weft_free(turned);
    weft_free(expected);
    return status;
}

static weft_status compare_one(weft_parity *p, const weft_tile *tile, const weft_stored_tensor *out,
                               double *worst)
{
    const char *name = out->name + strlen("out.");
    const bool encodes = strstr(name, "_moments") != NULL;
    const weft_stored_tensor *in;
    WEFT_TRY(weft_parity_need(p,
                              encodes                 ? "in.sample"
                              : strstr(name, "_long") ? "in.latents_long"
                                                      : "in.latents",
                              &in));
    if (in->rank != 5 || out->rank != 5 || in->dim[0] != out->dim[0])
        return weft_error(
            WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = out->name),
            "this tensor and \"%s\" must have 5 dimensions and the same number of samples",
            in->name);
    const weft_grid grid = weft_model_grid(&p->model);
    const int64_t *pixels = encodes ? in->dim : out->dim;
    weft_tile asked = *tile;
    asked.on = !strncmp(name, "tiled", 5);
    asked.off = !asked.on;
    const weft_vae_options options = {.backend = p->backend,
                                      .halves = encodes ? WEFT_VAE_ENCODER : WEFT_VAE_DECODER,
                                      .frames =
                                          encodes ? pixels[2] : weft_grid_frames(&grid, in->dim[2]),
                                      .height = encodes ? pixels[3] : in->dim[3] * grid.factor[1],
                                      .width = encodes ? pixels[4] : in->dim[4] * grid.factor[2],
                                      .tile = &asked,
                                      .raw = true};
    const int64_t made[3] = {encodes ? weft_grid_latent_frames(&grid, in->dim[2]) : options.frames,
                             options.height / (encodes ? grid.factor[1] : 1),
                             options.width / (encodes ? grid.factor[2] : 1)};
    const weft_model_size any = {1, 1, 1, 1, 0};
    const int64_t video = weft_model_shape(&p->model, &any, WEFT_PORT_VIDEO).dim[4],
                  moments = grid.channels * (weft_model_has(&p->model, WEFT_PORT_LOGVAR) ? 2 : 1);
    if (memcmp(made, out->dim + 2, sizeof made) != 0 ||
        in->dim[1] != (encodes ? video : grid.channels) ||
        out->dim[1] != (encodes ? moments : video))
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = out->name),
                          "the size does not match the input \"%s\"", in->name);
    weft_vae *vae;
    WEFT_TRY(weft_vae_open_model(&p->model, &options, &vae));
    const weft_status_code status = compare_samples(p, vae, in, out, encodes, worst);
    weft_vae_free(vae);
    return status;
}

/* One video with the output of its encoder and decoder, in weft's layout. */
typedef struct round_trip {
    weft_vae *vae;
    const weft_stored_tensor *video, *mean; /* of the file */
    float *in, *eps, *moments, *latents;
} round_trip;

/* Compares a sample's values, (frames, rows, columns, channels) with `stride` floats per cell, with
 * the golden tensor. */
static weft_status judge_sample(weft_parity *p, const weft_stored_tensor *out, const float *values,
                                int64_t stride, double *worst)
{
    const int64_t count = out->count, channels = out->dim[1];
    float *own = weft_alloc(count * 4), *turned = weft_alloc(count * 4),
          *expected = weft_alloc(count * 4);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(own && turned && expected, "%s", p->file));
    for (int64_t i = 0; i < count; i++)
        own[i] = values[i / channels * stride + i % channels];
    weft_parity_turn(own, out->dim, false, turned);
    weft_tensor_to_f32(out, expected);
    weft_parity_judge(p, "output", out->name + strlen("out."), turned, expected, count,
                      weft_parity_norm(expected, count), p->output_tolerance, worst);
out:
    weft_free(own);
    weft_free(turned);
    weft_free(expected);
    return status;
}

static weft_status run_round_trip(weft_parity *p, round_trip *r, double *worst)
{
    const weft_stored_tensor *logvar, *decoded;
    const int64_t z = r->mean->dim[1], cells = r->mean->count / z;
    weft_store *store;
    WEFT_TRY(weft_parity_need(p, "out.logvar", &logvar));
    WEFT_TRY(weft_parity_need(p, "out.sample", &decoded));
    if (logvar->count != r->mean->count || decoded->count != r->video->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = "out.sample"),
                          "the outputs do not have the sizes of in.sample and out.mean");
    WEFT_TRY(weft_parity_load(p, "in.sample", WEFT_PARITY_BCTYX, &r->in));
    WEFT_TRY(weft_parity_load(p, "in.eps", WEFT_PARITY_BCTYX, &r->eps));
    WEFT_TRY(WEFT_NEW(r->moments, 2 * cells * z, "%s", p->file));
    WEFT_TRY(WEFT_NEW(r->latents, cells * z, "%s", p->file));
    WEFT_TRY(weft_parity_device_store(p, &store));
    WEFT_TRY(weft_vae_bind_to(r->vae, store));
    WEFT_TRY(weft_vae_encode(r->vae, r->in, r->video->dim[2], r->moments));
    WEFT_TRY(judge_sample(p, r->mean, r->moments, 2 * z, worst));
    WEFT_TRY(judge_sample(p, logvar, r->moments + z, 2 * z, worst));
    for (int64_t i = 0; i < cells * z; i++) {
        const float *at = r->moments + i / z * 2 * z + i % z;
        r->latents[i] = at[0] + expf(0.5f * at[z]) * r->eps[i];
    }
    weft_frames_to f = {r->in, r->video->count / r->video->dim[2]};
    WEFT_TRY(weft_vae_decode(r->vae, r->latents, r->mean->dim[2], weft_frames_collect, &f));
    return judge_sample(p, decoded, r->in, r->video->dim[1], worst);
}

/* Files with "tiles". */
static weft_status compare_round_trip(weft_parity *p, const weft_tile *tile, double *worst)
{
    const weft_grid grid = weft_model_grid(&p->model);
    round_trip r = {.vae = NULL};
    WEFT_TRY(weft_parity_need(p, "in.sample", &r.video));
    WEFT_TRY(weft_parity_need(p, "out.mean", &r.mean));
    const int64_t *pixels = r.video->dim + 2, *latent = r.mean->dim + 2;
    if (r.video->rank != 5 || r.mean->rank != 5 || r.video->dim[0] != 1 || r.mean->dim[0] != 1 ||
        r.mean->dim[1] != grid.channels || latent[0] != weft_grid_latent_frames(&grid, pixels[0]) ||
        latent[1] != pixels[1] / grid.factor[1] || latent[2] != pixels[2] / grid.factor[2])
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = "out.mean"),
                          "a file with \"tiles\" must have one video, in.sample, and its latents");
    const weft_vae_options options = {.backend = p->backend,
                                      .halves = WEFT_VAE_ENCODER | WEFT_VAE_DECODER,
                                      .frames = pixels[0],
                                      .height = pixels[1],
                                      .width = pixels[2],
                                      .tile = tile,
                                      .raw = true};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_vae_open_model(&p->model, &options, &r.vae));
    WEFT_GO(run_round_trip(p, &r, worst));
out:
    weft_vae_free(r.vae);
    weft_free(r.in);
    weft_free(r.eps);
    weft_free(r.moments);
    weft_free(r.latents);
    return status;
}

static weft_status compare_tiled(weft_parity *p)
{
    double worst = 0;
    weft_tile tile = {0};
    WEFT_TRY(weft_parity_open_model(p));
    if (p->model.family->role != WEFT_ROLE_AUTOENCODER)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file),
                          "a %s is not an autoencoder and has no tiles",
                          weft_model_class(&p->model));
    WEFT_TRY(read_tile(p, &tile));
    const weft_model_size size = weft_model_smallest(&p->model);
    weft_model_build(p->graph, &p->model, &size, false);
    WEFT_TRY(weft_parity_compile(p));
    const bool round = json_object_get(p->json, "tiles") != NULL;
    if (round)
        WEFT_TRY(compare_round_trip(p, &tile, &worst));
    for (int64_t i = 0; i < weft_tensors_count(p->golden) && !round; i++) {
        const weft_stored_tensor *t = weft_tensors_at(p->golden, i);
        if (!strncmp(t->name, "out.", 4))
            WEFT_TRY(compare_one(p, &tile, t, &worst));
    }
    if (p->record.compared == 0)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->file),
                          "the file has no tensor whose name begins with \"out.\"");
    weft_parity_measured(p, "outputs", worst, p->output_tolerance);
    return WEFT_OK;
}

const weft_parity_kind weft_parity_tiled = {"tiled", is_tiled, compare_tiled};
