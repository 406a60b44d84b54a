/* Skip-aware partition. The paper's dynamic programme over (i, j, k) takes the minimum over all
 * (i', j') of a maximum of three terms. For a *given* bound T the two new stages are independent:
 * (i', j') -> (i, j) is allowed when cost[i', i) <= T and cost[j, j') <= T. A row of states is
 * therefore a bit set, and one level is "spread along j, then OR over a window of rows". Bisection
 * over the O(n^2) possible stage costs finds the optimum. The search is exact; n = 1,000 takes
 * milliseconds. */
#include "plan/pipeline/partition.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORD = 64 };
/* transitions above which the greedy search replaces the exact search with priced skips */
static const double skip_work_limit = 3e9;
/* transitions above which ties of the bottleneck are not balanced */
static const double balance_work_limit = 1e9;

static const double MOST_SECONDS = 1e15; /* largest accepted duration */

/* Checks one number. `kind` NULL: `member` is a member of the costs. */
static weft_status check_number(double value, const char *kind, int64_t index, const char *member)
{
    if (isfinite(value) && value >= 0)
        return WEFT_OK;
    char key[64];
    if (kind)
        snprintf(key, sizeof key, "%s[%" PRId64 "].%s", kind, index, member);
    else
        snprintf(key, sizeof key, "%s", member);
    return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = key, WEFT_NUMBER(value)),
                      "%g is not a finite number of at least 0", value);
}

weft_status weft_pp_costs_check(const weft_pp_costs *costs)
{
    if (costs->op_count < 1)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "ops"),
                          "no operators are given; at least one is needed");
    double total = 0, seconds = 0;
    for (int64_t i = 0; i < costs->op_count; i++) {
        const weft_pp_op *op = &costs->op[i];
        WEFT_TRY(check_number(op->forward, "ops", i, "forward"));
        WEFT_TRY(check_number(op->backward, "ops", i, "backward"));
        WEFT_TRY(check_number(op->output_bytes, "ops", i, "output_bytes"));
        WEFT_TRY(check_number(op->parameter_bytes, "ops", i, "parameter_bytes"));
        WEFT_TRY(check_number(op->activation_bytes, "ops", i, "activation_bytes"));
        seconds += op->forward + op->backward;
        total += op->forward + op->backward + op->output_bytes + op->parameter_bytes +
                 op->activation_bytes;
    }
    if (!isfinite(total))
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "ops"),
                          "the costs of all operators add up to more than a double holds");
    WEFT_TRY(check_number(costs->lambda, NULL, 0, "lambda"));
    WEFT_TRY(check_number(costs->latency, NULL, 0, "latency"));
    WEFT_TRY(check_number(costs->bandwidth, NULL, 0, "bandwidth"));
    if (costs->lambda > 0 && !(costs->bandwidth > 0))
        return weft_error(WEFT_MSG_COSTS_INVALID,
                          WEFT_AT(.key = "bandwidth", WEFT_NUMBER(costs->bandwidth)),
                          "the bandwidth is %g, but lambda is %g; give the bytes per second "
                          "between two devices, or lambda 0",
                          costs->bandwidth, costs->lambda);
    double sent = 0; /* seconds of all sends, an upper bound for one stage */
    for (int64_t i = 0; i < costs->op_count && costs->lambda > 0; i++)
        sent += costs->lambda * (costs->latency + costs->op[i].output_bytes / costs->bandwidth);
    for (int64_t s = 0; s < costs->skip_count && costs->lambda > 0; s++)
        sent += costs->lambda * costs->skip[s].bytes / costs->bandwidth;
    if (!(seconds + sent <= MOST_SECONDS))
        return weft_error(WEFT_MSG_COSTS_INVALID,
                          WEFT_AT(.key = "ops", WEFT_NUMBER(seconds + sent)),
                          "the operators need %g s and their sends %g s (lambda (latency + bytes / "
                          "bandwidth)), more than the limit of %g s; check the units",
                          seconds, sent, MOST_SECONDS);
    for (int64_t s = 0; s < costs->skip_count; s++) {
        const weft_skip *skip = &costs->skip[s];
        char key[64];
        snprintf(key, sizeof key, "skips[%" PRId64 "]", s);
        if (skip->from < 0 || skip->to < 0 || skip->from >= costs->op_count ||
            skip->to >= costs->op_count)
            return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = key),
                              "[%d, %d] is outside the operators 0 to %" PRId64, skip->from,
                              skip->to, costs->op_count - 1);
        if (skip->from >= skip->to)
            return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = key),
                              "[%d, %d] does not point forward; write the producer first",
                              skip->from, skip->to);
        WEFT_TRY(check_number(skip->bytes, "skips", s, "bytes"));
    }
    return WEFT_OK;
}

/* Data shared by the searches. Positions run from 0 to n; cost(x, y) is the cost of the stage [x,
 * y). */
