#include "plan/pipeline/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *weft_schedule_kind_name(weft_schedule_kind kind)
{
    static const char *const names[] = {"gpipe", "1f1b",        "interleaved",
                                        "wave",  "zero-bubble", "greedy"};
    return kind >= 0 && kind < WEFT_SCHEDULE_KIND_COUNT ? names[kind] : "?";
}

void weft_schedule_free(weft_schedule *schedule)
{
    if (!schedule)
        return;
    weft_free(schedule->device_of);
    weft_free(schedule->task);
    *schedule = (weft_schedule){0};
}

void weft_stage_map_fill(weft_stage_map map, int64_t stages, int64_t devices, int32_t *device_of)
{
    for (int64_t s = 0; s < stages; s++) {
        if (map == WEFT_MAP_ROUND) {
            device_of[s] = (int32_t)(s % devices);
            continue;
        }
        const int64_t mirrored = s < stages - 1 - s ? s : stages - 1 - s;
        const int64_t place = mirrored % (2 * devices);
        device_of[s] = (int32_t)(place < devices ? place : 2 * devices - 1 - place);
    }
}

static weft_status out_of_memory(int64_t stages, int64_t microbatches)
{
    return weft_fail(WEFT_E_MEMORY,
                     "out of memory for a schedule of %lld stages and %lld microbatches",
                     (long long)stages, (long long)microbatches);
}

/* Index of (kind, stage, microbatch) in tables of 3 * S * M. */
static int64_t slot(const weft_schedule *s, weft_task_kind kind, int64_t stage, int64_t microbatch)
{
    return ((int64_t)kind * s->stages + stage) * s->microbatches + microbatch;
}

/* The tasks that must end before this one starts: at most two. */
static int prerequisites(const weft_schedule *s, const weft_task *t, int64_t need[2])
{
    int count = 0;
    switch (t->kind) {
    case WEFT_TASK_F:
        if (t->stage > 0)
            need[count++] = slot(s, WEFT_TASK_F, t->stage - 1, t->microbatch);
        break;
    case WEFT_TASK_B:
        need[count++] = slot(s, WEFT_TASK_F, t->stage, t->microbatch);
        if (t->stage + 1 < s->stages)
            need[count++] = slot(s, WEFT_TASK_B, t->stage + 1, t->microbatch);
        break;
    case WEFT_TASK_W: need[count++] = slot(s, WEFT_TASK_B, t->stage, t->microbatch); break;
    }
    return count;
}

