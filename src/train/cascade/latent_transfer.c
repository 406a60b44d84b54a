#include "train/cascade_hand.h"

#include "runtime/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int64_t bytes_of(const weft_cascade_row *row, const weft_hand_move *m)
{
    return m->clips.count * m->units.count * row->floats * (int64_t)sizeof(float);
}

/* Where it is in the sample's rows. */
static float *place_of(const weft_cascade_row *row, const weft_hand_move *m, float *data)
{
    return data + (m->clips.first * row->units + m->units.first) * row->floats;
}

/* ---- of an iteration ------------------------------------------------------------------------- */

/* Rows that come from another rank. */
typedef struct arrival {
    weft_exchange *exchange;
    struct arrival *next; /* of the same rows */
    int64_t bytes;
} arrival;

/* Of a sample and module, where this rank makes or needs some. */
typedef struct rows {
    weft_held *held; /* NULL: none yet */
    float *data;     /* (clips, floats), in it */
    arrival *arrivals;
    int64_t in_place; /* bytes */
} rows;

struct weft_hands {
    weft_hands_place place;
    weft_group *world;
    const weft_placed_iteration *plan;
    const weft_cascade_row *row;
    const weft_item_range *const *read;
    weft_arena *arena;
    int32_t *consumer; /* by cascade: the one that comes after it; -1: none */
    rows *rows;        /* [samples * modules] */
    weft_hand_move *moves;
    bool late;            /* consumers' ranks are decided in the iteration, */
    pthread_mutex_t lock; /* and rows are sent by another thread then */
};

static rows *rows_of(weft_hands *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    return &h->rows[c->sample * WEFT_CASCADE_MODULES + (int)c->module];
}

static const weft_cascade_row *row_of(const weft_hands *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    return &h->row[c->sample * WEFT_CASCADE_MODULES + (int)c->module];
}

/* From cascade `index` to the one that comes after it, into h->moves. */
static int64_t find_moves(weft_hands *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    const weft_placed_cascade *to = &h->plan->cascade[h->consumer[index]];
    return weft_hand_moves(&c->at, &to->at, to->method, row_of(h, index),
                           h->read[c->sample * WEFT_CASCADE_MODULES + (int)c->module],
                           h->plan->sample[c->sample].clips, h->moves);
}

static weft_status reserve(weft_hands *h, int32_t index)
{
    rows *r = rows_of(h, index);
    const int64_t clips = h->plan->sample[h->plan->cascade[index].sample].clips,
                  bytes =
                      clips * weft_cascade_row_floats(row_of(h, index)) * (int64_t)sizeof(float);
    if (r->held)
        return WEFT_OK;
    const weft_status_code status = weft_held_create(bytes, &r->held);
    if (status != WEFT_OK)
        return weft_fail_context(status, "what %s hands on", h->plan->cascade[index].at.id);
    r->data = weft_held_data(r->held);
    return WEFT_OK;
}

static void let_go(rows *r)
{
    weft_held_release(r->held);
    r->held = NULL;
    r->data = NULL;
}

static weft_status post(weft_hands *h, int32_t index, const weft_hand_move *m)
{
    rows *r = rows_of(h, index);
    const int64_t bytes = bytes_of(row_of(h, index), m);
    char what[96];
    WEFT_TRY(reserve(h, index));
    arrival *a = weft_arena_alloc(h->arena, sizeof *a);
    if (!a)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a hand-off");
    snprintf(what, sizeof what, "what %s hands on", h->plan->cascade[index].at.id);
    WEFT_TRY(weft_exchange_create_recv(weft_group_count(h->world), weft_group_index(h->world),
                                       m->from, bytes, WEFT_U8, what, &a->exchange));
    a->bytes = bytes;
    a->next = r->arrivals;
    r->arrivals = a;
    float *to = place_of(row_of(h, index), m, r->data);
    WEFT_TRY(weft_exchange_attach(a->exchange, h->world, WEFT_CHANNEL_HANDOFF));
    if (h->place.stream)
        weft_exchange_set_device(a->exchange, h->place.device, h->place.stream);
    weft_exchange_bind(a->exchange, to, to, NULL);
    weft_exchange_start(a->exchange);
    return WEFT_OK;
}

