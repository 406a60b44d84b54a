/* The communicator: queues of exchanges, one thread that advances the first of each, waits with a
 * deadline.
 *
 * Only the progress thread calls the transport (but to wake it). It sleeps on a condition while
 * there is nothing to do. While messages are under way it sleeps in the transport where that knows
 * when something comes; else it polls: often while a caller waits, and while the caller computes
 * the rarer the longer nothing has come, as each look takes a processor from what is computed. */
#include "runtime/comm_internal.h"

#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static const double note_period = 0.02, alive_period = 0.5;

static void nap(long nanoseconds)
{
    const struct timespec t = {.tv_nsec = nanoseconds};
    nanosleep(&t, NULL);
}

static void timed_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
    t.tv_sec += ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(cond, mutex, &t);
}

/* While the caller computes: eight looks 0.12 ms apart, eight 0.24 ms apart, ... up to 1.9 ms, so
 * that what comes after t seconds is seen within t / 8 (hand-offs of an iteration are received from
 * its begin on, and come when another rank has made them). Ends at once when somebody waits, or
 * there is an exchange that was not seen. */
static void doze(weft_comm *comm, int64_t idle, double most)
{
    enum { LOOKS = 8, MOST_DOUBLINGS = 4 };
    const int64_t doublings = idle / LOOKS < MOST_DOUBLINGS ? idle / LOOKS : MOST_DOUBLINGS;
    pthread_mutex_lock(&comm->mutex);
    if (!atomic_load(&comm->waiters) && !comm->fresh && !atomic_load(&comm->stop))
        timed_wait(&comm->queued, &comm->mutex, fmin(120e-6 * (double)(1 << doublings), most));
    pthread_mutex_unlock(&comm->mutex);
}

/* No longer than until a message may be taken that a link model holds back. */
static void relax(weft_comm *comm, int64_t idle)
{
    const double *due = comm->transport.due;
    const double left = due && *due > 0 ? fmax(*due - weft_now(), 0) : note_period;
    if (comm->transport.sleep)
        comm->transport.sleep(comm->transport.self, fmin(left, note_period));
    else if (!atomic_load_explicit(&comm->waiters, memory_order_relaxed))
        doze(comm, idle, left);
    else if (idle < 500)
        sched_yield();
    else
        nap((long)fmin(1e9 * left, 30000));
}

/* ---- who is missing ------------------------------------------------------------------------ */

static void append(char *text, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *fmt, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    if (used < size)
        vsnprintf(text + used, size - used, fmt, args);
    va_end(args);
}

enum { MISSING = 2 * WEFT_LANES * WEFT_DIRECT_RANKS };

/* Peers whose message has not come; when all have, those that have not taken ours. Each once. */
static int missing_peers(const weft_exchange *x, int peers[MISSING])
{
    int count = 0;
    for (int receiving = 1; receiving >= 0 && count == 0; receiving--)
        for (int l = 0; l < x->lanes && x->begun; l++)
            for (int i = 0; i < x->lane[l].count; i++) {
                const weft_message *m = &x->lane[l].message[i];
                bool known = m->taken || m->receiving != receiving;
                for (int j = 0; j < count && !known; j++)
                    known = peers[j] == m->peer;
                if (!known && count < MISSING)
                    peers[count++] = m->peer;
            }
    return count;
}

static weft_status fail_missing(weft_comm *comm, const weft_exchange *x, double since,
                                double waited)
{
    char who[640] = "";
    int peers[MISSING];
    const int count = missing_peers(x, peers);
    for (int i = 0; i < count && i < 16; i++) {
        const int peer = peers[i];
        append(who, sizeof who, "%s rank %d", i ? "," : "", peer);
        if (comm->answer[peer].asked >= since)
            append(who, sizeof who, " (%s)",
                   comm->answer[peer].text[0] ? comm->answer[peer].text : "gives no answer");
    }
    if (count > 16)
        append(who, sizeof who, " and %d more", count - 16);
    return weft_fail(
        WEFT_E_COMM,
        "rank %d waited %.1f s in %s for%s; the job must be started again from its last checkpoint",
        comm->rank, waited, x->what, who[0] ? who : " nobody: the transport stands still");
}

