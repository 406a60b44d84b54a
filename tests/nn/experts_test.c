/* The weights of the experts of a token. */
#include "exec/execute.h"
#include "exec/program.h"
#include "nn/experts.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 4, INNER = 6, TOKENS = 7, OUT = TOKENS * WIDTH };

/* Sets the same values in every expert of a stack. */
static void fill_alike(weft_tensor *t)
{
    const bool gate = strstr(t->name, "gate") != NULL;
    uint64_t seed = 1;
    for (const char *c = t->name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    for (int64_t k = 0; k < weft_shape_count(&t->shape); k++)
        ((float *)t->data)[k] =
            weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)(gate ? k : k % (INNER * WIDTH)));
}

static void run_experts(const weft_nn_experts *c, float out[OUT])
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *p;
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, TOKENS, WIDTH));
    weft_output(g, "y", weft_nn_experts_of(g, c, x, NULL));
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK);
    for (int64_t i = 0; i < weft_store_count(store); i++)
        fill_alike(weft_store_at(store, i));
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){0}, &p), WEFT_OK);
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK);
    for (int i = 0; i < OUT; i++)
        ((float *)weft_program_input(p, "x")->data)[i] =
            weft_random_normal(4, WEFT_RNG_TEST, (uint64_t)i);
    cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
    memcpy(out, weft_program_output(p, "y")->data, OUT * sizeof *out);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

/* Weights add up to `scale`: with equal experts, the result is that of one expert times `scale`,
 * for any gate and any number of experts per token. Sigmoid scores do not add up without
 * normalization. */
Test(experts, normalised_weights_add_up_to_their_scale)
{
    const weft_nn_experts one = {.experts = 1, .active = 1, .inner = INNER, .scale = 1};
    float alone[OUT], together[OUT];
    run_experts(&one, alone); /* the softmax over one expert is 1 */
    for (int64_t active = 2; active <= 4; active++)
        for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
            const weft_nn_experts c = {.experts = 5,
                                       .active = active,
                                       .inner = INNER,
                                       .sigmoid = sigmoid,
                                       .normalised = true,
                                       .scale = 2.5};
            run_experts(&c, together);
            for (int i = 0; i < OUT; i++)
                cr_expect(fabs(together[i] - 2.5 * (double)alone[i]) <= 1e-5 * (1 + fabs(alone[i])),
                          "%" PRId64 " of 5: %g, one makes %g", active, together[i], alone[i]);
        }
}
