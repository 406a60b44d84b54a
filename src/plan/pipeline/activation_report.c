/* Items and choices as JSON and text. */
#include "plan/pipeline/activation_report.h"

#include "base/config.h"

#include <math.h>
#include <stdio.h>

weft_status weft_activation_items_from_json(weft_arena *arena, const json_t *json, const char *name,
                                            weft_activation_item **item, int64_t *items,
                                            double *window)
{
    const json_t *list = json_object_get(json, "items");
    if (!json_is_array(list))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = name, .key = "items"),
                          "a list of activations is needed");
    const int64_t count = (int64_t)json_array_size(list);
    weft_activation_item *x;
    WEFT_TRY(WEFT_ARENA_NEW(arena, x, count + 1, "%s: %" PRId64 " items", name, count));
    double wide;
    WEFT_TRY(weft_json_get_f64_or(json, "window", name, 0, &wide));
    static const char *const top[] = {"items", "window"}, *const known[] = {"name", "bytes",
                                                                            "recompute", "offload",
                                                                            "count"};
    WEFT_TRY(weft_json_only(json, name, top, WEFT_COUNT(top)));
    for (int64_t i = 0; i < count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.200s: items[%" PRId64 "]", name, i);
        const json_t *one = json_array_get(list, (size_t)i);
        const char *called;
        WEFT_TRY(weft_json_get_string_or(one, "name", where, "", &called));
        WEFT_TRY(weft_json_get_f64(one, "bytes", where, &x[i].bytes));
        WEFT_TRY(weft_json_get_f64_or(one, "recompute", where, INFINITY, &x[i].recompute));
        WEFT_TRY(weft_json_get_f64_or(one, "offload", where, INFINITY, &x[i].offload));
        WEFT_TRY(weft_json_get_i64_or(one, "count", where, 1, &x[i].count));
        WEFT_TRY(weft_json_only(one, where, known, WEFT_COUNT(known)));
        x[i].name = weft_arena_strdup(arena, called);
        WEFT_TRY(WEFT_ALLOCATED(x[i].name, "%s", where));
    }
    WEFT_TRY(
        weft_error_at(weft_activation_items_check(x, count, (weft_offload_rates){.window = wide}),
                      WEFT_AT(.file = name)));
    *item = x;
    *items = count;
    *window = wide;
    return WEFT_OK;
}

json_t *weft_activation_choice_json(const weft_activation_item *item, int64_t items, double limit,
                                    const weft_activation_choice *greedy,
                                    const weft_activation_choice *exact)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < items; i++) {
        json_t *one = json_pack(
            "{s:s, s:f, s:I, s:I, s:I}", "name", item[i].name ? item[i].name : "", "bytes",
            item[i].bytes, "count", (json_int_t)item[i].count, "recomputed",
            (json_int_t)exact->recomputed[i], "offloaded", (json_int_t)exact->offloaded[i]);
        if (isfinite(item[i].recompute))
            json_object_set_new(one, "recompute", json_real(item[i].recompute));
        if (isfinite(item[i].offload))
            json_object_set_new(one, "offload", json_real(item[i].offload));
        json_array_append_new(list, one);
    }
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:b, s:f, s:o}", "format", WEFT_MEMORY_FORMAT,
                     "limit", limit, "kept", exact->saved, "seconds", exact->seconds, "lower_bound",
                     exact->lower_bound, "proved", exact->proved, "greedy_seconds", greedy->seconds,
                     "items", list);
}

void weft_activation_choice_print(const weft_activation_item *item, int64_t items, double limit,
                                  const weft_activation_choice *greedy,
                                  const weft_activation_choice *exact, weft_buf *out)
{
    char a[32], b[32], c[32];
    weft_buf_printf(out, "  %-30s %6s %10s %10s %10s  keep  recompute  offload\n", "activation",
                    "layers", "bytes", "recompute", "MiB/ms");
    for (int64_t i = 0; i < items; i++)
        weft_buf_printf(
            out, "  %-30s %6" PRId64 " %10s %10s %10.1f %5" PRId64 " %10" PRId64 " %8" PRId64 "\n",
            item[i].name ? item[i].name : "", item[i].count,
            weft_format_bytes((int64_t)fmin(item[i].bytes, 9e18), a),
            isinf(item[i].recompute) ? "-" : weft_format_seconds(item[i].recompute, b),
            item[i].bytes / 1048576 / (item[i].recompute * 1e3),
            item[i].count - exact->recomputed[i] - exact->offloaded[i], exact->recomputed[i],
            exact->offloaded[i]);
    char gap[48] = " (optimal)";
    if (!exact->proved)
        snprintf(gap, sizeof gap, " (at most %.2f %% above the optimum)",
                 100 * (exact->seconds / exact->lower_bound - 1));
    weft_buf_printf(
        out, "kept %s of a limit of %s, %s slower per microbatch%s; greedy by ratio: %s\n",
        weft_format_bytes((int64_t)fmin(exact->saved, 9e18), a),
        weft_format_bytes((int64_t)fmin(limit, 9e18), b), weft_format_seconds(exact->seconds, c),
        gap, weft_format_seconds(greedy->seconds, (char[32]){0}));
}
