#include "exec/program_sent.h"

#include "comm/comm_request.h"
#include "comm/comm_segment.h"
#include "exec/program_internal.h"
#include "graph/graph.h"

weft_status weft_axis_span(const weft_mesh *mesh, int index, int axis, int per_node,
                           weft_span *span)
{
    const int count = mesh->axis[axis].size;
    int at[WEFT_MAX_AXES], *node;
    WEFT_TRY(WEFT_NEW(node, count + 1, "the %d ranks of an axis", count));
    weft_mesh_coordinates(mesh, index, at);
    for (int i = 0; i < count; i++) {
        int rank = 0;
        for (int a = 0; a < mesh->axis_count; a++)
            rank = rank * mesh->axis[a].size + (a == axis ? i : at[a]);
        node[i] = rank / per_node;
    }
    *span = weft_span_of(node, count);
    weft_free(node);
    return WEFT_OK;
}

static void add(weft_sent *to, weft_sent x, int64_t times)
{
    to->messages += times * x.messages;
    to->bytes += times * x.bytes;
}

static int axis_of(const weft_program *p, int32_t node)
{
    return ((const weft_attr_comm *)weft_graph_node(p->compiled->graph, node)->attr)->axis;
}

weft_status weft_program_add_planned(const weft_program *p, int per_node, int64_t times,
                                     weft_sent *by_axis)
{
    weft_span span[WEFT_MAX_AXES] = {0};
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        if (p->compiled->code[i].kind != INSTR_START)
            continue;
        weft_comm_request *x = weft_program_exchange(p, &p->compiled->code[i]);
        const int axis = axis_of(p, p->compiled->code[i].node);
        if (!span[axis].ranks)
            WEFT_TRY(weft_axis_span(&p->compiled->mesh, p->rank, axis, per_node, &span[axis]));
        WEFT_TRY(weft_comm_request_plan_on(x, &span[axis]));
        add(&by_axis[axis], weft_comm_request_planned(x), times);
    }
    return WEFT_OK;
}

void weft_program_add_sent(const weft_program *p, int64_t times, weft_sent *by_axis)
{
    for (int32_t i = 0; i < p->compiled->code_count; i++)
        if (p->compiled->code[i].kind == INSTR_START)
            add(&by_axis[axis_of(p, p->compiled->code[i].node)],
                weft_comm_request_sent(weft_program_exchange(p, &p->compiled->code[i])), times);
}
