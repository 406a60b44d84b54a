/* Passes from graph to graph, run on the reference backend. Recompute and order leave loss and
 * weights bitwise identical, fuse is close, and each pass has its effect. */
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/builder_helpers.h"
#include "kernel/ref/table.h"
#include "training_graph.h"
#include "transform/memory/comm_order.h"
#include "transform/memory/lifetime.h"
#include "transform/memory/lifetime_check.h"
#include "transform/memory/offload.h"
#include "transform/memory/recompute.h"
#include "transform/memory/saved_activations.h"
#include "transform/numeric/fuse.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 3 };

static void fill(weft_tensor *t, uint64_t seed)
{
    for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
        ((float *)t->data)[i] = weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)i);
}

/* Weights away from the zeros that projections begin with. */
static void stir(weft_store *store)
{
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *t = weft_store_at(store, i);
        for (int64_t k = 0; k < weft_shape_count(&t->shape) && strncmp(t->name, "adamw", 5) != 0;
             k++)
            ((float *)t->data)[k] +=
                0.05f * weft_random_normal(77 + (uint64_t)i, WEFT_RNG_TEST, (uint64_t)k);
    }
}

typedef struct outcome {
    float loss[STEPS];
    weft_store *store;
} outcome;

static void put(weft_program *p, const char *name, float value)
{
    *(float *)weft_program_input(p, name)->data = value;
}

/* A few training steps from the same beginning. */
static outcome train(const weft_graph *g)
{
    outcome o = {.store = weft_store_create()};
    weft_program *p;
    cr_assert_eq(weft_store_init(o.store, g, 5), WEFT_OK);
    stir(o.store);
    cr_assert_eq(weft_program_compile(
                     g, &(weft_program_options){.backend = &weft_backend_ref, .guard = true}, &p),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(p, o.store, NULL), WEFT_OK, "%s", weft_error_message());
    for (int s = 0; s < STEPS; s++) {
        fill(weft_program_input(p, "batch.latents"), 1 + (uint64_t)s);
        fill(weft_program_input(p, "batch.text"), 2);
        fill(weft_program_input(p, "batch.target"), 3);
        for (int b = 0; b < 2; b++)
            ((float *)weft_program_input(p, "batch.timestep")->data)[b] =
                100.0f + 300.0f * (float)b;
        put(p, "optimizer.lr", 1e-2f);
        put(p, "optimizer.step", (float)(s + 1));
        put(p, "optimizer.loss_limit", INFINITY);
        put(p, "optimizer.norm_limit", INFINITY);
        cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
        o.loss[s] = *(const float *)weft_program_output(p, "loss")->data;
    }
    weft_program_free(p);
    return o;
}

static void expect_bitwise(const outcome *a, const outcome *b)
{
    cr_expect_arr_eq(a->loss, b->loss, sizeof a->loss);
    cr_expect(isfinite(a->loss[0]) && a->loss[1] != a->loss[0]);
    for (int64_t i = 0; i < weft_store_count(a->store); i++) {
        const weft_tensor *x = weft_store_at(a->store, i), *y = weft_store_find(b->store, x->name);
        cr_assert(y, "%s is not there", x->name);
        cr_expect_arr_eq(x->data, y->data, (size_t)weft_shape_count(&x->shape) * 4, "%s differs",
                         x->name);
    }
}

static int count_ops(const weft_graph *g, weft_op op)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == op;
    return count;
}

Test(rewrite, recompute_is_bitwise)
{
    weft_graph *g = training_graph(4, 4), *blocks, *ops, *both;
    const char *by_block[] = {"blocks.*"},
               *by_op[] = {"gelu", "layer_norm", "modulate", "rms_norm"};
    cr_assert_eq(weft_pass_recompute(g, by_block, 1, NULL, &blocks), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_pass_recompute(g, by_op, 4, NULL, &ops), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_order(blocks, 0, &both), WEFT_OK, "%s", weft_error_message());
    const outcome plain = train(g), a = train(blocks), b = train(ops), c = train(both);
    expect_bitwise(&plain, &a);
    expect_bitwise(&plain, &b);
    expect_bitwise(&plain, &c);
    cr_expect_gt(count_ops(blocks, WEFT_OP_ATTENTION), count_ops(g, WEFT_OP_ATTENTION));
    weft_store_free(plain.store);
    weft_store_free(a.store);
    weft_store_free(b.store);
    weft_store_free(c.store);
    weft_graph_free(g);
    weft_graph_free(blocks);
    weft_graph_free(ops);
    weft_graph_free(both);
}