typedef struct problem {
    const weft_pp_costs *costs;
    int64_t n, pp_stages;
    long double *prefix; /* [n + 1] forward seconds */
    double *send;    /* [n + 1] lambda * (latency + output / bandwidth) of a stage ending here */
    double per_byte; /* lambda / bandwidth */
    int64_t tries;   /* bottlenecks tried by solve_collocated */
} problem;

static double cost(const problem *p, int64_t x, int64_t y)
{
    return (double)(p->prefix[y] - p->prefix[x]) + p->send[y];
}

static weft_status problem_init(const weft_pp_costs *costs, int64_t pp_stages, problem *p)
{
    const int64_t n = costs->op_count;
    *p = (problem){.costs = costs, .n = n, .pp_stages = pp_stages};
    p->prefix = weft_calloc(n + 1, sizeof *p->prefix);
    p->send = weft_calloc(n + 1, sizeof *p->send);
    if (!p->prefix || !p->send) {
        weft_free(p->prefix);
        weft_free(p->send);
        return weft_no_memory("a partition of %" PRId64 " operators", n);
    }
    p->per_byte = costs->lambda > 0 ? costs->lambda / costs->bandwidth : 0;
    for (int64_t i = 0; i < n; i++) {
        p->prefix[i + 1] = p->prefix[i] + (long double)costs->op[i].forward;
        p->send[i + 1] = costs->lambda * costs->latency + p->per_byte * costs->op[i].output_bytes;
    }
    return WEFT_OK;
}

static void problem_free(problem *p)
{
    weft_free(p->prefix);
    weft_free(p->send);
}

void weft_partition_free(weft_partition *partition)
{
    if (!partition)
        return;
    weft_free(partition->cut);
    weft_free(partition->collocated);
    *partition = (weft_partition){0};
}

