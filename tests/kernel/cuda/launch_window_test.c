/* Joined launches have the bits of the launches that were added. Each case is a random list of
 * nodes over one small block of memory, so that many nodes conflict. */
#include "base/config.h"
#include "base/rng.h"
#include "emu/fibres.h"
#include "kernel/cuda/kernels/list_args.h"
#include "kernel/cuda/launch_window.h"
#include "kernel/cuda/ops.h"
#include "kernel/view.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 24, SLOT = 264, WORKSPACES = 6, WORKSPACE = 4096, NODES = 120, CASES = 6 };

typedef struct memory {
    _Alignas(64) float slot[SLOTS][SLOT];
    _Alignas(64) char workspace[WORKSPACES][WORKSPACE];
} memory;

static int issued, added;

static void emulate(const weft_cuda_launch *l)
{
    const emu_kernel *kernel = emu_kernel_find(l->kernel);
    cr_assert_not_null(kernel, "no kernel %s", l->kernel);
    cr_assert_eq(kernel->args_bytes, l->args_bytes, "%s", l->kernel);
    emu_launch(kernel, l->grid, l->block, l->shared, l->args, 5);
}

/* Tables have zeros where no launch has a value: an emulated GPU takes other words for addresses,
 * which may be of freed memory. */
static void check_unused_bytes(const weft_cuda_issue *one)
{
    static const struct {
        const char *list;
        size_t args_bytes, list_bytes;
        int rows;
    } kinds[] = {
#define LISTED(name, type) {#name "_list", sizeof(type), sizeof(type##_list), LIST_ROWS(type)},
        WEFT_LISTED_KERNELS(LISTED)};
    const char *bytes = one->launch.args;
    const bool is_serial = !strcmp(one->launch.kernel, "weft_add_serial");
    for (int k = 0; k < WEFT_COUNT(kinds); k++) {
        if (strcmp(is_serial ? "weft_add_list" : one->launch.kernel, kinds[k].list))
            continue;
        const size_t rows = (size_t)kinds[k].rows, used = (size_t)one->joined,
                     end[] = {4, 8 + 4 * used, 8 + 4 * (rows + used),
                              8 + 8 * rows + used * kinds[k].args_bytes},
                     next[] = {8, 8 + 4 * rows, 8 + 8 * rows, kinds[k].list_bytes};
        for (int part = 0; part < 4; part++)
            for (size_t i = end[part]; i < next[part]; i++)
                cr_assert_eq(bytes[i], 0, "byte %d of %s", (int)i, kinds[k].list);
        return;
    }
    cr_assert_fail("no list %s", one->launch.kernel);
}

static weft_status_code issue(void *user, const weft_cuda_issue *one)
{
    (void)user;
    issued++;
    if (one->joined > 1)
        check_unused_bytes(one);
    emulate(&one->launch);
    return WEFT_OK;
}

static weft_status_code run_now(weft_cuda_queue *queue, const weft_cuda_launch *l)
{
    (void)queue;
    added++;
    emulate(l);
    return WEFT_OK;
}

typedef struct window_queue {
    weft_cuda_queue queue;
    weft_cuda_window *window;
} window_queue;

static weft_status_code run_later(weft_cuda_queue *queue, const weft_cuda_launch *l)
{
    return weft_cuda_window_add(((window_queue *)queue)->window, l);
}

static void split(weft_cuda_queue *queue, const void *part, int64_t bytes)
{
    weft_cuda_window_split(((window_queue *)queue)->window, part, bytes);
}

static weft_view view_of(memory *m, int64_t slot, weft_shape shape)
{
    return (weft_view){.data = m->slot[slot], .dtype = WEFT_F32, .shape = shape};
}

