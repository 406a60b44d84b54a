/* Complete pipeline plan: partition, devices, schedule, bytes and memory, from operator costs. */
#ifndef WEFT_PLAN_PIPELINE_PLAN_H
#define WEFT_PLAN_PIPELINE_PLAN_H

#include "graph/trace.h"
#include "plan/cluster/cluster.h"
#include "plan/pipeline/schedule.h"

/* Sets the seconds and bytes of a microbatch of `microbatch` samples on a device. Lambda, bandwidth
 * and latency remain 0. */
weft_status weft_pp_costs_from_list(weft_arena *arena, const weft_op_list *list,
                                    const weft_device_type *device, double microbatch,
                                    weft_pp_costs *out);

typedef struct weft_pipeline_options {
    int64_t pp_stages;
    /* 0: half the stages (rounded up) if skips are collocated, otherwise one per stage */
    int64_t devices;
    int64_t microbatches; /* 0: the number of devices */
    weft_collocation skips;
    int schedule;  /* a weft_pp_schedule_kind; -1: the fastest, and among equals the lowest peak */
    double memory; /* bytes per device; 0: no limit */
    bool blocking; /* sends occupy the device */
} weft_pipeline_options;

typedef struct weft_pipeline_candidate {
    const char *name;           /* literal: the kind of schedule */
    const char *map;            /* "round" or "fold" */
    double seconds, idle, peak; /* peak: bytes on the fullest device, parameters and activations */
    int64_t steps;
    const char *why; /* reason for not being chosen; NULL: chosen. Arena */
} weft_pipeline_candidate;

typedef struct weft_pipeline_plan {
    weft_partition partition;
    weft_pp_schedule schedule;
    weft_pp_schedule_timing timing;
    double *pp_stage_seconds; /* [pp_stages]: the terms of Eq. 1 */
    double *parameter_bytes;  /* [devices] */
    double *activation_peak;  /* [devices] */
    double *activation_steps; /* [devices][steps] */
    double *boundary_bytes;   /* [pp_stages]: sent from stage s to s + 1 per microbatch, forward */
    double *pp_stage_activation; /* [pp_stages]: bytes saved per microbatch */
    double bandwidth, latency;   /* between devices, from the costs; 0: free */
    double bytes_per_microbatch;
    double blockwise_bottleneck; /* bottleneck of the baseline; NAN: no baseline */
    int64_t idle_devices;        /* devices without a stage */
    int64_t lower_bound_steps;
    weft_pipeline_candidate *candidate;
    int64_t candidate_count;
    weft_arena *arena; /* owns the arrays above, except those of the partition and the schedule */
} weft_pipeline_plan;

weft_status weft_pipeline_plan_make(const weft_pp_costs *costs,
                                    const weft_pipeline_options *options, weft_pipeline_plan *out);
void weft_pipeline_plan_free(weft_pipeline_plan *plan);

#endif