int64_t weft_partition_stage_of(const weft_partition *partition, int64_t op)
{
    int64_t low = 0, high = partition->pp_stages - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (partition->cut[middle] <= op)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* An edge between neighbours is not a skip (PULSE §IV-B: |i - j| > 1). */
static bool is_constraint(const weft_skip *skip)
{
    return skip->to > skip->from + 1;
}

weft_status weft_partition_from_cuts(const weft_pp_costs *costs, int64_t pp_stages,
                                     const int64_t *cut, weft_collocation mode, weft_partition *out)
{
    weft_partition made = {.pp_stages = pp_stages, .mode = mode};
    made.cut = weft_calloc(pp_stages + 1, sizeof *made.cut);
    if (costs->skip_count > 0)
        made.collocated = weft_calloc(costs->skip_count, sizeof *made.collocated);
    double *seconds = weft_calloc(pp_stages, sizeof *seconds);
    if (!made.cut || !seconds || (costs->skip_count > 0 && !made.collocated)) {
        weft_free(seconds);
        weft_partition_free(&made);
        return weft_no_memory("a partition of %" PRId64 " stages", pp_stages);
    }
    memcpy(made.cut, cut, (size_t)(pp_stages + 1) * sizeof *cut);
    const double per_byte = costs->lambda > 0 ? costs->lambda / costs->bandwidth : 0;
    for (int64_t q = 0; q < pp_stages; q++) {
        for (int64_t i = cut[q]; i < cut[q + 1]; i++)
            seconds[q] += costs->op[i].forward;
        seconds[q] +=
            costs->lambda * costs->latency + per_byte * costs->op[cut[q + 1] - 1].output_bytes;
    }
    for (int64_t s = 0; s < costs->skip_count; s++) {
        const int64_t a = weft_partition_stage_of(&made, costs->skip[s].from);
        const int64_t b = weft_partition_stage_of(&made, costs->skip[s].to);
        made.collocated[s] = b == pp_stages - 1 - a || a == b;
        if (mode == WEFT_COLLOCATE_COST && !made.collocated[s] && is_constraint(&costs->skip[s]))
            seconds[a] += per_byte * costs->skip[s].bytes;
    }
    for (int64_t q = 0; q < pp_stages; q++)
        made.bottleneck = seconds[q] > made.bottleneck ? seconds[q] : made.bottleneck;
    weft_free(seconds);
    *out = made;
    return WEFT_OK;
}

/* ---- plain linear partition: O(p n^2) -------------------------------------------------------- */

static weft_status solve_linear(const problem *p, int64_t *cut)
{
    const int64_t n = p->n, pp_stages = p->pp_stages, width = n + 1;
    double *best = weft_calloc(2 * width, sizeof *best);
    int32_t *from = weft_calloc((pp_stages + 1) * width, sizeof *from);
    if (!best || !from) {
        weft_free(best);
        weft_free(from);
        return weft_no_memory("%" PRId64 " stages", pp_stages);
    }
    double *old = best, *now = best + width;
    for (int64_t i = 0; i <= n; i++)
        old[i] = i == 0 ? 0 : INFINITY;
    for (int64_t k = 1; k <= pp_stages; k++) {
        for (int64_t i = 0; i < width; i++)
            now[i] = INFINITY;
        for (int64_t i = k; i <= n - (pp_stages - k); i++) {
            /* a longer last stage only costs more: stop when it alone is worse */
            for (int64_t x = i - 1; x >= k - 1; x--) {
                const double last = cost(p, x, i);
                const double value = last > old[x] ? last : old[x];
                if (value < now[i]) {
                    now[i] = value;
                    from[k * width + i] = (int32_t)x;
                }
                if (last >= now[i])
                    break;
            }
        }
        double *swap = old;
        old = now;
        now = swap;
    }
    int64_t end = n;
    for (int64_t k = pp_stages; k >= 0; k--) {
        cut[k] = end;
        end = k > 0 ? from[k * width + end] : 0;
    }
    weft_free(best);
    weft_free(from);
    return WEFT_OK;
}

/* ---- every skip collocated: bit sets under a bound ------------------------------------------- */

/* reach[k] has a row per prefix length i and a bit per suffix start j. A set bit: the operators [0,
 * i) and [j, n) can be k stages each, and exactly the skips that start in [0, i) end in [j, n). */
typedef struct fold {
    const problem *p;
    int64_t n, words, levels; /* levels = stages / 2 */
    uint64_t *reach;          /* [levels + 1][n + 1][words] */
    uint64_t *table;          /* [log][n + 1][words]: ORs of 2^l spread rows */
    int64_t log;
    int64_t *low;           /* [n + 1]: first x with cost[x, y) <= T; y if none */
    int64_t *from_j, *to_j; /* [n + 1]: legal suffix starts of a row, from_j <= j <= to_j */
} fold;

static uint64_t *reach_row(const fold *f, int64_t level, int64_t i)
{
    return f->reach + (level * (f->n + 1) + i) * f->words;
}
static uint64_t *table_row(const fold *f, int64_t log, int64_t i)
{
    return f->table + (log * (f->n + 1) + i) * f->words;
}
static bool bit(const uint64_t *row, int64_t j)
{
    return row[j / WORD] >> (j % WORD) & 1;
}

static void fold_free(fold *f)
{
    weft_free(f->reach);
    weft_free(f->table);
    weft_free(f->low);
    weft_free(f->from_j);
    weft_free(f->to_j);
}

/* `active` marks the skips to collocate; NULL: all. */
static weft_status fold_init(const problem *p, const bool *active, fold *f)
{
    const int64_t n = p->n;
    *f = (fold){.p = p, .n = n, .words = (n + WORD) / WORD, .levels = p->pp_stages / 2, .log = 1};
    while ((int64_t)1 << f->log <= n)
        f->log++;
    if ((double)(f->levels + 1 + f->log) * (double)(n + 1) * (double)f->words * 8 > 4e9)
        return weft_error(WEFT_MSG_PLAN_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(n)),
                          "%" PRId64 " operators in %" PRId64
                          " stages with skips are too many for the exact "
                          "search; merge adjacent operators",
                          n, p->pp_stages);
    const int64_t row = f->words * (int64_t)sizeof(uint64_t),
                  index = (n + 1) * (int64_t)sizeof(int64_t);
    f->reach = weft_alloc((f->levels + 1) * (n + 1) * row);
    f->table = weft_alloc(f->log * (n + 1) * row);
    f->low = weft_alloc(index);
    f->from_j = weft_alloc(index);
    f->to_j = weft_alloc(index);
    if (!f->reach || !f->table || !f->low || !f->from_j || !f->to_j) {
        fold_free(f);
        return weft_no_memory("%" PRId64 " operators in %" PRId64 " stages", n, p->pp_stages);
    }
    for (int64_t i = 0; i <= n; i++) {
        f->from_j[i] = i;
        f->to_j[i] = n;
    }
    for (int64_t s = 0; s < p->costs->skip_count; s++) {
        const weft_skip *skip = &p->costs->skip[s];
        if (!is_constraint(skip) || (active && !active[s]))
            continue;
        for (int64_t i = 0; i <= n; i++)
            if (skip->from < i) { /* begins in the prefix: must end in the suffix */
                if (f->to_j[i] > skip->to)
                    f->to_j[i] = skip->to;
            } else if (f->from_j[i] < skip->to + 1) {
                f->from_j[i] = skip->to + 1;
            }
    }
    return WEFT_OK;
}

/* Fills low[] for the bound. Returns the smallest stage cost above the bound. */
static double set_bound(fold *f, double bound)
{
    double next = INFINITY;
    int64_t x = 0;
    for (int64_t y = 1; y <= f->n; y++) {
        /* send[y] varies, so the window may also grow to the left */
        while (x > 0 && cost(f->p, x - 1, y) <= bound)
            x--;
        while (x < y && cost(f->p, x, y) > bound)
            x++;
        f->low[y] = x;
        if (x > 0) {
            const double above = cost(f->p, x - 1, y);
            next = above < next ? above : next;
        }
    }
    return next;
}

