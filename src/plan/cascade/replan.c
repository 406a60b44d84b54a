#include "plan/cascade/replan.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { WAITING, RUNNING, ENDED };
/* Share of the scenarios in which a device that retires gets no further cascade with
 * gradients. A larger share delays reductions, a smaller one keeps cascades from idle
 * devices. */
static const double RETIRES = 0.5;

/* Devices and priorities of all cascades. */
typedef struct choice {
    int32_t *device; /* [count][devices] */
    double *priority;
} choice;

struct weft_replan {
    weft_dispatch_setup s;
    weft_arena *arena;
    int64_t per_node, nodes;
    int8_t *state;
    double *start;      /* per cascade: of running ones */
    choice now, next;   /* next: candidate of the search */
    int32_t *open;      /* [left] cascades that have not started */
    int32_t *order;     /* [left] `open`, predecessors first, then by priority */
    double *key;        /* per cascade: its priority, at least the predecessors' */
    int32_t *rank;      /* per cascade: position in the plan's order */
    double *transfer;   /* per cascade: seconds of the hand-off to its devices */
    double *slowest;    /* per cascade: largest factor of its devices */
    double *running;    /* [scenarios][count] ends of running cascades */
    double *end, *from; /* per cascade, simulated */
    double *free_at;    /* per device, simulated */
    bool *taken;        /* per device */
    int32_t *pick;      /* [devices] */
    int64_t left, searches;
    bool changed; /* a cascade ended since the last search */
    weft_rng rng;
};

static int32_t *devices_of(const weft_replan *r, const choice *a, int32_t c)
{
    return a->device + (int64_t)c * r->s.devices;
}

static bool trains(const weft_replan *r, int32_t c)
{
    return !r->s.trains || r->s.trains[c];
}

static double slow_of(const weft_replan *r, const choice *a, int32_t c)
{
    double most = 1;
    for (int64_t i = 0; r->s.slow && i < r->s.item[c].degree; i++)
        most = fmax(most, r->s.slow[devices_of(r, a, c)[i]]);
    return most;
}

/* ---- creation -------------------------------------------------------------------------------- */

static weft_status make_arrays(weft_replan *r)
{
    const int64_t n = r->s.count, m = r->s.devices,
                  k = r->s.replan->scenarios > 0 ? r->s.replan->scenarios : 1;
    choice *both[] = {&r->now, &r->next};
    int32_t **of_i32[] = {&r->open, &r->order, &r->rank};
    double **of_f64[] = {&r->start, &r->key, &r->transfer, &r->slowest, &r->end, &r->from};
    for (size_t i = 0; i < WEFT_COUNT(both); i++) {
        WEFT_TRY(WEFT_ARENA_NEW(r->arena, both[i]->device, n * m, "a dispatcher"));
        WEFT_TRY(WEFT_ARENA_NEW(r->arena, both[i]->priority, n, "a dispatcher"));
    }
    for (size_t i = 0; i < WEFT_COUNT(of_i32); i++)
        WEFT_TRY(WEFT_ARENA_NEW(r->arena, *of_i32[i], n, "a dispatcher"));
    for (size_t i = 0; i < WEFT_COUNT(of_f64); i++)
        WEFT_TRY(WEFT_ARENA_NEW(r->arena, *of_f64[i], n, "a dispatcher"));
    WEFT_TRY(WEFT_ARENA_NEW(r->arena, r->state, n, "a dispatcher"));
    WEFT_TRY(WEFT_ARENA_NEW(r->arena, r->running, k * n, "a dispatcher"));
    WEFT_TRY(WEFT_ARENA_NEW(r->arena, r->free_at, m, "a dispatcher"));
    WEFT_TRY(WEFT_ARENA_NEW(r->arena, r->taken, m, "a dispatcher"));
    return WEFT_ARENA_NEW(r->arena, r->pick, m, "a dispatcher");
}

