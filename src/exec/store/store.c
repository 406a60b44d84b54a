/* Params and states by name, in the order of adding. */

#include "exec/store/store.h"

#include "base/convert.h"
#include "base/fs.h"
#include "base/scratch_map.h"
#include "exec/store/tensor_copy.h"
#include "exec/store/tensor_shard.h"
#include "graph/graph.h"
#include "kernel/host.h"
#include "transform/memory/offload.h"

#include <string.h>
#include <xxhash.h>

struct weft_store {
    const weft_device *device;
    weft_staging *staging; /* NULL: no tensor needs it yet */
    weft_tensor **tensor;  /* one allocation each, so that pointers stay valid */
    int64_t count, capacity;
    int64_t *slot; /* open addressing: index + 1; 0: empty */
    int64_t slots;
    const char *const *offload_patterns; /* NULL: none */
    int offload_pattern_count;
    const char *dir;
    bool defers_draws;
};

weft_store *weft_store_create_on(const weft_device *device)
{
    weft_store *store = weft_alloc(sizeof *store);
    if (store)
        store->device = device;
    return store;
}

weft_store *weft_store_create(void)
{
    return weft_store_create_on(&weft_device_host);
}

weft_store *weft_store_create_for(const weft_backend *backend)
{
    return weft_store_create_on(backend ? backend->device : &weft_device_host);
}

const weft_device *weft_store_device(const weft_store *store)
{
    return store->device;
}

static int64_t tensor_bytes(const weft_tensor *tensor)
{
    return weft_shape_count(&tensor->shape) * weft_dtype_bytes(tensor->dtype);
}

void weft_store_set_offload(weft_store *store, const char *const *patterns, int count,
                            const char *dir)
{
    store->offload_patterns = patterns;
    store->offload_pattern_count = count;
    store->dir = dir;
}

void weft_tensor_evict_part(const weft_tensor *tensor, int64_t at, int64_t bytes)
{
    if (tensor->mapped && tensor->data && !tensor->pinned)
        weft_map_forget((const char *)tensor->data + at, bytes);
}

void weft_tensor_evict(const weft_tensor *tensor)
{
    weft_tensor_evict_part(tensor, 0, tensor_bytes(tensor));
}

static void release_data(const weft_store *store, const weft_tensor *t)
{
    if (t->pinned)
        weft_device_free_host(store->device, t->data);
    else if (t->mapped && store->device == &weft_device_host)
        weft_scratch_unmap(t->data, tensor_bytes(t));
    else
        store->device->free(store->device, t->data);
}

void weft_store_free(weft_store *store)
{
    if (!store)
        return;
    for (int64_t i = 0; i < store->count; i++) {
        weft_tensor *t = store->tensor[i];
        if (!t->lent)
            release_data(store, t);
        weft_free((char *)(uintptr_t)store->tensor[i]->name);
        weft_free(store->tensor[i]);
    }
    weft_staging_free(store->staging);
    weft_free(store->tensor);
    weft_free(store->slot);
    weft_free(store);
}

/* The slot of `name`, or the empty slot where `name` belongs. The table is never full. */
static int64_t slot_of(const weft_store *store, const char *name)
{
    int64_t at = (int64_t)(XXH3_64bits(name, strlen(name)) & (uint64_t)(store->slots - 1));
    while (store->slot[at] && strcmp(store->tensor[store->slot[at] - 1]->name, name) != 0)
        at = (at + 1) & (store->slots - 1);
    return at;
}

int64_t weft_store_index(const weft_store *store, const char *name)
{
    return store->slots ? store->slot[slot_of(store, name)] - 1 : -1;
}

weft_tensor *weft_store_find(weft_store *store, const char *name)
{
    const int64_t index = weft_store_index(store, name);
    return index < 0 ? NULL : store->tensor[index];
}

int64_t weft_store_count(const weft_store *store)
{
    return store->count;
}

weft_tensor *weft_store_at(weft_store *store, int64_t index)
{
    return store->tensor[index];
}

static int64_t sum_bytes(const weft_store *store, bool mapped)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < store->count; i++)
        if (store->tensor[i]->mapped == mapped && !store->tensor[i]->lent)
            bytes += weft_aligned(tensor_bytes(store->tensor[i]));
    return bytes;
}

int64_t weft_store_bytes(const weft_store *store)
{
    return sum_bytes(store, false);
}

