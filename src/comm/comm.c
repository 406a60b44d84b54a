/* The communicator: queues of requests, a thread that advances the first request of each queue, and
 * waits with a deadline.
 *
 * Only the progress thread calls the transport, except to wake it. The thread sleeps on a condition
 * while no queue has requests. While messages are in flight it sleeps in the transport if the
 * transport can wake it, and polls otherwise. It polls often while a caller waits. While the caller
 * computes, it polls less often the longer nothing arrives, because each poll takes a core from the
 * computation. */
#include "comm/comm.h"

#include "base/log.h"
#include "comm/coll_algorithms.h"
#include "comm/comm_internal.h"
#include "comm/comm_link.h"
#include "comm/comm_request.h"
#include "comm/comm_segment.h"
#include "comm/comm_world.h"
#include "comm/short_tags.h"
#include "comm/simulated_links.h"
#include "kernel/device.h"

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

/* Sleeps between polls while the caller computes: eight times 0.12 ms, eight times 0.24 ms, ... up
 * to 1.9 ms. A message that arrives after t seconds is seen within t / 8. Example: a latent
 * transfer that is received from the start of an iteration. Returns at once if a caller waits or a
 * new request is queued. */
static void doze(weft_comm *comm, int64_t idle, double most)
{
    enum { LOOKS = 8, MOST_DOUBLINGS = 4 };
    const int64_t doublings = idle / LOOKS < MOST_DOUBLINGS ? idle / LOOKS : MOST_DOUBLINGS;
    pthread_mutex_lock(&comm->mutex);
    if (!atomic_load(&comm->waiters) && !comm->fresh && !atomic_load(&comm->thread.stop))
        timed_wait(&comm->queued, &comm->mutex, fmin(120e-6 * (double)(1 << doublings), most));
    pthread_mutex_unlock(&comm->mutex);
}

/* True if a request continues when its device has ended work. */
static bool awaits_device(const weft_comm *comm)
{
    bool awaits = false;
    for (const weft_queue *q = comm->active; q && !awaits; q = q->next)
        awaits = weft_comm_request_awaits_device(q->head);
    return awaits;
}

/* True if a thread waits for a request, or a stream does. */
static bool is_waited_for(const weft_comm *comm)
{
    bool is = atomic_load_explicit(&comm->waiters, memory_order_relaxed) > 0;
    for (const weft_queue *q = comm->active; q && !is; q = q->next)
        is = atomic_load(&q->head->run.holding) && !q->head->run.linked;
    return is;
}

/* Sleeps or polls until an event may have arrived, at most until a message that a link model holds
 * back may be taken. */
static void relax(weft_comm *comm, int64_t idle)
{
    if (awaits_device(comm)) { /* it cannot end a sleep */
        nap(idle < 64 ? 20000 : 200000);
        return;
    }
    const double *due = comm->transport.due;
    const double left = due && *due > 0 ? fmax(*due - weft_now(), 0) : note_period;
    if (comm->transport.sleep)
        comm->transport.sleep(comm->transport.self, fmin(left, note_period));
    else if (!is_waited_for(comm))
        doze(comm, idle, left);
    else if (idle < 500)
        sched_yield();
    else
        nap((long)fmin(1e9 * left, 30000));
}

/* ---- missing ranks --------------------------------------------------------------------------- */

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

enum { MISSING = 2 * WEFT_COMM_SEGMENTS_MOST * WEFT_DIRECT_RANKS };

/* Returns the peers whose message has not arrived, each once. If all have arrived, returns the
 * peers that have not received this rank's messages. */
static int missing_peers(const weft_comm_request *x, int peers[MISSING])
{
    int count = 0;
    for (int i = 0; x->run.linked && i < x->group->count && count < MISSING; i++)
        if (i != x->group->own)
            peers[count++] = x->group->rank[i];
    for (int receiving = 1; receiving >= 0 && count == 0; receiving--)
        for (int l = 0; l < x->segments && x->run.begun; l++)
            for (int i = 0; i < x->segment[l].count; i++) {
                const weft_message *m = &x->segment[l].message[i];
                bool known = m->taken || m->receiving != receiving;
                for (int j = 0; j < count && !known; j++)
                    known = peers[j] == m->peer;
                if (!known && count < MISSING)
                    peers[count++] = m->peer;
            }
    return count;
}