/* What this rank is in: an exchange that is waited for, or else one that runs. */
static const weft_exchange *running(const weft_comm *comm)
{
    const weft_exchange *any = NULL;
    for (const weft_queue *q = comm->active; q; q = q->next) {
        if (atomic_load(&q->waiters))
            return q->head;
        any = q->head;
    }
    return any;
}

static void answer(weft_comm *comm, int peer)
{
    char text[WEFT_COMM_NOTE] = ":alive, not in a collective";
    const weft_exchange *x = running(comm);
    if (x) {
        int peers[MISSING];
        const int count = missing_peers(x, peers);
        snprintf(text, sizeof text, ":alive, in %.120s%s", x->what,
                 count ? ", itself waiting for rank" : "");
        for (int i = 0; i < count && i < 8; i++)
            append(text, sizeof text, " %d", peers[i]);
    }
    comm->transport.note(comm->transport.self, peer, text);
}

/* ---- busy ranks ---------------------------------------------------------------------------- */

/* "*ROOT what it does", down a binomial tree from the rank that is busy, so that nobody sends many.
 */
static void pass_on(weft_comm *comm, int root, const char text[WEFT_COMM_NOTE])
{
    const int k = comm->ranks, v = (comm->rank - root + k) % k;
    int reach = 1;
    while (reach < k)
        reach *= 2;
    if (v)
        reach = v & -v;
    for (int distance = reach / 2; distance >= 1; distance /= 2)
        if (v + distance < k)
            comm->transport.note(comm->transport.self, (v + distance + root) % k, text);
}

static void tell_busy(weft_comm *comm, double now)
{
    char text[WEFT_COMM_NOTE] = "";
    const double period = atomic_load(&comm->deadline) / 4;
    if (!atomic_load(&comm->is_busy) || now - comm->told < (period < 5 ? period : 5))
        return;
    pthread_mutex_lock(&comm->mutex);
    snprintf(text, sizeof text, "*%d %.180s", comm->rank, comm->busy);
    pthread_mutex_unlock(&comm->mutex);
    comm->told = now;
    pass_on(comm, comm->rank, text);
}

/* Reads control messages: another rank that gives up ends this one's waits, a question is answered.
 */
static weft_status read_notes(weft_comm *comm)
{
    char text[WEFT_COMM_NOTE];
    for (;;) {
        int peer = -1;
        comm->transport.poll(comm->transport.self, &peer, text);
        if (peer < 0)
            return WEFT_OK;
        text[WEFT_COMM_NOTE - 1] = 0;
        if (text[0] == '!') {
            comm->told_all = true;
            return weft_fail(WEFT_E_COMM, "rank %d gave up: %s", peer, text + 1);
        }
        if (text[0] == '?')
            answer(comm, peer);
        else if (text[0] == ':')
            memcpy(comm->answer[peer].text, text + 1, WEFT_COMM_NOTE - 1);
        else if (text[0] == '*') {
            const int root = atoi(text + 1);
            comm->busy_heard = weft_now();
            if (root >= 0 && root < comm->ranks && root != comm->rank)
                pass_on(comm, root, text);
        }
    }
}

/* `ask`: those that were not asked since then; 0: nobody. A rank that gave up because another is
 * gone said so before it went: it counts as gone when it is so a second time, with notes read in
 * between. */
static weft_status check_alive(weft_comm *comm, const weft_exchange *x, double ask)
{
    int peers[MISSING];
    const int count = missing_peers(x, peers);
    for (int i = 0; i < count; i++) {
        char who[WEFT_COMM_NOTE] = "";
        const int peer = peers[i];
        const bool was_gone = comm->answer[peer].gone;
        comm->answer[peer].gone = !comm->transport.alive(comm->transport.self, peer, who);
        if (comm->answer[peer].gone && !was_gone)
            continue;
        if (comm->answer[peer].gone)
            return weft_fail(WEFT_E_COMM,
                             "rank %d is gone (%s) while rank %d waits for it in %s; start the job "
                             "again from its last checkpoint",
                             peer, who, comm->rank, x->what);
        if (ask > 0 && comm->answer[peer].asked < ask) {
            comm->answer[peer] = (weft_answer){.asked = weft_now()};
            char question[WEFT_COMM_NOTE] = "?"; /* transports send whole notes */
            comm->transport.note(comm->transport.self, peer, question);
        }
    }
    return WEFT_OK;
}

