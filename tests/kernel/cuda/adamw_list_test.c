/* One launch for many tensors has the bits of one launch for each. */
#include "base/rng.h"
#include "emu/fibres.h"
#include "kernel/cuda/op_optimizer.h"
#include "kernel/view.h"

#include <criterion/criterion.h>

enum { TENSORS = 5, MOST = 5000, ARRAYS = 7 };
static const int64_t sizes[TENSORS] = {1, 2048, 7, MOST, 33};

/* p, g, m, v and the outputs of both ways */
static _Alignas(16) float data[TENSORS][ARRAYS][MOST + 4], scalars[3] = {1e-3f, 3, 0.7f};
static _Alignas(16) float listed[TENSORS][3][MOST + 4];

static weft_status_code emulate(weft_cuda_queue *queue, const weft_cuda_launch *l)
{
    (void)queue;
    emu_launch(emu_kernel_find(l->kernel), l->grid, l->block, l->shared, l->args, 5);
    return WEFT_OK;
}

static weft_view view_of(void *values, int64_t count)
{
    return (weft_view){.data = values, .dtype = WEFT_F32, .shape = {1, {count}}};
}

/* The last tensor begins at an address that does not allow accesses of 16 bytes. */
static void describe(int t, float (*out)[MOST + 4], weft_view in[7], weft_view result[3])
{
    const int shift = t == TENSORS - 1;
    for (int k = 0; k < 4; k++)
        in[k] = view_of(data[t][k] + shift, sizes[t]);
    for (int k = 0; k < 3; k++) {
        in[4 + k] = (weft_view){.data = &scalars[k], .dtype = WEFT_F32};
        result[k] = view_of(out[k] + shift, sizes[t]);
    }
}

Test(adamw_list, equals_single_launches)
{
    const weft_attr_adamw attr = {0.9, 0.95, 1e-8, 0.1};
    weft_cuda_queue queue = {.add = emulate};
    adamw_row rows[TENSORS];
    weft_view in[7], out[3];
    weft_kernel_args args = {
        .op = WEFT_OP_ADAMW, .attr = &attr, .in = in, .in_count = 7, .out = out, .out_count = 3};
    int64_t blocks = 0;
    weft_rng random = weft_rng_make(7, WEFT_RNG_TEST);
    for (int t = 0; t < TENSORS; t++)
        for (int k = 0; k < 4; k++)
            for (int64_t i = 0; i < MOST + 4; i++)
                data[t][k][i] = 0.01f * (float)(1 + weft_rng_below(&random, 1000));
    for (int t = 0; t < TENSORS; t++) {
        describe(t, &data[t][4], in, out);
        cr_assert_eq(weft_cuda_adamw(&args, &queue), WEFT_OK);
        describe(t, listed[t], in, out);
        blocks = weft_cuda_adamw_row(&args, blocks, &rows[t]);
    }
    cr_assert_eq(blocks, 7);
    cr_assert_eq(weft_cuda_adamw_list(&args, rows, TENSORS, blocks, &queue), WEFT_OK);
    for (int t = 0; t < TENSORS; t++) {
        cr_assert_neq(data[t][4][t == TENSORS - 1], 0.0f);
        for (int k = 0; k < 3; k++)
            cr_assert_eq(memcmp(data[t][4 + k], listed[t][k], sizeof listed[t][k]), 0);
    }
}
