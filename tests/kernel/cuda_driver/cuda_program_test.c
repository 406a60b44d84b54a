/* Programs on backend `cuda` over the emulated driver: training steps of a small model without
 * matrix products, from the executor through stores, optimizer and averages. */
#include "base/fs.h"
#include "base/memory.h"
#include "base/rng.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/store/store.h"
#include "exec/store/tensor_copy.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/registry/kernel_check.h"
#include "train/graph/optimizer.h"
#include "transform/numeric/pointwise.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, BATCH = 3, TOKENS = 7, WIDTH = 24, ELEMENTS = BATCH * TOKENS * WIDTH };

static void use_emulation(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
}

TestSuite(cuda_program, .init = use_emulation);

/* y = gelu(rms_norm(x) w + b), and AdamW with averages for the mean square of y - target. */
static weft_graph *training_step(void)
{
    static const weft_optimizer_config adamw = {.beta1 = 0.9,
                                                .beta2 = 0.99,
                                                .eps = 1e-3,
                                                .weight_decay = 0.01,
                                                .clip_norm = 0.5,
                                                .ema_decay = 0.9};
    weft_graph *g = weft_graph_create();
    const weft_shape shape = WEFT_SHAPE(BATCH, TOKENS, WIDTH);
    const weft_value x = weft_input(g, "x", WEFT_F32, shape),
                     target = weft_input(g, "target", WEFT_F32, shape),
                     w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(1, 1, WIDTH),
                                    (weft_init){WEFT_INIT_NORMAL, 1}),
                     b = weft_param(g, "b", WEFT_F32, WEFT_SHAPE(1, 1, WIDTH),
                                    (weft_init){WEFT_INIT_NORMAL, 1});
    const weft_attr_norm norm = {.eps = 1e-6};
    const weft_value normed =
        weft_emit(g, WEFT_OP_RMS_NORM, (weft_value[]){x, WEFT_NONE}, 2, &norm);
    const weft_value scaled = weft_mul(g, normed, weft_broadcast(g, w, shape)),
                     y = weft_emit(g, WEFT_OP_GELU,
                                   (weft_value[]){weft_add(g, scaled, weft_broadcast(g, b, shape))},
                                   1, &(weft_attr_gelu){.exact = false});
    const weft_value error = weft_sub(g, y, target);
    weft_optimizer_build(g, weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error)), &adamw);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

static void set(weft_program *p, const char *name, double value)
{
    weft_tensor *t = weft_program_input(p, name);
    if (t)
        *(float *)t->data = (float)value;
}

static void fill(weft_program *p, int step)
{
    static const char *const names[] = {"x", "target"};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < ELEMENTS; i++)
            ((float *)weft_program_input(p, names[k])->data)[i] =
                (float)weft_random_normal((uint64_t)(step * 2 + k), WEFT_RNG_TEST, (uint64_t)i);
    set(p, "optimizer.lr", 1e-2);
    set(p, "optimizer.step", step + 1);
    set(p, "optimizer.loss_limit", 1e9);
    set(p, "optimizer.norm_limit", 1e9);
}

typedef struct result {
    float loss[STEPS], w[WIDTH], average[WIDTH];
} result;

static void read_tensor(weft_store *store, const char *name, float to[WIDTH])
{
    const void *data;
    void *made;
    cr_assert_eq(weft_tensor_on_host(weft_store_find(store, name), &data, &made), WEFT_OK);
    memcpy(to, data, WIDTH * sizeof *to);
    weft_free(made);
}

/* Whether chains of elementwise ops are joined. */
static bool joins;

