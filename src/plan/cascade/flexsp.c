/* The FlexSP-like policy: groups of powers of two, chosen for each iteration.
 *
 * A target T determines the number of groups of each width. Samples are sorted by falling work,
 * and wider groups take longer samples. A dynamic program over widths then finds the counts with
 * the fewest devices:
 *
 *     sample    0   1   2 | 3   4   5   6 | 7   8   9          falling work
 *     width         8     |       2       |     1
 *     groups   need(8, 0, 3) need(2, 3, 7) need(1, 7, 10)      bins of T seconds
 *
 *     devices(p, i) = min over j of 2^p need(2^p, i, j) + devices(p - 1, j)
 *
 * need(w, i, j) bins hold samples i to j - 1 on groups of width w, each sample in the bin where it
 * fits tightest. Targets grow by 1 % from the lower bound. For the counts of each target and width
 * limit, samples are then assigned to all groups: the longest sample first, to the group that
 * finishes it first. Splitting, joining and adding groups improves the counts. The shortest result
 * that fits on the devices is used, or equal groups of any width if they are shorter.
 *
 * All counts of up to 64 devices are tried as well.
 *
 * The candidates do not depend on the number of devices, which only limits the candidates that
 * fit. More devices therefore never make the plan longer. */
#include "plan/cascade/flexsp.h"

#include "plan/cascade/grouping.h"

#include <math.h>
#include <string.h>

enum { POWERS = 24, MOST_PAIRED = 64, FEW_DEVICES = 64, FEW_POWERS = 7 };
static const double step = 1.01, patience = 1.5;

typedef struct counts {
    int64_t of[POWERS]; /* groups of 2^p devices */
} counts;

typedef struct flex {
    const weft_policy_request *r;
    int64_t powers;
    const double *unit;   /* [powers][samples], samples by falling work */
    const int32_t *order; /* [samples] */
    /* tables of a target: */
    /* [powers][samples + 1] fewest devices for samples from i on, widths to 2^p */
    double *devices;
    int32_t *until;      /* [powers][samples + 1] end of the samples of width 2^p */
    int32_t *need;       /* [powers][samples + 1] groups of 2^p for these samples */
    double *bin;         /* [samples] seconds in each bin */
    double *load;        /* [powers * samples] seconds of each group, by width */
    counts last[POWERS]; /* counts of the last target, by widest group */
    double best;
    counts best_counts;
} flex;

static weft_status no_memory(void)
{
    return weft_no_memory("the plan of an iteration");
}

static double unit_of(const flex *f, int64_t power, int64_t i)
{
    return f->unit[power * f->r->samples + i];
}

static int64_t devices_of(const flex *f, const counts *c)
{
    int64_t devices = 0;
    for (int64_t p = 0; p < f->powers; p++)
        devices += c->of[p] << p;
    return devices;
}

/* ---- assignment of samples ------------------------------------------------------------------ */

/* Restores the heap of a width's group loads (smallest first) after heap[0] has changed. */
static void sink(double *heap, int64_t count)
{
    const double load = heap[0];
    int64_t at = 0;
    for (int64_t child = 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= load)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = load;
}

/* Returns the makespan of assigning the longest sample first, each to the group that finishes it
 * first; wider groups win ties. More groups of a width than samples stay empty. */
static double deal(const flex *f, const counts *c)
{
    const int64_t n = f->r->samples;
    double makespan = 0, *heap[POWERS] = {0}, *at = f->load;
    int64_t capacity[POWERS];
    for (int64_t p = 0; p < f->powers; p++) {
        capacity[p] = c->of[p] < n ? c->of[p] : n;
        heap[p] = at;
        at += capacity[p];
        for (int64_t g = 0; g < capacity[p]; g++)
            heap[p][g] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t best = -1;
        double end = INFINITY;
        for (int64_t p = f->powers - 1; p >= 0; p--)
            if (capacity[p] && heap[p][0] + unit_of(f, p, i) < end) {
                end = heap[p][0] + unit_of(f, p, i);
                best = p;
            }
        if (best < 0)
            return INFINITY;
        heap[best][0] = end;
        sink(heap[best], capacity[best]);
        makespan = fmax(makespan, end);
    }
    return makespan;
}

/* ---- counts for a target -------------------------------------------------------------------- */

/* Adds one sample to the bins of `target` seconds. False: the sample is longer than a bin. */
static bool put(double *bin, int64_t *bins, double seconds, double target)
{
    int64_t tightest = -1;
    if (!(seconds <= target))
        return false;
    for (int64_t b = 0; b < *bins; b++)
        if (bin[b] + seconds <= target && (tightest < 0 || bin[b] > bin[tightest]))
            tightest = b;
    if (tightest < 0) {
        tightest = (*bins)++;
        bin[tightest] = 0;
    }
    bin[tightest] += seconds;
    return true;
}

