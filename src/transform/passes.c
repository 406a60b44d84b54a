#include "transform/passes.h"

#include "base/log.h"
#include "graph/graph.h"
#include "transform/memory/comm_order.h"
#include "transform/memory/comm_waits.h"
#include "transform/memory/lifetime.h"
#include "transform/memory/offload.h"
#include "transform/memory/recompute.h"
#include "transform/memory/reshard.h"
#include "transform/memory/weight_streaming.h"
#include "transform/numeric/fuse.h"
#include "transform/numeric/mixed_precision.h"
#include "transform/numeric/pointwise.h"
#include "transform/numeric/rounding.h"
#include "transform/numeric/tf32.h"
#include "transform/sharding/shard.h"
#include "transform/sharding/token_sharding.h"

#include <stdio.h>
#include <string.h>

/* ---- the list ------------------------------------------------------------------------------ */

typedef struct row {
    const char *name, *help;
    weft_pass_phase phase;
    weft_pass_rounding rounding;
    size_t on; /* offset in the switches; NEVER_OFF: required */
    bool (*wanted)(const weft_pass_setup *setup);
    /* NULL: the memory planner or the pass shard does the work, and only `say` reports it. */
    weft_status (*run)(const weft_graph *g, const weft_pass_setup *setup, weft_graph **out);
    /* Appends a message about the change to report->changed. NULL: op counts suffice */
    weft_status (*say)(const weft_graph *before, const weft_graph *after,
                       const weft_pass_setup *setup, weft_pass_report *report);
} row;

enum { NEVER_OFF = -1 };

static bool has_several_ranks(const weft_pass_setup *s)
{
    return s->mesh && weft_mesh_ranks(s->mesh) > 1;
}

static bool has_patterns(const weft_pass_setup *s)
{
    return s->recompute_count > 0 || (s->activations && s->activations->count > 0);
}

static const weft_pass_switches *switches_of(const weft_pass_setup *s)
{
    return s->switches ? s->switches : &weft_pass_defaults;
}

static weft_status run_tokens(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_token_sharding(g, s->mesh, s->recipe, out);
}

/* Runs the pass shard with the switches of layer_slices and early_exchange. Layers are sliced
 * before their axis is split, and exchanges are emitted where they start. */
static weft_status run_shard(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    weft_recipe recipe = *s->recipe;
    weft_comm_overlap overlap = recipe.overlap ? *recipe.overlap : (weft_comm_overlap){0};
    if (!switches_of(s)->lift)
        overlap.lift_time = overlap.lift_space = 0;
    recipe.overlap = recipe.overlap && switches_of(s)->slice ? &overlap : NULL;
    return weft_pass_shard(g, s->mesh, s->rank, &recipe, out);
}

static bool has_layer_slices(const weft_pass_setup *s)
{
    return has_several_ranks(s) && s->recipe->overlap && weft_comm_overlap_axis(s->recipe, s->mesh);
}

static bool has_lift(const weft_pass_setup *s)
{
    return has_layer_slices(s) && switches_of(s)->slice &&
           s->recipe->overlap->kind != WEFT_COMM_OVERLAP_OFF;
}

static bool is_mixed_precision(const weft_pass_setup *s)
{
    return s->bf16_compute;
}

static weft_status run_mixed_precision(const weft_graph *g, const weft_pass_setup *s,
                                       weft_graph **out)
{
    WEFT_TRY(weft_pass_mixed_precision(g, s->bf16_reduce ? WEFT_MIXED_REDUCE_BF16 : 0, out));
    const weft_status_code status = weft_precision_check(*out);
    if (status != WEFT_OK) {
        weft_graph_free(*out);
        *out = NULL;
    }
    return status;
}

static bool forwards_parameters(const weft_pass_setup *s)
{
    return s->bf16_compute || has_several_ranks(s);
}

static weft_status run_recompute(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_recompute(g, s->recompute, s->recompute_count, s->activations, out);
}

static weft_status run_regather(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    (void)s;
    return weft_pass_reshard(g, out);
}

static weft_status run_fuse(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    (void)s;
    return weft_pass_fuse(g, out);
}

