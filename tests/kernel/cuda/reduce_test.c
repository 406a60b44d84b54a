/* Sums of columns: one column and eight columns per thread add in the same order. */
#include "emu/fibres.h"
#include "kernel/cuda/op_reduce.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Two blocks of columns, of which the second is partly empty, and two chunks of rows. */
enum { ROWS = 1100, COLUMNS = 264, COUNT = ROWS * COLUMNS };

/* Launches by kernel. */
static struct {
    int one, eight;
    uint32_t chunks; /* of the first launch */
} seen;

static weft_status_code emulate(weft_cuda_queue *queue, const weft_cuda_launch *launch)
{
    const emu_kernel *kernel = emu_kernel_find(launch->kernel);
    (void)queue;
    cr_assert_not_null(kernel, "no kernel %s", launch->kernel);
    if (!seen.one && !seen.eight)
        seen.chunks = launch->grid[1];
    seen.one += !strcmp(launch->kernel, "weft_reduce_columns");
    seen.eight += !strcmp(launch->kernel, "weft_reduce_eights");
    emu_launch(kernel, launch->grid, launch->block, launch->shared, launch->args, 5);
    return WEFT_OK;
}

/* Copies `from` to an address that is `offset` bytes from a multiple of 64. */
static void *placed(const void *from, size_t bytes, size_t offset)
{
    char *memory = aligned_alloc(64, (bytes + 191) / 64 * 64);
    cr_assert_not_null(memory);
    return memcpy(memory + offset, from, bytes);
}

/* Sums x, or x * dy, over the rows. x and dy begin `offset` bytes from a multiple of 64. */
static void sum_rows(int type, int term, size_t offset, const void *x, const void *dy, float *out)
{
    const size_t bytes = (size_t)COUNT * (type == TYPE_F32 ? 4 : 2);
    const weft_shape shape = {2, {ROWS, COLUMNS}};
    const weft_cuda_sum sum = {&shape, 1};
    char *own_x = placed(x, bytes, offset), *own_dy = placed(dy, bytes, offset);
    void *part = aligned_alloc(64, (size_t)(weft_cuda_reduce_bytes(&sum) + 63) / 64 * 64);
    weft_cuda_queue queue = {emulate};
    reduce_args a = {
        .x = {own_x, type}, .dy = {own_dy, type}, .out = {out, TYPE_F32}, .term = term};
    memset(&seen, 0, sizeof seen);
    cr_assert_not_null(part);
    cr_assert_eq(weft_cuda_reduce(&sum, &a, part, &queue), WEFT_OK);
    free(part);
    free(own_x - offset);
    free(own_dy - offset);
}

/* The results are bitwise equal, and close to sums in f64. */
static void check(int type, int term, const void *x, const void *dy, const double *expected)
{
    static float eights[COLUMNS], columns[COLUMNS];
    sum_rows(type, term, 0, x, dy, eights);
    cr_assert_gt(seen.chunks, 1);
    cr_assert_eq(seen.eight, 2, "%d launches with eight columns per thread", seen.eight);
    sum_rows(type, term, type == TYPE_F32 ? 4 : 2, x, dy, columns);
    cr_assert_eq(seen.one, 1, "%d launches with one column per thread", seen.one);
    for (int c = 0; c < COLUMNS; c++)
        cr_assert_float_eq(eights[c], expected[c], 1e-3, "type %d, term %d, column %d: %g, not %g",
                           type, term, c, eights[c], expected[c]);
    cr_assert_arr_eq(eights, columns, sizeof eights);
}

Test(reduce, eight_columns_per_thread)
{
    static float x[COUNT], dy[COUNT];
    static uint16_t half_x[COUNT], half_dy[COUNT];
    static double sums[COLUMNS], products[COLUMNS];
    uint32_t random = 1, bits;
    for (int i = 0; i < COUNT; i++) {
        float *const values[] = {&x[i], &dy[i]};
        for (int k = 0; k < 2; k++) { /* in bf16 without rounding */
            random = random * 1664525 + 1013904223;
            *values[k] = ((float)(random >> 25) - 63.5f) / 64;
        }
        memcpy(&bits, &x[i], 4);
        half_x[i] = (uint16_t)(bits >> 16);
        memcpy(&bits, &dy[i], 4);
        half_dy[i] = (uint16_t)(bits >> 16);
        x[i] /= 3; /* the sums of f32 depend on their order */
        dy[i] /= 7;
        sums[i % COLUMNS] += x[i];
        products[i % COLUMNS] += (double)x[i] * dy[i];
    }
    check(TYPE_F32, REDUCE_X, x, dy, sums);
    check(TYPE_F32, REDUCE_DY_X, x, dy, products);
    for (int c = 0; c < COLUMNS; c++) {
        sums[c] *= 3;
        products[c] *= 21;
    }
    check(TYPE_BF16, REDUCE_X, half_x, half_dy, sums);
    check(TYPE_BF16, REDUCE_DY_X, half_x, half_dy, products);
}
