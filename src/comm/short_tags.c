/* Tags of 62 bits over a transport with shorter tags. A sender numbers the groups in which it sends
 * to a peer, in the order of first use, and introduces each group to the peer. Tags never collide.
 *
 *     tag above   | group: 50 bits                | low: 12 |
 *     tag below   |        number: remaining bits | low: 12 |      number 0: introductions
 *
 *     rank 0 to rank 1    intro(A) A A . intro(B) B A B ...      A is number 1, B is number 2
 *
 * An introduction is the 8 bytes of the group; a sender's n-th introduction has number n. A rank
 * receives the next introduction only when it posts a receive in an unknown group. Receives of such
 * a group wait here until then, in their order. Every introduction is received in the end, because
 * each send in a group has a matching receive. */
#include "comm/short_tags.h"

#include "comm/comm_internal.h"

#include <string.h>

/* Introduction that is being sent, or the one that is being received. */
typedef struct introduction {
    weft_message message;
    int64_t group;
    struct introduction *next;
} introduction;

/* group[i] has number i + 1. */
typedef struct numbers {
    int64_t *group;
    int count, capacity;
} numbers;

typedef struct peer_book {
    numbers out, in;
    introduction *leaving;       /* introductions being sent */
    introduction asked;          /* the next introduction, valid while `asking` */
    weft_message *first, **last; /* receives of groups that are not known yet */
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
        return weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_AT(WEFT_RANK(peer)),
                          "ranks %d and %d are in more than %d common groups, which is the limit "
                          "of this transport's tags",
                          c->below.rank, peer, n->count);
    if (n->count == n->capacity) {
        const int capacity = n->capacity ? 2 * n->capacity : 4;
        int64_t *more;
        WEFT_TRY(WEFT_NEW(more, capacity, "the group numbers"));
        if (n->count)
            memcpy(more, n->group, (size_t)n->count * sizeof *more);
        weft_free(n->group);
        n->group = more;
        n->capacity = capacity;
    }
    n->group[n->count++] = group;
    return WEFT_OK;
}

/* Replaces the group in the tag by `number`, keeps the low bits, and posts the message. */
static weft_status post_numbered(coat *c, weft_message *m, int number)
{
    m->tag = (int64_t)number << WEFT_TAG_LOW | (m->tag & ((1 << WEFT_TAG_LOW) - 1));
    return c->below.post(c->below.self, m);
}

static weft_status introduce(coat *c, int peer, int64_t group)
{
    peer_book *b = &c->book[peer];
    WEFT_TRY(add(c, peer, &b->out, group));
    introduction *i;
    WEFT_TRY(WEFT_NEW(i, 1, "the group numbers"));
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

/* Posts the messages that waited for this group, in their order. */
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

static weft_status poll_numbers(coat *c, int peer)
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
        WEFT_TRY(poll_numbers(c, m->peer));
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
        return weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(transport->tag_bits)),
                          "the transport has tags of %d bits; at least %d are needed",
                          transport->tag_bits, WEFT_TAG_LOW + 2);
    coat *c = weft_alloc(sizeof *c);
    peer_book *book = weft_calloc(transport->ranks, sizeof *book);
    if (!c || !book) {
        weft_free(c);
        weft_free(book);
        return weft_no_memory("the group numbers");
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