/* How long somebody has waited for the queue with nothing coming, and nobody saying that it is
 * busy. */
static double waited_for(const weft_comm *comm, const weft_queue *q, double now)
{
    const double since = atomic_load(&q->waiting_since), last = q->head->last;
    double from = since > last ? since : last;
    from = comm->busy_heard > from ? comm->busy_heard : from;
    return since > 0 && now > from ? now - from : 0;
}

/* Between turns, and while there is nothing to do: notes, dead processes, deadlines. */
static weft_status look_around(weft_comm *comm)
{
    const double now = weft_now(), deadline = atomic_load(&comm->deadline);
    if (now - comm->noted > note_period) {
        comm->noted = now;
        WEFT_TRY(read_notes(comm));
        tell_busy(comm, now);
    }
    const bool check = now - comm->checked > alive_period;
    if (check)
        comm->checked = now;
    for (const weft_queue *q = comm->active; q; q = q->next) {
        const double waited = waited_for(comm, q, now);
        if (check && q->head->begun)
            WEFT_TRY(check_alive(comm, q->head, waited > deadline / 2 ? now - waited : 0));
        if (waited > deadline)
            return fail_missing(comm, q->head, now - waited, waited);
    }
    return WEFT_OK;
}

/* ---- the thread and its queues ------------------------------------------------------------- */

static void forget(weft_exchange *x)
{
    weft_held_release(x->held);
    weft_moves_free(&x->plan.moves);
    weft_arena_free(x->plan_arena);
    weft_arena_free(x->arena);
}

/* Everything under way or queued has failed; the progress thread's, or of who has ended it. */
static void fail_all(weft_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    for (int list = 0; list < 2; list++) {
        weft_queue **queues = list ? &comm->fresh : &comm->active;
        for (weft_queue *q = *queues; q; q = q->next) {
            if (q->head)
                weft_exchange_cancel(comm, q->head);
            for (weft_exchange *x = q->head, *next; x; x = next) {
                next = x->next;
                if (x->forgotten)
                    forget(x);
                else
                    atomic_store(&x->state, WEFT_EXCHANGE_FAILED);
            }
            q->head = q->tail = NULL;
            q->active = false;
        }
        *queues = NULL;
    }
    pthread_cond_broadcast(&comm->finished);
    pthread_mutex_unlock(&comm->mutex);
}

static void break_down(weft_comm *comm, weft_status_code status)
{
    pthread_mutex_lock(&comm->mutex);
    comm->broken = status;
    snprintf(comm->message, sizeof comm->message, "%s", weft_error_message());
    pthread_mutex_unlock(&comm->mutex);
    if (comm->transport.turns)
        weft_turns_break(comm->transport.turns);
    fail_all(comm);
}

/* Takes the finished first exchange out of *at; *at is then the queue behind it in the list of
 * active ones if nothing is left to do in it. True: something is. */
static bool take_out(weft_comm *comm, weft_queue **at)
{
    weft_queue *q = *at;
    weft_exchange *x = q->head;
    pthread_mutex_lock(&comm->mutex);
    q->head = x->next;
    if (!q->head) {
        q->tail = NULL;
        q->active = false;
        *at = q->next;
    }
    const bool more = q->head != NULL, awaited = x->awaited;
    x->finished = weft_now();
    if (x->forgotten)
        forget(x);
    else
        atomic_store(&x->state, WEFT_EXCHANGE_DONE);
    if (awaited)
        pthread_cond_broadcast(&comm->finished);
    pthread_mutex_unlock(&comm->mutex);
    return more;
}

/* Every queue a little further. */
static weft_status turn(weft_comm *comm, bool *moved)
{
    for (weft_queue **at = &comm->active; *at;) {
        weft_exchange *x = (*at)->head;
        bool finished;
        if (!x->begun)
            WEFT_TRY(weft_exchange_begin(comm, x));
        WEFT_TRY(weft_exchange_advance(comm, x, moved, &finished));
        if (!finished || take_out(comm, at))
            at = &(*at)->next;
    }
    return WEFT_OK;
}

/* Under the mutex. */
static void take_fresh(weft_comm *comm)
{
    while (comm->fresh) {
        weft_queue *q = comm->fresh;
        comm->fresh = q->next;
        q->next = comm->active;
        comm->active = q;
    }
}

