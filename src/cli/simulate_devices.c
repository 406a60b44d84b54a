#include "cli/simulate_devices.h"

#include "cli/simulate_serve.h"
#include "cli/text_output.h"
#include "plan/queue/elastic_futures.h"
#include "plan/queue/elastic_report.h"
#include "plan/queue/elastic_trace_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_status weft_simulate_read_list(const weft_args *args, const char *option,
                                    double values[WEFT_QUEUE_TRACE_LIST], int *count)
{
    const char *text = weft_args_string(args, option);
    char *end;
    *count = 0;
    if (!*text)
        return WEFT_OK;
    for (const char *at = text;; at = end + 1) {
        const double value = strtod(at, &end);
        if (end == at || !(value > 0 && value <= 1e9) || (*end && *end != ',') ||
            *count == WEFT_QUEUE_TRACE_LIST)
            return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option, .value = text),
                              "the value is not up to %d numbers from above 0 to 1e9, such as "
                              "10,60,300",
                              WEFT_QUEUE_TRACE_LIST);
        values[(*count)++] = value;
        if (!*end)
            return WEFT_OK;
    }
}

static weft_status read_elastic_trace(const weft_args *args, const weft_elastic_table *table,
                                      const weft_elastic_rules *rules, weft_elastic_job **jobs,
                                      int64_t *count)
{
    double deadlines[WEFT_QUEUE_TRACE_LIST];
    weft_elastic_trace o = {.devices = rules->devices, .deadlines = deadlines};
    int64_t seed;
    WEFT_TRY(weft_args_i64(args, "--jobs", 1, 1000000, &o.jobs));
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX, &seed));
    WEFT_TRY(weft_args_f64(args, "--load", 1e-6, 1000, &o.load));
    WEFT_TRY(weft_simulate_read_list(args, "--deadlines", deadlines, &o.deadline_count));
    o.seed = (uint64_t)seed;
    *count = o.jobs;
    return weft_elastic_trace_make(&o, table, jobs);
}

/* The options of queues on separate workers. */
static weft_status refuse_for_devices(const weft_args *args)
{
    static const char *const others[] = {"--policy", "--ageing", "--stop-seconds", "--sizes",
                                         "--steps",  "--owners", "--error"};
    for (int i = 0; i < WEFT_COUNT(others); i++)
        if (weft_args_flag(args, others[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = others[i]),
                              "this option has no effect with --degrees; remove it");
    return WEFT_OK;
}

static weft_status print_elastic(const weft_args *args, const weft_elastic_score *scores, int count,
                                 const weft_elastic_rules *rules)
{
    const char *out = weft_args_string(args, "--out");
    weft_buf text = {0};
    weft_elastic_scores_print(scores, count, &text);
    WEFT_TRY(weft_text_output(&text));
    if (!out)
        return WEFT_OK;
    json_t *json = weft_elastic_scores_json(scores, count, rules);
    WEFT_TRY(WEFT_ALLOCATED(json, "the figures"));
    const weft_status_code status = weft_json_save(out, json);
    json_decref(json);
    return status;
}

/* Every size must have a degree that the devices suffice for. */
static weft_status check_degrees(const weft_elastic_table *t, int64_t devices)
{
    for (int i = 0; i < t->count; i++)
        if (!isfinite(weft_elastic_latency(&t->sizes[i], devices)))
            return weft_error(WEFT_MSG_OPTION_INVALID,
                              WEFT_AT(.key = "--workers", WEFT_NUMBER(devices)),
                              "size '%s' needs more devices", t->sizes[i].name);
    return WEFT_OK;
}

/* Whether all sizes have the degree of a fixed policy. */
static bool has_degree(const weft_elastic_table *t, weft_elastic_policy policy, int64_t devices)
{
    const int degree = policy - WEFT_ELASTIC_FIXED_1;
    bool all = true;
    if (policy > WEFT_ELASTIC_FIXED_8)
        return true;
    for (int i = 0; i < t->count; i++)
        all = all && isfinite(t->sizes[i].step[degree]);
    return all && 1 << degree <= devices;
}

weft_status weft_simulate_devices(const weft_args *args, const char *trace)
{
    const char *path = weft_args_string(args, "--degrees");
    weft_elastic_score scores[WEFT_ELASTIC_POLICIES];
    weft_elastic_table table;
    weft_elastic_rules rules = {0};
    weft_elastic_job *jobs = NULL;
    int64_t count;
    int done = 0;
    WEFT_TRY(refuse_for_devices(args));
    WEFT_TRY(weft_args_i64(args, "--workers", 1, 4096, &rules.devices));
    WEFT_TRY(weft_args_f64(args, "--start-seconds", 0, 1e6, &rules.change));
    WEFT_TRY(weft_args_f64(args, "--round-seconds", 1e-3, 1e6, &rules.round));
    if (rules.devices > WEFT_ELASTIC_DEVICES)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--workers", WEFT_NUMBER(rules.devices)),
                          "with --degrees the workers are 1 to %d devices", WEFT_ELASTIC_DEVICES);
    WEFT_TRY(weft_elastic_table_read(path, &table));
    WEFT_TRY(check_degrees(&table, rules.devices));
    if (!strcmp(trace, "poisson")) {
        WEFT_TRY(read_elastic_trace(args, &table, &rules, &jobs, &count));
    } else {
        WEFT_TRY(weft_simulate_refuse_for_file(args, trace));
        WEFT_TRY(weft_elastic_trace_read(trace, &table, &jobs, &count));
    }
    weft_status_code status = WEFT_OK;
    if (weft_args_string(args, "--save"))
        WEFT_GO(weft_elastic_trace_write(weft_args_string(args, "--save"), jobs, count));
    for (int i = 0; i < WEFT_ELASTIC_POLICIES; i++) {
        rules.policy = (weft_elastic_policy)i;
        if (!has_degree(&table, rules.policy, rules.devices))
            continue;
        WEFT_GO(weft_elastic_replay(&rules, jobs, count, &scores[done]));
        if (weft_args_flag(args, "--predictions"))
            WEFT_GO(weft_elastic_predict_trace(&rules, jobs, count, &scores[done].prediction));
        done++;
    }
    WEFT_GO(print_elastic(args, scores, done, &rules));
out:
    weft_free(jobs);
    return status;
}
