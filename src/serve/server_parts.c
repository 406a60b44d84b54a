#include "serve/server_parts.h"

#include "base/log.h"
#include "serve/event_stream.h"
#include "serve/http_server.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double weft_server_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void weft_server_wake(weft_server *s)
{
    (void)!write(s->wake[1], "", 1);
}

void weft_server_changed(weft_server *s, const char *id)
{
    weft_http_server_wake(s);
    weft_event_streams_changed(s, id);
    pthread_cond_broadcast(&s->job_ended);
}

/* Seconds until the end of the job of a group that shares the ranks. */
static double left_of(const weft_served_group *g)
{
    double step;
    const double left =
        weft_job_seconds_left_since(&g->progress, g->ending, weft_now() - g->told, &step);
    return left >= 0 ? left : fmax(0, g->start + g->stepping + g->ending - (weft_now() - g->since));
}

/* The steps of weft_share_held. */
static int64_t steps_left(const weft_worker_progress *p)
{
    const int64_t steps = weft_job_steps(p) - p->done;
    return p->total == 0 ? 0 : steps > 0 ? steps : -1;
}

/* The running jobs, and the starts and seconds of others, of shared ranks. */
static void set_share(weft_server *s)
{
    weft_share_moment *m = &s->share;
    double cold = 0;
    *m = (weft_share_moment){.now = weft_server_time(),
                             .ranks = s->options->ranks,
                             .elastic = s->options->elastic,
                             .starts = {.retire = s->learned.retire},
                             .table = &s->learned.ranks};
    for (int k = 0; k < WEFT_ELASTIC_DEGREES && 1 << k <= m->ranks; k++) {
        const weft_rank_seconds known = weft_rank_table_of(m->table, k);
        m->starts.warm[k] = known.warm;
        m->starts.cold[k] = known.cold;
        m->slowness[k] = known.slowness;
        cold = fmax(cold, known.cold);
    }
    m->change = s->learned.stop + s->learned.retire + cold;
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++)
        if (g->running[0])
            m->held[m->count++] =
                (weft_share_held){g->number, g->ranks, left_of(g), steps_left(&g->progress)};
        else if (g->worker)
            m->starts.idle[weft_share_degree(g->ranks)]++;
}

weft_status weft_server_queue(weft_server *s, const weft_queue_view **view)
{
    const weft_served_group *g = s->groups;
    const weft_worker_progress *p = &g->progress;
    const double pace = s->learned.pace > 0 ? s->learned.pace : 1;
    double step;
    const double left =
        weft_job_seconds_left_since(p, pace * g->decode, weft_now() - g->told, &step);
    const weft_queue_moment moment = {.rules = &s->rules,
                                      .now = weft_server_time(),
                                      .elapsed = weft_now() - g->since,
                                      .first = g->batch.seconds,
                                      .left = left,
                                      .step = step,
                                      .steps = p->total - p->done,
                                      .version = s->progress_version,
                                      .pace = s->learned.pace,
                                      .finish = s->learned.finish,
                                      .share = s->shares ? &s->share : NULL};
    s->rules.start = s->learned.start;
    s->rules.stop = s->learned.stop;
    if (s->shares)
        set_share(s);
    *view = &s->view;
    return weft_queue_view_update(&s->view, s->store, &moment);
}

bool weft_server_chooses_layouts(const weft_server *s)
{
    const weft_serve_options *o = s->options;
    return s->shares || (o->ranks > 1 && o->parallel_count == 1 && !strcmp(o->parallel[0], "auto"));
}

const weft_served_group *weft_server_group(const weft_server *s, const char *id)
{
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++)
        for (int i = 0; g->running[0] && i < g->batch.count; i++)
            if (!strcmp(g->batch.id[i], id))
                return g;
    return NULL;
}

char *weft_server_job_folder(const weft_server *s, const char *id)
{
    weft_buf path = {0};
    weft_buf_printf(&path, "%s/jobs/%s", s->state, id);
    return path.data;
}
