/* Memory of programs: a run allocates nothing (calls of malloc are counted), the reserved bytes are
 * the predicted bytes, and every constructor survives a failure of each of its allocations. */
#include "../transform/training_graph.h"
#include "allocations.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "kernel/kernel.h"
#include "kernel/ref/table.h"
#include "transform/memory/comm_order.h"
#include "transform/memory/lifetime.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void feed(weft_program *p, int64_t batch)
{
    static const char *const names[] = {"batch.latents", "batch.text", "batch.target"};
    for (int i = 0; i < 3; i++) {
        weft_tensor *t = weft_program_input(p, names[i]);
        for (int64_t k = 0; k < weft_shape_count(&t->shape); k++)
            ((float *)t->data)[k] = weft_random_normal((uint64_t)i, WEFT_RNG_TEST, (uint64_t)k);
    }
    for (int64_t b = 0; b < batch; b++)
        ((float *)weft_program_input(p, "batch.timestep")->data)[b] = 500;
    *(float *)weft_program_input(p, "optimizer.lr")->data = 1e-3f;
    *(float *)weft_program_input(p, "optimizer.step")->data = 1;
    *(float *)weft_program_input(p, "optimizer.loss_limit")->data = INFINITY;
    *(float *)weft_program_input(p, "optimizer.norm_limit")->data = INFINITY;
}

#if COUNTS_ALLOCATIONS
static void count_one(const weft_backend *backend)
{
    weft_graph *g = training_graph(2, 4);
    weft_store *store = weft_store_create();
    weft_program *p;
    cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK);
    cr_assert_eq(
        weft_program_compile(g, &(weft_program_options){.backend = backend, .profile = true}, &p),
        WEFT_OK);
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK);
    feed(p, 2);
    cr_assert_eq(weft_program_run(p), WEFT_OK, "%s",
                 weft_error_message()); /* libraries make their buffers and threads */
    allocations_begin();
    for (int i = 0; i < 3; i++)
        cr_assert_eq(weft_program_run(p), WEFT_OK);
    const allocations a = allocations_end();
    cr_expect_eq(a.own, 0, "%s: %ld allocations in three runs, the largest of %ld bytes",
                 backend->name, a.own, a.largest);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

Test(memory, a_run_allocates_nothing_ref)
{
    count_one(&weft_backend_ref);
}

Test(memory, a_run_allocates_nothing_cpu)
{
    count_one(&weft_backend_cpu);
}

/* Binding reserves exactly the predicted bytes for tensors. */
Test(memory, reserved_is_predicted)
{
    const weft_backend *const backends[] = {&weft_backend_ref, &weft_backend_cpu};
    for (int b = 0; b < 2; b++)
        for (int twice = 0; twice < 2; twice++) {
            weft_graph *g = training_graph(2, 8);
            weft_store *store = weft_store_create();
            weft_program *p;
            cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK);
            cr_assert_eq(
                weft_program_compile(
                    g, &(weft_program_options){.backend = backends[b], .double_inputs = twice}, &p),
                WEFT_OK);
            const weft_memory_plan *plan = weft_program_plan(p);
            allocations_begin();
            cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK);
            cr_expect_eq(allocations_end().aligned, weft_program_bytes(p));
            if (b == 1)
                cr_expect_eq(weft_program_bytes(p), plan->arena_bytes + plan->workspace_bytes +
                                                        (1 + twice) * plan->input_bytes);
            if (b == 1)
                cr_expect_eq(plan->source_bytes, weft_store_bytes(store));
            weft_program_free(p);
            weft_store_free(store);
            weft_graph_free(g);
        }
}
#endif

/* Programs bound together give the bits that they give alone, in less memory, exactly the predicted
 * one. */
Test(memory, bound_together)
{
    const weft_backend *const backends[] = {&weft_backend_ref, &weft_backend_cpu};
    for (int b = 0; b < 2; b++) {
        double loss[2][3];
        int64_t alone = 0;
        for (int together = 0; together < 2; together++) {
            weft_graph *g[2];
            weft_program *p[2];
            weft_store *store = weft_store_create();
            for (int i = 0; i < 2; i++) {
                g[i] = training_graph(2 + i, 8 + 4 * i);
                cr_assert_eq(weft_store_init(store, g[i], 1), WEFT_OK);
                cr_assert_eq(weft_program_compile(
                                 g[i], &(weft_program_options){.backend = backends[b]}, &p[i]),
                             WEFT_OK);
            }
            allocations_begin();
            for (int i = 0; i < 2 && !together; i++)
                cr_assert_eq(weft_program_bind(p[i], store, NULL), WEFT_OK);
            if (together)
                cr_assert_eq(weft_programs_bind(p, 2, store, NULL), WEFT_OK);
            const int64_t predicted = together
                                          ? weft_programs_bytes(p, 2)
                                          : weft_program_bytes(p[0]) + weft_program_bytes(p[1]);
            const allocations a = allocations_end();
            cr_expect_eq(a.aligned, COUNTS_ALLOCATIONS ? predicted : 0);
            if (together)
                cr_expect_lt(predicted, alone);
            alone = predicted;
            cr_expect_eq(weft_programs_bind(p, 2, store, NULL), WEFT_E_ARG, "bound already");
            for (int run = 0; run < 3; run++) {
                weft_program *now = p[run % 2];
                feed(now, 2 + run % 2);
                cr_assert_eq(weft_program_run(now), WEFT_OK);
                loss[together][run] = *(const float *)weft_program_output(now, "loss")->data;
            }
            for (int i = 0; i < 2; i++) {
                weft_program_free(p[i]);
                weft_graph_free(g[i]);
            }
            weft_store_free(store);
        }
        cr_expect_arr_eq(loss[0], loss[1], sizeof loss[0]);
        cr_expect_neq(loss[0][0], loss[0][2], "weights changed");
    }
}

