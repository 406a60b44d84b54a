#include "train/latents.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/loader.h"
#include "data/shard_file.h"
#include "format/npy.h"
#include "latent/vae_stream.h"
#include "model/dialect.h"
#include "runtime/weights.h"
#include "train/account.h"
#include "train/latent_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum {
    ENCODE_BATCH = 4,        /* samples in all ranks' programs together, about */
    SHARD_SAMPLES = 1000,    /* a shard of latents ends at so many samples, */
    SHARD_BYTES = 256 << 20, /* bytes, */
    SHARD_SECONDS = 60,      /* or seconds: a kill costs no more */
};
/* The encoders over one epoch of a data set.
 *
 *   apart false   one program over the run's mesh: every rank gets all latents of a batch
 *   apart true    each rank has programs of its own for its share: nothing is exchanged
 *   tile.on       (apart) and takes one clip at a time, as a stream and in tiles */
typedef struct encoding {
    const weft_run *run;
    const weft_place_of_run *place; /* the run's */
    weft_place_of_run here;         /* where the programs run */
    bool apart;
    weft_tile tile;
    int64_t batch; /* of a program */
    bool (*skip)(const void *user, const weft_sample *sample);
    const void *skip_user;
    const weft_captions *captions; /* NULL: they are not encoded */
    weft_spelling spelling;
    float *told; /* (batch, floats) of the last captions */
    weft_store *store;
    int buckets;
    weft_step *step; /* the VAE's, by bucket */
    /* with tile.on instead: by bucket, of which one has memory (-1: none), and what it makes */
    weft_vae **vae;
    int bound;
    float *made;
    weft_bucket *size;
    weft_step text[WEFT_MAX_READERS];
    weft_loader *loader;
    int64_t samples, done;
    int64_t global[ENCODE_BATCH]; /* sample of each item of the program's last batch; -1: a
                                     repetition; -2: one that does not decode */
    int bucket;                   /* of that batch */
    weft_shape latent;            /* (B,T',Y',X',Z) of it */
    int64_t latent_count;         /* elements of one sample */
} encoding;

static weft_status open_loader(encoding *e)
{
    const weft_run_data *d = &e->run->data;
    const int ranks = weft_comm_ranks(e->place->comm);
    weft_bucket *size = weft_alloc(e->buckets * (int64_t)sizeof *size);
    weft_item_range *own = weft_alloc(e->buckets * (int64_t)sizeof *own);
    if (!size || !own) {
        weft_free(size);
        weft_free(own);
        return weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    }
    for (int i = 0; i < e->buckets; i++) {
        size[i] = e->size[i];
        size[i].batch = e->apart ? e->batch * ranks : e->batch;
        if (!e->apart)
            own[i] = (weft_item_range){e->step[i].slice_first, e->step[i].slice_count};
    }
    const weft_loader_config config = {.shards = d->path,
                                       .split = d->split[0] ? d->split : NULL,
                                       .buckets = {e->buckets, size},
                                       .own = e->apart ? NULL : own,
                                       .fps = d->fps,
                                       .threads = d->threads,
                                       .prefetch = d->prefetch,
                                       .verify = d->verify,
                                       .no_stand_ins = true,
                                       .skip = e->skip,
                                       .skip_user = e->skip_user};
    const weft_status_code status =
        weft_loader_open(&config, weft_comm_rank(e->place->comm), ranks, NULL, 0, &e->loader);
    weft_free(size);
    weft_free(own);
    WEFT_TRY(status);
    for (int i = 0; i < e->buckets; i++)
        e->samples += weft_loader_bucket_samples(e->loader, i);
    return WEFT_OK;
}

weft_graph *weft_text_graph(const weft_run *run, const weft_captions *c, int r, int64_t batch)
{
    weft_graph *g = weft_graph_create();
    weft_dtype dtype = WEFT_F32;
    if (!g)
        return NULL;
    if (weft_weights_dtype(weft_run_text(run, r)->weights, &dtype) == WEFT_OK)
        weft_graph_store_weights_as(g, dtype);
    weft_captions_build(g, c, r, batch);
    return g;
}

