#include "train/cascade/cascade_late.h"

#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "plan/cascade/dispatch.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Purpose id of the group for decisions and reports. */
static const uint64_t purpose = 0x646973706174;

/* One decision. index -1: the last message, no cascade is left. */
typedef struct decision {
    int32_t index, degree;
    double start, now; /* start: since the begin of the iteration; now: simulated time */
    int32_t device[];  /* [ranks], then a byte per rank: no further gradients */
} decision;

typedef struct report {
    int32_t index;
    double end; /* simulated time */
} report;

/* State of the dispatcher, on rank 0 only. */
typedef struct dispatch_state {
    weft_dispatch *dispatch;
    weft_assigned *item;
    bool *trains;                /* indexed by cascade */
    weft_comm_request **report;  /* [ranks] */
    report *arrived;             /* [ranks] */
    bool *busy;                  /* [ranks] a report is expected */
    bool *known;                 /* [ranks] the report has arrived */
    weft_comm_request **waiting; /* [ranks] */
} dispatch_state;

/* Tasks of this rank, passed from the thread to the executor under the lock. */
typedef struct task_list {
    pthread_mutex_t lock;
    pthread_cond_t change;
    weft_late_task *task; /* [cascades + 1] */
    int64_t count, taken;
    bool over, quiet;     /* quiet: this rank gets no further cascade with gradients */
    bool quiet_signalled; /* the rank's thread was informed of `quiet` */
    double time;          /* simulated time at which `quiet` became true */
    bool own_report;      /* rank 0: its own report has arrived */
    weft_status_code status;
    weft_error_copy *error; /* error of `status` */
} task_list;

struct weft_late {
    weft_late_setup s;
    int ranks, own;
    weft_group *group;
    weft_placed_iteration *plan;
    weft_latent_transfer *transfer;
    weft_cascade_timing *done;
    double begin, decided; /* decided: simulated time of the current decision */
    decision *message;
    pthread_t thread;
    bool running;
    dispatch_state dispatcher;
    task_list tasks;
};

static weft_status no_memory(void)
{
    return weft_no_memory("late dispatch");
}

/* ---- the plan that receives decisions -------------------------------------------------------- */

weft_status weft_late_plan(const weft_placed_iteration *plan, int ranks, weft_placed_iteration *out)
{
    const int64_t n = plan->cascades;
    weft_placed_iteration p = *plan;
    p.late = p.search = false;
    p.cascade =
        weft_alloc((n + 1) * (int64_t)sizeof *p.cascade + n * ranks * (int64_t)sizeof(int32_t));
    WEFT_TRY(WEFT_ALLOCATED(p.cascade, "late dispatch"));
    int32_t *device = (int32_t *)(p.cascade + n + 1);
    for (int64_t c = 0; c < n; c++, device += ranks) {
        p.cascade[c] = plan->cascade[c];
        p.cascade[c].at.device = device;
        memcpy(device, plan->cascade[c].at.device,
               (size_t)plan->cascade[c].at.degree * sizeof *device);
    }
    *out = p;
    return WEFT_OK;
}

void weft_late_plan_free(weft_placed_iteration *plan)
{
    weft_free(plan->cascade);
    plan->cascade = NULL;
}

/* ---- decisions arrive ------------------------------------------------------------------------ */

static int64_t decision_bytes(const weft_late *l)
{
    return (int64_t)sizeof(decision) + l->ranks * (int64_t)(sizeof(int32_t) + 1);
}

static bool *retired_in(const weft_late *l, decision *d)
{
    return (bool *)(d->device + l->ranks);
}

/* Applies a decision: stores it in the plan, sends this rank's rows, and wakes this rank's
 * thread. */
