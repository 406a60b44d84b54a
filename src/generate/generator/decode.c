#include "generate/generator/decode.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/generator/decode_time.h"
#include "latent/vae_chunks.h"
#include "model/key_mapping.h"
#include "model/model.h"

#include <string.h>

void weft_latents_unnormalise(const weft_grid *grid, double scale, const float *x, int64_t first,
                              int64_t end, int64_t frame, float *to)
{
    for (int64_t k = first * frame; k < end * frame; k++) {
        const int64_t at = weft_grid_statistics_at(grid, k / frame) + k % grid->channels;
        to[k] = x[k] * (float)(grid->deviation[at] / scale) + (float)grid->mean[at];
    }
}

weft_status_code weft_frames_skip_sink(void *user, int64_t first, int64_t count,
                                       const float *frames)
{
    const weft_frames_skip *b = user;
    const int64_t left = first < b->lead ? b->lead - first : 0, gone = left < count ? left : count,
                  at = first + gone - b->lead, rest = b->end ? b->end - at : count,
                  passed = rest < count - gone ? rest : count - gone;
    return passed < 1 ? WEFT_OK
                      : b->sink(b->user, b->before + at, passed, frames + gone * b->frame);
}

/* Decoded frames of saved latents that precede the video. */
static int64_t lead_of(const weft_saved_latents *k, const weft_grid *grid)
{
    return json_integer_value(json_object_get(k->settings, "lead")) * grid->factor[0] +
           json_integer_value(json_object_get(k->settings, "refined_front"));
}

/* Frames of a refined video, after which decoded frames complete a block; 0: all. */
static int64_t end_of(const weft_saved_latents *k)
{
    return json_integer_value(json_object_get(k->settings, "refined_frames"));
}

/* Latent frames of the sections of saved latents, which are videos of their own; 0: none. */
static int64_t section_of(const weft_saved_latents *k)
{
    return json_integer_value(json_object_get(k->settings, "section"));
}

/* Reads the VAE's grid; *folder is heap, owned by the caller. */
static weft_status read_vae(const char *model, char **folder, weft_grid *grid)
{
    weft_model vae;
    *folder = NULL;
    if (!weft_path_is_dir(model))
        return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = model),
                          "the model folder does not exist");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_model_open_in(model, WEFT_ROLE_AUTOENCODER, folder, &vae));
    WEFT_GO(weft_key_mapping_statistics(*folder, &vae));
    *grid = weft_model_grid(&vae);
out:
    if (status != WEFT_OK) {
        weft_free(*folder);
        *folder = NULL;
    }
    return status;
}

static weft_status check_vae(const char *path, const weft_saved_latents *k, const char *folder,
                             const weft_grid *grid)
{
    char hex[WEFT_HEX_BYTES];
    if (k->cursor.step != k->steps)
        return weft_error(
            WEFT_MSG_LATENTS_MISMATCH, WEFT_AT(.file = path, WEFT_NUMBER(k->cursor.step)),
            "denoising stopped after step %" PRId64 " of %" PRId64 ". Run the command that wrote "
            "the file again with --resume.",
            k->cursor.step, k->steps);
    if (k->latent[3] != grid->channels)
        return weft_error(WEFT_MSG_LATENTS_MISMATCH,
                          WEFT_AT(.file = path, WEFT_NUMBER(k->latent[3])),
                          "the latents have %" PRId64 " channels, and the VAE in %s has %" PRId64,
                          k->latent[3], folder, grid->channels);
    WEFT_TRY(weft_folder_identity(folder, hex));
    const char *was = json_string_value(json_object_get(k->settings, "vae"));
    if (!was || strcmp(was, hex))
        return weft_error(WEFT_MSG_LATENTS_MISMATCH,
                          WEFT_AT(.file = path, .key = "vae", .value = hex),
                          "the latents were written with the VAE %s; the one in %s is %s. Use the "
                          "model that wrote them.",
                          was ? was : "none", folder, hex);
    return WEFT_OK;
}