static weft_status fail_missing(weft_comm *comm, const weft_comm_request *x, double since,
                                double waited)
{
    char who[640] = "";
    int peers[MISSING];
    const int count = missing_peers(x, peers);
    for (int i = 0; i < count && i < 16; i++) {
        const int peer = peers[i];
        append(who, sizeof who, "%s rank %d", i ? "," : "", peer);
        if (comm->watch.peer_status[peer].asked >= since)
            append(who, sizeof who, " (%s)",
                   comm->watch.peer_status[peer].text[0] ? comm->watch.peer_status[peer].text
                                                         : "gives no answer");
    }
    if (count > 16)
        append(who, sizeof who, " and %d more", count - 16);
    return weft_error(WEFT_MSG_RANK_FAILED,
                      WEFT_AT(WEFT_RANK(count ? peers[0] : comm->rank), WEFT_NUMBER(waited)),
                      "rank %d waited %.1f s in %s for%s. Start the job again; it resumes from the "
                      "last checkpoint.",
                      comm->rank, waited, x->what,
                      who[0] ? who : " its own messages, which made no progress");
}

/* Returns the request that is waited for, otherwise any running request. */
static const weft_comm_request *running(const weft_comm *comm)
{
    const weft_comm_request *any = NULL;
    for (const weft_queue *q = comm->active; q; q = q->next) {
        if (atomic_load(&q->waiters))
            return q->head;
        any = q->head;
    }
    return any;
}

static void send_status(weft_comm *comm, int peer)
{
    char text[WEFT_COMM_NOTE] = ":alive, not in a collective";
    const weft_comm_request *x = running(comm);
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

/* ---- busy ranks ------------------------------------------------------------------------------ */

/* Sends "*ROOT activity" to this rank's children in a binomial tree from the busy rank, so that no
 * rank sends to all. */
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

static void report_busy(weft_comm *comm, double now)
{
    char text[WEFT_COMM_NOTE] = "";
    const double period = atomic_load(&comm->deadline) / 4;
    if (!atomic_load(&comm->is_busy) || now - comm->watch.busy_sent < (period < 5 ? period : 5))
        return;
    pthread_mutex_lock(&comm->mutex);
    snprintf(text, sizeof text, "*%d %.180s", comm->rank, comm->busy);
    pthread_mutex_unlock(&comm->mutex);
    comm->watch.busy_sent = now;
    pass_on(comm, comm->rank, text);
}

/* Reads control messages: a failed rank ends this rank's waits, and a status question is
 * answered. */
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
            comm->watch.notified_all = true;
            return weft_error(WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_RANK(peer)), "rank %d failed: %s",
                              peer, text + 1);
        }
        if (text[0] == '?')
            send_status(comm, peer);
        else if (text[0] == ':')
            memcpy(comm->watch.peer_status[peer].text, text + 1, WEFT_COMM_NOTE - 1);
        else if (text[0] == '*') {
            const int root = atoi(text + 1);
            comm->watch.busy_heard = weft_now();
            if (root >= 0 && root < comm->ranks && root != comm->rank)
                pass_on(comm, root, text);
        }
    }
}

/* Checks that the missing peers are alive, and asks for the status of peers not asked since `ask`
 * (0: asks none). A rank that failed because of another rank sends a note before it exits.
 * Therefore a peer counts as exited only at the second check, after notes have been read. */
static weft_status check_alive(weft_comm *comm, const weft_comm_request *x, double ask)
{
    int peers[MISSING];
    const int count = missing_peers(x, peers);
    for (int i = 0; i < count; i++) {
        char who[WEFT_COMM_NOTE] = "";
        const int peer = peers[i];
        const bool was_gone = comm->watch.peer_status[peer].gone;
        comm->watch.peer_status[peer].gone =
            !comm->transport.alive(comm->transport.self, peer, who);
        if (comm->watch.peer_status[peer].gone && !was_gone)
            continue;
        if (comm->watch.peer_status[peer].gone)
            return weft_error(WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_RANK(peer)),
                              "rank %d exited (%s) while rank %d waited for it in %s. Start the "
                              "job again; it resumes from the last checkpoint.",
                              peer, who, comm->rank, x->what);
        if (ask > 0 && comm->watch.peer_status[peer].asked < ask) {
            comm->watch.peer_status[peer] = (weft_peer_status){.asked = weft_now()};
            char question[WEFT_COMM_NOTE] = "?"; /* transports send whole notes */
            comm->transport.note(comm->transport.self, peer, question);
        }
    }
    return WEFT_OK;
}

