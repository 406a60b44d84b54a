/* Chains of elementwise ops in one generated kernel, on the emulated driver and an emulated NVRTC
 * (tests/emu/nvrtc). The kernels of the ops must have bitwise the same results. */
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/store/store.h"
#include "exec/store/tensor_copy.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "kernel/cpu/table.h"
#include "kernel/cuda/chain_impl.h"
#include "kernel/cuda/chain_source.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/device.h"
#include "kernel/ref/table.h"
#include "transform/numeric/pointwise.h"
#include "transform/numeric/rounding.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VALUES = 40, OUTPUTS = 40, INPUTS = 4 };

static char folder[] = "/tmp/weft-pointwise-XXXXXX";
static int warnings, notices;
static char warned[400];

static void keep_message(void *user, weft_log_level level, weft_message_class kind,
                         const weft_message_fields *at, const char *text)
{
    (void)user, (void)at;
    if (kind != WEFT_MSG_KERNEL_REPLACED)
        return;
    warnings += level == WEFT_LOG_WARN;
    notices += level == WEFT_LOG_INFO;
    snprintf(warned, sizeof warned, "%s", text);
}

static void use_emulation(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_NVRTC_LIBRARY", WEFT_EMU_NVRTC, 1);
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
    weft_log_set_receiver(&(weft_log_receiver){.message = keep_message, .has_message = true});
}