weft_status weft_replan_create(const weft_dispatch_setup *setup, weft_replan **out)
{
    weft_replan *r;
    WEFT_TRY(WEFT_NEW(r, 1, "a dispatcher"));
    *r = (weft_replan){.s = *setup, .arena = weft_arena_create()};
    const bool split = setup->per_node > 0 && setup->per_node < setup->devices;
    r->per_node = split ? setup->per_node : setup->devices;
    r->nodes = (setup->devices + r->per_node - 1) / r->per_node;
    weft_status_code status = WEFT_ALLOCATED(r->arena, "a dispatcher");
    WEFT_GO(status);
    WEFT_GO(make_arrays(r));
    *out = r;
    return WEFT_OK;
out:
    weft_replan_free(r);
    return status;
}

void weft_replan_free(weft_replan *r)
{
    if (!r)
        return;
    weft_arena_free(r->arena);
    weft_free(r);
}

void weft_replan_reset(weft_replan *r, const weft_assigned *item, const int32_t *order)
{
    r->s.item = item;
    r->left = r->s.count;
    r->changed = false;
    r->searches = 0;
    r->rng = weft_rng_make(r->s.replan->seed, WEFT_RNG_PLAN);
    for (int32_t i = 0; i < r->s.count; i++) {
        const int32_t c = order[i];
        r->state[c] = WAITING;
        r->rank[c] = i;
        r->now.priority[c] = i;
        r->open[i] = c;
        if (item[c].device)
            memcpy(devices_of(r, &r->now, c), item[c].device,
                   (size_t)item[c].degree * sizeof *item->device);
    }
}

void weft_replan_start(weft_replan *r, int32_t c, double now)
{
    int64_t at = 0;
    r->state[c] = RUNNING;
    r->start[c] = now;
    while (r->open[at] != c)
        at++;
    memmove(r->open + at, r->open + at + 1, (size_t)(--r->left - at) * sizeof *r->open);
}

void weft_replan_end(weft_replan *r, int32_t c)
{
    r->state[c] = ENDED;
    r->changed = true;
}

/* ---- the order of a choice ------------------------------------------------------------------- */

static bool before(const weft_replan *r, int32_t a, int32_t b)
{
    return r->key[a] != r->key[b] ? r->key[a] < r->key[b] : r->rank[a] < r->rank[b];
}

/* Sets r->order. A cascade has at least the key of its predecessors, which precede it in the
 * plan. */
static void sort(weft_replan *r, const choice *a)
{
    for (int64_t i = 0; i < r->left; i++) /* `open` is in the plan's order */
        r->key[r->open[i]] = a->priority[r->open[i]];
    for (int64_t i = 0; i < r->left; i++) {
        const int32_t c = r->open[i];
        const weft_assigned *item = &r->s.item[c];
        for (int32_t k = 0; k < item->after_count; k++)
            if (r->state[item->after[k]] == WAITING)
                r->key[c] = fmax(r->key[c], r->key[item->after[k]]);
        int64_t at = i;
        for (; at > 0 && before(r, c, r->order[at - 1]); at--)
            r->order[at] = r->order[at - 1];
        r->order[at] = c;
    }
}

/* ---- the value of a choice ------------------------------------------------------------------- */

/* Returns the seconds until the results of all producers are on the devices of c. */
static double transfer_of(const weft_replan *r, const choice *a, int32_t c)
{
    const weft_assigned *item = &r->s.item[c];
    double most = 0;
    for (int64_t i = 0; r->s.transfer && item->after_count && i < item->degree; i++) {
        const int32_t to = devices_of(r, a, c)[i];
        bool own = false, near = false;
        for (int32_t k = 0; k < item->after_count; k++) {
            const int32_t from = item->after[k], *device = devices_of(r, a, from);
            for (int64_t d = 0; d < r->s.item[from].degree && !own; d++) {
                own = device[d] == to;
                near = near || device[d] / r->per_node == to / r->per_node;
            }
        }
        const weft_dispatch_hand *hand = &r->s.transfer[c];
        most = fmax(most, own ? 0 : near ? hand->inside : hand->between);
    }
    return most;
}