/* Returns the time since when a stream waits for the request; 0: none does. */
static double held_since(weft_comm_request *x, double now)
{
    if (!atomic_load(&x->run.holding))
        return 0;
    if (x->run.held_since == 0 && x->buffers.device->reached(x->buffers.device, &x->run.hold_begun))
        x->run.held_since = now;
    return x->run.held_since;
}

/* Returns the seconds that a caller or a stream has waited for the queue without an arrival and
 * without a busy rank. */
static double waited_for(const weft_comm *comm, const weft_queue *q, double now)
{
    const double last = q->head->run.last, held = held_since(q->head, now);
    double since = atomic_load(&q->waiting_since);
    if (weft_comm_request_awaits_device(q->head)) /* the device has a deadline of its own */
        return 0;
    since = held > 0 && (since == 0 || held < since) ? held : since;
    double from = since > last ? since : last;
    from = comm->watch.busy_heard > from ? comm->watch.busy_heard : from;
    return since > 0 && now > from ? now - from : 0;
}

/* Reads notes and checks for exited processes and expired deadlines. Called between polls and when
 * idle. */
static weft_status check_peers(weft_comm *comm)
{
    const double now = weft_now(), deadline = atomic_load(&comm->deadline);
    if (now - comm->watch.noted > note_period) {
        comm->watch.noted = now;
        WEFT_TRY(read_notes(comm));
        report_busy(comm, now);
    }
    const bool check = now - comm->watch.checked > alive_period;
    if (check)
        comm->watch.checked = now;
    for (const weft_queue *q = comm->active; q; q = q->next) {
        const double waited = waited_for(comm, q, now);
        if (check && q->head->run.begun)
            WEFT_TRY(check_alive(comm, q->head, waited > deadline / 2 ? now - waited : 0));
        if (waited > deadline)
            return fail_missing(comm, q->head, now - waited, waited);
    }
    return WEFT_OK;
}

/* ---- the thread and its queues --------------------------------------------------------------- */

static void forget(weft_comm_request *x)
{
    weft_send_buffer_release(x->run.held);
    weft_comm_request_drop(x);
}

/* Fails all running and queued requests. Called by the progress thread, or by the thread that ended
 * it. */
