#include "plan/queue/queue_report.h"

#include <math.h>
#include <stdlib.h>

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void weft_queue_prediction_print(const weft_queue_prediction *p, const char *policy, bool first,
                                 weft_buf *out)
{
    if (!p->jobs)
        return;
    if (first)
        weft_buf_printf(out,
                        "\npredicted at arrival: seconds until the end\n"
                        "%-10s %12s %12s %12s %15s\n",
                        "policy", "median error", "within 25 %", "in its range", "bound of 25 %");
    weft_buf_printf(out, "%-10s %11.1f%% %11.1f%% %11.1f%% %14.1f%%\n", policy, 100 * p->error,
                    100 * p->near, 100 * p->in_range, 100 * p->bound);
}

json_t *weft_queue_prediction_json(const weft_queue_prediction *p)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "median_error", p->error, "near", p->near, "in_range",
                     p->in_range, "bound", p->bound);
}

/* The least value that a share of the sorted values does not exceed. */
static double quantile(const double *sorted, int64_t count, double share)
{
    const int64_t at = (int64_t)ceil(share * (double)count) - 1;
    return sorted[at < 0 ? 0 : at];
}

static weft_status fill_score(const weft_queue_run *jobs, int64_t count, weft_queue_score *score)
{
    double *seconds, sum = 0;
    WEFT_TRY(WEFT_NEW(seconds, count, "the figures of %" PRId64 " jobs", count));
    for (int64_t i = 0; i < count; i++) {
        seconds[i] = jobs[i].end - jobs[i].entry.arrival;
        sum += seconds[i];
        score->stops += jobs[i].stops;
        score->deadlines += jobs[i].entry.deadline > 0;
        score->met += jobs[i].entry.deadline > 0 && jobs[i].end <= jobs[i].entry.deadline;
    }
    qsort(seconds, (size_t)count, sizeof *seconds, compare_seconds);
    score->jobs = count;
    score->mean = sum / (double)count;
    score->median = quantile(seconds, count, 0.5);
    score->p95 = quantile(seconds, count, 0.95);
    score->p99 = quantile(seconds, count, 0.99);
    score->longest = seconds[count - 1];
    weft_free(seconds);
    return WEFT_OK;
}

weft_status weft_queue_score_replay(const weft_queue_rules *rules, weft_queue_run *jobs,
                                    int64_t count, int64_t owners, weft_queue_score *score)
{
    double *used;
    *score = (weft_queue_score){.policy = rules->policy};
    WEFT_TRY(WEFT_NEW(used, owners, "%" PRId64 " owners", owners));
    const weft_status_code status = weft_queue_replay(rules, jobs, count, used, 0);
    weft_free(used);
    WEFT_TRY(status);
    WEFT_TRY(fill_score(jobs, count, score));
    return rules->workers == 1 ? weft_queue_least_mean(jobs, count, &score->bound) : WEFT_OK;
}

static double share_met(const weft_queue_score *s)
{
    return s->deadlines ? (double)s->met / (double)s->deadlines : 1;
}

/* A table of the predictions, if they were asked for. */
static void print_predictions(const weft_queue_score *scores, int count, weft_buf *out)
{
    for (int i = 0; i < count; i++)
        weft_queue_prediction_print(&scores[i].prediction, weft_queue_policy_name(scores[i].policy),
                                    i == 0, out);
}

void weft_queue_scores_print(const weft_queue_score *scores, int count, weft_buf *out)
{
    if (count == 0)
        return;
    weft_buf_printf(out,
                    "%" PRId64 " jobs, %" PRId64 " with a deadline; seconds from arrival to "
                    "end\n",
                    scores->jobs, scores->deadlines);
    weft_buf_printf(out, "%-6s %9s %10s %10s %10s %10s %10s %7s", "policy", "in time", "mean",
                    "median", "p95", "p99", "longest", "stops");
    weft_buf_printf(out, "%s\n", scores->bound > 0 ? "  above bound" : "");
    for (int i = 0; i < count; i++) {
        const weft_queue_score *s = &scores[i];
        weft_buf_printf(out, "%-6s %8.1f%% %10.1f %10.1f %10.1f %10.1f %10.1f %7" PRId64,
                        weft_queue_policy_name(s->policy), 100 * share_met(s), s->mean, s->median,
                        s->p95, s->p99, s->longest, s->stops);
        if (s->bound > 0)
            weft_buf_printf(out, " %11.1f%%", 100 * (s->mean / s->bound - 1));
        weft_buf_printf(out, "\n");
    }
    if (scores->bound > 0)
        weft_buf_printf(out,
                        "bound on the mean: %.1f (shortest remaining time first, changes "
                        "without cost)\n",
                        scores->bound);
    print_predictions(scores, count, out);
}

static json_t *score_json(const weft_queue_score *s)
{
    json_t *json =
        json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "policy",
                  weft_queue_policy_name(s->policy), "jobs", (json_int_t)s->jobs, "deadlines",
                  (json_int_t)s->deadlines, "met", (json_int_t)s->met, "slo_attainment",
                  share_met(s), "mean", s->mean, "median", s->median, "p95", s->p95, "p99", s->p99,
                  "longest", s->longest, "stops", (json_int_t)s->stops);
    if (json && s->bound > 0) {
        json_object_set_new(json, "least_mean", json_real(s->bound));
        json_object_set_new(json, "above_bound", json_real(s->mean / s->bound - 1));
    }
    if (json && s->prediction.jobs)
        json_object_set_new(json, "prediction", weft_queue_prediction_json(&s->prediction));
    return json;
}

json_t *weft_queue_scores_json(const weft_queue_score *scores, int count,
                               const weft_queue_rules *rules)
{
    json_t *list = json_array();
    for (int i = 0; list && i < count; i++)
        json_array_append_new(list, score_json(&scores[i]));
    return json_pack("{s:I, s:f, s:f, s:f, s:o}", "workers", (json_int_t)rules->workers, "ageing",
                     rules->ageing, "start_seconds", rules->start, "stop_seconds", rules->stop,
                     "policies", list);
}