static int64_t peak(const weft_graph *g)
{
    weft_memory_plan plan;
    cr_assert_eq(weft_pass_lifetime(g, NULL, &plan), WEFT_OK);
    cr_assert_eq(weft_memory_plan_check(g, NULL, &plan), WEFT_OK, "%s", weft_error_message());
    const int64_t bytes = plan.arena_bytes;
    weft_memory_plan_free(&plan);
    return bytes;
}

/* Every `step`th node whose value is saved for the backward. */
static weft_activation_plan some_fates(const weft_graph *g, int step, weft_activation_policy fate)
{
    weft_saved_activation *kept;
    int32_t count, met = 0;
    cr_assert_eq(weft_saved_activations_find(g, &kept, &count), WEFT_OK, "%s",
                 weft_error_message());
    weft_activation_plan fates = {.row = weft_alloc((count + 1) * (int64_t)sizeof *fates.row)};
    for (int32_t n = 0; n < count; n++) {
        if (kept[n].bytes == 0 || met++ % step)
            continue;
        int64_t at = fates.count++;
        for (; at > 0 && fates.row[at - 1].key > kept[n].key; at--)
            fates.row[at] = fates.row[at - 1];
        fates.row[at] = (struct weft_activation_policy_row){kept[n].key, fate};
    }
    for (int64_t i = 1; i < fates.count; i++)
        cr_assert_lt(fates.row[i - 1].key, fates.row[i].key, "two nodes have one key");
    weft_free(kept);
    return fates;
}

Test(rewrite, what_is_kept_is_made_again_bitwise)
{
    weft_graph *g = training_graph(4, 16), *all, *third;
    const weft_activation_plan every = some_fates(g, 1, WEFT_ACTIVATION_RECOMPUTE),
                               one_of_three = some_fates(g, 3, WEFT_ACTIVATION_RECOMPUTE);
    cr_assert_eq(weft_pass_recompute(g, NULL, 0, &every, &all), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_pass_recompute(g, NULL, 0, &one_of_three, &third), WEFT_OK, "%s",
                 weft_error_message());
    const outcome plain = train(g), a = train(all), b = train(third);
    expect_bitwise(&plain, &a);
    expect_bitwise(&plain, &b);
    const double bytes = (double)peak(g), least = (double)peak(all), some = (double)peak(third);
    cr_expect_lt(least, 0.6 * bytes, "%g of %g", least, bytes);
    cr_expect(least < some && some < bytes, "%g, %g of %g", least, some, bytes);
    cr_expect_gt(count_ops(all, WEFT_OP_ATTENTION), count_ops(g, WEFT_OP_ATTENTION));
    weft_store_free(plain.store);
    weft_store_free(a.store);
    weft_store_free(b.store);
    weft_free(every.row);
    weft_free(one_of_three.row);
    weft_graph_free(g);
    weft_graph_free(all);
    weft_graph_free(third);
}

/* Checks the plan of a graph with offloaded values; returns the bytes of the offload buffer. */
static int64_t checked_away(const weft_graph *g)
{
    weft_memory_plan plan;
    cr_assert_eq(weft_pass_lifetime(g, NULL, &plan), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_memory_plan_check(g, NULL, &plan), WEFT_OK, "%s", weft_error_message());
    const int64_t bytes = plan.offloaded_bytes;
    weft_memory_plan_free(&plan);
    return bytes;
}

/* Offloaded activations, also with recomputed ones, give bitwise identical results; so do offloaded
 * optimizer states. */
