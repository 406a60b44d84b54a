#include "train/step/step_run.h"

#include "base/interrupt.h"
#include "comm/comm_world.h"
#include "data/loader_packing.h"
#include "exec/execute.h"
#include "exec/trace/timeline_file.h"
#include "train/config/packing_config.h"
#include "train/graph/identity_inputs.h"
#include "train/graph/packed_rows.h"
#include "train/graph/run_pair.h"
#include "train/step/identity_images.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- inputs -------------------------------------------------------------------------------- */

/* The input `name` of a step's contribution `index`. NULL: this rank does not need the input. */
static weft_tensor *input_of(const weft_stage_state *s, int64_t index, int bucket, const char *name)
{
    return s->pp_executor ? weft_pp_executor_input(s->pp_executor, index, bucket, name)
                          : weft_program_input(s->programs.bucket[bucket]->program, name);
}

/* Context of find_input: the contribution whose inputs are looked up. */
typedef struct input_context {
    const weft_stage_state *train_stage;
    int64_t index;
    int bucket;
} input_context;

static weft_tensor *find_input(void *user, const char *name)
{
    const input_context *p = user;
    return input_of(p->train_stage, p->index, p->bucket, name);
}

/* Items [first, first + count) of a batch, with `floats` elements per item. */
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

static weft_status next_batch(weft_step_run *r)
{
    const double began = weft_now();
    WEFT_TRY(weft_batch_share_next(&r->train_stage->share, r->train_stage->loader, &r->batch));
    r->data_wait_seconds += weft_now() - began;
    return r->traced
               ? weft_timeline_add(&r->timeline, WEFT_STREAM_TASK, "wait: data", began, weft_now())
               : WEFT_OK;
}

/* Whether the discriminator is active in this step. */
static bool discriminates(const weft_train_context *c)
{
    return c->progress.done >= c->run->loss.adversarial.start;
}

/* Reads item i of a batch from data set `pair`, of a kind, into the input `to`. */
static weft_status read_pair_item(const weft_step_run *r, const weft_batch *batch, int64_t i,
                                  int pair, weft_pair_kind kind, const char *part,
                                  const weft_tensor *to)
{
    const weft_stage_state *s = r->train_stage;
    const int64_t floats = weft_shape_count(&to->shape) / batch->count;
    float *at = (float *)to->data + i * floats;
    if (s->pair[pair])
        return weft_paired_latents_read(s->pair[pair], part, batch->id[i], floats, at);
    weft_bucket size = *weft_train_stage_bucket(s->train_stage, batch->bucket);
    if (kind == WEFT_PAIR_MARKS)
        return weft_paired_clips_marks(s->clips[pair], batch->id[i], &size,
                                       &r->context->models.grid, at);
    size.frames = to->shape.dim[1];
    size.height = to->shape.dim[2];
    size.width = to->shape.dim[3];
    return weft_paired_clips_read(s->clips[pair], batch->id[i], &size, at);
}

/* Reads the further data sets for the items of a batch, and the latents of grey frames, as far as
 * this rank needs them. */
static weft_status read_pairs(const weft_step_run *r, const weft_batch *batch, int64_t index)
{
    const weft_train_context *c = r->context;
    const weft_stage_state *s = r->train_stage;
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_pairs_of(c->run, &c->models, pair), bucket = batch->bucket;
    const weft_tensor *grey = input_of(s, index, bucket, "batch.grey");
    for (int k = 0; k < pairs; k++) {
        const weft_pair_kind kind = pair[k].kind;
        const weft_tensor *to = input_of(s, index, bucket, pair[k].input),
                          *tokens = kind == WEFT_PAIR_STILLS
                                        ? input_of(s, index, bucket, "batch.image_tokens")
                                        : NULL;
        if (kind == WEFT_PAIR_IDENTITY)
            continue;
        for (int64_t i = 0; to && i < batch->count; i++)
            WEFT_TRY(read_pair_item(r, batch, i, k, kind, WEFT_LATENT_PART, to));
        const weft_tensor *sound = pair[k].sound ? input_of(s, index, bucket, pair[k].sound) : NULL;
        for (int64_t i = 0; sound && i < batch->count; i++)
            WEFT_TRY(read_pair_item(r, batch, i, k, kind, WEFT_SOUND_PART, sound));
        for (int64_t i = 0; tokens && i < batch->count; i++)
            WEFT_TRY(read_pair_item(r, batch, i, k, kind, WEFT_IMAGE_PART, tokens));
    }
    const weft_tensor *images = input_of(s, index, bucket, WEFT_IDENTITY_INPUT);
    if (images && batch->count)
        WEFT_TRY(weft_identity_images_read(pair, s->pair, pairs, batch->id, batch->count, images,
                                           input_of(s, index, bucket, WEFT_IDENTITY_GIVEN)));
    const int64_t floats = grey && batch->count ? weft_shape_count(&grey->shape) / batch->count : 0;
    for (int64_t i = 0; grey && i < batch->count; i++)
        memcpy((float *)grey->data + i * floats, s->grey[bucket], (size_t)floats * sizeof(float));
    return WEFT_OK;
}

