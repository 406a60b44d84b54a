/* A cascade plan as text and as a drawing. */
#include "plan/cascade/cascade_print.h"

#include "base/fs.h"
#include "base/log.h"
#include "plan/simulate/gantt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void weft_cascade_print_table(const weft_cascade_solution *plan)
{
    const weft_cascade_problem *p = &plan->problem;
    const weft_cascade_result *r = &plan->result;
    const weft_cascade_schedule *s = &r->schedule;
    const int32_t *first = plan->first, *devices = plan->devices;
    printf("%-20s %6s %12s %12s  %s\n", "cascade", "degree", "start", "end", "devices");
    for (int64_t c = 0; c < p->count; c++) {
        printf("%-20s %6d %12.6g %12.6g ", plan->list.item[c].id, p->degree[s->option[c]],
               s->start[c], s->end[c]);
        for (int32_t j = first[c]; j < first[c + 1];) { /* prints runs as a-b */
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

/* Prints the cost of the degrees next to the chosen one. */
void weft_cascade_explain(const weft_cascade_solution *plan)
{
    const weft_cascade_list *list = &plan->list;
    const weft_cascade_problem *p = &plan->problem;
    const weft_cascade_result *r = &plan->result;
    const weft_cascade_schedule *s = &r->schedule;
    printf("\nbounds: critical path %.6g s, area %.6g s, best %.6g s\n", r->bound.critical_path,
           r->bound.area, r->bound.value);
    printf("search: %" PRId64
           " schedules, best %.6g s after the genetic part, %.6g s after local moves, "
           "%" PRId64 " nodes "
           "of branch and bound\n\n",
           r->evaluations, r->genetic, r->local, r->exact_nodes);
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
            printf("%-20s %6" PRId64 " %10.4g %12.5g %10.4g  %s\n", i ? "" : list->item[c].id,
                   option->degree, option->seconds, option->seconds * (double)option->degree,
                   option->bytes / (1024.0 * 1024 * 1024), why);
        }
}

weft_status weft_cascade_draw(const char *path, const char *title,
                              const weft_cascade_solution *plan, int64_t per_node,
                              weft_arena *arena)
{
    const weft_cascade_schedule *s = &plan->result.schedule;
    const int64_t cascades = plan->problem.count, bars = plan->first[cascades];
    weft_gantt_bar *bar;
    WEFT_TRY(WEFT_ARENA_NEW(arena, bar, bars, "drawing the plan"));
    for (int64_t c = 0; c < cascades; c++)
        for (int32_t j = plan->first[c]; j < plan->first[c + 1]; j++)
            bar[j] = (weft_gantt_bar){plan->devices[j],
                                      s->start[c],
                                      s->end[c],
                                      weft_gantt_colour(plan->list.item[c].id, (int)c),
                                      strstr(plan->list.item[c].id, ".dit") ? 0 : 0.5,
                                      plan->list.item[c].id};
    weft_buf svg = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_gantt_svg(title, bar, bars, plan->problem.devices, s->makespan, per_node, &svg));
    WEFT_GO(weft_file_write_atomic(path, svg.data, svg.len));
out:
    weft_buf_free(&svg);
    return status;
}

/* Prints the simulator's result and the sets of degrees that were tried. */
void weft_cascade_print_simulated(const weft_model_work *model, const weft_iteration *it,
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
