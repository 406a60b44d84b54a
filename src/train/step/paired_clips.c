#include "train/step/paired_clips.h"

#include "data/loader_buckets.h"
#include "generate/conditioning/character.h"
#include "train/step/pair_index.h"
#include "train/step/paired_latents.h"
#include "video/clip.h"

struct weft_paired_clips {
    weft_dataset *dataset;
    const char *key, *source;
    double fps;
    bool verify;
    weft_pair_index index;
    weft_part_bytes bytes;
    float *frames; /* of a mask */
    int64_t floats;
};

static weft_status check_all(const weft_paired_clips *c, const weft_dataset *first,
                             const weft_grid *grid)
{
    for (int64_t i = 0; i < weft_dataset_count(first); i++) {
        const weft_sample *sample = weft_dataset_at(first, i),
                          *own = weft_pair_index_find(&c->index, sample->id);
        const weft_part_data *part = weft_sample_part(sample, WEFT_LATENT_PART);
        const int64_t has = own ? weft_loader_frames(own, c->fps) : 0,
                      frames =
                          part && part->shape ? weft_grid_frames(grid, part->shape->dim[0]) : 1;
        if (!own || !weft_sample_video(own))
            return weft_pair_index_lacks(c->source, c->key, sample);
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
    WEFT_GO(weft_pair_index_make(c->dataset, &c->index));
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
    if (weft_dataset_video(c->dataset, s, &video, &request.start_seconds))
        return weft_storage_video_end(&video,
                                      weft_clip_read_source(&video.source, s->key, &request, to));
    WEFT_TRY(weft_dataset_read(c->dataset, s, weft_sample_video(s), c->verify, &c->bytes));
    return weft_clip_read_memory(c->bytes.data, c->bytes.bytes, s->key, &request, to);
}

weft_status weft_paired_clips_read(weft_paired_clips *c, uint64_t id, const weft_bucket *size,
                                   float *to)
{
    const weft_sample *s = weft_pair_index_find(&c->index, id);
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
