/* One run: models -> (latents) -> stages of { graph, program, loader } -> steps -> checkpoints ->
 * finished model. */
#include "train/trainer.h"

#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "data/loader.h"
#include "model/dialect.h"
#include "runtime/common_clock.h"
#include "runtime/measure.h"
#include "runtime/part.h"
#include "runtime/weights.h"
#include "train/account.h"
#include "train/bulletin.h"
#include "train/cascade_train.h"
#include "train/checkpoint.h"
#include "train/export.h"
#include "train/guard.h"
#include "train/inputs.h"
#include "train/latents.h"
#include "train/layout_price.h"
#include "train/made_of.h"
#include "train/memory_start.h"
#include "train/meter.h"
#include "train/rehearsal.h"
#include "train/run_fit.h"
#include "train/run_lock.h"
#include "train/settle.h"
#include "train/stage_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trainer {
    const weft_run *run; /* `settled`, once that is */
    const char *path;
    weft_run settled;  /* the run with its layout in degrees */
    weft_arena *arena; /* of what that took from files */
    weft_run_models models;
    weft_place_of_run place;
    weft_comm *comm;
    bool leader;         /* rank 0: writes files */
    bool hollow;         /* on a device without values: the run is only rehearsed */
    weft_run_lock *lock; /* the leader's, of run->out */
    weft_store *store;
    weft_timeline timeline; /* of a stage's last step, with `trace` */
    bool traced;            /* that step runs */
    weft_step_cache *steps;
    weft_buf yaml;
    weft_guard guard;
    weft_checkpoint_part part[2 + WEFT_MAX_READERS]; /* what is trained */
    int parts;
    weft_checkpoints *checkpoints;
    json_t *made_of; /* the leader's: stands in each checkpoint */
    /* state of the checkpoint that is being gone on from, until its stage has begun */
    json_t *resume;
    int64_t done; /* steps */
    /* What this rank tells the others with the next of them, and what all told with the last one
     * (train/bulletin.h). NULL: one rank */
    float *bulletin, *news;
    bool interrupted;            /* a rank was before the last of them, which all know */
    weft_pace pace;              /* of the last of them, here */
    double loading;              /* seconds until batches of this one were there */
    weft_stragglers *stragglers; /* the leader's, of a stage; NULL: nobody looks */
    double fps;                  /* of the clips; 0: no stage has run yet */
    bool stopped_together;       /* all ranks left at the same step, with nothing under way */
    double peak_gflops;
    double longest; /* step, in seconds */
    bool told_patience;
    int64_t process; /* bytes of it that were resident before it reserved any */
    int64_t peak;    /* bytes of the run's stage that takes most, without those */
    /* of the stage's steps so far; what its pipeline does is in `stages` */
    weft_away_times moved;
    weft_comm_times sent;
    double stepped; /* seconds */
    /* By stage: what memory.limit has become of what blocks keep; NULL: no limit */
    weft_fates *fates;
    bool *encoded;     /* by stage: its latents are cached already */
    int64_t predicted; /* bytes of this process at its peak; 0: not predicted */
    /* of the stage that runs */
    const weft_stage *stage;
    int64_t stage_index;
    int buckets;
    weft_stage_steps programs;    /* of `steps` */
    weft_cascade_train *cascades; /* steps are iterations of cascades; NULL: they are not */
    weft_pipe *pipe;              /* stages of the mesh; NULL: none */
    weft_pipe_run *stages;        /* runs those of `programs` */
    double *flops;                /* of a run over all ranks, by bucket */
    int *bucket_of;               /* by contribution of a step through stages */
    char latents[512];            /* folder of a denoiser's */
    weft_spelling spelling;       /* of a denoiser's captions that are encoded in the step */
    /* of captions that are left away, packed; NULL: captions are encoded in the step */
    float *no_text;
    weft_loader *loader;
    weft_batch batch; /* that it gave last */
    weft_meter *meter;
} trainer;

/* ---- beginning ----------------------------------------------------------------------------- */

static void add_part(trainer *t, const char *scope, const weft_model *model, bool tuned)
{
    t->part[t->parts++] =
        (weft_checkpoint_part){scope, model->family->stem, weft_model_write(model), tuned};
}

static weft_status read_models(trainer *t)
{
    const weft_run *run = t->run;
    WEFT_TRY(weft_run_models_read(run, t->path, &t->models));
    t->place.recipes = t->models.recipe;
    t->place.recipe_count = t->models.recipes;
    WEFT_TRY(weft_pipe_check_trained(&t->place.mesh, weft_run_denoises(&t->models), t->path));
    if (!weft_run_denoises(&t->models)) {
        add_part(t, t->models.autoencoder.family->scope, &t->models.autoencoder, t->models.tuned);
        if (weft_run_fights(run))
            t->part[t->parts++] =
                (weft_checkpoint_part){WEFT_DISCRIMINATOR_SCOPE, WEFT_DISCRIMINATOR_STEM,
                                       weft_discriminator_write(&t->models.losses.discriminator)};
        return WEFT_OK;
    }
    t->place.trunk = t->models.denoiser.family->scope;
    add_part(t, t->models.denoiser.family->scope, &t->models.denoiser, t->models.tuned);
    const weft_captions *c = &t->models.captions;
    for (int r = 0; r < c->readers; r++)
        if (!(t->models.text_stays >> r & 1))
            add_part(t, c->reader[r].reading->encoder, &c->reader[r].model, false);
    if (weft_run_identifies(&t->models))
        add_part(t, t->models.identity.family->scope, &t->models.identity, false);
    return t->models.text_given ? WEFT_OK : weft_spelling_open(c, &t->spelling);
}

/* What `parallel` leaves to a file or to prices. */
static weft_status settle(trainer *t)
{
    weft_run_models models;
    weft_buf told = {0};
    const weft_parallel *p = &t->run->parallel;
    if (!p->plan[0] && p->context.kind != WEFT_CONTEXT_AUTO && !weft_slices_open(&p->slices))
        return WEFT_OK;
    t->arena = weft_arena_create();
    if (!t->arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    t->settled = *t->run;
    WEFT_TRY(weft_run_models_read(t->run, t->path, &models));
    const weft_status_code status = weft_run_settle(&t->settled, &models, t->path, t->comm,
                                                    weft_comm_ranks(t->comm), t->arena, &told);
    if (status == WEFT_OK && t->leader && told.len)
        weft_info("%s", told.data);
    weft_buf_free(&told);
    t->run = &t->settled;
    return status;
}

static weft_status open_ranks(trainer *t)
{
    const weft_run *run = t->run;
    WEFT_TRY(weft_comm_open_mpi(&t->comm));
    weft_comm_set_deadline(t->comm, run->deadline);
    const int ranks = weft_comm_ranks(t->comm);
    t->leader = weft_comm_rank(t->comm) == 0;
    WEFT_TRY(settle(t));
    run = t->run;
    t->place = weft_place_by(run, NULL);
    WEFT_TRY(weft_cascades_check(&run->cascades, &run->parallel, ranks, t->path));
    WEFT_TRY(weft_parallel_mesh(&run->parallel, ranks, t->path, &t->place.mesh));
    WEFT_TRY(
        weft_pipe_open(&run->parallel, &t->place.mesh, weft_comm_rank(t->comm), t->path, &t->pipe));
    t->place.pipe = t->pipe;
    if (!t->place.backend)
        return weft_fail(WEFT_E_CONFIG, "%s: backend: '%s' is not one of %s", t->path, run->backend,
                         weft_backend_names());
    t->hollow = t->place.backend->device->hollow;
    if (t->hollow && weft_run_cascades(run))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: backend: a rehearsal has no samples to plan iterations of cascades "
                         "for; `weft train --dry-run --ranks N` plans them for N devices of "
                         "parallel.cascades.cluster and starts nothing",
                         t->path);
    t->place.comm = t->comm;
    t->place.profile = run->trace && !t->hollow;
    const weft_run_place away = weft_run_away(run);
    t->place.away = away.dir;
    t->place.away_states = away.states;
    t->place.bulletin = weft_bulletin_floats(run->stragglers.steps ? ranks : 0);
    t->bulletin = weft_alloc(t->place.bulletin * (int64_t)sizeof *t->bulletin);
    t->news = weft_alloc(t->place.bulletin * (int64_t)sizeof *t->news);
    return t->bulletin && t->news
               ? WEFT_OK
               : weft_fail(WEFT_E_MEMORY, "no memory for a bulletin of %d ranks", ranks);
}

