/* Kernels that NVRTC compiles for the sizes of a shape, on the emulated driver and an emulated
 * NVRTC (tests/emu/nvrtc). They must have bitwise the results of the embedded kernels. */
#include "base/config.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "graph/graph.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/cuda_trial.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/special_impl.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/weft-special-XXXXXX";
static int warnings;
static char warned[600];

static void keep_warning(void *user, weft_log_level level, weft_message_class kind,
                         const weft_message_fields *at, const char *text)
{
    (void)user, (void)level;
    if (kind != WEFT_MSG_KERNEL_REPLACED)
        return;
    warnings++;
    snprintf(warned, sizeof warned, "%s %s: %s", at->value, at->key, text);
}

static void use_emulation(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_NVRTC_LIBRARY", WEFT_EMU_NVRTC, 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
    weft_log_set_receiver(&(weft_log_receiver){.message = keep_warning, .has_message = true});
}

static void remove_folder(void)
{
    weft_cuda_choices_forget();
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(special, .init = use_emulation, .fini = remove_folder);

static int special(void)
{
    int i = 0;
    while (strcmp(weft_cuda_impl_get(i)->name, "specialised"))
        i++;
    return i;
}

/* Stored kernels; `text`: only kernels with this text. */
static int count_stored(const char *text)
{
    int count = 0;
    DIR *at = opendir(folder);
    cr_assert_not_null(at);
    for (const struct dirent *entry; (entry = readdir(at));) {
        char path[600], *code;
        int64_t bytes;
        if (!strstr(entry->d_name, "-special-"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        cr_assert_eq(weft_file_read(path, 1 << 24, &code, &bytes), WEFT_OK);
        count += !text || strstr(code, text) != NULL;
        weft_free(code);
    }
    closedir(at);
    return count;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

enum { INPUTS = 9 };
typedef struct operand {
    weft_dtype dtype;
    int rank; /* 0: absent */
    int64_t dim[5];
} operand;

typedef struct node_case {
    weft_op op;
    const void *attr;
    operand in[INPUTS];
    int kernels; /* that are compiled */
} node_case;

typedef struct node {
    weft_graph *g;
    weft_view in[INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args args;
} node;

static weft_view view_of(const weft_graph *g, weft_value v)
{
    if (!weft_value_ok(v))
        return (weft_view){.shape = {.rank = -1}};
    const weft_value_info *info = weft_value_get(g, v);
    return (weft_view){.dtype = info->dtype, .shape = info->shape};
}

static void open_node(const node_case *c, node *n)
{
    weft_value in[INPUTS], out[WEFT_MAX_OUTPUTS];
    char name[16];
    int count = 0;
    *n = (node){.g = weft_graph_create()};
    for (int i = 0; i < INPUTS; i++) {
        weft_shape shape = {.rank = c->in[i].rank};
        memcpy(shape.dim, c->in[i].dim, sizeof c->in[i].dim);
        snprintf(name, sizeof name, "x%d", i);
        in[i] = shape.rank ? weft_input(n->g, name, c->in[i].dtype, shape) : WEFT_NONE;
        count = shape.rank ? i + 1 : count;
    }
    weft_emit_all(n->g, c->op, in, count, c->attr, out);
    cr_assert_eq(weft_graph_check(n->g), WEFT_OK, "%s", weft_error_message());
    const weft_node *last = weft_graph_node(n->g, weft_graph_node_count(n->g) - 1);
    cr_assert_eq(last->op, c->op);
    for (int i = 0; i < count; i++)
        n->in[i] = view_of(n->g, in[i]);
    for (int i = 0; i < last->out_count; i++)
        n->out[i] = view_of(n->g, last->out[i]);
    n->args = (weft_kernel_args){.op = c->op,
                                 .attr = last->attr,
                                 .in = n->in,
                                 .in_count = count,
                                 .out = n->out,
                                 .out_count = last->out_count,
                                 .threads = 1};
}

/* Whether the outputs differ from the embedded kernels'. */
static bool differs(const node_case *c)
{
    node n;
    weft_cuda_bench *bench;
    weft_cuda_trial trial = {0};
    open_node(c, &n);
    cr_assert(weft_special_has(c->op) && weft_special_accepts(&n.args));
    cr_assert_eq(weft_cuda_bench_open(&n.args, &bench), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_cuda_trial_compare(bench, weft_cuda_impl_get(special()), &trial), WEFT_OK,
                 "%s", weft_error_message());
    weft_cuda_bench_close(bench);
    weft_graph_free(n.g);
    return trial.differs;
}

#define F32(...)                                                                                   \
    {                                                                                              \
        WEFT_F32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8),                                     \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define BF16(...)                                                                                  \
    {                                                                                              \
        WEFT_BF16, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8),                                    \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const weft_attr_norm norm = {1e-6, false}, l2 = {1e-12, true};
static const weft_attr_rope halves = {.rotate_half = true};
static const weft_attr_matmul transposed = {.trans_b = true}, rounded = {.tf32 = true};
static const weft_attr_linear gelu = {WEFT_ACT_GELU_TANH, WEFT_F32, false},
                              silu = {WEFT_ACT_SILU, WEFT_BF16, false};
static const weft_attr_conv conv = {{1, 2, 1}, {2, 1, 1}, {0, 1, 1}},
                            conv_dx = {{1, 1, 1}, {2, 1, 1}, {0, 1, 1}, {5, {1, 3, 4, 5, 8}}},
                            conv_dw = {{1, 1, 1}, {2, 1, 1}, {0, 1, 1}, {0}, {3, 3, 3}};
static const weft_attr_attention scaled = {.scale = 0.2}, causal = {.scale = 0.1, .causal = true},
                                 rounded_attention = {.scale = 0.1, .tf32 = true};

static const node_case cases[] = {
    {WEFT_OP_LAYER_NORM, &norm, {F32(6, 13), F32(13), F32(13)}, 1},
    {WEFT_OP_RMS_NORM, &norm, {BF16(9, 128), F32(128)}, 1},
    {WEFT_OP_RMS_NORM, &l2, {BF16(3, 4104), F32(4104)}, 1},
    {WEFT_OP_LAYER_NORM_GRAD, &norm, {BF16(5, 264), BF16(5, 264), F32(264)}, 1},
    {WEFT_OP_RMS_NORM_GRAD, &norm, {F32(7, 30), F32(7, 30), F32(30)}, 1},
    {WEFT_OP_SOFTMAX, NULL, {F32(5, 72)}, 1},
    {WEFT_OP_MODULATE, NULL, {BF16(2, 30, 64), F32(2, 1, 64), F32(2, 1, 64)}, 1},
    {WEFT_OP_GATED_ADD, NULL, {BF16(2, 30, 64), BF16(2, 30, 64), F32(1, 30, 1)}, 1},
    {WEFT_OP_ROPE, &halves, {BF16(2, 9, 3, 32), F32(9, 16), F32(9, 16)}, 1},
    {WEFT_OP_MATMUL, &transposed, {F32(2, 70, 33), F32(2, 21, 33)}, 1},
    {WEFT_OP_MATMUL, &rounded, {F32(40, 72), F32(72, 24)}, 1},
    {WEFT_OP_LINEAR, &gelu, {F32(5, 9, 20), F32(70, 20), F32(70)}, 1},
    {WEFT_OP_LINEAR, &silu, {BF16(140, 72), BF16(136, 72), F32(136)}, 1},
    {WEFT_OP_CONV3D, &conv, {F32(2, 3, 6, 5, 3), F32(5, 3, 3, 3, 3), F32(5)}, 1},
    {WEFT_OP_CONV3D, &conv, {BF16(1, 3, 6, 5, 8), BF16(16, 8, 3, 3, 3)}, 1},
    {WEFT_OP_CONV3D_DX, &conv_dx, {BF16(1, 3, 4, 5, 16), BF16(16, 8, 3, 3, 3)}, 1},
    {WEFT_OP_CONV3D_DW, &conv_dw, {F32(1, 3, 4, 5, 3), F32(1, 3, 4, 5, 4)}, 1},
    {WEFT_OP_ATTENTION, &scaled, {F32(2, 35, 2, 20), F32(2, 40, 2, 20), F32(2, 40, 2, 20)}, 1},
    {WEFT_OP_ATTENTION,
     &causal,
     {BF16(1, 140, 2, 64), BF16(1, 140, 2, 64), BF16(1, 140, 2, 64)},
     1},
    {WEFT_OP_ATTENTION,
     &scaled,
     {BF16(2, 50, 1, 84), BF16(2, 70, 1, 84), BF16(2, 70, 1, 84), {0}, F32(2, 70)},
     1},
    {WEFT_OP_ATTENTION,
     &rounded_attention,
     {F32(1, 40, 1, 64), F32(1, 40, 1, 64), F32(1, 40, 1, 64)},
     1},
    {WEFT_OP_ATTENTION_GRAD,
     &scaled,
     {BF16(1, 70, 2, 64), BF16(1, 80, 2, 64), BF16(1, 80, 2, 64), BF16(1, 70, 2, 64), F32(1, 2, 70),
      BF16(1, 70, 2, 64)},
     3},
    {WEFT_OP_ATTENTION_GRAD,
     &scaled,
     {F32(1, 33, 2, 12), F32(1, 70, 2, 12), F32(1, 70, 2, 12), F32(1, 33, 2, 12), F32(1, 2, 33),
      F32(1, 33, 2, 12)},
     3},
};

/* Every kernel of the table in another order of threads than the embedded one. The number of
 * compiled kernels shows that the launches were not the embedded kernels'. */
Test(special, results_are_bitwise_those_of_the_embedded_kernels)
{
    int kernels = 0;
    for (int i = 0; i < WEFT_COUNT(cases); i++) {
        cr_expect(!differs(&cases[i]), "case %d: %s", i, weft_op_get(cases[i].op)->name);
        kernels += cases[i].kernels;
        cr_expect_eq(count_stored(NULL), kernels, "case %d", i);
    }
    cr_expect_eq(count_stored(".target sm_89\n"), kernels); /* the GPU's architecture */
    cr_expect_eq(count_stored("//emulated machine code\n"), kernels);
    cr_expect_eq(warnings, 0, "%s", warned);
}

/* Rows and batch items stay variables. */
Test(special, shapes_with_other_rows_share_a_kernel)
{
    const node_case few = {WEFT_OP_RMS_NORM, &norm, {BF16(9, 128), F32(128)}, 1},
                    many = {WEFT_OP_RMS_NORM, &norm, {BF16(2, 70, 128), F32(128)}, 1};
    cr_expect(!differs(&few) && !differs(&many));
    cr_expect_eq(count_stored(NULL), 1);
}

Test(special, a_wrong_constant_changes_results)
{
    static const char *const faults[] = {"constant:kind", "constant:act", "constant:conv.before[2]",
                                         "constant:causal"};
    static const int of[] = {0, 11, 13, 17};
    for (int i = 0; i < WEFT_COUNT(faults); i++) {
        setenv("WEFT_EMU_FAULT", faults[i], 1);
        cr_expect(differs(&cases[of[i]]), "%s", faults[i]);
    }
}

/* ---- architectures --------------------------------------------------------------------------- */

Test(special, a_newer_gpu_gets_ptx_of_the_newest_known_architecture)
{
    setenv("WEFT_EMU_FAULT", "old", 1);
    cr_expect(!differs(&cases[1]));
    cr_expect_eq(count_stored(".target sm_86\n"), 1);
    cr_expect_eq(count_stored("//emulated machine code\n"), 0);
}

Test(special, targets)
{
    const weft_nvrtc_target exact = weft_nvrtc_target_of(90, 12090),
                            newer = weft_nvrtc_target_of(100, 13000),
                            old_driver = weft_nvrtc_target_of(90, 11080);
    cr_expect(exact.arch == 90 && exact.machine && !exact.portable);
    cr_expect(newer.arch == 90 && !newer.machine && !newer.portable);
    cr_expect(old_driver.arch == 80 && !old_driver.machine && old_driver.portable);
}

/* ---- choices --------------------------------------------------------------------------------- */

/* Two inputs and an output of 40,000 elements each. */
static const node_case large = {WEFT_OP_RMS_NORM, &norm, {F32(400, 100), F32(100)}, 1};

static void allow(weft_op op, bool own)
{
    weft_cuda_choices_forget();
    weft_cuda_verdicts_forget();
    weft_cuda_verdict_set(WEFT_PRODUCTS_F32, special(), op, WEFT_VERDICT_PASSED);
    weft_cuda_verdict_set(WEFT_PRODUCTS_F32, weft_cuda_impl_own(), op,
                          own ? WEFT_VERDICT_PASSED : WEFT_VERDICT_FAILED);
}

static weft_cuda_choice *choose(const node_case *c)
{
    node n;
    weft_cuda_choice *choice;
    open_node(c, &n);
    cr_assert_eq(weft_cuda_choose(&n.args, &choice), WEFT_OK, "%s", weft_error_message());
    weft_graph_free(n.g);
    return choice;
}

static weft_cuda_stored_choice stored;
static int stored_count;
static void keep_stored(void *user, const weft_cuda_stored_choice *choice)
{
    (void)user;
    stored = *choice;
    stored_count++;
}

static bool was_measured(const char *name)
{
    for (int i = 0; i < stored.count; i++)
        if (!strcmp(stored.measured[i].impl, name))
            return true;
    return false;
}

/* Both are measured; a resumed run has the stored choice. */
Test(special, is_measured_and_stored)
{
    char chosen[40];
    allow(WEFT_OP_RMS_NORM, true);
    cr_expect_not_null(choose(&large));
    cr_assert_eq(weft_cuda_choices_each(keep_stored, NULL), WEFT_OK);
    cr_assert_eq(stored_count, 1);
    cr_expect(was_measured("specialised") && was_measured("weft"));
    snprintf(chosen, sizeof chosen, "%s", stored.impl);
    allow(WEFT_OP_RMS_NORM, true);
    cr_expect_not_null(choose(&large));
    cr_assert_eq(weft_cuda_choices_each(keep_stored, NULL), WEFT_OK);
    cr_expect_eq(stored_count, 2);
    cr_expect_str_eq(stored.impl, chosen);
    cr_expect_eq(warnings, 0, "%s", warned);
}

/* A later process compiles nothing. */
Test(special, code_is_stored_on_the_disk)
{
    int ended;
    const pid_t first = fork();
    if (first == 0) {
        alarm(120); /* a failed assertion does not end the child */
        _exit(differs(&large));
    }
    cr_assert(waitpid(first, &ended, 0) == first && ended == 0);
    cr_expect_eq(count_stored(NULL), 1);
    setenv("WEFT_EMU_FAULT", "compile", 1);
    cr_expect(!differs(&large));
}

/* A kernel with other bits is found at the shape, named, and replaced by the embedded one. */
Test(special, a_wrong_kernel_is_replaced)
{
    allow(WEFT_OP_RMS_NORM, true);
    setenv("WEFT_EMU_FAULT", "constant:kind", 1);
    cr_expect_not_null(choose(&large));
    cr_expect_eq(warnings, 1);
    cr_expect(strstr(warned, "specialised rms_norm") && strstr(warned, "differ"), "%s", warned);
    cr_assert_eq(weft_cuda_choices_each(keep_stored, NULL), WEFT_OK);
    cr_expect(!strcmp(stored.impl, "weft") && !was_measured("specialised"));
    allow(WEFT_OP_RMS_NORM, true); /* a later run does not try it again */
    cr_expect_not_null(choose(&large));
    cr_expect_eq(warnings, 1, "%s", warned);
}

Test(special, a_source_that_does_not_compile_is_replaced)
{
    allow(WEFT_OP_RMS_NORM, true);
    setenv("WEFT_EMU_FAULT", "compile", 1);
    cr_expect_not_null(choose(&large));
    cr_expect_eq(warnings, 1, "%s", warned);
    cr_assert_eq(weft_cuda_choices_each(keep_stored, NULL), WEFT_OK);
    cr_expect_str_eq(stored.impl, "weft");
}

Test(special, small_shapes_are_not_compiled)
{
    const node_case small = {WEFT_OP_RMS_NORM, &norm, {F32(20, 100), F32(100)}, 1};
    allow(WEFT_OP_RMS_NORM, true);
    (void)choose(&small);
    cr_expect_eq(count_stored(NULL), 0);
    cr_expect_eq(warnings, 0, "%s", warned);
}

/* Neither messages nor choices. */
Test(special, nothing_changes_without_nvrtc)
{
    setenv("WEFT_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so", 1);
    allow(WEFT_OP_RMS_NORM, true);
    cr_expect_null(choose(&large));
    cr_expect_eq(warnings, 0, "%s", warned);
}