static weft_status apply_decision(weft_late *l, decision *d)
{
    bool member = false;
    l->decided = d->now;
    if (d->index >= 0) {
        weft_assigned *at = &l->plan->cascade[d->index].at;
        for (int32_t i = 0; i < d->degree; i++) {
            ((int32_t *)(uintptr_t)at->device)[i] = d->device[i];
            member = member || d->device[i] == l->own;
        }
        at->start = d->start;
        WEFT_TRY(weft_latent_transfer_direct(l->transfer, d->index, &l->decided, l->done));
    }
    pthread_mutex_lock(&l->tasks.lock);
    if (!l->tasks.quiet && retired_in(l, d)[l->own])
        l->tasks.time = d->now;
    l->tasks.quiet = l->tasks.quiet || retired_in(l, d)[l->own];
    l->tasks.over = l->tasks.over || d->index < 0;
    if (member) {
        l->tasks.task[l->tasks.count++] = (weft_late_task){d->index, l->tasks.quiet, false, d->now};
        l->tasks.quiet_signalled = l->tasks.quiet;
    }
    pthread_cond_broadcast(&l->tasks.change);
    pthread_mutex_unlock(&l->tasks.lock);
    return WEFT_OK;
}

static void set_error(weft_late *l, weft_status_code status)
{
    pthread_mutex_lock(&l->tasks.lock);
    l->tasks.status = status;
    weft_free(l->tasks.error);
    l->tasks.error = weft_error_save();
    pthread_cond_broadcast(&l->tasks.change);
    pthread_mutex_unlock(&l->tasks.lock);
}

static weft_status receive_decisions(weft_late *l)
{
    do {
        WEFT_TRY(weft_group_recv(l->group, WEFT_CHANNEL_CONTROL, 0, l->message, decision_bytes(l)));
        WEFT_TRY(apply_decision(l, l->message));
    } while (l->message->index >= 0);
    return WEFT_OK;
}

static void *courier(void *user)
{
    weft_late *l = user;
    const weft_status_code status = receive_decisions(l);
    if (status != WEFT_OK)
        set_error(l, status);
    return NULL;
}

/* ---- the dispatcher, on rank 0 --------------------------------------------------------------- */

static weft_status broadcast_decision(weft_late *l)
{
    for (int r = 1; r < l->ranks; r++)
        WEFT_TRY(weft_group_send(l->group, WEFT_CHANNEL_CONTROL, r, l->message, decision_bytes(l)));
    return apply_decision(l, l->message);
}

static weft_status expect_report(weft_late *l, int rank)
{
    l->dispatcher.busy[rank] = true;
    l->dispatcher.known[rank] = false;
    if (rank == 0)
        return WEFT_OK;
    if (!l->dispatcher.report[rank]) {
        WEFT_TRY(weft_comm_request_create_recv(l->ranks, 0, rank, sizeof(report), WEFT_U8,
                                               "the end of a cascade",
                                               &l->dispatcher.report[rank]));
        WEFT_TRY(
            weft_comm_request_attach(l->dispatcher.report[rank], l->group, WEFT_CHANNEL_CONTROL));
        weft_comm_request_bind(l->dispatcher.report[rank], &l->dispatcher.arrived[rank],
                               &l->dispatcher.arrived[rank], NULL);
    }
    weft_comm_request_start(l->dispatcher.report[rank]);
    return WEFT_OK;
}

/* Starts the cascades that can start at `now`. *start rises with every decision, so the starts give
 * the order of the decisions. */
static weft_status decide(weft_late *l, double now, double *start)
{
    decision *d = l->message;
    while (weft_dispatch_next(l->dispatcher.dispatch, now - l->begin, &d->index, d->device)) {
        d->degree = (int32_t)l->plan->cascade[d->index].at.degree;
        *start = d->start = fmax(now - l->begin, nextafter(*start, INFINITY));
        d->now = now;
        if (l->s.retire) /* as weft_dispatch_play */
            weft_dispatch_retire(l->dispatcher.dispatch, d->index, now - l->begin,
                                 retired_in(l, d));
        for (int32_t i = 0; i < d->degree; i++)
            WEFT_TRY(expect_report(l, d->device[i]));
        WEFT_TRY(broadcast_decision(l));
    }
    return WEFT_OK;
}