/* The VAE for clips of a bucket's size, in tiles; nothing is reserved yet. */
static weft_status open_tiled(const weft_model *model, const weft_tile *tile,
                              const weft_bucket *size, weft_vae **vae)
{
    const weft_vae_options o = {.halves = WEFT_VAE_ENCODER,
                                .frames = size->frames,
                                .height = size->height,
                                .width = size->width,
                                .tile = tile};
    return weft_vae_open_model(model, &o, vae);
}

/* (1,T',Y',X',Z) */
static weft_shape latent_shape(const weft_grid *grid, const weft_bucket *size)
{
    return weft_shape_of(5, (int64_t[]){1, weft_grid_latent_frames(grid, size->frames),
                                        size->height / grid->factor[1],
                                        size->width / grid->factor[2], grid->channels});
}

/* Bytes of what tiles make, of the largest size. */
static int64_t made_bytes(const weft_model *vae, const weft_stage *s)
{
    const weft_grid grid = weft_model_grid(vae);
    int64_t most = 0;
    for (int i = 0; i < weft_stage_bucket_count(s); i++) {
        const weft_shape shape = latent_shape(&grid, weft_stage_bucket(s, i));
        const int64_t bytes = weft_shape_count(&shape) * (int64_t)sizeof(float);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static weft_status open_tiles(encoding *e, const weft_model *model, const weft_stage *s,
                              weft_store *store)
{
    e->bound = -1;
    e->vae = weft_alloc(e->buckets * (int64_t)sizeof *e->vae);
    e->made = weft_alloc(made_bytes(model, s));
    if (!e->vae || !e->made)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    for (int i = 0; i < e->buckets; i++)
        WEFT_TRY(open_tiled(model, &e->tile, &e->size[i], &e->vae[i]));
    return weft_vae_load(e->vae[0], e->run->autoencoder.weights, store);
}

static weft_status bind_text(encoding *e, weft_store *store)
{
    for (int i = 0; e->captions && i < e->captions->readers; i++)
        WEFT_TRY(weft_step_make(weft_text_graph(e->run, e->captions, i, e->batch), NULL, &e->here,
                                store, 0, &e->text[i]));
    return WEFT_OK;
}

/* The VAE's programs share their arena; the text encoder has its own, so that both results are
 * there at once. */
static weft_status bind_encoders(encoding *e, const weft_model *vae, weft_store *store)
{
    weft_program **programs = weft_alloc(e->buckets * (int64_t)sizeof *programs);
    weft_group *group = NULL;
    weft_status_code status =
        programs ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    for (int i = 0; i < e->buckets; i++) {
        weft_graph *g = weft_graph_create();
        if (g)
            weft_encoder_build(g, vae, &e->size[i]);
        WEFT_GO(weft_step_plan(g, NULL, &e->here, &e->step[i]));
        WEFT_GO(weft_store_init(store, e->step[i].graph, 0));
        programs[i] = e->step[i].program;
    }
    WEFT_GO(bind_text(e, store));
    if (e->here.comm)
        WEFT_GO(weft_comm_world(e->here.comm, &group));
    WEFT_GO(weft_programs_bind(programs, e->buckets, store, group));
out:
    weft_free(programs);
    return status;
}

/* Where encoding programs run, and samples in each: see struct encoding. */
static weft_place_of_run encoding_place(const weft_place_of_run *run, bool apart, bool tiled,
                                        int64_t *batch)
{
    weft_place_of_run here = *run;
    const int ranks = weft_mesh_ranks(&run->mesh);
    *batch = ENCODE_BATCH;
    if (apart) {
        here.comm = NULL;
        here.rank = 0;
        here.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", 1}}};
        *batch = ranks < ENCODE_BATCH && !tiled ? ENCODE_BATCH / ranks : 1;
    }
    return here;
}

/* Of the VAE in tiles, its weights with it: one size at a time has memory. */
static weft_status tiled_bytes(const weft_model *model, const weft_tile *tile,
                               const weft_stage *stage, int64_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < weft_stage_bucket_count(stage); i++) {
        weft_vae *vae;
        WEFT_TRY(open_tiled(model, tile, weft_stage_bucket(stage, i), &vae));
        const int64_t one = weft_vae_bytes(vae);
        *bytes = one > *bytes ? one : *bytes;
        weft_vae_free(vae);
    }
    *bytes += made_bytes(model, stage);
    return WEFT_OK;
}

weft_status weft_latents_bytes(const weft_run *run, const weft_run_models *models,
                               const weft_stage *stage, const weft_place_of_run *place,
                               int64_t *bytes)
{
    const bool trained = !weft_run_denoises(models); /* its weights are in the store already */
    const int count = weft_stage_bucket_count(stage);
    const weft_tile tile = weft_latent_tile(run);
    int64_t batch;
    const weft_place_of_run here = encoding_place(place, !trained, tile.on, &batch);
    weft_program **programs = weft_alloc(count * (int64_t)sizeof *programs);
    weft_step *steps = weft_alloc((count + WEFT_MAX_READERS) * (int64_t)sizeof *steps);
    weft_status_code status =
        programs && steps ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    int64_t sum = 0, clips = 0;
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        weft_bucket size = *weft_stage_bucket(stage, i);
        const int64_t floats = 3 * size.frames * size.height * size.width;
        size.batch = batch;
        if (tile.on) {
            clips = floats > clips ? floats : clips;
            continue;
        }
        weft_graph *g = weft_graph_create();
        if (g)
            weft_encoder_build(g, &models->autoencoder, &size);
        WEFT_GO(weft_step_plan(g, NULL, &here, &steps[i]));
        programs[i] = steps[i].program;
        clips = floats * steps[i].slice_count > clips ? floats * steps[i].slice_count : clips;
    }
    if (tile.on)
        WEFT_GO(tiled_bytes(&models->autoencoder, &tile, stage, &sum));
    else
        sum = weft_programs_bytes(programs, count);
    sum += (run->data.prefetch + 1) * clips * (int64_t)sizeof(float);
    if (!trained && !tile.on)
        sum += weft_program_plan(programs[0])->source_bytes;
    for (int r = 0; models->text_given && r < models->captions.readers; r++) {
        weft_step *step = &steps[count + r];
        WEFT_GO(
            weft_step_plan(weft_text_graph(run, &models->captions, r, batch), NULL, &here, step));
        sum += weft_program_bytes(step->program) + weft_program_plan(step->program)->source_bytes;
    }
    *bytes = sum;
out:
    for (int i = 0; steps && i < count + WEFT_MAX_READERS; i++)
        weft_step_free(&steps[i]);
    weft_free(steps);
    weft_free(programs);
    return status;
}