static weft_status work(weft_comm *comm, int64_t *idle)
{
    bool moved = false;
    if (comm->transport.due)
        *comm->transport.due = 0;
    WEFT_TRY(turn(comm, &moved));
    if (atomic_load(&comm->abandoned))
        return weft_fail(WEFT_E_COMM, "rank %d freed an exchange that was under way", comm->rank);
    *idle = moved ? 0 : *idle + 1;
    if (moved)
        return WEFT_OK;
    if (*idle % 16 == 0 || comm->transport.sleep ||
        !atomic_load_explicit(&comm->waiters, memory_order_relaxed))
        WEFT_TRY(look_around(comm));
    relax(comm, *idle);
    return WEFT_OK;
}

static void *progress(void *argument)
{
    weft_comm *comm = argument;
    int64_t idle = 0;
    if (comm->transport.due) /* moments that are known are met to the microsecond, not to 50 */
        prctl(PR_SET_TIMERSLACK, 1000UL);
    pthread_mutex_lock(&comm->mutex);
    while (!atomic_load(&comm->stop) && comm->broken == WEFT_OK) {
        take_fresh(comm);
        if (!comm->active) {
            timed_wait(&comm->queued, &comm->mutex, atomic_load(&comm->is_busy) ? 0.05 : 0.25);
            take_fresh(comm);
        }
        pthread_mutex_unlock(&comm->mutex);
        const weft_status_code status = comm->active ? work(comm, &idle) : look_around(comm);
        if (status != WEFT_OK)
            break_down(comm, status);
        pthread_mutex_lock(&comm->mutex);
    }
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

/* On the crew's thread: queues go on as far as they can. */
static void drive(void *user, bool idle)
{
    weft_comm *comm = user;
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&comm->mutex);
    const bool works = !atomic_load(&comm->stop) && comm->broken == WEFT_OK;
    if (works)
        take_fresh(comm);
    pthread_mutex_unlock(&comm->mutex);
    for (bool moved = works && comm->active && !idle; moved && status == WEFT_OK;) {
        moved = false;
        status = turn(comm, &moved);
    }
    if (status == WEFT_OK && atomic_load(&comm->abandoned))
        status = weft_fail(WEFT_E_COMM, "rank %d freed an exchange that was under way", comm->rank);
    if (works && status == WEFT_OK)
        status = look_around(comm);
    if (works && status != WEFT_OK)
        break_down(comm, status);
}

static void poke(void *user)
{
    weft_comm *comm = user;
    weft_crew_call(&comm->member);
}

static weft_status join_crew(weft_comm *comm)
{
    comm->member = (weft_crew_member){.drive = drive, .user = comm};
    WEFT_TRY(weft_crew_join(comm->transport.crew, &comm->member));
    comm->transport.hear(comm->transport.core, poke, comm);
    comm->running = true;
    return WEFT_OK;
}

static weft_status start_thread(weft_comm *comm)
{
    if (comm->running)
        return WEFT_OK;
    if (comm->transport.crew)
        return join_crew(comm);
    const int error = pthread_create(&comm->thread, NULL, progress, comm);
    if (error) {
        errno = error;
        return weft_fail_errno("cannot start the thread that drives communication");
    }
    comm->running = true;
    return WEFT_OK;
}

static void end_thread(weft_comm *comm)
{
    if (!comm->running)
        return;
    atomic_store(&comm->stop, true);
    comm->running = false;
    if (comm->transport.crew) {
        comm->transport.hear(comm->transport.core, NULL, NULL);
        weft_crew_leave(&comm->member);
        return;
    }
    pthread_mutex_lock(&comm->mutex);
    pthread_cond_broadcast(&comm->queued);
    pthread_mutex_unlock(&comm->mutex);
    pthread_join(comm->thread, NULL);
}

