/* Loads and checks clusters, and defines the presets; paths are in cluster_path.c. */
#include "plan/cluster/cluster.h"
#include "plan/cluster/profile_file.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/id_hash.h"
#include "base/location.h"
#include "storage/input_copy.h"

#include <hwloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(type, key_type, member, fallback, unit, help, ...)                                     \
    {                                                                                              \
#member, key_type, offsetof(type, member), fallback, unit, help, __VA_ARGS__               \
    }

#define TEXT_OF(macro) QUOTED(macro)
#define QUOTED(text)   #text

static const weft_key device_keys[] = {
    KEY(weft_device_type, WEFT_KEY_STRING, type, "device", "", "name of the device type"),
    KEY(weft_device_type, WEFT_KEY_I64, memory, NULL, "bytes", "memory of one device", .min = 1,
        .max = 1e15),
    KEY(weft_device_type, WEFT_KEY_F64, flops, NULL, "FLOP/s",
        "peak of dense products in the training dtype; a multiply-add is 2", .min = 1, .max = 1e18),
    KEY(weft_device_type, WEFT_KEY_F64, memory_bandwidth, NULL, "bytes/s",
        "peak of the device memory", .min = 1, .max = 1e15),
    KEY(weft_device_type, WEFT_KEY_F64, gemm, "0.6", "",
        "achieved fraction of the peak, dense products", .min = 1e-6, .max = 1),
    KEY(weft_device_type, WEFT_KEY_F64, attention, "0.4", "",
        "achieved fraction of the peak, attention", .min = 1e-6, .max = 1),
    KEY(weft_device_type, WEFT_KEY_F64, conv, "0.35", "",
        "achieved fraction of the peak, convolutions", .min = 1e-6, .max = 1),
    KEY(weft_device_type, WEFT_KEY_F64, memory_fraction, "0.8", "",
        "achieved fraction of the memory bandwidth", .min = 1e-6, .max = 1),
    KEY(weft_device_type, WEFT_KEY_F64, bf16_flops, "0", "FLOP/s",
        "peak of products of bf16; 0 (default): flops, which then is of the training dtype",
        .min = 0, .max = 1e18),
    KEY(weft_device_type, WEFT_KEY_F64, bf16_gemm, "0", "",
        "achieved fraction of bf16_flops, dense products; 0 (default): gemm", .min = 0, .max = 1),
    KEY(weft_device_type, WEFT_KEY_F64, bf16_attention, "0", "",
        "achieved fraction of bf16_flops, attention; 0 (default): attention", .min = 0, .max = 1),
    KEY(weft_device_type, WEFT_KEY_F64, bf16_conv, "0", "",
        "achieved fraction of bf16_flops, convolutions; 0 (default): conv", .min = 0, .max = 1),
    KEY(weft_device_type, WEFT_KEY_F64, launch, TEXT_OF(WEFT_DEVICE_LAUNCH), "s",
        "time of a kernel besides its arithmetic and memory accesses", .min = 0, .max = 1),
};
static const weft_section device_section = {"device", "one device", sizeof(weft_device_type),
                                            device_keys, WEFT_COUNT(device_keys)};

static const weft_key link_keys[] = {
    KEY(weft_link, WEFT_KEY_F64, bandwidth, "64e9", "bytes/s", "each direction, per device",
        .min = 1, .max = 1e15),
    KEY(weft_link, WEFT_KEY_F64, latency, "5e-6", "s", "latency of one message", .min = 0,
        .max = 10),
};
static const weft_section link_section = {"link", "a link of each device", sizeof(weft_link),
                                          link_keys, WEFT_COUNT(link_keys)};

static const weft_key nic_keys[] = {
    {"switch", WEFT_KEY_STRING, offsetof(weft_nic, switch_name), NULL, "",
     "name of the leaf switch that connects this NIC of every node (rail)"},
    KEY(weft_nic, WEFT_KEY_F64, bandwidth, NULL, "bytes/s", "each direction", .min = 1,
        .max = 1e15),
    KEY(weft_nic, WEFT_KEY_F64, latency, "2e-6", "s", "from NIC to leaf", .min = 0, .max = 10),
    KEY(weft_nic, WEFT_KEY_I64_LIST, distance, "[]", "",
        "PCIe or NUMA hops from each device of the node; empty: all 0", .min = 0, .max = 100),
};
static const weft_section nic_section = {"nics", "a NIC of every node", sizeof(weft_nic), nic_keys,
                                         WEFT_COUNT(nic_keys)};