static void remove_folder(void)
{
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(pointwise, .init = use_emulation, .fini = remove_folder);

static int nvrtc(void)
{
    int i = 0;
    while (strcmp(weft_cuda_impl_get(i)->name, "nvrtc"))
        i++;
    return i;
}

/* Generated kernels may compute; the kernels of the ops only with `own`. */
static void allow(bool own)
{
    weft_cuda_verdicts_forget();
    for (int bf16 = 0; bf16 < 2; bf16++) {
        weft_cuda_verdict_set(bf16, nvrtc(), WEFT_OP_POINTWISE, WEFT_VERDICT_PASSED);
        weft_cuda_verdict_set(bf16, weft_cuda_impl_own(), WEFT_OP_POINTWISE,
                              own ? WEFT_VERDICT_PASSED : WEFT_VERDICT_FAILED);
    }
}

/* ---- random chains --------------------------------------------------------------------------- */

typedef struct chains {
    weft_graph *g;
    weft_rng rng;
    weft_value value[VALUES]; /* of the complete shape */
    int count;
    weft_value small[3]; /* broadcast to the complete shape */
    int64_t bytes[OUTPUTS];
    int outputs;
} chains;

static int pick(chains *c, int count)
{
    return (int)weft_rng_below(&c->rng, (uint64_t)count);
}

static weft_value any(chains *c)
{
    /* mostly one of the last, so that chains become long */
    const int back = pick(c, 3) ? pick(c, c->count < 4 ? c->count : 4) : pick(c, c->count);
    return c->value[c->count - 1 - back];
}

static weft_value map(chains *c, weft_op op, weft_value x, const void *attr)
{
    return weft_emit(c->g, op, &x, 1, attr);
}

static weft_value cast_to(chains *c, weft_value x, weft_dtype type)
{
    return map(c, WEFT_OP_CAST, x, &(weft_attr_cast){type});
}

/* A value in [0.5, 4.5], of which all functions are finite. */
static weft_value positive(chains *c, weft_value x)
{
    const weft_value bounded = map(c, WEFT_OP_CLAMP, x, &(weft_attr_clamp){-2, 2});
    return map(c, WEFT_OP_AFFINE, map(c, WEFT_OP_SQUARE, bounded, NULL),
               &(weft_attr_affine){1, 0.5});
}

static weft_value add_op(chains *c)
{
    static const weft_op plain[] = {WEFT_OP_STOP,    WEFT_OP_NEG,  WEFT_OP_SIN,  WEFT_OP_COS,
                                    WEFT_OP_TANH,    WEFT_OP_SILU, WEFT_OP_GELU, WEFT_OP_GELU,
                                    WEFT_OP_SIGMOID, WEFT_OP_CLAMP},
                         grads[] = {WEFT_OP_SILU_GRAD, WEFT_OP_GELU_GRAD, WEFT_OP_GELU_GRAD,
                                    WEFT_OP_CLAMP_GRAD},
                         positives[] = {WEFT_OP_EXP, WEFT_OP_LOG, WEFT_OP_SQRT, WEFT_OP_RSQRT},
                         pairs[] = {WEFT_OP_ADD, WEFT_OP_SUB, WEFT_OP_MUL};
    const weft_value x = any(c), y = any(c), small = c->small[pick(c, 3)];
    const weft_attr_clamp clamp = {-0.5, 0.75};
    const weft_attr_gelu gelu = {.exact = pick(c, 2)};
    const int which = pick(c, 8);
    weft_op op;
    switch (which) {
    case 0:
        op = plain[pick(c, WEFT_COUNT(plain))];
        return map(c, op, x, op == WEFT_OP_CLAMP ? (const void *)&clamp : &gelu);
    case 1:
        op = grads[pick(c, WEFT_COUNT(grads))];
        return weft_emit(c->g, op, (weft_value[]){x, y}, 2,
                         op == WEFT_OP_CLAMP_GRAD ? (const void *)&clamp : &gelu);
    case 2: return map(c, positives[pick(c, WEFT_COUNT(positives))], positive(c, x), NULL);
    case 3: return weft_emit(c->g, WEFT_OP_DIV, (weft_value[]){x, positive(c, y)}, 2, NULL);
    case 4: return cast_to(c, x, (weft_dtype[]){WEFT_F32, WEFT_BF16, WEFT_F16}[pick(c, 3)]);
    case 5: return weft_emit(c->g, WEFT_OP_MODULATE, (weft_value[]){x, small, small}, 3, NULL);
    case 6: return weft_emit(c->g, WEFT_OP_GATED_ADD, (weft_value[]){x, y, small}, 3, NULL);
    default:
        op = pairs[pick(c, WEFT_COUNT(pairs))];
        return weft_emit(c->g, op, (weft_value[]){x, pick(c, 2) ? y : small}, 2, NULL);
    }
}

static void add_output(chains *c, weft_value v)
{
    char name[16];
    const weft_value_info *info = weft_value_get(c->g, v);
    snprintf(name, sizeof name, "y%d", c->outputs);
    c->bytes[c->outputs++] = weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
    weft_output(c->g, name, v);
}

/* `side` is the last dim: kernels access eight elements at a time if it is a multiple of 8. */
static void build(chains *c, uint64_t seed, int ops, int64_t side)
{
    const weft_shape shape = WEFT_SHAPE(2, 5, side);
    *c = (chains){.g = weft_graph_create(), .rng = weft_rng_make(seed, WEFT_RNG_TEST)};
    c->value[c->count++] = weft_input(c->g, "x0", WEFT_F32, shape);
    c->value[c->count++] = cast_to(c, c->value[0], WEFT_BF16);
    c->small[0] = weft_input(c->g, "x1", WEFT_F32, WEFT_SHAPE(1, 1, side));
    c->small[1] = weft_input(c->g, "x2", WEFT_F32, WEFT_SHAPE(2, 1, side));
    c->small[2] = weft_input(c->g, "x3", WEFT_F32, WEFT_SHAPE(2, 5, 1));
    for (int i = 0; i < ops; i++)
        c->value[c->count++] = add_op(c);
    for (int i = 0; i < 3; i++)
        add_output(c, any(c));
    cr_assert_eq(weft_graph_check(c->g), WEFT_OK, "%s", weft_error_message());
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void fill(weft_program *p)
{
    char name[16];
    for (int k = 0; k < INPUTS; k++) {
        snprintf(name, sizeof name, "x%d", k);
        weft_tensor *t = weft_program_input(p, name);
        const int64_t count = t ? weft_shape_count(&t->shape) : 0;
        for (int64_t i = 0; i < count; i++)
            ((float *)t->data)[i] =
                (float)weft_random_normal((uint64_t)k, WEFT_RNG_TEST, (uint64_t)i);
    }
}

/* All outputs of a run in sequence; heap. */
static char *outputs_of(const chains *c, const weft_graph *g, const weft_backend *backend)
{
    weft_program *p;
    char name[16];
    int64_t bytes = 0;
    weft_store *store = weft_store_create_on(backend->device);
    cr_assert_eq(
        weft_program_compile(g, &(weft_program_options){.backend = backend, .guard = true}, &p),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    fill(p);
    cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < c->outputs; i++)
        bytes += c->bytes[i];
    char *all = weft_calloc(bytes + 1, 1);
    bytes = 0;
    for (int i = 0; i < c->outputs; i++) {
        snprintf(name, sizeof name, "y%d", i);
        memcpy(all + bytes, weft_program_output(p, name)->data, (size_t)c->bytes[i]);
        bytes += c->bytes[i];
    }
    weft_program_free(p);
    weft_store_free(store);
    return all;
}

static int count_nodes(const weft_graph *g, weft_op op)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == op;
    return count;
}

static weft_graph *joined_of(const weft_graph *g)
{
    weft_graph *joined;
    cr_assert_eq(weft_pass_pointwise(g, 2, &joined), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_rounding_check(g, joined, "pointwise"), WEFT_OK, "%s", weft_error_message());
    cr_assert_geq(count_nodes(joined, WEFT_OP_POINTWISE), 1);
    cr_assert_lt(weft_graph_node_count(joined), weft_graph_node_count(g));
    return joined;
}

static void expect_equal(const chains *c, const weft_graph *joined, const weft_backend *backend,
                         const char *what)
{
    char *apart = outputs_of(c, c->g, backend), *together = outputs_of(c, joined, backend);
    int64_t at = 0;
    for (int i = 0; i < c->outputs; i++) {
        cr_expect_eq(memcmp(apart + at, together + at, (size_t)c->bytes[i]), 0,
                     "%s: output %d differs", what, i);
        at += c->bytes[i];
    }
    weft_free(apart);
    weft_free(together);
}

/* Steps of `pointwise` by the kernels of the ops, without a GPU. */
Test(pointwise, steps_equal_their_ops_bitwise_on_cpu_and_ref)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        chains c;
        build(&c, seed, 12 + (int)(seed % 16), seed % 2 ? 24 : 13);
        weft_graph *joined = joined_of(c.g);
        expect_equal(&c, joined, &weft_backend_cpu, "cpu");
        expect_equal(&c, joined, &weft_backend_ref, "ref");
        weft_graph_free(joined);
        weft_graph_free(c.g);
    }
}