static void fail_all(weft_comm *comm)
{
    if (comm->transport.links)
        weft_simulated_links_drop(comm->transport.links, comm);
    pthread_mutex_lock(&comm->mutex);
    for (int list = 0; list < 2; list++) {
        weft_queue **queues = list ? &comm->fresh : &comm->active;
        for (weft_queue *q = *queues; q; q = q->next) {
            if (q->head)
                weft_comm_request_cancel(comm, q->head);
            for (weft_comm_request *x = q->head, *next; x; x = next) {
                next = x->run.next;
                weft_comm_request_force(x);
                if (x->run.forgotten)
                    forget(x);
                else
                    atomic_store(&x->run.state, WEFT_COMM_REQUEST_FAILED);
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
    comm->error = weft_error_save();
    pthread_mutex_unlock(&comm->mutex);
    if (comm->transport.links)
        weft_simulated_links_break(comm->transport.links);
    fail_all(comm);
}

/* Removes the finished first request from *at. If the queue is then empty, removes it from the
 * active list and sets *at to the next queue. Returns true if the queue has more requests. */
static bool take_out(weft_comm *comm, weft_queue **at)
{
    weft_queue *q = *at;
    weft_comm_request *x = q->head;
    pthread_mutex_lock(&comm->mutex);
    q->head = x->run.next;
    if (!q->head) {
        q->tail = NULL;
        q->active = false;
        *at = q->next;
    }
    const bool more = q->head != NULL, awaited = x->run.awaited;
    x->run.finished = weft_now();
    if (x->run.forgotten)
        forget(x);
    else
        atomic_store(&x->run.state, WEFT_COMM_REQUEST_DONE);
    if (awaited)
        pthread_cond_broadcast(&comm->finished);
    pthread_mutex_unlock(&comm->mutex);
    return more;
}

/* Advances the first request of every queue. */
static weft_status progress_queues(weft_comm *comm, bool *progressed)
{
    for (weft_queue **at = &comm->active; *at;) {
        weft_comm_request *x = (*at)->head;
        bool finished;
        if (!x->run.begun && !weft_comm_request_may_begin(x)) {
            at = &(*at)->next;
            continue;
        }
        if (!x->run.begun)
            WEFT_TRY(weft_comm_request_begin(comm, x));
        WEFT_TRY(weft_comm_request_advance(comm, x, progressed, &finished));
        if (!finished || take_out(comm, at))
            at = &(*at)->next;
    }
    return WEFT_OK;
}

/* The caller holds the mutex. */
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
    bool progressed = false;
    if (comm->transport.due)
        *comm->transport.due = 0;
    WEFT_TRY(progress_queues(comm, &progressed));
    if (atomic_load(&comm->thread.abandoned))
        return weft_error(WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_RANK(comm->rank)),
                          "rank %d freed a request that had not finished", comm->rank);
    *idle = progressed ? 0 : *idle + 1;
    if (progressed)
        return WEFT_OK;
    if (*idle % 16 == 0 || comm->transport.sleep || !is_waited_for(comm))
        WEFT_TRY(check_peers(comm));
    relax(comm, *idle);
    return WEFT_OK;
}

static void *progress(void *argument)
{
    weft_comm *comm = argument;
    int64_t idle = 0;
    if (comm->transport.due) /* wakes at known times to 1 us instead of 50 us */
        prctl(PR_SET_TIMERSLACK, 1000UL);
    pthread_mutex_lock(&comm->mutex);
    while (!atomic_load(&comm->thread.stop) && comm->broken == WEFT_OK) {
        take_fresh(comm);
        if (!comm->active) {
            timed_wait(&comm->queued, &comm->mutex, atomic_load(&comm->is_busy) ? 0.05 : 0.25);
            take_fresh(comm);
        }
        pthread_mutex_unlock(&comm->mutex);
        const weft_status_code status = comm->active ? work(comm, &idle) : check_peers(comm);
        if (status != WEFT_OK)
            break_down(comm, status);
        pthread_mutex_lock(&comm->mutex);
    }
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

/* Advances all queues on the crew's thread until no request progresses. */
static weft_status drive_queues(weft_comm *comm, bool works, bool idle)
{
    for (bool progressed = works && comm->active && !idle; progressed;) {
        progressed = false;
        WEFT_TRY(progress_queues(comm, &progressed));
    }
    if (atomic_load(&comm->thread.abandoned))
        return weft_error(WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_RANK(comm->rank)),
                          "rank %d freed a request that had not finished", comm->rank);
    return works ? check_peers(comm) : WEFT_OK;
}

static void drive(void *user, bool idle)
{
    weft_comm *comm = user;
    pthread_mutex_lock(&comm->mutex);
    const bool works = !atomic_load(&comm->thread.stop) && comm->broken == WEFT_OK;
    if (works)
        take_fresh(comm);
    pthread_mutex_unlock(&comm->mutex);
    const weft_status_code status = drive_queues(comm, works, idle);
    if (works && status != WEFT_OK)
        break_down(comm, status);
}

static void poke(void *user)
{
    weft_comm *comm = user;
    weft_crew_call(&comm->thread.member);
}

static weft_status join_crew(weft_comm *comm)
{
    comm->thread.member = (weft_crew_member){.drive = drive, .user = comm};
    WEFT_TRY(weft_crew_join(comm->transport.crew, &comm->thread.member));
    comm->transport.set_wakeup(comm->transport.core, poke, comm);
    comm->thread.running = true;
    return WEFT_OK;
}

static weft_status start_thread(weft_comm *comm)
{
    if (comm->thread.running)
        return WEFT_OK;
    if (comm->transport.crew)
        return join_crew(comm);
    const int error = pthread_create(&comm->thread.id, NULL, progress, comm);
    if (error) {
        return weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE,
                          "cannot start the thread that drives communication: %s", strerror(error));
    }
    comm->thread.running = true;
    return WEFT_OK;
}

static void end_thread(weft_comm *comm)
{
    if (!comm->thread.running)
        return;
    atomic_store(&comm->thread.stop, true);
    comm->thread.running = false;
    if (comm->transport.crew) {
        comm->transport.set_wakeup(comm->transport.core, NULL, NULL);
        weft_crew_leave(&comm->thread.member);
        return;
    }
    pthread_mutex_lock(&comm->mutex);
    pthread_cond_broadcast(&comm->queued);
    pthread_mutex_unlock(&comm->mutex);
    pthread_join(comm->thread.id, NULL);
}

