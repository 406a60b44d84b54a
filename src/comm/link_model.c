/* A link model as a layer (`coat`) over a transport: the transport below carries the bytes, and the
 * layer reports their arrival later.
 *
 *   sender     |--- bytes / speed ---|                 the send is done
 *   receiver   |--- bytes / speed ---|-- latency --|   the message has arrived
 *
 * In simulated time the layer writes these times into the message instead, and no message is late.
 *
 * Messages from one node to another use their link one at a time. A `book` records when each link
 * is free, for departures and for arrivals. Ranks of one process share the book; with MPI each rank
 * has its own. Inside a node each rank has a link of its own to all others, if there is any delay.
 * With a cluster, messages to single ranks bypass this layer and share links
 * (simulated_links.c). */
#include "comm/link_model.h"

#include "comm/coll_plans.h"
#include "comm/comm_internal.h"
#include "comm/crew.h"

#include "base/log.h"
#include "comm/simulated_links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times at which links are free: from node a to node b, as seen by a and by b, and each rank's
 * sends and receives inside its node. */
typedef struct book {
    pthread_mutex_t mutex;
    int users, nodes;
    int *node; /* by rank */
    weft_link_model model;
    weft_simulated_links *links; /* links that ranks share; NULL: none */
    weft_crew *crew;             /* links that ranks share; NULL: none */
    weft_coll_plans *plans;      /* simulated time */
    double *leaves, *arrives;    /* crew of simulated time */
} book;

typedef struct coat {
    weft_transport below;
    book *book;
    double due;      /* see weft_transport */
    double *free_at; /* [nodes], simulated time: when this rank's link to a node is free */
} coat;

static void close_book(book *b)
{
    pthread_mutex_lock(&b->mutex);
    const bool last = --b->users == 0;
    pthread_mutex_unlock(&b->mutex);
    if (!last)
        return;
    pthread_mutex_destroy(&b->mutex);
    weft_free(b->node);
    weft_crew_free(b->crew);
    weft_coll_plans_free(b->plans);
    weft_simulated_links_free(b->links);
    weft_free(b->leaves);
    weft_free(b->arrives);
    weft_free(b);
}

/* Returns the link to `peer`. NULL: no delay. */
static const weft_link_speed *link_to(const coat *c, int peer)
{
    const weft_link_model *m = &c->book->model;
    const int own = c->book->node[c->below.rank], other = c->book->node[peer];
    if (own == other)
        return m->inside.bytes_per_second > 0 ? &m->inside : NULL;
    for (int i = 0; i < m->pairs; i++) {
        const int *node = m->pair[i].node;
        if ((node[0] == own && node[1] == other) || (node[1] == own && node[0] == other))
            return &m->pair[i].link;
    }
    return &m->between;
}

/* Returns the time at which the message has passed the link. The transfer begins now, or when the
 * sender recorded it (ranks of one process), so that a late poll does not make the message late. */
static double enter(coat *c, const weft_link_speed *link, const weft_message *m)
{
    book *b = c->book;
    const int own = b->node[c->below.rank], peer = b->node[m->peer];
    const int at = own == peer    ? b->nodes * b->nodes + c->below.rank
                   : m->receiving ? peer * b->nodes + own
                                  : own * b->nodes + peer;
    double *free_at = m->receiving ? &b->arrives[at] : &b->leaves[at];
    const double seconds = (double)m->bytes / link->bytes_per_second;
    const double begins =
        m->receiving && m->there > 0 ? m->there - link->latency - seconds : weft_now();
    pthread_mutex_lock(&b->mutex);
    *free_at = (*free_at > begins ? *free_at : begins) + seconds;
    const double due = *free_at + (m->receiving ? link->latency : 0);
    pthread_mutex_unlock(&b->mutex);
    return due;
}

/* The link was reserved by the caller (link_reserve), or the message belongs to a collective, whose
 * messages from one rank are sent one at a time. */
static void clocked_time(void *self, weft_message *m)
{
    const coat *c = self;
    const weft_link_speed *link = link_to(c, m->peer);
    if (link) {
        m->left = m->from + (double)m->bytes / link->bytes_per_second;
        m->there = m->left + link->latency;
    }
}

