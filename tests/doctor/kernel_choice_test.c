/* The list of implementations on the emulated driver. Planted implementations give wrong results,
 * report that a shape is unsupported, fail in a launch, or hang. Each must be found and named, and
 * be replaced by the next one, or end the run with an error. */
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "doctor/gpu_check.h"
#include "kernel/cuda/cublaslt_impl.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_choice_file.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_verdict.h"

#include "planted_library.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/weft-choices-XXXXXX";
static char warned[4][400]; /* messages kernel-replaced */
static int warnings, launches;

static void keep_warning(void *user, weft_log_level level, weft_message_class kind,
                         const weft_message_fields *at, const char *text)
{
    (void)user, (void)level;
    if (kind == WEFT_MSG_KERNEL_REPLACED && warnings < 4)
        snprintf(warned[warnings++], sizeof warned[0], "%s %s: %s", at->value, at->key, text);
}

static void set_up(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_GPU_VERDICTS", folder, 1);
    weft_log_set_receiver(&(weft_log_receiver){.message = keep_warning, .has_message = true});
}

static void tear_down(void)
{
    weft_cuda_choices_forget();
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(kernel_choice, .init = set_up, .fini = tear_down);

/* ---- planted implementations ----------------------------------------------------------------- */

enum { PLANTED };
#define OWN weft_cuda_impl_own()

static weft_status_code launch_good(const weft_kernel_args *args, void *plan)
{
    (void)plan;
    launches++;
    return weft_cuda_impl_get(OWN)->launch(args, NULL);
}

static weft_status_code launch_wrong(const weft_kernel_args *args, void *plan)
{
    WEFT_TRY(launch_good(args, plan));
    const int64_t bytes = weft_dtype_bytes(args->out[0].dtype);
    weft_device_cuda.fill(args->stream, args->out[0].data, 0x3f, bytes); /* the first element */
    return WEFT_OK;
}

static weft_status_code refuse(const weft_kernel_args *args, void *plan)
{
    (void)args, (void)plan;
    return weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_NOWHERE, "planted refusal");
}

static weft_status_code refuse_plan(const weft_kernel_args *args, int first, int most,
                                    weft_cuda_plan *plan, int *count)
{
    (void)first, (void)most, (void)count;
    return refuse(args, plan);
}

/* Plans of the odd numbers below 6; `searches` counts the calls. */
static int searches, released;
static weft_status_code find_odd(const weft_kernel_args *args, int first, int most,
                                 weft_cuda_plan *plan, int *count)
{
    static int plans[8];
    searches++;
    *count = 0;
    for (int v = first; v < 6 && *count < most; v++)
        if (v % 2)
            plan[(*count)++] = (weft_cuda_plan){v, &plans[v]};
    return *count ? WEFT_OK : refuse(args, plan);
}

static void count_released(void *plan)
{
    (void)plan;
    released++;
}

/* Waits for a word that is never written. */
static weft_status_code launch_hanging(const weft_kernel_args *args, void *plan)
{
    (void)plan;
    uint32_t *gate = weft_device_cuda.alloc_host(&weft_device_cuda, 64);
    *gate = 0;
    weft_device_cuda.hold(args->stream, gate, 1);
    return WEFT_OK;
}

static weft_cuda_impl planted = {.name = "planted",
                                 .version = planted_version,
                                 .has = planted_has_linear,
                                 .accepts = planted_accepts_all,
                                 .launch = launch_good};

static void plant(weft_status_code (*launch)(const weft_kernel_args *args, void *plan))
{
    planted.launch = launch;
    weft_cuda_impl_plant(&planted);
}

/* ---- a node ---------------------------------------------------------------------------------- */

typedef struct node {
    weft_view in[3], out;
    weft_attr_linear attr;
    weft_kernel_args args;
} node;

static void create_node(node *n)
{
    *n = (node){.in = {{.shape = {2, {8, 16}}}, {.shape = {2, {24, 16}}}, {.shape = {.rank = -1}}},
                .out = {.shape = {2, {8, 24}}}};
    n->args = (weft_kernel_args){.op = WEFT_OP_LINEAR,
                                 .in = n->in,
                                 .in_count = 3,
                                 .out = &n->out,
                                 .out_count = 1,
                                 .attr = &n->attr};
}

static weft_status_code prepare(node *n)
{
    create_node(n);
    return weft_backend_cuda.kernel[WEFT_OP_LINEAR]->prepare(&n->args, &n->args.cache);
}

