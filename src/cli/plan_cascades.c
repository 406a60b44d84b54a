/* weft plan cascades: bare numbers, or a model's iteration on a cluster. */
#include "base/fs.h"
#include "base/log.h"
#include "cli/plan.h"
#include "plan/cascade/iteration.h"
#include "plan/cascade/plan_file.h"
#include "plan/seal_file.h"
#include "plan/simulate/gantt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
           100 * (weft_cascade_gap(s->makespan, r->bound.value)),
           r->proved ? " (proved: no schedule is shorter)" : "");
}

/* Why the degrees next to the chosen one were not taken: what each would cost. */
static void explain(const weft_cascade_list *list, const weft_cascade_problem *p,
                    const weft_cascade_result *r)
{
    const weft_cascade_schedule *s = &r->schedule;
    printf("\nbounds: critical path %.6g s, area %.6g s, best %.6g s\n", r->bound.critical_path,
           r->bound.area, r->bound.value);
    printf("search: %lld schedules, best %.6g s after the genetic part, %.6g s after local moves, "
           "%lld nodes "
           "of branch and bound\n\n",
           (long long)r->evaluations, r->genetic, r->local, (long long)r->exact_nodes);
    printf("%-20s %6s %10s %12s %10s  %s\n", "cascade", "degree", "seconds", "device-s", "GiB", "");
    for (int64_t c = 0; c < p->count; c++)
        for (int32_t i = 0, o = p->first_option[c]; i < list->item[c].option_count; i++) {
            const weft_cascade_option *option = &list->item[c].option[i];
            while (o + 1 < p->first_option[c + 1] && p->source[o] < i)
                o++;
            const bool usable = p->source[o] == i, chosen = usable && o == s->option[c];
            const char *why =
                chosen                                                  ? "<- chosen"
                : option->degree > p->devices                           ? "more than the devices"
                : !usable && p->memory > 0 && option->bytes > p->memory ? "more than the memory"
                : !usable                                     ? "no faster than a smaller degree"
                : s->start[c] + option->seconds > s->makespan ? "would end after the plan"
                                                              : "no shorter plan found with it";
            printf("%-20s %6lld %10.4g %12.5g %10.4g  %s\n", i ? "" : list->item[c].id,
                   (long long)option->degree, option->seconds,
                   option->seconds * (double)option->degree, option->bytes / (1024.0 * 1024 * 1024),
                   why);
        }
}

static weft_status draw(const char *path, const char *title, const weft_cascade_list *list,
                        const weft_cascade_problem *p, const weft_cascade_schedule *s,
                        const int32_t *first, const int32_t *devices, int64_t per_node,
                        weft_arena *arena)
{
    weft_gantt_bar *bar = weft_arena_alloc(arena, first[p->count] * (int64_t)sizeof *bar);
    if (!bar)
        return weft_fail(WEFT_E_MEMORY, "out of memory drawing the plan");
    for (int64_t c = 0; c < p->count; c++)
        for (int32_t j = first[c]; j < first[c + 1]; j++)
            bar[j] = (weft_gantt_bar){devices[j],
                                      s->start[c],
                                      s->end[c],
                                      weft_gantt_colour(list->item[c].id, (int)c),
                                      strstr(list->item[c].id, ".dit") ? 0 : 0.5,
                                      list->item[c].id};
    weft_buf svg = {0};
    weft_status_code status =
        weft_gantt_svg(title, bar, first[p->count], p->devices, s->makespan, per_node, &svg);
    if (status == WEFT_OK)
        status = weft_file_write_atomic(path, svg.data, svg.len);
    weft_buf_free(&svg);
    return status;
}

typedef struct outcome {
    const weft_cascade_list *list;
    const weft_cascade_problem *problem;
    const weft_cascade_result *result;
    int32_t *first, *devices;
    const weft_plan_setup *setup; /* NULL: bare numbers */
    const weft_workload *samples;
} outcome;

