#include "train/step/paired_clips.h"

#include "data/loader_buckets.h"
#include "generate/conditioning/character.h"
#include "train/step/paired_latents.h"
#include "video/clip.h"

#include <stdlib.h>

typedef struct place {
    uint64_t id;
    int64_t sample;
} place;

struct weft_paired_clips {
    weft_dataset *dataset;
    const char *key, *source;
    double fps;
    bool verify;
    place *place; /* [count] sorted by id */
    int64_t count;
    weft_part_bytes bytes;
    float *frames; /* of a mask */
    int64_t floats;
};

static int by_id(const void *a, const void *b)
{
    const uint64_t x = ((const place *)a)->id, y = ((const place *)b)->id;
    return (x > y) - (x < y);
}

static const weft_sample *find(const weft_paired_clips *c, uint64_t id)
{
    const place wanted = {id, 0};
    const place *at =
        c->count ? bsearch(&wanted, c->place, (size_t)c->count, sizeof wanted, by_id) : NULL;
    return at ? weft_dataset_at(c->dataset, at->sample) : NULL;
}

static weft_status check_all(const weft_paired_clips *c, const weft_dataset *first,
                             const weft_grid *grid)
{
    for (int64_t i = 0; i < weft_dataset_count(first); i++) {
        const weft_sample *sample = weft_dataset_at(first, i), *own = find(c, sample->id);
        const weft_part_data *part = weft_sample_part(sample, WEFT_LATENT_PART);
        const int64_t has = own ? weft_loader_frames(own, c->fps) : 0,
                      frames =
                          part && part->shape ? weft_grid_frames(grid, part->shape->dim[0]) : 1;
        if (!own || !weft_sample_video(own))
            return weft_error(
                WEFT_MSG_CONFIG_VALUE,
                WEFT_AT(.file = c->source, .key = c->key, .value = sample->key),
                "the data set has no usable clip \"%s\", which data.path has. Add the clip, or "
                "remove the one of data.path.",
                sample->key);
        if (has < frames)
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.file = c->source, .key = c->key, .value = sample->key),
                              "the clip \"%s\" has %" PRId64
                              " frames, and the clip of data.path is trained with %" PRId64
                              ". Give a longer clip, or remove the one of data.path.",
                              sample->key, has, frames);
    }
    return WEFT_OK;
}

weft_status weft_paired_clips_open(const weft_run *run, const weft_run_pair *pair,
                                   const weft_dataset *first, const weft_grid *grid,
                                   weft_paired_clips **out)
{
    const weft_run second = weft_run_pair_run(run, pair);
    weft_paired_clips *c;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(c, 1, "paired clips"));
    *c = (weft_paired_clips){
        .key = pair->key, .source = pair->path, .fps = run->data.fps, .verify = run->data.verify};
    WEFT_GO(weft_run_data_open(&second.data, &c->dataset));
    c->count = weft_dataset_count(c->dataset);
    WEFT_GO(WEFT_NEW(c->place, c->count + 1, "paired clips"));
    for (int64_t i = 0; i < c->count; i++)
        c->place[i] = (place){weft_dataset_at(c->dataset, i)->id, i};
    qsort(c->place, (size_t)c->count, sizeof *c->place, by_id);
    WEFT_GO(check_all(c, first, grid));
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
    weft_free(c->place);
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
    if (weft_dataset_video(c->dataset, s, &video, &request.start_seconds))
        return weft_storage_video_end(&video,
                                      weft_clip_read_source(&video.source, s->key, &request, to));
    WEFT_TRY(weft_dataset_read(c->dataset, s, weft_sample_video(s), c->verify, &c->bytes));
    return weft_clip_read_memory(c->bytes.data, c->bytes.bytes, s->key, &request, to);
}

weft_status weft_paired_clips_read(weft_paired_clips *c, uint64_t id, const weft_bucket *size,
                                   float *to)
{
    const weft_sample *s = find(c, id);
    if (!s)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.file = c->source, .key = c->key),
                          "a sample has no clip in this data set");
    return weft_error_add(decode(c, s, size, to),
                          "It is the clip \"%s\" of %s (%s). Replace the clip, or remove it and "
                          "the one of data.path.",
                          s->key, c->source, c->key);
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
