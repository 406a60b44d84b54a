#include "plan/pipeline/pulse_report.h"

#include <stdio.h>

/* The terms of Eq. 15, per sample. */
enum { CAUSES = 3 };
static const char *const causes[CAUSES] = {"compute and bubble", "sends", "all-reduce"};

static weft_status add(weft_layout_list *list, const weft_pulse_choice *c, double limit)
{
    const double samples = (double)(c->b * c->p * c->g);
    const double cause[CAUSES] = {c->compute / samples, c->send / samples, c->all_reduce / samples};
    char name[64], why[128], need[32], have[32];
    snprintf(name, sizeof name, "%4" PRId64 "  %4" PRId64 "  %4" PRId64, c->p, c->g, c->b);
    snprintf(why, sizeof why, "needs %s per device, limit %s",
             weft_format_bytes(c->memory < 9e18 ? (int64_t)c->memory : INT64_MAX, need),
             weft_format_bytes((int64_t)limit, have));
    const weft_layout_candidate candidate = {
        .score = {true, c->fits, c->seconds_per_sample, c->memory},
        .name = name,
        .why = c->fits ? NULL : why,
        .cause = cause,
        .estimate = c};
    return weft_layout_list_add(list, &candidate);
}

weft_status weft_pulse_list(weft_arena *arena, const weft_pulse_choice *choice, int64_t count,
                            double limit, weft_layout_list *list)
{
    *list = (weft_layout_list){.arena = arena, .cause = causes, .causes = CAUSES};
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(add(list, &choice[i], limit));
    return WEFT_OK;
}

static void print_row(const weft_layout_candidate *candidate, weft_buf *out)
{
    const weft_pulse_choice *c = candidate->estimate;
    char times[3][32], memory[32];
    weft_buf_printf(out, " %9.2f %10s %10s  %10s %10s", 1 / c->seconds_per_sample,
                    weft_format_seconds(c->compute, times[0]),
                    weft_format_seconds(c->send, times[1]),
                    weft_format_seconds(c->all_reduce, times[2]),
                    weft_format_bytes((int64_t)c->memory, memory));
}

void weft_pulse_print(const weft_layout_list *list, int64_t others, weft_buf *out)
{
    static const weft_layout_table table = {
        .head = "   P     G     b  samples/s    compute       send  all-reduce     memory",
        .width = 16,
        .row = print_row,
        .inline_why = true};
    weft_layout_list_print(list, &table, 0, others + 1, true, out);
}

json_t *weft_pulse_json(const weft_layout_list *list)
{
    json_t *candidates = json_array();
    for (int64_t i = 0; i < list->count; i++) {
        const weft_pulse_choice *c = list->item[i].estimate;
        weft_buf why = {0};
        weft_layout_list_explain(list, i, &why);
        json_array_append_new(
            candidates,
            json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:b, s:s}", "P", (json_int_t)c->p,
                      "G", (json_int_t)c->g, "b", (json_int_t)c->b, "samples_per_second",
                      1 / c->seconds_per_sample, "compute", c->compute, "send", c->send,
                      "all_reduce", c->all_reduce, "memory_bytes", c->memory, "fits", c->fits,
                      "lost_because", why.len ? why.data : ""));
        weft_buf_free(&why);
    }
    return json_pack("{s:o}", "candidates", candidates);
}
