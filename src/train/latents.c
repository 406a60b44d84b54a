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

/* The VAE's encoder over one epoch of a data set. */
typedef struct encoding {
    const weft_run *run;
    const weft_place_of_run *place;
    weft_store *store;
    weft_step step;
    weft_loader *loader;
    int64_t latent_count; /* elements of one sample */
    weft_shape latent;    /* (B,T',Y',X',Z) */
    int64_t samples, done;
    int64_t global[ENCODE_BATCH]; /* sample of each item of the last batch; -1: a repetition; -2: one that does not decode */
} encoding;

static weft_status open_loader(encoding *e, const weft_stage *s)
{
    weft_bucket bucket = {.batch = ENCODE_BATCH, .frames = s->frames, .height = s->height, .width = s->width};
    const weft_run_data *d = &e->run->data;
    const weft_loader_config config = {.shards = d->path, .split = d->split[0] ? d->split : NULL, .buckets = {1, &bucket},
                                       .fps = d->fps, .threads = d->threads, .prefetch = d->prefetch};
    WEFT_TRY(weft_loader_open(&config, (int)e->step.slice_index, (int)e->step.slice_parts, NULL, 0, &e->loader));
    e->samples = weft_loader_bucket_samples(e->loader, 0);
    return WEFT_OK;
}

/* `store` NULL: one of its own with the weights of run->vae_path. */
static weft_status open_encoding(encoding *e, const weft_wan_vae_config *vae, const weft_stage *s, weft_store *store)
{
    weft_graph *g = weft_graph_create();
    if (!store)
        store = e->store = weft_store_create();
    if (!g || !store) {
        weft_graph_free(g);
        return weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    }
    weft_encoder_build(g, vae, ENCODE_BATCH, s->frames, s->height, s->width);
    WEFT_TRY(weft_step_make(g, NULL, e->place, store, 0, &e->step));
    if (e->store)
        WEFT_TRY(weft_weights_load(store, e->step.whole, "vae.", e->run->vae_path, true));
    const weft_tensor *out = weft_program_output(e->step.program, "latents");
    e->latent = out->shape;
    e->latent_count = weft_shape_count(&out->shape) / ENCODE_BATCH;
    return open_loader(e, s);
}

static void close_encoding(encoding *e)
{
    weft_loader_close(e->loader);
    weft_step_free(&e->step);
    weft_store_free(e->store);
}

/* Which samples the whole batch held, known on every rank. */
static weft_status share_samples(encoding *e, const weft_batch *batch)
{
    double values[ENCODE_BATCH] = {0};
    for (int64_t i = 0; i < batch->count; i++)
        values[batch->first + i] = batch->epoch[i] != 0 ? 0 : batch->replaced[i] ? -1 : (double)(batch->sample[i] + 1);
    if (e->step.slice_parts > 1)
        WEFT_TRY(weft_comm_sum(e->place->comm, values, ENCODE_BATCH));
    for (int i = 0; i < ENCODE_BATCH; i++)
        e->global[i] = (int64_t)values[i] - 1;
    return WEFT_OK;
}

/* Encodes the next batch: *latents (B,T',Y',X',Z) on every rank. */
static weft_status encode_next(encoding *e, const float **latents)
{
    weft_batch batch;
    WEFT_TRY(weft_interrupt_check());
    WEFT_TRY(weft_loader_next(e->loader, &batch));
    weft_tensor *video = weft_program_input(e->step.program, "batch.video");
    memcpy(video->data, batch.video, (size_t)(weft_shape_count(&video->shape) * 4));
    WEFT_TRY(weft_program_run(e->step.program));
    WEFT_TRY(share_samples(e, &batch));
    *latents = weft_program_output(e->step.program, "latents")->data;
    for (int i = 0; i < ENCODE_BATCH; i++)
        e->done += e->global[i] != -1;
    return WEFT_OK;
}

/* ---- cache ------------------------------------------------------------------------------------- */

