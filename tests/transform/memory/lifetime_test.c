/* The memory plan: the checker accepts the plans of the pass, for training graphs and random
 * graphs, and refuses plans with an injected fault. */
#include "../training_graph.h"

#include "exec/execute.h"
#include "exec/program.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "kernel/kernel.h"
#include "kernel/ref/table.h"
#include "transform/memory/lifetime.h"
#include "transform/memory/lifetime_check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const weft_lifetime_options with_in_place = {.in_place = true};

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

/* Rows of 16 values (64 bytes), sliced, joined, saved, shared and updated in all combinations. */
static weft_graph *random_views(uint64_t seed, bool exchanges)
{
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    weft_graph *g = weft_graph_create();
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", exchanges ? 2 : 1}};
    weft_graph_set_mesh(g, &mesh, 0);
    const weft_init zero = {0};
    const weft_value state = weft_state(g, "state", WEFT_F32, WEFT_SHAPE(4, 16), zero);
    const weft_value wide = weft_state(g, "wide", WEFT_F32, WEFT_SHAPE(8, 16), zero);
    weft_value pool[64] = {weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 16)), state};
    weft_value joined = weft_unary(g, WEFT_OP_SILU, wide);
    int count = 2;
    while (count < 50) {
        const weft_value a = pool[weft_rng_below(&rng, (uint64_t)count)];
        const weft_value b = pool[(uint64_t)count - 1 - weft_rng_below(&rng, count < 6 ? 1 : 6)];
        const int64_t at = (int64_t)weft_rng_below(&rng, 5);
        weft_value made;
        switch (weft_rng_below(&rng, 8)) {
        case 0: made = weft_add(g, a, b); break;
        case 1: made = weft_unary(g, WEFT_OP_SILU, b); break;
        case 2:
            made = weft_reshape(g, weft_reshape(g, b, WEFT_SHAPE(64)), WEFT_SHAPE(4, 16));
            break;
        case 3:
            made = exchanges ? weft_emit(g, WEFT_OP_ALL_REDUCE, &b, 1, &(weft_attr_comm){0})
                             : weft_affine(g, b, 0.5, 1);
            break;
        case 4:
            joined = weft_concat(g, (weft_value[]){a, b}, 2, 0);
            made = weft_unary(g, WEFT_OP_SILU, weft_slice(g, joined, 0, at, 4));
            break;
        case 5: made = weft_slice(g, joined, 0, at, 4); break;
        case 6: made = weft_slice(g, at ? joined : wide, 0, 4 - at, 4); break;
        default:
            joined = weft_concat(
                g, (weft_value[]){weft_unary(g, WEFT_OP_SQUARE, a), weft_add(g, a, b)}, 2, 0);
            made = weft_add(g, b, weft_slice(g, joined, 0, 4, 4));
            break;
        }
        pool[count++] = made;
    }
    weft_output(g, "last", pool[count - 1]);
    weft_output(g, "joined", joined);
    weft_update(g, state, pool[10 + weft_rng_below(&rng, 40)]);
    weft_update(g, wide,
                weft_concat(g, (weft_value[]){pool[20], pool[weft_rng_below(&rng, 50)]}, 2, 0));
    return g;
}

static int count_views(const weft_graph *g, const weft_memory_plan *plan, weft_op op)
{
    int count = 0;
    for (int32_t n = 0; n < plan->node_count; n++)
        count += plan->view[n] && weft_graph_node(g, n)->op == op;
    return count;
}

Test(lifetime, views_of_random_graphs)
{
    int slices = 0, concats = 0, shifted = 0, untrue = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        weft_graph *g = random_views(seed, true);
        weft_lifetime_options options = seed % 3 ? with_in_place : (weft_lifetime_options){0};
        options.guard = seed % 2 ? 64 : 0;
        weft_memory_plan plan, copies;
        check(g, &options, &plan);
        slices += count_views(g, &plan, WEFT_OP_SLICE);
        concats += count_views(g, &plan, WEFT_OP_CONCAT);
        options.no_views = true;
        check(g, &options, &copies);
        cr_expect_eq(count_views(g, &copies, WEFT_OP_SLICE), 0);
        cr_expect_eq(count_views(g, &copies, WEFT_OP_CONCAT), 0);
        for (int32_t v = 0; v < plan.count && seed < 60; v++) { /* a part at a wrong offset */
            if (plan.allocation[v].alias_of < 0)
                continue;
            plan.allocation[v].shift += 64;
            const weft_node *node = weft_graph_node(g, weft_value_get(g, (weft_value){v})->node);
            if (plan.view[weft_value_get(g, (weft_value){v})->node] ||
                weft_graph_node(g, plan.allocation[v].alias_of)->op == WEFT_OP_CONCAT) {
                shifted++;
                cr_expect_eq(weft_memory_plan_check(g, &options, &plan), WEFT_E_INTERNAL,
                             "seed %d: %%%d of %s", (int)seed, v, weft_op_get(node->op)->name);
            }
            plan.allocation[v].shift -= 64;
        }
        for (int32_t n = 0; n < plan.node_count && seed < 60; n++) { /* one that must run */
            if (plan.view[n] || weft_op_has(weft_graph_node(g, n)->op, WEFT_TRAIT_GIVEN))
                continue;
            plan.view[n] = true;
            untrue++;
            cr_expect_eq(weft_memory_plan_check(g, &options, &plan), WEFT_E_INTERNAL);
            plan.view[n] = false;
        }
        weft_memory_plan_free(&plan);
        weft_memory_plan_free(&copies);
        weft_graph_free(g);
    }
    cr_expect_gt(slices, 1000);
    cr_expect_gt(concats, 500);
    cr_expect_gt(shifted, 200);
    cr_expect_gt(untrue, 1000);
}

