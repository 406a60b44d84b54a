/* Streams of the backend `far`: a thread each, which runs submitted work in order, with delays that
 * a seed chooses. */
#ifndef WEFT_KERNEL_FAR_FAR_STREAM_H
#define WEFT_KERNEL_FAR_FAR_STREAM_H

#include "kernel/far/far_races.h"
#include "kernel/kernel.h"

typedef struct far_work far_work;
/* One item of work; the device's own data follows in memory. */
struct far_work {
    weft_status_code (*run)(far_work *work); /* on the stream's thread */
    far_work *next;
    far_node node;
    far_ticket ticket;
    bool always; /* runs after an error, too, because other streams may wait */
};

weft_status far_stream_open(uint64_t seed, weft_device_stream **stream);
void far_stream_close(weft_device_stream *stream);
/* Names the node of the work that follows. */
void far_stream_mark(weft_device_stream *stream, const far_node *node);
const char *far_stream_named(const weft_device_stream *stream); /* its text */
/* Allocates zeroed work of `bytes` bytes. Out of memory ends the process. */
void *far_work_create(int64_t bytes, weft_status_code (*run)(far_work *work));
/* Hands work over, with its accesses. */
void far_stream_submit(weft_device_stream *stream, far_work *work, const far_access *access,
                       int count);
weft_status far_stream_wait(weft_device_stream *stream);
weft_status far_stream_record(weft_device_stream *stream, weft_event *event);
weft_status far_stream_await(weft_device_stream *stream, weft_event *event);
void far_stream_after(weft_device_stream *stream, const weft_event *event);
void far_event_forget(weft_event *event);
bool far_event_reached(const weft_event *event);
/* Gates of kernel/kernel.h. */
void far_stream_hold(weft_device_stream *stream, uint32_t *gate, uint32_t turn);
void far_stream_lift(weft_device_stream *stream, uint32_t *gate, uint32_t turn);
void far_gate_force(uint32_t *gate, uint32_t turn);

#endif