static weft_status add_sample(encoding *e, weft_tar_writer *tar, int64_t index, const float *latent)
{
    const weft_sample *sample = weft_dataset_at(weft_loader_dataset(e->loader), index);
    weft_buf data = {0};
    char name[700];
    snprintf(name, sizeof name, "%s." WEFT_LATENT_PART, sample->key);
    weft_npy_format(WEFT_F32, 4, e->latent.dim + 1, latent, &data);
    weft_status_code status = weft_buf_check(&data);
    if (status == WEFT_OK)
        status = weft_tar_add(tar, name, data.data, data.len);
    weft_buf_free(&data);
    const weft_part_data *json = weft_sample_part(sample, "json");
    snprintf(name, sizeof name, "%s.json", sample->key);
    if (status == WEFT_OK && json)
        status = weft_tar_add(tar, name, json->data, json->bytes);
    snprintf(name, sizeof name, "%s.txt", sample->key);
    return status == WEFT_OK ? weft_tar_add(tar, name, sample->caption, (int64_t)strlen(sample->caption)) : status;
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
        const float *latents;
        WEFT_GO(encode_next(e, &latents));
        for (int i = 0; i < ENCODE_BATCH && writes; i++) {
            char path[700];
            if (e->global[i] < 0)
                continue;
            snprintf(path, sizeof path, "%s/train-%06lld.tar", folder, (long long)shard);
            if (!tar)
                WEFT_GO(weft_tar_create(path, &tar));
            WEFT_GO(add_sample(e, tar, e->global[i], latents + i * e->latent_count));
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

/* The folder's name: a hash of the VAE's weights, the shards (names, sizes, times of change) and the clips' size. What
 * was made of other ones is in another folder and never read. */
static weft_status cache_key(const weft_run *run, const weft_stage *s, char key[24])
{
    weft_names names = {0};
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    XXH3_64bits_reset(state);
    char text[1200];
    weft_dataset *ds;
    weft_status_code status = weft_dataset_open(run->data.path, run->data.split[0] ? run->data.split : NULL, false, &ds);
    if (status != WEFT_OK)
        goto out;
    snprintf(text, sizeof text, "%016llx|%s|%.9g|%lld %lld %lld", (unsigned long long)weft_dataset_fingerprint(ds), run->data.split,
             run->data.fps, (long long)s->frames, (long long)s->height, (long long)s->width);
    weft_dataset_close(ds);
    XXH3_64bits_update(state, text, strlen(text));
    status = weft_list_dir(run->vae_path, false, &names);
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        weft_map map;
        const char *extension = weft_path_extension(names.name[i]);
        if (strcmp(extension, "safetensors") && strcmp(extension, ".safetensors"))
            continue;
        snprintf(text, sizeof text, "%s/%s", run->vae_path, names.name[i]);
        status = weft_map_open(text, &map);
        if (status != WEFT_OK)
            break;
        XXH3_64bits_update(state, map.data, (size_t)map.bytes);
        weft_map_close(&map);
    }
    snprintf(key, 24, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
out:
    XXH3_freeState(state);
    weft_names_free(&names);
    return status;
}

weft_status weft_latents_ensure(const weft_run *run, const weft_wan_vae_config *vae, const weft_stage *stage,
                                const weft_place_of_run *place, char folder[512])
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
    encoding e = {.run = run, .place = place};
    weft_status_code status = WEFT_OK;
    if (weft_comm_rank(place->comm) == 0)
        WEFT_GO(weft_make_dirs(folder));
    WEFT_GO(open_encoding(&e, vae, stage, NULL));
    WEFT_GO(encode_all(&e, folder));
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

/* ---- statistics -------------------------------------------------------------------------------- */

weft_status weft_latents_measure(const weft_run *run, const weft_wan_vae_config *vae, const weft_stage *stage,
                                 const weft_place_of_run *place, weft_store *store, int64_t samples,
                                 double mean[WEFT_WAN_VAE_MAX_Z], double std[WEFT_WAN_VAE_MAX_Z])
{
    encoding e = {.run = run, .place = place};
    double sum[WEFT_WAN_VAE_MAX_Z] = {0}, squares[WEFT_WAN_VAE_MAX_Z] = {0}, count = 0;
    const int64_t z = vae->z_dim;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_encoding(&e, vae, stage, store));
    while (e.done < samples && e.done < e.samples) {
        const float *latents;
        WEFT_GO(encode_next(&e, &latents));
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
