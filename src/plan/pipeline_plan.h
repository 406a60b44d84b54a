/* A whole pipeline plan: partition, devices, schedule, bytes and memory, from operator costs.
 *
 * Costs as a file (seconds and bytes are per microbatch; operators count from 0):
 *   {"ops": [{"forward": s, "backward": s, "output_bytes": B, "parameter_bytes": B,
 *             "activation_bytes": B, "name": "..."}, ...],
 *    "skips": [[i, j], [i, j, bytes], ...], "lambda": 1, "bandwidth": B/s, "latency": s}
 * Missing numbers of an operator are 0 but for "forward"; backward is twice forward then.
 *
 * The plan as a file: see weft_pipeline_plan_json(). */
#ifndef WEFT_PLAN_PIPELINE_PLAN_H
#define WEFT_PLAN_PIPELINE_PLAN_H

#include "base/json.h"
#include "graph/trace.h"
#include "plan/cluster.h"
#include "plan/schedule.h"

/* Reads and checks; all of it lives in `arena`. `name` stands for the file in messages. */
weft_status weft_pipe_costs_load(weft_arena *arena, const char *path, weft_pipe_costs *out);
weft_status weft_pipe_costs_from_json(weft_arena *arena, const json_t *json, const char *name,
                                      weft_pipe_costs *out);

/* Seconds and bytes of a microbatch of `microbatch` samples on a device; lambda, bandwidth and
 * latency are left 0. */
weft_status weft_pipe_costs_from_list(weft_arena *arena, const weft_op_list *list,
                                      const weft_device_type *device, double microbatch,
                                      weft_pipe_costs *out);

typedef struct weft_pipeline_options {
    int64_t stages;
    int64_t devices; /* 0: half the stages (rounded up) when skips are collocated, else one each */
    int64_t microbatches; /* 0: as many as devices */
    weft_collocation skips;
    int schedule;  /* a weft_schedule_kind, or -1: the fastest, then the one with the lowest peak */
    double memory; /* bytes per device; 0: no limit */
    bool blocking; /* sends occupy the device */
} weft_pipeline_options;

typedef struct weft_pipeline_candidate {
    const char *name;           /* literal: the schedule's kind */
    const char *map;            /* "round" or "fold" */
    double seconds, idle, peak; /* peak: bytes on the fullest device, parameters and activations */
    int64_t steps;
    const char *why; /* why it lost; NULL: it was chosen. Arena */
} weft_pipeline_candidate;

typedef struct weft_pipeline_plan {
    weft_partition partition;
    weft_schedule schedule;
    weft_schedule_timing timing;
    double *stage_seconds;     /* [stages]: the terms of Eq. 1 */
    double *parameter_bytes;   /* [devices] */
    double *activation_peak;   /* [devices] */
    double *activation_steps;  /* [devices][steps] */
    double *boundary_bytes;    /* [stages]: sent from stage s to s + 1 per microbatch, forward */
    double *stage_activation;  /* [stages]: kept per microbatch */
    double bandwidth, latency; /* between devices, as the costs said; 0: free */
    double bytes_per_microbatch;
    double blockwise_bottleneck; /* the baseline's; NAN when it does not exist */
    int64_t idle_devices;        /* that got no stage */
    int64_t lower_bound_steps;
    weft_pipeline_candidate *candidate;
    int64_t candidate_count;
    weft_arena *arena; /* owns the arrays above; the partition and the schedule own theirs */
} weft_pipeline_plan;

weft_status weft_pipeline_plan_make(const weft_pipe_costs *costs,
                                    const weft_pipeline_options *options, weft_pipeline_plan *out);
void weft_pipeline_plan_free(weft_pipeline_plan *plan);

/* New reference; NULL: out of memory. */
json_t *weft_pipeline_plan_json(const weft_pipe_costs *costs, const weft_pipeline_plan *plan);
/* Reads a plan's stages and schedule back and checks that they are whole and legal. */
weft_status weft_pipeline_plan_load(const char *path, weft_pipeline_plan *out);
/* The table that people read; `explain` adds the candidates. */
void weft_pipeline_plan_print(const weft_pipe_costs *costs, const weft_pipeline_plan *plan,
                              bool explain, weft_buf *out);
/* The steps of all devices for the event simulator (plan/simulate.h): pipeline device d is device
 * d * stride of the cluster. Sends are of their own stream and delay only the receiver. */
weft_status weft_pipeline_trace(const weft_pipeline_plan *plan, int64_t stride, weft_trace *out);

/* A row per device, a bar per task on the clock; forward, backward and weight gradients by colour,
 * the microbatch as number, what the device holds as a line below. Appends an SVG document. */
void weft_pipeline_plan_draw(const weft_pipeline_plan *plan, weft_buf *out);

#endif
