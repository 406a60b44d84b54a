/* Cases run on the emulated kernels of CUDA, in several orders of blocks and threads. */
#include "../harness.h"

#include "emu/fibres.h"
#include "kernel/cuda/ops.h"
#include "kernel/host.h"

#include <criterion/criterion.h>

static uint64_t order;

static void use_order(int seed)
{
    order = (uint64_t)seed;
}

/* Another order for every run, the same in every process: a test has one process. */
static void use_next_order(int start)
{
    static uint64_t runs;
    order = start ? (uint64_t)start + runs++ : 0;
}

static weft_status_code emulate(weft_cuda_queue *queue, const weft_cuda_launch *launch)
{
    (void)queue;
    const emu_kernel *kernel = emu_kernel_find(launch->kernel);
    cr_assert_not_null(kernel, "no kernel %s", launch->kernel);
    cr_assert_eq(kernel->args_bytes, launch->args_bytes, "%s: size of the arguments",
                 launch->kernel);
    emu_launch(kernel, launch->grid, launch->block, launch->shared, launch->args, order);
    return WEFT_OK;
}

static weft_status_code run(const weft_kernel_args *args)
{
    weft_cuda_queue queue = {emulate};
    return weft_cuda_ops[args->op].launch(args, &queue);
}

static int64_t workspace(const weft_kernel_args *args)
{
    int64_t (*own)(const weft_kernel_args *) = weft_cuda_ops[args->op].workspace;
    return own ? own(args) : 0;
}

static const weft_kernel kernel = {.run = run, .workspace = workspace};
static weft_backend backend = {.name = "cuda", .device = &weft_device_host};

__attribute__((constructor)) static void list_kernels(void)
{
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        backend.kernel[op] = weft_cuda_ops[op].launch ? &kernel : NULL;
}

const subject harness_subjects[] = {
    {"shuffled", &backend, use_next_order, 7},
    {0},
};
const subject harness_orders[] = {
    {"in order", &backend, use_order, 0},
    {"shuffled", &backend, use_order, 12},
    {0},
};

const int64_t harness_conv_most = 4000000;
const bool harness_bf16_attention = true;
