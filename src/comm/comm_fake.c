/* The transport inside one process: each rank is a thread, and messages are copied. Any world size
 * without MPI; ranks can be "killed" to test the reaction of the others. */
#include "comm/comm_fake.h"

#include "comm/comm_internal.h"
#include "comm/link_model.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NOTES = 32 };

typedef struct fake_world fake_world;
typedef struct fake_rank {
    fake_world *world;
    int rank;
    atomic_bool dead;
    weft_message *first, **last;             /* unmatched messages, oldest first */
    weft_message *envelope, **last_envelope; /* sent without a matching receive; owned */
    struct {
        int peer;
        char text[WEFT_COMM_NOTE];
    } note[NOTES];
    int note_count;
    pthread_mutex_t asleep; /* guards the progress thread's sleep */
    pthread_cond_t came;    /* an event that the thread has not seen */
    bool pending;
    /* called instead of waking a thread; NULL: a thread sleeps. Guarded by `asleep` */
    void (*poke)(void *user);
    void *poked;
} fake_rank;

struct fake_world {
    pthread_mutex_t mutex;
    int ranks, users, tag_bits;
    fake_rank rank[];
};

/* Call without the world's mutex, which the woken thread takes. */
static void wake(fake_rank *rank)
{
    pthread_mutex_lock(&rank->asleep);
    const bool first = !rank->pending;
    rank->pending = true;
    if (rank->poke) {
        rank->pending = false;
        rank->poke(rank->poked);
    }
    pthread_mutex_unlock(&rank->asleep);
    if (first)
        pthread_cond_signal(&rank->came);
}

/* Returns true if its poster waits for no other message. The poster may free the message once it is
 * done. */
static bool finish(weft_message *m)
{
    const bool last = !m->together || atomic_fetch_sub(m->together, 1) == 1;
    atomic_store(&m->done, true);
    return last;
}

/* Removes and returns the oldest message of a list that matches `mine` of rank `me`. */
static weft_message *take(weft_message **at, weft_message ***last, int me, const weft_message *mine)
{
    for (; *at; at = &(*at)->next) {
        weft_message *m = *at;
        if (m->receiving == mine->receiving || m->peer != me || m->tag != mine->tag)
            continue;
        *at = m->next;
        if (!m->next)
            *last = at;
        return m;
    }
    return NULL;
}

/* Removes and returns the peer's oldest unmatched message that matches `mine`. */
static weft_message *take_match(fake_rank *me, const weft_message *mine)
{
    fake_rank *other = &me->world->rank[mine->peer];
    if (other->dead)
        return NULL;
    weft_message *m = take(&other->envelope, &other->last_envelope, me->rank, mine);
    return m ? m : take(&other->first, &other->last, me->rank, mine);
}

/* Posts a copy of a timed message without content that has no matching receive yet. The message
 * itself is done at once: it has left by its sender's clock, whenever the receiver's thread posts
 * its receive. */
static weft_status post_envelope(fake_rank *me, weft_message *mine)
{
    weft_message *m;
    WEFT_TRY(WEFT_NEW(m, 1, "a message to rank %d", mine->peer));
    m->peer = mine->peer;
    m->tag = mine->tag;
    m->bytes = mine->bytes;
    m->there = mine->there;
    m->meta = m->envelope = true;
    *me->last_envelope = m;
    me->last_envelope = &m->next;
    finish(mine);
    return WEFT_OK;
}