static weft_status clocked_post(void *self, weft_message *m)
{
    coat *c = self;
    if (!m->receiving && m->timed && !m->apart)
        clocked_time(self, m);
    return c->below.post(c->below.self, m);
}

static double link_reserve(void *self, int peer, int64_t bytes, double when)
{
    coat *c = self;
    const weft_link_speed *link = link_to(c, peer);
    if (!link)
        return when;
    double *free_at = &c->free_at[c->book->node[peer]];
    const double begin = *free_at > when ? *free_at : when;
    *free_at = begin + (double)bytes / link->bytes_per_second;
    return begin;
}

static void link_sleep(void *self, double seconds)
{
    coat *c = self;
    c->below.sleep(c->below.self, seconds);
}

static void link_wake(void *self)
{
    coat *c = self;
    c->below.wake(c->below.self);
}

static weft_status link_post(void *self, weft_message *m)
{
    coat *c = self;
    const weft_link_speed *link = link_to(c, m->peer);
    m->due = link && !m->receiving ? enter(c, link, m) : 0;
    m->there = m->due > 0 ? m->due + link->latency : 0;
    return c->below.post(c->below.self, m);
}

static weft_status link_test(void *self, weft_message *m)
{
    coat *c = self;
    return c->below.test(c->below.self, m);
}

static bool link_late(void *self, weft_message *m)
{
    coat *c = self;
    const weft_link_speed *link = link_to(c, m->peer);
    if (!link)
        return false;
    if (m->due == 0)
        m->due = enter(c, link, m);
    if (weft_now() >= m->due)
        return false;
    c->due = c->due == 0 || m->due < c->due ? m->due : c->due;
    return true;
}

static void link_cancel(void *self, weft_message *m)
{
    coat *c = self;
    c->below.cancel(c->below.self, m);
}

static void link_note(void *self, int peer, const char text[WEFT_COMM_NOTE])
{
    coat *c = self;
    c->below.note(c->below.self, peer, text);
}

static void link_poll(void *self, int *peer, char text[WEFT_COMM_NOTE])
{
    coat *c = self;
    c->below.poll(c->below.self, peer, text);
}

static void link_flush(void *self)
{
    coat *c = self;
    if (c->below.flush)
        c->below.flush(c->below.self);
}

static bool link_alive(void *self, int peer, char who[WEFT_COMM_NOTE])
{
    coat *c = self;
    return c->below.alive(c->below.self, peer, who);
}

static void link_free(void *self, bool broken)
{
    coat *c = self;
    c->below.free(c->below.self, broken);
    close_book(c->book);
    weft_free(c->free_at);
    weft_free(c);
}

static book *open_book(int ranks, int users, const weft_link_model *model)
{
    const int nodes = (ranks + model->per_node - 1) / model->per_node;
    const int64_t books = (int64_t)nodes * nodes + ranks;
    book *b = weft_alloc(sizeof *b);
    if (!b)
        return NULL;
    pthread_mutex_init(&b->mutex, NULL);
    b->users = users + 1; /* plus the caller */
    b->nodes = nodes;
    b->model = *model;
    b->node = weft_calloc(ranks, sizeof *b->node);
    b->leaves = weft_calloc(books, sizeof *b->leaves);
    b->arrives = weft_calloc(books, sizeof *b->arrives);
    for (int r = 0; r < ranks && b->node; r++)
        b->node[r] = r / model->per_node;
    if (b->node && b->leaves && b->arrives &&
        (!model->clocked ||
         ((b->crew = weft_crew_create()) && (b->plans = weft_coll_plans_create()))) &&
        (!model->cluster || (b->links = weft_simulated_links_create(ranks, model->cluster))))
        return b;
    b->users = 1;
    close_book(b);
    return NULL;
}

