#include "train/cascade/latent_transfer.h"

#include "comm/comm.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int64_t bytes_of(const weft_cascade_row *row, const weft_latent_send *m)
{
    return m->clips.count * m->units.count * weft_latent_unit_bytes(row);
}

/* Returns the address of the units in the sample's rows. */
static unsigned char *rows_at(const weft_cascade_row *row, const weft_latent_send *m,
                              unsigned char *data)
{
    return data + (m->clips.first * row->units + m->units.first) * weft_latent_unit_bytes(row);
}

/* ---- units ----------------------------------------------------------------------------------- */

static unsigned char *header_of(const weft_latent_rows *rows, int64_t clip, int64_t unit)
{
    const weft_cascade_row row = {.units = rows->units, .floats = rows->floats};
    return rows->data + (clip * rows->units + unit) * weft_latent_unit_bytes(&row);
}

float *weft_latent_rows_unit(const weft_latent_rows *rows, int64_t clip, int64_t unit)
{
    return (float *)(void *)(header_of(rows, clip, unit) + sizeof(int64_t));
}

/* Headers are aligned as floats, so they are copied. */
int64_t weft_latent_rows_sample(const weft_latent_rows *rows, int64_t clip, int64_t unit)
{
    int64_t sample;
    memcpy(&sample, header_of(rows, clip, unit), sizeof sample);
    return sample;
}

void weft_latent_rows_set_sample(const weft_latent_rows *rows, int64_t clip, int64_t unit,
                                 int64_t sample)
{
    memcpy(header_of(rows, clip, unit), &sample, sizeof sample);
}

weft_status weft_received_latents_sample(const weft_received_latents *r, int64_t clip,
                                         int64_t *sample)
{
    *sample = weft_latent_rows_sample(&r->rows, clip, r->read.first);
    for (int64_t u = r->read.first + 1; u < r->read.first + r->read.count; u++) {
        const int64_t other = weft_latent_rows_sample(&r->rows, clip, u);
        if (other != *sample)
            return weft_error(WEFT_MSG_FILE_IO, WEFT_AT(WEFT_NUMBER(other)),
                              "of the same clip, ranks encoded frames of samples %" PRId64
                              " and %" PRId64
                              ": some ranks could decode it and others not; check their disks",
                              *sample, other);
    }
    return WEFT_OK;
}

/* ---- transfers of an iteration --------------------------------------------------------------- */

/* Receive of units from another rank. */
typedef struct arrival {
    weft_comm_request *request;
    struct arrival *next; /* next receive of the same rows */
    int64_t bytes;
} arrival;

/* Rows of a sample and module, on a rank that produces or needs some. */
typedef struct rows {
    weft_send_buffer *held; /* buffer of the rows; NULL: not created */
    unsigned char *data;    /* (clips, units) of a header and floats, in `held` */
    arrival *arrivals;
    int64_t in_place; /* bytes that this rank produced and needs */
    bool kept;        /* encoded in the iteration before */
} rows;

struct weft_latent_transfer {
    weft_latent_transfer_setup setup;
    weft_group *world;
    const weft_placed_iteration *plan;
    const weft_cascade_row *row;
    const weft_item_range *const *read;
    weft_arena *arena;
    int32_t *consumer; /* [cascades] DiT that reads the rows; -1: none */
    rows *rows;        /* [samples * modules] */
    weft_latent_send *sends;
    bool late;            /* consumers' ranks are decided during the iteration */
    pthread_mutex_t lock; /* lock of `rows` and `sends`: late dispatch sends on another thread */
};

static rows *rows_of(weft_latent_transfer *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    return &h->rows[c->sample * WEFT_CASCADE_MODULES + (int)c->module];
}

static const weft_cascade_row *row_of(const weft_latent_transfer *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    return &h->row[c->sample * WEFT_CASCADE_MODULES + (int)c->module];
}

/* Sets h->sends to the sends of cascade `index` to its consumer, and returns their number. */
static int64_t find_sends(weft_latent_transfer *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    const weft_placed_cascade *to = &h->plan->cascade[h->consumer[index]];
    return weft_latent_sends_list(&c->at, &to->at, to->method, row_of(h, index),
                                  h->read[c->sample * WEFT_CASCADE_MODULES + (int)c->module],
                                  h->plan->sample[c->sample].clips, h->sends);
}