/* fmax() calls a library, and simulate() is the innermost loop of a search. */
static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Simulates the cascades that have not started, on their devices and in r->order. `running`: ends
 * of running cascades. Returns the makespan. */
static double simulate(weft_replan *r, const choice *a, double now, const double *factor,
                       const double *running)
{
    double makespan = now;
    for (int64_t d = 0; d < r->s.devices; d++)
        r->free_at[d] = now;
    for (int32_t c = 0; c < r->s.count; c++) {
        r->end[c] = r->state[c] == RUNNING ? running[c] : now;
        for (int64_t i = 0; r->state[c] == RUNNING && i < r->s.item[c].degree; i++)
            r->free_at[devices_of(r, &r->now, c)[i]] = running[c];
        makespan = larger(makespan, r->end[c]);
    }
    for (int64_t i = 0; i < r->left; i++) {
        const int32_t c = r->order[i], *device = devices_of(r, a, c);
        const weft_assigned *item = &r->s.item[c];
        double from = now;
        for (int64_t k = 0; k < item->degree; k++)
            from = larger(from, r->free_at[device[k]]);
        for (int32_t k = 0; k < item->after_count; k++)
            from = larger(from, r->end[item->after[k]]);
        const double end =
            from + r->transfer[c] + item->seconds * r->slowest[c] * (factor ? factor[c] : 1);
        r->from[c] = from;
        r->end[c] = end;
        makespan = larger(makespan, end);
        for (int64_t k = 0; k < item->degree; k++)
            r->free_at[device[k]] = end;
    }
    return makespan;
}

/* Sets the order, the transfers and the slowdown factors of a choice. */
static void prepare(weft_replan *r, const choice *a)
{
    sort(r, a);
    for (int64_t i = 0; i < r->left; i++) {
        r->transfer[r->order[i]] = transfer_of(r, a, r->order[i]);
        r->slowest[r->order[i]] = slow_of(r, a, r->order[i]);
    }
}

/* Returns the mean makespan of a choice; more than `limit` if it is not below. */
static double value_of(weft_replan *r, const choice *a, double now, double limit)
{
    const weft_dispatch_replan *with = r->s.replan;
    double sum = 0;
    prepare(r, a);
    for (int64_t k = 0; k < with->scenarios && sum <= limit * (double)with->scenarios; k++)
        sum += simulate(r, a, now, with->factor + k * r->s.count, r->running + k * r->s.count);
    return sum / (double)with->scenarios;
}

/* Returns the end of running cascade c in scenario k, or in the next scenario in which it has not
 * ended before `now`. */
static double end_in(const weft_replan *r, int32_t c, int64_t k, double now)
{
    const weft_dispatch_replan *with = r->s.replan;
    const double seconds = r->s.item[c].seconds * slow_of(r, &r->now, c);
    for (int64_t i = 0; i < with->scenarios; i++) {
        const double factor = with->factor[(k + i) % with->scenarios * r->s.count + c],
                     end = r->start[c] + seconds * factor;
        if (end > now)
            return end;
    }
    return now;
}

/* Sets r->running. */
static void find_ends(weft_replan *r, double now)
{
    for (int64_t k = 0; k < r->s.replan->scenarios; k++)
        for (int32_t c = 0; c < r->s.count; c++)
            if (r->state[c] == RUNNING)
                r->running[k * r->s.count + c] = end_in(r, c, k, now);
}

/* ---- the search ------------------------------------------------------------------------------ */

static int64_t draw(weft_replan *r, int64_t count)
{
    return (int64_t)weft_rng_below(&r->rng, (uint64_t)count);
}

