/* Host code of the choice of blocks. Attention over them is in op_attention.c. */
#include "kernel/cuda/op_blocks.h"

#include "kernel/cuda/op_launch.h"

/* Rows that are in memory at once, if they are too long for shared memory. */
enum { CHOICE_BLOCKS = 1024 };

/* The least power of 2 that is not below `columns`. */
static int64_t places_of(int64_t columns)
{
    int64_t places = 1;
    while (places < columns)
        places *= 2;
    return places;
}

static int64_t rows_of(const weft_view *x)
{
    return view_last(x) ? view_count(x) / view_last(x) : 0;
}

static int64_t blocks_of(const weft_view *x)
{
    const int64_t rows = rows_of(x),
                  most = view_last(x) > CHOICE_SHARED ? CHOICE_BLOCKS : INT32_MAX;
    return rows < most ? rows : most;
}

int64_t weft_cuda_top_workspace(const weft_kernel_args *args)
{
    const weft_view *x = &args->in[0];
    return view_last(x) > CHOICE_SHARED ? blocks_of(x) * places_of(view_last(x)) * 4 : 0;
}

static weft_status_code add_choice(const weft_kernel_args *args, const char *kernel, double limit,
                                   weft_cuda_queue *queue)
{
    const weft_view *x = &args->in[0];
    const int64_t columns = view_last(x);
    if (columns > INT32_MAX / 4)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(columns)),
                          "%s: rows of %" PRId64 " blocks are over the limit of %d. Use smaller "
                          "clips",
                          kernel, columns, INT32_MAX / 4);
    const choice_args a = {.x = weft_cuda_ref(x),
                           .out = args->out[0].data,
                           .space = columns > CHOICE_SHARED ? args->workspace : NULL,
                           .rows = rows_of(x),
                           .limit = limit,
                           .columns = (int32_t)columns,
                           .places = (int32_t)places_of(columns)};
    return weft_cuda_add(queue, kernel, blocks_of(x), CHOICE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_top_p(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    return add_choice(args, "weft_top_p", 1 - ((const weft_attr_top_p *)args->attr)->mass, queue);
}

weft_status_code weft_cuda_top_share(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    return add_choice(args, "weft_top_share", ((const weft_attr_top_share *)args->attr)->share,
                      queue);
}
