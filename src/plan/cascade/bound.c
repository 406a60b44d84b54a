/* Lower bounds. A value T is refuted if no schedule of length T can exist. The bound is the largest
 * refuted T, found by bisection. Under T, a cascade can only have degrees that leave enough time
 * for the paths to and from the cascade. This makes the area bound sharp, because a long cascade
 * cannot use its narrowest and cheapest degrees. */
#include "plan/cascade/bound.h"

#include "plan/cascade/cascade.h"

#include "base/compare.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_WINDOWS = 24, MAX_FUNCTIONS = 40 };

typedef struct bounder {
    const weft_cascade_problem *p;
    double *head, *tail; /* shortest path to a cascade's start, and from its end */
    double *sorted;
    /* Dual feasible functions: width[f][degree] replaces the degree, whole[f] the number of
     * devices. If the sum of a set of degrees is at most `devices`, the sum of its widths is at
     * most whole[f]. */
    int32_t functions;
    double *width[MAX_FUNCTIONS];
    double whole[MAX_FUNCTIONS];
} bounder;

static void compute_paths(bounder *b)
{
    const weft_cascade_problem *p = b->p;
    for (int64_t i = 0; i < p->count; i++) {
        const int32_t c = p->order[i];
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++) {
            const int32_t q = p->after[e]; /* the last option is the fastest */
            b->head[c] = fmax(b->head[c], b->head[q] + p->seconds[p->first_option[q + 1] - 1]);
        }
    }
    for (int64_t i = p->count - 1; i >= 0; i--) {
        const int32_t c = p->order[i];
        for (int32_t e = p->first_before[c]; e < p->first_before[c + 1]; e++) {
            const int32_t q = p->before[e];
            b->tail[c] = fmax(b->tail[c], b->tail[q] + p->seconds[p->first_option[q + 1] - 1]);
        }
    }
}

/* Fills the functions, with parameters spread evenly. Fekete and Schepers, "New classes of fast
 * lower bounds for bin packing problems" (2001): the rounding u^(s) and the threshold U^(t). */
static weft_status functions(bounder *b, weft_arena *arena)
{
    const int64_t n = b->p->devices;
    for (int32_t kind = 0; kind < MAX_FUNCTIONS; kind++) {
        const bool rounding = kind > 0 && kind <= 12;
        const int64_t s = kind; /* u^(1) .. u^(12) */
        const int64_t t = 1 + (int64_t)(kind - 13) * (n / 2) / (MAX_FUNCTIONS - 13);
        if (rounding ? s >= n : kind > 12 && (t > n / 2 || (kind > 13 && n < 4)))
            continue;
        double *width;
        WEFT_TRY(WEFT_ARENA_NEW(arena, width, n + 1, "the lower bound"));
        for (int64_t d = 1; d <= n; d++) {
            if (kind == 0)
                width[d] = (double)d;
            else if (rounding)
                width[d] = d * (s + 1) % n == 0 ? (double)d / (double)n
                                                : (double)(d * (s + 1) / n) / (double)s;
            else
                width[d] = d > n - t ? (double)n : d >= t ? (double)d : 0;
        }
        b->whole[b->functions] = rounding ? 1 : (double)n;
        b->width[b->functions++] = width;
    }
    return WEFT_OK;
}

static bool allowed(const bounder *b, int32_t c, int32_t option, double limit)
{
    return b->head[c] + b->p->seconds[option] + b->tail[c] <= limit;
}

/* True: the least energy of all cascades inside [from, to] exceeds the energy of the devices. */
static bool window_full(const bounder *b, double limit, double from, double to)
{
    const weft_cascade_problem *p = b->p;
    double energy = 0;
    for (int32_t c = 0; c < p->count; c++) {
        double least = INFINITY;
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++) {
            if (!allowed(b, c, o, limit))
                continue;
            const double early = b->head[c] + p->seconds[o] - from;
            const double late = to - (limit - b->tail[c] - p->seconds[o]);
            double inside = fmin(fmin(early, late), fmin(p->seconds[o], to - from));
            inside = fmax(inside, 0);
            least = fmin(least, inside * p->degree[o]);
        }
        energy += least;
    }
    return energy > (double)p->devices * (to - from);
}

