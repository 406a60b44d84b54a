/* Twins: a program of another rank with the plan, code and tables of the first one. */
#include "runtime/program.h"

#include <string.h>

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for a program of another rank");
}

static weft_status take_over(const weft_program *like, weft_program *p)
{
    const int32_t nodes = weft_graph_node_count(p->graph);
    p->meta = weft_arena_create();
    if (!p->meta)
        return no_memory();
    p->exchange = weft_arena_alloc(p->meta, (nodes + 1) * (int64_t)sizeof *p->exchange);
    p->slot = weft_arena_alloc(p->meta, (p->slot_count + 1) * (int64_t)sizeof *p->slot);
    if (!p->exchange || !p->slot)
        return no_memory();
    if (p->slot_count)
        memcpy(p->slot, like->slot, (size_t)p->slot_count * sizeof *p->slot);
    for (int32_t n = 0; n < nodes; n++)
        if (like->exchange[n])
            WEFT_TRY(weft_program_create_exchange(p, n));
    return WEFT_OK;
}

weft_status weft_program_twin(const weft_program *like, const weft_backend *backend, int rank,
                              weft_program **out)
{
    bool moves = false;
    for (int32_t i = 0; i < like->code_count; i++)
        moves = moves || like->code[i].kind == INSTR_MOVE;
    if (!backend->device->hollow || !like->device->hollow || like->wide || moves ||
        like->options.profile || like->bound || like->like)
        return weft_fail(WEFT_E_ARG, "a program is shared only on a device without memory, before "
                                     "it is bound, without offload and without a profile");
    weft_program *p = weft_alloc(sizeof *p);
    if (!p)
        return no_memory();
    *p = *like;
    p->like = like;
    p->rank = rank;
    p->backend = backend;
    p->device = backend->device;
    p->exchange = NULL;
    const weft_status_code status = take_over(like, p);
    if (status == WEFT_OK)
        *out = p;
    else
        weft_program_free(p);
    return status;
}
