#include "pass/passes.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* ---- the list ------------------------------------------------------------------------------ */

typedef struct row {
    const char *name, *help;
    weft_pass_stage stage;
    weft_pass_rounding rounding;
    size_t on; /* offset in the switches; NEVER_OFF: the graph could not run without it */
    bool (*wanted)(const weft_pass_setup *setup);
    /* NULL: a choice of the memory plan, which only `say` tells of. */
    weft_status (*run)(const weft_graph *g, const weft_pass_setup *setup, weft_graph **out);
    /* Adds to report->changed what counts of nodes do not show; NULL: nothing. */
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
    return s->recompute_count > 0 || (s->fates && s->fates->count > 0);
}

static const weft_pass_switches *switches_of(const weft_pass_setup *s)
{
    return s->switches ? s->switches : &weft_pass_defaults;
}

static weft_status run_tokens(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_tokens(g, s->mesh, s->recipe, out);
}

/* Layers are sliced before their axis is split, and pieces emitted where they are to start. */
static weft_status run_shard(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    weft_recipe recipe = *s->recipe;
    weft_slices slices = recipe.slices ? *recipe.slices : (weft_slices){0};
    if (!switches_of(s)->lift)
        slices.lift_time = slices.lift_space = 0;
    recipe.slices = recipe.slices && switches_of(s)->slice ? &slices : NULL;
    return weft_pass_shard(g, s->mesh, s->rank, &recipe, out);
}

static bool has_slices(const weft_pass_setup *s)
{
    return has_several_ranks(s) && s->recipe->slices && weft_slices_axis(s->recipe, s->mesh);
}

static bool has_lift(const weft_pass_setup *s)
{
    return has_slices(s) && switches_of(s)->slice && s->recipe->slices->kind != WEFT_SLICES_OFF;
}

static bool is_narrow(const weft_pass_setup *s)
{
    return s->narrow;
}

static weft_status run_narrow(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    WEFT_TRY(weft_pass_narrow(g, s->narrow_sums, out));
    const weft_status_code status = weft_precision_check(*out);
    if (status != WEFT_OK) {
        weft_graph_free(*out);
        *out = NULL;
    }
    return status;
}

static bool hands_parameters_on(const weft_pass_setup *s)
{
    return s->narrow || has_several_ranks(s);
}

static weft_status run_recompute(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_recompute(g, s->recompute, s->recompute_count, s->fates, out);
}

static weft_status run_regather(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    (void)s;
    return weft_pass_regather(g, out);
}

static weft_status run_fuse(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    (void)s;
    return weft_pass_fuse(g, out);
}

static weft_status run_order(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_order(g, s->room, out);
}

static bool has_away(const weft_pass_setup *s)
{
    bool any = s->away_state_count > 0;
    for (int64_t i = 0; s->fates && i < s->fates->count && !any; i++)
        any = s->fates->row[i].fate == WEFT_FATE_AWAY;
    return any;
}

static weft_status run_offload(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_offload(g, s->away_states, s->away_state_count, s->room, out);
}

static bool has_halves(const weft_pass_setup *s)
{
    return s->halves;
}

static weft_status run_halves(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    (void)s;
    return weft_pass_halves(g, out);
}

static bool is_streamed(const weft_pass_setup *s)
{
    return s->stream;
}

static weft_status run_stream(const weft_graph *g, const weft_pass_setup *s, weft_graph **out)
{
    return weft_pass_stream(g, s->room, out);
}

/* Nodes that run while collectives are under way, a node once for each of them. */
static weft_status covered(const weft_graph *g, int64_t *nodes, int64_t *collectives)
{
    const int32_t count = weft_graph_node_count(g);
    int32_t *wait = weft_alloc((count + 1) * (int64_t)sizeof *wait);
    if (!wait)
        return weft_fail(WEFT_E_MEMORY, "no memory to report on a pass");
    const weft_status_code status = weft_schedule_waits(g, wait);
    *nodes = *collectives = 0;
    for (int32_t n = 0; n < count && status == WEFT_OK; n++) {
        *collectives += wait[n] >= 0;
        *nodes += wait[n] >= 0 ? wait[n] - n - 1 : 0;
    }
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
                 "%sbehind each of %lld collectives %.1f nodes, %.1f before", used ? "; " : "",
                 (long long)collectives, (double)is / (double)collectives,
                 (double)was / (double)collectives);
    return WEFT_OK;
}

