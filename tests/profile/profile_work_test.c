/* Seconds of programs and nodes from the times of repeated runs. */
#include "profile/profile_work.h"

#include "comm/comm_fake.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"

#include <criterion/criterion.h>
#include <string.h>

static double seconds_of(const double *run, int rounds)
{
    weft_timed t = {.rounds = rounds};
    memcpy(t.run, run, (size_t)rounds * sizeof *run);
    return weft_timed_run(&t);
}

/* The mean of the fastest quarter of the rounds, rounded up; equal rounds count together. */
Test(timed, a_run_takes_the_mean_of_the_fastest_quarter)
{
    const double eight[] = {9, 3, 70, 8, 1, 9, 8, 50}, five[] = {6, 40, 4, 90, 7},
                 equal[] = {5, 2, 2, 2, 9, 8, 7, 6}, one[] = {3};
    cr_expect_float_eq(seconds_of(eight, 8), 2, 1e-12, "%g", seconds_of(eight, 8));
    cr_expect_float_eq(seconds_of(five, 5), 5, 1e-12, "%g", seconds_of(five, 5));
    cr_expect_float_eq(seconds_of(equal, 8), 2, 1e-12, "%g", seconds_of(equal, 8));
    cr_expect_float_eq(seconds_of(one, 1), 3, 1e-12, "%g", seconds_of(one, 1));
}

/* The seconds of a node count each round alone: with the warm-up, the rounds have the seconds that
 * the program counted over all runs. */
Test(timed, nodes_have_the_seconds_of_each_round)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_profiling profiling = {0};
    weft_timed t = {0};
    weft_program *p;
    int64_t runs;
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(100000));
    weft_output(g, "y", weft_affine(g, x, 2, 0));
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){.profile = true}, &p), WEFT_OK);
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_comm_open_single(1, 0, &profiling.comm), WEFT_OK);
    cr_assert_eq(weft_timed_begin(&t, g, p, true, "one op"), WEFT_OK);
    cr_assert_eq(weft_profiling_run_alone(&profiling, &t, 0), WEFT_OK, "%s", weft_error_message());
    const double *total = weft_program_seconds(p, &runs);
    cr_assert_eq(t.rounds, 3);
    cr_assert_eq(runs, 4);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        double sum = 0;
        for (int i = 0; i < t.rounds; i++)
            sum += t.node[n * WEFT_PROFILE_ROUNDS + i];
        cr_expect_leq(sum, total[n] * (1 + 1e-9), "node %d: %g s of %g s", (int)n, sum, total[n]);
    }
    weft_timed_end(&t);
    weft_comm_free(profiling.comm);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}