/* Fills the tables of width 2^p from the tables of the narrower widths. */
static void add_width(flex *f, int64_t p, double target)
{
    const int64_t n = f->r->samples, row = p * (n + 1);
    const double *narrower = p ? f->devices + row - (n + 1) : NULL;
    for (int64_t i = n; i >= 0; i--) {
        int64_t bins = 0;
        f->devices[row + i] = narrower ? narrower[i] : i < n ? (double)INFINITY : 0;
        f->until[row + i] = (int32_t)i;
        f->need[row + i] = 0;
        for (int64_t j = i; j < n && put(f->bin, &bins, unit_of(f, p, j), target); j++) {
            const double rest = narrower    ? narrower[j + 1]
                                : j + 1 < n ? (double)INFINITY
                                            : 0,
                         all = ldexp((double)bins, (int)p) + rest;
            if (ldexp((double)bins, (int)p) >= f->devices[row + i])
                break; /* more samples need at least as many bins */
            if (all < f->devices[row + i]) {
                f->devices[row + i] = all;
                f->until[row + i] = (int32_t)(j + 1);
                f->need[row + i] = (int32_t)bins;
            }
        }
    }
}

static counts counts_of(const flex *f, int64_t widest)
{
    const int64_t row = f->r->samples + 1;
    counts c = {0};
    int32_t i = 0;
    for (int64_t p = widest; p >= 0; p--) {
        c.of[p] = f->need[p * row + i];
        i = f->until[p * row + i];
    }
    return c;
}

/* ---- better counts -------------------------------------------------------------------------- */

static void take(flex *f, const counts *c, double makespan)
{
    if (devices_of(f, c) <= f->r->devices && makespan < f->best) {
        f->best = makespan;
        f->best_counts = *c;
    }
}

/* Applies move a * powers + b. a < b joins 2^(b - a) groups of 2^a to one of 2^b; a > b splits one
 * of 2^a. False: c lacks these groups. */
static bool split_or_join(const flex *f, counts *c, int64_t move)
{
    const int64_t a = move / f->powers, b = move % f->powers;
    const int64_t from = a < b ? (int64_t)1 << (b - a) : 1, to = a > b ? (int64_t)1 << (a - b) : 1;
    if (a == b || c->of[a] < from)
        return false;
    c->of[a] -= from;
    c->of[b] += to;
    return true;
}

/* Tries one group more than the target needs, of each width. */
static void try_wider(flex *f, counts c)
{
    for (int64_t p = 0; p < f->powers; p++) {
        c.of[p]++;
        if (devices_of(f, &c) <= f->r->devices)
            take(f, &c, deal(f, &c));
        c.of[p]--;
    }
}

/* Applies the best single move until no move shortens the makespan. If samples are few, also tries
 * pairs of moves. The number of devices stays the same. */
static void climb(flex *f, counts c)
{
    const int64_t moves = f->powers * f->powers, rounds = f->r->samples > MOST_PAIRED ? 1 : 2;
    double makespan = deal(f, &c);
    take(f, &c, makespan);
    try_wider(f, c);
    for (bool better = true; better;) {
        counts next = c;
        better = false;
        for (int64_t pairs = 0; pairs < rounds && !better; pairs++)
            for (int64_t m = 0; m < (pairs ? moves * moves : moves); m++) {
                counts tried = c;
                if (!split_or_join(f, &tried, m % moves) ||
                    (pairs && !split_or_join(f, &tried, m / moves)))
                    continue;
                const double seconds = deal(f, &tried);
                if (seconds < makespan) {
                    makespan = seconds;
                    next = tried;
                    better = true;
                }
            }
        c = next;
        take(f, &c, makespan);
        if (better)
            try_wider(f, c);
    }
}

/* ---- few devices ---------------------------------------------------------------------------- */

/* Tries all counts of groups of at most 2^power on up to `rest` devices: 27,338 on 64 devices. */
static void try_counts(flex *f, counts *c, int64_t power, int64_t rest)
{
    for (int64_t n = rest >> power; n >= 0; n--) {
        c->of[power] = n;
        if (power)
            try_counts(f, c, power - 1, rest - (n << power));
        else
            take(f, c, deal(f, c));
    }
}

/* ---- all targets ---------------------------------------------------------------------------- */

/* Returns a lower bound on the makespan: the longest sample, or the total area. */
static double lower_bound(const flex *f)
{
    double longest = 0, area = 0;
    for (int64_t i = 0; i < f->r->samples; i++) {
        double seconds = INFINITY, least = INFINITY;
        for (int64_t p = 0; p < f->powers; p++) {
            seconds = fmin(seconds, unit_of(f, p, i));
            least = fmin(least, ldexp(unit_of(f, p, i), (int)p));
        }
        longest = fmax(longest, seconds);
        area += least;
    }
    return fmax(longest, area / (double)f->r->devices);
}

