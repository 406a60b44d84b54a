#include "serve/shared_ranks.h"

#include "base/log.h"
#include "serve/job_ranks.h"
#include "serve/job_run.h"
#include "serve/worker_lock.h"

#include <math.h>
#include <unistd.h>

void weft_shared_ranks_count(weft_server *s)
{
    const double now = weft_now();
    int64_t busy = 0;
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++)
        busy += g->running[0] ? g->ranks : 0;
    for (weft_served_group *g = s->groups; g < s->groups + s->group_count; g++) {
        const int64_t own = g->running[0] ? g->ranks : 0, others = s->options->ranks - own;
        g->crowd_seconds += g->crowd * (now - g->crowd_at);
        g->crowd_at = now;
        g->crowd = own && others > 0 ? (double)(busy - own) / (double)others : 0;
    }
}

static int count_bits(unsigned mask)
{
    int count = 0;
    for (; mask; mask &= mask - 1)
        count++;
    return count;
}

/* The first `count` ones of a mask. */
static unsigned first_bits(unsigned mask, int64_t count)
{
    unsigned found = 0;
    for (; count > 0 && mask; count--, mask &= mask - 1)
        found |= mask & (~mask + 1);
    return found;
}

static bool is_idle(const weft_supervisor *v)
{
    return v->worker.child.pid && !v->retired && !v->group->running[0];
}

/* Ranks that no worker has. */
static unsigned free_places(const weft_server *s)
{
    unsigned taken = 0;
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++)
        taken |= g->places;
    return ((1u << s->options->ranks) - 1) & ~taken;
}

/* A group without a worker whose lock is free, for a worker with `ranks` ranks; NULL: none. */
static weft_status open_group(weft_supervisor *groups, int64_t ranks, weft_supervisor **found,
                              int *lock)
{
    weft_server *s = groups->server;
    const unsigned free = free_places(s);
    for (weft_supervisor *v = groups; count_bits(free) >= ranks && v < groups + s->group_count;
         v++) {
        if (v->worker.child.pid || v->group->running[0])
            continue;
        WEFT_TRY(weft_worker_try_lock(s, v->group - s->groups, lock));
        if (*lock < 0)
            continue;
        v->group->ranks = ranks;
        v->group->places = first_bits(free, ranks);
        *found = v;
        return WEFT_OK;
    }
    return WEFT_OK;
}

/* Ends workers without jobs until their ranks suffice for another worker. */
static void retire(weft_supervisor *groups, int64_t ranks)
{
    const weft_server *s = groups->server;
    int64_t have = count_bits(free_places(s));
    for (weft_supervisor *v = groups; v < groups + s->group_count; v++)
        have += v->retired ? v->group->ranks : 0;
    for (weft_supervisor *v = groups; have < ranks && v < groups + s->group_count; v++)
        if (is_idle(v)) {
            weft_worker_retire(&v->worker);
            v->retired = true;
            v->retiring = weft_now();
            have += v->group->ranks;
        }
}

/* A worker with `ranks` ranks and no job, or a group for one, with its lock; NULL: none yet. */
static weft_status find_group(weft_supervisor *groups, int64_t ranks, weft_supervisor **found,
                              int *lock)
{
    *found = NULL;
    *lock = -1;
    for (weft_supervisor *v = groups; v < groups + groups->server->group_count; v++)
        if (is_idle(v) && v->group->ranks == ranks) {
            *found = v;
            return WEFT_OK;
        }
    WEFT_TRY(open_group(groups, ranks, found, lock));
    if (!*found)
        retire(groups, ranks);
    return WEFT_OK;
}

/* Starts a job on the ranks of a group. */
static weft_status start_on(weft_supervisor *v, weft_queue_job *job, int lock)
{
    const double left = job->remaining > 0 ? job->remaining : job->seconds;
    weft_server *s = v->server;
    weft_served_group *g = v->group;
    double seconds = job->seconds;
    weft_elastic_size size;
    WEFT_TRY(weft_job_set_ranks(s->store, job, g->ranks, &seconds));
    weft_share_size(job, true, &s->learned.ranks, s->options->ranks, &size);
    const double step = size.step[weft_share_degree(g->ranks)];
    g->scale = seconds > 0 ? job->seconds / seconds : 1;
    g->stepping = isfinite(step) ? (double)size.steps * step : left / g->scale;
    g->ending = size.decode;
    g->step_price = weft_share_step_price(job, g->ranks);
    const weft_status_code status = weft_job_run_start(v, job, 1, left / g->scale, lock);
    weft_shared_ranks_count(s);
    return status;
}

static weft_status start_choice(weft_supervisor *groups, const weft_share_choice *c)
{
    weft_queue_job job;
    weft_supervisor *v = NULL;
    bool found;
    int lock = -1;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_queue_store_at(groups->server->store, c->number, &job, &found));
    if (!found)
        return WEFT_OK;
    if (job.state == WEFT_QUEUE_QUEUED)
        WEFT_GO(find_group(groups, c->ranks, &v, &lock));
    if (v)
        WEFT_GO(start_on(v, &job, lock));
out:
    if (v && !v->worker.child.pid)
        v->group->places = 0;
    if (lock >= 0)
        close(lock);
    weft_queue_job_free(&job);
    return status;
}

/* Whether a job could not start because the disk was full, a moment ago. */
static bool waits_for_space(const weft_supervisor *groups)
{
    const double now = weft_now();
    for (const weft_supervisor *v = groups; v < groups + groups->server->group_count; v++)
        if (now < v->retry)
            return true;
    return false;
}

weft_status weft_shared_ranks_claim(weft_supervisor *groups)
{
    weft_server *s = groups->server;
    const weft_queue_view *queue;
    weft_share_choice choices[WEFT_SHARE_RANKS];
    int count;
    int64_t idle = s->options->ranks;
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++)
        idle -= g->running[0] ? g->ranks : 0;
    if (idle <= 0 || waits_for_space(groups))
        return WEFT_OK;
    WEFT_TRY(weft_server_queue(s, &queue));
    WEFT_TRY(weft_share_choose(queue, choices, &count));
    for (int i = 0; i < count; i++)
        WEFT_TRY(start_choice(groups, &choices[i]));
    return WEFT_OK;
}

/* Whether a worker stops to change the ranks of its job. */
static bool is_resizing(const weft_server *s)
{
    const weft_supervisor *v = s->supervisor;
    for (int i = 0; v && i < s->group_count; i++)
        if (v[i].worker.job && v[i].signalled && v[i].next)
            return true;
    return false;
}

weft_status weft_shared_ranks_choose(weft_supervisor *v)
{
    weft_server *s = v->server;
    const weft_queue_view *queue;
    int64_t ranks;
    if (!s->options->elastic || is_resizing(s))
        return WEFT_OK;
    WEFT_TRY(weft_server_queue(s, &queue));
    WEFT_TRY(weft_share_resize(queue, v->group->number, &ranks));
    v->next = ranks != v->group->ranks ? v->group->number : 0;
    s->stops += v->next != 0;
    return WEFT_OK;
}
