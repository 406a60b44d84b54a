#include "plan/cluster/fabric.h"

weft_fabric weft_fabric_from_cluster(const weft_cluster *c)
{
    const weft_nic *nic = c->nics.item;
    weft_fabric f = {.nodes = c->nodes,
                     .per_node = c->devices,
                     .intra = c->link.bandwidth,
                     .intra_latency = c->link.latency,
                     .host = c->host.bandwidth,
                     .host_memory = 0.8 * (double)c->host_memory / (double)c->devices,
                     .memory = (double)c->device.memory,
                     .flops = c->device.flops,
                     .gemm = c->device.gemm,
                     .attention = c->device.attention,
                     .conv = c->device.conv,
                     .memory_rate = c->device.memory_bandwidth * c->device.memory_fraction,
                     .launch = c->device.launch};
    for (int64_t i = 0; i < c->nics.count; i++) {
        f.inter += nic[i].bandwidth / (double)c->devices;
        f.inter_latency = nic[i].latency > f.inter_latency ? nic[i].latency : f.inter_latency;
    }
    return f;
}

double weft_fabric_usable(const weft_fabric *f)
{
    return f->memory * 0.92;
}

double weft_fabric_gather(const weft_fabric *f, int64_t ranks, int64_t together, double bytes)
{
    if (ranks <= 1)
        return 0;
    together = together < 1 ? 1 : together > ranks ? ranks : together;
    const double nodes = (double)((ranks + together - 1) / together);
    /* a ring sends all parts but one over each link; the ranks of a node share the links between
     * nodes */
    const double passed = bytes * ((double)ranks - 1) / (double)ranks;
    double seconds = together > 1 ? passed / f->intra : 0;
    double latency = ((double)ranks - nodes) * f->intra_latency;
    if (nodes > 1) {
        const double between = passed / ((double)together * f->inter);
        seconds = between > seconds ? between : seconds;
        latency += (nodes - 1) * f->inter_latency;
    }
    return seconds + latency;
}
