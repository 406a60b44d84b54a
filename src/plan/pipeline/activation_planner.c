#include "plan/pipeline/keep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void weft_keep_choice_free(weft_keep_choice *choice)
{
    if (!choice)
        return;
    weft_free(choice->recomputed);
    weft_free(choice->offloaded);
    *choice = (weft_keep_choice){0};
}

static weft_status choice_init(int64_t items, weft_keep_choice *c)
{
    *c = (weft_keep_choice){0};
    c->recomputed = weft_alloc((items + 1) * (int64_t)sizeof *c->recomputed);
    c->offloaded = weft_alloc((items + 1) * (int64_t)sizeof *c->offloaded);
    if (c->recomputed && c->offloaded)
        return WEFT_OK;
    weft_keep_choice_free(c);
    return weft_fail(WEFT_E_MEMORY, "out of memory for %lld items", (long long)items);
}

weft_status weft_keep_items_check(const weft_keep_item *item, int64_t items,
                                  weft_keep_copies copies)
{
    if (items < 1)
        return weft_fail(WEFT_E_ARG, "no items: there is nothing to decide");
    if (!isfinite(copies.window) || copies.window < 0)
        return weft_fail(WEFT_E_ARG,
                         "the offload window is %g s; it must be finite and not negative",
                         copies.window);
    if (!isfinite(copies.drag) || copies.drag < 0)
        return weft_fail(WEFT_E_ARG, "the drag of copies is %g; it must be finite and not negative",
                         copies.drag);
    for (int64_t i = 0; i < items; i++) {
        const char *name = item[i].name ? item[i].name : "";
        if (!isfinite(item[i].bytes) || item[i].bytes < 0)
            return weft_fail(WEFT_E_ARG, "item %lld %s: bytes are %g", (long long)i, name,
                             item[i].bytes);
        if (isnan(item[i].recompute) || item[i].recompute < 0 || isnan(item[i].offload) ||
            item[i].offload < 0)
            return weft_fail(WEFT_E_ARG,
                             "item %lld %s: recompute %g s, offload %g s; neither may be "
                             "negative or no number",
                             (long long)i, name, item[i].recompute, item[i].offload);
        if (item[i].count < 0 || item[i].count > 1000000)
            return weft_fail(WEFT_E_ARG, "item %lld %s: count %lld", (long long)i, name,
                             (long long)item[i].count);
    }
    return WEFT_OK;
}

static bool droppable(const weft_keep_item *x)
{
    return isfinite(x->recompute) || isfinite(x->offload);
}

static weft_status check_limit(const weft_keep_item *item, int64_t items, weft_keep_copies copies,
                               double limit)
{
    WEFT_TRY(weft_keep_items_check(item, items, copies));
    double all = 0, least = 0;
    for (int64_t i = 0; i < items; i++) {
        all += item[i].bytes * (double)item[i].count;
        least += droppable(&item[i]) ? 0 : item[i].bytes * (double)item[i].count;
    }
    if (!isfinite(all))
        return weft_fail(WEFT_E_ARG, "the items' bytes add up to more than a double holds");
    if (isnan(limit) || limit < least) {
        char need[32], have[32], total[32];
        return weft_fail(WEFT_E_INFEASIBLE,
                         "needs %s per device even when everything that can be is "
                         "recomputed or offloaded (%s when nothing is), limit %s",
                         weft_format_bytes((int64_t)fmin(least, 9e18), need),
                         weft_format_bytes((int64_t)fmin(all, 9e18), total),
                         weft_format_bytes((int64_t)fmax(fmin(limit, 9e18), -9e18), have));
    }
    return WEFT_OK;
}

/* What so many seconds of transfers add. */
static double exposed(weft_keep_copies copies, double transfer)
{
    return fmax(copies.drag > 0 ? copies.drag * transfer : 0, transfer - copies.window);
}