static int by_device_then_step(const void *left, const void *right)
{
    const weft_task *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

/* first[d] .. first[d + 1] are the tasks of device d in `schedule->task`. */
static void device_ranges(const weft_schedule *s, int64_t *first)
{
    for (int64_t d = 0; d <= s->devices; d++)
        first[d] = 0;
    for (int64_t i = 0; i < s->task_count; i++)
        first[s->task[i].device + 1]++;
    for (int64_t d = 0; d < s->devices; d++)
        first[d + 1] += first[d];
}

weft_status weft_schedule_from_order(const char *name, const int32_t *device_of, int64_t stages,
                                     int64_t devices, int64_t microbatches, bool split,
                                     weft_task *tasks, int64_t count, weft_schedule *out)
{
    weft_schedule s = {.name = name,
                       .devices = devices,
                       .stages = stages,
                       .microbatches = microbatches,
                       .split = split,
                       .task_count = count};
    int64_t *first = weft_alloc((devices + 1) * (int64_t)sizeof *first);
    int64_t *next = weft_alloc((devices + 1) * (int64_t)sizeof *next);
    int32_t *done = weft_alloc(3 * stages * microbatches * (int64_t)sizeof *done);
    s.device_of = weft_alloc(stages * (int64_t)sizeof *s.device_of);
    s.task = weft_alloc(count * (int64_t)sizeof *s.task);
    weft_status_code status = WEFT_OK;
    if (!first || !next || !done || !s.device_of || !s.task)
        WEFT_GO(out_of_memory(stages, microbatches));
    memcpy(s.device_of, device_of, (size_t)stages * sizeof *device_of);
    /* a stable counting sort by device keeps each device's order */
    for (int64_t i = 0; i < count; i++)
        next[tasks[i].device + 1]++;
    for (int64_t d = 0; d < devices; d++)
        next[d + 1] += next[d];
    for (int64_t i = 0; i < count; i++)
        s.task[next[tasks[i].device]++] = tasks[i];
    device_ranges(&s, first);
    memcpy(next, first, (size_t)(devices + 1) * sizeof *next);
    for (int64_t left = count, step = 0; left > 0; step++) { /* done holds step + 1 */
        const int64_t before = left;
        for (int64_t d = 0; d < devices; d++) {
            if (next[d] == first[d + 1])
                continue;
            weft_task *t = &s.task[next[d]];
            int64_t need[2];
            const int needs = prerequisites(&s, t, need);
            bool ready = true;
            for (int k = 0; k < needs; k++)
                ready = ready && done[need[k]] != 0 && done[need[k]] <= step;
            if (!ready)
                continue;
            t->step = (int32_t)step;
            done[slot(&s, t->kind, t->stage, t->microbatch)] = (int32_t)step + 1;
            next[d]++;
            left--;
        }
        if (left == before)
            WEFT_GO(weft_fail(WEFT_E_INTERNAL,
                              "schedule %s deadlocks at step %lld with %lld tasks left", name,
                              (long long)step, (long long)left));
        s.steps = step + 1;
    }
    *out = s;
out:
    weft_free(first);
    weft_free(next);
    weft_free(done);
    if (status != WEFT_OK)
        weft_schedule_free(&s);
    return status;
}

/* ---- orders that are known in closed form -------------------------------------------------- */

typedef struct order {
    weft_task *task;
    int64_t count;
} order;

static void put(order *o, int64_t device, weft_task_kind kind, int64_t stage, int64_t microbatch)
{
    o->task[o->count++] = (weft_task){.device = (int32_t)device,
                                      .stage = (int32_t)stage,
                                      .microbatch = (int32_t)microbatch,
                                      .kind = kind};
}

static void order_gpipe(order *o, const int32_t *device_of, int64_t stages, int64_t microbatches)
{
    for (int64_t s = 0; s < stages; s++)
        for (int64_t m = 0; m < microbatches; m++)
            put(o, device_of[s], WEFT_TASK_F, s, m);
    for (int64_t s = stages - 1; s >= 0; s--)
        for (int64_t m = 0; m < microbatches; m++)
            put(o, device_of[s], WEFT_TASK_B, s, m);
}

static void order_1f1b(order *o, int64_t stages, int64_t microbatches)
{
    for (int64_t d = 0; d < stages; d++) {
        int64_t warm = stages - 1 - d;
        warm = warm < microbatches ? warm : microbatches;
        for (int64_t m = 0; m < warm; m++)
            put(o, d, WEFT_TASK_F, d, m);
        for (int64_t m = 0; m < microbatches; m++) {
            if (warm + m < microbatches)
                put(o, d, WEFT_TASK_F, d, warm + m);
            put(o, d, WEFT_TASK_B, d, m);
        }
    }
}

/* Megatron's interleaved 1F1B: the k-th forward of a device is chunk (k / D) mod v of microbatch
 * (k / Dv) D + k mod D; backwards run the chunks the other way round. */
static void order_interleaved(order *o, int64_t stages, int64_t devices, int64_t microbatches)
{
    const int64_t chunks = stages / devices, total = microbatches * chunks;
    for (int64_t d = 0; d < devices; d++) {
        int64_t warm = (devices - d - 1) * 2 + (chunks - 1) * devices;
        warm = warm < total ? warm : total;
        for (int64_t k = 0; k < total + warm; k++) {
            if (k < total) {
                const int64_t chunk = k / devices % chunks;
                put(o, d, WEFT_TASK_F, chunk * devices + d,
                    k / (devices * chunks) * devices + k % devices);
            }
            if (k >= warm) {
                const int64_t b = k - warm, chunk = chunks - 1 - b / devices % chunks;
                put(o, d, WEFT_TASK_B, chunk * devices + d,
                    b / (devices * chunks) * devices + b % devices);
            }
        }
    }
}

/* ---- list scheduler ------------------------------------------------------------------------ */

enum { NO_LIMIT = INT32_MAX };

/* What a device prefers among the tasks that are ready, and how many microbatches a stage may hold.
 * In steady state a stage needs ceil(D (S - s) / S) of them to keep its device busy: that is the
 * D - d of 1F1B for S = D. `slack` adds to it. */
typedef struct rule {
    bool forward_first, young_first; /* young: the stage nearest to the input */
    int64_t slack;                   /* NO_LIMIT: as many as there are */
} rule;

typedef struct machine {
    weft_schedule *s;
    const weft_stage_times *times;
    rule rule;
    int64_t *next;      /* [3][S] next microbatch of each kind */
    int64_t *cap;       /* [S] */
    double *end;        /* [3][S][M]; NAN: not yet */
    double *free_at;    /* [D] */
    weft_task *planned; /* [D] what a device does next */
    /* [2 * leaves] and when, as a tree of minima over the devices; INFINITY: unknown */
    double *start;
    int64_t leaves; /* power of two, >= D */
    int64_t *first; /* [D + 1] into `local` */
    int64_t *local; /* [S] stages by device */
} machine;

static double duration(const weft_schedule *s, const weft_stage_times *t, weft_task_kind kind,
                       int64_t stage)
{
    const double forward = t && t->forward ? t->forward[stage] : 1;
    if (kind == WEFT_TASK_F)
        return forward;
    const double backward = t && t->backward ? t->backward[stage] : s->split ? 2 : 1;
    if (!s->split)
        return backward;
    double weight = t && t->weight ? t->weight[stage] : backward / 2;
    weight = weight < backward ? weight : backward;
    return kind == WEFT_TASK_W ? weight : backward - weight;
}

/* Seconds from the end of a task until its result is at the device of its consumer. */
static double send_seconds(const weft_schedule *s, const weft_stage_times *t, weft_task_kind kind,
                           int64_t stage)
{
    if (!t || kind == WEFT_TASK_W)
        return 0;
    const int64_t edge = kind == WEFT_TASK_F ? stage : stage - 1;
    const double *send = kind == WEFT_TASK_F ? t->send : t->send_back;
    if (!send || edge < 0 || edge + 1 >= s->stages || s->device_of[edge] == s->device_of[edge + 1])
        return 0;
    return send[edge];
}

/* When the next microbatch of (kind, stage) may start; INFINITY: something it needs has not run. */
static double ready_at(const machine *x, weft_task_kind kind, int64_t stage)
{
    const weft_schedule *s = x->s;
    const int64_t m = x->next[(int64_t)kind * s->stages + stage];
    if (m >= s->microbatches)
        return INFINITY;
    if (kind == WEFT_TASK_F && x->rule.slack != NO_LIMIT) {
        const weft_task_kind last = s->split ? WEFT_TASK_W : WEFT_TASK_B;
        const int64_t held = m - x->next[(int64_t)last * s->stages + stage];
        if (held >= x->cap[stage])
            return INFINITY;
    }
    const weft_task t = {.stage = (int32_t)stage, .microbatch = (int32_t)m, .kind = kind};
    int64_t need[2];
    double at = 0;
    const int needs = prerequisites(s, &t, need);
    for (int k = 0; k < needs; k++) {
        double end = x->end[need[k]];
        if (isnan(end))
            return INFINITY;
        const int64_t of = need[k] / s->microbatches % s->stages;
        if (of != stage)
            end += send_seconds(s, x->times, kind, of);
        at = end > at ? end : at;
    }
    return at;
}

/* Smaller is preferred: W only when nothing else is ready, then direction, then the stage. */
static int64_t preference(const machine *x, weft_task_kind kind, int64_t stage)
{
    const int64_t stages = x->s->stages;
    if (kind == WEFT_TASK_W)
        return 4 * stages + stage;
    const bool second = (kind == WEFT_TASK_F) != x->rule.forward_first;
    const int64_t depth = kind == WEFT_TASK_B   ? stage
                          : x->rule.young_first ? stage
                                                : stages - 1 - stage;
    return (second ? stages : 0) + depth;
}

/* The task that device d starts next, and when; false: none can be known yet. Among those ready at
 * the earliest possible moment the preferred one is taken. */
static bool choose(const machine *x, int64_t d, weft_task *task, double *start)
{
    const weft_schedule *s = x->s;
    double earliest = INFINITY;
    const int kinds = s->split ? 3 : 2;
    for (int64_t l = x->first[d]; l < x->first[d + 1]; l++)
        for (int kind = 0; kind < kinds; kind++) {
            const double at = ready_at(x, (weft_task_kind)kind, x->local[l]);
            earliest = at < earliest ? at : earliest;
        }
    if (isinf(earliest))
        return false;
    const double now = earliest > x->free_at[d] ? earliest : x->free_at[d];
    int64_t best = INT64_MAX;
    for (int64_t l = x->first[d]; l < x->first[d + 1]; l++)
        for (int kind = 0; kind < kinds; kind++) {
            const int64_t stage = x->local[l];
            const int64_t value = preference(x, (weft_task_kind)kind, stage);
            if (value >= best || ready_at(x, (weft_task_kind)kind, stage) > now)
                continue;
            best = value;
            *task = (weft_task){.device = (int32_t)d,
                                .stage = (int32_t)stage,
                                .microbatch = (int32_t)x->next[kind * s->stages + stage],
                                .kind = (weft_task_kind)kind};
        }
    *start = now;
    return true;
}

static void plan_device(machine *x, int64_t d)
{
    int64_t at = x->leaves + d;
    if (!choose(x, d, &x->planned[d], &x->start[at]))
        x->start[at] = INFINITY;
    for (at /= 2; at > 0; at /= 2)
        x->start[at] =
            x->start[2 * at] < x->start[2 * at + 1] ? x->start[2 * at] : x->start[2 * at + 1];
}

/* The device that starts first; ties: the lowest. -1: none can. */
static int64_t first_device(const machine *x)
{
    if (isinf(x->start[1]))
        return -1;
    int64_t at = 1;
    while (at < x->leaves)
        at = x->start[2 * at] <= x->start[2 * at + 1] ? 2 * at : 2 * at + 1;
    return at - x->leaves;
}

static weft_status machine_run(machine *x, order *o)
{
    const weft_schedule *s = x->s;
    const int64_t total = (s->split ? 3 : 2) * s->stages * s->microbatches;
    for (int64_t d = 0; d < s->devices; d++)
        plan_device(x, d);
    while (o->count < total) {
        const int64_t d = first_device(x);
        if (d < 0)
            return weft_fail(WEFT_E_INTERNAL,
                             "the list scheduler is stuck with %lld of %lld tasks left",
                             (long long)(total - o->count), (long long)total);
        const weft_task best = x->planned[d];
        const double end = x->start[x->leaves + d] + duration(s, x->times, best.kind, best.stage);
        x->end[slot(s, best.kind, best.stage, best.microbatch)] = end;
        x->next[(int64_t)best.kind * s->stages + best.stage]++;
        x->free_at[d] = end;
        if (x->times && x->times->blocking)
            x->free_at[d] += send_seconds(s, x->times, best.kind, best.stage);
        /* only the device itself and those that wait for this result may decide otherwise now */
        plan_device(x, d);
        if (best.stage > 0)
            plan_device(x, s->device_of[best.stage - 1]);
        if (best.stage + 1 < s->stages)
            plan_device(x, s->device_of[best.stage + 1]);
        o->task[o->count++] = best;
    }
    return WEFT_OK;
}

/* Fills `o` by the rule; `s` has the sizes and the map. */
static weft_status order_by_rule(weft_schedule *s, const weft_stage_times *times, rule r, order *o)
{
    const int64_t stages = s->stages, devices = s->devices, i64 = (int64_t)sizeof(int64_t);
    machine x = {.s = s, .times = times, .rule = r};
    x.next = weft_alloc(3 * stages * i64);
    x.cap = weft_alloc(stages * i64);
    x.local = weft_alloc(stages * i64);
    x.first = weft_alloc((devices + 2) * i64);
    x.end = weft_alloc(3 * stages * s->microbatches * (int64_t)sizeof(double));
    x.free_at = weft_alloc(devices * (int64_t)sizeof(double));
    for (x.leaves = 1; x.leaves < devices;)
        x.leaves *= 2;
    x.start = weft_alloc(2 * x.leaves * (int64_t)sizeof(double));
    x.planned = weft_alloc(devices * (int64_t)sizeof(weft_task));
    weft_status_code status = WEFT_OK;
    if (!x.next || !x.cap || !x.local || !x.first || !x.end || !x.free_at || !x.start || !x.planned)
        WEFT_GO(out_of_memory(stages, s->microbatches));
    for (int64_t i = 0; i < 3 * stages * s->microbatches; i++)
        x.end[i] = NAN;
    for (int64_t i = 0; i < stages; i++) {
        x.cap[i] =
            (devices * (stages - i) + stages - 1) / stages + (r.slack == NO_LIMIT ? 0 : r.slack);
        x.cap[i] = x.cap[i] < 1 ? 1 : x.cap[i];
        x.first[s->device_of[i] + 2]++;
    }
    for (int64_t at = 0; at < 2 * x.leaves; at++)
        x.start[at] = INFINITY;
    for (int64_t d = 0; d < devices; d++)
        x.first[d + 2] += x.first[d + 1];
    for (int64_t i = 0; i < stages; i++)
        x.local[x.first[s->device_of[i] + 1]++] = i;
    o->count = 0;
    WEFT_GO(machine_run(&x, o));
out:
    weft_free(x.next);
    weft_free(x.cap);
    weft_free(x.local);
    weft_free(x.first);
    weft_free(x.end);
    weft_free(x.free_at);
    weft_free(x.start);
    weft_free(x.planned);
    return status;
}

static double highest(const double *values, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

/* Whether every device has room for what its stages hold at most; `peak` is scratch. */
static weft_status within_memory(const weft_schedule *s, const weft_stage_times *t, double *peak,
                                 bool *fits)
{
    *fits = true;
    if (!t || !(t->memory > 0) || !t->activation)
        return WEFT_OK;
    WEFT_TRY(weft_schedule_memory(s, t->activation, NULL, peak));
    for (int64_t stage = 0; t->fixed && stage < s->stages; stage++)
        peak[s->device_of[stage]] += t->fixed[stage];
    *fits = highest(peak, s->devices) <= t->memory;
    return WEFT_OK;
}

/* Tries every rule, guided by the real times, by those without sends, and by unit steps (a list
 * scheduler may be led astray by small differences); keeps the shortest by the clock, then the one
 * that holds least. */
static weft_status best_rule(const char *name, weft_schedule *shape, const weft_stage_times *times,
                             order *o, weft_schedule *out)
{
    double *peak = weft_alloc(shape->devices * (int64_t)sizeof *peak);
    if (!peak)
        return out_of_memory(shape->stages, shape->microbatches);
    weft_status_code status = WEFT_OK;
    weft_schedule best = {0}, trial = {0};
    double best_seconds = INFINITY, best_peak = INFINITY;
    bool best_fits = false;
    /* those that hold less than keeps every device busy are for where memory is short */
    const int64_t slacks[] = {0, 1, 2, 3, shape->devices - 1, NO_LIMIT, -1, -2, -3};
    const int rules = 4 * (times && times->memory > 0 ? 9 : 6);
    weft_stage_times without = times ? *times : (weft_stage_times){0};
    without.send = without.send_back = NULL;
    const weft_stage_times *guides[] = {times, times ? &without : NULL, NULL};
    /* tables of many tasks are tried with fewer rules, the plain ones first */
    const double tasks = 3.0 * (double)shape->stages * (double)shape->microbatches;
    int left = tasks < 4e5 ? 3 * rules : tasks < 4e6 ? (int)(3e7 / tasks) : 4;
    for (int guide = 0; guide < (times ? 3 : 1); guide++)
        for (int k = 0; k < rules && left > 0; k++, left--) {
            const rule r = {k & 1, k >> 1 & 1, slacks[k / 4]};
            WEFT_GO(order_by_rule(shape, guides[guide], r, o));
            WEFT_GO(weft_schedule_from_order(name, shape->device_of, shape->stages, shape->devices,
                                             shape->microbatches, shape->split, o->task, o->count,
                                             &trial));
            weft_schedule_timing timing;
            WEFT_GO(weft_schedule_time(&trial, times, &timing));
            WEFT_GO(weft_schedule_memory(&trial, NULL, NULL, peak));
            const double held = highest(peak, shape->devices);
            const double tie = best_seconds * 1e-9;
            bool fits;
            WEFT_GO(within_memory(&trial, times, peak, &fits));
            if (fits != best_fits
                    ? fits
                    : timing.seconds < best_seconds - (isinf(tie) ? 0 : tie) ||
                          (timing.seconds <= best_seconds + tie && held < best_peak)) {
                best_fits = fits;
                weft_schedule_free(&best);
                best = trial;
                trial = (weft_schedule){0};
                best_seconds = timing.seconds;
                best_peak = held;
            }
            weft_schedule_free(&trial);
        }
    *out = best;
    best = (weft_schedule){0};
out:
    weft_schedule_free(&best);
    weft_schedule_free(&trial);
    weft_free(peak);
    return status;
}

/* ---- the front ----------------------------------------------------------------------------- */

static weft_status check_shape(const int32_t *device_of, int64_t stages, int64_t devices,
                               int64_t microbatches)
{
    if (stages < 1 || devices < 1 || microbatches < 1)
        return weft_fail(WEFT_E_ARG,
                         "a schedule needs at least one stage, device and microbatch; got "
                         "%lld, %lld, %lld",
                         (long long)stages, (long long)devices, (long long)microbatches);
    if ((double)stages * (double)microbatches > 2e7)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%lld stages x %lld microbatches are more than a schedule "
                         "table holds (20 million); use fewer microbatches, the pattern repeats",
                         (long long)stages, (long long)microbatches);
    for (int64_t s = 0; s < stages; s++)
        if (device_of[s] < 0 || device_of[s] >= devices)
            return weft_fail(WEFT_E_ARG, "stage %lld is on device %d of %lld", (long long)s,
                             (int)device_of[s], (long long)devices);
    return WEFT_OK;
}

static weft_status check_kind(weft_schedule_kind kind, const int32_t *device_of, int64_t stages,
                              int64_t devices, int64_t microbatches)
{
    if (kind == WEFT_SCHEDULE_1F1B)
        for (int64_t s = 0; s < stages; s++)
            if (stages != devices || device_of[s] != s)
                return weft_fail(WEFT_E_INFEASIBLE,
                                 "1f1b needs as many stages as devices, in order; "
                                 "there are %lld and %lld",
                                 (long long)stages, (long long)devices);
    if (kind == WEFT_SCHEDULE_INTERLEAVED) {
        if (stages % devices != 0 || stages == devices || microbatches % devices != 0)
            return weft_fail(WEFT_E_INFEASIBLE,
                             "interleaved needs stages (%lld), twice or more, and "
                             "microbatches (%lld) in multiples of the devices (%lld)",
                             (long long)stages, (long long)microbatches, (long long)devices);
        for (int64_t s = 0; s < stages; s++)
            if (device_of[s] != s % devices)
                return weft_fail(WEFT_E_INFEASIBLE,
                                 "interleaved needs stage s on device s mod %lld",
                                 (long long)devices);
    }
    if (kind == WEFT_SCHEDULE_WAVE)
        for (int64_t s = 0; s < stages; s++)
            if (device_of[s] != device_of[stages - 1 - s])
                return weft_fail(WEFT_E_INFEASIBLE,
                                 "wave needs stage %lld and its mirror image on one "
                                 "device",
                                 (long long)s);
    return WEFT_OK;
}

weft_status weft_schedule_make(weft_schedule_kind kind, const int32_t *device_of, int64_t stages,
                               int64_t devices, int64_t microbatches, const weft_stage_times *times,
                               weft_schedule *out)
{
    WEFT_TRY(check_shape(device_of, stages, devices, microbatches));
    WEFT_TRY(check_kind(kind, device_of, stages, devices, microbatches));
    const char *name = weft_schedule_kind_name(kind);
    weft_schedule shape = {.name = name,
                           .devices = devices,
                           .stages = stages,
                           .microbatches = microbatches,
                           .split = kind == WEFT_SCHEDULE_ZERO_BUBBLE};
    order o = {.task = weft_alloc(3 * stages * microbatches * (int64_t)sizeof(weft_task))};
    shape.device_of = weft_alloc(stages * (int64_t)sizeof *device_of);
    weft_status_code status = WEFT_OK;
    if (!o.task || !shape.device_of)
        WEFT_GO(out_of_memory(stages, microbatches));
    memcpy(shape.device_of, device_of, (size_t)stages * sizeof *device_of);
    switch (kind) {
    case WEFT_SCHEDULE_GPIPE: order_gpipe(&o, device_of, stages, microbatches); break;
    case WEFT_SCHEDULE_1F1B: order_1f1b(&o, stages, microbatches); break;
    case WEFT_SCHEDULE_INTERLEAVED: order_interleaved(&o, stages, devices, microbatches); break;
    default: WEFT_GO(best_rule(name, &shape, times, &o, out)); goto out;
    }
    WEFT_GO(weft_schedule_from_order(name, device_of, stages, devices, microbatches, false, o.task,
                                     o.count, out));
out:
    weft_free(o.task);
    weft_free(shape.device_of);
    return status;
}

weft_status weft_schedule_check(const weft_schedule *s)
{
    WEFT_TRY(check_shape(s->device_of, s->stages, s->devices, s->microbatches));
    const int64_t cells = 3 * s->stages * s->microbatches;
    int32_t *at = weft_alloc(cells * (int64_t)sizeof *at); /* step + 1 */
    weft_task *sorted = weft_alloc((s->task_count + 1) * (int64_t)sizeof *sorted);
    weft_status_code status = WEFT_OK;
    if (!at || !sorted)
        WEFT_GO(out_of_memory(s->stages, s->microbatches));
    for (int64_t i = 0; i < s->task_count; i++) {
        const weft_task *t = &s->task[i];
        if (t->stage < 0 || t->stage >= s->stages || t->microbatch < 0 ||
            t->microbatch >= s->microbatches || t->step < 0 || t->kind < 0 ||
            t->kind > (s->split ? WEFT_TASK_W : WEFT_TASK_B))
            WEFT_GO(weft_fail(WEFT_E_ARG,
                              "task %lld: stage %d, microbatch %d, step %d or its kind is "
                              "out of range",
                              (long long)i, t->stage, t->microbatch, t->step));
        if (t->device != s->device_of[t->stage])
            WEFT_GO(weft_fail(WEFT_E_ARG, "task %lld: stage %d is on device %d, not %d",
                              (long long)i, t->stage, s->device_of[t->stage], t->device));
        int32_t *cell = &at[slot(s, t->kind, t->stage, t->microbatch)];
        if (*cell != 0)
            WEFT_GO(weft_fail(WEFT_E_ARG, "%c of stage %d, microbatch %d is there twice",
                              "FBW"[t->kind], t -> stage, t -> microbatch));
        *cell = t->step + 1;
    }
    if (s->task_count != (s->split ? 3 : 2) * s->stages * s->microbatches)
        WEFT_GO(weft_fail(WEFT_E_ARG, "%lld tasks; %lld stages x %lld microbatches need %lld",
                          (long long)s->task_count, (long long)s->stages,
                          (long long)s->microbatches,
                          (long long)((s->split ? 3 : 2) * s->stages * s->microbatches)));
    memcpy(sorted, s->task, (size_t)s->task_count * sizeof *sorted);
    qsort(sorted, (size_t)s->task_count, sizeof *sorted, by_device_then_step);
    for (int64_t i = 0; i < s->task_count; i++) {
        const weft_task *t = &sorted[i];
        if (i > 0 && t->device == t[-1].device && t->step == t[-1].step)
            WEFT_GO(
                weft_fail(WEFT_E_ARG, "device %d has two tasks at step %d", t->device, t->step));
        int64_t need[2];
        const int needs = prerequisites(s, t, need);
        for (int k = 0; k < needs; k++)
            if (at[need[k]] > t->step)
                WEFT_GO(weft_fail(WEFT_E_ARG,
                                  "%c of stage %d, microbatch %d at step %d comes before "
                                  "what it needs (step %d)",
                                  "FBW"[t->kind], t -> stage, t -> microbatch, t -> step,
                                  at[need[k]] - 1));
        if (t->microbatch > 0 && at[slot(s, t->kind, t->stage, t->microbatch - 1)] > t->step)
            WEFT_GO(weft_fail(WEFT_E_ARG, "%c of stage %d takes microbatch %d before %d",
                              "FBW"[t->kind], t -> stage, t -> microbatch, t -> microbatch - 1));
    }
out:
    weft_free(at);
    weft_free(sorted);
    return status;
}

weft_status weft_schedule_time(weft_schedule *s, const weft_stage_times *times,
                               weft_schedule_timing *out)
{
    int64_t *first = weft_alloc((s->devices + 1) * (int64_t)sizeof *first);
    int64_t *next = weft_alloc((s->devices + 1) * (int64_t)sizeof *next);
    double *end = weft_alloc(3 * s->stages * s->microbatches * (int64_t)sizeof *end);
    double *free_at = weft_alloc(s->devices * (int64_t)sizeof *free_at);
    weft_status_code status = WEFT_OK;
    weft_schedule_timing timing = {0};
    if (!first || !next || !end || !free_at)
        WEFT_GO(out_of_memory(s->stages, s->microbatches));
    for (int64_t i = 0; i < 3 * s->stages * s->microbatches; i++)
        end[i] = NAN;
    device_ranges(s, first);
    memcpy(next, first, (size_t)(s->devices + 1) * sizeof *next);
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t d = 0; d < s->devices; d++)
            for (; next[d] < first[d + 1]; next[d]++) {
                weft_task *t = &s->task[next[d]];
                int64_t need[2];
                const int needs = prerequisites(s, t, need);
                double start = free_at[d];
                for (int k = 0; k < needs; k++) {
                    const int64_t of = need[k] / s->microbatches % s->stages;
                    const double at =
                        end[need[k]] + (of == t->stage ? 0 : send_seconds(s, times, t->kind, of));
                    start = !(at <= start) ? at : start; /* NAN wins: not known yet */
                }
                if (isnan(start))
                    break;
                t->start = start;
                t->end = start + duration(s, times, t->kind, t->stage);
                end[slot(s, t->kind, t->stage, t->microbatch)] = t->end;
                free_at[d] = t->end;
                if (times && times->blocking)
                    free_at[d] += send_seconds(s, times, t->kind, t->stage);
                timing.busy += t->end - t->start;
                timing.seconds = t->end > timing.seconds ? t->end : timing.seconds;
                moved = true;
            }
    }
    for (int64_t d = 0; d < s->devices; d++)
        if (next[d] != first[d + 1])
            WEFT_GO(
                weft_fail(WEFT_E_ARG, "the order of device %lld waits for itself", (long long)d));
    if (timing.seconds > 0)
        timing.idle = 1 - timing.busy / (timing.seconds * (double)s->devices);
    *out = timing;