Test(rewrite, what_is_moved_away_comes_back)
{
    static const char *const states[] = {"adamw.*"};
    weft_graph *g = training_graph(4, 16), *marked, *away, *both, *ordered;
    const weft_activation_plan every = some_fates(g, 1, WEFT_ACTIVATION_OFFLOAD);
    weft_activation_plan mixed = some_fates(g, 1, WEFT_ACTIVATION_OFFLOAD);
    for (int64_t i = 0; i < mixed.count; i += 2)
        mixed.row[i].policy = WEFT_ACTIVATION_RECOMPUTE;
    cr_assert_eq(weft_pass_recompute(g, NULL, 0, &every, &marked), WEFT_OK);
    cr_assert_eq(weft_pass_offload(marked, NULL, 0, 0, &away), WEFT_OK, "%s", weft_error_message());
    weft_graph_free(marked);
    cr_assert_eq(weft_pass_recompute(g, NULL, 0, &mixed, &marked), WEFT_OK);
    cr_assert_eq(weft_pass_order(marked, 0, &ordered), WEFT_OK);
    cr_assert_eq(weft_pass_offload(ordered, states, 1, 40 << 10, &both), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_gt(checked_away(away), peak(g) / 3);
    cr_expect_gt(checked_away(both), 0);
    cr_expect_lt(peak(away), 6 * peak(g) / 10, "%g of %g", (double)peak(away), (double)peak(g));
    cr_expect_eq(count_ops(away, WEFT_OP_OFFLOAD), count_ops(away, WEFT_OP_FETCH));
    const outcome plain = train(g), a = train(away), b = train(both);
    expect_bitwise(&plain, &a);
    expect_bitwise(&plain, &b);
    weft_store_free(plain.store);
    weft_store_free(a.store);
    weft_store_free(b.store);
    weft_free(every.row);
    weft_free(mixed.row);
    weft_graph_free(g);
    weft_graph_free(marked);
    weft_graph_free(away);
    weft_graph_free(both);
    weft_graph_free(ordered);
}

/* A pattern without a match is reported. A graph without a backward has nothing to recompute. */
Test(rewrite, recompute_patterns_without_a_match)
{
    weft_graph *g = training_graph(1, 4), *forward = forward_graph(1), *out = NULL;
    const char *pattern[] = {"blocks.*", "block.*"};
    cr_expect_eq(weft_pass_recompute(g, pattern, 2, NULL, &out), WEFT_E_ARG);
    cr_expect(weft_error_class() == WEFT_MSG_PASS_INVALID &&
                  !strcmp(weft_error_fields()->value, "block.*") &&
                  strstr(weft_error_text(), "such as \"blocks.0."),
              "%s", weft_error_message());
    cr_expect_eq(weft_pass_recompute(forward, pattern, 2, NULL, &out), WEFT_OK, "%s",
                 weft_error_message());
    weft_graph_free(out);
    weft_graph_free(forward);
    weft_graph_free(g);
}

/* With more tokens than parameters, the saved activations of one block at a time remain. */
Test(rewrite, recompute_saves)
{
    weft_graph *g = training_graph(8, 16), *blocks, *ops;
    const char *by_block[] = {"blocks.*"},
               *by_op[] = {"gelu", "layer_norm", "modulate", "rms_norm"};
    cr_assert_eq(weft_pass_recompute(g, by_block, 1, NULL, &blocks), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_pass_recompute(g, by_op, 4, NULL, &ops), WEFT_OK, "%s", weft_error_message());
    const double plain = (double)peak(g), a = (double)peak(blocks), b = (double)peak(ops);
    cr_expect_lt(a, 0.4 * plain, "%g of %g", a, plain);
    cr_expect_lt(b, 0.8 * plain, "%g of %g", b, plain);
    weft_graph_free(g);
    weft_graph_free(blocks);
    weft_graph_free(ops);
}

Test(rewrite, order_is_bitwise_and_drops_dead_nodes)
{
    weft_graph *g = training_graph(2, 4), *ordered;
    const weft_value dead = weft_affine(g, weft_graph_find(g, "batch.text"), 3, 1);
    weft_unary(g, WEFT_OP_EXP, dead);
    cr_assert_eq(weft_pass_order(g, 0, &ordered), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_ops(ordered, WEFT_OP_EXP), count_ops(g, WEFT_OP_EXP) - 1);
    const outcome plain = train(g), a = train(ordered);
    expect_bitwise(&plain, &a);
    weft_store_free(plain.store);
    weft_store_free(a.store);
    weft_graph_free(g);
    weft_graph_free(ordered);
}

/* A layer adds its gradients to the states before the backward of the preceding layer, at any depth
 * of the model. */
Test(rewrite, order_adds_to_states_as_soon_as_it_can)
{
    weft_graph *g = loss_graph(24, 4), *ordered;
    const weft_optimizer_config config = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1};
    int64_t heavy = 0, behind = 0;
    bool added = false;
    weft_optimizer_accumulate(g, weft_graph_find(g, "objective"), NULL, &config);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_order(g, 0, &ordered), WEFT_OK, "%s", weft_error_message());
    for (int32_t n = 0; n < weft_graph_node_count(ordered); n++) {
        const weft_node *node = weft_graph_node(ordered, n);
        const weft_value_info *in =
            node->op == WEFT_OP_ADD ? weft_value_get(ordered, node->in[0]) : NULL;
        added = added || (in && weft_graph_node(ordered, in->node)->op == WEFT_OP_STATE);
        heavy += weft_op_has(node->op, WEFT_TRAIT_HEAVY);
        behind += added && weft_op_has(node->op, WEFT_TRAIT_HEAVY);
    }
    cr_expect_gt(behind, heavy / 2, "%" PRId64 " of %" PRId64 " after the first", behind, heavy);
    cr_expect_lt(peak(ordered), peak(g), "%g of %g", (double)peak(ordered), (double)peak(g));
    weft_graph_free(g);
    weft_graph_free(ordered);
}

