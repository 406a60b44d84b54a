#include "train/step/batch_share.h"

#include "base/rng.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "data/loader_share.h"

#include <pthread.h>
#include <string.h>

/* Queues of its own: the parts do not wait for requests of the step. */
enum { PURPOSE = 0x73616d70 };

/* Hash of this rank's items in the batches of all programs; 0: none. */
static uint64_t items_of(const weft_stage_programs *programs)
{
    uint64_t hash = 0, any = 0;
    for (int i = 0; i < programs->buckets; i++) {
        const weft_step *step = programs->bucket[i];
        hash = weft_seed_mix(hash, (uint64_t)step->local_first);
        hash = weft_seed_mix(hash, (uint64_t)step->local_count);
        any |= (uint64_t)step->local_count;
    }
    return any ? hash | 1 : 0;
}

weft_status weft_batch_share_open(weft_comm *comm, const weft_stage_programs *programs,
                                  weft_batch_share *share)
{
    const int ranks = weft_comm_ranks(comm), rank = weft_comm_rank(comm);
    const uint64_t own = items_of(programs);
    uint64_t *all;
    *share = (weft_batch_share){.members = 1};
    if (ranks == 1)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(all, ranks, "the items of %d ranks", ranks));
    int *list = weft_calloc(ranks, sizeof *list);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(list, "the items of %d ranks", ranks));
    WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
    if (own) {
        share->members = 0;
        for (int r = 0; r < ranks; r++) {
            if (all[r] != own)
                continue;
            if (r == rank)
                share->member = share->members;
            list[share->members++] = r;
        }
        if (share->members > 1)
            WEFT_GO(weft_comm_group_for(comm, list, share->members, PURPOSE, &share->group));
    }
out:
    weft_free(list);
    weft_free(all);
    return status;
}

/* ---- the exchanging thread ----------------------------------------------------------------- */

struct weft_batch_exchange {
    const weft_batch_share *share; /* borrowed, as the loader */
    weft_loader *loader;
    weft_buf own, other; /* heads of parts */
    int64_t *head_bytes; /* [members] */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    int64_t next, limit; /* first batch that is not exchanged; first that must not be */
    bool quit;
    weft_status_code status; /* of the thread, which ends after an error */
    weft_error_copy *error;
};

/* Makes room for the heads of another member. */
static weft_status reserve_bytes(weft_buf *buf, int64_t bytes)
{
    static const char zeros[4096];
    buf->len = 0;
    while (buf->capacity < bytes + 1 && !buf->failed) /* grows without a change of its content */
        weft_buf_append(buf, zeros, sizeof zeros);
    return weft_buf_check(buf);
}

/* Sends the heads of this rank's part to all members and takes the other members'. */
static weft_status exchange_heads(weft_batch_exchange *x, int64_t step)
{
    const weft_batch_share *s = x->share;
    x->own.len = 0;
    weft_loader_share_heads(x->loader, step, &x->own);
    WEFT_TRY(weft_buf_check(&x->own));
    WEFT_TRY(weft_group_all_gather(s->group, &x->own.len, sizeof x->own.len, x->head_bytes));
    for (int m = 0; m < s->members; m++) {
        const bool own = m == s->member;
        if (!own)
            WEFT_TRY(reserve_bytes(&x->other, x->head_bytes[m]));
        char *heads = own ? x->own.data : x->other.data;
        WEFT_TRY(weft_group_broadcast(s->group, heads, x->head_bytes[m], m));
        if (!own)
            WEFT_TRY(weft_loader_share_take(x->loader, step, heads, x->head_bytes[m]));
    }
    return WEFT_OK;
}