/* A node of 17 MB, which is computed in pieces: each batch item apart, with operands that are
 * broadcast over items, rows and columns. */
Test(pointwise, a_large_node_needs_a_small_workspace)
{
    const weft_shape shape = WEFT_SHAPE(2, 1050, 2048);
    chains c = {.g = weft_graph_create()};
    weft_program *p;
    const weft_value x = weft_input(c.g, "x0", WEFT_F32, shape),
                     items = weft_input(c.g, "x1", WEFT_F32, WEFT_SHAPE(1, 1050, 2048)),
                     rows = weft_input(c.g, "x2", WEFT_F32, WEFT_SHAPE(2, 1, 2048)),
                     columns = weft_input(c.g, "x3", WEFT_F32, WEFT_SHAPE(1, 1050, 1));
    const weft_value sum = weft_add(c.g, x, items), scaled = weft_mul(c.g, sum, rows);
    add_output(&c, scaled);
    add_output(&c, weft_sub(c.g, weft_mul(c.g, scaled, columns), sum));
    weft_graph *joined = joined_of(c.g);
    expect_equal(&c, joined, &weft_backend_cpu, "cpu");
    cr_assert_eq(
        weft_program_compile(joined, &(weft_program_options){.backend = &weft_backend_cpu}, &p),
        WEFT_OK, "%s", weft_error_message());
    cr_expect_lt(weft_program_plan(p)->workspace_bytes, 24 << 20);
    weft_program_free(p);
    weft_graph_free(joined);
    weft_graph_free(c.g);
}

static void compare_on_gpu(uint64_t seed, int ops, int64_t side)
{
    chains c;
    build(&c, seed, ops, side);
    weft_graph *joined = joined_of(c.g);
    expect_equal(&c, joined, &weft_backend_cuda, "cuda");
    weft_graph_free(joined);
    weft_graph_free(c.g);
}

Test(pointwise, generated_kernels_equal_the_ops_bitwise)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    allow(false);
    for (uint64_t seed = 100; seed < 103; seed++)
        compare_on_gpu(seed, 14, seed % 2 ? 24 : 13);
    cr_expect_eq(warnings, 0, "%s", warned);
}

