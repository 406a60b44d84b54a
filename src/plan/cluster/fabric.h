/* Cluster model of the closed forms: two kinds of links and one rate per kind of work. */
#ifndef WEFT_PLAN_FABRIC_H
#define WEFT_PLAN_FABRIC_H

#include "plan/cluster/cluster.h"

typedef struct weft_fabric {
    int64_t nodes, per_node;
    double intra, inter; /* B/s per device: to devices of the node; its share of the NICs */
    double intra_latency, inter_latency;
    double host;                  /* B/s per device to host memory; 0: none */
    double host_memory;           /* bytes of host memory per device */
    double memory;                /* bytes per device */
    double flops;                 /* peak FLOP/s */
    double gemm, attention, conv; /* achieved fractions of the peak on large operands */
    double memory_rate;           /* achieved B/s */
    double launch;                /* seconds of the shortest kernel: the device's launch */
} weft_fabric;
weft_fabric weft_fabric_from_cluster(const weft_cluster *cluster);

/* Returns the bytes of a device that a plan may fill. The rest is for contexts, the allocator and
 * buffers of the communication library. */
double weft_fabric_usable(const weft_fabric *fabric);

/* Returns the seconds of an all-gather or reduce-scatter over `ranks`, of which `together` share a
 * node; `bytes` is the full tensor. One flat ring through all ranks, as in NCCL and in the event
 * simulator; its slowest link decides. Every group of a node is active at once, so a rank has its
 * own share of the NICs. */
double weft_fabric_gather(const weft_fabric *f, int64_t ranks, int64_t together, double bytes);

#endif
