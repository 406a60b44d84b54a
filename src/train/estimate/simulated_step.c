#include "train/modelled.h"

#include "train/rank_kinds.h"
#include "train/rehearsal.h"
#include "train/twin_steps.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct player {
    const weft_modelled_setup *setup;
    weft_modelled_step *out;
    weft_comm *comm;
    int rank;
    double now; /* its clock */
    weft_backend *backend;
    const weft_rank_kind *kind; /* whose plans it uses */
    weft_twin_steps twin;
    weft_pipe_run *stages;
    weft_status_code status;
    char error[600];
} player;

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for the ranks of a modelled step");
}

/* Nothing is computed, so nothing is reserved. */
static weft_status open_backend(const weft_modelled_setup *s, double *clock, weft_backend **backend)
{
    weft_virtual_rates rates = s->rates;
    rates.clock = clock;
    rates.scale = 1;
    rates.empty = true;
    return weft_backend_virtual_create(&rates, backend);
}

/* ---- one rank ------------------------------------------------------------------------------ */

static weft_status set_up(player *p)
{
    weft_group *world;
    WEFT_TRY(open_backend(p->setup, &p->now, &p->backend));
    WEFT_TRY(weft_twin_steps_make(&p->kind->steps, p->backend, p->rank, &p->twin));
    WEFT_TRY(weft_comm_world(p->comm, &world));
    WEFT_TRY(weft_programs_bind(p->twin.program, p->twin.programs, NULL, world));
    WEFT_TRY(weft_stage_steps_pipe(&p->twin.steps, &p->stages));
    return weft_pipe_run_bind(p->stages, world, &p->out->mesh);
}

/* All clocks show what the latest does. */
static weft_status align(player *p)
{
    double *all = weft_alloc(p->out->ranks * (int64_t)sizeof *all);
    if (!all)
        return no_memory();
    const weft_status_code status = weft_comm_all_gather(p->comm, &p->now, sizeof p->now, all);
    for (int r = 0; r < p->out->ranks && status == WEFT_OK; r++)
        p->now = all[r] > p->now ? all[r] : p->now;
    weft_free(all);
    return status;
}

static weft_status play_step(player *p)
{
    const weft_stage_steps *s = &p->twin.steps;
    weft_modelled_rank *r = &p->out->rank[p->rank];
    int64_t messages, bytes;
    int *bucket_of = weft_alloc(s->runs * (int64_t)sizeof *bucket_of);
    weft_status_code status = bucket_of ? WEFT_OK : no_memory();
    for (int64_t m = 0; m < s->runs && bucket_of; m++)
        bucket_of[m] = (int)(m % s->buckets);
    WEFT_GO(align(p));
    const double begin = p->now;
    weft_comm_sent(p->comm, &messages, &bytes);
    WEFT_GO(weft_pipe_run_step(p->stages, bucket_of));
    weft_comm_sent(p->comm, &r->messages, &r->sent);
    r->messages -= messages;
    r->sent -= bytes;
    r->seconds = p->now - begin;
    r->kernels = p->kind->kernels;
    WEFT_GO(align(p));
    const double done = p->now;
    for (int i = s->buckets; i < s->count; i++)
        WEFT_GO(weft_program_run(s->bucket[i]->program));
    r->behind = p->now - done;
out:
    weft_free(bucket_of);
    return status;
}

static weft_status tell_skips(const weft_stages *s, weft_modelled_step *out)
{
    out->skip = weft_alloc((s->links + 1) * (int64_t)sizeof *out->skip);
    for (int l = 0; l < s->links && out->skip; l++) {
        const weft_stage_link *link = &s->link[l];
        const weft_value_info *info = weft_value_get(s->graph, (weft_value){link->value});
        int i = 0;
        if (!link->local || link->to == link->from + 1)
            continue;
        while (i < out->skips && (out->skip[i].from != link->from || out->skip[i].to != link->to))
            i++;
        if (i == out->skips)
            out->skip[out->skips++] = (weft_skip){.from = link->from, .to = link->to};
        out->skip[i].bytes +=
            (double)(weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype));
    }
    return out->skip ? WEFT_OK : no_memory();
}

/* What the stages of this rank are like; equal on all ranks that have the same. */
static weft_status tell(player *p)
{
    weft_modelled_step *out = p->out;
    const weft_stage_steps *steps = &p->kind->steps;
    const weft_pipe_step *step = steps->bucket[0]->pipe;
    const weft_stages *stages = &step->stages;
    out->rank[p->rank].bytes = p->kind->bytes;
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(&out->mesh, p->rank, at);
    for (int a = 0; a < out->mesh.axis_count; a++)
        if (at[a] && a != p->kind->pipe->axis)
            return WEFT_OK; /* another has told it */
    for (int i = 0; i < step->owns; i++) {
        weft_modelled_stage *own = &out->stage[step->own[i].stage];
        for (int k = 0; k < WEFT_PIPE_KINDS; k++)
            if (step->own[i].program[k])
                own->seconds[k] = weft_rehearsal_kernels(p->backend, step->own[i].graph[k]);
        for (int l = 0; l < stages->links; l++) {
            const weft_stage_link *link = &stages->link[l];
            const weft_value_info *info = weft_value_get(stages->graph, (weft_value){link->value});
            if (!link->local && link->from == step->own[i].stage)
                own->sent +=
                    (double)(weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype));
        }
    }
    if (p->rank > 0)
        return WEFT_OK;
    weft_buf text = {0};
    weft_pipe_print(p->kind->pipe, steps->runs, &text);
    out->print = text.data;
    out->microbatches = steps->runs;
    WEFT_TRY(tell_skips(stages, out));
    return weft_pipe_table(p->kind->pipe, steps->runs, &out->table);
}

