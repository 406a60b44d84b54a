#include "train/step/paired_clips.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "data/loader_buckets.h"
#include "generate/conditioning/character.h"
#include "train/step/pair_index.h"
#include "train/step/paired_latents.h"
#include "video/clip.h"

struct weft_paired_clips {
    weft_dataset *dataset;
    const char *key, *source;
    double fps;
    bool verify, framed, decoded; /* decoded: by steps, not before */
    weft_pair_index index;
    weft_part_bytes bytes;
    float *frames; /* of a mask */
    int64_t floats;
};

weft_status weft_paired_clips_open(const weft_run *run, const weft_run_pair *pair,
                                   weft_paired_clips **out)
{
    const weft_run second = weft_run_pair_run(run, pair);
    weft_paired_clips *c;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(c, 1, "paired clips"));
    *c = (weft_paired_clips){.key = pair->key,
                             .source = pair->path,
                             .fps = run->data.fps,
                             .verify = run->data.verify,
                             .framed = weft_pair_index_framed(pair),
                             .decoded = !weft_run_pair_cached(pair)};
    WEFT_GO(weft_run_data_open(&second.data, &c->dataset));
    WEFT_GO(weft_pair_index_make(c->dataset, &c->index));
    *out = c;
    return WEFT_OK;
out:
    weft_paired_clips_close(c);
    return status;
}

void weft_paired_clips_close(weft_paired_clips *c)
{
    if (!c)
        return;
    weft_dataset_close(c->dataset);
    weft_pair_index_free(&c->index);
    weft_free(c->bytes.data);
    weft_free(c->frames);
    weft_free(c);
}

static weft_status decode(weft_paired_clips *c, const weft_sample *s, const weft_bucket *size,
                          float *to)
{
    weft_clip_request request = {.frames = size->frames,
                                 .height = size->height,
                                 .width = size->width,
                                 .fps = c->fps,
                                 .crop_x = 0.5,
                                 .crop_y = 0.5,
                                 .threads = 1};
    weft_storage_video video;
    weft_status_code status;
    if (weft_dataset_video(c->dataset, s, &video, &request.start_seconds)) {
        status = weft_storage_video_end(&video,
                                        weft_clip_read_source(&video.source, s->key, &request, to));
    } else {
        status = weft_dataset_read(c->dataset, s, weft_sample_video(s), c->verify, &c->bytes);
        if (status == WEFT_OK)
            status = weft_clip_read_memory(c->bytes.data, c->bytes.bytes, s->key, &request, to);
    }
    return weft_error_add(status,
                          "It is the clip \"%s\" of %s (%s). Replace the clip, or remove it and "
                          "the one of data.path.",
                          s->key, c->source, c->key);
}

weft_status weft_paired_clips_check(const weft_paired_clips *c, const weft_sample *sample,
                                    int64_t frames, const weft_sample **found)
{
    const weft_sample *own = weft_pair_index_find(&c->index, sample->id);
    const int64_t has = own ? weft_loader_frames(own, c->fps) : 0;
    if (!own || !weft_sample_video(own) || own->unreadable)
        return weft_pair_index_lacks(c->source, c->key, sample);
    if (has < frames)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = c->source, .key = c->key, .value = sample->key),
                          "the clip \"%s\" has %" PRId64
                          " frames, and the clip of data.path is trained with %" PRId64
                          ". Give a longer clip, or remove the one of data.path.",
                          sample->key, has, frames);
    if (c->framed)
        WEFT_TRY(weft_pair_index_check_aspect(c->source, c->key, sample, own));
    *found = own;
    return WEFT_OK;
}

/* Decodes the first frames of a clip to the end, in a small size. */
static weft_status try_decoding(weft_paired_clips *c, const weft_sample *own, int64_t frames)
{
    enum { SIDE = 8 };
    const weft_bucket small = {.frames = frames, .height = SIDE, .width = SIDE};
    float *pixels;
    WEFT_TRY(WEFT_NEW(pixels, frames * SIDE * SIDE * 3, "a clip"));
    const weft_status_code status = decode(c, own, &small, pixels);
    weft_free(pixels);
    return status;
}

/* Checks the clips of the samples range[0] to range[1] - 1, and decodes every clip that is this
 * rank's. */
