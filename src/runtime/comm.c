/* The communicator: a queue of exchanges, one thread that runs them, waits with a deadline.
 *
 * Only the progress thread calls the transport. It sleeps on a condition while there is nothing to
 * do, polls often while a caller waits, and every 0.1-0.2 ms while the caller computes. */
#include "runtime/comm_internal.h"

#include "base/log.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double note_period = 0.02, alive_period = 0.5;

static void nap(long nanoseconds)
{
    const struct timespec t = {.tv_nsec = nanoseconds};
    nanosleep(&t, NULL);
}

static void relax(weft_comm *comm, int64_t idle)
{
    if (!atomic_load_explicit(&comm->waiters, memory_order_relaxed))
        nap(120000);
    else if (idle < 500)
        sched_yield();
    else
        nap(30000);
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

/* Peers whose message has not come; when all have, those that have not taken ours. */
static int missing_peers(const weft_comm *comm, int *peers)
{
    int count = 0;
    for (int receiving = 1; receiving >= 0 && count == 0; receiving--)
        for (int i = 0; i < comm->pending_count; i++)
            if (!comm->pending[i].done && comm->pending[i].receiving == receiving)
                peers[count++] = comm->pending[i].peer;
    return count;
}

static weft_status fail_missing(weft_comm *comm, double waited)
{
    char who[640] = "";
    const int count = missing_peers(comm, comm->missing);
    for (int i = 0; i < count && i < 16; i++) {
        const int peer = comm->missing[i];
        append(who, sizeof who, "%s rank %d", i ? "," : "", peer);
        if (comm->answer[peer].asked)
            append(who, sizeof who, " (%s)",
                   comm->answer[peer].text[0] ? comm->answer[peer].text : "gives no answer");
    }
    if (count > 16)
        append(who, sizeof who, " and %d more", count - 16);
    return weft_fail(
        WEFT_E_COMM,
        "rank %d waited %.1f s in %s for%s; the job must be started again from its last checkpoint",
        comm->rank, waited, comm->current->what,
        who[0] ? who : " nobody: the transport stands still");
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
        if (text[0] == '!')
            return weft_fail(WEFT_E_COMM, "rank %d gave up: %s", peer, text + 1);
        if (text[0] == '?') {
            char answer[WEFT_COMM_NOTE] = ":alive, not in a collective";
            if (comm->current) {
                const int count = missing_peers(comm, comm->missing);
                snprintf(answer, sizeof answer, ":alive, in %.120s%s", comm->current->what,
                         count ? ", itself waiting for rank" : "");
                for (int i = 0; i < count && i < 8; i++)
                    append(answer, sizeof answer, " %d", comm->missing[i]);
            }
            comm->transport.note(comm->transport.self, peer, answer);
        } else if (text[0] == ':') {
            memcpy(comm->answer[peer].text, text + 1, WEFT_COMM_NOTE - 1);
        }
    }
}

static weft_status check_alive(weft_comm *comm, bool ask)
{
    const int count = missing_peers(comm, comm->missing);
    for (int i = 0; i < count; i++) {
        char who[WEFT_COMM_NOTE] = "";
        const int peer = comm->missing[i];
        if (!comm->transport.alive(comm->transport.self, peer, who))
            return weft_fail(WEFT_E_COMM,
                             "rank %d is gone (%s) while rank %d waits for it in %s; start the job "
                             "again from its last checkpoint",
                             peer, who, comm->rank, comm->current->what);
        if (ask && !comm->answer[peer].asked) {
            comm->answer[peer].asked = true;
            char question[WEFT_COMM_NOTE] = "?"; /* transports send whole notes */
            comm->transport.note(comm->transport.self, peer, question);
        }
    }
    return WEFT_OK;
}

/* ---- running one exchange, on the progress thread ------------------------------------------ */

