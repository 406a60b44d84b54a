/* Baselines that Arachne is compared with, as schedules with the same costs. */
#include "plan/cascade/baselines.h"

#include "plan/cascade/policy.h"
#include "plan/cascade/workload.h"

#include <math.h>
#include <string.h>

weft_status weft_workload_request(const weft_cascade_costs *c, const weft_workload *w,
                                  const weft_cascade_list *list, weft_arena *arena,
                                  weft_policy_request *out)
{
    weft_policy_request r = {.list = list,
                             .samples = w->count,
                             .devices = weft_cluster_devices(c->cluster),
                             .heads = c->model->heads,
                             .memory = (double)c->cluster->device.memory};
    int32_t *sample = weft_arena_calloc(arena, list->count, sizeof *sample);
    double *work = weft_arena_calloc(arena, w->count, sizeof *work);
    WEFT_TRY(WEFT_ALLOCATED(sample && work, "the baseline"));
    for (int64_t i = 0; i < list->count; i++)
        sample[i] = (int32_t)(i / (list->count / w->count));
    for (int64_t i = 0; i < w->count; i++) {
        weft_dit_cost d;
        WEFT_TRY(weft_dit_cost_of(c, &w->bucket[i], 1, WEFT_SP_NONE, 0, &d));
        work[i] = d.flops;
    }
    r.sample = sample;
    r.work = work;
    *out = r;
    return WEFT_OK;
}

/* Sets *out to sigma / mean of the useful DiT FLOPs over devices. */
static weft_status variation_of(const weft_cascade_costs *c, const weft_workload *w,
                                const weft_policy_request *r, const weft_placement *p,
                                weft_arena *arena, double *out)
{
    double mean = 0, square = 0;
    double *flops;
    WEFT_TRY(WEFT_ARENA_NEW(arena, flops, r->devices, "the baseline"));
    for (int64_t i = 0; i < p->count; i++) {
        if (!strstr(r->list->item[i].id, ".dit"))
            continue;
        weft_dit_cost d;
        WEFT_TRY(weft_dit_cost_of(c, &w->bucket[r->sample[i]], p->first[i + 1] - p->first[i],
                                  c->method, 0, &d));
        for (int32_t j = p->first[i]; j < p->first[i + 1]; j++)
            flops[p->devices[j]] += d.flops;
    }
    for (int64_t d = 0; d < r->devices; d++)
        mean += flops[d] / (double)r->devices;
    for (int64_t d = 0; d < r->devices; d++)
        square += (flops[d] - mean) * (flops[d] - mean);
    *out = mean > 0 ? sqrt(square / (double)r->devices) / mean : 0;
    return WEFT_OK;
}

static const char *const names[WEFT_POLICY_COUNT] = {[WEFT_POLICY_STATIC] = "DP x CP",
                                                     [WEFT_POLICY_ULYSSES] = "DP x Ulysses",
                                                     [WEFT_POLICY_FLEXSP] = "FlexSP-like",
                                                     [WEFT_POLICY_KNAPFORMER] = "KnapFormer-like"};

static weft_sp_method method_of(weft_policy policy)
{
    const bool heads = policy == WEFT_POLICY_ULYSSES || policy == WEFT_POLICY_KNAPFORMER;
    return heads ? WEFT_SP_ULYSSES : policy == WEFT_POLICY_STATIC ? WEFT_SP_RING : WEFT_SP_NONE;
}

static weft_policy static_policy(weft_sp_method method)
{
    return method == WEFT_SP_ULYSSES ? WEFT_POLICY_ULYSSES : WEFT_POLICY_STATIC;
}

/* Evaluates a policy. out->feasible is false if no placement exists. */
static weft_status place(const weft_cascade_costs *costs, const weft_workload *w,
                         weft_policy policy, weft_equal_groups groups, weft_arena *arena,
                         weft_baseline *out)
{
    weft_cascade_costs c = *costs;
    weft_cascade_list list;
    weft_policy_request request;
    weft_placement p;
    c.method = method_of(policy);
    *out = (weft_baseline){.name = names[policy], .degree = groups.width};
    WEFT_TRY(weft_workload_cascades(&c, w, arena, &list));
    WEFT_TRY(weft_workload_request(&c, w, &list, arena, &request));
    request.degree = groups.width;
    request.groups = groups.count;
    const weft_status_code status = weft_policy_place(policy, &request, arena, &p);
    if (status == WEFT_E_INFEASIBLE)
        return WEFT_OK;
    WEFT_TRY(status);
    out->degree = p.degree;
    out->feasible = true;
    out->makespan = p.makespan;
    out->idle = p.idle;
    return variation_of(&c, w, &request, &p, arena, &out->variation);
}

weft_status weft_baseline_static(const weft_cascade_costs *c, const weft_workload *w,
                                 weft_equal_groups groups, weft_sp_method method, weft_arena *arena,
                                 weft_baseline *out)
{
    return place(c, w, static_policy(method), groups, arena, out);
}

weft_status weft_baseline_layouts(const weft_cascade_costs *costs, const weft_workload *w,
                                  weft_sp_method method, weft_arena *lists,
                                  weft_static_layouts *out)
{
    weft_cascade_costs c = *costs;
    weft_cascade_list list;
    weft_policy_request request;
    weft_arena *arena = weft_arena_create();
    weft_status_code status = WEFT_ALLOCATED(arena, "the static layouts");
    c.method = method;
    WEFT_GO(status);
    WEFT_GO(weft_workload_cascades(&c, w, arena, &list));
    WEFT_GO(weft_workload_request(&c, w, &list, arena, &request));
    if (!out->item)
        WEFT_GO(weft_static_layouts_create(static_policy(method), &request, lists, out));
    WEFT_GO(weft_static_layouts_add(out, &request, arena));
out:
    weft_arena_free(arena);
    return status;
}

