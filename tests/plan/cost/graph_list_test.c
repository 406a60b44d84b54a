/* Operator lists from graphs, and seconds by measured rates. */
#include "base/fs.h"
#include "estimate/plan_models.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "plan/cluster/profile_file.h"
#include "plan/cost/graph_list.h"
#include "plan/published/video_list.h"
#include "transform/numeric/mixed_precision.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, HIDDEN = 64, HEADS = 4, TOKENS = 2 * 4 * 6 };

/* x -> per layer: norm, q k v, attention, projection, gate by a value all layers read -> loss */
static weft_graph *transformer(bool training)
{
    weft_graph *g = weft_graph_create();
    const weft_shape stream = WEFT_SHAPE(1, TOKENS, HIDDEN);
    weft_value x = weft_input(g, "x", WEFT_F32, stream), parameters[LAYERS * 4];
    const weft_value time =
        weft_unary(g, WEFT_OP_SILU, weft_input(g, "time", WEFT_F32, WEFT_SHAPE(1, 1, HIDDEN)));
    int count = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        weft_graph_push(g, "blocks.%d", layer);
        const weft_value n =
            weft_emit(g, WEFT_OP_LAYER_NORM, (weft_value[]){x, WEFT_NONE, WEFT_NONE}, 1,
                      &(weft_attr_norm){.eps = 1e-6});
        weft_value y[4];
        weft_graph_push(g, "attn");
        for (int i = 0; i < 3; i++) {
            char name[8];
            snprintf(name, sizeof name, "w%d", i);
            parameters[count] = weft_param(g, name, WEFT_F32, WEFT_SHAPE(HIDDEN, HIDDEN),
                                           (weft_init){WEFT_INIT_NORMAL, 0.1});
            y[i] = weft_reshape(g,
                                weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){n, parameters[count++]},
                                          2, &(weft_attr_linear){WEFT_ACT_NONE}),
                                WEFT_SHAPE(1, TOKENS, HEADS, HIDDEN / HEADS));
        }
        y[3] = weft_reshape(
            g, weft_emit(g, WEFT_OP_ATTENTION, y, 3, &(weft_attr_attention){.scale = 0.25}),
            stream);
        parameters[count] = weft_param(g, "out", WEFT_F32, WEFT_SHAPE(HIDDEN, HIDDEN),
                                       (weft_init){WEFT_INIT_NORMAL, 0.1});
        y[0] = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){y[3], parameters[count++]}, 2,
                         &(weft_attr_linear){WEFT_ACT_NONE});
        weft_graph_pop(g);
        x = weft_emit(g, WEFT_OP_GATED_ADD, (weft_value[]){x, y[0], time}, 3, NULL);
        weft_graph_pop(g);
    }
    const weft_value loss = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, x));
    weft_output(g, "loss", loss);
    if (training) {
        weft_value grad[LAYERS * 4];
        weft_autodiff(g, loss, parameters, count, grad);
        for (int i = 0; i < count; i++) { /* plain descent is the update */
            const weft_value step = weft_affine(g, grad[i], -0.01, 0);
            weft_update(g, parameters[i], weft_add(g, parameters[i], step));
        }
    }
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

static const weft_device_type figures = {.type = "d",
                                         .memory = 1,
                                         .flops = 1e12,
                                         .memory_bandwidth = 1e11,
                                         .gemm = 0.5,
                                         .attention = 0.5,
                                         .conv = 0.5,
                                         .memory_fraction = 1};

/* Nothing is lost and nothing counted twice: the list has the FLOPs, bytes and parameters of
 * the graph's nodes, except for the update. */
