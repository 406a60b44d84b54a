#include "plan/queue/elastic_report.h"

#include "plan/queue/queue_report.h"

#include <math.h>
#include <stdio.h>

static bool read_size(const json_t *json, weft_elastic_size *s)
{
    const json_t *steps = json_object_get(json, "step_seconds");
    const char *name = json_string_value(json_object_get(json, "name"));
    snprintf(s->name, sizeof s->name, "%s", name ? name : "");
    s->steps = json_integer_value(json_object_get(json, "steps"));
    s->decode = json_number_value(json_object_get(json, "decode_seconds"));
    s->share = json_number_value(json_object_get(json, "share"));
    bool ok = name && s->steps >= 1 && s->steps <= 100000 && s->decode >= 0 && s->share > 0 &&
              json_array_size(steps) >= 1 && json_array_size(steps) <= WEFT_ELASTIC_DEGREES;
    for (size_t i = 0; ok && i < WEFT_ELASTIC_DEGREES; i++) {
        const bool given = i < json_array_size(steps);
        s->step[i] = given ? json_number_value(json_array_get(steps, i)) : INFINITY;
        ok = !given || (s->step[i] > 0 && isfinite(s->step[i]));
    }
    return ok && isfinite(s->decode) && isfinite(s->share);
}

weft_status weft_elastic_table_read(const char *path, weft_elastic_table *t)
{
    json_t *json;
    WEFT_TRY(weft_json_load(path, &json));
    const json_t *sizes = json_object_get(json, "sizes");
    const size_t count = json_array_size(sizes);
    weft_status_code status = WEFT_OK;
    *t = (weft_elastic_table){.count = count <= WEFT_ELASTIC_SIZES ? (int)count : 0};
    if (t->count == 0)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = "sizes"),
                           "the table has %zu sizes, and 1 to %d are supported", count,
                           WEFT_ELASTIC_SIZES));
    for (int i = 0; i < t->count; i++)
        if (!read_size(json_array_get(sizes, (size_t)i), &t->sizes[i]))
            WEFT_GO(
                weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = "sizes"),
                           "size %d needs name, steps, step_seconds with 1 to %d numbers above 0, "
                           "decode_seconds and share",
                           i + 1, WEFT_ELASTIC_DEGREES));
out:
    json_decref(json);
    return status;
}

void weft_elastic_scores_print(const weft_elastic_score *scores, int count, weft_buf *out)
{
    if (count == 0)
        return;
    weft_buf_printf(out,
                    "%" PRId64 " jobs, %" PRId64 " with a deadline; seconds from arrival to "
                    "end\n%-10s %9s %10s %10s %10s %9s %8s%s\n",
                    scores->jobs, scores->deadlines, "policy", "in time", "mean", "p95", "p99",
                    "resizes", "used", scores->error >= 0 ? "    error" : "");
    for (int i = 0; i < count; i++) {
        const weft_elastic_score *s = &scores[i];
        weft_buf_printf(out, "%-10s %8.1f%% %10.1f %10.1f %10.1f %9" PRId64 " %7.1f%%\n",
                        weft_elastic_policy_name(s->policy),
                        s->deadlines ? 100 * (double)s->met / (double)s->deadlines : 100., s->mean,
                        s->p95, s->p99, s->resizes, 100 * s->used);
        if (s->error >= 0) {
            out->len--; /* the newline */
            weft_buf_printf(out, "  %6.1f%%\n", 100 * s->error);
        }
    }
    for (int i = 0; i < count; i++)
        weft_queue_prediction_print(&scores[i].prediction,
                                    weft_elastic_policy_name(scores[i].policy), i == 0, out);
}

json_t *weft_elastic_scores_json(const weft_elastic_score *scores, int count,
                                 const weft_elastic_rules *rules)
{
    json_t *list = json_array();
    for (int i = 0; list && i < count; i++) {
        const weft_elastic_score *s = &scores[i];
        json_t *one = json_pack(
            "{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:f}", "policy",
            weft_elastic_policy_name(s->policy), "jobs", (json_int_t)s->jobs, "deadlines",
            (json_int_t)s->deadlines, "met", (json_int_t)s->met, "slo_attainment",
            s->deadlines ? (double)s->met / (double)s->deadlines : 1., "mean", s->mean, "p95",
            s->p95, "p99", s->p99, "resizes", (json_int_t)s->resizes, "used", s->used);
        if (one && s->error >= 0)
            json_object_set_new(one, "error", json_real(s->error));
        if (one && s->prediction.jobs)
            json_object_set_new(one, "prediction", weft_queue_prediction_json(&s->prediction));
        json_array_append_new(list, one);
    }
    return json_pack("{s:I, s:f, s:f, s:o}", "devices", (json_int_t)rules->devices,
                     "change_seconds", rules->change, "round_seconds", rules->round, "policies",
                     list);
}