static weft_status run_order(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_order(g, s->prefetch_bytes, out);
}

static bool has_offload(const weft_pass_setup *s)
{
    bool any = s->offload_state_count > 0;
    for (int64_t i = 0; s->activations && i < s->activations->count && !any; i++)
        any = s->activations->row[i].policy == WEFT_ACTIVATION_OFFLOAD;
    return any;
}

static weft_status run_offload(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_offload(g, s->offload_states, s->offload_state_count, s->prefetch_bytes, out);
}

static bool has_cfg_branches(const weft_pass_setup *s)
{
    return s->cfg_branches;
}

static weft_status run_cfg_branches(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_cfg_branches(g, s->cfg_inputs, out);
}

static bool is_tf32(const weft_pass_setup *s)
{
    return s->tf32_compute;
}

static weft_status run_tf32(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    (void)s;
    return weft_pass_tf32(g, out);
}

static bool is_streamed(const weft_pass_setup *s)
{
    return s->stream;
}

static weft_status run_stream(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_stream(g, s->prefetch_bytes, out);
}

static bool joins_pointwise(const weft_pass_setup *s)
{
    return s->pointwise;
}

static weft_status run_pointwise(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    (void)s;
    return weft_pass_pointwise(g, WEFT_POINTWISE_SMALL_STEPS, out);
}

/* Counts collectives, and the nodes that run during each of them. */
static weft_status covered(const weft_graph *g, int64_t *nodes, int64_t *collectives)
{
    const int32_t count = weft_graph_node_count(g);
    int32_t *wait;
    WEFT_TRY(WEFT_NEW(wait, count + 1, "reporting on a pass"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_waits(g, wait));
    *nodes = *collectives = 0;
    for (int32_t n = 0; n < count; n++) {
        *collectives += wait[n] >= 0;
        *nodes += wait[n] >= 0 ? wait[n] - n - 1 : 0;
    }
out:
    weft_free(wait);
    return status;
}

static weft_status say_order(const weft_graph *before, const weft_graph *after,
                             const weft_pass_setup *setup, weft_pass_report *report)
{
    int64_t was, is, collectives;
    (void)setup;
    WEFT_TRY(covered(before, &was, &collectives));
    WEFT_TRY(covered(after, &is, &collectives));
    const size_t used = strlen(report->changed);
    if (collectives)
        snprintf(report->changed + used, sizeof report->changed - used,
                 "%s%" PRId64 " collectives with %.1f nodes during each, before the pass %.1f",
                 used ? "; " : "", collectives, (double)is / (double)collectives,
                 (double)was / (double)collectives);
    return WEFT_OK;
}

/* Counts exchanges between layers: those that start after their layer (`late`) and during the
 * previous layer (`lifted`). */
static void count_pieces(const weft_graph *g, int64_t *late, int64_t *lifted)
{
    *late = *lifted = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *last = strrchr(node->scope, '.');
        if (node->op != WEFT_OP_ALL_TO_ALL || !last || node->backward)
            continue;
        *late += !strcmp(last, ".late");
        *lifted += !strcmp(last, ".exchange");
    }
}

/* Reports the layer slices, and the reason where fewer were made than requested. */
static weft_status say_shard(const weft_graph *before, const weft_graph *after,
                             const weft_pass_setup *setup, weft_pass_report *report)
{
    weft_buf out = {0};
    int64_t made[WEFT_MADE];
    if (!has_several_ranks(setup) || !setup->recipe->overlap || !switches_of(setup)->slice ||
        setup->recipe->overlap->kind == WEFT_COMM_OVERLAP_OFF)
        return WEFT_OK;
    weft_comm_overlap_count(before, after, setup->recipe, made);
    weft_comm_overlap_format(setup->recipe->overlap, made, &out);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&out));
    const size_t used = strlen(report->changed);
    if (out.len)
        snprintf(report->changed + used, sizeof report->changed - used, "%s%s", used ? "; " : "",
                 out.data);
out:
    weft_buf_free(&out);
    return status;
}