weft_status weft_transport_link(weft_transport *transport, int count, const weft_link_model *model)
{
    if (model->cluster && weft_cluster_devices(model->cluster) < transport[0].ranks)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(transport[0].ranks)),
                          "%d ranks need one device each; the cluster %s has %" PRId64 " devices",
                          transport[0].ranks, model->cluster->name,
                          weft_cluster_devices(model->cluster));
    book *b = open_book(transport[0].ranks, count, model);
    coat **coats = weft_calloc(count, sizeof *coats);
    bool whole = b && coats;
    for (int i = 0; i < count && whole; i++) {
        coats[i] = weft_alloc(sizeof **coats);
        if (coats[i])
            coats[i]->free_at = weft_calloc(b->nodes, sizeof(double));
        whole = coats[i] && coats[i]->free_at;
    }
    for (int i = 0; i < count && whole; i++) {
        coats[i]->below = transport[i];
        coats[i]->book = b;
        transport[i] = (weft_transport){.rank = transport[i].rank,
                                        .ranks = transport[i].ranks,
                                        .tag_bits = transport[i].tag_bits,
                                        .node = b->node,
                                        .self = coats[i],
                                        .core = transport[i].core,
                                        .post = link_post,
                                        .test = link_test,
                                        .late = link_late,
                                        .cancel = link_cancel,
                                        .note = link_note,
                                        .poll = link_poll,
                                        .flush = link_flush,
                                        .sleep = coats[i]->below.sleep ? link_sleep : NULL,
                                        .wake = coats[i]->below.wake ? link_wake : NULL,
                                        .due = &coats[i]->due,
                                        .alive = link_alive,
                                        .free = link_free};
        if (!model->clocked)
            continue;
        transport[i].post = clocked_post;
        transport[i].late = NULL;
        transport[i].due = NULL;
        transport[i].reserve = b->links ? NULL : link_reserve;
        transport[i].links = b->links;
        transport[i].crew = b->crew;
        transport[i].time = clocked_time;
        transport[i].plans = b->plans;
        transport[i].set_wakeup = coats[i]->below.set_wakeup;
    }
    for (int i = 0; i < count && coats && !whole; i++) {
        weft_free(coats[i] ? coats[i]->free_at : NULL);
        weft_free(coats[i]);
    }
    weft_free(coats);
    if (b && !whole)
        b->users = 1;
    if (b)
        close_book(b);
    return WEFT_ALLOCATED(whole, "a link model");
}

/* Parses "SPEED Gbit/s, LATENCY us". *rest: the text after it; NULL: a syntax error. */
static weft_link_speed parse_link(const char *text, const char **rest)
{
    double speed, latency;
    int used = 0;
    *rest = NULL;
    if (sscanf(text, "%lf Gbit/s , %lf us %n", &speed, &latency, &used) == 2 && used && speed > 0 &&
        latency >= 0 && isfinite(speed) && isfinite(latency))
        *rest = text + used;
    else
        speed = latency = 0;
    return (weft_link_speed){.bytes_per_second = speed * 1e9 / 8, .latency = latency * 1e-6};
}

/* Parses "inside LINK" or "A-B LINK". Returns the text after it; NULL: a syntax error. */
static const char *parse_part(const char *text, weft_link_model *m)
{
    const char *rest;
    int used = 0, a, b;
    if (sscanf(text, " inside %n", &used) == 0 && used) {
        m->inside = parse_link(text + used, &rest);
        return rest;
    }
    if (sscanf(text, " %d - %d %n", &a, &b, &used) != 2 || !used || a < 0 || b < 0 || a == b ||
        m->pairs == WEFT_LINK_PAIRS)
        return NULL;
    m->pair[m->pairs].node[0] = a;
    m->pair[m->pairs].node[1] = b;
    m->pair[m->pairs++].link = parse_link(text + used, &rest);
    return rest;
}

weft_status weft_link_model_parse(const char *text, weft_link_model *model)
{
    weft_link_model m = {.per_node = 1};
    const char *at;
    int used = 0;
    m.between = parse_link(text, &at);
    if (at && *at == ',') {
        const bool found = sscanf(at, " , %d per node %n", &m.per_node, &used) == 1 && used;
        at = found && m.per_node > 0 ? at + used : NULL;
    }
    while (at && *at == ';')
        at = parse_part(at + 1, &m);
    if (!at || *at)
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "WEFT_LINK", .value = text),
            "\"%s\" is not a link model. Write speed, latency and ranks per node as \"1 Gbit/s, 50 "
            "us, 2 per node\". Links that differ follow: \"; inside 20 Gbit/s, 5 us; 0-2 0.1 "
            "Gbit/s, 1000 us\", where 0 and 2 are nodes (at most %d pairs).",
            text, WEFT_LINK_PAIRS);
    *model = m;
    return WEFT_OK;
}