/* Requires the mutex. */
static bool works(const weft_comm *comm)
{
    return comm->broken == WEFT_OK && comm->thread.running;
}

/* Takes the next number of the queue. Returns false if the communicator has failed or ended. */
static bool number(weft_comm_request *x)
{
    weft_comm *comm = x->comm;
    weft_queue *q = x->queue;
    pthread_mutex_lock(&comm->mutex);
    const bool numbered = works(comm);
    x->run.next = NULL;
    x->run.begun = x->run.awaited = false;
    if (numbered) {
        const int single = q->key >> 4 ? 1 : 0;
        atomic_store(&x->run.state, WEFT_COMM_REQUEST_QUEUED);
        x->run.tag =
            x->group->tag | single << 11 | (int)x->channel << 8 | (int)(q->sequence++ & 0x7f) << 1;
        x->run.last = x->run.started;
    }
    pthread_mutex_unlock(&comm->mutex);
    return numbered;
}

/* Puts a numbered request into its queue. Returns false if the communicator has failed or ended. */
static bool enqueue(weft_comm_request *x)
{
    weft_comm *comm = x->comm;
    weft_queue *q = x->queue;
    if (weft_comm_request_plan(x) != WEFT_OK)
        return false;
    pthread_mutex_lock(&comm->mutex);
    const bool queued = works(comm);
    if (queued) {
        x->run.next = NULL;
        *(q->tail ? &q->tail->run.next : &q->head) = x;
        q->tail = x;
        if (!q->active) {
            q->active = true;
            q->next = comm->fresh;
            comm->fresh = q;
            pthread_cond_signal(&comm->queued);
        }
    }
    pthread_mutex_unlock(&comm->mutex);
    if (queued && comm->transport.wake)
        comm->transport.wake(comm->transport.self);
    return queued;
}

void weft_comm_request_enqueue(weft_comm_request *x)
{
    if (!enqueue(x))
        weft_comm_request_end(x, false);
}

void weft_comm_request_end(weft_comm_request *x, bool done)
{
    weft_comm *comm = x->comm;
    pthread_mutex_lock(&comm->mutex);
    x->run.finished = weft_now();
    const bool awaited = x->run.awaited;
    atomic_store(&x->run.state, done ? WEFT_COMM_REQUEST_DONE : WEFT_COMM_REQUEST_FAILED);
    pthread_mutex_unlock(&comm->mutex);
    if (awaited) /* after the mutex is free, so that the owner does not wait again for the mutex */
        pthread_cond_broadcast(&comm->finished);
}

bool weft_comm_request_is_next(const weft_comm_request *x)
{
    weft_comm *comm = x->comm;
    pthread_mutex_lock(&comm->mutex);
    const bool is_next = works(comm) && !x->queue->head;
    pthread_mutex_unlock(&comm->mutex);
    return is_next;
}

/* Sets the time at which the owner started the request. A send reserves its link here, so that link
 * order is the owner's order of sends and not that of the progress thread. */
static void set_start_time(weft_comm_request *x)
{
    const weft_transport *t = &x->comm->transport;
    const int peer = x->spec.op == WEFT_COMM_SEND ? x->group->rank[x->spec.argument] : -1;
    x->simulated.number = x->queue->sequence; /* only this thread increments it */
    x->simulated.met = false;
    if (x->simulated.clock.now) {
        x->simulated.asked = *x->simulated.clock.now;
        if (peer >= 0 && t->reserve)
            x->simulated.asked = t->reserve(t->self, peer, x->spec.bytes, x->simulated.asked);
        x->simulated.port = x->simulated.asked;
    }
}

/* Returns false if the communicator has failed or ended. */
static bool start_in_queue(weft_comm_request *x)
{
    weft_simulated_links *links = x->comm->transport.links;
    bool held = false;
    set_start_time(x);
    if (!number(x))
        return false;
    if (links && weft_simulated_links_begin(links, x->comm->rank, x, &held) != WEFT_OK)
        return false;
    return held || enqueue(x);
}

