#include "plan/pipeline/pulse_report.h"

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