/* The run's folder is this run's alone from here on. */
static weft_status take_folder(trainer *t)
{
    enum { PATIENCE = 5 }; /* seconds that the processes of a killed run may take to die */
    WEFT_TRY(weft_run_lock_take(t->run->out, PATIENCE, &t->lock));
    return weft_remove_leftovers(t->run->out, true);
}

/* What a later stage cannot do with the data is said now, not days later. */
static weft_status look_at_data(trainer *t)
{
    uint64_t fingerprint;
    weft_comm_busy(t->comm, "looking at the data");
    weft_status_code status = weft_run_check_data(t->run, &fingerprint);
    if (status == WEFT_OK)
        status = weft_made_of(t->run, &t->models, fingerprint, &t->made_of);
    weft_comm_busy(t->comm, NULL);
    return status;
}

/* The cluster of cascades is read again where they are planned, after the latents are made. */
static weft_status check_cluster(const weft_run *run)
{
    weft_cluster cluster;
    char name[512];
    if (!weft_run_cascades(run))
        return WEFT_OK;
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code status = weft_cascade_cluster(arena, run, &cluster, name);
    weft_arena_free(arena);
    return status;
}

/* What is no error and hardly meant. */
static void tell_oddities(const weft_run *run)
{
    const weft_stage *stage = run->stages.item;
    for (int64_t i = 0; i < run->stages.count; i++)
        if (stage[i].warmup > stage[i].steps)
            weft_warn("stages.%lld: a warmup of %lld steps is longer than the stage, %lld steps: "
                      "the rate rises to its end, and lr is reached in its last step",
                      (long long)i, (long long)stage[i].warmup, (long long)stage[i].steps);
}

static weft_status begin(trainer *t)
{
    WEFT_TRY(weft_run_check(t->run, t->path));
    WEFT_TRY(open_ranks(t));
    WEFT_TRY(read_models(t));
    WEFT_TRY(check_cluster(t->run));
    weft_config_dump(&weft_run_section, t->run, &t->yaml);
    WEFT_TRY(weft_buf_check(&t->yaml));
    if (t->leader)
        tell_oddities(t->run);
    if (t->leader && !t->hollow)
        WEFT_TRY(take_folder(t));
    WEFT_TRY(weft_comm_barrier(t->comm));
    if (!t->hollow)
        WEFT_TRY(weft_run_check_offload(t->run));
    t->guard = weft_guard_make(&t->run->guard);
    t->store = weft_store_create_on(t->place.backend->device);
    int states;
    const char *const *away = weft_step_away_states(&states);
    if (t->store && t->place.away_states)
        weft_store_keep_away(t->store, away, states, t->place.away);
    t->steps = weft_step_cache_create();
    if (!t->store || !t->steps)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    if (!t->hollow)
        WEFT_TRY(weft_comm_measure_peak(t->comm, t->place.backend, 0.1, &t->peak_gflops));
    WEFT_TRY(weft_run_process_bytes(t->place.backend, &t->process));
    return WEFT_OK;
}

/* ---- a stage ------------------------------------------------------------------------------- */

/* What of the data is used, and what not and why, as far as is known: <out>/data-stage-<n>.json has
 * every sample. */
static weft_status tell_data(trainer *t, const char *title)
{
    char path[600];
    WEFT_TRY(weft_account_share(t->comm, t->loader));
    if (snprintf(path, sizeof path, "%s/data-stage-%lld.json", t->run->out,
                 (long long)t->stage_index) >= (int)sizeof path)
        return weft_fail(WEFT_E_ARG, "%s: too long a path", t->run->out);
    return t->leader ? weft_account_write(t->loader, title, path) : WEFT_OK;
}

/* Prompts mean nothing to a model that saw no captions; that shows only after days, so it is said
 * before. */
static void tell_captions(const trainer *t)
{
    const weft_dataset *data = weft_loader_dataset(t->loader);
    const int64_t count = weft_dataset_count(data);
    int64_t without = 0;
    for (int64_t i = 0; i < count; i++)
        without += !weft_dataset_at(data, i)->captioned;
    if (without > 0)
        weft_warn("%lld of %lld samples have no caption%s", (long long)without, (long long)count,
                  without == count ? ": the model will make videos but not follow prompts (weft "
                                     "curate takes captions from .txt or .json "
                                     "files beside the footage)"
                                   : "; they train without text");
}

/* The shards and sizes that a transformer's loader reads: latents, and embeddings of captions that
 * are not trained. */
static weft_status use_latents(trainer *t, weft_loader_config *config, weft_bucket *buckets)
{
    config->shards = t->latents;
    config->split = NULL;
    for (int i = 0; i < t->buckets; i++) {
        const weft_model_size latents = weft_run_latent_size(&t->models, &buckets[i]);
        buckets[i].frames = latents.frames;
        buckets[i].height = latents.height;
        buckets[i].width = latents.width;
    }
    if (!t->models.text_given)
        return WEFT_OK;
    config->extra = WEFT_TEXT_PART;
    config->extra_floats = t->models.captions.floats;
    return weft_latents_no_text(t->latents, t->models.captions.floats, &t->no_text);
}

static weft_status open_loader(trainer *t)
{
    const weft_run_data *d = &t->run->data;
    const bool trained = !weft_run_denoises(&t->models),
               video = trained || d->samples_from == WEFT_FROM_PIXELS;
    weft_bucket *buckets = weft_alloc(t->buckets * (int64_t)sizeof *buckets);
    weft_item_range *own = weft_alloc(t->buckets * (int64_t)sizeof *own);
    bool *image = weft_alloc(t->buckets);
    weft_status_code status = WEFT_OK;
    if (!buckets || !own || !image) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory for %d buckets", t->buckets);
        goto out;
    }
    weft_loader_config config = {.shards = d->path,
                                 .split = d->split[0] ? d->split : NULL,
                                 .buckets = {t->buckets, buckets},
                                 .own = own,
                                 .fps = d->fps,
                                 .threads = d->threads,
                                 .prefetch = d->prefetch,
                                 .image = t->stage->images >= 0 ? image : NULL,
                                 .images = t->stage->images,
                                 .random_start = trained && d->random_start,
                                 .random_crop = trained && d->random_crop,
                                 .shuffle = video ? d->shuffle : 0,
                                 .caption_dropout = trained ? 0 : t->run->caption_dropout,
                                 .verify = d->verify};
    config.seed = (int64_t)(weft_seed_mix((uint64_t)t->run->seed, (uint64_t)t->stage_index) >> 1);
    for (int i = 0; i < t->buckets; i++) {
        const weft_step *step = t->programs.bucket[i];
        buckets[i] = *weft_stage_bucket(t->stage, i);
        image[i] = buckets[i].frames == 1;
        /* microbatches are alike: of each a rank has as many samples, one part behind the other */
        own[i] = (weft_item_range){step->slice_first * t->programs.parts,
                                   step->slice_count * t->programs.parts};
        if (t->cascades) /* whichever rank needs a clip takes it */
            own[i] = (weft_item_range){0, 0};
    }
    if (!video)
        WEFT_GO(use_latents(t, &config, buckets));
    WEFT_GO(weft_loader_open(&config, weft_comm_rank(t->comm), weft_comm_ranks(t->comm),
                             video ? NULL : WEFT_LATENT_PART, t->models.grid.channels, &t->loader));
    t->fps = d->fps > 0 ? d->fps : weft_dataset_at(weft_loader_dataset(t->loader), 0)->fps;
    WEFT_GO(tell_data(t, "data"));
    if (!trained && t->leader)
        tell_captions(t);
out:
    weft_free(own);
    weft_free(image);
    weft_free(buckets);
    return status;
}

