#include "train/latents.h"

#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "data/loader.h"
#include "format/npy.h"
#include "format/tar.h"
#include "runtime/weights.h"
#include "train/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { ENCODE_BATCH = 4, SAMPLES_PER_SHARD = 10000 };

/* The encoders over one epoch of a data set. */
typedef struct encoding {
    const weft_run *run;
    const weft_place_of_run *place;
    const weft_model *encoder; /* of captions; NULL: they are not encoded */
    weft_text_shape words;     /* its */
    weft_store *store;
    int buckets;
    weft_step *step; /* the VAE's, by bucket */
    weft_bucket *size;
    weft_step text;
    weft_loader *loader;
    int64_t samples, done;
    int64_t global[ENCODE_BATCH]; /* sample of each item of the last batch; -1: a repetition; -2:
                                     one that does not decode */
    int bucket;                   /* of that batch */
    weft_shape latent;            /* (B,T',Y',X',Z) of it */
    int64_t latent_count;         /* elements of one sample */
} encoding;

static weft_status open_loader(encoding *e)
{
    const weft_run_data *d = &e->run->data;
    const weft_loader_config config = {.shards = d->path,
                                       .split = d->split[0] ? d->split : NULL,
                                       .buckets = {e->buckets, e->size},
                                       .fps = d->fps,
                                       .threads = d->threads,
                                       .prefetch = d->prefetch};
    WEFT_TRY(weft_loader_open(&config, (int)e->step->slice_index, (int)e->step->slice_parts, NULL,
                              0, &e->loader));
    for (int i = 0; i < e->buckets; i++)
        e->samples += weft_loader_bucket_samples(e->loader, i);
    return WEFT_OK;
}

/* The VAE's programs share their arena; the text encoder has its own, so that both results are
 * there at once. */
static weft_status bind_encoders(encoding *e, const weft_model *vae, weft_store *store)
{
    weft_program **programs = weft_alloc(e->buckets * (int64_t)sizeof *programs);
    weft_status_code status =
        programs ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    for (int i = 0; i < e->buckets; i++) {
        weft_graph *g = weft_graph_create();
        if (g)
            weft_encoder_build(g, vae, &e->size[i]);
        WEFT_GO(weft_step_plan(g, NULL, e->place, &e->step[i]));
        WEFT_GO(weft_store_init(store, e->step[i].graph, 0));
        programs[i] = e->step[i].program;
    }
    if (e->encoder) {
        weft_graph *g = weft_graph_create();
        if (g)
            weft_text_build(g, e->encoder, ENCODE_BATCH);
        WEFT_GO(weft_step_make(g, NULL, e->place, store, 0, &e->text));
    }
    WEFT_GO(weft_programs_bind(programs, e->buckets, store));
out:
    weft_free(programs);
    return status;
}

/* `store` NULL: one of its own with the weights that the config names. */
static weft_status open_encoding(encoding *e, const weft_model *vae, const weft_stage *s,
                                 weft_store *store)
{
    e->buckets = weft_stage_bucket_count(s);
    e->step = weft_alloc(e->buckets * (int64_t)sizeof *e->step);
    e->size = weft_alloc(e->buckets * (int64_t)sizeof *e->size);
    if (!store)
        store = e->store = weft_store_create();
    if (!e->step || !e->size || !store)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    for (int i = 0; i < e->buckets; i++) {
        e->size[i] = *weft_stage_bucket(s, i);
        e->size[i].batch = ENCODE_BATCH;
    }
    WEFT_TRY(bind_encoders(e, vae, store));
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", vae->family->scope);
    if (e->store)
        WEFT_TRY(
            weft_weights_load(store, e->step->whole, prefix, e->run->autoencoder.weights, true));
    if (!e->encoder)
        return open_loader(e);
    snprintf(prefix, sizeof prefix, "%s.", e->encoder->family->scope);
    WEFT_TRY(weft_weights_load(store, e->text.whole, prefix, weft_run_text(e->run)->weights, true));
    return open_loader(e);
}

static void close_encoding(encoding *e)
{
    weft_loader_close(e->loader);
    for (int i = 0; i < e->buckets && e->step; i++)
        weft_step_free(&e->step[i]);
    weft_step_free(&e->text);
    weft_store_free(e->store);
    weft_free(e->step);
    weft_free(e->size);
}

