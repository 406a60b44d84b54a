/* Programs whose values are elsewhere for a while: that memory, and the copies. */
#include "base/scratch_map.h"
#include "runtime/program.h"

int64_t weft_programs_away_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes = programs[i]->plan.away_bytes > bytes ? programs[i]->plan.away_bytes : bytes;
    return bytes;
}

static bool moves(const weft_program *p)
{
    for (int32_t n = 0; n < weft_graph_node_count(p->graph); n++)
        if (p->move[n])
            return true;
    return false;
}

weft_status weft_elsewhere_reserve(const weft_device *device, const char *dir, int64_t bytes,
                                   weft_elsewhere *out)
{
    void *data = NULL;
    if (bytes == 0)
        return WEFT_OK;
    dir = device == &weft_device_host ? dir : NULL;
    if (dir)
        WEFT_TRY(weft_scratch_map(
            dir, bytes, "Another folder for memory.offload, or a larger memory.limit", &data));
    else
        data = device->hollow ? device->alloc(bytes) : weft_alloc_aligned(bytes);
    if (!data) {
        char text[32];
        return weft_fail(WEFT_E_MEMORY,
                         "what is moved away takes %s, which this machine does not "
                         "give",
                         weft_format_bytes(bytes, text));
    }
    *out = (weft_elsewhere){data, bytes, dir != NULL, device};
    return WEFT_OK;
}

void weft_elsewhere_release(weft_elsewhere *e)
{
    if (e->mapped)
        weft_scratch_unmap(e->data, e->bytes);
    else if (e->device && e->device->hollow)
        e->device->free(e->data);
    else
        weft_free(e->data);
    *e = (weft_elsewhere){0};
}

weft_status weft_passing_reserve(weft_passing *passing, weft_program *const *programs, int count)
{
    const int64_t bytes = weft_programs_away_bytes(programs, count);
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || moves(programs[i]);
    if (!any)
        return WEFT_OK;
    WEFT_TRY(weft_mover_create(programs[0]->backend, &passing->mover));
    /* none for states and records, which have their own places */
    return weft_elsewhere_reserve(passing->device, programs[0]->options.away, bytes,
                                  &passing->away);
}

void weft_passing_release(weft_passing *passing)
{
    weft_mover_free(passing->mover);
    weft_elsewhere_release(&passing->away);
}

/* The side that is a file's: a place elsewhere, or a state in the store. */
void weft_program_point_move(const weft_program *p, const instruction *code)
{
    const weft_node *node = weft_graph_node(p->graph, code->node);
    const int32_t outside = node->op == WEFT_OP_FETCH ? node->in[0].id : node->out[0].id,
                  root = weft_memory_plan_root(&p->plan, outside);
    const weft_view *in = &p->view[node->in[0].id], *out = &p->view[node->out[0].id];
    const bool away = p->plan.place[root].region == WEFT_REGION_AWAY,
               mapped = away ? p->passing->away.mapped
                             : !p->wide && p->stored[root] && p->stored[root]->mapped;
    code->move->to = out->data;
    code->move->from = in->data;
    code->move->bytes = weft_shape_count(&in->shape) * weft_dtype_bytes(in->dtype);
    code->move->mapped = !mapped ? NULL : node->op == WEFT_OP_FETCH ? in->data : out->data;
}

weft_away_times weft_program_away_times(const weft_program *p)
{
    weft_away_times times = {0};
    for (int32_t i = 0; i < p->code_count; i++) {
        const instruction *code = &p->code[i];
        if (code->kind != INSTR_MOVE)
            continue;
        const bool back = weft_graph_node(p->graph, code->node)->op == WEFT_OP_FETCH;
        *(back ? &times.back : &times.out) += code->move->bytes;
        times.busy += code->move->finished - code->move->started;
        times.exposed += code->move->waited;
    }
    return times;
}
