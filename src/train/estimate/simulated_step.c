#include "train/estimate/simulated_step.h"

#include "base/log.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/program_sent.h"
#include "train/estimate/simulated_estimate.h"
#include "train/step/twin_steps.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct player {
    const weft_simulated_setup *setup;
    weft_simulated_step *out;
    weft_comm *comm;
    int rank;
    double now; /* simulated clock, seconds */
    weft_backend *backend;
    const weft_rank_kind *kind; /* kind whose programs are copied */
    weft_twin_steps twin;
    weft_pp_executor *pp_executor;
    weft_status_code status;
    weft_error_copy *error; /* error of `status` */
} player;

static weft_status no_memory(void)
{
    return weft_no_memory("the ranks of a simulated step");
}

/* The device has no values and reserves no memory. */
static weft_status open_backend(const weft_simulated_setup *s, double *clock,
                                weft_backend **backend)
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
    for (int i = 0; i < p->twin.programs; i++) /* otherwise the first run does, within its step */
        WEFT_TRY(weft_program_compare(p->twin.program[i]));
    if (!p->kind->pp)
        return WEFT_OK;
    WEFT_TRY(weft_stage_programs_pipe(&p->twin.steps, &p->pp_executor));
    return weft_pp_executor_bind(p->pp_executor, world, &p->out->mesh);
}

/* Sets all clocks to the latest one. */
static weft_status align(player *p)
{
    double *all;
    WEFT_TRY(WEFT_NEW(all, p->out->ranks, "the ranks of a simulated step"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_all_gather(p->comm, &p->now, sizeof p->now, all));
    for (int r = 0; r < p->out->ranks; r++)
        p->now = all[r] > p->now ? all[r] : p->now;
out:
    weft_free(all);
    return status;
}

static weft_status run_microbatches(player *p)
{
    const weft_stage_programs *s = &p->twin.steps;
    weft_status_code status = WEFT_OK;
    for (int64_t m = 0; m < s->runs && !p->pp_executor; m++)
        WEFT_TRY(weft_program_run(s->bucket[m % s->buckets]->program));
    if (!p->pp_executor)
        return WEFT_OK;
    int *bucket_of = weft_calloc(s->runs, sizeof *bucket_of);
    for (int64_t m = 0; m < s->runs && bucket_of; m++)
        bucket_of[m] = (int)(m % s->buckets);
    status = bucket_of ? weft_pp_executor_step(p->pp_executor, bucket_of) : no_memory();
    weft_free(bucket_of);
    return status;
}

static weft_status play_step(player *p)
{
    const weft_stage_programs *s = &p->twin.steps;
    weft_simulated_rank *r = &p->out->rank[p->rank];
    int64_t messages, bytes;
    WEFT_TRY(align(p));
    const double begin = p->now;
    weft_comm_sent(p->comm, &messages, &bytes);
    WEFT_TRY(run_microbatches(p));
    weft_comm_sent(p->comm, &r->messages, &r->sent);
    r->messages -= messages;
    r->sent -= bytes;
    r->seconds = p->now - begin;
    WEFT_TRY(align(p));
    const double done = p->now;
    for (int i = s->buckets; i < s->count; i++)
        WEFT_TRY(weft_program_run(s->bucket[i]->program));
    r->update_seconds = p->now - done;
    return WEFT_OK;
}

/* Records the messages of rank 0 in a step by axis. Messages of the microbatches that are not of
 * collectives go to other pipeline stages. */
static void record_sent(const player *p)
{
    const weft_stage_programs *s = &p->twin.steps;
    weft_simulated_step *out = p->out;
    weft_sent inside = {out->rank[0].messages, out->rank[0].sent};
    weft_program **program = p->twin.program; /* same order as s->bucket[] */
    for (int i = 0; i < s->count; i++) {
        weft_sent own[WEFT_MAX_AXES] = {0};
        const int programs = weft_step_programs(s->bucket[i], NULL);
        for (int k = 0; k < programs; k++)
            weft_program_add_sent(*program++, 1, own);
        for (int a = 0; a < out->mesh.axis_count; a++) {
            out->sent[a].messages += own[a].messages;
            out->sent[a].bytes += own[a].bytes;
            inside.messages -= i < s->buckets ? own[a].messages : 0;
            inside.bytes -= i < s->buckets ? own[a].bytes : 0;
        }
    }
    if (!p->kind->pp)
        return;
    out->sent[p->kind->pp->axis].messages += inside.messages;
    out->sent[p->kind->pp->axis].bytes += inside.bytes;
}

static weft_status play(player *p)
{
    WEFT_TRY(set_up(p));
    WEFT_TRY(play_step(p));
    atomic_fetch_add(&p->out->done, 1);
    if (p->rank == 0)
        record_sent(p);
    return WEFT_OK;
}

static void *play_rank(void *user)
{
    player *p = user;
    p->status = play(p);
    if (p->status != WEFT_OK) {
        p->error = weft_error_save();
        weft_comm_abort(p->comm);
    }
    weft_comm_leave(p->comm);
    weft_pp_executor_free(p->pp_executor);
    weft_twin_steps_free(&p->twin);
    weft_backend_virtual_free(p->backend);
    atomic_fetch_sub(&p->out->left, 1);
    return NULL;
}

/* ---- all ranks ----------------------------------------------------------------------------- */

static void add_up(weft_simulated_step *s)
{
    double kernels = 0;
    for (int r = 0; r < s->ranks; r++) {
        s->seconds = s->rank[r].seconds > s->seconds ? s->rank[r].seconds : s->seconds;
        s->update_seconds = s->rank[r].update_seconds > s->update_seconds
                                ? s->rank[r].update_seconds
                                : s->update_seconds;
        kernels += s->rank[r].kernels;
    }
    s->idle = s->seconds > 0 ? 1 - kernels / (s->seconds * s->ranks) : 0;
}

/* The error of the first rank that failed itself. Other ranks report WEFT_E_COMM because it
 * failed. */
static weft_status first_error(const player *p, int ranks)
{
    const player *found = NULL;
    for (int r = 0; r < ranks; r++)
        if (p[r].status != WEFT_OK && (!found || found->status == WEFT_E_COMM))
            found = &p[r];
    return found ? weft_error_add(weft_error_at(weft_error_restore(found->error),
                                                WEFT_AT(WEFT_RANK(found->rank))),
                                  "Rank %d reported the error", found->rank)
                 : WEFT_OK;
}

/* All ranks finish at about the same time, so the remaining seconds are computed from the
 * estimate. */
static void show(const weft_simulated_step *s, weft_progress *progress)
{
    const double left = s->estimate - (weft_now() - progress->started);
    weft_progress_update_left(progress, atomic_load(&s->done), "steps of ranks",
                              left > 0 ? left : -1);
}

/* Shows the progress of the ranks until all are done. */
static void watch(const weft_simulated_step *s, weft_progress *progress)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    for (; atomic_load(&s->left) > 0; nanosleep(&pause, NULL))
        show(s, progress);
    weft_progress_end(progress, atomic_load(&s->done), "steps of ranks");
}

