/* Cluster model of the planners. Nodes and devices are equal, and each node has a switch inside.
 * NICs are connected to leaf switches: one leaf per rail, or one for all. Other switches connect
 * the leaves.
 *
 *   device --link--> node switch <--link-- device        inside a node (NVLink, HCCS)
 *   device --link--> nic --> leaf --up--> spine ...       between nodes
 *   device --host--> host memory                          offload, latent transfer
 *
 * Bandwidths are bytes per second in EACH direction, latencies seconds. The number of a device is
 * node * devices + index. */
#ifndef WEFT_PLAN_CLUSTER_H
#define WEFT_PLAN_CLUSTER_H

#include "base/config.h"
#include "plan/ops/op_list.h"

/* Seconds per launch of a device whose description has no other: a usual value of GPUs. */
#define WEFT_DEVICE_LAUNCH 5e-6

typedef struct weft_device_type {
    const char *type;        /* "H100" */
    int64_t memory;          /* bytes */
    double flops;            /* peak FLOP/s of dense products in the training dtype */
    double memory_bandwidth; /* peak B/s */
    /* achieved fractions of the peaks, by kind of operator */
    double gemm, attention, conv, memory_fraction;
    /* peak FLOP/s of products of bf16, and the achieved fractions; 0: as the figures above */
    double bf16_flops, bf16_gemm, bf16_attention, bf16_conv;
    double launch;                  /* seconds of a kernel besides its arithmetic and memory */
    const struct weft_rates *rates; /* measured kernels of a profile; NULL: none */
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
    int64_t host_memory;        /* bytes per node for offloading */
    double hop_latency;         /* seconds per hop of device-NIC distance */
    double hop_bandwidth;       /* PCIe between device and NIC if the distance is not 0 */
    weft_section_list nics;     /* weft_nic, the same in every node */
    weft_section_list switches; /* weft_switch */
} weft_cluster;

extern const weft_section weft_cluster_section; /* root of the YAML file */

typedef struct weft_cluster_preset {
    const char *name, *help;
    const char *yaml; /* NULL: "local", read from this machine with hwloc */
} weft_cluster_preset;
const weft_cluster_preset *weft_cluster_presets(int *count);

/* Loads a cluster. `spec` is the name of a preset, "preset:NODES", a YAML file, or the .json of
 * `weft profile`. Strings and lists are in `arena`. WEFT_E_CONFIG names the file and the error,
 * such as an unknown switch, a cycle of `up`, nodes without a path, or zero devices. */
weft_status weft_cluster_load(weft_arena *arena, const char *spec, weft_cluster *out);
/* Checks a cluster that was filled in otherwise, and resolves its names. */
weft_status weft_cluster_resolve(weft_cluster *cluster, const char *where);

static inline int64_t weft_cluster_devices(const weft_cluster *cluster)
{
    return cluster->nodes * cluster->devices;
}
/* Bytes of device memory for each of `ranks` ranks. More ranks than devices share devices. */
int64_t weft_cluster_rank_memory(const weft_cluster *cluster, int64_t ranks);
/* Hash of all values that decide a plan, as 16 hex digits. Plans contain it. */
void weft_cluster_id(const weft_cluster *cluster, char text[20]);

/* Directed links are numbered: for every device out, in (link), host out, host in, NIC path out and
 * in (PCIe); for every NIC out, in; for every switch up, down. A path lists the links that a
 * message passes. */
enum { WEFT_PATH_MAX = 32 };
typedef struct weft_path {
    int32_t link[WEFT_PATH_MAX];
    int32_t count;
    double latency;
} weft_path;

/* Closed forms over `ranks` devices of which `per_node` share a node. Ranks are packed, without
 * contention from other traffic. For layouts without a device list; the simulator is more exact.
 * Meaning of `bytes`:
 *   all_reduce:     size of the tensor that every rank holds
 *   all_gather, reduce_scatter: size of the full tensor
 *   all_to_all:     bytes that one rank holds before and after
 *   send:           bytes of one message, across nodes if `per_node` is 1 and ranks is 2 */
typedef enum weft_collective {
    WEFT_COLL_ALL_REDUCE,
    WEFT_COLL_ALL_GATHER,
    WEFT_COLL_REDUCE_SCATTER,
    WEFT_COLL_ALL_TO_ALL,
    WEFT_COLL_BROADCAST,
    WEFT_COLL_SEND,
} weft_collective;

#endif