/* One node of an op with lists; equal for equal states of `random`. */
static void add_node(memory *m, weft_rng *random, window_queue *to)
{
    static const weft_attr_norm norm = {.eps = 1e-5};
    static const weft_attr_sum sum = {.dims = 1};
    static const weft_attr_slice slice = {.dim = 0, .start = 1, .len = 3};
    static const weft_attr_fill zero = {.value = 0.5};
    static const weft_attr_adamw adamw = {0.9, 0.95, 1e-8, 0.1};
    static const weft_op ops[] = {
        WEFT_OP_CAST,  WEFT_OP_ADD,           WEFT_OP_SUM_SQUARES, WEFT_OP_RMS_NORM, WEFT_OP_SUM,
        WEFT_OP_SLICE, WEFT_OP_RMS_NORM_GRAD, WEFT_OP_FILL,        WEFT_OP_MUL,      WEFT_OP_ADAMW};
    const weft_op op = ops[weft_rng_below(random, WEFT_COUNT(ops))];
    const weft_shape table = {2, {8, 32}}, row = {1, {32}}, part = {2, {3, 32}};
    weft_view in[7], out[3];
    weft_kernel_args a = {.op = op, .in = in, .in_count = 1, .out = out, .out_count = 1};
    for (int i = 0; i < 7; i++)
        in[i] = view_of(m, (int64_t)weft_rng_below(random, SLOTS), table);
    for (int o = 0; o < 3; o++) /* an output of its own slot */
        out[o] = view_of(m, (int64_t)weft_rng_below(random, SLOTS / 3) * 3 + o, table);
    a.workspace = m->workspace[weft_rng_below(random, WORKSPACES)];
    switch (op) {
    case WEFT_OP_ADD: /* of scalars, which one block may add in their order, or of tables */
        a.in_count = 2;
        if (weft_rng_below(random, 3))
            in[0].shape = in[1].shape = out[0].shape = (weft_shape){0};
        break;
    case WEFT_OP_MUL: a.in_count = 2; break;
    case WEFT_OP_SUM_SQUARES: out[0].shape = (weft_shape){0}; break;
    case WEFT_OP_SUM: a.attr = &sum, out[0].shape = (weft_shape){2, {1, 32}}; break;
    case WEFT_OP_SLICE: a.attr = &slice, out[0].shape = part; break;
    case WEFT_OP_FILL: a.attr = &zero, a.in_count = 0; break;
    case WEFT_OP_RMS_NORM: a.attr = &norm, a.in_count = 2, in[1].shape = row; break;
    case WEFT_OP_RMS_NORM_GRAD:
        a.attr = &norm, a.in_count = 3, in[2].shape = row;
        a.out_count = 2, out[1].shape = row;
        break;
    case WEFT_OP_ADAMW:
        a.attr = &adamw, a.in_count = 7, a.out_count = 3;
        for (int i = 4; i < 7; i++)
            in[i].shape = (weft_shape){0};
        break;
    default: break;
    }
    /* a kernel writes no input at another place, as in programs */
    for (int i = 0; i < a.in_count; i++)
        for (int o = 0; o < a.out_count; o++)
            if (in[i].data == out[o].data)
                return;
    const int64_t bytes = weft_cuda_ops[op].workspace ? weft_cuda_ops[op].workspace(&a) : 0;
    cr_assert_leq(bytes, WORKSPACE);
    if (to->window) {
        weft_cuda_window_begin(to->window, &(weft_cuda_node){-1, "test", NULL});
        for (int i = 0; i < a.in_count; i++)
            weft_cuda_window_access(to->window, in[i].data, view_count(&in[i]) * 4, false);
        for (int o = 0; o < a.out_count; o++)
            weft_cuda_window_access(to->window, out[o].data, view_count(&out[o]) * 4, true);
        weft_cuda_window_access(to->window, a.workspace, bytes, true);
    }
    cr_assert_eq(weft_cuda_ops[op].launch(&a, &to->queue), WEFT_OK);
}

