/* A cluster as the planners see it: equal nodes of equal devices, a switch inside each node, NICs
 * that hang on leaf switches (one leaf per rail, or one for all), and switches above them.
 *
 *   device --link--> node switch <--link-- device        inside a node (NVLink, HCCS)
 *   device --link--> nic --> leaf --up--> spine ...       between nodes
 *   device --host--> host memory                          offload, hand-off
 *
 * Bandwidths are bytes per second in EACH direction, latencies seconds. Devices are numbered
 * node * devices + index. */
#ifndef WEFT_PLAN_CLUSTER_H
#define WEFT_PLAN_CLUSTER_H

#include "base/config.h"
#include "plan/cost/op_list.h"

typedef struct weft_device_type {
    const char *type;        /* "H100" */
    int64_t memory;          /* bytes */
    double flops;            /* peak FLOP/s of dense products in the training dtype */
    double memory_bandwidth; /* peak B/s */
    /* achieved fractions of the peaks, per operator kind */
    double gemm, attention, conv, memory_fraction;
    const struct weft_rates *rates; /* of a profile: measured kernels; NULL: none */
} weft_device_type;

typedef struct weft_link {
    double bandwidth, latency;
} weft_link;

typedef struct weft_nic {
    const char *switch_name;
    double bandwidth, latency;
    weft_i64_list distance; /* PCIe/NUMA hops from each device of the node; empty: all 0 */
    int64_t leaf;           /* resolved: index into switches */
} weft_nic;

typedef struct weft_switch {
    const char *name, *up;     /* up: name of the switch above, "" at the top */
    double bandwidth, latency; /* of all uplinks together */
    int64_t parent, depth;     /* resolved; parent -1 and depth 0 at the top */
} weft_switch;

typedef struct weft_cluster {
    const char *name;
    int64_t nodes, devices; /* devices: per node */
    weft_device_type device;
    weft_link link, host;
    int64_t host_memory;        /* bytes of a node, for what devices offload */
    double hop_latency;         /* added per hop of device-NIC distance */
    double hop_bandwidth;       /* PCIe between device and NIC when the distance is not 0 */
    weft_section_list nics;     /* of weft_nic, the same in every node */
    weft_section_list switches; /* of weft_switch */
} weft_cluster;

extern const weft_section weft_cluster_section; /* the YAML file's root */

typedef struct weft_cluster_preset {
    const char *name, *help;
    const char *yaml; /* NULL: "local", read from this machine with hwloc */
} weft_cluster_preset;
const weft_cluster_preset *weft_cluster_presets(int *count);

/* `spec` is a preset's name, "preset:NODES", a YAML file, or the .json of `weft profile`. Strings
 * and lists live in `arena`. Checks everything: WEFT_E_CONFIG names the file and what is missing (a
 * switch that is not there, a cycle of `up`, nodes that no path joins, zero devices). */
weft_status weft_cluster_load(weft_arena *arena, const char *spec, weft_cluster *out);
/* The checks and the resolving of names, for clusters that were filled in otherwise. */
weft_status weft_cluster_resolve(weft_cluster *cluster, const char *where);

static inline int64_t weft_cluster_devices(const weft_cluster *cluster)
{
    return cluster->nodes * cluster->devices;
}
/* A hash of all that decides a plan, as 16 hex digits: plans carry it. */
void weft_cluster_id(const weft_cluster *cluster, char text[20]);

/* Seconds of an operator on one device: the larger of FLOPs at the kind's fraction and bytes at
 * the memory's. */
double weft_device_seconds(const weft_device_type *device, weft_work kind, double flops,
                           double bytes);
double weft_op_forward_seconds(const weft_device_type *device, const weft_op_cost *op);
double weft_op_backward_seconds(const weft_device_type *device, const weft_op_cost *op);

/* Directed links are numbered: for every device out, in (link), host out, host in, NIC path out and
 * in (PCIe); for every NIC out, in; for every switch up, down. A path is the list of links that a
 * message passes. */
enum { WEFT_PATH_MAX = 32 };
typedef struct weft_path {
    int32_t link[WEFT_PATH_MAX];
    int32_t count;
    double latency;
} weft_path;
int64_t weft_cluster_link_count(const weft_cluster *cluster);
double weft_cluster_link_bandwidth(const weft_cluster *cluster, int64_t link);
/* "node 3 device 1 out", "node 0 nic 2 in", "switch spine up" */
void weft_cluster_link_name(const weft_cluster *cluster, int64_t link, char text[64]);
/* From device to device. Between nodes a device uses its nearest NIC (ties: lowest index, then
 * devices of equal distance spread over the NICs by their index). from == to: no links. */
void weft_cluster_path(const weft_cluster *cluster, int64_t from, int64_t to, weft_path *path);
/* Device to the host memory of its node (out) or back. */
void weft_cluster_host_path(const weft_cluster *cluster, int64_t device, bool out, weft_path *path);
/* The NIC that a device of a node uses (its index in the node), -1: there are none. */
int64_t weft_cluster_device_nic(const weft_cluster *cluster, int64_t device_in_node);

/* Closed forms over `ranks` devices of which `per_node` share a node (ranks packed, no contention
 * from others), each rank holding `bytes` of the FULL tensor's share as said. Used by layouts that
 * have no device list yet; the simulator has the last word.
 *   all_reduce:     bytes = size of the tensor that every rank holds
 *   all_gather, reduce_scatter: bytes = size of the full tensor
 *   all_to_all:     bytes = what one rank holds before and after
 *   send:           bytes of one message, across nodes if `per_node` is 1 and ranks is 2 */
typedef enum weft_collective {
    WEFT_COLL_ALL_REDUCE,
    WEFT_COLL_ALL_GATHER,
    WEFT_COLL_REDUCE_SCATTER,
    WEFT_COLL_ALL_TO_ALL,
    WEFT_COLL_BROADCAST,
    WEFT_COLL_SEND,
} weft_collective;
double weft_cluster_collective_seconds(const weft_cluster *cluster, weft_collective kind,
                                       int64_t ranks, int64_t per_node, double bytes);

#endif