/* to = { j : some j' in `row` with low[j'] <= j < j' } */
static void spread(const fold *f, const uint64_t *row, uint64_t *to)
{
    memset(to, 0, (size_t)f->words * sizeof *to);
    int64_t lowest = f->n + 1; /* smallest low[] of the set bits above j */
    for (int64_t w = f->words - 1; w >= 0; w--) {
        if (row[w] == 0 && lowest > w * WORD + WORD - 1)
            continue;
        uint64_t made = 0;
        for (int64_t b = WORD - 1; b >= 0; b--) {
            const int64_t j = w * WORD + b;
            if (lowest <= j)
                made |= (uint64_t)1 << b;
            if (row[w] >> b & 1 && f->low[j] < lowest)
                lowest = f->low[j];
        }
        to[w] = made;
    }
}

/* Clears all bits of a row except from..to. */
static void mask_range(uint64_t *row, int64_t words, int64_t from, int64_t to)
{
    for (int64_t w = 0; w < words; w++) {
        const int64_t base = w * WORD;
        if (base + WORD - 1 < from || base > to) {
            row[w] = 0;
            continue;
        }
        if (from > base)
            row[w] &= ~(uint64_t)0 << (from - base);
        if (to < base + WORD - 1)
            row[w] &= ~(uint64_t)0 >> (base + WORD - 1 - to);
    }
}

/* Returns true if a partition has every stage within the bound of set_bound(). Then (*end_i,
 * *end_j) is the state before the middle stage (odd) or the meeting point (even, end_i ==
 * end_j). */
static bool fold_reaches(fold *f, int64_t *end_i, int64_t *end_j)
{
    const int64_t n = f->n, words = f->words;
    memset(f->reach, 0, (size_t)((n + 1) * words) * sizeof *f->reach);
    reach_row(f, 0, 0)[n / WORD] |= (uint64_t)1 << (n % WORD);
    for (int64_t level = 1; level <= f->levels; level++) {
        for (int64_t i = 0; i <= n; i++)
            spread(f, reach_row(f, level - 1, i), table_row(f, 0, i));
        for (int64_t l = 1; l < f->log; l++) {
            const int64_t half = (int64_t)1 << (l - 1);
            for (int64_t i = 0; i + 2 * half <= n + 1; i++) {
                const uint64_t *a = table_row(f, l - 1, i), *b = table_row(f, l - 1, i + half);
                uint64_t *to = table_row(f, l, i);
                for (int64_t w = 0; w < words; w++)
                    to[w] = a[w] | b[w];
            }
        }
        for (int64_t i = 0; i <= n; i++) {
            uint64_t *row = reach_row(f, level, i);
            memset(row, 0, (size_t)words * sizeof *row);
            if (i == 0 || f->low[i] >= i)
                continue;
            const int64_t length = i - f->low[i];
            const int64_t l = 63 - __builtin_clzll((unsigned long long)length);
            const uint64_t *a = table_row(f, l, f->low[i]);
            const uint64_t *b = table_row(f, l, i - ((int64_t)1 << l));
            for (int64_t w = 0; w < words; w++)
                row[w] = a[w] | b[w];
            mask_range(row, words, f->from_j[i], f->to_j[i]);
        }
    }
    for (int64_t i = 0; i <= n; i++) {
        const uint64_t *row = reach_row(f, f->levels, i);
        if (f->p->pp_stages % 2 == 0) {
            if (bit(row, i)) {
                *end_i = *end_j = i;
                return true;
            }
            continue;
        }
        for (int64_t j = i + 1; j <= n; j++)
            if (bit(row, j) && f->low[j] <= i) {
                *end_i = i;
                *end_j = j;
                return true;
            }
    }
    return false;
}

static void fold_backtrack(const fold *f, int64_t i, int64_t j, int64_t *cut)
{
    const int64_t pp_stages = f->p->pp_stages;
    for (int64_t level = f->levels; level > 0; level--) {
        cut[level] = i;
        cut[pp_stages - level] = j;
        int64_t x = i - 1, y = -1;
        for (; x >= f->low[i]; x--) {
            const uint64_t *row = reach_row(f, level - 1, x);
            for (y = j + 1; y <= f->n; y++)
                if (bit(row, y) && f->low[y] <= j)
                    break;
            if (y <= f->n)
                break;
        }
        i = x;
        j = y;
    }
    cut[0] = 0;
    cut[pp_stages] = f->n;
}

static double worst_pp_stage(const problem *p, const int64_t *cut)
{
    double worst = 0;
    for (int64_t q = 0; q < p->pp_stages; q++) {
        const double seconds = cost(p, cut[q], cut[q + 1]);
        worst = seconds > worst ? seconds : worst;
    }
    return worst;
}

/* Sets *feasible if any partition collocates the active skips (NULL: all), whatever its
 * bottleneck. */
static weft_status can_collocate(const problem *p, const bool *active, bool *feasible)
{
    fold f;
    int64_t i, j;
    WEFT_TRY(fold_init(p, active, &f));
    set_bound(&f, DBL_MAX);
    *feasible = fold_reaches(&f, &i, &j);
    fold_free(&f);
    return WEFT_OK;
}