/* Which samples the whole batch held, known on every rank. */
static weft_status share_samples(encoding *e, const weft_batch *batch)
{
    double values[ENCODE_BATCH] = {0};
    for (int64_t i = 0; i < batch->count; i++)
        values[batch->first + i] = batch->epoch[i] != 0 ? 0
                                   : batch->replaced[i] ? -1
                                                        : (double)(batch->sample[i] + 1);
    if (e->step->slice_parts > 1)
        WEFT_TRY(weft_comm_sum(e->place->comm, values, ENCODE_BATCH));
    for (int i = 0; i < ENCODE_BATCH; i++)
        e->global[i] = (int64_t)values[i] - 1;
    return WEFT_OK;
}

/* Embeddings (B,L,D) of the captions of this rank's items, on every rank; NULL captions are empty
 * ones. */
static weft_status encode_text(encoding *e, const char *const *caption, const float **text)
{
    int32_t *tokens = weft_program_input(e->text.program, "batch.tokens")->data;
    for (int64_t i = 0; i < e->text.slice_count; i++)
        e->encoder->family->tokens(e->encoder->config, caption ? caption[i] : "",
                                   tokens + i * e->words.length);
    WEFT_TRY(weft_program_run(e->text.program));
    *text = weft_program_output(e->text.program, "text")->data;
    return WEFT_OK;
}

/* The next batch through the VAE: *latents (B,T',Y',X',Z) on every rank, until another program
 * runs. `captions` (if not NULL): of this rank's items, until the next batch. */
static weft_status encode_next(encoding *e, const float **latents, const char *const **captions)
{
    weft_batch batch;
    WEFT_TRY(weft_interrupt_check());
    WEFT_TRY(weft_loader_next(e->loader, &batch));
    const weft_step *step = &e->step[batch.bucket];
    weft_tensor *video = weft_program_input(step->program, "batch.video");
    memcpy(video->data, batch.video, (size_t)(weft_shape_count(&video->shape) * 4));
    WEFT_TRY(weft_program_run(step->program));
    WEFT_TRY(share_samples(e, &batch));
    const weft_tensor *out = weft_program_output(step->program, "latents");
    *latents = out->data;
    if (captions)
        *captions = batch.caption;
    e->bucket = batch.bucket;
    e->latent = out->shape;
    e->latent_count = weft_shape_count(&out->shape) / ENCODE_BATCH;
    for (int i = 0; i < ENCODE_BATCH; i++)
        e->done += e->global[i] != -1;
    return WEFT_OK;
}

/* ---- cache --------------------------------------------------------------------------------- */

static weft_status add_array(weft_tar_writer *tar, const char *key, const char *suffix, int rank,
                             const int64_t *dim, const float *values)
{
    weft_buf data = {0};
    char name[700];
    snprintf(name, sizeof name, "%s.%s", key, suffix);
    weft_npy_format(WEFT_F32, rank, dim, values, &data);
    weft_status_code status = weft_buf_check(&data);
    if (status == WEFT_OK)
        status = weft_tar_add(tar, name, data.data, data.len);
    weft_buf_free(&data);
    return status;
}

/* `text`: the caption's embedding; NULL: captions are not encoded. */
static weft_status add_sample(encoding *e, weft_tar_writer *tar, int64_t index, const float *latent,
                              const float *text)
{
    const weft_sample *sample = weft_dataset_at(weft_loader_dataset(e->loader), index);
    char name[700];
    weft_status_code status =
        add_array(tar, sample->key, WEFT_LATENT_PART, 4, e->latent.dim + 1, latent);
    if (status == WEFT_OK && text)
        status = add_array(tar, sample->key, WEFT_TEXT_PART, 2,
                           (int64_t[]){e->words.length, e->words.width}, text);
    const weft_dataset *dataset = weft_loader_dataset(e->loader);
    const weft_part_data *json = weft_sample_part(sample, "json");
    weft_part_bytes bytes = {0};
    snprintf(name, sizeof name, "%s.json", sample->key);
    if (status == WEFT_OK && json) {
        status = weft_dataset_read(dataset, sample, json, true, &bytes);
        if (status == WEFT_OK)
            status = weft_tar_add(tar, name, bytes.data, bytes.bytes);
    }
    snprintf(name, sizeof name, "%s.txt", sample->key);
    if (status == WEFT_OK)
        status = weft_dataset_caption(dataset, sample, true, &bytes);
    if (status == WEFT_OK)
        status = weft_tar_add(tar, name, bytes.data, bytes.bytes);
    weft_free(bytes.data);
    return status;
}

