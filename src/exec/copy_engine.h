/* Copies between a program's memory and memory elsewhere (graph ops offload and fetch), beside its
 * kernels: on the host by a thread of its own, on another device by a stream of it. They are done
 * one after the other, in the order in which they were started. */
#ifndef WEFT_RUNTIME_MOVER_H
#define WEFT_RUNTIME_MOVER_H

#include "kernel/kernel.h"

typedef struct weft_carry {
    void *to;
    const void *from;
    int64_t bytes;
    const void *mapped; /* the side that is a file's (base/scratch_map.h); NULL: none */
    /* of the last one: on weft_now()'s clock, and what its wait took */
    double started, finished, waited;
    /* the mover's own */
    bool done;
    weft_event event[2];
    struct weft_carry *next;
} weft_carry;

/* Memory elsewhere: an unnamed file's, or the host's. */
typedef struct weft_elsewhere {
    char *data;
    int64_t bytes;
    bool mapped; /* a file's */
    const weft_device *device;
} weft_elsewhere;
/* For a program of that device; `dir`: of the file on the host, NULL: the host's memory. */
weft_status weft_elsewhere_reserve(const weft_device *device, const char *dir, int64_t bytes,
                                   weft_elsewhere *out);
void weft_elsewhere_release(weft_elsewhere *elsewhere); /* accepts zeros */

typedef struct weft_mover weft_mover;
weft_status weft_mover_create(const weft_backend *backend, weft_mover **mover);
/* Nothing is under way. Accepts NULL. */
void weft_mover_free(weft_mover *mover);
/* What is copied must be there: of another device, its stream has come to it. */
void weft_mover_start(weft_mover *mover, weft_carry *move);
weft_status weft_mover_wait(weft_mover *mover, weft_carry *move);
/* All that was started is done, whoever waits for it. */
void weft_mover_finish(weft_mover *mover);

/* Of copies out of this process' memory and back. `drag`: of their seconds, the share that kernels
 * beside them take longer: 0 where an engine copies or a core is free for it, about 1 where every
 * core computes. */
typedef struct weft_mover_rates {
    double bytes_per_second, drag;
} weft_mover_rates;
/* Into a file of `dir`, beside the threads that OpenMP has; measured. */
weft_status weft_mover_measure(const char *dir, weft_mover_rates *rates);

#endif
