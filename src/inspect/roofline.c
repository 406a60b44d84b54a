#include "inspect/roofline.h"

#include "estimate/program_estimate.h"
#include "exec/program_internal.h"
#include "kernel/cuda/chain_kernels.h"
#include "kernel/cuda/launch_window.h"
#include "kernel/cuda/ops.h"
#include "plan/cluster/gpu_peaks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the GPU --------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    weft_gpu_arch arch;
    weft_roofline_measured measured;
} gpus[] = {{"H100",
             WEFT_SM_90,
             {0.79, 0.60, 0.44,
              "H100 80GB HBM3, cuBLASLt and cuDNN 9.28, Wan 1.3B at 81x480x832; bench/gpu.md"}},
            {"H200", WEFT_SM_90},
            {"A100", WEFT_SM_80},
            {"RTX4090", WEFT_SM_89}};

weft_status weft_roofline_begin(weft_arena *arena, const char *cluster, weft_roofline_list *list)
{
    *list = (weft_roofline_list){.arena = arena, .arch = WEFT_SM_NONE};
    WEFT_TRY(weft_cluster_load(arena, cluster, &list->cluster));
    const weft_gpu_peaks *peaks = weft_gpu_peaks_of_type(list->cluster.device.type);
    list->f32_flops = peaks ? peaks->f32_flops : list->cluster.device.flops;
    for (int i = 0; i < WEFT_COUNT(gpus); i++)
        if (!strcmp(gpus[i].type, list->cluster.device.type)) {
            list->arch = gpus[i].arch;
            list->measured = gpus[i].measured;
        }
    return WEFT_OK;
}

/* ---- launches of a node ---------------------------------------------------------------------- */

enum { KERNELS = 256 };

typedef struct roofline_maker {
    weft_roofline_list *list;
    weft_roofline *to;
    const weft_compiled *c;
    weft_graph_part *part;             /* by node */
    double *least, *stated, *measured; /* seconds by node */
    double *launches; /* by node: a launch that n nodes share counts 1 / n for each */
    char **stored;    /* by value: imaginary address of params and states; NULL: elsewhere */
    weft_cuda_window *window; /* NULL: launches are counted only */
    weft_arena *arena;        /* scratch */
} roofline_maker;

/* A queue that describes the launches of a node. */
typedef struct counter {
    weft_cuda_queue queue;
    roofline_maker *maker;
    char kernels[KERNELS];
    int64_t launches;
    int occupancy;
    bool mma;
} counter;

/* Returns what is known of a kernel, from the list if it was launched before. */
static weft_roofline_kernel find_kernel(weft_roofline_list *list, const char *name)
{
    for (int i = 0; i < list->kernels; i++)
        if (!strcmp(list->kernel[i].name, name))
            return list->kernel[i];
    const weft_roofline_kernel found = {name, weft_cuda_kernel_occupancy(name, list->arch),
                                        weft_cuda_kernel_uses_mma(name)};
    if (list->kernels < WEFT_ROOFLINE_KERNELS)
        list->kernel[list->kernels++] = found;
    return found;
}

static weft_status_code count_launch(weft_cuda_queue *queue, const weft_cuda_launch *launch)
{
    counter *c = (counter *)queue;
    const size_t used = strlen(c->kernels);
    const weft_roofline_kernel kernel = find_kernel(c->maker->list, launch->kernel);
    if (c->launches++ == 0 || kernel.occupancy < c->occupancy)
        c->occupancy = kernel.occupancy;
    c->mma |= kernel.mma;
    if (!strstr(c->kernels, launch->kernel))
        snprintf(c->kernels + used, sizeof c->kernels - used, "%s%s", used ? "+" : "",
                 launch->kernel);
    return c->maker->window ? weft_cuda_window_add(c->maker->window, launch) : WEFT_OK;
}

static void split_workspace(weft_cuda_queue *queue, const void *part, int64_t bytes)
{
    roofline_maker *w = ((counter *)queue)->maker;
    if (w->window)
        weft_cuda_window_split(w->window, part, bytes);
}