/* Finds the best partition that collocates the active skips. *feasible false: no such partition. */
static weft_status solve_collocated(problem *p, const bool *active, int64_t *cut, bool *feasible)
{
    fold f;
    WEFT_TRY(fold_init(p, active, &f));
    int64_t i, j;
    set_bound(&f, DBL_MAX);
    *feasible = fold_reaches(&f, &i, &j);
    if (!*feasible) {
        fold_free(&f);
        return WEFT_OK;
    }
    fold_backtrack(&f, i, j, cut);
    /* `low` is infeasible, `high` is feasible: bisect until no stage cost is between them */
    double high = worst_pp_stage(p, cut);
    double low = (double)p->prefix[p->n] / (double)p->pp_stages * (1 - 1e-12);
    while (low < high) {
        double bound = low + (high - low) / 2;
        if (bound >= high)
            bound = low;
        const double next = set_bound(&f, bound);
        p->tries++;
        if (fold_reaches(&f, &i, &j)) {
            fold_backtrack(&f, i, j, cut);
            high = worst_pp_stage(p, cut);
        } else if (next >= high) {
            break;
        } else {
            low = bound;
        }
    }
    fold_free(&f);
    return WEFT_OK;
}

/* ---- skips may be sent: O(p n^4) at worst, pruned by a known plan ---------------------------- */

typedef struct skip_search {
    const problem *p;
    /* Set if all skips are collocated: stages stay within `bound`, and states within the legal
     * suffix starts of fold_init. A pair then costs the sum of its stages, the work of its
     * device. */
    const fold *legal; /* NULL: skips may be sent */
    double bound;
    double *between; /* [n + 1][n + 1]: bytes of skips with from < x and to < y */
    double *best[2]; /* [n + 1][n + 1], for the last two levels */
    int32_t *step;   /* [levels + 1][n + 1][n + 1][2]: predecessor of a state */
} skip_search;

/* Bytes of the skips that start in [a, b) and end in [c, d). */
static double skip_bytes(const skip_search *s, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t w = s->p->n + 1;
    const double *t = s->between;
    const double bytes = t[b * w + d] - t[a * w + d] - t[b * w + c] + t[a * w + c];
    return bytes > 0 ? bytes : 0;
}

/* Returns the cost of the stage pair [x, i) and [j, y). The left stage sends the skips that end
 * outside both stages. */
static double pair_cost(const skip_search *s, int64_t x, int64_t i, int64_t j, int64_t y)
{
    const int64_t n = s->p->n;
    if (s->legal) {
        const double a = cost(s->p, x, i), b = cost(s->p, j, y);
        return a > s->bound || b > s->bound || j < s->legal->from_j[i] || j > s->legal->to_j[i]
                   ? INFINITY
                   : a + b;
    }
    const double left =
        cost(s->p, x, i) + s->p->per_byte * (skip_bytes(s, x, i, i, n) - skip_bytes(s, x, i, j, y));
    const double right = cost(s->p, j, y) + s->p->per_byte * skip_bytes(s, j, y, y, n);
    return left > right ? left : right;
}

static double middle_cost(const skip_search *s, int64_t i, int64_t j)
{
    const double seconds = cost(s->p, i, j);
    if (s->legal)
        return seconds > s->bound ? INFINITY : seconds;
    return seconds + s->p->per_byte * skip_bytes(s, i, j, j, s->p->n);
}

static void skip_search_free(skip_search *s)
{
    weft_free(s->between);
    weft_free(s->best[0]);
    weft_free(s->best[1]);
    weft_free(s->step);
}

static weft_status skip_search_init(const problem *p, skip_search *s)
{
    const int64_t w = p->n + 1, levels = p->pp_stages / 2;
    *s = (skip_search){.p = p};
    s->between = weft_calloc(w * w, sizeof(double));
    s->best[0] = weft_calloc(w * w, sizeof(double));
    s->best[1] = weft_calloc(w * w, sizeof(double));
    s->step = weft_calloc((levels + 1) * w * w * 2, sizeof *s->step);
    if (!s->between || !s->best[0] || !s->best[1] || !s->step) {
        skip_search_free(s);
        return weft_no_memory("%" PRId64 " operators", p->n);
    }
    for (int64_t k = 0; k < p->costs->skip_count; k++)
        if (is_constraint(&p->costs->skip[k]))
            s->between[(p->costs->skip[k].from + 1) * w + p->costs->skip[k].to + 1] +=
                p->costs->skip[k].bytes;
    for (int64_t x = 1; x < w; x++)
        for (int64_t y = 1; y < w; y++)
            s->between[x * w + y] += s->between[(x - 1) * w + y] + s->between[x * w + y - 1] -
                                     s->between[(x - 1) * w + y - 1];
    return WEFT_OK;
}

/* Extends every state of level k - 1 by one pair of stages, while the plan can still beat `limit`.
 * Both loops end where the operators alone are too slow. */