static bool refuted(const bounder *b, double limit)
{
    const weft_cascade_problem *p = b->p;
    double sum[MAX_FUNCTIONS] = {0};
    for (int32_t c = 0; c < p->count; c++) {
        double least[MAX_FUNCTIONS];
        for (int32_t f = 0; f < b->functions; f++)
            least[f] = INFINITY;
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++)
            if (allowed(b, c, o, limit))
                for (int32_t f = 0; f < b->functions; f++)
                    least[f] = fmin(least[f], b->width[f][p->degree[o]] * p->seconds[o]);
        if (isinf(least[0]))
            return true;
        for (int32_t f = 0; f < b->functions; f++)
            sum[f] += least[f];
    }
    for (int32_t f = 0; f < b->functions; f++)
        if (sum[f] > b->whole[f] * limit)
            return true;
    /* windows from a head (or 0) to `limit` minus a tail (or to `limit`); fewer windows for many
     * options */
    int64_t windows = (int64_t)sqrt(1.3e6 / (double)p->first_option[p->count]);
    windows = windows < MAX_WINDOWS ? windows : MAX_WINDOWS;
    if (windows < 2)
        return false;
    const int64_t step = 1 + p->count / windows;
    for (int64_t i = -1; i < p->count; i += step)
        for (int64_t j = -1; j < p->count; j += step) {
            const double from = i < 0 ? 0 : b->sorted[i];
            const double to = limit - (j < 0 ? 0 : b->sorted[p->count + j]);
            if ((i >= 0 && from == 0) || (j >= 0 && to == limit) || !(to > from))
                continue;
            if (window_full(b, limit, from, to))
                return true;
        }
    return false;
}

static void sort_paths(bounder *b)
{
    const int64_t n = b->p->count;
    for (int64_t c = 0; c < n; c++) {
        b->sorted[c] = b->head[c];
        b->sorted[n + c] = b->tail[c];
    }
    qsort(b->sorted, (size_t)n, sizeof *b->sorted, weft_compare_f64);
    qsort(b->sorted + n, (size_t)n, sizeof *b->sorted, weft_compare_f64);
}

weft_status weft_cascade_lower_bound(const weft_cascade_problem *p, double upper,
                                     weft_cascade_bound *out)
{
    weft_arena *arena = weft_arena_create();
    bounder b = {.p = p};
    weft_status_code status = WEFT_OK;
    b.head = arena ? weft_arena_calloc(arena, p->count, sizeof(double)) : NULL;
    b.tail = arena ? weft_arena_calloc(arena, p->count, sizeof(double)) : NULL;
    b.sorted = arena ? weft_arena_calloc(arena, 2 * p->count, sizeof(double)) : NULL;
    if (!b.head || !b.tail || !b.sorted) {
        weft_arena_free(arena);
        return weft_no_memory("the lower bound of %" PRId64 " cascades", p->count);
    }
    WEFT_GO(functions(&b, arena));
    compute_paths(&b);
    sort_paths(&b);
    weft_cascade_bound bound = {0};
    for (int32_t c = 0; c < p->count; c++) {
        double least = INFINITY;
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++)
            least = fmin(least, p->seconds[o] * p->degree[o]);
        bound.area += least;
        bound.critical_path = fmax(bound.critical_path,
                                   b.head[c] + p->seconds[p->first_option[c + 1] - 1] + b.tail[c]);
    }
    bound.area /= (double)p->devices;
    /* a sum of doubles has a relative error of at most count * 2^-53; subtract it to stay a lower
     * bound */
    const double safe = 1 - 1e-12 - (double)p->count * 4e-16;
    double low = fmax(bound.critical_path, bound.area) * safe;
    double high = fmax(upper, low);
    for (int i = 0; i < 50 && high - low > 1e-10 * high; i++) {
        const double middle = 0.5 * (low + high);
        if (refuted(&b, middle))
            low = middle;
        else
            high = middle;
    }
    bound.value = fmin(low * safe, upper);
    *out = bound;
out:
    weft_arena_free(arena);
    return status;
}