/* Fills kept and seconds from the counts. */
static void account(const weft_keep_item *item, int64_t items, weft_keep_copies copies,
                    weft_keep_choice *c)
{
    double kept = 0, recompute = 0, offload = 0;
    for (int64_t i = 0; i < items; i++) {
        kept += item[i].bytes * (double)(item[i].count - c->recomputed[i] - c->offloaded[i]);
        recompute += c->recomputed[i] > 0 ? item[i].recompute * (double)c->recomputed[i] : 0;
        offload += c->offloaded[i] > 0 ? item[i].offload * (double)c->offloaded[i] : 0;
    }
    c->kept = kept;
    c->seconds = recompute + exposed(copies, offload);
}

/* One step of the greedy: the most bytes per second, all equal ones of a layer at once would
 * overshoot. */
static bool greedy_step(const weft_keep_item *item, int64_t items, weft_keep_copies copies,
                        double *transfer, weft_keep_choice *c)
{
    double best = -1;
    int64_t chosen = -1;
    bool by_offload = false;
    for (int64_t i = 0; i < items; i++) {
        if (c->recomputed[i] + c->offloaded[i] >= item[i].count || !(item[i].bytes > 0))
            continue;
        const double more =
            exposed(copies, *transfer + item[i].offload) - exposed(copies, *transfer);
        const bool offload = more < item[i].recompute;
        const double seconds = offload ? more : item[i].recompute;
        if (isinf(seconds))
            continue;
        /* an offload that hides completely is free: spend the window where recompute is dearest */
        const double ratio =
            seconds > 0 ? item[i].bytes / seconds : 1e30 * (1 + fmin(item[i].recompute, 1e6));
        if (ratio > best) {
            best = ratio;
            chosen = i;
            by_offload = offload;
        }
    }
    if (chosen < 0)
        return false;
    if (by_offload) {
        c->offloaded[chosen]++;
        *transfer += item[chosen].offload;
    } else {
        c->recomputed[chosen]++;
    }
    return true;
}

weft_status weft_keep_greedy(const weft_keep_item *item, int64_t items, weft_keep_copies copies,
                             double limit, weft_keep_choice *out)
{
    WEFT_TRY(check_limit(item, items, copies, limit));
    weft_keep_choice c;
    WEFT_TRY(choice_init(items, &c));
    double transfer = 0;
    account(item, items, copies, &c);
    while (c.kept > limit && greedy_step(item, items, copies, &transfer, &c))
        account(item, items, copies, &c);
    if (c.kept > limit) { /* the sums round differently from the check's: everything is dropped */
        weft_keep_choice_free(&c);
        return weft_fail(WEFT_E_INFEASIBLE,
                         "the limit is missed by less than rounding; raise it by a byte");
    }
    for (bool moved = true; moved;) { /* take back what is not needed, most seconds first */
        moved = false;
        int64_t best = -1;
        bool best_offload = false;
        double saves = 0;
        for (int64_t i = 0; i < items; i++)
            for (int offload = 0; offload < 2; offload++) {
                int64_t *n = offload ? &c.offloaded[i] : &c.recomputed[i];
                if (*n == 0 || c.kept + item[i].bytes > limit)
                    continue;
                const double before = c.seconds;
                --*n;
                account(item, items, copies, &c);
                if (c.kept <= limit && before - c.seconds > saves) {
                    saves = before - c.seconds;
                    best = i;
                    best_offload = offload;
                }
                ++*n;
                account(item, items, copies, &c);
            }
        if (best >= 0) {
            --*(best_offload ? &c.offloaded[best] : &c.recomputed[best]);
            account(item, items, copies, &c);
            moved = true;
        }
    }
    *out = c;
    return WEFT_OK;
}

/* ---- exact --------------------------------------------------------------------------------- */

/* For any mu in [0, 1], -mu * window + the cheapest fractional cover at prices min(recompute,
 * slope * offload), slope = mu + (1 - mu) drag, bounds the remaining cost from below:
 * max(drag z, z - window) >= (1 - mu) drag z + mu (z - window). The best mu is where an item
 * changes from one to the other, slope = recompute / offload: those are tried, and 0 and 1. */
enum { PRICES = 18 };

