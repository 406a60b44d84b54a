/* The four ways to train that PULSE §VII compares, as plans of weft's own planner, and where the
 * time of an iteration goes.
 *
 * Sends are synchronised (they occupy their device), gradients are reduced after the last backward:
 * both as in Eq. 15. Replicas are neighbours, so pipelines cross nodes. */
#ifndef WEFT_BENCH_PLAN_METHODS_H
#define WEFT_BENCH_PLAN_METHODS_H

#include "plan/cluster/fabric.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/published/unet_list.h"

enum { MOST_STAGES = 256, MOST_B = 128 };
typedef enum method { PULSE, HANAYO, ONE_F_ONE_B, ZERO_2, PULSE_BLOCKWISE } method;

/* Seconds per sample of the whole batch, mean over the devices. The first four add up to the
 * iteration. */
typedef struct time_parts {
    double compute; /* forward and backward */
    double send;    /* sends between stages that occupy their device */
    double reduce;  /* gradients of the replicas; ZeRO-2: reduce-scatter and gather */
    double idle;    /* waits for other stages */
    double paper;   /* communication as Fig. 11 counts it, see methods.c */
} time_parts;

typedef struct run {
    double throughput; /* samples/s, 0: does not fit or cannot be cut */
    double bytes;      /* per sample, forward and backward, without gradients of weights */
    double memory;     /* fullest device */
    double share;      /* communication on the critical device over the iteration, roughly */
    double simulated;  /* seconds per sample by the event simulator, 0: not requested */
    time_parts parts;  /* valid for runs that do not fit, too */
    int64_t p, g, b;
} run;

typedef struct setting {
    weft_arena *arena; /* the caller frees it */
    weft_unet_list model;
    weft_cluster cluster;
    weft_fabric fabric;
} setting;

/* Exits with the error's message. */
void must(weft_status_code status);
setting open_setting(const char *model, const char *cluster);

/* One iteration of P microbatches of b samples in each of G replicas; of ZeRO-2 only b counts. */
run run_method(const setting *s, method how, int64_t p, int64_t g, int64_t b);
/* Adds the iteration by the event simulator: sends only delay the receiver, messages share links,
 * collectives are flat rings as NCCL's. */
run run_simulated(const setting *s, method how, int64_t p, int64_t g, int64_t b);
/* Runs with b, or with the largest smaller value that fits. */
run run_fitting(const setting *s, method how, int64_t p, int64_t g, int64_t b);
/* PULSE with the best P >= 2, G and b by the clock; p > 0 fixes P. */
run best_pulse(const setting *s, int64_t p);

#endif