Test(graph_list, sums_are_those_of_the_graph)
{
    weft_arena *arena = weft_arena_create();
    weft_graph *g = transformer(true);
    weft_op_list list;
    cr_assert_eq(weft_op_list_from_graph(arena, g, &figures, 4, &list), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(list.layers, LAYERS);
    cr_expect_eq(list.hidden, HIDDEN);
    cr_expect_eq(list.heads, HEADS);
    cr_expect_eq(list.tokens, TOKENS);
    double forward = 0, backward = 0, bytes = 0;
    bool late = false;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_cost cost = weft_node_cost(g, n);
        late |= node->backward;
        if (node->backward)
            backward += (double)cost.flops, bytes += (double)cost.bytes;
        else if (!late)
            forward += (double)cost.flops, bytes += (double)cost.bytes;
    }
    const weft_op_cost sum = weft_op_list_total(&list);
    cr_expect_float_eq(sum.forward_flops, forward, 0.5);
    cr_expect_float_eq(sum.backward_flops, backward, 0.5);
    cr_expect_float_eq(sum.forward_bytes + sum.backward_bytes, bytes, 0.5);
    cr_expect_float_eq(sum.param_bytes, LAYERS * 4 * HIDDEN * HIDDEN * 4, 0.5);
    weft_op_list half;
    cr_assert_eq(weft_op_list_from_graph(arena, g, &figures, 2, &half), WEFT_OK);
    cr_expect_float_eq(weft_op_list_total(&half).activation_bytes, sum.activation_bytes / 2, 0.5);
    cr_expect_float_eq(weft_op_list_total(&half).forward_flops, forward, 0.5);
    weft_graph_free(g);
    weft_arena_free(arena);
}

/* Saved activations of a layer of the network above, counted by hand, in streams of tokens x width:
 * the input of the norm, its result (the input of three products), q, k, v, the result of attention
 * (which attention and projection share), the result of the projection (the gate's input), and the
 * log-sum-exp. */
Test(graph_list, activations_are_what_the_backward_reads)
{
    weft_arena *arena = weft_arena_create();
    weft_graph *g = transformer(true);
    weft_op_list list;
    cr_assert_eq(weft_op_list_from_graph(arena, g, &figures, 4, &list), WEFT_OK);
    const double stream = TOKENS * HIDDEN * 4, lse = HEADS * TOKENS * 4;
    const double kept = weft_op_list_total(&list).activation_bytes;
    /* the first layer's input is the graph's, the last one's result is what the loss squares; the
     * time vector, one width, is read by every gate */
    const double want = LAYERS * (7 * stream + lse) + HIDDEN * 4;
    cr_expect_float_eq(kept, want, 1, "%g bytes kept, %g by hand (%.3f streams)", kept, want,
                       kept / stream);
    /* a cut after a layer sends the stream, and the time vector if a later gate reads it */
    int layer = 0;
    for (int64_t i = 0; i + 1 < list.count; i++) {
        if (strcmp(list.op[i + 1].name, "layer input") != 0)
            continue;
        layer++;
        cr_expect_float_eq(list.op[i].output_bytes, stream + (layer < LAYERS) * HIDDEN * 4, 1,
                           "after layer %d: %g", layer, list.op[i].output_bytes);
    }
    cr_expect_eq(layer, LAYERS);
    weft_graph_free(g);
    weft_arena_free(arena);
}

/* A rate for every kernel of the graph, all with different seconds but equal nodes. */
static weft_rates rates_of(weft_arena *arena, const weft_graph *g)
{
    weft_rates rates = {.threads = 1, .ranks = 1};
    rates.item = weft_arena_alloc(arena, weft_graph_node_count(g) * (int64_t)sizeof *rates.item);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_cost cost = weft_node_cost(g, n);
        char key[WEFT_RATE_KEY];
        if (weft_graph_node(g, n)->in_count == 0 || (cost.flops == 0 && cost.bytes == 0))
            continue;
        weft_rate_key(g, n, key);
        int64_t at = 0;
        while (at < rates.count && strcmp(rates.item[at].key, key) != 0)
            at++;
        if (at == rates.count)
            rates.item[rates.count++] =
                (weft_rate){weft_arena_strdup(arena, key), (double)cost.flops, (double)cost.bytes,
                            1e-6 * (double)(n + 1)};
    }
    cr_assert_eq(weft_rates_check(&rates, "test"), WEFT_OK, "%s", weft_error_message());
    return rates;
}