weft_status weft_encoder_load(weft_store *store, const char *scope, const weft_family *family,
                              const weft_graph *g, const char *path)
{
    char prefix[64];
    weft_tensors *file;
    snprintf(prefix, sizeof prefix, "%s.", scope);
    WEFT_TRY(weft_dialect_open(family, g, prefix, path, &file));
    return weft_weights_load(store, g, prefix, file, true);
}

static weft_status open_captions(encoding *e, weft_store *store)
{
    const weft_captions *c = e->captions;
    for (int i = 0; i < c->readers; i++)
        WEFT_TRY(weft_encoder_load(store, c->reader[i].reading->encoder, c->reader[i].model.family,
                                   e->text[i].whole, weft_run_text(e->run, i)->weights));
    e->told = weft_alloc(e->batch * c->floats * (int64_t)sizeof *e->told);
    if (!e->told)
        return weft_fail(WEFT_E_MEMORY, "out of memory for embeddings");
    return weft_spelling_open(c, &e->spelling);
}

/* `store` NULL: one of its own with the weights that the config names. */
static weft_status open_encoding(encoding *e, const weft_model *vae, const weft_stage *s,
                                 weft_store *store)
{
    e->buckets = weft_stage_bucket_count(s);
    e->here = encoding_place(e->place, e->apart, e->tile.on, &e->batch);
    e->step = weft_alloc(e->buckets * (int64_t)sizeof *e->step);
    e->size = weft_alloc(e->buckets * (int64_t)sizeof *e->size);
    if (!store)
        store = e->store = weft_store_create();
    if (!e->step || !e->size || !store)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the encoder");
    for (int i = 0; i < e->buckets; i++) {
        e->size[i] = *weft_stage_bucket(s, i);
        e->size[i].batch = e->batch;
    }
    if (e->tile.on) {
        WEFT_TRY(open_tiles(e, vae, s, store));
        WEFT_TRY(bind_text(e, store));
    } else {
        WEFT_TRY(bind_encoders(e, vae, store));
    }
    if (e->store && !e->tile.on)
        WEFT_TRY(weft_encoder_load(store, vae->family->scope, vae->family, e->step->whole,
                                   e->run->autoencoder.weights));
    if (e->captions)
        WEFT_TRY(open_captions(e, store));
    return open_loader(e);
}

