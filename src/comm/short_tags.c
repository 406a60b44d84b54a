/* Tags of 62 bits over a transport that has fewer, with nothing left to luck: a sender numbers the
 * groups in which it sends to a peer, in the order of first use, and says so to that peer.
 *
 *     tag above   | group: 50 bits                      | low: 12 |
 *     tag below   |          number: as many as are left | low: 12 |      number 0: introductions
 *
 *     rank 0 to rank 1    intro(A) A A . intro(B) B A B ...      A is number 1, B is number 2
 *
 * An introduction is the 8 bytes of the group, the n-th of a sender is its number n. A rank asks
 * for the next one only when it is to receive in a group that was not introduced yet; messages of
 * that group wait here until then, in their order. Each is asked for in the end, for who sends in a
 * group is received from in it. */
#include "runtime/comm_internal.h"

#include <string.h>

/* An introduction on its way out, or the one that is asked for. */
typedef struct introduction {
    weft_message message;
    int64_t group;
    struct introduction *next;
} introduction;

/* group[i] has number i + 1. */
typedef struct numbers {
    int64_t *group;
    int count, room;
} numbers;

typedef struct peer_book {
    numbers out, in;
    introduction *leaving;       /* not done yet */
    introduction asked;          /* the next that comes, while `asking` */
    weft_message *first, **last; /* to be received, of groups that are not known yet */
    bool asking;
} peer_book;

typedef struct coat {
    weft_transport below;
    peer_book *book; /* by rank */
} coat;

static int64_t group_of(int64_t tag)
{
    return tag >> WEFT_TAG_LOW;
}

static int number_of(const numbers *n, int64_t group)
{
    for (int i = n->count - 1; i >= 0; i--)
        if (n->group[i] == group)
            return i + 1;
    return 0;
}

static weft_status add(const coat *c, int peer, numbers *n, int64_t group)
{
    if ((int64_t)n->count + 1 >= (int64_t)1 << (c->below.tag_bits - WEFT_TAG_LOW))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "ranks %d and %d meet in more than %d groups, and this transport's tags "
                         "tell no more apart",
                         c->below.rank, peer, n->count);
    if (n->count == n->room) {
        const int room = n->room ? 2 * n->room : 4;
        int64_t *more = weft_alloc(room * (int64_t)sizeof *more);
        if (!more)
            return weft_fail(WEFT_E_MEMORY, "no memory for the numbers of groups");
        if (n->count)
            memcpy(more, n->group, (size_t)n->count * sizeof *more);
        weft_free(n->group);
        n->group = more;
        n->room = room;
    }
    n->group[n->count++] = group;
    return WEFT_OK;
}

/* Takes the low bits along. */
static weft_status post_numbered(coat *c, weft_message *m, int number)
{
    m->tag = (int64_t)number << WEFT_TAG_LOW | (m->tag & ((1 << WEFT_TAG_LOW) - 1));
    return c->below.post(c->below.self, m);
}

static weft_status introduce(coat *c, int peer, int64_t group)
{
    peer_book *b = &c->book[peer];
    WEFT_TRY(add(c, peer, &b->out, group));
    introduction *i = weft_alloc(sizeof *i);
    if (!i)
        return weft_fail(WEFT_E_MEMORY, "no memory for the numbers of groups");
    i->group = group;
    i->message = (weft_message){.peer = peer, .data = &i->group, .bytes = sizeof i->group};
    i->next = b->leaving;
    b->leaving = i;
    return c->below.post(c->below.self, &i->message);
}

static weft_status ask(coat *c, int peer)
{
    peer_book *b = &c->book[peer];
    b->asking = true;
    b->asked.message = (weft_message){
        .peer = peer, .receiving = true, .data = &b->asked.group, .bytes = sizeof b->asked.group};
    return c->below.post(c->below.self, &b->asked.message);
}

static weft_status number_post(void *self, weft_message *m)
{
    coat *c = self;
    peer_book *b = &c->book[m->peer];
    const int64_t group = group_of(m->tag);
    int number = number_of(m->receiving ? &b->in : &b->out, group);
    if (!number && m->receiving) {
        m->next = NULL;
        *b->last = m;
        b->last = &m->next;
        return b->asking ? WEFT_OK : ask(c, m->peer);
    }
    if (!number) {
        WEFT_TRY(introduce(c, m->peer, group));
        number = b->out.count;
    }
    return post_numbered(c, m, number);
}

static weft_status test_below(coat *c, weft_message *m)
{
    return atomic_load_explicit(&m->done, memory_order_acquire) ? WEFT_OK
                                                                : c->below.test(c->below.self, m);
}

static weft_status see_off(coat *c, peer_book *b)
{
    for (introduction **at = &b->leaving; *at;) {
        introduction *i = *at;
        WEFT_TRY(test_below(c, &i->message));
        if (!atomic_load_explicit(&i->message.done, memory_order_acquire)) {
            at = &i->next;
            continue;
        }
        *at = i->next;
        weft_free(i);
    }
    return WEFT_OK;
}

