#include "runtime/foresee.h"

#include "runtime/comm_internal.h"
#include "runtime/program.h"

typedef struct wall {
    double now;
    double wire; /* when exchanges under way are done, */
    double move; /* and copies elsewhere and back */
    weft_foreseen sum;
} wall;

/* A kernel: beside an exchange it has only the share of the time that this leaves. */
static void compute(wall *w, double seconds, double drag)
{
    const double beside = w->wire > w->now ? w->wire - w->now : 0;
    const bool covered = seconds < beside * (1 - drag);
    const double lost = covered ? seconds / (1 - drag) - seconds : drag * beside;
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

weft_status weft_program_foresee(const weft_program *p, const weft_part_times *times,
                                 weft_foreseen *out)
{
    wall w = {0};
    const int64_t nodes = weft_graph_node_count(p->graph);
    double *done = weft_alloc((nodes + 1) * (int64_t)sizeof *done); /* by node that starts one */
    if (!done)
        return weft_fail(WEFT_E_MEMORY, "no memory for the clock of a program");
    for (int32_t i = 0; i < p->code_count; i++) {
        const instruction *code = &p->code[i];
        switch (code->kind) {
        case INSTR_KERNEL:
        case INSTR_SLICE: compute(&w, times->kernel[code->node], times->drag); break;
        case INSTR_START: {
            const weft_attr_comm *attr = weft_graph_node(p->graph, code->node)->attr;
            const weft_exchange *x = weft_program_exchange(p, code);
            const double seconds =
                x->ranks > 1 ? times->exchange(times->self, attr->axis, x->op, x->bytes) : 0;
            w.sum.busy += seconds;
            w.wire = (w.wire > w.now ? w.wire : w.now) + seconds;
            done[code->node] = w.wire;
            break;
        }
        case INSTR_JOIN: break;
        case INSTR_MOVE: {
            const weft_value_info *info =
                weft_value_get(p->graph, weft_graph_node(p->graph, code->node)->in[0]);
            const double seconds = times->copy * (double)(weft_shape_count(&info->shape) *
                                                          weft_dtype_bytes(info->dtype));
            w.move = (w.move > w.now ? w.move : w.now) + seconds;
            done[code->node] = w.move;
            wait_until(&w, w.now + times->move_drag * seconds); /* lost by the kernels beside it */
            break;
        }
        case INSTR_MOVED: wait_until(&w, done[code->node]); break;
        case INSTR_WAIT: wait_until(&w, done[p->begins[code->node]]); break;
        }
    }
    weft_free(done);
    for (int i = 0; i < p->update_count; i++) {
        const weft_value_info *info = weft_value_get(p->graph, (weft_value){p->update[i].source});
        const int64_t bytes = weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
        if (!p->update[i].in_place)
            compute(&w, times->copy * (double)bytes, times->drag);
    }
    w.sum.seconds = w.now;
    *out = w.sum;
    return WEFT_OK;
}