static bool in_scope(const weft_tensor *tensor, const char *scope)
{
    const size_t length = strlen(scope);
    return !strncmp(tensor->name, scope, length) && tensor->name[length] == '.';
}

/* The weights of a model that the family begins itself: the parameters in its scope. Where this
 * rank has parts of them, they are made whole in a store of their own and cut. */
static weft_status begin_model(trainer *t, const weft_graph *whole, const char *scope,
                               const weft_model *model)
{
    weft_status_code status = WEFT_OK;
    const bool alone = weft_mesh_ranks(&t->place.mesh) == 1;
    weft_store *store = alone ? t->store : weft_store_create();
    weft_weight *weight = NULL;
    int64_t count = 0, most = 0;
    if (store && !alone)
        WEFT_GO(weft_store_init(store, whole, (uint64_t)t->run->seed));
    most = store ? weft_store_count(store) : 0;
    weight = weft_alloc((most + 1) * (int64_t)sizeof *weight);
    if (!store || !weight) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory for %lld weights", (long long)most);
        goto out;
    }
    for (int64_t i = 0; i < most; i++) {
        const weft_tensor *tensor = weft_store_at(store, i);
        if (in_scope(tensor, scope))
            weight[count++] =
                (weft_weight){tensor->name + strlen(scope) + 1, tensor->shape, tensor->data};
    }
    model->family->begin(model->config, weight, count, (uint64_t)t->run->seed);
    for (int64_t i = 0; i < most && !alone; i++) {
        const weft_tensor *from = weft_store_at(store, i),
                          *to = weft_store_find(t->store, from->name);
        if (!to || !in_scope(from, scope))
            continue;
        const weft_box part = weft_box_of(to), all = weft_box_whole(&from->shape);
        weft_box_copy(&part, to->data, to->dtype, &all, from->data, from->dtype);
    }
out:
    if (!alone)
        weft_store_free(store);
    weft_free(weight);
    return status;
}

static weft_status begin_one(trainer *t, const weft_graph *whole, const char *scope,
                             const weft_model *model, const weft_run_model *from, bool partial)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", scope);
    if (!from->weights[0])
        return model->family->begin ? begin_model(t, whole, scope, model) : WEFT_OK;
    weft_tensors *file;
    WEFT_TRY(weft_dialect_open(model->family, whole, prefix, from->weights, &file));
    return weft_weights_load(t->store, whole, prefix, file, partial);
}

/* The one that is trained; its files know nothing of matrices beside it. */
static weft_status begin_trained(trainer *t, const weft_graph *whole)
{
    const weft_model *model = weft_run_trained(&t->models);
    const weft_run_model *from = weft_run_trained_from(t->run, &t->models);
    weft_graph *base = NULL;
    if (from->lora.rank)
        WEFT_TRY(weft_run_base(&t->models, &base));
    const weft_status_code status =
        begin_one(t, base ? base : whole, model->family->scope, model, from, false);
    weft_graph_free(base);
    return status;
}

/* Files of text encoders have more than the encoder. */
static weft_status begin_weights(trainer *t, const weft_graph *whole)
{
    const weft_run_models *m = &t->models;
    WEFT_TRY(begin_trained(t, whole));
    if (!weft_run_denoises(m))
        WEFT_TRY(weft_loss_nets_begin(t->run, whole, t->store));
    if (weft_run_identifies(m))
        WEFT_TRY(
            begin_one(t, whole, m->identity.family->scope, &m->identity, &t->run->identity, false));
    for (int r = 0; r < m->captions.readers && !m->text_given; r++) {
        const weft_reader *reader = &m->captions.reader[r];
        WEFT_TRY(begin_one(t, whole, reader->reading->encoder, &reader->model,
                           weft_run_text(t->run, r), true));
    }
    return WEFT_OK;
}

static weft_status open_cascades(trainer *t, int64_t index)
{
    const weft_cascade_train_setup setup = {.run = t->run,
                                            .path = t->path,
                                            .models = &t->models,
                                            .place = &t->place,
                                            .store = t->store,
                                            .spelling = &t->spelling,
                                            .stage = index};
    weft_cascade_train_free(t->cascades);
    t->cascades = NULL;
    return weft_cascade_train_open(&setup, &t->cascades);
}

/* What each stage's cascades and their update keep, and the weights. */
static weft_status fill_cascades(trainer *t)
{
    weft_stage_steps s = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < t->run->stages.count && status == WEFT_OK; i++)
        status = open_cascades(t, i);
    if (status == WEFT_OK)
        status = weft_cascade_train_steps(t->cascades, &s);
    if (status == WEFT_OK)
        status = begin_weights(t, s.bucket[0]->whole);
    weft_memory_trim();
    weft_stage_steps_free(&s);
    if (status == WEFT_OK)
        weft_step_begin_averages(t->store);
    return status;
}

static void see_slices(const weft_stage_steps *s, int64_t made[WEFT_MADE])
{
    for (int i = 0; i < s->buckets; i++)
        for (int k = 0; k < WEFT_MADE; k++)
            made[k] += s->bucket[i]->made[k];
}

/* Slices that were asked for, and that no step has anything for: a config goes with other ranks,
 * too. */
static void tell_idle_slices(const trainer *t, const int64_t made[WEFT_MADE])
{
    const weft_model *model =
        weft_run_denoises(&t->models) ? &t->models.denoiser : &t->models.autoencoder;
    weft_slices slices = t->run->parallel.slices;
    slices.given = weft_slices_asked(&slices);
    if (t->leader &&
        weft_slices_check(&slices, made, "parallel.slices.", weft_model_class(model)) != WEFT_OK)
        weft_warn("%s; nothing is done by it", weft_error_message());
}

/* The parameters and states that any stage reaches are in the store from the first step on: a stage
 * of single frames has no gradient for temporal convolutions, but a checkpoint of the next stage
 * has their moments and averages. */
static weft_status fill_store(trainer *t)
{
    const weft_stage *stages = t->run->stages.item;
    int64_t made[WEFT_MADE] = {0};
    weft_stage_steps s = {0};
    weft_status_code status = WEFT_OK;
    if (weft_run_cascades(t->run))
        return fill_cascades(t);
    for (int64_t i = 0; i < t->run->stages.count && status == WEFT_OK; i++) {
        weft_stage_steps_free(&s);
        status = weft_stage_steps_plan(t->steps, t->run, &t->models, &stages[i], &t->place, &s);
        if (status == WEFT_OK)
            status =
                weft_steps_fill(s.bucket, s.count, &t->place, t->store, (uint64_t)t->run->seed);
        if (status == WEFT_OK)
            see_slices(&s, made);
    }
    if (status == WEFT_OK)
        tell_idle_slices(t, made);
    if (status == WEFT_OK && !t->hollow)
        status = begin_weights(t, s.bucket[0]->whole);
    weft_memory_trim();
    weft_stage_steps_free(&s);
    if (status == WEFT_OK && !t->hollow)
        weft_step_begin_averages(t->store);
    return status;
}

/* Another run's is refused for what is other in it, not for the tensors that come of that. */
static weft_status look_at_state(void *user, const json_t *state, const char *folder)
{
    const trainer *t = user;
    const json_t *made_of = json_object_get(state, "made_of");
    return t->leader && json_is_object(made_of)
               ? weft_made_of_compare(made_of, t->made_of, t->run->checkpoint.allow_changes, folder)
               : WEFT_OK;
}

static weft_status open_checkpoints(trainer *t)
{
    weft_checkpoint_spec spec = {.run = t->run->out,
                                 .store = t->store,
                                 .comm = t->comm,
                                 .parts = t->parts,
                                 .config_yaml = t->yaml.data,
                                 .keep = t->run->checkpoint.keep,
                                 .deadline = t->run->deadline,
                                 .look = look_at_state,
                                 .look_user = t};
    memcpy(spec.part, t->part, sizeof t->part);
    return weft_checkpoints_open(&spec, &t->checkpoints);
}

