/* cuDNN as an implementation of convolutions and attention, computed by the emulated library
 * (tests/emu/cudnn): results, planted faults, and their replacement. */
#include "base/fs.h"
#include "base/log.h"
#include "doctor/gpu_check.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/cudnn_attention.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void use_earlier_library(void)
{
    setenv("WEFT_EMU_CUDNN_VERSION", "91900", 1);
    use_library();
}

TestSuite(gpu_cudnn_steps, .init = use_earlier_library);

static weft_op_check op[WEFT_GPU_RESULTS];

static const weft_op_check *check_with(const char *fault, int model, weft_products products,
                                       weft_op of)
{
    setenv("WEFT_EMU_FAULT", fault, 1);
    memset(op, 0, sizeof op);
    cr_assert_eq(weft_gpu_check_model(model, products, op), WEFT_OK, "%s", weft_error_message());
    cr_expect(op[of].nodes > 0 && !op[of].failed, "weft's own kernel of %s", weft_op_get(of)->name);
    return &op[WEFT_GPU_RESULT(library, of)];
}

/* All nodes of the ops pass. */
static void expect_passed(int model, weft_products products, const weft_op *ops, int count)
{
    (void)check_with("", model, products, ops[0]);
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

/* Versions before 9.28 get the gradient of attention as a graph of several operations. */
Test(gpu_cudnn_steps, attention_of_bf16_passes)
{
    expect_passed(WEFT_GPU_VECTOR_MODEL, true, attentions, 2);
    expect_passed(WEFT_GPU_WIDE_MODEL, true, attentions, 2);
}

/* Each execution computes one head of one sample. */
Test(gpu_cudnn_steps, attention_of_bf16_passes_in_parts)
{
    int before, after, refused;
    void *emulated = dlopen(WEFT_EMU_CUDNN, RTLD_NOW | RTLD_NOLOAD);
    cr_assert_not_null(emulated);
    void (*count)(int *, int *) = NULL;
    *(void **)&count = dlsym(emulated, "weft_emulated_cudnn");
    cr_assert_not_null(count);
    weft_cudnn_steps_limit(1);
    count(&before, &refused);
    expect_passed(WEFT_GPU_VECTOR_MODEL, true, attentions, 2);
    count(&after, &refused);
    const int64_t nodes = op[WEFT_GPU_RESULT(library, WEFT_OP_ATTENTION)].nodes +
                          op[WEFT_GPU_RESULT(library, WEFT_OP_ATTENTION_GRAD)].nodes;
    cr_expect(after - before > nodes, "%d executions of %lld nodes", after - before,
              (long long)nodes);
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

/* ---- replacement ----------------------------------------------------------------------------- */

static char folder[] = "/tmp/weft-cudnn-XXXXXX";
static char warned[400]; /* the last message kernel-replaced */

static void keep_warning(void *user, weft_log_level level, weft_message_class kind,
                         const weft_message_fields *at, const char *text)
{
    (void)user, (void)level;
    if (kind == WEFT_MSG_KERNEL_REPLACED)
        snprintf(warned, sizeof warned, "%s %s: %s", at->value, at->key, text);
}

static void use_folder(void)
{
    use_library();
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
    weft_log_set_receiver(&(weft_log_receiver){.message = keep_warning, .has_message = true});
}

static void remove_folder(void)
{
    weft_cuda_choices_forget();
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(gpu_cudnn_replaced, .init = use_folder, .fini = remove_folder);

/* Runs attention of zeros, whose lse is ln(KEYS). */
enum { QUERIES = 8, KEYS = 16, WIDTH = 64 };

static void run_attention(void)
{
    const weft_device *device = &weft_device_cuda;
    const int64_t bytes = 1 << 16;
    const weft_attr_attention attr = {.scale = 0.125};
    weft_device_stream *stream;
    weft_view in[3], out[2];
    for (int i = 0; i < 3; i++)
        in[i] = (weft_view){.dtype = WEFT_BF16, .shape = {4, {1, i ? KEYS : QUERIES, 2, WIDTH}}};
    out[0] = in[0];
    out[1] = (weft_view){.shape = {3, {1, 2, QUERIES}}};
    weft_kernel_args args = {.op = WEFT_OP_ATTENTION,
                             .in = in,
                             .in_count = 3,
                             .out = out,
                             .out_count = 2,
                             .attr = &attr,
                             .products = WEFT_PRODUCTS_BF16};
    const weft_kernel *kernel = weft_backend_cuda.kernel[WEFT_OP_ATTENTION];
    char *memory = device->alloc(device, 5 * bytes), *space = device->alloc(device, 4 << 20);
    float *lse = device->alloc_host(device, 2 * QUERIES * 4);
    cr_assert_eq(device->open(device, &weft_backend_cuda, &stream), WEFT_OK);
    cr_assert_eq(kernel->prepare(&args, &args.cache), WEFT_OK, "%s", weft_error_message());
    device->fill(stream, memory, 0, 5 * bytes);
    for (int i = 0; i < 5; i++)
        *(i < 3 ? &in[i].data : &out[i - 3].data) = memory + i * bytes;
    args.stream = stream;
    args.workspace = space;
    cr_assert_eq(kernel->run(&args), WEFT_OK, "%s", weft_error_message());
    device->host_copy(stream, lse, out[1].data, 2 * QUERIES * 4);
    cr_assert_eq(device->wait(stream), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < 2 * QUERIES; i++) /* close: 2^x and ln are approximate */
        cr_expect(fabsf(lse[i] - logf(KEYS)) < 1e-5F, "%g", (double)lse[i]);
    device->free_host(device, lse);
    device->free(device, memory);
    device->free(device, space);
    device->close(stream);
}

static void expect_replaced(const char *fault, weft_verdict verdict)
{
    setenv("WEFT_EMU_FAULT", fault, 1);
    weft_cuda_verdict_set(WEFT_PRODUCTS_BF16, library, WEFT_OP_ATTENTION, verdict);
    weft_cuda_verdict_set(WEFT_PRODUCTS_BF16, weft_cuda_impl_own(), WEFT_OP_ATTENTION,
                          WEFT_VERDICT_PASSED);
    run_attention();
    cr_expect_not_null(strstr(warned, "cudnn attention"), "%s: %s", fault, warned);
}

Test(gpu_cudnn_replaced, failed_executions)
{
    expect_replaced("cudnn-execute", WEFT_VERDICT_PASSED);
}

Test(gpu_cudnn_replaced, refused_plans)
{
    expect_replaced("cudnn-plan", WEFT_VERDICT_PASSED);
}

Test(gpu_cudnn_replaced, wrong_lse)
{
    const weft_op_check *c = check_with("cudnn-lse", WEFT_GPU_VECTOR_MODEL, true, attentions[0]);
    expect_replaced("cudnn-lse", c->failed ? WEFT_VERDICT_FAILED : WEFT_VERDICT_PASSED);
}
