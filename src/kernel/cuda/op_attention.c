/* Host code of attention. */
#include "kernel/cuda/op_attention.h"

#include "kernel/cuda/op_launch.h"

static const weft_view *optional(const weft_kernel_args *args, int i)
{
    return args->in_count > i && view_present(&args->in[i]) ? &args->in[i] : NULL;
}

/* Whether a row of a head is read and written in accesses of 16 bytes. */
static bool in_vectors(const weft_kernel_args *args, int inputs)
{
    if (args->in[0].shape.dim[3] % 8 != 0)
        return false;
    for (int i = 0; i < inputs; i++)
        if (i != 4 && !weft_cuda_in_eights(&args->in[i])) /* input 4 of the gradient is lse */
            return false;
    return true;
}

static attention_args attention_of(const weft_kernel_args *args, int segments, int bias)
{
    const weft_attr_attention *attr = args->attr;
    const weft_shape *q = &args->in[0].shape, *k = &args->in[1].shape;
    const weft_view *list = optional(args, segments), *added = optional(args, bias);
    return (attention_args){.q = weft_cuda_ref(&args->in[0]),
                            .k = weft_cuda_ref(&args->in[1]),
                            .v = weft_cuda_ref(&args->in[2]),
                            .bias = added ? added->data : NULL,
                            .segments = list ? list->data : NULL,
                            .batch = q->dim[0],
                            .queries = q->dim[1],
                            .keys = k->dim[1],
                            .heads = q->dim[2],
                            .width = q->dim[3],
                            .segment_count = list ? view_count(list) / 4 : q->dim[0],
                            .item_segments = list && list->shape.rank == 3 ? list->shape.dim[1] : 0,
                            .by_queries = weft_cuda_divisor(q->dim[1] ? (uint32_t)q->dim[1] : 1),
                            .scale = (float)attr->scale,
                            .causal = attr->causal};
}

static weft_status_code add_parts(const attention_args *a, const char *kernel, int64_t parts,
                                  weft_cuda_queue *queue)
{
    const int64_t grid[3] = {parts, a->heads, weft_cuda_blocks(a->width, ATTENTION_COLUMNS)};
    return weft_cuda_add_grid(queue, kernel, grid, ATTENTION_THREADS, a, sizeof *a);
}

static weft_status_code add_rows(const attention_args *a, const char *kernel, int64_t rows,
                                 weft_cuda_queue *queue)
{
    return add_parts(a, kernel, weft_cuda_blocks(rows, ATTENTION_ROWS), queue);
}

/* ---- on tensor cores ------------------------------------------------------------------------- */

/* Whether the first inputs and outputs, which are rows of heads, allow the kernels of tensor cores:
 * bf16, or f32 that may be rounded to TF32. */
static bool is_flash(const weft_kernel_args *args, const attention_args *a, int inputs, int outputs)
{
    const int64_t most = (int64_t)1 << 29;
    const weft_dtype type = ((const weft_attr_attention *)args->attr)->tf32 ? WEFT_F32 : WEFT_BF16;
    bool is = a->width <= FLASH_WIDTH && a->scale > 0 && a->batch * a->queries < most &&
              a->batch * a->keys < most;
    for (int i = 0; i < inputs; i++)
        is = is && (i == 4 || args->in[i].dtype == type); /* input 4 of the gradient is lse */
    for (int o = 0; o < outputs; o++)
        is = is && args->out[o].dtype == type;
    return is;
}

static bool outputs_in_vectors(const weft_kernel_args *args, int outputs)
{
    for (int o = 0; o < outputs; o++)
        if (!weft_cuda_in_eights(&args->out[o]))
            return false;
    return true;
}

/* A kernel of tensor cores. Heads are padded to 64 or 128 columns. Tiles of the side that arrives,
 * in two stages, have 64 or 32 rows of bf16, and half of the rows in f32. */
typedef struct flash_kernel {
    const char *name[2][2]; /* bf16, f32; up to 64 columns, up to 128 */
    int rows;               /* of a block */
    int kept[2];            /* their tiles that stay in shared memory, of bf16 and of f32 */
    int extra;              /* bytes of an arriving row for its scalars */
} flash_kernel;

#define FLASH_NAMES(name)                                                                          \
    {                                                                                              \
        {name "_64", name "_128"},                                                                 \
        {                                                                                          \
            name "_tf32_64", name "_tf32_128"                                                      \
        }                                                                                          \
    }

static const flash_kernel
    block_forward = {FLASH_NAMES("weft_flash_blocks"), FLASH_GRAD_ROWS, {1, 1}, 0},
    block_dq = {FLASH_NAMES("weft_flash_blocks_dq"), FLASH_GRAD_ROWS, {0, 2}, 0},
    block_dkv = {FLASH_NAMES("weft_flash_blocks_dkv"), FLASH_GRAD_ROWS, {2, 2}, 8};
