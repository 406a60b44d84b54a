/* Prints a pipeline plan as a table. */
#include "plan/pipeline/pipeline_print.h"

#include "plan/pipeline/pipeline_report.h"

#include <math.h>

static const char *format_bytes(double bytes, char text[32])
{
    return weft_format_bytes(bytes < 9e18 ? (int64_t)bytes : INT64_MAX, text);
}

static void print_candidates(const weft_pipeline_plan *plan, weft_buf *out)
{
    char time[32], bytes[32];
    weft_buf_printf(out, "\n  candidate     devices    iteration   idle       peak\n");
    for (int64_t i = 0; i < plan->candidate_count; i++) {
        const weft_pipeline_candidate *c = &plan->candidate[i];
        if (isnan(c->seconds))
            weft_buf_printf(out, "  %-12s  %-9s          -      -          -  %s\n", c->name,
                            c->map, c->why);
        else
            weft_buf_printf(out, "%s %-12s  %-9s %10s %5.1f %% %10s  %s\n", c->why ? " " : "*",
                            c->name, c->map, weft_format_seconds(c->seconds, time), 100 * c->idle,
                            format_bytes(c->peak, bytes), c->why ? c->why : "chosen");
    }
}

void weft_pipeline_plan_print(const weft_pp_costs *costs, const weft_pipeline_plan *plan,
                              bool explain, weft_buf *out)
{
    const weft_partition *p = &plan->partition;
    const weft_pp_schedule *s = &plan->schedule;
    char a[32], b[32], c[32];
    int64_t collocated = 0, skips = 0;
    for (int64_t k = 0; k < costs->skip_count; k++)
        if (costs->skip[k].to > costs->skip[k].from + 1) { /* not an edge between neighbours */
            collocated += p->collocated[k];
            skips++;
        }
    weft_buf_printf(out,
                    "%" PRId64 " operators in %" PRId64 " stages on %" PRId64 " devices, %" PRId64
                    " microbatches, schedule %s\n",
                    costs->op_count, p->pp_stages, s->devices, s->microbatches, s->name);
    weft_buf_printf(out, "slowest stage   %s%s, block-wise %s\n",
                    weft_format_seconds(p->bottleneck, a), p->proved ? " (optimal)" : "",
                    weft_format_seconds(plan->blockwise_bottleneck, b));
    weft_buf_printf(out,
                    "iteration       %s, idle %.1f %%, %" PRId64 " steps (at least %" PRId64 ")\n",
                    weft_format_seconds(plan->timing.seconds, a), 100 * plan->timing.idle, s->steps,
                    plan->lower_bound_steps);
    weft_buf_printf(out,
                    "communication   %s per microbatch forward, the same backward; %" PRId64
                    " of %" PRId64 " skips "
                    "stay on their device\n",
                    format_bytes(plan->bytes_per_microbatch, a), collocated, skips);
    if (plan->idle_devices > 0)
        weft_buf_printf(out,
                        "note            %" PRId64 " devices get no stage: %" PRId64
                        " stages%s use at most %" PRId64 "\n",
                        plan->idle_devices, p->pp_stages,
                        collocated ? " with collocated skips" : "",
                        collocated ? (p->pp_stages + 1) / 2 : p->pp_stages);
    weft_buf_printf(out, "\n  stage  device  operators        seconds\n");
    for (int64_t q = 0; q < p->pp_stages; q++)
        weft_buf_printf(out, "  %5" PRId64 "  %6d  %5" PRId64 " .. %-5" PRId64 "  %9s\n", q,
                        s->device_of[q], p->cut[q], p->cut[q + 1] - 1,
                        weft_format_seconds(plan->pp_stage_seconds[q], a));
    weft_buf_printf(out, "\n  device  parameters  activations        peak\n");
    for (int64_t d = 0; d < s->devices; d++)
        weft_buf_printf(out, "  %6" PRId64 "  %10s  %11s  %10s\n", d,
                        format_bytes(plan->parameter_bytes[d], a),
                        format_bytes(plan->activation_peak[d], b),
                        format_bytes(plan->parameter_bytes[d] + plan->activation_peak[d], c));
    if (explain)
        print_candidates(plan, out);
}
