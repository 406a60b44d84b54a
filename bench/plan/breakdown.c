#include "breakdown.h"

#include "base/fs.h"
#include "methods.h"
#include "plan/pipeline/bars_svg.h"
#include "plan/simulate/simulator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- bars ---------------------------------------------------------------------------------- */

enum { MOST_ROWS = 32 };
typedef struct chart {
    const char *const *name;
    int parts;
    const char *(*format)(double value, char text[32]);
    struct {
        char label[64], end[48];
        double value[WEFT_BARS_PARTS];
    } row[MOST_ROWS];
    int rows;
} chart;

static void write_chart(const chart *c, const char *folder, const char *file, const char *title)
{
    if (!folder)
        return;
    weft_buf svg = {0};
    weft_bar_chart bars = {.out = &svg, .parts = c->parts, .name = c->name, .format = c->format};
    for (int i = 0; i < c->rows; i++) {
        double length = 0;
        for (int k = 0; k < c->parts; k++)
            length += c->row[i].value[k];
        bars.longest = fmax(bars.longest, length);
    }
    weft_bar_chart_begin(&bars, c->rows, title);
    for (int i = 0; i < c->rows; i++)
        weft_bar_chart_row(&bars, c->row[i].label, c->row[i].value, c->row[i].end);
    weft_bar_chart_end(&bars);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    must(weft_file_write_atomic(path, svg.data, svg.len));
    weft_buf_free(&svg);
}

static void add_row(chart *c, const char *label, const double *value, const char *end)
{
    const int i = c->rows++;
    snprintf(c->row[i].label, sizeof c->row[i].label, "%s", label);
    snprintf(c->row[i].end, sizeof c->row[i].end, "%s", end);
    memcpy(c->row[i].value, value, (size_t)c->parts * sizeof *value);
}

static const char *format_bytes(double bytes, char text[32])
{
    return weft_format_bytes((int64_t)bytes, text);
}

/* ---- Fig. 2: ZeRO-3 ------------------------------------------------------------------------ */

typedef struct block {
    double forward, backward, weights, kept;
} block;

/* Sums operators to blocks as their authors count them; the number of blocks. */
static int64_t sum_blocks(const setting *s, int64_t b, block **out)
{
    weft_pp_costs c;
    must(weft_pp_costs_from_list(s->arena, &s->model.list, &s->cluster.device, (double)b, &c));
    const int64_t count = s->model.block[c.op_count - 1] + 1;
    *out = weft_arena_alloc(s->arena, count * (int64_t)sizeof **out);
    must(*out ? WEFT_OK : weft_no_memory("the benchmark"));
    for (int64_t i = 0; i < c.op_count; i++) {
        block *x = &(*out)[s->model.block[i]];
        x->forward += c.op[i].forward;
        x->backward += c.op[i].backward;
        x->weights += c.op[i].parameter_bytes;
        x->kept += c.op[i].activation_bytes;
    }
    return count;
}

typedef struct zero_3 {
    weft_trace trace;
    int32_t group;
    int32_t computed; /* the last compute step, -1: none */
} zero_3;

static int32_t add_step(zero_3 *z, weft_trace_kind kind, const char *name, double cost,
                        const int32_t *after, int64_t count)
{
    weft_trace_step step = {.kind = (uint8_t)kind,
                            .stream =
                                kind == WEFT_TRACE_COMPUTE ? WEFT_STREAM_COMPUTE : WEFT_STREAM_COMM,
                            .group = z->group,
                            .owner = -1,
                            .repeat = 1};
    *(kind == WEFT_TRACE_COMPUTE ? &step.seconds : &step.bytes) = cost;
    int32_t index, known[2];
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++)
        if (after[i] >= 0)
            known[n++] = after[i];
    must(weft_trace_add_name(&z->trace, name, &step.name));
    must(weft_trace_add_step(&z->trace, step, known, n, &index));
    return index;
}

static int32_t add_gather(zero_3 *z, double weights)
{
    return add_step(z, WEFT_TRACE_ALL_GATHER, "gather weights", weights, &z->computed, 1);
}

static void add_compute(zero_3 *z, const block *x, bool back, const int32_t *after)
{
    z->computed = add_step(z, WEFT_TRACE_COMPUTE, back ? "backward" : "forward",
                           back ? x->backward : x->forward, after, 2);
}

/* An iteration: weights are gathered for the forward and again for the backward pass of each block,
 * gradients are scattered after its backward. With prefetch the next block's weights are gathered
 * while a block computes, and gradients are scattered meanwhile; without, nothing overlaps. */