static const weft_key switch_keys[] = {
    KEY(weft_switch, WEFT_KEY_STRING, name, NULL, "", "name of the switch"),
    KEY(weft_switch, WEFT_KEY_STRING, up, "", "", "name of the switch above; empty at the top"),
    KEY(weft_switch, WEFT_KEY_F64, bandwidth, "0", "bytes/s",
        "all uplinks together, each direction; required with `up`", .min = 0, .max = 1e18),
    KEY(weft_switch, WEFT_KEY_F64, latency, "1e-6", "s", "from this switch to the one above",
        .min = 0, .max = 10),
};
static const weft_section switch_section = {"switches", "a switch between nodes",
                                            sizeof(weft_switch), switch_keys,
                                            WEFT_COUNT(switch_keys)};

static const weft_key cluster_keys[] = {
    KEY(weft_cluster, WEFT_KEY_STRING, name, "cluster", "", "shown in plans and drawings"),
    KEY(weft_cluster, WEFT_KEY_I64, nodes, NULL, "", "number of equal nodes", .min = 0,
        .max = 1 << 20),
    KEY(weft_cluster, WEFT_KEY_I64, devices, NULL, "", "devices per node", .min = 0, .max = 4096),
    KEY(weft_cluster, WEFT_KEY_SECTION, device, NULL, "", "the device type",
        .section = &device_section),
    KEY(weft_cluster, WEFT_KEY_SECTION, link, NULL, "", "device to the switch inside the node",
        .section = &link_section),
    KEY(weft_cluster, WEFT_KEY_SECTION, host, NULL, "", "device to host memory (PCIe)",
        .section = &link_section),
    KEY(weft_cluster, WEFT_KEY_I64, host_memory, "1TiB", "bytes",
        "host memory of a node, for offloading", .min = 0, .max = 9e18),
    KEY(weft_cluster, WEFT_KEY_F64, hop_latency, "1e-6", "s",
        "added per hop between a device and its NIC", .min = 0, .max = 1),
    KEY(weft_cluster, WEFT_KEY_F64, hop_bandwidth, "0", "bytes/s",
        "path between a device and a NIC that is not at distance 0; 0 (default): no limit",
        .min = 0, .max = 1e15),
    KEY(weft_cluster, WEFT_KEY_SECTION_LIST, nics, "[]", "",
        "the NICs of each node; none for a single node", .section = &nic_section),
    KEY(weft_cluster, WEFT_KEY_SECTION_LIST, switches, "[]", "", "the switches between nodes",
        .section = &switch_section),
};
const weft_section weft_cluster_section = {"cluster", "the machine of the plan",
                                           sizeof(weft_cluster), cluster_keys,
                                           WEFT_COUNT(cluster_keys)};

#define RAIL(n, bandwidth, distance)                                                               \
    "  - {switch: leaf" #n ", bandwidth: " bandwidth ", latency: 2e-6, distance: " distance "}\n"
#define LEAF(n, bandwidth)                                                                         \
    "  - {name: leaf" #n ", up: spine, bandwidth: " bandwidth ", latency: 1e-6}\n"
/* Pairs of devices and NICs share one PCIe switch; two such pairs share one half of a socket. */
#define EIGHT_RAILS(bandwidth, uplink)                                                             \
    "nics:\n" RAIL(0, bandwidth, "[0, 1, 2, 2, 3, 3, 3, 3]") RAIL(                                 \
        1, bandwidth, "[1, 0, 2, 2, 3, 3, 3, 3]") RAIL(2, bandwidth, "[2, 2, 0, 1, 3, 3, 3, 3]")   \
        RAIL(3, bandwidth, "[2, 2, 1, 0, 3, 3, 3, 3]")                                             \
            RAIL(4, bandwidth, "[3, 3, 3, 3, 0, 1, 2, 2]")                                         \
                RAIL(5, bandwidth, "[3, 3, 3, 3, 1, 0, 2, 2]") RAIL(6, bandwidth,                  \
                                                                    "[3, 3, 3, 3, 2, 2, 0, 1]")    \
                    RAIL(7, bandwidth, "[3, 3, 3, 3, 2, 2, 1, 0]") "switches:\n" LEAF(0, uplink)   \
                        LEAF(1, uplink) LEAF(2, uplink) LEAF(3, uplink) LEAF(4, uplink)            \
                            LEAF(5, uplink) LEAF(6, uplink) LEAF(7, uplink) "  - {name: spine}\n"

