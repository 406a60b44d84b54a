#include "train/latents/latent_cache.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/location.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "data/loader_report.h"
#include "data/shard_file.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "format/tensors/npy.h"
#include "latent/vae_chunks.h"
#include "model/key_mapping.h"
#include "prompt/text_tokens.h"
#include "storage/storage_json.h"
#include "train/config/run_model.h"
#include "train/latents/image_features.h"
#include "train/latents/latent_cache_folder.h"
#include "train/latents/sound_latents.h"
#include "train/monitor/data_report.h"
#include "train/step/paired_clips.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum {
    STATISTICS_BATCH = 4,    /* samples of all ranks' programs for latent statistics */
    SHARD_SAMPLES = 1000,    /* maximum samples of a latent shard */
    SHARD_BYTES = 256 << 20, /* maximum bytes of a latent shard */
    SHARD_SECONDS = 60,      /* maximum seconds of a latent shard, the loss after a kill */
};
/* The encoders over one epoch of a data set.
 *
 *   apart false   one program over the run's mesh; every rank gets all latents of a batch
 *   apart true    each rank runs its own programs on its share; nothing is exchanged. One sample
 *                 at a time: the libraries round a row of a product by its position, so the latent
 *                 of a sample in a batch would depend on its neighbours and on the number of ranks
 *   tile.on       (with apart) as temporal chunks and in tiles */
typedef struct encoding {
    const weft_run *run;
    const weft_exec_config *exec; /* execution config of the run */
    weft_exec_config here;        /* execution config of the encoding programs */
    bool apart;
    weft_tile tile;
    int64_t batch; /* samples of a program */
    bool (*skip)(const void *user, const weft_sample *sample);
    const void *skip_user;
    const weft_text_conditioning *text_conditioning; /* NULL: captions are not encoded */
    weft_tokenizer_set tokenizers;
    float *embeddings;             /* (batch, floats) of the last captions */
    const weft_run_models *models; /* of the cache, with sound */
    weft_sound_latents sound;
    weft_image_features image;
    weft_paired_clips *rest; /* clips that follow given frames; NULL: none */
    float *joined;           /* a clip of given frames and `rest` */
    weft_store *store;
    int buckets;
    weft_step *step;        /* VAE steps by bucket */
    weft_program **program; /* their programs, borrowed */
    /* Used with tile.on: VAEs by bucket, the bound one (-1: none), and its output. */
    weft_vae **vae;
    int bound;
    float *made;
    weft_bucket *size;
    weft_step text[WEFT_MAX_TEXT_ENCODERS];
    weft_loader *loader;
    int64_t samples, done;
    /* sample of each item of the last batch; -1: repetition; -2: undecodable */
    int64_t global[STATISTICS_BATCH];
    int bucket;           /* bucket of the last batch */
    weft_shape latent;    /* (B,T',Y',X',Z) of the last batch */
    int64_t latent_count; /* elements of one sample */
} encoding;

/* Encoding into the latent cache. The caller sets `skip`. */
static encoding cache_encoding(const weft_run *run, const weft_run_models *models,
                               const weft_exec_config *exec)
{
    return (encoding){.run = run,
                      .exec = exec,
                      .apart = true,
                      .tile = weft_latent_tile(run),
                      .models = models,
                      .text_conditioning = models->text_precomputed ? &models->text : NULL};
}

/* Encoding for the latent statistics of an autoencoder that the run trained. */
static encoding statistics_encoding(const weft_run *run, const weft_exec_config *exec)
{
    return (encoding){.run = run, .exec = exec};
}

/* ---- plan ---------------------------------------------------------------------------------- */

/* Config of the loader, and its lists by bucket. */
typedef struct encoding_loader {
    weft_loader_config config;
    weft_bucket *size; /* owned, as `own` */
    weft_item_range *own;
    int rank, ranks;
} encoding_loader;

static void encoding_loader_free(encoding_loader *l)
{
    weft_free(l->size);
    weft_free(l->own);
}

/* Batches of the loader. Whole clips: every decoding thread has one, although a batch is a clip. */
static int64_t prefetched_batches(const encoding *e)
{
    const weft_run_data *d = &e->run->data;
    return e->apart && !e->tile.on && d->threads > d->prefetch ? d->threads : d->prefetch;
}

static weft_status make_loader(const encoding *e, encoding_loader *l)
{
    const weft_run_data *d = &e->run->data;
    *l = (encoding_loader){.size = weft_calloc(e->buckets, sizeof *l->size),
                           .own = weft_calloc(e->buckets, sizeof *l->own),
                           .rank = weft_allocation_rank(e->exec),
                           .ranks = weft_mesh_ranks(&e->exec->mesh)};
    WEFT_TRY(WEFT_ALLOCATED(l->size && l->own, "the encoder"));
    for (int i = 0; i < e->buckets; i++) {
        l->size[i] = e->size[i];
        l->size[i].batch = e->apart ? e->batch * l->ranks : e->batch;
        if (!e->apart)
            l->own[i] = (weft_item_range){e->step[i].local_first, e->step[i].local_count};
    }
    l->config = (weft_loader_config){.shards = d->path,
                                     .split = d->split[0] ? d->split : NULL,
                                     .sources = d->sources,
                                     .blend = WEFT_BLEND_ONCE,
                                     .buckets = {e->buckets, l->size},
                                     .own = e->apart ? NULL : l->own,
                                     .clip_seconds = d->clip_seconds,
                                     .fps = d->fps,
                                     .threads = d->threads,
                                     .prefetch = prefetched_batches(e),
                                     .verify = d->verify,
                                     .no_stand_ins = true,
                                     .skip = e->skip,
                                     .skip_user = e->skip_user};
    return WEFT_OK;
}

