/* The clock over a program's instructions, with seconds that are easy to add up: kernels of 10 s,
 * an exchange of 25 s. */
#include "estimate/program_estimate.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "plan/cluster/cluster_path.h"

#include <criterion/criterion.h>

static const weft_mesh mesh = {.axis_count = 1, .axis = {{"dp", 2}}};

static double exchange(const void *self, int axis, weft_comm_op op, int64_t bytes)
{
    cr_expect_eq(axis, 0);
    cr_expect_eq(op, WEFT_COMM_ALL_REDUCE);
    cr_expect_eq(bytes, *(const int64_t *)self);
    return 25;
}

/* a = 2 x; s = sum of a over the ranks; `beside` kernels that do not read s; then y = 2 s. */
static weft_time_estimate foresee(int beside, bool no_overlap, double drag)
{
    enum { COUNT = 100000 };
    const int64_t bytes = COUNT * 4;
    weft_graph *g = weft_graph_create();
    weft_program *p;
    weft_time_estimate out;
    weft_graph_set_mesh(g, &mesh, 0);
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(COUNT));
    const weft_value a = weft_affine(g, x, 2, 0);
    const weft_value s = weft_emit(g, WEFT_OP_ALL_REDUCE, &a, 1, &(weft_attr_comm){.axis = 0});
    weft_value own = x;
    for (int i = 0; i < beside; i++)
        own = weft_affine(g, own, 3, 1);
    weft_output(g, "own", own);
    weft_output(g, "y", weft_affine(g, s, 2, 0));
    const weft_program_options options = {.mesh = &mesh, .no_overlap = no_overlap};
    cr_assert_eq(weft_program_compile(g, &options, &p), WEFT_OK, "%s", weft_error_message());
    double seconds[16];
    for (int n = 0; n < 16; n++)
        seconds[n] = 10;
    const weft_part_times times = {
        .kernel = seconds, .collective = exchange, .self = &bytes, .slowdown = drag};
    cr_assert_leq(weft_graph_node_count(g), 16);
    cr_assert_eq(weft_program_estimate(p, &times, &out), WEFT_OK, "%s", weft_error_message());
    weft_program_free(p);
    weft_graph_free(g);
    return out;
}

static void expect(weft_time_estimate f, double kernels, double exposed)
{
    cr_expect_float_eq(f.kernels, kernels, 1e-9, "kernels %g, not %g", f.kernels, kernels);
    cr_expect_float_eq(f.exposed, exposed, 1e-9, "exposed %g, not %g", f.exposed, exposed);
    cr_expect_float_eq(f.seconds, kernels + exposed, 1e-9, "%g", f.seconds);
    cr_expect_float_eq(f.busy, 25, 1e-9, "busy %g", f.busy);
}

Test(foresee, an_exchange_is_hidden_as_far_as_kernels_stand_beside_it)
{
    expect(foresee(0, false, 0), 20, 25);
    expect(foresee(1, false, 0), 30, 15);
    expect(foresee(4, false, 0), 60, 0);
    expect(foresee(4, true, 0), 60, 25); /* waited for where it starts */
}

/* a = 2 x and b = 3 x, each summed over the ranks by an exchange of its own; y = both sums. The
 * first exchange takes the link from 10 s to 35 s, the second is ready at 20 s and ends at 60 s. */
Test(foresee, an_exchange_waits_for_the_one_before_it)
{
    enum { COUNT = 100000 };
    const int64_t bytes = COUNT * 4;
    weft_graph *g = weft_graph_create();
    weft_program *p;
    weft_time_estimate out;
    weft_value sum[2];
    weft_graph_set_mesh(g, &mesh, 0);
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(COUNT));
    for (int i = 0; i < 2; i++) {
        const weft_value own = weft_affine(g, x, 2 + (float)i, 0);
        sum[i] = weft_emit(g, WEFT_OP_ALL_REDUCE, &own, 1, &(weft_attr_comm){.axis = 0});
    }
    weft_output(g, "y", weft_add(g, sum[0], sum[1]));
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){.mesh = &mesh}, &p), WEFT_OK, "%s",
                 weft_error_message());
    double seconds[16];
    for (int n = 0; n < 16; n++)
        seconds[n] = 10;
    const weft_part_times times = {.kernel = seconds, .collective = exchange, .self = &bytes};
    cr_assert_leq(weft_graph_node_count(g), 16);
    cr_assert_eq(weft_program_estimate(p, &times, &out), WEFT_OK, "%s", weft_error_message());
    cr_expect_float_eq(out.kernels, 30, 1e-9, "kernels %g", out.kernels);
    cr_expect_float_eq(out.busy, 50, 1e-9, "busy %g", out.busy);
    cr_expect_float_eq(out.exposed, 40, 1e-9, "exposed %g", out.exposed);
    cr_expect_float_eq(out.seconds, 70, 1e-9, "%g", out.seconds);
    weft_program_free(p);
    weft_graph_free(g);
}

