/* The transport inside one process: each rank is a thread, messages are copied. Any world size, no
 * MPI; ranks can be "killed" to see what the others do. */
#include "runtime/comm_internal.h"

#include <stdio.h>
#include <string.h>

enum { NOTES = 32 };

typedef struct mail {
    bool used, done, receiving;
    int peer, tag;
    int64_t bytes, order;
    void *data;
} mail;

typedef struct fake_world fake_world;
typedef struct fake_rank {
    fake_world *world;
    int rank;
    bool dead, closed;
    mail *slot;
    int slots;
    struct {
        int peer;
        char text[WEFT_COMM_NOTE];
    } note[NOTES];
    int note_count;
} fake_rank;

struct fake_world {
    pthread_mutex_t mutex;
    int ranks, users;
    int64_t order;
    fake_rank rank[];
};

static weft_status fake_reserve(void *self, int slots)
{
    fake_rank *me = self;
    me->slot = weft_alloc(slots * (int64_t)sizeof *me->slot);
    me->slots = slots;
    return me->slot ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory for %d messages", slots);
}

/* The oldest unmatched message of `peer` that fits; the new one is in `mine`. */
static weft_status match(fake_rank *me, mail *mine)
{
    fake_rank *other = &me->world->rank[mine->peer];
    mail *oldest = NULL;
    for (int i = 0; i < other->slots && !other->dead; i++) {
        mail *m = &other->slot[i];
        if (m->used && !m->done && m->receiving != mine->receiving && m->peer == me->rank &&
            m->tag == mine->tag && (!oldest || m->order < oldest->order))
            oldest = m;
    }
    if (!oldest)
        return WEFT_OK;
    const mail *to = mine->receiving ? mine : oldest, *from = mine->receiving ? oldest : mine;
    if (to->bytes != from->bytes)
        return weft_fail(
            WEFT_E_INTERNAL,
            "ranks %d and %d disagree about the size of a message: %lld and %lld bytes", me->rank,
            mine->peer, (long long)mine->bytes, (long long)oldest->bytes);
    memcpy(to->data, from->data, (size_t)to->bytes);
    mine->done = oldest->done = true;
    return WEFT_OK;
}

static weft_status add_mail(fake_rank *me, int slot, const mail *m)
{
    pthread_mutex_lock(&me->world->mutex);
    me->slot[slot] = *m;
    me->slot[slot].used = true;
    me->slot[slot].order = me->world->order++;
    const weft_status_code status = me->dead ? WEFT_OK : match(me, &me->slot[slot]);
    pthread_mutex_unlock(&me->world->mutex);
    return status;
}

static weft_status fake_send(void *self, int slot, int peer, int tag, const void *data,
                             int64_t bytes)
{
    return add_mail(
        self, slot,
        &(mail){.peer = peer, .tag = tag, .data = (void *)(uintptr_t)data, .bytes = bytes});
}

static weft_status fake_recv(void *self, int slot, int peer, int tag, void *data, int64_t bytes)
{
    return add_mail(
        self, slot,
        &(mail){.peer = peer, .tag = tag, .data = data, .bytes = bytes, .receiving = true});
}

static weft_status fake_test(void *self, int slot, bool *done)
{
    fake_rank *me = self;
    pthread_mutex_lock(&me->world->mutex);
    const bool dead = me->dead;
    *done = me->slot[slot].done;
    if (*done)
        me->slot[slot].used = false;
    pthread_mutex_unlock(&me->world->mutex);
    return dead ? weft_fail(WEFT_E_COMM, "rank %d was killed", me->rank) : WEFT_OK;
}

static void fake_cancel(void *self)
{
    fake_rank *me = self;
    pthread_mutex_lock(&me->world->mutex);
    for (int i = 0; i < me->slots; i++)
        me->slot[i].used = false;
    pthread_mutex_unlock(&me->world->mutex);
}

static void fake_note(void *self, int peer, const char text[WEFT_COMM_NOTE])
{
    fake_rank *me = self, *other = &me->world->rank[peer];
    pthread_mutex_lock(&me->world->mutex);
    if (other->note_count < NOTES && !me->dead) {
        other->note[other->note_count].peer = me->rank;
        memcpy(other->note[other->note_count++].text, text, WEFT_COMM_NOTE);
    }
    pthread_mutex_unlock(&me->world->mutex);
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

static bool fake_alive(void *self, int peer, char who[WEFT_COMM_NOTE])
{
    fake_rank *me = self;
    pthread_mutex_lock(&me->world->mutex);
    const bool dead = me->world->rank[peer].dead;
    pthread_mutex_unlock(&me->world->mutex);
    snprintf(who, WEFT_COMM_NOTE, "killed thread");
    return !dead;
}

static void fake_free(void *self, bool broken)
{
    fake_rank *me = self;
    fake_world *world = me->world;
    (void)broken;
    pthread_mutex_lock(&world->mutex);
    weft_free(me->slot);
    me->slot = NULL;
    me->slots = 0;
    const bool last = --world->users == 0;
    pthread_mutex_unlock(&world->mutex);
    if (last) {
        pthread_mutex_destroy(&world->mutex);
        weft_free(world);
    }
}

weft_status weft_comm_open_fake(int ranks, weft_comm **comms)
{
    fake_world *world =
        ranks > 0 ? weft_alloc((int64_t)sizeof *world + ranks * (int64_t)sizeof(fake_rank)) : NULL;
    if (!world)
        return weft_fail(WEFT_E_MEMORY, "no memory for a world of %d ranks", ranks);
    pthread_mutex_init(&world->mutex, NULL);
    world->ranks = ranks;
    world->users = ranks;
    for (int r = 0; r < ranks; r++) {
        world->rank[r].world = world;
        world->rank[r].rank = r;
    }
    for (int r = 0; r < ranks; r++) {
        const weft_transport t = {.rank = r,
                                  .ranks = ranks,
                                  .self = &world->rank[r],
                                  .reserve = fake_reserve,
                                  .send = fake_send,
                                  .recv = fake_recv,
                                  .test = fake_test,
                                  .cancel = fake_cancel,
                                  .note = fake_note,
                                  .poll = fake_poll,
                                  .alive = fake_alive,
                                  .free = fake_free};
        const weft_status_code status = weft_comm_create(&t, &comms[r]);
        if (status != WEFT_OK) {
            for (int other = r + 1; other < ranks; other++)
                fake_free(&world->rank[other], true);
            while (r-- > 0) {
                weft_comm_free(comms[r]);
                comms[r] = NULL;
            }
            return status;
        }
    }
    return WEFT_OK;
}

void weft_comm_fake_kill(weft_comm *comm)
{
    fake_rank *me = comm->transport.self;
    pthread_mutex_lock(&me->world->mutex);
    me->dead = true;
    pthread_mutex_unlock(&me->world->mutex);
}
