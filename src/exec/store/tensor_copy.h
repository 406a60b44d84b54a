/* The only access of the host to the values of a store, whatever its device. The host's own memory
 * is read and written in place; another device's through its store's pinned ring. Programs that use
 * the tensor must not be running. */
#ifndef WEFT_EXEC_STORE_TENSOR_COPY_H
#define WEFT_EXEC_STORE_TENSOR_COPY_H

#include "exec/store/store.h"
#include "exec/store/tensor_shard.h"

/* Copies the intersection of this rank's shard with `box`, whose dense values are `data`, from
 * `data` to the tensor (put) or back (get), like weft_box_copy. *count (NULL: not needed): number
 * of elements. */
weft_status weft_tensor_put(const weft_tensor *to, const weft_box *box, const void *data,
                            weft_dtype dtype, int64_t *count);
weft_status weft_tensor_get(const weft_tensor *from, const weft_box *box, void *data,
                            weft_dtype dtype, int64_t *count);
/* Copies `bytes` bytes of this rank's shard from byte `at` on, both multiples of an element. */
weft_status weft_tensor_put_bytes(const weft_tensor *to, int64_t at, int64_t bytes,
                                  const void *data);
weft_status weft_tensor_get_bytes(const weft_tensor *from, int64_t at, int64_t bytes, void *data);
/* Sets this rank's shard to zeros. */
weft_status weft_tensor_clear(const weft_tensor *to);
/* Copies the intersection of two shards of one tensor between stores of this rank. */
weft_status weft_tensor_copy(const weft_tensor *to, const weft_tensor *from);
/* Returns the values of this rank's shard in memory of the host: the tensor's own data, or a copy,
 * which is then *made (freed by the caller; otherwise NULL). */
weft_status weft_tensor_on_host(const weft_tensor *from, const void **data, void **made);

#endif