static void close_encoding(encoding *e)
{
    weft_loader_close(e->loader);
    for (int i = 0; i < e->buckets && e->step; i++)
        weft_step_free(&e->step[i]);
    for (int i = 0; i < e->buckets && e->vae; i++)
        weft_vae_free(e->vae[i]);
    for (int i = 0; i < WEFT_MAX_READERS; i++)
        weft_step_free(&e->text[i]);
    weft_spelling_close(&e->spelling);
    weft_free(e->told);
    weft_free(e->made);
    weft_free(e->vae);
    weft_store_free(e->store);
    weft_free(e->step);
    weft_free(e->size);
}

/* Which samples the program's batch held: this rank's own, or those of all ranks, known on each. */
static weft_status share_samples(encoding *e, const weft_batch *batch)
{
    const int64_t first = e->apart ? 0 : batch->first;
    double values[ENCODE_BATCH] = {0};
    for (int64_t i = 0; i < batch->count; i++)
        values[first + i] = batch->epoch[i] != 0 ? 0
                            : batch->replaced[i] ? -1
                                                 : (double)(batch->sample[i] + 1);
    const int ranks = weft_comm_ranks(e->place->comm);
    double alike = 1; /* ranks that hold the same items */
    if (!e->apart && e->step->slice_parts > 1) {
        WEFT_TRY(weft_comm_sum(e->place->comm, values, ENCODE_BATCH));
        alike = (double)ranks / (double)e->step->slice_parts;
    }
    for (int i = 0; i < ENCODE_BATCH; i++)
        e->global[i] = (int64_t)(values[i] / alike) - 1;
    return WEFT_OK;
}

/* How many samples of the whole batch, over all ranks, are of the first epoch. */
static int64_t fresh_samples(const encoding *e, const weft_batch *batch)
{
    const int64_t all = e->apart ? e->batch * weft_comm_ranks(e->place->comm) : e->batch;
    const int64_t left =
        weft_loader_bucket_samples(e->loader, batch->bucket) - (batch->place[0] - batch->first);
    return left < 0 ? 0 : left < all ? left : all;
}

/* What is told of this rank's captions, packed, into e->told; NULL captions are empty ones. */
static weft_status encode_text(encoding *e, const char *const *caption)
{
    const weft_captions *c = e->captions;
    for (int i = 0; i < c->readers; i++) {
        const weft_step *step = &e->text[i];
        for (int64_t k = 0; k < step->slice_count; k++)
            WEFT_TRY(weft_captions_spell(c, &e->spelling, i, weft_captions_program_input,
                                         step->program, k, caption ? caption[k] : ""));
        WEFT_TRY(weft_program_run(step->program));
        weft_captions_take(c, i, step->program, step->slice_count, e->told);
    }
    return WEFT_OK;
}

/* A batch of one clip in tiles; nothing is made of a repetition. */
static weft_status encode_tiles(encoding *e, const weft_batch *batch)
{
    const int b = batch->bucket;
    const weft_bucket *size = &e->size[b];
    e->latent = latent_shape(weft_vae_grid(e->vae[b]), size);
    WEFT_TRY(share_samples(e, batch));
    if (e->global[0] < 0)
        return WEFT_OK;
    if (e->bound != b) {
        if (e->bound >= 0)
            weft_vae_unbind(e->vae[e->bound]);
        e->bound = b;
        WEFT_TRY(weft_vae_bind_to(e->vae[b], e->store));
    }
    return weft_vae_encode(e->vae[b], batch->video, size->frames, e->made);
}

