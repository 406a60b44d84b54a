/* NVIDIA's NVRTC compiles generated kernels; it needs no GPU. WEFT_TEST_NVRTC is the path of the
 * library (package nvidia-cuda-nvrtc-cu12). Without it, the tests are skipped. */
#include "base/memory.h"
#include "kernel/cuda/chain_source.h"
#include "kernel/cuda/cuda_nvrtc.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void use_nvrtc(void)
{
    const char *path = getenv("WEFT_TEST_NVRTC");
    if (path)
        setenv("WEFT_NVRTC_LIBRARY", path, 1);
    if (!path || weft_nvrtc_version() == 0)
        cr_skip("no NVRTC");
}

TestSuite(nvrtc, .init = use_nvrtc);

/* PTX of a chain of the ops, each on the result before, y and z; heap. */
static char *ptx_of(const weft_op *op, int count, weft_dtype type)
{
    weft_attr_pointwise attr = {.count = count};
    weft_view in[3], out = {.dtype = type, .shape = {2, {4, 24}}};
    char name[WEFT_CHAIN_NAME], *ptx, entry[80];
    weft_buf source = {0};
    for (int i = 0; i < 3; i++)
        in[i] = (weft_view){.dtype = type, .shape = {2, {i == 2 ? 1 : 4, 24}}};
    for (int s = 0; s < count; s++)
        attr.step[s] = (weft_pointwise_step){.op = op[s],
                                             .dtype = s == count - 1 ? type : WEFT_F32,
                                             .in_count = weft_op_get(op[s])->max_inputs,
                                             .in = {s ? WEFT_POINTWISE_STEP + s - 1 : 0, 1, 2},
                                             .out = s == count - 1 ? 0 : -1};
    const weft_kernel_args args = {.op = WEFT_OP_POINTWISE,
                                   .in = in,
                                   .in_count = 3,
                                   .out = &out,
                                   .out_count = 1,
                                   .attr = &attr};
    cr_assert(weft_chain_accepts(&args));
    cr_assert_eq(weft_chain_source(&args, name, &source), WEFT_OK);
    cr_assert_eq(weft_nvrtc_compile(name, source.data, &ptx), WEFT_OK, "%s\n%s",
                 weft_error_message(), source.data);
    snprintf(entry, sizeof entry, ".entry %s(", name);
    cr_expect(strstr(ptx, entry), "%s", name);
    cr_expect(strstr(ptx, ".version 7.5\n") && strstr(ptx, ".target sm_80\n"), "%.300s", ptx);
    cr_expect(!strstr(ptx, ".local"), "%s uses local memory", name);
    weft_buf_free(&source);
    return ptx;
}

/* Every op that a step may have, in groups of up to eight, for two types. */
Test(nvrtc, compiles_every_op)
{
    weft_op op[WEFT_POINTWISE_STEPS];
    int count = 0, seen = 0;
    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        if (weft_op_is_pointwise((weft_op)i)) {
            op[count++] = (weft_op)i;
            seen++;
        }
        if (count == WEFT_POINTWISE_STEPS || (i == WEFT_OP_COUNT - 1 && count)) {
            weft_free(ptx_of(op, count, WEFT_BF16));
            weft_free(ptx_of(op, count, WEFT_F32));
            count = 0;
        }
    }
    cr_expect_geq(seen, 25);
}

/* A product and a sum of two steps stay two operations that round, as in separate kernels. */
Test(nvrtc, contracts_nothing)
{
    char *two = ptx_of((weft_op[]){WEFT_OP_MUL, WEFT_OP_ADD}, 2, WEFT_F32),
         *one = ptx_of((weft_op[]){WEFT_OP_GATED_ADD, WEFT_OP_NEG}, 2, WEFT_F32);
    cr_expect(!strstr(two, "fma.rn.f32") && strstr(two, "mul.rn.f32") && strstr(two, "add.rn.f32"));
    cr_expect(strstr(one, "fma.rn.f32") && !strstr(one, "mul.rn.f32"));
    weft_free(two);
    weft_free(one);
}
