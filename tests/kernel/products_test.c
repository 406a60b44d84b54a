/* Products of bf16 in every combination of training, compared with ref (close: sums are f32 in
 * another order, and results are rounded to bf16), on any number of threads (bitwise), and their
 * workspace. */
#include "harness.h"

#include "base/memory.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"
#include "kernel/host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define T(type, ...)                                                                               \
    {                                                                                              \
        .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}, .dtype = type   \
    }
#define NONE                                                                                       \
    {                                                                                              \
        .rank = -1                                                                                 \
    }
#define BF16(...) T(WEFT_BF16, __VA_ARGS__)

/* M, K, N: one row, odd K, few and many columns, tails of vectors and tiles, a vector of columns. */
static const int64_t shapes[][3] = {{1, 1, 1},    {1, 33, 7},    {2, 384, 130}, {3, 17, 5},
                                    {5, 1, 200},  {16, 64, 64},  {77, 2, 1},    {130, 65, 33},
                                    {1, 2049, 3}, {257, 100, 31}};

static op_case linear(const int64_t s[3], const weft_attr_linear *attr, weft_dtype bias)
{
    return (op_case){.op = WEFT_OP_LINEAR,
                     .attr = attr,
                     .in = {BF16(s[0], s[1]), BF16(s[2], s[1]), T(bias, s[2])},
                     .count = 3,
                     .seed = 3};
}

Test(products, linear)
{
    static const weft_attr_linear attr[] = {{WEFT_ACT_NONE, WEFT_F32},
                                            {WEFT_ACT_GELU_TANH, WEFT_BF16},
                                            {WEFT_ACT_SILU, WEFT_F32},
                                            {WEFT_ACT_SILU, WEFT_F16}};
    static const weft_dtype bias[] = {WEFT_BF16, WEFT_F32, WEFT_F16};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t a = 0; a < 4; a++) {
            char label[96];
            op_case c = linear(shapes[i], &attr[a], bias[(i + a) % 3]);
            snprintf(label, sizeof label, "linear %d, attribute %d", (int)i, (int)a);
            c.label = label;
            check_case(&c);
            c.in[2] = (operand)NONE;
            check_case(&c);
        }
}