/* Starts of the areas of an imaginary GPU. */
enum { AREA_BITS = 42 };
static char *area(int64_t number)
{
    return (char *)(uintptr_t)((uint64_t)number << AREA_BITS);
}

/* Gives every param and state an address of its own. */
static weft_status place_stored(roofline_maker *w)
{
    char *next = area(8);
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, w->stored, w->c->plan.count + 1, "the launches"));
    for (int32_t v = 0; v < w->c->plan.count; v++) {
        const weft_allocation *a = &w->c->plan.allocation[v];
        if (a->offset >= 0 || a->alias_of >= 0)
            continue;
        w->stored[v] = next;
        next += weft_aligned(a->bytes) + 64;
    }
    return WEFT_OK;
}

/* A value's address on the imaginary GPU. */
static void *address_of(const roofline_maker *w, weft_value v)
{
    if (!weft_value_ok(v))
        return NULL;
    const int32_t root = weft_memory_plan_root(&w->c->plan, v.id);
    const weft_allocation *a = &w->c->plan.allocation[root];
    char *at = w->stored[root] ? w->stored[root] : area(1 + (int64_t)a->region) + a->offset;
    return at + weft_memory_plan_shift(&w->c->plan, v.id);
}

static void declare(roofline_maker *w, const weft_kernel_args *args, const instruction *code)
{
    const weft_cuda_node node = {code->node, "", ""};
    weft_cuda_window_begin(w->window, &node);
    for (int i = 0; i < args->in_count + args->out_count; i++) {
        const weft_view *v = i < args->in_count ? &args->in[i] : &args->out[i - args->in_count];
        if (v->data)
            weft_cuda_window_access(w->window, v->data,
                                    weft_shape_count(&v->shape) * weft_dtype_bytes(v->dtype),
                                    i >= args->in_count);
    }
    weft_cuda_window_access(w->window, args->workspace, code->workspace_bytes, true);
}

/* The generated kernel, also on a machine without NVRTC. */
static weft_status launch_chain(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const char *name = weft_chain_name(args);
    WEFT_TRY(WEFT_ALLOCATED(name, "the launches"));
    return weft_chain_launch(args, name, queue);
}

static weft_status count_launches(roofline_maker *w, const instruction *code, counter *out)
{
    const weft_compiled *c = w->c;
    const weft_node *node = weft_graph_node(c->graph, code->node);
    weft_view *view;
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, view, node->in_count + node->out_count, "the launches"));
    weft_kernel_args args = code->args;
    weft_compiled_fill_views(c, node, view, view + node->in_count);
    for (int i = 0; i < node->in_count; i++)
        view[i].data = address_of(w, node->in[i]);
    for (int i = 0; i < node->out_count; i++)
        view[node->in_count + i].data = address_of(w, node->out[i]);
    args.in = view;
    args.out = view + node->in_count;
    args.workspace = code->workspace_bytes ? area(7) + code->workspace_at : NULL;
    if (code->kind == INSTR_SLICE) {
        snprintf(out->kernels, sizeof out->kernels, "copy");
        out->launches = 1;
        return WEFT_OK;
    }
    if (!weft_cuda_ops[args.op].launch)
        return weft_error(WEFT_MSG_KERNEL_MISSING,
                          WEFT_AT(.key = node->scope, .value = weft_op_get(node->op)->name),
                          "backend \"cuda\" has no kernel for %s", weft_op_get(node->op)->name);
    if (w->window)
        declare(w, &args, code);
    if (args.op == WEFT_OP_POINTWISE && weft_chain_accepts(&args))
        return launch_chain(&args, &out->queue);
    return weft_cuda_ops[args.op].launch(&args, &out->queue);
}

static weft_status_code share_launch(void *user, const weft_cuda_issue *one)
{
    roofline_maker *w = user;
    for (int i = 0; i < one->joined; i++)
        w->launches[one->member[i]] += 1.0 / one->joined;
    return WEFT_OK;
}