typedef struct bound {
    const weft_keep_item *item;
    int64_t items;
    weft_keep_copies copies;
    double limit;
    int64_t *depth_item;       /* [items] the order of branching */
    int64_t *by_ratio[PRICES]; /* [items] positions in depth order, best bytes per price first */
    double *price[PRICES];     /* [items] by position */
    double mu[PRICES];
    int prices;
    double prefer;                   /* the multiplier whose choices are tried first */
    weft_keep_choice best;           /* counts by item */
    int64_t *recomputed, *offloaded; /* the path, by item */
    int64_t nodes, node_limit;
} bound;

static double slope(const bound *b, double mu)
{
    return mu + (1 - mu) * b->copies.drag;
}

static double lower_bound(const bound *b, int64_t depth, double need, double transfer)
{
    double best = 0;
    for (int k = 0; k < b->prices; k++) {
        const double mu = b->mu[k];
        double left = need, cost = slope(b, mu) * transfer - mu * b->copies.window;
        for (int64_t r = 0; r < b->items && left > 0; r++) {
            const int64_t at = b->by_ratio[k][r];
            if (at < depth || isinf(b->price[k][at]))
                continue;
            const weft_keep_item *x = &b->item[b->depth_item[at]];
            const double bytes = x->bytes * (double)x->count, take = left < bytes ? left : bytes;
            cost += bytes > 0 ? b->price[k][at] * take / x->bytes : 0;
            left -= bytes;
        }
        if (left > 0)
            return INFINITY;
        best = cost > best ? cost : best;
    }
    return best;
}

/* `need`: bytes that are still to be dropped; a remainder within rounding counts as met only if the
 * recount agrees. */
static void branch(bound *b, int64_t depth, double need, double seconds, double transfer)
{
    if (++b->nodes > b->node_limit)
        return;
    if (depth == b->items) {
        weft_keep_choice now = {.recomputed = b->recomputed, .offloaded = b->offloaded};
        account(b->item, b->items, b->copies, &now);
        if (now.kept > b->limit || !(now.seconds < b->best.seconds))
            return;
        b->best.kept = now.kept;
        b->best.seconds = now.seconds;
        memcpy(b->best.recomputed, b->recomputed, (size_t)b->items * sizeof *b->recomputed);
        memcpy(b->best.offloaded, b->offloaded, (size_t)b->items * sizeof *b->offloaded);
        return;
    }
    const double slack = 1e-12 * (1 + b->best.seconds);
    if (seconds + lower_bound(b, depth, need > 0 ? need - 1e-9 * b->limit : 0, transfer) >=
        b->best.seconds - slack)
        return;
    const int64_t i = b->depth_item[depth];
    const weft_keep_item *x = &b->item[i];
    /* never drop more of an item than is needed at this point */
    int64_t most = x->count;
    if (x->bytes > 0 && need / x->bytes < (double)most)
        most = need > 0 ? (int64_t)ceil(need / x->bytes) : 0;
    if (!(x->bytes > 0))
        most = 0;
    if (most < x->count && most > 0)
        most++; /* rounding */
    most = most < x->count ? most : x->count;
    for (int64_t total = most; total >= 0; total--)
        for (int64_t k = 0; k <= total; k++) {
            const int64_t out = slope(b, b->prefer) * x->offload < x->recompute ? total - k : k;
            if ((out > 0 && isinf(x->offload)) || (out < total && isinf(x->recompute)))
                continue;
            b->offloaded[i] = out;
            b->recomputed[i] = total - out;
            branch(b, depth + 1, need - x->bytes * (double)total,
                   seconds + (total > out ? x->recompute * (double)(total - out) : 0),
                   transfer + (out > 0 ? x->offload * (double)out : 0));
        }
    b->offloaded[i] = b->recomputed[i] = 0;
}

static double ratio_at(const bound *b, int k, int64_t at)
{
    const double bytes = b->item[b->depth_item[at]].bytes;
    return b->price[k][at] > 0 ? bytes / b->price[k][at] : bytes > 0 ? INFINITY : 0;
}