/* Collectives start before work that does not need them, whichever node reads their results. */
Test(rewrite, order_puts_work_behind_collectives)
{
    weft_graph *g = weft_graph_create(), *ordered;
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"dp", 2}};
    weft_graph_set_mesh(g, &mesh, 0);
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(8, 8)), sum = WEFT_NONE;
    const weft_value w = weft_input(g, "w", WEFT_F32, WEFT_SHAPE(8, 8));
    weft_graph_set_layout(g, x, (weft_layout[WEFT_MAX_AXES]){{WEFT_P, 0}});
    for (int i = 0; i < 6; i++) {
        const weft_attr_comm attr = {.axis = 0};
        x = weft_matmul(g, x, w, false, false);
        const weft_value r = weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &attr);
        const weft_value used = weft_sum_all(g, r);
        sum = weft_value_ok(sum) ? weft_add(g, sum, used) : used;
    }
    weft_output(g, "sum", sum);
    weft_output(g, "x", x);
    cr_assert_eq(weft_pass_order(g, 0, &ordered), WEFT_OK, "%s", weft_error_message());
    int last_matmul = 0, after = 0;
    for (int32_t n = 0; n < weft_graph_node_count(ordered); n++)
        if (weft_graph_node(ordered, n)->op == WEFT_OP_MATMUL)
            last_matmul = n;
    for (int32_t n = 0; n < last_matmul; n++)
        after += weft_graph_node(ordered, n)->op == WEFT_OP_ALL_REDUCE;
    cr_expect_eq(after, 5);
    weft_memory_plan before_plan, plan;
    cr_assert_eq(weft_pass_lifetime(g, NULL, &before_plan), WEFT_OK);
    cr_assert_eq(weft_pass_lifetime(ordered, NULL, &plan), WEFT_OK);
    cr_assert_eq(weft_memory_plan_check(ordered, NULL, &plan), WEFT_OK, "%s", weft_error_message());
    int64_t room = 0, room_before = 0; /* nodes between start and wait */
    for (int32_t n = 0; n < plan.node_count; n++)
        room += plan.wait[n] < 0 ? 0 : plan.wait[n] - n;
    for (int32_t n = 0; n < before_plan.node_count; n++)
        room_before += before_plan.wait[n] < 0 ? 0 : before_plan.wait[n] - n;
    cr_expect_gt(room, room_before);
    weft_memory_plan_free(&plan);
    weft_memory_plan_free(&before_plan);
    weft_graph_free(g);
    weft_graph_free(ordered);
}