/* Rows of cascade `index` that come to this rank. */
static weft_status post_from(weft_hands *h, int32_t index)
{
    const int own = weft_comm_rank(h->place.comm);
    const int64_t count = find_moves(h, index);
    for (int64_t k = 0; k < count; k++)
        if (h->moves[k].to == own && h->moves[k].from != own)
            WEFT_TRY(post(h, index, &h->moves[k]));
    return WEFT_OK;
}

/* All that comes to this rank, in the order in which it is sent. */
static weft_status post_all(weft_hands *h, const int32_t *order)
{
    for (int64_t i = 0; i < h->plan->cascades; i++)
        if (h->consumer[order[i]] >= 0)
            WEFT_TRY(post_from(h, order[i]));
    return WEFT_OK;
}

static weft_status find_consumers(weft_hands *h)
{
    const weft_placed_iteration *p = h->plan;
    int64_t most = 0;
    h->consumer = weft_arena_alloc(h->arena, (p->cascades + 1) * (int64_t)sizeof *h->consumer);
    h->rows = weft_arena_alloc(h->arena,
                               (p->samples * WEFT_CASCADE_MODULES + 1) * (int64_t)sizeof *h->rows);
    if (!h->consumer || !h->rows)
        return weft_fail(WEFT_E_MEMORY, "out of memory for hand-offs");
    memset(h->rows, 0, (size_t)(p->samples * WEFT_CASCADE_MODULES) * sizeof *h->rows);
    for (int64_t i = 0; i < p->cascades; i++)
        h->consumer[i] = -1;
    for (int32_t i = 0; i < p->cascades; i++)
        for (int32_t k = 0; k < p->cascade[i].at.after_count; k++) {
            const int32_t from = p->cascade[i].at.after[k];
            const int64_t both = p->cascade[from].at.degree * p->cascade[i].at.degree *
                                 p->sample[p->cascade[i].sample].clips;
            if (p->cascade[i].module != WEFT_CASCADE_DIT)
                continue; /* an order, and nothing handed on */
            h->consumer[from] = i;
            most = both > most ? both : most;
        }
    h->moves = weft_arena_alloc(h->arena, (most + 1) * (int64_t)sizeof *h->moves);
    return h->moves ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for hand-offs");
}

weft_status weft_hands_open(const weft_hands_place *place, const weft_placed_iteration *plan,
                            const int32_t *order, const weft_cascade_row *row,
                            const weft_item_range *const *read, weft_hands **hands)
{
    weft_hands *h = weft_alloc(sizeof *h);
    if (!h)
        return weft_fail(WEFT_E_MEMORY, "out of memory for hand-offs");
    *h = (weft_hands){
        .place = *place, .plan = plan, .row = row, .read = read, .arena = weft_arena_create()};
    pthread_mutex_init(&h->lock, NULL);
    weft_status_code status =
        h->arena ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for hand-offs");
    if (status == WEFT_OK)
        status = weft_comm_world(place->comm, &h->world);
    if (status == WEFT_OK)
        status = find_consumers(h);
    h->late = !order;
    if (status == WEFT_OK && order)
        status = post_all(h, order);
    if (status == WEFT_OK)
        *hands = h;
    else
        weft_hands_close(h);
    return status;
}

weft_status weft_hands_make(weft_hands *h, int32_t index, float **row)
{
    WEFT_TRY(reserve(h, index));
    *row = rows_of(h, index)->data;
    return WEFT_OK;
}