weft_status weft_decode_open(const char *path, const char *model, weft_saved_latents *k,
                             weft_decoded_size *size)
{
    char *folder = NULL;
    weft_grid grid;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_saved_latents_open(path, k));
    WEFT_GO(read_vae(model, &folder, &grid));
    WEFT_GO(check_vae(path, k, folder, &grid));
    grid.section = section_of(k);
    *size = (weft_decoded_size){
        end_of(k) ? end_of(k) : weft_grid_frames(&grid, k->latent[0]) - lead_of(k, &grid),
        k->latent[1] * grid.factor[1], k->latent[2] * grid.factor[2]};
out:
    weft_free(folder);
    if (status != WEFT_OK)
        weft_saved_latents_close(k);
    return status;
}

/* Records the bytes of this attempt in the file. A file that cannot be written stays unchanged. */
static void note_try(const char *path, const weft_saved_latents *k, int64_t bytes)
{
    weft_saved_latents noted = *k;
    noted.tried = bytes;
    if (k->videos == 1 && weft_saved_latents_write(path, &noted) != WEFT_OK)
        weft_debug("%s", weft_error_message());
}

static weft_decode_time time_of(const weft_saved_latents *k)
{
    const json_t *timestep = json_object_get(k->settings, "decode_timestep"),
                 *noise = json_object_get(k->settings, "decode_noise_scale");
    return (weft_decode_time){json_number_value(timestep), json_number_value(noise)};
}

static weft_status decode_within(const weft_decode_options *o, const char *folder, const char *path,
                                 const weft_saved_latents *k, int64_t limit, const float *x,
                                 weft_vae **opened, weft_frames_fn *sink, void *user)
{
    char tiles[64];
    weft_group *group = NULL;
    weft_model model;
    weft_tile chosen;
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_AUTOENCODER, &model));
    const weft_grid own = weft_model_grid(&model);
    const weft_decode_time time = time_of(k);
    const int64_t section = section_of(k) ? section_of(k) : k->latent[0],
                  area = k->latent[1] * k->latent[2] * k->latent[3];
    const weft_vae_options options = {.backend = o->backend,
                                      .halves = WEFT_VAE_DECODER,
                                      .frames = weft_grid_frames(&own, section),
                                      .height = k->latent[1] * own.factor[1],
                                      .width = k->latent[2] * own.factor[2],
                                      .tile = o->tile,
                                      .products = o->products,
                                      .timestep = time.timestep};
    WEFT_TRY(weft_decode_time_check(&time, folder));
    WEFT_TRY(weft_vae_open_within(folder, &options, limit, opened, &chosen));
    weft_vae *vae = *opened;
    const bool first = !o->comm || weft_comm_rank(o->comm) == 0;
    if (first && weft_vae_tiles(vae, tiles)[0])
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(.file = path), "decoded in %s", tiles);
    if (first)
        note_try(path, k, weft_vae_bytes(vae));
    if (o->comm)
        WEFT_TRY(weft_comm_world(o->comm, &group));
    weft_vae_share(vae, group);
    WEFT_TRY(weft_vae_bind(vae));
    weft_frames_skip skip = {.sink = sink,
                             .user = user,
                             .lead = lead_of(k, &own),
                             .frame = options.height * options.width * 3,
                             .end = end_of(k)};
    for (int64_t at = 0; at < k->latent[0]; at += section, skip.before += options.frames)
        WEFT_TRY(weft_vae_decode(vae, x + at * area, section, weft_frames_skip_sink, &skip));
    if (first)
        note_try(path, k, 0); /* finished: nothing to record */
    return WEFT_OK;
}

/* Adds the noise that decoding of the video adds. */
static void mix_noise(const weft_saved_latents *k, int64_t index, int64_t floats, float *x)
{
    const json_t *seed = json_object_get(json_array_get(k->prompts, (size_t)index), "seed");
    const weft_decode_time time = time_of(k);
    weft_decode_time_mix(&time, (uint64_t)json_integer_value(seed), 0, floats, x);
}

void weft_kept_sound_free(weft_kept_sound *kept)
{
    weft_sound_decoder_free(kept->decoder);
    weft_sound_models_close(&kept->models);
    *kept = (weft_kept_sound){0};
}