weft_graph *weft_text_graph(const weft_run *run, const weft_text_conditioning *c, int r,
                            int64_t batch)
{
    weft_graph *g = weft_graph_create();
    weft_dtype dtype = WEFT_F32;
    if (!g)
        return NULL;
    if (weft_weights_dtype(weft_run_text(run, r)->weights, &dtype) == WEFT_OK)
        weft_graph_store_weights_as(g, dtype);
    weft_text_conditioning_build(g, c, r, batch);
    return g;
}

/* Opens the VAE for clips of a bucket's size, in tiles. Reserves no memory. */
static weft_status open_tiled(const encoding *e, const weft_model *model, const weft_bucket *size,
                              weft_vae **vae)
{
    const weft_vae_options o = {.backend = e->exec->backend,
                                .halves = WEFT_VAE_ENCODER,
                                .frames = size->frames,
                                .height = size->height,
                                .width = size->width,
                                .tile = &e->tile,
                                .products =
                                    e->exec->tf32_compute ? WEFT_PRODUCTS_TF32 : WEFT_PRODUCTS_F32};
    return weft_vae_open_model(model, &o, vae);
}

/* (1,T',Y',X',Z) */
static weft_shape latent_shape(const weft_grid *grid, const weft_bucket *size)
{
    return weft_shape_of(5, (int64_t[]){1, weft_grid_latent_frames(grid, size->frames),
                                        size->height / grid->factor[1],
                                        size->width / grid->factor[2], grid->channels});
}