/* Rank 0: `tar` is open; others: NULL. */
static weft_status encode_all(encoding *e, const char *folder)
{
    weft_tar_writer *tar = NULL;
    weft_status_code status = WEFT_OK;
    weft_progress progress;
    int64_t in_shard = 0, shard = 0;
    const bool writes = weft_comm_rank(e->place->comm) == 0;
    weft_progress_begin(&progress, "encode latents", e->samples, 0);
    progress.quiet |= !writes;
    while (e->done < e->samples && status == WEFT_OK) {
        const float *latents, *text = NULL;
        const char *const *captions;
        WEFT_GO(encode_next(e, &latents, &captions));
        if (e->encoder)
            WEFT_GO(encode_text(e, captions, &text));
        for (int i = 0; i < ENCODE_BATCH && writes; i++) {
            char path[700];
            if (e->global[i] < 0)
                continue;
            snprintf(path, sizeof path, "%s/train-%06lld.tar", folder, (long long)shard);
            if (!tar)
                WEFT_GO(weft_tar_create(path, &tar));
            WEFT_GO(add_sample(e, tar, e->global[i], latents + i * e->latent_count,
                               text ? text + i * e->words.length * e->words.width : NULL));
            if (++in_shard < SAMPLES_PER_SHARD)
                continue;
            WEFT_GO(weft_tar_finish(tar, NULL, NULL));
            weft_tar_free(tar);
            tar = NULL;
            in_shard = 0;
            shard++;
        }
        weft_progress_update(&progress, e->done, NULL);
    }
    if (tar)
        WEFT_GO(weft_tar_finish(tar, NULL, NULL));
    weft_progress_end(&progress, e->done, NULL);
out:
    weft_tar_free(tar);
    return status;
}

static weft_status hash_weights(XXH3_state_t *state, const char *folder)
{
    weft_names names = {0};
    weft_status_code status = weft_list_dir(folder, false, &names);
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        char path[1200];
        weft_map map;
        if (strcmp(weft_path_extension(names.name[i]), "safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, names.name[i]);
        status = weft_map_open(path, &map);
        if (status != WEFT_OK)
            break;
        XXH3_64bits_update(state, map.data, (size_t)map.bytes);
        weft_map_close(&map);
    }
    weft_names_free(&names);
    return status;
}

/* The folder's name: a hash of the encoders' weights, the shards (names, sizes, times of change)
 * and the clips' sizes. What was made of other ones is in another folder and never read. */
static weft_status cache_key(const weft_run *run, const weft_stage *s, char key[24])
{
    const weft_run_model *text = weft_run_text(run);
    weft_buf what = {0};
    weft_dataset *ds;
    WEFT_TRY(
        weft_dataset_open(run->data.path, run->data.split[0] ? run->data.split : NULL, false, &ds));
    weft_buf_printf(&what, "%016llx|%s|%.9g|", (unsigned long long)weft_dataset_fingerprint(ds),
                    run->data.split, run->data.fps);
    weft_dataset_close(ds);
    for (int i = 0; i < weft_stage_bucket_count(s); i++) {
        const weft_bucket *b = weft_stage_bucket(s, i);
        weft_buf_printf(&what, "%lld %lld %lld|", (long long)b->frames, (long long)b->height,
                        (long long)b->width);
    }
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status = weft_buf_check(&what);
    if (status == WEFT_OK && !state)
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status != WEFT_OK)
        goto out;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, what.data, (size_t)what.len);
    WEFT_GO(hash_weights(state, run->autoencoder.weights));
    if (text && text->weights[0] && !text->train)
        WEFT_GO(hash_weights(state, text->weights));
    snprintf(key, 24, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
out:
    XXH3_freeState(state);
    weft_buf_free(&what);
    return status;
}

/* What the transformer sees of a caption that is left away, beside the shards. */
static weft_status write_no_text(encoding *e, const char *folder)
{
    char path[560];
    const float *text;
    weft_buf data = {0};
    WEFT_TRY(encode_text(e, NULL, &text));
    snprintf(path, sizeof path, "%s/no_" WEFT_TEXT_PART, folder);
    weft_npy_format(WEFT_F32, 2, (int64_t[]){e->words.length, e->words.width}, text, &data);
    weft_status_code status = weft_buf_check(&data);
    if (status == WEFT_OK && weft_comm_rank(e->place->comm) == 0)
        status = weft_file_write_atomic(path, data.data, data.len);
    weft_buf_free(&data);
    return status;
}

