/* One run: models -> (latents) -> stages of { graph, program, loader } -> steps -> checkpoints -> finished model. */
#include "train/trainer.h"

#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "data/loader.h"
#include "runtime/measure.h"
#include "train/account.h"
#include "train/checkpoint.h"
#include "train/export.h"
#include "train/guard.h"
#include "train/latents.h"
#include "train/meter.h"
#include "train/step_cache.h"
#include "train/vae_begin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct trainer {
    const weft_run *run;
    const char *path;
    weft_run_models models;
    weft_place_of_run place;
    weft_comm *comm;
    bool leader; /* rank 0: writes files */
    weft_store *store;
    weft_step_cache *steps;
    weft_buf yaml;
    weft_guard guard;
    weft_checkpoint_part part[2];
    int parts;
    json_t *resume; /* state of the checkpoint that is being gone on from, until its stage has begun */
    int64_t done;   /* steps */
    int64_t last;   /* step of the last checkpoint before this stage; -1: none */
    double peak_gflops, fps;
    /* of the stage that runs */
    const weft_stage *stage;
    int64_t stage_index;
    weft_step *step; /* of `steps` */
    weft_loader *loader;
    weft_checkpoints *checkpoints;
    weft_meter *meter;
    double flops; /* of a step over all ranks */
} trainer;

/* ---- beginning --------------------------------------------------------------------------------- */

static weft_status read_models(trainer *t)
{
    const weft_run *run = t->run;
    WEFT_TRY(weft_run_models_read(run, t->path, &t->models));
    if (run->what == WEFT_RUN_VAE) {
        t->part[t->parts++] = (weft_checkpoint_part){"vae", "diffusion_pytorch_model",
                                                     weft_wan_vae_config_write(&t->models.vae)};
        return WEFT_OK;
    }
    t->part[t->parts++] = (weft_checkpoint_part){"transformer", "diffusion_pytorch_model",
                                                 weft_wan_dit_config_write(&t->models.dit)};
    t->part[t->parts++] = (weft_checkpoint_part){"text_encoder", "model", weft_bytes_config_write(&t->models.text)};
    return WEFT_OK;
}

static weft_status open_ranks(trainer *t)
{
    const weft_run *run = t->run;
    WEFT_TRY(weft_comm_open_mpi(&t->comm));
    weft_comm_set_deadline(t->comm, run->deadline);
    const int ranks = weft_comm_ranks(t->comm);
    char mesh[32] = "";
    if (ranks > 1)
        snprintf(mesh, sizeof mesh, "dp=%d", ranks);
    WEFT_TRY(weft_mesh_parse(run->mesh[0] ? run->mesh : mesh, &t->place.mesh));
    if (weft_mesh_ranks(&t->place.mesh) != ranks)
        return weft_fail(WEFT_E_CONFIG, "%s: mesh: '%s' is for %d ranks, but %d run (mpirun -n %d weft train ...)", t->path,
                         run->mesh, weft_mesh_ranks(&t->place.mesh), ranks, weft_mesh_ranks(&t->place.mesh));
    t->place.backend = weft_backend_find(run->backend);
    if (!t->place.backend)
        return weft_fail(WEFT_E_CONFIG, "%s: backend: '%s' is not one of cpu, ref", t->path, run->backend);
    t->place.comm = t->comm;
    t->place.profile = run->trace;
    t->place.recompute = run->recompute.item;
    t->place.recompute_count = (int)run->recompute.count;
    t->leader = weft_comm_rank(t->comm) == 0;
    return WEFT_OK;
}

static weft_status begin(trainer *t)
{
    WEFT_TRY(weft_run_check(t->run, t->path));
    WEFT_TRY(open_ranks(t));
    WEFT_TRY(read_models(t));
    weft_config_dump(&weft_run_section, t->run, &t->yaml);
    WEFT_TRY(weft_buf_check(&t->yaml));
    if (t->leader)
        WEFT_TRY(weft_make_dirs(t->run->out));
    WEFT_TRY(weft_comm_barrier(t->comm));
    t->guard = weft_guard_make(&t->run->guard);
    t->store = weft_store_create();
    t->steps = weft_step_cache_create();
    if (!t->store || !t->steps)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    WEFT_TRY(weft_measure_gemm(t->place.backend, 0.1, &t->peak_gflops));
    return weft_comm_sum(t->comm, &t->peak_gflops, 1);
}