static const flash_kernel flash_forward = {FLASH_NAMES("weft_flash"), FLASH_ROWS, {1, 1}, 0},
                          flash_dq = {FLASH_NAMES("weft_flash_dq"), FLASH_GRAD_ROWS, {0, 2}, 0},
                          flash_dkv = {FLASH_NAMES("weft_flash_dkv"), FLASH_GRAD_ROWS, {2, 2}, 8};

/* `parts`: blocks along the rows of all batch items. */
static weft_status_code add_flash(const attention_args *a, const flash_kernel *k, int64_t parts,
                                  weft_cuda_queue *queue)
{
    const bool large = a->width > 64, tf32 = a->q.type == WEFT_F32;
    const int row = (large ? 256 : 128) << tf32, tile = (large ? 32 : 64) >> tf32;
    const weft_cuda_blocks_of blocks = {
        {parts, a->heads, 1},
        FLASH_THREADS,
        (uint32_t)(k->kept[tf32] * k->rows * row + 2 * tile * (2 * row + k->extra))};
    return weft_cuda_add_blocks(queue, k->name[tf32][large], &blocks, a, sizeof *a);
}

static int64_t parts_of(int64_t rows, const flash_kernel *k)
{
    return weft_cuda_blocks(rows, k->rows);
}

/* ---- ops ------------------------------------------------------------------------------------- */

weft_status_code weft_cuda_attention(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    attention_args a = attention_of(args, 3, 4);
    a.out = weft_cuda_ref(&args->out[0]);
    a.lse = args->out[1].data;
    a.vector = in_vectors(args, 3);
    if (is_flash(args, &a, 3, 1)) {
        a.vector = a.vector && outputs_in_vectors(args, 1);
        return add_flash(&a, &flash_forward, parts_of(a.batch * a.queries, &flash_forward), queue);
    }
    return add_rows(&a, "weft_attention", a.batch * a.queries, queue);
}

/* Whether the kernels in f32 compute delta from differences: its products cost little then. */
static bool has_few_keys(const weft_kernel_args *args)
{
    enum { FEW_KEYS = 64 };
    return args->in[1].shape.dim[1] <= FEW_KEYS;
}

int64_t weft_cuda_attention_grad_workspace(const weft_kernel_args *args)
{
    return view_count(&args->in[4]) * (has_few_keys(args) ? 8 : 4); /* delta, base */
}

/* Sets the arguments of a gradient, and adds the launch of delta. Inputs `after` and after it are
 * segments and the bias. */
static weft_status_code add_delta(const weft_kernel_args *args, attention_args *a, int after,
                                  weft_cuda_queue *queue)
{
    const weft_view *dlse = optional(args, 7);
    *a = attention_of(args, after, after + 2);
    a->out = weft_cuda_ref(&args->in[3]);
    a->lse = args->in[4].data;
    a->dout = weft_cuda_ref(&args->in[5]);
    a->dlse = dlse ? dlse->data : NULL;
    a->delta = args->workspace;
    a->dq = weft_cuda_ref(&args->out[0]);
    a->dk = weft_cuda_ref(&args->out[1]);
    a->dv = weft_cuda_ref(&args->out[2]);
    a->vector = in_vectors(args, 6);
    const int64_t grid[3] = {weft_cuda_blocks(a->batch * a->queries, ATTENTION_THREADS / 32),
                             a->heads, 1};
    return weft_cuda_add_grid(queue, "weft_attention_delta", grid, ATTENTION_THREADS, a, sizeof *a);
}

weft_status_code weft_cuda_attention_grad(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    attention_args a;
    WEFT_TRY(add_delta(args, &a, 6, queue));
    if (is_flash(args, &a, 6, 3)) {
        a.vector = a.vector && outputs_in_vectors(args, 3);
        WEFT_TRY(add_flash(&a, &flash_dq, parts_of(a.batch * a.queries, &flash_dq), queue));
        return add_flash(&a, &flash_dkv, parts_of(a.batch * a.keys, &flash_dkv), queue);
    }
    if (has_few_keys(args)) {
        const int64_t few[3] = {weft_cuda_blocks(a.batch * a.queries, ATTENTION_ROWS), a.heads, 1};
        a.base = a.delta + view_count(&args->in[4]);
        WEFT_TRY(weft_cuda_add_grid(queue, "weft_attention_delta_few", few, ATTENTION_THREADS, &a,
                                    sizeof a));
    }
    WEFT_TRY(add_rows(&a, "weft_attention_dq", a.batch * a.queries, queue));
    return add_rows(&a, "weft_attention_dkv", a.batch * a.keys, queue);
}

/* ---- over chosen blocks ---------------------------------------------------------------------- */

