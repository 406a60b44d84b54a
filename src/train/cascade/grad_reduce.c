#include "train/cascade/grad_reduce.h"

#include "comm/comm.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "exec/store/tensor_copy.h"
#include "graph/graph.h"
#include "kernel/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes from which a state is a separate gradient bucket. Smaller states share buckets of about
 * this size, which use scratch memory. */
static const int64_t wide = 1 << 20;

typedef struct member {
    weft_tensor *tensor; /* tensor of the store */
    int bucket;
    bool final, later; /* later: the running program writes the state */
} member;

typedef struct bucket {
    weft_comm_request *request;
    int first, members, left; /* left: states that are not ready */
} bucket;

struct weft_grad_reduce {
    weft_group *group;
    const weft_backend *backend;
    weft_device_stream *stream;
    weft_arena *arena;
    member *member, **by_tensor; /* [members] sorted by bucket, and by tensor address */
    bucket *bucket;
    int members, buckets, started;
    void *scratch;           /* used by one bucket at a time */
    weft_error_copy *failed; /* first error of a start, for the wait; NULL: none */
};

static int64_t count_of(const weft_tensor *t)
{
    return weft_shape_count(&t->shape);
}

static int64_t bytes_of(const weft_tensor *t)
{
    return count_of(t) * weft_dtype_bytes(t->dtype);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Finds the states, last declared first: states are declared in forward order, so a backward
 * finishes the last ones first. */
static weft_status find_states(weft_grad_reduce *s, weft_store *store, const weft_graph *update)
{
    const int32_t nodes = weft_graph_node_count(update);
    s->member = weft_arena_calloc(s->arena, nodes + 1, sizeof *s->member);
    s->by_tensor = weft_arena_calloc(s->arena, nodes + 1, sizeof *s->by_tensor);
    s->bucket = weft_arena_calloc(s->arena, nodes + 1, sizeof *s->bucket);
    WEFT_TRY(WEFT_ALLOCATED(s->member && s->by_tensor && s->bucket, "sums of gradients"));
    for (int32_t n = nodes - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(update, n);
        const char *name = weft_value_get(update, node->out[0])->name;
        if (node->op != WEFT_OP_STATE || strncmp(name, "grad.", 5))
            continue;
        weft_tensor *tensor = weft_store_find(store, name);
        if (!tensor)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = name),
                              "the store has no tensor of this name to sum");
        s->member[s->members++] = (member){.tensor = tensor};
    }
    return WEFT_OK;
}

/* Closes a bucket: states before member `end` without a bucket form the next one. */
static void close_grad_bucket(weft_grad_reduce *s, int end)
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

/* Assigns the states to buckets. A bucket has the position of its last ready state. */
static void cut(weft_grad_reduce *s)
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
            close_grad_bucket(s, i);
            bytes = 0;
        }
        dtype = t->dtype;
        bytes += bytes_of(t);
        if (bytes >= wide) {
            close_grad_bucket(s, i + 1);
            bytes = 0;
        }
    }
    close_grad_bucket(s, s->members);
    qsort(s->member, (size_t)s->members, sizeof *s->member, by_bucket);
    for (int i = 0, k = 0; k < s->buckets; i += s->bucket[k++].members)
        s->bucket[k].first = i;
    for (int i = 0; i < s->members; i++)
        s->by_tensor[i] = &s->member[i];
    qsort(s->by_tensor, (size_t)s->members, sizeof *s->by_tensor, by_tensor);
}

static weft_status make_request(weft_grad_reduce *s, int index, int64_t *count)
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
        WEFT_TRY(weft_comm_request_create_bundle(ranks, own, dtype, count, b->members, what,
                                                 &b->request));
    } else {
        const weft_attr_comm attr = {0};
        const weft_shape flat = WEFT_SHAPE(count[0]);
        WEFT_TRY(weft_comm_request_create(ranks, own, WEFT_OP_ALL_REDUCE, &attr, &flat, &flat,
                                          dtype, what, &b->request));
    }
    if (s->backend->device->meta)
        WEFT_TRY(weft_comm_request_cut(b->request, WEFT_COMM_WIDE));
    weft_comm_request_set_device(b->request, s->backend->device, s->stream);
    return weft_comm_request_attach(b->request, s->group, WEFT_CHANNEL_GRADIENTS);
}

static weft_status make_requests(weft_grad_reduce *s)
{
    int64_t *count = weft_calloc(s->members + 1, sizeof *count), scratch = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(count, "sums of gradients"));
    for (int k = 0; k < s->buckets; k++) {
        WEFT_GO(make_request(s, k, count));
        if (weft_comm_request_scratch(s->bucket[k].request) > scratch)
            scratch = weft_comm_request_scratch(s->bucket[k].request);
    }
    if (scratch) {
        s->scratch = s->backend->device->alloc(s->backend->device, scratch);
        WEFT_GO(WEFT_ALLOCATED(s->scratch, "sums of gradients"));
    }
out:
    weft_free(count);
    return status;
}

