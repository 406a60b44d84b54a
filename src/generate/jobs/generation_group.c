#include "generate/jobs/generation_group.h"

#include "base/fs.h"
#include "base/log.h"
#include "estimate/generation/generation_layouts.h"
#include "format/tensors/npy.h"
#include "generate/generator/generator_read.h"
#include "generate/jobs/generation_batch.h"

#include <string.h>

bool weft_generation_group_in_windows(const weft_generation_group *g)
{
    return g->continuation.count > 1;
}

/* Checks a job's size, and the coarse video that is refined to the size. */
static weft_status check_size(const weft_generation_group *g, const weft_job *j)
{
    const int64_t size[3] = {j->frames, j->height, j->width};
    const weft_visual_inputs *f = &weft_generator_settings(g->generator)->visual;
    WEFT_TRY(j->own ? weft_generator_check_size(g->generator, size) : WEFT_OK);
    return f->coarse.file ? weft_refinement_check_file(&f->coarse, j->frames, j->height, j->width,
                                                       (weft_fit)f->fit)
                          : WEFT_OK;
}

/* Checks all sizes of the list before the first video. */
static weft_status check_sizes(const weft_generation_group *g)
{
    const weft_jobs *jobs = g->context->run->jobs;
    for (int64_t i = 0; i < jobs->count; i++) {
        const weft_job *j = &jobs->at[i];
        const weft_status_code status = i && weft_jobs_alike(j, j - 1) ? WEFT_OK : check_size(g, j);
        if (status != WEFT_OK)
            return j->own ? weft_error_at(status, WEFT_AT(.file = j->from, .line = j->number))
                          : status;
    }
    return WEFT_OK;
}

/* A negative prompt of a job's line must have an effect, as one of the command line. */
static weft_status check_negatives(const weft_generation_group *g, const weft_job *job)
{
    const weft_jobs *jobs = g->context->run->jobs;
    for (int64_t i = 0; i < jobs->count; i++) {
        const weft_job *j = &jobs->at[i];
        if (j->negative && *j->negative && weft_jobs_alike(job, j) &&
            !weft_generator_uses_negatives(g->generator))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                              WEFT_AT(.file = j->from, .line = j->number, .key = "negative",
                                      .value = j->negative),
                              "the negative prompt has no effect, because guidance has no "
                              "unconditional branch; raise the guidance scale, or omit it");
    }
    return WEFT_OK;
}

/* ---- reports -------------------------------------------------------------------------------- */

/* Prints the size of the videos, and the predicted peak memory of the ranks. */
static void print_size(const weft_generation_group *g, const weft_job *job)
{
    const weft_generation_context *c = g->context;
    const weft_generator_options *s = weft_generator_settings(g->generator);
    const int texts = weft_generator_text_rank(g->generator);
    const int64_t steps = weft_generator_steps(g->generator),
                  peak = weft_generator_bytes_of(g->generator, texts <= 0);
    int64_t videos = 0;
    char bytes[32];
    for (int64_t i = 0; i < c->run->jobs->count; i++)
        videos += !c->done[i] && weft_jobs_alike(job, &c->run->jobs->at[i]);
    weft_notice(WEFT_MSG_JOB_REPORT,
                WEFT_AT(WEFT_NUMBER(peak),
                        WEFT_DETAILS(WEFT_DETAIL("videos", videos), WEFT_DETAIL("steps", steps),
                                     WEFT_WORD("sampler", s->sampler->name))),
                "%" PRId64 " x %" PRId64 "x%" PRId64 ", %" PRId64 " frame%s, %" PRId64
                " step%s of %s, guidance %g; predicted "
                "peak %s per rank in addition to the program",
                videos, s->width, s->height, job->frames, weft_plural(job->frames), steps,
                weft_plural(steps), s->sampler->name, s->guidance, weft_format_bytes(peak, bytes));
    if (texts > 0)
        weft_notice(
            WEFT_MSG_JOB_REPORT,
            WEFT_AT(WEFT_RANK(texts), WEFT_NUMBER(weft_generator_bytes_of(g->generator, true))),
            "rank %d, which has the text encoders: predicted peak %s", texts,
            weft_format_bytes(weft_generator_bytes_of(g->generator, true), bytes));
}

/* A folder without a scheduler's config may be an incomplete download: its noise levels are a
 * guess. */