/* False: the communicator is done with. */
static bool enqueue(weft_exchange *x)
{
    weft_comm *comm = x->comm;
    weft_queue *q = x->queue;
    pthread_mutex_lock(&comm->mutex);
    const bool works = comm->broken == WEFT_OK && comm->running;
    x->next = NULL;
    x->begun = x->awaited = false;
    if (works) {
        const int single = q->key >> 4 ? 1 : 0;
        atomic_store(&x->state, WEFT_EXCHANGE_QUEUED);
        x->tag =
            x->group->tag | single << 11 | (int)x->channel << 8 | (int)(q->sequence++ & 0x7f) << 1;
        x->last = x->started;
        *(q->tail ? &q->tail->next : &q->head) = x;
        q->tail = x;
        if (!q->active) {
            q->active = true;
            q->next = comm->fresh;
            comm->fresh = q;
            pthread_cond_signal(&comm->queued);
        }
    }
    pthread_mutex_unlock(&comm->mutex);
    if (works && comm->transport.wake)
        comm->transport.wake(comm->transport.self);
    return works;
}

/* When the owner asked for it; a send takes its link here, so that links go by the order in which
 * their owner sends, whatever the progress thread sees first. */
static weft_status tell_time(weft_exchange *x)
{
    const weft_transport *t = &x->comm->transport;
    const int peer = x->op == WEFT_COMM_SEND ? x->group->rank[x->argument] : -1;
    x->number = x->queue->sequence; /* this thread's alone to add to */
    x->met = false;
    if (x->clock.now) {
        x->asked = *x->clock.now;
        if (peer >= 0 && t->reserve)
            x->asked = t->reserve(t->self, peer, x->bytes, x->asked);
        x->port = x->asked;
    }
    return t->turns ? weft_turns_begin(t->turns, x->comm->rank, x) : WEFT_OK;
}

/* What it took is over for its owner, too. */
static weft_status meet(weft_exchange *x)
{
    weft_turns *turns = x->comm ? x->comm->transport.turns : NULL;
    if (turns && x->ranks > 1 && !x->met)
        WEFT_TRY(weft_turns_go_on(turns, x->comm->rank, x));
    x->met = true;
    if (x->clock.now && x->ranks > 1) {
        x->waited = x->end > *x->clock.now ? x->end - *x->clock.now : 0;
        *x->clock.now += x->waited;
    }
    return WEFT_OK;
}

void weft_exchange_start(weft_exchange *x)
{
    x->started = weft_now(); /* the progress thread puts the time at which its turn came */
    x->waited = 0;
    if (x->ranks == 1) {
        const weft_status_code status = weft_exchange_copy(x);
        x->finished = x->started;
        atomic_store(&x->state, status == WEFT_OK ? WEFT_EXCHANGE_DONE : WEFT_EXCHANGE_FAILED);
        return;
    }
    if (tell_time(x) != WEFT_OK || !enqueue(x))
        atomic_store(&x->state, WEFT_EXCHANGE_FAILED);
}

weft_status weft_exchange_start_forgotten(weft_exchange *x)
{
    weft_comm *comm = x->comm;
    x->forgotten = true;
    if (tell_time(x) == WEFT_OK && enqueue(x))
        return WEFT_OK;
    forget(x);
    return weft_fail(WEFT_E_COMM, "%s", comm->message);
}

weft_status weft_exchange_wait(weft_exchange *x)
{
    weft_comm *comm = x->comm;
    if (atomic_load(&x->state) == WEFT_EXCHANGE_DONE)
        return meet(x);
    if (x->ranks == 1 && atomic_load(&x->state) == WEFT_EXCHANGE_FAILED)
        return weft_fail_context(WEFT_E_COMM, "%s", x->what);
    if (!comm)
        return weft_fail(WEFT_E_INTERNAL, "%s was waited for before it was started", x->what);
    weft_queue *q = x->queue;
    const double begin = weft_now();
    if (comm->transport.turns)
        weft_turns_wait(comm->transport.turns, comm->rank, x);
    pthread_mutex_lock(&comm->mutex);
    if (atomic_fetch_add(&q->waiters, 1) == 0)
        atomic_store(&q->waiting_since, begin);
    if (atomic_fetch_add(&comm->waiters, 1) == 0)
        pthread_cond_signal(&comm->queued); /* it looks often from now on */
    x->awaited = true;
    while (atomic_load(&x->state) == WEFT_EXCHANGE_QUEUED)
        timed_wait(&comm->finished, &comm->mutex, 1);
    atomic_fetch_sub(&comm->waiters, 1);
    if (atomic_fetch_sub(&q->waiters, 1) == 1)
        atomic_store(&q->waiting_since, 0);
    x->waited = weft_now() - begin;
    comm->waited += x->waited;
    pthread_mutex_unlock(&comm->mutex);
    if (atomic_load(&x->state) == WEFT_EXCHANGE_DONE)
        return meet(x);
    if (atomic_load(&x->state) == WEFT_EXCHANGE_FAILED)
        return weft_fail(WEFT_E_COMM, "%s", comm->message);
    return weft_fail(WEFT_E_INTERNAL, "%s was waited for before it was started", x->what);
}