/* Fills the inputs of a step's contribution `index`: a microbatch of the last batch, or of the next
 * batch if it is the first. */
static weft_status fill_batch(weft_step_run *r, int64_t index, int *bucket)
{
    weft_train_context *c = r->context;
    const weft_stage_state *s = r->train_stage;
    const int64_t parts = s->programs.parts, at = index % parts;
    if (at == 0)
        WEFT_TRY(next_batch(r));
    const int64_t sound = weft_run_sound_floats(&c->models.sound, s->train_stage);
    const weft_bucket *size = weft_train_stage_bucket(s->train_stage, r->batch.bucket);
    const weft_inputs inputs = {c->run,     &c->models, &c->tokenizers,
                                s->no_text, sound,      weft_run_latent_size(&c->models, size)};
    if (r->batch.packed) {
        *bucket = 0;
        input_context rows = {s, index, 0};
        return weft_packed_rows_fill(&inputs, c->progress.done, &r->batch, find_input, &rows);
    }
    const int64_t count = s->programs.bucket[r->batch.bucket]->local_count;
    *bucket = r->batch.bucket;
    if (r->batch.count != count * parts)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(r->batch.count)),
                          "the loader returned %" PRId64
                          " samples, and the input of this rank takes %" PRId64,
                          r->batch.count, count * parts);
    const bool denoises = weft_run_trains_denoiser(&c->models);
    const weft_tensor *to = input_of(s, index, *bucket, denoises ? "batch.latents" : "batch.video");
    const weft_model_size *clip = &inputs.clip;
    const int64_t floats = c->models.sections.frames
                               ? clip->frames * clip->height * clip->width * c->models.grid.channels
                           : to && count ? weft_shape_count(&to->shape) / count
                                         : 0;
    const weft_batch part = part_of(&r->batch, at * count, count, floats,
                                    s->no_text ? c->models.text.floats + sound : 0);
    weft_tensor *adversarial = input_of(s, index, *bucket, "loss.adversarial");
    if (adversarial)
        *(float *)adversarial->data = discriminates(c) ? 1 : 0;
    WEFT_TRY(read_pairs(r, &part, index));
    input_context context = {s, index, *bucket};
    return weft_inputs_fill(&inputs, c->progress.done, &part, find_input, &context);
}

/* ---- metrics ------------------------------------------------------------------------------- */

static void add_figure(weft_step_figures *f, const char *name, double value)
{
    int n = 0;
    while (n < WEFT_TRAIN_LOGGER_EXTRAS && f->extra_name[n])
        n++;
    if (n == WEFT_TRAIN_LOGGER_EXTRAS)
        return;
    f->extra_name[n] = name;
    f->extra[n] = value;
}

/* Adds the step's metrics that its last program has as outputs. */
static void add_metrics(weft_step_run *r, const weft_step *last)
{
    static const char *const names[] = {"mse",
                                        "kl",
                                        "lpips",
                                        "generator",
                                        "discriminator",
                                        "adversarial_weight",
                                        "balance",
                                        "fullest",
                                        "dropped",
                                        "fake",
                                        "accuracy",
                                        "video_loss",
                                        "sound_loss",
                                        "with_sound",
                                        "discriminator_norm",
                                        "fake_norm"};
    if (r->packed_positions)
        add_figure(&r->figures, "padding",
                   1 - (double)r->figures.tokens / (double)r->packed_positions);
    for (int i = 0; i < WEFT_COUNT(names); i++)
        if (weft_program_output(last->program, names[i]))
            add_figure(&r->figures, names[i], weft_step_scalar(last, names[i]));
}

