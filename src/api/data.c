/* The functions of weft/data.h that src/format, src/video and src/data do not have. */
#include "weft/data.h"

#include "api/sized.h"
#include "base/json.h"
#include "data/loader_order.h"
#include "data/shard_write.h"
#include "format/tensors/safetensors_write.h"
#include "format/tensors/tensors.h"
#include "video/clip.h"
#include "video/reader.h"
#include "video/writer.h"

#include <string.h>

/* ---- tensors in files ------------------------------------------------------------------------ */

weft_status_code weft_stored_describe(const weft_stored_tensor *tensor,
                                      weft_stored_description *description)
{
    weft_stored_description filled = {.name = tensor->name,
                                      .type = weft_stored_type(tensor),
                                      .dtype = tensor->dtype,
                                      .rank = tensor->rank};
    memcpy(filled.dim, tensor->dim, (size_t)tensor->rank * sizeof *filled.dim);
    return WEFT_SIZED_WRITE(description, filled);
}

weft_status_code weft_stored_get_f32(const weft_stored_tensor *tensor, int64_t first, int64_t count,
                                     float *values)
{
    if (first < 0 || count < 0 || count > tensor->count - first)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                          WEFT_AT(.file = tensor->file, .key = tensor->name),
                          "%" PRId64 " elements from %" PRId64 " on are not in the tensor of "
                          "%" PRId64 " elements",
                          count, first, tensor->count);
    weft_stored_read(tensor, first, count, values);
    return WEFT_OK;
}

/* ---- videos and images ----------------------------------------------------------------------- */

weft_status_code weft_video_open(const char *path, const weft_video_read_options *options,
                                 weft_video_reader **reader)
{
    weft_video_read_options own;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    const weft_video_options wanted = {.format = WEFT_VIDEO_RGB24,
                                       .width = own.width,
                                       .height = own.height,
                                       .cover = own.cover,
                                       .cover_x = 0.5,
                                       .cover_y = 0.5,
                                       .threads = own.threads};
    return weft_video_reader_open(path, &wanted, reader);
}

weft_status_code weft_video_describe(const weft_video_reader *reader,
                                     weft_video_description *description)
{
    const weft_video_info *info = weft_video_reader_info(reader);
    const weft_video_description filled = {
        .width = info->width,
        .height = info->height,
        .frames_per_second = info->fps,
        .seconds = info->seconds,
        .frames = info->frames,
        .has_audio = info->has_audio,
        .hdr = info->hdr,
        .interlaced = info->interlaced,
    };
    return WEFT_SIZED_WRITE(description, filled);
}

weft_status_code weft_video_read(weft_video_reader *reader, weft_video_image *image, int *got)
{
    weft_video_frame frame;
    bool has_frame;
    WEFT_TRY(weft_video_reader_next(reader, &frame, &has_frame));
    if (has_frame) {
        const weft_video_image filled = {.index = frame.index,
                                         .seconds = frame.seconds,
                                         .width = frame.width,
                                         .height = frame.height,
                                         .rgb = frame.plane[0],
                                         .stride = frame.stride[0],
                                         .damaged = frame.damaged};
        WEFT_TRY(WEFT_SIZED_WRITE(image, filled));
    }
    *got = has_frame;
    return WEFT_OK;
}

weft_status_code weft_video_create(const char *path, const weft_video_write_options *options,
                                   weft_video_writer **writer)
{
    weft_video_write_options own;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    const weft_video_writer_options wanted = {.width = own.width,
                                              .height = own.height,
                                              .fps = own.frames_per_second,
                                              .crf = own.quality,
                                              .threads = own.threads};
    return weft_video_writer_open(path, &wanted, writer);
}

weft_status_code weft_clip_load(const char *path, const weft_clip_options *options, float *values)
{
    weft_clip_options own;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    if (own.frames < 1 || own.height < 1 || own.width < 1)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "options"),
                          "frames, height and width of a clip must be 1 or more");
    const weft_clip_request request = {.frames = own.frames,
                                       .height = own.height,
                                       .width = own.width,
                                       .fps = own.frames_per_second,
                                       .start_seconds = own.start_seconds,
                                       .crop_x = 0.5,
                                       .crop_y = 0.5,
                                       .threads = own.threads};
    return weft_clip_read(path, &request, values);
}

/* ---- training batches ------------------------------------------------------------------------ */

weft_status_code weft_shards_write(const char *in, const char *out,
                                   const weft_shard_options *options, int64_t *written)
{
    weft_shard_options own;
    weft_shard_report report;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    const weft_shard_config config = {.heldout = own.heldout,
                                      .max_samples = own.max_samples ? own.max_samples : 1000,
                                      .max_bytes = own.max_bytes ? own.max_bytes : 256 << 20,
                                      .seed = own.seed};
    WEFT_TRY(weft_shard_run(&config, in, out, &report));
    if (written)
        *written = report.written;
    return WEFT_OK;
}

