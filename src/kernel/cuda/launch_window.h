/* Joins launches: a window of launches that were added and not issued yet.
 *
 *   added    cast(a)  gemm(a, b)  cast(c)  gemm(c, d)       a to d: memory
 *   issued   cast_list(a, c)  gemm(a, b)  gemm(c, d)
 *
 * Kernels with a list (kernels/list_args.h) compute the launches of a table in one launch. A launch
 * joins a table if the order of conflicting launches stays: two launches conflict if one writes
 * memory that the other accesses. Each launch of a table computes the same blocks as before, so
 * results are bitwise identical. Launches without declared accesses conflict with all. */
#ifndef WEFT_KERNEL_CUDA_LAUNCH_WINDOW_H
#define WEFT_KERNEL_CUDA_LAUNCH_WINDOW_H

#include "kernel/cuda/launch.h"

#include <stdbool.h>

/* Bytes that a launch reads or writes. */
typedef struct weft_cuda_span {
    const char *begin, *end;
    bool writes;
} weft_cuda_span;

/* The node whose launches follow; the texts are borrowed until the work is done. */
typedef struct weft_cuda_node {
    int32_t number; /* -1: none */
    const char *op, *scope;
} weft_cuda_node;

/* A launch that leaves the window. */
typedef struct weft_cuda_issue {
    weft_cuda_launch launch;
    weft_cuda_node node;   /* of the first launch of the table */
    int joined;            /* launches of the table; 1: not a table */
    const int32_t *member; /* their nodes */
    const weft_cuda_span *span;
    int spans;
} weft_cuda_issue;

typedef struct weft_cuda_window weft_cuda_window;
typedef weft_status_code (*weft_cuda_issue_to)(void *user, const weft_cuda_issue *issue);

/* `issue` receives launches in an order that keeps the results. */
weft_status weft_cuda_window_open(weft_cuda_issue_to issue, void *user, weft_cuda_window **window);
void weft_cuda_window_close(weft_cuda_window *window); /* accepts NULL; drops what was not issued */
/* Begins a node. Its launches access the bytes that are declared next; a launch accesses
 * the declared bytes that its parameter has an address of. */
void weft_cuda_window_begin(weft_cuda_window *window, const weft_cuda_node *node);
void weft_cuda_window_access(weft_cuda_window *window, const void *data, int64_t bytes,
                             bool writes);
/* Makes the first bytes of declared ones separate bytes. */
void weft_cuda_window_split(weft_cuda_window *window, const void *data, int64_t bytes);
weft_status_code weft_cuda_window_add(weft_cuda_window *window, const weft_cuda_launch *launch);
/* Issues all launches of the window. After an error, drops the others. */
weft_status_code weft_cuda_window_flush(weft_cuda_window *window);

#endif