static weft_status encode_whole(encoding *e, const weft_batch *batch)
{
    const weft_step *step = &e->step[batch->bucket];
    weft_tensor *video = weft_program_input(step->program, "batch.video");
    memcpy(video->data, batch->video, (size_t)(weft_shape_count(&video->shape) * 4));
    WEFT_TRY(weft_program_run(step->program));
    e->latent = weft_program_output(step->program, "latents")->shape;
    return share_samples(e, batch);
}

/* The next batch through the VAE: *latents (B,T',Y',X',Z) on every rank, until another program
 * runs. `captions` (if not NULL): of this rank's items, until the next batch. */
static weft_status encode_next(encoding *e, const float **latents, const char *const **captions)
{
    weft_batch batch;
    WEFT_TRY(weft_loader_next(e->loader, &batch));
    WEFT_TRY(e->tile.on ? encode_tiles(e, &batch) : encode_whole(e, &batch));
    *latents =
        e->tile.on ? e->made : weft_program_output(e->step[batch.bucket].program, "latents")->data;
    if (captions)
        *captions = batch.caption;
    e->bucket = batch.bucket;
    e->latent_count = weft_shape_count(&e->latent) / e->batch;
    if (e->apart)
        e->done += fresh_samples(e, &batch);
    else
        for (int i = 0; i < ENCODE_BATCH; i++)
            e->done += e->global[i] != -1;
    return WEFT_OK;
}

/* ---- cache --------------------------------------------------------------------------------- */

/* What a rank writes: shards one after the other, none of a name that is there. */
typedef struct output {
    const char *folder;
    weft_storage *storage;
    weft_shard_file *shard; /* NULL: none is begun */
    int64_t number, samples;
    double began;
} output;

static weft_status begin_shard(output *o, int rank)
{
    char name[64];
    weft_storage_facts facts;
    do
        snprintf(name, sizeof name, "train-%04d-%06lld.tar", rank, (long long)o->number++);
    while (weft_storage_facts_of(o->storage, name, &facts) == WEFT_OK);
    o->samples = 0;
    o->began = weft_now();
    return weft_shard_file_create(o->storage, name, &o->shard);
}

static weft_status end_shard(output *o)
{
    const weft_status_code status =
        o->shard ? weft_shard_file_finish(o->shard, NULL, NULL) : WEFT_OK;
    weft_shard_file_free(o->shard);
    o->shard = NULL;
    return status;
}

static weft_status add_array(weft_shard_file *shard, const char *key, const char *suffix, int rank,
                             const int64_t *dim, const float *values)
{
    weft_buf data = {0};
    weft_npy_format(WEFT_F32, rank, dim, values, &data);
    weft_status_code status = weft_buf_check(&data);
    if (status == WEFT_OK)
        status = weft_shard_file_add(shard, key, suffix, data.data, data.len);
    weft_buf_free(&data);
    return status;
}

/* (L,D) of one embedding, (N) of several things that are told. */
static int told_shape(const weft_captions *c, int64_t dim[2])
{
    dim[0] = c->tolds == 1 ? c->told->rows : c->floats;
    dim[1] = c->told->width;
    return c->tolds == 1 ? 2 : 1;
}