typedef struct result {
    float last[4 * 16], joined[8 * 16], state[4 * 16], wide[8 * 16];
} result;

static result run_twice(const weft_graph *g, const weft_program_options *options)
{
    result r;
    weft_program *p;
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, g, 5), WEFT_OK);
    cr_assert_eq(weft_program_compile(g, options, &p), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < 4 * 16; i++)
            ((float *)weft_program_input(p, "x")->data)[i] = 0.01f * (float)(i - 30 + run);
        cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
    }
    memcpy(r.last, weft_program_output(p, "last")->data, sizeof r.last);
    memcpy(r.joined, weft_program_output(p, "joined")->data, sizeof r.joined);
    memcpy(r.state, weft_store_find(store, "state")->data, sizeof r.state);
    memcpy(r.wide, weft_store_find(store, "wide")->data, sizeof r.wide);
    weft_program_free(p);
    weft_store_free(store);
    return r;
}

/* Bitwise the same outputs and states with views and without, with guard bytes and without, in f32
 * and on the reference. */
Test(lifetime, views_are_bitwise)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        weft_graph *g = random_views(seed, false);
        for (int k = 0; k < 4; k++) {
            weft_program_options options = {
                .backend = k < 2 ? &weft_backend_cpu : &weft_backend_ref, .guard = k % 2};
            const result views = run_twice(g, &options);
            options.no_views = true;
            const result copies = run_twice(g, &options);
            cr_expect_arr_eq(&views, &copies, sizeof views, "seed %d, options %d", (int)seed, k);
        }
        weft_graph_free(g);
    }
}

/* A view keeps its complete buffer alive. A view is used only if that needs no more memory than a
 * copy. */
Test(lifetime, views_do_not_hold_on_to_much)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1024, 16));
    const weft_value big = weft_unary(g, WEFT_OP_SILU, x);
    const weft_value few = weft_slice(g, big, 0, 8, 2);
    weft_value y = weft_sum_all(g, big);
    for (int i = 0; i < 10; i++)
        y = weft_unary(g, WEFT_OP_SILU, y);
    weft_output(g, "y", weft_add(g, y, weft_sum_all(g, few)));
    weft_memory_plan plan;
    check(g, NULL, &plan);
    cr_expect_eq(count_views(g, &plan, WEFT_OP_SLICE), 0);
    weft_memory_plan_free(&plan);
    weft_graph_free(g);
}

/* Many values in one buffer of a single all-reduce: written and read at their offsets in the
 * buffer.
 *
 *   g0 g1 .. g19   20 values of 1 to 4 rows
 *   concat (8 at a time), concat of those, all_reduce, slices: nothing of it copies          */
Test(lifetime, flat_buckets)
{
    enum { COUNT = 20, EACH = 8 };
    weft_graph *g = weft_graph_create();
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", 2}};
    weft_graph_set_mesh(g, &mesh, 0);
    weft_value part[COUNT], few[3], sum = WEFT_NONE;
    int64_t rows[COUNT], at = 0;
    for (int i = 0; i < COUNT; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        rows[i] = 1 + i % 4;
        part[i] =
            weft_unary(g, WEFT_OP_SQUARE, weft_input(g, name, WEFT_F32, WEFT_SHAPE(rows[i], 16)));
    }
    for (int k = 0; k * EACH < COUNT; k++)
        few[k] =
            weft_concat(g, part + k * EACH, COUNT - k * EACH < EACH ? COUNT - k * EACH : EACH, 0);
    const weft_value all = weft_concat(g, few, 3, 0);
    const weft_value reduced = weft_emit(g, WEFT_OP_ALL_REDUCE, &all, 1, &(weft_attr_comm){0});
    for (int i = 0; i < COUNT; i++) {
        const weft_value own = weft_sum_all(g, weft_slice(g, reduced, 0, at, rows[i]));
        sum = i ? weft_add(g, sum, own) : own;
        at += rows[i];
    }
    weft_output(g, "sum", sum);
    weft_memory_plan plan;
    check(g, &with_in_place, &plan);
    cr_expect_eq(count_views(g, &plan, WEFT_OP_CONCAT), 4);
    cr_expect_eq(count_views(g, &plan, WEFT_OP_SLICE), COUNT);
    for (int i = 0, row = 0; i < COUNT; row += (int)rows[i++]) {
        cr_expect_eq(weft_memory_plan_root(&plan, part[i].id), all.id);
        cr_expect_eq(weft_memory_plan_shift(&plan, part[i].id), row * 64);
    }
    cr_expect_eq(weft_memory_plan_root(&plan, reduced.id), all.id);
    cr_expect_leq(plan.arena_bytes, at * 64 + 3 * 64); /* the bucket and a few scalars */
    weft_memory_plan_free(&plan);
    weft_graph_free(g);
}