weft_status weft_grad_reduce_create(weft_group *group, const weft_backend *backend,
                                    weft_store *store, const weft_graph *update,
                                    weft_grad_reduce **out)
{
    weft_grad_reduce *s;
    WEFT_TRY(WEFT_NEW(s, 1, "sums of gradients"));
    *s = (weft_grad_reduce){.group = group, .backend = backend, .arena = weft_arena_create()};
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(s->arena, "sums of gradients"));
    WEFT_GO(backend->device->open(backend->device, backend, &s->stream));
    WEFT_GO(find_states(s, store, update));
    cut(s);
    WEFT_GO(make_requests(s));
    *out = s;
    return WEFT_OK;
out:
    weft_grad_reduce_free(s);
    return status;
}

void weft_grad_reduce_free(weft_grad_reduce *s)
{
    if (!s)
        return;
    for (int k = 0; k < s->buckets; k++)
        weft_comm_request_free(s->bucket[k].request);
    if (s->scratch)
        s->backend->device->free(s->backend->device, s->scratch);
    if (s->stream)
        s->backend->device->close(s->stream);
    weft_arena_free(s->arena);
    weft_free(s->failed);
    weft_free(s);
}

/* ---- an iteration ---------------------------------------------------------------------------- */

void weft_grad_reduce_begin(weft_grad_reduce *s)
{
    s->started = 0;
    for (int k = 0; k < s->buckets; k++)
        s->bucket[k].left = s->bucket[k].members;
    for (int i = 0; i < s->members; i++)
        s->member[i].final = false;
}

static void bind(weft_grad_reduce *s, const bucket *b)
{
    if (b->members > 1)
        weft_comm_request_bind_bundle(b->request, s->scratch);
    for (int i = 0; i < b->members; i++) {
        void *data = s->member[b->first + i].tensor->data;
        if (b->members > 1)
            weft_comm_request_bind_piece(b->request, i, data, data);
        else
            weft_comm_request_bind(b->request, data, data, s->scratch);
    }
}

/* Starts a bucket. `stream` NULL: its states are complete. */
static void start(weft_grad_reduce *s, bucket *b, weft_device_stream *stream)
{
    bind(s, b);
    if (!stream || !weft_device_is_apart(s->backend->device))
        weft_comm_request_start(b->request);
    else if (weft_comm_request_start_after(b->request, stream) != WEFT_OK && !s->failed)
        s->failed = weft_error_save();
}

static void finish(weft_grad_reduce *s, member *m, weft_device_stream *stream)
{
    if (!m->final)
        s->bucket[m->bucket].left--;
    m->final = true;
    while (s->started < s->buckets && s->bucket[s->started].left == 0)
        start(s, &s->bucket[s->started++], stream);
}

static member *find(const weft_grad_reduce *s, const weft_tensor *state)
{
    const member key = {.tensor = (weft_tensor *)(uintptr_t)state}, *at = &key;
    member **found =
        bsearch(&at, s->by_tensor, (size_t)s->members, sizeof *s->by_tensor, by_tensor);
    return found ? *found : NULL;
}

void weft_grad_reduce_mark_ready(weft_grad_reduce *s, const weft_tensor *state,
                                 weft_device_stream *stream)
{
    member *m = find(s, state);
    if (m)
        finish(s, m, stream);
}

void weft_grad_reduce_mark_others(weft_grad_reduce *s, const weft_program *program)
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
            finish(s, &s->member[i], NULL);
}

/* Waits for the last request first: requests complete in order, so one wait is usually enough. */
weft_status weft_grad_reduce_wait(weft_grad_reduce *s)
{
    if (s->failed)
        return weft_error_restore(s->failed);
    for (int k = s->started - 1; k >= 0; k--)
        WEFT_TRY(weft_comm_request_wait(s->bucket[k].request));
    return WEFT_OK;
}

int64_t weft_grad_reduce_bytes(const weft_grad_reduce *s)
{
    int64_t bytes = 0;
    for (int k = 0; k < s->buckets; k++)
        bytes += weft_comm_request_wire_bytes(s->bucket[k].request);
    return bytes;
}

weft_status weft_grad_reduce_predict(const weft_grad_reduce *s, const weft_link_costs *costs,
                                     double *seconds, double *last)
{
    *seconds = *last = 0;
    for (int k = 0; k < s->buckets; k++) {
        WEFT_TRY(weft_comm_request_predict(s->bucket[k].request, costs, last));
        *seconds += *last;
    }
    return WEFT_OK;
}

weft_status weft_grad_reduce_broadcast(weft_group *group, const weft_tensor *t, int64_t bytes)
{
    const void *data;
    void *made;
    WEFT_TRY(weft_tensor_on_host(t, &data, &made));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_group_broadcast(group, (void *)(uintptr_t)data, bytes, 0));
    if (made)
        WEFT_GO(weft_tensor_put_bytes(t, 0, bytes, made));
out:
    weft_free(made);
    return status;
}
