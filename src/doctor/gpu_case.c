#include "doctor/gpu_case.h"

#include "kernel/cuda/ops.h"
#include "kernel/view.h"

#include <stdio.h>

/* Work of a case: products, and elements of its largest operand. Sizes are reduced until it is the
 * wanted work. The sizes that matter most are reduced only above the most work, and a case above it
 * is not built. */
enum {
    PRODUCTS_WANTED = 1 << 23,
    ATTENTION_WANTED = 1 << 26, /* products of attention, of which a program has few nodes */
    ELEMENTS_WANTED = 1 << 19,
    MOST = 4,        /* times the wanted work */
    TILE = 128,      /* rows and columns of the largest tiles */
    SMALL_TILE = 16, /* the depth of tensor cores in bf16, and twice a vector */
    SIZES = 64       /* different sizes of a node */
};

typedef struct size {
    int64_t from, to;
    bool is_last;     /* of an input: the width of rows */
    bool is_out;      /* of an output: not the depth of a sum */
    bool is_repeated; /* samples and heads, which are computed alike */
    bool is_kept;     /* the op does not allow another size */
} size;

typedef struct plan {
    const weft_kernel_args *args;
    size size[SIZES];
    int count;
    bool divides;      /* the kernel has a workspace for parts of sums */
    bool keeps_ways;   /* cases that divide sums otherwise are not built */
    bool has_integers; /* integers have values; while sizes are sought they are plain inputs */
    weft_graph *graph;
} plan;

/* ---- sizes ----------------------------------------------------------------------------------- */

static size *find_size(plan *p, int64_t from)
{
    for (int i = 0; i < p->count; i++)
        if (p->size[i].from == from)
            return &p->size[i];
    return NULL;
}

/* Dim `d` of q, k or v, or of a matrix. */
static bool is_repeated(weft_op op, int rank, int d)
{
    if (op == WEFT_OP_ATTENTION || op == WEFT_OP_ATTENTION_GRAD)
        return rank == 4 && d % 2 == 0;
    return op == WEFT_OP_MATMUL && d < rank - 2;
}

static void note_view(plan *p, const weft_view *v, bool is_out)
{
    for (int d = 0; view_present(v) && d < v->shape.rank; d++) {
        size *s = find_size(p, v->shape.dim[d]);
        if (!s && p->count < SIZES) {
            s = &p->size[p->count++];
            *s = (size){.from = v->shape.dim[d], .to = v->shape.dim[d]};
        }
        if (s) {
            s->is_last = s->is_last || d == v->shape.rank - 1;
            s->is_out = s->is_out || is_out;
            s->is_repeated = s->is_repeated || is_repeated(p->args->op, v->shape.rank, d);
        }
    }
}

static weft_shape map_shape(plan *p, const weft_shape *shape)
{
    weft_shape to = *shape;
    for (int d = 0; d < shape->rank; d++) {
        const size *s = find_size(p, shape->dim[d]);
        to.dim[d] = s ? s->to : shape->dim[d];
    }
    return to;
}

