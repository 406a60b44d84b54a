#include "train/latents/sound_latents.h"

#include "base/log.h"
#include "video/sound_reader.h"

#include <string.h>

static int64_t most_samples(const weft_sound_latents *l)
{
    int64_t most = 0;
    for (int b = 0; b < l->buckets; b++)
        most = l->samples[b] > most ? l->samples[b] : most;
    return most;
}

weft_status weft_sound_latents_plan(const weft_run *run, const weft_run_models *models,
                                    const weft_train_stage *stage, const weft_backend *backend,
                                    weft_sound_latents *l)
{
    const weft_run_sound *sound = &models->sound;
    const int count = weft_train_stage_bucket_count(stage);
    if (!weft_run_has_sound(sound))
        return WEFT_OK;
    l->run = run;
    l->models = models;
    l->stage = stage;
    l->buckets = count;
    l->floats = weft_run_sound_floats(sound, stage);
    l->encoder = weft_calloc(count, sizeof *l->encoder);
    l->samples = weft_calloc(count, sizeof *l->samples);
    WEFT_TRY(WEFT_ALLOCATED(l->encoder && l->samples, "the encoder of sound"));
    for (int b = 0; b < count; b++) {
        const int64_t frames = weft_train_stage_bucket(stage, b)->frames;
        if (frames == 1)
            continue;
        l->samples[b] = weft_sound_samples(&sound->format, frames, sound->fps);
        WEFT_TRY(
            weft_sound_encoder_open(&sound->autoencoder, backend, l->samples[b], &l->encoder[b]));
    }
    return WEFT_OK;
}

int64_t weft_sound_latents_bytes(const weft_sound_latents *l)
{
    if (!l->buckets)
        return 0;
    int64_t bytes = (most_samples(l) * l->models->sound.format.channels + l->floats) *
                    (int64_t)sizeof(float),
            weights = 0;
    for (int b = 0; b < l->buckets; b++) {
        const int64_t own = weft_sound_encoder_weight_bytes(l->encoder[b]);
        bytes += weft_sound_encoder_bytes(l->encoder[b]);
        weights = own > weights ? own : weights;
    }
    return bytes + weights;
}

weft_status weft_sound_latents_bind(weft_sound_latents *l, weft_store *store)
{
    bool loaded = false;
    if (!l->buckets)
        return WEFT_OK;
    for (int b = 0; b < l->buckets; b++) {
        if (!l->encoder[b])
            continue;
        if (!loaded)
            WEFT_TRY(weft_sound_encoder_load(l->encoder[b], l->run->sound.autoencoder, store));
        loaded = true;
        WEFT_TRY(weft_sound_encoder_bind(l->encoder[b], store));
    }
    WEFT_TRY(WEFT_NEW(l->part, l->floats, "the encoder of sound"));
    return WEFT_NEW(l->sound, most_samples(l) * l->models->sound.format.channels + 1,
                    "the encoder of sound");
}

/* Reads the sound of a sample, which is a file or a part of one, or bytes of a shard. */
static weft_status read_sound(const weft_sound_latents *l, const weft_dataset *dataset,
                              const weft_sample *sample, int bucket, bool *has_sound)
{
    const weft_sound_format *format = &l->models->sound.format;
    weft_sound_request request = {
        .channels = format->channels, .count = l->samples[bucket], .rate = format->mel.rate};
    weft_storage_video video;
    weft_part_bytes bytes = {0};
    weft_status_code status = WEFT_OK;
    if (weft_dataset_video(dataset, sample, &video, &request.start_seconds))
        return weft_storage_video_end(
            &video,
            weft_sound_read_source(&video.source, sample->key, &request, l->sound, has_sound));
    WEFT_GO(weft_dataset_read(dataset, sample, weft_sample_video(sample), false, &bytes));
    WEFT_GO(weft_sound_read_memory(bytes.data, bytes.bytes, sample->key, &request, l->sound,
                                   has_sound));
out:
    weft_free(bytes.data);
    return status;
}

weft_status weft_sound_latents_encode(weft_sound_latents *l, const weft_dataset *dataset,
                                      const weft_sample *sample, int bucket)
{
    bool has_sound = false;
    if (!l->buckets)
        return WEFT_OK;
    memset(l->part, 0, (size_t)l->floats * sizeof *l->part);
    if (!l->encoder[bucket])
        return WEFT_OK;
    const weft_status_code status = read_sound(l, dataset, sample, bucket, &has_sound);
    if (status == WEFT_E_FORMAT || status == WEFT_E_UNSUPPORTED) {
        weft_warn_error(WEFT_MSG_SAMPLE_SKIPPED, "its video is used without sound");
        return WEFT_OK;
    }
    WEFT_TRY(status);
    l->part[0] = has_sound;
    return has_sound ? weft_sound_encoder_run(l->encoder[bucket], l->sound, l->part + 1) : WEFT_OK;
}

void weft_sound_latents_free(weft_sound_latents *l)
{
    for (int b = 0; b < l->buckets && l->encoder; b++)
        weft_sound_encoder_free(l->encoder[b]);
    weft_free(l->encoder);
    weft_free(l->samples);
    weft_free(l->sound);
    weft_free(l->part);
}
