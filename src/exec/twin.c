/* Twins: programs of other ranks that share the plan, code and tables of the first program. */
#include "exec/twin.h"

#include "comm/comm_request.h"
#include "exec/program_internal.h"
#include "graph/graph.h"

#include <string.h>

static weft_status take_over(const weft_program *like, weft_program *p)
{
    const int32_t nodes = weft_graph_node_count(p->compiled->graph);
    p->meta = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(p->meta, "a program of another rank"));
    p->binding.request = weft_arena_calloc(p->meta, nodes + 1, sizeof *p->binding.request);
    p->binding.slot =
        weft_arena_calloc(p->meta, p->binding.slot_count + 1, sizeof *p->binding.slot);
    WEFT_TRY(WEFT_ALLOCATED(p->binding.request && p->binding.slot, "a program of another rank"));
    if (p->binding.slot_count)
        memcpy(p->binding.slot, like->binding.slot,
               (size_t)p->binding.slot_count * sizeof *p->binding.slot);
    const weft_compiled *c = p->compiled;
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(&c->mesh, p->rank, at);
    for (int32_t n = 0; n < nodes; n++)
        if (like->binding.request[n]) {
            const weft_attr_comm *attr = weft_graph_node(c->graph, n)->attr;
            WEFT_TRY(weft_comm_request_create_like(like->binding.request[n], at[attr->axis],
                                                   &p->binding.request[n]));
        }
    return WEFT_OK;
}

weft_status weft_program_twin(const weft_program *like, const weft_backend *backend, int rank,
                              weft_program **out)
{
    bool has_copies = false;
    for (int32_t i = 0; i < like->compiled->code_count; i++)
        has_copies = has_copies || like->compiled->code[i].kind == INSTR_COPY;
    if (!backend->device->meta || !like->device->meta || weft_compiled_is_wide(like->compiled) ||
        has_copies || like->compiled->options.profile || like->binding.bound || like->like)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "a program can be shared only on a device without memory, before it is "
                          "bound, without offload and without a profile");
    weft_program *p;
    WEFT_TRY(WEFT_NEW(p, 1, "a program of another rank"));
    *p = *like;
    p->like = like;
    p->rank = rank;
    p->backend = backend;
    p->device = backend->device;
    p->binding.request = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(take_over(like, p));
    *out = p;
    return WEFT_OK;
out:
    weft_program_free(p);
    return status;
}