/* Maps the shapes in attributes. Other lengths stay, and the op rejects sizes that they exceed. */
static void map_attr(plan *p, weft_any_attr *a)
{
    switch (p->args->op) {
    case WEFT_OP_FILL: a->of_fill.shape = map_shape(p, &a->of_fill.shape); break;
    case WEFT_OP_BROADCAST: a->of_broadcast.shape = map_shape(p, &a->of_broadcast.shape); break;
    case WEFT_OP_CONV3D_DX: a->of_conv3d_dx.x_shape = map_shape(p, &a->of_conv3d_dx.x_shape); break;
    case WEFT_OP_RANDOM_NORMAL:
    case WEFT_OP_RANDOM_UNIFORM:
        a->of_random_normal.shape = map_shape(p, &a->of_random_normal.shape);
        a->of_random_normal.global = map_shape(p, &a->of_random_normal.global);
        break;
    default: break;
    }
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool is_segments(const weft_kernel_args *args, int input)
{
    return (args->op == WEFT_OP_ATTENTION && input == 3) ||
           (args->op == WEFT_OP_ATTENTION_GRAD && input == 6);
}

/* The ids of a node are below this number. 0: the op has no ids. */
static int64_t id_limit(const weft_kernel_args *args, const weft_any_attr *attr,
                        const weft_shape *first, const weft_shape *second)
{
    switch (args->op) {
    case WEFT_OP_EMBED:
    case WEFT_OP_UNPACK: return first->dim[0];
    case WEFT_OP_EMBED_GRAD: return attr->of_embed_grad.rows;
    case WEFT_OP_PICK: return first->dim[first->rank - 1];
    case WEFT_OP_PICK_GRAD:
    case WEFT_OP_EXPERT_SLOTS:
    case WEFT_OP_DISPATCH:
    case WEFT_OP_COLLECT: return attr->of_pick_grad.experts;
    case WEFT_OP_EXPERT_MATMUL: return second->dim[0];
    case WEFT_OP_EXPERT_MATMUL_DW: return attr->of_expert_matmul_dw.experts;
    default: return 0;
    }
}

static bool are_experts(weft_op op)
{
    return op != WEFT_OP_EMBED && op != WEFT_OP_EMBED_GRAD && op != WEFT_OP_UNPACK;
}

/* Experts of a token differ, and a few ids of experts are absent. */
static void fill_ids(const weft_kernel_args *args, const weft_any_attr *attr,
                     const weft_shape *shape, int64_t limit, int32_t *id)
{
    const int64_t count = weft_shape_count(shape),
                  last = shape->rank ? shape->dim[shape->rank - 1] : 1,
                  of_expert = shape->rank ? count / (shape->dim[0] ? shape->dim[0] : 1) : 1;
    const bool experts = are_experts(args->op),
               by_expert =
                   (args->op == WEFT_OP_EXPERT_MATMUL || args->op == WEFT_OP_EXPERT_MATMUL_DW) &&
                   attr->of_expert_matmul.by_expert;
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / last;
        id[i] = (int32_t)(by_expert ? i / of_expert
                          : experts ? (row * 5 + i % last) % limit
                                    : i * 7919 % limit);
        if (experts && row % 7 == 3 && i % last == last - 1)
            id[i] = -1;
    }
}

/* Rows {q begin, q end, k begin, k end}, or such rows of each sample. */
static void fill_segments(const weft_shape *shape, int64_t queries, int64_t keys, int64_t batch,
                          int32_t *row)
{
    const bool by_sample = shape->rank == 3;
    const int64_t n = shape->dim[shape->rank - 2], samples = by_sample ? shape->dim[0] : 1,
                  q = by_sample ? queries : queries * batch, k = by_sample ? keys : keys * batch;
    for (int64_t i = 0; i < samples * n; i++) {
        const int64_t s = i % n;
        row[4 * i] = (int32_t)(q * s / n);
        row[4 * i + 1] = (int32_t)(q * (s + 1) / n);
        row[4 * i + 2] = (int32_t)(k * s / n);
        row[4 * i + 3] = (int32_t)(k * (s + 1) / n);
    }
}

static weft_value integers(plan *p, weft_graph *g, const weft_any_attr *attr, const weft_shape *in,
                           int i)
{
    const weft_kernel_args *args = p->args;
    int32_t *data = weft_arena_calloc(weft_graph_arena(g), weft_shape_count(&in[i]) + 1, 4);
    if (!data)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "integers of a case");
    if (is_segments(args, i)) {
        fill_segments(&in[i], in[0].dim[1], in[1].dim[1], in[0].dim[0], data);
    } else {
        const int64_t limit = id_limit(args, attr, &in[0], &in[1]);
        fill_ids(args, attr, &in[i], limit > 0 ? limit : 1, data);
    }
    return weft_constant(g, WEFT_I32, in[i], data);
}

/* Packed weights: bytes whose f16 scales are finite. */
static weft_value packed(weft_graph *g, const weft_shape *shape)
{
    const int64_t count = weft_shape_count(shape);
    uint8_t *data = weft_arena_calloc(weft_graph_arena(g), count + 1, 1);
    if (!data)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "packed weights of a case");
    for (int64_t i = 0; i < count; i++)
        data[i] = (uint8_t)(i * 7919 % 59);
    return weft_constant(g, WEFT_U8, *shape, data);
}

/* Inputs that are not negative: second moments, and operands of roots, logarithms and divisions. */
static bool is_positive(weft_op op, int input)
{
    switch (op) {
    case WEFT_OP_SQRT:
    case WEFT_OP_RSQRT:
    case WEFT_OP_LOG: return true;
    case WEFT_OP_DIV: return input == 1;
    case WEFT_OP_ADAMW: return input == 3;
    default: return false;
    }
}