/* Sets `device` to random devices: of one node, or equal parts of the fewest nodes. False: they
 * include a retired device. */
static bool draw_devices(weft_replan *r, int32_t c, const bool *retired, int32_t *device)
{
    const int64_t degree = r->s.item[c].degree, nodes = (degree + r->per_node - 1) / r->per_node,
                  first = draw(r, r->nodes);
    int64_t at = 0;
    for (int64_t k = 0; k < nodes; k++) {
        const int64_t node = (first + k) % r->nodes, part = degree / nodes + (k < degree % nodes),
                      end = (node + 1) * r->per_node, begin = node * r->per_node,
                      size = (end < r->s.devices ? end : r->s.devices) - begin;
        if (size < part)
            return false;
        const int64_t space = size - part,
                      skip = draw(r, 2) ? draw(r, space + 1) : draw(r, 2) * space;
        for (int64_t i = 0; i < part; i++)
            device[at++] = (int32_t)(begin + skip + i);
    }
    for (int64_t i = 0; i < degree; i++)
        if (trains(r, c) && retired[device[i]])
            return false;
    return true;
}

static bool may_run(const weft_replan *r, int32_t c, const int32_t *device, const bool *retired)
{
    for (int64_t i = 0; trains(r, c) && i < r->s.item[c].degree; i++)
        if (retired[device[i]])
            return false;
    return true;
}

static void swap_devices(weft_replan *r, choice *a, int32_t c, int32_t d, const bool *retired)
{
    const size_t bytes = (size_t)r->s.item[c].degree * sizeof *a->device;
    int32_t *of_c = devices_of(r, a, c), *of_d = devices_of(r, a, d);
    if (!may_run(r, c, of_d, retired) || !may_run(r, d, of_c, retired))
        return;
    memcpy(r->pick, of_c, bytes);
    memcpy(of_c, of_d, bytes);
    memcpy(of_d, r->pick, bytes);
}

static void swap_priority(choice *a, int32_t c, int32_t d)
{
    const double of_c = a->priority[c];
    a->priority[c] = a->priority[d];
    a->priority[d] = of_c;
}

static void change(weft_replan *r, choice *a, const bool *retired)
{
    const int64_t moves = 1 + draw(r, 2);
    for (int64_t k = 0; k < moves; k++) {
        const int32_t c = r->open[draw(r, r->left)], d = r->open[draw(r, r->left)];
        const int64_t dice = draw(r, 100);
        if (dice < 40 && r->s.item[c].degree == r->s.item[d].degree)
            swap_devices(r, a, c, d, retired);
        if (dice < 40 || dice >= 75)
            swap_priority(a, c, d);
        else if (draw_devices(r, c, retired, r->pick))
            memcpy(devices_of(r, a, c), r->pick, (size_t)r->s.item[c].degree * sizeof *a->device);
    }
}

static void copy(const weft_replan *r, const choice *from, choice *to)
{
    for (int64_t i = 0; i < r->left; i++) {
        const int32_t c = r->open[i];
        to->priority[c] = from->priority[c];
        memcpy(devices_of(r, to, c), devices_of(r, from, c),
               (size_t)r->s.item[c].degree * sizeof *to->device);
    }
}

static void search(weft_replan *r, double now, const bool *retired)
{
    const weft_dispatch_replan *with = r->s.replan;
    find_ends(r, now);
    for (int32_t c = 0; c < r->s.count; c++) /* transfers read the devices of producers */
        if (r->state[c] != WAITING)
            memcpy(devices_of(r, &r->next, c), devices_of(r, &r->now, c),
                   (size_t)r->s.item[c].degree * sizeof *r->next.device);
    double best = value_of(r, &r->now, now, INFINITY);
    for (int64_t i = 0; i < with->evaluations; i++) {
        copy(r, &r->now, &r->next);
        change(r, &r->next, retired);
        const double value = value_of(r, &r->next, now, best);
        if (value >= best * (1 - 1e-9))
            continue;
        best = value;
        copy(r, &r->next, &r->now);
    }
    r->searches++;
}

