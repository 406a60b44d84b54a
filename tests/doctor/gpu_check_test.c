/* Verdicts of kernels on the emulated driver: planted faults are found and named, and a program
 * with an op that failed is not prepared. */
#include "base/fs.h"
#include "base/memory.h"
#include "doctor/gpu_check.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void use_emulation(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
}

TestSuite(gpu_check, .init = use_emulation);

static weft_op_check op[WEFT_GPU_RESULTS];

static weft_status_code check_in(weft_products products, const char *fault)
{
    setenv("WEFT_EMU_FAULT", fault, 1);
    return weft_gpu_check_model(WEFT_GPU_VECTOR_MODEL, products, op);
}

static weft_status_code check_with(const char *fault)
{
    return check_in(WEFT_PRODUCTS_BF16, fault);
}

Test(gpu_check, vector_model_passes)
{
    cr_assert_eq(check_with(""), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < WEFT_OP_COUNT; i++)
        cr_expect(!op[i].failed && !op[i].missing, "%s: error %g at %s",
                  weft_op_get((weft_op)i)->name, op[i].error, op[i].worst_output);
    cr_expect(op[WEFT_OP_LINEAR].nodes > 0 && op[WEFT_OP_ATTENTION].nodes > 0);
}

/* Marks the ops of a graph. */
static void note_ops(int model, weft_products products, bool has[WEFT_OP_COUNT])
{
    weft_graph *g;
    cr_assert_eq(weft_gpu_check_build(model, products, &g), WEFT_OK, "%s", weft_error_message());
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        has[weft_graph_node(g, n)->op] = true;
    weft_graph_free(g);
}

/* A new op with a kernel needs a node in the comparison, in each precision. */
Test(gpu_check, every_kernel_is_compared)
{
    setenv("WEFT_NVRTC_LIBRARY", WEFT_EMU_NVRTC, 1); /* for elementwise chains */
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++) {
        bool has[WEFT_OP_COUNT] = {false};
        for (int i = 0; i < WEFT_GPU_MODELS; i++)
            if (weft_gpu_check_has(i, (weft_products)p))
                note_ops(i, (weft_products)p, has);
        for (int i = 0; i < WEFT_OP_COUNT; i++)
            cr_expect(has[i] || !weft_cuda_ops[i].launch, "%s has no node in %s",
                      weft_op_get((weft_op)i)->name, weft_cuda_precision_name((weft_products)p));
    }
}

/* Ops that the models lack. */
static void check_rest(weft_products products)
{
    memset(op, 0, sizeof op);
    cr_assert_eq(weft_gpu_check_model(WEFT_GPU_REST, products, op), WEFT_OK, "%s",
                 weft_error_message());
    for (int i = 0; i < WEFT_OP_COUNT; i++)
        cr_expect(!op[i].failed && !op[i].missing, "%s: error %g at %s",
                  weft_op_get((weft_op)i)->name, op[i].error, op[i].worst_output);
    cr_expect(op[WEFT_OP_BLOCK_ATTENTION].nodes == 4 &&
              op[WEFT_OP_BLOCK_ATTENTION_GRAD].nodes == 4);
    cr_expect(op[WEFT_OP_TOP_P].nodes == 4 && op[WEFT_OP_TOP_SHARE].nodes == 4);
}

Test(gpu_check, rest_passes)
{
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++)
        check_rest((weft_products)p);
}

Test(gpu_check, wrong_fragments_are_found)
{
    cr_assert_eq(check_with("fragment"), WEFT_OK, "%s", weft_error_message());
    cr_expect(op[WEFT_OP_LINEAR].failed > 0 && op[WEFT_OP_MATMUL].failed > 0);
    cr_expect(op[WEFT_OP_LINEAR].error > 2 * op[WEFT_OP_LINEAR].tolerance);
    cr_expect(!op[WEFT_OP_ATTENTION].failed && !op[WEFT_OP_ADAMW].failed);
}