static weft_simulation simulate_zero_3(const setting *s, const block *x, int64_t count,
                                       bool prefetch)
{
    zero_3 z = {.trace = {.devices = weft_cluster_devices(&s->cluster)}, .computed = -1};
    int32_t member[MOST_STAGES], scattered = -1;
    for (int32_t d = 0; d < z.trace.devices; d++)
        member[d] = d;
    must(weft_trace_add_group(&z.trace, member, z.trace.devices, &z.group));
    int32_t gathered = add_gather(&z, x[0].weights);
    for (int64_t i = 0; i < 2 * count; i++) {
        const bool back = i >= count, last = i + 1 == 2 * count;
        const block *own = &x[back ? 2 * count - 1 - i : i];
        const block *next = last ? NULL : &x[i + 1 < count ? i + 1 : 2 * count - 2 - i];
        const int32_t after[] = {gathered, prefetch ? -1 : scattered};
        if (prefetch && next)
            gathered = add_gather(&z, next->weights); /* waits for the block before */
        add_compute(&z, own, back, after);
        if (back)
            scattered = add_step(&z, WEFT_TRACE_REDUCE_SCATTER, "scatter gradients", own->weights,
                                 &z.computed, 1);
        if (!prefetch && next)
            gathered = add_gather(&z, next->weights);
    }
    weft_simulation made;
    must(weft_simulate(&z.trace, &s->cluster, &made));
    weft_trace_free(&z.trace);
    return made;
}

/* A row of the table; false: b samples do not fit. */
static bool row_of_figure_2(const char *model, int64_t b, chart *c)
{
    setting s = open_setting(model, "v100:1");
    block *x;
    const int64_t count = sum_blocks(&s, b, &x), n = weft_cluster_devices(&s.cluster);
    double weights = 0, kept = 0, widest = 0;
    for (int64_t k = 0; k < count; k++) {
        weights += x[k].weights;
        kept += x[k].kept;
        widest = fmax(widest, x[k].weights);
    }
    /* 18 bytes of every weight are divided (weft_state_bytes); two blocks are gathered */
    const double memory = 9 * weights / (double)n + 2 * 2 * widest + kept;
    const bool fits = memory < weft_fabric_usable(&s.fabric);
    if (fits) {
        weft_simulation alone = simulate_zero_3(&s, x, count, false),
                        ahead = simulate_zero_3(&s, x, count, true);
        const double compute = alone.busy[0], batch = (double)(b * n),
                     share = 100 * (1 - compute / alone.seconds),
                     value[] = {compute / batch, (alone.seconds - compute) / batch};
        printf("| %s | %" PRId64 " | %.2f | %.2f | %.0f %% | %.1f %% |\n", model, b, 1e3 * value[0],
               1e3 * value[1], share, 100 * (1 - compute / ahead.seconds));
        char label[64], end[48];
        snprintf(label, sizeof label, "%s, microbatch %" PRId64, model, b);
        snprintf(end, sizeof end, "%.0f %%", share);
        add_row(c, label, value, end);
        weft_simulation_free(&alone);
        weft_simulation_free(&ahead);
    }
    weft_arena_free(s.arena);
    return fits;
}

