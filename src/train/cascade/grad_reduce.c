#include "train/cascade_sums.h"

#include "runtime/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A state of so many bytes is a bucket of its own; smaller ones share one, of about as many, which
 * passes through scratch memory. */
static const int64_t wide = 1 << 20;

typedef struct member {
    weft_tensor *tensor; /* of the store */
    int bucket;
    bool final, later; /* later: the program that runs writes it */
} member;

typedef struct bucket {
    weft_exchange *exchange;
    int first, members, left; /* left: that are not final */
} bucket;

struct weft_sums {
    weft_group *group;
    const weft_backend *backend;
    weft_device_stream *stream;
    weft_arena *arena;
    member *member, **by_tensor; /* [members] by bucket, and by where the tensor is */
    bucket *bucket;
    int members, buckets, started;
    void *scratch; /* one after the other passes through it */
};

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for sums of gradients");
}

static int64_t count_of(const weft_tensor *t)
{
    return weft_shape_count(&t->shape);
}

static int64_t bytes_of(const weft_tensor *t)
{
    return count_of(t) * weft_dtype_bytes(t->dtype);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* What was declared last is final first: states come in the order of the forward. */
static weft_status find_states(weft_sums *s, weft_store *store, const weft_graph *update)
{
    const int32_t nodes = weft_graph_node_count(update);
    s->member = weft_arena_alloc(s->arena, (nodes + 1) * (int64_t)sizeof *s->member);
    s->by_tensor = weft_arena_alloc(s->arena, (nodes + 1) * (int64_t)sizeof *s->by_tensor);
    s->bucket = weft_arena_alloc(s->arena, (nodes + 1) * (int64_t)sizeof *s->bucket);
    if (!s->member || !s->by_tensor || !s->bucket)
        return no_memory();
    for (int32_t n = nodes - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(update, n);
        const char *name = weft_value_get(update, node->out[0])->name;
        if (node->op != WEFT_OP_STATE || strncmp(name, "grad.", 5))
            continue;
        weft_tensor *tensor = weft_store_find(store, name);
        if (!tensor)
            return weft_fail(WEFT_E_NOT_FOUND, "\"%s\" is summed and not in the store", name);
        s->member[s->members++] = (member){.tensor = tensor};
    }
    return WEFT_OK;
}

/* What is in no bucket yet up to member `end` becomes one. */
static void close_bundle(weft_sums *s, int end)
{
    bucket *b = &s->bucket[s->buckets];
    for (int i = 0; i < end; i++)
        if (s->member[i].bucket < 0) {
            s->member[i].bucket = s->buckets;
            b->members++;
        }
    s->buckets += b->members > 0;
}

static int by_bucket(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return x->bucket != y->bucket ? (x->bucket > y->bucket) - (x->bucket < y->bucket)
                                  : strcmp(x->tensor->name, y->tensor->name);
}

static int by_tensor(const void *a, const void *b)
{
    const member *x = *(member *const *)a, *y = *(member *const *)b;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* A bucket has its place where its last state is final. */
static void cut(weft_sums *s)
{
    int64_t bytes = 0;
    weft_dtype dtype = WEFT_F32;
    for (int i = 0; i < s->members; i++)
        s->member[i].bucket = -1;
    for (int i = 0; i < s->members; i++) {
        const weft_tensor *t = s->member[i].tensor;
        if (bytes_of(t) >= wide) {
            s->member[i].bucket = s->buckets;
            s->bucket[s->buckets++].members = 1;
            continue;
        }
        if (bytes && t->dtype != dtype) {
            close_bundle(s, i);
            bytes = 0;
        }
        dtype = t->dtype;
        bytes += bytes_of(t);
        if (bytes >= wide) {
            close_bundle(s, i + 1);
            bytes = 0;
        }
    }
    close_bundle(s, s->members);
    qsort(s->member, (size_t)s->members, sizeof *s->member, by_bucket);
    for (int i = 0, k = 0; k < s->buckets; i += s->bucket[k++].members)
        s->bucket[k].first = i;
    for (int i = 0; i < s->members; i++)
        s->by_tensor[i] = &s->member[i];
    qsort(s->by_tensor, (size_t)s->members, sizeof *s->by_tensor, by_tensor);
}

static weft_status make_exchange(weft_sums *s, int index, int64_t *count)
{
    bucket *b = &s->bucket[index];
    const int ranks = weft_group_count(s->group), own = weft_group_index(s->group);
    const member *first = &s->member[b->first];
    const weft_dtype dtype = first->tensor->dtype;
    char what[96];
    for (int i = 0; i < b->members; i++)
        count[i] = count_of(first[i].tensor);
    snprintf(what, sizeof what, "sums of gradients, part %d of %d", index + 1, s->buckets);
    if (b->members > 1) {
        WEFT_TRY(
            weft_exchange_create_bundle(ranks, own, dtype, count, b->members, what, &b->exchange));
    } else {
        const weft_attr_comm attr = {0};
        const weft_shape flat = WEFT_SHAPE(count[0]);
        WEFT_TRY(weft_exchange_create(ranks, own, WEFT_OP_ALL_REDUCE, &attr, &flat, &flat, dtype,
                                      what, &b->exchange));
    }
    if (s->backend->device->hollow)
        WEFT_TRY(weft_exchange_cut(b->exchange, WEFT_COMM_WIDE));
    weft_exchange_set_device(b->exchange, s->backend->device, s->stream);
    return weft_exchange_attach(b->exchange, s->group, WEFT_CHANNEL_GRADIENTS);
}

static weft_status make_exchanges(weft_sums *s)
{
    int64_t *count = weft_alloc((s->members + 1) * (int64_t)sizeof *count), scratch = 0;
    weft_status_code status = count ? WEFT_OK : no_memory();
    for (int k = 0; k < s->buckets && status == WEFT_OK; k++) {
        status = make_exchange(s, k, count);
        if (status == WEFT_OK && weft_exchange_scratch(s->bucket[k].exchange) > scratch)
            scratch = weft_exchange_scratch(s->bucket[k].exchange);
    }
    weft_free(count);
    if (status == WEFT_OK && scratch) {
        s->scratch = s->backend->device->alloc(scratch);
        status = s->scratch ? WEFT_OK : no_memory();
    }
    return status;
}

weft_status weft_sums_create(weft_group *group, const weft_backend *backend, weft_store *store,
                             const weft_graph *update, weft_sums **out)
{
    weft_sums *s = weft_alloc(sizeof *s);
    if (!s)
        return no_memory();
    *s = (weft_sums){.group = group, .backend = backend, .arena = weft_arena_create()};
    weft_status_code status = s->arena ? WEFT_OK : no_memory();
    if (status == WEFT_OK)
        status = backend->device->open(backend, &s->stream);
    if (status == WEFT_OK)
        status = find_states(s, store, update);
    if (status == WEFT_OK) {
        cut(s);
        status = make_exchanges(s);
    }
    if (status == WEFT_OK)
        *out = s;
    else
        weft_sums_free(s);
    return status;
}

void weft_sums_free(weft_sums *s)
{
    if (!s)
        return;
    for (int k = 0; k < s->buckets; k++)
        weft_exchange_free(s->bucket[k].exchange);
    if (s->scratch)
        s->backend->device->free(s->scratch);
    if (s->stream)
        s->backend->device->close(s->stream);
    weft_arena_free(s->arena);
    weft_free(s);
}

/* ---- an iteration ---------------------------------------------------------------------------- */

void weft_sums_begin(weft_sums *s)
{
    s->started = 0;
    for (int k = 0; k < s->buckets; k++)
        s->bucket[k].left = s->bucket[k].members;
    for (int i = 0; i < s->members; i++)
        s->member[i].final = false;
}

static void bind(weft_sums *s, const bucket *b)
{
    if (b->members > 1)
        weft_exchange_bind_bundle(b->exchange, s->scratch);
    for (int i = 0; i < b->members; i++) {
        void *data = s->member[b->first + i].tensor->data;
        if (b->members > 1)
            weft_exchange_bind_piece(b->exchange, i, data, data);
        else
            weft_exchange_bind(b->exchange, data, data, s->scratch);
    }
}

static void finish(weft_sums *s, member *m)
{
    if (!m->final)
        s->bucket[m->bucket].left--;
    m->final = true;
    while (s->started < s->buckets && s->bucket[s->started].left == 0) {
        bind(s, &s->bucket[s->started]);
        weft_exchange_start(s->bucket[s->started++].exchange);
    }
}

static member *find(const weft_sums *s, const weft_tensor *state)
{
    const member key = {.tensor = (weft_tensor *)(uintptr_t)state}, *at = &key;
    member **found =
        bsearch(&at, s->by_tensor, (size_t)s->members, sizeof *s->by_tensor, by_tensor);
    return found ? *found : NULL;
}

void weft_sums_final(weft_sums *s, const weft_tensor *state)
{
    member *m = find(s, state);
    if (m)
        finish(s, m);
}

void weft_sums_rest(weft_sums *s, const weft_program *program)
{
    const weft_tensor *t;
    for (int i = 0; i < s->members; i++)
        s->member[i].later = false;
    for (int i = 0; program && (t = weft_program_update(program, i)); i++) {
        member *m = find(s, t);
        if (m)
            m->later = true;
    }
    for (int i = 0; i < s->members; i++)
        if (!s->member[i].final && !s->member[i].later)
            finish(s, &s->member[i]);
}

/* They follow one another: when the last is over this rank need not sleep for the others. */
weft_status weft_sums_wait(weft_sums *s)
{
    for (int k = s->started - 1; k >= 0; k--)
        WEFT_TRY(weft_exchange_wait(s->bucket[k].exchange));
    return WEFT_OK;
}

int64_t weft_sums_bytes(const weft_sums *s)
{
    int64_t bytes = 0;
    for (int k = 0; k < s->buckets; k++)
        bytes += weft_exchange_wire_bytes(s->bucket[k].exchange);
    return bytes;
}