weft_status weft_baseline_flexsp(const weft_cascade_costs *c, const weft_workload *w,
                                 weft_arena *arena, weft_baseline *out)
{
    return place(c, w, WEFT_POLICY_FLEXSP, (weft_equal_groups){0}, arena, out);
}

weft_status weft_baseline_knapformer(const weft_cascade_costs *c, const weft_workload *w,
                                     int64_t degree, weft_arena *arena, weft_baseline *out)
{
    return place(c, w, WEFT_POLICY_KNAPFORMER, (weft_equal_groups){degree, 0}, arena, out);
}

/* Cost of one sample on one group: text, then the VAE over its devices, then the DiT. */
typedef struct unit {
    double seconds, bytes, flops; /* flops: per device */
} unit;

static weft_status unit_cost(const weft_cascade_costs *c, const weft_plan_bucket *b, int64_t degree,
                             unit *out)
{
    weft_dit_cost d;
    WEFT_TRY(weft_dit_cost_of(c, b, degree, WEFT_SP_NONE, 0, &d));
    double vae, text = 0;
    WEFT_TRY(weft_vae_seconds(c, b, degree, &vae));
    if (c->text)
        WEFT_TRY(weft_text_seconds(c, b, &text));
    *out = (unit){d.seconds + vae + text, d.bytes, d.flops};
    return WEFT_OK;
}

/* Sets the makespan, idle and variation from the loads of the groups. */
static void summarise(const double *load, const double *flops, const int64_t *width, int64_t groups,
                      int64_t devices, weft_baseline *out)
{
    double busy = 0, mean = 0, square = 0;
    out->makespan = 0;
    for (int64_t g = 0; g < groups; g++) {
        out->makespan = fmax(out->makespan, load[g]);
        busy += load[g] * (double)width[g];
        mean += flops[g] * (double)width[g];
    }
    mean /= (double)devices;
    for (int64_t g = 0; g < groups; g++)
        square += (flops[g] - mean) * (flops[g] - mean) * (double)width[g];
    out->idle = 1 - busy / (out->makespan * (double)devices);
    out->variation = mean > 0 ? sqrt(square / (double)devices) / mean : 0;
}

/* Replaces *out by equal groups, one per sample, if they are shorter. Their width need not be a
 * power of two. */
static weft_status equal_at_once(const weft_cascade_costs *c, const weft_workload *w, double *load,
                                 double *flops, int64_t *width, weft_baseline *out)
{
    const int64_t devices = weft_cluster_devices(c->cluster);
    const double memory = (double)c->cluster->device.memory;
    for (int64_t k = 1; k * w->count <= devices; k++) {
        weft_baseline r = *out;
        bool fits = true;
        for (int64_t i = 0; i < w->count && fits; i++) {
            unit u;
            WEFT_TRY(unit_cost(c, &w->bucket[i], k, &u));
            load[i] = u.seconds;
            flops[i] = u.flops;
            width[i] = k;
            fits = u.bytes <= memory;
        }
        load[w->count] = flops[w->count] = 0;
        width[w->count] = devices - k * w->count;
        r.feasible = true;
        if (fits)
            summarise(load, flops, width, w->count + 1, devices, &r);
        if (fits && (!out->feasible || r.makespan < out->makespan))
            *out = r;
    }
    return WEFT_OK;
}

weft_status weft_baseline_at_once(const weft_cascade_costs *c, const weft_workload *w,
                                  weft_arena *arena, weft_baseline *out)
{
    const int64_t devices = weft_cluster_devices(c->cluster);
    const double memory = (double)c->cluster->device.memory;
    weft_baseline r = {.name = "FlexSP-like, all at once"};
    /* one entry per sample, and one for unused devices */
    int64_t *width = weft_arena_calloc(arena, w->count + 1, sizeof *width);
    double *load = weft_arena_calloc(arena, w->count + 1, sizeof *load);
    double *flops = weft_arena_calloc(arena, w->count + 1, sizeof *flops);
    WEFT_TRY(WEFT_ALLOCATED(width && load && flops, "the baseline"));
    int64_t rest = devices;
    for (int64_t i = 0; i < w->count; i++) { /* as narrow as the memory allows */
        unit u = {.bytes = INFINITY};
        for (width[i] = 1; width[i] <= devices; width[i] *= 2) {
            WEFT_TRY(unit_cost(c, &w->bucket[i], width[i], &u));
            if (u.bytes <= memory)
                break;
        }
        rest -= width[i];
        load[i] = u.seconds;
        flops[i] = u.flops;
    }
    r.feasible = rest >= 0;
    for (bool wider = r.feasible;
         wider;) { /* only a wider slowest group can shorten the makespan */
        int64_t slow = 0;
        for (int64_t i = 1; i < w->count; i++)
            slow = load[i] > load[slow] ? i : slow;
        wider = false;
        for (int64_t k = 2 * width[slow]; !wider && k <= width[slow] + rest; k *= 2) {
            unit u;
            WEFT_TRY(unit_cost(c, &w->bucket[slow], k, &u));
            if (u.seconds >= load[slow])
                continue;
            rest -= k - width[slow];
            width[slow] = k;
            load[slow] = u.seconds;
            flops[slow] = u.flops;
            wider = true;
        }
    }
    width[w->count] = rest;
    if (r.feasible)
        summarise(load, flops, width, w->count + 1, devices, &r);
    WEFT_TRY(equal_at_once(c, w, load, flops, width, &r));
    *out = r;
    return WEFT_OK;
}