/* Bytes of the largest latent that tiled encoding writes. */
static int64_t made_bytes(const encoding *e)
{
    int64_t most = 0;
    for (int i = 0; i < e->buckets; i++) {
        const weft_shape shape = latent_shape(weft_vae_grid(e->vae[i]), &e->size[i]);
        const int64_t bytes = weft_shape_count(&shape) * (int64_t)sizeof(float);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The execution config of the encoding programs and their batch size; see struct encoding. */
static weft_exec_config encoding_exec(const weft_exec_config *run, bool apart, int64_t *batch)
{
    weft_exec_config here = *run;
    *batch = apart ? 1 : STATISTICS_BATCH;
    if (apart) {
        here.comm = NULL;
        here.rank = 0;
        here.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", 1}}};
    }
    return here;
}

/* The clips that the encoder gets: sections that are videos of their own are a batch. */
static weft_bucket encoded_size(const encoding *e, int bucket)
{
    weft_bucket size = e->size[bucket];
    const weft_grid *grid = e->models ? &e->models->grid : NULL;
    if (!grid || !grid->section)
        return size;
    const int64_t frames = weft_grid_frames(grid, grid->section);
    size.batch *= size.frames / frames;
    size.frames = frames;
    return size;
}

/* Plans the VAE of a bucket: a program, or programs of tiles. */
static weft_status plan_vae(encoding *e, const weft_model *vae, int bucket)
{
    if (e->tile.on)
        return open_tiled(e, vae, &e->size[bucket], &e->vae[bucket]);
    weft_graph *g = weft_graph_create();
    const weft_bucket size = encoded_size(e, bucket);
    if (g)
        weft_encoder_build(g, vae, &size);
    WEFT_TRY(weft_step_plan(g, NULL, &e->here, &e->step[bucket]));
    e->program[bucket] = e->step[bucket].program;
    return WEFT_OK;
}

/* Plans the encoders for the buckets of a training stage. Reserves no memory for them. */
static weft_status plan_encoding(encoding *e, const weft_model *vae, const weft_train_stage *s)
{
    const weft_text_conditioning *text = e->text_conditioning;
    e->buckets = weft_train_stage_bucket_count(s);
    e->here = encoding_exec(e->exec, e->apart, &e->batch);
    e->step = weft_calloc(e->buckets, sizeof *e->step);
    e->program = weft_calloc(e->buckets, sizeof *e->program);
    e->vae = weft_calloc(e->buckets, sizeof *e->vae);
    e->size = weft_calloc(e->buckets, sizeof *e->size);
    WEFT_TRY(WEFT_ALLOCATED(e->step && e->program && e->vae && e->size, "the encoder"));
    for (int i = 0; i < e->buckets; i++) {
        e->size[i] = *weft_train_stage_bucket(s, i);
        e->size[i].batch = e->batch;
        WEFT_TRY(plan_vae(e, vae, i));
    }
    if (e->models)
        WEFT_TRY(weft_sound_latents_plan(e->run, e->models, s, e->here.backend, &e->sound));
    if (e->models)
        WEFT_TRY(weft_image_features_plan(e->run, e->models, e->here.backend, &e->image));
    for (int i = 0; text && i < text->encoders; i++)
        WEFT_TRY(weft_step_plan(weft_text_graph(e->run, text, i, e->batch), NULL, &e->here,
                                &e->text[i]));
    return WEFT_OK;
}

/* Bytes that a planned VAE reserves: its programs, of which one size at a time is bound in
 * tiles, and its weights unless the run's store has them. */
static int64_t vae_bytes(const encoding *e)
{
    int64_t bytes = 0;
    if (!e->tile.on)
        return weft_programs_bytes(e->program, e->buckets) +
               (e->apart ? weft_program_plan(e->program[0])->source_bytes : 0);
    for (int i = 0; i < e->buckets; i++) {
        const int64_t one = weft_vae_bytes(e->vae[i]);
        bytes = one > bytes ? one : bytes;
    }
    return bytes + made_bytes(e);
}

/* Bytes of the largest clip of given frames and others. */
static int64_t joined_bytes(const encoding *e)
{
    int64_t most = 0;
    for (int i = 0; i < e->buckets && e->run->data.rest; i++) {
        const int64_t floats = e->size[i].frames * e->size[i].height * e->size[i].width * 3;
        most = floats > most ? floats : most;
    }
    return most * (int64_t)sizeof(float);
}

static int64_t text_bytes(const encoding *e)
{
    const weft_text_conditioning *c = e->text_conditioning;
    int64_t bytes = c ? e->batch * c->floats * (int64_t)sizeof *e->embeddings : 0;
    for (int i = 0; c && i < c->encoders; i++)
        bytes += weft_program_bytes(e->text[i].program) +
                 weft_program_plan(e->text[i].program)->source_bytes;
    return bytes;
}

static void close_encoding(encoding *e)
{
    weft_loader_close(e->loader);
    for (int i = 0; i < e->buckets && e->step; i++)
        weft_step_free(&e->step[i]);
    for (int i = 0; i < e->buckets && e->vae; i++)
        weft_vae_free(e->vae[i]);
    for (int i = 0; i < WEFT_MAX_TEXT_ENCODERS; i++)
        weft_step_free(&e->text[i]);
    weft_tokenizer_set_close(&e->tokenizers);
    weft_sound_latents_free(&e->sound);
    weft_image_features_free(&e->image);
    weft_paired_clips_close(e->rest);
    weft_free(e->joined);
    weft_free(e->embeddings);
    weft_free(e->made);
    weft_free(e->vae);
    weft_store_free(e->store);
    weft_free(e->step);
    weft_free(e->program);
    weft_free(e->size);
}

weft_status weft_latents_bytes(const weft_run *run, const weft_run_models *models,
                               const weft_train_stage *train_stage, const weft_exec_config *exec,
                               int64_t *bytes)
{
    encoding e = weft_run_trains_denoiser(models) ? cache_encoding(run, models, exec)
                                                  : statistics_encoding(run, exec);
    encoding_loader l = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(plan_encoding(&e, &models->autoencoder, train_stage));
    WEFT_GO(make_loader(&e, &l));
    const weft_loader_plan loader = weft_loader_plan_make(&l.config, l.rank, l.ranks, 3);
    *bytes = vae_bytes(&e) + text_bytes(&e) + weft_sound_latents_bytes(&e.sound) +
             weft_image_features_bytes(&e.image) + joined_bytes(&e) + loader.bytes +
             loader.clip_bytes;
    if (run->data.rest) {
        int64_t read;
        WEFT_GO(weft_paired_clips_bytes(run, run->data.rest, e.size, e.buckets, false, &read));
        *bytes += read;
    }
out:
    encoding_loader_free(&l);
    close_encoding(&e);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------- */

weft_status weft_encoder_load(weft_store *store, const char *scope, const weft_family *family,
                              const weft_graph *g, const char *path)
{
    char prefix[64];
    weft_tensors *file;
    snprintf(prefix, sizeof prefix, "%s.", scope);
    WEFT_TRY(weft_key_mapping_open(family, g, prefix, path, &file));
    /* a run copies the decoder to its model and needs it much later */
    const weft_status_code status = family->role == WEFT_ROLE_AUTOENCODER
                                        ? weft_weights_check_rest(store, prefix, file)
                                        : WEFT_OK;
    if (status != WEFT_OK) {
        weft_tensors_close(file);
        return status;
    }
    return weft_weights_load(store, g, prefix, file, true);
}

static weft_status open_text_encoders(encoding *e, weft_store *store)
{
    const weft_text_conditioning *c = e->text_conditioning;
    for (int i = 0; i < c->encoders; i++) {
        const weft_text_encoder *encoder = &c->encoder[i];
        const weft_run_model *from = weft_run_text(e->run, i);
        char folder[1024];
        WEFT_TRY(weft_encoder_load(store, encoder->row->encoder, encoder->model.family,
                                   e->text[i].whole, from->weights));
        weft_run_connectors_folder(from, folder, sizeof folder);
        if (encoder->connectors.family)
            WEFT_TRY(weft_encoder_load(store, encoder->row->connectors, encoder->connectors.family,
                                       e->text[i].whole, folder));
    }
    WEFT_TRY(WEFT_NEW(e->embeddings, e->batch * c->floats, "embeddings"));
    return weft_tokenizer_set_open(c, &e->tokenizers);
}

/* Binds the text encoders. They have their own memory, so that their results and the VAE's exist at
 * the same time. */
static weft_status bind_text(encoding *e, weft_store *store, weft_group *group)
{
    for (int i = 0; e->text_conditioning && i < e->text_conditioning->encoders; i++) {
        WEFT_TRY(weft_store_init(store, e->text[i].graph, 0));
        WEFT_TRY(weft_program_bind(e->text[i].program, store, group));
    }
    return WEFT_OK;
}

/* Binds the planned encoders. The VAE's programs share an arena. In tiles they are bound on use. */
static weft_status bind_encoders(encoding *e, weft_store *store)
{
    weft_group *group = NULL;
    if (e->here.comm)
        WEFT_TRY(weft_comm_world(e->here.comm, &group));
    if (e->tile.on) {
        e->bound = -1;
        WEFT_TRY(WEFT_ALLOCATED(e->made = weft_alloc(made_bytes(e)), "the encoder"));
        WEFT_TRY(weft_vae_load(e->vae[0], e->run->autoencoder.weights, store));
        return bind_text(e, store, group);
    }
    for (int i = 0; i < e->buckets; i++)
        WEFT_TRY(weft_store_init(store, e->step[i].graph, 0));
    WEFT_TRY(bind_text(e, store, group));
    return weft_programs_bind(e->program, e->buckets, store, group);
}

/* Opens the clips that follow given frames. */
static weft_status open_rest(encoding *e)
{
    const weft_run_pair pair = {e->run->data.rest, "control.background", "", WEFT_PAIR_FRAMES};
    if (!e->run->data.rest)
        return WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(e->joined = weft_alloc(joined_bytes(e)), "a clip"));
    return weft_paired_clips_open(e->run, &pair, &e->rest);
}

static weft_status open_loader(encoding *e)
{
    encoding_loader l;
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_loader(e, &l));
    WEFT_GO(weft_loader_open(&l.config, l.rank, l.ranks, NULL, 0, &e->loader));
    for (int i = 0; i < e->buckets; i++)
        e->samples += weft_loader_bucket_samples(e->loader, i);
out:
    encoding_loader_free(&l);
    return status;
}

/* Opens the encoders. `store` NULL: creates one with the weights that the config names. */
static weft_status open_encoding(encoding *e, const weft_model *vae, const weft_train_stage *s,
                                 weft_store *store)
{
    WEFT_TRY(plan_encoding(e, vae, s));
    if (!store)
        store = e->store = weft_store_create_on(e->exec->backend->device);
    WEFT_TRY(WEFT_ALLOCATED(store, "the encoder"));
    if (e->store)
        weft_store_defer_draws(store);
    WEFT_TRY(bind_encoders(e, store));
    if (e->store && !e->tile.on)
        WEFT_TRY(weft_encoder_load(store, vae->family->scope, vae->family, e->step->whole,
                                   e->run->autoencoder.weights));
    if (e->text_conditioning)
        WEFT_TRY(open_text_encoders(e, store));
    WEFT_TRY(weft_sound_latents_bind(&e->sound, store));
    WEFT_TRY(weft_store_draw_deferred(store, ""));
    WEFT_TRY(open_rest(e));
    return open_loader(e);
}

/* Sets e->global for the last batch: this rank's samples; with a shared program the samples of all
 * ranks, on every rank. */
static weft_status share_samples(encoding *e, const weft_batch *batch)
{
    const int64_t first = e->apart ? 0 : batch->first;
    double values[STATISTICS_BATCH] = {0};
    for (int64_t i = 0; i < batch->count; i++)
        values[first + i] = batch->epoch[i] != 0 ? 0
                            : batch->replaced[i] ? -1
                                                 : (double)(batch->sample[i] + 1);
    const int ranks = weft_comm_ranks(e->exec->comm);
    double alike = 1; /* ranks with the same items */
    if (!e->apart && e->step->local_ranks > 1) {
        WEFT_TRY(weft_comm_sum(e->exec->comm, values, STATISTICS_BATCH));
        alike = (double)ranks / (double)e->step->local_ranks;
    }
    for (int i = 0; i < e->batch; i++)
        e->global[i] = (int64_t)(values[i] / alike) - 1;
    return WEFT_OK;
}

/* Number of samples of the whole batch, over all ranks, that belong to the first epoch. */
static int64_t fresh_samples(const encoding *e, const weft_batch *batch)
{
    const int64_t all = e->apart ? e->batch * weft_comm_ranks(e->exec->comm) : e->batch;
    const int64_t left = weft_loader_bucket_samples(e->loader, batch->bucket) -
                         (batch->sequence_index[0] - batch->first);
    return left < 0 ? 0 : left < all ? left : all;
}

/* Encodes this rank's captions into e->embeddings, packed. `caption` NULL: empty captions. */
static weft_status encode_text(encoding *e, const char *const *caption)
{
    const weft_text_conditioning *c = e->text_conditioning;
    for (int i = 0; i < c->encoders; i++) {
        const weft_step *step = &e->text[i];
        for (int64_t k = 0; k < step->local_count; k++)
            WEFT_TRY(weft_text_conditioning_tokenize(c, &e->tokenizers, i,
                                                     weft_text_conditioning_program_input,
                                                     step->program, k, caption ? caption[k] : ""));
        WEFT_TRY(weft_program_run(step->program));
        weft_text_conditioning_get(c, i, step->program, step->local_count, e->embeddings);
    }
    return WEFT_OK;
}

/* Joins the given frames of a clip and the frames of its partner that follow. *given: frames of
 * *video; grey ones follow. */
static weft_status join_frames(encoding *e, const weft_batch *batch, const float **video,
                               int64_t *given)
{
    const weft_bucket *size = &e->size[batch->bucket];
    const weft_dataset *dataset = weft_loader_dataset(e->loader);
    const weft_sample *own;
    *video = batch->video;
    *given = e->run->data.given_frames ? e->run->data.given_frames : size->frames;
    if (!e->rest || e->global[0] < 0)
        return WEFT_OK;
    WEFT_TRY(weft_paired_clips_check(e->rest, weft_dataset_at(dataset, e->global[0]), size->frames,
                                     &own));
    WEFT_TRY(weft_paired_clips_read(e->rest, batch->id[0], size, e->joined));
    memcpy(e->joined, batch->video,
           (size_t)(*given * size->height * size->width * 3) * sizeof(float));
    *video = e->joined;
    *given = size->frames;
    return WEFT_OK;
}

/* The frames of a clip, with grey frames after the given ones. */
typedef struct clip_frames {
    const float *video;
    int64_t height, width, given;
} clip_frames;

static weft_status_code read_clip(void *user, const int64_t first[3], const int64_t size[3],
                                  float *to)
{
    const clip_frames *c = user;
    for (int64_t t = 0; t < size[0]; t++)
        for (int64_t y = 0; y < size[1]; y++, to += size[2] * 3) {
            const int64_t row = (first[0] + t) * c->height + first[1] + y;
            if (first[0] + t >= c->given)
                memset(to, 0, (size_t)(size[2] * 3) * sizeof *to);
            else
                memcpy(to, c->video + (row * c->width + first[2]) * 3,
                       (size_t)(size[2] * 3) * sizeof *to);
        }
    return WEFT_OK;
}

/* Encodes a batch of one clip in tiles. Skips repetitions and undecodable samples. */
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
    clip_frames clip = {.height = size->height, .width = size->width};
    WEFT_TRY(join_frames(e, batch, &clip.video, &clip.given));
    return weft_vae_encode_boxes(e->vae[b], read_clip, &clip, size->frames, e->made);
}