static weft_status play_all(const weft_simulated_setup *setup, const weft_rank_kinds *kinds,
                            weft_simulated_step *out)
{
    const int ranks = out->ranks;
    weft_link_model links = setup->links;
    weft_comm **comm = weft_calloc(ranks, sizeof *comm);
    player *player_of = weft_calloc(ranks, sizeof *player_of);
    pthread_t *thread = weft_calloc(ranks, sizeof *thread);
    weft_status_code status = WEFT_OK;
    weft_progress progress;
    int running = 0;
    links.clocked = true;
    atomic_store(&out->left, 0);
    weft_progress_begin_late(&progress, "executing", ranks);
    WEFT_GO(WEFT_ALLOCATED(comm && player_of && thread, "the ranks of a simulated step"));
    WEFT_GO(weft_comm_open_threads_linked(ranks, &links, comm));
    for (; running < ranks; running++) {
        player *p = &player_of[running];
        *p = (player){.setup = setup,
                      .out = out,
                      .comm = comm[running],
                      .rank = running,
                      .kind = &kinds->kind[kinds->of[running]]};
        weft_comm_set_deadline(p->comm, 600);
        show(out, &progress); /* starting thousands of threads takes long */
        atomic_fetch_add(&out->left, 1);
        if (pthread_create(&thread[running], NULL, play_rank, p) != 0) {
            status = weft_no_memory("a thread for rank %d", running);
            weft_comm_abort(p->comm); /* stops the running ranks */
            atomic_fetch_sub(&out->left, 1);
            break;
        }
    }
    watch(out, &progress);
    for (int r = 0; r < running; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++)
        weft_comm_free(comm[r]);
    WEFT_GO(weft_status_first(status, first_error(player_of, running)));
    add_up(out);
out:
    for (int r = 0; r < running; r++)
        weft_free(player_of[r].error);
    weft_free(comm);
    weft_free(player_of);
    weft_free(thread);
    return status;
}