static const weft_cluster_preset presets[] = {
    {"h100", "8 x H100-80GB per node, NVLink, 8 x 400 Gbit/s rails (Arachne §V-A); 2 nodes",
     "name: h100\nhost_memory: 2TB\nnodes: 2\ndevices: 8\n"
     "device: {type: H100, memory: 80GiB, flops: 989e12, memory_bandwidth: 3.35e12, gemm: 0.55, "
     "attention: 0.40, conv: 0.25, memory_fraction: 0.8}\n"
     "link: {bandwidth: 450e9, latency: 2e-6}\nhost: {bandwidth: 55e9, latency: 5e-6}\n"
     "hop_latency: 1e-6\nhop_bandwidth: 50e9\n" EIGHT_RAILS("50e9", "200e9")},
    {"h200", "8 x H200-141GB per node, otherwise as h100; 2 nodes",
     "name: h200\nhost_memory: 2TB\nnodes: 2\ndevices: 8\n"
     "device: {type: H200, memory: 141GB, flops: 989e12, memory_bandwidth: 4.8e12, gemm: 0.55, "
     "attention: 0.40, conv: 0.25, memory_fraction: 0.8}\n"
     "link: {bandwidth: 450e9, latency: 2e-6}\nhost: {bandwidth: 55e9, latency: 5e-6}\n"
     "hop_latency: 1e-6\nhop_bandwidth: 50e9\n" EIGHT_RAILS("50e9", "200e9")},
    {"a100", "8 x A100-40GB per node (p4d), 4 x 100 Gbit/s (ScaleFusion §5.1); 4 nodes",
     "name: a100\nhost_memory: 1152GB\nnodes: 4\ndevices: 8\n"
     "device: {type: A100, memory: 40GiB, flops: 312e12, memory_bandwidth: 1.555e12, gemm: 0.6, "
     "attention: 0.5, conv: 0.35, memory_fraction: 0.8}\n"
     "link: {bandwidth: 300e9, latency: 2e-6}\nhost: {bandwidth: 25e9, latency: 5e-6}\n"
     "hop_latency: 1e-6\nhop_bandwidth: 25e9\nnics:\n"
     "  - {switch: leaf0, bandwidth: 12.5e9, latency: 5e-6, distance: [0, 0, 2, 2, 3, 3, 3, 3]}\n"
     "  - {switch: leaf1, bandwidth: 12.5e9, latency: 5e-6, distance: [2, 2, 0, 0, 3, 3, 3, 3]}\n"
     "  - {switch: leaf2, bandwidth: 12.5e9, latency: 5e-6, distance: [3, 3, 3, 3, 0, 0, 2, 2]}\n"
     "  - {switch: leaf3, bandwidth: 12.5e9, latency: 5e-6, distance: [3, 3, 3, 3, 2, 2, 0, 0]}\n"
     "switches:\n" LEAF(0, "50e9") LEAF(1, "50e9") LEAF(2, "50e9")
         LEAF(3, "50e9") "  - {name: spine}\n"},
    {"rtx4090", "8 x RTX 4090-24GB per node, PCIe 4.0 x16 without peer copies; 1 node",
     "name: rtx4090\nhost_memory: 512GB\nnodes: 1\ndevices: 8\n"
     "device: {type: RTX4090, memory: 24GB, flops: 165.2e12, memory_bandwidth: 1.008e12, "
     "gemm: 0.7, attention: 0.5, conv: 0.35, memory_fraction: 0.85}\n"
     "link: {bandwidth: 25e9, latency: 5e-6}\nhost: {bandwidth: 25e9, latency: 5e-6}\n"},
    {"v100", "8 x V100-32GB per node, 300 GB/s inside, one 10 GB/s NIC (PULSE §VII); 4 nodes",
     "name: v100\nhost_memory: 768GB\nnodes: 4\ndevices: 8\n"
     "device: {type: V100, memory: 32GiB, flops: 125e12, memory_bandwidth: 0.9e12, gemm: 0.5, "
     "attention: 0.3, conv: 0.35, memory_fraction: 0.8}\n"
     "link: {bandwidth: 150e9, latency: 3e-6}\nhost: {bandwidth: 12e9, latency: 8e-6}\n"
     "nics:\n  - {switch: spine, bandwidth: 10e9, latency: 5e-6}\nswitches:\n  - {name: spine}\n"},
    {"ascend910a",
     "8 x Ascend 910A-32GB per node, 30 GB/s inside, 19 GB/s between (PULSE §VII); 4 nodes",
     "name: ascend910a\nhost_memory: 768GB\nnodes: 4\ndevices: 8\n"
     "device: {type: Ascend910A, memory: 32GiB, flops: 256e12, memory_bandwidth: 1.2e12, "
     "gemm: 0.4, attention: 0.25, conv: 0.3, memory_fraction: 0.7}\n"
     "link: {bandwidth: 30e9, latency: 5e-6}\nhost: {bandwidth: 16e9, latency: 8e-6}\n"
     "nics:\n  - {switch: spine, bandwidth: 19e9, latency: 5e-6}\nswitches:\n  - {name: spine}\n"},
    {"local", "this machine, read with hwloc: each NUMA node is a device", NULL},
};