static weft_status fake_post(void *self, weft_message *mine)
{
    fake_rank *me = self;
    weft_status_code status = WEFT_OK;
    bool last = false;
    const int peer = mine->peer;
    if (mine->tag >> me->world->tag_bits)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_RANK(me->rank)),
                          "tag %llx has more than %d bits", (unsigned long long)mine->tag,
                          me->world->tag_bits);
    pthread_mutex_lock(&me->world->mutex);
    weft_message *other = me->dead ? NULL : take_match(me, mine);
    const bool envelope = other && other->envelope; /* the peer reuses a finished message */
    if (!other && mine->timed && mine->meta && !mine->receiving) {
        status = post_envelope(me, mine);
    } else if (!other) {
        mine->next = NULL;
        *me->last = mine;
        me->last = &mine->next;
    } else if (other->bytes != mine->bytes) {
        status = weft_error(WEFT_MSG_RANKS_DISAGREE, WEFT_AT(WEFT_RANK(mine->peer)),
                            "ranks %d and %d disagree about the size of a message: %" PRId64
                            " and %" PRId64 " bytes",
                            me->rank, mine->peer, mine->bytes, other->bytes);
    } else {
        weft_message *to = mine->receiving ? mine : other;
        const weft_message *from = mine->receiving ? other : mine;
        if (!mine->meta)
            memcpy(to->data, from->data, (size_t)mine->bytes);
        to->there = from->there;
        last = !envelope && finish(other);
        finish(mine);
    }
    if (envelope)
        weft_free(other);
    pthread_mutex_unlock(&me->world->mutex);
    if (last)
        wake(&me->world->rank[peer]);
    return status;
}

static weft_status fake_test(void *self, weft_message *m)
{
    const fake_rank *me = self;
    (void)m; /* `done` is set when its counterpart is posted */
    return me->dead ? weft_error(WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_RANK(me->rank)),
                                 "rank %d was killed", me->rank)
                    : WEFT_OK;
}

static void fake_cancel(void *self, weft_message *m)
{
    fake_rank *me = self;
    pthread_mutex_lock(&me->world->mutex);
    for (weft_message **at = &me->first; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            if (!m->next)
                me->last = at;
            break;
        }
    pthread_mutex_unlock(&me->world->mutex);
}

static void fake_note(void *self, int peer, const char text[WEFT_COMM_NOTE])
{
    fake_rank *me = self, *other = &me->world->rank[peer];
    pthread_mutex_lock(&me->world->mutex);
    const bool written = other->note_count < NOTES && !me->dead;
    if (written) {
        other->note[other->note_count].peer = me->rank;
        memcpy(other->note[other->note_count++].text, text, WEFT_COMM_NOTE);
    }
    pthread_mutex_unlock(&me->world->mutex);
    if (written)
        wake(other);
}

static void fake_poll(void *self, int *peer, char text[WEFT_COMM_NOTE])
{
    fake_rank *me = self;
    pthread_mutex_lock(&me->world->mutex);
    *peer = -1;
    if (me->note_count && !me->dead) {
        *peer = me->note[0].peer;
        memcpy(text, me->note[0].text, WEFT_COMM_NOTE);
        memmove(&me->note[0], &me->note[1], (size_t)--me->note_count * sizeof me->note[0]);
    }
    pthread_mutex_unlock(&me->world->mutex);
}

static void fake_sleep(void *self, double seconds)
{
    fake_rank *me = self;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&me->asleep);
    while (!me->pending && pthread_cond_timedwait(&me->came, &me->asleep, &until) == 0)
        ;
    me->pending = false;
    pthread_mutex_unlock(&me->asleep);
}

static void fake_wake(void *self)
{
    wake(self);
}

static void fake_set_wakeup(void *core, void (*poke)(void *user), void *user)
{
    fake_rank *me = core;
    pthread_mutex_lock(&me->asleep);
    me->poke = poke;
    me->poked = user;
    pthread_mutex_unlock(&me->asleep);
}

static bool fake_alive(void *self, int peer, char who[WEFT_COMM_NOTE])
{
    fake_rank *me = self;
    const bool dead = me->world->rank[peer].dead;
    snprintf(who, WEFT_COMM_NOTE, "killed thread");
    return !dead;
}

static void free_world(fake_world *world)
{
    for (int r = 0; r < world->ranks; r++) {
        for (weft_message *m = world->rank[r].envelope, *next; m; m = next) {
            next = m->next;
            weft_free(m);
        }
        pthread_cond_destroy(&world->rank[r].came);
        pthread_mutex_destroy(&world->rank[r].asleep);
    }
    pthread_mutex_destroy(&world->mutex);
    weft_free(world);
}