/* Counts a microbatch in the step's samples, tokens and FLOPs. */
static void count_microbatch(weft_step_run *r, int bucket)
{
    const weft_stage_state *s = r->train_stage;
    const weft_run_models *models = &r->context->models;
    const weft_row_packing *pack = &r->context->run->data.packing;
    const weft_bucket *size = weft_train_stage_bucket(s->train_stage, bucket);
    const int64_t samples =
        r->batch.packed ? r->batch.all_samples : size->batch / s->programs.parts;
    r->figures.samples += samples;
    r->figures.flops += s->flops[bucket];
    r->figures.bf16_flops += s->bf16_flops[bucket];
    if (r->batch.packed) {
        r->figures.tokens += r->batch.all_tokens;
        r->packed_positions += pack->rows * pack->tokens;
    } else if (weft_run_trains_denoiser(models)) {
        r->figures.tokens += samples * weft_run_tokens(models, size);
    }
}

/* ---- programs ------------------------------------------------------------------------------ */

static void set_scalar(const weft_step *step, const char *name, float value)
{
    *(float *)weft_program_input(step->program, name)->data = value;
}

static void write_telemetry(weft_step_run *r, bool interrupted)
{
    weft_step_telemetry_write(&r->context->telemetry, weft_comm_rank(r->context->exec.comm),
                              interrupted);
}

static weft_status trace_program(weft_step_run *r, const weft_program *program, const char *what,
                                 double began)
{
    WEFT_TRY(weft_timeline_add_program(&r->timeline, program));
    return weft_timeline_add(&r->timeline, WEFT_STREAM_TASK, what, began, weft_now());
}

/* Runs a program. `what`: its name in the trace. */
static weft_status run_program(weft_step_run *r, weft_program *program, const char *what)
{
    weft_stage_totals *totals = &r->train_stage->totals;
    const double began = weft_now();
    WEFT_TRY(r->launches && !r->traced ? weft_program_launch(program) : weft_program_run(program));
    if (r->traced)
        WEFT_TRY(trace_program(r, program, what, began));
    weft_offload_times_add(&totals->offload_times, weft_program_offload_times(program));
    if (weft_comm_ranks(r->context->exec.comm) > 1)
        weft_comm_times_add(&totals->sent, weft_program_comm_times(program));
    return WEFT_OK;
}

/* Runs a training program. If the program reduces telemetry, `from` is its input; otherwise `from`
 * is copied. The result is in telemetry.all. */
static weft_status run_with_telemetry(weft_step_run *r, const weft_step *step, const float *from,
                                      const char *what)
{
    weft_step_telemetry *t = &r->context->telemetry;
    const bool carried = weft_step_set_telemetry(step, from);
    WEFT_TRY(run_program(r, step->program, what));
    if (carried)
        weft_step_get_telemetry(step, t->all);
    else if (from != t->all)
        memcpy(t->all, from, (size_t)t->floats * sizeof *from);
    return WEFT_OK;
}

/* Runs the program with the update after its gradients are complete. `telemetry`: as far as it is
 * reduced. */