/* Launches of the planted implementation when the node runs; -1: an error. */
static int run_node(node *n)
{
    const weft_device *device = &weft_device_cuda;
    char *memory = device->alloc(device, 8192);
    weft_device_stream *stream;
    const int before = launches;
    cr_assert_eq(device->open(device, &weft_backend_cuda, &stream), WEFT_OK);
    device->fill(stream, memory, 0, 8192);
    n->in[0].data = memory;
    n->in[1].data = memory + 2048;
    n->out.data = memory + 4096;
    n->args.workspace = memory + 8000;
    n->args.stream = stream;
    weft_status_code status = weft_backend_cuda.kernel[WEFT_OP_LINEAR]->run(&n->args);
    if (status == WEFT_OK)
        status = device->wait(stream);
    device->close(stream);
    device->free(device, memory);
    return status == WEFT_OK ? launches - before : -1;
}

static void pass(int impl, weft_verdict verdict)
{
    weft_cuda_verdict_set(WEFT_PRODUCTS_F32, impl, WEFT_OP_LINEAR, verdict);
}

static bool is_named(const char *reason)
{
    for (int i = 0; i < warnings; i++)
        if (strstr(warned[i], "planted") && strstr(warned[i], "linear") &&
            strstr(warned[i], reason))
            return true;
    return false;
}

/* ---- choices --------------------------------------------------------------------------------- */

typedef struct stored {
    int count, measured;
    char impl[16];
} stored;

static void keep_stored(void *user, const weft_cuda_stored_choice *c)
{
    stored *s = user;
    s->count++;
    s->measured = c->count;
    snprintf(s->impl, sizeof s->impl, "%s", c->impl);
}