static void fake_free(void *self, bool broken)
{
    fake_rank *me = self;
    fake_world *world = me->world;
    (void)broken;
    pthread_mutex_lock(&world->mutex);
    const bool last = --world->users == 0;
    pthread_mutex_unlock(&world->mutex);
    if (last)
        free_world(world);
}

static fake_world *make_world(int ranks, int users, int tag_bits)
{
    fake_world *world =
        ranks > 0 ? weft_alloc((int64_t)sizeof *world + ranks * (int64_t)sizeof(fake_rank)) : NULL;
    if (!world) {
        weft_no_memory("a world of %d ranks", ranks);
        return NULL;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&world->mutex, NULL);
    world->ranks = ranks;
    world->users = users;
    world->tag_bits = tag_bits;
    for (int r = 0; r < ranks; r++) {
        world->rank[r].world = world;
        world->rank[r].rank = r;
        world->rank[r].last = &world->rank[r].first;
        world->rank[r].last_envelope = &world->rank[r].envelope;
        pthread_mutex_init(&world->rank[r].asleep, NULL);
        pthread_cond_init(&world->rank[r].came, &monotonic);
    }
    pthread_condattr_destroy(&monotonic);
    return world;
}

static weft_transport transport_of(fake_world *world, int rank)
{
    fake_rank *me = &world->rank[rank];
    return (weft_transport){.rank = rank,
                            .ranks = world->ranks,
                            .tag_bits = world->tag_bits,
                            .self = me,
                            .core = me,
                            .post = fake_post,
                            .test = fake_test,
                            .cancel = fake_cancel,
                            .note = fake_note,
                            .poll = fake_poll,
                            .sleep = fake_sleep,
                            .wake = fake_wake,
                            .set_wakeup = fake_set_wakeup,
                            .alive = fake_alive,
                            .free = fake_free};
}

static weft_status open_world(int ranks, int tag_bits, const weft_link_model *model,
                              weft_comm **comms)
{
    fake_world *world = make_world(ranks, ranks, tag_bits);
    weft_transport *transport = world ? weft_calloc(ranks, sizeof *transport) : NULL;
    weft_status_code status = WEFT_OK;
    if (!transport) {
        if (world)
            free_world(world);
        return world ? weft_no_memory("a world of %d ranks", ranks) : WEFT_E_MEMORY;
    }
    int taken = 0, made = 0; /* a communicator that fails has freed its transport */
    for (int r = 0; r < ranks; r++)
        transport[r] = transport_of(world, r);
    if (model)
        WEFT_GO(weft_transport_link(transport, ranks, model));
    for (; made < ranks; made++) {
        taken++;
        WEFT_GO(weft_comm_create(&transport[made], &comms[made]));
    }
    weft_free(transport);
    return WEFT_OK;
out:
    for (int r = taken; r < ranks; r++)
        transport[r].free(transport[r].self, true);
    for (int r = 0; r < made; r++) {
        weft_comm_free(comms[r]);
        comms[r] = NULL;
    }
    weft_free(transport);
    return status;
}

weft_status weft_comm_open_threads(int ranks, weft_comm **comms)
{
    return open_world(ranks, WEFT_TAG_BITS, NULL, comms);
}

weft_status weft_comm_open_single(int ranks, int rank, weft_comm **comm)
{
    if (rank < 0 || rank >= ranks)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_RANK(rank)),
                          "rank %d is not in a job of %d ranks", rank, ranks);
    fake_world *world = make_world(ranks, 1, WEFT_TAG_BITS);
    if (!world)
        return WEFT_E_MEMORY;
    const weft_transport transport = transport_of(world, rank);
    return weft_comm_create(&transport, comm);
}

weft_status weft_comm_open_threads_linked(int ranks, const weft_link_model *model,
                                          weft_comm **comms)
{
    return open_world(ranks, WEFT_TAG_BITS, model, comms);
}

weft_status weft_comm_open_threads_narrow(int ranks, int tag_bits, weft_comm **comms)
{
    return open_world(ranks, tag_bits, NULL, comms);
}

void weft_comm_fake_kill(weft_comm *comm)
{
    fake_rank *me = comm->transport.core;
    me->dead = true;
}