/* A profile of exactly these nodes gives their sum, in the graph's time and in the list's. */
Test(graph_list, measured_seconds_add_up)
{
    weft_arena *arena = weft_arena_create();
    weft_graph *g = transformer(true);
    const weft_rates rates = rates_of(arena, g);
    double sum = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        char key[WEFT_RATE_KEY];
        weft_rate_key(g, n, key);
        for (int64_t at = 0; at < rates.count; at++)
            sum += strcmp(rates.item[at].key, key) ? 0 : rates.item[at].seconds;
    }
    weft_cluster cluster = {.nodes = 1, .devices = 1, .device = figures, .link = {1e9, 0}};
    cluster.device.rates = &rates;
    double *seconds = weft_calloc(weft_graph_node_count(g), sizeof *seconds), measured = 0;
    bool *exact = weft_alloc(weft_graph_node_count(g));
    cr_assert_eq(weft_graph_node_times(g, &cluster.device, seconds, NULL, exact), WEFT_OK);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        measured += seconds[n];
        cr_expect(exact[n] || seconds[n] == 0);
    }
    cr_expect_float_eq(measured, sum, 1e-12);
    weft_free(seconds);
    weft_free(exact);
    weft_op_list list;
    cr_assert_eq(weft_op_list_from_graph(arena, g, &cluster.device, 4, &list), WEFT_OK);
    const weft_op_cost total = weft_op_list_total(&list);
    cr_expect_float_eq(total.forward_seconds + total.backward_seconds + list.update_seconds, sum,
                       1e-12);
    cr_expect(list.update_seconds > 0);
    weft_graph_free(g);
    weft_arena_free(arena);
}

/* Without rates, every kernel takes the device's launch in addition to its work; sources and views
 * have no kernel. */
Test(graph_list, kernels_take_the_launch_of_the_device)
{
    weft_graph *g = transformer(true);
    const int32_t nodes = weft_graph_node_count(g);
    weft_device_type slow = figures;
    double *without = weft_calloc(nodes, sizeof *without), *with = weft_calloc(nodes, sizeof *with);
    slow.launch = 1e-3;
    cr_assert_eq(weft_graph_node_times(g, &figures, without, NULL, NULL), WEFT_OK);
    cr_assert_eq(weft_graph_node_times(g, &slow, with, NULL, NULL), WEFT_OK);
    for (int32_t n = 0; n < nodes; n++) {
        const weft_op op = weft_graph_node(g, n)->op;
        const bool kernel =
            !weft_op_is_collective(op) && !weft_op_has(op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS);
        cr_expect_float_eq(with[n] - without[n], kernel ? 1e-3 : 0, 1e-12, "node %d", (int)n);
    }
    weft_free(without);
    weft_free(with);
    weft_graph_free(g);
}

/* Seconds of the graph's nodes without casts, and of its products and attention alone. */
static void add_seconds(const weft_graph *g, const weft_device_type *device, double *all,
                        double *products)
{
    double *seconds = weft_calloc(weft_graph_node_count(g), sizeof *seconds);
    *all = *products = 0;
    cr_assert_eq(weft_graph_node_times(g, device, seconds, NULL, NULL), WEFT_OK, "%s",
                 weft_error_message());
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op == WEFT_OP_CAST)
            continue;
        *all += seconds[n];
        *products += weft_node_work(node) == WEFT_WORK_MEMORY ? 0 : seconds[n];
    }
    weft_free(seconds);
}