weft_status weft_latents_no_text(const char *folder, const weft_text_shape *text, float **embedding)
{
    char path[560];
    weft_map map;
    weft_npy npy;
    const int64_t count = text->length * text->width;
    snprintf(path, sizeof path, "%s/no_" WEFT_TEXT_PART, folder);
    WEFT_TRY(weft_map_open(path, &map));
    weft_status_code status = weft_npy_parse(map.data, map.bytes, path, &npy);
    if (status == WEFT_OK && (npy.dtype != WEFT_F32 || npy.count != count))
        status = weft_fail(WEFT_E_FORMAT,
                           "%s: not f32 of %lld elements; remove %s to have it made again", path,
                           (long long)count, folder);
    float *copy = status == WEFT_OK ? weft_alloc(count * 4) : NULL;
    if (status == WEFT_OK && !copy)
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
    if (copy)
        memcpy(copy, npy.data, (size_t)count * 4);
    weft_map_close(&map);
    *embedding = copy;
    return status;
}

weft_status weft_latents_ensure(const weft_run *run, const weft_run_models *models,
                                const weft_stage *stage, const weft_place_of_run *place,
                                char folder[512])
{
    char key[24], done[540], account[540];
    WEFT_TRY(cache_key(run, stage, key));
    if (snprintf(folder, 512, "%s/latents/%s", run->out, key) >= 512)
        return weft_fail(WEFT_E_ARG, "%s: too long a path", run->out);
    snprintf(done, sizeof done, "%s/complete", folder);
    snprintf(account, sizeof account, "%s/account.json", folder);
    double there = weft_comm_rank(place->comm) == 0 && weft_path_exists(done);
    WEFT_TRY(weft_comm_sum(place->comm, &there, 1)); /* rank 0 decides for all */
    if (there > 0)
        return weft_comm_rank(place->comm) == 0 ? weft_account_show(account, "latents") : WEFT_OK;
    encoding e = {.run = run,
                  .place = place,
                  .words = models->words,
                  .encoder = models->text_stays ? &models->text : NULL};
    weft_status_code status = WEFT_OK;
    if (weft_comm_rank(place->comm) == 0)
        WEFT_GO(weft_make_dirs(folder));
    WEFT_GO(open_encoding(&e, &models->autoencoder, stage, NULL));
    WEFT_GO(encode_all(&e, folder));
    if (e.encoder)
        WEFT_GO(write_no_text(&e, folder));
    WEFT_GO(weft_account_share(place->comm, e.loader));
    if (weft_comm_rank(place->comm) == 0) {
        WEFT_GO(weft_account_write(e.loader, "latents", account));
        WEFT_GO(weft_file_write_atomic(done, "", 0));
    }
    WEFT_GO(weft_comm_barrier(place->comm));
out:
    close_encoding(&e);
    return status;
}

/* ---- statistics ---------------------------------------------------------------------------- */

weft_status weft_latents_measure(const weft_run *run, const weft_model *vae,
                                 const weft_stage *stage, const weft_place_of_run *place,
                                 weft_store *store, int64_t samples, double mean[WEFT_MAX_CHANNELS],
                                 double std[WEFT_MAX_CHANNELS])
{
    encoding e = {.run = run, .place = place};
    double sum[WEFT_MAX_CHANNELS] = {0}, squares[WEFT_MAX_CHANNELS] = {0}, count = 0;
    const int64_t z = weft_model_grid(vae).channels;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_encoding(&e, vae, stage, store));
    while (e.done < samples && e.done < e.samples) {
        const float *latents;
        WEFT_GO(encode_next(&e, &latents, NULL));
        for (int64_t i = 0; i < ENCODE_BATCH; i++) {
            const float *one = latents + i * e.latent_count;
            if (e.global[i] < 0)
                continue;
            for (int64_t k = 0; k < e.latent_count; k++) {
                sum[k % z] += one[k];
                squares[k % z] += (double)one[k] * one[k];
            }
            count += (double)(e.latent_count / z);
        }
    }
    for (int64_t c = 0; c < z; c++) {
        mean[c] = sum[c] / count;
        std[c] = sqrt(fmax(squares[c] / count - mean[c] * mean[c], 1e-12));
    }
out:
    close_encoding(&e);
    return status;
}
