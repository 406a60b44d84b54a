/* The systems that Arachne compares with, as schedules with the same costs. */
#include "plan/cascade/workload.h"

#include <math.h>
#include <string.h>

enum { MAX_GROUPS = 4096 };

/* One sample on one group: text, then VAE over its devices, then the DiT. */
typedef struct unit {
    double seconds, bytes, flops; /* flops per device */
} unit;

static weft_status unit_cost(const weft_cascade_costs *c, const weft_plan_bucket *b, int64_t degree,
                             weft_sp_method method, unit *out)
{
    weft_dit_cost d;
    WEFT_TRY(weft_dit_cost_of(c, b, degree, method, 0, &d));
    double vae, text = 0;
    WEFT_TRY(weft_vae_seconds(c, b, degree, &vae));
    if (c->text)
        WEFT_TRY(weft_text_seconds(c, b, &text));
    *out = (unit){d.seconds + vae + text, d.bytes, d.flops};
    return WEFT_OK;
}

/* Fills idle and variation from the groups' loads. */
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

weft_status weft_baseline_static(const weft_cascade_costs *c, const weft_workload *w,
                                 int64_t degree, weft_sp_method method, weft_arena *arena,
                                 weft_baseline *out)
{
    const int64_t devices = weft_cluster_devices(c->cluster), groups = devices / degree;
    weft_baseline r = {.degree = degree};
    r.name = method == WEFT_SP_ULYSSES ? "DP x Ulysses" : "DP x CP";
    if (devices % degree || (method == WEFT_SP_ULYSSES && c->model->heads % degree) ||
        groups > MAX_GROUPS) {
        *out = r;
        return WEFT_OK;
    }
    double *load = weft_arena_alloc(arena, groups * (int64_t)sizeof *load);
    double *flops = weft_arena_alloc(arena, groups * (int64_t)sizeof *flops);
    int64_t *width = weft_arena_alloc(arena, groups * (int64_t)sizeof *width);
    if (!load || !flops || !width)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the baseline");
    r.feasible = true;
    for (int64_t i = 0; i < w->count; i++) {
        unit u;
        WEFT_TRY(unit_cost(c, &w->bucket[i], degree, method, &u));
        r.feasible &= u.bytes <= (double)c->cluster->device.memory;
        load[i % groups] += u.seconds;
        flops[i % groups] += u.flops;
    }
    for (int64_t g = 0; g < groups; g++)
        width[g] = degree;
    summarise(load, flops, width, groups, devices, &r);
    *out = r;
    return WEFT_OK;
}

typedef struct flex {
    const unit *unit; /* [samples][powers] */
    const int64_t *order;
    int64_t samples, devices, powers;
    double memory, best;
    int64_t best_count[24]; /* groups of 2^p devices */
    int64_t count[24];
    double *load, *flops; /* per group */
    int64_t *width;
    int64_t tried;
} flex;

/* Longest samples first, each to the group that would finish it first. Groups in falling width. */
static double deal(flex *f, const int64_t *count, int64_t *groups_out)
{
    int64_t groups = 0;
    for (int64_t p = f->powers - 1; p >= 0; p--)
        for (int64_t i = 0; i < count[p]; i++) {
            f->width[groups] = p;
            f->load[groups] = f->flops[groups] = 0;
            groups++;
        }
    double makespan = 0;
    for (int64_t i = 0; i < f->samples; i++) {
        const unit *u = f->unit + f->order[i] * f->powers;
        int64_t best = -1;
        double end = INFINITY;
        for (int64_t g = 0; g < groups; g++) {
            const unit *here = &u[f->width[g]];
            if (here->bytes <= f->memory && f->load[g] + here->seconds < end) {
                end = f->load[g] + here->seconds;
                best = g;
            }
        }
        if (best < 0)
            return INFINITY;
        f->load[best] = end;
        f->flops[best] += u[f->width[best]].flops;
        makespan = fmax(makespan, end);
    }
    *groups_out = groups;
    return makespan;
}

