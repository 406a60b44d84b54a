/* A program is bound and run with the number of threads it was compiled for, whatever the caller
 * sets in between. Guard bytes follow the workspace. */
#include "../transform/training_graph.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "kernel/host.h"

#include <criterion/criterion.h>
#include <string.h>

#ifndef __SANITIZE_THREAD__ /* libgomp's barriers would look like races */

typedef struct outcome {
    float loss[2];
    int64_t workspace;
} outcome;

static void feed(weft_program *p)
{
    static const char *const names[] = {"batch.latents", "batch.text", "batch.target"};
    for (int i = 0; i < 3; i++) {
        weft_tensor *t = weft_program_input(p, names[i]);
        for (int64_t k = 0; k < weft_shape_count(&t->shape); k++)
            ((float *)t->data)[k] = weft_random_normal((uint64_t)i, WEFT_RNG_TEST, (uint64_t)k);
    }
    for (int b = 0; b < 2; b++)
        ((float *)weft_program_input(p, "batch.timestep")->data)[b] = 500;
    *(float *)weft_program_input(p, "optimizer.lr")->data = 1e-3f;
    *(float *)weft_program_input(p, "optimizer.step")->data = 1;
    *(float *)weft_program_input(p, "optimizer.loss_limit")->data = 1e30f;
    *(float *)weft_program_input(p, "optimizer.norm_limit")->data = 1e30f;
}

/* Compiled with as many threads as `compile`, or by option; bound and run while others are set. */
static outcome run(int option, int compile, int bind, int at_run)
{
    weft_graph *g = training_graph(2, 8);
    weft_store *store = weft_store_create();
    weft_program *p;
    outcome o;
    const int before = weft_host_set_threads(compile);
    const weft_program_options options = {.guard = true, .threads = option};
    cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK);
    cr_assert_eq(weft_program_compile(g, &options, &p), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_host_threads(), compile, "the caller's number of threads changed");
    weft_host_set_threads(bind);
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    weft_host_set_threads(at_run);
    for (int i = 0; i < 2; i++) {
        feed(p);
        cr_assert_eq(weft_program_run(p), WEFT_OK, "%d %d %d %d: %s", option, compile, bind, at_run,
                     weft_error_message());
        o.loss[i] = *(const float *)weft_program_output(p, "loss")->data;
    }
    cr_expect_eq(weft_host_threads(), at_run);
    o.workspace = weft_program_plan(p)->workspace_bytes;
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
    weft_host_set_threads(before);
    return o;
}

Test(threads, what_was_planned_is_what_runs)
{
    const outcome one = run(0, 1, 1, 1), four = run(0, 4, 4, 4);
    cr_assert_lt(one.workspace, four.workspace, "attention's scratch is per thread");
    /* Bitwise the same as one whose caller changes nothing. */
    const int others[][2] = {{4, 4}, {1, 4}, {4, 1}, {2, 3}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const outcome a = run(0, 1, others[i][0], others[i][1]),
                      b = run(0, 4, others[i][0], others[i][1]),
                      c = run(4, 1, others[i][0], others[i][1]);
        cr_expect_eq(a.workspace, one.workspace);
        cr_expect_eq(b.workspace, four.workspace);
        cr_expect_eq(c.workspace, four.workspace, "by option");
        cr_expect_arr_eq(a.loss, one.loss, sizeof a.loss);
        cr_expect_arr_eq(b.loss, four.loss, sizeof b.loss);
        cr_expect_arr_eq(c.loss, four.loss, sizeof c.loss);
    }
}

#endif