/* This rank's rows of cascade `index`; NULL `when`: at the time of the device's user. */
static weft_status send_rows(weft_hands *h, int32_t index, double *when, weft_cascade_done *done)
{
    const int own = weft_comm_rank(h->place.comm);
    const weft_cascade_row *row = row_of(h, index);
    rows *r = rows_of(h, index);
    bool needed = false;
    const int64_t count = h->consumer[index] < 0 ? 0 : find_moves(h, index);
    for (int64_t k = 0; k < count; k++) {
        const weft_hand_move *m = &h->moves[k];
        const int64_t bytes = bytes_of(row, m);
        needed = needed || m->to == own;
        if (m->from != own)
            continue;
        if (m->to == own) {
            r->in_place += bytes;
            continue;
        }
        WEFT_TRY(weft_group_send_held_at(h->world, WEFT_CHANNEL_HANDOFF, m->to, r->held,
                                         place_of(row, m, r->data), bytes, h->place.device,
                                         h->place.stream, when));
        done->sent += bytes;
    }
    if (!needed)
        let_go(r);
    return WEFT_OK;
}

weft_status weft_hands_give(weft_hands *h, int32_t index, weft_cascade_done *done)
{
    return h->late && h->consumer[index] >= 0 ? WEFT_OK : send_rows(h, index, NULL, done);
}

weft_status weft_hands_direct(weft_hands *h, int32_t index, double *when, weft_cascade_done *done)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&h->lock);
    for (int32_t a = 0; c->module == WEFT_CASCADE_DIT && a < c->at.after_count; a++)
        if (status == WEFT_OK)
            status = send_rows(h, c->at.after[a], when, &done[c->at.after[a]]);
    pthread_mutex_unlock(&h->lock);
    return status;
}

weft_status weft_hands_expect(weft_hands *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&h->lock);
    for (int32_t a = 0; c->module == WEFT_CASCADE_DIT && a < c->at.after_count; a++)
        if (status == WEFT_OK)
            status = post_from(h, c->at.after[a]);
    pthread_mutex_unlock(&h->lock);
    return status;
}

/* Of what cascade `from` hands on, by this rank, a member of `c`. */
static weft_item_range read_here(const weft_hands *h, int32_t from, const weft_placed_cascade *c)
{
    const int own = weft_comm_rank(h->place.comm);
    const weft_item_range *read =
        h->read[c->sample * WEFT_CASCADE_MODULES + (int)h->plan->cascade[from].module];
    weft_item_range all = {0, row_of(h, from)->units};
    for (int64_t k = 0; read && k < c->at.degree; k++)
        if (c->at.device[k] == own)
            all = read[k];
    return all;
}

weft_status weft_hands_take(weft_hands *h, int32_t index, weft_handed handed[WEFT_CASCADE_MODULES],
                            weft_cascade_done *done)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    memset(handed, 0, WEFT_CASCADE_MODULES * sizeof *handed);
    for (int32_t i = 0; i < c->at.after_count; i++) {
        const int32_t from = c->at.after[i];
        rows *r = rows_of(h, from);
        for (arrival *a = r->arrivals; a; a = a->next) {
            const weft_status_code status = weft_exchange_wait(a->exchange);
            if (status != WEFT_OK)
                return weft_fail_context(status, "%s", c->at.id);
            done->received += a->bytes;
        }
        done->in_place += r->in_place;
        handed[h->plan->cascade[from].module] =
            (weft_handed){r->data, weft_cascade_row_floats(row_of(h, from)), row_of(h, from)->units,
                          read_here(h, from, c)};
    }
    return WEFT_OK;
}

void weft_hands_drop(weft_hands *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    for (int32_t i = 0; i < c->at.after_count; i++) {
        rows *r = rows_of(h, c->at.after[i]);
        for (arrival *a = r->arrivals; a; a = a->next)
            weft_exchange_free(a->exchange);
        weft_held_release(r->held);
        *r = (rows){0};
    }
}

void weft_hands_close(weft_hands *h)
{
    if (!h)
        return;
    for (int64_t i = 0; h->rows && i < h->plan->samples * WEFT_CASCADE_MODULES; i++) {
        for (arrival *a = h->rows[i].arrivals; a; a = a->next)
            weft_exchange_free(a->exchange);
        weft_held_release(h->rows[i].held);
    }
    pthread_mutex_destroy(&h->lock);
    weft_arena_free(h->arena);
    weft_free(h);
}