/* Exchanges between layers: those behind a layer, and those that start in it. */
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

/* The slices that layers were cut into, where fewer were made than asked for why. */
static weft_status say_shard(const weft_graph *before, const weft_graph *after,
                             const weft_pass_setup *setup, weft_pass_report *report)
{
    weft_buf told = {0};
    int64_t made[WEFT_MADE];
    if (!has_several_ranks(setup) || !setup->recipe->slices || !switches_of(setup)->slice ||
        setup->recipe->slices->kind == WEFT_SLICES_OFF)
        return WEFT_OK;
    weft_slices_count(before, after, setup->recipe, made);
    weft_slices_tell(setup->recipe->slices, made, &told);
    const weft_status_code status = weft_buf_check(&told);
    const size_t used = strlen(report->changed);
    if (status == WEFT_OK && told.len)
        snprintf(report->changed + used, sizeof report->changed - used, "%s%s", used ? "; " : "",
                 told.data);
    weft_buf_free(&told);
    return status;
}

static weft_status say_slice(const weft_graph *before, const weft_graph *after,
                             const weft_pass_setup *setup, weft_pass_report *report)
{
    int64_t late, lifted;
    (void)before, (void)setup;
    count_pieces(after, &late, &lifted);
    snprintf(report->changed, sizeof report->changed, "%lld exchanges between layers",
             (long long)(late + lifted));
    return WEFT_OK;
}