/* `text`: what is told of the caption; NULL: captions are not encoded. */
static weft_status add_sample(encoding *e, weft_shard_file *shard, int64_t index,
                              const float *latent, const float *text)
{
    const weft_dataset *dataset = weft_loader_dataset(e->loader);
    const weft_sample *sample = weft_dataset_at(dataset, index);
    const weft_part_data *json = weft_sample_part(sample, "json");
    weft_part_bytes bytes = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(add_array(shard, sample->key, WEFT_LATENT_PART, 4, e->latent.dim + 1, latent));
    if (text) {
        int64_t dim[2];
        const int rank = told_shape(e->captions, dim);
        WEFT_GO(add_array(shard, sample->key, WEFT_TEXT_PART, rank, dim, text));
    }
    if (json) {
        WEFT_GO(weft_dataset_read(dataset, sample, json, true, &bytes));
        WEFT_GO(weft_shard_file_add(shard, sample->key, "json", bytes.data, bytes.bytes));
    }
    WEFT_GO(weft_dataset_caption(dataset, sample, true, &bytes));
    WEFT_GO(weft_shard_file_add(shard, sample->key, "txt", bytes.data, bytes.bytes));
out:
    weft_free(bytes.data);
    return status;
}

static weft_status add_batch(encoding *e, output *o, const float *latents, const float *text)
{
    for (int i = 0; i < ENCODE_BATCH; i++) {
        if (e->global[i] < 0)
            continue;
        if (!o->shard)
            WEFT_TRY(begin_shard(o, weft_comm_rank(e->place->comm)));
        WEFT_TRY(add_sample(e, o->shard, e->global[i], latents + i * e->latent_count,
                            text ? text + i * e->captions->floats : NULL));
        if (++o->samples >= SHARD_SAMPLES || weft_shard_file_bytes(o->shard) >= SHARD_BYTES ||
            weft_now() - o->began >= SHARD_SECONDS)
            WEFT_TRY(end_shard(o));
    }
    return WEFT_OK;
}

/* All ranks take the same number of batches, and wait for one another after each: a rank that fails
 * or is interrupted is known at once, and none runs so far ahead that its wait at the end would be
 * taken for a loss. After an interrupt what was encoded stays. */
static weft_status encode_all(encoding *e, output *o)
{
    weft_progress progress;
    weft_status_code status = WEFT_OK, stop = WEFT_OK;
    weft_progress_begin(&progress, "encode latents", e->samples, 0);
    progress.quiet |= weft_comm_rank(e->place->comm) != 0;
    while (e->done < e->samples) {
        const float *latents;
        const char *const *captions;
        WEFT_GO(encode_next(e, &latents, &captions));
        if (e->captions)
            WEFT_GO(encode_text(e, captions));
        WEFT_GO(add_batch(e, o, latents, e->told));
        weft_progress_update(&progress, e->done, NULL);
        stop = weft_comm_interrupt_check(e->place->comm);
        if (stop != WEFT_OK)
            break;
    }
    if (stop == WEFT_OK || stop == WEFT_E_CANCELLED)
        WEFT_GO(end_shard(o));
    weft_progress_end(&progress, e->done, NULL);
    status = stop;
out:
    weft_shard_file_free(o->shard);
    o->shard = NULL;
    return status;
}

/* What the transformer sees of a caption that is left away, beside the shards. */
static weft_status write_no_text(encoding *e, const char *folder)
{
    char path[560];
    int64_t dim[2];
    weft_buf data = {0};
    WEFT_TRY(encode_text(e, NULL));
    snprintf(path, sizeof path, "%s/no_" WEFT_TEXT_PART, folder);
    const int rank = told_shape(e->captions, dim);
    weft_npy_format(WEFT_F32, rank, dim, e->told, &data);
    weft_status_code status = weft_buf_check(&data);
    if (status == WEFT_OK && weft_comm_rank(e->place->comm) == 0)
        status = weft_file_write_atomic(path, data.data, data.len);
    weft_buf_free(&data);
    return status;
}

