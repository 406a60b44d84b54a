#include "plan/pipeline/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *weft_pp_schedule_kind_name(weft_pp_schedule_kind kind)
{
    static const char *const names[] = {"gpipe", "1f1b",        "interleaved",
                                        "wave",  "zero-bubble", "greedy"};
    return kind >= 0 && kind < WEFT_PP_SCHEDULE_KIND_COUNT ? names[kind] : "?";
}

void weft_pp_schedule_free(weft_pp_schedule *schedule)
{
    if (!schedule)
        return;
    weft_free(schedule->device_of);
    weft_free(schedule->task);
    *schedule = (weft_pp_schedule){0};
}

void weft_pp_stage_map_fill(weft_pp_stage_map map, int64_t pp_stages, int64_t devices,
                            int32_t *device_of)
{
    for (int64_t s = 0; s < pp_stages; s++) {
        if (map == WEFT_MAP_ROUND) {
            device_of[s] = (int32_t)(s % devices);
            continue;
        }
        const int64_t mirrored = s < pp_stages - 1 - s ? s : pp_stages - 1 - s;
        const int64_t position = mirrored % (2 * devices);
        device_of[s] = (int32_t)(position < devices ? position : 2 * devices - 1 - position);
    }
}

static weft_status out_of_memory(int64_t pp_stages, int64_t microbatches)
{
    return weft_no_memory("a schedule of %" PRId64 " stages and %" PRId64 " microbatches",
                          pp_stages, microbatches);
}

/* Index of (kind, stage, microbatch) in tables of 3 * S * M. */
static int64_t slot(const weft_pp_schedule *s, weft_task_kind kind, int64_t pp_stage,
                    int64_t microbatch)
{
    return ((int64_t)kind * s->pp_stages + pp_stage) * s->microbatches + microbatch;
}

/* Returns the tasks that must end before this one starts, at most two. */
static int prerequisites(const weft_pp_schedule *s, const weft_task *t, int64_t need[2])
{
    int count = 0;
    switch (t->kind) {
    case WEFT_TASK_F:
        if (t->pp_stage > 0)
            need[count++] = slot(s, WEFT_TASK_F, t->pp_stage - 1, t->microbatch);
        break;
    case WEFT_TASK_B:
        need[count++] = slot(s, WEFT_TASK_F, t->pp_stage, t->microbatch);
        if (t->pp_stage + 1 < s->pp_stages)
            need[count++] = slot(s, WEFT_TASK_B, t->pp_stage + 1, t->microbatch);
        break;
    case WEFT_TASK_W: need[count++] = slot(s, WEFT_TASK_B, t->pp_stage, t->microbatch); break;
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

char weft_task_letter(weft_task_kind kind)
{
    return "FBW"[kind];
}

/* Sets first[d] .. first[d + 1] to the range of device d in `schedule->task`. */
static void device_ranges(const weft_pp_schedule *s, int64_t *first)
{
    for (int64_t d = 0; d <= s->devices; d++)
        first[d] = 0;
    for (int64_t i = 0; i < s->task_count; i++)
        first[s->task[i].device + 1]++;
    for (int64_t d = 0; d < s->devices; d++)
        first[d + 1] += first[d];
}

/* Copies the tasks of `order` to s->task, grouped by device; each device's order is kept. `next` is
 * work of devices + 1 entries, zeroed. */
static void group_by_device(const weft_pp_schedule *order, weft_pp_schedule *s, int64_t *next)
{
    for (int64_t i = 0; i < order->task_count; i++)
        next[order->task[i].device + 1]++;
    for (int64_t d = 0; d < order->devices; d++)
        next[d + 1] += next[d];
    for (int64_t i = 0; i < order->task_count; i++)
        s->task[next[order->task[i].device]++] = order->task[i];
}

/* Gives every task its earliest step. The tasks of device d are first[d] .. first[d + 1]; `next` is
 * a copy of `first`, and `done` zeroed work of 3 * stages * microbatches entries. */
static weft_status set_steps(weft_pp_schedule *s, const int64_t *first, int64_t *next,
                             int32_t *done)
{
    for (int64_t left = s->task_count, step = 0; left > 0; step++) { /* done holds step + 1 */
        const int64_t before = left;
        for (int64_t d = 0; d < s->devices; d++) {
            if (next[d] == first[d + 1])
                continue;
            weft_task *t = &s->task[next[d]];
            int64_t need[2];
            const int needs = prerequisites(s, t, need);
            bool ready = true;
            for (int k = 0; k < needs; k++)
                ready = ready && done[need[k]] != 0 && done[need[k]] <= step;
            if (!ready)
                continue;
            t->step = (int32_t)step;
            done[slot(s, t->kind, t->pp_stage, t->microbatch)] = (int32_t)step + 1;
            next[d]++;
            left--;
        }
        if (left == before)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.value = s->name),
                              "schedule %s deadlocks at step %" PRId64 " with %" PRId64
                              " tasks left",
                              s->name, step, left);
        s->steps = step + 1;
    }
    return WEFT_OK;
}

