/* The backend `virtual`: kernels take the time that a model of a device says, and compute nothing.
 *
 *   executor ──run──> stream: ready = max(ready, now) + seconds(op, cost)     returns at once
 *            ──wait──────────────────────────────────────────────────────> sleeps until `ready`,
 *                                                                    or with a clock sets it there
 *
 * Programs, schedules and collectives run for real on it, with sizes that no memory here could
 * hold: its memory is one window of WEFT_VIRTUAL_WINDOW bytes (1 GiB for allocations of many GiB)
 * that every allocation but the smallest shows again and again, so that any address may be read and
 * written, nothing written is there afterwards, and next to nothing is reserved. */
#ifndef WEFT_KERNEL_VIRTUAL_VIRTUAL_H
#define WEFT_KERNEL_VIRTUAL_VIRTUAL_H

#include "kernel/kernel.h"

enum { WEFT_VIRTUAL_WINDOW = 64 << 20 };

typedef struct weft_virtual_rates {
    double flops, bytes; /* per second: arithmetic, and memory read and written */
    double host;         /* bytes per second to the host's memory, and back; 0: 25e9 */
    double launch;       /* seconds that every kernel takes beside */
    double pack;         /* the same of a copy, as exchanges make them in pieces; 0: launch */
    double scale;        /* real seconds that a modelled second takes */
    /* Of one rank, owned by the caller: this is its time, in modelled seconds, and nothing sleeps.
     * Work moves it, and so do messages, which carry it (runtime/comm.h). NULL: weft_now()'s */
    double *clock;
    /* Factor on the seconds of kernels, read at each of them; the caller's. NULL: 1. */
    const double *factor;
    /* Memory is addresses only: nothing is reserved, and a program that reads or writes there
     * crashes. For programs of which only the time counts. */
    bool empty;
    /* Measured rates of single ops; 0: those above. */
    double op_flops[WEFT_OP_COUNT], op_bytes[WEFT_OP_COUNT];
} weft_virtual_rates;

/* Modelled: the launch, and the slower of arithmetic and memory. */
double weft_virtual_seconds(const weft_virtual_rates *rates, weft_op op, weft_cost cost);

/* A backend of these rates (copied); programs of it must be gone before it is freed. */
weft_status weft_backend_virtual_create(const weft_virtual_rates *rates, weft_backend **backend);
void weft_backend_virtual_free(weft_backend *backend); /* accepts NULL */
const weft_virtual_rates *weft_backend_virtual_rates(const weft_backend *backend);

/* By name "virtual": a GPU of 400 TFLOP/s and 2 TB/s, 5 us a kernel, in real time. */
extern const weft_backend weft_backend_virtual;
extern const weft_device weft_device_virtual;
/* Its memory is addresses only; of backends with rates.empty. */
extern const weft_device weft_device_empty;

#endif