/* Without generated kernels, the kernels of the ops compute the node. */
Test(pointwise, the_ops_compute_a_node_without_nvrtc)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    setenv("WEFT_NVRTC", "off", 1);
    for (uint64_t seed = 200; seed < 206; seed++)
        compare_on_gpu(seed, 20, seed % 2 ? 24 : 13);
    cr_expect(!weft_backend_joins_pointwise(&weft_backend_cuda));
    cr_expect_eq(warnings + notices, 0);
}

static int count_kernels(void)
{
    int kernels, graphs;
    void (*count)(int *kernels, int *graphs);
    void *driver = dlopen(WEFT_EMU_DRIVER, RTLD_NOW | RTLD_NOLOAD);
    cr_assert_not_null(driver);
    *(void **)&count = dlsym(driver, "weft_emulated_launches");
    count(&kernels, &graphs);
    return kernels;
}

/* Two casts of small values are one launch, also with a generated kernel between them. */
Test(pointwise, launches_are_joined_past_a_generated_kernel)
{
    chains c = {.g = weft_graph_create()};
    weft_program *p;
    weft_value x[3];
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    for (int i = 0; i < 3; i++)
        x[i] =
            weft_input(c.g, (const char *[]){"x0", "x1", "x2"}[i], WEFT_F32, WEFT_SHAPE(2, 5, 24));
    add_output(&c, cast_to(&c, x[0], WEFT_BF16));
    add_output(&c, map(&c, WEFT_OP_NEG, map(&c, WEFT_OP_SIN, x[1], NULL), NULL));
    add_output(&c, cast_to(&c, x[2], WEFT_BF16));
    weft_graph *joined = joined_of(c.g);
    allow(false);
    weft_store *store = weft_store_create_on(weft_backend_cuda.device);
    cr_assert_eq(
        weft_program_compile(joined, &(weft_program_options){.backend = &weft_backend_cuda}, &p),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    fill(p);
    cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
    const int before = count_kernels();
    cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_kernels() - before, 2);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(joined);
    weft_graph_free(c.g);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A kernel with other results is found before its first use, named, and replaced. */
Test(pointwise, a_wrong_kernel_is_replaced_by_the_ops)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    allow(true);
    setenv("WEFT_EMU_FAULT", "generated", 1);
    compare_on_gpu(100, 14, 24);
    cr_expect_geq(warnings, 1);
    cr_expect(strstr(warned, "weft_chain_"), "%s", warned);
}

/* One kernel for a node of two shapes: (x + small) * small, negated. */
static void compare_sum(weft_shape shape, weft_shape small)
{
    chains c = {.g = weft_graph_create()};
    const weft_value x = weft_input(c.g, "x0", WEFT_F32, shape),
                     y = weft_input(c.g, "x1", WEFT_F32, small);
    add_output(&c, map(&c, WEFT_OP_NEG, weft_mul(c.g, weft_add(c.g, x, y), y), NULL));
    weft_graph *joined = joined_of(c.g);
    expect_equal(&c, joined, &weft_backend_cuda, "cuda");
    weft_graph_free(joined);
    weft_graph_free(c.g);
}

/* The kernel is right at the first shape and wrong at the second, where it is found and replaced.
 * By then a program has used the kernel at the first shape. */
typedef struct later_fault {
    const char *fault;
    weft_shape right, small_right, wrong, small_wrong;
} later_fault;

static const later_fault later_faults[] = {
    /* 13 columns, one element at a time */
    {"generated:!a.vector", {3, {2, 5, 24}}, {3, {1, 1, 24}}, {3, {2, 5, 13}}, {3, {1, 1, 13}}},
    /* 32 rows of 3 columns are 96 columns, of eight elements at a time */
    {"generated:a.vector", {3, {2, 5, 13}}, {3, {2, 5, 13}}, {3, {1, 32, 3}}, {3, {1, 32, 3}}},
    /* an element of the row for all columns */
    {"generated:a.same[1]", {3, {2, 5, 24}}, {3, {1, 1, 24}}, {3, {2, 5, 24}}, {3, {2, 5, 1}}},
    /* a row for each item of the batch */
    {"generated:a.stride[1][4] == 0 && a.stride[1][3] != 0",
     {3, {2, 5, 24}},
     {3, {1, 1, 24}},
     {3, {2, 5, 24}},
     {3, {2, 1, 24}}},
    /* a third dim that joins no other */
    {"generated:a.shape.dim[3].by > 1",
     {3, {2, 5, 24}},
     {3, {1, 1, 24}},
     {3, {2, 5, 24}},
     {3, {2, 1, 24}}},
    /* 64 columns are 8 items, a power of two */
    {"generated:a.shape.dim[5].by > 1 && !a.shape.dim[5].multiply",
     {3, {2, 5, 24}},
     {3, {1, 1, 24}},
     {3, {2, 5, 64}},
     {3, {1, 1, 64}}},
};