static bool any_over(weft_exchange *const *exchange, int count)
{
    for (int i = 0; i < count; i++)
        if (atomic_load(&exchange[i]->state) != WEFT_EXCHANGE_QUEUED)
            return true;
    return false;
}

void weft_exchange_wait_any(weft_comm *comm, weft_exchange *const *exchange, int count,
                            bool (*also)(void *user), void *user)
{
    const double begin = weft_now();
    pthread_mutex_lock(&comm->mutex);
    for (int i = 0; i < count; i++) {
        exchange[i]->awaited = true;
        if (atomic_fetch_add(&exchange[i]->queue->waiters, 1) == 0)
            atomic_store(&exchange[i]->queue->waiting_since, begin);
    }
    if (atomic_fetch_add(&comm->waiters, 1) == 0)
        pthread_cond_signal(&comm->queued);
    while (!any_over(exchange, count) && !(also && also(user)) && comm->broken == WEFT_OK)
        timed_wait(&comm->finished, &comm->mutex, 1);
    atomic_fetch_sub(&comm->waiters, 1);
    for (int i = 0; i < count; i++)
        if (atomic_fetch_sub(&exchange[i]->queue->waiters, 1) == 1)
            atomic_store(&exchange[i]->queue->waiting_since, 0);
    pthread_mutex_unlock(&comm->mutex);
}

void weft_comm_nudge(weft_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    pthread_cond_broadcast(&comm->finished);
    pthread_mutex_unlock(&comm->mutex);
}

bool weft_exchange_done(const weft_exchange *x)
{
    if (atomic_load(&x->state) != WEFT_EXCHANGE_DONE)
        return false;
    if (!x->clock.now || x->ranks == 1)
        return true;
    weft_turns *turns = x->comm->transport.turns;
    const bool single = x->op == WEFT_COMM_SEND || x->op == WEFT_COMM_RECV;
    return turns && single && !x->met ? weft_turns_passed(turns, x->comm->rank, x, *x->clock.now)
                                      : x->end <= *x->clock.now;
}

double weft_exchange_seconds(const weft_exchange *x, double *waited)
{
    *waited = x->waited;
    return x->clock.now ? x->end - x->begin : x->finished - x->started;
}

void weft_exchange_free(weft_exchange *x)
{
    if (!x)
        return;
    if (atomic_load(&x->state) == WEFT_EXCHANGE_QUEUED) {
        weft_comm *comm = x->comm;
        pthread_mutex_lock(&comm->mutex);
        atomic_store(&comm->abandoned, true);
        x->awaited = true;
        while (atomic_load(&x->state) == WEFT_EXCHANGE_QUEUED)
            timed_wait(&comm->finished, &comm->mutex, 1);
        pthread_mutex_unlock(&comm->mutex);
    }
    forget(x);
}

/* ---- the communicator ---------------------------------------------------------------------- */

weft_status weft_comm_create(const weft_transport *transport, weft_comm **out)
{
    weft_comm *comm = weft_alloc(sizeof *comm);
    weft_status_code status = WEFT_OK;
    if (!comm) {
        if (transport->free)
            transport->free(transport->self, true);
        return weft_fail(WEFT_E_MEMORY, "no memory for a communicator");
    }
    comm->transport = *transport;
    comm->rank = transport->rank;
    comm->ranks = transport->ranks;
    comm->costs = weft_link_costs_default;
    atomic_store(&comm->deadline, 120);
    pthread_mutex_init(&comm->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&comm->queued, &monotonic);
    pthread_cond_init(&comm->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);
    comm->node = weft_alloc(comm->ranks * (int64_t)sizeof *comm->node);
    comm->answer = weft_alloc(comm->ranks * (int64_t)sizeof *comm->answer);
    if (!comm->node || !comm->answer) {
        status = weft_fail(WEFT_E_MEMORY, "no memory for a communicator of %d ranks", comm->ranks);
        goto out;
    }
    if (comm->ranks > 1)
        WEFT_GO(weft_transport_number(&comm->transport));
    for (int r = 0; transport->node && r < comm->ranks; r++)
        comm->node[r] = transport->node[r];
    if (comm->ranks > 1)
        WEFT_GO(start_thread(comm));
    *out = comm;
    return WEFT_OK;
out:
    weft_comm_free(comm);
    return status;
}