static weft_status encode_whole(encoding *e, const weft_batch *batch)
{
    const weft_step *step = &e->step[batch->bucket];
    weft_tensor *video = weft_program_input(step->program, "batch.video");
    const int64_t frames = e->size[batch->bucket].frames,
                  floats = weft_shape_count(&video->shape) / frames;
    const float *from;
    int64_t given;
    WEFT_TRY(share_samples(e, batch));
    WEFT_TRY(join_frames(e, batch, &from, &given));
    memcpy(video->data, from, (size_t)(given * floats) * sizeof(float));
    memset((float *)video->data + given * floats, 0,
           (size_t)((frames - given) * floats) * sizeof(float));
    WEFT_TRY(weft_program_run(step->program));
    e->latent = weft_program_output(step->program, "latents")->shape;
    const int64_t sections = e->latent.dim[0] / e->batch; /* of a clip */
    e->latent.dim[0] /= sections;
    e->latent.dim[1] *= sections;
    return WEFT_OK;
}

/* Encodes the next batch. *latents (B,T',Y',X',Z) is valid until another program runs. Without
 * e->apart it is the same on all ranks. *captions (may be NULL): captions of this rank's items,
 * valid until the next batch. */
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
    if (e->apart && e->global[0] >= 0)
        WEFT_TRY(weft_image_features_encode(
            &e->image, weft_loader_dataset(e->loader),
            weft_dataset_at(weft_loader_dataset(e->loader), e->global[0]), batch.video,
            e->size[batch.bucket].height, e->size[batch.bucket].width));
    e->latent_count = weft_shape_count(&e->latent) / e->batch;
    if (e->apart)
        e->done += fresh_samples(e, &batch);
    else
        for (int i = 0; i < e->batch; i++)
            e->done += e->global[i] != -1;
    return WEFT_OK;
}

