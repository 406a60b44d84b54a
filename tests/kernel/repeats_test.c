/* Equal rows are computed once (repeats.h): padding of prompts, and equal items of a batch. */
#include "base/memory.h"
#include "base/rng.h"
#include "format/tensors/quant_blocks.h"
#include "graph/graph.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"
#include "kernel/ref/table.h"
#include "kernel/view.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

/* Runs one op; the caller frees the data of the outputs. */
static void run_on(const weft_backend *backend, weft_op op, const void *attr, const weft_view *in,
                   int in_count, weft_view *out, int out_count)
{
    const weft_kernel *kernel = backend->kernel[op];
    weft_kernel_args args = {.op = op,
                             .threads = 2,
                             .in = in,
                             .in_count = in_count,
                             .out = out,
                             .out_count = out_count,
                             .attr = attr};
    for (int i = 0; i < out_count; i++)
        out[i].data = weft_alloc(view_count(&out[i]) * weft_dtype_bytes(out[i].dtype));
    args.workspace = weft_alloc_aligned((kernel->workspace ? kernel->workspace(&args) : 0) + 64);
    cr_assert_eq(kernel->run(&args), WEFT_OK, "%s", weft_error_message());
    weft_free(args.workspace);
}

static weft_view normal_view(uint64_t seed, weft_dtype dtype, weft_shape shape)
{
    weft_view v = {.dtype = dtype, .shape = shape};
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    v.data = weft_alloc(view_count(&v) * weft_dtype_bytes(dtype));
    for (int64_t i = 0; i < view_count(&v); i++)
        view_set(&v, i, weft_rng_normal(&rng));
    return v;
}

/* Makes rows [from, rows) of item n equal to row `from`. */
static void repeat_rows(weft_view *v, int64_t n, int64_t from)
{
    const int64_t rows = v->shape.dim[1],
                  row = view_count(v) / v->shape.dim[0] / rows * weft_dtype_bytes(v->dtype);
    char *item = (char *)v->data + n * rows * row;
    for (int64_t i = from + 1; i < rows; i++)
        memcpy(item + i * row, item + from * row, (size_t)row);
}

/* Makes item n equal to the item before it. */
static void repeat_item(weft_view *v, int64_t n)
{
    const int64_t bytes = view_count(v) / v->shape.dim[0] * weft_dtype_bytes(v->dtype);
    memcpy((char *)v->data + n * bytes, (char *)v->data + (n - 1) * bytes, (size_t)bytes);
}

/* Returns the norm of a - b, divided by the norm of b. */
static double distance(const weft_view *a, const weft_view *b)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < view_count(a); i++) {
        error += pow(view_get(a, i) - view_get(b, i), 2);
        size += pow(view_get(b, i), 2);
    }
    return sqrt(error / size);
}

/* Item 0 has 5 keys that differ and 295 equal ones, item 1 has 290 and 10, too few. Item 2 is equal
 * to item 1. Keys from 200 on have equal keys but other values in item 3. Close to ref: P of the
 * merged key is rounded once. */
static void check_attention(weft_dtype dtype, bool biased, bool int8, double tolerance)
{
    enum { B = 4, SQ = 70, SK = 300, H = 2, HEAD = 40 };
    const weft_attr_attention attr = {.scale = 0.4, .int8 = int8};
    const weft_shape q = WEFT_SHAPE(B, SQ, H, HEAD), k = WEFT_SHAPE(B, SK, H, HEAD);
    weft_view in[5] = {normal_view(1, dtype, q),
                       normal_view(2, dtype, k),
                       normal_view(3, dtype, k),
                       {.shape = {.rank = -1}},
                       normal_view(4, WEFT_F32, WEFT_SHAPE(B, SK))};
    for (int i = 1; i < 3; i++) {
        repeat_rows(&in[i], 0, 5);
        repeat_rows(&in[i], 1, 290);
    }
    repeat_rows(&in[1], 3, 200);
    repeat_rows(&in[4], 0, 100); /* keys 5 to 99 are equal, but have other biases */
    for (int i = 0; i < 5; i++)
        if (i != 3)
            repeat_item(&in[i], 2);
    weft_view ours[2] = {{.dtype = dtype, .shape = q},
                         {.dtype = WEFT_F32, .shape = WEFT_SHAPE(B, H, SQ)}};
    weft_view theirs[2] = {ours[0], ours[1]};
    run_on(&weft_backend_ref, WEFT_OP_ATTENTION, &(weft_attr_attention){.scale = 0.4}, in,
           biased ? 5 : 3, theirs, 2);
    run_on(&weft_backend_cpu, WEFT_OP_ATTENTION, &attr, in, biased ? 5 : 3, ours, 2);
    for (int i = 0; i < 2; i++) {
        cr_expect(distance(&ours[i], &theirs[i]) < tolerance, "output %d, %s%s: %g", i,
                  weft_dtype_name(dtype), biased ? " with a bias" : "",
                  distance(&ours[i], &theirs[i]));
        weft_free(ours[i].data);
        weft_free(theirs[i].data);
    }
    for (int i = 0; i < 5; i++)
        weft_free(in[i].data);
}

