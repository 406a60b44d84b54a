/* Links, paths, rates. Link numbers: 4 per device (out, in, host out, host in), 2 per NIC of each
 * node, 2 per device for PCIe to a distant NIC, 2 per switch. */
#include "plan/cluster/cluster_path.h"

#include "plan/cluster/cluster.h"

#include <math.h>
#include <stdio.h>

enum { DEVICE_LINKS = 6 }; /* out, in, host out, host in, PCIe out, PCIe in */

static const weft_nic *nics(const weft_cluster *c)
{
    return c->nics.item;
}

static const weft_switch *switches(const weft_cluster *c)
{
    return c->switches.item;
}

static int64_t first_nic_link(const weft_cluster *c)
{
    return weft_cluster_devices(c) * DEVICE_LINKS;
}

static int64_t first_switch_link(const weft_cluster *c)
{
    return first_nic_link(c) + c->nodes * c->nics.count * 2;
}

int64_t weft_cluster_link_count(const weft_cluster *c)
{
    return first_switch_link(c) + c->switches.count * 2;
}

double weft_cluster_link_bandwidth(const weft_cluster *c, int64_t link)
{
    if (link < first_nic_link(c)) {
        const int64_t which = link % DEVICE_LINKS;
        if (which >= 4)
            return c->hop_bandwidth > 0 ? c->hop_bandwidth : INFINITY;
        return which < 2 ? c->link.bandwidth : c->host.bandwidth;
    }
    if (link < first_switch_link(c))
        return nics(c)[(link - first_nic_link(c)) / 2 % c->nics.count].bandwidth;
    return switches(c)[(link - first_switch_link(c)) / 2].bandwidth;
}

void weft_cluster_link_name(const weft_cluster *c, int64_t link, char text[64])
{
    static const char *const direction[] = {"out",       "in",     "to host",
                                            "from host", "to nic", "from nic"};
    if (link < first_nic_link(c)) {
        const int64_t device = link / DEVICE_LINKS;
        snprintf(text, 64, "node %" PRId64 " device %" PRId64 " %s", device / c->devices,
                 device % c->devices, direction[link % DEVICE_LINKS]);
    } else if (link < first_switch_link(c)) {
        const int64_t nic = (link - first_nic_link(c)) / 2;
        snprintf(text, 64, "node %" PRId64 " nic %" PRId64 " %s", nic / c->nics.count,
                 nic % c->nics.count, link % 2 ? "in" : "out");
    } else {
        const int64_t i = (link - first_switch_link(c)) / 2;
        snprintf(text, 64, "switch %.40s %s", switches(c)[i].name, link % 2 ? "down" : "up");
    }
}

static int64_t distance(const weft_cluster *c, int64_t nic, int64_t device)
{
    const weft_i64_list *d = &nics(c)[nic].distance;
    return d->count ? d->item[device] : 0;
}

int64_t weft_cluster_device_nic(const weft_cluster *c, int64_t device)
{
    int64_t nearest = INT64_MAX, equal = 0;
    for (int64_t i = 0; i < c->nics.count; i++) {
        const int64_t d = distance(c, i, device);
        if (d < nearest) {
            nearest = d;
            equal = 0;
        }
        equal += d == nearest;
    }
    if (!equal)
        return -1;
    int64_t wanted = device % equal;
    for (int64_t i = 0;; i++)
        if (distance(c, i, device) == nearest && wanted-- == 0)
            return i;
}

static void add(weft_path *path, int64_t link, double latency)
{
    path->link[path->count++] = (int32_t)link;
    path->latency += latency;
}

/* Adds the path from a device to a NIC (out) or back, including PCIe if they are apart. */
static void through_nic(const weft_cluster *c, int64_t device, int64_t nic, bool out,
                        weft_path *path)
{
    const int64_t hops = distance(c, nic, device % c->devices);
    path->latency += (double)hops * c->hop_latency;
    if (hops > 0 && c->hop_bandwidth > 0)
        add(path, device * DEVICE_LINKS + (out ? 4 : 5), 0);
    add(path, first_nic_link(c) + (device / c->devices * c->nics.count + nic) * 2 + !out,
        nics(c)[nic].latency);
}

void weft_cluster_path(const weft_cluster *c, int64_t from, int64_t to, weft_path *path)
{
    *path = (weft_path){0};
    if (from == to)
        return;
    if (from / c->devices == to / c->devices) {
        add(path, from * DEVICE_LINKS, c->link.latency);
        add(path, to * DEVICE_LINKS + 1, 0);
        return;
    }
    const int64_t a = weft_cluster_device_nic(c, from % c->devices);
    const int64_t b = weft_cluster_device_nic(c, to % c->devices);
    through_nic(c, from, a, true, path);
    int64_t up = nics(c)[a].leaf, down = nics(c)[b].leaf, falls[16], fall = 0;
    while (up != down) { /* up to the lowest common switch */
        if (switches(c)[up].depth >= switches(c)[down].depth) {
            add(path, first_switch_link(c) + up * 2, switches(c)[up].latency);
            up = switches(c)[up].parent;
        } else {
            falls[fall++] = down;
            down = switches(c)[down].parent;
        }
    }
    while (fall-- > 0)
        add(path, first_switch_link(c) + falls[fall] * 2 + 1, switches(c)[falls[fall]].latency);
    through_nic(c, to, b, false, path);
}