static weft_status output(const weft_args *args, const outcome *o, weft_arena *arena)
{
    json_t *json;
    WEFT_TRY(
        weft_cascade_plan_to_json(o->list, o->problem, o->result, o->first, o->devices, &json));
    weft_status_code status = WEFT_OK;
    if (o->setup)
        status = weft_plan_file_describe(json, o->setup->config.cluster_spec, &o->setup->costs,
                                         o->samples);
    const char *out = weft_args_string(args, "--out"), *svg = weft_args_string(args, "--svg");
    if (status == WEFT_OK)
        status = weft_plan_seal(json, WEFT_CASCADE_FORMAT);
    if (status == WEFT_OK && out)
        status = weft_json_save(out, json);
    if (status == WEFT_OK && svg)
        status = draw(svg, o->setup ? o->setup->model.name : weft_args_string(args, "--costs"),
                      o->list, o->problem, &o->result->schedule, o->first, o->devices,
                      o->setup ? o->setup->cluster.devices : 0, arena);
    if (status == WEFT_OK && weft_args_flag(args, "--json")) {
        status = weft_plan_print_json(json);
    } else if (status == WEFT_OK) {
        print_table(o->list, o->problem, o->result, o->first, o->devices);
        if (weft_args_flag(args, "--explain"))
            explain(o->list, o->problem, o->result);
    }
    json_decref(json);
    return status;
}

static weft_status run_bare(const weft_args *args, weft_arena *arena)
{
    int64_t devices, memory;
    weft_cascade_search search = {0};
    WEFT_TRY(weft_args_i64(args, "--devices", INT64_MIN, INT64_MAX, &devices));
    WEFT_TRY(weft_args_i64(args, "--memory", 0, INT64_MAX, &memory));
    WEFT_TRY(read_search(args, &search));
    weft_cascade_list list;
    const char *path = weft_args_string(args, "--costs");
    WEFT_TRY(weft_cascade_list_load(path, arena, &list));
    weft_cascade_problem problem;
    weft_status_code status = weft_cascade_problem_create(&list, devices, (double)memory, &problem);
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s", path);
    weft_cascade_result result;
    outcome o = {.list = &list, .problem = &problem, .result = &result};
    status = weft_cascade_solve(&problem, &search, arena, &result);
    if (status == WEFT_OK)
        status = weft_cascade_devices(&problem, &result.schedule, arena, &o.first, &o.devices);
    if (status == WEFT_OK)
        status = output(args, &o, arena);
    weft_cascade_problem_free(&problem);
    return status;
}

/* The simulator's verdict, and the sets of degrees that were tried. */
static void print_simulated(const weft_model_work *model, const weft_iteration *it,
                            bool explain_sets)
{
    char text[32];
    printf("costs of %s: %s\n", model->name, model->source);
    printf("simulated with contention, hand-offs and gradient exchange: %.6g s, idle %.1f %%, "
           "exposed communication %.3g s, "
           "peak %s per device\n",
           it->simulated, 100 * it->idle, it->exposed, weft_format_bytes((int64_t)it->peak, text));
    for (int64_t i = 0; explain_sets && i < it->candidates; i++) {
        const weft_iteration_candidate *c = &it->candidate[i];
        if (isinf(c->simulated)) {
            printf("  %-30s planned %.6g s, longer than another one simulated\n", c->name,
                   c->planned);
            continue;
        }
        printf("  %-30s planned %.6g s, simulated %.6g s, idle %.1f %%  %s\n", c->name, c->planned,
               c->simulated, 100 * c->idle,
               i == it->chosen ? "<- chosen" : "longer when simulated");
    }
}

static weft_status run_config(const weft_args *args, const char *path, weft_arena *arena)
{
    weft_plan_setup s = {0};
    weft_workload samples;
    weft_iteration it;
    WEFT_TRY(weft_plan_setup_load(args, path, arena, &s));
    WEFT_TRY(weft_workload_draw(arena, &s.buckets, s.samples, s.search.seed, &samples));
    WEFT_TRY(
        weft_plan_model_work(arena, s.config.model_name, &samples, &s.cluster.device, &s.model));
    const weft_assign_options place = {.inner = s.config.inner, .inter = s.config.inter};
    WEFT_TRY(weft_iteration_plan(&s.costs, &samples, &s.search, place, arena, &it));
    const outcome o = {.list = &it.kept,
                       .problem = &it.problem,
                       .result = &it.result,
                       .first = it.first,
                       .devices = it.devices,
                       .setup = &s,
                       .samples = &samples};
    const weft_status_code status = output(args, &o, arena);
    if (status == WEFT_OK && !weft_args_flag(args, "--json"))
        print_simulated(&s.model, &it, weft_args_flag(args, "--explain"));
    weft_iteration_free(&it);
    return status;
}

weft_status weft_plan_cascades_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    if (weft_args_string(args, "--costs") && count > 1)
        return weft_fail(WEFT_E_ARG, "give either a config (%s) or --costs", words[1]);
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code status = weft_args_string(args, "--costs")
                                        ? run_bare(args, arena)
                                        : run_config(args, count > 1 ? words[1] : NULL, arena);
    weft_arena_free(arena);
    return status;
}