static void train(const weft_backend *backend, bool guard, result *r)
{
    weft_graph *g = training_step();
    if (joins) {
        weft_graph *joined;
        cr_assert_eq(weft_pass_pointwise(g, 2, &joined), WEFT_OK, "%s", weft_error_message());
        cr_assert_lt(weft_graph_node_count(joined), weft_graph_node_count(g));
        weft_graph_free(g);
        g = joined;
    }
    weft_program *p;
    weft_store *store = weft_store_create_on(backend->device);
    cr_assert_eq(
        weft_program_compile(g, &(weft_program_options){.backend = backend, .guard = guard}, &p),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_store_init(store, g, 5), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < STEPS; i++) {
        fill(p, i);
        cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
        r->loss[i] = *(const float *)weft_program_output(p, "loss")->data;
    }
    read_tensor(store, "w", r->w);
    read_tensor(store, "ema.w", r->average);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

static void near(const float *a, const float *b, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        cr_expect(fabsf(a[i] - b[i]) <= 1e-5f * fmaxf(fabsf(b[i]), 1), "%s %d: %.9g, on cpu %.9g",
                  what, i, (double)a[i], (double)b[i]);
}

/* Both compute in f32: only the order of sums differs. Repeated runs are bitwise identical, with other
 * delays of streams and orders of threads, also with guards. */
Test(cuda_program, trains_like_cpu)
{
    result cpu = {0}, cuda = {0}, again = {0};
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    train(&weft_backend_cpu, false, &cpu);
    train(&weft_backend_cuda, false, &cuda);
    near(cuda.loss, cpu.loss, STEPS, "loss");
    near(cuda.w, cpu.w, WIDTH, "w");
    near(cuda.average, cpu.average, WIDTH, "average of w");
    cr_expect(cuda.loss[2] != cuda.loss[0]);
    setenv("WEFT_EMU_SEED", "5", 1);
    train(&weft_backend_cuda, true, &again);
    cr_expect_eq(memcmp(&again, &cuda, sizeof cuda), 0, "the same run gives other bits");
}

/* Generated kernels (tests/emu/nvrtc) in a training step: separate ops have bitwise the same loss
 * and parameters. */
Test(cuda_program, joined_ops_train_bitwise_alike)
{
    result apart = {0}, joined = {0};
    char folder[] = "/tmp/weft-joined-XXXXXX";
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
    setenv("WEFT_NVRTC_LIBRARY", WEFT_EMU_NVRTC, 1);
    train(&weft_backend_cuda, false, &apart);
    for (int i = 0; i < weft_cuda_impl_count(); i++) /* generated kernels only */
        weft_cuda_verdict_set(false, i, WEFT_OP_POINTWISE,
                              i == weft_cuda_impl_own() ? WEFT_VERDICT_FAILED
                                                        : WEFT_VERDICT_PASSED);
    joins = true;
    train(&weft_backend_cuda, false, &joined);
    cr_expect_eq(memcmp(&apart, &joined, sizeof joined), 0);
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

/* Calls that launched kernels and graphs, as the emulated driver counts them. */
typedef struct launches {
    int kernels, graphs;
} launches;

static launches count_launches(void)
{
    launches l;
    void (*count)(int *kernels, int *graphs);
    void *driver = dlopen(WEFT_EMU_DRIVER, RTLD_NOW | RTLD_NOLOAD);
    cr_assert_not_null(driver);
    *(void **)&count = dlsym(driver, "weft_emulated_launches");
    count(&l.kernels, &l.graphs);
    return l;
}

/* Trains, and counts the launches of each step. */
static void count_steps(launches step[STEPS], float loss[STEPS])
{
    weft_graph *g = training_step();
    weft_program *p;
    weft_store *store = weft_store_create_on(weft_backend_cuda.device);
    cr_assert_eq(
        weft_program_compile(g, &(weft_program_options){.backend = &weft_backend_cuda}, &p),
        WEFT_OK);
    cr_assert_eq(weft_store_init(store, g, 5), WEFT_OK);
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK);
    for (int i = 0; i < STEPS; i++) {
        fill(p, i);
        const launches before = count_launches();
        cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
        const launches after = count_launches();
        step[i] = (launches){after.kernels - before.kernels, after.graphs - before.graphs};
        loss[i] = *(const float *)weft_program_output(p, "loss")->data;
    }
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

/* The first step launches each kernel, the second records them, and then one call launches all. */
Test(cuda_program, a_step_is_one_launch_after_it_was_recorded)
{
    launches step[STEPS], plain[STEPS];
    float loss[2][STEPS];
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    count_steps(step, loss[0]);
    cr_expect(step[0].kernels > 20 && step[0].graphs == 0, "%d, %d", step[0].kernels,
              step[0].graphs);
    cr_expect_eq(step[1].kernels, step[0].kernels);
    cr_expect_eq(step[1].graphs, 1, "%d", step[1].graphs);
    cr_expect_eq(step[2].kernels, 0, "%d", step[2].kernels);
    cr_expect_eq(step[2].graphs, 1, "%d", step[2].graphs);
    setenv("WEFT_CUDA_GRAPHS", "off", 1);
    count_steps(plain, loss[1]);
    cr_expect_eq(plain[2].kernels, step[0].kernels);
    cr_expect_eq(plain[2].graphs, 0);
    cr_expect_eq(memcmp(loss[0], loss[1], sizeof loss[0]), 0, "graphs change the bits");
}

/* A GPU that is lost in a step: the run returns the error. */
Test(cuda_program, lost_gpu_ends_a_run)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    setenv("WEFT_EMU_FAULT", "lost@5", 1);
    weft_graph *g = training_step();
    weft_program *p;
    weft_store *store = weft_store_create_on(weft_backend_cuda.device);
    cr_assert_eq(
        weft_program_compile(g, &(weft_program_options){.backend = &weft_backend_cuda}, &p),
        WEFT_OK);
    cr_assert_eq(weft_store_init(store, g, 5), WEFT_OK);
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK);
    fill(p, 0);
    cr_expect_eq(weft_program_run(p), WEFT_E_IO);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_LOST, "%s", weft_error_message());
    cr_expect(strstr(weft_error_fields()->key, "node "), "%s", weft_error_message());
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