/* ---- cache --------------------------------------------------------------------------------- */

/* Output of a rank: shards in sequence, with names that do not exist yet. */
typedef struct output {
    weft_comm *comm; /* marked as busy during waits for the storage; NULL: no other ranks */
    const char *folder;
    weft_storage *storage;
    weft_shard_file *shard; /* NULL: no open shard */
    int64_t number, samples;
    double began;
} output;

static weft_status begin_shard(output *o, int rank)
{
    char name[64];
    weft_storage_facts facts;
    do
        snprintf(name, sizeof name, "train-%04d-%06" PRId64 ".tar", rank, o->number++);
    while (weft_storage_facts_of(o->storage, name, &facts) == WEFT_OK);
    o->samples = 0;
    o->began = weft_now();
    return weft_shard_file_create(o->storage, name, &o->shard);
}

static weft_status end_shard(output *o)
{
    weft_comm_set_busy(o->comm, "writing latents");
    const weft_status_code status =
        o->shard ? weft_shard_file_finish(o->shard, NULL, NULL) : WEFT_OK;
    weft_shard_file_free(o->shard);
    o->shard = NULL;
    weft_comm_set_busy(o->comm, NULL);
    return status;
}

static weft_status add_array(weft_shard_file *shard, const char *key, const char *suffix, int rank,
                             const int64_t *dim, const float *values)
{
    weft_buf data = {0};
    weft_npy_format(WEFT_F32, rank, dim, values, &data);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&data));
    WEFT_GO(weft_shard_file_add(shard, key, suffix, data.data, data.len));