const weft_cluster_preset *weft_cluster_presets(int *count)
{
    *count = WEFT_COUNT(presets);
    return presets;
}

/* Makes a cluster of this machine as one node. FLOP/s and bandwidths, which hwloc does not report,
 * are estimated from the core count; `weft profile` measures them. */
static weft_status read_local(weft_arena *arena, weft_cluster *out)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology))
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "hwloc cannot be initialized");
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "hwloc cannot read the topology of this machine");
    }
    const int numa = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    const hwloc_obj_t root = hwloc_get_root_obj(topology);
    const int64_t memory = (int64_t)root->total_memory;
    hwloc_topology_destroy(topology);
    const int64_t devices = numa > 0 ? numa : 1;
    const double per_device = (double)(cores > 0 ? cores : 1) / (double)devices;
    weft_cluster c = {.name = "local", .nodes = 1, .devices = devices};
    c.device = (weft_device_type){.type = weft_arena_printf(arena, "CPU x %g", per_device),
                                  .memory = memory > 0 ? memory / devices : (int64_t)1 << 30,
                                  .flops = 50e9 * per_device,
                                  .memory_bandwidth = 20e9,
                                  .gemm = 0.8,
                                  .attention = 0.5,
                                  .conv = 0.5,
                                  .memory_fraction = 0.7,
                                  .launch = WEFT_DEVICE_LAUNCH};
    c.link = c.host = (weft_link){.bandwidth = 10e9, .latency = 1e-6};
    c.host_memory = c.device.memory * devices;
    WEFT_TRY(WEFT_ALLOCATED(c.device.type, "the cluster"));
    *out = c;
    return WEFT_OK;
}

/* Widens the uplinks of a preset, whose switches are for up to eight nodes. A larger network has
 * uplinks with at least half of the bandwidth of the NICs below. */
static void widen_uplinks(weft_cluster *c)
{
    weft_switch *leaf = c->switches.item;
    const weft_nic *nic = c->nics.item;
    for (int64_t s = 0; s < c->switches.count; s++) {
        double below = 0;
        for (int64_t i = 0; i < c->nics.count; i++)
            if (!strcmp(nic[i].switch_name, leaf[s].name))
                below += nic[i].bandwidth * (double)c->nodes;
        if (leaf[s].up[0])
            leaf[s].bandwidth = fmax(leaf[s].bandwidth, below / 2);
    }
}