weft_status weft_pp_schedule_from_order(const weft_pp_schedule *order, weft_pp_schedule *out)
{
    weft_pp_schedule s = *order;
    s.steps = 0;
    int64_t *first = weft_calloc(s.devices + 1, sizeof *first);
    int64_t *next = weft_calloc(s.devices + 1, sizeof *next);
    int32_t *done = weft_calloc(3 * s.pp_stages * s.microbatches, sizeof *done);
    s.device_of = weft_calloc(s.pp_stages, sizeof *s.device_of);
    s.task = weft_calloc(s.task_count, sizeof *s.task);
    weft_status_code status = WEFT_OK;
    if (!first || !next || !done || !s.device_of || !s.task)
        WEFT_GO(out_of_memory(s.pp_stages, s.microbatches));
    memcpy(s.device_of, order->device_of, (size_t)s.pp_stages * sizeof *s.device_of);
    group_by_device(order, &s, next);
    device_ranges(&s, first);
    memcpy(next, first, (size_t)(s.devices + 1) * sizeof *next);
    WEFT_GO(set_steps(&s, first, next, done));
    *out = s;
out:
    weft_free(first);
    weft_free(next);
    weft_free(done);
    if (status != WEFT_OK)
        weft_pp_schedule_free(&s);
    return status;
}

/* ---- orders in closed form ------------------------------------------------------------------- */

typedef struct order {
    weft_task *task;
    int64_t count;
} order;

static void put(order *o, int64_t device, weft_task_kind kind, int64_t pp_stage, int64_t microbatch)
{
    o->task[o->count++] = (weft_task){.device = (int32_t)device,
                                      .pp_stage = (int32_t)pp_stage,
                                      .microbatch = (int32_t)microbatch,
                                      .kind = kind};
}

static void order_gpipe(order *o, const int32_t *device_of, int64_t pp_stages, int64_t microbatches)
{
    for (int64_t s = 0; s < pp_stages; s++)
        for (int64_t m = 0; m < microbatches; m++)
            put(o, device_of[s], WEFT_TASK_F, s, m);
    for (int64_t s = pp_stages - 1; s >= 0; s--)
        for (int64_t m = 0; m < microbatches; m++)
            put(o, device_of[s], WEFT_TASK_B, s, m);
}