/* Adds the request's time to its owner's simulated clock. */
static weft_status meet(weft_comm_request *x)
{
    weft_simulated_links *links = x->comm ? x->comm->transport.links : NULL;
    if (links && x->spec.ranks > 1 && !x->simulated.met)
        WEFT_TRY(weft_simulated_links_advance(links, x->comm->rank, x));
    x->simulated.met = true;
    if (x->simulated.clock.now && x->spec.ranks > 1) {
        x->run.waited = x->simulated.end > *x->simulated.clock.now
                            ? x->simulated.end - *x->simulated.clock.now
                            : 0;
        *x->simulated.clock.now += x->run.waited;
    }
    return WEFT_OK;
}

/* Adds the request to its stream, and to its queue so that the progress thread watches it. */
static void start_linked(weft_comm_request *x)
{
    const weft_device *device = x->buffers.device;
    x->run.linked = true;
    x->run.started = weft_now();
    x->run.waited = x->run.held_since = 0;
    device->after(x->buffers.stream, &x->buffers.ready);
    if (device->mark)
        device->mark(x->buffers.stream, -1, x->what, "");
    if (weft_comm_request_plan(x) != WEFT_OK || !number(x)) {
        atomic_store(&x->run.state, WEFT_COMM_REQUEST_FAILED);
        return;
    }
    weft_comm_request_add(x->comm, x);
    if (device->record(x->buffers.stream, &x->run.ended) != WEFT_OK || !enqueue(x))
        atomic_store(&x->run.state, WEFT_COMM_REQUEST_FAILED);
}

void weft_comm_request_start(weft_comm_request *x)
{
    x->run.linked = false;
    x->run.started = weft_now(); /* replaced by the progress thread when the request begins */
    x->run.waited = x->run.held_since = 0;
    x->run.turn++;
    if (x->spec.ranks == 1) {
        const bool copied = weft_comm_request_copy(x) == WEFT_OK;
        x->run.finished = x->run.started;
        atomic_store(&x->run.state, copied ? WEFT_COMM_REQUEST_DONE : WEFT_COMM_REQUEST_FAILED);
        return;
    }
    if (!start_in_queue(x)) {
        atomic_store(&x->run.state, WEFT_COMM_REQUEST_FAILED);
        weft_comm_request_force(x);
    }
}

weft_status weft_comm_request_start_after(weft_comm_request *x, weft_device_stream *stream)
{
    const weft_device *device = x->buffers.device;
    if (atomic_load(&x->run.holding)) /* the last run; its end was not waited for */
        WEFT_TRY(weft_comm_request_wait(x));
    x->buffers.follows = weft_device_is_apart(device);
    WEFT_TRY(x->buffers.follows ? device->record(stream, &x->buffers.ready) : device->wait(stream));
    if (x->buffers.follows && weft_comm_request_is_linked(x))
        start_linked(x);
    else
        weft_comm_request_start(x);
    return WEFT_OK;
}

/* Restores the error that ended the communicator. Returns WEFT_E_COMM whatever its class, because
 * the caller cannot communicate any more. */
static weft_status broken_error(const weft_comm *comm)
{
    if (comm->error)
        weft_error_restore(comm->error);
    else
        weft_error(WEFT_MSG_COMM_FAILED, WEFT_AT(WEFT_RANK(comm->rank)),
                   "communication of rank %d has ended", comm->rank);
    return WEFT_E_COMM;
}

weft_status weft_comm_request_start_detached(weft_comm_request *x)
{
    weft_comm *comm = x->comm;
    x->run.forgotten = true;
    if (start_in_queue(x))
        return WEFT_OK;
    forget(x);
    return broken_error(comm);
}