/* Keys and values are sent before queries are computed: no other rank waits for queries. */
Test(rewrite, order_begins_rings_first)
{
    weft_graph *g = weft_graph_create(), *ordered;
    const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"ring", 2}};
    const weft_attr_comm shift = {.axis = 0, .dim = 1, .global = 8, .shift = 1};
    weft_value part[3], moved[3], near[WEFT_MAX_OUTPUTS], far[WEFT_MAX_OUTPUTS];
    weft_graph_set_mesh(g, &mesh, 0);
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 4, 2, 8));
    weft_graph_set_layout(g, x, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 1}});
    for (int i = 0; i < 3; i++) /* queries, keys, values, as a model has them */
        part[i] = weft_matmul(
            g, x, weft_input(g, (const char *[]){"q", "k", "v"}[i], WEFT_F32, WEFT_SHAPE(8, 8)),
            false, false);
    part[1] = weft_affine(g, part[1], 2, 0);
    for (int i = 1; i < 3; i++)
        moved[i] = weft_emit(g, WEFT_OP_RING_SHIFT, &part[i], 1, &shift);
    moved[0] = part[0];
    weft_emit_all(g, WEFT_OP_ATTENTION, part, 3, &(weft_attr_attention){.scale = 1}, near);
    weft_emit_all(g, WEFT_OP_ATTENTION, moved, 3, &(weft_attr_attention){.scale = 1}, far);
    weft_output(g, "near", near[0]);
    weft_output(g, "far", far[0]);
    cr_assert_eq(weft_pass_order(g, 0, &ordered), WEFT_OK, "%s", weft_error_message());
    static const weft_op expected[] = {WEFT_OP_MATMUL,    WEFT_OP_RING_SHIFT, WEFT_OP_MATMUL,
                                       WEFT_OP_AFFINE,    WEFT_OP_RING_SHIFT, WEFT_OP_MATMUL,
                                       WEFT_OP_ATTENTION, WEFT_OP_ATTENTION};
    int at = 0;
    for (int32_t n = 0; n < weft_graph_node_count(ordered); n++) {
        const weft_op op = weft_graph_node(ordered, n)->op;
        if (op == WEFT_OP_INPUT)
            continue;
        cr_assert_lt(at, WEFT_COUNT(expected));
        cr_expect_eq(op, expected[at], "%d: %s, expected %s", at, weft_op_get(op)->name,
                     weft_op_get(expected[at])->name);
        at++;
    }
    cr_expect_eq(at, WEFT_COUNT(expected));
    weft_graph_free(g);
    weft_graph_free(ordered);
}

/* Products that lead to no ring, as gradients of weights, are done while it goes round; of many the
 * first are not kept back. What reads what went round comes last. */
Test(rewrite, order_puts_weights_behind_rings)
{
    static const int back[] = {3, 8, 11}, before[] = {2, 2, 5};
    for (int i = 0; i < WEFT_COUNT(back); i++) {
        weft_graph *g = weft_graph_create(), *ordered;
        const weft_mesh mesh = {.axis_count = 1, .axis[0] = {"ring", 2}};
        const weft_attr_comm shift = {.axis = 0, .dim = 0, .global = 8, .shift = 1};
        weft_graph_set_mesh(g, &mesh, 0);
        const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 8)),
                         w = weft_input(g, "w", WEFT_F32, WEFT_SHAPE(8, 8));
        weft_graph_set_layout(g, x, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 0}});
        for (int k = 0; k < back[i]; k++) {
            char name[16];
            snprintf(name, sizeof name, "back%d", k);
            weft_output(g, name, weft_matmul(g, x, w, false, false));
        }
        const weft_value near = weft_matmul(g, weft_matmul(g, x, w, false, false), w, false, false);
        const weft_value far = weft_emit(g, WEFT_OP_RING_SHIFT, &near, 1, &shift);
        weft_output(g, "far", weft_matmul(g, far, w, false, false));
        weft_output(g, "near", weft_matmul(g, near, w, false, false));
        cr_assert_eq(weft_pass_order(g, 0, &ordered), WEFT_OK, "%s", weft_error_message());
        int products = 0, at = -1;
        const int32_t last = weft_graph_node_count(ordered) - 1;
        for (int32_t n = 0; n <= last; n++) {
            products += weft_graph_node(ordered, n)->op == WEFT_OP_MATMUL;
            at = weft_graph_node(ordered, n)->op == WEFT_OP_RING_SHIFT ? products : at;
        }
        cr_expect_eq(at, before[i], "%d that may stand back: %d products before the ring", back[i],
                     at);
        const weft_value read = weft_graph_node(ordered, last)->in[0];
        cr_expect_eq(weft_graph_node(ordered, weft_value_get(ordered, read)->node)->op,
                     WEFT_OP_RING_SHIFT);
        weft_graph_free(g);
        weft_graph_free(ordered);
    }
}

