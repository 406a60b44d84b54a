/* Host code of random numbers, embeddings and the routing of experts. */
#include "kernel/cuda/op_tables.h"

#include "kernel/cuda/op_launch.h"
#include "kernel/cuda/op_moves.h"

weft_status_code weft_cuda_random(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_random *attr = args->attr;
    const weft_shape *s = &args->out[0].shape;
    random_args a = {.key = weft_cuda_ref(&args->in[0]),
                     .out = weft_cuda_ref(&args->out[0]),
                     .count = view_count(&args->out[0]),
                     .stream = (uint64_t)attr->purpose,
                     .normal = args->op == WEFT_OP_RANDOM_NORMAL};
    weft_cuda_loop loop = {.rank = s->rank, .stride[0][0] = 1};
    memcpy(loop.dim, s->dim, sizeof loop.dim);
    int64_t step = 1;
    for (int d = s->rank - 1; d > 0; d--) {
        loop.stride[1][d] = step;
        a.whole_start += attr->start[d] * step;
        step *= attr->global.dim[d];
    }
    WEFT_TRY(weft_cuda_loop_shape(&loop, &a.shape));
    weft_cuda_loop_strides(&loop, 0, a.key_stride);
    weft_cuda_loop_strides(&loop, 1, a.whole_stride);
    return weft_cuda_add(queue, "weft_random", weft_cuda_blocks(a.count, POINTWISE_THREADS),
                         POINTWISE_THREADS, &a, sizeof a);
}

/* Whether rows of the last dim are copied in accesses of 16 bytes. */
static bool in_eights(const weft_view *from, const weft_view *to)
{
    return view_last(to) % 8 == 0 && weft_cuda_in_eights(from) && weft_cuda_in_eights(to);
}