/* Programs of graphs that share a constant share its f64 copy, bound together or separately. The
 * last program that releases the copy frees it. */
Test(memory, constants_are_kept_once)
{
    enum { COUNT = 100000 };
    float *table = weft_alloc(COUNT * (int64_t)sizeof *table);
    for (int i = 0; i < COUNT; i++)
        table[i] = (float)i;
    weft_graph *g[2] = {weft_graph_create()};
    weft_program *p[2];
    const weft_value c = weft_constant(g[0], WEFT_F32, WEFT_SHAPE(COUNT), table);
    weft_output(g[0], "y", weft_sum_all(g[0], weft_mul(g[0], c, c)));
    cr_assert_eq(weft_pass_order(g[0], 0, &g[1]), WEFT_OK, "%s", weft_error_message());
    const weft_program_options options = {.backend = &weft_backend_ref};
    for (int i = 0; i < 2; i++)
        cr_assert_eq(weft_program_compile(g[i], &options, &p[i]), WEFT_OK);
    const int64_t one = weft_program_bytes(p[0]), two = weft_program_bytes(p[1]);
    const int64_t both = weft_programs_bytes(p, 2);
    cr_expect_geq(one, (int64_t)COUNT * 8);
    cr_expect_leq(both, one + two - (int64_t)COUNT * 8);
    allocations_begin();
    cr_assert_eq(weft_programs_bind(p, 2, NULL, NULL), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(allocations_end().aligned, COUNTS_ALLOCATIONS ? both : 0);
    weft_program_unbind(p[0]);
    cr_assert_eq(weft_program_run(p[1]), WEFT_OK);
    const float still = *(const float *)weft_program_output(p[1], "y")->data;
    allocations_begin();
    cr_assert_eq(weft_program_bind(p[0], NULL, NULL), WEFT_OK);
    cr_expect_lt(allocations_end().aligned, one - (int64_t)COUNT * 8 + 1,
                 "the f64 copy exists twice");
    cr_assert_eq(weft_program_run(p[0]), WEFT_OK);
    cr_expect_eq(*(const float *)weft_program_output(p[0], "y")->data, still);
    for (int i = 0; i < 2; i++) {
        weft_program_free(p[i]);
        weft_graph_free(g[i]);
    }
    weft_free(table);
}

/* Ends an attempt whose n-th allocation failed. Returns whether there was no n-th allocation. */
static bool survived(weft_status_code status, int64_t n)
{
    weft_alloc_fail_at(0);
    cr_assert(status == WEFT_OK || status == WEFT_E_MEMORY, "allocation %d: %s", (int)n,
              weft_error_message());
    cr_assert_lt(n, 5000);
    return status == WEFT_OK;
}

Test(memory, every_allocation_of_a_store_may_fail)
{
    weft_graph *g = training_graph(1, 4);
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        weft_alloc_fail_at(n);
        weft_store *store = weft_store_create();
        done = survived(store ? weft_store_init(store, g, 1) : WEFT_E_MEMORY, n);
        weft_store_free(store);
    }
    weft_graph_free(g);
}

Test(memory, every_allocation_of_a_program_may_fail)
{
    weft_graph *g = training_graph(1, 4);
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK);
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        weft_program *p = NULL;
        weft_alloc_fail_at(n);
        weft_status_code status =
            weft_program_compile(g, &(weft_program_options){.backend = &weft_backend_ref}, &p);
        if (status == WEFT_OK)
            status = weft_program_bind(p, store, NULL);
        done = survived(status, n);
        weft_program_free(p);
    }
    weft_store_free(store);
    weft_graph_free(g);
}

Test(memory, a_world_survives_failing_allocations)
{
    weft_comm *comm[3];
    for (int64_t n = 1;; n++) {
        weft_alloc_fail_at(n);
        const weft_status_code status = weft_comm_open_threads(3, comm);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_E_MEMORY);
        cr_assert_lt(n, 100);
    }
    for (int r = 0; r < 3; r++)
        weft_comm_free(comm[r]);
}

/* Two sets of inputs: one is filled while the other is computed with. */
Test(memory, double_inputs)
{
    const weft_backend *const backends[] = {&weft_backend_ref, &weft_backend_cpu};
    for (int b = 0; b < 2; b++) {
        weft_graph *g = weft_graph_create();
        weft_output(g, "y", weft_affine(g, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3)), 2, 0));
        weft_program *p;
        cr_assert_eq(
            weft_program_compile(
                g, &(weft_program_options){.backend = backends[b], .double_inputs = true}, &p),
            WEFT_OK);
        cr_assert_eq(weft_program_bind(p, NULL, NULL), WEFT_OK, "%s", weft_error_message());
        *(float *)weft_program_input(p, "x")->data = 1;
        for (int i = 1; i < 5; i++) {
            *(float *)weft_program_next_input(p, "x")->data = (float)(i + 1);
            cr_assert_eq(weft_program_run(p), WEFT_OK);
            cr_expect_eq(*(const float *)weft_program_output(p, "y")->data, (float)(2 * i));
            weft_program_swap_inputs(p);
        }
        weft_program_free(p);
        weft_graph_free(g);
    }
}
