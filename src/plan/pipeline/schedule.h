/* Pipeline schedules as tables: (device, step) -> (stage, microbatch, F | B | W).
 *
 * A step is a unit slot that gives the order (PULSE §V-A); weft_pp_schedule_time() gives seconds.
 * Stage s of 0..S-1 runs on device_of[s], the same for all microbatches, forward and backward. F is
 * the forward pass, B the backward pass. With a split backward, B is the gradient of the input and
 * W that of the weights. */
#ifndef WEFT_PLAN_SCHEDULE_H
#define WEFT_PLAN_SCHEDULE_H

#include "plan/pipeline/partition.h"

typedef enum weft_task_kind { WEFT_TASK_F, WEFT_TASK_B, WEFT_TASK_W } weft_task_kind;
char weft_task_letter(weft_task_kind kind); /* 'F', 'B' or 'W' */

typedef struct weft_task {
    int32_t device, step, pp_stage, microbatch;
    weft_task_kind kind;
    double start, end; /* seconds; set by weft_pp_schedule_time */
} weft_task;

typedef struct weft_pp_schedule {
    const char *name; /* literal */
    int64_t devices, pp_stages, microbatches;
    bool split;         /* has W tasks */
    int32_t *device_of; /* [pp_stages], owned */
    weft_task *task;    /* owned; sorted by device, then step */
    int64_t task_count;
    int64_t steps; /* slots until the last task is done */
} weft_pp_schedule;
void weft_pp_schedule_free(weft_pp_schedule *schedule);

/* Device of each stage. ROUND: s mod D (Megatron's interleaving; 1F1B when S = D). FOLD: the first
 * half is 0..D-1, D-1..0, ... and the second half mirrors it, so stage s and stage S-1-s always
 * share a device: Hanayo's wave for S = 2D, several waves for S = 2Dw (PULSE §V-B). */
typedef enum weft_pp_stage_map { WEFT_MAP_ROUND, WEFT_MAP_FOLD } weft_pp_stage_map;
void weft_pp_stage_map_fill(weft_pp_stage_map map, int64_t pp_stages, int64_t devices,
                            int32_t *device_of);

typedef enum weft_pp_schedule_kind {
    WEFT_PP_SCHEDULE_GPIPE,       /* all F, then all B; any map */
    WEFT_PP_SCHEDULE_1F1B,        /* stages = devices */
    WEFT_PP_SCHEDULE_INTERLEAVED, /* stages = v * devices, ROUND, microbatches = m * devices */
    WEFT_PP_SCHEDULE_WAVE,        /* FOLD; any number of microbatches */
    WEFT_PP_SCHEDULE_ZERO_BUBBLE, /* any map; separate B and W */
    WEFT_PP_SCHEDULE_GREEDY,      /* best rule of the list scheduler; any map */
    WEFT_PP_SCHEDULE_KIND_COUNT,
} weft_pp_schedule_kind;
const char *weft_pp_schedule_kind_name(weft_pp_schedule_kind kind);

/* Seconds per stage and microbatch, and per boundary s -> s + 1 (0 if both stages are on one
 * device). NULL: ones (F, B, W) or zeros (send). */
typedef struct weft_pp_stage_times {
    const double *forward, *backward; /* [pp_stages]; backward: B and W together */
    const double *weight;             /* [pp_stages]: W's share of backward; NULL: half */
    const double *send, *send_back;   /* [stages - 1]: activations down, gradients up */
    bool blocking; /* a send occupies its device (PULSE §VI: synchronised p2p) */
    /* Bytes that a stage holds per microbatch and always, and bytes of a device. Among the orders
     * that the list scheduler tries, one that fits precedes one that is faster. memory 0: no
     * limit. */
    const double *activation, *fixed; /* [pp_stages] */
    double memory;
} weft_pp_stage_times;

/* Builds a schedule over the map. `times` guides the kinds made by the list scheduler; NULL: every
 * task is one unit. WEFT_E_INFEASIBLE names the reason. */
weft_status weft_pp_schedule_make(weft_pp_schedule_kind kind, const int32_t *device_of,
                                  int64_t pp_stages, int64_t devices, int64_t microbatches,
                                  const weft_pp_stage_times *times, weft_pp_schedule *out);

/* Refuses a schedule without stages, devices or microbatches. */
weft_status weft_pp_counts_check(int64_t pp_stages, int64_t devices, int64_t microbatches);
/* Checks the schedule (PULSE Eq. 6-11): every (stage, microbatch) once per kind, on its device; one
 * task per device and step; F after F of the previous stage; B after B of the next stage and after
 * its own F; W after B; each stage takes the microbatches in order. WEFT_E_ARG names the first
 * violation. */
weft_status weft_pp_schedule_check(const weft_pp_schedule *schedule);

/* Runs the table's order on a clock: fills start and end of every task. */
typedef struct weft_pp_schedule_timing {
    double seconds; /* until the end of the last task */
    double busy;    /* sum of task seconds over devices */
    double idle;    /* 1 - busy / (devices * seconds), the bubble */
} weft_pp_schedule_timing;
weft_status weft_pp_schedule_time(weft_pp_schedule *schedule, const weft_pp_stage_times *times,
                                  weft_pp_schedule_timing *out);

/* Computes activation bytes per device over the steps. A stage's activations are held from its F to
 * the end of its B (or W). `activation` is per stage and microbatch; NULL: 1 each. `timeline` is
 * [devices][steps], `peak` [devices]; both are owned by the caller. timeline NULL: not computed. */
weft_status weft_pp_schedule_memory(const weft_pp_schedule *schedule, const double *activation,
                                    double *timeline, double *peak);

/* Returns a lower bound of the steps of any schedule: the work of a device plus the steps before
 * its first and after its last task. */
int64_t weft_pp_schedule_lower_bound(const int32_t *device_of, int64_t pp_stages, int64_t devices,
                                     int64_t microbatches);

/* Returns the bytes that cross devices in one microbatch's forward pass; the backward sends the
 * same bytes. Outputs count at boundaries between devices, and skips travel hop by hop with the
 * outputs. A skip whose ends share a device stays there, unless `send_all` (1F1B and Hanayo: stack,
 * transfer, pop). PULSE §II-C and §V-B count so: ((K+4)D/4 - 1)a and 2(D-1)a. */
double weft_pipeline_bytes(const weft_pp_costs *costs, const weft_partition *partition,
                           const int32_t *device_of, bool send_all, double *per_boundary);

/* Makes a schedule of the tasks of each device in their order, and gives every task the earliest
 * step that the dependencies allow. Copies the arrays of `order`, whose steps are not read.
 * WEFT_E_INTERNAL: a deadlock. */
weft_status weft_pp_schedule_from_order(const weft_pp_schedule *order, weft_pp_schedule *out);

#endif