static void try_targets(flex *f)
{
    const double least = lower_bound(f);
    if (!isfinite(least) || !(least > 0)) {
        counts one = {.of = {[0] = f->r->devices}};
        take(f, &one, deal(f, &one));
        return;
    }
    /* targets are powers of `step`, independent of the number of devices */
    for (double t = floor(log(least) / log(step));; t++) {
        const double target = pow(step, t);
        if (target > patience * f->best)
            break;
        for (int64_t p = 0; p < f->powers; p++) {
            add_width(f, p, target);
            const counts c = counts_of(f, p);
            if (f->devices[p * (f->r->samples + 1)] <= (double)f->r->devices &&
                memcmp(&c, &f->last[p], sizeof c)) /* most targets have the counts of the last */
                climb(f, c);
            f->last[p] = c;
        }
    }
}

/* Sets *out to the groups of the best counts, with the samples assigned as in deal(). */
static void lay(const flex *f, weft_grouping *out)
{
    int64_t *width = out->width, groups = 0;
    for (int64_t p = f->powers - 1; p >= 0; p--)
        for (int64_t g = 0; g < f->best_counts.of[p] && g < f->r->samples; g++)
            width[groups++] = (int64_t)1 << p;
    out->groups = groups;
    for (int64_t g = 0; g < groups; g++)
        f->load[g] = 0;
    for (int64_t i = 0; i < f->r->samples; i++) {
        int64_t best = 0, power = 0;
        double end = INFINITY;
        for (int64_t g = 0; g < groups; g++) {
            while ((int64_t)1 << power != width[g])
                power += (int64_t)1 << power < width[g] ? 1 : -1;
            if (f->load[g] + unit_of(f, power, i) < end) {
                end = f->load[g] + unit_of(f, power, i);
                best = g;
            }
        }
        f->load[best] = end;
        out->of[f->order[i]] = (int32_t)best;
    }
    out->makespan = f->best;
}

static weft_status allocate(flex *f, weft_arena *arena)
{
    const int64_t n = f->r->samples, rows = f->powers * (n + 1);
    double *unit = weft_arena_calloc(arena, f->powers * n + 1, sizeof *unit);
    double *one = weft_arena_calloc(arena, n + 1, sizeof *one);
    f->devices = weft_arena_calloc(arena, rows, sizeof *f->devices);
    f->until = weft_arena_calloc(arena, rows, sizeof *f->until);
    f->need = weft_arena_calloc(arena, rows, sizeof *f->need);
    f->bin = weft_arena_calloc(arena, n + 1, sizeof *f->bin);
    f->load = weft_arena_calloc(arena, f->powers * n + 1, sizeof *f->load);
    if (!unit || !one || !f->devices || !f->until || !f->need || !f->bin || !f->load)
        return no_memory();
    for (int64_t p = 0; p < f->powers; p++) {
        weft_grouping_seconds(f->r, (int64_t)1 << p, one);
        for (int64_t i = 0; i < n; i++)
            unit[p * n + i] = one[f->order[i]];
    }
    f->unit = unit;
    return WEFT_OK;
}

static weft_status powers_of_two(const weft_policy_request *r, weft_arena *arena,
                                 weft_grouping *out)
{
    flex f = {.r = r, .best = INFINITY};
    while (f.powers < POWERS && (int64_t)1 << f.powers <= r->devices)
        f.powers++;
    double *work;
    WEFT_TRY(WEFT_ARENA_NEW(arena, work, r->samples + 1, "the plan of an iteration"));
    WEFT_TRY(weft_grouping_create(r, f.powers * r->samples, arena, out));
    weft_grouping_work(r, work);
    weft_grouping_sort(work, r->samples, out->order);
    f.order = out->order;
    WEFT_TRY(allocate(&f, arena));
    const int64_t few = r->devices < FEW_DEVICES ? r->devices : FEW_DEVICES;
    try_counts(&f, &(counts){0}, (f.powers < FEW_POWERS ? f.powers : FEW_POWERS) - 1, few);
    try_targets(&f);
    if (isfinite(f.best))
        lay(&f, out);
    return WEFT_OK;
}

weft_status weft_grouping_flexsp(const weft_policy_request *request, weft_arena *arena,
                                 weft_grouping *out)
{
    static const weft_policy rules[] = {WEFT_POLICY_STATIC, WEFT_POLICY_KNAPFORMER};
    weft_policy_request r = *request;
    r.degree = r.heads = 0;
    WEFT_TRY(powers_of_two(&r, arena, out));
    for (int i = 0; i < 2; i++) {
        weft_grouping equal;
        WEFT_TRY(weft_grouping_equal(rules[i], &r, arena, &equal));
        if (equal.width && equal.makespan < out->makespan)
            *out = equal;
    }
    return WEFT_OK;
}