static weft_status reserve(weft_latent_transfer *h, int32_t index)
{
    rows *r = rows_of(h, index);
    const int64_t clips = h->plan->sample[h->plan->cascade[index].sample].clips,
                  bytes =
                      clips * row_of(h, index)->units * weft_latent_unit_bytes(row_of(h, index));
    if (r->held)
        return WEFT_OK;
    WEFT_TRY(weft_error_at(weft_send_buffer_create(bytes, &r->held),
                           WEFT_AT(.key = h->plan->cascade[index].at.id)));
    r->data = weft_send_buffer_data(r->held);
    return WEFT_OK;
}

static void let_go(rows *r)
{
    weft_send_buffer_release(r->held);
    r->held = NULL;
    r->data = NULL;
}

static weft_status post(weft_latent_transfer *h, int32_t index, const weft_latent_send *m)
{
    rows *r = rows_of(h, index);
    const int64_t bytes = bytes_of(row_of(h, index), m);
    char what[96];
    WEFT_TRY(reserve(h, index));
    arrival *a;
    WEFT_TRY(WEFT_ARENA_NEW(h->arena, a, 1, "a hand-off"));
    snprintf(what, sizeof what, "the results of %s", h->plan->cascade[index].at.id);
    WEFT_TRY(weft_comm_request_create_recv(weft_group_count(h->world), weft_group_index(h->world),
                                           m->from, bytes, WEFT_U8, what, &a->request));
    a->bytes = bytes;
    a->next = r->arrivals;
    r->arrivals = a;
    unsigned char *to = rows_at(row_of(h, index), m, r->data);
    WEFT_TRY(weft_comm_request_attach(a->request, h->world, WEFT_CHANNEL_HANDOFF));
    if (h->setup.stream)
        weft_comm_request_set_device(a->request, h->setup.device, h->setup.stream);
    weft_comm_request_bind(a->request, to, to, NULL);
    weft_comm_request_start(a->request);
    return WEFT_OK;
}

/* Posts the receives of rows of cascade `index`. */
static weft_status post_from(weft_latent_transfer *h, int32_t index)
{
    const int own = weft_comm_rank(h->setup.comm);
    const int64_t count = find_sends(h, index);
    for (int64_t k = 0; k < count; k++)
        if (h->sends[k].to == own && h->sends[k].from != own)
            WEFT_TRY(post(h, index, &h->sends[k]));
    return WEFT_OK;
}

/* Posts all receives of this rank, in the order of the sends. */
static weft_status post_all(weft_latent_transfer *h, const int32_t *order)
{
    for (int64_t i = 0; i < h->plan->cascades; i++)
        if (h->consumer[order[i]] >= 0)
            WEFT_TRY(post_from(h, order[i]));
    return WEFT_OK;
}

static weft_status find_consumers(weft_latent_transfer *h)
{
    const weft_placed_iteration *p = h->plan;
    int64_t most = 0;
    h->consumer = weft_arena_calloc(h->arena, p->cascades + 1, sizeof *h->consumer);
    h->rows = weft_arena_calloc(h->arena, p->samples * WEFT_CASCADE_MODULES + 1, sizeof *h->rows);
    WEFT_TRY(WEFT_ALLOCATED(h->consumer && h->rows, "hand-offs"));
    memset(h->rows, 0, (size_t)(p->samples * WEFT_CASCADE_MODULES) * sizeof *h->rows);
    for (int64_t i = 0; i < p->cascades; i++)
        h->consumer[i] = -1;
    for (int32_t i = 0; i < p->cascades; i++)
        for (int32_t k = 0; k < p->cascade[i].at.after_count; k++) {
            const int32_t from = p->cascade[i].at.after[k];
            const int64_t both = p->cascade[from].at.degree * p->cascade[i].at.degree *
                                 p->sample[p->cascade[i].sample].clips;
            if (p->cascade[i].module != WEFT_CASCADE_DIT)
                continue; /* an order without a transfer */
            h->consumer[from] = i;
            most = both > most ? both : most;
        }
    return WEFT_ARENA_NEW(h->arena, h->sends, most + 1, "hand-offs");
}