struct weft_batches {
    weft_loader *loader;
    weft_bucket *bucket; /* borrowed by the loader */
    char *shards, *split;
};

/* Sets the loader's config. Its buckets are heap memory. */
static weft_status loader_config(const weft_batch_options *own, const char *shards,
                                 weft_loader_config *config)
{
    weft_bucket *bucket;
    const int ranks = own->ranks ? own->ranks : 1;
    if (own->clip_sizes < 1 || !own->clip)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "clip"),
                          "the options need the size of the clips");
    if (own->rank < 0 || own->rank >= ranks)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "rank", WEFT_NUMBER(own->rank)),
                          "rank %d is not one of %d ranks", own->rank, ranks);
    for (int64_t i = 0; i < own->clip_sizes; i++)
        if (own->clip[i].batch < 1 || own->clip[i].frames < 1 || own->clip[i].height < 1 ||
            own->clip[i].width < 1)
            return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "clip", WEFT_NUMBER(i)),
                              "batch, frames, height and width must be 1 or more");
    WEFT_TRY(WEFT_NEW(bucket, own->clip_sizes, "the sizes of clips"));
    for (int64_t i = 0; i < own->clip_sizes; i++)
        bucket[i] = (weft_bucket){.batch = own->clip[i].batch,
                                  .frames = own->clip[i].frames,
                                  .height = own->clip[i].height,
                                  .width = own->clip[i].width};
    *config = (weft_loader_config){.shards = shards,
                                   .split = own->split,
                                   .buckets = {own->clip_sizes, bucket},
                                   .fps = own->frames_per_second,
                                   .seed = own->seed,
                                   .threads = own->threads ? own->threads : 1,
                                   .prefetch = own->prefetch ? own->prefetch : 2,
                                   .caption_dropout = own->caption_dropout,
                                   .random_crop = own->random_crop,
                                   .random_start = own->random_crop,
                                   .verify = own->verify};
    return WEFT_OK;
}

weft_status_code weft_batches_open(const char *shards, const weft_batch_options *options,
                                   weft_batches **batches)
{
    weft_batch_options own;
    weft_loader_config config = {0};
    weft_batches *made = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_SIZED_READ(own, options));
    WEFT_GO(loader_config(&own, shards, &config));
    WEFT_GO(WEFT_NEW(made, 1, "the batches"));
    made->bucket = config.buckets.item;
    WEFT_GO(WEFT_ALLOCATED(made->shards = weft_strdup(shards), "the path of the shards"));
    config.shards = made->shards;
    if (own.split) {
        WEFT_GO(WEFT_ALLOCATED(made->split = weft_strdup(own.split), "the split"));
        config.split = made->split;
    }
    WEFT_GO(weft_loader_open(&config, own.rank, own.ranks ? own.ranks : 1, NULL, 3, &made->loader));
    *batches = made;
    return WEFT_OK;
out:
    if (!made)
        weft_free(config.buckets.item);
    weft_batches_close(made);
    return status;
}

void weft_batches_close(weft_batches *batches)
{
    if (!batches)
        return;
    weft_loader_close(batches->loader);
    weft_free(batches->bucket);
    weft_free(batches->shards);
    weft_free(batches->split);
    weft_free(batches);
}

weft_status_code weft_batches_next(weft_batches *batches, weft_batch_view *batch)
{
    weft_batch next;
    WEFT_TRY(weft_loader_next(batches->loader, &next));
    const weft_batch_view filled = {.step = next.step,
                                    .clip_size = next.bucket,
                                    .count = next.count,
                                    .video = next.video,
                                    .caption = next.caption,
                                    .id = next.id};
    return WEFT_SIZED_WRITE(batch, filled);
}

weft_status_code weft_batches_save(const weft_batches *batches, char **json)
{
    json_t *state = weft_loader_state(batches->loader);
    char *line = state ? weft_json_line(state) : NULL;
    json_decref(state);
    WEFT_TRY(WEFT_ALLOCATED(line, "the position of the batches"));
    *json = line;
    return WEFT_OK;
}

weft_status_code weft_batches_restore(weft_batches *batches, const char *json)
{
    json_t *state;
    WEFT_TRY(weft_json_parse(json, (int64_t)strlen(json), "the position", &state));
    const weft_status_code status = weft_loader_restore(batches->loader, state, "the position");
    json_decref(state);
    return status;
}