out:
    weft_buf_free(&data);
    return status;
}

/* Shape (L,D) for a single embedding, (N) for several entries. */
static int embedding_shape(const weft_text_conditioning *c, int64_t dim[2])
{
    dim[0] = c->entries == 1 ? c->entry->rows : c->floats;
    dim[1] = c->entry->width;
    return c->entries == 1 ? 2 : 1;
}

/* Marks a sample whose encoded sound is none. */
static weft_status mark_silence(const encoding *e, weft_shard_file *shard,
                                const weft_sample *sample)
{
    return e->sound.part[0] > 0
               ? WEFT_OK
               : weft_shard_file_add(shard, sample->key, WEFT_NO_SOUND_PART, "", 0);
}

/* Adds the text conditioning of a sample, and its sound. */
static weft_status add_conditioning(encoding *e, weft_shard_file *shard, const weft_sample *sample,
                                    const float *text)
{
    int64_t dim[2];
    const int rank = embedding_shape(e->text_conditioning, dim);
    if (!e->sound.floats)
        return add_array(shard, sample->key, WEFT_TEXT_PART, rank, dim, text);
    WEFT_TRY(
        weft_sound_latents_encode(&e->sound, weft_loader_dataset(e->loader), sample, e->bucket));
    const int64_t own = e->text_conditioning->floats, all = own + e->sound.floats;
    float *both = weft_alloc(all * (int64_t)sizeof *both);
    WEFT_TRY(WEFT_ALLOCATED(both, "the latents"));
    memcpy(both, text, (size_t)own * sizeof *both);
    memcpy(both + own, e->sound.part, (size_t)e->sound.floats * sizeof *both);
    const weft_status_code status =
        add_array(shard, sample->key, WEFT_TEXT_SOUND_PART, 1, &all, both);
    weft_free(both);
    WEFT_TRY(status);
    return mark_silence(e, shard, sample);
}

/* Adds the sound of a sample, without a caption. */
static weft_status add_sound(encoding *e, weft_shard_file *shard, const weft_sample *sample)
{
    const weft_run_sound *sound = &e->models->sound;
    const int64_t dim[] = {weft_run_sound_latents(sound, e->size[e->bucket].frames),
                           sound->format.features};
    WEFT_TRY(
        weft_sound_latents_encode(&e->sound, weft_loader_dataset(e->loader), sample, e->bucket));
    WEFT_TRY(add_array(shard, sample->key, WEFT_SOUND_PART, 2, dim, e->sound.part + 1));
    return mark_silence(e, shard, sample);
}

/* `text`: text conditioning of the caption; NULL: captions are not encoded. */
static weft_status add_sample(encoding *e, weft_shard_file *shard, int64_t index,
                              const float *latent, const float *text)
{
    const weft_dataset *dataset = weft_loader_dataset(e->loader);
    const weft_sample *sample = weft_dataset_at(dataset, index);
    const weft_part_data *json = weft_sample_part(sample, "json");
    weft_part_bytes bytes = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(add_array(shard, sample->key, WEFT_LATENT_PART, 4, e->latent.dim + 1, latent));
    if (e->image.made.rank)
        WEFT_GO(add_array(shard, sample->key, WEFT_IMAGE_PART, 2, e->image.made.dim + 1,
                          e->image.tokens));
    if (text)
        WEFT_GO(add_conditioning(e, shard, sample, text));
    else if (e->sound.floats)
        WEFT_GO(add_sound(e, shard, sample));
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
    for (int i = 0; i < e->batch; i++) {
        if (e->global[i] < 0)
            continue;
        if (!o->shard)
            WEFT_TRY(begin_shard(o, weft_comm_rank(e->exec->comm)));
        WEFT_TRY(add_sample(e, o->shard, e->global[i], latents + i * e->latent_count,
                            text ? text + i * e->text_conditioning->floats : NULL));
        if (++o->samples >= SHARD_SAMPLES || weft_shard_file_bytes(o->shard) >= SHARD_BYTES ||
            weft_now() - o->began >= SHARD_SECONDS)
            WEFT_TRY(end_shard(o));
    }
    return WEFT_OK;
}

