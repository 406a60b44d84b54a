#include "plan/pipeline/pulse_search.h"

#include "plan/layout/layout_list.h"
#include "plan/ops/model_work.h"

#include <stdlib.h>

static weft_layout_score score_of(const weft_pulse_choice *c)
{
    return (weft_layout_score){true, c->fits, c->seconds_per_sample, c->fits ? 0 : c->memory};
}

static int by_pulse(const void *left, const void *right)
{
    const weft_pulse_choice *a = left, *b = right;
    const weft_layout_score x = score_of(a), y = score_of(b);
    const int order = weft_layout_compare(&x, &y);
    if (order)
        return order;
    return a->p != b->p ? (a->p < b->p ? -1 : 1) : a->b < b->b ? -1 : a->b > b->b;
}

/* Sum over the operators of a stage. */
static double pp_stage_sum(const weft_pp_costs *c, const weft_partition *p, int64_t stage, int what)
{
    double sum = 0;
    for (int64_t i = p->cut[stage]; i < p->cut[stage + 1]; i++)
        sum += what == 0   ? c->op[i].parameter_bytes
               : what == 1 ? c->op[i].activation_bytes
                           : c->op[i].forward;
    return sum;
}

/* Evaluates Eq. 14-17 for one (P, G, b) and its partition into 2P stages (P = 1: two stages on one
 * device). */
static weft_pulse_choice estimate_pulse(const weft_pp_costs *c, const weft_fabric *f,
                                        const weft_partition *part, int64_t p, int64_t g, int64_t b)
{
    const double P = (double)p, G = (double)g, B = (double)b;
    weft_pulse_choice x = {.p = p, .g = g, .b = b};
    /* state bytes per byte of a 16-bit weight */
    const double states = weft_state_bytes_on(weft_state_bytes_of(2), 0, 1) / 2;
    double most_output = 0, most_weights = 0;
    for (int64_t s = 0; s < 2 * p; s++) {
        const double seconds = pp_stage_sum(c, part, s, 2),
                     output = c->op[part->cut[s + 1] - 1].output_bytes;
        x.bottleneck = seconds > x.bottleneck ? seconds : x.bottleneck;
        if (s + 1 < 2 * p && output > most_output)
            most_output = output;
        /* Eq. 14 for every pair; the paper assumes that the middle pair is the fullest. Costs are
         * per microbatch, so outputs grow with b too. */
        const int64_t mirror = 2 * p - 1 - s;
        const double weights = pp_stage_sum(c, part, s, 0) + pp_stage_sum(c, part, mirror, 0);
        const double saved = pp_stage_sum(c, part, s, 1) + pp_stage_sum(c, part, mirror, 1);
        const double before = p > 1 && s > 0 ? c->op[part->cut[s] - 1].output_bytes : 0;
        const double memory = states * weights + P * saved + P * before;
        if (s < p && memory > x.memory)
            x.memory = memory;
        most_weights = weights > most_weights ? weights : most_weights;
    }
    x.compute = (10 * P - 4) * x.bottleneck;
    x.send = (10 * P - 12 > 0 ? 10 * P - 12 : 0) * (f->inter_latency + most_output / f->inter);
    if (p == 1)
        x.send = 0;
    /* Eq. 16: replicas are neighbours; beyond a node the ring passes the slower link */
    const double rate = g <= f->per_node ? f->intra : f->inter;
    x.all_reduce = g > 1 ? f->intra_latency + 2 * (G - 1) * most_weights / (G * rate) : 0;
    x.seconds_per_sample = (x.compute + x.send + x.all_reduce) / (B * P * G);
    x.fits = x.memory < weft_fabric_usable(f);
    return x;
}

weft_status weft_pulse_search(const weft_pp_costs *costs, const weft_fabric *fabric,
                              int64_t devices, int64_t most_b, double overhead,
                              weft_pulse_choice *out, int64_t capacity, int64_t *count)
{
    WEFT_TRY(weft_pp_costs_check(costs));
    if (devices < 1 || most_b < 1 || !(overhead >= 0 && overhead <= 1))
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE,
                          "%" PRId64 " devices and up to %" PRId64
                          " samples per microbatch must be at least 1, "
                          "the overhead %g from 0 to 1",
                          devices, most_b, overhead);
    weft_pp_costs scaled = *costs;
    scaled.op = weft_calloc(costs->op_count, sizeof *scaled.op);
    scaled.skip = weft_calloc(costs->skip_count + 1, sizeof *scaled.skip);
    weft_status_code status = WEFT_OK;
    int64_t found = 0;
    WEFT_GO(WEFT_ALLOCATED(scaled.op && scaled.skip, "%" PRId64 " operators", costs->op_count));
    for (int64_t p = 1; p <= devices; p++) {
        if (devices % p != 0 || 2 * p > costs->op_count)
            continue;
        for (int64_t b = 1; b <= most_b; b *= 2) {
            for (int64_t i = 0; i < costs->op_count; i++) {
                const double times = (double)b * (1 - overhead) + overhead;
                scaled.op[i] = costs->op[i];
                scaled.op[i].forward *= times;
                scaled.op[i].backward *= times;
                scaled.op[i].output_bytes *= (double)b;
                scaled.op[i].activation_bytes *= (double)b;
            }
            for (int64_t k = 0; k < costs->skip_count; k++) {
                scaled.skip[k] = costs->skip[k];
                scaled.skip[k].bytes *= (double)b;
            }
            weft_partition part;
            const weft_status_code solved =
                weft_partition_solve(&scaled, 2 * p, WEFT_COLLOCATE_ALL, &part);
            if (solved == WEFT_E_INFEASIBLE)
                break; /* too many stages for the skips */
            WEFT_GO(solved);
            if (found < capacity)
                out[found++] = estimate_pulse(&scaled, fabric, &part, p, devices / p, b);
            weft_partition_free(&part);
        }
    }
    if (found == 0)
        WEFT_GO(weft_error(
            WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "devices", WEFT_NUMBER(devices)),
            "%" PRId64 " operators cannot be split into stages of any pipeline on %" PRId64
            " devices",
            costs->op_count, devices));
    qsort(out, (size_t)found, sizeof *out, by_pulse);
    *count = found;
out:
    weft_free(scaled.op);
    weft_free(scaled.skip);
    return status;
}