/* ---- a stage ----------------------------------------------------------------------------------- */

/* What of the data is used, and what not and why, as far as is known: <out>/data-stage-<n>.json has every sample. */
static weft_status tell_data(trainer *t, const char *title)
{
    char path[600];
    WEFT_TRY(weft_account_share(t->comm, t->loader));
    if (snprintf(path, sizeof path, "%s/data-stage-%lld.json", t->run->out, (long long)t->stage_index) >= (int)sizeof path)
        return weft_fail(WEFT_E_ARG, "%s: too long a path", t->run->out);
    return t->leader ? weft_account_write(t->loader, title, path) : WEFT_OK;
}

static weft_status open_loader(trainer *t)
{
    const weft_stage *s = t->stage;
    const weft_run_data *d = &t->run->data;
    const bool video = t->run->what == WEFT_RUN_VAE;
    char folder[512];
    weft_bucket bucket = {.batch = s->batch, .frames = s->frames, .height = s->height, .width = s->width};
    weft_loader_config config = {.shards = d->path, .split = d->split[0] ? d->split : NULL, .buckets = {1, &bucket},
                                 .fps = d->fps, .threads = d->threads, .prefetch = d->prefetch,
                                 .random_start = d->random_start, .random_crop = d->random_crop};
    config.seed = (int64_t)(weft_seed_mix((uint64_t)t->run->seed, (uint64_t)t->stage_index) >> 1);
    if (!video) {
        WEFT_TRY(weft_latents_ensure(t->run, &t->models.vae, s, &t->place, folder));
        const int64_t space = weft_wan_vae_space_factor(&t->models.vae);
        config.shards = folder;
        config.split = NULL;
        config.caption_dropout = t->run->caption_dropout;
        bucket.frames = weft_wan_vae_latent_frames(&t->models.vae, s->frames);
        bucket.height /= space;
        bucket.width /= space;
    }
    WEFT_TRY(weft_loader_open(&config, (int)t->step->slice_index, (int)t->step->slice_parts, video ? NULL : WEFT_LATENT_PART,
                              t->models.vae.z_dim, &t->loader));
    t->fps = d->fps > 0 ? d->fps : weft_dataset_at(weft_loader_dataset(t->loader), 0)->fps;
    return tell_data(t, "data");
}

static weft_status begin_weights(trainer *t, const weft_graph *whole)
{
    const weft_run *run = t->run;
    const char *folder = run->what == WEFT_RUN_VAE ? run->vae.init : run->dit.init;
    if (!folder[0]) {
        if (run->what == WEFT_RUN_VAE)
            weft_vae_begin(t->store, t->models.vae.z_dim, (uint64_t)run->seed);
        return WEFT_OK;
    }
    return weft_export_load(t->store, whole, t->part, t->parts, folder);
}

static weft_status plan_stage(trainer *t, int64_t index, weft_step **step)
{
    weft_graph *g = weft_graph_create();
    if (g)
        weft_objective_build(g, t->run, &t->models, (const weft_stage *)t->run->stages.item + index);
    return weft_step_cache_get(t->steps, g, &t->run->optimizer, &t->place, step);
}

/* The parameters and states that any stage reaches are in the store from the first step on: a stage of single frames has
 * no gradient for temporal convolutions, but a checkpoint of the next stage has their moments and averages. */
static weft_status fill_store(trainer *t)
{
    for (int64_t i = 0; i < t->run->stages.count; i++) {
        weft_step *step;
        WEFT_TRY(plan_stage(t, i, &step));
        WEFT_TRY(weft_store_init(t->store, step->graph, (uint64_t)t->run->seed));
        if (i == t->run->stages.count - 1) /* which has all of them */
            WEFT_TRY(begin_weights(t, step->whole));
    }
    weft_step_begin_averages(t->store);
    return WEFT_OK;
}

static weft_status open_stage(trainer *t)
{
    WEFT_TRY(plan_stage(t, t->stage_index, &t->step));
    WEFT_TRY(weft_step_cache_bind(t->steps, t->step, t->store, (uint64_t)t->run->seed));
    t->flops = (double)t->step->cost.flops;
    return weft_comm_sum(t->comm, &t->flops, 1);
}

/* Waits for the one that is being written. */
static int64_t last_checkpoint(trainer *t)
{
    if (weft_checkpoints_wait(t->checkpoints) != WEFT_OK)
        weft_warn("%s", weft_error_message());
    const int64_t last = weft_checkpoints_last(t->checkpoints);
    return last > t->last ? last : t->last;
}