weft_status_code weft_cuda_embed(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const embed_args a = {.report = weft_cuda_report(args, queue),
                          .table = weft_cuda_ref(&args->in[0]),
                          .ids = weft_cuda_ref(&args->in[1]),
                          .out = weft_cuda_ref(&args->out[0]),
                          .count = view_count(&args->in[1]),
                          .rows = args->in[0].shape.dim[0],
                          .width = args->in[0].shape.dim[1],
                          .vector = in_eights(&args->in[0], &args->out[0])};
    return weft_cuda_add(queue, "weft_embed", a.count, POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_embed_grad(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const bool ids_first = dtype_is_int(args->in[0].dtype);
    const embed_args a = {.report = weft_cuda_report(args, queue),
                          .table = weft_cuda_ref(&args->in[ids_first]),
                          .ids = weft_cuda_ref(&args->in[!ids_first]),
                          .out = weft_cuda_ref(&args->out[0]),
                          .count = view_count(&args->in[!ids_first]),
                          .rows = args->out[0].shape.dim[0],
                          .width = args->out[0].shape.dim[1]};
    return weft_cuda_add(queue, "weft_embed_grad", a.rows, POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_unpack(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_unpack *attr = args->attr;
    const weft_view *in = &args->in[0], *out = &args->out[0];
    const bool picks = args->in_count > 1 && view_present(&args->in[1]);
    unpack_args a = {.from = in->data,
                     .out = weft_cuda_ref(out),
                     .report = weft_cuda_report(args, queue),
                     .width = view_last(out),
                     .type = (int32_t)attr->type,
                     .bytes = (int32_t)attr->bytes,
                     .shift = __builtin_ctzll((unsigned long long)attr->elements)};
    a.count = a.width ? view_count(out) / a.width : 0;
    a.rows = picks ? in->shape.dim[0] : a.count;
    if (picks)
        a.ids = weft_cuda_ref(&args->in[1]);
    const int64_t grid[3] = {a.count, weft_cuda_blocks(a.width, POINTWISE_THREADS), 1};
    return weft_cuda_add_grid(queue, "weft_unpack", grid, POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_top_k(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_top_k *attr = args->attr;
    const int64_t experts = view_last(&args->in[0]);
    if (experts > TOP_K_MOST || attr->groups > TOP_K_GROUPS)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(experts)),
                          "top_k: %" PRId64 " elements in %" PRId64
                          " groups; kernels of CUDA take %d in %d. Use fewer experts",
                          experts, attr->groups, TOP_K_MOST, TOP_K_GROUPS);
    const top_k_args a = {.scores = weft_cuda_ref(&args->in[0]),
                          .bias = weft_cuda_input(args, 1),
                          .out = args->out[0].data,
                          .rows = view_count(&args->out[0]) / attr->count,
                          .experts = (int32_t)experts,
                          .count = (int32_t)attr->count,
                          .groups = (int32_t)attr->groups,
                          .top_groups = (int32_t)attr->top_groups};
    return weft_cuda_add(queue, "weft_top_k", a.rows, 32, &a, sizeof a);
}

weft_status_code weft_cuda_pick(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *ids = &args->in[1];
    const pick_args a = {.report = weft_cuda_report(args, queue),
                         .x = weft_cuda_ref(&args->in[0]),
                         .out = weft_cuda_ref(&args->out[0]),
                         .ids = ids->data,
                         .rows = view_last(ids) ? view_count(ids) / view_last(ids) : 0,
                         .experts = view_last(&args->in[0]),
                         .count = view_last(ids)};
    return weft_cuda_add(queue, "weft_pick", weft_cuda_blocks(view_count(ids), POINTWISE_THREADS),
                         POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_pick_grad(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *ids = &args->in[0], *out = &args->out[0];
    const pick_args a = {.report = weft_cuda_report(args, queue),
                         .x = weft_cuda_ref(&args->in[1]),
                         .out = weft_cuda_ref(out),
                         .ids = ids->data,
                         .rows = view_last(out) ? view_count(out) / view_last(out) : 0,
                         .experts = view_last(out),
                         .count = view_last(ids)};
    return weft_cuda_add(queue, "weft_pick_grad",
                         weft_cuda_blocks(view_count(out), POINTWISE_THREADS), POINTWISE_THREADS,
                         &a, sizeof a);
}

static const weft_view *ids_of(const weft_kernel_args *args)
{
    return &args->in[args->op == WEFT_OP_EXPERT_SLOTS ? 0 : 1];
}

int64_t weft_cuda_route_workspace(const weft_kernel_args *args)
{
    return view_count(ids_of(args)) * 4; /* the row of every choice */
}

static weft_status_code add_rows(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_experts *attr = args->attr;
    const weft_view *ids = ids_of(args);
    const slots_args a = {.report = weft_cuda_report(args, queue),
                          .ids = ids->data,
                          .rows = args->workspace,
                          .batch = ids->shape.dim[0],
                          .tokens = ids->shape.dim[1],
                          .choices = ids->shape.dim[2],
                          .experts = attr->experts,
                          .slots = attr->slots};
    WEFT_TRY(weft_cuda_add(queue, "weft_no_rows",
                           weft_cuda_blocks(view_count(ids), POINTWISE_THREADS), POINTWISE_THREADS,
                           &a, sizeof a));
    return weft_cuda_add_grid(queue, "weft_slot_rows", (int64_t[3]){a.experts, a.batch, 1}, 32, &a,
                              sizeof a);
}

weft_status_code weft_cuda_route(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *ids = ids_of(args), *out = &args->out[0];
    const bool slots = args->op == WEFT_OP_EXPERT_SLOTS;
    route_args a = {.out = weft_cuda_ref(out),
                    .ids = ids->data,
                    .rows = args->workspace,
                    .count = view_count(ids),
                    .width = slots ? 1 : view_last(out),
                    .shared = 1,
                    .to_rows = args->op != WEFT_OP_COLLECT};
    if (!slots) {
        a.x = weft_cuda_ref(&args->in[0]);
        a.vector = in_eights(&args->in[0], out);
    }
    if (args->op == WEFT_OP_DISPATCH && args->in[0].shape.dim[2] == 1)
        a.shared = ids->shape.dim[2];
    WEFT_TRY(add_rows(args, queue));
    if (slots)
        WEFT_TRY(weft_cuda_set_bytes(out, UINT64_MAX, queue)); /* -1 */
    else if (a.to_rows)
        WEFT_TRY(weft_cuda_set_bytes(out, 0, queue));
    return weft_cuda_add(queue, "weft_route", weft_cuda_blocks(a.count, POINTWISE_THREADS / 32),
                         POINTWISE_THREADS, &a, sizeof a);
}