ParameterizedTestParameters(pointwise, a_kernel_that_is_wrong_at_a_later_shape_is_replaced)
{
    static int index[WEFT_COUNT(later_faults)];
    for (int i = 0; i < WEFT_COUNT(later_faults); i++)
        index[i] = i;
    return cr_make_param_array(int, index, WEFT_COUNT(later_faults));
}

ParameterizedTest(int *index, pointwise, a_kernel_that_is_wrong_at_a_later_shape_is_replaced)
{
    const later_fault *f = &later_faults[*index];
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    allow(true);
    setenv("WEFT_EMU_FAULT", f->fault, 1);
    compare_sum(f->right, f->small_right);
    cr_expect_eq(warnings, 0, "%s", warned);
    compare_sum(f->wrong, f->small_wrong);
    cr_expect_eq(warnings, 1);
    cr_expect(strstr(warned, "weft_chain_"), "%s", warned);
}

/* Faults at large indices: the second block, and the items of a last block that is not full. */
Test(pointwise, a_first_shape_of_one_block_is_compared_in_several)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    allow(true);
    setenv("WEFT_EMU_FAULT", "generated:i >= POINTWISE_THREADS", 1);
    compare_sum(WEFT_SHAPE(2, 5, 24), WEFT_SHAPE(1, 1, 24));
    cr_expect_eq(warnings, 1);
    compare_sum(WEFT_SHAPE(40, 5, 24), WEFT_SHAPE(1, 1, 24));
}

Test(pointwise, a_source_that_does_not_compile_is_replaced_by_the_ops)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    allow(true);
    setenv("WEFT_EMU_FAULT", "compile", 1);
    compare_on_gpu(100, 14, 24);
    cr_expect_geq(warnings, 1);
}

static void compile_in_child(void)
{
    int ended;
    const pid_t first = fork();
    if (first == 0) {
        alarm(120); /* a failed assertion does not end the child */
        allow(false);
        compare_on_gpu(100, 14, 24);
        _exit(0);
    }
    cr_assert(waitpid(first, &ended, 0) == first && ended == 0);
}

/* The PTX of an earlier process is used: a compiler that fails is not called. */
Test(pointwise, code_is_stored_on_the_disk)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    compile_in_child();
    setenv("WEFT_EMU_FAULT", "compile", 1);
    allow(false);
    compare_on_gpu(100, 14, 24);
    cr_expect_eq(warnings, 0, "%s", warned);
}

/* Calls `change` with the path of each stored kernel; returns their number. */
static int for_each_stored(void (*change)(const char *path))
{
    char path[512];
    int count = 0;
    DIR *at = opendir(folder);
    cr_assert_not_null(at);
    for (const struct dirent *entry; (entry = readdir(at));)
        if (strstr(entry->d_name, "-chain-")) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            change(path);
            count++;
        }
    closedir(at);
    return count;
}

static void cut_half(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(truncate(path, st.st_size / 2), 0);
}

/* A stored kernel that is cut is compiled again. */
Test(pointwise, a_damaged_file_is_compiled_again)
{
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    compile_in_child();
    cr_assert_geq(for_each_stored(cut_half), 1);
    allow(false);
    compare_on_gpu(100, 14, 24);
    cr_expect_eq(warnings, 0, "%s", warned);
}

/* One message, and no pass. */
Test(pointwise, a_missing_nvrtc_is_reported_once)
{
    setenv("WEFT_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so", 1);
    cr_expect(!weft_backend_joins_pointwise(&weft_backend_cuda));
    cr_expect(!weft_backend_joins_pointwise(&weft_backend_cuda));
    cr_expect_eq(notices, 1);
    cr_expect(!weft_backend_joins_pointwise(&weft_backend_cpu));
    cr_expect(!weft_backend_joins_pointwise(NULL));
}