static void skip_search_level(skip_search *s, int64_t k, double limit)
{
    const int64_t n = s->p->n, w = n + 1;
    const double *old = s->best[(k - 1) % 2];
    double *now = s->best[k % 2];
    int32_t *step = s->step + k * w * w * 2;
    const double longest = s->legal && s->bound < limit ? s->bound : limit;
    for (int64_t c = 0; c < w * w; c++)
        now[c] = INFINITY;
    for (int64_t x = k - 1; x <= n; x++)
        for (int64_t y = x; y <= n; y++) {
            const double before = old[x * w + y];
            if (!(before < limit))
                continue;
            for (int64_t i = x + 1; i <= y; i++) {
                if ((double)(s->p->prefix[i] - s->p->prefix[x]) > longest)
                    break;
                for (int64_t j = y - 1; j >= i; j--) {
                    if ((double)(s->p->prefix[y] - s->p->prefix[j]) > longest)
                        break;
                    double value = pair_cost(s, x, i, j, y);
                    value = value > before ? value : before;
                    if (value < limit && value < now[i * w + j]) {
                        now[i * w + j] = value;
                        step[(i * w + j) * 2] = (int32_t)x;
                        step[(i * w + j) * 2 + 1] = (int32_t)y;
                    }
                }
            }
        }
}

/* Searches a plan better than `limit`; *found false: none. `legal` and `bound` as in
 * skip_search. */
static weft_status solve_skip_search(const problem *p, const fold *legal, double bound,
                                     double limit, int64_t *cut, bool *found)
{
    const int64_t n = p->n, w = n + 1, levels = p->pp_stages / 2;
    skip_search s;
    WEFT_TRY(skip_search_init(p, &s));
    s.legal = legal;
    s.bound = bound;
    for (int64_t c = 0; c < w * w; c++)
        s.best[0][c] = INFINITY;
    s.best[0][n] = 0; /* state (0, n) */
    for (int64_t k = 1; k <= levels; k++)
        skip_search_level(&s, k, limit);
    const double *last = s.best[levels % 2];
    double best = limit;
    int64_t i = -1, j = -1;
    for (int64_t x = 0; x <= n; x++)
        for (int64_t y = x; y <= n; y++) {
            double value = last[x * w + y];
            if (p->pp_stages % 2 == 0 ? x != y : x == y)
                continue;
            if (p->pp_stages % 2 && value < best) {
                const double middle = middle_cost(&s, x, y);
                value = value > middle ? value : middle;
            }
            if (value < best) {
                best = value;
                i = x;
                j = y;
            }
        }
    *found = i >= 0;
    if (*found) {
        for (int64_t k = levels; k > 0; k--) {
            cut[k] = i;
            cut[p->pp_stages - k] = j;
            const int32_t *step = s.step + (k * w * w + i * w + j) * 2;
            i = step[0];
            j = step[1];
        }
        cut[0] = 0;
        cut[p->pp_stages] = n;
    }
    skip_search_free(&s);
    return WEFT_OK;
}

/* Returns the transitions of the exact search, from the longest stage whose seconds stay below
 * `limit`. */
static double skip_search_work(const problem *p, double limit)
{
    int64_t longest = 1;
    for (int64_t x = 0, y = 0; y <= p->n; y++) {
        while ((double)(p->prefix[y] - p->prefix[x]) >= limit && x < y)
            x++;
        longest = y - x > longest ? y - x : longest;
    }
    const double states = 0.5 * (double)p->n * (double)p->n;
    return states * (double)(longest * longest) * (double)(p->pp_stages / 2);
}

/* Chooses among the partitions of the optimal bottleneck the one whose busiest device (a pair of
 * mirrored stages) has the least work. Eq. 1 does not require this, but it shortens the wave's
 * iteration. Skipped above a work limit. */
static weft_status balance_pairs(const problem *p, int64_t *cut)
{
    const double bound = worst_pp_stage(p, cut) * (1 + 1e-12);
    double heaviest = 0;
    for (int64_t q = 0; q < (p->pp_stages + 1) / 2; q++) {
        const int64_t r = p->pp_stages - 1 - q;
        const double pair = cost(p, cut[q], cut[q + 1]) + (r > q ? cost(p, cut[r], cut[r + 1]) : 0);
        heaviest = pair > heaviest ? pair : heaviest;
    }
    const double w = (double)p->n + 1;
    if (skip_search_work(p, bound) > balance_work_limit ||
        (double)(p->pp_stages / 2 + 3) * w * w * 8 > 4e8)
        return WEFT_OK;
    fold legal;
    WEFT_TRY(fold_init(p, NULL, &legal));
    int64_t *other = weft_calloc(p->pp_stages + 1, sizeof *other);
    bool found = false;
    weft_status_code status = WEFT_OK;
    WEFT_GO(other ? solve_skip_search(p, &legal, bound, heaviest * (1 - 1e-9), other, &found)
                  : weft_no_memory("%" PRId64 " stages", p->pp_stages));
    if (found)
        memcpy(cut, other, (size_t)(p->pp_stages + 1) * sizeof *cut);
out:
    weft_free(other);
    fold_free(&legal);
    return status;
}