static weft_device_type reloaded(weft_arena *arena, const weft_device_type *device)
{
    char folder[] = "/tmp/weft-rates-XXXXXX", path[64];
    weft_cluster cluster;
    json_t *json = json_object();
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/profile.json", folder);
    cr_assert_eq(weft_profile_to_json(device, device->rates, json), WEFT_OK);
    cr_assert_eq(weft_json_save(path, json), WEFT_OK);
    json_decref(json);
    cr_assert_eq(weft_profile_load(arena, path, &cluster), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
    return cluster.device;
}

/* A bf16 graph costs the seconds of the f32 graph with a profile that has no rates of bf16. It
 * costs less where bf16 is faster: half for products and attention at twice the rate. */
Test(graph_list, nodes_of_bf16_have_the_rates_of_bf16)
{
    weft_arena *arena = weft_arena_create();
    weft_graph *g = transformer(false), *narrow;
    double wide[2], before[2], now[2];
    cr_assert_eq(weft_pass_mixed_precision(g, 0, &narrow), WEFT_OK, "%s", weft_error_message());
    const weft_rates rates = rates_of(arena, g);
    weft_device_type device = figures;
    device.rates = &rates;
    device = reloaded(arena, &device);
    cr_expect_eq(device.bf16_flops, 0);
    add_seconds(g, &device, &wide[0], &wide[1]);
    add_seconds(narrow, &device, &before[0], &before[1]);
    cr_expect(wide[1] > 0.3 * wide[0]);
    cr_expect_float_eq(before[0], wide[0], 1e-12 * wide[0]);
    device.bf16_flops = 4 * figures.flops;
    device.bf16_gemm = device.bf16_attention = device.bf16_conv = 0.25;
    device = reloaded(arena, &device);
    add_seconds(narrow, &device, &now[0], &now[1]);
    cr_expect_float_eq(now[1], wide[1] / 2, 1e-12 * wide[0]);
    cr_expect_float_eq(now[0] - now[1], wide[0] - wide[1], 1e-12 * wide[0]);
    add_seconds(g, &device, &now[0], &now[1]);
    cr_expect_float_eq(now[0], wide[0], 1e-12 * wide[0], "f32 keeps its rates");
    /* nodes of bf16 that were timed have their own seconds */
    const weft_rates own = rates_of(arena, narrow);
    device.rates = &own;
    add_seconds(narrow, &device, &before[0], &before[1]);
    device.bf16_flops = 0;
    add_seconds(narrow, &device, &now[0], &now[1]);
    cr_expect_eq(now[1], before[1]);
    weft_graph_free(narrow);
    weft_graph_free(g);
    weft_arena_free(arena);
}

/* Without measured kernels, too, products of bf16 have the rate of bf16. */
Test(graph_list, figures_of_bf16_apply_without_a_profile)
{
    weft_graph *g = transformer(false), *narrow;
    double wide[2], now[2];
    weft_device_type device = figures;
    device.memory_bandwidth = 1e30;
    cr_assert_eq(weft_pass_mixed_precision(g, 0, &narrow), WEFT_OK, "%s", weft_error_message());
    add_seconds(narrow, &device, &wide[0], &wide[1]);
    device.bf16_flops = 4 * device.flops;
    add_seconds(narrow, &device, &now[0], &now[1]);
    cr_expect_float_eq(now[1], wide[1] / 4, 1e-12 * wide[1], "fractions of f32");
    weft_graph_free(narrow);
    weft_graph_free(g);
}

/* The rate of a product between two timed ones is between their rates. Twice the work needs about
 * twice the time. An op that was not timed has no rate. */
Test(rates, what_was_not_timed_is_scaled_from_its_neighbours)
{
    weft_rate item[] = {
        {"matmul f32[64,64] f32[64,64] -> f32[64,64]", 2.0 * 64 * 64 * 64, 49152, 1e-5},
        {"matmul f32[256,256] f32[256,256] -> f32[256,256]", 2.0 * 256 * 256 * 256, 786432, 4e-4}};
    weft_rates r = {item, 2, 1};
    bool exact;
    cr_assert_eq(weft_rates_check(&r, "test"), WEFT_OK);
    cr_expect_float_eq(weft_rates_seconds(&r, item[0].key, 1, 1, &exact), item[0].seconds, 0);
    cr_expect(exact);
    const double flops = 2.0 * 128 * 128 * 128;
    const double s = weft_rates_seconds(&r, "matmul f32[128,128] f32[128,128] -> f32[128,128]",
                                        flops, 196608, &exact);
    cr_expect(!exact);
    const double rate = flops / s, low = 2.0 * 64 * 64 * 64 / 1e-5,
                 high = 2.0 * 256 * 256 * 256 / 4e-4;
    cr_expect(rate > fmin(low, high) && rate < fmax(low, high), "%g between %g and %g", rate, low,
              high);
    cr_expect(isnan(weft_rates_seconds(&r, "gelu f32[8] -> f32[8]", 8, 64, &exact)));
    r.item[1].seconds = -1;
    cr_expect_neq(weft_rates_check(&r, "test"), WEFT_OK);
}

/* Exchanges: a line between two sizes, the smallest's below, by bytes beyond the largest. */
Test(rates, exchanges_lie_between_those_that_were_timed)
{
    weft_rate item = {"gelu f32[8] -> f32[8]", 8, 64, 1e-6};
    weft_wire_rate wire[] = {{"all_reduce", 2, 1000, 10e-6},
                             {"all_reduce", 2, 100000, 100e-6},
                             {"all_reduce", 4, 1000, 30e-6}};
    weft_rates r = {.item = &item, .count = 1, .threads = 1, .ranks = 2, .wire = wire, .wires = 3};
    cr_assert_eq(weft_rates_check(&r, "test"), WEFT_OK);
    cr_expect_float_eq(weft_rates_wire_seconds(&r, "all_reduce", 2, 8), 10e-6, 1e-12);
    cr_expect_float_eq(weft_rates_wire_seconds(&r, "all_reduce", 2, 1000), 10e-6, 1e-12);
    cr_expect_float_eq(weft_rates_wire_seconds(&r, "all_reduce", 2, 50500), 55e-6, 1e-12);
    cr_expect_float_eq(weft_rates_wire_seconds(&r, "all_reduce", 2, 300000), 300e-6, 1e-12);
    cr_expect_float_eq(weft_rates_wire_seconds(&r, "all_reduce", 4, 5000), 150e-6, 1e-12);
    cr_expect(isnan(weft_rates_wire_seconds(&r, "all_gather", 2, 1000)));
    wire[1].seconds = 0;
    cr_expect_neq(weft_rates_check(&r, "test"), WEFT_OK);
}

/* Wan 14B at 480p saves the activations of weft's graph; the manual list had half of the bytes. */
Test(graph_list, wan_is_counted_from_its_graph)
{
    weft_arena *arena = weft_arena_create();
    weft_op_list list;
    const char *source;
    cr_assert_eq(weft_plan_model_list(arena, "wan-14b", 81, 480, 832, &figures, &list, &source),
                 WEFT_OK, "%s", weft_error_message());
    cr_expect_str_eq(source, "graph");
    cr_expect_eq(list.layers, 40);
    cr_expect_eq(list.tokens, 21 * 30 * 52);
    const weft_op_cost sum = weft_op_list_total(&list);
    cr_expect_float_eq(sum.param_bytes / 2, 14.29e9, 0.05e9, "%g parameters", sum.param_bytes / 2);
    cr_expect(sum.activation_bytes > 300e9 && sum.activation_bytes < 360e9, "%g bytes kept",
              sum.activation_bytes);
    weft_arena_free(arena);
}

/* The manual lists have the parameter counts of the published models. */
Test(video_list, published_sizes)
{
    static const struct {
        const char *name;
        double want;
    } rows[] = {{"cogvideox-2b", 1.7e9}, {"cogvideox-5b", 5.6e9}, {"hunyuanvideo-13b", 13e9}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_arena *arena = weft_arena_create();
        weft_op_list list;
        const char *source;
        cr_assert_eq(
            weft_plan_model_list(arena, rows[i].name, 49, 480, 720, &figures, &list, &source),
            WEFT_OK, "%s", weft_error_message());
        cr_expect_str_eq(source, "hand-made list");
        const double n = weft_op_list_total(&list).param_bytes / 2;
        cr_expect(fabs(n / rows[i].want - 1) < 0.12, "%s has %.4g parameters", rows[i].name, n);
        weft_arena_free(arena);
    }
}