/* A choice is measured once. A later process takes the stored one and measures nothing. */
Test(kernel_choice, is_measured_once_and_stored)
{
    node n;
    stored s = {0};
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect(launches > 1, "it was measured");
    cr_assert_eq(weft_cuda_choices_each(keep_stored, &s), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(s.count, 1);
    cr_expect_eq(s.measured, 2, "both were measured");
    const int before = launches;
    weft_cuda_choices_forget();
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(launches, before, "it was not measured again");
    cr_expect_eq(run_node(&n), !strcmp(s.impl, "planted"), "the stored choice runs");
}

/* Another version of the library has no stored choice. */
static int64_t other_version(void)
{
    return 8;
}

Test(kernel_choice, is_of_one_version)
{
    node n;
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    const int before = launches;
    weft_cuda_choices_forget();
    planted.version = other_version;
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect(launches > before, "it was measured again");
}

/* Without a verdict, a library computes nothing. */
Test(kernel_choice, needs_a_verdict)
{
    node n;
    plant(launch_good);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(run_node(&n), 0);
    cr_expect_eq(launches, 0);
}

/* The activation of a linear layer does not change the choice: the pass `fuse` keeps the bits. */
Test(kernel_choice, does_not_depend_on_fusion)
{
    node n;
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    const void *choice = n.args.cache;
    n.attr.act = WEFT_ACT_SILU;
    cr_assert_eq(weft_backend_cuda.kernel[WEFT_OP_LINEAR]->prepare(&n.args, &n.args.cache),
                 WEFT_OK);
    cr_expect_eq(n.args.cache, choice);
}

/* ---- faults ---------------------------------------------------------------------------------- */

Test(kernel_choice, wrong_results_are_replaced)
{
    node n;
    plant(launch_wrong);
    cr_assert_eq(weft_gpu_settle(&weft_backend_cuda, WEFT_PRODUCTS_F32), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(weft_cuda_verdict_get(WEFT_PRODUCTS_F32, PLANTED, WEFT_OP_LINEAR),
                 WEFT_VERDICT_FAILED);
    cr_expect_eq(weft_cuda_verdict_get(WEFT_PRODUCTS_F32, OWN, WEFT_OP_LINEAR),
                 WEFT_VERDICT_PASSED);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect(is_named("differ"), "%s", warned[0]);
    cr_expect_eq(run_node(&n), 0);
    /* the next process loads the verdicts and compares nothing */
    const int before = launches;
    cr_assert_eq(weft_gpu_settle(&weft_backend_cuda, WEFT_PRODUCTS_F32), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(launches, before);
    cr_expect_eq(weft_cuda_verdict_get(WEFT_PRODUCTS_F32, PLANTED, WEFT_OP_LINEAR),
                 WEFT_VERDICT_FAILED);
}

Test(kernel_choice, without_an_implementation_the_run_stops)
{
    node n;
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_FAILED);
    pass(OWN, WEFT_VERDICT_FAILED);
    cr_expect_neq(prepare(&n), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_PARITY_FAILED, "%s", weft_error_message());
    cr_expect(strstr(weft_error_message(), "linear"), "%s", weft_error_message());
}

Test(kernel_choice, unsupported_shapes_are_replaced)
{
    node n;
    planted.prepare = refuse_plan;
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect(is_named("planted refusal"), "%s", warned[0]);
    cr_expect_eq(run_node(&n), 0);
    cr_expect_eq(weft_cuda_verdict_get(WEFT_PRODUCTS_F32, PLANTED, WEFT_OP_LINEAR),
                 WEFT_VERDICT_PASSED, "other shapes may be supported");
}

/* A library that rejects every case of the comparison is named, and gets no verdict. */
Test(kernel_choice, libraries_without_kernels_are_named)
{
    static weft_op_check op[WEFT_GPU_RESULTS];
    planted.prepare = refuse_plan;
    plant(launch_good);
    cr_assert_eq(weft_gpu_check(WEFT_PRODUCTS_F32, op), WEFT_OK, "%s", weft_error_message());
    const weft_op_check *linear = &op[WEFT_GPU_RESULT(PLANTED, WEFT_OP_LINEAR)];
    cr_expect(linear->unsupported > 0 && !linear->nodes);
    cr_expect(is_named("rejects"), "%s", warned[0]);
    cr_expect_eq(weft_cuda_verdict_get(WEFT_PRODUCTS_F32, PLANTED, WEFT_OP_LINEAR),
                 WEFT_VERDICT_NONE);
}

/* The launch of a chosen implementation fails during a run: the next one computes this node. */
Test(kernel_choice, failed_launches_are_replaced)
{
    node n;
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    pass(OWN, WEFT_VERDICT_FAILED); /* so that the planted one is chosen */
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    pass(OWN, WEFT_VERDICT_PASSED);
    cr_expect_eq(run_node(&n), 1);
    planted.launch = refuse;
    cr_expect_eq(run_node(&n), 0, "%s", weft_error_message());
    cr_expect(is_named("planted refusal"), "%s", warned[0]);
    cr_expect_eq(weft_cuda_verdict_get(WEFT_PRODUCTS_F32, PLANTED, WEFT_OP_LINEAR),
                 WEFT_VERDICT_PASSED, "other shapes may work");
    /* a later process has the same choice */
    planted.launch = launch_good;
    weft_cuda_choices_forget();
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(run_node(&n), 0, "%s", weft_error_message());
}

/* A search finds all variants, and the stored one is found again by its number. The plan of a
 * replaced choice stays, because another thread may launch it. */
Test(kernel_choice, variants_are_searched_once)
{
    node n;
    planted.prepare = find_odd;
    planted.release = count_released;
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    pass(OWN, WEFT_VERDICT_FAILED); /* so that the planted one is chosen */
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(searches, 1);
    cr_expect_eq(released, 2, "of three plans");
    weft_cuda_choices_forget();
    cr_expect_eq(released, 3);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(searches, 2);
    pass(OWN, WEFT_VERDICT_PASSED);
    planted.launch = refuse;
    cr_expect_eq(run_node(&n), 0, "%s", weft_error_message());
    cr_expect_eq(released, 3);
    weft_cuda_choices_forget();
    cr_expect_eq(released, 4);
}

/* A choice of bf16 is not a choice of f32. Programs use the verdicts of the other precision if only
 * that was compared. */
Test(kernel_choice, is_of_one_precision)
{
    node n;
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    weft_cuda_verdict_set(WEFT_PRODUCTS_BF16, PLANTED, WEFT_OP_LINEAR, WEFT_VERDICT_FAILED);
    create_node(&n);
    n.args.products = WEFT_PRODUCTS_BF16;
    cr_assert_eq(weft_backend_cuda.kernel[WEFT_OP_LINEAR]->prepare(&n.args, &n.args.cache),
                 WEFT_OK);
    cr_expect_eq(launches, 0, "it failed in bf16");
    cr_expect(weft_cuda_verdicts_precision(true));
    weft_cuda_verdicts_forget();
    pass(PLANTED, WEFT_VERDICT_PASSED);
    cr_expect_not(weft_cuda_verdicts_precision(true));
}

/* Another process replaces the file by one of the same size. */
Test(kernel_choice, reads_a_replaced_file)
{
    static const char other[] = "{\"key\":\"bb\"}\n";
    const json_t *found;
    char *path;
    cr_assert_eq(weft_cuda_choice_file_add(json_pack("{s:s}", "key", "aa")), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_cuda_verdicts_path("-choices.jsonl", &path), WEFT_OK);
    cr_assert_eq(weft_file_write_atomic(path, other, sizeof other - 1), WEFT_OK);
    cr_assert_eq(weft_cuda_choice_file_find("bb", &found), WEFT_OK);
    cr_expect_not_null(found);
    cr_assert_eq(weft_cuda_choice_file_find("aa", &found), WEFT_OK);
    cr_expect_null(found);
    weft_free(path);
}

/* A damaged last line is ignored, and the next choice is stored after the others. */
Test(kernel_choice, survives_a_torn_file)
{
    node n;
    char *path;
    stored s = {0};
    plant(launch_good);
    pass(PLANTED, WEFT_VERDICT_PASSED);
    cr_assert_eq(prepare(&n), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_cuda_verdicts_path("-choices.jsonl", &path), WEFT_OK);
    FILE *file = fopen(path, "a");
    cr_assert(file && fputs("{\"key\": \"f32 lin", file) >= 0 && fclose(file) == 0);
    weft_free(path);
    n.in[0].shape.dim[0] = n.out.shape.dim[0] = 4;
    cr_assert_eq(weft_backend_cuda.kernel[WEFT_OP_LINEAR]->prepare(&n.args, &n.args.cache), WEFT_OK,
                 "%s", weft_error_message());
    weft_cuda_choices_forget();
    cr_assert_eq(weft_cuda_choices_each(keep_stored, &s), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(s.count, 2);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* cuBLASLt counts the matrices of a batch in 32 bits. */
Test(kernel_choice, cublaslt_has_a_largest_batch)
{
    const weft_attr_matmul attr = {0};
    weft_view in[2], out;
    for (int i = 0; i < 2; i++)
        in[i] = (weft_view){.shape = {3, {INT32_MAX, 1, 1}}};
    out = in[0];
    weft_kernel_args args = {
        .op = WEFT_OP_MATMUL, .in = in, .in_count = 2, .out = &out, .out_count = 1, .attr = &attr};
    cr_expect(weft_cublaslt_accepts(&args));
    in[0].shape.dim[0] = in[1].shape.dim[0] = out.shape.dim[0] = (int64_t)INT32_MAX + 1;
    cr_expect_not(weft_cublaslt_accepts(&args));
}

/* ---- implementations that stop the GPU ------------------------------------------------------- */

/* Runs `act` in a process of its own and returns its result. */
static int in_process(int (*act)(void))
{
    int result;
    const pid_t child = fork();
    if (child == 0)
        _exit(act());
    cr_assert(waitpid(child, &result, 0) == child && WIFEXITED(result));
    return WEXITSTATUS(result);
}

static int is_hang_named(void)
{
    const weft_message_class kind = weft_error_class();
    return kind == WEFT_MSG_GPU_HANG && strstr(weft_error_message(), "linear of planted was tried")
               ? 0
               : 1;
}

static int settle_with_hang(void)
{
    return weft_gpu_settle(&weft_backend_cuda, WEFT_PRODUCTS_F32) == WEFT_OK ? 2 : is_hang_named();
}

static int measure_with_hang(void)
{
    node n;
    pass(PLANTED, WEFT_VERDICT_PASSED);
    pass(OWN, WEFT_VERDICT_PASSED);
    return weft_cuda_verdicts_save() != WEFT_OK || prepare(&n) == WEFT_OK ? 2 : is_hang_named();
}

static int settle_without(void)
{
    node n;
    if (weft_gpu_settle(&weft_backend_cuda, WEFT_PRODUCTS_F32) != WEFT_OK ||
        weft_cuda_verdict_get(WEFT_PRODUCTS_F32, PLANTED, WEFT_OP_LINEAR) != WEFT_VERDICT_STOPPED)
        return 1;
    return prepare(&n) == WEFT_OK && run_node(&n) == 0 && is_named("did not survive") ? 0 : 2;
}

/* A hang ends the process with an error that names the implementation; the same command then works
 * without it. The deadline is only an upper limit of the test's time. */
Test(kernel_choice, a_hang_in_the_comparison_is_not_repeated)
{
    setenv("WEFT_CUDA_DEADLINE", "0.2", 1);
    plant(launch_hanging);
    cr_assert_eq(in_process(settle_with_hang), 0);
    setenv("WEFT_CUDA_DEADLINE", "60", 1);
    cr_expect_eq(in_process(settle_without), 0);
}

Test(kernel_choice, a_hang_in_a_measurement_is_not_repeated)
{
    setenv("WEFT_CUDA_DEADLINE", "0.2", 1);
    plant(launch_hanging);
    cr_assert_eq(in_process(measure_with_hang), 0);
    setenv("WEFT_CUDA_DEADLINE", "60", 1);
    cr_expect_eq(in_process(settle_without), 0);
}
