/* Measured rates of this machine, with which the speed of a run is compared. */
#ifndef WEFT_COMM_MEASURE_H
#define WEFT_COMM_MEASURE_H

#include "comm/coll_tuning.h"

/* Sorts the values and returns the mean of the smallest 1 / `part` (4: the smallest quarter). A
 * temporary disturbance of the machine does not change this mean. */
double weft_measure_quick(double *value, int count, int part);
/* Returns the share of `seconds`, 0 to 1, by which kernels slow down. `alone` and `both`: seconds
 * of kernels alone, and next to an activity of `seconds`. Sorts both arrays. */
double weft_measure_slowdown(double *alone, double *both, int count, double seconds);
/* Returns the seconds of `count` multiply-adds in registers on the caller's thread. */
double weft_measure_work(int64_t count);

/* One rank's contribution to the peak rate of its machine. */
typedef struct weft_core_rate {
    double gflops;         /* rate of one thread */
    int32_t threads;       /* kernel threads */
    int32_t cores, online; /* cores that the process may use; cores of the machine */
} weft_core_rate;
/* Returns the rate that all ranks reach together when nothing else runs. For each machine, this is
 * the rate of its fastest thread times the threads that its cores can run at once. machine[r] is a
 * small number. */
double weft_measure_together(const weft_core_rate *rate, const int *machine, int ranks);
/* Measures the bytes per second of copies of `bytes` by 64 tasks, for at least `seconds`. Read and
 * written bytes are counted. Allocates 2 x `bytes`. */
weft_status weft_measure_memory(int64_t bytes, double seconds, double *bytes_per_second);

/* Measures the seconds per byte of the first use of `bytes` of memory by this process. */
weft_status weft_measure_touch(int64_t bytes, double *seconds);

#endif