static void order_1f1b(order *o, int64_t pp_stages, int64_t microbatches)
{
    for (int64_t d = 0; d < pp_stages; d++) {
        int64_t warm = pp_stages - 1 - d;
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

/* Megatron's interleaved 1F1B: the k-th forward of a device is model chunk (k / D) mod v of
 * microbatch (k / Dv) D + k mod D; backwards take the model chunks in reverse order. */
static void order_interleaved(order *o, int64_t pp_stages, int64_t devices, int64_t microbatches)
{
    const int64_t chunks = pp_stages / devices, total = microbatches * chunks;
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

/* ---- list scheduler -------------------------------------------------------------------------- */

enum { NO_LIMIT = INT32_MAX };

/* Preference of a device among ready tasks, and limit of the microbatches that a stage may hold. In
 * steady state a stage needs ceil(D (S - s) / S) microbatches to keep its device busy: the D - d of
 * 1F1B for S = D. `slack` adds to this number. */
typedef struct rule {
    bool forward_first, young_first; /* young: the stage nearest to the input */
    int64_t slack;                   /* NO_LIMIT: all microbatches */
} rule;

typedef struct machine {
    weft_pp_schedule *s;
    const weft_pp_stage_times *times;
    rule rule;
    int64_t *next;      /* [3][S] next microbatch by kind */
    int64_t *cap;       /* [S] limit of held microbatches */
    double *end;        /* [3][S][M]; NAN: has not run */
    double *free_at;    /* [D] */
    weft_task *planned; /* [D] next task of a device */
    /* [2 * leaves] start of `planned`, as a tree of minima over the devices; INFINITY: unknown */
    double *start;
    int64_t leaves; /* power of two, >= D */
    int64_t *first; /* [D + 1] into `local` */
    int64_t *local; /* [S] stages by device */
} machine;

static double duration(const weft_pp_schedule *s, const weft_pp_stage_times *t, weft_task_kind kind,
                       int64_t pp_stage)
{
    const double forward = t && t->forward ? t->forward[pp_stage] : 1;
    if (kind == WEFT_TASK_F)
        return forward;
    const double backward = t && t->backward ? t->backward[pp_stage] : s->split ? 2 : 1;
    if (!s->split)
        return backward;
    double weight = t && t->weight ? t->weight[pp_stage] : backward / 2;
    weight = weight < backward ? weight : backward;
    return kind == WEFT_TASK_W ? weight : backward - weight;
}

/* Seconds from the end of a task until its result is on the device of its consumer. */
static double send_seconds(const weft_pp_schedule *s, const weft_pp_stage_times *t,
                           weft_task_kind kind, int64_t pp_stage)
{
    if (!t || kind == WEFT_TASK_W)
        return 0;
    const int64_t edge = kind == WEFT_TASK_F ? pp_stage : pp_stage - 1;
    const double *send = kind == WEFT_TASK_F ? t->send : t->send_back;
    if (!send || edge < 0 || edge + 1 >= s->pp_stages ||
        s->device_of[edge] == s->device_of[edge + 1])
        return 0;
    return send[edge];
}

/* Returns the earliest start of the next microbatch of (kind, stage). INFINITY: a prerequisite has
 * not run. */
static double ready_at(const machine *x, weft_task_kind kind, int64_t pp_stage)
{
    const weft_pp_schedule *s = x->s;
    const int64_t m = x->next[(int64_t)kind * s->pp_stages + pp_stage];
    if (m >= s->microbatches)
        return INFINITY;
    if (kind == WEFT_TASK_F && x->rule.slack != NO_LIMIT) {
        const weft_task_kind last = s->split ? WEFT_TASK_W : WEFT_TASK_B;
        const int64_t held = m - x->next[(int64_t)last * s->pp_stages + pp_stage];
        if (held >= x->cap[pp_stage])
            return INFINITY;
    }
    const weft_task t = {.pp_stage = (int32_t)pp_stage, .microbatch = (int32_t)m, .kind = kind};
    int64_t need[2];
    double at = 0;
    const int needs = prerequisites(s, &t, need);
    for (int k = 0; k < needs; k++) {
        double end = x->end[need[k]];
        if (isnan(end))
            return INFINITY;
        const int64_t of = need[k] / s->microbatches % s->pp_stages;
        if (of != pp_stage)
            end += send_seconds(s, x->times, kind, of);
        at = end > at ? end : at;
    }
    return at;
}

/* Smaller is preferred: W only if nothing else is ready, then direction, then the stage. */
static int64_t preference(const machine *x, weft_task_kind kind, int64_t pp_stage)
{
    const int64_t pp_stages = x->s->pp_stages;
    if (kind == WEFT_TASK_W)
        return 4 * pp_stages + pp_stage;
    const bool second = (kind == WEFT_TASK_F) != x->rule.forward_first;
    const int64_t depth = kind == WEFT_TASK_B   ? pp_stage
                          : x->rule.young_first ? pp_stage
                                                : pp_stages - 1 - pp_stage;
    return (second ? pp_stages : 0) + depth;
}

/* Returns the task that device d starts next, and its start; false: none is known yet. Takes the
 * preferred task among those ready at the earliest possible time. */
static bool choose(const machine *x, int64_t d, weft_task *task, double *start)
{
    const weft_pp_schedule *s = x->s;
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
            const int64_t pp_stage = x->local[l];
            const int64_t value = preference(x, (weft_task_kind)kind, pp_stage);
            if (value >= best || ready_at(x, (weft_task_kind)kind, pp_stage) > now)
                continue;
            best = value;
            *task = (weft_task){.device = (int32_t)d,
                                .pp_stage = (int32_t)pp_stage,
                                .microbatch = (int32_t)x->next[kind * s->pp_stages + pp_stage],
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

/* Returns the device that starts first; ties: the lowest. -1: none can start. */
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
    const weft_pp_schedule *s = x->s;
    const int64_t total = (s->split ? 3 : 2) * s->pp_stages * s->microbatches;
    for (int64_t d = 0; d < s->devices; d++)
        plan_device(x, d);
    while (o->count < total) {
        const int64_t d = first_device(x);
        if (d < 0)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "the list scheduler has no ready task, with %" PRId64 " of %" PRId64
                              " tasks left",
                              total - o->count, total);
        const weft_task best = x->planned[d];
        const double end =
            x->start[x->leaves + d] + duration(s, x->times, best.kind, best.pp_stage);
        x->end[slot(s, best.kind, best.pp_stage, best.microbatch)] = end;
        x->next[(int64_t)best.kind * s->pp_stages + best.pp_stage]++;
        x->free_at[d] = end;
        if (x->times && x->times->blocking)
            x->free_at[d] += send_seconds(s, x->times, best.kind, best.pp_stage);
        /* only this device and the consumers of this result may now choose another task */
        plan_device(x, d);
        if (best.pp_stage > 0)
            plan_device(x, s->device_of[best.pp_stage - 1]);
        if (best.pp_stage + 1 < s->pp_stages)
            plan_device(x, s->device_of[best.pp_stage + 1]);
        o->task[o->count++] = best;
    }
    return WEFT_OK;
}

/* Fills `o` by the rule; `s` has the sizes and the map. */
static weft_status order_by_rule(weft_pp_schedule *s, const weft_pp_stage_times *times, rule r,
                                 order *o)
{
    const int64_t pp_stages = s->pp_stages, devices = s->devices, i64 = (int64_t)sizeof(int64_t);
    machine x = {.s = s, .times = times, .rule = r};
    x.next = weft_alloc(3 * pp_stages * i64);
    x.cap = weft_alloc(pp_stages * i64);
    x.local = weft_alloc(pp_stages * i64);
    x.first = weft_alloc((devices + 2) * i64);
    x.end = weft_calloc(3 * pp_stages * s->microbatches, sizeof(double));
    x.free_at = weft_calloc(devices, sizeof(double));
    for (x.leaves = 1; x.leaves < devices;)
        x.leaves *= 2;
    x.start = weft_calloc(2 * x.leaves, sizeof(double));
    x.planned = weft_calloc(devices, sizeof(weft_task));
    weft_status_code status = WEFT_OK;
    if (!x.next || !x.cap || !x.local || !x.first || !x.end || !x.free_at || !x.start || !x.planned)
        WEFT_GO(out_of_memory(pp_stages, s->microbatches));
    for (int64_t i = 0; i < 3 * pp_stages * s->microbatches; i++)
        x.end[i] = NAN;
    for (int64_t i = 0; i < pp_stages; i++) {
        x.cap[i] = (devices * (pp_stages - i) + pp_stages - 1) / pp_stages +
                   (r.slack == NO_LIMIT ? 0 : r.slack);
        x.cap[i] = x.cap[i] < 1 ? 1 : x.cap[i];
        x.first[s->device_of[i] + 2]++;
    }
    for (int64_t at = 0; at < 2 * x.leaves; at++)
        x.start[at] = INFINITY;
    for (int64_t d = 0; d < devices; d++)
        x.first[d + 2] += x.first[d + 1];
    for (int64_t i = 0; i < pp_stages; i++)
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

/* Checks that every device has memory for the peak of its stages; `peak` is scratch. */
static weft_status within_memory(const weft_pp_schedule *s, const weft_pp_stage_times *t,
                                 double *peak, bool *fits)
{
    *fits = true;
    if (!t || !(t->memory > 0) || !t->activation)
        return WEFT_OK;
    WEFT_TRY(weft_pp_schedule_memory(s, t->activation, NULL, peak));
    for (int64_t pp_stage = 0; t->fixed && pp_stage < s->pp_stages; pp_stage++)
        peak[s->device_of[pp_stage]] += t->fixed[pp_stage];
    *fits = highest(peak, s->devices) <= t->memory;
    return WEFT_OK;
}

/* Tries every rule, guided by the real times, by the times without sends, and by unit steps,
 * because small differences can mislead a list scheduler. Keeps the schedule of fewest seconds, and
 * among equals the smallest peak. */
static weft_status best_rule(weft_pp_schedule *shape, const weft_pp_stage_times *times, order *o,
                             weft_pp_schedule *out)
{
    double *peak = weft_calloc(shape->devices, sizeof *peak);
    if (!peak)
        return out_of_memory(shape->pp_stages, shape->microbatches);
    weft_status_code status = WEFT_OK;
    weft_pp_schedule best = {0}, trial = {0};
    double best_seconds = INFINITY, best_peak = INFINITY;
    bool best_fits = false;
    /* negative slacks do not keep every device busy: only if memory is limited */
    const int64_t slacks[] = {0, 1, 2, 3, shape->devices - 1, NO_LIMIT, -1, -2, -3};
    const int rules = 4 * (times && times->memory > 0 ? 9 : 6);
    weft_pp_stage_times without = times ? *times : (weft_pp_stage_times){0};
    without.send = without.send_back = NULL;
    const weft_pp_stage_times *guides[] = {times, times ? &without : NULL, NULL};
    /* tables of many tasks try fewer rules, the plain ones first */
    const double tasks = 3.0 * (double)shape->pp_stages * (double)shape->microbatches;
    int left = tasks < 4e5 ? 3 * rules : tasks < 4e6 ? (int)(3e7 / tasks) : 4;
    for (int index = 0; index < (times ? 3 : 1); index++)
        for (int k = 0; k < rules && left > 0; k++, left--) {
            const rule r = {k & 1, k >> 1 & 1, slacks[k / 4]};
            WEFT_GO(order_by_rule(shape, guides[index], r, o));
            weft_pp_schedule tasks_in_order = *shape;
            tasks_in_order.task = o->task;
            tasks_in_order.task_count = o->count;
            WEFT_GO(weft_pp_schedule_from_order(&tasks_in_order, &trial));
            weft_pp_schedule_timing timing;
            WEFT_GO(weft_pp_schedule_time(&trial, times, &timing));
            WEFT_GO(weft_pp_schedule_memory(&trial, NULL, NULL, peak));
            const double held = highest(peak, shape->devices);
            const double tie = best_seconds * 1e-9;
            bool fits;
            WEFT_GO(within_memory(&trial, times, peak, &fits));
            if (fits != best_fits
                    ? fits
                    : timing.seconds < best_seconds - (isinf(tie) ? 0 : tie) ||
                          (timing.seconds <= best_seconds + tie && held < best_peak)) {
                best_fits = fits;
                weft_pp_schedule_free(&best);
                best = trial;
                trial = (weft_pp_schedule){0};
                best_seconds = timing.seconds;
                best_peak = held;
            }
            weft_pp_schedule_free(&trial);
        }
    *out = best;
    best = (weft_pp_schedule){0};
out:
    weft_pp_schedule_free(&best);
    weft_pp_schedule_free(&trial);
    weft_free(peak);
    return status;
}

/* ---- public functions ------------------------------------------------------------------------ */

weft_status weft_pp_counts_check(int64_t pp_stages, int64_t devices, int64_t microbatches)
{
    if (pp_stages < 1 || devices < 1 || microbatches < 1)
        return weft_error(WEFT_MSG_SCHEDULE_INVALID,
                          WEFT_AT(.key = pp_stages < 1 ? "stages"
                                         : devices < 1 ? "devices"
                                                       : "microbatches"),
                          "a schedule needs at least one stage, device and microbatch; got %" PRId64
                          ", %" PRId64 ", %" PRId64,
                          pp_stages, devices, microbatches);
    return WEFT_OK;
}

static weft_status check_shape(const int32_t *device_of, int64_t pp_stages, int64_t devices,
                               int64_t microbatches)
{
    WEFT_TRY(weft_pp_counts_check(pp_stages, devices, microbatches));
    if ((double)pp_stages * (double)microbatches > 2e7)
        return weft_error(
            WEFT_MSG_PLAN_UNSUPPORTED, WEFT_AT(.key = "microbatches", WEFT_NUMBER(microbatches)),
            "%" PRId64 " stages x %" PRId64 " microbatches are more than a schedule table holds "
            "(20 million); use fewer microbatches, the pattern repeats",
            pp_stages, microbatches);
    for (int64_t s = 0; s < pp_stages; s++)
        if (device_of[s] < 0 || device_of[s] >= devices)
            return weft_error(WEFT_MSG_SCHEDULE_INVALID,
                              WEFT_AT(.key = "device_of_stage", WEFT_NUMBER(device_of[s])),
                              "stage %" PRId64 " is on device %d, which is not from 0 to %" PRId64,
                              s, (int)device_of[s], devices - 1);
    return WEFT_OK;
}

static weft_status check_kind(weft_pp_schedule_kind kind, const int32_t *device_of,
                              int64_t pp_stages, int64_t devices, int64_t microbatches)
{
    if (kind == WEFT_PP_SCHEDULE_1F1B)
        for (int64_t s = 0; s < pp_stages; s++)
            if (pp_stages != devices || device_of[s] != s)
                return weft_error(WEFT_MSG_PLAN_INFEASIBLE,
                                  WEFT_AT(.key = "schedule", .value = "1f1b"),
                                  "1f1b needs as many stages as devices, in order; the pipeline "
                                  "has %" PRId64 " stages on %" PRId64 " devices",
                                  pp_stages, devices);
    if (kind == WEFT_PP_SCHEDULE_INTERLEAVED) {
        if (pp_stages % devices != 0 || pp_stages == devices || microbatches % devices != 0)
            return weft_error(
                WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "schedule", .value = "interleaved"),
                "interleaved needs %" PRId64 " stages to be a multiple of %" PRId64 " devices, at "
                "least twice, and %" PRId64 " microbatches to be a multiple",
                pp_stages, devices, microbatches);
        for (int64_t s = 0; s < pp_stages; s++)
            if (device_of[s] != s % devices)
                return weft_error(WEFT_MSG_PLAN_INFEASIBLE,
                                  WEFT_AT(.key = "schedule", .value = "interleaved"),
                                  "interleaved needs stage s on device s mod %" PRId64, devices);
    }
    if (kind == WEFT_PP_SCHEDULE_WAVE)
        for (int64_t s = 0; s < pp_stages; s++)
            if (device_of[s] != device_of[pp_stages - 1 - s])
                return weft_error(
                    WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "schedule", .value = "wave"),
                    "wave needs stages %" PRId64 " and %" PRId64 " on the same device", s,
                    pp_stages - 1 - s);
    return WEFT_OK;
}

weft_status weft_pp_schedule_make(weft_pp_schedule_kind kind, const int32_t *device_of,
                                  int64_t pp_stages, int64_t devices, int64_t microbatches,
                                  const weft_pp_stage_times *times, weft_pp_schedule *out)
{
    WEFT_TRY(check_shape(device_of, pp_stages, devices, microbatches));
    WEFT_TRY(check_kind(kind, device_of, pp_stages, devices, microbatches));
    const char *name = weft_pp_schedule_kind_name(kind);
    weft_pp_schedule shape = {.name = name,
                              .devices = devices,
                              .pp_stages = pp_stages,
                              .microbatches = microbatches,
                              .split = kind == WEFT_PP_SCHEDULE_ZERO_BUBBLE};
    order o = {.task = weft_calloc(3 * pp_stages * microbatches, sizeof(weft_task))};
    shape.device_of = weft_calloc(pp_stages, sizeof *device_of);
    weft_status_code status = WEFT_OK;
    if (!o.task || !shape.device_of)
        WEFT_GO(out_of_memory(pp_stages, microbatches));
    memcpy(shape.device_of, device_of, (size_t)pp_stages * sizeof *device_of);
    switch (kind) {
    case WEFT_PP_SCHEDULE_GPIPE: order_gpipe(&o, device_of, pp_stages, microbatches); break;
    case WEFT_PP_SCHEDULE_1F1B: order_1f1b(&o, pp_stages, microbatches); break;
    case WEFT_PP_SCHEDULE_INTERLEAVED:
        order_interleaved(&o, pp_stages, devices, microbatches);
        break;
    default: WEFT_GO(best_rule(&shape, times, &o, out)); goto out;
    }
    shape.task = o.task;
    shape.task_count = o.count;
    WEFT_GO(weft_pp_schedule_from_order(&shape, out));
out:
    weft_free(o.task);
    weft_free(shape.device_of);
    return status;
}

/* Checks the steps of tasks that are sorted by device and step. at[slot]: the task's step + 1. */
static weft_status check_steps(const weft_pp_schedule *s, const weft_task *sorted,
                               const int32_t *at)
{
    for (int64_t i = 0; i < s->task_count; i++) {
        const weft_task *t = &sorted[i];
        const char letter = weft_task_letter(t->kind);
        if (i > 0 && t->device == t[-1].device && t->step == t[-1].step)
            return weft_error(WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(t->device)),
                              "device %d has two tasks at step %d", t->device, t->step);
        int64_t need[2];
        const int needs = prerequisites(s, t, need);
        for (int k = 0; k < needs; k++)
            if (at[need[k]] > t->step)
                return weft_error(
                    WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(t->step)),
                    "%c of stage %d, microbatch %d is at step %d, and a task that it needs at step "
                    "%d; write each task after the tasks that it needs",
                    letter, t->pp_stage, t->microbatch, t->step, at[need[k]] - 1);
        if (t->microbatch > 0 && at[slot(s, t->kind, t->pp_stage, t->microbatch - 1)] > t->step)
            return weft_error(
                WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(t->microbatch)),
                "%c of stage %d has microbatch %d before %d; keep the order of the microbatches",
                letter, t->pp_stage, t->microbatch, t->microbatch - 1);
    }
    return WEFT_OK;
}

