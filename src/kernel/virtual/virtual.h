/* The backend `virtual`: kernels take the time that a device model predicts, and compute nothing.
 *
 *   executor ──run──> stream: ready = max(ready, now) + seconds(op, cost)     returns at once
 *            ──wait──────────────────────────────────────────────────────> sleeps until `ready`,
 *                                                             or sets a simulated clock to `ready`
 *
 * Programs, schedules and collectives execute as usual, with sizes that exceed the memory of this
 * machine. All allocations but the smallest map one window of WEFT_VIRTUAL_WINDOW bytes repeatedly,
 * or of 1 GiB for allocations of many GiB. Any address can be read and written, written values are
 * lost, and almost no memory is reserved. */
#ifndef WEFT_KERNEL_VIRTUAL_VIRTUAL_H
#define WEFT_KERNEL_VIRTUAL_VIRTUAL_H

#include "kernel/kernel.h"

enum { WEFT_VIRTUAL_WINDOW = 64 << 20 };

typedef struct weft_virtual_rates {
    double flops, bytes; /* per second: arithmetic, and bytes read and written in memory */
    double host;         /* bytes per second between device and host; 0 (default): 25e9 */
    double launch;       /* seconds of overhead per kernel */
    double pack;  /* seconds of overhead per copy (requests pack segments); 0 (default): launch */
    double scale; /* real seconds per simulated second */
    /* Simulated clock of one rank in seconds, owned by the caller. With a clock, nothing sleeps;
     * work and messages advance it (comm/comm.h). NULL: weft_now()'s clock. */
    double *clock;
    /* Factor on the seconds of kernels, read for each kernel. Owned by the caller. NULL: 1. */
    const double *factor;
    /* Memory has addresses only. Nothing is reserved, and access crashes. For programs of which
     * only the time is needed. */
    bool empty;
    /* Measured rates of single ops, per second; 0 (default): flops and bytes above. */
    double op_flops[WEFT_OP_COUNT], op_bytes[WEFT_OP_COUNT];
    double op_bf16[WEFT_OP_COUNT]; /* FLOP/s with a first input of bf16; 0 (default): op_flops */
} weft_virtual_rates;

/* Returns the simulated seconds of an op: the launch, plus the longer of arithmetic and memory.
 * `dtype`: of its first input. */
double weft_virtual_seconds(const weft_virtual_rates *rates, weft_op op, weft_dtype dtype,
                            weft_cost cost);

/* Creates a backend that copies `rates`. Free its programs before the backend. */
weft_status weft_backend_virtual_create(const weft_virtual_rates *rates, weft_backend **backend);
void weft_backend_virtual_free(weft_backend *backend); /* accepts NULL */
const weft_virtual_rates *weft_backend_virtual_rates(const weft_backend *backend);

/* The backend named "virtual": a GPU of 400 TFLOP/s and 2 TB/s with 5 us per kernel, in real
 * time. */
extern const weft_backend weft_backend_virtual;
extern const weft_device weft_device_virtual;
/* A device whose memory has addresses only, for backends with rates.empty. */
extern const weft_device weft_device_empty;

#endif
