#include "train/latents/stage_loader.h"

#include "base/log.h"
#include "base/rng.h"
#include "comm/comm_world.h"
#include "prompt/no_text.h"
#include "train/checkpoint/provenance.h"
#include "train/graph/control.h"
#include "train/graph/run_pair.h"
#include "train/latents/grey_latents.h"
#include "train/latents/latent_cache.h"
#include "train/monitor/data_report.h"
#include "train/step/identity_images.h"

#include <stdio.h>

/* Adds the number of samples without sound to the report, and prints it. */
static void report_sound(const weft_train_context *c, const weft_stage_state *s, json_t *report)
{
    const weft_dataset *dataset = weft_loader_dataset(s->loader);
    const int64_t count = weft_dataset_count(dataset);
    int64_t without = 0;
    if (!weft_run_has_sound(&c->models.sound))
        return;
    for (int64_t i = 0; i < count; i++)
        without += weft_sample_part(weft_dataset_at(dataset, i), WEFT_NO_SOUND_PART) != NULL;
    json_object_set_new(report, "without_sound", json_integer(without));
    if (c->is_rank0 && without)
        weft_notice(WEFT_MSG_DATA_REPORT, WEFT_AT(.key = "data", WEFT_NUMBER(without)),
                    "%" PRId64 " of %" PRId64 " samples have no sound; they train the video alone",
                    without, count);
}

weft_status weft_stage_loader_report(const weft_train_context *c, weft_stage_state *s,
                                     const char *title)
{
    char path[600];
    WEFT_TRY(weft_data_report_merge(c->exec.comm, s->loader));
    if (snprintf(path, sizeof path, "%s/data-stage-%" PRId64 ".json", c->run->out, s->index) >=
        (int)sizeof path)
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = c->run->out), "the path is too long");
    json_t *read = NULL, *report = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_data_report_reads(c->exec.comm, s->loader, &read));
    report_sound(c, s, read);
    if (c->is_rank0) {
        weft_comm_set_busy(c->exec.comm, "writing the data report");
        status = weft_data_report_make(s->loader, title, read, &report);
        if (status == WEFT_OK)
            status = weft_json_save(path, report);
        weft_comm_set_busy(c->exec.comm, NULL);
    }
out:
    json_decref(report);
    json_decref(read);
    return status;
}

/* The config of a stage's loader, and its lists by bucket. */
typedef struct loader_setup {
    weft_loader_config config;
    weft_bucket *buckets; /* owned, like all lists */
    weft_item_range *own;
    int64_t *tokens; /* of a sample of each bucket */
    bool *image;
    bool video; /* clips; otherwise cached latents */
} loader_setup;

static void setup_free(loader_setup *u)
{
    weft_free(u->buckets);
    weft_free(u->own);
    weft_free(u->tokens);
    weft_free(u->image);
}

/* Sets the buckets of a loader: their sizes, whether they are images, and this rank's samples. */
static void set_buckets(const weft_run_models *models, const weft_train_stage *train_stage,
                        const weft_stage_programs *programs, bool by_item, loader_setup *u)
{
    for (int i = 0; i < weft_train_stage_bucket_count(train_stage); i++) {
        /* packed rows of all buckets have one program */
        const weft_step *step = programs->bucket[i < programs->buckets ? i : 0];
        weft_bucket *bucket = &u->buckets[i];
        *bucket = *weft_train_stage_bucket(train_stage, i);
        u->image[i] = bucket->frames == 1;
        /* a rank has the same number of samples of each microbatch, stored contiguously */
        u->own[i] = by_item ? (weft_item_range){0, 0}
                            : (weft_item_range){step->local_first * programs->parts,
                                                step->local_count * programs->parts};
        if (u->video)
            continue;
        const weft_model_size latents = weft_run_latent_size(models, bucket);
        bucket->frames = latents.frames;
        bucket->height = latents.height;
        bucket->width = latents.width;
        u->tokens[i] = weft_run_tokens(models, weft_train_stage_bucket(train_stage, i));
    }
}

