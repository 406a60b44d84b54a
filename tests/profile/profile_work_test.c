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
    cr_assert_eq(weft_timed_begin(&t, g, p, true, &(weft_profile_prompts){0}, "one op"), WEFT_OK);
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

/* Guidance repeats the latents of two prompts in four rows; the rows of a text after 3 tokens are
 * equal. A training batch has four different samples. */
Test(inputs, rows_are_equal_as_in_a_run)
{
    enum { ROWS = 4, TOKENS = 6, WIDTH = 5, VOCABULARY = 11 };
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *p;
    const weft_value latents = weft_input(g, "batch.latents", WEFT_F32, WEFT_SHAPE(ROWS, 8)),
                     text = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(ROWS, TOKENS, WIDTH)),
                     pooled = weft_input(g, "batch.pooled", WEFT_F32, WEFT_SHAPE(ROWS, WIDTH)),
                     ids = weft_input(g, "batch.tokens_2", WEFT_I32, WEFT_SHAPE(ROWS, TOKENS)),
                     mask = weft_input(g, "batch.text_mask", WEFT_I32, WEFT_SHAPE(ROWS, TOKENS)),
                     table = weft_fill(g, WEFT_F32, WEFT_SHAPE(VOCABULARY, 2), 1);
    const weft_value embed[] = {table, ids};
    weft_output(g, "latents", weft_affine(g, latents, 2, 0));
    weft_output(g, "text", weft_affine(g, text, 2, 0));
    weft_output(g, "pooled", weft_affine(g, pooled, 2, 0));
    weft_output(g, "mask", weft_cast(g, mask, WEFT_F32));
    weft_output(g, "embedded", weft_emit(g, WEFT_OP_EMBED, embed, 2, NULL));
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){0}, &p), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    const float *x = weft_program_input(p, "batch.latents")->data,
                *t = weft_program_input(p, "batch.text")->data,
                *v = weft_program_input(p, "batch.pooled")->data;
    const int32_t *id = weft_program_input(p, "batch.tokens_2")->data,
                  *seen = weft_program_input(p, "batch.text_mask")->data;
    weft_profile_fill(g, p, &(weft_profile_prompts){.tokens = 3, .prompts = 2});
    cr_expect(!memcmp(x, x + 16, 64) && memcmp(x, x + 8, 32));
    cr_expect(memcmp(t, t + TOKENS * WIDTH, 3 * WIDTH * 4) && memcmp(v, v + WIDTH, WIDTH * 4));
    for (int i = 0; i < ROWS * TOKENS; i++) {
        const bool real = i % TOKENS < 3, next = i % TOKENS < 2;
        cr_expect(!real == !memcmp(t + i * WIDTH, (float[WIDTH]){0}, WIDTH * 4), "row %d", i);
        cr_expect(!next || memcmp(t + i * WIDTH, t + (i + 1) * WIDTH, WIDTH * 4), "row %d", i);
        cr_expect(id[i] >= 0 && id[i] < VOCABULARY && (real || id[i] == 0), "id %d", id[i]);
        cr_expect(!next || id[i] != id[i + 1], "ids %d", i);
        cr_expect_eq(seen[i], real);
    }
    weft_profile_fill(g, p, &(weft_profile_prompts){0});
    for (int i = 0; i < ROWS * TOKENS - 1; i++)
        cr_expect(seen[i] && id[i] != id[i + 1], "row %d", i);
    for (int i = 0; i < ROWS - 1; i++)
        cr_expect(memcmp(x + 8 * i, x + 8 * (i + 1), 32), "sample %d", i);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}
