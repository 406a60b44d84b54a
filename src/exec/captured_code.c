#include "exec/captured_code.h"

#include "graph/graph.h"
#include "kernel/device_graphs.h"

/* A part of one instruction would be no faster. */
enum { LEAST = 2 };

typedef struct part {
    int32_t end; /* 0: no part begins here */
    weft_device_graph *graph;
} part;

struct weft_captured {
    bool refused; /* the device could not record */
    part at[];    /* by instruction */
};

static bool may_record(const instruction *code)
{
    return code->kind == INSTR_KERNEL || code->kind == INSTR_SLICE || code->kind == INSTR_JOIN;
}

/* True if runs of the program need no call between instructions. */
static bool is_plain(const weft_program *p)
{
    return p->device->graphs && p->run.runs > p->run.moved && !p->run.moment && !p->run.written &&
           !p->compiled->options.guard && !p->like;
}

static weft_status make_table(weft_program *p)
{
    const int64_t count = p->compiled->code_count + 1;
    if (p->run.captured)
        return WEFT_OK;
    p->run.captured =
        weft_calloc(1, sizeof *p->run.captured + (size_t)count * sizeof *p->run.captured->at);
    return WEFT_ALLOCATED(p->run.captured, "the recorded code of a program");
}

static int32_t end_of(const weft_program *p, int32_t at)
{
    int32_t end = at;
    while (end < p->compiled->code_count && may_record(&p->compiled->code[end]))
        end++;
    return end;
}

/* Names the nodes of the part for errors, around its launch. */
static void launch(const weft_program *p, int32_t at, const part *one)
{
    const int32_t nodes[] = {p->compiled->code[at].node, p->compiled->code[one->end - 1].node};
    for (int i = 0; i < 2; i++) {
        const weft_node *node = weft_graph_node(p->compiled->graph, nodes[i]);
        if (p->device->mark)
            p->device->mark(p->binding.stream, nodes[i], weft_op_get(node->op)->name, node->scope);
        if (i == 0)
            p->device->graphs->launch(p->binding.stream, one->graph);
    }
}

static weft_status run_range(weft_program *p, int32_t at, int32_t end, weft_run_instruction run)
{
    for (int32_t i = at; i < end; i++)
        WEFT_TRY(run(p, &p->compiled->code[i]));
    return WEFT_OK;
}

static weft_status record(weft_program *p, int32_t at, int32_t end, weft_run_instruction run)
{
    const weft_device_graphs *graphs = p->device->graphs;
    weft_device_graph *graph = NULL;
    if (graphs->begin(p->binding.stream) != WEFT_OK) {
        p->run.captured->refused = true;
        return WEFT_OK;
    }
    const weft_status_code status = run_range(p, at, end, run);
    if (graphs->end(p->binding.stream, &graph) != WEFT_OK)
        p->run.captured->refused = true;
    else if (status != WEFT_OK)
        graphs->free(graph);
    else
        p->run.captured->at[at] = (part){end, graph};
    return status;
}

weft_status weft_captured_run(weft_program *p, int32_t at, weft_run_instruction run, int32_t *end)
{
    *end = at;
    if (!is_plain(p))
        return WEFT_OK;
    WEFT_TRY(make_table(p));
    const part *one = &p->run.captured->at[at];
    const int32_t last = one->end ? one->end : end_of(p, at);
    if (!one->end && !p->run.captured->refused && last - at >= LEAST)
        WEFT_TRY(record(p, at, last, run));
    if (!one->end)
        return WEFT_OK;
    launch(p, at, one);
    *end = one->end;
    return WEFT_OK;
}

void weft_captured_drop(weft_program *p)
{
    for (int32_t i = 0; p->run.captured && i < p->compiled->code_count; i++)
        if (p->run.captured->at[i].end)
            p->device->graphs->free(p->run.captured->at[i].graph);
    weft_free(p->run.captured);
    p->run.captured = NULL;
}
