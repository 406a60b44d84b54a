/* weft plan cascades: bare numbers here, models and clusters in plan_workload.c. */
#include "base/fs.h"
#include "base/log.h"
#include "cli/plan.h"
#include "plan/cascade_json.h"

#include <stdio.h>

static weft_status read_search(const weft_args *args, weft_cascade_search *search)
{
    int64_t seed, threads;
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX, &seed));
    WEFT_TRY(weft_args_i64(args, "--threads", 0, 4096, &threads));
    WEFT_TRY(weft_args_f64(args, "--seconds", 0, 1e6, &search->seconds));
    search->seed = (uint64_t)seed;
    search->threads = (int)threads;
    return WEFT_OK;
}

static void print_table(const weft_cascade_list *list, const weft_cascade_problem *p,
                        const weft_cascade_result *r, const int32_t *first, const int32_t *devices)
{
    const weft_cascade_schedule *s = &r->schedule;
    printf("%-20s %6s %12s %12s  %s\n", "cascade", "degree", "start", "end", "devices");
    for (int64_t c = 0; c < p->count; c++) {
        printf("%-20s %6d %12.6g %12.6g ", list->item[c].id, p->degree[s->option[c]], s->start[c],
               s->end[c]);
        for (int32_t j = first[c]; j < first[c + 1];) { /* runs as a-b */
            int32_t k = j;
            while (k + 1 < first[c + 1] && devices[k + 1] == devices[k] + 1)
                k++;
            printf(k > j ? "%s%d-%d" : "%s%d", j > first[c] ? "," : " ", devices[j], devices[k]);
            j = k + 1;
        }
        printf("\n");
    }
    printf("makespan %.6g s, lower bound %.6g s, gap %.2f %%%s\n", s->makespan, r->bound.value,
           100 * (s->makespan / r->bound.value - 1),
           r->proved ? " (proved: no schedule is shorter)" : "");
}

/* Why the degrees next to the chosen one were not taken: what each would cost. */
static void explain(const weft_cascade_list *list, const weft_cascade_problem *p,
                    const weft_cascade_result *r)
{
    const weft_cascade_schedule *s = &r->schedule;
    printf("\nbounds: critical path %.6g s, area %.6g s, best %.6g s\n", r->bound.critical_path,
           r->bound.area, r->bound.value);
    printf("search: %lld schedules, best %.6g s after the genetic part, %.6g s after local moves, %lld nodes "
           "of branch and bound\n\n",
           (long long)r->evaluations, r->genetic, r->local, (long long)r->exact_nodes);
    printf("%-20s %6s %10s %12s %10s  %s\n", "cascade", "degree", "seconds", "device-s", "GiB", "");
    for (int64_t c = 0; c < p->count; c++)
        for (int32_t i = 0, o = p->first_option[c]; i < list->item[c].option_count; i++) {
            const weft_cascade_option *option = &list->item[c].option[i];
            while (o + 1 < p->first_option[c + 1] && p->source[o] < i)
                o++;
            const bool usable = p->source[o] == i, chosen = usable && o == s->option[c];
            const char *why = chosen                       ? "<- chosen"
                              : option->degree > p->devices ? "more than the devices"
                              : !usable                     ? "memory, or no faster than a smaller degree"
                              : s->start[c] + option->seconds > s->makespan ? "would end after the plan"
                                                                            : "no shorter plan found with it";
            printf("%-20s %6lld %10.4g %12.5g %10.4g  %s\n", i ? "" : list->item[c].id,
                   (long long)option->degree, option->seconds,
                   option->seconds * (double)option->degree, option->bytes / (1024.0 * 1024 * 1024), why);
        }
}

static weft_status output(const weft_args *args, const weft_cascade_list *list,
                          const weft_cascade_problem *problem, const weft_cascade_result *result,
                          weft_arena *arena)
{
    int32_t *first, *devices;
    WEFT_TRY(weft_cascade_devices(problem, &result->schedule, arena, &first, &devices));
    json_t *json;
    WEFT_TRY(weft_cascade_plan_to_json(list, problem, result, first, devices, &json));
    weft_status_code status = WEFT_OK;
    if (weft_args_flag(args, "--json")) {
        json_dumpf(json, stdout, JSON_INDENT(1));
        printf("\n");
    } else {
        print_table(list, problem, result, first, devices);
        if (weft_args_flag(args, "--explain"))
            explain(list, problem, result);
    }
    const char *out = weft_args_string(args, "--out");
    if (out)
        status = weft_json_save(out, json);
    json_decref(json);
    return status;
}

static weft_status run_bare(const weft_args *args, weft_arena *arena)
{
    int64_t devices, memory;
    weft_cascade_search search = {0};
    WEFT_TRY(weft_args_i64(args, "--devices", 0, INT64_MAX, &devices));
    WEFT_TRY(weft_args_i64(args, "--memory", 0, INT64_MAX, &memory));
    WEFT_TRY(read_search(args, &search));
    weft_cascade_list list;
    const char *path = weft_args_string(args, "--costs");
    WEFT_TRY(weft_cascade_list_load(path, arena, &list));
    weft_cascade_problem problem;
    weft_status_code status =
        weft_cascade_problem_create(&list, devices, (double)memory, &problem);
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s", path);
    weft_cascade_result result;
    status = weft_cascade_solve(&problem, &search, arena, &result);
    if (status == WEFT_OK)
        status = output(args, &list, &problem, &result, arena);
    weft_cascade_problem_free(&problem);
    return status;
}

weft_status weft_plan_cascades_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status;
    if (weft_args_string(args, "--costs"))
        status = count > 1 ? weft_fail(WEFT_E_ARG, "give either a config (%s) or --costs", words[1])
                           : run_bare(args, arena);
    else
        status = weft_fail(WEFT_E_ARG, "give a config or --costs FILE.json");
    weft_arena_free(arena);
    return status;
}