/* What waited for this group goes its way, in its order. */
static weft_status release(coat *c, peer_book *b, int64_t group, int number)
{
    weft_message *left = b->first;
    b->first = NULL;
    b->last = &b->first;
    while (left) {
        weft_message *m = left;
        left = m->next;
        if (group_of(m->tag) == group) {
            WEFT_TRY(post_numbered(c, m, number));
        } else {
            m->next = NULL;
            *b->last = m;
            b->last = &m->next;
        }
    }
    return WEFT_OK;
}

static weft_status hear(coat *c, int peer)
{
    peer_book *b = &c->book[peer];
    while (b->asking) {
        WEFT_TRY(test_below(c, &b->asked.message));
        if (!atomic_load_explicit(&b->asked.message.done, memory_order_acquire))
            return WEFT_OK;
        b->asking = false;
        WEFT_TRY(add(c, peer, &b->in, b->asked.group));
        WEFT_TRY(release(c, b, b->asked.group, b->in.count));
        if (b->first)
            WEFT_TRY(ask(c, peer));
    }
    return WEFT_OK;
}

static bool waits_here(const peer_book *b, const weft_message *m)
{
    for (const weft_message *w = b->first; w; w = w->next)
        if (w == m)
            return true;
    return false;
}

static weft_status number_test(void *self, weft_message *m)
{
    coat *c = self;
    peer_book *b = &c->book[m->peer];
    if (b->leaving)
        WEFT_TRY(see_off(c, b));
    if (b->asking)
        WEFT_TRY(hear(c, m->peer));
    return waits_here(b, m) ? WEFT_OK : test_below(c, m);
}

static bool number_late(void *self, weft_message *m)
{
    coat *c = self;
    return c->below.late && c->below.late(c->below.self, m);
}

static void number_cancel(void *self, weft_message *m)
{
    coat *c = self;
    peer_book *b = &c->book[m->peer];
    for (weft_message **at = &b->first; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            if (!m->next)
                b->last = at;
            return;
        }
    c->below.cancel(c->below.self, m);
}

static void number_note(void *self, int peer, const char text[WEFT_COMM_NOTE])
{
    coat *c = self;
    c->below.note(c->below.self, peer, text);
}

static void number_poll(void *self, int *peer, char text[WEFT_COMM_NOTE])
{
    coat *c = self;
    c->below.poll(c->below.self, peer, text);
}

static void number_flush(void *self)
{
    coat *c = self;
    if (c->below.flush)
        c->below.flush(c->below.self);
}

static bool number_alive(void *self, int peer, char who[WEFT_COMM_NOTE])
{
    coat *c = self;
    return c->below.alive(c->below.self, peer, who);
}

static void withdraw(coat *c, weft_message *m)
{
    if (test_below(c, m) != WEFT_OK || !atomic_load(&m->done))
        c->below.cancel(c->below.self, m);
}

static void number_free(void *self, bool broken)
{
    coat *c = self;
    for (int r = 0; r < c->below.ranks; r++) {
        peer_book *b = &c->book[r];
        if (b->asking)
            withdraw(c, &b->asked.message);
        for (introduction *i = b->leaving; i; i = i->next)
            withdraw(c, &i->message);
    }
    c->below.free(c->below.self, broken);
    for (int r = 0; r < c->below.ranks; r++) {
        peer_book *b = &c->book[r];
        for (introduction *i = b->leaving, *next; i; i = next) {
            next = i->next;
            weft_free(i);
        }
        weft_free(b->in.group);
        weft_free(b->out.group);
    }
    weft_free(c->book);
    weft_free(c);
}

weft_status weft_transport_number(weft_transport *transport)
{
    if (transport->tag_bits >= WEFT_TAG_BITS)
        return WEFT_OK;
    if (transport->tag_bits <= WEFT_TAG_LOW + 1)
        return weft_fail(WEFT_E_UNSUPPORTED, "tags of %d bits are too few", transport->tag_bits);
    coat *c = weft_alloc(sizeof *c);
    peer_book *book = weft_alloc(transport->ranks * (int64_t)sizeof *book);
    if (!c || !book) {
        weft_free(c);
        weft_free(book);
        return weft_fail(WEFT_E_MEMORY, "no memory for the numbers of groups");
    }
    for (int r = 0; r < transport->ranks; r++)
        book[r].last = &book[r].first;
    *c = (coat){.below = *transport, .book = book};
    *transport = (weft_transport){.rank = transport->rank,
                                  .ranks = transport->ranks,
                                  .tag_bits = WEFT_TAG_BITS,
                                  .node = transport->node,
                                  .self = c,
                                  .core = transport->core,
                                  .post = number_post,
                                  .test = number_test,
                                  .late = number_late,
                                  .due = transport->due,
                                  .cancel = number_cancel,
                                  .note = number_note,
                                  .poll = number_poll,
                                  .flush = number_flush,
                                  .alive = number_alive,
                                  .free = number_free};
    return WEFT_OK;
}