/* Sets all of the config but the shards of cached latents. */
static weft_status make_setup(const weft_run *run, const weft_run_models *models, int64_t index,
                              const weft_stage_programs *programs, bool by_item, loader_setup *u)
{
    const weft_run_data *d = &run->data;
    const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + index;
    const int count = weft_train_stage_bucket_count(train_stage);
    const bool trained = !weft_run_trains_denoiser(models);
    *u = (loader_setup){.buckets = weft_calloc(count, sizeof *u->buckets),
                        .own = weft_calloc(count, sizeof *u->own),
                        .tokens = weft_calloc(count, sizeof *u->tokens),
                        .image = weft_alloc(count),
                        .video = trained || d->samples_from == WEFT_FROM_PIXELS};
    WEFT_TRY(WEFT_ALLOCATED(u->buckets && u->own && u->tokens && u->image, "%d buckets", count));
    set_buckets(models, train_stage, programs, by_item, u);
    u->config = (weft_loader_config){
        .shards = d->path,
        .split = d->split[0] ? d->split : NULL,
        .sources = d->sources,
        .blend = d->blend,
        .buckets = {count, u->buckets},
        .own = u->own,
        .packing = d->packing,
        .bucket_tokens = u->tokens,
        .clip_seconds = d->clip_seconds,
        .fps = d->fps,
        .threads = d->threads,
        .prefetch = d->prefetch,
        .image = train_stage->images >= 0 ? u->image : NULL,
        .images = train_stage->images,
        .last_images = train_stage->last_images,
        .image_batches =
            train_stage->last_images >= 0 ? train_stage->steps * train_stage->accumulate : 0,
        .random_start = trained && d->random_start,
        .random_crop = trained && d->random_crop,
        .shuffle = u->video ? d->shuffle : 0,
        .caption_dropout = trained ? 0 : run->caption_dropout,
        .verify = d->verify,
        .seed = (int64_t)(weft_seed_mix((uint64_t)run->seed, (uint64_t)index) >> 1)};
    if (!u->video && models->text_precomputed) {
        const int64_t sound = weft_run_sound_floats(&models->sound, train_stage);
        u->config.extra = sound ? WEFT_TEXT_SOUND_PART : WEFT_TEXT_PART;
        u->config.extra_floats = models->text.floats + sound;
    }
    return WEFT_OK;
}

/* Adds the bytes of the exchange between ranks with the same samples. */
static weft_status exchange_bytes(const weft_exec_config *exec, const weft_stage_programs *programs,
                                  const weft_loader_plan *plan, int64_t *bytes)
{
    const int64_t members = weft_mesh_ranks(&exec->mesh) / programs->bucket[0]->local_ranks;
    int64_t more;
    if (members < 2)
        return WEFT_OK;
    WEFT_TRY(weft_batch_share_bytes((int)members, (plan->floats + plan->extra) * 4, &more));
    *bytes += more;
    return WEFT_OK;
}

/* Bytes of the latents of grey frames of all buckets. */
static int64_t grey_bytes(const loader_setup *u, int64_t channels)
{
    int64_t floats = 0;
    for (int i = 0; i < u->config.buckets.count; i++)
        floats += u->buckets[i].frames * u->buckets[i].height * u->buckets[i].width * channels;
    return floats * (int64_t)sizeof(float);
}

/* Bytes of the largest part that steps read from a cache of latents. */
static int64_t latent_part_bytes(const loader_setup *u, const weft_run_models *m)
{
    const weft_model_size one = {1, 1, 1, 1, 0, .image = m->image_tokens};
    int64_t most = 0;
    if (m->image_tokens) {
        const weft_shape tokens = weft_model_shape(&m->denoiser, &one, WEFT_PORT_IMAGE);
        most = weft_shape_count(&tokens);
    }
    for (int i = 0; i < u->config.buckets.count; i++) {
        const weft_bucket *b = &u->buckets[i];
        const int64_t floats = b->frames * b->height * b->width * m->grid.channels;
        most = floats > most ? floats : most;
    }
    return most * (int64_t)sizeof(float);
}

/* Bytes of reading a further data set whose clips are decoded in every step. */
static weft_status clip_bytes(const weft_run *run, const weft_run_models *m,
                              const weft_train_stage *stage, const weft_run_pair *pair,
                              int64_t *bytes)
{
    const int count = weft_train_stage_bucket_count(stage);
    weft_bucket *size;
    WEFT_TRY(WEFT_NEW(size, count, "%d buckets", count));
    for (int i = 0; i < count; i++) {
        size[i] = *weft_train_stage_bucket(stage, i);
        if (pair->kind == WEFT_PAIR_MARKS)
            continue;
        weft_model_size latents = weft_run_latent_size(m, &size[i]);
        latents.frames += m->lead;
        const weft_shape face = weft_model_shape(&m->denoiser, &latents, WEFT_PORT_FACE);
        size[i].frames = face.dim[1];
        size[i].height = face.dim[2];
        size[i].width = face.dim[3];
    }
    const weft_status_code status =
        weft_paired_clips_bytes(run, pair->path, size, count, pair->kind == WEFT_PAIR_MARKS, bytes);
    weft_free(size);
    return status;
}

/* Adds the bytes of reading the further data sets. */
static weft_status pair_bytes(const weft_run *run, const weft_run_models *m,
                              const weft_train_stage *stage, const loader_setup *u, int64_t *bytes)
{
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_pairs_of(run, m, pair);
    for (int i = 0; i < pairs; i++) {
        int64_t own = pair[i].features
                          ? weft_shape_count(&m->identity_features) * (int64_t)sizeof(float)
                          : latent_part_bytes(u, m);
        const int64_t sound =
            pair[i].sound ? weft_run_sound_floats(&m->sound, stage) * (int64_t)sizeof(float) : 0;
        own = sound > own ? sound : own; /* read into the same buffer */
        if (!weft_run_pair_cached(&pair[i]))
            WEFT_TRY(clip_bytes(run, m, stage, &pair[i], &own));
        *bytes += own;
    }
    return WEFT_OK;
}