weft_status weft_latents_no_text(const char *folder, int64_t count, float **told)
{
    char path[560];
    weft_map map;
    weft_npy npy;
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
    *told = copy;
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static weft_status encode_missing(encoding *e, const weft_model *vae, const weft_stage *stage,
                                  const char *folder, weft_storage *storage)
{
    char path[560], text[64];
    output o = {.folder = folder, .storage = storage};
    WEFT_TRY(open_encoding(e, vae, stage, NULL));
    const int64_t before = ((const weft_latent_ids *)e->skip_user)->count;
    if (before > 0 && weft_comm_rank(e->place->comm) == 0)
        weft_info("latents: %lld of %lld samples are encoded already", (long long)before,
                  (long long)(before + e->samples));
    WEFT_TRY(encode_all(e, &o));
    if (e->captions)
        WEFT_TRY(write_no_text(e, folder));
    if (e->captions)
        weft_captions_warn_cut(e->captions, &e->spelling);
    WEFT_TRY(weft_account_share(e->place->comm, e->loader));
    if (weft_comm_rank(e->place->comm) != 0)
        return WEFT_OK;
    snprintf(path, sizeof path, "%s/account.json", folder);
    WEFT_TRY(weft_account_write(e->loader, "latents", path));
    const weft_loader_report r = weft_loader_get_report(e->loader);
    snprintf(path, sizeof path, "%s/complete", folder);
    snprintf(text, sizeof text, "{\"samples\": %lld}\n", (long long)r.samples[WEFT_SAMPLE_USED]);
    return weft_file_write_atomic(path, text, (int64_t)strlen(text));
}

static void show_account(const char *folder)
{
    char path[540];
    snprintf(path, sizeof path, "%s/account.json", folder);
    if (weft_account_show(path, "latents") != WEFT_OK)
        weft_warn("%s: what was encoded, and what not, cannot be told", weft_error_message());
}

/* Collective. *ready: rank 0 found a finished cache, which is neither locked nor written. */
static weft_status use_finished(const weft_run *run, const weft_place_of_run *place,
                                const char *folder, bool *ready)
{
    const bool leads = weft_comm_rank(place->comm) == 0;
    bool finished = false;
    int64_t samples = 0;
    if (leads)
        WEFT_TRY(weft_latent_cache_look(folder, run->data.verify, &finished, &samples));
    if (leads && !finished)
        WEFT_TRY(weft_latent_cache_check_writable(folder, samples));
    double all = finished;
    WEFT_TRY(weft_comm_sum(place->comm, &all, 1));
    *ready = all > 0;
    if (leads && finished)
        show_account(folder);
    return WEFT_OK;
}

weft_status weft_latents_ensure(const weft_run *run, const weft_run_models *models,
                                const weft_stage *stage, const weft_place_of_run *place,
                                char folder[512])
{
    weft_latent_ids known = {0};
    encoding e = {.run = run,
                  .place = place,
                  .apart = true,
                  .tile = weft_latent_tile(run),
                  .skip = weft_latent_ids_have,
                  .skip_user = &known,
                  .captions = models->text_given ? &models->captions : NULL};
    weft_storage *storage = NULL;
    int lock = -1;
    bool ready;
    weft_status_code status = WEFT_OK;
    const bool leads = weft_comm_rank(place->comm) == 0;
    WEFT_TRY(weft_latent_cache_folder(run, models, stage, folder));
    WEFT_TRY(use_finished(run, place, folder, &ready));
    if (ready)
        return WEFT_OK;
    if (leads)
        WEFT_GO(weft_make_dirs(folder));
    WEFT_GO(weft_latent_cache_lock(place, folder, &lock));
    WEFT_GO(weft_storage_open(folder, &storage));
    if (leads) {
        WEFT_GO(weft_remove_leftovers(folder, false));
        WEFT_GO(weft_latent_cache_repair(storage, run->data.verify));
    }
    WEFT_GO(weft_comm_barrier(place->comm));
    WEFT_GO(weft_latent_cache_read(folder, storage, &known));
    /* another run may have finished it meanwhile; rank 0 decides for all */
    double complete = leads && weft_latent_cache_is_complete(folder, &known);
    WEFT_GO(weft_comm_sum(place->comm, &complete, 1));
    if (complete > 0 && leads)
        show_account(folder);
    if (complete <= 0)
        status = encode_missing(&e, &models->autoencoder, stage, folder, storage);
    if (status == WEFT_OK)
        status = weft_comm_barrier(place->comm);
out:
    close_encoding(&e);
    weft_storage_close(storage);
    weft_free(known.id);
    if (lock >= 0)
        close(lock);
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
        WEFT_GO(weft_comm_interrupt_check(place->comm));
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