/* Operand types of training and of bf16 weights, each transposition, batches and a shared b. */
Test(products, matmul)
{
    static const weft_dtype types[][2] = {
        {WEFT_BF16, WEFT_BF16}, {WEFT_F32, WEFT_BF16}, {WEFT_BF16, WEFT_F32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < (i < 5 ? 12 : 4); k++) {
            const bool ta = k & 1, tb = k & 2, shared = i & 1;
            const weft_dtype *type = types[k >> 2];
            const int64_t M = shapes[i][0], K = shapes[i][1], N = shapes[i][2];
            const weft_attr_matmul attr = {ta, tb};
            char label[96];
            op_case c = {.op = WEFT_OP_MATMUL,
                         .attr = &attr,
                         .in = {T(type[0], 3, ta ? K : M, ta ? M : K),
                                T(type[1], 3, tb ? N : K, tb ? K : N)},
                         .count = 2,
                         .label = label,
                         .seed = 5};
            if (shared)
                c.in[1] = (operand)T(type[1], tb ? N : K, tb ? K : N);
            snprintf(label, sizeof label, "matmul %d, combination %d", (int)i, k);
            check_case(&c);
        }
}

/* Parts of rows, and parts of columns. */
Test(products, parts)
{
    static const weft_attr_linear gelu = {WEFT_ACT_GELU_TANH, WEFT_BF16},
                                  once = {WEFT_ACT_SILU, WEFT_F32};
    static const weft_attr_matmul both = {true, true}, none = {false, false};
    static const int64_t wide[3] = {40, 64, 1000};
    op_case c = linear(wide, &gelu, WEFT_F32);
    c.label = "linear, parts of columns";
    check_case(&c);
    c = linear(wide, &once, WEFT_F32);
    c.label = "linear, rounded once";
    c.tolerance = 1.72e-3; /* rounding once: 1.66e-3; twice: 1.79e-3 */
    check_case(&c);
    c = (op_case){.label = "matmul, parts of rows",
                  .op = WEFT_OP_MATMUL,
                  .attr = &both,
                  .in = {BF16(64, 300), BF16(200, 64)},
                  .count = 2};
    check_case(&c);
    c = (op_case){.label = "matmul, parts of columns",
                  .op = WEFT_OP_MATMUL,
                  .attr = &none,
                  .in = {BF16(40, 64), BF16(64, 1000)},
                  .count = 2};
    check_case(&c);
}

/* More rows of a sum than a term has, with a tail. */
Test(products, long_sums)
{
    const weft_attr_matmul dw = {.trans_a = true};
    static const weft_attr_linear silu = {WEFT_ACT_SILU, WEFT_BF16};
    static const int64_t deep[3] = {3, 33003, 5};
    op_case c = {.label = "dw, long sum",
                 .op = WEFT_OP_MATMUL,
                 .attr = &dw,
                 .in = {BF16(9001, 20), BF16(9001, 33)},
                 .count = 2};
    check_case(&c);
    c = linear(deep, &silu, WEFT_F32);
    c.label = "linear, long sum";
    check_case(&c);
}

/* Chunks of rows that end within a step of padded rows, an expert with several chunks, and one
 * without rows. */
Test(products, experts)
{
    const weft_attr_expert_matmul forward = {.trans_b = true}, back = {.trans_b = false},
                                  dw = {.experts = 3};
    static int32_t ids[1100];
    for (int i = 0; i < 1100; i++)
        ids[i] = i % 50 == 7 ? 2 : i % 61 == 8 ? -1 : 0;
    const operand of = {
        .rank = 3, .dim = {1, 1100, 1}, .fill = LISTED, .dtype = WEFT_I32, .list = ids};
    const op_case cases[] = {
        {"experts", WEFT_OP_EXPERT_MATMUL, &forward, {BF16(1, 1100, 1, 21), BF16(3, 13, 21), of}},
        {"experts, back",
         WEFT_OP_EXPERT_MATMUL,
         &back,
         {BF16(1, 1100, 1, 13), BF16(3, 13, 21), of}},
        {"experts, dw",
         WEFT_OP_EXPERT_MATMUL_DW,
         &dw,
         {BF16(1, 1100, 1, 13), BF16(1, 1100, 1, 21), of}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case(&cases[i]);
        check_threads(&cases[i]);
    }
}

/* Products that are cut into parts of rows or columns, with every way of storing C. Without units
 * for bf16, the third has several panels of B, and the fourth several blocks of A. */
Test(products, threads_do_not_change_bits)
{
    static const int64_t large[][3] = {
        {48, 300, 2000}, {1000, 192, 401}, {200, 2100, 520}, {1100, 2000, 48}};
    static const weft_attr_linear attr[] = {{WEFT_ACT_GELU_TANH, WEFT_BF16},
                                            {WEFT_ACT_SILU, WEFT_F32}};
    static const weft_attr_matmul dw = {.trans_a = true};
    static const char *const isa[] = {"avx512_bf16", "avx2"};
    for (int i = 0; i < 6; i++) {
        const int64_t *s = large[i < 4 ? i / 2 : i - 2];
        cpu_isa_use(isa[i < 4 ? i % 2 : 1]);
        op_case c = linear(s, &attr[i / 2 % 2], WEFT_BF16);
        c.label = "linear, cut";
        check_threads(&c);
        c = (op_case){.label = "dw, cut",
                      .op = WEFT_OP_MATMUL,
                      .attr = &dw,
                      .in = {BF16(s[1], s[0]), BF16(s[1], s[2])},
                      .count = 2,
                      .seed = 4};
        if (i < 2 || i == 5)
            check_threads(&c);
        cpu_isa_use(NULL);
    }
}

/* Products with own tiles: odd sums, partial tiles of rows and columns, and rows that are a multiple
 * of 2 KiB apart. The first has several groups and blocks of columns. */
Test(products, own_tiles)
{
    static const int64_t shape[][3] = {{256, 32, 64}, {301, 33, 77}, {259, 1024, 49}};
    static const weft_attr_linear attr[] = {
        {WEFT_ACT_NONE, WEFT_F32}, {WEFT_ACT_GELU_TANH, WEFT_BF16}, {WEFT_ACT_SILU, WEFT_BF16}};
    static const weft_attr_matmul dw = {.trans_a = true}, plain = {0}, both = {true, true};
    op_case c = {.label = "a b, groups",
                 .op = WEFT_OP_MATMUL,
                 .attr = &plain,
                 .in = {BF16(97, 2048), BF16(2048, 1060)},
                 .count = 2};
    check_case(&c);
    check_threads(&c);
    for (int i = 0; i < 3; i++) {
        const int64_t M = shape[i][0], K = shape[i][1], N = shape[i][2];
        c = linear(shape[i], &attr[i], i % 2 ? WEFT_F32 : WEFT_BF16);
        c.label = "linear, own tiles";
        check_case(&c);
        check_threads(&c);
        c = (op_case){.label = "a^T b, own tiles",
                      .op = WEFT_OP_MATMUL,
                      .attr = &dw,
                      .in = {BF16(K, M), BF16(K, N)},
                      .count = 2};
        check_case(&c);
        check_threads(&c);
        c.attr = &both;
        c.in[1] = (operand)BF16(N, K);
        check_case(&c);
        c.attr = &plain;
        c.in[0] = (operand)BF16(3, M, K);
        c.in[1] = (operand)BF16(3, K, N);
        check_case(&c);
        check_threads(&c);
    }
}

/* Returns the value of a product of equal elements (rows, 40) and (40, rows), for which all results
 * are equal. */
static double product_of(int64_t rows, double a, double b)
{
    double *out[WEFT_MAX_OUTPUTS];
    int64_t count[WEFT_MAX_OUTPUTS];
    const op_case c = {
        .label = "product",
        .op = WEFT_OP_MATMUL,
        .attr = &(weft_attr_matmul){0},
        .in = {{.rank = 2, .dim = {rows, 40}, .fill = VALUE, .value = a, .dtype = WEFT_BF16},
               {.rank = 2, .dim = {40, rows}, .fill = VALUE, .value = b, .dtype = WEFT_BF16}},
        .count = 2};
    cr_assert_eq(run_case(&c, &weft_backend_cpu, out, count), 1);
    const double first = out[0][0];
    for (int64_t i = 0; i < count[0]; i++)
        cr_expect(out[0][i] == first || (isnan(out[0][i]) && isnan(first)), "element %" PRId64, i);
    weft_free(out[0]);
    return first;
}

Test(products, huge_values_and_nan)
{
    static const char *const isa[] = {"avx512_bf16", "avx2", "base"};
    for (int i = 0; i < 6; i++) {
        const int64_t rows = i < 3 ? 40 : 101; /* by the library, and with own tiles */
        cpu_isa_use(isa[i % 3]);
        cr_expect_eq(product_of(rows, 3, 5), 600, "%s", isa[i % 3]);
        cr_expect_eq(product_of(rows, 0x1p120, 0x1p-120), 40, "%s", isa[i % 3]);
        cr_expect_eq(product_of(rows, 0x1p100, 0x1p100), INFINITY, "%s", isa[i % 3]);
        cr_expect_eq(product_of(rows, -INFINITY, 2), -INFINITY, "%s", isa[i % 3]);
        cr_expect(isnan(product_of(rows, NAN, 0)), "%s", isa[i % 3]);
        cr_expect(isnan(product_of(rows, INFINITY, 0)), "%s", isa[i % 3]);
        cpu_isa_use(NULL);
    }
}

/* Returns the workspace of a product of bf16 on one thread. */
static int64_t workspace_of(weft_op op, const void *attr, weft_shape a, weft_shape b,
                            weft_shape out)
{
    const weft_view in[] = {{.dtype = WEFT_BF16, .shape = a}, {.dtype = WEFT_BF16, .shape = b}};
    weft_view made = {.dtype = WEFT_BF16, .shape = out};
    return weft_backend_cpu.kernel[op]->workspace(&(weft_kernel_args){.op = op,
                                                                      .in = in,
                                                                      .in_count = 2,
                                                                      .out = &made,
                                                                      .out_count = 1,
                                                                      .attr = attr,
                                                                      .threads = 1});
}

/* No operand is copied completely. Units for bf16 need a group of B of 4 MiB and a block of A. Other
 * processors need a panel of B, a block of A and C, and the sum of terms. Each is at most 4 MiB,
 * except A up to 8 MiB. The library computes sums of more than 4096 terms, without workspace. */
Test(products, copy_no_operand)
{
    const weft_attr_linear plain = {WEFT_ACT_NONE, WEFT_F32};
    const weft_attr_matmul dw = {.trans_a = true};
    const weft_shape rows = {2, {1 << 20, 512}}, weights = {2, {2048, 512}},
                     made = {2, {1 << 20, 2048}}, square = {2, {512, 2048}};
    static const char *const isa[] = {"avx512_bf16", "avx2"};
    for (int i = 0; i < 2; i++) {
        cpu_isa_use(isa[i]);
        const bool units = cpu_isa_get()->bf16_units;
        const int64_t most = 21 << 20, packed = (4 << 20) + (1 << 18);
        cr_expect_leq(workspace_of(WEFT_OP_LINEAR, &plain, rows, weights, made),
                      units ? packed : most);
        cr_expect_leq(workspace_of(WEFT_OP_MATMUL, &dw, rows, made, square), units ? 0 : most);
        cpu_isa_use(NULL);
    }
}

/* Code for products of bf16 is counted where the processor has units for bf16, the same each time. */
Test(products, compiled_code_is_counted)
{
    static const weft_attr_linear plain = {WEFT_ACT_NONE};
    const weft_kernel *k = weft_backend_cpu.kernel[WEFT_OP_LINEAR];
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const weft_dtype type = bf16 ? WEFT_BF16 : WEFT_F32;
        weft_view in[3] = {{.dtype = type, .shape = WEFT_SHAPE(231, 77)},
                           {.dtype = type, .shape = WEFT_SHAPE(53, 77)},
                           {.dtype = WEFT_F32, .shape = WEFT_SHAPE(53)}},
                  out = {.dtype = type, .shape = WEFT_SHAPE(231, 53)};
        const weft_kernel_args args = {.op = WEFT_OP_LINEAR,
                                       .in = in,
                                       .in_count = 3,
                                       .out = &out,
                                       .out_count = 1,
                                       .attr = &plain,
                                       .threads = 2};
        const int64_t bytes = k->prepared(&args);
        cr_expect_eq(k->prepared(&args), bytes);
        if (bf16 && cpu_isa_get()->bf16_units)
            cr_expect(bytes > 10000 && bytes < 1 << 20, "%" PRId64 " bytes", bytes);
        else
            cr_expect_eq(bytes, 0);
    }
}

/* The rows of an expert depend on the data. The code of all products that may run is counted, so
 * that a run compiles none: the library's memory grows by a handle for each of three shapes, 17
 * KiB, and not by their code, 57 KiB or more. */
Test(products, compiled_code_of_experts_is_counted)
{
    enum { TOKENS = 300, EXPERTS = 3, K = 72, N = 40, HANDLE = 20000, CODE = 50000 };
    static const weft_attr_expert_matmul attr = {.trans_b = true, .experts = EXPERTS};
    static const int last[2][EXPERTS] = {{7, 97, TOKENS}, {140, 171, TOKENS}};
    static uint16_t x[TOKENS * K], w[EXPERTS * N * K], y[TOKENS * N];
    static int32_t ids[TOKENS];
    const weft_view in[3] = {{x, WEFT_BF16, WEFT_SHAPE(1, TOKENS, 1, K)},
                             {w, WEFT_BF16, WEFT_SHAPE(EXPERTS, N, K)},
                             {ids, WEFT_I32, WEFT_SHAPE(1, TOKENS, 1)}};
    weft_view out = {y, WEFT_BF16, WEFT_SHAPE(1, TOKENS, 1, N)};
    const weft_kernel *k = weft_backend_cpu.kernel[WEFT_OP_EXPERT_MATMUL];
    weft_kernel_args args = {.op = WEFT_OP_EXPERT_MATMUL,
                             .in = in,
                             .in_count = 3,
                             .out = &out,
                             .out_count = 1,
                             .attr = &attr,
                             .threads = 1};
    const int64_t bytes = k->prepared(&args);
    cr_expect_eq(k->prepared(&args), bytes);
    if (!cpu_isa_get()->bf16_units) {
        cr_expect_eq(bytes, 0);
        return;
    }
    cr_expect(bytes > 11 * CODE, "%" PRId64 " bytes for 11 counts of rows", bytes);
    args.workspace = weft_alloc_aligned(k->workspace(&args));
    for (int run = 0; run < 2; run++) {
        for (int i = 0, e = 0; i < TOKENS; i++) {
            e += i == last[run][e];
            ids[i] = e;
        }
        const int64_t before = weft_memory_library_use();
        cr_assert_eq(k->run(&args), WEFT_OK, "%s", weft_error_message());
        const int64_t grown = weft_memory_library_use() - before;
        cr_expect(grown < EXPERTS * HANDLE, "%" PRId64 " bytes", grown);
    }
    weft_free(args.workspace);
}
