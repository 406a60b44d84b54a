#include "plan/pipeline/pulse.h"

#include "plan/cost/model_work.h"

#include <stdlib.h>

static int by_pulse(const void *left, const void *right)
{
    const weft_pulse_choice *a = left, *b = right;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (a->seconds_per_sample != b->seconds_per_sample)
        return a->seconds_per_sample < b->seconds_per_sample ? -1 : 1;
    return a->p != b->p ? (a->p < b->p ? -1 : 1) : a->b < b->b ? -1 : a->b > b->b;
}

/* Stage sums of a partition. */
static double stage_sum(const weft_pipe_costs *c, const weft_partition *p, int64_t stage, int what)
{
    double sum = 0;
    for (int64_t i = p->cut[stage]; i < p->cut[stage + 1]; i++)
        sum += what == 0   ? c->op[i].parameter_bytes
               : what == 1 ? c->op[i].activation_bytes
                           : c->op[i].forward;
    return sum;
}

/* Eq. 14-17 for one (P, G, b) and its partition into 2P stages (P = 1: two, both on the one
 * device). */
static weft_pulse_choice price_pulse(const weft_pipe_costs *c, const weft_fabric *f,
                                     const weft_partition *part, int64_t p, int64_t g, int64_t b)
{
    const double P = (double)p, G = (double)g, B = (double)b;
    weft_pulse_choice x = {.p = p, .g = g, .b = b};
    const double states = weft_state_bytes_on(weft_state_bytes_of(2), 0, 1) / 2; /* of 16 bits */
    double most_output = 0, most_weights = 0;
    for (int64_t s = 0; s < 2 * p; s++) {
        const double seconds = stage_sum(c, part, s, 2),
                     output = c->op[part->cut[s + 1] - 1].output_bytes;
        x.bottleneck = seconds > x.bottleneck ? seconds : x.bottleneck;
        if (s + 1 < 2 * p && output > most_output)
            most_output = output;
        /* Eq. 14; the paper takes the middle pair for the fullest, here every pair is looked at.
         * Costs are per microbatch, so that outputs grow with b as well. */
        const int64_t mirror = 2 * p - 1 - s;
        const double weights = stage_sum(c, part, s, 0) + stage_sum(c, part, mirror, 0);
        const double kept = stage_sum(c, part, s, 1) + stage_sum(c, part, mirror, 1);
        const double before = p > 1 && s > 0 ? c->op[part->cut[s] - 1].output_bytes : 0;
        const double memory = states * weights + P * kept + P * before;
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

weft_status weft_tune_pulse(const weft_pipe_costs *costs, const weft_fabric *fabric,
                            int64_t devices, int64_t most_b, double overhead,
                            weft_pulse_choice *out, int64_t room, int64_t *count)
{
    WEFT_TRY(weft_pipe_costs_check(costs));
    if (devices < 1 || most_b < 1 || !(overhead >= 0 && overhead <= 1))
        return weft_fail(WEFT_E_ARG,
                         "%lld devices, microbatches to %lld, overhead %g: out of range",
                         (long long)devices, (long long)most_b, overhead);
    weft_pipe_costs scaled = *costs;
    scaled.op = weft_alloc(costs->op_count * (int64_t)sizeof *scaled.op);
    scaled.skip = weft_alloc((costs->skip_count + 1) * (int64_t)sizeof *scaled.skip);
    weft_status_code status = WEFT_OK;
    int64_t found = 0;
    if (!scaled.op || !scaled.skip)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for %lld operators",
                          (long long)costs->op_count));
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
            if (found < room)
                out[found++] = price_pulse(&scaled, fabric, &part, p, devices / p, b);
            weft_partition_free(&part);
        }
    }
    if (found == 0)
        WEFT_GO(weft_fail(WEFT_E_INFEASIBLE,
                          "%lld operators cannot be cut for any pipeline on %lld devices",
                          (long long)costs->op_count, (long long)devices));
    qsort(out, (size_t)found, sizeof *out, by_pulse);
    *count = found;
out:
    weft_free(scaled.op);
    weft_free(scaled.skip);
    return status;
}