int64_t weft_store_offloaded_bytes(const weft_store *store)
{
    return sum_bytes(store, true);
}

static weft_status grow_table(weft_store *store)
{
    if (2 * (store->count + 1) <= store->slots)
        return WEFT_OK;
    const int64_t slots = store->slots ? 2 * store->slots : 64;
    int64_t *slot;
    WEFT_TRY(WEFT_NEW(slot, slots, "the names of %" PRId64 " tensors", store->count));
    weft_free(store->slot);
    store->slot = slot;
    store->slots = slots;
    for (int64_t i = 0; i < store->count; i++)
        store->slot[slot_of(store, store->tensor[i]->name)] = i + 1;
    return WEFT_OK;
}

/* Memory for a tensor outside the device's or the host's ordinary memory: a mapped file on the
 * host, pinned memory elsewhere. */
static weft_status reserve_offloaded(weft_store *store, weft_tensor *t)
{
    const int64_t bytes = tensor_bytes(t);
    if (t->pinned) {
        t->data = weft_device_alloc_host(store->device, bytes);
        return WEFT_OK;
    }
    return weft_scratch_map(store->dir, bytes,
                            store->offload_pattern_count
                                ? "Another folder for memory.offload, or a larger memory.limit"
                                : "Leave --weights stream out, or write --out to another disk",
                            &t->data);
}

/* Sets the data of a new tensor to zeros. */
static weft_status reserve_data(weft_store *store, weft_tensor *t)
{
    const int64_t bytes = tensor_bytes(t);
    const bool offloaded =
                   t->mapped || weft_offload_state(store->offload_patterns,
                                                   store->offload_pattern_count, t->name, bytes),
               host = store->device == &weft_device_host,
               apart = weft_device_is_apart(store->device);
    t->mapped = offloaded && (!host || store->dir);
    t->pinned = offloaded && apart;
    t->lent = false;
    t->data = NULL;
    t->staging = NULL;
    if (apart && !store->staging)
        WEFT_TRY(weft_staging_create(store->device, &store->staging));
    const bool elsewhere = t->mapped && (host || apart);
    if (elsewhere) {
        WEFT_TRY(weft_error_at(reserve_offloaded(store, t), WEFT_AT(.key = t->name)));
    } else {
        t->data = store->device->alloc(store->device, bytes);
        t->staging = apart ? store->staging : NULL;
    }
    if (!t->data) {
        char text[32];
        return weft_no_memory("\"%s\" (%s)", t->name, weft_format_bytes(bytes, text));
    }
    if (t->staging)
        return weft_staging_zero(t->staging, t->data, bytes);
    if (!store->device->meta && !(host && t->mapped))
        memset(t->data, 0, (size_t)bytes);
    return WEFT_OK;
}

weft_status weft_store_add_like(weft_store *store, const weft_tensor *like, weft_tensor **out)
{
    const char *name = like->name;
    if (weft_store_find(store, name))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = name),
                          "the tensor is in the store already");
    WEFT_TRY(grow_table(store));
    WEFT_TRY(
        weft_grow((void **)&store->tensor, store->count, &store->capacity, sizeof *store->tensor));
    weft_tensor *tensor = weft_alloc(sizeof *tensor);
    char *copy = weft_strdup(name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(tensor && copy, "\"%s\"", name));
    *tensor = *like;
    tensor->name = copy;
    tensor->deferred = (weft_init){0};
    WEFT_GO(reserve_data(store, tensor));
    store->slot[slot_of(store, name)] = store->count + 1;
    store->tensor[store->count++] = tensor;
    *out = tensor;
    return WEFT_OK;
out:
    if (tensor)
        release_data(store, tensor);
    weft_free(tensor);
    weft_free(copy);
    return status;
}

weft_status weft_store_alias(weft_store *store, const weft_tensor *of)
{
    if (weft_store_find(store, of->name))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = of->name),
                          "the tensor is in the store already");
    WEFT_TRY(grow_table(store));
    WEFT_TRY(
        weft_grow((void **)&store->tensor, store->count, &store->capacity, sizeof *store->tensor));
    weft_tensor *tensor = weft_alloc(sizeof *tensor);
    char *copy = weft_strdup(of->name);
    if (!tensor || !copy) {
        weft_free(tensor);
        weft_free(copy);
        return weft_no_memory("\"%s\"", of->name);
    }
    *tensor = *of;
    tensor->name = copy;
    tensor->lent = true;
    tensor->deferred = (weft_init){0};
    store->slot[slot_of(store, copy)] = store->count + 1;
    store->tensor[store->count++] = tensor;
    return WEFT_OK;
}