/* Compares a norm of `columns` columns by every implementation. */
static void check_norm(int64_t columns, int special)
{
    weft_graph *g = weft_graph_create();
    const weft_value in[] = {weft_input(g, "x", WEFT_F32, WEFT_SHAPE(9, columns)),
                             weft_input(g, "gamma", WEFT_F32, WEFT_SHAPE(columns))};
    weft_output(g, "y", weft_emit(g, WEFT_OP_LAYER_NORM, in, 2, &(weft_attr_norm){1e-6, false}));
    memset(op, 0, sizeof op);
    cr_assert_eq(weft_gpu_check_graph(g, WEFT_PRODUCTS_F32, op), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect(op[WEFT_OP_LAYER_NORM].nodes == 1 && !op[WEFT_OP_LAYER_NORM].failed);
    cr_expect_eq(op[WEFT_GPU_RESULT(special, WEFT_OP_LAYER_NORM)].nodes, 1);
    weft_graph_free(g);
}

/* A kernel that NVRTC compiles for the sizes of a shape is compared like every implementation. */
Test(gpu_check, wrong_kernels_for_a_shape_are_found)
{
    char folder[] = "/tmp/weft-check-XXXXXX";
    int special = 0;
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
    setenv("WEFT_NVRTC_LIBRARY", WEFT_EMU_NVRTC, 1);
    while (strcmp(weft_cuda_impl_get(special)->name, "specialised"))
        special++;
    const weft_op_check *result = &op[WEFT_GPU_RESULT(special, WEFT_OP_LAYER_NORM)];
    check_norm(24, special);
    cr_expect(!result->failed, "error %g", result->error);
    setenv("WEFT_EMU_FAULT", "constant:kind", 1); /* an rms norm */
    check_norm(32, special);
    cr_expect(result->failed == 1, "error %g", result->error);
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

/* Products of the vector model run on tensor cores, with errors of roundings that ref has as well. */
Test(gpu_check, tf32_passes)
{
    cr_assert_eq(check_in(WEFT_PRODUCTS_TF32, ""), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < WEFT_OP_COUNT; i++)
        cr_expect(!op[i].failed && !op[i].missing, "%s: error %g at %s",
                  weft_op_get((weft_op)i)->name, op[i].error, op[i].worst_output);
    cr_expect(op[WEFT_OP_ATTENTION].nodes > 0 && op[WEFT_OP_ATTENTION_GRAD].nodes > 0);
    cr_expect(op[WEFT_OP_LINEAR].tolerance == 1e-2 / 8 && op[WEFT_OP_ADD].tolerance == 1e-6);
}

Test(gpu_check, wrong_fragments_of_tf32_are_found)
{
    cr_assert_eq(check_in(WEFT_PRODUCTS_TF32, "fragment"), WEFT_OK, "%s", weft_error_message());
    cr_expect(op[WEFT_OP_LINEAR].failed > 0 && op[WEFT_OP_MATMUL].failed > 0);
    cr_expect(!op[WEFT_OP_ATTENTION].failed && !op[WEFT_OP_ADAMW].failed);
}

Test(gpu_check, wrong_lse_is_found)
{
    cr_assert_eq(check_with("lse"), WEFT_OK, "%s", weft_error_message());
    cr_expect(op[WEFT_OP_ATTENTION].failed == op[WEFT_OP_ATTENTION].nodes);
    cr_expect(strstr(op[WEFT_OP_ATTENTION].worst_output, "output 1"), "%s",
              op[WEFT_OP_ATTENTION].worst_output);
    cr_expect(!op[WEFT_OP_LINEAR].failed && !op[WEFT_OP_MATMUL].failed);
}

Test(gpu_check, wrong_lse_of_blocks_is_found)
{
    setenv("WEFT_EMU_FAULT", "lse", 1);
    cr_assert_eq(weft_gpu_check_model(WEFT_GPU_REST, WEFT_PRODUCTS_BF16, op), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_gt(op[WEFT_OP_BLOCK_ATTENTION].failed, 0);
    cr_expect(strstr(op[WEFT_OP_BLOCK_ATTENTION].worst_output, "output 1"), "%s",
              op[WEFT_OP_BLOCK_ATTENTION].worst_output);
    cr_expect(!op[WEFT_OP_TOP_P].failed && !op[WEFT_OP_EMBED].failed);
}

/* Faults after which the GPU does not work end the check with their name and node. */
Test(gpu_check, ecc_errors_end_the_check)
{
    cr_assert_neq(check_with("ecc@7"), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_ECC, "%s", weft_error_message());
    cr_expect(strstr(weft_error_message(), "node "), "%s", weft_error_message());
}

Test(gpu_check, hanging_kernels_end_the_check)
{
    setenv("WEFT_CUDA_DEADLINE", "0.2", 1);
    cr_assert_neq(check_with("hang@7"), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_HANG, "%s", weft_error_message());
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Verdicts of the process are in a folder of its own. */
static void use_folder(char *folder)
{
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
}

static void drop_folder(const char *folder)
{
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK, "%s", weft_error_message());
}

static int own(void)
{
    return weft_cuda_impl_own();
}

static weft_status_code prepare(weft_op which, weft_products products)
{
    void *cache;
    const weft_kernel *kernel = weft_backend_cuda.kernel[which];
    const weft_attr_linear attr = {.act = WEFT_ACT_NONE};
    weft_view in[] = {{.shape = {2, {8, 16}}}, {.shape = {2, {24, 16}}}, {.shape = {.rank = -1}}},
              out = {.shape = {2, {8, 24}}};
    const weft_kernel_args args = {.op = which,
                                   .in = in,
                                   .in_count = 3,
                                   .out = &out,
                                   .out_count = 1,
                                   .attr = &attr,
                                   .products = products};
    return kernel->prepare(&args, &cache);
}

Test(gpu_check, stored_verdicts_stop_a_program)
{
    char folder[] = "/tmp/weft-verdicts-XXXXXX";
    bool found;
    use_folder(folder);
    cr_assert_eq(weft_cuda_verdicts_load(WEFT_PRODUCTS_BF16, &found), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_not(found);
    weft_cuda_verdict_set(WEFT_PRODUCTS_BF16, own(), WEFT_OP_LINEAR, WEFT_VERDICT_FAILED);
    weft_cuda_verdict_set(WEFT_PRODUCTS_BF16, own(), WEFT_OP_GELU, WEFT_VERDICT_PASSED);
    cr_assert_eq(weft_cuda_verdicts_save(), WEFT_OK, "%s", weft_error_message());
    weft_cuda_verdicts_forget();
    cr_assert_eq(weft_gpu_settle(&weft_backend_cuda, WEFT_PRODUCTS_BF16), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(prepare(WEFT_OP_GELU, true), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(prepare(WEFT_OP_ADD, true), WEFT_OK, "not compared: %s", weft_error_message());
    cr_expect_neq(prepare(WEFT_OP_LINEAR, true), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_PARITY_FAILED, "%s", weft_error_message());
    /* the verdicts of bf16 say nothing of f32 */
    cr_assert_eq(weft_cuda_verdicts_load(WEFT_PRODUCTS_F32, &found), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_not(found);
    weft_cuda_verdict_set(WEFT_PRODUCTS_F32, own(), WEFT_OP_LINEAR, WEFT_VERDICT_PASSED);
    cr_expect_eq(prepare(WEFT_OP_LINEAR, false), WEFT_OK, "%s", weft_error_message());
    drop_folder(folder);
}

/* Verdicts of another GPU or of a damaged file are not used. */
Test(gpu_check, foreign_and_damaged_verdicts_are_ignored)
{
    char folder[] = "/tmp/weft-verdicts-XXXXXX", *path;
    bool found;
    use_folder(folder);
    cr_assert_eq(weft_cuda_verdicts_path(".json", &path), WEFT_OK, "%s", weft_error_message());
    static const char *const texts[] = {"{\"of\": {\"gpu\": \"another\"}, \"ops\": {\"f32\": "
                                        "{\"linear\": {\"weft\": \"failed\"}}}}",
                                        "{\"of\": {"};
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(path, "w");
        fputs(texts[i], file);
        fclose(file);
        cr_assert_eq(weft_cuda_verdicts_load(WEFT_PRODUCTS_F32, &found), WEFT_OK, "%s",
                     weft_error_message());
        cr_expect_not(found);
        cr_expect_eq(weft_cuda_verdict_get(WEFT_PRODUCTS_F32, own(), WEFT_OP_LINEAR),
                     WEFT_VERDICT_NONE);
    }
    weft_free(path);
    drop_folder(folder);
}