weft_status weft_stage_loader_bytes(const weft_run *run, const weft_run_models *models,
                                    const weft_exec_config *exec, int64_t index,
                                    const weft_stage_programs *programs, int64_t *bytes)
{
    loader_setup u;
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_setup(run, models, index, programs, false, &u));
    /* every bucket has a range of this rank */
    const weft_loader_plan plan =
        weft_loader_plan_make(&u.config, 0, 1, u.video ? 3 : models->grid.channels);
    *bytes = plan.bytes + (u.video ? plan.clip_bytes : 0);
    if (weft_control_needs_grey(run, models))
        *bytes += grey_bytes(&u, models->grid.channels);
    WEFT_GO(pair_bytes(run, models, (const weft_train_stage *)run->train_stages.item + index, &u,
                       bytes));
    if (run->data.group_reads)
        WEFT_GO(exchange_bytes(exec, programs, &plan, bytes));
out:
    setup_free(&u);
    return status;
}

/* Opens the further data sets. */
static weft_status open_pairs(const weft_train_context *c, weft_stage_state *s,
                              char folder[WEFT_RUN_PAIRS][512])
{
    const int buckets = s->programs.buckets;
    const weft_dataset *first = weft_loader_dataset(s->loader);
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_pairs_of(c->run, &c->models, pair);
    for (int i = 0; i < pairs; i++) {
        if (weft_run_pair_cached(&pair[i])) {
            WEFT_TRY(weft_paired_latents_open(folder[i], &pair[i], first, &s->pair[i]));
            continue;
        }
        WEFT_TRY(weft_paired_clips_open(c->run, &pair[i], &s->clips[i]));
    }
    WEFT_TRY(weft_identity_images_check(pair, s->pair, pairs, first));
    if (!weft_control_needs_grey(c->run, &c->models))
        return WEFT_OK;
    s->grey = weft_calloc(buckets, sizeof *s->grey);
    WEFT_TRY(WEFT_ALLOCATED(s->grey, "%d buckets", buckets));
    for (int i = 0; i < buckets; i++)
        WEFT_TRY(weft_grey_latents_read(&c->models, *folder,
                                        weft_train_stage_bucket(s->train_stage, i), &s->grey[i]));
    return WEFT_OK;
}

/* Reads the text conditioning of a dropped caption: of the empty caption, or of the denoiser's
 * files. */
static weft_status read_no_text(const weft_train_context *c, const char *latents, float **no_text)
{
    const weft_text_conditioning *text = &c->models.text;
    WEFT_TRY(weft_latents_empty_caption(latents, text->floats, no_text));
    for (int r = 0; r < text->encoders; r++) {
        const weft_stored_tensor *table = NULL;
        weft_tensors *file;
        if (!text->encoder[r].stores_no_text)
            continue;
        WEFT_TRY(weft_no_text_open(text, r, c->run->transformer.weights, &file, &table));
        if (file)
            weft_no_text_read(
                text, r, table,
                *no_text + weft_text_conditioning_find(text, text->encoder[r].row->text)->at);
        weft_tensors_close(file);
    }
    return WEFT_OK;
}

static weft_status open_loader(const weft_train_context *c, weft_stage_state *s,
                               const char *latents, char pairs[WEFT_RUN_PAIRS][512], bool by_item)
{
    loader_setup u;
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_setup(c->run, &c->models, s->index, &s->programs, by_item, &u));
    if (!u.video) {
        u.config.shards = latents;
        u.config.split = NULL;
    }
    if (!by_item && c->run->data.group_reads)
        WEFT_GO(weft_batch_share_open(c->exec.comm, &s->programs, &s->share));
    u.config.member = s->share.member;
    u.config.members = s->share.members;
    if (u.config.extra)
        WEFT_GO(read_no_text(c, latents, &s->no_text));
    WEFT_GO(weft_loader_open(&u.config, weft_comm_rank(c->exec.comm), weft_comm_ranks(c->exec.comm),
                             u.video ? NULL : WEFT_LATENT_PART, c->models.grid.channels,
                             &s->loader));
    if (pairs[0][0])
        WEFT_GO(open_pairs(c, s, pairs));
out:
    setup_free(&u);
    return status;
}

weft_status weft_stage_loader_open(weft_train_context *c, weft_stage_state *s, const char *latents,
                                   char pairs[WEFT_RUN_PAIRS][512], bool by_item)
{
    const double fps = c->run->data.fps;
    WEFT_TRY(open_loader(c, s, latents, pairs, by_item));
    c->progress.fps = fps > 0 ? fps : weft_dataset_at(weft_loader_dataset(s->loader), 0)->fps;
    WEFT_TRY(weft_stage_loader_report(c, s, "data"));
    if (weft_run_trains_denoiser(&c->models) && c->is_rank0)
        weft_run_warn_captions(s->loader);
    return WEFT_OK;
}