static weft_status complete_pending(weft_comm *comm)
{
    double last = weft_now(), noted = last, checked = last;
    int left = comm->pending_count;
    for (int64_t idle = 0; left > 0; idle++) {
        for (int i = 0; i < comm->pending_count; i++) {
            if (comm->pending[i].done)
                continue;
            WEFT_TRY(comm->transport.test(comm->transport.self, i, &comm->pending[i].done));
            if (comm->pending[i].done)
                left--, idle = -1;
        }
        if (left == 0)
            break;
        const double now = weft_now();
        if (idle < 0) {
            last = now;
            continue;
        }
        if (atomic_load(&comm->stop))
            return weft_fail(WEFT_E_CANCELLED, "the communicator is being closed");
        if (now - noted > note_period) {
            noted = now;
            WEFT_TRY(read_notes(comm));
        }
        const double deadline = atomic_load(&comm->deadline),
                     since = atomic_load(&comm->waiting_since);
        const double waited = since > 0 ? now - (since > last ? since : last) : 0;
        if (now - checked > alive_period) {
            checked = now;
            WEFT_TRY(check_alive(comm, waited > deadline / 2));
        }
        if (waited > deadline)
            return fail_missing(comm, waited);
        relax(comm, idle);
    }
    return WEFT_OK;
}

/* Elements [begin, begin + count) of the block's row-major sequence, to or from dense memory. */
static void copy_block(const weft_block *b, int64_t begin, int64_t count, int64_t element,
                       char *tensor, char *dense, bool pack)
{
    int64_t row = begin / b->row, column = begin % b->row;
    while (count > 0) {
        const int64_t n = b->row - column < count ? b->row - column : count;
        char *at = tensor + (b->start + row * b->stride + column) * element;
        if (pack)
            memcpy(dense, at, (size_t)(n * element));
        else
            memcpy(at, dense, (size_t)(n * element));
        dense += n * element;
        count -= n;
        column = 0;
        row++;
    }
}

static int64_t segment(const weft_exchange *x, const weft_block *block, int64_t step)
{
    const int64_t left = weft_block_count(block) - step * x->segment;
    return left < 0 ? 0 : left < x->segment ? left : x->segment;
}

/* The sum of `count` elements of term[0..k) in that order, in f64, rounded once. */
static void add_terms(weft_dtype dtype, const void *const *term, int k, int64_t count, void *out)
{
#define ADD(type, load, store)                                                                     \
    for (int64_t i = 0; i < count; i++) {                                                          \
        double sum = load(((const type *)term[0])[i]);                                             \
        for (int r = 1; r < k; r++)                                                                \
            sum += load(((const type *)term[r])[i]);                                               \
        ((type *)out)[i] = store(sum);                                                             \
    }                                                                                              \
    break
#define F64(x)     ((double)(x))
#define TO_F32(x)  ((float)(x))
#define BF16(x)    ((double)weft_bf16_to_f32(x))
#define TO_BF16(x) weft_f32_to_bf16((float)(x))
#define F16(x)     ((double)weft_f16_to_f32(x))
#define TO_F16(x)  weft_f32_to_f16((float)(x))
    switch (dtype) {
    case WEFT_F32:
        if (k == 2) { /* the same bits as through f64, and it vectorises */
            const float *a = term[0], *b = term[1];
            for (int64_t i = 0; i < count; i++)
                ((float *)out)[i] = a[i] + b[i];
            break;
        }
        ADD(float, F64, TO_F32);
    case WEFT_F64: ADD(double, F64, F64);
    case WEFT_BF16: ADD(uint16_t, BF16, TO_BF16);
    case WEFT_F16: ADD(uint16_t, F16, TO_F16);
    case WEFT_I32: ADD(int32_t, F64, (int32_t));
    case WEFT_I64:
        for (int64_t i = 0; i < count; i++) {
            int64_t sum = 0;
            for (int r = 0; r < k; r++)
                sum += ((const int64_t *)term[r])[i];
            ((int64_t *)out)[i] = sum;
        }
        break;
    default: break; /* refused when the exchange was made */
    }
#undef ADD
}

static weft_status post(weft_comm *comm, int peer, bool receiving, int tag, void *data,
                        int64_t bytes)
{
    const int slot = comm->pending_count;
    comm->pending[comm->pending_count++] = (weft_pending){.peer = peer, .receiving = receiving};
    return receiving ? comm->transport.recv(comm->transport.self, slot, peer, tag, data, bytes)
                     : comm->transport.send(comm->transport.self, slot, peer, tag, data, bytes);
}