/* With memory.limit: what becomes of what each stage keeps for its backward. */
static weft_status keep_below_limit(trainer *t)
{
    const int64_t stages = t->run->stages.count;
    weft_buf told = {0};
    if (t->run->memory.limit == 0)
        return WEFT_OK;
    t->fates = weft_alloc(stages * (int64_t)sizeof *t->fates);
    if (!t->fates)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld stages", (long long)stages);
    weft_step_cache_free(t->steps); /* what was planned without the limit counts, too */
    t->steps = NULL;
    const weft_status_code status = weft_run_fit_kept(t->run, &t->models, &t->place, t->store,
                                                      t->process, t->hollow, t->fates, &told);
    if (status == WEFT_OK && t->leader && told.len)
        weft_info("%.*s", (int)told.len - 1, told.data);
    weft_buf_free(&told);
    WEFT_TRY(status);
    t->place.stage_fates = t->fates;
    weft_memory_trim();
    t->steps = weft_step_cache_create();
    return t->steps ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
}

/* What the rank that takes most has in `told`, which is freed; what libraries have differs from
 * start to start and is left out of that. */
static weft_status tell_most(const trainer *t, weft_status_code status, weft_buf *told)
{
    if (status == WEFT_OK)
        status = weft_run_memory_most(t->comm, t->peak, told);
    if (status == WEFT_OK && t->leader)
        weft_info("%s", told->data);
    weft_buf_free(told);
    return status;
}

static weft_status tell_memory(trainer *t)
{
    weft_buf told = {0};
    weft_run_bytes peak = {0};
    if (t->leader && t->place.away_states)
        weft_run_warn_states(t->store);
    const weft_status_code status = weft_run_memory(t->run, &t->models, &t->place, t->steps,
                                                    t->store, t->process, &peak, &told);
    t->predicted = weft_run_bytes_sum(peak);
    t->peak = t->predicted - t->process;
    return tell_most(t, status, &told);
}

static weft_status tell_layout(const trainer *t)
{
    weft_buf told = {0};
    weft_stage_steps_layout(&t->programs, t->stage, &t->place, &told);
    const weft_status_code status = weft_buf_check(&told);
    if (status == WEFT_OK && told.len)
        weft_info("layout of %d ranks, slowest axis first\n%.*s", weft_comm_ranks(t->comm),
                  (int)told.len - 1, told.data);
    weft_buf_free(&told);
    return status;
}

static void close_buckets(trainer *t)
{
    weft_pipe_run_free(t->stages);
    t->stages = NULL;
    weft_stage_steps_free(&t->programs);
    weft_free(t->flops);
    weft_free(t->bucket_of);
    weft_free(t->no_text);
    t->flops = NULL;
    t->bucket_of = NULL;
    t->no_text = NULL;
}

/* The leader looks at the pace of all ranks, each of which has its own FLOPs of a step. */
static weft_status watch_pace(trainer *t)
{
    const int ranks = weft_comm_ranks(t->comm);
    weft_stragglers_free(t->stragglers);
    t->stragglers = NULL;
    t->pace = (weft_pace){0};
    /* what a rank works in an iteration of cascades is its plan's */
    if (ranks == 1 || !t->run->stragglers.steps || t->hollow || t->cascades)
        return WEFT_OK;
    double own = 0, *all = weft_alloc(ranks * (int64_t)sizeof *all);
    if (!all)
        return weft_fail(WEFT_E_MEMORY, "no memory for the FLOPs of %d ranks", ranks);
    for (int i = 0; i < t->programs.count; i++)
        own += t->flops[i] * (double)(i < t->programs.buckets ? t->programs.runs : 1);
    weft_status_code status = weft_comm_all_gather(t->comm, &own, sizeof own, all);
    if (status == WEFT_OK && t->leader)
        status = weft_stragglers_create(&t->run->stragglers, ranks, all, &t->stragglers);
    weft_free(all);
    return status;
}

static weft_status open_stage(trainer *t)
{
    close_buckets(t);
    t->buckets = weft_stage_bucket_count(t->stage);
    if (weft_run_cascades(t->run)) {
        WEFT_TRY(open_cascades(t, t->stage_index));
        WEFT_TRY(weft_cascade_train_steps(t->cascades, &t->programs));
    } else {
        WEFT_TRY(
            weft_stage_steps_plan(t->steps, t->run, &t->models, t->stage, &t->place, &t->programs));
    }
    const int count = t->programs.count;
    t->flops = weft_alloc(count * (int64_t)sizeof *t->flops);
    t->bucket_of = weft_alloc((t->programs.runs + 1) * (int64_t)sizeof *t->bucket_of);
    if (!t->flops || !t->bucket_of)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d programs", count);
    for (int i = 0; i < count; i++)
        t->flops[i] = (double)t->programs.bucket[i]->cost.flops;
    WEFT_TRY(watch_pace(t));
    return weft_comm_sum(t->comm, t->flops, count);
}

/* After an interrupt between steps: all ranks know of it, and the last step is in a checkpoint. */
static weft_status stop_encoding(trainer *t, const char *what)
{
    WEFT_TRY(weft_comm_barrier(t->comm));
    t->stopped_together = true;
    if (t->leader)
        weft_info("stopped while %s; the same command goes on from there", what);
    return weft_fail(WEFT_E_CANCELLED, "%s", "");
}

static weft_status bind_stages(trainer *t)
{
    weft_group *world;
    WEFT_TRY(weft_stage_steps_pipe(&t->programs, &t->stages));
    WEFT_TRY(weft_comm_world(t->comm, &world));
    return weft_pipe_run_bind(t->stages, world, &t->place.mesh);
}

/* The encoder and the programs that train are never in memory together. */
static weft_status bind_stage(trainer *t)
{
    if (t->cascades && t->run->data.samples_from == WEFT_FROM_PIXELS)
        return WEFT_OK;
    if (weft_run_denoises(&t->models)) {
        weft_step_cache_unbind(t->steps);
        const weft_status_code status =
            weft_latents_ensure(t->run, &t->models, t->stage, &t->place, t->latents);
        if (status == WEFT_E_CANCELLED)
            return stop_encoding(t, "latents are encoded");
        WEFT_TRY(status);
        weft_memory_trim();
    }
    if (t->cascades)
        return WEFT_OK;
    WEFT_TRY(weft_step_cache_bind(t->steps, t->programs.bucket, t->programs.count, t->store,
                                  (uint64_t)t->run->seed));
    return t->pipe ? bind_stages(t) : WEFT_OK;
}

/* Waits for the one that is being written. */
static int64_t last_checkpoint(trainer *t)
{
    if (weft_checkpoints_wait(t->checkpoints) != WEFT_OK)
        weft_warn("%s", weft_error_message());
    return weft_checkpoints_last(t->checkpoints);
}

static void close_stage(trainer *t)
{
    weft_loader_close(t->loader);
    t->loader = NULL;
}

/* ---- steps --------------------------------------------------------------------------------- */

/* An input of contribution `index` of a step, of bucket `bucket`; NULL: this rank needs no such. */
static weft_tensor *input_of(trainer *t, int64_t index, int bucket, const char *name)
{
    return t->stages ? weft_pipe_run_input(t->stages, index, bucket, name)
                     : weft_program_input(t->programs.bucket[bucket]->program, name);
}

/* Where a contribution's inputs are found by their names. */
typedef struct place_of_inputs {
    trainer *t;
    int64_t index;
    int bucket;
} place_of_inputs;

static weft_tensor *find_input(void *user, const char *name)
{
    const place_of_inputs *p = user;
    return input_of(p->t, p->index, p->bucket, name);
}

/* Items [first, first + count) of a batch, whose parts have `floats` elements. */
static weft_batch part_of(const weft_batch *batch, int64_t first, int64_t count, int64_t floats,
                          int64_t extra)
{
    weft_batch part = *batch;
    part.count = count;
    part.first += first;
    part.id += first;
    part.epoch += first;
    part.replaced += first;
    part.caption += first;
    part.video += batch->video ? first * floats : 0;
    part.part += batch->part ? first * floats : 0;
    part.extra += batch->extra ? first * extra : 0;
    return part;
}