/* All cuts of the rest into groups of at most 2^power. */
static void cut(flex *f, int64_t power, int64_t rest)
{
    if (f->tried > 20000)
        return;
    if (power == 0) {
        f->count[0] = rest;
        f->tried++;
        int64_t groups;
        const double makespan = deal(f, f->count, &groups);
        if (makespan < f->best) {
            f->best = makespan;
            memcpy(f->best_count, f->count, sizeof f->count);
        }
        return;
    }
    for (int64_t n = rest >> power; n >= 0; n--) {
        f->count[power] = n;
        cut(f, power - 1, rest - (n << power));
    }
}

weft_status weft_baseline_flexsp(const weft_cascade_costs *c, const weft_workload *w,
                                 weft_arena *arena, weft_baseline *out)
{
    flex f = {.samples = w->count, .devices = weft_cluster_devices(c->cluster), .best = INFINITY};
    while ((1 << f.powers) <= f.devices)
        f.powers++;
    f.memory = (double)c->cluster->device.memory;
    unit *units = weft_arena_alloc(arena, w->count * f.powers * (int64_t)sizeof *units);
    int64_t *order = weft_arena_alloc(arena, w->count * (int64_t)sizeof *order);
    f.load = weft_arena_alloc(arena, f.devices * (int64_t)sizeof *f.load);
    f.flops = weft_arena_alloc(arena, f.devices * (int64_t)sizeof *f.flops);
    f.width = weft_arena_alloc(arena, f.devices * (int64_t)sizeof *f.width);
    if (!units || !order || !f.load || !f.flops || !f.width)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the baseline");
    for (int64_t i = 0; i < w->count; i++) {
        for (int64_t p = 0; p < f.powers; p++)
            WEFT_TRY(unit_cost(c, &w->bucket[i], (int64_t)1 << p, WEFT_SP_NONE,
                               &units[i * f.powers + p]));
        int64_t at = i; /* by falling work on one device */
        for (; at > 0 && units[order[at - 1] * f.powers].seconds < units[i * f.powers].seconds;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    f.unit = units;
    f.order = order;
    cut(&f, f.powers - 1, f.devices);
    weft_baseline r = {.name = "FlexSP-like", .feasible = isfinite(f.best)};
    if (r.feasible) {
        int64_t groups;
        deal(&f, f.best_count, &groups);
        for (int64_t g = 0; g < groups; g++)
            f.width[g] = (int64_t)1 << f.width[g];
        summarise(f.load, f.flops, f.width, groups, f.devices, &r);
    }
    *out = r;
    return WEFT_OK;
}

weft_status weft_baseline_at_once(const weft_cascade_costs *c, const weft_workload *w,
                                  weft_arena *arena, weft_baseline *out)
{
    const int64_t devices = weft_cluster_devices(c->cluster);
    const double memory = (double)c->cluster->device.memory;
    weft_baseline r = {.name = "FlexSP-like, all at once"};
    /* one entry per sample, and one for the devices that are left */
    int64_t *width = weft_arena_alloc(arena, (w->count + 1) * (int64_t)sizeof *width);
    double *load = weft_arena_alloc(arena, (w->count + 1) * (int64_t)sizeof *load);
    double *flops = weft_arena_alloc(arena, (w->count + 1) * (int64_t)sizeof *flops);
    if (!width || !load || !flops)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the baseline");
    int64_t rest = devices;
    for (int64_t i = 0; i < w->count; i++) { /* as narrow as the memory allows */
        unit u = {.bytes = INFINITY};
        for (width[i] = 1; width[i] <= devices; width[i] *= 2) {
            WEFT_TRY(unit_cost(c, &w->bucket[i], width[i], WEFT_SP_NONE, &u));
            if (u.bytes <= memory)
                break;
        }
        rest -= width[i];
        load[i] = u.seconds;
        flops[i] = u.flops;
    }
    r.feasible = rest >= 0;
    for (bool wider = r.feasible;
         wider;) { /* only the slowest one's next width can make all of it shorter */
        int64_t slow = 0;
        for (int64_t i = 1; i < w->count; i++)
            slow = load[i] > load[slow] ? i : slow;
        wider = false;
        for (int64_t k = 2 * width[slow]; !wider && k <= width[slow] + rest; k *= 2) {
            unit u;
            WEFT_TRY(unit_cost(c, &w->bucket[slow], k, WEFT_SP_NONE, &u));
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
    *out = r;
    return WEFT_OK;
}