static weft_status print_defaults(const weft_generation_group *g)
{
    const weft_generator_options *s = weft_generator_settings(g->generator);
    const char *folder = g->context->run->model;
    char *path = weft_path_join(folder, "scheduler/scheduler_config.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    if (!weft_path_exists(path))
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(.file = folder, .key = "scheduler"),
                    "the folder has no scheduler/scheduler_config.json; uses "
                    "FlowMatchEulerDiscreteScheduler with shift %g and the sampler %s. --shift and "
                    "--sampler set others.",
                    s->shift, s->sampler->name);
    weft_free(path);
    return WEFT_OK;
}

/* Prints the windows, the tiles of the decoder and the layout of the ranks. */
static weft_status print_parts(const weft_generation_group *g)
{
    const weft_generator_options *s = weft_generator_settings(g->generator);
    const bool prints = g->context->team.is_rank0;
    char tiles[64];
    if (prints && weft_generation_group_in_windows(g))
        weft_notice(WEFT_MSG_JOB_REPORT,
                    WEFT_AT(WEFT_NUMBER(g->continuation.count),
                            WEFT_DETAILS(WEFT_DETAIL("window_frames", s->frames),
                                         WEFT_DETAIL("shared_frames", s->visual.prefix_frames))),
                    "%" PRId64 " windows of %" PRId64 " frames; each shares %" PRId64
                    " with the previous window",
                    g->continuation.count, s->frames, s->visual.prefix_frames);
    if (prints && weft_generator_tiles(g->generator, tiles)[0])
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(WEFT_DETAILS(WEFT_WORD("tiles", tiles))),
                    "each frame is decoded in %s, blended where they overlap", tiles);
    weft_buf layout = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_generator_format_layout(g->generator, &layout));
    if (prints && layout.len)
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE, "%s", layout.data);
out:
    weft_buf_free(&layout);
    return status;
}

/* Predicts the seconds from measured kernel rates, before anything runs. */
static weft_status predict_seconds(weft_generation_group *g)
{
    const weft_generation_context *c = g->context;
    const weft_generator_options *s = weft_generator_settings(g->generator);
    weft_generation_estimate estimate;
    char text[3][32];
    if (!c->run->cluster)
        return WEFT_OK;
    const weft_generation_estimator estimator = {
        .folder = c->run->model,
        .options = s,
        .cluster = c->run->cluster,
        .ranks = c->team.comm ? weft_comm_ranks(c->team.comm) : 1};
    WEFT_TRY(weft_generation_estimate_open(&estimator, g->generator, &estimate));
    const double steps = (double)weft_generator_steps(g->generator);
    g->predicted = estimate.text + estimate.first + steps * estimate.step;
    if (c->team.is_rank0)
        weft_notice(
            WEFT_MSG_ESTIMATE,
            WEFT_AT(WEFT_NUMBER(g->predicted),
                    WEFT_DETAILS(WEFT_DETAIL("step_seconds", estimate.step),
                                 WEFT_DETAIL("decode_seconds", estimate.decode),
                                 WEFT_DETAIL("measured_share", estimate.exact))),
            "predicted: %s a step, %s for the denoising of %" PRId64 ", %s for the decoding of a "
            "video (%.0f %% of it by kernels that were measured at their shapes)",
            weft_format_seconds(estimate.step, text[0]), weft_format_seconds(g->predicted, text[1]),
            s->batch, weft_format_seconds(estimate.decode, text[2]), 100 * estimate.exact);
    return WEFT_OK;
}

/* Prints one line per denoiser. */
static void print_cache_stats(const weft_generation_group *g)
{
    weft_buf out = {0};
    if (g->context->team.is_rank0 && weft_generator_format_cache(g->generator, &out) == WEFT_OK &&
        out.len)
        for (char *line = out.data, *end; (end = strchr(line, '\n')); line = end + 1)
            weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE, "%.*s", (int)(end - line), line);
    weft_buf_free(&out);
}

/* ---- generator ------------------------------------------------------------------------------ */

static weft_status open_generator(weft_generation_group *g, const weft_job *job, int64_t batch)
{
    const weft_generation_context *c = g->context;
    weft_generator_options o = *c->run->options;
    o.frames = job->frames;
    o.height = job->height;
    o.width = job->width;
    o.steps = job->steps;
    o.guidance = job->guidance;
    o.batch = batch;
    const weft_status_code status =
        weft_generator_open(c->run->model, &o, c->team.comm, &g->generator);
    if (status != WEFT_OK)
        return job->own ? weft_error_at(status, WEFT_AT(.file = job->from, .line = job->number))
                        : status;
    WEFT_TRY(check_negatives(g, job));
    return c->checked ? WEFT_OK : check_sizes(g);
}