/* The discriminator does in the step that comes. */
static bool takes_part(const trainer *t)
{
    return t->done >= t->run->loss.adversarial.start;
}

/* Contribution `index` of a step into the inputs of its bucket: a part of the batch that was read
 * last, or of the next. */
static weft_status fill_batch(trainer *t, int64_t index, int *bucket)
{
    const int64_t parts = t->programs.parts, at = index % parts;
    if (at == 0) {
        const double began = weft_now();
        WEFT_TRY(weft_loader_next(t->loader, &t->batch));
        t->loading += weft_now() - began;
        if (t->traced)
            WEFT_TRY(
                weft_timeline_add(&t->timeline, WEFT_STREAM_TASK, "wait: data", began, weft_now()));
    }
    const weft_step *step = t->programs.bucket[t->batch.bucket];
    const int64_t count = step->slice_count;
    *bucket = t->batch.bucket;
    if (t->batch.count != count * parts)
        return weft_fail(WEFT_E_INTERNAL,
                         "the loader gave %lld samples, this rank's input takes %lld",
                         (long long)t->batch.count, (long long)(count * parts));
    const bool denoises = weft_run_denoises(&t->models);
    weft_tensor *to = input_of(t, index, *bucket, denoises ? "batch.latents" : "batch.video");
    const int64_t floats = to && count ? weft_shape_count(&to->shape) / count : 0;
    const weft_batch part =
        part_of(&t->batch, at * count, count, floats, t->no_text ? t->models.captions.floats : 0);
    weft_tensor *fights = input_of(t, index, *bucket, "loss.adversarial");
    if (fights)
        *(float *)fights->data = takes_part(t) ? 1 : 0;
    const weft_inputs inputs = {t->run, &t->models, &t->spelling, t->no_text};
    place_of_inputs place = {t, index, *bucket};
    return weft_inputs_fill(&inputs, t->done, &part, find_input, &place);
}

static void set_scalar(const weft_step *step, const char *name, float value)
{
    *(float *)weft_program_input(step->program, name)->data = value;
}

/* What `step` tells by that name, if it does; `share` of the step's mean. */
static void add_figure(const weft_step *step, const char *name, double share, int *n,
                       weft_step_figures *f)
{
    if (*n >= WEFT_METER_EXTRAS || !step->program || !weft_program_output(step->program, name))
        return;
    f->extra_name[*n] = name;
    f->extra[(*n)++] += share * weft_step_scalar(step, name);
}

/* Adds what a batch brings to the figures of its step; `share` of the step's mean loss. */
static void add_figures(const trainer *t, int bucket, double share, weft_step_figures *f)
{
    const weft_step *step = t->programs.bucket[bucket];
    const weft_bucket *size = weft_stage_bucket(t->stage, bucket);
    const int64_t samples = size->batch / t->programs.parts;
    f->samples += samples;
    f->flops += t->flops[bucket];
    if (weft_run_denoises(&t->models))
        f->tokens += samples * weft_run_tokens(&t->models, size);
    static const char *const names[] = {
        "mse",     "kl",      "lpips",  "generator", "discriminator", "adversarial_weight",
        "balance", "fullest", "dropped"};
    int n = 0;
    for (int i = 0; i < WEFT_COUNT(names); i++)
        add_figure(step, names[i], share, &n, f);
}

/* This rank's own bulletin: how its last step went, and whether it was told to stop. */
static void write_bulletin(trainer *t, bool interrupted)
{
    const int64_t at = 1 + weft_comm_rank(t->comm) * (int64_t)(sizeof t->pace / sizeof(float));
    t->bulletin[0] = interrupted;
    if (at < t->place.bulletin)
        memcpy(t->bulletin + at, &t->pace, sizeof t->pace);
}

static weft_status trace_program(trainer *t, const weft_program *program, const char *what,
                                 double began)
{
    WEFT_TRY(weft_timeline_add_program(&t->timeline, program));
    return weft_timeline_add(&t->timeline, WEFT_STREAM_TASK, what, began, weft_now());
}

/* `what` it is: for the trace. */
static weft_status run_program(trainer *t, weft_program *program, const char *what)
{
    const double began = weft_now();
    WEFT_TRY(weft_program_run(program));
    if (t->traced)
        WEFT_TRY(trace_program(t, program, what, began));
    weft_away_times_add(&t->moved, weft_program_away_times(program));
    if (weft_comm_ranks(t->comm) > 1)
        weft_comm_times_add(&t->sent, weft_program_comm_times(program));
    return WEFT_OK;
}

/* Runs a program that trains, which may carry the bulletin on: `from` goes in, t->news comes out.
 */
static weft_status run_with_news(trainer *t, const weft_step *step, const float *from,
                                 const char *what)
{
    const bool carried = weft_step_tell(step, from);
    WEFT_TRY(run_program(t, step->program, what));
    if (carried)
        weft_step_hear(step, t->news);
    else if (from != t->news)
        memcpy(t->news, from, (size_t)t->place.bulletin * sizeof *from);
    return WEFT_OK;
}

/* The program that updates: runs when its gradients are there, and says how the step went.
 * `bulletin`: as far as it was summed. */
static weft_status run_update(trainer *t, const weft_step *step, double lr, const float *bulletin)
{
    float loss_limit, norm_limit;
    weft_guard_limits(&t->guard, &loss_limit, &norm_limit);
    set_scalar(step, "optimizer.lr", (float)lr);
    /* Adam's bias correction counts the updates that took place */
    set_scalar(step, "optimizer.step", (float)(t->guard.accepted + 1));
    set_scalar(step, "optimizer.loss_limit", loss_limit);
    set_scalar(step, "optimizer.norm_limit", norm_limit);
    if (weft_program_input(step->program, "optimizer.discriminator_step")) {
        /* its own updates; those that were skipped before it took part are not told from others */
        const int64_t updates = t->guard.accepted - t->run->loss.adversarial.start;
        set_scalar(step, "optimizer.discriminator_step", (float)(updates > 0 ? updates + 1 : 1));
        set_scalar(step, "optimizer.discriminator_limit", takes_part(t) ? HUGE_VALF : -1);
    }
    WEFT_TRY(run_with_news(t, step, bulletin, step == t->programs.update ? "update" : "step"));
    t->interrupted = t->news[0] > 0;
    return WEFT_OK;
}

/* The contributions of a step's batches one after the other, each with its share in the mean over
 * `all` their elements. */
static weft_status run_in_turn(trainer *t, double all, weft_step_figures *f)
{
    bool interrupted = false;
    for (int64_t i = 0; i < t->programs.runs; i++) {
        int bucket;
        WEFT_TRY(fill_batch(t, i, &bucket));
        const weft_step *step = t->programs.bucket[bucket];
        set_scalar(step, "optimizer.weight", (float)(step->weight / all));
        write_bulletin(t, interrupted || weft_interrupted());
        WEFT_TRY(run_with_news(t, step, t->bulletin, "gradients"));
        interrupted = t->news[0] > 0;
        add_figures(t, bucket, step->weight / all, f);
    }
    return WEFT_OK;
}

/* And through the stages of a pipeline, by its table: all of them are filled before. */
static weft_status run_in_stages(trainer *t, double all, weft_step_figures *f)
{
    for (int64_t i = 0; i < t->programs.runs; i++) {
        int bucket;
        WEFT_TRY(fill_batch(t, i, &bucket));
        const double share = t->programs.bucket[bucket]->weight / all;
        weft_tensor *weight = input_of(t, i, bucket, "optimizer.weight");
        if (weight)
            *(float *)weight->data = (float)share;
        t->bucket_of[i] = bucket;
        add_figures(t, bucket, share, f);
    }
    write_bulletin(t, weft_interrupted());
    WEFT_TRY(weft_pipe_run_step(t->stages, t->bucket_of));
    return run_program(t, t->programs.share->program, "sums over stages");
}