static weft_status say_slice(const weft_graph *before, const weft_graph *after,
                             const weft_pass_setup *setup, weft_pass_report *report)
{
    int64_t late, lifted;
    (void)before, (void)setup;
    count_pieces(after, &late, &lifted);
    snprintf(report->changed, sizeof report->changed, "%" PRId64 " exchanges between layers",
             late + lifted);
    return WEFT_OK;
}

static weft_status say_lift(const weft_graph *before, const weft_graph *after,
                            const weft_pass_setup *setup, weft_pass_report *report)
{
    int64_t late, lifted;
    (void)before, (void)setup;
    count_pieces(after, &late, &lifted);
    snprintf(report->changed, sizeof report->changed,
             "%" PRId64 " exchanges start during the previous layer", lifted);
    return WEFT_OK;
}

static weft_status say_views(const weft_graph *before, const weft_graph *after,
                             const weft_pass_setup *setup, weft_pass_report *report)
{
    weft_memory_plan plan;
    int count[2] = {0};
    (void)before, (void)setup;
    WEFT_TRY(weft_pass_lifetime(after, NULL, &plan));
    report->peak[1] = plan.arena_bytes;
    for (int32_t n = 0; n < plan.node_count; n++) {
        const weft_op op = weft_graph_node(after, n)->op;
        if (!plan.view[n] || (op != WEFT_OP_SLICE && op != WEFT_OP_CONCAT))
            continue;
        count[op == WEFT_OP_CONCAT]++;
        report->cost[1].bytes -= weft_node_cost(after, n).bytes;
    }
    weft_memory_plan_free(&plan);
    if (count[0] + count[1])
        snprintf(report->changed, sizeof report->changed, "%d slices and %d concats copy nothing",
                 count[0], count[1]);
    return WEFT_OK;
}

/* clang-format off */
#define TEXTS_OF(member, name, earlier, fallback, rounding, help) \
    static const char member##_name[] = name, member##_help[] = help;
WEFT_PASS_LIST(TEXTS_OF)
#undef TEXTS_OF
#define ROUNDING_OF(member, name, earlier, fallback, rounding, help) \
    member##_rounding = WEFT_ROUNDING_##rounding,
enum { WEFT_PASS_LIST(ROUNDING_OF) };
#undef ROUNDING_OF
#define SWITCHED_IN(stage, member) \
    member##_name, member##_help, stage, (weft_pass_rounding)member##_rounding, \
        offsetof(weft_pass_switches, member)
#define SWITCHED(member) SWITCHED_IN(WEFT_PASS_RANK, member)

static const row rows[] = {
    {SWITCHED_IN(WEFT_PASS_WHOLE, tokens), has_several_ranks, run_tokens, NULL},
    {"shard", "makes the graph of one rank, with tensor shards and collectives",
     WEFT_PASS_WHOLE, WEFT_ROUNDING_CHANGED, (size_t)NEVER_OFF, has_several_ranks, run_shard,
     say_shard},
    {"narrow", "computes models in bf16; parameters and reductions stay f32",
     WEFT_PASS_WHOLE, WEFT_ROUNDING_CHANGED, (size_t)NEVER_OFF, is_mixed_precision,
     run_mixed_precision, NULL},
    /* rows without `run`: the pass shard does the work */
    {SWITCHED_IN(WEFT_PASS_WHOLE, slice), has_layer_slices, NULL, say_slice},
    {SWITCHED_IN(WEFT_PASS_WHOLE, lift), has_lift, NULL, say_lift},
    {SWITCHED(recompute), has_patterns, run_recompute, NULL},
    {SWITCHED(regather), forwards_parameters, run_regather, NULL},
    {SWITCHED(fuse), NULL, run_fuse, NULL},
    {SWITCHED(halves), has_cfg_branches, run_cfg_branches, NULL},
    {SWITCHED(order), NULL, run_order, say_order},
    {SWITCHED(offload), has_offload, run_offload, NULL},
    {SWITCHED(stream), is_streamed, run_stream, NULL},
    {SWITCHED(pointwise), joins_pointwise, run_pointwise, NULL},
    {SWITCHED(views), NULL, NULL, say_views},
    {"tf32", "lets kernels round operands of products to TF32", WEFT_PASS_RANK,
     WEFT_ROUNDING_CHANGED, (size_t)NEVER_OFF, is_tf32, run_tf32, NULL},
};