/* A bf16 output never overwrites an f32 input, although the aligned bytes of small values are equal:
 * the kernel would write element i over input i / 2, which it reads later. */
Test(lifetime, types_in_place_are_equal)
{
    for (int equal = 0; equal < 2; equal++) {
        weft_graph *g = weft_graph_create();
        const weft_shape shape = WEFT_SHAPE(2, 3);
        const weft_dtype dtype = equal ? WEFT_BF16 : WEFT_F32;
        const weft_value in[] = {
            weft_input(g, "x", WEFT_BF16, shape),
            weft_affine(g, weft_input(g, "y", dtype, shape), 2, 1),
            weft_input(g, "gate", WEFT_F32, WEFT_SHAPE(1, 3)),
        };
        const weft_value out = weft_emit(g, WEFT_OP_GATED_ADD, in, 3, NULL);
        weft_output(g, "sum", weft_sum_all(g, out));
        weft_memory_plan plan;
        check(g, &with_in_place, &plan);
        cr_expect_eq(weft_memory_plan_root(&plan, out.id) == in[1].id, equal);
        if (!equal) { /* the check detects the fault */
            plan.allocation[out.id].alias_of = in[1].id;
            cr_expect_eq(weft_memory_plan_check(g, &with_in_place, &plan), WEFT_E_INTERNAL);
        }
        weft_memory_plan_free(&plan);
        weft_graph_free(g);
    }
}

/* A collective writes an updated source in place, unless a later node reads the old value. */
Test(lifetime, collectives_update_in_place)
{
    for (int late = 0; late < 2; late++) {
        weft_graph *g = weft_graph_create();
        const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", 2}};
        weft_graph_set_mesh(g, &mesh, 0);
        const weft_value whole = weft_state(g, "w", WEFT_F32, WEFT_SHAPE(8, 16), (weft_init){0});
        const weft_attr_comm attr = {.axis = 0, .dim = 0, .global = 8, .invariant = true};
        const weft_value own = weft_emit(g, WEFT_OP_SLICE_OWN, &whole, 1, &attr);
        const weft_value next = weft_affine(g, own, 0.5, 1);
        const weft_value all = weft_emit(g, WEFT_OP_ALL_GATHER, &next, 1, &attr);
        weft_update(g, whole, all);
        if (late)
            weft_output(g, "old", weft_sum_all(g, whole));
        weft_memory_plan plan;
        check(g, NULL, &plan);
        cr_expect_eq(weft_memory_plan_root(&plan, all.id) == whole.id, !late);
        weft_memory_plan_free(&plan);
        weft_graph_free(g);
    }
}

/* Faults: a buffer that overlaps another, a late wait, an alias that is not allowed, an offset
 * outside of the arena. */
Test(lifetime, checker_finds_faults)
{
    int moved = 0, late = 0, aliased = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        weft_graph *g = random_graph(seed);
        weft_memory_plan plan;
        check(g, &with_in_place, &plan);
        for (int32_t v = 0; v < plan.count; v++) {
            weft_allocation *place = &plan.allocation[v];
            if (place->region != WEFT_REGION_ARENA || place->alias_of >= 0)
                continue;
            for (int32_t u = 0; u < plan.count;
                 u++) { /* onto a buffer whose value is still read afterwards */
                weft_allocation *other = &plan.allocation[u];
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
             n++) { /* a sum's input is not allowed as its output */
            const weft_node *node = weft_graph_node(g, n);
            if (node->op != WEFT_OP_SUM || plan.allocation[node->out[0].id].alias_of >= 0)
                continue;
            plan.allocation[node->out[0].id].alias_of = node->in[0].id;
            aliased++;
            cr_expect_eq(weft_memory_plan_check(g, &with_in_place, &plan), WEFT_E_INTERNAL);
            plan.allocation[node->out[0].id].alias_of = -1;
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
