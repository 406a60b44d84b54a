/* Videos on several equal devices: seconds of a step by the number of devices that share it (the
 * degree), as `weft estimate` predicts them, and random traces of such videos. */
#ifndef WEFT_PLAN_ELASTIC_SIZES_H
#define WEFT_PLAN_ELASTIC_SIZES_H

#include "base/status.h"

enum { WEFT_ELASTIC_DEGREES = 4, WEFT_ELASTIC_SIZES = 16, WEFT_ELASTIC_DEVICES = 1 << 3 };

typedef struct weft_elastic_size {
    char name[32];
    int64_t steps;
    /* seconds of a step on 1, 2, 4 and 8 devices; INFINITY: a job cannot have this degree */
    double step[WEFT_ELASTIC_DEGREES];
    double decode; /* seconds of decoding, on one device */
    double share;  /* of the jobs, relative to other sizes */
} weft_elastic_size;

typedef struct weft_elastic_table {
    weft_elastic_size sizes[WEFT_ELASTIC_SIZES];
    int count;
} weft_elastic_table;

typedef struct weft_elastic_job {
    const weft_elastic_size *size;
    double arrival, deadline; /* seconds; deadline 0: none */
    int64_t priority;         /* a higher one comes first */
    /* A job that runs when a replay begins: its devices (0: does not run), and the seconds until
     * the end of its step. Then size->steps remain; 0: the job ends. */
    int64_t held;
    double busy;
    double waited;   /* seconds that the job has waited before `arrival`, for policies */
    double measured; /* the end of the job on a server; 0: none */
    /* results of a replay */
    double start; /* of the first step; of a job that is held: the begin */
    double end;
    int64_t order;   /* of the starts; jobs that are held come first */
    int64_t resizes; /* changes of the degree between two steps, and stops */
} weft_elastic_job;

typedef struct weft_elastic_trace {
    int64_t jobs, devices;
    uint64_t seed;
    double load;             /* device seconds that arrive per device second, at the least cost */
    const double *deadlines; /* [deadline_count] times of a job's own latency, equally likely */
    int deadline_count;
} weft_elastic_trace;

/* Seconds of a job alone on its best degree, of all up to `devices`. */
double weft_elastic_latency(const weft_elastic_size *size, int64_t devices);
/* *jobs: [trace->jobs], heap (weft_free), which borrow the sizes. Equal seeds give equal traces. */
weft_status weft_elastic_trace_make(const weft_elastic_trace *trace,
                                    const weft_elastic_table *table, weft_elastic_job **jobs);

#endif