/* The checker of kernels gives states positive values, and scalars named "limit" large ones. */
static weft_value source(plan *p, weft_graph *g, const weft_any_attr *attr, const weft_shape *in,
                         int i)
{
    const weft_kernel_args *args = p->args;
    const weft_dtype dtype = args->in[i].dtype;
    char name[24];
    if (!view_present(&args->in[i]))
        return WEFT_NONE;
    if (dtype == WEFT_I32 && p->has_integers)
        return integers(p, g, attr, in, i);
    if (dtype == WEFT_U8 && p->has_integers)
        return packed(g, &in[i]);
    snprintf(name, sizeof name, "%s%d", args->op == WEFT_OP_CLIP_SCALE && i > 2 ? "limit" : "in",
             i);
    return is_positive(args->op, i) ? weft_state(g, name, dtype, in[i], (weft_init){0})
                                    : weft_input(g, name, dtype, in[i]);
}

/* out and lse of the attention whose gradient is the node. */
static void emit_attention(const weft_kernel_args *args, weft_graph *g, const weft_any_attr *attr,
                           weft_value *in)
{
    weft_value out[WEFT_MAX_OUTPUTS];
    const weft_value of[5] = {in[0], in[1], in[2], args->in_count > 6 ? in[6] : WEFT_NONE,
                              args->in_count > 8 ? in[8] : WEFT_NONE};
    weft_emit_all(g, WEFT_OP_ATTENTION, of, 5, attr, out);
    in[3] = out[0];
    in[4] = out[1];
}

/* ---- a graph --------------------------------------------------------------------------------- */

static bool has_types(const weft_graph *g, const weft_kernel_args *args, const weft_value *out)
{
    if (weft_graph_check(g) != WEFT_OK)
        return false;
    for (int i = 0; i < args->out_count; i++)
        if (view_present(&args->out[i]) != weft_value_ok(out[i]) ||
            (weft_value_ok(out[i]) && weft_value_get(g, out[i])->dtype != args->out[i].dtype))
            return false;
    return true;
}

/* Emits the node at the sizes of the plan. NULL: the op rejects them, or memory is out. */
static weft_graph *emit(plan *p)
{
    const weft_kernel_args *args = p->args;
    const bool is_gradient = args->op == WEFT_OP_ATTENTION_GRAD;
    weft_graph *g = weft_graph_create();
    weft_value out[WEFT_MAX_OUTPUTS] = {WEFT_NONE, WEFT_NONE, WEFT_NONE};
    weft_any_attr attr = {0};
    weft_shape *shape = weft_calloc(args->in_count + 2, sizeof *shape);
    weft_value *in = weft_calloc(args->in_count + 1, sizeof *in);
    bool fits = false;
    if (!g || !shape || !in)
        goto out;
    if (args->attr)
        memcpy(&attr, args->attr, (size_t)weft_op_get(args->op)->attr_bytes);
    map_attr(p, &attr);
    for (int i = 0; i < args->in_count; i++)
        shape[i] =
            view_present(&args->in[i]) ? map_shape(p, &args->in[i].shape) : args->in[i].shape;
    for (int i = 0; i < args->in_count; i++)
        if (!is_gradient || (i != 3 && i != 4))
            in[i] = source(p, g, &attr, shape, i);
    if (is_gradient)
        emit_attention(args, g, &attr, in);
    weft_emit_all(g, args->op, in, args->in_count, &attr, out);
    fits = has_types(g, args, out);
out:
    weft_free(shape);
    weft_free(in);
    if (fits)
        return g;
    weft_error_clear();
    weft_graph_free(g);
    return NULL;
}

static const weft_node *node_of(const weft_graph *g)
{
    return weft_graph_node(g, weft_graph_node_count(g) - 1);
}

/* Relative to the wanted work. */
static double work_of(const weft_graph *g)
{
    const weft_node *node = node_of(g);
    const bool is_attention = weft_op_get(node->op)->work == WEFT_WORK_ATTENTION;
    const double products = (double)weft_op_get(node->op)->cost(g, node).flops / 2 /
                            (is_attention ? ATTENTION_WANTED : PRODUCTS_WANTED);
    int64_t most = 0;
    for (int32_t v = 0; v < weft_graph_value_count(g); v++) {
        const int64_t count = weft_shape_count(&weft_value_get(g, (weft_value){v})->shape);
        most = count > most ? count : most;
    }
    const double elements = (double)most / ELEMENTS_WANTED;
    return products > elements ? products : elements;
}