out:
    weft_free(first);
    weft_free(next);
    weft_free(end);
    weft_free(free_at);
    return status;
}

weft_status weft_schedule_memory(const weft_schedule *s, const double *activation, double *timeline,
                                 double *peak)
{
    /* change[step]: what appears at a step; what a step frees is gone at the next */
    double *change = weft_alloc((s->steps + 1) * (int64_t)sizeof *change);
    if (!change)
        return out_of_memory(s->stages, s->microbatches);
    const weft_task_kind last = s->split ? WEFT_TASK_W : WEFT_TASK_B;
    int64_t i = 0;
    for (int64_t d = 0; d < s->devices; d++) {
        memset(change, 0, (size_t)(s->steps + 1) * sizeof *change);
        for (; i < s->task_count && s->task[i].device == d; i++) {
            const double bytes = activation ? activation[s->task[i].stage] : 1;
            if (s->task[i].kind == WEFT_TASK_F)
                change[s->task[i].step] += bytes;
            if (s->task[i].kind == last)
                change[s->task[i].step + 1] -= bytes;
        }
        double held = 0;
        peak[d] = 0;
        for (int64_t step = 0; step < s->steps; step++) {
            held += change[step];
            peak[d] = held > peak[d] ? held : peak[d];
            if (timeline)
                timeline[d * s->steps + step] = held > 0 ? held : 0;
        }
    }
    weft_free(change);
    return WEFT_OK;
}