/* Positions by bytes per price under multiplier k, best first. */
static void sort_by_ratio(bound *b, int k)
{
    for (int64_t at = 0; at < b->items; at++) {
        const weft_keep_item *x = &b->item[b->depth_item[at]];
        b->price[k][at] =
            fmin(x->recompute, isinf(x->offload) ? INFINITY : slope(b, b->mu[k]) * x->offload);
        int64_t to = at;
        for (; to > 0 && ratio_at(b, k, b->by_ratio[k][to - 1]) < ratio_at(b, k, at); to--)
            b->by_ratio[k][to] = b->by_ratio[k][to - 1];
        b->by_ratio[k][to] = at;
    }
}

/* Branches on the best items first, as the multiplier with the highest bound ranks them. */
static void order_prices(bound *b, double need)
{
    b->mu[b->prices++] = 0;
    b->mu[b->prices++] = 1;
    for (int64_t i = 0; i < b->items; i++) {
        const weft_keep_item *x = &b->item[i];
        b->depth_item[i] = i;
        if (!(x->offload > 0) || isinf(x->offload) || !(b->copies.drag < 1) || b->prices == PRICES)
            continue;
        const double mu = (x->recompute / x->offload - b->copies.drag) / (1 - b->copies.drag);
        if (mu > 0 && mu < 1)
            b->mu[b->prices++] = mu;
    }
    const int prices = b->prices;
    int best = 0;
    double highest = -1;
    for (int k = 0; k < prices; k++)
        sort_by_ratio(b, k);
    for (int k = 0; k < prices; k++) { /* each alone, in slot 0 */
        bound one = *b;
        one.prices = 1;
        one.mu[0] = b->mu[k];
        one.by_ratio[0] = b->by_ratio[k];
        one.price[0] = b->price[k];
        const double value = lower_bound(&one, 0, need, 0);
        if (value > highest) {
            highest = value;
            best = k;
        }
    }
    memcpy(b->recomputed, b->by_ratio[best], (size_t)b->items * sizeof *b->recomputed);
    memcpy(b->depth_item, b->recomputed, (size_t)b->items * sizeof *b->recomputed);
    memset(b->recomputed, 0, (size_t)b->items * sizeof *b->recomputed);
    b->prefer = b->mu[best];
    for (int k = 0; k < prices; k++)
        sort_by_ratio(b, k);
}

weft_status weft_keep_exact(const weft_keep_item *item, int64_t items, weft_keep_copies copies,
                            double limit, int64_t node_limit, weft_keep_choice *out)
{
    bound b = {.item = item,
               .items = items,
               .copies = copies,
               .limit = limit,
               .node_limit = node_limit > 0 ? node_limit : 2000000};
    WEFT_TRY(weft_keep_greedy(item, items, copies, limit, &b.best));
    weft_status_code status = WEFT_OK;
    const int64_t bytes = items * (int64_t)sizeof(int64_t);
    bool ready = (b.depth_item = weft_alloc(bytes)) && (b.recomputed = weft_alloc(bytes)) &&
                 (b.offloaded = weft_alloc(bytes));
    for (int k = 0; k < PRICES; k++)
        ready = (b.by_ratio[k] = weft_alloc(bytes)) && (b.price[k] = weft_alloc(bytes)) && ready;
    if (!ready) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory for %lld items", (long long)items);
    } else {
        double need = -limit;
        for (int64_t i = 0; i < items; i++)
            need += item[i].bytes * (double)item[i].count;
        order_prices(&b, need);
        b.best.lower_bound = need > 0 ? lower_bound(&b, 0, need * (1 - 1e-12), 0) : 0;
        branch(&b, 0, need, 0, 0);
        b.best.proved = b.nodes <= b.node_limit;
        if (b.best.proved || b.best.lower_bound > b.best.seconds)
            b.best.lower_bound = b.best.seconds;
        b.best.nodes = b.nodes;
    }
    weft_free(b.depth_item);
    weft_free(b.recomputed);
    weft_free(b.offloaded);
    for (int k = 0; k < PRICES; k++) {
        weft_free(b.by_ratio[k]);
        weft_free(b.price[k]);
    }
    if (status != WEFT_OK) {
        weft_keep_choice_free(&b.best);
        return status;
    }
    *out = b.best;
    return WEFT_OK;
}