/* Compiles the decoder of sound, unless the last file had the same number of audio latents. */
static weft_status prepare_sound(const weft_decode_options *o, const weft_saved_latents *k)
{
    weft_kept_sound *kept = o->kept;
    weft_model denoiser;
    char *folder = NULL;
    if (kept->decoder && kept->steps == k->sound[0] && kept->models.features == k->sound[1])
        return WEFT_OK;
    weft_kept_sound_free(kept);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_model_open_in(o->model, WEFT_ROLE_DENOISER, &folder, &denoiser));
    WEFT_GO(weft_sound_models_open(o->model, &denoiser, &kept->models));
    WEFT_GO(kept->models.features == k->sound[1]
                ? weft_sound_decoder_open(&kept->models, o->backend, k->sound[0], &kept->decoder)
                : weft_error(WEFT_MSG_LATENTS_MISMATCH,
                             WEFT_AT(.file = o->model, WEFT_NUMBER(k->sound[1])),
                             "the audio latents have %" PRId64 " features; the model has %" PRId64,
                             k->sound[1], kept->models.features));
    kept->steps = k->sound[0];
out:
    weft_free(folder);
    return status;
}

/* Decodes the sound of a video, if it has any. The weights are released before the frames are
 * decoded. */
static weft_status decode_sound(const weft_decode_options *o, const weft_saved_latents *k,
                                const float *latents, void *user)
{
    weft_sound sound;
    if (!k->sound[0] || !o->sound || (o->comm && weft_comm_rank(o->comm) != 0))
        return WEFT_OK;
    WEFT_TRY(prepare_sound(o, k));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_sound_decoder_bind(o->kept->decoder));
    WEFT_GO(weft_sound_decoder_run(o->kept->decoder, latents, &sound));
    WEFT_GO(o->sound(user, &sound));
out:
    weft_sound_decoder_unbind(o->kept->decoder);
    return status;
}

/* Resolves the memory limit, the same on all ranks: the option, or the machine's free memory
 * divided by the ranks. Collective. */
static weft_status resolve_limit(const weft_decode_options *o, int64_t *limit)
{
    const int ranks = o->comm ? weft_comm_ranks(o->comm) : 1;
    *limit = o->memory ? o->memory : weft_device_available(weft_backend_device(o->backend), ranks);
    if (ranks == 1)
        return WEFT_OK;
    WEFT_TRY(weft_comm_barrier(o->comm));
    return weft_comm_broadcast(o->comm, limit, sizeof *limit, 0);
}

weft_status weft_decode_run(const weft_decode_options *o, const char *path, weft_saved_latents *k,
                            int64_t index, weft_frames_fn *sink, void *user)
{
    const int64_t each = k->latent[0] * k->latent[1] * k->latent[2] * k->latent[3],
                  item = weft_saved_latents_floats(k);
    const bool alone = !o->comm || weft_comm_ranks(o->comm) == 1;
    int64_t most = 0;
    char *folder = NULL, bytes[32];
    weft_grid grid;
    float *x = weft_alloc_aligned(each * (int64_t)sizeof *x);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(x, "%s", path));
    WEFT_GO(decode_sound(o, k, k->x + index * item + each, user));
    WEFT_GO(resolve_limit(o, &most));
    WEFT_GO(read_vae(o->model, &folder, &grid));
    weft_latents_unnormalise(&grid, k->scale, k->x + index * item, 0, k->latent[0],
                             each / k->latent[0], x);
    mix_noise(k, index, each, x);
    /* an attempt that used little memory was not killed for memory */
    bool less = k->tried > most / 2 && !o->tile;
    int64_t limit = less && k->tried - 1 < most ? k->tried - 1 : most;
    if (less)
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = path),
                    "an earlier decoding with %s did not finish; decoding with less memory",
                    weft_format_bytes(k->tried, bytes));
    for (bool retry = true; retry;) {
        weft_vae *vae = NULL;
        status = decode_within(o, folder, path, k, limit, x, &vae, sink, user);
        retry = status == WEFT_E_MEMORY && (vae ? alone && !o->tile : less);
        if (retry) {
            weft_warn_error(WEFT_MSG_ESTIMATE_MISSING, "%s is decoded again with %s memory", path,
                            vae ? "less" : "the same");
            limit = vae ? weft_vae_bytes(vae) - 1 : most;
            less = false;
        }
        weft_vae_free(vae);
    }
out:
    weft_free(folder);
    weft_free(x);
    return status;
}
