#include "train/twin_steps.h"

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for the steps of another rank");
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

/* A copy that borrows all but its programs. */
static weft_status make_pipe(maker *m, const weft_pipe_step *like, weft_pipe_step **pipe)
{
    weft_pipe_step *p = weft_alloc(sizeof *p);
    if (!p)
        return no_memory();
    *p = *like;
    p->own = weft_alloc((p->owns + 1) * (int64_t)sizeof *p->own);
    *pipe = p;
    if (!p->own)
        return no_memory();
    for (int i = 0; i < p->owns; i++)
        p->own[i] = like->own[i];
    for (int i = 0; i < p->owns; i++)
        for (int k = 0; k < WEFT_PIPE_KINDS; k++)
            WEFT_TRY(make_program(m, &p->own[i].program[k]));
    return WEFT_OK;
}

static weft_status make_steps(maker *m, const weft_stage_steps *like)
{
    weft_twin_steps *out = m->out;
    int programs = 0;
    for (int i = 0; i < like->count; i++)
        programs += weft_step_programs(like->bucket[i], NULL);
    out->step = weft_alloc((like->count + 1) * (int64_t)sizeof *out->step);
    out->program = weft_alloc((programs + 1) * (int64_t)sizeof(weft_program *));
    out->steps.bucket = weft_alloc((like->count + 1) * (int64_t)sizeof(weft_step *));
    if (!out->step || !out->program || !out->steps.bucket)
        return no_memory();
    for (int i = 0; i < like->count; i++) {
        weft_step *step = &out->step[i];
        *step = *like->bucket[i];
        step->pipe = NULL;
        out->steps.bucket[i] = step;
        out->steps.count++;
        WEFT_TRY(make_program(m, &step->program));
        if (like->bucket[i]->pipe)
            WEFT_TRY(make_pipe(m, like->bucket[i]->pipe, &step->pipe));
        if (like->bucket[i] == like->share)
            out->steps.share = step;
        if (like->bucket[i] == like->update)
            out->steps.update = step;
    }
    return WEFT_OK;
}

weft_status weft_twin_steps_make(const weft_stage_steps *like, const weft_backend *backend,
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
        if (t->step[i].pipe) {
            weft_free(t->step[i].pipe->own);
            weft_free(t->step[i].pipe);
        }
    weft_free(t->step);
    weft_free(t->program);
    weft_free(t->steps.bucket);
    *t = (weft_twin_steps){0};
}