#define DEFAULT_OF(member, name, earlier, fallback, rounding, help) .member = fallback,
const weft_pass_switches weft_pass_defaults = {WEFT_PASS_LIST(DEFAULT_OF)};
#undef DEFAULT_OF

#define TEXT_OF_true "on"
#define TEXT_OF_false "off"
#define KEY_OF(member, name, earlier_, fallback, rounding, help) \
    {name, WEFT_KEY_BOOL, offsetof(weft_pass_switches, member), TEXT_OF_##fallback, "", help, \
     .earlier = earlier_},
static const weft_key keys[] = {WEFT_PASS_LIST(KEY_OF)};
#undef KEY_OF
/* clang-format on */

const weft_section weft_pass_section = {"passes", "switches of the passes over a graph",
                                        sizeof(weft_pass_switches), keys, WEFT_COUNT(keys)};

static bool is_name(const char *name, const char *text, size_t length)
{
    return name && strlen(name) == length && !memcmp(name, text, length);
}

weft_status weft_pass_switch(weft_pass_switches *switches, const char *text)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const bool on = equals && !strcmp(equals + 1, "on"), off = equals && !strcmp(equals + 1, "off");
    weft_buf known = {0};
    for (int k = 0; k < WEFT_COUNT(keys); k++) {
        if ((on || off) &&
            (is_name(keys[k].name, text, length) || is_name(keys[k].earlier, text, length))) {
            *(bool *)((char *)switches + keys[k].offset) = on;
            weft_buf_free(&known);
            return WEFT_OK;
        }
        weft_buf_printf(&known, "%s%s", k ? ", " : "", keys[k].name);
    }
    const weft_status_code status = weft_error(
        WEFT_MSG_PASS_INVALID, WEFT_AT(.value = text),
        "\"%s\" is not NAME=on or NAME=off with a NAME of %s", text, known.data ? known.data : "");
    weft_buf_free(&known);
    return status;
}

/* ---- reports ------------------------------------------------------------------------------- */

/* Appends "gelu -12, linear +12": the op counts that changed, largest changes first. */
static void say_counts(const weft_graph *before, const weft_graph *after, weft_pass_report *r)
{
    int change[WEFT_OP_COUNT] = {0};
    for (int32_t n = 0; n < weft_graph_node_count(before); n++)
        change[weft_graph_node(before, n)->op]--;
    for (int32_t n = 0; n < weft_graph_node_count(after); n++)
        change[weft_graph_node(after, n)->op]++;
    for (int printed = 0; printed < 6; printed++) {
        int most = 0;
        for (int op = 1; op < WEFT_OP_COUNT; op++)
            if (change[op] * change[op] > change[most] * change[most])
                most = op;
        if (!change[most])
            return;
        const size_t used = strlen(r->changed);
        snprintf(r->changed + used, sizeof r->changed - used, "%s%s %+d", used ? ", " : "",
                 weft_op_get((weft_op)most)->name, change[most]);
        change[most] = 0;
    }
}

static weft_status peak_of(const weft_graph *g, int64_t *bytes)
{
    weft_memory_plan plan;
    WEFT_TRY(weft_pass_lifetime(g, &(weft_lifetime_options){.no_views = true}, &plan));
    *bytes = plan.arena_bytes;
    weft_memory_plan_free(&plan);
    return WEFT_OK;
}

static weft_status report_on(const row *pass, const weft_graph *before, const weft_graph *after,
                             const weft_pass_setup *setup, double seconds, weft_pass_log *log)
{
    weft_pass_report *r = &log->report[log->count++];
    *r = (weft_pass_report){.name = pass->name, .help = pass->help, .ran = true};
    const weft_graph *graph[2] = {before, after};
    r->seconds = seconds;
    for (int i = 0; i < 2; i++) {
        r->nodes[i] = weft_graph_node_count(graph[i]);
        r->cost[i] = weft_graph_cost(graph[i]);
        WEFT_TRY(peak_of(graph[i], &r->peak[i]));
    }
    say_counts(before, after, r);
    return pass->say ? pass->say(before, after, setup, r) : WEFT_OK;
}