/* Opens the generator and prints its report. Nothing large is reserved. */
static weft_status open_group(weft_generation_group *g, const weft_job *job, int64_t batch)
{
    weft_generation_context *c = g->context;
    WEFT_TRY(open_generator(g, job, batch));
    const weft_generator_options *s = weft_generator_settings(g->generator);
    if (c->team.is_rank0)
        print_size(g, job);
    if (c->team.is_rank0 && !c->checked)
        WEFT_TRY(print_defaults(g));
    c->checked = true;
    WEFT_TRY(weft_continuation_open(job->frames, s->frames, s->visual.prefix_frames,
                                    s->height * s->width, &g->continuation));
    WEFT_TRY(print_parts(g));
    WEFT_TRY(predict_seconds(g));
    g->tokens = weft_generator_tokens(g->generator);
    for (int64_t i = 0; i < c->run->jobs->count; i++)
        if (weft_jobs_alike(job, &c->run->jobs->at[i])) {
            c->items[i].sampler = s->sampler->name;
            c->items[i].fps = s->fps > 0 ? s->fps : weft_generator_fps(g->generator);
        }
    return weft_generation_context_check_outputs(c);
}

static void close_group(weft_generation_group *g)
{
    weft_generator_free(g->generator);
    weft_continuation_close(&g->continuation);
}

/* Maps the initial latents: of one job (frames, rows, columns, channels), or of all jobs with their
 * number as the first dim. Job i uses entry i. With windows each job has an entry per window. */
static weft_status read_noise(const weft_generation_group *g, const char *path, weft_map *map,
                              const float **noise)
{
    const int64_t jobs = g->context->run->jobs->count * g->continuation.count;
    weft_npy npy;
    const int64_t each = weft_generator_noise_floats(g->generator);
    int64_t dim[4], sound[2];
    weft_generator_noise_dims(g->generator, dim);
    weft_generator_sound(g->generator, sound);
    WEFT_TRY(weft_map_open(path, map));
    *noise = NULL;
    WEFT_TRY(weft_npy_parse(map->data, map->bytes, path, &npy));
    if (npy.dtype != WEFT_F32 || npy.count != jobs * each)
        return weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, WEFT_NUMBER(npy.count)),
                          "the file has %" PRId64 " numbers of type %s; f32 of %" PRId64
                          " x %" PRId64 " frames x "
                          "%" PRId64 " x %" PRId64 " x %" PRId64 " channels, then %" PRId64
                          " of sound, are needed",
                          npy.count, weft_dtype_name(npy.dtype), jobs, dim[0], dim[1], dim[2],
                          dim[3], sound[0] * sound[1]);
    *noise = (const float *)npy.data;
    return WEFT_OK;
}

/* Generates the missing videos of batches first..end - 1. `most`: size of the largest batch. */
static weft_status run_batches(weft_generation_context *c, int64_t first, int64_t end, int64_t most)
{
    const weft_job_batches *b = &c->batches;
    weft_generation_group g = {.context = c};
    weft_map map = {0};
    const float *noise = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_group(&g, &c->run->jobs->at[b->order[b->at[first].first]], most));
    if (!c->opened)
        WEFT_GO(weft_generation_context_open_outputs(c));
    WEFT_GO(weft_generator_bind(g.generator));
    if (c->run->noise)
        WEFT_GO(read_noise(&g, c->run->noise, &map, &noise));
    for (int64_t i = first; i < end; i++)
        if (weft_generation_context_is_left(c, &b->at[i]))
            WEFT_GO(weft_generation_batch_run(&g, &b->at[i], noise));
    print_cache_stats(&g);
out:
    weft_map_close(&map);
    close_group(&g);
    return status;
}

weft_status weft_generation_group_run(weft_generation_context *c, int64_t first, int64_t *end)
{
    const weft_job_batches *b = &c->batches;
    const weft_job *job = &c->run->jobs->at[b->order[b->at[first].first]];
    bool left = false;
    int64_t most = 1;
    for (*end = first;
         *end < b->count && weft_jobs_alike(job, &c->run->jobs->at[b->order[b->at[*end].first]]);
         ++*end) {
        left |= weft_generation_context_is_left(c, &b->at[*end]);
        most = b->at[*end].count > most ? b->at[*end].count : most;
    }
    return left ? run_batches(c, first, *end, most) : WEFT_OK;
}