/* ---- decisions ------------------------------------------------------------------------------- */

static bool ready(const weft_replan *r, int32_t c)
{
    const weft_assigned *item = &r->s.item[c];
    for (int32_t k = 0; k < item->after_count; k++)
        if (r->state[item->after[k]] != ENDED)
            return false;
    return true;
}

/* Marks the devices of c as taken. Returns true if all were free. */
static bool claim(weft_replan *r, int32_t c)
{
    bool free = true;
    for (int64_t i = 0; i < r->s.item[c].degree; i++) {
        bool *taken = &r->taken[devices_of(r, &r->now, c)[i]];
        free = free && !*taken;
        *taken = true;
    }
    return free;
}

bool weft_replan_searches_next(const weft_replan *r)
{
    return r->changed && r->left && r->s.replan->scenarios > 0 && r->s.replan->evaluations > 0;
}

int32_t weft_replan_next(weft_replan *r, double now, const bool *retired, int32_t *device)
{
    if (weft_replan_searches_next(r))
        search(r, now, retired);
    r->changed = false;
    sort(r, &r->now);
    memset(r->taken, 0, (size_t)r->s.devices * sizeof *r->taken);
    for (int32_t c = 0; c < r->s.count; c++)
        if (r->state[c] == RUNNING)
            claim(r, c);
    for (int64_t i = 0; i < r->left; i++) {
        const int32_t c = r->order[i];
        if (!claim(r, c) || !ready(r, c))
            continue;
        memcpy(device, devices_of(r, &r->now, c), (size_t)r->s.item[c].degree * sizeof *device);
        return c;
    }
    return -1;
}

int64_t weft_replan_searches(const weft_replan *r)
{
    return r->searches;
}

void weft_replan_needed(const weft_replan *r, bool *device)
{
    memset(device, 0, (size_t)r->s.devices);
    for (int64_t i = 0; i < r->left; i++)
        for (int64_t k = 0; trains(r, r->open[i]) && k < r->s.item[r->open[i]].degree; k++)
            device[devices_of(r, &r->now, r->open[i])[k]] = true;
}

/* Adds one to idle[d] for devices that are predicted to be free after the last start of a cascade
 * with gradients. Returns that time. */
static double count_idle(weft_replan *r, double now, const double *factor, const double *running,
                         int32_t *idle)
{
    double last = now;
    simulate(r, &r->now, now, factor, running);
    for (int64_t i = 0; i < r->left; i++)
        if (trains(r, r->open[i]))
            last = fmax(last, r->from[r->open[i]]);
    for (int64_t d = 0; d < r->s.devices; d++)
        r->free_at[d] = now;
    for (int32_t c = 0; c < r->s.count; c++)
        for (int64_t i = 0; r->state[c] == RUNNING && i < r->s.item[c].degree; i++)
            r->free_at[devices_of(r, &r->now, c)[i]] = running[c];
    for (int64_t d = 0; d < r->s.devices; d++)
        idle[d] += r->free_at[d] >= last;
    return last;
}

double weft_replan_retire(weft_replan *r, double now, bool *device)
{
    const weft_dispatch_replan *with = r->s.replan;
    double last = now;
    prepare(r, &r->now);
    find_ends(r, now);
    memset(r->pick, 0, (size_t)r->s.devices * sizeof *r->pick);
    for (int64_t k = 0; k < with->scenarios; k++)
        last = fmax(last, count_idle(r, now, with->factor + k * r->s.count,
                                     r->running + k * r->s.count, r->pick));
    weft_replan_needed(r, r->taken);
    for (int64_t d = 0; d < r->s.devices; d++)
        device[d] =
            (device[d] || (double)r->pick[d] >= RETIRES * (double)with->scenarios) && !r->taken[d];
    return last;
}