int64_t weft_schedule_lower_bound(const int32_t *device_of, int64_t stages, int64_t devices,
                                  int64_t microbatches)
{
    /* a microbatch alone; the first one's way, then a device step per following microbatch */
    int64_t bound = 2 * stages;
    for (int64_t d = 0; d < devices; d++) {
        int64_t first = stages, count = 0;
        for (int64_t s = stages - 1; s >= 0; s--)
            if (device_of[s] == d) {
                first = s;
                count++;
            }
        /* the device waits for its first stage; after its last B the gradient has as far to go */
        if (count > 0 && 2 * count * microbatches + 2 * first > bound)
            bound = 2 * count * microbatches + 2 * first;
    }
    return bound;
}

double weft_pipeline_bytes(const weft_pipe_costs *costs, const weft_partition *partition,
                           const int32_t *device_of, bool relay_all, double *per_boundary)
{
    double total = 0;
    for (int64_t s = 0; s + 1 < partition->stages; s++) {
        double bytes = 0;
        if (device_of[s] != device_of[s + 1]) {
            bytes = costs->op[partition->cut[s + 1] - 1].output_bytes;
            for (int64_t k = 0; k < costs->skip_count; k++) {
                const int64_t from = weft_partition_stage_of(partition, costs->skip[k].from);
                const int64_t to = weft_partition_stage_of(partition, costs->skip[k].to);
                if (costs->skip[k].to > costs->skip[k].from + 1 && from <= s && to > s &&
                    (relay_all || device_of[from] != device_of[to]))
                    bytes += costs->skip[k].bytes;
            }
        }
        if (per_boundary)
            per_boundary[s] = bytes;
        total += bytes;
    }
    return total;
}