weft_status weft_comm_request_wait(weft_comm_request *x)
{
    weft_comm *comm = x->comm;
    if (atomic_load(&x->run.state) == WEFT_COMM_REQUEST_DONE)
        return atomic_load(&x->run.holding) ? weft_comm_request_end_hold(x) : meet(x);
    if (x->spec.ranks == 1 && atomic_load(&x->run.state) == WEFT_COMM_REQUEST_FAILED)
        return weft_error_at(WEFT_E_COMM, WEFT_AT(.key = x->what));
    if (!comm)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = x->what),
                          "the request was waited for before it was started");
    weft_queue *q = x->queue;
    const double begin = weft_now();
    if (comm->transport.links)
        weft_simulated_links_wait(comm->transport.links, comm->rank, x);
    pthread_mutex_lock(&comm->mutex);
    if (atomic_fetch_add(&q->waiters, 1) == 0)
        atomic_store(&q->waiting_since, begin);
    if (atomic_fetch_add(&comm->waiters, 1) == 0)
        pthread_cond_signal(&comm->queued); /* the progress thread polls more often from now on */
    x->run.awaited = true;
    while (atomic_load(&x->run.state) == WEFT_COMM_REQUEST_QUEUED) {
        timed_wait(&comm->finished, &comm->mutex, 1);
        if (comm->transport.links && weft_now() - begin > atomic_load(&comm->deadline)) {
            pthread_mutex_unlock(&comm->mutex);
            weft_simulated_links_hand_over(comm->transport.links, x);
            pthread_mutex_lock(&comm->mutex);
        }
    }
    atomic_fetch_sub(&comm->waiters, 1);
    if (atomic_fetch_sub(&q->waiters, 1) == 1)
        atomic_store(&q->waiting_since, 0);
    x->run.waited = weft_now() - begin;
    comm->total.waited += x->run.waited;
    pthread_mutex_unlock(&comm->mutex);
    if (atomic_load(&x->run.state) == WEFT_COMM_REQUEST_DONE)
        return atomic_load(&x->run.holding) ? weft_comm_request_end_hold(x) : meet(x);
    if (atomic_load(&x->run.state) == WEFT_COMM_REQUEST_FAILED)
        return broken_error(comm);
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = x->what),
                      "the request was waited for before it was started");
}

static bool any_over(weft_comm_request *const *requests, int count)
{
    for (int i = 0; i < count; i++)
        if (atomic_load(&requests[i]->run.state) != WEFT_COMM_REQUEST_QUEUED)
            return true;
    return false;
}

void weft_comm_request_wait_any(weft_comm *comm, weft_comm_request *const *requests, int count,
                                double seconds, bool (*also)(void *user), void *user)
{
    const double begin = weft_now(), end = begin + seconds;
    pthread_mutex_lock(&comm->mutex);
    for (int i = 0; i < count; i++) {
        requests[i]->run.awaited = true;
        if (atomic_fetch_add(&requests[i]->queue->waiters, 1) == 0)
            atomic_store(&requests[i]->queue->waiting_since, begin);
    }
    if (atomic_fetch_add(&comm->waiters, 1) == 0)
        pthread_cond_signal(&comm->queued);
    while (!any_over(requests, count) && !(also && also(user)) && comm->broken == WEFT_OK &&
           weft_now() < end)
        timed_wait(&comm->finished, &comm->mutex, fmin(fmax(0, end - weft_now()), 1));
    atomic_fetch_sub(&comm->waiters, 1);
    for (int i = 0; i < count; i++)
        if (atomic_fetch_sub(&requests[i]->queue->waiters, 1) == 1)
            atomic_store(&requests[i]->queue->waiting_since, 0);
    pthread_mutex_unlock(&comm->mutex);
}

void weft_comm_nudge(weft_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    pthread_cond_broadcast(&comm->finished);
    pthread_mutex_unlock(&comm->mutex);
}

bool weft_comm_request_done(const weft_comm_request *x)
{
    if (atomic_load(&x->run.state) != WEFT_COMM_REQUEST_DONE)
        return false;
    if (!x->simulated.clock.now || x->spec.ranks == 1)
        return true;
    weft_simulated_links *links = x->comm->transport.links;
    const bool single = x->spec.op == WEFT_COMM_SEND || x->spec.op == WEFT_COMM_RECV;
    return links && single && !x->simulated.met
               ? weft_simulated_links_passed(links, x->comm->rank, x, *x->simulated.clock.now)
               : x->simulated.end <= *x->simulated.clock.now;
}

double weft_comm_request_seconds(const weft_comm_request *x, double *waited)
{
    *waited = x->run.waited;
    return x->simulated.clock.now ? x->simulated.end - x->simulated.begin
                                  : x->run.finished - x->run.started;
}

void weft_comm_request_free(weft_comm_request *x)
{
    if (!x)
        return;
    if (atomic_load(&x->run.state) == WEFT_COMM_REQUEST_QUEUED) {
        weft_comm *comm = x->comm;
        pthread_mutex_lock(&comm->mutex);
        atomic_store(&comm->thread.abandoned, true);
        x->run.awaited = true;
        while (atomic_load(&x->run.state) == WEFT_COMM_REQUEST_QUEUED)
            timed_wait(&comm->finished, &comm->mutex, 1);
        pthread_mutex_unlock(&comm->mutex);
    }
    forget(x);
}

