/* A cluster as closed forms see it: two kinds of links and one rate per kind of work. */
#ifndef WEFT_PLAN_FABRIC_H
#define WEFT_PLAN_FABRIC_H

#include "plan/cluster/cluster.h"

typedef struct weft_fabric {
    int64_t nodes, per_node;
    double intra, inter; /* B/s per device: to its neighbours in the node; its share of the NICs */
    double intra_latency, inter_latency;
    double host;                  /* B/s per device to host memory, 0: none */
    double host_memory;           /* bytes there that a device may fill */
    double memory;                /* bytes per device */
    double flops;                 /* peak FLOP/s */
    double gemm, attention, conv; /* achieved fractions of it on large operands */
    double memory_rate;           /* achieved B/s */
    double launch;                /* seconds: no kernel is shorter */
} weft_fabric;
weft_fabric weft_fabric_from_cluster(const weft_cluster *cluster);

/* Bytes of a device that a plan may fill: the rest is for contexts, the allocator and buffers of
 * the communication library. */
double weft_fabric_usable(const weft_fabric *fabric);

/* Seconds of a collective over `ranks` of which `together` share a node; `bytes` is the full
 * tensor. Rings inside and between nodes overlap (the slower one counts); every group of a node is
 * active at once, so a rank has its own share of the NICs. */
double weft_fabric_gather(const weft_fabric *f, int64_t ranks, int64_t together, double bytes);

#endif
