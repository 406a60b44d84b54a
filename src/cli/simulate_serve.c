#include "cli/simulate_serve.h"

#include "cli/simulate_devices.h"
#include "cli/text_output.h"
#include "plan/queue/queue_futures.h"
#include "plan/queue/queue_report.h"
#include "plan/queue/queue_trace.h"
#include "plan/queue/queue_trace_file.h"

#include <stdio.h>
#include <string.h>

static weft_status read_rules(const weft_args *args, weft_queue_rules *r)
{
    WEFT_TRY(weft_args_i64(args, "--workers", 1, 4096, &r->workers));
    WEFT_TRY(weft_args_f64(args, "--ageing", 0, 1, &r->ageing));
    WEFT_TRY(weft_args_f64(args, "--start-seconds", 0, 1e6, &r->start));
    return weft_args_f64(args, "--stop-seconds", 0, 1e6, &r->stop);
}

static weft_status make_trace(const weft_args *args, int64_t workers, weft_queue_run **jobs,
                              int64_t *count, int64_t *owners)
{
    weft_queue_trace_options o = {.workers = workers};
    int64_t seed;
    WEFT_TRY(weft_args_i64(args, "--jobs", 1, 1000000, &o.jobs));
    WEFT_TRY(weft_args_i64(args, "--owners", 1, 100000, &o.owners));
    WEFT_TRY(weft_args_i64(args, "--steps", 1, 100000, &o.steps));
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX, &seed));
    WEFT_TRY(weft_args_f64(args, "--load", 1e-6, 1000, &o.load));
    WEFT_TRY(weft_args_f64(args, "--error", 0, 5, &o.error));
    WEFT_TRY(weft_simulate_read_list(args, "--sizes", o.sizes, &o.size_count));
    WEFT_TRY(weft_simulate_read_list(args, "--deadlines", o.deadlines, &o.deadline_count));
    if (!o.size_count)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--sizes"),
                          "give at least one size in seconds");
    o.seed = (uint64_t)seed;
    *count = o.jobs;
    *owners = o.owners;
    return weft_queue_trace_make(&o, jobs);
}

weft_status weft_simulate_refuse_for_file(const weft_args *args, const char *path)
{
    static const char *const random[] = {"--jobs", "--owners", "--steps", "--seed",
                                         "--load", "--error",  "--sizes", "--deadlines"};
    for (int i = 0; i < WEFT_COUNT(random); i++)
        if (weft_args_flag(args, random[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = random[i]),
                              "this option is for the trace `poisson`, and %s is a file; remove it",
                              path);
    return WEFT_OK;
}

static weft_status read_policies(const weft_args *args, bool wanted[WEFT_QUEUE_POLICIES])
{
    int count;
    const char *const *names = weft_args_list(args, "--policy", &count);
    for (int i = 0; i < WEFT_QUEUE_POLICIES; i++)
        wanted[i] = count == 0;
    for (int i = 0; i < count; i++) {
        const weft_queue_policy policy = weft_queue_policy_find(names[i]);
        if (policy == WEFT_QUEUE_POLICIES)
            return weft_error(WEFT_MSG_OPTION_INVALID,
                              WEFT_AT(.key = "--policy", .value = names[i]),
                              "the policies are fifo, srpt, edf and fair");
        wanted[policy] = true;
    }
    return WEFT_OK;
}

static weft_status print(const weft_args *args, const weft_queue_score *scores, int count,
                         const weft_queue_rules *rules)
{
    const char *out = weft_args_string(args, "--out");
    weft_buf text = {0};
    weft_queue_scores_print(scores, count, &text);
    WEFT_TRY(weft_text_output(&text));
    if (!out)
        return WEFT_OK;
    json_t *json = weft_queue_scores_json(scores, count, rules);
    WEFT_TRY(WEFT_ALLOCATED(json, "the figures"));
    const weft_status_code status = weft_json_save(out, json);
    json_decref(json);
    return status;
}

static weft_status replay_all(const weft_args *args, weft_queue_rules *rules, weft_queue_run *jobs,
                              int64_t count, int64_t owners)
{
    weft_queue_score scores[WEFT_QUEUE_POLICIES];
    bool wanted[WEFT_QUEUE_POLICIES];
    int done = 0;
    WEFT_TRY(read_policies(args, wanted));
    for (int i = 0; i < WEFT_QUEUE_POLICIES; i++) {
        rules->policy = (weft_queue_policy)i;
        if (!wanted[i])
            continue;
        WEFT_TRY(weft_queue_score_replay(rules, jobs, count, owners, &scores[done]));
        if (weft_args_flag(args, "--predictions"))
            WEFT_TRY(
                weft_queue_predict_trace(rules, jobs, count, owners, &scores[done].prediction));
        done++;
    }
    return print(args, scores, done, rules);
}

weft_status weft_simulate_serve(const weft_args *args)
{
    int words;
    const char *const *word = weft_args_positional(args, &words), *save;
    weft_queue_rules rules = {0};
    weft_queue_run *jobs = NULL;
    int64_t count = 0, owners = 1;
    if (words != 2)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "give one trace: weft simulate serve FILE.jsonl, or poisson");
    if (weft_args_string(args, "--degrees"))
        return weft_simulate_devices(args, word[1]);
    if (weft_args_flag(args, "--round-seconds"))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--round-seconds"),
                          "this option has an effect only with --degrees; remove it");
    WEFT_TRY(read_rules(args, &rules));
    if (!strcmp(word[1], "poisson"))
        WEFT_TRY(make_trace(args, rules.workers, &jobs, &count, &owners));
    else {
        WEFT_TRY(weft_simulate_refuse_for_file(args, word[1]));
        WEFT_TRY(weft_queue_trace_read(word[1], &jobs, &count, &owners));
    }
    save = weft_args_string(args, "--save");
    weft_status_code status = WEFT_OK;
    if (save)
        WEFT_GO(weft_queue_trace_write(save, jobs, count));
    WEFT_GO(replay_all(args, &rules, jobs, count, owners));
out:
    weft_free(jobs);
    return status;
}
