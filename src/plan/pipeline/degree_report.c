/* Layouts as text and JSON. */
#include "plan/pipeline/degree_report.h"

#include <math.h>
#include <stdio.h>

enum { CAUSES = WEFT_DEGREES_CAUSES };

static json_t *candidate_json(const weft_degrees_candidate *c)
{
    const weft_degrees *l = &c->layout;
    json_t *terms = json_object();
    static const char *const keys[CAUSES] = {"gemm",   "attention", "pointwise", "tp",
                                             "cp",     "ep",        "dp",        "send",
                                             "bubble", "recompute", "offload",   "optimizer"};
    for (int k = 0; k < CAUSES; k++)
        json_object_set_new(terms, keys[k], json_real(weft_degrees_cause(&c->terms, k, NULL)));
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:f, s:f, s:f, s:f, s:o}", "tp",
        (json_int_t)l->tp, "cp", (json_int_t)l->cp, "ep", (json_int_t)l->ep, "pp",
        (json_int_t)l->pp, "dp", (json_int_t)l->dp, "zero", (json_int_t)l->zero, "microbatch",
        (json_int_t)l->microbatch, "accumulation", (json_int_t)l->accumulation, "interleave",
        (json_int_t)l->interleave, "offload", l->offload, "fits", c->fits, "seconds",
        c->terms.seconds, "memory_bytes", c->terms.memory, "mfu", c->terms.mfu,
        "dropped_activations", c->terms.dropped, "terms", terms);
    json_object_set_new(json, "lost_because", c->why ? json_string(c->why) : json_null());
    return json;
}

json_t *weft_degrees_plan_json(const weft_degrees_plan *plan, int64_t others)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < plan->count && i <= others; i++)
        json_array_append_new(list, candidate_json(&plan->candidate[i]));
    return json_pack("{s:s, s:I, s:o, s:o}", "format", WEFT_LAYOUT_FORMAT, "tried",
                     (json_int_t)plan->tried, "best", candidate_json(&plan->candidate[0]),
                     "candidates", list);
}

static void print_row(const weft_layout_candidate *candidate, weft_buf *out)
{
    const weft_degrees_candidate *c = candidate->estimate;
    char a[32], b[32];
    weft_buf_printf(out, "%10s %5.1f %% %10s", weft_format_seconds(c->terms.seconds, a),
                    100 * c->terms.mfu, weft_format_bytes((int64_t)fmin(c->terms.memory, 9e18), b));
}

void weft_degrees_plan_print(const weft_degrees_plan *plan, int64_t others, weft_buf *out)
{
    char text[96], head[128], a[32], b[32];
    const weft_degrees_candidate *best = &plan->candidate[0];
    weft_degrees_text(&best->layout, text);
    weft_buf_printf(
        out, "%s: %s per iteration, %.1f %% of peak, %s per device (%" PRId64 " layouts tried)\n\n",
        text, weft_format_seconds(best->terms.seconds, a), 100 * best->terms.mfu,
        weft_format_bytes((int64_t)best->terms.memory, b), plan->tried);
    for (int k = 0; k < CAUSES; k++) {
        const char *name;
        const double seconds = weft_degrees_cause(&best->terms, k, &name);
        if (seconds > 0)
            weft_buf_printf(out, "  %-40s %10s  %5.1f %%\n", name, weft_format_seconds(seconds, a),
                            100 * seconds / best->terms.seconds);
    }
    if (best->terms.dropped > 0)
        weft_buf_printf(out, "  %.0f %% of the activations are recomputed or offloaded\n",
                        100 * best->terms.dropped);
    snprintf(head, sizeof head, "%-52s %10s %7s %10s  why it lost", "next best", "iteration", "MFU",
             "memory");
    const weft_layout_table table = {
        .head = head, .width = 52, .row = print_row, .inline_why = true};
    weft_buf_printf(out, "\n");
    weft_layout_list_print(&plan->list, &table, 1, others + 1, true, out);
}