/* Counts the launches of all nodes as a stream of the device joins them. */
static weft_status join_launches(roofline_maker *w)
{
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_cuda_window_open(share_launch, w, &w->window));
    for (int32_t i = 0; i < w->c->code_count; i++) {
        counter counted = {.queue = {.add = count_launch, .split = split_workspace}, .maker = w};
        const instruction *code = &w->c->code[i];
        if (code->kind != INSTR_JOIN && code->kind != INSTR_KERNEL)
            WEFT_GO(weft_cuda_window_flush(w->window));
        if (code->kind == INSTR_KERNEL)
            WEFT_GO(count_launches(w, code, &counted));
        if (code->kind == INSTR_SLICE)
            w->launches[code->node] = 1;
    }
    WEFT_GO(weft_cuda_window_flush(w->window));
out:
    weft_cuda_window_close(w->window);
    w->window = NULL;
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns the row of nodes with this key; a new one has no nodes. NULL: out of memory. */
static weft_roofline_row *find_row(roofline_maker *w, const char *key, const char *kernels,
                                   weft_graph_part part)
{
    weft_roofline *to = w->to;
    for (int64_t i = 0; i < to->count; i++)
        if (to->row[i].part == part && !strcmp(to->row[i].key, key) &&
            !strcmp(to->row[i].kernels, kernels))
            return &to->row[i];
    if (to->count == to->capacity) {
        const int64_t capacity = to->capacity ? 2 * to->capacity : 64;
        weft_roofline_row *larger = weft_arena_calloc(w->list->arena, capacity, sizeof *larger);
        if (!larger)
            return NULL;
        if (to->count)
            memcpy(larger, to->row, (size_t)to->count * sizeof *larger);
        to->row = larger;
        to->capacity = capacity;
    }
    weft_roofline_row *row = &to->row[to->count++];
    *row = (weft_roofline_row){.part = part, .occupancy = -1, .limit = "launch"};
    row->key = weft_arena_strdup(w->list->arena, key);
    row->kernels = weft_arena_strdup(w->list->arena, kernels);
    return row->key && row->kernels ? row : NULL;
}

static bool only_moves_op(weft_op op)
{
    return op == WEFT_OP_CAST || op == WEFT_OP_STOP || op == WEFT_OP_FILL ||
           op == WEFT_OP_BROADCAST || op == WEFT_OP_PERMUTE || op == WEFT_OP_SLICE ||
           op == WEFT_OP_PAD || op == WEFT_OP_CONCAT || op == WEFT_OP_SLICE_OWN;
}

/* Nodes whose results are bytes of their inputs, perhaps in another type. */
static bool only_moves(const weft_node *node)
{
    const weft_attr_pointwise *chain = node->attr;
    bool only = true;
    if (node->op != WEFT_OP_POINTWISE)
        return only_moves_op(node->op);
    for (int s = 0; s < chain->count; s++)
        only = only && only_moves_op(chain->step[s].op);
    return only;
}

static double fraction(const weft_device_type *d, weft_work work)
{
    return work == WEFT_WORK_GEMM        ? d->gemm
           : work == WEFT_WORK_ATTENTION ? d->attention
           : work == WEFT_WORK_CONV      ? d->conv
                                         : 1;
}

/* FLOP/s of products of bf16 on a GPU that was measured; 0: not measured, or other work. */
static double measured_rate(const roofline_maker *w, const weft_node *node)
{
    const weft_roofline_measured *m = &w->list->measured;
    if (!m->source || weft_node_dtype(w->c->graph, node) != WEFT_BF16)
        return 0;
    switch (node->op) {
    case WEFT_OP_LINEAR:
    case WEFT_OP_MATMUL: return m->products * w->list->cluster.device.flops;
    case WEFT_OP_ATTENTION: return m->attention * w->list->cluster.device.flops;
    case WEFT_OP_ATTENTION_GRAD: return m->attention_grad * w->list->cluster.device.flops;
    default: return 0;
    }
}

/* Peak of the type that a node multiplies in; TF32 has half the peak of bf16. */
static double peak_of(const roofline_maker *w, const weft_node *node)
{
    const double flops = w->list->cluster.device.flops;
    if (weft_op_is_tf32(node->op, node->attr))
        return flops / 2;
    return weft_node_dtype(w->c->graph, node) == WEFT_BF16 ? flops : w->list->f32_flops;
}