/* Sets the blocks. Rows are counted by 31 bits. */
static weft_status_code set_blocks(attention_args *a, const weft_view *chosen)
{
    const int64_t most = a->queries > a->keys ? a->queries : a->keys;
    a->chosen = chosen->data;
    a->query_blocks = (int32_t)chosen->shape.dim[2];
    a->key_blocks = (int32_t)chosen->shape.dim[3];
    if (a->batch * most <= INT32_MAX)
        return WEFT_OK;
    return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(a->batch * most)),
                      "attention over blocks of CUDA has at most 2^31 tokens, not %" PRId64
                      ". Use more ranks or smaller clips",
                      a->batch * most);
}

/* Blocks of threads that have up to `rows` rows of one block of queries, or of keys. */
static int64_t query_parts(const attention_args *a, int rows)
{
    return a->batch * a->query_blocks * weft_cuda_blocks(a->queries / a->query_blocks, rows);
}

static int64_t key_parts(const attention_args *a, int rows)
{
    return a->batch * a->key_blocks * weft_cuda_blocks(a->keys / a->key_blocks, rows);
}

weft_status_code weft_cuda_block_attention(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    attention_args a = attention_of(args, args->in_count, args->in_count);
    a.out = weft_cuda_ref(&args->out[0]);
    a.lse = args->out[1].data;
    a.vector = in_vectors(args, 3);
    WEFT_TRY(set_blocks(&a, &args->in[3]));
    if (is_flash(args, &a, 3, 1)) {
        a.vector = a.vector && outputs_in_vectors(args, 1);
        return add_flash(&a, &block_forward, query_parts(&a, FLASH_GRAD_ROWS), queue);
    }
    return add_parts(&a, "weft_attention_blocks", query_parts(&a, ATTENTION_ROWS), queue);
}

weft_status_code weft_cuda_block_attention_grad(const weft_kernel_args *args,
                                                weft_cuda_queue *queue)
{
    attention_args a;
    WEFT_TRY(add_delta(args, &a, args->in_count, queue));
    WEFT_TRY(set_blocks(&a, &args->in[6]));
    if (is_flash(args, &a, 6, 3)) {
        a.vector = a.vector && outputs_in_vectors(args, 3);
        WEFT_TRY(add_flash(&a, &block_dq, query_parts(&a, FLASH_GRAD_ROWS), queue));
        return add_flash(&a, &block_dkv, key_parts(&a, FLASH_GRAD_ROWS), queue);
    }
    if (has_few_keys(args)) {
        const int64_t few[3] = {query_parts(&a, ATTENTION_ROWS), a.heads, 1};
        a.base = a.delta + view_count(&args->in[4]);
        WEFT_TRY(weft_cuda_add_grid(queue, "weft_attention_blocks_few", few, ATTENTION_THREADS, &a,
                                    sizeof a));
    }
    WEFT_TRY(add_parts(&a, "weft_attention_blocks_dq", query_parts(&a, ATTENTION_ROWS), queue));
    return add_parts(&a, "weft_attention_blocks_dkv", key_parts(&a, ATTENTION_ROWS), queue);
}

/* ---- parts of attention ---------------------------------------------------------------------- */

static weft_status_code add_merge(merge_args *a, const weft_kernel_args *args, const char *kernel,
                                  weft_cuda_queue *queue)
{
    const weft_shape *s = &args->in[0].shape;
    a->out = weft_cuda_ref(&args->out[0]);
    a->lse = weft_cuda_ref(&args->out[1]);
    a->batch = s->dim[0];
    a->tokens = s->dim[1];
    a->heads = s->dim[2];
    a->width = s->dim[3];
    return weft_cuda_add(queue, kernel,
                         weft_cuda_blocks(shape_span(s, 0, 3), POINTWISE_THREADS / 32),
                         POINTWISE_THREADS, a, sizeof *a);
}

weft_status_code weft_cuda_attention_merge(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    merge_args a = {.a = weft_cuda_ref(&args->in[0]),
                    .lse_a = weft_cuda_ref(&args->in[1]),
                    .b = weft_cuda_ref(&args->in[2]),
                    .lse_b = weft_cuda_ref(&args->in[3])};
    return add_merge(&a, args, "weft_attention_merge", queue);
}

weft_status_code weft_cuda_attention_merge_grad(const weft_kernel_args *args,
                                                weft_cuda_queue *queue)
{
    merge_args a = {.a = weft_cuda_ref(&args->in[0]),
                    .lse_a = weft_cuda_ref(&args->in[1]),
                    .b = weft_cuda_ref(&args->in[2]),
                    .lse_b = weft_cuda_ref(&args->in[3]),
                    .dout = weft_cuda_ref(&args->in[4]),
                    .dlse = weft_cuda_input(args, 5)};
    return add_merge(&a, args, "weft_attention_merge_grad", queue);
}
