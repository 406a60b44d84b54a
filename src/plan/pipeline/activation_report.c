/* Items and choices as JSON and text. */
#include "plan/pipeline/keep_report.h"

#include "base/config.h"

#include <math.h>
#include <stdio.h>

weft_status weft_keep_items_from_json(weft_arena *arena, const json_t *json, const char *name,
                                      weft_keep_item **item, int64_t *items, double *window)
{
    const json_t *list = json_object_get(json, "items");
    if (!json_is_array(list))
        return weft_fail(WEFT_E_FORMAT, "%s: \"items\", a list of activations, is missing", name);
    const int64_t count = (int64_t)json_array_size(list);
    weft_keep_item *x = weft_arena_alloc(arena, (count + 1) * (int64_t)sizeof *x);
    if (!x)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory for %lld items", name, (long long)count);
    double wide;
    WEFT_TRY(weft_json_get_f64_or(json, "window", name, 0, &wide));
    static const char *const top[] = {"items", "window"}, *const known[] = {"name", "bytes",
                                                                            "recompute", "offload",
                                                                            "count"};
    WEFT_TRY(weft_json_only(json, name, top, WEFT_COUNT(top)));
    for (int64_t i = 0; i < count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.200s: items[%lld]", name, (long long)i);
        const json_t *one = json_array_get(list, (size_t)i);
        const char *called;
        WEFT_TRY(weft_json_get_string_or(one, "name", where, "", &called));
        WEFT_TRY(weft_json_get_f64(one, "bytes", where, &x[i].bytes));
        WEFT_TRY(weft_json_get_f64_or(one, "recompute", where, INFINITY, &x[i].recompute));
        WEFT_TRY(weft_json_get_f64_or(one, "offload", where, INFINITY, &x[i].offload));
        WEFT_TRY(weft_json_get_i64_or(one, "count", where, 1, &x[i].count));
        WEFT_TRY(weft_json_only(one, where, known, WEFT_COUNT(known)));
        x[i].name = weft_arena_strdup(arena, called);
        if (!x[i].name)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory", where);
    }
    const weft_status_code status =
        weft_keep_items_check(x, count, (weft_keep_copies){.window = wide});
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s", name);
    *item = x;
    *items = count;
    *window = wide;
    return WEFT_OK;
}

json_t *weft_keep_choice_json(const weft_keep_item *item, int64_t items, double limit,
                              const weft_keep_choice *greedy, const weft_keep_choice *exact)
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
                     "limit", limit, "kept", exact->kept, "seconds", exact->seconds, "lower_bound",
                     exact->lower_bound, "proved", exact->proved, "greedy_seconds", greedy->seconds,
                     "items", list);
}

void weft_keep_choice_print(const weft_keep_item *item, int64_t items, double limit,
                            const weft_keep_choice *greedy, const weft_keep_choice *exact,
                            weft_buf *out)
{
    char a[32], b[32], c[32];
    weft_buf_printf(out, "  %-30s %6s %10s %10s %10s  keep  recompute  offload\n", "activation",
                    "layers", "bytes", "recompute", "MiB/ms");
    for (int64_t i = 0; i < items; i++)
        weft_buf_printf(out, "  %-30s %6lld %10s %10s %10.1f %5lld %10lld %8lld\n",
                        item[i].name ? item[i].name : "", (long long)item[i].count,
                        weft_format_bytes((int64_t)fmin(item[i].bytes, 9e18), a),
                        isinf(item[i].recompute) ? "-" : weft_format_seconds(item[i].recompute, b),
                        item[i].bytes / 1048576 / (item[i].recompute * 1e3),
                        (long long)(item[i].count - exact->recomputed[i] - exact->offloaded[i]),
                        (long long)exact->recomputed[i], (long long)exact->offloaded[i]);
    char gap[48] = " (optimal)";
    if (!exact->proved)
        snprintf(gap, sizeof gap, " (at most %.2f %% above the optimum)",
                 100 * (exact->seconds / exact->lower_bound - 1));
    weft_buf_printf(
        out, "kept %s of a limit of %s, %s slower per microbatch%s; greedy by ratio: %s\n",
        weft_format_bytes((int64_t)fmin(exact->kept, 9e18), a),
        weft_format_bytes((int64_t)fmin(limit, 9e18), b), weft_format_seconds(exact->seconds, c),
        gap, weft_format_seconds(greedy->seconds, (char[32]){0}));
}