/* Scratch bytes of weft's own kernels: libraries use less than they may. A generated kernel needs
 * none. */
static int64_t scratch_of(const instruction *code)
{
    int64_t (*own)(const weft_kernel_args *) = weft_cuda_ops[code->args.op].workspace;
    return own && code->args.op != WEFT_OP_POINTWISE ? own(&code->args) : 0;
}

static weft_status add_kernel(roofline_maker *w, const instruction *code)
{
    const weft_node *node = weft_graph_node(w->c->graph, code->node);
    const weft_device_type *d = &w->list->cluster.device;
    const weft_cost cost = weft_node_cost(w->c->graph, code->node);
    const weft_work work = weft_node_work(node);
    const double flops = (double)cost.flops, scratch = 2 * (double)scratch_of(code),
                 bytes = (double)cost.bytes + scratch;
    char key[WEFT_RATE_KEY];
    counter counted = {.queue.add = count_launch, .maker = w, .occupancy = -1};
    WEFT_TRY(count_launches(w, code, &counted));
    weft_rate_key(w->c->graph, code->node, key);
    weft_roofline_row *row = find_row(w, key, counted.kernels, w->part[code->node]);
    WEFT_TRY(WEFT_ALLOCATED(row, "the launches"));
    const bool products = work != WEFT_WORK_MEMORY;
    const double peak = products ? peak_of(w, node) : w->list->f32_flops,
                 own = products && counted.mma ? peak : w->list->f32_flops,
                 launch = d->launch * w->launches[code->node];
    const double by_flops = flops / peak, by_bytes = bytes / d->memory_bandwidth;
    const double least = fmax(launch, fmax(by_flops, by_bytes));
    const double stated =
        fmax(launch, fmax(flops / (own * fraction(d, work)), by_bytes / d->memory_fraction));
    const double rate = measured_rate(w, node);
    const double measured =
        rate > 0 ? fmax(launch, fmax(flops / rate, by_bytes / d->memory_fraction)) : stated;
    row->limit = least <= launch ? "launch" : by_flops > by_bytes ? "flops" : "bytes";
    row->occupancy = counted.occupancy;
    row->nodes++;
    row->launches += w->launches[code->node];
    row->flops += flops;
    row->bytes += bytes;
    row->redundant += only_moves(node) ? bytes : scratch;
    row->least += w->least[code->node] = least;
    row->stated += w->stated[code->node] = stated;
    row->measured += w->measured[code->node] = measured;
    return WEFT_OK;
}

/* A member of a coalesced exchange has no launch of its own. */
static weft_status add_exchange(roofline_maker *w, const instruction *code)
{
    char key[WEFT_RATE_KEY];
    weft_rate_key(w->c->graph, code->node, key);
    weft_roofline_row *row = find_row(w, key, "exchange", w->part[code->node]);
    WEFT_TRY(WEFT_ALLOCATED(row, "the launches"));
    row->exchange = true;
    row->nodes++;
    row->launches += code->kind == INSTR_START;
    row->sent += (double)weft_node_cost(w->c->graph, code->node).wire_bytes;
    return WEFT_OK;
}

static weft_status add_copy(roofline_maker *w, weft_value v, const char *key)
{
    const weft_device_type *d = &w->list->cluster.device;
    const double bytes = 2 * (double)weft_compiled_storage_bytes(w->c, v.id);
    weft_roofline_row *row = find_row(w, key, "copy", WEFT_GRAPH_UPDATE);
    WEFT_TRY(WEFT_ALLOCATED(row, "the launches"));
    row->nodes++;
    row->launches++;
    row->bytes += bytes;
    row->redundant += bytes;
    row->least += fmax(d->launch, bytes / d->memory_bandwidth);
    const double stated = fmax(d->launch, bytes / (d->memory_bandwidth * d->memory_fraction));
    row->stated += stated;
    row->measured += stated;
    return WEFT_OK;
}

