#include "estimate/program_estimate.h"

#include "comm/comm_internal.h"
#include "exec/program_internal.h"
#include "plan/cluster/cluster_path.h"
#include "plan/cost/graph_list.h"

#include <math.h>

/* ---- clock ----------------------------------------------------------------------------------- */

typedef struct wall {
    double now;
    double wire; /* end of communication in progress */
    double copy; /* end of offload copies */
    weft_time_estimate sum;
} wall;

/* Runs a kernel. While communication runs, the kernel has only the share of time that communication
 * leaves. */
static void compute(wall *w, double seconds, double slowdown)
{
    const double overlap = w->wire > w->now ? w->wire - w->now : 0;
    const bool covered = seconds < overlap * (1 - slowdown);
    const double lost = covered ? seconds / (1 - slowdown) - seconds : slowdown * overlap;
    w->sum.kernels += seconds;
    w->sum.exposed += lost;
    w->now += seconds + lost;
}

static void wait_until(wall *w, double done)
{
    if (done <= w->now)
        return;
    w->sum.exposed += done - w->now;
    w->now = done;
}

weft_status weft_program_estimate(const weft_program *p, const weft_part_times *times,
                                  weft_time_estimate *out)
{
    wall w = {0};
    const int64_t nodes = weft_graph_node_count(p->compiled->graph);
    double *done; /* completion time by node that starts a request */
    WEFT_TRY(WEFT_NEW(done, nodes + 1, "the clock of a program"));
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        const instruction *code = &p->compiled->code[i];
        switch (code->kind) {
        case INSTR_KERNEL:
        case INSTR_SLICE: compute(&w, times->kernel[code->node], times->slowdown); break;
        case INSTR_START: {
            const weft_attr_comm *attr = weft_graph_node(p->compiled->graph, code->node)->attr;
            const weft_comm_request *x = weft_program_exchange(p, code);
            const double seconds = x->spec.ranks > 1 ? times->collective(times->self, attr->axis,
                                                                         x->spec.op, x->spec.bytes)
                                                     : 0;
            w.sum.busy += seconds;
            w.wire = (w.wire > w.now ? w.wire : w.now) + seconds;
            done[code->node] = w.wire;
            break;
        }
        case INSTR_JOIN: break;
        case INSTR_COPY: {
            const weft_value_info *info = weft_value_get(
                p->compiled->graph, weft_graph_node(p->compiled->graph, code->node)->in[0]);
            const double seconds = times->copy * (double)(weft_shape_count(&info->shape) *
                                                          weft_dtype_bytes(info->dtype));
            w.copy = (w.copy > w.now ? w.copy : w.now) + seconds;
            done[code->node] = w.copy;
            wait_until(&w, w.now + times->copy_slowdown * seconds); /* lost by overlapped kernels */
            break;
        }
        case INSTR_COPY_WAIT: wait_until(&w, done[code->node]); break;
        case INSTR_WAIT: wait_until(&w, done[p->compiled->begins[code->node]]); break;
        }
    }
    weft_free(done);
    for (int i = 0; i < p->compiled->update_count; i++) {
        const weft_value_info *info =
            weft_value_get(p->compiled->graph, (weft_value){p->compiled->update[i].source});
        const int64_t bytes = weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
        if (!p->compiled->update[i].in_place)
            compute(&w, times->copy * (double)bytes, times->slowdown);
    }
    w.sum.seconds = w.now;
    *out = w.sum;
    return WEFT_OK;
}

/* ---- on a cluster ---------------------------------------------------------------------------- */

/* Number of ranks of an axis on the node of its first rank. Ranks fill one node after the other. */
static int64_t together(const weft_rank_links *l, int axis)
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

double weft_comm_estimate(const weft_rank_links *l, const char *op, weft_collective kind, int axis,
                          int64_t bytes)
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
    const weft_comm_op like = op == WEFT_COMM_RELAY ? WEFT_COMM_SEND : op; /* measured operation */
    return weft_comm_estimate(self, weft_comm_op_name(like), kinds[op], axis, bytes);
}

weft_status weft_program_estimate_on(const weft_rank_links *links, const weft_program *program,
                                     const double *kernel, weft_time_estimate *out)
{
    const weft_device_type *d = &links->cluster->device;
    const weft_part_times times = {.kernel = kernel,
                                   .collective = collective_seconds,
                                   .self = links,
                                   .copy = 2 / (d->memory_bandwidth * d->memory_fraction),
                                   .slowdown = d->rates ? d->rates->slowdown : 0,
                                   /* profiles use all cores to compute and one core to copy */
                                   .copy_slowdown = d->rates ? 1 : 0};
    return weft_program_estimate(program, &times, out);
}

/* Uses the measured time of the program. The time that exceeds its kernels alone counts as exposed:
 * waits for communication, and slowdown of overlapped kernels. */
static void take_whole(const weft_program_rate *whole, const weft_time_estimate *run,
                       weft_program_cost *out)
{
    out->seconds = whole->seconds;
    const double before = out->compute;
    out->compute = fmax(0, fmin(run->kernels, whole->seconds) - out->update);
    out->backward *= before > 0 ? out->compute / before : 0;
    out->exposed = fmax(0, whole->seconds - run->kernels);
    out->hidden = fmax(0, run->busy - out->exposed);
    out->exact = out->compute + out->update;
}

weft_status weft_program_cost_of(const weft_rank_links *links, const weft_program *program,
                                 bool updates, weft_program_cost *out)
{
    const weft_graph *g = program->compiled->graph;
    const int32_t nodes = weft_graph_node_count(g);
    double *seconds = weft_calloc(nodes + 1, sizeof *seconds);
    weft_graph_part *part = weft_calloc(nodes + 1, sizeof *part);
    bool *exact = weft_alloc(nodes + 1);
    const weft_program_rate *whole = weft_rates_program(links->cluster->device.rates, g);
    weft_time_estimate run = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(seconds && part && exact, "the cost of a program"));
    WEFT_GO(weft_graph_node_times(g, &links->cluster->device, seconds, part, exact));
    WEFT_GO(weft_program_estimate_on(links, program, seconds, &run));
    *out = (weft_program_cost){.seconds = run.seconds, .exposed = run.exposed};
    out->hidden = fmax(0, run.busy - run.exposed);
    for (int32_t n = 0; n < nodes; n++) {
        out->exact += exact[n] ? seconds[n] : 0;
        if (updates || part[n] == WEFT_GRAPH_UPDATE)
            out->update += seconds[n];
        else if (part[n] == WEFT_GRAPH_BACKWARD)
            out->backward += seconds[n];
    }
    out->compute = run.kernels - out->update;
    if (whole)
        take_whole(whole, &run, out);
out:
    weft_free(seconds);
    weft_free(part);
    weft_free(exact);
    return status;
}

void weft_program_cost_add(weft_program_cost *to, const weft_program_cost *x, double times)
{
    to->seconds += times * x->seconds;
    to->compute += times * x->compute;
    to->backward += times * x->backward;
    to->update += times * x->update;
    to->exposed += times * x->exposed;
    to->hidden += times * x->hidden;
    to->exact += times * x->exact;
}
