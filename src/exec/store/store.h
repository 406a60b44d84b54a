#ifndef WEFT_EXEC_STORE_STORE_H
#define WEFT_EXEC_STORE_STORE_H

#include "graph/op.h"
#include "kernel/device.h"

typedef struct weft_store weft_store;
/* This rank's shard of a tensor: the box [start, start + shape) of `whole` (tensor_shard.h). */
typedef struct weft_tensor {
    const char *name; /* owned by the store */
    weft_dtype dtype;
    weft_shape shape; /* shape of this rank's shard */
    void *data;       /* owned by the store, on its device; 64-byte aligned */
    /* Copies between the host and `data` (tensor_copy.h), which only kernels access. Owned by the
     * store. NULL: the host accesses `data` */
    weft_staging *staging;
    weft_shape whole;
    int64_t start[WEFT_MAX_RANK];
    /* Number of this copy of the shard, and the number of copies (0: one copy). replica -1: content
     * of this rank only, not a shard (a local gradient) */
    int replica, replicas;
    bool mapped; /* offloaded; on the host a mapped file: see weft_tensor_evict */
    bool pinned; /* offloaded in pinned memory of the host, which is not the store's device */
    bool frozen; /* not trainable */
    bool lent;   /* `data` belongs to another store or a file's map */
    /* Random initial values that weft_store_draw_deferred draws unless code that fills the tensor
     * sets .kind to 0 (weft_store_defer_draws). */
    weft_init deferred;
    uint64_t deferred_key;
} weft_tensor;

weft_store *weft_store_create(void);
/* Creates a store in the memory of `device`. On a meta device tensors have no values. */
weft_store *weft_store_create_on(const weft_device *device);
/* Creates a store in the memory that the programs of `backend` use. NULL: cpu. */
weft_store *weft_store_create_for(const weft_backend *backend);
const weft_device *weft_store_device(const weft_store *store);
void weft_store_free(weft_store *store);
weft_tensor *weft_store_find(weft_store *store, const char *name);   /* NULL: none */
int64_t weft_store_index(const weft_store *store, const char *name); /* -1: none */
int64_t weft_store_count(const weft_store *store);
/* index: order in which tensors were added */
weft_tensor *weft_store_at(weft_store *store, int64_t index);
/* Adds a complete tensor of zeros. */
weft_status weft_store_add(weft_store *store, const char *name, weft_dtype dtype, weft_shape shape,
                           weft_tensor **out);
/* Adds zeros with the name, type and shard of `like`. */
weft_status weft_store_add_like(weft_store *store, const weft_tensor *like, weft_tensor **out);
/* Adds a tensor without a copy. Its memory must outlive the use of `store`, which does not free
 * it. */
weft_status weft_store_alias(weft_store *store, const weft_tensor *tensor);
/* Adds every missing param and state of `graph` as the shard of the graph's rank, with the initial
 * values that the graph defines. */
weft_status weft_store_init(weft_store *store, const weft_graph *graph, uint64_t seed);
/* Lets weft_store_init add params with random initial values as zeros. A caller that loads most of
 * them, such as by weft_weights_load, then calls weft_store_draw_deferred for the others. Code that
 * fills every tensor does not call it. */
void weft_store_defer_draws(weft_store *store);
/* Draws the deferred initial values of names that begin with `prefix`, bitwise as weft_store_init
 * does, of tensors that nothing has filled. Prefix "" also ends deferring. */
weft_status weft_store_draw_deferred(weft_store *store, const char *prefix);
/* Returns true for params and states, except states in microbatch buffers
 * (weft_attr_source.slot). */
bool weft_store_keeps(const weft_node *node);
/* Like weft_store_init, for one param or state. */
weft_status weft_store_init_value(weft_store *store, const weft_graph *graph, weft_value value,
                                  uint64_t seed);
int64_t weft_store_bytes(const weft_store *store); /* resident bytes */
int64_t weft_store_offloaded_bytes(const weft_store *store);
/* Sets where tensors added from now on are offloaded: to files in `dir` (borrowed; NULL: memory).
 * Applies to states that match one of `patterns` (borrowed) and are large enough
 * (weft_offload_state), and to params marked by the pass weight_streaming. */
void weft_store_set_offload(weft_store *store, const char *const *patterns, int count,
                            const char *dir);
/* Evicts the tensor's pages from this process if they are file-backed. Call after reading or
 * writing the data. */
void weft_tensor_evict(const weft_tensor *tensor);
/* Like weft_tensor_evict, for `bytes` bytes from byte `at`. */
void weft_tensor_evict_part(const weft_tensor *tensor, int64_t at, int64_t bytes);

/* Describes this rank's shard of a source of a sharded graph; other values are complete tensors.
 * Has no data. The name is borrowed from the graph. */
weft_tensor weft_tensor_of(const weft_graph *graph, weft_value value);
/* Returns the number of this rank's copy of its shard of `value`; *replicas: number of copies.
 * Ranks hold the same shard if they differ only along axes that do not split `value`. Returns -1
 * for a value that differs on every rank. On axis `apart` (-1: none) ranks hold different
 * values. */
int weft_tensor_replica(const weft_graph *graph, weft_value value, int apart, int *replicas);
/* Compares type, shape, whole and start. */
bool weft_tensor_matches(const weft_tensor *a, const weft_tensor *b);

#endif
