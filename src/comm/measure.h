/* What this machine can do, measured, so that a run's speed can be held against it. */
#ifndef WEFT_RUNTIME_MEASURE_H
#define WEFT_RUNTIME_MEASURE_H

#include "runtime/choices.h"
#include "runtime/runtime.h"

/* The mean over the quickest one of `part` parts (4: a quarter), which sorts them: what disturbs
 * the machine a while does not bend it. */
double weft_measure_quick(double *value, int count, int part);
/* Seconds of kernels alone and beside what takes `seconds`: the share of these that they lose, 0 to
 * 1. Sorts both. */
double weft_measure_drag(double *alone, double *both, int count, double seconds);
/* Seconds of so many products and sums of what is in registers, on the caller's thread. */
double weft_measure_work(int64_t count);

/* Best of the matrix products (1024 cubed, f32, the backend's threads) that fit in `seconds`, at
 * least two. */
weft_status weft_measure_gemm(const weft_backend *backend, double seconds, double *gflops);
/* GFLOP/s of one thread in these products, by the processor time of this process: a load of other
 * processes lowers the rate above, not this one. */
weft_status weft_measure_core(const weft_backend *backend, double seconds, double *gflops);
/* What a rank brings to the peak of its machine. */
typedef struct weft_core_rate {
    double gflops;         /* of one thread */
    int32_t threads;       /* of its kernels */
    int32_t cores, online; /* that the process may use; of the machine */
} weft_core_rate;
/* The rate that all ranks reach together when nothing else runs: the fastest thread of a machine
 * times the threads that its cores can run at once. `machine` has small numbers, by rank. */
double weft_measure_together(const weft_core_rate *rate, const int *machine, int ranks);
/* Bytes per second of a copy of `bytes`, which it takes twice, by 64 tasks; read and written bytes
 * counted. */
weft_status weft_measure_memory(int64_t bytes, double seconds, double *bytes_per_second);

/* Seconds of a byte of memory that this process uses for the first time, of so many at once. */
weft_status weft_measure_touch(int64_t bytes, double *seconds);

/* Seconds of a collective of `bytes` (as weft_algorithm_cost has them) among every `ranks`
 * neighbours at the same time, `ranks` being a divisor of all; of a send those of one way between
 * two. */
weft_status weft_comm_measure_exchange(weft_comm *comm, int ranks, weft_comm_op op, int64_t bytes,
                                       double *seconds);
/* Every algorithm that can, by every collective, by size, among all ranks: the quickest ones as
 * rows of a table, sizes at which one overtakes another found by halving, and a text that has what
 * was measured beside what costs (as measured, weft_comm_measure; and built in) would take. */
weft_status weft_comm_measure_choices(weft_comm *comm, const weft_link_costs *costs,
                                      weft_choices *choices, weft_buf *text);
/* weft_measure_together of this job, each rank measured for `seconds` at the same time. */
weft_status weft_comm_measure_peak(weft_comm *comm, const weft_backend *backend, double seconds,
                                   double *gflops);
/* The share of an exchange's seconds that kernels beside it take longer, 0 to 1: near 0 where its
 * thread finds a core that is free. */
weft_status weft_comm_measure_drag(weft_comm *comm, double *drag);

#endif
