/* Work that a device records once and then launches with one call. */
#ifndef WEFT_KERNEL_DEVICE_GRAPHS_H
#define WEFT_KERNEL_DEVICE_GRAPHS_H

#include "kernel/kernel.h"

typedef struct weft_device_graph weft_device_graph;

struct weft_device_graphs {
    /* Work that is added to the stream until end() is recorded and does not run: kernels, copies
     * and fills, without events and waits. WEFT_E_UNSUPPORTED: not possible now. */
    weft_status_code (*begin)(weft_device_stream *stream);
    weft_status_code (*end)(weft_device_stream *stream, weft_device_graph **graph);
    /* Adds the recorded work. Its memory must still exist. */
    void (*launch)(weft_device_stream *stream, weft_device_graph *graph);
    void (*free)(weft_device_graph *graph); /* accepts NULL */
};
typedef struct weft_device_graphs weft_device_graphs;

#endif
