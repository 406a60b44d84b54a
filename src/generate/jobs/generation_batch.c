#include "generate/jobs/generation_batch.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/generator/generator_denoise.h"
#include "generate/generator/generator_save.h"
#include "generate/jobs/batch_events.h"
#include "generate/jobs/batch_files.h"

#include <string.h>

int64_t weft_generation_batch_job(const weft_generation_batch *b, int64_t prompt)
{
    return b->context->batches.order[b->jobs->first + prompt];
}

/* Inputs of the generator, in the order of the batch. */
typedef struct batch_lists {
    const char **prompt, **negative;
    uint64_t *seed;
    float *noise; /* of each prompt, or of each window of the only prompt */
} batch_lists;

static weft_status list_batch(const weft_generation_batch *b, const float *noise, batch_lists *l)
{
    const int64_t n = b->jobs->count, each = weft_generator_noise_floats(b->group->generator) *
                                             b->group->continuation.count;
    *l = (batch_lists){weft_calloc(n, sizeof *l->prompt), weft_calloc(n, sizeof *l->negative),
                       weft_calloc(n, sizeof *l->seed),
                       noise ? weft_calloc(n * each, sizeof *noise) : NULL};
    if (!l->prompt || !l->negative || !l->seed || (noise && !l->noise))
        return weft_no_memory("%" PRId64 " prompts", n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t job = weft_generation_batch_job(b, i);
        l->prompt[i] = b->context->items[job].prompt;
        l->negative[i] = b->context->items[job].negative;
        l->seed[i] = b->context->items[job].seed;
        if (noise)
            memcpy(l->noise + i * each, noise + job * each, (size_t)each * sizeof *noise);
    }
    return WEFT_OK;
}

static void free_lists(batch_lists *l)
{
    weft_free(l->prompt);
    weft_free(l->negative);
    weft_free(l->seed);
    weft_free(l->noise);
}

/* Resumes from the saved latents of this window, else from the saved sampler state. If the latents
 * of this window are damaged, its sampling has finished. A saved sampler state is then another
 * window's and is not used. */
static weft_status resume(weft_generation_batch *b, const batch_lists *l, const uint64_t *seeds)
{
    weft_job_lookup saved = {.files = &b->context->files,
                             .job = weft_generation_batch_job(b, 0),
                             .window = b->group->continuation.at};
    weft_job_file source;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_job_search(weft_batch_files_row(b, WEFT_JOB_SAMPLING), weft_job_files_verify,
                            &saved, &source));
    if (source != WEFT_JOB_FILES) {
        WEFT_GO(weft_generator_resume(b->group->generator, saved.path.data, l->prompt, seeds,
                                      b->jobs->count, &b->window.begun_at));
        if (b->context->team.is_rank0)
            weft_notice(WEFT_MSG_RUN_RESUMED,
                        WEFT_AT(.file = saved.path.data, WEFT_NUMBER(b->window.begun_at)),
                        "resuming after step %" PRId64, b->window.begun_at);
    }
out:
    weft_buf_free(&saved.path);
    return status;
}

/* Resumes each video from its own sampler state. weft_jobs_cut has put videos of one step into a
 * batch. */
static weft_status resume_each(weft_generation_batch *b, const batch_lists *l,
                               const uint64_t *seeds)
{
    const int64_t count = b->jobs->count,
                  step = b->context->run->jobs->at[weft_generation_batch_job(b, 0)].begun_at;
    weft_buf *paths;
    char **texts = NULL;
    weft_status_code status = WEFT_OK;
    if (!step)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(paths, count, "saved states"));
    WEFT_GO(WEFT_NEW(texts, count, "saved states"));
    for (int64_t i = 0; i < count; i++) {
        WEFT_GO(weft_job_files_saved_path(&b->context->files, weft_generation_batch_job(b, i),
                                          WEFT_JOB_SAMPLER_STATE, 0, &paths[i]));
        texts[i] = paths[i].data;
    }
    WEFT_GO(weft_generator_resume_videos(b->group->generator, texts, l->prompt, seeds, count,
                                         &b->window.begun_at));
    if (b->context->team.is_rank0)
        weft_notice(WEFT_MSG_RUN_RESUMED,
                    WEFT_AT(.file = texts[0], WEFT_NUMBER(b->window.begun_at)),
                    "resuming after step %" PRId64, b->window.begun_at);
out:
    for (int64_t i = 0; i < count; i++)
        weft_buf_free(&paths[i]);
    weft_free(paths);
    weft_free(texts);
    return status;
}

/* Generates the windows of a video in sequence; a video without continuation has one. */
static weft_status run_windows(weft_generation_batch *b, const batch_lists *l)
{
    weft_continuation *c = &b->group->continuation;
    weft_generator *generator = b->group->generator;
    const weft_generation_team *team = &b->context->team;
    const weft_generator_sink sink = weft_batch_events_sink(b);
    for (c->at = 0; c->at < c->count; c->at++) {
        const uint64_t own = weft_continuation_seed(c, l->seed[0]), *seeds = c->at ? &own : l->seed;
        const double now = weft_now();
        b->window = (weft_generation_window){.began = now, .saved_at = now};
        weft_generator_set_initial_latents(
            generator, l->noise ? l->noise + c->at * weft_generator_noise_floats(generator) : NULL,
            l->noise ? b->jobs->count : 0);
        if (c->shared)
            WEFT_TRY(weft_generator_set_prefix_frames(generator, c->at, c->at ? c->tail : NULL));
        if (b->context->run->resume)
            WEFT_TRY(b->context->run->split_states && !weft_generation_group_in_windows(b->group)
                         ? resume_each(b, l, seeds)
                         : resume(b, l, seeds));
        if (weft_generation_group_in_windows(b->group) && team->is_rank0)
            weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(WEFT_NUMBER(c->at + 1)),
                        "window %" PRId64 " of %" PRId64, c->at + 1, c->count);
        WEFT_TRY(weft_generator_run(generator, l->prompt, seeds, b->jobs->count, &sink));
        b->decoding += weft_now() - b->window.decoded;
        b->context->progress.steps += weft_generator_steps(generator);
        if (c->shared && team->comm)
            WEFT_TRY(weft_comm_broadcast(team->comm, c->tail,
                                         c->shared * c->frame * (int64_t)sizeof *c->tail, 0));
    }
    return WEFT_OK;
}

/* Corrects the total of the progress, which counts the steps of the job: --strength skips steps,
 * and sections and levels per frame add steps. */
static void count_steps(const weft_generation_batch *b)
{
    const weft_job *job = &b->context->run->jobs->at[weft_generation_batch_job(b, 0)];
    b->context->progress.bar.total +=
        (weft_generator_steps(b->group->generator) - job->steps) * b->group->continuation.count;
}

weft_status weft_generation_batch_run(weft_generation_group *g, const weft_job_batch *jobs,
                                      const float *noise)
{
    weft_generation_batch b = {.context = g->context, .group = g, .jobs = jobs};
    batch_lists l;
    g->context->progress.step_seconds = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_batch(&b, noise, &l));
    weft_generator_set_negative_prompts(g->generator, l.negative);
    count_steps(&b);
    WEFT_GO(run_windows(&b, &l));
out:
    weft_generator_set_negative_prompts(g->generator, NULL);
    weft_generator_set_initial_latents(g->generator, NULL, 0);
    free_lists(&l);
    return status;
}
