#include "plan/cascade/dispatch.h"

#include "plan/cascade/replan.h"

#include <math.h>
#include <string.h>

struct weft_dispatch {
    weft_dispatch_setup s;
    weft_arena *arena;
    int64_t nodes, per_node;
    int32_t *planned;               /* cascades by planned start */
    int32_t *order;                 /* [left] cascades that have not started */
    int32_t *waiting;               /* per cascade: producers that have not ended */
    int32_t *parts;                 /* per cascade: devices that have not finished the cascade */
    int32_t *first_before, *before; /* CSR of successors */
    int32_t *on;                    /* per device: its cascade; -1: idle */
    double *until;                  /* per device: predicted end of its cascade */
    bool *retired;                  /* per device: gets no further gradients */
    bool *needed;                   /* per device: predicted to get further gradients */
    bool *was_retired;              /* per device: before the last decision, simulated */
    double last_start;  /* predicted start of the last cascade with gradients; INFINITY: unknown */
    bool *wanted;       /* per device: used by a producer; set while placing */
    bool *taken;        /* per node: used by the cascade; set while placing */
    int64_t *held;      /* per node: producers' devices; set while placing */
    int64_t *usable[2]; /* per node: usable devices, without and with gradients */
    const int64_t *free_devices; /* the one of the cascade that is placed */
    int32_t *device;             /* per cascade: its devices, [devices] each */
    double *start, *end;         /* per cascade, simulated */
    double *free_at;             /* per device, simulated */
    int32_t *pick, *chosen;      /* [devices] */
    bool *to_retire;             /* per device: result of weft_dispatch_retire, simulated */
    double *key;                 /* [devices] */
    int64_t left;
    bool sorted;              /* `planned` is sorted for s.item */
    weft_dispatch *predictor; /* predicts the rest of an iteration; NULL: not created yet */
    weft_replan *replan;      /* NULL: cascades start on idle devices */
};

static double slow_of(const weft_dispatch *d, int64_t device)
{
    return d->s.slow ? d->s.slow[device] : 1;
}

/* Returns the devices that cascade c was given. */
static int32_t *devices_of(const weft_dispatch *d, int32_t c)
{
    return d->device + (int64_t)c * d->s.devices;
}

static bool usable(const weft_dispatch *d, int64_t device, bool trains)
{
    return d->on[device] < 0 && !(trains && d->retired[device]);
}

static bool trains(const weft_dispatch *d, int32_t c)
{
    return !d->s.trains || d->s.trains[c];
}

/* ---- creation -------------------------------------------------------------------------------- */

static void fill_successors(weft_dispatch *d)
{
    const weft_assigned *item = d->s.item;
    for (int64_t c = 0; c < d->s.count; c++)
        for (int32_t i = 0; i < item[c].after_count; i++)
            d->first_before[item[c].after[i] + 1]++;
    for (int64_t c = 0; c < d->s.count; c++)
        d->first_before[c + 1] += d->first_before[c];
    for (int64_t c = 0; c < d->s.count; c++)
        for (int32_t i = 0; i < item[c].after_count; i++)
            d->before[d->first_before[item[c].after[i]]++] = (int32_t)c;
    for (int64_t c = d->s.count; c > 0; c--)
        d->first_before[c] = d->first_before[c - 1];
    d->first_before[0] = 0;
}