weft_status weft_store_add(weft_store *store, const char *name, weft_dtype dtype, weft_shape shape,
                           weft_tensor **out)
{
    return weft_store_add_like(
        store, &(weft_tensor){.name = name, .dtype = dtype, .shape = shape, .whole = shape}, out);
}

/* ---- tensor shards ------------------------------------------------------------------------- */

int weft_tensor_replica(const weft_graph *graph, weft_value value, int apart, int *replicas)
{
    const weft_value_info *info = weft_value_get(graph, value);
    const weft_mesh *mesh = weft_graph_mesh(graph);
    int coordinate[WEFT_MAX_AXES], replica = 0;
    *replicas = 1;
    if (!mesh || mesh->axis_count == 0)
        return 0;
    weft_mesh_coordinates(mesh, weft_graph_rank(graph), coordinate);
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        const int kind = info->layout[axis].kind;
        if (mesh->axis[axis].size > 1 && (kind == WEFT_V || kind == WEFT_P))
            return -1;
        if (kind == WEFT_S || axis == apart)
            continue;
        replica = replica * mesh->axis[axis].size + coordinate[axis];
        *replicas *= mesh->axis[axis].size;
    }
    return replica;
}

weft_tensor weft_tensor_of(const weft_graph *graph, weft_value value)
{
    const weft_value_info *info = weft_value_get(graph, value);
    const weft_node *node = weft_graph_node(graph, info->node);
    weft_tensor tensor = {
        .name = info->name, .dtype = info->dtype, .shape = info->shape, .whole = info->shape};
    tensor.replica = weft_tensor_replica(graph, value, -1, &tensor.replicas);
    if (node->op != WEFT_OP_INPUT && node->op != WEFT_OP_PARAM && node->op != WEFT_OP_STATE)
        return tensor;
    const weft_attr_source *source = node->attr;
    if (source->global.rank == info->shape.rank)
        tensor.whole = source->global;
    memcpy(tensor.start, source->start, sizeof tensor.start);
    tensor.frozen = source->frozen;
    tensor.mapped = source->offloaded;
    return tensor;
}

bool weft_tensor_matches(const weft_tensor *a, const weft_tensor *b)
{
    return a->dtype == b->dtype && weft_shape_equal(&a->shape, &b->shape) &&
           weft_shape_equal(&a->whole, &b->whole) &&
           memcmp(a->start, b->start, (size_t)a->shape.rank * sizeof *a->start) == 0;
}

/* ---- initial values ------------------------------------------------------------------------ */

/* Elements of a row of this rank's shard. */
static int64_t row_length(const weft_tensor *tensor)
{
    return tensor->shape.rank ? tensor->shape.dim[tensor->shape.rank - 1] : 1;
}

/* Fills the rows [first, end) of this rank's shard; `to` receives row `first`. Element i of the
 * complete tensor is a function of (key, i). */
static void fill_rows(const weft_tensor *tensor, weft_init init, uint64_t key, int64_t first,
                      int64_t end, char *to)
{
    const weft_shape *s = &tensor->shape, *whole = &tensor->whole;
    const int64_t row = row_length(tensor);
#pragma omp parallel for schedule(static)
    for (int64_t r = first; r < end; r++) {
        int64_t index = 0, step = 1, left = r;
        if (s->rank)
            index = tensor->start[s->rank - 1], step = whole->dim[s->rank - 1];
        for (int d = s->rank - 2; d >= 0; d--) {
            index += (tensor->start[d] + left % s->dim[d]) * step;
            step *= whole->dim[d];
            left /= s->dim[d];
        }
        for (int64_t c = 0; c < row; c++) {
            const uint64_t i = (uint64_t)(index + c);
            double value = 0;
            if (init.kind == WEFT_INIT_FILL)
                value = init.value;
            else if (init.kind == WEFT_INIT_NORMAL)
                value = init.value * (double)weft_random_normal(key, WEFT_RNG_INIT, i);
            else if (init.kind == WEFT_INIT_UNIFORM)
                value = init.value * (2 * (double)weft_random_uniform(key, WEFT_RNG_INIT, i) - 1);
            char *at = to + ((r - first) * row + c) * weft_dtype_bytes(tensor->dtype);
            weft_convert(at, tensor->dtype, &value, WEFT_F64, 1);
        }
    }
}