weft_status weft_pp_schedule_check(const weft_pp_schedule *s)
{
    WEFT_TRY(check_shape(s->device_of, s->pp_stages, s->devices, s->microbatches));
    const int64_t cells = 3 * s->pp_stages * s->microbatches;
    int32_t *at = weft_calloc(cells, sizeof *at); /* step + 1 */
    weft_task *sorted = weft_calloc(s->task_count + 1, sizeof *sorted);
    weft_status_code status = WEFT_OK;
    if (!at || !sorted)
        WEFT_GO(out_of_memory(s->pp_stages, s->microbatches));
    for (int64_t i = 0; i < s->task_count; i++) {
        const weft_task *t = &s->task[i];
        if (t->pp_stage < 0 || t->pp_stage >= s->pp_stages || t->microbatch < 0 ||
            t->microbatch >= s->microbatches || t->step < 0 || t->kind < 0 ||
            t->kind > (s->split ? WEFT_TASK_W : WEFT_TASK_B))
            WEFT_GO(weft_error(WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(i)),
                               "task %" PRId64
                               ": stage %d, microbatch %d, step %d or its kind is out of range",
                               i, t->pp_stage, t->microbatch, t->step));
        if (t->device != s->device_of[t->pp_stage])
            WEFT_GO(weft_error(WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(i)),
                               "task %" PRId64 ": stage %d is on device %d, not %d", i, t->pp_stage,
                               s->device_of[t->pp_stage], t->device));
        int32_t *cell = &at[slot(s, t->kind, t->pp_stage, t->microbatch)];
        if (*cell != 0)
            WEFT_GO(weft_error(WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(i)),
                               "task %" PRId64 " repeats %c of stage %d, microbatch %d", i,
                               weft_task_letter(t->kind), t->pp_stage, t->microbatch));
        *cell = t->step + 1;
    }
    if (s->task_count != (s->split ? 3 : 2) * s->pp_stages * s->microbatches)
        WEFT_GO(weft_error(WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(s->task_count)),
                           "%" PRId64 " stages x %" PRId64 " microbatches need %" PRId64
                           " tasks; the schedule has %" PRId64,
                           s->pp_stages, s->microbatches,
                           (s->split ? 3 : 2) * s->pp_stages * s->microbatches, s->task_count));
    memcpy(sorted, s->task, (size_t)s->task_count * sizeof *sorted);
    qsort(sorted, (size_t)s->task_count, sizeof *sorted, by_device_then_step);
    WEFT_GO(check_steps(s, sorted, at));
