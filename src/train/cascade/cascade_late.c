#include "train/cascade/cascade_late.h"

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
    /* used by the dispatcher only: */
    weft_dispatch *dispatch;
    weft_assigned *item;
    bool *trains, *retired;
    weft_comm_request **report;  /* [ranks] */
    report *arrived;             /* [ranks] */
    bool *busy;                  /* [ranks] a report is expected */
    bool *known;                 /* [ranks] the report has arrived */
    weft_comm_request **waiting; /* [ranks] */
    /* under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t change;
    weft_late_task *task; /* [cascades + 1] tasks of this rank */
    int64_t tasks, taken;
    bool over, quiet;     /* quiet: this rank gets no further cascade with gradients */
    bool quiet_signalled; /* the rank's thread was informed of `quiet` */
    double time;          /* simulated time at which `quiet` became true */
    bool own_report;      /* rank 0: its own report has arrived */
    weft_status_code status;
    weft_error_copy *error; /* error of `status` */
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
    p.late = false;
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
    pthread_mutex_lock(&l->lock);
    if (!l->quiet && retired_in(l, d)[l->own])
        l->time = d->now;
    l->quiet = l->quiet || retired_in(l, d)[l->own];
    l->over = l->over || d->index < 0;
    if (member) {
        const bool trains = l->plan->cascade[d->index].module == WEFT_CASCADE_DIT;
        l->task[l->tasks++] = (weft_late_task){d->index, l->quiet && trains, false, d->now};
        l->quiet_signalled = l->quiet_signalled || (l->quiet && trains);
    }
    pthread_cond_broadcast(&l->change);
    pthread_mutex_unlock(&l->lock);
    return WEFT_OK;
}

static void set_error(weft_late *l, weft_status_code status)
{
    pthread_mutex_lock(&l->lock);
    l->status = status;
    weft_free(l->error);
    l->error = weft_error_save();
    pthread_cond_broadcast(&l->change);
    pthread_mutex_unlock(&l->lock);
}

static void *courier(void *user)
{
    weft_late *l = user;
    do {
        weft_status_code status =
            weft_group_recv(l->group, WEFT_CHANNEL_CONTROL, 0, l->message, decision_bytes(l));
        if (status == WEFT_OK)
            status = apply_decision(l, l->message);
        if (status != WEFT_OK) {
            set_error(l, status);
            return NULL;
        }
    } while (l->message->index >= 0);
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
    l->busy[rank] = true;
    l->known[rank] = false;
    if (rank == 0)
        return WEFT_OK;
    if (!l->report[rank]) {
        WEFT_TRY(weft_comm_request_create_recv(l->ranks, 0, rank, sizeof(report), WEFT_U8,
                                               "the end of a cascade", &l->report[rank]));
        WEFT_TRY(weft_comm_request_attach(l->report[rank], l->group, WEFT_CHANNEL_CONTROL));
        weft_comm_request_bind(l->report[rank], &l->arrived[rank], &l->arrived[rank], NULL);
    }
    weft_comm_request_start(l->report[rank]);
    return WEFT_OK;
}

/* Starts the cascades that can start at `now`. *start rises with every decision, so the starts give
 * the order of the decisions. */
static weft_status decide(weft_late *l, double now, double *start)
{
    decision *d = l->message;
    while (weft_dispatch_next(l->dispatch, now - l->begin, &d->index, d->device)) {
        d->degree = (int32_t)l->plan->cascade[d->index].at.degree;
        *start = d->start = fmax(now - l->begin, nextafter(*start, INFINITY));
        d->now = now;
        if (l->s.retire)
            weft_dispatch_retire(l->dispatch, now - l->begin, retired_in(l, d));
        for (int32_t i = 0; i < d->degree; i++)
            WEFT_TRY(expect_report(l, d->device[i]));
        WEFT_TRY(broadcast_decision(l));
    }
    return WEFT_OK;
}