static void close_stage(trainer *t)
{
    weft_loader_close(t->loader);
    t->loader = NULL;
    if (t->checkpoints)
        t->last = last_checkpoint(t);
    weft_checkpoints_close(t->checkpoints);
    t->checkpoints = NULL;
}

static weft_status open_checkpoints(trainer *t)
{
    weft_checkpoint_spec spec = {.run = t->run->out, .store = t->store, .graph = t->step->whole, .parts = t->parts,
                                 .config_yaml = t->yaml.data, .keep = t->run->checkpoint.keep};
    memcpy(spec.part, t->part, sizeof t->part);
    return weft_checkpoints_open(&spec, &t->checkpoints);
}

/* ---- steps ------------------------------------------------------------------------------------- */

static void fill_latents(trainer *t, const weft_batch *batch)
{
    const weft_wan_vae_config *vae = &t->models.vae;
    weft_tensor *to = weft_program_input(t->step->program, "batch.latents");
    const int64_t count = weft_shape_count(&to->shape), z = vae->z_dim;
    float *x = to->data;
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((batch->part[i] - vae->latents_mean[i % z]) / vae->latents_std[i % z]);
    int32_t *tokens = weft_program_input(t->step->program, "batch.tokens")->data;
    for (int64_t i = 0; i < batch->count; i++)
        weft_bytes_tokens(&t->models.text, batch->caption[i], tokens + i * t->models.text.max_length);
}

static weft_status fill_batch(trainer *t)
{
    weft_batch batch;
    WEFT_TRY(weft_loader_next(t->loader, &batch));
    if (batch.count != t->step->slice_count)
        return weft_fail(WEFT_E_INTERNAL, "the loader gave %lld samples, this rank's input takes %lld",
                         (long long)batch.count, (long long)t->step->slice_count);
    /* all randomness of a sample is keyed by (seed, step, sample) */
    int64_t *key = weft_program_input(t->step->program, "batch.key")->data;
    const uint64_t step_seed = weft_seed_mix((uint64_t)t->run->seed, (uint64_t)t->done);
    for (int64_t i = 0; i < batch.count; i++)
        key[i] = (int64_t)weft_seed_mix(step_seed, batch.id[i]);
    if (t->run->what == WEFT_RUN_DIT) {
        fill_latents(t, &batch);
        return WEFT_OK;
    }
    weft_tensor *video = weft_program_input(t->step->program, "batch.video");
    memcpy(video->data, batch.video, (size_t)(weft_shape_count(&video->shape) * 4));
    return WEFT_OK;
}

static void set_scalar(trainer *t, const char *name, float value)
{
    *(float *)weft_program_input(t->step->program, name)->data = value;
}

static weft_status run_step(trainer *t)
{
    const double started = weft_now();
    const int64_t in_stage = t->done - weft_run_first_step(t->run, t->stage_index);
    float loss_limit, norm_limit;
    WEFT_TRY(fill_batch(t));
    weft_guard_limits(&t->guard, &loss_limit, &norm_limit);
    set_scalar(t, "optimizer.lr", (float)weft_stage_lr(t->stage, in_stage));
    /* Adam's bias correction counts the updates that took place */
    set_scalar(t, "optimizer.step", (float)(t->guard.accepted + 1));
    set_scalar(t, "optimizer.loss_limit", loss_limit);
    set_scalar(t, "optimizer.norm_limit", norm_limit);
    WEFT_TRY(weft_program_run(t->step->program));
    t->done++;
    weft_step_figures f = {.step = t->done, .stage = t->stage->name, .loss = weft_step_scalar(t->step, "loss"),
                           .grad_norm = weft_step_scalar(t->step, "grad_norm"), .lr = weft_stage_lr(t->stage, in_stage),
                           .samples = t->stage->batch, .flops = t->flops};
    f.skipped = !isfinite(weft_step_scalar(t->step, "grad_scale"));
    const weft_status_code verdict = weft_guard_note(&t->guard, f.loss, f.grad_norm, f.skipped);
    f.skipped_total = t->guard.skipped;
    f.seconds = weft_now() - started;
    if (t->run->what == WEFT_RUN_DIT)
        f.tokens = t->stage->batch *
                   weft_wan_dit_tokens(&t->models.dit, weft_wan_vae_latent_frames(&t->models.vae, t->stage->frames),
                                       t->stage->height / 8, t->stage->width / 8);
    else
        f = (weft_step_figures){f.step, f.stage, f.loss, f.grad_norm, f.lr, f.seconds, f.skipped, f.skipped_total, f.samples,
                                0, f.flops, {weft_step_scalar(t->step, "mse"), weft_step_scalar(t->step, "kl")},
                                {"mse", "kl"}};
    if (t->leader)
        WEFT_TRY(weft_meter_note(t->meter, &f));
    return verdict;
}

