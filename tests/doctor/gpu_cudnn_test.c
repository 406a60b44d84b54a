/* cuDNN as an implementation of convolutions and attention, computed by the emulated library
 * (tests/emu/cudnn): results, planted faults, and their replacement. */
#include "base/log.h"
#include "doctor/gpu_check.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_module.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static int library = -1; /* index of cuDNN */

static void use_library(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_CUDNN_LIBRARY", WEFT_EMU_CUDNN, 1);
    setenv("WEFT_CUDNN", "on", 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    for (int i = 0; i < weft_cuda_impl_own(); i++)
        if (!strcmp(weft_cuda_impl_get(i)->name, "cudnn"))
            library = i;
    cr_assert(library >= 0 && weft_cuda_impl_get(library)->version() > 0);
}

TestSuite(gpu_cudnn, .init = use_library);

static weft_op_check op[WEFT_GPU_RESULTS];

static const weft_op_check *check_with(const char *fault, int model, bool bf16, weft_op of)
{
    setenv("WEFT_EMU_FAULT", fault, 1);
    memset(op, 0, sizeof op);
    cr_assert_eq(weft_gpu_check_model(model, bf16, op), WEFT_OK, "%s", weft_error_message());
    cr_expect(op[of].nodes > 0 && !op[of].failed, "weft's own kernel of %s", weft_op_get(of)->name);
    return &op[WEFT_GPU_RESULT(library, of)];
}

/* All nodes of the ops pass. */
static void expect_passed(int model, bool bf16, const weft_op *ops, int count)
{
    (void)check_with("", model, bf16, ops[0]);
    for (int i = 0; i < count; i++) {
        const weft_op_check *c = &op[WEFT_GPU_RESULT(library, ops[i])];
        cr_expect(c->nodes > 0 && !c->failed && !c->unsupported && !c->missing,
                  "%s: %lld nodes, %lld failed, %lld unsupported, %lld missing, error %g at %s",
                  weft_op_get(ops[i])->name, (long long)c->nodes, (long long)c->failed,
                  (long long)c->unsupported, (long long)c->missing, c->error, c->worst_output);
    }
}

static const weft_op convolutions[] = {WEFT_OP_CONV3D, WEFT_OP_CONV3D_DX, WEFT_OP_CONV3D_DW},
                     attentions[] = {WEFT_OP_ATTENTION, WEFT_OP_ATTENTION_GRAD};

Test(gpu_cudnn, convolutions_of_f32_pass)
{
    expect_passed(WEFT_GPU_VECTOR_VAE, false, convolutions, 3);
}

Test(gpu_cudnn, convolutions_of_bf16_pass)
{
    expect_passed(WEFT_GPU_VECTOR_VAE, true, convolutions, 3);
}

Test(gpu_cudnn, attention_of_bf16_passes)
{
    expect_passed(WEFT_GPU_VECTOR_MODEL, true, attentions, 2);
    expect_passed(WEFT_GPU_WIDE_MODEL, true, attentions, 2);
}

Test(gpu_cudnn, wrong_results_are_found)
{
    cr_expect(check_with("cudnn-result", WEFT_GPU_VECTOR_MODEL, true, attentions[1])->failed > 0);
}

/* Only the second output of attention is wrong. */
Test(gpu_cudnn, wrong_lse_is_found)
{
    const weft_op_check *c = check_with("cudnn-lse", WEFT_GPU_VECTOR_MODEL, true, attentions[0]);
    cr_expect(c->failed > 0);
    cr_expect_not_null(strstr(c->worst_output, "output 1"), "%s", c->worst_output);
}

/* Errors of the library do not end the comparison: cuDNN is not used. */
Test(gpu_cudnn, refused_plans_and_failed_executions_are_refusals)
{
    static const char *const faults[] = {"cudnn-heuristic", "cudnn-plan", "cudnn-execute"};
    for (int i = 0; i < 3; i++) {
        const weft_op_check *c = check_with(faults[i], WEFT_GPU_VECTOR_MODEL, true, attentions[0]);
        cr_expect(c->unsupported > 0 && !c->nodes, "%s", faults[i]);
    }
}
