#include "data/decoder_memory.h"

#include "base/fs.h"
#include "base/location.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "video/reader.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Decoders that wait for one another with their last frame decoded, so that memory is measured
 * while all decoders are open. */
typedef struct decoding {
    const weft_decoder_memory *setup;
    const weft_dataset *dataset;
    const weft_sample *sample;
    const weft_part_bytes *video; /* of a sample in a shard */
    pthread_mutex_t lock;
    pthread_cond_t change;
    int64_t ready; /* decoders that have decoded */
    bool done;     /* the memory is measured */
} decoding;

/* Decodes one clip as the loader does, then keeps a decoder open until the measurement. */
static void *decode(void *argument)
{
    decoding *d = argument;
    const weft_decoder_memory *s = d->setup;
    const weft_video_options options = {.format = WEFT_VIDEO_RGB24,
                                        .width = s->width,
                                        .height = s->height,
                                        .cover = true,
                                        .cover_x = 0.5,
                                        .cover_y = 0.5,
                                        .threads = 1};
    weft_video_reader *reader = NULL;
    weft_video_frame frame;
    bool got = true;
    weft_storage_video file;
    double start;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_dataset_video(d->dataset, d->sample, &file, &start)
                ? weft_video_reader_open_source(&file.source, d->sample->key, &options, &reader)
                : weft_video_reader_open_memory(d->video->data, d->video->bytes, d->sample->key,
                                                &options, &reader));
    for (int64_t i = 0; i < s->frames && got; i++)
        WEFT_GO(weft_video_reader_next(reader, &frame, &got));
out:
    pthread_mutex_lock(&d->lock);
    d->ready++;
    pthread_cond_broadcast(&d->change);
    while (!d->done)
        pthread_cond_wait(&d->change, &d->lock);
    pthread_mutex_unlock(&d->lock);
    if (reader)
        weft_video_reader_close(reader);
    return NULL;
}

/* Runs the decoders, and sets *resident to the anonymous bytes of the process while all decoders
 * are open. */
static weft_status run_decoders(decoding *d, int64_t *resident)
{
    pthread_t *thread;
    int64_t started = 0;
    WEFT_TRY(WEFT_NEW(thread, d->setup->threads, "%" PRId64 " threads", d->setup->threads));
    while (started < d->setup->threads && pthread_create(&thread[started], NULL, decode, d) == 0)
        started++;
    pthread_mutex_lock(&d->lock);
    while (d->ready < started)
        pthread_cond_wait(&d->change, &d->lock);
    *resident = weft_memory_anonymous();
    d->done = true;
    pthread_cond_broadcast(&d->change);
    pthread_mutex_unlock(&d->lock);
    for (int64_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    weft_free(thread);
    return started < d->setup->threads ? weft_no_memory("decoder thread %" PRId64, started)
                                       : WEFT_OK;
}

/* Sets `path` to the first shard of a folder, or to the given shard or pattern. A folder without
 * shards is opened as a whole. */
static weft_status first_shard(const weft_decoder_memory *s, char path[1024])
{
    weft_names names = {0};
    weft_storage *storage = NULL;
    weft_status_code status = WEFT_OK;
    const char *found = NULL;
    const bool remote = weft_location_is_remote(s->shards) && !weft_dataset_names_shards(s->shards);
    if (!weft_path_is_dir(s->shards) && !remote)
        return snprintf(path, 1024, "%s", s->shards) < 1024 ? WEFT_OK : WEFT_E_CONFIG;
    WEFT_GO(weft_storage_open(s->shards, &storage));
    WEFT_GO(weft_storage_list(storage, &names));
    for (int64_t i = 0; i < names.count && !found; i++)
        if (!strcmp(weft_path_extension(names.name[i]), "tar") &&
            (!s->split || !strncmp(names.name[i], s->split, strlen(s->split))))
            found = names.name[i];
    if (snprintf(path, 1024, "%s%s%s", s->shards, found ? "/" : "", found ? found : "") >= 1024)
        status = WEFT_E_NOT_FOUND;
out:
    weft_names_free(&names);
    weft_storage_close(storage);
    return status;
}

static weft_status open_first(const weft_decoder_memory *s, weft_dataset **dataset)
{
    char path[1024];
    WEFT_TRY(first_shard(s, path));
    return weft_dataset_open(path, strcmp(path, s->shards) ? NULL : s->split, true, dataset);
}

/* Reads a sample's video out of its shard. */
static weft_status read_video(const weft_dataset *dataset, const weft_sample *sample,
                              weft_part_bytes *video)
{
    weft_storage_video file;
    double start;
    return weft_dataset_video(dataset, sample, &file, &start)
               ? WEFT_OK
               : weft_dataset_read(dataset, sample, weft_sample_video(sample), false, video);
}

static const weft_sample *first_clip(const weft_dataset *dataset)
{
    for (int64_t i = 0; i < weft_dataset_count(dataset); i++)
        if (weft_sample_video(weft_dataset_at(dataset, i)))
            return weft_dataset_at(dataset, i);
    return NULL;
}

weft_status weft_decoder_memory_measure(const weft_decoder_memory *s, int64_t *bytes)
{
    weft_dataset *dataset = NULL;
    weft_part_bytes video = {0};
    int64_t resident = 0, after;
    weft_status_code status = WEFT_OK;
    *bytes = 0;
    if (open_first(s, &dataset) != WEFT_OK) {
        if (weft_error_class() == WEFT_MSG_STORAGE_DENIED)
            weft_warn_error(WEFT_MSG_STORAGE_DENIED,
                            "the memory of the decoders is not measured and counts as 0");
        return WEFT_OK;
    }
    const weft_sample *sample = first_clip(dataset);
    if (sample && read_video(dataset, sample, &video) == WEFT_OK) {
        decoding d = {.setup = s,
                      .dataset = dataset,
                      .sample = sample,
                      .video = &video,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .change = PTHREAD_COND_INITIALIZER};
        /* code that is mapped while decoders close would hide small ones, so only heap counts */
        weft_memory_trim(); /* memory that was freed before is not the decoders' */
        status = run_decoders(&d, &resident);
        weft_memory_trim();
        after = weft_memory_anonymous();
        *bytes = resident > after ? resident - after : 0;
    }
    weft_free(video.data);
    weft_dataset_close(dataset);
    return status;
}