static bool own_reported(void *user)
{
    weft_late *l = user;
    pthread_mutex_lock(&l->lock);
    const bool come = l->own_report;
    pthread_mutex_unlock(&l->lock);
    return come && l->busy[0] && !l->known[0];
}

static void clear_own_report(weft_late *l)
{
    pthread_mutex_lock(&l->lock);
    l->own_report = false;
    pthread_mutex_unlock(&l->lock);
}

/* Receives the reports that have arrived. *missing: reports still expected; *come: reports received
 * and not processed. */
static weft_status take_reports(weft_late *l, int *missing, int *come)
{
    *missing = *come = 0;
    for (int r = 0; r < l->ranks; r++) {
        if (l->busy[r] && !l->known[r] &&
            (r ? weft_comm_request_done(l->report[r]) : own_reported(l))) {
            if (r)
                WEFT_TRY(weft_comm_request_wait(l->report[r]));
            else
                clear_own_report(l);
            l->known[r] = true;
        }
        *missing += l->busy[r] && !l->known[r];
        *come += l->busy[r] && l->known[r];
    }
    return WEFT_OK;
}

static weft_status wait_report(weft_late *l)
{
    int count = 0;
    for (int r = 1; r < l->ranks; r++)
        if (l->busy[r] && !l->known[r])
            l->waiting[count++] = l->report[r];
    weft_comm_request_wait_any(l->s.comm, l->waiting, count, own_reported, l);
    for (int i = 0; i < count; i++) /* the communicator failed */
        if (weft_comm_request_done(l->waiting[i]))
            return WEFT_OK;
    if (own_reported(l))
        return WEFT_OK;
    return count ? weft_comm_request_wait(l->waiting[0])
                 : weft_error(WEFT_MSG_COMM_FAILED, WEFT_NOWHERE,
                              "the communicator failed during late dispatch");
}

/* Waits for the next time at which ranks become idle, and releases these ranks. *any false: no
 * cascade runs. */
static weft_status next_idle(weft_late *l, double *now, bool *any)
{
    int missing, come;
    double next = INFINITY;
    WEFT_TRY(take_reports(l, &missing, &come));
    while (missing && (l->s.simulated_time || !come)) {
        WEFT_TRY(wait_report(l));
        WEFT_TRY(take_reports(l, &missing, &come));
    }
    for (int r = 0; r < l->ranks && l->s.simulated_time; r++)
        if (l->busy[r])
            next = fmin(next, l->arrived[r].end);
    *now = l->s.simulated_time ? fmax(*now, next) : weft_common_now(l->s.common);
    for (int r = 0; r < l->ranks; r++)
        if (l->busy[r] && l->known[r] && (!l->s.simulated_time || l->arrived[r].end <= next)) {
            l->busy[r] = l->known[r] = false;
            weft_dispatch_release(l->dispatch, r);
        }
    *any = come > 0;
    return WEFT_OK;
}

static weft_status dispatch_all(weft_late *l)
{
    double now = l->begin, start = -1e-9;
    bool any = true;
    while (any) {
        WEFT_TRY(decide(l, now, &start));
        if (!weft_dispatch_left(l->dispatch) && l->message->index >= 0) {
            l->message->index = -1; /* no further decision; reports are still expected */
            l->message->now = now;
            memset(retired_in(l, l->message), true, (size_t)l->ranks);
            WEFT_TRY(broadcast_decision(l));
        }
        WEFT_TRY(next_idle(l, &now, &any));
    }
    if (weft_dispatch_left(l->dispatch))
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "%" PRId64 " cascades could not be dispatched",
                          weft_dispatch_left(l->dispatch));
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