static bool own_reported(void *user)
{
    weft_late *l = user;
    pthread_mutex_lock(&l->tasks.lock);
    const bool come = l->tasks.own_report;
    pthread_mutex_unlock(&l->tasks.lock);
    return come && l->dispatcher.busy[0] && !l->dispatcher.known[0];
}

static void clear_own_report(weft_late *l)
{
    pthread_mutex_lock(&l->tasks.lock);
    l->tasks.own_report = false;
    pthread_mutex_unlock(&l->tasks.lock);
}

/* Receives the reports that have arrived. *missing: reports still expected; *come: reports received
 * and not processed. */
static weft_status take_reports(weft_late *l, int *missing, int *come)
{
    *missing = *come = 0;
    for (int r = 0; r < l->ranks; r++) {
        if (l->dispatcher.busy[r] && !l->dispatcher.known[r] &&
            (r ? weft_comm_request_done(l->dispatcher.report[r]) : own_reported(l))) {
            if (r)
                WEFT_TRY(weft_comm_request_wait(l->dispatcher.report[r]));
            else
                clear_own_report(l);
            l->dispatcher.known[r] = true;
        }
        *missing += l->dispatcher.busy[r] && !l->dispatcher.known[r];
        *come += l->dispatcher.busy[r] && l->dispatcher.known[r];
    }
    return WEFT_OK;
}

/* Waits for a report, or for `seconds`. */
static weft_status wait_report(weft_late *l, double seconds)
{
    const double begin = weft_now();
    int count = 0;
    for (int r = 1; r < l->ranks; r++)
        if (l->dispatcher.busy[r] && !l->dispatcher.known[r])
            l->dispatcher.waiting[count++] = l->dispatcher.report[r];
    weft_comm_request_wait_any(l->s.comm, l->dispatcher.waiting, count, seconds, own_reported, l);
    for (int i = 0; i < count; i++)
        if (weft_comm_request_done(l->dispatcher.waiting[i]))
            return WEFT_OK;
    if (own_reported(l) || weft_now() - begin >= seconds)
        return WEFT_OK;
    /* the communicator failed */
    return count ? weft_comm_request_wait(l->dispatcher.waiting[0])
                 : weft_error(WEFT_MSG_COMM_FAILED, WEFT_NOWHERE,
                              "the communicator failed during late dispatch");
}

/* Returns the time until which decisions wait for ends about `now`, on the clock of `now`; `now`:
 * they do not wait (weft_dispatch_held). */
static double held_until(const weft_late *l, double now)
{
    const double held = weft_dispatch_held(l->dispatcher.dispatch, now - l->begin);
    double until = l->begin + held;
    if (held <= now - l->begin)
        return now;
    while (until - l->begin < held) /* the sum may be rounded down */
        until = nextafter(until, INFINITY);
    return until;
}

/* Waits until the reports that the next decision needs have arrived, or until `held`. A decision on
 * a simulated clock needs the reports of every running rank. *any false: no cascade runs. */
static weft_status await_reports(weft_late *l, double held, bool *any)
{
    const bool simulated = l->s.simulated_time != NULL;
    int missing, come;
    double left = INFINITY;
    WEFT_TRY(take_reports(l, &missing, &come));
    *any = missing + come > 0;
    while (missing && (simulated || !come) && left > 0) {
        if (!simulated && isfinite(held))
            left = held - weft_common_now(l->s.common);
        if (left > 0)
            WEFT_TRY(wait_report(l, left));
        WEFT_TRY(take_reports(l, &missing, &come));
    }
    return WEFT_OK;
}

/* Waits for the next time of a decision, and releases the ranks that are idle then. *any false: no
 * cascade runs. */
