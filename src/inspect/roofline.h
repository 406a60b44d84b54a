/* The minimum time of the launches of a program on a GPU of backend `cuda`: for each kind of launch
 * the FLOPs, the bytes of its operands, and the larger of the times that both need.
 *
 *   least    at the peaks of the GPU: of tensor cores for products of bf16, else of its f32 units
 *   stated   at the fractions of the peaks that the cluster states, and at the peak of the units
 *            that the kernel uses
 *   measured   as stated, with the fractions that products and attention of bf16 reached on such a
 *              GPU with libraries; only for GPUs that were measured
 *
 * A launch takes at least the cluster's launch time. Launches are joined as a stream of the device
 * joins them (launch_window.h), and the nodes of a joined launch share its time.
 *
 * Redundant are bytes that no operation needs: of nodes that only move or convert, of workspaces,
 * and of updates that are copied. */
#ifndef WEFT_INSPECT_ROOFLINE_H
#define WEFT_INSPECT_ROOFLINE_H

#include "base/json.h"
#include "exec/program.h"
#include "kernel/cuda/kernel_facts.h"
#include "plan/cluster/cluster.h"
#include "plan/cost/graph_list.h"

/* All equal nodes of one part of a step. */
typedef struct weft_roofline_row {
    const char *key;     /* op and shapes, as in a profile */
    const char *kernels; /* "weft_gemm_bf16+weft_reduce_rows"; "copy"; "exchange" */
    weft_graph_part part;
    int occupancy; /* percent, least of the kernels; -1: not known */
    int64_t nodes;
    double launches; /* a launch that several nodes share counts in parts */
    double flops, bytes, sent;
    double redundant;               /* of `bytes` */
    double least, stated, measured; /* seconds */
    bool exchange;
    const char *limit; /* of `least`: "flops", "bytes" or "launch" */
} weft_roofline_row;

/* Seconds of a run of the program. */
typedef struct weft_roofline_time {
    double seconds, kernels;
    double busy, exposed; /* exchanges, and waits for exchanges */
} weft_roofline_time;

typedef struct weft_roofline {
    const char *title;
    weft_roofline_row *row; /* arena; by `stated`, descending */
    int64_t count, capacity;
    weft_roofline_row sum; /* of all rows but exchanges */
    double part[4];        /* launches by weft_graph_part */
    int64_t exchanges;     /* requests */
    double sent;           /* bytes */
    double model_flops;    /* three times the forward, on this rank; 0: not known */
    weft_roofline_time least, stated;
    weft_roofline_time measured; /* zero: the GPU was not measured */
} weft_roofline;

/* Fractions of the peak of bf16 that a GPU reached. */
typedef struct weft_roofline_measured {
    double products, attention, attention_grad;
    const char *source; /* NULL: not measured */
} weft_roofline_measured;

/* A kernel that a launch has used. */
typedef struct weft_roofline_kernel {
    const char *name; /* a literal */
    int occupancy;
    bool mma;
} weft_roofline_kernel;
enum { WEFT_ROOFLINE_KERNELS = 256 };

/* The GPU, and the rooflines of the programs of a report. */
typedef struct weft_roofline_list {
    weft_cluster cluster;
    double f32_flops; /* peak of the f32 units */
    weft_roofline_measured measured;
    weft_gpu_arch arch;
    weft_arena *arena; /* borrowed */
    weft_roofline **item;
    int64_t count;
    weft_roofline_kernel kernel[WEFT_ROOFLINE_KERNELS];
    int kernels;
} weft_roofline_list;

/* Loads the cluster. Results are in `arena`. */
weft_status weft_roofline_begin(weft_arena *arena, const char *cluster, weft_roofline_list *list);
/* Adds a program compiled for backend `cuda`; nothing needs to be bound. */
weft_status weft_roofline_add(weft_roofline_list *list, const weft_program *program,
                              const char *title, double model_flops);
#endif