static weft_status evaluate(const problem *p, const int64_t *cut, weft_collocation mode,
                            double *seconds)
{
    weft_partition made;
    WEFT_TRY(weft_partition_from_cuts(p->costs, p->pp_stages, cut, mode, &made));
    *seconds = made.bottleneck;
    weft_partition_free(&made);
    return WEFT_OK;
}

/* Activates the skips order[first .. end) that can be collocated together with the active skips, in
 * this order of preference. Halves a range that does not fit. */
static weft_status activate(const problem *p, const int64_t *order, int64_t first, int64_t end,
                            bool *active)
{
    bool feasible = false;
    for (int64_t k = first; k < end; k++)
        active[order[k]] = true;
    WEFT_TRY(can_collocate(p, active, &feasible));
    if (feasible || first >= end)
        return WEFT_OK;
    for (int64_t k = first; k < end; k++)
        active[order[k]] = false;
    if (end - first == 1)
        return WEFT_OK;
    const int64_t middle = first + (end - first) / 2;
    WEFT_TRY(activate(p, order, first, middle, active));
    return activate(p, order, middle, end, active);
}

/* Collocates the heaviest skips that fit, then repeatedly half of them. Keeps the cheapest result,
 * with the cost of sending the other skips. `active` has skip_count entries. */
static weft_status solve_subset(problem *p, bool *active, int64_t *cut)
{
    const int64_t count = p->costs->skip_count;
    int64_t *order = weft_calloc(count, sizeof *order);
    int64_t *trial = weft_calloc(p->pp_stages + 1, sizeof *trial);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(order && trial, "%" PRId64 " skips", count));
    for (int64_t s = 0; s < count; s++) { /* heaviest first; ties by index */
        int64_t at = s;
        for (; at > 0 && p->costs->skip[order[at - 1]].bytes < p->costs->skip[s].bytes; at--)
            order[at] = order[at - 1];
        order[at] = s;
        active[s] = false;
    }
    WEFT_GO(activate(p, order, 0, count, active));
    double best = INFINITY, value;
    for (int64_t most = count;; most /= 2) {
        int64_t left = most;
        for (int64_t k = 0; k < count; k++)
            if (active[order[k]] && left-- <= 0)
                active[order[k]] = false;
        bool feasible = false;
        WEFT_GO(solve_collocated(p, active, trial, &feasible));
        if (feasible) {
            WEFT_GO(evaluate(p, trial, WEFT_COLLOCATE_COST, &value));
            if (value < best) {
                best = value;
                memcpy(cut, trial, (size_t)(p->pp_stages + 1) * sizeof *cut);
            }
        }
        if (most == 0)
            break;
    }
out:
    weft_free(order);
    weft_free(trial);
    return status;
}

static weft_status solve_with_skips(problem *p, int64_t *cut, bool *proved)
{
    int64_t *other = weft_calloc(p->pp_stages + 1, sizeof *other);
    bool *active = weft_alloc(p->costs->skip_count + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(other && active, "%" PRId64 " stages", p->pp_stages));
    double best, value;
    WEFT_GO(solve_linear(p, cut)); /* collocates skips only by chance */
    WEFT_GO(evaluate(p, cut, WEFT_COLLOCATE_COST, &best));
    WEFT_GO(solve_subset(p, active, other));
    WEFT_GO(evaluate(p, other, WEFT_COLLOCATE_COST, &value));
    if (value < best) {
        best = value;
        memcpy(cut, other, (size_t)(p->pp_stages + 1) * sizeof *cut);
    }
    *proved = skip_search_work(p, best) <= skip_work_limit;
    if (*proved) {
        bool found;
        WEFT_GO(solve_skip_search(p, NULL, INFINITY, best, other, &found));
        if (found)
            memcpy(cut, other, (size_t)(p->pp_stages + 1) * sizeof *cut);
    }
out:
    weft_free(other);
    weft_free(active);
    return status;
}

/* ---- public functions ------------------------------------------------------------------------ */

/* Returns an error with the largest number of stages that fits, and a skip that prevents more. */
static weft_status explain_infeasible(const weft_pp_costs *costs, int64_t pp_stages, bool *active)
{
    enum { TRIES = 100 }; /* skips tried, if there are many */
    int64_t most = pp_stages - 1;
    bool feasible = false;
    for (; most > 0; most--) {
        problem p;
        WEFT_TRY(problem_init(costs, most, &p));
        const weft_status_code status = can_collocate(&p, NULL, &feasible);
        problem_free(&p);
        WEFT_TRY(status);
        if (feasible)
            break;
    }
    for (int64_t s = 0; s < costs->skip_count; s++)
        active[s] = true;
    int64_t culprit = -1;
    for (int64_t s = 0; s < costs->skip_count && s < TRIES && culprit < 0; s++) {
        problem p;
        active[s] = false;
        WEFT_TRY(problem_init(costs, pp_stages, &p));
        const weft_status_code status = can_collocate(&p, active, &feasible);
        problem_free(&p);
        WEFT_TRY(status);
        active[s] = true;
        if (feasible)
            culprit = s;
    }
    char which[96] = "";
    if (culprit >= 0)
        snprintf(which, sizeof which, "; without the skip [%d, %d] it is possible",
                 costs->skip[culprit].from, costs->skip[culprit].to);
    return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "stages", WEFT_NUMBER(pp_stages)),
                      "the skips cannot all be collocated in %" PRId64
                      " stages of at least one operator; at most %" PRId64 " "
                      "stages are possible%s. Use fewer stages, or send some skips (--skips price)",
                      pp_stages, most, which);
}