/* If the kernels of the ranks use all cores, hidden copies slow them by the same time. */
Test(foresee, kernels_lose_what_an_exchange_beside_them_takes)
{
    expect(foresee(4, false, 1), 60, 25);
    expect(foresee(4, false, 0.4), 60, 10);
    expect(foresee(1, false, 0.4), 30, 15); /* 10 take 16.7, and 8.3 are waited for */
}

/* a = 2 x is offloaded, two kernels run, and a is fetched and read. */
static weft_time_estimate foresee_moves(double move_drag)
{
    enum { COUNT = 1000 };
    weft_graph *g = weft_graph_create();
    weft_program *p;
    weft_time_estimate out;
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(COUNT));
    const weft_value a = weft_affine(g, x, 2, 0);
    const weft_value away = weft_emit(g, WEFT_OP_OFFLOAD, &a, 1, &(weft_attr_move){1 << 20});
    const weft_value own = weft_affine(g, weft_affine(g, x, 3, 1), 3, 1);
    const weft_value back = weft_emit(g, WEFT_OP_FETCH, &away, 1, &(weft_attr_move){1 << 20});
    weft_output(g, "y", weft_add(g, back, own));
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){.no_views = true}, &p), WEFT_OK,
                 "%s", weft_error_message());
    double seconds[16];
    for (int n = 0; n < 16; n++)
        seconds[n] = 10;
    const weft_part_times times = {
        .kernel = seconds, .copy = 1e-3 / 4, .copy_slowdown = move_drag}; /* a second each way */
    cr_assert_eq(weft_program_estimate(p, &times, &out), WEFT_OK, "%s", weft_error_message());
    weft_program_free(p);
    weft_graph_free(g);
    return out;
}

/* A copy engine works while kernels run; a core that copies does not compute. */
Test(foresee, kernels_lose_what_a_core_copies)
{
    const weft_time_estimate engine = foresee_moves(0), core = foresee_moves(1);
    cr_expect_float_eq(core.kernels, engine.kernels, 1e-9);
    cr_expect_lt(engine.exposed, 1.5, "%g",
                 engine.exposed); /* the first fetch, which nothing hides */
    cr_expect_float_eq(core.exposed, 2, 1e-9, "%g", core.exposed);
}

/* A state whose new value is in offloaded memory is copied after the run. */
Test(foresee, what_is_not_made_in_place_is_copied)
{
    enum { COUNT = 1000 };
    weft_graph *g = weft_graph_create();
    weft_program *p;
    weft_time_estimate out;
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(COUNT));
    const weft_value s =
        weft_state(g, "s", WEFT_F32, WEFT_SHAPE(COUNT), (weft_init){WEFT_INIT_ZERO, 0});
    weft_output(g, "y", weft_affine(g, s, 2, 0));
    weft_update(g, s, x);
    const weft_program_options options = {0};
    cr_assert_eq(weft_program_compile(g, &options, &p), WEFT_OK, "%s", weft_error_message());
    double seconds[16];
    for (int n = 0; n < 16; n++)
        seconds[n] = 10;
    const weft_part_times times = {.kernel = seconds, .copy = 1e-3};
    cr_assert_eq(weft_program_estimate(p, &times, &out), WEFT_OK, "%s", weft_error_message());
    cr_expect_float_eq(out.seconds, 10 + 4, 1e-9, "%g", out.seconds);
    weft_program_free(p);
    weft_graph_free(g);
}

/* Twelve ranks on two nodes of eight: as a run of twelve fills them, and six on each, as groups of
 * cascades are placed. */
Test(foresee, a_group_is_priced_where_it_lies)
{
    weft_arena *arena = weft_arena_create();
    const weft_mesh wide = {.axis_count = 1, .axis = {{"cp", 12}}};
    const int64_t bytes = 64 << 20;
    weft_cluster cluster;
    cr_assert_eq(weft_cluster_load(arena, "h100:2", &cluster), WEFT_OK, "%s", weft_error_message());
    for (int64_t per_node = 6; per_node <= 8; per_node += 2) {
        const weft_rank_links links = {&cluster, &wide, per_node < 8 ? per_node : 0};
        const double priced =
            weft_comm_estimate(&links, "all_to_all", WEFT_COLL_ALL_TO_ALL, 0, bytes);
        cr_expect_float_eq(priced,
                           weft_cluster_collective_seconds(&cluster, WEFT_COLL_ALL_TO_ALL, 12,
                                                           per_node, (double)bytes),
                           1e-12, "%" PRId64 " on a node", per_node);
    }
    weft_arena_free(arena);
}