void weft_comm_free(weft_comm *comm)
{
    if (!comm)
        return;
    end_thread(comm);
    fail_all(comm);
    weft_choices_free(&comm->choices);
    if (comm->transport.free)
        comm->transport.free(comm->transport.self, comm->broken != WEFT_OK || comm->gave_up);
    pthread_mutex_destroy(&comm->mutex);
    pthread_cond_destroy(&comm->queued);
    pthread_cond_destroy(&comm->finished);
    weft_free(comm->node);
    weft_free(comm->answer);
    weft_groups_free(comm->groups);
    weft_free(comm);
}

int weft_comm_rank(const weft_comm *comm)
{
    return comm ? comm->rank : 0;
}

int weft_comm_ranks(const weft_comm *comm)
{
    return comm ? comm->ranks : 1;
}

void weft_comm_set_deadline(weft_comm *comm, double seconds)
{
    atomic_store(&comm->deadline, seconds);
}

bool weft_comm_alive(weft_comm *comm, int rank, char *who)
{
    return weft_comm_ranks(comm) == 1 || rank == comm->rank ||
           comm->transport.alive(comm->transport.self, rank, who);
}

double weft_comm_waited(weft_comm *comm)
{
    if (weft_comm_ranks(comm) == 1)
        return 0;
    pthread_mutex_lock(&comm->mutex);
    const double seconds = comm->waited;
    pthread_mutex_unlock(&comm->mutex);
    return seconds;
}

void weft_comm_sent(weft_comm *comm, int64_t *messages, int64_t *bytes)
{
    *messages = atomic_load(&comm->messages);
    *bytes = atomic_load(&comm->bytes);
}

void weft_comm_busy(weft_comm *comm, const char *what)
{
    if (weft_comm_ranks(comm) == 1)
        return;
    pthread_mutex_lock(&comm->mutex);
    snprintf(comm->busy, sizeof comm->busy, "%s", what ? what : "");
    atomic_store(&comm->is_busy, what != NULL);
    pthread_cond_signal(&comm->queued);
    pthread_mutex_unlock(&comm->mutex);
}

/* Called by the thread that owns the communicator when it leaves a run with an error. The progress
 * thread is stopped first, so that only one thread uses the transport. Notes leave before messages
 * are cancelled: once this returns, nobody calls the transport, and what it was receiving into may
 * be freed even where a message could not be taken back. */
void weft_comm_leave(weft_comm *comm)
{
    if (comm->transport.turns)
        weft_turns_leave(comm->transport.turns, comm->rank);
}

void weft_comm_give_up(weft_comm *comm)
{
    if (!comm || comm->ranks == 1 || comm->gave_up)
        return;
    char text[WEFT_COMM_NOTE];
    snprintf(text, sizeof text, "!%s", weft_error_message());
    comm->gave_up = true;
    if (comm->transport.turns)
        weft_turns_break(comm->transport.turns);
    pthread_mutex_lock(&comm->mutex);
    const bool broken = comm->broken != WEFT_OK;
    pthread_mutex_unlock(&comm->mutex);
    end_thread(comm);
    if (!broken) {
        pthread_mutex_lock(&comm->mutex);
        comm->broken = WEFT_E_COMM;
        snprintf(comm->message, sizeof comm->message, "this rank gave up before: %s", text + 1);
        pthread_mutex_unlock(&comm->mutex);
    }
    /* Also what this rank found out by itself: another may wait for this one only. */
    const bool told = comm->told_all;
    for (int peer = 0; peer < comm->ranks && !told; peer++)
        if (peer != comm->rank)
            comm->transport.note(comm->transport.self, peer, text);
    if (comm->transport.flush && !told)
        comm->transport.flush(comm->transport.self);
    fail_all(comm);
}
