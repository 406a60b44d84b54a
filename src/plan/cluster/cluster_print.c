/* A cluster as text. */
#include "plan/cluster/cluster_print.h"

#include "plan/cluster/cluster_path.h"

#include <math.h>
#include <stdio.h>

const char *weft_cluster_rate_text(double bytes_per_second, char text[32])
{
    if (!isfinite(bytes_per_second))
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, "%.4g GB/s", bytes_per_second / 1e9);
    return text;
}

/* Prints the narrowest link and the latency of a message from device 0. */
static void print_route(const weft_cluster *c, const char *name, int64_t to)
{
    weft_path path;
    weft_cluster_path(c, 0, to, &path);
    double bandwidth = INFINITY;
    for (int32_t i = 0; i < path.count; i++)
        bandwidth = fmin(bandwidth, weft_cluster_link_bandwidth(c, path.link[i]));
    char text[32];
    printf("  device 0 -> %-6" PRId64 " %-22s %12s  %6.2f us  over", to, name,
           weft_cluster_rate_text(bandwidth, text), 1e6 * path.latency);
    for (int32_t i = 0; i < path.count; i++) {
        char link[64];
        weft_cluster_link_name(c, path.link[i], link);
        printf("%s %s", i ? "," : "", link);
    }
    printf("\n");
}

void weft_cluster_print(const weft_cluster *c)
{
    const weft_device_type *d = &c->device;
    const weft_nic *nic = c->nics.item;
    const weft_switch *s = c->switches.item;
    char a[32], b[32], id[20];
    weft_cluster_id(c, id);
    printf("%s: %" PRId64 " node%s x %" PRId64 " %s = %" PRId64 " devices  (id %s)\n", c->name,
           c->nodes, c->nodes > 1 ? "s" : "", c->devices, d->type, weft_cluster_devices(c), id);
    printf("device: %s, %.4g TFLOP/s, memory %s\n", weft_format_bytes(d->memory, a),
           d->flops / 1e12, weft_cluster_rate_text(d->memory_bandwidth, b));
    printf("  achieved: products %.2f, attention %.2f, convolutions %.2f of the FLOP/s, %.2f of "
           "the memory\n",
           d->gemm, d->attention, d->conv, d->memory_fraction);
    printf("inside a node: %s, %.3g us; host: %s\n", weft_cluster_rate_text(c->link.bandwidth, a),
           1e6 * c->link.latency, weft_cluster_rate_text(c->host.bandwidth, b));
    for (int64_t i = 0; i < c->nics.count; i++) {
        printf("nic %" PRId64 ": %s, %.3g us, on %s", i,
               weft_cluster_rate_text(nic[i].bandwidth, a), 1e6 * nic[i].latency,
               nic[i].switch_name);
        for (int64_t k = 0; k < nic[i].distance.count; k++)
            printf("%s%" PRId64, k ? " " : "; hops from devices ", nic[i].distance.item[k]);
        printf("\n");
    }
    for (int64_t i = 0; i < c->switches.count; i++) {
        printf("%*sswitch %s", (int)(2 * s[i].depth), "", s[i].name);
        if (s[i].parent >= 0)
            printf(" -> %s, %s, %.3g us", s[i].up, weft_cluster_rate_text(s[i].bandwidth, a),
                   1e6 * s[i].latency);
        printf("\n");
    }
    printf("ways:\n");
    if (c->devices > 1)
        print_route(c, "same node", 1);
    if (c->nodes > 1) {
        print_route(c, "next node, same place", c->devices);
        if (c->devices > 1)
            print_route(c, "next node, next place", c->devices + 1);
    }
}