/* Completes batch `step`: parts are sent from the batch and received into the batch. */
static weft_status exchange_batch(weft_batch_exchange *x, int64_t step)
{
    const weft_batch_share *s = x->share;
    WEFT_TRY(weft_loader_share_wait(x->loader, step));
    WEFT_TRY(exchange_heads(x, step));
    for (int m = 0; m < s->members; m++) {
        const weft_share_data part = weft_loader_share_data(x->loader, step, m);
        if (part.bytes)
            WEFT_TRY(weft_group_broadcast(s->group, part.data, part.bytes, m));
        if (part.extra_bytes)
            WEFT_TRY(weft_group_broadcast(s->group, part.extra, part.extra_bytes, m));
    }
    return WEFT_OK;
}

/* Exchanges all batches below the limit. Ends at the limit only, which is the same on all ranks:
 * no member waits for a part of a thread that has ended. */
static void *exchange_batches(void *user)
{
    weft_batch_exchange *x = user;
    pthread_mutex_lock(&x->lock);
    while (x->status == WEFT_OK && (x->next < x->limit || !x->quit)) {
        if (x->next >= x->limit) {
            pthread_cond_wait(&x->change, &x->lock);
            continue;
        }
        const int64_t step = x->next;
        pthread_mutex_unlock(&x->lock);
        const weft_status_code status = exchange_batch(x, step);
        pthread_mutex_lock(&x->lock);
        x->next = step + 1;
        x->status = status;
        x->error = status == WEFT_OK ? NULL : weft_error_save();
        pthread_cond_broadcast(&x->change);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

static void free_exchange(weft_batch_exchange *x)
{
    pthread_cond_destroy(&x->change);
    pthread_mutex_destroy(&x->lock);
    weft_buf_free(&x->own);
    weft_buf_free(&x->other);
    weft_free(x->head_bytes);
    weft_free(x->error);
    weft_free(x);
}

static weft_status start(weft_batch_share *s, weft_loader *loader, int64_t step)
{
    weft_batch_exchange *x;
    WEFT_TRY(WEFT_NEW(x, 1, "the exchange of samples"));
    x->share = s;
    x->loader = loader;
    x->next = x->limit = step;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->change, NULL);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(x->head_bytes, s->members, "the exchange of samples"));
    if (pthread_create(&x->thread, NULL, exchange_batches, x) != 0)
        WEFT_GO(weft_no_memory("a thread that exchanges samples"));
    s->exchange = x;
    return WEFT_OK;
out:
    free_exchange(x);
    return status;
}

void weft_batch_share_free(weft_batch_share *share)
{
    weft_batch_exchange *x = share->exchange;
    if (x) {
        pthread_mutex_lock(&x->lock);
        x->quit = true;
        pthread_cond_broadcast(&x->change);
        pthread_mutex_unlock(&x->lock);
        pthread_join(x->thread, NULL);
        free_exchange(x);
    }
    *share = (weft_batch_share){0};
}

weft_status weft_batch_share_next(weft_batch_share *s, weft_loader *loader, weft_batch *batch)
{
    WEFT_TRY(weft_loader_next(loader, batch));
    if (!s->group)
        return WEFT_OK;
    if (!s->exchange)
        WEFT_TRY(start(s, loader, batch->step));
    weft_batch_exchange *x = s->exchange;
    pthread_mutex_lock(&x->lock);
    x->limit = batch->step + 2; /* a loader has planned at least the batch after this one */
    pthread_cond_broadcast(&x->change);
    while (x->next <= batch->step && x->status == WEFT_OK)
        pthread_cond_wait(&x->change, &x->lock);
    const weft_status_code status =
        x->next > batch->step && x->status == WEFT_OK ? WEFT_OK : weft_error_restore(x->error);
    pthread_mutex_unlock(&x->lock);
    return status;
}

weft_status weft_batch_share_bytes(int members, int64_t part_bytes, int64_t *bytes)
{
    weft_comm_request *request;
    *bytes = 0;
    if (members < 2 || !part_bytes)
        return WEFT_OK;
    WEFT_TRY(
        weft_comm_request_create_broadcast(members, 0, 0, part_bytes, WEFT_U8, "a part", &request));
    *bytes = weft_comm_request_scratch(request) + weft_comm_request_own_bytes(request);
    weft_comm_request_free(request);
    return WEFT_OK;
}
