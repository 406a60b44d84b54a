/* Attention over chosen blocks and its gradient, and the choice of blocks, compared with ref. */
#include "harness.h"

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/ref/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define D(...)   .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Blocks: M of queries, N of keys, of which each row chooses `percent`; the first row of the first
 * head chooses none. */
typedef struct blocks_case {
    int64_t B, sq, sk, H, D, M, N;
    int percent;
} blocks_case;

enum { MOST_FLAGS = 512 };

static void choose(const blocks_case *b, uint64_t seed, int32_t flag[MOST_FLAGS])
{
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    const int64_t count = b->B * b->H * b->M * b->N;
    cr_assert_leq(count, MOST_FLAGS);
    for (int64_t i = 0; i < count; i++)
        flag[i] = (int)weft_rng_below(&rng, 100) < b->percent && (i >= b->N || b->percent == 100);
}

/* In TF32, tensor cores differ from ref by the rounding of other weights only. Kernels in f32, as
 * of cpu and of wide heads, differ by the rounding of all operands. */
static double tolerance_of(const blocks_case *b, bool tf32)
{
    const bool has_tf32 = !strcmp(harness_subjects[0].backend->name, "cuda") && b->D <= 128;
    return tf32 && has_tf32 ? 3e-4 : 0;
}

static void check_blocks(weft_dtype dtype, bool tf32)
{
    static const blocks_case cases[] = {
        {1, 64, 64, 1, 8, 1, 1, 100},    {2, 6, 10, 2, 8, 3, 5, 50},
        {1, 192, 256, 2, 64, 3, 4, 50},  {1, 128, 128, 1, 128, 2, 2, 60},
        {2, 96, 140, 2, 40, 2, 7, 40},   {1, 260, 300, 1, 24, 2, 3, 70},
        {1, 30, 40, 2, 10, 5, 8, 50},    {1, 50, 70, 1, 200, 5, 7, 50},
        {1, 4, 148, 2, 16, 2, 74, 30},   {1, 148, 6, 1, 16, 74, 3, 30},
        {1, 0, 6, 2, 16, 1, 3, 100},     {1, 6, 0, 2, 16, 3, 1, 100},
        {1, 20, 31, 1, 7, 4, 1, 100},    {1, 65, 67, 2, 128, 1, 1, 100},
        {2, 40, 200, 1, 64, 2, 100, 10}, {1, 33, 96, 1, 72, 1, 3, 70},
    };
    static int32_t flag[MOST_FLAGS];
    for (size_t i = 0; i < COUNT(cases); i++) {
        const blocks_case *b = &cases[i];
        const weft_attr_attention attr = {.scale = 1 / sqrt((double)b->D), .tf32 = tf32};
        const operand q = {D(b->B, b->sq, b->H, b->D), .dtype = dtype},
                      k = {D(b->B, b->sk, b->H, b->D), .dtype = dtype},
                      lse = {D(b->B, b->H, b->sq)},
                      chosen = {D(b->B, b->H, b->M, b->N), .fill = LISTED, .list = flag};
        char label[64];
        choose(b, i, flag);
        snprintf(label, sizeof label, "blocks %zu", i);
        op_case c = {.label = label,
                     .op = WEFT_OP_BLOCK_ATTENTION,
                     .attr = &attr,
                     .in = {q, k, k, chosen},
                     .count = 4,
                     .seed = i,
                     .tolerance = tolerance_of(b, tf32)};
        check_case(&c);
        check_threads(&c);
        c = (op_case){.label = label,
                      .op = WEFT_OP_BLOCK_ATTENTION_GRAD,
                      .attr = &attr,
                      .in = {q, k, k, q, lse, q, chosen},
                      .count = 7,
                      .seed = i,
                      .tolerance = tolerance_of(b, tf32)};
        check_case(&c);
        check_threads(&c);
        c.in[7] = lse; /* a gradient of the log-sum-exp */
        c.count = 8;
        check_case(&c);
    }
}

Test(blocks, attention)
{
    check_blocks(WEFT_F32, false);
}

Test(blocks, attention_of_bf16)
{
    if (harness_bf16_attention)
        check_blocks(WEFT_BF16, false);
}

Test(blocks, attention_of_tf32)
{
    check_blocks(WEFT_F32, true);
}

/* Elements that are equal, 0, NaN (also the first of a row), infinite and hidden; rows of one
 * element, of more than a warp or a block of threads has, and too long for shared memory. */
Test(blocks, choice)
{
    static const int32_t hidden[] = {-2000000000, 3, 3, -2000000000, 5, 3, 3, 1,
                                     -2000000000, 0, 0, -2000000000, 0, 0, 0, 0};
    const operand inputs[] = {
        {D(3, 4, 6)},
        {D(7, 1), .fill = POSITIVE},
        {D(5, 33), .fill = POSITIVE, .value = 1},
        {D(3, 300), .fill = HOLES},
        {D(9, 7), .fill = HOLES},
        {D(4, 10), .fill = HOLES, .dtype = WEFT_BF16},
        {D(2, 70), .fill = VALUE, .value = 0.125},
        {D(2, 5), .fill = VALUE, .value = NAN},
        {D(2, 5), .fill = VALUE, .value = INFINITY},
        {D(2, 5), .fill = VALUE, .value = -INFINITY},
        {D(2, 8), .fill = LISTED, .list = hidden},
        {D(2, 4500), .fill = HOLES},
        {D(0, 5)},
        {D(5, 0), .fill = POSITIVE},
    };
    const double parts[] = {0.05, 0.4, 0.9, 1};
    for (size_t i = 0; i < COUNT(inputs); i++)
        for (size_t p = 0; p < COUNT(parts); p++) {
            const weft_attr_top_p top_p = {parts[p]};
            const weft_attr_top_share share = {parts[p]};
            char label[64];
            snprintf(label, sizeof label, "choice %zu of %g", i, parts[p]);
            check_case(&(op_case){.label = label,
                                  .op = WEFT_OP_TOP_P,
                                  .attr = &top_p,
                                  .in = {inputs[i]},
                                  .count = 1,
                                  .seed = i});
            check_case(&(op_case){.label = label,
                                  .op = WEFT_OP_TOP_SHARE,
                                  .attr = &share,
                                  .in = {inputs[i]},
                                  .count = 1,
                                  .seed = i});
        }
}

/* NaN is neither summed nor chosen, as first element of a row as well: in each row of five, the
 * other elements are chosen with a mass of 1. */
Test(blocks, nan_is_not_chosen)
{
    const weft_attr_top_p all = {1};
    const weft_attr_top_share share = {1};
    const weft_backend *const backends[] = {&weft_backend_ref, harness_subjects[0].backend};
    for (int op = 0; op < 2; op++)
        for (int b = 0; b < 2; b++) {
            const op_case c = {.label = "NaN",
                               .op = op ? WEFT_OP_TOP_SHARE : WEFT_OP_TOP_P,
                               .attr = op ? (const void *)&share : &all,
                               .in = {{D(3, 5), .fill = HOLES}},
                               .count = 1};
            double *out[WEFT_MAX_OUTPUTS];
            int64_t count[WEFT_MAX_OUTPUTS];
            harness_subjects[0].use(harness_subjects[0].setting);
            cr_assert_eq(run_case(&c, backends[b], out, count), 1);
            harness_subjects[0].use(0);
            for (int i = 0; i < 15; i++)
                cr_expect_eq(out[0][i], i % 5 != 0, "element %d by %s", i, backends[b]->name);
            weft_free(out[0]);
        }
}