static int64_t messages_of(const weft_rank_kind *kind)
{
    int64_t messages = 0;
    for (int a = 0; a < WEFT_MAX_AXES; a++)
        messages += kind->sent[a].messages;
    return messages;
}

/* Estimated CPU seconds of an execution, from measured costs of a simulated message and of a rank's
 * thread, programs and groups. */
static double estimate(const weft_rank_kinds *kinds)
{
    enum { MESSAGE = 4, RANK = 8000 }; /* microseconds */
    double us = 0;
    for (int r = 0; r < kinds->ranks; r++)
        us += RANK + MESSAGE * (double)messages_of(&kinds->kind[kinds->of[r]]);
    return 1e-6 * us;
}

static bool executes(const weft_simulated_setup *s, double seconds)
{
    const double most = 60;
    return s->execute == WEFT_EXECUTE_ALWAYS ||
           (s->execute == WEFT_EXECUTE_AUTO && seconds <= most);
}

/* Plans programs for every kind of rank, estimates the step and executes it. */
static weft_status execute(const weft_simulated_setup *setup, const weft_backend *backend,
                           weft_simulated_step *s)
{
    weft_rank_kinds kinds = {0};
    WEFT_TRY(weft_rank_kinds_plan(setup, &s->mesh, backend,
                                  setup->separate ? WEFT_RANK_KINDS_SEPARATE : WEFT_RANK_KINDS_ALL,
                                  &kinds));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_simulated_step_estimate(setup, &kinds, s));
    WEFT_GO(play_all(setup, &kinds, s));
out:
    s->executed = status == WEFT_OK;
    weft_rank_kinds_free(&kinds);
    return status;
}

static weft_status make_step(const weft_simulated_setup *setup, weft_simulated_step *s)
{
    weft_pp_layout *pp = NULL;
    WEFT_TRY(weft_parallel_mesh(&setup->run->parallel, 0, setup->path, &s->mesh));
    WEFT_TRY(weft_pp_layout_open(&setup->run->parallel, &s->mesh, 0, setup->path, &pp));
    s->ranks = weft_mesh_ranks(&s->mesh);
    s->pp_stages = pp ? pp->pp_stages : 0;
    weft_pp_layout_free(pp);
    s->pp_stage = weft_calloc(s->pp_stages + 1, sizeof *s->pp_stage);
    s->rank = weft_calloc(s->ranks, sizeof *s->rank);
    return WEFT_ALLOCATED(s->pp_stage && s->rank, "the ranks of a simulated step");
}

weft_status weft_simulated_step_run(const weft_simulated_setup *setup, weft_simulated_step *step)
{
    weft_simulated_step s = {0};
    weft_backend *backend = NULL;
    weft_rank_kinds firsts = {0};
    double clock = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_step(setup, &s));
    WEFT_GO(open_backend(setup, &clock, &backend));
    WEFT_GO(weft_rank_kinds_plan(setup, &s.mesh, backend, WEFT_RANK_KINDS_FIRSTS, &firsts));
    s.estimate = estimate(&firsts);
    if (executes(setup, s.estimate))
        WEFT_GO(execute(setup, backend, &s));
    else
        WEFT_GO(weft_simulated_step_estimate(setup, &firsts, &s));
    *step = s;
    s = (weft_simulated_step){0};
out:
    weft_rank_kinds_free(&firsts);
    weft_backend_virtual_free(backend);
    weft_simulated_step_free(&s);
    return status;
}

void weft_simulated_step_free(weft_simulated_step *s)
{
    weft_pp_schedule_free(&s->table);
    weft_free(s->pp_stage);
    weft_free(s->rank);
    weft_free(s->skip);
    weft_free(s->print);
    *s = (weft_simulated_step){0};
}
