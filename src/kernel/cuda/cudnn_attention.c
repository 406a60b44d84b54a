#include "kernel/cuda/cudnn_attention.h"

/* (B,S,H,D) as batch, heads, rows, columns. */
static weft_cudnn_tensor heads_of(int64_t id, const weft_view *v)
{
    const int64_t *d = v->shape.dim;
    return (weft_cudnn_tensor){.id = id,
                               .type = weft_cudnn_type(v->dtype),
                               .rank = 4,
                               .dim = {d[0], d[2], d[1], d[3]},
                               .stride = {d[1] * d[2] * d[3], d[3], d[2] * d[3], 1}};
}

/* lse (B,H,S). */
static weft_cudnn_tensor stats_of(int64_t id, const weft_view *v)
{
    const int64_t *d = v->shape.dim;
    return (weft_cudnn_tensor){.id = id,
                               .type = CUDNN_F32,
                               .rank = 4,
                               .dim = {d[0], d[1], d[2], 1},
                               .stride = {d[1] * d[2], d[2], 1, 1}};
}

/* A float of the host. */
static weft_cudnn_tensor value_of(int64_t id)
{
    return (weft_cudnn_tensor){.id = id,
                               .type = CUDNN_F32,
                               .rank = 4,
                               .dim = {1, 1, 1, 1},
                               .stride = {1, 1, 1, 1},
                               .by_value = true};
}

static void set_tensors(weft_cudnn_builder *b, cudnn_descriptor d, int attribute,
                        const cudnn_descriptor *tensor, int count)
{
    for (int i = 0; i < count; i++)
        weft_cudnn_set_descriptor(b, d, attribute + i, tensor[i]);
}

void weft_cudnn_add_attention(weft_cudnn_builder *b, const weft_kernel_args *args,
                              weft_cudnn_op *op)
{
    const weft_view *in = args->in, *out = args->out;
    const cudnn_descriptor tensors[] = {
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN, &in[0])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN + 1, &in[1])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN + 2, &in[2])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_OUT, &out[0])),
        weft_cudnn_operand(b, op, stats_of(CUDNN_ID_OUT + 1, &out[1])),
        weft_cudnn_operand(b, op, value_of(CUDNN_ID_SCALE)),
    };
    const cudnn_descriptor d = weft_cudnn_new(b, CUDNN_OP_SDPA);
    set_tensors(b, d, CUDNN_SDPA_Q, tensors, 6);
    weft_cudnn_finish(b, d);
    op->graph = weft_cudnn_add_graph(b, &d, 1);
}

void weft_cudnn_add_attention_grad(weft_cudnn_builder *b, const weft_kernel_args *args,
                                   weft_cudnn_op *op)
{
    const weft_view *in = args->in, *out = args->out;
    const cudnn_descriptor tensors[] = {
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN, &in[0])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN + 1, &in[1])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN + 2, &in[2])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN + 3, &in[3])),
        weft_cudnn_operand(b, op, stats_of(CUDNN_ID_IN + 4, &in[4])),
        weft_cudnn_operand(b, op, value_of(CUDNN_ID_SCALE)),
    };
    const cudnn_descriptor gradients[] = {
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_OUT, &out[0])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_OUT + 1, &out[1])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_OUT + 2, &out[2])),
        weft_cudnn_operand(b, op, heads_of(CUDNN_ID_IN + 5, &in[5])),
    };
    const cudnn_descriptor d = weft_cudnn_new(b, CUDNN_OP_SDPA_GRAD);
    set_tensors(b, d, CUDNN_SDPA_GRAD_Q, tensors, 6);
    set_tensors(b, d, CUDNN_SDPA_GRAD_DQ, gradients, 4);
    weft_cudnn_finish(b, d);
    op->graph = weft_cudnn_add_graph(b, &d, 1);
}

/* ---- the gradient in steps ------------------------------------------------------------------- */