/* Fills this rank's shard; on another device in blocks of rows of about 1 MiB. */
static weft_status fill(const weft_tensor *tensor, weft_init init, uint64_t key)
{
    enum { BLOCK = 1 << 20 };
    const int64_t row = row_length(tensor), bytes = row * weft_dtype_bytes(tensor->dtype),
                  rows = row ? weft_shape_count(&tensor->shape) / row : 0,
                  block = bytes && bytes < BLOCK ? BLOCK / bytes : 1;
    if (!tensor->staging) {
        fill_rows(tensor, init, key, 0, rows, tensor->data);
        weft_tensor_evict(tensor);
        return WEFT_OK;
    }
    char *values = weft_alloc(block * bytes + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(values, "initial values of \"%s\"", tensor->name));
    for (int64_t r = 0; r < rows; r += block) {
        const int64_t end = r + block < rows ? r + block : rows;
        fill_rows(tensor, init, key, r, end, values);
        WEFT_GO(weft_tensor_put_bytes(tensor, r * bytes, (end - r) * bytes, values));
    }
out:
    weft_free(values);
    return status;
}

static bool is_random(weft_init init)
{
    return init.kind == WEFT_INIT_NORMAL || init.kind == WEFT_INIT_UNIFORM;
}

bool weft_store_keeps(const weft_node *node)
{
    return weft_op_has(node->op, WEFT_TRAIT_PERSISTENT) &&
           !((const weft_attr_source *)node->attr)->slot;
}

static weft_status check_memory(weft_store *store, const weft_graph *graph)
{
    int64_t bytes = weft_store_bytes(store);
    for (int32_t n = 0; n < weft_graph_node_count(graph); n++) {
        const weft_node *node = weft_graph_node(graph, n);
        if (!weft_store_keeps(node) || ((const weft_attr_source *)node->attr)->offloaded)
            continue;
        const weft_value_info *info = weft_value_get(graph, node->out[0]);
        if (!weft_store_find(store, info->name))
            bytes += weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
    }
    return weft_device_check_memory(store->device, bytes, "weights and optimizer state");
}

weft_status weft_store_init_value(weft_store *store, const weft_graph *graph, weft_value value,
                                  uint64_t seed)
{
    const weft_node *node = weft_graph_node(graph, weft_value_get(graph, value)->node);
    const weft_tensor needed = weft_tensor_of(graph, value);
    weft_tensor *tensor = weft_store_find(store, needed.name);
    if (tensor && !weft_tensor_matches(tensor, &needed))
        return weft_error(
            WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.key = needed.name),
            "the tensor in the store has another shape, part or type than the graph needs");
    if (tensor)
        return WEFT_OK;
    WEFT_TRY(weft_store_add_like(store, &needed, &tensor));
    const weft_init init = ((const weft_attr_source *)node->attr)->init;
    const uint64_t key = weft_seed_mix(seed, XXH64(needed.name, strlen(needed.name), 0));
    if (init.kind == WEFT_INIT_ZERO || store->device->meta)
        return WEFT_OK;
    if (store->defers_draws && node->op == WEFT_OP_PARAM && is_random(init)) {
        tensor->deferred = init;
        tensor->deferred_key = key;
        return WEFT_OK;
    }
    return fill(tensor, init, key);
}

void weft_store_defer_draws(weft_store *store)
{
    store->defers_draws = true;
}

weft_status weft_store_draw_deferred(weft_store *store, const char *prefix)
{
    for (int64_t i = 0; i < store->count; i++) {
        weft_tensor *tensor = store->tensor[i];
        if (!is_random(tensor->deferred) || strncmp(tensor->name, prefix, strlen(prefix)) != 0)
            continue;
        WEFT_TRY(fill(tensor, tensor->deferred, tensor->deferred_key));
        tensor->deferred = (weft_init){0};
    }
    store->defers_draws = store->defers_draws && prefix[0];
    return WEFT_OK;
}

weft_status weft_store_init(weft_store *store, const weft_graph *graph, uint64_t seed)
{
    WEFT_TRY(check_memory(store, graph));
    for (int32_t n = 0; n < weft_graph_node_count(graph); n++) {
        const weft_node *node = weft_graph_node(graph, n);
        if (weft_store_keeps(node))
            WEFT_TRY(weft_store_init_value(store, graph, node->out[0], seed));
    }
    return WEFT_OK;
}