/* One segment of one round: post receives and sends, wait for them, unpack or add. */
static weft_status run_step(weft_comm *comm, weft_exchange *x, const weft_round *round,
                            int64_t step)
{
    const int64_t e = x->element, at = step * x->segment;
    char *source = round->from_out ? x->out : (char *)(uintptr_t)x->in;
    comm->pending_count = 0;
    for (int j = 0; j < x->group_count; j++) {
        const weft_block *block = &round->recv[j];
        const int64_t count = segment(x, block, step);
        if (j == x->own || !count)
            continue;
        char *to = round->reduce || block->rows > 1 ? x->unpack[j]
                                                    : (char *)x->out + (block->start + at) * e;
        WEFT_TRY(post(comm, x->group[j], true, x->tag, to, count * e));
    }
    for (int j = 0; j < x->group_count; j++) {
        const weft_block *block = &round->send[j];
        const int64_t count = segment(x, block, step);
        if (!count || (j == x->own && round->reduce && block->rows == 1))
            continue;
        char *from = source + (block->start + at) * e;
        if (block->rows > 1) {
            from = x->pack[j];
            copy_block(block, at, count, e, source, from, true);
        }
        if (j != x->own)
            WEFT_TRY(post(comm, x->group[j], false, x->tag, from, count * e));
        else if (!round->reduce && source != (char *)x->out)
            copy_block(&round->recv[j], at, count, e, x->out, from, false);
    }
    WEFT_TRY(complete_pending(comm));
    if (round->reduce) {
        const weft_block *block = &round->recv[x->own];
        const int64_t count = segment(x, block, step);
        for (int j = 0; j < x->group_count; j++)
            x->term[j] = x->unpack[j];
        x->term[x->own] = round->send[x->own].rows > 1
                              ? x->pack[x->own]
                              : source + (round->send[x->own].start + at) * e;
        if (count)
            add_terms(x->dtype, x->term, x->group_count, count,
                      (char *)x->out + (block->start + at) * e);
        return WEFT_OK;
    }
    for (int j = 0; j < x->group_count; j++) {
        const weft_block *block = &round->recv[j];
        const int64_t count = segment(x, block, step);
        if (j != x->own && count && block->rows > 1)
            copy_block(block, at, count, e, x->out, x->unpack[j], false);
    }
    return WEFT_OK;
}

static weft_status run_exchange(weft_comm *comm, weft_exchange *x)
{
    char *at = x->out;
    for (int i = 0; i < x->piece_count; at += x->piece[i++].bytes)
        memcpy(at, x->piece[i].in, (size_t)x->piece[i].bytes);
    for (int r = 0; r < x->round_count; r++)
        for (int64_t step = 0; step < x->round[r].steps; step++)
            WEFT_TRY(run_step(comm, x, &x->round[r], step));
    at = x->out;
    for (int i = 0; i < x->piece_count; at += x->piece[i++].bytes)
        memcpy(x->piece[i].out, at, (size_t)x->piece[i].bytes);
    return WEFT_OK;
}

/* ---- the thread and its queue -------------------------------------------------------------- */