static weft_status next_idle(weft_late *l, double *now, bool *any)
{
    const double until = held_until(l, *now), held = until > *now ? until : INFINITY;
    double next = INFINITY;
    WEFT_TRY(await_reports(l, held, any));
    for (int r = 0; r < l->ranks && l->s.simulated_time; r++)
        if (l->dispatcher.busy[r])
            next = fmin(next, l->dispatcher.arrived[r].end);
    next = fmin(next, held);
    *now = l->s.simulated_time ? fmax(*now, next) : weft_common_now(l->s.common);
    for (int r = 0; r < l->ranks; r++)
        if (l->dispatcher.busy[r] && l->dispatcher.known[r] &&
            (!l->s.simulated_time || l->dispatcher.arrived[r].end <= next)) {
            l->dispatcher.busy[r] = l->dispatcher.known[r] = false;
            weft_dispatch_release(l->dispatcher.dispatch, r);
        }
    return WEFT_OK;
}

static weft_status dispatch_all(weft_late *l)
{
    double now = l->begin, start = -1e-9;
    bool any = true;
    while (any) {
        WEFT_TRY(decide(l, now, &start));
        if (!weft_dispatch_left(l->dispatcher.dispatch) && l->message->index >= 0) {
            l->message->index = -1; /* no further decision; reports are still expected */
            l->message->now = now;
            memset(retired_in(l, l->message), true, (size_t)l->ranks);
            WEFT_TRY(broadcast_decision(l));
        }
        WEFT_TRY(next_idle(l, &now, &any));
    }
    if (weft_dispatch_left(l->dispatcher.dispatch))
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "%" PRId64 " cascades could not be dispatched",
                          weft_dispatch_left(l->dispatcher.dispatch));
    return WEFT_OK;
}

static void *dispatcher(void *user)
{
    weft_late *l = user;
    const weft_status_code status = dispatch_all(l);
    if (status != WEFT_OK)
        set_error(l, status);
    return NULL;
}

/* Creates the dispatcher. Kept cascades, which are last, have their rows and are not dispatched. */
static weft_status make_dispatcher(weft_late *l)
{
    const int64_t n = weft_placed_scheduled(l->plan);
    l->dispatcher.item = weft_calloc(n + 1, sizeof *l->dispatcher.item);
    l->dispatcher.trains = weft_alloc(n + 1);
    l->dispatcher.report = weft_calloc(l->ranks, sizeof *l->dispatcher.report);
    l->dispatcher.waiting = weft_calloc(l->ranks, sizeof *l->dispatcher.waiting);
    l->dispatcher.arrived = weft_calloc(l->ranks, sizeof *l->dispatcher.arrived);
    l->dispatcher.busy = weft_alloc(l->ranks);
    l->dispatcher.known = weft_alloc(l->ranks);
    if (!l->dispatcher.item || !l->dispatcher.trains || !l->dispatcher.report ||
        !l->dispatcher.waiting || !l->dispatcher.arrived || !l->dispatcher.busy ||
        !l->dispatcher.known)
        return no_memory();
    for (int64_t c = 0; c < n; c++) {
        weft_assigned *at = &l->dispatcher.item[c];
        *at = l->plan->cascade[c].at;
        while (at->after_count && at->after[at->after_count - 1] >= n)
            at->after_count--;
        l->dispatcher.trains[c] = l->plan->cascade[c].module == WEFT_CASCADE_DIT;
    }
    const weft_dispatch_setup setup = {.item = l->dispatcher.item,
                                       .count = n,
                                       .devices = l->ranks,
                                       .per_node = l->s.per_node,
                                       .slow = l->s.slow,
                                       .trains = l->dispatcher.trains,
                                       .transfer = l->s.transfer,
                                       .replan = l->s.replan};
    return weft_dispatch_create(&setup, &l->dispatcher.dispatch);
}

static void late_free(weft_late *l)
{
    for (int r = 0; l->dispatcher.report && r < l->ranks; r++)
        weft_comm_request_free(l->dispatcher.report[r]);
    weft_dispatch_free(l->dispatcher.dispatch);
    pthread_mutex_destroy(&l->tasks.lock);
    pthread_cond_destroy(&l->tasks.change);
    weft_free(l->tasks.error);
    weft_free(l->message);
    weft_free(l->tasks.task);
    weft_free(l->dispatcher.item);
    weft_free(l->dispatcher.trains);
    weft_free(l->dispatcher.report);
    weft_free(l->dispatcher.waiting);
    weft_free(l->dispatcher.arrived);
    weft_free(l->dispatcher.busy);
    weft_free(l->dispatcher.known);
    weft_free(l);
}