static weft_status save(trainer *t)
{
    json_t *state = json_pack("{s:I, s:o, s:o, s:I, s:I}", "step", (json_int_t)t->done, "guard", weft_guard_state(&t->guard),
                              "loader", weft_loader_state(t->loader), "stage", (json_int_t)t->stage_index, "seed",
                              (json_int_t)t->run->seed);
    return weft_checkpoints_save(t->checkpoints, t->done, state);
}

/* True on all ranks when one was interrupted. */
static weft_status anyone_interrupted(trainer *t, bool *stop)
{
    double flag = weft_interrupted();
    WEFT_TRY(weft_comm_sum(t->comm, &flag, 1));
    *stop = flag > 0;
    return WEFT_OK;
}

static weft_status numeric_stop(trainer *t, weft_status_code status)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", weft_error_message());
    double last = t->leader ? (double)last_checkpoint(t) : 0; /* only rank 0 writes them; all stop at the same step */
    WEFT_TRY(weft_comm_sum(t->comm, &last, 1));
    if (last < 0)
        return weft_fail(status, "step %lld: %s; there is no checkpoint yet", (long long)t->done, reason);
    return weft_fail(status, "step %lld: %s; the last good checkpoint is %s/checkpoints/step-%08lld", (long long)t->done,
                     reason, t->run->out, (long long)last);
}

/* The last step of a stage as this rank saw it. */
static weft_status write_trace(const trainer *t)
{
    char path[600];
    const int rank = weft_comm_rank(t->comm);
    weft_trace trace = {0};
    weft_buf text = {0};
    double *start = NULL, *end = NULL;
    snprintf(path, sizeof path, "%s/trace-%lld-%d.json", t->run->out, (long long)t->stage_index, rank);
    weft_status_code status = weft_program_trace(t->step->program, rank, weft_comm_ranks(t->comm), &trace, &start, &end);
    if (status == WEFT_OK)
        status = weft_trace_chrome(&trace, 0, start, end, &text);
    if (status == WEFT_OK)
        status = weft_file_write_atomic(path, text.data, text.len);
    weft_buf_free(&text);
    weft_trace_free(&trace);
    weft_free(start);
    weft_free(end);
    return status;
}

static weft_status run_steps(trainer *t)
{
    const int64_t end = weft_run_first_step(t->run, t->stage_index + 1);
    const int64_t every = t->run->checkpoint.every, total = weft_run_first_step(t->run, t->run->stages.count);
    while (t->done < end) {
        bool stop;
        const weft_status_code status = run_step(t);
        if (status != WEFT_OK)
            return status == WEFT_E_NUMERIC ? numeric_stop(t, status) : status;
        WEFT_TRY(anyone_interrupted(t, &stop));
        const bool due = (every > 0 && t->done % every == 0) || t->done == total || stop;
        if (due && t->leader)
            WEFT_TRY(save(t));
        if (!stop)
            continue;
        if (t->leader)
            WEFT_TRY(weft_checkpoints_wait(t->checkpoints));
        return weft_fail(WEFT_E_CANCELLED, "stopped at step %lld; the same command goes on from there", (long long)t->done);
    }
    if (t->run->trace)
        WEFT_TRY(write_trace(t));
    return t->leader ? weft_checkpoints_wait(t->checkpoints) : WEFT_OK;
}

/* ---- resuming ---------------------------------------------------------------------------------- */

