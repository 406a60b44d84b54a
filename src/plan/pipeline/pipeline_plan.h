/* A whole pipeline plan: partition, devices, schedule, bytes and memory, from operator costs. */
#ifndef WEFT_PLAN_PIPELINE_PLAN_H
#define WEFT_PLAN_PIPELINE_PLAN_H

#include "graph/trace.h"
#include "plan/cluster/cluster.h"
#include "plan/pipeline/schedule.h"

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

/* The steps of all devices for the event simulator (plan/simulate/) of so many pipelines side by
 * side: device d of pipeline r is device d * stride + r of the cluster, with a stride of 1 device
 * r * devices + d. Sends are of their own stream and delay only the receiver. */
weft_status weft_pipeline_trace(const weft_pipeline_plan *plan, int64_t stride, int64_t replicas,
                                weft_trace *out);

#endif