static bool has_constraint(const weft_pp_costs *costs)
{
    for (int64_t s = 0; s < costs->skip_count; s++)
        if (is_constraint(&costs->skip[s]))
            return true;
    return false;
}

static weft_status check_pp_stages(const weft_pp_costs *costs, int64_t pp_stages)
{
    if (pp_stages < 1)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "stages", WEFT_NUMBER(pp_stages)),
                          "%" PRId64 " is below 1", pp_stages);
    if (pp_stages > costs->op_count)
        return weft_error(
            WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "stages", WEFT_NUMBER(pp_stages)),
            "%" PRId64 " stages need at least %" PRId64 " operators; the model has %" PRId64,
            pp_stages, pp_stages, costs->op_count);
    return WEFT_OK;
}

weft_status weft_partition_solve(const weft_pp_costs *costs, int64_t pp_stages,
                                 weft_collocation mode, weft_partition *out)
{
    WEFT_TRY(weft_pp_costs_check(costs));
    WEFT_TRY(check_pp_stages(costs, pp_stages));
    problem p;
    WEFT_TRY(problem_init(costs, pp_stages, &p));
    weft_status_code status = WEFT_OK;
    bool proved = true, feasible = false;
    int64_t *cut = weft_calloc(pp_stages + 1, sizeof *cut);
    bool *active = weft_alloc(costs->skip_count + 1);
    WEFT_GO(WEFT_ALLOCATED(cut && active, "%" PRId64 " stages", pp_stages));
    if (mode == WEFT_COLLOCATE_NONE || !has_constraint(costs)) {
        WEFT_GO(solve_linear(&p, cut));
        mode = mode == WEFT_COLLOCATE_AUTO ? WEFT_COLLOCATE_ALL : mode;
    } else if (mode == WEFT_COLLOCATE_COST) {
        WEFT_GO(solve_with_skips(&p, cut, &proved));
    } else {
        WEFT_GO(solve_collocated(&p, NULL, cut, &feasible));
        if (feasible)
            WEFT_GO(balance_pairs(&p, cut));
        if (!feasible && mode == WEFT_COLLOCATE_ALL)
            WEFT_GO(explain_infeasible(costs, pp_stages, active));
        if (!feasible)
            WEFT_GO(solve_with_skips(&p, cut, &proved));
        mode = feasible ? WEFT_COLLOCATE_ALL : WEFT_COLLOCATE_COST;
    }
    WEFT_GO(weft_partition_from_cuts(costs, pp_stages, cut, mode, out));
    out->proved = proved;
    out->tries = p.tries;
out:
    weft_free(cut);
    weft_free(active);
    problem_free(&p);
    return status;
}

weft_status weft_partition_blockwise(const weft_pp_costs *costs, int64_t pp_stages,
                                     const int64_t *block, weft_partition *out)
{
    WEFT_TRY(weft_pp_costs_check(costs));
    WEFT_TRY(check_pp_stages(costs, pp_stages));
    const int64_t n = costs->op_count;
    int64_t blocks = 1;
    for (int64_t i = 1; i < n; i++)
        blocks += block ? block[i] != block[i - 1] : 1;
    if (pp_stages > blocks)
        return weft_error(
            WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "stages", WEFT_NUMBER(pp_stages)),
            "%" PRId64 " stages need at least %" PRId64 " blocks; the model has %" PRId64,
            pp_stages, pp_stages, blocks);
    int64_t *cut;
    WEFT_TRY(WEFT_NEW(cut, pp_stages + 1, "%" PRId64 " stages", pp_stages));
    for (int64_t i = 1, seen = 0, pp_stage = 1; i < n; i++) {
        const bool starts = block ? block[i] != block[i - 1] : true;
        seen += starts; /* the cut of stage q is after q n / stages blocks, rounded */
        if (starts && pp_stage < pp_stages &&
            seen == (2 * pp_stage * blocks + pp_stages) / (2 * pp_stages))
            cut[pp_stage++] = i;
    }
    cut[pp_stages] = n;
    const weft_status_code status =
        weft_partition_from_cuts(costs, pp_stages, cut, WEFT_COLLOCATE_NONE, out);
    weft_free(cut);
    return status;
}
