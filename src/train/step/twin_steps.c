#include "train/step/twin_steps.h"

#include "exec/twin.h"

static weft_status no_memory(void)
{
    return weft_no_memory("the steps of another rank");
}

typedef struct maker {
    const weft_backend *backend;
    int rank;
    weft_twin_steps *out;
} maker;

static weft_status make_program(maker *m, weft_program **program)
{
    if (!*program)
        return WEFT_OK;
    WEFT_TRY(weft_program_twin(*program, m->backend, m->rank, program));
    m->out->program[m->out->programs++] = *program;
    return WEFT_OK;
}

/* Makes a copy that borrows everything but its programs. */
static weft_status make_pp_step(maker *m, const weft_pp_step *like, weft_pp_step **pp_step)
{
    weft_pp_step *p;
    WEFT_TRY(WEFT_NEW(p, 1, "the steps of another rank"));
    *p = *like;
    p->own = weft_calloc(p->owns + 1, sizeof *p->own);
    *pp_step = p;
    WEFT_TRY(WEFT_ALLOCATED(p->own, "the steps of another rank"));
    for (int i = 0; i < p->owns; i++)
        p->own[i] = like->own[i];
    for (int i = 0; i < p->owns; i++)
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++)
            WEFT_TRY(make_program(m, &p->own[i].program[k]));
    return WEFT_OK;
}

static weft_status make_steps(maker *m, const weft_stage_programs *like)
{
    weft_twin_steps *out = m->out;
    int programs = 0;
    for (int i = 0; i < like->count; i++)
        programs += weft_step_programs(like->bucket[i], NULL);
    out->step = weft_calloc(like->count + 1, sizeof *out->step);
    out->program = weft_calloc(programs + 1, sizeof(weft_program *));
    out->steps.bucket = weft_calloc(like->count + 1, sizeof(weft_step *));
    if (!out->step || !out->program || !out->steps.bucket)
        return no_memory();
    for (int i = 0; i < like->count; i++) {
        weft_step *step = &out->step[i];
        *step = *like->bucket[i];
        step->pp_step = NULL;
        out->steps.bucket[i] = step;
        out->steps.count++;
        WEFT_TRY(make_program(m, &step->program));
        if (like->bucket[i]->pp_step)
            WEFT_TRY(make_pp_step(m, like->bucket[i]->pp_step, &step->pp_step));
        if (like->bucket[i] == like->share)
            out->steps.share = step;
        if (like->bucket[i] == like->update)
            out->steps.update = step;
    }
    return WEFT_OK;
}

weft_status weft_twin_steps_make(const weft_stage_programs *like, const weft_backend *backend,
                                 int rank, weft_twin_steps *twin)
{
    maker m = {.backend = backend, .rank = rank, .out = twin};
    *twin = (weft_twin_steps){.steps = *like};
    twin->steps.bucket = NULL;
    twin->steps.share = twin->steps.update = NULL;
    twin->steps.count = 0;
    const weft_status_code status = make_steps(&m, like);
    if (status != WEFT_OK)
        weft_twin_steps_free(twin);
    return status;
}

void weft_twin_steps_free(weft_twin_steps *t)
{
    for (int i = 0; i < t->programs; i++)
        weft_program_free(t->program[i]);
    for (int i = 0; i < t->steps.count; i++)
        if (t->step[i].pp_step) {
            weft_free(t->step[i].pp_step->own);
            weft_free(t->step[i].pp_step);
        }
    weft_free(t->step);
    weft_free(t->program);
    weft_free(t->steps.bucket);
    *t = (weft_twin_steps){0};
}