/* The contributions of a step's batches, and then the update. */
static weft_status run_batches(trainer *t, double lr, weft_step_figures *f)
{
    double all = 0;
    int bucket = -1;
    for (int64_t i = 0; i < t->programs.runs; i++) {
        WEFT_TRY(weft_loader_peek(t->loader, i / t->programs.parts, &bucket, NULL, NULL));
        all += t->programs.bucket[bucket]->weight;
    }
    WEFT_TRY(t->stages ? run_in_stages(t, all, f) : run_in_turn(t, all, f));
    f->flops += t->flops[t->programs.count - 1];
    /* of a batch that was cut into parts */
    f->bucket = t->buckets > 1 && t->programs.runs == t->programs.parts ? bucket : -1;
    if (!t->programs.told) /* of what contributions knew, that somebody was told to stop */
        t->bulletin[0] = t->stages ? t->bulletin[0] : t->news[0];
    return run_update(t, t->programs.update, lr, t->programs.told ? t->news : t->bulletin);
}

/* How this step went here goes to all with the next; how the one before went everywhere came with
 * this one. `waited`: at its beginning. */
static void note_pace(trainer *t, double seconds, double waited)
{
    const double waits = weft_comm_waited(t->comm) - waited;
    t->pace = (weft_pace){.kernels = (float)fmax(seconds - waits - t->loading, 0),
                          .waits = (float)waits,
                          .data = (float)t->loading};
    t->loading = 0;
    if (!t->stragglers)
        return;
    weft_buf told = {0};
    const weft_pace *all = (const weft_pace *)(const void *)(t->news + 1);
    if (all[0].kernels > 0) /* a stage's first step has none before it */
        weft_stragglers_note(t->stragglers, all, &told);
    for (char *line = told.data, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        weft_warn("%s", line);
    }
    weft_buf_free(&told);
}

static weft_status run_step(trainer *t)
{
    const double started = weft_now(), waited = weft_comm_waited(t->comm);
    const double lr =
        weft_stage_lr(t->stage, t->done - weft_run_first_step(t->run, t->stage_index));
    weft_step_figures f = {.stage = t->stage->name, .lr = lr};
    const weft_step *last = t->programs.update;
    if (t->cascades) {
        weft_step *update;
        WEFT_TRY(weft_cascade_train_run(t->cascades, t->done, &update, &f));
        write_bulletin(t, weft_interrupted());
        WEFT_TRY(run_update(t, update, lr, t->bulletin));
        WEFT_TRY(weft_cascade_train_note(t->cascades));
    } else if (last) {
        WEFT_TRY(run_batches(t, lr, &f));
    } else {
        int bucket;
        WEFT_TRY(fill_batch(t, 0, &bucket));
        last = t->programs.bucket[bucket];
        write_bulletin(t, weft_interrupted());
        WEFT_TRY(run_update(t, last, lr, t->bulletin));
        add_figures(t, bucket, 1, &f);
        f.bucket = t->buckets > 1 ? bucket : -1;
    }
    int told = 0;
    while (told < WEFT_METER_EXTRAS && f.extra_name[told])
        told++;
    add_figure(last, "discriminator_norm", 1, &told, &f);
    f.step = ++t->done;
    f.loss = weft_step_scalar(last, "loss");
    f.grad_norm = weft_step_scalar(last, "grad_norm");
    f.skipped = !isfinite(weft_step_scalar(last, "grad_scale"));
    const weft_status_code verdict = weft_guard_note(&t->guard, f.loss, f.grad_norm, f.skipped);
    f.skipped_total = t->guard.skipped;
    f.seconds = weft_now() - started;
    note_pace(t, f.seconds, waited);
    t->longest = fmax(t->longest, f.seconds);
    t->stepped += f.seconds;
    if (t->leader)
        WEFT_TRY(weft_meter_note(t->meter, &f));
    return verdict;
}

/* On all ranks; the leader has what stands beside the tensors. */
static weft_status save(trainer *t)
{
    json_t *state = NULL;
    if (t->leader)
        state = json_pack("{s:I, s:o, s:o, s:I, s:I, s:f, s:O}", "step", (json_int_t)t->done,
                          "guard", weft_guard_state(&t->guard), "loader",
                          weft_loader_state(t->loader), "stage", (json_int_t)t->stage_index, "seed",
                          (json_int_t)t->run->seed, "fps", t->fps, "made_of", t->made_of);
    if (t->leader)
        WEFT_TRY(weft_meter_flush(t->meter));
    return weft_checkpoints_save(t->checkpoints, t->done, state);
}

/* After an interrupt: no rank leaves before the checkpoint has its name, because a launcher ends
 * the whole job when one of its processes ends. Only the leader knows how it went, and says it: at
 * once, because leaving the job together may take longer than the launcher waits. */
static weft_status stop_together(trainer *t)
{
    const weft_status_code saved = weft_checkpoints_wait(t->checkpoints);
    char message[1024];
    snprintf(message, sizeof message, "%s", weft_error_message());
    WEFT_TRY(weft_comm_barrier(t->comm));
    t->stopped_together = true;
    if (t->leader && saved != WEFT_OK)
        return weft_fail(saved, "stopped at step %lld: %s", (long long)t->done, message);
    if (t->leader)
        weft_info("stopped at step %lld; the same command goes on from there", (long long)t->done);
    return weft_fail(WEFT_E_CANCELLED, "%s", "");
}

static weft_status numeric_stop(trainer *t, weft_status_code status)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", weft_error_message());
    double last = t->leader ? (double)last_checkpoint(t)
                            : 0; /* only rank 0 writes them; all stop at the same step */
    WEFT_TRY(weft_comm_sum(t->comm, &last, 1));
    if (last < 0)
        return weft_fail(status, "step %lld: %s; there is no checkpoint yet", (long long)t->done,
                         reason);
    return weft_fail(status,
                     "step %lld: %s; the last good checkpoint is %s/checkpoints/step-%08lld",
                     (long long)t->done, reason, t->run->out, (long long)last);
}

/* Opens the timeline of a stage's last step, with the same origin on all ranks. */
static weft_status begin_trace(trainer *t)
{
    WEFT_TRY(weft_timeline_open_together(t->comm, NULL, &t->timeline));
    t->traced = true;
    if (t->stages)
        weft_pipe_run_trace(t->stages, &t->timeline);
    return WEFT_OK;
}

/* Writes the timeline to <out>/trace-<stage>-<rank>.json. */
static weft_status end_trace(trainer *t)
{
    char path[600];
    t->traced = false;
    if (t->stages)
        weft_pipe_run_trace(t->stages, NULL);
    snprintf(path, sizeof path, "%s/trace-%lld-%d.json", t->run->out, (long long)t->stage_index,
             weft_comm_rank(t->comm));
    const weft_status_code status = weft_timeline_write(&t->timeline, path);
    weft_timeline_free(&t->timeline);
    return status;
}

/* After a signal a launcher waits a while and then kills: what a run needs until then is known when
 * its first checkpoint is written. */
static void tell_patience(trainer *t)
{
    const double save = t->checkpoints ? weft_checkpoints_seconds(t->checkpoints) : 0;
    const char *set = getenv("OMPI_MCA_odls_base_sigkill_timeout");
    const double patience = set ? atof(set) : 1; /* seconds: Open MPI's own */
    char text[3][32];
    if (t->told_patience || save <= 0 || !t->leader || weft_comm_ranks(t->comm) == 1)
        return;
    t->told_patience = true;
    if (t->longest + save > patience)
        weft_warn("a step takes %s and writing a checkpoint %s, and mpirun kills ranks %s after it "
                  "was told to end: Ctrl-C would lose what was trained since the last checkpoint. "
                  "Start it as `mpirun --mca odls_base_sigkill_timeout %.0f ...`, or lower "
                  "checkpoint.every",
                  weft_format_seconds(t->longest, text[0]), weft_format_seconds(save, text[1]),
                  weft_format_seconds(patience, text[2]), ceil(2 * (t->longest + save)) + 1);
}