static weft_status load_preset(weft_arena *arena, const weft_cluster_preset *preset,
                               const char *nodes, weft_cluster *out)
{
    char set[64];
    const char *override = set;
    if (nodes) {
        char *end;
        const int64_t n = strtoll(nodes, &end, 10);
        if (*end || end == nodes || n < 1 || n > 1 << 20)
            return weft_error(WEFT_MSG_CLUSTER_INVALID, WEFT_AT(.value = nodes),
                              "the preset %s cannot have '%.40s' nodes; use an integer from 1 to "
                              "%d after the colon",
                              preset->name, nodes, 1 << 20);
        snprintf(set, sizeof set, "nodes=%" PRId64, n);
    }
    if (preset->yaml) {
        WEFT_TRY(weft_config_parse(arena, preset->yaml, (int64_t)strlen(preset->yaml), preset->name,
                                   &override, nodes ? 1 : 0, &weft_cluster_section, out));
        if (nodes)
            widen_uplinks(out);
        return WEFT_OK;
    }
    if (nodes)
        return weft_error(WEFT_MSG_CLUSTER_INVALID, WEFT_AT(.value = nodes),
                          "the preset local is one node, this machine; remove ':%.40s'", nodes);
    return read_local(arena, out);
}

/* Loads a cluster file or a profile of a bucket or a web server. */
static weft_status load_remote(weft_arena *arena, const char *spec, weft_cluster *out)
{
    weft_input_copy *copy;
    WEFT_TRY(weft_input_copy_open(spec, &copy));
    const weft_status_code status = weft_cluster_load(arena, weft_input_copy_path(copy), out);
    weft_input_copy_close(copy);
    return status;
}

weft_status weft_cluster_load(weft_arena *arena, const char *spec, weft_cluster *out)
{
    if (weft_location_is_remote(spec))
        return load_remote(arena, spec, out);
    const char *colon = strchr(spec, ':');
    const size_t len = colon ? (size_t)(colon - spec) : strlen(spec);
    const char *names[WEFT_COUNT(presets)];
    weft_cluster cluster = {0};
    for (int i = 0; i < WEFT_COUNT(presets); i++) {
        names[i] = presets[i].name;
        if (strlen(presets[i].name) == len && !strncmp(presets[i].name, spec, len)) {
            WEFT_TRY(load_preset(arena, &presets[i], colon ? colon + 1 : NULL, &cluster));
            WEFT_TRY(weft_cluster_resolve(&cluster, spec));
            *out = cluster;
            return WEFT_OK;
        }
    }
    if (!weft_path_exists(spec)) {
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)(len < 60 ? len : 60), spec);
        const char *near = weft_nearest_name(word, names, WEFT_COUNT(names));
        return weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = spec),
                          "neither a cluster file nor a preset (h100, h200, a100, rtx4090, "
                          "v100, ascend910a, local; h100:4 has 4 nodes)%s%s%s",
                          near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    const size_t length = strlen(spec);
    if (length > 5 && !strcmp(spec + length - 5, ".json"))
        WEFT_TRY(weft_profile_load(arena, spec, &cluster));
    else
        WEFT_TRY(weft_config_load(arena, spec, NULL, 0, &weft_cluster_section, &cluster));
    WEFT_TRY(weft_cluster_resolve(&cluster, spec));
    *out = cluster;
    return WEFT_OK;
}

static int64_t find_switch(const weft_cluster *c, const char *name)
{
    const weft_switch *s = c->switches.item;
    for (int64_t i = 0; i < c->switches.count; i++)
        if (!strcmp(s[i].name, name))
            return i;
    return -1;
}