static weft_status make_dispatcher(weft_late *l)
{
    const int64_t n = l->plan->cascades;
    l->item = weft_calloc(n + 1, sizeof *l->item);
    l->trains = weft_alloc(n + 1);
    l->report = weft_calloc(l->ranks, sizeof *l->report);
    l->waiting = weft_calloc(l->ranks, sizeof *l->waiting);
    l->arrived = weft_calloc(l->ranks, sizeof *l->arrived);
    l->busy = weft_alloc(l->ranks);
    l->known = weft_alloc(l->ranks);
    if (!l->item || !l->trains || !l->report || !l->waiting || !l->arrived || !l->busy || !l->known)
        return no_memory();
    for (int64_t c = 0; c < n; c++) {
        l->item[c] = l->plan->cascade[c].at;
        l->trains[c] = l->plan->cascade[c].module == WEFT_CASCADE_DIT;
    }
    const weft_dispatch_setup setup = {.item = l->item,
                                       .count = n,
                                       .devices = l->ranks,
                                       .per_node = l->s.per_node,
                                       .slow = l->s.slow,
                                       .trains = l->trains};
    return weft_dispatch_create(&setup, &l->dispatch);
}

static void late_free(weft_late *l)
{
    for (int r = 0; l->report && r < l->ranks; r++)
        weft_comm_request_free(l->report[r]);
    weft_dispatch_free(l->dispatch);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->change);
    weft_free(l->error);
    weft_free(l->message);
    weft_free(l->task);
    weft_free(l->item);
    weft_free(l->trains);
    weft_free(l->report);
    weft_free(l->waiting);
    weft_free(l->arrived);
    weft_free(l->busy);
    weft_free(l->known);
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
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->change, NULL);
    int *all = weft_calloc(l->ranks, sizeof *all);
    l->message = weft_alloc(decision_bytes(l));
    l->task = weft_calloc(plan->cascades + 1, sizeof *l->task);
    weft_status_code status = WEFT_ALLOCATED(all && l->message && l->task, "late dispatch");
    for (int r = 0; all && r < l->ranks; r++)
        all[r] = r;
    if (status == WEFT_OK)
        status = weft_comm_group_for(setup->comm, all, l->ranks, purpose, &l->group);
    if (status == WEFT_OK && l->own == 0)
        status = make_dispatcher(l);
    weft_free(all);
    if (status == WEFT_OK) {
        l->running = pthread_create(&l->thread, NULL, l->own ? courier : dispatcher, l) == 0;
        status = WEFT_ALLOCATED(l->running, "the thread of late dispatch");
    }
    if (status == WEFT_OK)
        *out = l;
    else
        late_free(l);
    return status;
}

weft_status weft_late_next(weft_late *l, weft_late_task *task)
{
    pthread_mutex_lock(&l->lock);
    while (l->status == WEFT_OK && l->taken == l->tasks && !l->over &&
           !(l->quiet && !l->quiet_signalled))
        pthread_cond_wait(&l->change, &l->lock);
    const weft_status_code status = l->status;
    if (l->taken < l->tasks) {
        *task = l->task[l->taken++];
    } else {
        *task = (weft_late_task){-1, l->quiet, l->over, l->time};
        l->quiet_signalled = true;
    }
    pthread_mutex_unlock(&l->lock);
    if (status != WEFT_OK)
        return weft_error_restore(l->error);
    if (l->s.simulated_time && *l->s.simulated_time < task->time)
        *l->s.simulated_time = task->time;
    return task->index < 0 ? WEFT_OK : weft_latent_transfer_expect(l->transfer, task->index);
}

weft_status weft_late_ended(weft_late *l, int32_t index)
{
    const report own = {index, l->s.simulated_time ? *l->s.simulated_time : 0};
    if (l->own)
        return weft_group_send(l->group, WEFT_CHANNEL_CONTROL, 0, &own, sizeof own);
    pthread_mutex_lock(&l->lock);
    l->arrived[0] = own;
    l->own_report = true;
    pthread_mutex_unlock(&l->lock);
    weft_comm_nudge(l->s.comm);
    return WEFT_OK;
}

weft_status weft_late_close(weft_late *l)
{
    weft_status_code status = WEFT_OK;
    if (!l)
        return WEFT_OK;
    if (l->running)
        pthread_join(l->thread, NULL);
    if (l->status != WEFT_OK)
        status = weft_error_restore(l->error);
    late_free(l);
    return status;
}