static void run_all(memory *m, uint64_t seed, window_queue *to)
{
    weft_rng random = weft_rng_make(seed, WEFT_RNG_TEST);
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < SLOT; i++)
            m->slot[s][i] = 0.01f * (float)(1 + weft_rng_below(&random, 100));
    memset(m->workspace, 0, sizeof m->workspace);
    for (int n = 0; n < NODES; n++)
        add_node(m, &random, to);
}

Test(launch_window, equals_single_launches)
{
    memory *now = aligned_alloc(64, sizeof *now), *later = aligned_alloc(64, sizeof *later);
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        window_queue immediate = {.queue.add = run_now},
                     joined = {.queue = {.add = run_later, .split = split}};
        issued = added = 0;
        run_all(now, seed, &immediate);
        cr_assert_eq(weft_cuda_window_open(issue, NULL, &joined.window), WEFT_OK);
        run_all(later, seed, &joined);
        cr_assert_eq(weft_cuda_window_flush(joined.window), WEFT_OK);
        weft_cuda_window_close(joined.window);
        cr_assert_lt(issued, added, "%d of %d launches", issued, added);
        /* not the workspaces: nodes that do not conflict may use another order */
        cr_assert_arr_eq(now->slot, later->slot, sizeof now->slot, "case %d", (int)seed);
    }
    free(now);
    free(later);
}

/* A sum of many scalars, each of which is added to the sum before. */
Test(launch_window, adds_a_chain_in_one_launch)
{
    memory *m = aligned_alloc(64, sizeof *m);
    window_queue to = {.queue.add = run_later};
    weft_view in[2], out = view_of(m, 0, (weft_shape){0});
    weft_kernel_args a = {.op = WEFT_OP_ADD, .in = in, .in_count = 2, .out = &out, .out_count = 1};
    cr_assert_eq(weft_cuda_window_open(issue, NULL, &to.window), WEFT_OK);
    issued = 0;
    for (int s = 0; s < 9; s++)
        m->slot[s][0] = (float)(1 << s);
    for (int s = 1; s < 9; s++) {
        in[0] = view_of(m, s - 1, (weft_shape){0});
        in[1] = out = view_of(m, s, (weft_shape){0});
        weft_cuda_window_begin(to.window, &(weft_cuda_node){-1, "test", NULL});
        for (int i = 0; i < 2; i++)
            weft_cuda_window_access(to.window, in[i].data, 4, i == 1);
        cr_assert_eq(weft_cuda_ops[WEFT_OP_ADD].launch(&a, &to.queue), WEFT_OK);
    }
    cr_assert_eq(weft_cuda_window_flush(to.window), WEFT_OK);
    cr_assert_eq(issued, 1);
    cr_assert_eq(m->slot[8][0], 511.0f);
    weft_cuda_window_close(to.window);
    free(m);
}

/* Launches without declared accesses keep their place between all others. */
Test(launch_window, unknown_accesses_keep_their_order)
{
    memory *m = aligned_alloc(64, sizeof *m);
    window_queue to = {.queue.add = run_later};
    static const weft_attr_fill one = {.value = 1}, two = {.value = 2};
    weft_view out = view_of(m, 0, (weft_shape){1, {SLOT}});
    weft_kernel_args a = {.op = WEFT_OP_FILL, .out = &out, .out_count = 1, .attr = &one};
    cr_assert_eq(weft_cuda_window_open(issue, NULL, &to.window), WEFT_OK);
    issued = 0;
    weft_cuda_window_begin(to.window, &(weft_cuda_node){-1, "test", NULL});
    for (int i = 0; i < 3; i++) {
        a.attr = i == 1 ? &one : &two;
        cr_assert_eq(weft_cuda_ops[WEFT_OP_FILL].launch(&a, &to.queue), WEFT_OK);
    }
    cr_assert_eq(weft_cuda_window_flush(to.window), WEFT_OK);
    cr_assert_eq(issued, 3);
    cr_assert_eq(m->slot[0][SLOT - 1], 2.0f);
    weft_cuda_window_close(to.window);
    free(m);
}