static void print_change(weft_buf *out, const char *was, const char *is)
{
    if (!strcmp(was, is))
        weft_buf_printf(out, " %23s", is);
    else
        weft_buf_printf(out, " %10s > %10s", was, is);
}

void weft_pass_log_print(const weft_pass_log *log, weft_buf *out)
{
    weft_buf_printf(out, "%-22s %23s %23s %23s %23s  %s\n", "pass", "nodes", "FLOPs", "bytes moved",
                    "peak", "changed");
    for (int i = 0; i < log->count; i++) {
        const weft_pass_report *r = &log->report[i];
        char text[2][32];
        weft_buf_printf(out, "%-22s", r->name);
        if (!r->ran) {
            weft_buf_printf(out, " %23s\n", r->off ? "off" : "nothing to do");
            continue;
        }
        for (int k = 0; k < 2; k++)
            snprintf(text[k], sizeof text[k], "%d", (int)r->nodes[k]);
        print_change(out, text[0], text[1]);
        for (int k = 0; k < 2; k++)
            snprintf(text[k], sizeof text[k], "%.4g", (double)r->cost[k].flops);
        print_change(out, text[0], text[1]);
        print_change(out, weft_format_bytes(r->cost[0].bytes, text[0]),
                     weft_format_bytes(r->cost[1].bytes, text[1]));
        print_change(out, weft_format_bytes(r->peak[0], text[0]),
                     weft_format_bytes(r->peak[1], text[1]));
        weft_buf_printf(out, "  %s\n", r->changed[0] ? r->changed : "nothing");
    }
}

/* ---- running ------------------------------------------------------------------------------- */

static bool is_off(const row *pass, const weft_pass_setup *setup)
{
    const weft_pass_switches *s = setup->switches ? setup->switches : &weft_pass_defaults;
    return pass->on != (size_t)NEVER_OFF && !*(const bool *)((const char *)s + pass->on);
}

weft_pass_rounding weft_pass_rounding_of(const char *name)
{
    int i = 0;
    while (i < WEFT_COUNT(rows) - 1 && strcmp(rows[i].name, name))
        i++;
    return rows[i].rounding;
}

/* Runs one pass and reports on it. `out`: the new graph, NULL: the pass changes nothing. */
static weft_status run_pass(const row *pass, const weft_graph *g, const weft_pass_setup *setup,
                            weft_pass_log *log, weft_graph **out)
{
    weft_graph *made = NULL;
    const double begin = weft_now();
    weft_status_code status = WEFT_OK;
    if (pass->run)
        WEFT_GO(pass->run(g, setup, &made));
    if (made && pass->rounding == WEFT_ROUNDING_PRESERVED)
        WEFT_GO(weft_rounding_check(g, made, pass->name));
    if (log)
        WEFT_GO(report_on(pass, g, made ? made : g, setup, weft_now() - begin, log));
    *out = made;
    return WEFT_OK;
out:
    weft_graph_free(made);
    return status;
}

weft_status weft_passes_run(weft_pass_phase phase, const weft_pass_setup *setup, bool keep_input,
                            weft_graph **graph, weft_pass_log *log)
{
    const weft_graph *input = *graph;
    if (phase == WEFT_PASS_RANK && setup->inspect)
        WEFT_TRY(setup->inspect(setup->inspect_user, *graph));
    for (int i = 0; i < WEFT_COUNT(rows); i++) {
        const row *pass = &rows[i];
        if (pass->phase != phase)
            continue;
        const bool off = is_off(pass, setup);
        if (off || (pass->wanted && !pass->wanted(setup))) {
            if (log)
                log->report[log->count++] =
                    (weft_pass_report){.name = pass->name, .help = pass->help, .off = off};
            continue;
        }
        weft_graph *made;
        WEFT_TRY(run_pass(pass, *graph, setup, log, &made));
        if (!made)
            continue;
        if (*graph != input || !keep_input)
            weft_graph_free(*graph);
        *graph = made;
    }
    return WEFT_OK;
}