static bool make_arrays(weft_dispatch *d)
{
    const int64_t n = d->s.count, m = d->s.devices, i32 = sizeof(int32_t), f64 = sizeof(double);
    int64_t edges = 0;
    for (int64_t c = 0; c < n; c++)
        edges += d->s.item[c].after_count;
    d->planned = weft_arena_alloc(d->arena, n * i32);
    d->order = weft_arena_alloc(d->arena, n * i32);
    d->waiting = weft_arena_alloc(d->arena, n * i32);
    d->parts = weft_arena_alloc(d->arena, n * i32);
    d->first_before = weft_arena_alloc(d->arena, (n + 2) * i32);
    d->before = weft_arena_alloc(d->arena, (edges + 1) * i32);
    d->on = weft_arena_alloc(d->arena, m * i32);
    d->until = weft_arena_alloc(d->arena, m * f64);
    d->retired = weft_arena_alloc(d->arena, m);
    d->needed = weft_arena_alloc(d->arena, m);
    d->was_retired = weft_arena_alloc(d->arena, m);
    d->wanted = weft_arena_alloc(d->arena, m);
    d->taken = weft_arena_alloc(d->arena, d->nodes);
    d->held = weft_arena_calloc(d->arena, d->nodes, sizeof *d->held);
    d->usable[0] = weft_arena_calloc(d->arena, d->nodes, sizeof *d->held);
    d->usable[1] = weft_arena_calloc(d->arena, d->nodes, sizeof *d->held);
    d->device = weft_arena_alloc(d->arena, n * m * i32);
    d->start = weft_arena_alloc(d->arena, n * f64);
    d->end = weft_arena_alloc(d->arena, n * f64);
    d->free_at = weft_arena_alloc(d->arena, m * f64);
    d->pick = weft_arena_alloc(d->arena, m * i32);
    d->chosen = weft_arena_alloc(d->arena, m * i32);
    d->key = weft_arena_alloc(d->arena, m * f64);
    d->to_retire = weft_arena_alloc(d->arena, m);
    return d->planned && d->order && d->waiting && d->parts && d->first_before && d->before &&
           d->on && d->until && d->retired && d->needed && d->was_retired && d->wanted &&
           d->taken && d->held && d->usable[0] && d->usable[1] && d->device && d->start && d->end &&
           d->free_at && d->pick && d->chosen && d->key && d->to_retire;
}

weft_status weft_dispatch_create(const weft_dispatch_setup *setup, weft_dispatch **out)
{
    weft_dispatch *d;
    WEFT_TRY(WEFT_NEW(d, 1, "a dispatcher"));
    *d = (weft_dispatch){.s = *setup, .arena = weft_arena_create()};
    const bool split = setup->per_node > 0 && setup->per_node < setup->devices;
    d->per_node = split ? setup->per_node : setup->devices;
    d->nodes = (setup->devices + d->per_node - 1) / d->per_node;
    if (!d->arena || !make_arrays(d)) {
        weft_dispatch_free(d);
        return weft_no_memory("a dispatcher of %" PRId64 " cascades", setup->count);
    }
    fill_successors(d);
    if (setup->replan) {
        const weft_status_code status = weft_replan_create(setup, &d->replan);
        if (status != WEFT_OK) {
            weft_dispatch_free(d);
            return status;
        }
    }
    weft_dispatch_reset(d, NULL);
    *out = d;
    return WEFT_OK;
}

void weft_dispatch_free(weft_dispatch *d)
{
    if (!d)
        return;
    weft_dispatch_free(d->predictor);
    weft_replan_free(d->replan);
    weft_arena_free(d->arena);
    weft_free(d);
}

void weft_dispatch_reset(weft_dispatch *d, const weft_assigned *item)
{
    const int64_t n = d->s.count;
    if (item || !d->sorted) {
        d->s.item = item ? item : d->s.item;
        d->sorted = true;
        for (int32_t i = 0; i < n; i++) {
            int64_t at = i;
            for (; at > 0 && d->s.item[d->planned[at - 1]].start > d->s.item[i].start; at--)
                d->planned[at] = d->planned[at - 1];
            d->planned[at] = i;
        }
    }
    memcpy(d->order, d->planned, (size_t)n * sizeof *d->order);
    d->left = n;
    for (int64_t c = 0; c < n; c++) {
        d->waiting[c] = d->s.item[c].after_count;
        d->parts[c] = 0;
    }
    for (int64_t i = 0; i < d->s.devices; i++) {
        d->on[i] = -1;
        d->until[i] = 0;
        d->retired[i] = d->needed[i] = d->wanted[i] = false;
    }
    d->last_start = INFINITY;
    if (d->replan)
        weft_replan_reset(d->replan, d->s.item, d->planned);
}

/* ---- devices of a cascade -------------------------------------------------------------------- */

static void mark_producers(weft_dispatch *d, int32_t c, bool as)
{
    const weft_assigned *item = &d->s.item[c];
    for (int32_t a = 0; a < item->after_count; a++)
        for (int32_t i = 0; i < d->s.item[item->after[a]].degree; i++)
            d->wanted[devices_of(d, item->after[a])[i]] = as;
}

/* Sets `device` to the planned devices if all are idle and not slow. */
static bool take_planned(const weft_dispatch *d, int32_t c, int32_t *device)
{
    const weft_assigned *item = &d->s.item[c];
    const bool adds = trains(d, c);
    for (int64_t i = 0; i < item->degree; i++) {
        if (!item->device || !usable(d, item->device[i], adds) ||
            slow_of(d, item->device[i]) > 1.05)
            return false;
        device[i] = item->device[i];
    }
    return true;
}