static void break_down(weft_comm *comm, weft_status_code status)
{
    comm->transport.cancel(comm->transport.self);
    pthread_mutex_lock(&comm->mutex);
    comm->broken = status;
    snprintf(comm->message, sizeof comm->message, "%s", weft_error_message());
    for (weft_exchange *x = comm->head; x; x = x->next)
        atomic_store(&x->state, WEFT_EXCHANGE_FAILED);
    comm->head = comm->tail = NULL;
    pthread_cond_broadcast(&comm->finished);
    pthread_mutex_unlock(&comm->mutex);
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

static void *progress(void *argument)
{
    weft_comm *comm = argument;
    pthread_mutex_lock(&comm->mutex);
    while (!atomic_load(&comm->stop) && comm->broken == WEFT_OK) {
        weft_exchange *x = comm->head;
        if (!x) {
            timed_wait(&comm->queued, &comm->mutex, 0.25);
            if (comm->head)
                continue;
            pthread_mutex_unlock(&comm->mutex);
            const weft_status_code status = read_notes(comm);
            if (status != WEFT_OK)
                break_down(comm, status);
            pthread_mutex_lock(&comm->mutex);
            continue;
        }
        pthread_mutex_unlock(&comm->mutex);
        comm->current = x;
        x->started = weft_now();
        const weft_status_code status = run_exchange(comm, x);
        comm->current = status == WEFT_OK ? NULL : x;
        if (status != WEFT_OK) {
            break_down(comm, status);
        } else {
            pthread_mutex_lock(&comm->mutex);
            comm->head = x->next;
            if (!comm->head)
                comm->tail = NULL;
            x->finished = weft_now();
            atomic_store(&x->state, WEFT_EXCHANGE_DONE);
            pthread_cond_broadcast(&comm->finished);
            pthread_mutex_unlock(&comm->mutex);
        }
        pthread_mutex_lock(&comm->mutex);
    }
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

static weft_status start_thread(weft_comm *comm)
{
    if (comm->running)
        return WEFT_OK;
    const int error = pthread_create(&comm->thread, NULL, progress, comm);
    if (error) {
        errno = error;
        return weft_fail_errno("cannot start the thread that drives communication");
    }
    comm->running = true;
    return WEFT_OK;
}

void weft_exchange_start(weft_exchange *x)
{
    weft_comm *comm = x->comm;
    x->started = weft_now(); /* the progress thread puts the time at which its turn came */
    x->waited = 0;
    if (x->group_count == 1) {
        if (x->in != x->out)
            memcpy(x->out, x->in, (size_t)(weft_block_count(&x->round[0].send[0]) * x->element));
        x->finished = x->started;
        atomic_store(&x->state, WEFT_EXCHANGE_DONE);
        return;
    }
    pthread_mutex_lock(&comm->mutex);
    x->next = NULL;
    if (comm->broken != WEFT_OK) {
        atomic_store(&x->state, WEFT_EXCHANGE_FAILED);
    } else {
        atomic_store(&x->state, WEFT_EXCHANGE_QUEUED);
        x->tag = (int)(x->at->id & 0xffff) << 15 | (int)x->channel << 12 |
                 (int)(x->at->sequence[x->channel]++ & 0xfff);
        *(comm->tail ? &comm->tail->next : &comm->head) = x;
        comm->tail = x;
        pthread_cond_signal(&comm->queued);
    }
    pthread_mutex_unlock(&comm->mutex);
}

weft_status weft_exchange_wait(weft_exchange *x)
{
    weft_comm *comm = x->comm;
    if (atomic_load(&x->state) == WEFT_EXCHANGE_DONE)
        return WEFT_OK;
    const double begin = weft_now();
    pthread_mutex_lock(&comm->mutex);
    atomic_store(&comm->waiting_since, begin);
    atomic_store(&comm->waiters, 1);
    while (atomic_load(&x->state) == WEFT_EXCHANGE_QUEUED)
        timed_wait(&comm->finished, &comm->mutex, 1);
    atomic_store(&comm->waiters, 0);
    atomic_store(&comm->waiting_since, 0);
    pthread_mutex_unlock(&comm->mutex);
    x->waited = weft_now() - begin;
    if (atomic_load(&x->state) == WEFT_EXCHANGE_DONE)
        return WEFT_OK;
    if (atomic_load(&x->state) == WEFT_EXCHANGE_FAILED)
        return weft_fail(WEFT_E_COMM, "%s", comm->message);
    return weft_fail(WEFT_E_INTERNAL, "%s was waited for before it was started", x->what);
}

double weft_exchange_seconds(const weft_exchange *x, double *waited)
{
    *waited = x->waited;
    return x->finished - x->started;
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
    atomic_store(&comm->deadline, 120);
    pthread_mutex_init(&comm->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&comm->queued, &monotonic);
    pthread_cond_init(&comm->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (comm->ranks > 1) {
        comm->pending = weft_alloc(2 * comm->ranks * (int64_t)sizeof *comm->pending);
        comm->missing = weft_alloc(2 * comm->ranks * (int64_t)sizeof *comm->missing);
        comm->answer = weft_alloc(comm->ranks * (int64_t)sizeof *comm->answer);
        if (!comm->pending || !comm->missing || !comm->answer) {
            status =
                weft_fail(WEFT_E_MEMORY, "no memory for a communicator of %d ranks", comm->ranks);
            goto out;
        }
        WEFT_GO(transport->reserve(transport->self, 2 * comm->ranks));
        WEFT_GO(start_thread(comm));
    }
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
    if (comm->running) {
        atomic_store(&comm->stop, true);
        pthread_mutex_lock(&comm->mutex);
        pthread_cond_broadcast(&comm->queued);
        pthread_mutex_unlock(&comm->mutex);
        pthread_join(comm->thread, NULL);
    }
    if (comm->transport.free)
        comm->transport.free(comm->transport.self, comm->broken != WEFT_OK || comm->gave_up);
    pthread_mutex_destroy(&comm->mutex);
    pthread_cond_destroy(&comm->queued);
    pthread_cond_destroy(&comm->finished);
    weft_free(comm->pending);
    weft_free(comm->missing);
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

/* Called by the thread that owns the communicator when it leaves a run with an error. The progress
 * thread is stopped first, so that only one thread uses the transport. */
void weft_comm_give_up(weft_comm *comm)
{
    if (!comm || comm->ranks == 1 || comm->gave_up)
        return;
    char text[WEFT_COMM_NOTE];
    snprintf(text, sizeof text, "!%s", weft_error_message());
    comm->gave_up = true;
    pthread_mutex_lock(&comm->mutex);
    const bool told = comm->broken != WEFT_OK; /* the others find out as this rank did */
    atomic_store(&comm->stop, true);
    pthread_cond_broadcast(&comm->queued);
    pthread_mutex_unlock(&comm->mutex);
    pthread_join(comm->thread, NULL);
    comm->running = false;
    comm->broken = comm->broken != WEFT_OK ? comm->broken : WEFT_E_COMM;
    if (!told)
        snprintf(comm->message, sizeof comm->message, "this rank gave up before: %s", text + 1);
    for (int peer = 0; peer < comm->ranks && !told; peer++)
        if (peer != comm->rank)
            comm->transport.note(comm->transport.self, peer, text);
}

/* ---- whole-world helpers ------------------------------------------------------------------- */

static weft_status run_now(weft_exchange *x, const void *in, void *out)
{
    void *scratch = weft_alloc_aligned(weft_exchange_scratch(x));
    weft_status_code status = WEFT_OK;
    if (!scratch) {
        status = weft_fail(WEFT_E_MEMORY, "no memory for %s", weft_exchange_what(x));
    } else {
        weft_exchange_bind(x, in, out, scratch);
        weft_exchange_start(x);
        status = weft_exchange_wait(x);
    }
    weft_free(scratch);
    weft_exchange_free(x);
    return status;
}

weft_status weft_comm_all_gather(weft_comm *comm, const void *data, int64_t bytes, void *out)
{
    if (weft_comm_ranks(comm) == 1) {
        memcpy(out, data, (size_t)bytes);
        return WEFT_OK;
    }
    weft_exchange *x;
    WEFT_TRY(weft_exchange_create_world(comm, WEFT_WORLD_ALL_GATHER, WEFT_U8, bytes, 0, &x));
    return run_now(x, data, out);
}

weft_status weft_comm_barrier(weft_comm *comm)
{
    if (weft_comm_ranks(comm) == 1)
        return WEFT_OK;
    weft_exchange *x;
    WEFT_TRY(weft_exchange_create_world(comm, WEFT_WORLD_BARRIER, WEFT_I32, 1, 0, &x));
    int32_t one = 1, sum = 0;
    return run_now(x, &one, &sum);
}

weft_status weft_comm_broadcast(weft_comm *comm, void *data, int64_t bytes, int root)
{
    if (weft_comm_ranks(comm) == 1)
        return WEFT_OK;
    weft_exchange *x;
    WEFT_TRY(weft_exchange_create_world(comm, WEFT_WORLD_BROADCAST, WEFT_U8, bytes, root, &x));
    return run_now(x, data, data);
}

weft_status weft_comm_sum(weft_comm *comm, double *values, int64_t count)
{
    if (weft_comm_ranks(comm) == 1)
        return WEFT_OK;
    weft_exchange *x;
    WEFT_TRY(weft_exchange_create_world(comm, WEFT_WORLD_SUM, WEFT_F64, count, 0, &x));
    return run_now(x, values, values);
}
