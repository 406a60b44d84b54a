#include "plan/pipeline/activation_planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void weft_activation_choice_free(weft_activation_choice *choice)
{
    if (!choice)
        return;
    weft_free(choice->recomputed);
    weft_free(choice->offloaded);
    *choice = (weft_activation_choice){0};
}

static weft_status choice_init(int64_t items, weft_activation_choice *c)
{
    *c = (weft_activation_choice){0};
    c->recomputed = weft_calloc(items + 1, sizeof *c->recomputed);
    c->offloaded = weft_calloc(items + 1, sizeof *c->offloaded);
    if (c->recomputed && c->offloaded)
        return WEFT_OK;
    weft_activation_choice_free(c);
    return weft_no_memory("%" PRId64 " items", items);
}

weft_status weft_activation_items_check(const weft_activation_item *item, int64_t items,
                                        weft_offload_rates copies)
{
    if (items < 1)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "items"),
                          "no activations are given; at least one is needed");
    if (!isfinite(copies.window) || copies.window < 0)
        return weft_error(
            WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "window", WEFT_NUMBER(copies.window)),
            "the offload window is %g s, not a finite time of at least 0", copies.window);
    if (!isfinite(copies.slowdown) || copies.slowdown < 0)
        return weft_error(
            WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "drag", WEFT_NUMBER(copies.slowdown)),
            "the slowdown of compute by copies is %g, not a finite number of at least 0",
            copies.slowdown);
    for (int64_t i = 0; i < items; i++) {
        const char *name = item[i].name ? item[i].name : "";
        char key[64];
        snprintf(key, sizeof key, "items[%" PRId64 "]", i);
        if (!isfinite(item[i].bytes) || item[i].bytes < 0)
            return weft_error(WEFT_MSG_COSTS_INVALID,
                              WEFT_AT(.key = key, WEFT_NUMBER(item[i].bytes)),
                              "activation \"%s\" has %g bytes, not a finite number of at least 0",
                              name, item[i].bytes);
        if (isnan(item[i].recompute) || item[i].recompute < 0 || isnan(item[i].offload) ||
            item[i].offload < 0)
            return weft_error(
                WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = key),
                "activation \"%s\" has recompute %g s and offload %g s; both must be at least 0",
                name, item[i].recompute, item[i].offload);
        if (item[i].count < 0 || item[i].count > 1000000)
            return weft_error(
                WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = key, WEFT_NUMBER(item[i].count)),
                "activation \"%s\" has count %" PRId64 "; use 0 to 1000000", name, item[i].count);
    }
    return WEFT_OK;
}

static bool droppable(const weft_activation_item *x)
{
    return isfinite(x->recompute) || isfinite(x->offload);
}

static weft_status check_limit(const weft_activation_item *item, int64_t items,
                               weft_offload_rates copies, double limit)
{
    WEFT_TRY(weft_activation_items_check(item, items, copies));
    double all = 0, least = 0;
    for (int64_t i = 0; i < items; i++) {
        all += item[i].bytes * (double)item[i].count;
        least += droppable(&item[i]) ? 0 : item[i].bytes * (double)item[i].count;
    }
    if (!isfinite(all))
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "items"),
                          "the bytes of all activations add up to more than a double holds");
    if (isnan(limit) || limit < least) {
        char need[32], have[32], total[32];
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(WEFT_NUMBER(limit)),
                          "activations need %s per device even with full recompute and offload (%s "
                          "without), limit %s",
                          weft_format_bytes((int64_t)fmin(least, 9e18), need),
                          weft_format_bytes((int64_t)fmin(all, 9e18), total),
                          weft_format_bytes((int64_t)fmax(fmin(limit, 9e18), -9e18), have));
    }
    return WEFT_OK;
}

/* Exposed seconds of `transfer` seconds of copies. */
static double exposed(weft_offload_rates copies, double transfer)
{
    return fmax(copies.slowdown > 0 ? copies.slowdown * transfer : 0, transfer - copies.window);
}

/* Sets the kept bytes and the seconds from the counts. */
static void count_totals(const weft_activation_item *item, int64_t items, weft_offload_rates copies,
                         weft_activation_choice *c)
{
    double saved = 0, recompute = 0, offload = 0;
    for (int64_t i = 0; i < items; i++) {
        saved += item[i].bytes * (double)(item[i].count - c->recomputed[i] - c->offloaded[i]);
        recompute += c->recomputed[i] > 0 ? item[i].recompute * (double)c->recomputed[i] : 0;
        offload += c->offloaded[i] > 0 ? item[i].offload * (double)c->offloaded[i] : 0;
    }
    c->saved = saved;
    c->seconds = recompute + exposed(copies, offload);
}

/* One greedy step: drops the item with the highest bytes per second, for one layer. All layers at
 * once would overshoot. */
static bool greedy_step(const weft_activation_item *item, int64_t items, weft_offload_rates copies,
                        double *transfer, weft_activation_choice *c)
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
        /* a completely hidden offload is free: use the window where recompute is most expensive */
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