static weft_status run_update(weft_step_run *r, const weft_step *step, const float *telemetry)
{
    weft_train_context *c = r->context;
    const weft_guard *guard = &c->progress.guard;
    float loss_limit, norm_limit;
    weft_guard_limits(guard, &loss_limit, &norm_limit);
    set_scalar(step, "optimizer.lr", (float)r->figures.lr);
    /* Adam's bias correction counts accepted updates */
    set_scalar(step, "optimizer.step", (float)(guard->accepted + 1));
    set_scalar(step, "optimizer.loss_limit", loss_limit);
    set_scalar(step, "optimizer.norm_limit", norm_limit);
    if (weft_program_input(step->program, "optimizer.discriminator_step")) {
        /* Number of the discriminator's updates. Steps skipped before its start are also
         * subtracted. */
        const int64_t updates = guard->accepted - c->run->loss.adversarial.start;
        set_scalar(step, "optimizer.discriminator_step", (float)(updates > 0 ? updates + 1 : 1));
        set_scalar(step, "optimizer.discriminator_limit", discriminates(c) ? HUGE_VALF : -1);
    }
    if (weft_program_input(step->program, "optimizer.fake_step")) {
        const int64_t interval = c->run->distill.interval;
        set_scalar(step, "optimizer.step", (float)(guard->accepted / interval + 1));
        set_scalar(step, "optimizer.fake_step", (float)(guard->accepted + 1));
        set_scalar(step, "optimizer.generator", c->progress.done % interval == 0);
    }
    WEFT_TRY(run_with_telemetry(r, step, telemetry,
                                step == r->train_stage->programs.update ? "update" : "step"));
    c->telemetry.interrupted = c->telemetry.all[0] > 0;
    return WEFT_OK;
}

/* ---- contributions ------------------------------------------------------------------------- */

/* Elements of the mean that the last batch has: tokens of packed rows. */
static double weight_of_batch(const weft_step_run *r, int bucket)
{
    return r->batch.packed ? (double)r->batch.all_tokens
                           : r->train_stage->programs.bucket[bucket]->weight;
}

/* Runs a step's contributions in sequence, each weighted by its share of the `all` elements of the
 * mean. */
static weft_status run_sequential(weft_step_run *r, double all)
{
    const weft_stage_programs *programs = &r->train_stage->programs;
    weft_step_telemetry *t = &r->context->telemetry;
    bool interrupted = false;
    r->launches = true;
    for (int64_t i = 0; i < programs->runs; i++) {
        int bucket;
        WEFT_TRY(fill_batch(r, i, &bucket));
        const weft_step *step = programs->bucket[bucket];
        const double weight = weight_of_batch(r, bucket);
        set_scalar(step, "optimizer.weight", (float)(weight / all));
        write_telemetry(r, interrupted || weft_interrupted());
        WEFT_TRY(run_with_telemetry(r, step, t->own, "gradients"));
        interrupted = t->all[0] > 0;
        count_microbatch(r, bucket);
    }
    r->launches = false;
    return WEFT_OK;
}

/* Returns the errors of contributions that had not ended when the update was started. */
static weft_status finish_sequential(const weft_stage_programs *programs)
{
    for (int i = 0; i < programs->buckets; i++)
        WEFT_TRY(weft_program_finish(programs->bucket[i]->program));
    return WEFT_OK;
}

/* Runs a step's contributions through the pipeline by its schedule, after all inputs are filled. */
static weft_status run_pipeline(weft_step_run *r, double all)
{
    weft_stage_state *s = r->train_stage;
    for (int64_t i = 0; i < s->programs.runs; i++) {
        int bucket;
        WEFT_TRY(fill_batch(r, i, &bucket));
        const double share = weight_of_batch(r, bucket) / all;
        weft_tensor *weight = input_of(s, i, bucket, "optimizer.weight");
        if (weight)
            *(float *)weight->data = (float)share;
        s->bucket_of[i] = bucket;
        count_microbatch(r, bucket);
    }
    write_telemetry(r, weft_interrupted());
    WEFT_TRY(weft_pp_executor_step(s->pp_executor, s->bucket_of));
    return run_program(r, s->programs.share->program, "sums over stages");
}

/* Runs a step's contributions, then the update. */
static weft_status run_batches(weft_step_run *r)
{
    const weft_stage_state *s = r->train_stage;
    const weft_stage_programs *programs = &s->programs;
    weft_step_telemetry *t = &r->context->telemetry;
    double all = 0;
    int bucket = -1;
    const bool packs = weft_run_packs(r->context->run);
    int64_t tokens = 0;
    if (packs)
        WEFT_TRY(weft_loader_peek_tokens(s->loader, programs->runs, &tokens));
    all = (double)tokens;
    for (int64_t i = 0; i < programs->runs && !packs; i++) {
        WEFT_TRY(weft_loader_peek(s->loader, i / programs->parts, &bucket, NULL, NULL));
        all += programs->bucket[bucket]->weight;
    }
    WEFT_TRY(s->pp_executor ? run_pipeline(r, all) : run_sequential(r, all));
    r->figures.flops += s->flops[programs->count - 1];
    r->figures.bf16_flops += s->bf16_flops[programs->count - 1];
    /* the bucket, if the step has a single batch */
    r->figures.bucket = programs->buckets > 1 && programs->runs == programs->parts ? bucket : -1;
    if (!programs->reduced_axes) /* keep the stop flag that the contributions saw */
        t->own[0] = s->pp_executor ? t->own[0] : t->all[0];
    WEFT_TRY(run_update(r, programs->update, programs->reduced_axes ? t->all : t->own));
    return s->pp_executor ? WEFT_OK : finish_sequential(programs);
}