static weft_status run_steps(trainer *t)
{
    const int64_t end = weft_run_first_step(t->run, t->stage_index + 1);
    const int64_t every = t->run->checkpoint.every,
                  total = weft_run_first_step(t->run, t->run->stages.count);
    while (t->done < end) {
        if (t->place.profile && t->done + 1 == end)
            WEFT_TRY(begin_trace(t));
        const weft_status_code status = run_step(t);
        if (status != WEFT_OK)
            return status == WEFT_E_NUMERIC ? numeric_stop(t, status) : status;
        /* of several ranks one that is told from here on says so in the next step */
        const bool stop = weft_comm_ranks(t->comm) == 1 ? weft_interrupted() : t->interrupted;
        /* the next stage's latents may take long: what is trained is kept before */
        const bool border = t->done == end && weft_run_denoises(&t->models);
        const bool due = (every > 0 && t->done % every == 0) || t->done == total || border || stop;
        if (due)
            WEFT_TRY(save(t));
        if (stop && t->cascades)
            WEFT_TRY(weft_cascade_train_end(t->cascades));
        if (stop)
            return stop_together(t);
        tell_patience(t);
    }
    if (t->traced)
        WEFT_TRY(end_trace(t));
    WEFT_TRY(weft_checkpoints_wait(t->checkpoints));
    tell_patience(t);
    return t->cascades ? weft_cascade_train_end(t->cascades) : WEFT_OK;
}

/* ---- resuming ------------------------------------------------------------------------------ */

/* Whoever changes a config in the middle of a run ought to see that it was noticed. */
/* What stands beside the guard in a state, and what it must come to. */
static weft_status read_rest(trainer *t, const json_t *state, const char *where)
{
    int64_t stage, seed;
    WEFT_TRY(weft_json_get_f64_or(state, "fps", where, 0, &t->fps));
    WEFT_TRY(weft_json_get_i64_or(state, "stage", where, 0, &stage));
    WEFT_TRY(weft_json_get_i64_or(state, "seed", where, t->run->seed, &seed));
    if (!(t->fps >= 0 && t->fps <= 1e6))
        return weft_fail(WEFT_E_FORMAT, "%s: fps is %g, which cannot be", where, t->fps);
    if (stage < 0 || seed < 0)
        return weft_fail(WEFT_E_FORMAT, "%s: stage %lld, seed %lld, which cannot be", where,
                         (long long)stage, (long long)seed);
    if (t->guard.accepted + t->guard.skipped != t->done)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: the guard counted %lld steps and %lld that were skipped, and the "
                         "checkpoint is of step %lld",
                         where, (long long)t->guard.accepted, (long long)t->guard.skipped,
                         (long long)t->done);
    const json_t *made_of = json_object_get(state, "made_of");
    if (made_of && !json_is_object(made_of))
        return weft_fail(WEFT_E_FORMAT, "%s: made_of does not say what the run is made of", where);
    return WEFT_OK;
}

/* Before the first stage that runs: the newest checkpoint fills the store. Every rank reads it. */
static weft_status resume(trainer *t)
{
    char folder[512] = "";
    json_t *state;
    WEFT_TRY(open_checkpoints(t));
    WEFT_TRY(weft_checkpoints_load(t->checkpoints, &state, folder));
    if (!state)
        return WEFT_OK;
    t->resume = state;
    WEFT_TRY(weft_json_get_i64(state, "step", folder, &t->done));
    WEFT_TRY(weft_guard_restore(&t->guard, json_object_get(state, "guard"), folder));
    WEFT_TRY(read_rest(t, state, folder));
    if (t->leader) {
        weft_info("going on from %s", folder);
        weft_made_of_log_changes(folder, t->yaml.data);
    }
    WEFT_TRY(weft_comm_barrier(t->comm));
    const int64_t total = weft_run_first_step(t->run, t->run->stages.count);
    if (t->leader && t->done >= total)
        weft_info("all %lld steps are done (the checkpoint is of step %lld); more stages.N.steps "
                  "go on",
                  (long long)total, (long long)t->done);
    return WEFT_OK;
}

/* Bytes of the stage's programs, and of the records of a pipeline's stages. */
static int64_t reserved(const trainer *t)
{
    return weft_step_cache_bytes(t->steps) + (t->stages ? weft_pipe_run_bytes(t->stages) : 0);
}

static weft_status tell_stage(const trainer *t)
{
    char memory[32], weights[32];
    weft_buf told = {0}, sizes = {0};
    for (int i = 0; i < t->buckets; i++) {
        const weft_bucket *b = weft_stage_bucket(t->stage, i);
        weft_buf_printf(&sizes, "%s%lld x %lldx%lldx%lld, %.2f GFLOP a step", i ? "; or " : "",
                        (long long)b->batch, (long long)b->frames, (long long)b->height,
                        (long long)b->width, 1e-9 * t->flops[i]);
    }
    weft_buf_printf(&told,
                    "stage %lld%s%s: %lld steps of %s, program %s, weights and optimizer %s%s",
                    (long long)t->stage_index, t->stage->name[0] ? " " : "", t->stage->name,
                    (long long)t->stage->steps, sizes.data ? sizes.data : "",
                    weft_format_bytes(reserved(t), memory),
                    weft_format_bytes(weft_store_bytes(t->store), weights),
                    weft_comm_ranks(t->comm) > 1 ? " per rank" : "");
    weft_buf_free(&sizes);
    return tell_most(t, weft_buf_check(&told), &told);
}

/* What went to other ranks, or elsewhere and back, in the stage's steps, and how much of it nobody
 * waited for. */
static void tell_moved(const trainer *t)
{
    weft_away_times m = t->moved;
    weft_comm_times c = t->sent;
    char text[2][32];
    if (t->stages) {
        const weft_pipe_times p = weft_pipe_run_times(t->stages);
        weft_comm_times_add(&c, p.inside);
        weft_away_times_add(&m, p.moved);
        weft_info("stage %lld: this rank sent %s to other stages of the pipeline, and waited for "
                  "those %.0f %% of the time",
                  (long long)t->stage_index, weft_format_bytes(p.sent, text[0]),
                  100 * p.waited / fmax(t->stepped, 1e-9));
    }
    if (c.busy > 0)
        weft_info("stage %lld: this rank sent %s%s; of the %.3g s that its exchanges took %.0f %% "
                  "were hidden behind the kernels",
                  (long long)t->stage_index, weft_format_bytes(c.wire_bytes, text[0]),
                  t->stages ? " to others" : "", c.busy, 100 * fmax(0, 1 - c.exposed / c.busy));
    if (m.busy > 0)
        weft_info(
            "stage %lld: %s were moved away and %s back; of the %.3g s that this took %.0f %% "
            "were hidden behind the kernels",
            (long long)t->stage_index, weft_format_bytes(m.out, text[0]),
            weft_format_bytes(m.back, text[1]), m.busy, 100 * fmax(0, 1 - m.exposed / m.busy));
}

/* Where the checkpoint's loader stood; in other data, which is allowed then, at their beginning. */
static weft_status restore_loader(trainer *t)
{
    const weft_status_code status =
        weft_loader_restore(t->loader, json_object_get(t->resume, "loader"), "state.json");
    if (status != WEFT_E_CONFIG || !t->run->checkpoint.allow_changes)
        return status;
    if (t->leader)
        weft_warn("the samples of this stage begin anew: they are not those of the checkpoint");
    return WEFT_OK;
}