static weft_status play(player *p)
{
    WEFT_TRY(set_up(p));
    for (int turn = 0; turn < 2; turn++) /* in the first the ranks compare what they exchange */
        WEFT_TRY(play_step(p));
    return tell(p);
}

static void *play_rank(void *user)
{
    player *p = user;
    p->status = play(p);
    if (p->status != WEFT_OK) {
        snprintf(p->error, sizeof p->error, "%s", weft_error_message());
        weft_comm_give_up(p->comm);
    }
    weft_comm_leave(p->comm);
    weft_pipe_run_free(p->stages);
    weft_twin_steps_free(&p->twin);
    weft_backend_virtual_free(p->backend);
    return NULL;
}

/* ---- all of them --------------------------------------------------------------------------- */

static void add_up(weft_modelled_step *s)
{
    double kernels = 0;
    for (int r = 0; r < s->ranks; r++) {
        s->seconds = s->rank[r].seconds > s->seconds ? s->rank[r].seconds : s->seconds;
        s->behind = s->rank[r].behind > s->behind ? s->rank[r].behind : s->behind;
        kernels += s->rank[r].kernels;
    }
    s->idle = s->seconds > 0 ? 1 - kernels / (s->seconds * s->ranks) : 0;
}

/* The first that failed by itself: the others say that it gave up. */
static weft_status first_error(const player *p, int ranks)
{
    const player *found = NULL;
    for (int r = 0; r < ranks; r++)
        if (p[r].status != WEFT_OK && (!found || found->status == WEFT_E_COMM))
            found = &p[r];
    return found ? weft_fail(found->status, "rank %d: %s", found->rank, found->error) : WEFT_OK;
}

static weft_status play_all(const weft_modelled_setup *setup, const weft_rank_kinds *kinds,
                            weft_modelled_step *out)
{
    const int ranks = out->ranks;
    weft_link_model links = setup->links;
    weft_comm **comm = weft_alloc(ranks * (int64_t)sizeof *comm);
    player *player_of = weft_alloc(ranks * (int64_t)sizeof *player_of);
    pthread_t *thread = weft_alloc(ranks * (int64_t)sizeof *thread);
    weft_status_code status = comm && player_of && thread ? WEFT_OK : no_memory();
    int running = 0;
    links.clocked = true;
    WEFT_GO(status);
    WEFT_GO(weft_comm_open_fake_linked(ranks, &links, comm));
    for (; running < ranks && status == WEFT_OK; running++) {
        player *p = &player_of[running];
        *p = (player){.setup = setup,
                      .out = out,
                      .comm = comm[running],
                      .rank = running,
                      .kind = &kinds->kind[kinds->of[running]]};
        weft_comm_set_deadline(p->comm, 600);
        if (pthread_create(&thread[running], NULL, play_rank, p) != 0) {
            status = weft_fail(WEFT_E_MEMORY, "cannot start a thread for rank %d", running);
            weft_comm_give_up(p->comm); /* ends the others */
            break;
        }
    }
    for (int r = 0; r < running; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++)
        weft_comm_free(comm[r]);
    WEFT_GO(first_error(player_of, running));
    add_up(out);
out:
    weft_free(comm);
    weft_free(player_of);
    weft_free(thread);
    return status;
}

weft_status weft_modelled_step_run(const weft_modelled_setup *setup, weft_modelled_step *step)
{
    weft_modelled_step s = {0};
    weft_pipe *pipe = NULL;
    weft_backend *backend = NULL;
    weft_rank_kinds kinds = {0};
    double clock = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_parallel_mesh(&setup->run->parallel, 0, setup->path, &s.mesh));
    WEFT_GO(weft_pipe_open(&setup->run->parallel, &s.mesh, 0, setup->path, &pipe));
    if (!pipe)
        WEFT_GO(weft_fail(WEFT_E_CONFIG,
                          "%s: parallel.pp: a step is modelled of a pipeline, and the run has none",
                          setup->path));
    s.ranks = weft_mesh_ranks(&s.mesh);
    s.stages = pipe->stages;
    s.stage = weft_alloc(s.stages * (int64_t)sizeof *s.stage);
    s.rank = weft_alloc(s.ranks * (int64_t)sizeof *s.rank);
    if (!s.stage || !s.rank)
        WEFT_GO(no_memory());
    WEFT_GO(open_backend(setup, &clock, &backend));
    WEFT_GO(weft_rank_kinds_plan(setup, &s.mesh, backend, &kinds));
    WEFT_GO(play_all(setup, &kinds, &s));
    *step = s;
    s = (weft_modelled_step){0};
out:
    weft_rank_kinds_free(&kinds);
    weft_backend_virtual_free(backend);
    weft_pipe_free(pipe);
    weft_modelled_step_free(&s);
    return status;
}

void weft_modelled_step_free(weft_modelled_step *s)
{
    weft_schedule_free(&s->table);
    weft_free(s->stage);
    weft_free(s->rank);
    weft_free(s->skip);
    weft_free(s->print);
    *s = (weft_modelled_step){0};
}