static const weft_op_check *check_kernels(const weft_backend *backend, weft_op_check *op)
{
    weft_graph *g = training_step();
    cr_assert_eq(weft_kernels_check(g, backend, 3, op), WEFT_OK, "%s", weft_error_message());
    weft_graph_free(g);
    return &op[WEFT_OP_GELU];
}

/* `weft doctor --gpu`: kernels are compared node by node. */
Test(cuda_program, kernels_are_compared_with_ref)
{
    static weft_op_check op[WEFT_OP_COUNT];
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    check_kernels(&weft_backend_cuda, op);
    for (int i = 0; i < WEFT_OP_COUNT; i++)
        cr_expect(!op[i].failed && !op[i].missing, "%s: error %g, tolerance %g at %s",
                  weft_op_get((weft_op)i)->name, op[i].error, op[i].tolerance, op[i].worst_output);
    cr_expect(op[WEFT_OP_GELU].nodes == 1 && op[WEFT_OP_ADAMW].nodes == 2);
}

static weft_status_code run_wrong(const weft_kernel_args *args)
{
    const weft_status_code status = weft_backend_cpu.kernel[args->op]->run(args);
    ((float *)args->out[0].data)[3] += 1e-3f;
    return status;
}

/* A kernel with one wrong element is found, and only this kernel. */
Test(cuda_program, wrong_kernel_is_found)
{
    static weft_op_check op[WEFT_OP_COUNT];
    weft_backend wrong = weft_backend_cpu;
    const weft_kernel gelu = {.run = run_wrong};
    wrong.kernel[WEFT_OP_GELU] = &gelu;
    const weft_op_check *found = check_kernels(&wrong, op);
    cr_expect(found->failed == 1 && found->error > found->tolerance);
    for (int i = 0; i < WEFT_OP_COUNT; i++)
        cr_expect(i == WEFT_OP_GELU || !op[i].failed, "%s", weft_op_get((weft_op)i)->name);
}
