#include "runtime/program_price.h"

#include "plan/cost/graph_list.h"
#include "runtime/program.h"

#include <math.h>

/* Members of an axis that share a node with its first; ranks fill one node after the other. */
static int64_t together(const weft_priced_links *l, int axis)
{
    int64_t stride = 1;
    const weft_mesh *mesh = l->mesh;
    const int64_t size = mesh->axis[axis].size,
                  devices = l->per_node ? l->per_node : l->cluster->devices;
    for (int a = mesh->axis_count - 1; a > axis; a--)
        stride *= mesh->axis[a].size;
    if (l->cluster->nodes == 1)
        return size;
    const int64_t near = (devices + stride - 1) / stride;
    return near < 1 ? 1 : near > size ? size : near;
}

double weft_exchange_price(const weft_priced_links *l, const char *op, weft_collective kind,
                           int axis, int64_t bytes)
{
    const weft_rates *rates = l->cluster->device.rates;
    const int64_t ranks = l->mesh->axis[axis].size;
    const double measured =
        rates ? weft_rates_wire_seconds(rates, op, ranks, (double)bytes) : (double)NAN;
    return isnan(measured) ? weft_cluster_collective_seconds(l->cluster, kind, ranks,
                                                             together(l, axis), (double)bytes)
                           : measured;
}

static double collective_seconds(const void *self, int axis, weft_comm_op op, int64_t bytes)
{
    static const weft_collective kinds[WEFT_COMM_OP_COUNT] = {
        [WEFT_COMM_ALL_REDUCE] = WEFT_COLL_ALL_REDUCE,
        [WEFT_COMM_ALL_GATHER] = WEFT_COLL_ALL_GATHER,
        [WEFT_COMM_REDUCE_SCATTER] = WEFT_COLL_REDUCE_SCATTER,
        [WEFT_COMM_ALL_TO_ALL] = WEFT_COLL_ALL_TO_ALL,
        [WEFT_COMM_BROADCAST] = WEFT_COLL_BROADCAST,
        [WEFT_COMM_RING_SHIFT] = WEFT_COLL_SEND,
        [WEFT_COMM_SEND] = WEFT_COLL_SEND,
        [WEFT_COMM_RECV] = WEFT_COLL_SEND,
        [WEFT_COMM_RELAY] = WEFT_COLL_SEND};
    const weft_comm_op like = op == WEFT_COMM_RELAY ? WEFT_COMM_SEND : op; /* what is measured */
    return weft_exchange_price(self, weft_comm_op_name(like), kinds[op], axis, bytes);
}

weft_status weft_program_price(const weft_priced_links *links, const weft_program *program,
                               const double *kernel, weft_foreseen *out)
{
    const weft_device_type *d = &links->cluster->device;
    const weft_part_times times = {.kernel = kernel,
                                   .exchange = collective_seconds,
                                   .self = links,
                                   .copy = 2 / (d->memory_bandwidth * d->memory_fraction),
                                   .drag = d->rates ? d->rates->drag : 0,
                                   /* what was profiled computes with all cores, and copies with
                                    * one of them */
                                   .move_drag = d->rates ? 1 : 0};
    return weft_program_foresee(program, &times, out);
}

/* What is more than its kernels take alone is told as waiting: exchanges, and what kernels beside
 * them lose. */
static void take_whole(const weft_program_rate *whole, const weft_foreseen *run,
                       weft_program_cost *out)
{
    out->seconds = whole->seconds;
    out->forward = fmax(0, fmin(run->kernels, whole->seconds) - out->update);
    out->exposed = fmax(0, whole->seconds - run->kernels);
    out->hidden = fmax(0, run->busy - out->exposed);
    out->exact = out->forward + out->update;
}

weft_status weft_program_cost_of(const weft_priced_links *links, const weft_program *program,
                                 bool updates, weft_program_cost *out)
{
    const weft_graph *g = program->graph;
    const int32_t nodes = weft_graph_node_count(g);
    double *seconds = weft_alloc((nodes + 1) * (int64_t)sizeof *seconds);
    weft_graph_part *part = weft_alloc((nodes + 1) * (int64_t)sizeof *part);
    bool *exact = weft_alloc(nodes + 1);
    const weft_program_rate *whole = weft_rates_program(links->cluster->device.rates, g);
    weft_foreseen run = {0};
    weft_status_code status = seconds && part && exact
                                  ? WEFT_OK
                                  : weft_fail(WEFT_E_MEMORY, "no memory for the cost of a program");
    if (status == WEFT_OK)
        status = weft_graph_node_times(g, &links->cluster->device, seconds, part, exact);
    if (status == WEFT_OK)
        status = weft_program_price(links, program, seconds, &run);
    *out = (weft_program_cost){.seconds = run.seconds, .exposed = run.exposed};
    out->hidden = fmax(0, run.busy - run.exposed);
    for (int32_t n = 0; n < nodes && status == WEFT_OK; n++) {
        out->exact += exact[n] ? seconds[n] : 0;
        if (updates || part[n] == WEFT_GRAPH_UPDATE)
            out->update += seconds[n];
    }
    out->forward = run.kernels - out->update;
    if (status == WEFT_OK && whole)
        take_whole(whole, &run, out);
    weft_free(seconds);
    weft_free(part);
    weft_free(exact);
    return status;
}

void weft_program_cost_add(weft_program_cost *to, const weft_program_cost *x, double times)
{
    to->seconds += times * x->seconds;
    to->forward += times * x->forward;
    to->update += times * x->update;
    to->exposed += times * x->exposed;
    to->hidden += times * x->hidden;
    to->exact += times * x->exact;
}