/* Takes `count` usable devices of a node: the fastest first, producers' devices on ties. */
static void take_of(weft_dispatch *d, int64_t node, int64_t count, bool adds, bool backwards,
                    int32_t *device)
{
    const int64_t first = node * d->per_node,
                  end = first + d->per_node < d->s.devices ? first + d->per_node : d->s.devices;
    int64_t got = 0;
    for (int64_t i = first; i < end; i++) {
        if (!usable(d, i, adds))
            continue;
        const double key = slow_of(d, i) - (d->wanted[i] ? 0.01 : 0);
        int64_t at = got < count ? got++ : count;
        for (; at > 0 && d->key[at - 1] > key; at--)
            if (at < count) {
                d->key[at] = d->key[at - 1];
                d->pick[at] = d->pick[at - 1];
            }
        if (at < count) {
            d->key[at] = key;
            d->pick[at] = (int32_t)i;
        }
    }
    for (int64_t i = 0; i < count; i++) { /* rising or falling order */
        int64_t at = i;
        for (; at > 0 && (device[at - 1] > d->pick[i]) != backwards; at--)
            device[at] = device[at - 1];
        device[at] = d->pick[i];
    }
}

/* Counts the usable devices of each node, for cascades without and with gradients. They do not
 * change until a cascade starts. */
static void count_free_devices(weft_dispatch *d)
{
    memset(d->usable[0], 0, (size_t)d->nodes * sizeof *d->usable[0]);
    memset(d->usable[1], 0, (size_t)d->nodes * sizeof *d->usable[1]);
    for (int64_t n = 0, i = 0; n < d->nodes; n++)
        for (; i < d->s.devices && i < (n + 1) * d->per_node; i++) {
            d->usable[0][n] += usable(d, i, false);
            d->usable[1][n] += usable(d, i, true);
        }
}

/* Counts the devices of producers in each node. */
static void count_held(weft_dispatch *d, int32_t c)
{
    memset(d->held, 0, (size_t)d->nodes * sizeof *d->held);
    for (int64_t i = 0; d->s.item[c].after_count && i < d->s.devices; i++)
        d->held[i / d->per_node] += d->wanted[i];
}

/* Returns the node with the fewest usable devices that are enough (`fullest`), or with the most.
 * Ties go to the node with most producer devices. -1: no node has enough. */
static int64_t find_node(const weft_dispatch *d, int64_t part, bool fullest)
{
    int64_t best = -1;
    for (int64_t n = 0; n < d->nodes; n++) {
        if (d->taken[n] || d->free_devices[n] < part)
            continue;
        const int64_t more = best < 0  ? 1
                             : fullest ? d->free_devices[best] - d->free_devices[n]
                                       : d->free_devices[n] - d->free_devices[best];
        if (more > 0 || (more == 0 && d->held[n] > d->held[best]))
            best = n;
    }
    return best;
}

static bool take_idle(weft_dispatch *d, int32_t c, int32_t *device)
{
    const int64_t degree = d->s.item[c].degree, m = (degree + d->per_node - 1) / d->per_node;
    const bool adds = trains(d, c);
    bool found = true;
    d->free_devices = d->usable[adds];
    memset(d->taken, 0, (size_t)d->nodes);
    mark_producers(d, c, true);
    count_held(d, c);
    int64_t at = 0;
    for (int64_t i = 0; i < m && found; i++) {
        const int64_t part = degree / m + (i < degree % m), node = find_node(d, part, m == 1);
        found = node >= 0;
        if (!found)
            break;
        take_of(d, node, part, adds, i % 2 == 1, device + at);
        d->taken[node] = true;
        at += part;
    }
    mark_producers(d, c, false);
    return found;
}

/* Returns the largest slowdown factor of the devices. */
static double slowest(const weft_dispatch *d, const int32_t *device, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, slow_of(d, device[i]));
    return most;
}

/* True: the cascade would end earlier if it waited for devices that are faster than `slow`. */
static bool better_later(weft_dispatch *d, int32_t c, double now, double slow)
{
    const int64_t degree = d->s.item[c].degree;
    const bool adds = trains(d, c);
    bool running = false;
    int64_t got = 0;
    double usual = 0;
    for (int64_t i = 0; i < d->s.devices; i++) {
        const double own = slow_of(d, i), when = d->on[i] < 0 ? now : fmax(now, d->until[i]);
        running = running || d->on[i] >= 0;
        if (own >= slow - 0.05 || (adds && d->retired[i]))
            continue;
        int64_t at = got < degree ? got++ : degree;
        for (; at > 0 && d->key[at - 1] > when; at--)
            if (at < degree)
                d->key[at] = d->key[at - 1];
        if (at < degree)
            d->key[at] = when;
        usual = fmax(usual, own);
    }
    return running && got == degree &&
           d->key[degree - 1] + d->s.item[c].seconds * usual < now + d->s.item[c].seconds * slow;
}