/* Takes the rows of kept cascades from the store. Receives write other ranks' units into the same
 * rows. */
static weft_status take_kept(weft_latent_transfer *h)
{
    const weft_placed_iteration *p = h->plan;
    for (int32_t i = 0; i < p->cascades && h->setup.kept; i++) {
        rows *r = rows_of(h, i);
        if (!p->cascade[i].kept)
            continue;
        r->kept = weft_kept_rows_take(h->setup.kept, p->sample[p->cascade[i].sample].batch,
                                      p->cascade[i].module, &r->held);
        r->data = r->held ? weft_send_buffer_data(r->held) : NULL;
        if (h->late && !r->kept) /* a changed plan file; late plans follow an iteration */
            return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.key = p->cascade[i].at.id),
                              "the plan keeps latents that no iteration has encoded. Late dispatch "
                              "cannot encode them; remove \"late\" from the plan");
    }
    return WEFT_OK;
}

weft_status weft_latent_transfer_open(const weft_latent_transfer_setup *setup,
                                      const weft_placed_iteration *plan, const int32_t *order,
                                      const weft_cascade_row *row,
                                      const weft_item_range *const *read,
                                      weft_latent_transfer **transfer)
{
    weft_latent_transfer *h;
    WEFT_TRY(WEFT_NEW(h, 1, "hand-offs"));
    *h = (weft_latent_transfer){
        .setup = *setup, .plan = plan, .row = row, .read = read, .arena = weft_arena_create()};
    pthread_mutex_init(&h->lock, NULL);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(h->arena, "hand-offs"));
    WEFT_GO(weft_comm_world(setup->comm, &h->world));
    WEFT_GO(find_consumers(h));
    h->late = !order;
    WEFT_GO(take_kept(h));
    if (order)
        WEFT_GO(post_all(h, order));
    *transfer = h;
    return WEFT_OK;
out:
    weft_latent_transfer_close(h);
    return status;
}

static weft_latent_rows view_of(weft_latent_transfer *h, int32_t index)
{
    const weft_cascade_row *row = row_of(h, index);
    return (weft_latent_rows){rows_of(h, index)->data, row->units, row->floats};
}

weft_status weft_latent_transfer_buffer(weft_latent_transfer *h, int32_t index,
                                        weft_latent_rows *view)
{
    WEFT_TRY(reserve(h, index));
    *view = view_of(h, index);
    return WEFT_OK;
}

bool weft_latent_transfer_is_kept(const weft_latent_transfer *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    return c->kept && h->rows[c->sample * WEFT_CASCADE_MODULES + (int)c->module].kept;
}

weft_status weft_latent_transfer_keep(weft_latent_transfer *h)
{
    const weft_placed_iteration *p = h->plan;
    if (!h->setup.kept)
        return WEFT_OK;
    weft_kept_rows_clear(h->setup.kept);
    for (int32_t i = 0; i < p->cascades; i++) {
        const weft_placed_sample *s = &p->sample[p->cascade[i].sample];
        rows *r = rows_of(h, i);
        if (!s->ahead)
            continue;
        weft_send_buffer *held = r->held;
        r->held = NULL;
        WEFT_TRY(weft_kept_rows_add(h->setup.kept, s->batch, p->cascade[i].module, held));
    }
    return WEFT_OK;
}

/* Sends this rank's rows of cascade `index`. `when`: simulated time of the send; NULL: the time of
 * the device stream. */
