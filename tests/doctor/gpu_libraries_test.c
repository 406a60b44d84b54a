/* cuBLASLt as an implementation of linear and matmul, computed by the emulated library
 * (tests/emu/cublaslt): results, planted faults, and the order of its work and weft's launches. */
#include "base/rng.h"
#include "doctor/gpu_check.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_module.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static int library = -1; /* index of cuBLASLt */

static void use_library(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_CUBLASLT_LIBRARY", WEFT_EMU_CUBLASLT, 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    for (int i = 0; i < weft_cuda_impl_own(); i++)
        if (!strcmp(weft_cuda_impl_get(i)->name, "cublaslt"))
            library = i;
    cr_assert(library >= 0 && weft_cuda_impl_get(library)->version() > 0);
}

TestSuite(gpu_libraries, .init = use_library);

/* ---- comparison with the reference ----------------------------------------------------------- */

static weft_op_check op[WEFT_GPU_RESULTS];

static const weft_op_check *check_in(weft_products products, const char *fault, weft_op of)
{
    setenv("WEFT_EMU_FAULT", fault, 1);
    memset(op, 0, sizeof op);
    cr_assert_eq(weft_gpu_check_model(WEFT_GPU_VECTOR_MODEL, products, op), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect(op[of].nodes > 0 && !op[of].failed, "weft's own kernel of %s", weft_op_get(of)->name);
    return &op[WEFT_GPU_RESULT(library, of)];
}

static const weft_op_check *check_with(const char *fault, weft_op of)
{
    return check_in(WEFT_PRODUCTS_BF16, fault, of);
}

/* Biases of bf16 training are f32, and are converted for the library. */
Test(gpu_libraries, cublaslt_passes)
{
    static const weft_op ops[] = {WEFT_OP_LINEAR, WEFT_OP_MATMUL};
    for (int i = 0; i < 2; i++) {
        const weft_op_check *c = i ? &op[WEFT_GPU_RESULT(library, ops[i])] : check_with("", ops[i]);
        cr_expect(c->nodes > 0 && !c->failed && !c->unsupported && !c->missing,
                  "%s: error %g at %s", weft_op_get(ops[i])->name, c->error, c->worst_output);
    }
}

/* The library rounds as well: results of linear layers that do not round differ by 3e-4 from ref. */
Test(gpu_libraries, cublaslt_rounds_to_tf32)
{
    const weft_op_check *c = check_in(WEFT_PRODUCTS_TF32, "", WEFT_OP_LINEAR);
    cr_expect(c->nodes > 0 && !c->failed && !c->unsupported && !c->missing, "error %g at %s",
              c->error, c->worst_output);
    cr_expect(c->error < 1e-4, "error %g at %s", c->error, c->worst_output);
}

Test(gpu_libraries, wrong_results_are_found)
{
    cr_expect(check_with("cublaslt-result", WEFT_OP_LINEAR)->failed > 0);
}

/* Errors of a library do not end the comparison: the library is not used. */
Test(gpu_libraries, failed_launches_are_refusals)
{
    const weft_op_check *c = check_with("cublaslt-status", WEFT_OP_MATMUL);
    cr_expect(c->unsupported > 0 && !c->nodes);
}

Test(gpu_libraries, missing_algorithms_are_refusals)
{
    const weft_op_check *c = check_with("cublaslt-heuristic", WEFT_OP_LINEAR);
    cr_expect(c->unsupported > 0 && !c->nodes);
}

/* ---- launches -------------------------------------------------------------------------------- */

enum { ROWS = 24, DEPTH = 40, COLUMNS = 16, OUT = ROWS * COLUMNS };

typedef struct bench {
    const weft_device *device;
    weft_device_stream *stream;
    float *x, *y, *w, *bias, *out, *workspace; /* of the GPU */
} bench;

static void open_bench(bench *b)
{
    const int64_t counts[] = {ROWS * DEPTH, ROWS * DEPTH, COLUMNS * DEPTH, COLUMNS, OUT, 1 << 20};
    float **const memory[] = {&b->x, &b->y, &b->w, &b->bias, &b->out, &b->workspace};
    b->device = &weft_device_cuda;
    cr_assert_eq(b->device->open(b->device, &weft_backend_cuda, &b->stream), WEFT_OK);
    float *const host = b->device->alloc_host(b->device, ROWS * DEPTH * (int64_t)sizeof *host);
    for (int i = 0; i < 6; i++) {
        *memory[i] = b->device->alloc(b->device, counts[i] * (int64_t)sizeof(float));
        cr_assert_not_null(*memory[i]);
        if (i == 1 || i >= 4)
            continue; /* y, out and the workspace are written by kernels */
        for (int64_t k = 0; k < counts[i]; k++)
            host[k] = weft_random_uniform((uint64_t)i, WEFT_RNG_TEST, (uint64_t)k) - 0.5F;
        b->device->host_copy(b->stream, *memory[i], host, counts[i] * (int64_t)sizeof *host);
        cr_assert_eq(b->device->wait(b->stream), WEFT_OK);
    }
    b->device->free_host(b->device, host);
}

static void run(const bench *b, weft_kernel_args *args)
{
    const weft_kernel *kernel = weft_backend_cuda.kernel[args->op];
    args->stream = b->stream;
    args->workspace = b->workspace;
    cr_assert_eq(kernel->prepare(args, &args->cache), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(kernel->run(args), WEFT_OK, "%s", weft_error_message());
}

static void run_silu(const bench *b, float *from, float *to, int64_t rows, int64_t columns)
{
    weft_view in = {.data = from, .shape = {2, {rows, columns}}}, out = in;
    out.data = to;
    weft_kernel_args args = {
        .op = WEFT_OP_SILU, .in = &in, .in_count = 1, .out = &out, .out_count = 1};
    weft_cuda_choice_force(-1);
    run(b, &args);
}

/* Adds linear by implementation `impl` and its activation. */
static void run_linear(const bench *b, int impl, float *x, weft_act act)
{
    weft_view in[] = {{.data = x, .shape = {2, {ROWS, DEPTH}}},
                      {.data = b->w, .shape = {2, {COLUMNS, DEPTH}}},
                      {.data = b->bias, .shape = {1, {COLUMNS}}}};
    weft_view out = {.data = b->out, .shape = {2, {ROWS, COLUMNS}}};
    const weft_attr_linear attr = {.act = act, .round = WEFT_F32};
    weft_kernel_args args = {
        .op = WEFT_OP_LINEAR, .in = in, .in_count = 3, .out = &out, .out_count = 1, .attr = &attr};
    weft_cuda_choice_force(impl);
    run(b, &args);
    weft_cuda_choice_force(-1);
}

static void read_out(const bench *b, float out[OUT])
{
    float *const host = b->device->alloc_host(b->device, OUT * (int64_t)sizeof *host);
    b->device->host_copy(b->stream, host, b->out, OUT * (int64_t)sizeof *host);
    cr_assert_eq(b->device->wait(b->stream), WEFT_OK, "%s", weft_error_message());
    memcpy(out, host, OUT * sizeof *out);
    b->device->free_host(b->device, host);
}

/* The library's bits differ from weft's: it adds in another order. */
Test(gpu_libraries, the_library_computes)
{
    bench b;
    static float own[OUT], of_library[OUT];
    open_bench(&b);
    run_linear(&b, weft_cuda_impl_own(), b.x, WEFT_ACT_NONE);
    read_out(&b, own);
    run_linear(&b, library, b.x, WEFT_ACT_NONE);
    read_out(&b, of_library);
    cr_expect(memcmp(own, of_library, sizeof own), "both are bitwise identical");
    for (int i = 0; i < OUT; i++) /* 40 products of at most 0.25 */
        cr_expect(own[i] - of_library[i] < 1e-5F && of_library[i] - own[i] < 1e-5F, "%d: %g %g", i,
                  (double)own[i], (double)of_library[i]);
}

/* Bitwise: the pass `fuse` does not change results. */
Test(gpu_libraries, activations_are_those_of_weft)
{
    bench b;
    static float fused[OUT], separate[OUT];
    open_bench(&b);
    run_linear(&b, library, b.x, WEFT_ACT_SILU);
    read_out(&b, fused);
    run_linear(&b, library, b.x, WEFT_ACT_NONE);
    run_silu(&b, b.out, b.out, ROWS, COLUMNS);
    read_out(&b, separate);
    cr_expect_arr_eq(fused, separate, sizeof fused);
}

/* A launch of weft that waits to be joined is issued before the library reads its result. The
 * result is bitwise identical to the result of a stream that waits between the two. */
Test(gpu_libraries, waiting_launches_come_first)
{
    bench b;
    static float at_once[OUT], in_sequence[OUT];
    open_bench(&b);
    run_silu(&b, b.x, b.y, ROWS, DEPTH);
    run_linear(&b, library, b.y, WEFT_ACT_NONE);
    read_out(&b, at_once);
    run_silu(&b, b.x, b.y, ROWS, DEPTH);
    cr_assert_eq(b.device->wait(b.stream), WEFT_OK);
    run_linear(&b, library, b.y, WEFT_ACT_NONE);
    read_out(&b, in_sequence);
    cr_expect_arr_eq(at_once, in_sequence, sizeof at_once);
}