/* Whether weft's kernel has a workspace, which it uses for the parts of divided sums. */
static bool divides(const weft_graph *g)
{
    const weft_node *node = node_of(g);
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args args = {.op = node->op,
                             .in = in,
                             .in_count = node->in_count,
                             .out = out,
                             .out_count = node->out_count,
                             .attr = node->attr,
                             .threads = 1};
    if (!weft_cuda_ops[node->op].workspace || node->in_count > WEFT_MAX_INPUTS)
        return false;
    for (int i = 0; i < node->in_count + node->out_count; i++) {
        const bool is_in = i < node->in_count;
        const weft_value v = is_in ? node->in[i] : node->out[i - node->in_count];
        weft_view *view = is_in ? &in[i] : &out[i - node->in_count];
        *view = (weft_view){.shape = {.rank = -1}};
        if (weft_value_ok(v))
            *view = (weft_view){.dtype = weft_value_get(g, v)->dtype,
                                .shape = weft_value_get(g, v)->shape};
    }
    return weft_cuda_ops[node->op].workspace(&args) > 0;
}

/* ---- reduction ------------------------------------------------------------------------------- */

/* Replaces the graph by one with another size. False: the op rejects it. */
static bool resize(plan *p, size *s, int64_t to)
{
    const int64_t before = s->to;
    s->to = to;
    weft_graph *g = emit(p);
    if (g && (!p->keeps_ways || divides(g) == p->divides)) {
        weft_graph_free(p->graph);
        p->graph = g;
        return true;
    }
    weft_graph_free(g);
    s->to = before;
    return false;
}

/* Halves the number of whole tiles until the work is `wanted` or one is left. Keeps the
 * remainder. */
static void reduce(plan *p, size *s, int64_t tile, int wanted)
{
    int64_t tiles = (s->to - 1) / tile;
    const int64_t rest = s->to - tiles * tile;
    while (work_of(p->graph) > wanted && tiles > 1) {
        tiles /= 2;
        if (!resize(p, s, tiles * tile + rest)) {
            s->is_kept = true;
            return;
        }
    }
}

/* Products keep the depth of their sums longest, other ops the width of rows. */
static bool is_later(const plan *p, const size *s)
{
    const weft_work work = weft_op_get(p->args->op)->work;
    return work == WEFT_WORK_MEMORY ? s->is_last : !s->is_out;
}

static size *largest(plan *p, bool later, int64_t least)
{
    size *most = NULL;
    for (int i = 0; i < p->count; i++) {
        size *s = &p->size[i];
        if (!s->is_kept && s->to > least && is_later(p, s) == later && (!most || s->to > most->to))
            most = s;
    }
    return most;
}

static void reduce_all(plan *p, int64_t tile)
{
    for (int later = 0; later < 2; later++) {
        const int wanted = later ? MOST : 1;
        for (size *s; work_of(p->graph) > wanted && (s = largest(p, later, 2 * tile));)
            reduce(p, s, tile, wanted);
    }
    for (int i = 0; i < p->count; i++)
        p->size[i].is_kept = false;
}

static void reduce_repeated(plan *p)
{
    for (int i = 0; i < p->count && work_of(p->graph) > MOST; i++)
        if (p->size[i].is_repeated && p->size[i].to > 2)
            (void)resize(p, &p->size[i], 2);
}

weft_status weft_gpu_case_build(const weft_kernel_args *args, weft_graph **graph)
{
    plan p = {.args = args};
    *graph = NULL;
    for (int i = 0; i < args->in_count; i++)
        note_view(&p, &args->in[i], false);
    for (int i = 0; i < args->out_count; i++)
        note_view(&p, &args->out[i], true);
    p.graph = emit(&p);
    if (!p.graph)
        return WEFT_OK;
    p.divides = divides(p.graph);
    /* A size may be allowed only after another one was reduced: the second pass tries again. */
    for (int pass = 0; pass < 4 && (pass < 2 || work_of(p.graph) > MOST); pass++) {
        p.keeps_ways = pass < 2;
        reduce_all(&p, TILE);
        reduce_repeated(&p);
        if (work_of(p.graph) > MOST)
            reduce_all(&p, SMALL_TILE);
    }
    const bool is_small = work_of(p.graph) <= MOST;
    weft_graph_free(p.graph);
    p.has_integers = true;
    *graph = is_small ? emit(&p) : NULL;
    return WEFT_OK;
}

static void put_value(const weft_graph *g, weft_value v, weft_buf *text)
{
    char shape[96];
    weft_buf_printf(text, " %s", weft_value_ok(v) ? weft_format_value(g, v, shape) : "-");
}

void weft_gpu_case_text(const weft_graph *g, weft_buf *text)
{
    const weft_node *node = node_of(g);
    weft_buf_printf(text, "%s", weft_op_get(node->op)->name);
    weft_op_get(node->op)->print(g, node, text);
    for (int i = 0; i < node->in_count; i++)
        put_value(g, node->in[i], text);
    weft_buf_printf(text, " >");
    for (int i = 0; i < node->out_count; i++)
        put_value(g, node->out[i], text);
}
