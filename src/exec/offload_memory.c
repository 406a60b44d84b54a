/* The offload buffer of programs that are bound together, and their copies. */
#include "exec/offload_memory.h"

#include "base/scratch_map.h"
#include "exec/program_internal.h"
#include "graph/graph.h"
#include "kernel/device.h"
#include "kernel/host.h"

int64_t weft_programs_offloaded_bytes(weft_program *const *programs, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes = programs[i]->compiled->plan.offloaded_bytes > bytes
                    ? programs[i]->compiled->plan.offloaded_bytes
                    : bytes;
    return bytes;
}

static bool has_copies(const weft_program *p)
{
    for (int32_t n = 0; n < weft_graph_node_count(p->compiled->graph); n++)
        if (p->compiled->copy[n])
            return true;
    return false;
}

weft_status weft_offload_buffer_reserve(const weft_device *device, const char *dir, int64_t bytes,
                                        weft_offload_buffer *out)
{
    void *data = NULL;
    if (bytes == 0)
        return WEFT_OK;
    dir = device == &weft_device_host ? dir : NULL;
    if (dir)
        WEFT_TRY(weft_scratch_map(
            dir, bytes, "Another folder for memory.offload, or a larger memory.limit", &data));
    else
        data = device->meta ? device->alloc(device, bytes) : weft_device_alloc_host(device, bytes);
    if (!data) {
        char text[32];
        return weft_error(WEFT_MSG_MEMORY_NEEDED, WEFT_AT(WEFT_NUMBER(bytes)),
                          "the offload buffer needs %s, which this machine does not have",
                          weft_format_bytes(bytes, text));
    }
    *out = (weft_offload_buffer){data, bytes, dir != NULL, device};
    return WEFT_OK;
}

void weft_offload_buffer_release(weft_offload_buffer *e)
{
    if (e->mapped)
        weft_scratch_unmap(e->data, e->bytes);
    else if (e->device && e->device->meta)
        e->device->free(e->device, e->data);
    else if (e->device)
        weft_device_free_host(e->device, e->data);
    *e = (weft_offload_buffer){0};
}

weft_status weft_shared_arena_reserve(weft_shared_arena *shared, weft_program *const *programs,
                                      int count)
{
    const int64_t bytes = weft_programs_offloaded_bytes(programs, count);
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || has_copies(programs[i]);
    if (!any)
        return WEFT_OK;
    WEFT_TRY(weft_copy_engine_create(programs[0]->backend, &shared->copies));
    /* bytes is 0 if only states and slots are copied: they have their own memory */
    return weft_offload_buffer_reserve(shared->device, programs[0]->compiled->options.offload_dir,
                                       bytes, &shared->offload);
}

void weft_shared_arena_release(weft_shared_arena *shared)
{
    weft_copy_engine_free(shared->copies);
    weft_offload_buffer_release(&shared->offload);
}

/* The side outside the arena, in the offload buffer or in the store, may be file-backed. */
void weft_program_rebind_slots(const weft_program *p, const instruction *code)
{
    const weft_node *node = weft_graph_node(p->compiled->graph, code->node);
    const int32_t outside = node->op == WEFT_OP_FETCH ? node->in[0].id : node->out[0].id,
                  root = weft_memory_plan_root(&p->compiled->plan, outside);
    const weft_view *in = &p->compiled->view[node->in[0].id],
                    *out = &p->compiled->view[node->out[0].id];
    const bool offloaded = p->compiled->plan.allocation[root].region == WEFT_REGION_OFFLOAD,
               mapped = offloaded ? p->binding.shared->offload.mapped
                                  : !weft_compiled_is_wide(p->compiled) &&
                                        p->binding.stored[root] && p->binding.stored[root]->mapped;
    code->copy->to = out->data;
    code->copy->from = in->data;
    code->copy->bytes = weft_shape_count(&in->shape) * weft_dtype_bytes(in->dtype);
    code->copy->mapped = !mapped ? NULL : node->op == WEFT_OP_FETCH ? in->data : out->data;
}

weft_offload_times weft_program_offload_times(const weft_program *p)
{
    weft_offload_times times = {0};
    for (int32_t i = 0; i < p->compiled->code_count; i++) {
        const instruction *code = &p->compiled->code[i];
        if (code->kind != INSTR_COPY)
            continue;
        const bool back = weft_graph_node(p->compiled->graph, code->node)->op == WEFT_OP_FETCH;
        *(back ? &times.back : &times.out) += code->copy->bytes;
        times.busy += code->copy->finished - code->copy->started;
        times.exposed += code->copy->waited;
    }
    return times;
}