Test(repeats, attention_counts_each_key)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
    for (int s = 0; s < 4; s++) {
        cpu_isa_use(sets[s]);
        for (int biased = 0; biased < 2; biased++) {
            check_attention(WEFT_F32, biased, false, 1e-6);
            check_attention(WEFT_BF16, biased, false, 4e-3);
            check_attention(WEFT_BF16, biased, true, 3e-2);
        }
    }
    cpu_isa_use(NULL);
}

/* Attention of 240 keys, of which the last `equal` are equal. `apart`: their last channels are 0
 * and -0, which changes no score, but no key is bitwise equal to its neighbours. */
static weft_view merged_output(weft_dtype dtype, int64_t equal, bool biased, bool apart)
{
    enum { SQ = 20, SK = 240, HEAD = 32 };
    const weft_attr_attention attr = {.scale = 0.4};
    const weft_shape q = WEFT_SHAPE(1, SQ, 1, HEAD), k = WEFT_SHAPE(1, SK, 1, HEAD);
    weft_view in[5] = {normal_view(1, dtype, q),
                       normal_view(2, dtype, k),
                       normal_view(3, dtype, k),
                       {.shape = {.rank = -1}},
                       normal_view(4, WEFT_F32, WEFT_SHAPE(1, SK))};
    for (int i = 1; i < 5; i++)
        if (i != 3)
            repeat_rows(&in[i], 0, SK - equal);
    for (int64_t j = SK - equal; j < SK; j++)
        view_set(&in[1], j * HEAD + HEAD - 1, apart && j % 2 ? -0.0 : 0.0);
    weft_view out[2] = {{.dtype = dtype, .shape = q},
                        {.dtype = WEFT_F32, .shape = WEFT_SHAPE(1, 1, SQ)}};
    run_on(&weft_backend_cpu, WEFT_OP_ATTENTION, &attr, in, biased ? 5 : 3, out, 2);
    for (int i = 0; i < 5; i++)
        if (i != 3)
            weft_free(in[i].data);
    weft_free(out[1].data);
    return out[0];
}

/* Keys that are not merged have bitwise the results of keys that cannot be merged. Merged keys have
 * another order of summation. */
Test(repeats, attention_merges_keys_where_it_saves_time)
{
    static const struct {
        weft_dtype dtype;
        int64_t equal;
        bool biased, merged;
    } cases[] = {{WEFT_BF16, 60, false, false}, {WEFT_BF16, 61, false, true},
                 {WEFT_BF16, 60, true, true},   {WEFT_BF16, 31, true, false},
                 {WEFT_F32, 60, false, true},   {WEFT_F32, 31, false, false}};
    for (int n = 0; n < (int)(sizeof cases / sizeof *cases); n++) {
        weft_view out[2];
        for (int apart = 0; apart < 2; apart++)
            out[apart] = merged_output(cases[n].dtype, cases[n].equal, cases[n].biased, apart);
        const bool same =
            memcmp(out[0].data, out[1].data,
                   (size_t)(view_count(&out[0]) * weft_dtype_bytes(out[0].dtype))) == 0;
        cr_expect_eq(same, !cases[n].merged, "case %d", n);
        cr_expect(distance(&out[0], &out[1]) < 4e-3, "case %d: %g", n, distance(&out[0], &out[1]));
        weft_free(out[0].data);
        weft_free(out[1].data);
    }
}