static bool take(weft_dispatch *d, int32_t c, double now, int32_t *device)
{
    if (take_planned(d, c, device))
        return true;
    if (!take_idle(d, c, device))
        return false;
    const double slow = slowest(d, device, d->s.item[c].degree);
    return slow <= 1.05 || !better_later(d, c, now, slow);
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* Returns the seconds until the results of all producers are on the devices of c. */
static double transfer_seconds(const weft_dispatch *d, int32_t c)
{
    const weft_assigned *item = &d->s.item[c];
    double most = 0;
    if (!d->s.transfer || !item->after_count)
        return 0;
    for (int32_t i = 0; i < d->s.item[c].degree; i++) {
        const int32_t to = devices_of(d, c)[i];
        bool own = false, near = false;
        for (int32_t a = 0; a < item->after_count; a++)
            for (int32_t k = 0; k < d->s.item[item->after[a]].degree; k++) {
                const int32_t from = devices_of(d, item->after[a])[k];
                own = own || from == to;
                near = near || from / d->per_node == to / d->per_node;
            }
        most = fmax(most, own ? 0 : near ? d->s.transfer[c].inside : d->s.transfer[c].between);
    }
    return most;
}

static void give(weft_dispatch *d, int64_t at, double now, const int32_t *device)
{
    const int32_t c = d->order[at];
    const int64_t degree = d->s.item[c].degree;
    memmove(d->order + at, d->order + at + 1, (size_t)(--d->left - at) * sizeof *d->order);
    d->parts[c] = (int32_t)degree;
    memcpy(devices_of(d, c), device, (size_t)degree * sizeof *device);
    const double until = now + transfer_seconds(d, c) + /* as begin() */
                         d->s.item[c].seconds * slowest(d, device, degree);
    for (int64_t i = 0; i < degree; i++) {
        d->on[device[i]] = c;
        d->until[device[i]] = until;
    }
}

static weft_dispatch *clone(weft_dispatch *d)
{
    weft_dispatch *a = d->predictor;
    weft_dispatch_setup setup = d->s;
    setup.retire = false;
    if (!a && weft_dispatch_create(&setup, &a) != WEFT_OK)
        return NULL;
    d->predictor = a;
    const size_t n = (size_t)d->s.count, m = (size_t)d->s.devices;
    memcpy(a->planned, d->planned, n * sizeof *a->planned);
    memcpy(a->order, d->order, n * sizeof *a->order);
    memcpy(a->waiting, d->waiting, n * sizeof *a->waiting);
    memcpy(a->parts, d->parts, n * sizeof *a->parts);
    memcpy(a->device, d->device, n * m * sizeof *a->device);
    memcpy(a->on, d->on, m * sizeof *a->on);
    memcpy(a->until, d->until, m * sizeof *a->until);
    memcpy(a->retired, d->retired, m);
    a->s.item = d->s.item;
    a->left = d->left;
    return a;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Starts cascade c at `now` on its given devices, which stay occupied until its end. */
static void begin(weft_dispatch *d, int32_t c, double now, const double *factor,
                  weft_dispatch_times *t)
{
    const double seconds = d->s.item[c].seconds * (factor ? factor[c] : 1);
    d->start[c] = now + transfer_seconds(d, c);
    d->end[c] = d->start[c] + seconds * slowest(d, devices_of(d, c), d->s.item[c].degree);
    for (int32_t i = 0; i < d->s.item[c].degree; i++)
        d->free_at[devices_of(d, c)[i]] = d->end[c];
    t->makespan = fmax(t->makespan, d->end[c]);
}

/* Start of the backward of c: the last two thirds. */
static double backward_start(const weft_dispatch *d, int32_t c)
{
    return d->start[c] + (d->end[c] - d->start[c]) / 3;
}

static void add_summing(const weft_dispatch *d, int32_t c, weft_dispatch_times *t)
{
    if (trains(d, c))
        t->summing = fmax(t->summing, backward_start(d, c));
}

/* Adds the times from which the devices that retired at the start of c reduce gradients: in the
 * backward of c, or as soon as the thread of the device has ended its cascade. */
static void add_retired(const weft_dispatch *d, int32_t c, double now, weft_dispatch_times *t)
{
    for (int64_t i = 0; i < d->s.devices; i++) {
        const int32_t on = d->on[i];
        if (!d->retired[i] || d->was_retired[i])
            continue;
        t->summing = fmax(t->summing, on == c && trains(d, c) ? backward_start(d, c)
                                      : on < 0 || on == c     ? now
                                                              : d->end[on]);
    }
}

/* Returns the next time of a decision after `now`. Releases the devices that become idle then.
 * INFINITY: no cascade runs. */
static double release_next(weft_dispatch *d, double now)
{
    const double held = weft_dispatch_held(d, now);
    double next = INFINITY;
    for (int64_t i = 0; i < d->s.devices; i++)
        if (d->on[i] >= 0)
            next = fmin(next, d->free_at[i]);
    if (held > now && held < next)
        return held;
    for (int64_t i = 0; i < d->s.devices; i++)
        if (d->on[i] >= 0 && d->free_at[i] <= next)
            weft_dispatch_release(d, (int32_t)i);
    return next;
}

static void begin_late(weft_dispatch *d, int32_t c, double now, const double *factor,
                       weft_dispatch_times *t)
{
    begin(d, c, now, factor, t);
    if (!d->s.retire) {
        add_summing(d, c, t);
        return;
    }
    memcpy(d->was_retired, d->retired, (size_t)d->s.devices);
    weft_dispatch_retire(d, c, now, d->to_retire);
    add_retired(d, c, now, t);
}

static void play_rest(weft_dispatch *d, double now, const double *factor, weft_dispatch_times *t)
{
    while (isfinite(now)) {
        int32_t c;
        while (weft_dispatch_next(d, now, &c, d->chosen))
            begin_late(d, c, now, factor, t);
        now = release_next(d, now);
    }
}

/* Runs the remaining cascades on their planned devices, in the planned order. */
static void play_planned(weft_dispatch *d, double now, const double *factor, weft_dispatch_times *t)
{
    for (int64_t k = 0; k < d->left; k++) {
        const int32_t c = d->order[k];
        const weft_assigned *item = &d->s.item[c];
        double from = now;
        for (int64_t i = 0; i < item->degree; i++) {
            devices_of(d, c)[i] = item->device[i];
            from = fmax(from, d->free_at[item->device[i]]);
        }
        for (int32_t a = 0; a < item->after_count; a++)
            from = fmax(from, d->end[item->after[a]]);
        begin(d, c, from, factor, t);
        add_summing(d, c, t);
    }
}

/* ---- decisions ------------------------------------------------------------------------------- */

static int64_t count_idle(const weft_dispatch *d)
{
    int64_t idle = 0;
    for (int64_t i = 0; i < d->s.devices; i++)
        idle += d->on[i] < 0;
    return idle;
}

static bool next_replanned(weft_dispatch *d, double now, int32_t *index, int32_t *device)
{
    const int32_t c = weft_replan_next(d->replan, now, d->retired, device);
    int64_t at = 0;
    if (c < 0)
        return false;
    while (d->order[at] != c)
        at++;
    *index = c;
    give(d, at, now, device);
    weft_replan_start(d->replan, c, now);
    return true;
}

double weft_dispatch_held(const weft_dispatch *d, double now)
{
    double held = now;
    if (!d->left || (d->replan && !weft_replan_searches_next(d->replan)))
        return now;
    for (int64_t i = 0; i < d->s.devices; i++) {
        const double near = d->on[i] < 0 ? 0 : WEFT_DISPATCH_TOGETHER * d->s.item[d->on[i]].seconds;
        if (near > 0 && d->until[i] - near <= now)
            held = fmax(held, d->until[i] + near);
    }
    return held;
}

/* Starts the first cascade of the plan's order if its planned devices are idle. */
static bool next_planned(weft_dispatch *d, double now, int32_t *index, int32_t *device)
{
    const int32_t c = d->order[0];
    if (d->waiting[c] || !take_planned(d, c, device))
        return false;
    *index = c;
    give(d, 0, now, device);
    return true;
}

/* Chooses the first cascade in the plan's order that fits on idle devices. */
bool weft_dispatch_next(weft_dispatch *d, double now, int32_t *index, int32_t *device)
{
    const bool held = weft_dispatch_held(d, now) > now;
    if (d->replan)
        return !held && next_replanned(d, now, index, device);
    if (held)
        return next_planned(d, now, index, device);
    const int64_t idle = count_idle(d);
    if (idle && d->left)
        count_free_devices(d);
    for (int64_t at = 0; idle && at < d->left; at++) {
        const int32_t c = d->order[at];
        if (d->waiting[c] || d->s.item[c].degree > idle || !take(d, c, now, device))
            continue;
        *index = c;
        give(d, at, now, device);
        return true;
    }
    return false;
}

void weft_dispatch_release(weft_dispatch *d, int32_t device)
{
    const int32_t c = d->on[device];
    if (c < 0 || --d->parts[c])
        return;
    for (int32_t i = 0; i < d->s.item[c].degree; i++)
        d->on[devices_of(d, c)[i]] = -1;
    if (d->replan)
        weft_replan_end(d->replan, c);
    for (int32_t i = d->first_before[c]; i < d->first_before[c + 1]; i++)
        d->waiting[d->before[i]]--;
}

int64_t weft_dispatch_left(const weft_dispatch *d)
{
    return d->left;
}

int64_t weft_dispatch_searches(const weft_dispatch *d)
{
    return d->replan ? weft_replan_searches(d->replan) : 0;
}

/* ---- complete iterations --------------------------------------------------------------------- */

static void copy_out(const weft_dispatch *d, const weft_dispatch_played *to)
{
    if (!to)
        return;
    memcpy(to->start, d->start, (size_t)d->s.count * sizeof *to->start);
    memcpy(to->end, d->end, (size_t)d->s.count * sizeof *to->end);
    int32_t *device = to->device;
    for (int32_t c = 0; device && c < d->s.count; c++) {
        memcpy(device, devices_of(d, c), (size_t)d->s.item[c].degree * sizeof *device);
        device += d->s.item[c].degree;
    }
}

static void restart(weft_dispatch *d)
{
    weft_dispatch_reset(d, NULL);
    for (int64_t i = 0; i < d->s.devices; i++)
        d->free_at[i] = 0;
}

weft_dispatch_times weft_dispatch_play(weft_dispatch *d, bool late, const double *factor,
                                       const weft_dispatch_played *played)
{
    weft_dispatch_times t = {0};
    restart(d);
    if (late)
        play_rest(d, 0, factor, &t);
    else
        play_planned(d, 0, factor, &t);
    copy_out(d, played);
    return t;
}

/* Retires the devices of encoder c if it ends after the predicted start of the last cascade with
 * gradients. Otherwise their gradients would wait for the end of the encoder. */
static void retire_encoder(weft_dispatch *d, int32_t c)
{
    if (d->replan)
        weft_replan_needed(d->replan, d->needed);
    for (int32_t i = 0; i < d->s.item[c].degree; i++) {
        const int32_t at = devices_of(d, c)[i];
        d->retired[at] = d->retired[at] || (!d->needed[at] && d->until[at] >= d->last_start);
    }
}

/* Simulates the rest of the iteration. Sets d->last_start and d->needed. */
static void predict_rest(weft_dispatch *d, weft_dispatch *a, double now)
{
    weft_dispatch_times t = {0};
    memcpy(a->free_at, d->until, (size_t)d->s.devices * sizeof *a->free_at);
    play_rest(a, now, NULL, &t);
    d->last_start = now;
    memset(d->needed, 0, (size_t)d->s.devices);
    for (int64_t k = 0; k < d->left; k++) {
        const int32_t c = d->order[k];
        if (!trains(d, c))
            continue;
        d->last_start = fmax(d->last_start, a->start[c]);
        for (int32_t i = 0; i < a->s.item[c].degree; i++)
            d->needed[devices_of(a, c)[i]] = true;
    }
}

void weft_dispatch_retire(weft_dispatch *d, int32_t index, double now, bool *device)
{
    weft_dispatch *a;
    if (!trains(d, index)) {
        retire_encoder(d, index);
    } else if (d->replan) {
        d->last_start = weft_replan_retire(d->replan, now, d->retired);
    } else if ((a = clone(d))) { /* else no device retires; the all-reduce begins later */
        predict_rest(d, a, now);
        for (int64_t i = 0; i < d->s.devices; i++)
            d->retired[i] =
                d->retired[i] ||
                (!d->needed[i] && fmax(now, d->on[i] >= 0 ? d->until[i] : now) >= d->last_start);
    }
    memcpy(device, d->retired, (size_t)d->s.devices);
}