/* Encodes all samples. All ranks encode the same number of batches and synchronise after each
 * batch. A failed or interrupted rank is thus noticed at once. No rank gets so far ahead that its
 * final wait exceeds the communication timeout. After an interrupt, encoded samples are kept. */
static weft_status encode_all(encoding *e, output *o)
{
    weft_progress progress;
    weft_status_code status = WEFT_OK, stop = WEFT_OK;
    weft_progress_begin(&progress, "encode latents", e->samples, 0);
    progress.quiet |= weft_comm_rank(e->exec->comm) != 0;
    while (e->done < e->samples) {
        const float *latents;
        const char *const *captions;
        WEFT_GO(encode_next(e, &latents, &captions));
        if (e->text_conditioning)
            WEFT_GO(encode_text(e, captions));
        WEFT_GO(add_batch(e, o, latents, e->embeddings));
        weft_progress_update(&progress, e->done, NULL);
        stop = weft_comm_interrupt_check(e->exec->comm);
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

#define EMPTY_CAPTION "empty-caption.npy"
#define DATA_REPORT   "data-report.json"

/* `earlier` if the folder has only this file, else `name`. */
static weft_status find_file(const char *folder, const char *name, const char *earlier,
                             const char **found)
{
    bool has;
    *found = name;
    WEFT_TRY(weft_latent_cache_has(folder, name, &has));
    if (has)
        return WEFT_OK;
    WEFT_TRY(weft_latent_cache_has(folder, earlier, &has));
    *found = has ? earlier : name;
    return WEFT_OK;
}

/* Writes the text conditioning of the empty caption, which was encoded last and which caption
 * dropout uses. */
static weft_status write_no_text(encoding *e, const char *folder)
{
    int64_t dim[2];
    weft_buf data = {0};
    const int rank = embedding_shape(e->text_conditioning, dim);
    weft_npy_format(WEFT_F32, rank, dim, e->embeddings, &data);
    return weft_latent_cache_put(folder, EMPTY_CAPTION, &data);
}

weft_status weft_latents_empty_caption(const char *folder, int64_t count, float **embeddings)
{
    const char *name;
    WEFT_TRY(find_file(folder, EMPTY_CAPTION, "no_text.npy", &name));
    return weft_latent_cache_array(folder, name, folder, count, embeddings);
}

/* ---- complete cache ------------------------------------------------------------------------ */

/* Writes what a complete cache has in addition to its shards, on rank 0. */
static weft_status write_complete(encoding *e, const char *folder, weft_storage *storage)
{
    json_t *report = NULL;
    weft_buf text = {0};
    if (e->text_conditioning)
        WEFT_TRY(write_no_text(e, folder));
    WEFT_TRY(weft_data_report_make(e->loader, "latents", NULL, &report));
    const weft_status_code status = weft_storage_json_save(storage, DATA_REPORT, report);
    json_decref(report);
    WEFT_TRY(status);
    const weft_loader_report r = weft_loader_get_report(e->loader);
    weft_buf_printf(&text, "{\"samples\": %" PRId64 "}\n", r.samples[WEFT_SAMPLE_USED]);
    return weft_latent_cache_put(folder, "complete", &text);
}

static weft_status encode_missing(encoding *e, const weft_model *vae,
                                  const weft_train_stage *train_stage, const char *folder,
                                  weft_storage *storage)
{
    output o = {.comm = e->exec->comm, .folder = folder, .storage = storage};
    WEFT_TRY(open_encoding(e, vae, train_stage, NULL));
    const int64_t before = ((const weft_latent_ids *)e->skip_user)->count;
    if (before > 0 && weft_comm_rank(e->exec->comm) == 0)
        weft_notice(WEFT_MSG_DATA_REPORT, WEFT_AT(.key = "latents", WEFT_NUMBER(before)),
                    "%" PRId64 " of %" PRId64 " samples are encoded already", before,
                    before + e->samples);
    WEFT_TRY(encode_all(e, &o));
    if (e->text_conditioning)
        WEFT_TRY(encode_text(e, NULL));
    if (e->text_conditioning)
        weft_text_conditioning_warn_truncation(e->text_conditioning, &e->tokenizers);
    WEFT_TRY(weft_data_report_merge(e->exec->comm, e->loader));
    if (weft_comm_rank(e->exec->comm) != 0)
        return WEFT_OK;
    weft_comm_set_busy(e->exec->comm, "completing the cache of latents");
    const weft_status_code status = write_complete(e, folder, storage);
    weft_comm_set_busy(e->exec->comm, NULL);
    return status;
}

static void print_data_report(const char *folder)
{
    const char *name;
    json_t *report = NULL;
    if (find_file(folder, DATA_REPORT, "account.json", &name) == WEFT_OK &&
        weft_latent_cache_json(folder, name, &report) == WEFT_OK)
        weft_data_report_print(report, "latents");
    else
        weft_warn_error(WEFT_MSG_DATA_REPORT, "the report of encoded samples is not printed");
    json_decref(report);
}

/* Collective. *ready: rank 0 found a complete cache, which is neither locked nor written. */
static weft_status use_finished(const weft_run *run, const weft_exec_config *exec,
                                const char *folder, bool *ready)
{
    const bool leads = weft_comm_rank(exec->comm) == 0;
    bool finished = false;
    int64_t samples = 0;
    if (leads)
        WEFT_TRY(weft_latent_cache_inspect(folder, run->data.verify, &finished, &samples));
    if (leads && !finished)
        WEFT_TRY(weft_latent_cache_check_writable(folder, samples));
    double all = finished;
    WEFT_TRY(weft_comm_sum(exec->comm, &all, 1));
    *ready = all > 0;
    if (leads && finished)
        print_data_report(folder);
    return WEFT_OK;
}

/* Removes what killed runs have left. */
static weft_status repair_cache(const weft_run *run, const weft_exec_config *exec,
                                const char *folder, weft_storage *storage)
{
    weft_comm_set_busy(exec->comm, "verifying the cache of latents");
    weft_status_code status = WEFT_OK;
    if (!weft_location_is_remote(folder))
        WEFT_GO(weft_remove_leftovers(folder, false));
    WEFT_GO(weft_latent_cache_repair(storage, run->data.verify));
out:
    weft_comm_set_busy(exec->comm, NULL);
    return status;
}

weft_status weft_latents_ensure(const weft_run *run, const weft_run_models *models,
                                const weft_train_stage *train_stage, const weft_exec_config *exec,
                                char folder[512])
{
    weft_latent_ids known = {0};
    encoding e = cache_encoding(run, models, exec);
    weft_storage *storage = NULL;
    weft_latent_cache_lock lock = {.file = -1};
    bool ready, whole = false;
    weft_status_code status = WEFT_OK;
    const bool leads = weft_comm_rank(exec->comm) == 0;
    e.skip = weft_latent_ids_have;
    e.skip_user = &known;
    WEFT_TRY(weft_latent_cache_folder(run, models, train_stage, folder));
    WEFT_TRY(use_finished(run, exec, folder, &ready));
    if (ready)
        return WEFT_OK;
    if (leads && !weft_location_is_remote(folder))
        WEFT_GO(weft_make_dirs(folder));
    WEFT_GO(weft_latent_cache_lock_open(run, exec, folder, &lock));
    WEFT_GO(weft_storage_open(folder, &storage));
    if (leads)
        WEFT_GO(repair_cache(run, exec, folder, storage));
    WEFT_GO(weft_comm_barrier(exec->comm));
    WEFT_GO(weft_latent_cache_read(folder, storage, &known));
    /* another run may have completed the cache; rank 0 decides for all */
    if (leads)
        WEFT_GO(weft_latent_cache_is_complete(folder, &known, &whole));
    double complete = whole;
    WEFT_GO(weft_comm_sum(exec->comm, &complete, 1));
    if (complete > 0 && leads)
        print_data_report(folder);
    if (complete <= 0)
        WEFT_GO(encode_missing(&e, &models->autoencoder, train_stage, folder, storage));
    WEFT_GO(weft_comm_barrier(exec->comm));
out:
    close_encoding(&e);
    weft_storage_close(storage);
    weft_free(known.id);
    weft_latent_cache_lock_close(&lock);
    return status;
}

/* ---- statistics ---------------------------------------------------------------------------- */

weft_status weft_latents_measure(const weft_run *run, const weft_model *vae,
                                 const weft_train_stage *train_stage, const weft_exec_config *exec,
                                 weft_store *store, int64_t samples, double mean[WEFT_MAX_CHANNELS],
                                 double std[WEFT_MAX_CHANNELS])
{
    encoding e = statistics_encoding(run, exec);
    double sum[WEFT_MAX_CHANNELS] = {0}, squares[WEFT_MAX_CHANNELS] = {0}, count = 0;
    const int64_t z = weft_model_grid(vae).channels;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_encoding(&e, vae, train_stage, store));
    while (e.done < samples && e.done < e.samples) {
        const float *latents;
        WEFT_GO(weft_comm_interrupt_check(exec->comm));
        WEFT_GO(encode_next(&e, &latents, NULL));
        for (int64_t i = 0; i < e.batch; i++) {
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