enum { ROW_UNIT = 128, STEPS = 18 };
static const int64_t scores_most = (int64_t)4 << 30;
static int64_t scores_usual = (int64_t)256 << 20;

void weft_cudnn_steps_limit(int64_t bytes)
{
    scores_usual = bytes;
}

bool weft_cudnn_in_steps(const weft_kernel_args *args)
{
    const weft_cudnn *library = weft_cudnn_get();
    return args->op == WEFT_OP_ATTENTION_GRAD && library && library->version < WEFT_CUDNN_GRAD;
}

/* Bytes of the gradient of scores of one head, which engines keep in the workspace. */
static int64_t scores_bytes(const weft_kernel_args *args)
{
    const int64_t rows = args->in[0].shape.dim[1], keys = args->in[1].shape.dim[1];
    return (rows + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT *
           ((keys + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT) * 2;
}

bool weft_cudnn_steps_accepts(const weft_kernel_args *args)
{
    return scores_bytes(args) <= scores_most;
}

/* Samples and heads of one execution: as many as the usual workspace has room for, at least one. */
static void choose_part(const weft_kernel_args *args, int64_t *samples, int64_t *heads)
{
    const int64_t *q = args->in[0].shape.dim, one = scores_bytes(args);
    *samples = one * q[0] * q[2] <= scores_usual ? q[0] : 1;
    *heads = q[2];
    while (*heads > 1 && (q[2] % *heads || one * *samples * *heads > scores_usual))
        --*heads;
}

int64_t weft_cudnn_sums_bytes(const weft_kernel_args *args)
{
    int64_t samples, heads;
    if (!weft_cudnn_in_steps(args))
        return 0;
    choose_part(args, &samples, &heads);
    const int64_t bytes = samples * heads * args->in[0].shape.dim[1] * 4;
    return (bytes + CUDNN_WORKSPACE_ALIGNMENT - 1) / CUDNN_WORKSPACE_ALIGNMENT *
           CUDNN_WORKSPACE_ALIGNMENT;
}

int64_t weft_cudnn_steps_workspace(const weft_kernel_args *args)
{
    int64_t samples, heads;
    choose_part(args, &samples, &heads);
    return weft_cudnn_sums_bytes(args) + samples * heads * scores_bytes(args);
}

/* A graph of several operations: its descriptors so far. */
typedef struct steps {
    weft_cudnn_builder *b;
    weft_cudnn_op *op;
    int64_t samples, heads, rows, keys, width;
    int type;
    int64_t next; /* id of the next virtual tensor */
    cudnn_descriptor ops[STEPS];
    int count;
} steps;

/* Rows of a part of the heads of (B,S,H,D). */
static weft_cudnn_tensor part_of(const steps *s, int64_t id, const weft_view *v)
{
    weft_cudnn_tensor t = heads_of(id, v);
    t.dim[0] = s->samples;
    t.dim[1] = s->heads;
    return t;
}

static weft_cudnn_tensor transposed(weft_cudnn_tensor t)
{
    const int64_t dim = t.dim[2], stride = t.stride[2];
    t.dim[2] = t.dim[3];
    t.stride[2] = t.stride[3];
    t.dim[3] = dim;
    t.stride[3] = stride;
    return t;
}

/* A dense tensor of rows and columns for each head. */
static weft_cudnn_tensor dense(const steps *s, int64_t id, int type, int64_t rows, int64_t columns)
{
    const int64_t head = rows * columns;
    return (weft_cudnn_tensor){.id = id,
                               .type = type,
                               .rank = 4,
                               .dim = {s->samples, s->heads, rows, columns},
                               .stride = {s->heads * head, head, columns, 1}};
}

static cudnn_descriptor add_virtual(steps *s, weft_cudnn_tensor t)
{
    t.id = s->next++;
    t.is_virtual = true;
    return weft_cudnn_add_tensor(s->b, &t);
}

static cudnn_descriptor add_scores(steps *s, int type)
{
    return add_virtual(s, dense(s, 0, type, s->rows, s->keys));
}

static cudnn_descriptor add_value(steps *s, int64_t id)
{
    return weft_cudnn_operand(s->b, s->op, value_of(id));
}

static void multiply(steps *s, cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor c)
{
    cudnn_descriptor how = weft_cudnn_new(s->b, CUDNN_MATMUL),
                     d = weft_cudnn_new(s->b, CUDNN_OP_MATMUL);
    const cudnn_descriptor all[] = {a, b, c, how};
    weft_cudnn_set_enum(s->b, how, CUDNN_MATMUL_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_F32);
    weft_cudnn_finish(s->b, how);
    set_tensors(s->b, d, CUDNN_OP_MATMUL_A, all, 4);
    weft_cudnn_finish(s->b, d);
    s->ops[s->count++] = d;
}

/* y = x `mode` b, which is returned. */
static cudnn_descriptor apply(steps *s, int mode, cudnn_descriptor x, cudnn_descriptor b,
                              cudnn_descriptor y)
{
    s->ops[s->count++] = weft_cudnn_add_pointwise(s->b, mode, x, b, y);
    return y;
}

static cudnn_descriptor sum_columns(steps *s, cudnn_descriptor x, cudnn_descriptor y)
{
    cudnn_descriptor how = weft_cudnn_new(s->b, CUDNN_REDUCTION),
                     d = weft_cudnn_new(s->b, CUDNN_OP_REDUCTION);
    const cudnn_descriptor all[] = {x, y, how};
    weft_cudnn_set_enum(s->b, how, CUDNN_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR,
                        CUDNN_REDUCE_ADD);
    weft_cudnn_set_enum(s->b, how, CUDNN_REDUCTION_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_F32);
    weft_cudnn_finish(s->b, how);
    set_tensors(s->b, d, CUDNN_OP_REDUCTION_X, all, 3);
    weft_cudnn_finish(s->b, d);
    s->ops[s->count++] = d;
    return y;
}

/* The elements of x in the order of y. */
static cudnn_descriptor reshape(steps *s, cudnn_descriptor x, cudnn_descriptor y)
{
    cudnn_descriptor d = weft_cudnn_new(s->b, CUDNN_OP_RESHAPE);
    const cudnn_descriptor all[] = {x, y};
    set_tensors(s->b, d, CUDNN_OP_RESHAPE_X, all, 2);
    weft_cudnn_finish(s->b, d);
    s->ops[s->count++] = d;
    return y;
}

static cudnn_descriptor add_transposed_scores(steps *s, cudnn_descriptor x)
{
    return reshape(s, x, add_virtual(s, transposed(dense(s, 0, s->type, s->rows, s->keys))));
}

/* Sums of out * dout of each row, which are 1 * the sums for cuDNN. */
static cudnn_descriptor add_sums(steps *s, cudnn_descriptor out, cudnn_descriptor dout)
{
    weft_cudnn_tensor product = dense(s, 0, CUDNN_F32, s->rows, s->width);
    product.stride[2] = s->heads * s->width; /* as cuDNN expects */
    cudnn_descriptor both = apply(s, CUDNN_MUL, dout, out, add_virtual(s, product));
    cudnn_descriptor sum = sum_columns(s, both, add_virtual(s, dense(s, 0, CUDNN_F32, s->rows, 1)));
    return apply(s, CUDNN_MUL, sum, add_value(s, CUDNN_ID_ONE),
                 weft_cudnn_operand(s->b, s->op, dense(s, CUDNN_ID_SUMS, CUDNN_F32, s->rows, 1)));
}

/* p = exp(scale q k' - lse). */
static cudnn_descriptor add_probabilities(steps *s, const weft_view *lse, cudnn_descriptor q,
                                          cudnn_descriptor keys, cudnn_descriptor scale)
{
    weft_cudnn_tensor stats = stats_of(CUDNN_ID_IN + 4, lse);
    stats.dim[0] = s->samples;
    stats.dim[1] = s->heads;
    stats.alignment = 4; /* parts of the heads begin at any row */
    cudnn_descriptor scores = add_scores(s, CUDNN_F32);
    multiply(s, q, keys, scores);
    scores = apply(s, CUDNN_MUL, scores, scale, add_scores(s, CUDNN_F32));
    scores = apply(s, CUDNN_SUB, scores, weft_cudnn_operand(s->b, s->op, stats),
                   add_scores(s, CUDNN_F32));
    return apply(s, CUDNN_EXP, scores, NULL, add_scores(s, CUDNN_F32));
}

/* ds = scale p (dout v' - sums). */
static cudnn_descriptor add_score_gradient(steps *s, cudnn_descriptor dout, cudnn_descriptor values,
                                           cudnn_descriptor sums, cudnn_descriptor p,
                                           cudnn_descriptor scale)
{
    cudnn_descriptor d = add_scores(s, CUDNN_F32);
    multiply(s, dout, values, d);
    d = apply(s, CUDNN_SUB, d, sums, add_scores(s, CUDNN_F32));
    d = apply(s, CUDNN_MUL, d, p, add_scores(s, CUDNN_F32));
    return apply(s, CUDNN_MUL, d, scale, add_scores(s, s->type));
}

/* The order of the operations is part of the pattern that cuDNN knows. dq is a product of the
 * stored gradient of scores, so that its sums have one order. */
void weft_cudnn_add_attention_steps(weft_cudnn_builder *b, const weft_kernel_args *args,
                                    weft_cudnn_op *op)
{
    const weft_view *in = args->in, *out = args->out;
    choose_part(args, &op->samples, &op->heads);
    steps s = {b,
               op,
               op->samples,
               op->heads,
               in[0].shape.dim[1],
               in[1].shape.dim[1],
               in[0].shape.dim[3],
               weft_cudnn_type(in[0].dtype),
               CUDNN_ID_VIRTUAL,
               {0},
               0};
    const weft_cudnn_tensor keys = part_of(&s, CUDNN_ID_IN + 1, &in[1]);
    const cudnn_descriptor q = weft_cudnn_operand(b, op, part_of(&s, CUDNN_ID_IN, &in[0])),
                           k = weft_cudnn_operand(b, op, transposed(keys)),
                           v = weft_cudnn_operand(b, op,
                                                  transposed(part_of(&s, CUDNN_ID_IN + 2, &in[2]))),
                           o = weft_cudnn_operand(b, op, part_of(&s, CUDNN_ID_IN + 3, &in[3])),
                           dout = weft_cudnn_operand(b, op, part_of(&s, CUDNN_ID_IN + 5, &in[5])),
                           dq = weft_cudnn_operand(b, op, part_of(&s, CUDNN_ID_OUT, &out[0])),
                           dk = weft_cudnn_operand(b, op, part_of(&s, CUDNN_ID_OUT + 1, &out[1])),
                           dv = weft_cudnn_operand(b, op, part_of(&s, CUDNN_ID_OUT + 2, &out[2])),
                           scale = add_value(&s, CUDNN_ID_SCALE);
    const cudnn_descriptor sums = add_sums(&s, o, dout);
    const cudnn_descriptor p = add_probabilities(&s, &in[4], q, k, scale);
    multiply(&s, add_transposed_scores(&s, p), dout, dv);
    const cudnn_descriptor ds = add_score_gradient(&s, dout, v, sums, p, scale);
    multiply(&s, add_transposed_scores(&s, ds), q, dk);
    multiply(&s, ds, reshape(&s, k, add_virtual(&s, keys)), dq);
    op->graph = weft_cudnn_add_graph(b, s.ops, s.count);
}