void weft_cluster_host_path(const weft_cluster *c, int64_t device, bool out, weft_path *path)
{
    *path = (weft_path){0};
    add(path, device * DEVICE_LINKS + (out ? 2 : 3), c->host.latency);
}

double weft_device_flops(const weft_device_type *d, weft_work kind, weft_dtype dtype)
{
    const double wide[WEFT_WORK_COUNT] = {d->gemm, d->attention, d->conv, 1},
                 bf16[WEFT_WORK_COUNT] = {d->bf16_gemm, d->bf16_attention, d->bf16_conv, 0};
    const bool narrow = dtype == WEFT_BF16 && kind != WEFT_WORK_MEMORY;
    return (narrow && d->bf16_flops > 0 ? d->bf16_flops : d->flops) *
           (narrow && bf16[kind] > 0 ? bf16[kind] : wide[kind]);
}

double weft_device_bytes(const weft_device_type *d)
{
    return d->memory_bandwidth * d->memory_fraction;
}

double weft_device_seconds(const weft_device_type *d, weft_work kind, double flops, double bytes)
{
    return fmax(flops / weft_device_flops(d, kind, WEFT_F32), bytes / weft_device_bytes(d));
}

double weft_kernel_seconds(const weft_device_type *d, weft_work kind, weft_dtype dtype,
                           double flops, double bytes)
{
    return d->launch +
           fmax(flops / weft_device_flops(d, kind, dtype), bytes / weft_device_bytes(d));
}

double weft_op_forward_seconds(const weft_device_type *device, const weft_op_cost *op)
{
    if (op->forward_seconds > 0)
        return op->forward_seconds;
    return weft_device_seconds(device, op->kind, op->forward_flops, op->forward_bytes);
}

double weft_op_backward_seconds(const weft_device_type *device, const weft_op_cost *op)
{
    if (op->backward_seconds > 0)
        return op->backward_seconds;
    return weft_device_seconds(device, op->kind, op->backward_flops, op->backward_bytes);
}

/* Bandwidth and latency per device between nodes when `sharing` devices of a node send at once. */
static weft_link between_nodes(const weft_cluster *c, int64_t sharing)
{
    double bandwidth = 0, latency = 0;
    for (int64_t i = 0; i < c->nics.count; i++) {
        bandwidth += nics(c)[i].bandwidth;
        latency = fmax(latency, 2 * nics(c)[i].latency);
    }
    const double single = c->nics.count ? nics(c)[0].bandwidth : c->link.bandwidth;
    return (weft_link){.bandwidth = fmin(single, bandwidth / (double)sharing), .latency = latency};
}

double weft_cluster_collective_seconds(const weft_cluster *c, weft_collective kind, int64_t ranks,
                                       int64_t per_node, double bytes)
{
    if (ranks <= 1)
        return 0;
    const double n = (double)ranks;
    const int64_t here = per_node < ranks ? per_node : ranks;
    const bool inside = here == ranks;
    /* a ring sends from one device per node, an all-to-all from every device */
    const weft_link ring =
        inside ? c->link : between_nodes(c, c->nics.count > 1 ? c->nics.count : 1);
    const double ring_bandwidth =
        inside ? c->link.bandwidth
               : fmin(c->link.bandwidth,
                      ring.bandwidth * fmin((double)here, fmax(1, (double)c->nics.count)));
    switch (kind) {
    case WEFT_COLL_ALL_REDUCE: /* the shorter of a ring and of rounds of partners */
        return fmin(2 * (n - 1) * ring.latency + 2 * (n - 1) / n * bytes / ring_bandwidth,
                    ceil(log2(n)) * (ring.latency + bytes / ring_bandwidth));
    case WEFT_COLL_ALL_GATHER:
    case WEFT_COLL_REDUCE_SCATTER:
        return (n - 1) * ring.latency + (n - 1) / n * bytes / ring_bandwidth;
    case WEFT_COLL_ALL_TO_ALL: {
        if (inside)
            return (n - 1) * c->link.latency + (n - 1) / n * bytes / c->link.bandwidth;
        const weft_link out = between_nodes(c, here);
        const double local = (double)(here - 1) / n * bytes / c->link.bandwidth;
        const double far = (n - (double)here) / n * bytes / out.bandwidth;
        return (n - 1) * out.latency + local + far;
    }
    case WEFT_COLL_BROADCAST: return ceil(log2(n)) * ring.latency + bytes / ring_bandwidth;
    case WEFT_COLL_SEND: break;
    }
    return ring.latency + bytes / (inside ? c->link.bandwidth : ring.bandwidth);
}