/* ---- the communicator ------------------------------------------------------------------------ */

weft_status weft_comm_create(const weft_transport *transport, weft_comm **out)
{
    weft_comm *comm = weft_alloc(sizeof *comm);
    weft_status_code status = WEFT_OK;
    if (!comm) {
        if (transport->free)
            transport->free(transport->self, true);
        return weft_no_memory("a communicator");
    }
    comm->transport = *transport;
    comm->rank = transport->rank;
    comm->ranks = transport->ranks;
    comm->choice.costs = weft_link_costs_default;
    atomic_store(&comm->deadline, 120);
    pthread_mutex_init(&comm->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&comm->queued, &monotonic);
    pthread_cond_init(&comm->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);
    comm->node = weft_calloc(comm->ranks, sizeof *comm->node);
    comm->watch.peer_status = weft_calloc(comm->ranks, sizeof *comm->watch.peer_status);
    WEFT_GO(WEFT_ALLOCATED(comm->node && comm->watch.peer_status, "a communicator of %d ranks",
                           comm->ranks));
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
    weft_coll_tuning_free(&comm->choice.tuning);
    if (comm->transport.free)
        comm->transport.free(comm->transport.self, comm->broken != WEFT_OK || comm->thread.gave_up);
    weft_comm_pinned_free(comm);
    pthread_mutex_destroy(&comm->mutex);
    pthread_cond_destroy(&comm->queued);
    pthread_cond_destroy(&comm->finished);
    weft_free(comm->node);
    weft_free(comm->watch.peer_status);
    weft_free(comm->error);
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
    const double seconds = comm->total.waited;
    pthread_mutex_unlock(&comm->mutex);
    return seconds;
}

void weft_comm_sent(weft_comm *comm, int64_t *messages, int64_t *bytes)
{
    *messages = atomic_load(&comm->total.messages);
    *bytes = atomic_load(&comm->total.bytes);
}

void weft_comm_set_busy(weft_comm *comm, const char *what)
{
    if (weft_comm_ranks(comm) == 1)
        return;
    pthread_mutex_lock(&comm->mutex);
    snprintf(comm->busy, sizeof comm->busy, "%s", what ? what : "");
    atomic_store(&comm->is_busy, what != NULL);
    pthread_cond_signal(&comm->queued);
    pthread_mutex_unlock(&comm->mutex);
}

/* weft_comm_abort is called by the thread that owns the communicator when it leaves a run with an
 * error. It stops the progress thread first, so that only one thread uses the transport. Notes are
 * sent before messages are cancelled. After it returns, the transport is not called. The caller may
 * then free receive buffers, even of messages that could not be cancelled. */
void weft_comm_leave(weft_comm *comm)
{
    if (comm->transport.links)
        weft_simulated_links_leave(comm->transport.links, comm->rank);
}

void weft_comm_abort(weft_comm *comm)
{
    if (!comm || comm->ranks == 1 || comm->thread.gave_up)
        return;
    char text[WEFT_COMM_NOTE];
    snprintf(text, sizeof text, "!%s", weft_error_message());
    comm->thread.gave_up = true;
    if (comm->transport.links)
        weft_simulated_links_break(comm->transport.links);
    pthread_mutex_lock(&comm->mutex);
    const bool broken = comm->broken != WEFT_OK;
    pthread_mutex_unlock(&comm->mutex);
    end_thread(comm);
    if (!broken) {
        pthread_mutex_lock(&comm->mutex);
        comm->broken = WEFT_E_COMM;
        weft_free(comm->error); /* of the thread, which may have failed before it ended */
        comm->error = weft_error_save();
        pthread_mutex_unlock(&comm->mutex);
    }
    /* Notifies all ranks, even of an error that this rank detected: another rank may wait for this
     * one only. */
    const bool notified = comm->watch.notified_all;
    for (int peer = 0; peer < comm->ranks && !notified; peer++)
        if (peer != comm->rank)
            comm->transport.note(comm->transport.self, peer, text);
    if (comm->transport.flush && !notified)
        comm->transport.flush(comm->transport.self);
    fail_all(comm);
}