/* ---- an iteration ---------------------------------------------------------------------------- */

weft_status weft_late_open(const weft_late_setup *setup, weft_placed_iteration *plan,
                           weft_latent_transfer *transfer, double begin, weft_cascade_timing *done,
                           weft_late **out)
{
    weft_late *l;
    WEFT_TRY(WEFT_NEW(l, 1, "late dispatch"));
    *l = (weft_late){.s = *setup,
                     .ranks = weft_comm_ranks(setup->comm),
                     .own = weft_comm_rank(setup->comm),
                     .plan = plan,
                     .transfer = transfer,
                     .begin = begin,
                     .done = done};
    pthread_mutex_init(&l->tasks.lock, NULL);
    pthread_cond_init(&l->tasks.change, NULL);
    int *all = weft_calloc(l->ranks, sizeof *all);
    l->message = weft_alloc(decision_bytes(l));
    l->tasks.task = weft_calloc(plan->cascades + 1, sizeof *l->tasks.task);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(all && l->message && l->tasks.task, "late dispatch"));
    for (int r = 0; r < l->ranks; r++)
        all[r] = r;
    WEFT_GO(weft_comm_group_for(setup->comm, all, l->ranks, purpose, &l->group));
    if (l->own == 0)
        WEFT_GO(make_dispatcher(l));
    l->running = pthread_create(&l->thread, NULL, l->own ? courier : dispatcher, l) == 0;
    WEFT_GO(WEFT_ALLOCATED(l->running, "the thread of late dispatch"));
    *out = l;
    weft_free(all);
    return WEFT_OK;
out:
    weft_free(all);
    late_free(l);
    return status;
}

weft_status weft_late_next(weft_late *l, weft_late_task *task)
{
    pthread_mutex_lock(&l->tasks.lock);
    while (l->tasks.status == WEFT_OK && l->tasks.taken == l->tasks.count && !l->tasks.over &&
           !(l->tasks.quiet && !l->tasks.quiet_signalled))
        pthread_cond_wait(&l->tasks.change, &l->tasks.lock);
    const weft_status_code status = l->tasks.status;
    if (l->tasks.taken < l->tasks.count) {
        *task = l->tasks.task[l->tasks.taken++];
    } else {
        *task = (weft_late_task){-1, l->tasks.quiet, l->tasks.over, l->tasks.time};
        l->tasks.quiet_signalled = true;
    }
    pthread_mutex_unlock(&l->tasks.lock);
    if (status != WEFT_OK)
        return weft_error_restore(l->tasks.error);
    if (l->s.simulated_time && *l->s.simulated_time < task->time)
        *l->s.simulated_time = task->time;
    return task->index < 0 ? WEFT_OK : weft_latent_transfer_expect(l->transfer, task->index);
}

weft_status weft_late_ended(weft_late *l, int32_t index)
{
    const report own = {index, l->s.simulated_time ? *l->s.simulated_time : 0};
    if (l->own)
        return weft_group_send(l->group, WEFT_CHANNEL_CONTROL, 0, &own, sizeof own);
    pthread_mutex_lock(&l->tasks.lock);
    l->dispatcher.arrived[0] = own;
    l->tasks.own_report = true;
    pthread_mutex_unlock(&l->tasks.lock);
    weft_comm_nudge(l->s.comm);
    return WEFT_OK;
}

weft_status weft_late_close(weft_late *l, int64_t *searches)
{
    weft_status_code status = WEFT_OK;
    *searches = 0;
    if (!l)
        return WEFT_OK;
    if (l->running)
        pthread_join(l->thread, NULL);
    if (l->dispatcher.dispatch)
        *searches = weft_dispatch_searches(l->dispatcher.dispatch);
    if (l->tasks.status != WEFT_OK)
        status = weft_error_restore(l->tasks.error);
    late_free(l);
    return status;
}
