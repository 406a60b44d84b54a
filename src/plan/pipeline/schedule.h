/* Pipeline schedules as tables: (device, step) -> (stage, microbatch, F | B | W).
 *
 * A step is a unit slot that gives the order (PULSE §V-A); seconds come from weft_schedule_time().
 * Stage s of 0..S-1 runs on device_of[s], the same for all microbatches, forward and backward. F is
 * the forward pass, B the backward pass; with a split backward, B is the gradient of the input and
 * W that of the weights. */
#ifndef WEFT_PLAN_SCHEDULE_H
#define WEFT_PLAN_SCHEDULE_H

#include "plan/pipeline/partition.h"

typedef enum weft_task_kind { WEFT_TASK_F, WEFT_TASK_B, WEFT_TASK_W } weft_task_kind;

typedef struct weft_task {
    int32_t device, step, stage, microbatch;
    weft_task_kind kind;
    double start, end; /* seconds; set by weft_schedule_time */
} weft_task;

typedef struct weft_schedule {
    const char *name; /* literal */
    int64_t devices, stages, microbatches;
    bool split;         /* has W tasks */
    int32_t *device_of; /* [stages], owned */
    weft_task *task;    /* owned; sorted by device, then step */
    int64_t task_count;
    int64_t steps; /* slots until the last task is done */
} weft_schedule;
void weft_schedule_free(weft_schedule *schedule);

/* Which device runs a stage. ROUND: s mod D (Megatron's interleaving; 1F1B when S = D). FOLD: the
 * first half goes 0..D-1, D-1..0, ... and the second half mirrors it, so stage s and stage S-1-s
 * always share a device: Hanayo's wave for S = 2D, several waves for S = 2Dw (PULSE §V-B). */
typedef enum weft_stage_map { WEFT_MAP_ROUND, WEFT_MAP_FOLD } weft_stage_map;
void weft_stage_map_fill(weft_stage_map map, int64_t stages, int64_t devices, int32_t *device_of);

typedef enum weft_schedule_kind {
    WEFT_SCHEDULE_GPIPE,       /* all F, then all B; any map */
    WEFT_SCHEDULE_1F1B,        /* stages = devices */
    WEFT_SCHEDULE_INTERLEAVED, /* stages = v * devices, ROUND, microbatches a multiple of devices */
    WEFT_SCHEDULE_WAVE,        /* FOLD; any number of microbatches */
    WEFT_SCHEDULE_ZERO_BUBBLE, /* any map; B and W apart */
    WEFT_SCHEDULE_GREEDY,      /* the best rule of the list scheduler; any map */
    WEFT_SCHEDULE_KIND_COUNT,
} weft_schedule_kind;
const char *weft_schedule_kind_name(weft_schedule_kind kind);

/* Seconds per stage and microbatch and per boundary s -> s + 1 (0 where both are on one device).
 * A NULL array counts as ones (F, B, W) or zeros (send). */
typedef struct weft_stage_times {
    const double *forward, *backward; /* [stages]; backward: B and W together */
    const double *weight;             /* [stages]: W's part of backward; NULL: half of it */
    const double *send, *send_back;   /* [stages - 1]: activations down, gradients up */
    bool blocking; /* a send occupies its device (PULSE §VI: synchronised p2p) */
    /* Bytes that a stage holds per microbatch and always, and what a device has: among the orders
     * that the list scheduler tries, one that fits comes before one that is faster. 0: no limit. */
    const double *activation, *fixed; /* [stages] */
    double memory;
} weft_stage_times;

/* Builds a schedule over the map. `times` (may be NULL: every task one unit) guides the list
 * scheduler's kinds. WEFT_E_INFEASIBLE says why the kind does not fit. */
weft_status weft_schedule_make(weft_schedule_kind kind, const int32_t *device_of, int64_t stages,
                               int64_t devices, int64_t microbatches, const weft_stage_times *times,
                               weft_schedule *out);

/* Every (stage, microbatch) once per kind, on its device; one task per device and step; F after F
 * of the stage before, B after B of the stage behind and after the own F, W after B; a stage takes
 * the microbatches in order (PULSE Eq. 6-11). WEFT_E_ARG names the first violation. */
weft_status weft_schedule_check(const weft_schedule *schedule);

/* Runs the table's order on a clock: fills start and end of every task. */
typedef struct weft_schedule_timing {
    double seconds; /* until the last task's end */
    double busy;    /* sum of task seconds over devices */
    double idle;    /* 1 - busy / (devices * seconds), the bubble */
} weft_schedule_timing;
weft_status weft_schedule_time(weft_schedule *schedule, const weft_stage_times *times,
                               weft_schedule_timing *out);

/* Activation bytes per device over the steps: a stage's activations are held from its F to the end
 * of its B (or W). `activation` is per stage and microbatch; NULL counts 1 each. timeline is
 * [devices][steps], peak [devices]; both owned by the caller, timeline may be NULL. */
weft_status weft_schedule_memory(const weft_schedule *schedule, const double *activation,
                                 double *timeline, double *peak);

/* No schedule takes fewer steps: the work of a device plus the way to it and from it. */
int64_t weft_schedule_lower_bound(const int32_t *device_of, int64_t stages, int64_t devices,
                                  int64_t microbatches);

/* Bytes that cross devices for one microbatch's forward pass (backward sends as many again):
 * outputs at boundaries between devices, plus skips, which travel hop by hop with them. A skip
 * whose ends share a device stays there, unless `relay_all` (what 1F1B and Hanayo do: stack,
 * transfer, pop). PULSE §II-C and §V-B count so: ((K+4)D/4 - 1)a and 2(D-1)a. */
double weft_pipeline_bytes(const weft_pipe_costs *costs, const weft_partition *partition,
                           const int32_t *device_of, bool relay_all, double *per_boundary);

/* For list making inside the floor: adopts order[device] lists and numbers the steps as early as
 * the dependencies allow. Takes ownership of nothing. WEFT_E_INTERNAL on a deadlock. */
weft_status weft_schedule_from_order(const char *name, const int32_t *device_of, int64_t stages,
                                     int64_t devices, int64_t microbatches, bool split,
                                     weft_task *tasks, int64_t count, weft_schedule *out);

#endif