static weft_status check_some(weft_paired_clips *c, const weft_dataset *first,
                              const weft_grid *grid, const weft_comm *comm, const int64_t range[2])
{
    const int64_t rank = weft_comm_rank(comm), ranks = weft_comm_ranks(comm);
    for (int64_t i = range[0]; i < range[1]; i++) {
        const weft_sample *sample = weft_dataset_at(first, i), *own;
        const weft_part_data *part = weft_sample_part(sample, WEFT_LATENT_PART);
        const int64_t frames =
            part && part->shape ? weft_grid_frames(grid, part->shape->dim[0]) : 1;
        WEFT_TRY(weft_paired_clips_check(c, sample, frames, &own));
        if (c->decoded && i % ranks == rank)
            WEFT_TRY(try_decoding(c, own, frames));
    }
    return WEFT_OK;
}

weft_status weft_paired_clips_check_all(weft_paired_clips *c, const weft_dataset *first,
                                        const weft_grid *grid, weft_comm *comm)
{
    enum { EACH = 2 }; /* clips of a rank between exchanges */
    const int64_t count = weft_dataset_count(first), some = EACH * weft_comm_ranks(comm);
    for (int64_t i = 0; i < count; i += some) {
        const int64_t range[2] = {i, i + some < count ? i + some : count};
        weft_comm_set_busy(comm, "checking the clips of a further data set");
        const weft_status_code status = check_some(c, first, grid, comm, range);
        weft_comm_set_busy(comm, NULL);
        WEFT_TRY(weft_comm_agree(comm, status, "use a clip of a further data set"));
        WEFT_TRY(weft_comm_interrupt_check(comm));
    }
    return WEFT_OK;
}

uint64_t weft_paired_clips_fingerprint(const weft_paired_clips *c)
{
    return weft_dataset_fingerprint(c->dataset);
}

weft_status weft_paired_clips_bytes(const weft_run *run, const char *path, const weft_bucket *size,
                                    int sizes, bool marks, int64_t *bytes)
{
    weft_run_data data = run->data;
    weft_dataset *dataset;
    int64_t file = 0, pixels = 0;
    data.path = path;
    *bytes = 0;
    const weft_status_code status = weft_run_data_open(&data, &dataset);
    if (status == WEFT_E_NOT_FOUND) { /* an estimate needs no data */
        weft_warn_error(WEFT_MSG_ESTIMATE_MISSING,
                        "the predicted memory is without the clips of this data set");
        return WEFT_OK;
    }
    WEFT_TRY(status);
    for (int64_t i = 0; i < weft_dataset_count(dataset); i++) {
        const weft_part_data *video = weft_sample_video(weft_dataset_at(dataset, i));
        file = video && video->bytes > file ? video->bytes : file;
    }
    for (int i = 0; i < sizes; i++) {
        const int64_t own = size[i].frames * size[i].height * size[i].width * 3;
        pixels = own > pixels ? own : pixels;
    }
    *bytes = weft_dataset_resident(dataset) + file + pixels +
             (marks ? pixels * (int64_t)sizeof(float) : 0);
    weft_dataset_close(dataset);
    return WEFT_OK;
}

weft_status weft_paired_clips_read(weft_paired_clips *c, uint64_t id, const weft_bucket *size,
                                   float *to)
{
    const weft_sample *s = weft_pair_index_find(&c->index, id);
    if (!s)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.file = c->source, .key = c->key),
                          "a sample has no clip in this data set");
    return decode(c, s, size, to);
}

weft_status weft_paired_clips_marks(weft_paired_clips *c, uint64_t id, const weft_bucket *size,
                                    const weft_grid *grid, float *to)
{
    const int64_t *f = grid->factor, pixels = size->height * size->width,
                  floats = size->frames * pixels * 3,
                  frames = weft_grid_latent_frames(grid, size->frames), rows = size->height / f[1],
                  columns = size->width / f[2];
    if (floats > c->floats) {
        weft_free(c->frames);
        c->floats = 0;
        WEFT_TRY(WEFT_NEW(c->frames, floats, "the frames of a mask"));
        c->floats = floats;
    }
    WEFT_TRY(weft_paired_clips_read(c, id, size, c->frames));
    for (int64_t t = 0; t < frames; t++)
        for (int64_t i = 0; i < rows * columns; i++)
            for (int64_t k = 0; k < f[0]; k++) {
                const int64_t frame = t ? 1 + (t - 1) * f[0] + k : 0,
                              at = (i / columns * f[1]) * size->width + i % columns * f[2];
                *to++ = weft_character_kept(c->frames + (frame * pixels + at) * 3);
            }
    return WEFT_OK;
}
