#include "generate/jobs/generation_run.h"

#include "base/log.h"
#include "generate/jobs/decode_jobs.h"
#include "generate/jobs/finished_jobs.h"
#include "generate/jobs/generation_group.h"

/* Denoising steps of a job, over all windows. */
static int64_t steps_of(const weft_generation_context *c, const weft_job *job)
{
    const weft_generator_options *g = c->run->options;
    const int64_t shared = g->window_overlap ? g->window_overlap : 1;
    return job->steps *
           (g->continues ? weft_continuation_windows(job->frames, g->window, shared) : 1);
}

/* Returns the remaining denoising steps, and adds the remaining videos to the progress. */
static int64_t count_left(weft_generation_context *c)
{
    int64_t steps = 0;
    for (int64_t i = 0; i < c->batches.count; i++) {
        const weft_job_batch *b = &c->batches.at[i];
        if (!weft_generation_context_is_left(c, b))
            continue;
        steps += steps_of(c, &c->run->jobs->at[c->batches.order[b->first]]);
        c->progress.videos += b->count;
    }
    return steps;
}

static weft_status make_videos(weft_generation_context *c)
{
    if (c->run->resume) {
        WEFT_TRY(weft_generation_context_open_outputs(c));
        WEFT_TRY(weft_decode_jobs(c));
        weft_finished_jobs_clean(c);
    }
    const int64_t steps = count_left(c);
    weft_generation_progress_begin(&c->progress, steps, !c->team.is_rank0);
    for (int64_t first = 0, end; first < c->batches.count; first = end)
        WEFT_TRY(weft_generation_group_run(c, first, &end));
    weft_generation_progress_end(&c->progress);
    return WEFT_OK;
}

weft_status weft_generation_run_execute(const weft_generation_run *o)
{
    weft_generation_context c;
    int teams;
    WEFT_TRY(weft_generation_context_create(o, &c, &teams));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_finished_jobs_find(&c));
    if (teams > 1 && c.team.is_rank0)
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(WEFT_NUMBER(teams)),
                    "%d ranks generate videos separately, %" PRId64 " batches in total", teams,
                    c.batches.count);
    WEFT_GO(weft_generation_context_meet(&c, make_videos(&c)));
    if (c.team.is_rank0)
        WEFT_GO(weft_video_outputs_finish(c.outputs));
out:
    weft_generation_context_free(&c);
    return status;
}