static weft_status send_rows(weft_latent_transfer *h, int32_t index, double *when,
                             weft_cascade_timing *done)
{
    const int own = weft_comm_rank(h->setup.comm);
    const weft_cascade_row *row = row_of(h, index);
    rows *r = rows_of(h, index);
    bool needed = h->plan->sample[h->plan->cascade[index].sample].ahead;
    const int64_t count = h->consumer[index] < 0 ? 0 : find_sends(h, index);
    for (int64_t k = 0; k < count; k++) {
        const weft_latent_send *m = &h->sends[k];
        const int64_t bytes = bytes_of(row, m);
        needed = needed || m->to == own;
        if (m->from != own)
            continue;
        if (m->to == own) {
            r->in_place += bytes;
            continue;
        }
        WEFT_TRY(weft_group_send_held(h->world, WEFT_CHANNEL_HANDOFF, m->to, r->held,
                                      rows_at(row, m, r->data), bytes, h->setup.device,
                                      h->setup.stream, when));
        done->sent += bytes;
    }
    if (!needed)
        let_go(r);
    return WEFT_OK;
}

weft_status weft_latent_transfer_send(weft_latent_transfer *h, int32_t index,
                                      weft_cascade_timing *done)
{
    return h->late && h->consumer[index] >= 0 ? WEFT_OK : send_rows(h, index, NULL, done);
}

weft_status weft_latent_transfer_direct(weft_latent_transfer *h, int32_t index, double *when,
                                        weft_cascade_timing *done)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&h->lock);
    for (int32_t a = 0; c->module == WEFT_CASCADE_DIT && a < c->at.after_count; a++)
        WEFT_GO(send_rows(h, c->at.after[a], when, &done[c->at.after[a]]));
out:
    pthread_mutex_unlock(&h->lock);
    return status;
}

weft_status weft_latent_transfer_expect(weft_latent_transfer *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&h->lock);
    for (int32_t a = 0; c->module == WEFT_CASCADE_DIT && a < c->at.after_count; a++)
        WEFT_GO(post_from(h, c->at.after[a]));
out:
    pthread_mutex_unlock(&h->lock);
    return status;
}

/* Returns the units of cascade `from` that this rank, a member of `c`, reads. */
static weft_item_range read_here(const weft_latent_transfer *h, int32_t from,
                                 const weft_placed_cascade *c)
{
    const int own = weft_comm_rank(h->setup.comm);
    const weft_item_range *read =
        h->read[c->sample * WEFT_CASCADE_MODULES + (int)h->plan->cascade[from].module];
    weft_item_range all = {0, row_of(h, from)->units};
    for (int64_t k = 0; read && k < c->at.degree; k++)
        if (c->at.device[k] == own)
            all = read[k];
    return all;
}

weft_status weft_latent_transfer_receive(weft_latent_transfer *h, int32_t index,
                                         weft_received_latents received[WEFT_CASCADE_MODULES],
                                         weft_cascade_timing *done)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    memset(received, 0, WEFT_CASCADE_MODULES * sizeof *received);
    for (int32_t i = 0; i < c->at.after_count; i++) {
        const int32_t from = c->at.after[i];
        rows *r = rows_of(h, from);
        for (arrival *a = r->arrivals; a; a = a->next) {
            WEFT_TRY(weft_error_at(weft_comm_request_wait(a->request), WEFT_AT(.key = c->at.id)));
            done->received += a->bytes;
        }
        done->in_place += r->in_place;
        received[h->plan->cascade[from].module] =
            (weft_received_latents){view_of(h, from), read_here(h, from, c)};
    }
    return WEFT_OK;
}

void weft_latent_transfer_release(weft_latent_transfer *h, int32_t index)
{
    const weft_placed_cascade *c = &h->plan->cascade[index];
    for (int32_t i = 0; i < c->at.after_count; i++) {
        rows *r = rows_of(h, c->at.after[i]);
        for (arrival *a = r->arrivals; a; a = a->next)
            weft_comm_request_free(a->request);
        weft_send_buffer_release(r->held);
        *r = (rows){0};
    }
}

void weft_latent_transfer_close(weft_latent_transfer *h)
{
    if (!h)
        return;
    for (int64_t i = 0; h->rows && i < h->plan->samples * WEFT_CASCADE_MODULES; i++) {
        for (arrival *a = h->rows[i].arrivals; a; a = a->next)
            weft_comm_request_free(a->request);
        weft_send_buffer_release(h->rows[i].held);
    }
    pthread_mutex_destroy(&h->lock);
    weft_arena_free(h->arena);
    weft_free(h);
}
