/* NVIDIA's NVRTC compiles generated kernels; it needs no GPU. WEFT_TEST_NVRTC is the path of the
 * library (package nvidia-cuda-nvrtc-cu12). Without it, the tests are skipped. */
#include "base/config.h"
#include "base/memory.h"
#include "kernel/cuda/chain_source.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/special_kernels.h"

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
    const weft_nvrtc_target portable = weft_nvrtc_target_of(90, 11080);
    char name[WEFT_CHAIN_NAME], *ptx, entry[80];
    weft_buf source = {0};
    int64_t bytes;
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
    cr_assert_eq(weft_nvrtc_compile(name, source.data, &portable, &ptx, &bytes), WEFT_OK, "%s\n%s",
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

/* ---- kernels for a shape --------------------------------------------------------------------- */

typedef struct operand {
    weft_dtype dtype;
    weft_shape shape; /* of rank -1: absent */
} operand;
#define F32(...)                                                                                   \
    {                                                                                              \
        WEFT_F32,                                                                                  \
        {                                                                                          \
            (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8),                                           \
            {                                                                                      \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        }                                                                                          \
    }
#define BF16(...)                                                                                  \
    {                                                                                              \
        WEFT_BF16,                                                                                 \
        {                                                                                          \
            (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8),                                           \
            {                                                                                      \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        }                                                                                          \
    }

typedef struct node_case {
    weft_op op;
    const void *attr;
    int in_count, out_count;
    operand in[6], out[3];
} node_case;

static const weft_attr_norm norm = {1e-6, false};
static const weft_attr_rope pairs = {false, false};
static const weft_attr_linear gelu = {WEFT_ACT_GELU_TANH, WEFT_BF16, false}, plain = {0},
                              rounded = {WEFT_ACT_NONE, WEFT_F32, true};
static const weft_attr_conv causal = {{1, 1, 1}, {2, 1, 1}, {0, 1, 1}, {0}, {3, 3, 3}};
static const weft_attr_attention scaled = {.scale = 0.088},
                                 scaled_tf32 = {.scale = 0.088, .tf32 = true};

/* Sizes of Wan 1.3B at 81 x 480 x 832 and of its autoencoder. */
static const node_case cases[] = {
    {WEFT_OP_RMS_NORM, &norm, 2, 1, {BF16(1, 32760, 1536), F32(1536)}, {BF16(1, 32760, 1536)}},
    {WEFT_OP_LAYER_NORM, &norm, 1, 1, {F32(1, 32760, 1536)}, {F32(1, 32760, 1536)}},
    {WEFT_OP_RMS_NORM_GRAD,
     &norm,
     3,
     2,
     {BF16(1, 32760, 1536), BF16(1, 32760, 1536), F32(1536)},
     {BF16(1, 32760, 1536), F32(1536)}},
    {WEFT_OP_SOFTMAX, NULL, 1, 1, {F32(16, 720)}, {F32(16, 720)}},
    {WEFT_OP_MODULATE,
     NULL,
     3,
     1,
     {BF16(1, 32760, 1536), F32(1, 1, 1536), F32(1, 1, 1536)},
     {BF16(1, 32760, 1536)}},
    {WEFT_OP_GATED_ADD,
     NULL,
     3,
     1,
     {BF16(1, 32760, 1536), BF16(1, 32760, 1536), F32(1, 1, 1536)},
     {BF16(1, 32760, 1536)}},
    {WEFT_OP_ROPE,
     &pairs,
     3,
     1,
     {BF16(1, 32760, 12, 128), F32(32760, 64), F32(32760, 64)},
     {BF16(1, 32760, 12, 128)}},
    {WEFT_OP_LINEAR,
     &gelu,
     3,
     1,
     {BF16(1, 32760, 1536), BF16(8960, 1536), F32(8960)},
     {BF16(1, 32760, 8960)}},
    {WEFT_OP_LINEAR,
     &plain,
     3,
     1,
     {F32(1, 512, 1536), F32(1536, 1536), F32(1536)},
     {F32(1, 512, 1536)}},
    {WEFT_OP_LINEAR,
     &rounded,
     3,
     1,
     {F32(1, 512, 1536), F32(1536, 1536), F32(1536)},
     {F32(1, 512, 1536)}},
    {WEFT_OP_CONV3D,
     &causal,
     3,
     1,
     {BF16(1, 21, 60, 104, 384), BF16(384, 384, 3, 3, 3), BF16(384)},
     {BF16(1, 21, 60, 104, 384)}},
    {WEFT_OP_CONV3D_DW,
     &causal,
     2,
     1,
     {F32(1, 21, 60, 104, 96), F32(1, 21, 60, 104, 3)},
     {F32(3, 96, 3, 3, 3)}},
    {WEFT_OP_ATTENTION,
     &scaled,
     3,
     2,
     {BF16(1, 32760, 12, 128), BF16(1, 32760, 12, 128), BF16(1, 32760, 12, 128)},
     {BF16(1, 32760, 12, 128), F32(1, 12, 32760)}},
    {WEFT_OP_ATTENTION,
     &scaled_tf32,
     3,
     2,
     {F32(1, 4096, 12, 64), F32(1, 4096, 12, 64), F32(1, 4096, 12, 64)},
     {F32(1, 4096, 12, 64), F32(1, 12, 4096)}},
    {WEFT_OP_ATTENTION_GRAD,
     &scaled,
     6,
     3,
     {BF16(1, 32760, 12, 128), BF16(1, 512, 12, 128), BF16(1, 512, 12, 128),
      BF16(1, 32760, 12, 128), F32(1, 12, 32760), BF16(1, 32760, 12, 128)},
     {BF16(1, 32760, 12, 128), BF16(1, 512, 12, 128), BF16(1, 512, 12, 128)}},
    {WEFT_OP_ATTENTION_GRAD,
     &scaled,
     6,
     3,
     {BF16(1, 4096, 24, 64), BF16(1, 4096, 24, 64), BF16(1, 4096, 24, 64), BF16(1, 4096, 24, 64),
      F32(1, 24, 4096), BF16(1, 4096, 24, 64)},
     {BF16(1, 4096, 24, 64), BF16(1, 4096, 24, 64), BF16(1, 4096, 24, 64)}},
    {WEFT_OP_ATTENTION_GRAD,
     &scaled,
     6,
     3,
     {F32(1, 4096, 8, 40), F32(1, 4096, 8, 40), F32(1, 4096, 8, 40), F32(1, 4096, 8, 40),
      F32(1, 8, 4096), F32(1, 4096, 8, 40)},
     {F32(1, 4096, 8, 40), F32(1, 4096, 8, 40), F32(1, 4096, 8, 40)}},
};

static int compiled;

/* Machine code of several architectures, and PTX without local memory. */
static weft_status_code compile_launch(weft_cuda_queue *queue, const weft_cuda_launch *launch)
{
    static const weft_nvrtc_target targets[] = {
        {80, true, false}, {90, true, false}, {90, false, false}};
    const weft_special_kernel *kernel = weft_special_kernel_of(launch);
    char name[WEFT_SPECIAL_NAME];
    weft_buf source = {0};
    (void)queue;
    if (!kernel)
        return WEFT_OK;
    cr_assert_eq(weft_special_source(kernel, launch->args, name, &source), WEFT_OK);
    for (int i = 0; i < WEFT_COUNT(targets); i++) {
        char *code;
        int64_t bytes;
        cr_assert_eq(weft_nvrtc_compile(name, source.data, &targets[i], &code, &bytes), WEFT_OK,
                     "%s\n%s", weft_error_message(), source.data);
        cr_expect(memmem(code, (size_t)bytes, name, strlen(name)), "%s", name);
        if (targets[i].machine)
            cr_expect(!memcmp(code, "\177ELF", 4), "%s", name);
        else
            cr_expect(!strstr(code, ".local"), "%s uses local memory", name);
        weft_free(code);
    }
    weft_buf_free(&source);
    compiled++;
    return WEFT_OK;
}

Test(nvrtc, compiles_kernels_for_shapes, .timeout = 600)
{
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        const node_case *c = &cases[i];
        weft_view in[6], out[3];
        for (int k = 0; k < 6; k++)
            in[k] = (weft_view){.data = (void *)(uintptr_t)((k + 1) << 20),
                                .dtype = c->in[k].dtype,
                                .shape = c->in[k].shape};
        for (int k = 0; k < 3; k++)
            out[k] = (weft_view){.data = (void *)(uintptr_t)((k + 9) << 20),
                                 .dtype = c->out[k].dtype,
                                 .shape = c->out[k].shape};
        const weft_kernel_args args = {.op = c->op,
                                       .attr = c->attr,
                                       .in = in,
                                       .in_count = c->in_count,
                                       .out = out,
                                       .out_count = c->out_count,
                                       .workspace = (void *)(uintptr_t)(99 << 20)};
        weft_cuda_queue queue = {.add = compile_launch};
        cr_assert_eq(weft_cuda_ops[c->op].launch(&args, &queue), WEFT_OK, "%s",
                     weft_error_message());
    }
    cr_expect_eq(compiled, 23);
}
