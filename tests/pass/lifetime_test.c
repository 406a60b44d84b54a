/* The memory plan: the checker accepts what the pass makes, on training graphs and on random ones,
 * and refuses plans with a fault put in. */
#include "training_graph.h"

#include "kernel/kernel.h"
#include "pass/pass.h"

#include <criterion/criterion.h>
#include <string.h>

static uint32_t in_place(void *user, const weft_graph *g, int32_t n)
{
    (void)user;
    return weft_backend_ref.kernel[weft_graph_node(g, n)->op].in_place;
}
static const weft_lifetime_options with_in_place = {.in_place = in_place};

static void check(const weft_graph *g, const weft_lifetime_options *options, weft_memory_plan *plan)
{
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_lifetime(g, options, plan), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_memory_plan_check(g, options, plan), WEFT_OK, "%s", weft_error_message());
    cr_expect_geq(plan->arena_bytes, plan->live_bytes);
}

Test(lifetime, training_step)
{
    weft_graph *g = training_graph(3, 4);
    weft_memory_plan plain, shared;
    check(g, NULL, &plain);
    check(g, &with_in_place, &shared);
    cr_expect_lt(shared.arena_bytes, plain.arena_bytes);
    cr_expect_leq((double)shared.arena_bytes, 1.05 * (double)shared.live_bytes);
    /* parameters, moments and the average are written where they are */
    int count;
    const weft_pair *update = weft_graph_updates(g, &count);
    cr_assert_gt(count, 100);
    for (int i = 0; i < count; i++)
        cr_expect_eq(weft_memory_plan_root(&shared, update[i].value.id), update[i].source.id,
                     "%s is not updated in place", weft_value_get(g, update[i].source)->name);
    weft_memory_plan_free(&plain);
    weft_memory_plan_free(&shared);
    weft_graph_free(g);
}

/* Random graphs of elementwise ops, reshapes, sums and collectives, with updates that may read old
 * values late. */
static weft_graph *random_graph(uint64_t seed)
{
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    weft_graph *g = weft_graph_create();
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", 2}};
    weft_graph_set_mesh(g, &mesh, 0);
    weft_value pool[64];
    int count = 0;
    const weft_value state = weft_state(g, "state", WEFT_F32, WEFT_SHAPE(4, 6), (weft_init){0});
    const weft_value state2 = weft_state(g, "state2", WEFT_F32, WEFT_SHAPE(4, 6), (weft_init){0});
    pool[count++] = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 6));
    pool[count++] = state;
    pool[count++] = state2;
    while (count < 60) {
        const weft_value a = pool[weft_rng_below(&rng, (uint64_t)count)];
        const weft_value b = pool[(uint64_t)count - 1 - weft_rng_below(&rng, count < 6 ? 1 : 6)];
        const weft_attr_comm comm = {.axis = 0};
        weft_value made;
        switch (weft_rng_below(&rng, 6)) {
        case 0: made = weft_add(g, a, b); break;
        case 1: made = weft_unary(g, WEFT_OP_SILU, b); break;
        case 2:
            made = weft_reshape(g, weft_affine(g, weft_reshape(g, b, WEFT_SHAPE(24)), 2, 1),
                                WEFT_SHAPE(4, 6));
            break;
        case 3: made = weft_emit(g, WEFT_OP_ALL_REDUCE, &b, 1, &comm); break;
        case 4: made = weft_emit(g, WEFT_OP_SILU_GRAD, (weft_value[]){a, b}, 2, NULL); break;
        default: made = weft_add(g, b, weft_sum(g, a, 1)); break;
        }
        pool[count++] = made;
    }
    weft_output(g, "last", pool[count - 1]);
    weft_output(g, "some", pool[20 + weft_rng_below(&rng, 30)]);
    weft_update(g, state, pool[10 + weft_rng_below(&rng, 50)]);
    weft_update(g, state2, weft_unary(g, WEFT_OP_SQUARE, pool[weft_rng_below(&rng, 2)]));
    return g;
}

Test(lifetime, random_graphs)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        weft_graph *g = random_graph(seed);
        weft_memory_plan plan;
        check(g, seed % 3 ? &with_in_place : NULL, &plan);
        weft_memory_plan_free(&plan);
        weft_lifetime_options guarded = with_in_place;
        guarded.guard = 64;
        check(g, &guarded, &plan);
        weft_memory_plan_free(&plan);
        weft_graph_free(g);
    }
}

/* Faults: a buffer moved onto another, a wait too late, an alias nobody allowed, a place outside.
 */
Test(lifetime, checker_finds_faults)
{
    int moved = 0, late = 0, aliased = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        weft_graph *g = random_graph(seed);
        weft_memory_plan plan;
        check(g, &with_in_place, &plan);
        for (int32_t v = 0; v < plan.count; v++) {
            weft_place *place = &plan.place[v];
            if (place->region != WEFT_REGION_ARENA || place->alias_of >= 0)
                continue;
            for (int32_t u = 0; u < plan.count;
                 u++) { /* onto a buffer whose value is still read afterwards */
                weft_place *other = &plan.place[u];
                if (other->region != WEFT_REGION_ARENA || other->alias_of >= 0 || u == v ||
                    !(other->first < place->first && place->first < other->last))
                    continue;
                const int64_t offset = place->offset;
                place->offset = other->offset;
                moved++;
                cr_expect_eq(weft_memory_plan_check(g, &with_in_place, &plan), WEFT_E_INTERNAL,
                             "seed %d: %%%d onto %%%d", (int)seed, v, u);
                place->offset = offset;
                break;
            }
        }
        for (int32_t n = 0; n < plan.node_count; n++) {
            const int32_t wait = plan.wait[n];
            if (wait < 0 || wait >= plan.node_count)
                continue;
            plan.wait[n] = wait + 1;
            late++;
            cr_expect_eq(weft_memory_plan_check(g, &with_in_place, &plan), WEFT_E_INTERNAL);
            plan.wait[n] = wait;
        }
        for (int32_t n = 0; n < plan.node_count;
             n++) { /* add's inputs are not allowed as its output */
            const weft_node *node = weft_graph_node(g, n);
            if (node->op != WEFT_OP_ADD || plan.place[node->out[0].id].alias_of >= 0)
                continue;
            plan.place[node->out[0].id].alias_of = node->in[0].id;
            aliased++;
            cr_expect_eq(weft_memory_plan_check(g, &with_in_place, &plan), WEFT_E_INTERNAL);
            plan.place[node->out[0].id].alias_of = -1;
        }
        plan.arena_bytes -= 64;
        cr_expect_eq(weft_memory_plan_check(g, &with_in_place, &plan), WEFT_E_INTERNAL);
        weft_memory_plan_free(&plan);
        weft_graph_free(g);
    }
    cr_expect_gt(moved, 100);
    cr_expect_gt(late, 40);
    cr_expect_gt(aliased, 100);
}

Test(lifetime, every_allocation_may_fail)
{
    weft_graph *g = training_graph(1, 4);
    weft_memory_plan plan;
    for (int64_t n = 1;; n += 1 + n / 64) {
        weft_alloc_fail_at(n);
        const weft_status_code status = weft_pass_lifetime(g, NULL, &plan);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_E_MEMORY);
        cr_assert_lt(n, 100000);
    }
    weft_memory_plan_free(&plan);
    weft_graph_free(g);
}