static weft_status resolve_switches(weft_cluster *c, const char *where)
{
    weft_switch *s = c->switches.item;
    char key[64];
    for (int64_t i = 0; i < c->switches.count; i++) {
        snprintf(key, sizeof key, "switches.%" PRId64, i);
        if (find_switch(c, s[i].name) != i)
            return weft_error(WEFT_MSG_CLUSTER_INVALID,
                              WEFT_AT(.file = where, .key = key, .value = s[i].name),
                              "two switches have the name %s; give each its own", s[i].name);
        s[i].parent = s[i].up[0] ? find_switch(c, s[i].up) : -1;
        if (s[i].up[0] && s[i].parent < 0)
            return weft_error(
                WEFT_MSG_CLUSTER_INVALID, WEFT_AT(.file = where, .key = key, .value = s[i].up),
                "the uplink of switch %s leads to \"%s\", which is not the name of a switch",
                s[i].name, s[i].up);
        if (s[i].up[0] && !(s[i].bandwidth > 0))
            return weft_error(WEFT_MSG_CLUSTER_INVALID,
                              WEFT_AT(.file = where, .key = key, WEFT_NUMBER(s[i].bandwidth)),
                              "the uplink from %s to %s has bandwidth %g; set it above 0",
                              s[i].name, s[i].up, s[i].bandwidth);
    }
    for (int64_t i = 0; i < c->switches.count; i++) {
        s[i].depth = 0;
        snprintf(key, sizeof key, "switches.%" PRId64, i);
        for (int64_t at = s[i].parent; at >= 0; at = s[at].parent)
            if (++s[i].depth > c->switches.count)
                return weft_error(WEFT_MSG_CLUSTER_INVALID,
                                  WEFT_AT(.file = where, .key = key, .value = s[i].up),
                                  "the uplinks from switch %s form a cycle (%s -> %s ...); the top "
                                  "switch has no uplink",
                                  s[i].name, s[i].name, s[i].up);
        if (s[i].depth > 12)
            return weft_error(WEFT_MSG_CLUSTER_INVALID,
                              WEFT_AT(.file = where, .key = key, WEFT_NUMBER(s[i].depth)),
                              "switch %s is %" PRId64
                              " levels below the top; at most 12 are supported",
                              s[i].name, s[i].depth);
    }
    return WEFT_OK;
}

static int64_t top_of(const weft_cluster *c, int64_t at)
{
    const weft_switch *s = c->switches.item;
    while (s[at].parent >= 0)
        at = s[at].parent;
    return at;
}

static weft_status check_positive(double value, bool zero_ok, const char *where, const char *what)
{
    if (!isfinite(value) || value < 0 || (!zero_ok && value == 0))
        return weft_error(
            WEFT_MSG_CLUSTER_INVALID, WEFT_AT(.file = where, .key = what, WEFT_NUMBER(value)),
            "%g is not a finite number %s", value, zero_ok ? "of at least 0" : "above 0");
    return WEFT_OK;
}

weft_status weft_cluster_resolve(weft_cluster *c, const char *where)
{
    if (c->nodes < 1 || c->devices < 1)
        return weft_error(WEFT_MSG_CLUSTER_INVALID,
                          WEFT_AT(.file = where, .key = c->nodes < 1 ? "nodes" : "devices",
                                  WEFT_NUMBER(c->nodes < 1 ? c->nodes : c->devices)),
                          "a cluster needs at least one node and one device per node; this one has "
                          "%" PRId64 " nodes of %" PRId64 " devices",
                          c->nodes, c->devices);
    if (c->nodes * c->devices > 1 << 20)
        return weft_error(WEFT_MSG_CLUSTER_INVALID,
                          WEFT_AT(.file = where, WEFT_NUMBER(c->nodes * c->devices)),
                          "the cluster has %" PRId64 " devices; at most %d are supported",
                          c->nodes * c->devices, 1 << 20);
    const struct {
        double value;
        bool zero_ok;
        const char *what;
    } numbers[] = {{(double)c->device.memory, false, "device.memory"},
                   {c->device.flops, false, "device.flops"},
                   {c->device.memory_bandwidth, false, "device.memory_bandwidth"},
                   {c->device.gemm, false, "device.gemm"},
                   {c->device.attention, false, "device.attention"},
                   {c->device.conv, false, "device.conv"},
                   {c->device.memory_fraction, false, "device.memory_fraction"},
                   {c->device.launch, true, "device.launch"},
                   {c->device.bf16_flops, true, "device.bf16_flops"},
                   {c->device.bf16_gemm, true, "device.bf16_gemm"},
                   {c->device.bf16_attention, true, "device.bf16_attention"},
                   {c->device.bf16_conv, true, "device.bf16_conv"},
                   {c->link.bandwidth, false, "link.bandwidth"},
                   {c->host.bandwidth, false, "host.bandwidth"},
                   {c->link.latency, true, "link.latency"},
                   {c->host.latency, true, "host.latency"},
                   {c->hop_latency, true, "hop_latency"},
                   {c->hop_bandwidth, true, "hop_bandwidth"}};
    for (int i = 0; i < WEFT_COUNT(numbers); i++)
        WEFT_TRY(check_positive(numbers[i].value, numbers[i].zero_ok, where, numbers[i].what));
    WEFT_TRY(resolve_switches(c, where));
    weft_nic *nic = c->nics.item;
    for (int64_t i = 0; i < c->nics.count; i++) {
        char key[64], what[80];
        snprintf(key, sizeof key, "nics.%" PRId64, i);
        snprintf(what, sizeof what, "%s.bandwidth", key);
        WEFT_TRY(check_positive(nic[i].bandwidth, false, where, what));
        nic[i].leaf = find_switch(c, nic[i].switch_name);
        if (nic[i].leaf < 0)
            return weft_error(WEFT_MSG_CLUSTER_INVALID,
                              WEFT_AT(.file = where, .key = key, .value = nic[i].switch_name),
                              "the NIC is connected to \"%s\", which is not the name of a switch",
                              nic[i].switch_name);
        if (nic[i].distance.count != 0 && nic[i].distance.count != c->devices)
            return weft_error(
                WEFT_MSG_CLUSTER_INVALID,
                WEFT_AT(.file = where, .key = key, WEFT_NUMBER(nic[i].distance.count)),
                "the NIC has %" PRId64 " distances; a node has %" PRId64
                " devices, and each needs one",
                nic[i].distance.count, c->devices);
        if (top_of(c, nic[i].leaf) != top_of(c, nic[0].leaf))
            return weft_error(
                WEFT_MSG_CLUSTER_INVALID,
                WEFT_AT(.file = where, .key = key, .value = nic[i].switch_name),
                "no uplinks connect switch %s of this NIC with switch %s of NIC 0; add an uplink",
                nic[i].switch_name, nic[0].switch_name);
    }
    if (c->nodes > 1 && c->nics.count == 0)
        return weft_error(WEFT_MSG_CLUSTER_INVALID, WEFT_AT(.file = where, .key = "nics"),
                          "%" PRId64 " nodes are not connected; add a NIC", c->nodes);
    return WEFT_OK;
}