weft_status weft_activations_choose_greedy(const weft_activation_item *item, int64_t items,
                                           weft_offload_rates copies, double limit,
                                           weft_activation_choice *out)
{
    WEFT_TRY(check_limit(item, items, copies, limit));
    weft_activation_choice c;
    WEFT_TRY(choice_init(items, &c));
    double transfer = 0;
    count_totals(item, items, copies, &c);
    while (c.saved > limit && greedy_step(item, items, copies, &transfer, &c))
        count_totals(item, items, copies, &c);
    if (c.saved > limit) { /* the sums round differently from the check's: all items are dropped */
        weft_activation_choice_free(&c);
        return weft_error(
            WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(WEFT_NUMBER(limit)),
            "the limit is exceeded by less than a rounding error; raise it by a byte");
    }
    for (bool changed = true; changed;) { /* undo unnecessary choices, most seconds first */
        changed = false;
        int64_t best = -1;
        bool best_offload = false;
        double saves = 0;
        for (int64_t i = 0; i < items; i++)
            for (int offload = 0; offload < 2; offload++) {
                int64_t *n = offload ? &c.offloaded[i] : &c.recomputed[i];
                if (*n == 0 || c.saved + item[i].bytes > limit)
                    continue;
                const double before = c.seconds;
                --*n;
                count_totals(item, items, copies, &c);
                if (c.saved <= limit && before - c.seconds > saves) {
                    saves = before - c.seconds;
                    best = i;
                    best_offload = offload;
                }
                ++*n;
                count_totals(item, items, copies, &c);
            }
        if (best >= 0) {
            --*(best_offload ? &c.offloaded[best] : &c.recomputed[best]);
            count_totals(item, items, copies, &c);
            changed = true;
        }
    }
    *out = c;
    return WEFT_OK;
}

/* ---- exact ----------------------------------------------------------------------------------- */

/* For any mu in [0, 1], the remaining cost is at least -mu * window + the cheapest fractional cover
 * at prices min(recompute, slope * offload), with slope = mu + (1 - mu) slowdown. The reason is
 * max(slowdown z, z - window) >= (1 - mu) slowdown z + mu (z - window). The best mu is 0, 1, or a
 * value at which an item changes between the two, slope = recompute / offload. All of these values
 * are tried. */
enum { PRICES = 18 };

typedef struct bound {
    const weft_activation_item *item;
    int64_t items;
    weft_offload_rates copies;
    double limit;
    int64_t *depth_item;       /* [items] order of branching */
    int64_t *by_ratio[PRICES]; /* [items] positions in depth order, best bytes per price first */
    double *price[PRICES];     /* [items] by position */
    double mu[PRICES];
    int prices;
    double prefer;                   /* multiplier whose choices are tried first */
    weft_activation_choice best;     /* counts by item */
    int64_t *recomputed, *offloaded; /* current path, by item */
    int64_t nodes, node_limit;
} bound;

static double slope(const bound *b, double mu)
{
    return mu + (1 - mu) * b->copies.slowdown;
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
            const weft_activation_item *x = &b->item[b->depth_item[at]];
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

/* `need`: bytes still to drop. A remainder within rounding counts as met only if the recount
 * agrees. */
static void branch(bound *b, int64_t depth, double need, double seconds, double transfer)
{
    if (++b->nodes > b->node_limit)
        return;
    if (depth == b->items) {
        weft_activation_choice now = {.recomputed = b->recomputed, .offloaded = b->offloaded};
        count_totals(b->item, b->items, b->copies, &now);
        if (now.saved > b->limit || !(now.seconds < b->best.seconds))
            return;
        b->best.saved = now.saved;
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
    const weft_activation_item *x = &b->item[i];
    /* never drop more of an item than needed */
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

/* Sorts positions by bytes per price under multiplier k, best first. */
static void sort_by_ratio(bound *b, int k)
{
    for (int64_t at = 0; at < b->items; at++) {
        const weft_activation_item *x = &b->item[b->depth_item[at]];
        b->price[k][at] =
            fmin(x->recompute, isinf(x->offload) ? INFINITY : slope(b, b->mu[k]) * x->offload);
        int64_t to = at;
        for (; to > 0 && ratio_at(b, k, b->by_ratio[k][to - 1]) < ratio_at(b, k, at); to--)
            b->by_ratio[k][to] = b->by_ratio[k][to - 1];
        b->by_ratio[k][to] = at;
    }
}

/* Orders the branching: best items first, as ranked by the multiplier with the highest bound. */
static void order_prices(bound *b, double need)
{
    b->mu[b->prices++] = 0;
    b->mu[b->prices++] = 1;
    for (int64_t i = 0; i < b->items; i++) {
        const weft_activation_item *x = &b->item[i];
        b->depth_item[i] = i;
        if (!(x->offload > 0) || isinf(x->offload) || !(b->copies.slowdown < 1) ||
            b->prices == PRICES)
            continue;
        const double mu =
            (x->recompute / x->offload - b->copies.slowdown) / (1 - b->copies.slowdown);
        if (mu > 0 && mu < 1)
            b->mu[b->prices++] = mu;
    }
    const int prices = b->prices;
    int best = 0;
    double highest = -1;
    for (int k = 0; k < prices; k++)
        sort_by_ratio(b, k);
    for (int k = 0; k < prices; k++) { /* one at a time, in slot 0 */
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

weft_status weft_activations_choose_exact(const weft_activation_item *item, int64_t items,
                                          weft_offload_rates copies, double limit,
                                          int64_t node_limit, weft_activation_choice *out)
{
    bound b = {.item = item,
               .items = items,
               .copies = copies,
               .limit = limit,
               .node_limit = node_limit > 0 ? node_limit : 2000000};
    WEFT_TRY(weft_activations_choose_greedy(item, items, copies, limit, &b.best));
    weft_status_code status = WEFT_OK;
    const int64_t bytes = items * (int64_t)sizeof(int64_t);
    bool ready = (b.depth_item = weft_alloc(bytes)) && (b.recomputed = weft_alloc(bytes)) &&
                 (b.offloaded = weft_alloc(bytes));
    for (int k = 0; k < PRICES; k++)
        ready = (b.by_ratio[k] = weft_alloc(bytes)) && (b.price[k] = weft_alloc(bytes)) && ready;
    if (!ready) {
        status = weft_no_memory("%" PRId64 " items", items);
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
        weft_activation_choice_free(&b.best);
        return status;
    }
    *out = b.best;
    return WEFT_OK;
}