/* Bitwise: the last of 70 items, with equal keys, has the results that it has alone. */
Test(repeats, attention_does_not_depend_on_the_place_in_the_batch)
{
    enum { B = 70, SQ = 4, SK = 48, H = 2, HEAD = 16, ITEM = SQ * H * HEAD };
    const weft_attr_attention attr = {.scale = 0.4};
    const weft_shape q = WEFT_SHAPE(B, SQ, H, HEAD), k = WEFT_SHAPE(B, SK, H, HEAD);
    weft_view in[3] = {normal_view(1, WEFT_F32, q), normal_view(2, WEFT_F32, k),
                       normal_view(3, WEFT_F32, k)};
    weft_view all[2] = {{.dtype = WEFT_F32, .shape = q},
                        {.dtype = WEFT_F32, .shape = WEFT_SHAPE(B, H, SQ)}};
    weft_view one[2] = {all[0], all[1]}, last[3];
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            repeat_rows(&in[i], B - 1, 5);
        last[i] = in[i];
        last[i].shape.dim[0] = 1;
        last[i].data = (float *)in[i].data + (B - 1) * (view_count(&in[i]) / B);
    }
    one[0].shape.dim[0] = one[1].shape.dim[0] = 1;
    run_on(&weft_backend_cpu, WEFT_OP_ATTENTION, &attr, in, 3, all, 2);
    run_on(&weft_backend_cpu, WEFT_OP_ATTENTION, &attr, last, 3, one, 2);
    cr_expect(memcmp((float *)all[0].data + (B - 1) * ITEM, one[0].data, ITEM * 4) == 0);
    cr_expect(memcmp((float *)all[1].data + (B - 1) * H * SQ, one[1].data, H * SQ * 4) == 0);
    for (int i = 0; i < 3; i++)
        weft_free(in[i].data);
    for (int i = 0; i < 2; i++) {
        weft_free(all[i].data);
        weft_free(one[i].data);
    }
}

/* Bitwise: the rows in a batch of three items are the rows of one item, whose last rows all
 * differ. */
static void check_linear(const weft_view *w)
{
    enum { B = 3, ROWS = 300, K = 96, N = 70 };
    static const weft_attr_linear attr = {WEFT_ACT_SILU, .round = WEFT_BF16};
    const weft_view bias = normal_view(3, WEFT_F32, WEFT_SHAPE(N));
    weft_view x = normal_view(1, WEFT_BF16, WEFT_SHAPE(B, ROWS, K)), flat = x;
    weft_view items = {.dtype = WEFT_BF16, .shape = WEFT_SHAPE(B, ROWS, N)},
              one = {.dtype = WEFT_BF16, .shape = WEFT_SHAPE(B * ROWS, N)};
    repeat_rows(&x, 0, 7);
    repeat_item(&x, 1);
    flat.shape = WEFT_SHAPE(B * ROWS, K);
    run_on(&weft_backend_cpu, WEFT_OP_LINEAR, &attr, (weft_view[]){x, *w, bias}, 3, &items, 1);
    run_on(&weft_backend_cpu, WEFT_OP_LINEAR, &attr, (weft_view[]){flat, *w, bias}, 3, &one, 1);
    cr_expect(memcmp(items.data, one.data, B * ROWS * N * sizeof(uint16_t)) == 0);
    weft_free(items.data);
    weft_free(one.data);
    weft_free(x.data);
    weft_free(bias.data);
}

Test(repeats, linear_rows_have_the_bits_of_all_rows)
{
    enum { K = 96, N = 70, BLOCK = 32 };
    weft_view w = normal_view(2, WEFT_BF16, WEFT_SHAPE(N, K)),
              f = normal_view(2, WEFT_F32, w.shape);
    unsigned char packed[N * (K / BLOCK) * (2 + BLOCK)];
    for (int n = 0; n < N; n++)
        weft_int8_pack((float *)f.data + n * K, K / BLOCK, BLOCK,
                       packed + n * (K / BLOCK) * (2 + BLOCK));
    check_linear(&w);
    check_linear(&(weft_view){packed, WEFT_U8, WEFT_SHAPE(N, K / BLOCK, 2 + BLOCK)});
    weft_free(w.data);
    weft_free(f.data);
}