/* Before the first stage that runs: the newest checkpoint fills the store. Every rank reads it. */
static weft_status resume(trainer *t)
{
    char folder[512] = "";
    json_t *state;
    WEFT_TRY(open_checkpoints(t));
    WEFT_TRY(weft_checkpoints_load(t->checkpoints, &state, folder));
    double step = -1;
    if (state) {
        int64_t value;
        t->resume = state;
        WEFT_TRY(weft_json_get_i64(state, "step", folder, &value));
        WEFT_TRY(weft_guard_restore(&t->guard, json_object_get(state, "guard"), folder));
        t->done = value;
        step = (double)value;
        if (t->leader)
            weft_info("going on from %s", folder);
    }
    /* a file system that shows ranks different folders would train different models */
    double sum = step;
    WEFT_TRY(weft_comm_sum(t->comm, &sum, 1));
    if (sum != step * weft_comm_ranks(t->comm))
        return weft_fail(WEFT_E_COMM, "%s: the ranks see different checkpoints; is the folder shared?", t->run->out);
    return WEFT_OK;
}

static weft_status run_stage(trainer *t, int64_t index)
{
    t->stage_index = index;
    t->stage = (const weft_stage *)t->run->stages.item + index;
    const bool first = weft_store_count(t->store) == 0;
    if (first)
        WEFT_TRY(fill_store(t));
    WEFT_TRY(open_stage(t));
    if (first)
        WEFT_TRY(resume(t));
    else
        WEFT_TRY(open_checkpoints(t));
    const int64_t end = weft_run_first_step(t->run, index + 1);
    if (t->done >= end)
        return WEFT_OK;
    if (t->leader) {
        char memory[32], weights[32];
        weft_info("stage %lld%s%s: %lld steps of %lld x %lldx%lldx%lld, %.2f GFLOP a step, program %s, weights and "
                  "optimizer %s%s",
                  (long long)index, t->stage->name[0] ? " " : "", t->stage->name, (long long)t->stage->steps,
                  (long long)t->stage->batch, (long long)t->stage->frames, (long long)t->stage->height,
                  (long long)t->stage->width, 1e-9 * t->flops,
                  weft_format_bytes(weft_program_bytes(t->step->program), memory),
                  weft_format_bytes(weft_store_bytes(t->store), weights),
                  weft_comm_ranks(t->comm) > 1 ? " per rank" : "");
    }
    WEFT_TRY(open_loader(t));
    if (t->resume && t->done > weft_run_first_step(t->run, index))
        WEFT_TRY(weft_loader_restore(t->loader, json_object_get(t->resume, "loader"), "state.json"));
    json_decref(t->resume);
    t->resume = NULL;
    if (t->leader && !t->meter)
        WEFT_TRY(weft_meter_open(t->run->out, t->done, weft_run_first_step(t->run, t->run->stages.count),
                                   t->run->log_every, t->peak_gflops, &t->meter));
    WEFT_TRY(run_steps(t));
    return tell_data(t, "data at the end of the stage");
}

/* ---- the end ----------------------------------------------------------------------------------- */

static weft_status finish(trainer *t)
{
    weft_export e = {.run = t->run, .models = &t->models, .store = t->store, .graph = t->step->whole, .part = t->part,
                     .parts = t->parts, .stage = t->stage, .fps = t->fps, .variant = t->run->optimizer.ema_decay > 0 ? "ema." : ""};
    if (t->run->what == WEFT_RUN_VAE) {
        weft_wan_vae_config *vae = &t->models.vae;
        WEFT_TRY(weft_latents_measure(t->run, vae, t->stage, &t->place, t->store, 256, vae->latents_mean, vae->latents_std));
        json_decref(t->part[0].config);
        t->part[0].config = weft_wan_vae_config_write(vae);
    }
    if (t->leader)
        WEFT_TRY(weft_export_write(&e));
    return weft_comm_barrier(t->comm);
}

weft_status weft_train(const weft_run *run, const char *path)
{
    trainer t = {.run = run, .path = path, .last = -1};
    weft_status_code status = begin(&t);
    for (int64_t i = 0; i < run->stages.count && status == WEFT_OK; i++) {
        close_stage(&t);
        status = run_stage(&t, i);
    }
    const weft_status_code closed = weft_meter_close(t.meter);
    if (status == WEFT_OK)
        status = closed;
    if (status == WEFT_OK)
        status = finish(&t);
    close_stage(&t);
    for (int i = 0; i < t.parts; i++)
        json_decref(t.part[i].config);
    json_decref(t.resume);
    weft_buf_free(&t.yaml);
    weft_step_cache_free(t.steps);
    weft_store_free(t.store);
    if (status != WEFT_OK)
        weft_comm_give_up(t.comm); /* the others need not wait for this rank */
    weft_comm_free(t.comm);
    return status;
}