/* A layer in int8 keeps its smoothing, the fourth input. */
Test(rewrite, fuse_keeps_smoothing)
{
    enum { K = 8, N = 3 };
    const float ones[K] = {1, 1, 1, 1, 1, 1, 1, 1};
    const weft_attr_linear plain = {WEFT_ACT_NONE};
    weft_graph *g = weft_graph_create(), *fused;
    const weft_value in[] = {
        weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, K)),
        weft_param(g, "w", WEFT_U8, WEFT_SHAPE(N, 1, K + 2), (weft_init){WEFT_INIT_ZERO, 0}),
        WEFT_NONE, weft_constant(g, WEFT_F32, WEFT_SHAPE(K), ones)};
    weft_output(g, "y", weft_unary(g, WEFT_OP_SILU, weft_emit(g, WEFT_OP_LINEAR, in, 4, &plain)));
    cr_assert_eq(weft_pass_fuse(g, &fused), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_ops(fused, WEFT_OP_SILU), 0);
    for (int32_t n = 0; n < weft_graph_node_count(fused); n++) {
        const weft_node *node = weft_graph_node(fused, n);
        if (node->op != WEFT_OP_LINEAR)
            continue;
        cr_assert_eq(node->in_count, 4);
        cr_expect_eq(weft_graph_node(fused, weft_value_get(fused, node->in[3])->node)->op,
                     WEFT_OP_CONSTANT);
    }
    weft_graph_free(g);
    weft_graph_free(fused);
}

Test(rewrite, fuse_is_close_and_leaves_training_alone)
{
    weft_graph *g = forward_graph(2), *fused, *training = training_graph(2, 4), *same;
    cr_assert_eq(weft_pass_fuse(g, &fused), WEFT_OK, "%s", weft_error_message());
    cr_expect_lt(weft_graph_node_count(fused), weft_graph_node_count(g));
    cr_expect_eq(count_ops(fused, WEFT_OP_GELU), 0);
    cr_assert_eq(weft_pass_fuse(training, &same), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_ops(same, WEFT_OP_GELU), count_ops(training, WEFT_OP_GELU));
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, g, 5), WEFT_OK);
    stir(store);
    const weft_graph *both[2] = {g, fused};
    weft_program *p[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(weft_program_compile(
                         both[i], &(weft_program_options){.backend = &weft_backend_ref}, &p[i]),
                     WEFT_OK);
        cr_assert_eq(weft_program_bind(p[i], store, NULL), WEFT_OK);
        fill(weft_program_input(p[i], "batch.latents"), 1);
        fill(weft_program_input(p[i], "batch.text"), 2);
        for (int b = 0; b < 2; b++)
            ((float *)weft_program_input(p[i], "batch.timestep")->data)[b] = 77;
        cr_assert_eq(weft_program_run(p[i]), WEFT_OK, "%s", weft_error_message());
    }
    const weft_tensor *a = weft_program_output(p[0], "prediction"),
                      *b = weft_program_output(p[1], "prediction");
    double size = 0;
    for (int64_t i = 0; i < weft_shape_count(&a->shape); i++) {
        const float x = ((const float *)a->data)[i], y = ((const float *)b->data)[i];
        cr_assert(isfinite(x) && fabsf(x - y) <= 1e-5f * (1 + fabsf(x)), "%g and %g", x, y);
        size += fabsf(x);
    }
    cr_expect_gt(size, 0.1);
    for (int i = 0; i < 2; i++)
        weft_program_free(p[i]);
    weft_store_free(store);
    weft_graph_free(g);
    weft_graph_free(fused);
    weft_graph_free(training);
    weft_graph_free(same);
}

static weft_status_code pass(int which, const weft_graph *g, weft_graph **out)
{
    static const char *const pattern[] = {"blocks.*"};
    return which == 0   ? weft_pass_order(g, 0, out)
           : which == 1 ? weft_pass_recompute(g, pattern, 1, NULL, out)
                        : weft_pass_fuse(g, out);
}

Test(rewrite, every_allocation_may_fail)
{
    weft_graph *g = training_graph(1, 4), *out;
    for (int which = 0; which < 3; which++)
        for (int64_t n = 1;; n++) {
            weft_alloc_fail_at(n);
            const weft_status_code status = pass(which, g, &out);
            weft_alloc_fail_at(0);
            if (status == WEFT_OK) {
                weft_graph_free(out);
                break;
            }
            cr_assert_eq(status, WEFT_E_MEMORY, "pass %d, allocation %d: %s", which, (int)n,
                         weft_error_message());
            cr_assert_lt(n, 2000);
        }
    weft_graph_free(g);
}