int64_t weft_cluster_rank_memory(const weft_cluster *c, int64_t ranks)
{
    const int64_t devices = weft_cluster_devices(c),
                  each = (ranks + devices - 1) / (devices > 0 ? devices : 1);
    return c->device.memory / (each > 1 ? each : 1);
}

void weft_cluster_id(const weft_cluster *c, char text[20])
{
    uint64_t hash = WEFT_ID_BEGIN;
    const double numbers[] = {
        (double)c->nodes,           (double)c->devices, (double)c->device.memory, c->device.flops,
        c->device.memory_bandwidth, c->device.gemm,     c->device.attention,      c->device.conv,
        c->device.memory_fraction,  c->device.launch,   c->link.bandwidth,        c->link.latency,
        c->host.bandwidth,          c->host.latency,    c->hop_latency,           c->hop_bandwidth,
        (double)c->host_memory};
    hash = weft_id_mix(hash, numbers, sizeof numbers);
    const double bf16[] = {c->device.bf16_flops, c->device.bf16_gemm, c->device.bf16_attention,
                           c->device.bf16_conv};
    for (int i = 0; i < WEFT_COUNT(bf16); i++) /* ids of clusters without these figures are old */
        hash = bf16[i] > 0 ? weft_id_mix(hash, &bf16[i], sizeof bf16[i]) : hash;
    for (int64_t i = 0; c->device.rates && i < c->device.rates->count; i++)
        hash = weft_id_mix(hash, &c->device.rates->item[i].seconds, sizeof(double));
    for (int64_t i = 0; c->device.rates && i < c->device.rates->wires; i++)
        hash = weft_id_mix(hash, &c->device.rates->wire[i].seconds, sizeof(double));
    const weft_nic *nic = c->nics.item;
    for (int64_t i = 0; i < c->nics.count; i++) {
        const double n[] = {nic[i].bandwidth, nic[i].latency, (double)nic[i].leaf};
        hash = weft_id_mix(hash, n, sizeof n);
        for (int64_t d = 0; d < nic[i].distance.count; d++)
            hash = weft_id_mix(hash, &nic[i].distance.item[d], sizeof(int64_t));
    }
    const weft_switch *s = c->switches.item;
    for (int64_t i = 0; i < c->switches.count; i++) {
        const double n[] = {s[i].bandwidth, s[i].latency, (double)s[i].parent};
        hash = weft_id_mix(hash, n, sizeof n);
    }
    weft_hex_print(hash, text);
}