out:
    weft_free(at);
    weft_free(sorted);
    return status;
}

weft_status weft_pp_schedule_time(weft_pp_schedule *s, const weft_pp_stage_times *times,
                                  weft_pp_schedule_timing *out)
{
    int64_t *first = weft_calloc(s->devices + 1, sizeof *first);
    int64_t *next = weft_calloc(s->devices + 1, sizeof *next);
    double *end = weft_calloc(3 * s->pp_stages * s->microbatches, sizeof *end);
    double *free_at = weft_calloc(s->devices, sizeof *free_at);
    weft_status_code status = WEFT_OK;
    weft_pp_schedule_timing timing = {0};
    if (!first || !next || !end || !free_at)
        WEFT_GO(out_of_memory(s->pp_stages, s->microbatches));
    for (int64_t i = 0; i < 3 * s->pp_stages * s->microbatches; i++)
        end[i] = NAN;
    device_ranges(s, first);
    memcpy(next, first, (size_t)(s->devices + 1) * sizeof *next);
    for (bool changed = true; changed;) {
        changed = false;
        for (int64_t d = 0; d < s->devices; d++)
            for (; next[d] < first[d + 1]; next[d]++) {
                weft_task *t = &s->task[next[d]];
                int64_t need[2];
                const int needs = prerequisites(s, t, need);
                double start = free_at[d];
                for (int k = 0; k < needs; k++) {
                    const int64_t of = need[k] / s->microbatches % s->pp_stages;
                    const double at = end[need[k]] +
                                      (of == t->pp_stage ? 0 : send_seconds(s, times, t->kind, of));
                    start = !(at <= start) ? at : start; /* NAN wins: not known yet */
                }
                if (isnan(start))
                    break;
                t->start = start;
                t->end = start + duration(s, times, t->kind, t->pp_stage);
                end[slot(s, t->kind, t->pp_stage, t->microbatch)] = t->end;
                free_at[d] = t->end;
                if (times && times->blocking)
                    free_at[d] += send_seconds(s, times, t->kind, t->pp_stage);
                timing.busy += t->end - t->start;
                timing.seconds = t->end > timing.seconds ? t->end : timing.seconds;
                changed = true;
            }
    }
    for (int64_t d = 0; d < s->devices; d++)
        if (next[d] != first[d + 1])
            WEFT_GO(weft_error(WEFT_MSG_SCHEDULE_INVALID, WEFT_AT(WEFT_NUMBER(d)),
                               "the tasks of device %" PRId64 " wait for each other", d));
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

weft_status weft_pp_schedule_memory(const weft_pp_schedule *s, const double *activation,
                                    double *timeline, double *peak)
{
    /* change[step]: bytes added at a step; bytes freed at a step count in the next */
    double *change = weft_calloc(s->steps + 1, sizeof *change);
    if (!change)
        return out_of_memory(s->pp_stages, s->microbatches);
    const weft_task_kind last = s->split ? WEFT_TASK_W : WEFT_TASK_B;
    int64_t i = 0;
    for (int64_t d = 0; d < s->devices; d++) {
        memset(change, 0, (size_t)(s->steps + 1) * sizeof *change);
        for (; i < s->task_count && s->task[i].device == d; i++) {
            const double bytes = activation ? activation[s->task[i].pp_stage] : 1;
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

int64_t weft_pp_schedule_lower_bound(const int32_t *device_of, int64_t pp_stages, int64_t devices,
                                     int64_t microbatches)
{
    /* a single microbatch; then the first one's path plus the device's steps for the others */
    int64_t bound = 2 * pp_stages;
    for (int64_t d = 0; d < devices; d++) {
        int64_t first = pp_stages, count = 0;
        for (int64_t s = pp_stages - 1; s >= 0; s--)
            if (device_of[s] == d) {
                first = s;
                count++;
            }
        /* the device waits for its first stage; the gradient of its last B has the same path
         * back */
        if (count > 0 && 2 * count * microbatches + 2 * first > bound)
            bound = 2 * count * microbatches + 2 * first;
    }
    return bound;
}

double weft_pipeline_bytes(const weft_pp_costs *costs, const weft_partition *partition,
                           const int32_t *device_of, bool send_all, double *per_boundary)
{
    double total = 0;
    for (int64_t s = 0; s + 1 < partition->pp_stages; s++) {
        double bytes = 0;
        if (device_of[s] != device_of[s + 1]) {
            bytes = costs->op[partition->cut[s + 1] - 1].output_bytes;
            for (int64_t k = 0; k < costs->skip_count; k++) {
                const int64_t from = weft_partition_stage_of(partition, costs->skip[k].from);
                const int64_t to = weft_partition_stage_of(partition, costs->skip[k].to);
                if (costs->skip[k].to > costs->skip[k].from + 1 && from <= s && to > s &&
                    (send_all || device_of[from] != device_of[to]))
                    bytes += costs->skip[k].bytes;
            }
        }
        if (per_boundary)
            per_boundary[s] = bytes;
        total += bytes;
    }
    return total;
}