static weft_status say_lift(const weft_graph *before, const weft_graph *after,
                            const weft_pass_setup *setup, weft_pass_report *report)
{
    int64_t late, lifted;
    (void)before, (void)setup;
    count_pieces(after, &late, &lifted);
    snprintf(report->changed, sizeof report->changed,
             "%lld of them start while the layer before them is under way", (long long)lifted);
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
#define HELP_OF(name, fallback, rounding, help) static const char name##_help[] = help;
WEFT_PASS_LIST(HELP_OF)
#undef HELP_OF
#define ROUNDING_OF(name, fallback, rounding, help) name##_rounding = WEFT_ROUNDING_##rounding,
enum { WEFT_PASS_LIST(ROUNDING_OF) };
#undef ROUNDING_OF
#define SWITCHED_IN(stage, name) \
    #name, name##_help, stage, (weft_pass_rounding)name##_rounding, \
        offsetof(weft_pass_switches, name)
#define SWITCHED(name) SWITCHED_IN(WEFT_PASS_RANK, name)

static const row rows[] = {
    {SWITCHED_IN(WEFT_PASS_WHOLE, tokens), has_several_ranks, run_tokens, NULL},
    {"shard", "the graph of one rank: own parts of tensors, and collectives between them",
     WEFT_PASS_WHOLE, WEFT_ROUNDING_CHANGED, (size_t)NEVER_OFF, has_several_ranks, run_shard,
     say_shard},
    {"narrow", "what models compute is kept in bf16; parameters and sums stay f32",
     WEFT_PASS_WHOLE, WEFT_ROUNDING_CHANGED, (size_t)NEVER_OFF, is_narrow, run_narrow, NULL},
    /* of shard's doing */
    {SWITCHED_IN(WEFT_PASS_WHOLE, slice), has_slices, NULL, say_slice},
    {SWITCHED_IN(WEFT_PASS_WHOLE, lift), has_lift, NULL, say_lift},
    {SWITCHED(recompute), has_patterns, run_recompute, NULL},
    {SWITCHED(regather), hands_parameters_on, run_regather, NULL},
    {SWITCHED(fuse), NULL, run_fuse, NULL},
    {SWITCHED(halves), has_halves, run_halves, NULL},
    {SWITCHED(order), NULL, run_order, say_order},
    {SWITCHED(offload), has_away, run_offload, NULL},
    {SWITCHED(stream), is_streamed, run_stream, NULL},
    {SWITCHED(views), NULL, NULL, say_views},
};

#define DEFAULT_OF(name, fallback, rounding, help) .name = fallback,
const weft_pass_switches weft_pass_defaults = {WEFT_PASS_LIST(DEFAULT_OF)};
#undef DEFAULT_OF

#define TEXT_OF_true "on"
#define TEXT_OF_false "off"
#define KEY_OF(name, fallback, rounding, help) \
    {#name, WEFT_KEY_BOOL, offsetof(weft_pass_switches, name), TEXT_OF_##fallback, "", help},
static const weft_key keys[] = {WEFT_PASS_LIST(KEY_OF)};
#undef KEY_OF
/* clang-format on */

const weft_section weft_pass_section = {"passes", "what is done to a graph before it runs",
                                        sizeof(weft_pass_switches), keys, WEFT_COUNT(keys)};

weft_status weft_pass_switch(weft_pass_switches *switches, const char *text)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const bool on = equals && !strcmp(equals + 1, "on"), off = equals && !strcmp(equals + 1, "off");
    weft_buf known = {0};
    for (int k = 0; k < WEFT_COUNT(keys); k++) {
        if ((on || off) && strlen(keys[k].name) == length && !memcmp(keys[k].name, text, length)) {
            *(bool *)((char *)switches + keys[k].offset) = on;
            weft_buf_free(&known);
            return WEFT_OK;
        }
        weft_buf_printf(&known, "%s%s", k ? ", " : "", keys[k].name);
    }
    const weft_status_code status =
        weft_fail(WEFT_E_ARG, "\"%s\" does not switch a pass: NAME=on or NAME=off, NAME one of %s",
                  text, known.data ? known.data : "");
    weft_buf_free(&known);
    return status;
}

/* ---- reports ------------------------------------------------------------------------------- */

/* "gelu -12, linear +12": the kinds of nodes whose count changed, the largest changes first. */
static void say_counts(const weft_graph *before, const weft_graph *after, weft_pass_report *r)
{
    int change[WEFT_OP_COUNT] = {0};
    for (int32_t n = 0; n < weft_graph_node_count(before); n++)
        change[weft_graph_node(before, n)->op]--;
    for (int32_t n = 0; n < weft_graph_node_count(after); n++)
        change[weft_graph_node(after, n)->op]++;
    for (int told = 0; told < 6; told++) {
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
    weft_buf_printf(out, "%-10s %23s %23s %23s %23s  %s\n", "pass", "nodes", "FLOPs", "bytes moved",
                    "peak", "changed");
    for (int i = 0; i < log->count; i++) {
        const weft_pass_report *r = &log->report[i];
        char text[2][32];
        weft_buf_printf(out, "%-10s", r->name);
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

weft_status weft_passes_run(weft_pass_stage stage, const weft_pass_setup *setup, bool keep,
                            weft_graph **graph, weft_pass_log *log)
{
    const weft_graph *given = *graph;
    if (stage == WEFT_PASS_RANK && setup->look)
        WEFT_TRY(setup->look(setup->look_user, *graph));
    for (int i = 0; i < WEFT_COUNT(rows); i++) {
        const row *pass = &rows[i];
        if (pass->stage != stage)
            continue;
        const bool off = is_off(pass, setup);
        if (off || (pass->wanted && !pass->wanted(setup))) {
            if (log)
                log->report[log->count++] =
                    (weft_pass_report){.name = pass->name, .help = pass->help, .off = off};
            continue;
        }
        weft_graph *made = NULL;
        const double begin = weft_now();
        weft_status_code status = pass->run ? pass->run(*graph, setup, &made) : WEFT_OK;
        if (status == WEFT_OK && made && pass->rounding == WEFT_ROUNDING_PRESERVED)
            status = weft_rounding_check(*graph, made, pass->name);
        if (status == WEFT_OK && log)
            status = report_on(pass, *graph, made ? made : *graph, setup, weft_now() - begin, log);
        if (status != WEFT_OK) {
            weft_graph_free(made);
            return status;
        }
        if (!made)
            continue;
        if (*graph != given || !keep)
            weft_graph_free(*graph);
        *graph = made;
    }
    return WEFT_OK;
}