static weft_status add_code(roofline_maker *w)
{
    for (int32_t i = 0; i < w->c->code_count; i++) {
        const instruction *code = &w->c->code[i];
        const weft_node *node = weft_graph_node(w->c->graph, code->node);
        switch (code->kind) {
        case INSTR_KERNEL:
        case INSTR_SLICE: WEFT_TRY(add_kernel(w, code)); break;
        case INSTR_START:
        case INSTR_JOIN: WEFT_TRY(add_exchange(w, code)); break;
        case INSTR_COPY: WEFT_TRY(add_copy(w, node->in[0], "offload or fetch")); break;
        case INSTR_WAIT:
        case INSTR_COPY_WAIT: break;
        }
    }
    for (int i = 0; i < w->c->update_count; i++)
        if (!w->c->update[i].in_place)
            WEFT_TRY(add_copy(w, (weft_value){w->c->update[i].source}, "update"));
    return WEFT_OK;
}

/* ---- totals ---------------------------------------------------------------------------------- */

static int by_stated(const void *a, const void *b)
{
    const weft_roofline_row *x = a, *y = b;
    return x->stated != y->stated ? (x->stated < y->stated ? 1 : -1) : strcmp(x->key, y->key);
}

static void add_up(weft_roofline *to)
{
    for (int64_t i = 0; i < to->count; i++) {
        const weft_roofline_row *row = &to->row[i];
        if (row->exchange) {
            to->exchanges += llround(row->launches);
            to->sent += row->sent;
            continue;
        }
        to->sum.nodes += row->nodes;
        to->sum.launches += row->launches;
        to->part[row->part] += row->launches;
        to->sum.flops += row->flops;
        to->sum.bytes += row->bytes;
        to->sum.redundant += row->redundant;
        to->sum.least += row->least;
        to->sum.stated += row->stated;
        to->sum.measured += row->measured;
    }
    qsort(to->row, (size_t)to->count, sizeof *to->row, by_stated);
}

/* Seconds with the exchanges, which run while kernels do. */
static weft_status time_of(const roofline_maker *w, const weft_program *p, const double *kernel,
                           weft_roofline_time *out)
{
    weft_time_estimate t;
    const weft_rank_links links = {&w->list->cluster, &w->c->mesh};
    WEFT_TRY(weft_program_estimate_on(&links, p, kernel, &t));
    *out = (weft_roofline_time){t.seconds, t.kernels, t.busy, t.exposed};
    return WEFT_OK;
}

static weft_status make(roofline_maker *w, const weft_program *p)
{
    const int64_t nodes = weft_graph_node_count(w->c->graph);
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, w->least, nodes + 1, "the launches"));
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, w->stated, nodes + 1, "the launches"));
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, w->measured, nodes + 1, "the launches"));
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, w->part, nodes + 1, "the launches"));
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, w->launches, nodes + 1, "the launches"));
    WEFT_TRY(place_stored(w));
    WEFT_TRY(join_launches(w));
    WEFT_TRY(weft_graph_node_times(w->c->graph, &w->list->cluster.device, w->least, w->part, NULL));
    memset(w->least, 0, (size_t)nodes * sizeof *w->least); /* of launches alone */
    WEFT_TRY(add_code(w));
    add_up(w->to);
    WEFT_TRY(time_of(w, p, w->least, &w->to->least));
    WEFT_TRY(time_of(w, p, w->stated, &w->to->stated));
    return w->list->measured.source ? time_of(w, p, w->measured, &w->to->measured) : WEFT_OK;
}

weft_status weft_roofline_add(weft_roofline_list *list, const weft_program *program,
                              const char *title, double model_flops)
{
    weft_roofline **larger, *to;
    WEFT_TRY(WEFT_ARENA_NEW(list->arena, larger, list->count + 1, "the launches"));
    WEFT_TRY(WEFT_ARENA_NEW(list->arena, to, 1, "the launches"));
    if (list->count)
        memcpy(larger, list->item, (size_t)list->count * sizeof *larger);
    list->item = larger;
    list->item[list->count++] = to;
    to->title = weft_arena_strdup(list->arena, title);
    to->model_flops = model_flops;
    roofline_maker w = {
        .list = list, .to = to, .c = program->compiled, .arena = weft_arena_create()};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(to->title && w.arena, "the launches"));
    WEFT_GO(make(&w, program));
out:
    weft_arena_free(w.arena);
    return status;
}