void figure_2(const char *folder)
{
    static const char *const models[] = {"hunyuan-dit-0.8b", "hunyuan-dit-1.5b", "hunyuan-dit-3b"};
    static const char *const parts[] = {"forward and backward", "gathers and reduce-scatters"};
    chart c = {.name = parts, .parts = 2, .format = weft_format_seconds};
    printf(
        "| model | b | computation, ms per sample | communication, ms per sample | share, "
        "nothing overlaps | share, next block's weights prefetched |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++)
        for (int64_t b = 1; b <= MOST_B && row_of_figure_2(models[i], b, &c);)
            b *= 2;
    printf("\n");
    write_chart(&c, folder, "pulse-fig-2.svg",
                "ZeRO-3 on 8 V100: seconds per sample, and the share of communication");
}

/* ---- Fig. 3: skips among the bytes --------------------------------------------------------- */

void figure_3(const char *folder)
{
    static const char *const models[] = {"uvit-0.5b", "uvit-1b",   "uvit-2.7b",       "sdv2-0.9b",
                                         "sdv2-1.7b", "sdv2-4.6b", "hunyuan-dit-1.5b"};
    static const char *const parts[] = {"outputs of neighbours", "skips"};
    chart c = {.name = parts, .parts = 2, .format = format_bytes};
    printf("| model | outputs, MiB | skips, MiB | share of the skips | with PULSE's fold, MiB "
           "|\n|---|---|---|---|---|\n");
    for (int i = 0; i < 7; i++) {
        setting s = open_setting(models[i], "v100:1");
        const double context = s.model.context_bytes;
        const run plain = run_method(&s, ONE_F_ONE_B, 4, 1, 1),
                  fold = run_method(&s, PULSE, 4, 1, 1);
        s.model.list.skip_count = 0;
        const run bare = run_method(&s, ONE_F_ONE_B, 4, 1, 1);
        /* runs count forward and backward, where the context goes forward only */
        const double outputs = (bare.bytes + 3 * context) / 2,
                     skips = (plain.bytes - bare.bytes) / 2,
                     folded = (fold.bytes + 6 * context) / 2;
        printf("| %s | %.2f | %.2f | %.1f %% | %.2f |\n", models[i], outputs / 1048576,
               skips / 1048576, 100 * skips / (outputs + skips), folded / 1048576);
        const double value[] = {outputs, skips};
        char end[48];
        snprintf(end, sizeof end, "%.1f %%", 100 * skips / (outputs + skips));
        add_row(&c, models[i], value, end);
        weft_arena_free(s.arena);
    }
    printf("\n");
    write_chart(&c, folder, "pulse-fig-3.svg",
                "Bytes between 4 devices in a sample's forward pass, and the share of the skips");
}

/* ---- Fig. 11: time per sample -------------------------------------------------------------- */

static const struct {
    const char *name;
    method how;
} methods[] = {{"PULSE", PULSE}, {"1F1B", ONE_F_ONE_B}, {"ZeRO-2", ZERO_2}};

/* P and b follow from the bytes of Table III; whether they fit in the memory is not asked. */
static const struct {
    const char *model;
    int64_t p, b;
} cases[] = {{"uvit-2.7b", 4, 16}, {"sdv2-4.6b", 8, 32}, {"hunyuan-dit-3b", 8, 2}};

static double iteration(time_parts t)
{
    return t.compute + t.send + t.reduce + t.idle;
}

/* Computation and communication, counted as in the paper. */
static void print_paper_parts(run made[3][3])
{
    printf("| model | P, G, b | method | computation, ms | communication, ms | share | PULSE's is "
           "less by |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            const time_parts t = made[i][k].parts;
            printf("| %s | %" PRId64 ", %" PRId64 ", %" PRId64 " | %s | %.2f | %.2f | %.1f %% |",
                   cases[i].model, made[i][k].p, made[i][k].g, made[i][k].b, methods[k].name,
                   1e3 * t.compute, 1e3 * t.paper, 100 * t.paper / (t.compute + t.paper));
            if (k > 0)
                printf(" %.0f %% |\n", 100 * (1 - made[i][0].parts.paper / t.paper));
            else
                printf(" |\n");
        }
    printf("\n");
}

static void print_iterations(run made[3][3])
{
    printf("The whole iteration per sample, ms. Sends occupy their device; in the event simulator "
           "they do not.\n\n"
           "| model | method | computation | sends | reductions | waits | iteration | sends and "
           "waits | iteration, event simulator |\n|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            const time_parts t = made[i][k].parts;
            const double all = iteration(t);
            printf("| %s | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f %% | %.2f |\n",
                   cases[i].model, methods[k].name, 1e3 * t.compute, 1e3 * t.send, 1e3 * t.reduce,
                   1e3 * t.idle, 1e3 * all, 100 * (t.send + t.idle) / all,
                   1e3 * made[i][k].simulated);
        }
    printf("\n");
}

void figure_11(const char *folder)
{
    static const char *const parts[] = {"computation", "sends", "reductions of gradients",
                                        "waits for other stages"};
    chart c = {.name = parts, .parts = 4, .format = weft_format_seconds};
    run made[3][3];
    for (int i = 0; i < 3; i++) {
        setting s = open_setting(cases[i].model, "v100:2");
        const int64_t p = cases[i].p, g = weft_cluster_devices(&s.cluster) / p;
        for (int k = 0; k < 3; k++) {
            made[i][k] = run_simulated(&s, methods[k].how, p, g, cases[i].b);
            const time_parts t = made[i][k].parts;
            const double value[] = {t.compute, t.send, t.reduce, t.idle};
            char label[64], end[48];
            snprintf(label, sizeof label, "%s, %s", cases[i].model, methods[k].name);
            snprintf(end, sizeof end, "%.2f ms", 1e3 * iteration(t));
            add_row(&c, label, value, end);
        }
        weft_arena_free(s.arena);
    }
    print_paper_parts(made);
    print_iterations(made);
    write_chart(&c, folder, "pulse-fig-11.svg",
                "Seconds per sample on 2 nodes of 8 V100, mean over the devices");
}