/* ---- a step -------------------------------------------------------------------------------- */

weft_status weft_step_run_begin(weft_train_context *c, weft_stage_state *s, bool traced,
                                weft_step_run *r)
{
    const int64_t step = c->progress.done - weft_run_first_step(c->run, s->index);
    *r = (weft_step_run){
        .context = c,
        .train_stage = s,
        .traced = traced,
        .figures = {.train_stage = s->train_stage->name,
                    .lr = weft_train_stage_lr(s->train_stage, step)},
    };
    /* all ranks open the timeline together, so that their traces have one origin */
    if (traced) {
        WEFT_TRY(weft_timeline_open_together(c->exec.comm, NULL, &r->timeline));
        if (s->pp_executor)
            weft_pp_executor_trace(s->pp_executor, &r->timeline);
    }
    r->began = weft_now();
    r->waited = weft_comm_waited(c->exec.comm);
    return WEFT_OK;
}

weft_status weft_step_run_programs(weft_step_run *r, const weft_step **last)
{
    const weft_stage_programs *programs = &r->train_stage->programs;
    int bucket;
    *last = programs->update;
    if (programs->update)
        return run_batches(r);
    WEFT_TRY(fill_batch(r, 0, &bucket));
    *last = programs->bucket[bucket];
    write_telemetry(r, weft_interrupted());
    WEFT_TRY(run_update(r, *last, r->context->telemetry.own));
    count_microbatch(r, bucket);
    r->figures.bucket = programs->buckets > 1 ? bucket : -1;
    return WEFT_OK;
}

weft_status weft_step_run_update(weft_step_run *r, const weft_step *update)
{
    write_telemetry(r, weft_interrupted());
    return run_update(r, update, r->context->telemetry.own);
}

weft_status weft_step_run_end(weft_step_run *r, const weft_step *last)
{
    weft_train_context *c = r->context;
    weft_step_figures *f = &r->figures;
    add_metrics(r, last);
    f->step = ++c->progress.done;
    f->loss = weft_step_scalar(last, "loss");
    f->grad_norm = weft_step_scalar(last, "grad_norm");
    f->skipped = !isfinite(weft_step_scalar(last, "grad_scale"));
    const weft_status_code verdict =
        weft_guard_record(&c->progress.guard, f->loss, f->grad_norm, f->skipped);
    f->skipped_total = c->progress.guard.skipped;
    f->seconds = weft_now() - r->began;
    weft_step_telemetry_record(&c->telemetry, r->train_stage->stragglers, f->seconds,
                               weft_comm_waited(c->exec.comm) - r->waited, r->data_wait_seconds);
    r->train_stage->totals.seconds += f->seconds;
    return verdict;
}

weft_status weft_step_run_write_trace(weft_step_run *r)
{
    char path[600];
    if (!r->traced)
        return WEFT_OK;
    snprintf(path, sizeof path, "%s/trace-%" PRId64 "-%d.json", r->context->run->out,
             r->train_stage->index, weft_comm_rank(r->context->exec.comm));
    weft_comm_set_busy(r->context->exec.comm, "writing the timeline");
    const weft_status_code status = weft_timeline_write(&r->timeline, path);
    weft_comm_set_busy(r->context->exec.comm, NULL);
    return status;
}

void weft_step_run_free(weft_step_run *r)
{
    if (r->traced && r->train_stage->pp_executor)
        weft_pp_executor_trace(r->train_stage->pp_executor, NULL);
    weft_timeline_free(&r->timeline);
}
