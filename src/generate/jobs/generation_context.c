#include "generate/jobs/generation_context.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/generator/generator_model.h"

/* Fills unset values of the jobs from the run's options and the model. */
static weft_status resolve_jobs(const weft_generation_run *o)
{
    const weft_generator_options *g = o->options;
    double guidance = g->guidance;
    if (guidance < 0 && o->jobs->count)
        WEFT_TRY(weft_generator_own_guidance(o->model, &guidance));
    for (int64_t i = 0; i < o->jobs->count; i++) {
        weft_job *j = &o->jobs->at[i];
        int64_t size[3] = {j->frames ? j->frames : g->frames, j->height ? j->height : g->height,
                           j->width ? j->width : g->width};
        if (!i || !size[0] || !size[1] || !size[2])
            WEFT_TRY(weft_generator_size(o->model, size));
        j->own = j->frames || j->height || j->width || j->steps || j->guidance >= 0;
        j->frames = size[0];
        j->height = size[1];
        j->width = size[2];
        j->steps = j->steps ? j->steps : g->steps;
        j->guidance = j->guidance >= 0 ? j->guidance : guidance;
    }
    return WEFT_OK;
}

/* Forms teams of one rank, if there is a batch for each; else one team. */
static weft_generation_team form_teams(const weft_generation_run *o, int *teams)
{
    const int ranks = o->comm ? weft_comm_ranks(o->comm) : 1,
              rank = o->comm ? weft_comm_rank(o->comm) : 0;
    const int64_t most = o->options->batch, batches = (o->jobs->count + most - 1) / most;
    const bool apart = ranks > 1 && o->apart && !o->sheet && batches >= ranks;
    *teams = apart ? ranks : 1;
    return (weft_generation_team){.comm = apart ? NULL : o->comm,
                                  .number = apart ? rank : 0,
                                  .writes = apart || rank == 0,
                                  .is_rank0 = rank == 0};
}

static weft_status list_items(weft_generation_context *c)
{
    const weft_jobs *jobs = c->run->jobs;
    c->items = weft_calloc(jobs->count, sizeof *c->items);
    c->done = weft_calloc(jobs->count, sizeof *c->done);
    WEFT_TRY(WEFT_ALLOCATED(c->items && c->done, "%" PRId64 " videos", jobs->count));
    for (int64_t i = 0; i < jobs->count; i++) {
        const weft_job *j = &jobs->at[i];
        c->items[i] = (weft_video_outputs_item){.file = j->out,
                                                .prompt = j->prompt,
                                                .negative = j->negative ? j->negative
                                                                        : c->run->options->negative,
                                                .seed = j->seed,
                                                .frames = j->frames,
                                                .height = j->height,
                                                .width = j->width,
                                                .steps = j->steps,
                                                .guidance = j->guidance,
                                                .fps = c->run->options->fps};
    }
    c->files = (weft_job_files){.out = c->run->out,
                                .items = c->items,
                                .saves = c->run->keep_latents,
                                .warns = c->team.writes};
    return weft_generation_context_check_outputs(c);
}

weft_status weft_generation_context_create(const weft_generation_run *o, weft_generation_context *c,
                                           int *teams)
{
    *c = (weft_generation_context){.run = o, .team = form_teams(o, teams)};
    weft_status_code status = WEFT_OK;
    WEFT_GO(resolve_jobs(o));
    if (!weft_video_outputs_is_file(o->out))
        WEFT_GO(weft_jobs_check_names(o->jobs));
    WEFT_GO(list_items(c));
    for (int64_t i = 0; i < o->jobs->count && o->resume && o->split_states; i++)
        WEFT_GO(weft_job_files_saved_step(&c->files, i, &o->jobs->at[i].begun_at));
    WEFT_GO(weft_jobs_cut(o->jobs, o->options->batch, *teams, &c->batches));
    return WEFT_OK;
out:
    weft_generation_context_free(c);
    return status;
}

void weft_generation_context_free(weft_generation_context *c)
{
    weft_video_outputs_free(c->outputs);
    weft_kept_sound_free(&c->sound);
    weft_job_batches_free(&c->batches);
    weft_free(c->items);
    weft_free(c->done);
    *c = (weft_generation_context){0};
}

/* ---- outputs -------------------------------------------------------------------------------- */

static weft_job_row opening_row(const weft_generation_context *c)
{
    return weft_job_files_row(&c->files, c->run->resume ? WEFT_JOB_RESUMED : WEFT_JOB_FRESH,
                              WEFT_JOB_ANY_FORM);
}

static weft_video_outputs_options outputs_options(const weft_generation_context *c)
{
    return (weft_video_outputs_options){.out = c->run->out,
                                        .sheet = c->run->sheet,
                                        .raw = c->run->raw,
                                        .items = c->items,
                                        .count = c->run->jobs->count,
                                        .goes_on = weft_job_rule(opening_row(c), WEFT_JOB_LIST) !=
                                                   WEFT_RULE_EMPTY};
}

weft_status weft_generation_context_check_outputs(const weft_generation_context *c)
{
    const weft_video_outputs_options g = outputs_options(c);
    return weft_video_outputs_check(&g);
}

weft_status weft_generation_context_open_outputs(weft_generation_context *c)
{
    weft_comm *all = c->run->comm;
    for (int64_t i = 0; i < c->run->jobs->count && c->team.is_rank0; i++)
        weft_job_files_remove(&c->files, i, opening_row(c));
    weft_video_outputs_options g = outputs_options(c);
    if (c->team.is_rank0)
        WEFT_TRY(weft_video_outputs_open(&g, &c->outputs));
    if (all)
        WEFT_TRY(weft_comm_barrier(all));
    g.second = c->opened = true;
    if (!c->team.comm && all)
        weft_comm_set_busy(all, "generating its own videos");
    return c->team.writes && !c->outputs ? weft_video_outputs_open(&g, &c->outputs) : WEFT_OK;
}

/* ---- ranks ---------------------------------------------------------------------------------- */

bool weft_generation_context_is_left(const weft_generation_context *c, const weft_job_batch *b)
{
    for (int64_t i = 0; i < b->count && b->team == c->team.number; i++)
        if (!c->done[c->batches.order[b->first + i]])
            return true;
    return false;
}

weft_status weft_generation_context_check_interrupt(const weft_generation_context *c)
{
    return c->team.comm ? weft_comm_interrupt_check(c->team.comm) : weft_interrupt_check();
}

weft_status weft_generation_context_meet(const weft_generation_context *c, weft_status_code status)
{
    weft_comm *all = c->run->comm;
    if (c->team.comm || !all || weft_comm_ranks(all) == 1 || !c->opened)
        return status;
    double failed[2] = {status != WEFT_OK && status != WEFT_E_CANCELLED,
                        status == WEFT_E_CANCELLED};
    if (failed[0] > 0) {
        (void)weft_error_at(status, WEFT_AT(WEFT_RANK(weft_comm_rank(all))));
        weft_warn_error(WEFT_MSG_RANK_FAILED, "rank %d generates no more videos",
                        weft_comm_rank(all));
    }
    weft_comm_set_busy(all, NULL);
    WEFT_TRY(weft_comm_sum(all, failed, 2));
    WEFT_TRY(status);
    if (failed[0] > 0)
        return weft_error(
            WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_NUMBER(failed[0])),
            "%g ranks failed. Run the same command with --resume to generate the missing videos.",
            failed[0]);
    return failed[1] > 0
               ? weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "interrupted on another rank")
               : WEFT_OK;
}