static weft_status run_stage(trainer *t, int64_t index)
{
    t->stage_index = index;
    t->stage = (const weft_stage *)t->run->stages.item + index;
    const bool first = weft_store_count(t->store) == 0;
    if (first)
        WEFT_TRY(fill_store(t));
    if (first)
        WEFT_TRY(weft_run_find_encoded(t->run, &t->models, t->comm, &t->encoded));
    t->place.encoded = t->encoded;
    if (first)
        WEFT_TRY(keep_below_limit(t));
    WEFT_TRY(open_stage(t));
    if (first && !t->cascades)
        WEFT_TRY(tell_memory(t));
    if (first && t->leader && !t->cascades)
        WEFT_TRY(tell_layout(t));
    if (first && t->leader)
        WEFT_TRY(look_at_data(t));
    if (first)
        WEFT_TRY(resume(t));
    const int64_t end = weft_run_first_step(t->run, index + 1);
    if (t->done >= end)
        return WEFT_OK;
    WEFT_TRY(bind_stage(t));
    WEFT_TRY(tell_stage(t));
    WEFT_TRY(open_loader(t));
    if (t->resume && t->done > weft_run_first_step(t->run, index))
        WEFT_TRY(restore_loader(t));
    json_decref(t->resume);
    t->resume = NULL;
    if (t->leader && !t->meter)
        WEFT_TRY(weft_meter_open(t->run->out, t->done,
                                 weft_run_first_step(t->run, t->run->stages.count),
                                 t->run->log_every, t->peak_gflops, &t->meter));
    t->moved = (weft_away_times){0};
    t->sent = (weft_comm_times){0};
    t->stepped = 0;
    if (t->cascades)
        WEFT_TRY(weft_cascade_train_begin(t->cascades, t->loader, t->no_text, t->done));
    WEFT_TRY(run_steps(t));
    if (t->leader)
        weft_captions_warn_cut(&t->models.captions, &t->spelling);
    if (t->leader)
        tell_moved(t);
    return tell_data(t, "data at the end of the stage");
}

/* ---- rehearsal ----------------------------------------------------------------------------- */

/* The step's programs, as run_step calls them, on whatever their inputs hold. */
static weft_status rehearse_step(trainer *t, int64_t step, weft_rehearsal *r)
{
    const weft_stage_steps *s = &t->programs;
    const double started = weft_now();
    for (int64_t i = 0; i < s->runs; i++) {
        t->bucket_of[i] = (int)((step * s->runs + i) % s->buckets);
        if (!t->stages)
            WEFT_TRY(weft_rehearsal_run(r, s->bucket[t->bucket_of[i]]));
    }
    if (t->stages)
        WEFT_TRY(weft_rehearsal_run_stages(r, t->stages, s->bucket, t->bucket_of, s->runs));
    for (int i = s->buckets; i < s->count; i++)
        WEFT_TRY(weft_rehearsal_run(r, s->bucket[i]));
    r->executed += weft_now() - started;
    r->steps++;
    return WEFT_OK;
}

static weft_status rehearse_stage(trainer *t, int64_t index)
{
    t->stage_index = index;
    t->stage = (const weft_stage *)t->run->stages.item + index;
    WEFT_TRY(open_stage(t));
    WEFT_TRY(weft_step_cache_bind(t->steps, t->programs.bucket, t->programs.count, t->store,
                                  (uint64_t)t->run->seed));
    if (t->pipe)
        WEFT_TRY(bind_stages(t));
    WEFT_TRY(tell_stage(t));
    weft_rehearsal r = {0};
    const int64_t few = WEFT_REHEARSED > t->programs.buckets ? WEFT_REHEARSED : t->programs.buckets,
                  steps = t->stage->steps < few ? t->stage->steps : few;
    for (int64_t i = 0; i < steps && !weft_interrupted(); i++)
        WEFT_TRY(rehearse_step(t, i, &r));
    WEFT_TRY(weft_comm_barrier(t->comm));
    if (t->leader)
        weft_rehearsal_tell(&r, index, reserved(t) + weft_store_bytes(t->store));
    return WEFT_OK;
}

/* Some steps of every stage where nothing has a value: what they take and how long is said, and
 * nothing is read or written. */
static weft_status rehearse(trainer *t)
{
    weft_status_code status = fill_store(t);
    if (status == WEFT_OK)
        status = keep_below_limit(t);
    if (status == WEFT_OK && t->leader)
        weft_info("backend %s: a rehearsal of at most %d steps a stage (one of each bucket). "
                  "Nothing is computed, so there are no losses, and no data is read; no "
                  "checkpoints, metrics or models are written",
                  t->place.backend->name, WEFT_REHEARSED);
    if (status == WEFT_OK)
        status = tell_memory(t);
    for (int64_t i = 0; i < t->run->stages.count && status == WEFT_OK; i++)
        status = rehearse_stage(t, i);
    return status;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Of a run whose stages were all done before it was started: as the first clip has it. */
static weft_status find_fps(trainer *t)
{
    const weft_run_data *d = &t->run->data;
    weft_dataset *data;
    if (t->fps <= 0)
        t->fps = d->fps;
    if (t->fps > 0)
        return WEFT_OK;
    WEFT_TRY(weft_dataset_open(d->path, d->split[0] ? d->split : NULL, false, &data));
    if (weft_dataset_count(data) > 0)
        t->fps = weft_dataset_at(data, 0)->fps;
    weft_dataset_close(data);
    return WEFT_OK;
}

static weft_status finish(trainer *t)
{
    if (t->leader && t->predicted)
        weft_run_tell_peak(t->predicted);
    WEFT_TRY(find_fps(t));
    weft_step_cache_unbind(t->steps);
    if (t->cascades)
        weft_program_unbind(t->programs.update->program);
    if (t->run->optimizer.ema_decay > 0) /* from here on the weights are their averages */
        WEFT_TRY(weft_step_end_averages(
            t->programs.update ? t->programs.update : t->programs.bucket[0], &t->place, t->store));
    weft_export e = {.run = t->run,
                     .models = &t->models,
                     .comm = t->comm,
                     .store = t->store,
                     .graph = t->programs.bucket[0]->whole,
                     .part = t->part,
                     .parts = t->parts,
                     .size = weft_stage_bucket(t->stage, weft_stage_largest(t->stage)),
                     .fps = t->fps};
    if (!weft_run_denoises(&t->models)) {
        weft_model *model = &t->models.autoencoder;
        weft_grid *grid = &t->models.grid;
        const weft_status_code measured = weft_latents_measure(
            t->run, model, t->stage, &t->place, t->store, 256, grid->mean, grid->deviation);
        if (measured == WEFT_E_CANCELLED)
            return stop_encoding(t, "latents are measured");
        WEFT_TRY(measured);
        grid->own_frames = 0;
        weft_model_set_statistics(model, grid);
        json_decref(t->part[0].config);
        t->part[0].config = weft_model_write(model);
    }
    weft_comm_busy(t->comm, "writing the finished model");
    const weft_status_code status = weft_export_write(&e);
    weft_comm_busy(t->comm, NULL);
    WEFT_TRY(status);
    WEFT_TRY(weft_comm_barrier(t->comm));
    if (t->leader)
        weft_export_print(&e);
    return WEFT_OK;
}

weft_status weft_train(const weft_run *run, const char *path)
{
    trainer t = {.run = run, .path = path};
    weft_status_code status = begin(&t);
    if (status == WEFT_OK && t.hollow)
        status = rehearse(&t);
    for (int64_t i = 0; i < run->stages.count && status == WEFT_OK && !t.hollow; i++) {
        close_stage(&t);
        status = run_stage(&t, i);
    }
    const weft_status_code closed = weft_meter_close(t.meter);
    if (status == WEFT_OK)
        status = closed;
    if (status == WEFT_OK && !t.hollow)
        status = finish(&t);
    close_stage(&t);
    weft_checkpoints_close(t.checkpoints, status != WEFT_OK);
    for (int i = 0; i < t.parts; i++)
        json_decref(t.part[i].config);
    json_decref(t.resume);
    json_decref(t.made_of);
    weft_timeline_free(&t.timeline);
    weft_buf_free(&t.yaml);
    close_buckets(&t);
    weft_cascade_train_free(t.cascades);
    weft_step_cache_free(t.steps);
    weft_spelling_close(&t.spelling);
    weft_pipe_free(t.pipe);
    weft_store_free(t.store);
    weft_stragglers_free(t.stragglers);
    weft_free(t.bulletin);
    weft_free(t.news);
    weft_run_fates_free(t.fates, t.run->stages.count);
    weft_free(t.encoded);
    weft_arena_free(t.arena);
    weft_run_lock_release(t.lock, status != WEFT_OK);
    if (status != WEFT_OK && !t.stopped_together)
        weft_comm_give_up(t.comm); /* the others need not wait for this rank */
    weft_comm_free(t.comm);
    return status;
}
