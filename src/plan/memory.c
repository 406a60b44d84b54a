#include "plan/memory.h"

#include "base/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void weft_memory_choice_free(weft_memory_choice *choice)
{
    if (!choice)
        return;
    weft_free(choice->recomputed);
    weft_free(choice->offloaded);
    *choice = (weft_memory_choice){0};
}

static weft_status choice_init(int64_t items, weft_memory_choice *c)
{
    *c = (weft_memory_choice){0};
    c->recomputed = weft_alloc((items + 1) * (int64_t)sizeof *c->recomputed);
    c->offloaded = weft_alloc((items + 1) * (int64_t)sizeof *c->offloaded);
    if (c->recomputed && c->offloaded)
        return WEFT_OK;
    weft_memory_choice_free(c);
    return weft_fail(WEFT_E_MEMORY, "out of memory for %lld items", (long long)items);
}

weft_status weft_memory_items_check(const weft_memory_item *item, int64_t items, double window)
{
    if (items < 1)
        return weft_fail(WEFT_E_ARG, "no items: there is nothing to decide");
    if (!isfinite(window) || window < 0)
        return weft_fail(WEFT_E_ARG,
                         "the offload window is %g s; it must be finite and not negative", window);
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

static bool droppable(const weft_memory_item *x)
{
    return isfinite(x->recompute) || isfinite(x->offload);
}

static weft_status check_limit(const weft_memory_item *item, int64_t items, double window,
                               double limit)
{
    WEFT_TRY(weft_memory_items_check(item, items, window));
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

/* Fills kept and seconds from the counts. */
static void account(const weft_memory_item *item, int64_t items, double window,
                    weft_memory_choice *c)
{
    double kept = 0, recompute = 0, offload = 0;
    for (int64_t i = 0; i < items; i++) {
        kept += item[i].bytes * (double)(item[i].count - c->recomputed[i] - c->offloaded[i]);
        recompute += c->recomputed[i] > 0 ? item[i].recompute * (double)c->recomputed[i] : 0;
        offload += c->offloaded[i] > 0 ? item[i].offload * (double)c->offloaded[i] : 0;
    }
    c->kept = kept;
    c->seconds = recompute + fmax(0, offload - window);
}

/* One step of the greedy: the most bytes per second, all equal ones of a layer at once would
 * overshoot. */
static bool greedy_step(const weft_memory_item *item, int64_t items, double window,
                        double *transfer, weft_memory_choice *c)
{
    double best = -1;
    int64_t chosen = -1;
    bool by_offload = false;
    for (int64_t i = 0; i < items; i++) {
        if (c->recomputed[i] + c->offloaded[i] >= item[i].count || !(item[i].bytes > 0))
            continue;
        const double exposed =
            fmax(0, *transfer + item[i].offload - window) - fmax(0, *transfer - window);
        const bool offload = exposed < item[i].recompute;
        const double seconds = offload ? exposed : item[i].recompute;
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

weft_status weft_memory_greedy(const weft_memory_item *item, int64_t items, double window,
                               double limit, weft_memory_choice *out)
{
    WEFT_TRY(check_limit(item, items, window, limit));
    weft_memory_choice c;
    WEFT_TRY(choice_init(items, &c));
    double transfer = 0;
    account(item, items, window, &c);
    while (c.kept > limit && greedy_step(item, items, window, &transfer, &c))
        account(item, items, window, &c);
    if (c.kept > limit) { /* the sums round differently from the check's: everything is dropped */
        weft_memory_choice_free(&c);
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
                account(item, items, window, &c);
                if (c.kept <= limit && before - c.seconds > saves) {
                    saves = before - c.seconds;
                    best = i;
                    best_offload = offload;
                }
                ++*n;
                account(item, items, window, &c);
            }
        if (best >= 0) {
            --*(best_offload ? &c.offloaded[best] : &c.recomputed[best]);
            account(item, items, window, &c);
            moved = true;
        }
    }
    *out = c;
    return WEFT_OK;
}

/* ---- exact --------------------------------------------------------------------------------- */

/* For any mu in [0, 1], -mu * window + the cheapest fractional cover at prices min(recompute,
 * mu * offload) bounds the remaining cost from below: max(0, z) >= mu z. The best mu is where an
 * item changes from one to the other, mu = recompute / offload: those are tried, and 0 and 1. */
enum { PRICES = 18 };

typedef struct bound {
    const weft_memory_item *item;
    int64_t items;
    double window, limit;
    int64_t *depth_item;       /* [items] the order of branching */
    int64_t *by_ratio[PRICES]; /* [items] positions in depth order, best bytes per price first */
    double *price[PRICES];     /* [items] by position */
    double mu[PRICES];
    int prices;
    double prefer;                   /* the multiplier whose choices are tried first */
    weft_memory_choice best;         /* counts by item */
    int64_t *recomputed, *offloaded; /* the path, by item */
    int64_t nodes, node_limit;
} bound;

static double lower_bound(const bound *b, int64_t depth, double need, double transfer)
{
    double best = 0;
    for (int k = 0; k < b->prices; k++) {
        const double mu = b->mu[k];
        double left = need, cost = mu * (transfer - b->window);
        for (int64_t r = 0; r < b->items && left > 0; r++) {
            const int64_t at = b->by_ratio[k][r];
            if (at < depth || isinf(b->price[k][at]))
                continue;
            const weft_memory_item *x = &b->item[b->depth_item[at]];
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
        weft_memory_choice now = {.recomputed = b->recomputed, .offloaded = b->offloaded};
        account(b->item, b->items, b->window, &now);
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
    const weft_memory_item *x = &b->item[i];
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
            const int64_t out = b->prefer * x->offload < x->recompute ? total - k : k;
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
        const weft_memory_item *x = &b->item[b->depth_item[at]];
        b->price[k][at] = fmin(x->recompute, isinf(x->offload) ? INFINITY : b->mu[k] * x->offload);
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
        const weft_memory_item *x = &b->item[i];
        b->depth_item[i] = i;
        if (x->offload > 0 && isfinite(x->offload) && x->recompute < x->offload &&
            b->prices < PRICES)
            b->mu[b->prices++] = x->recompute / x->offload;
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

weft_status weft_memory_exact(const weft_memory_item *item, int64_t items, double window,
                              double limit, int64_t node_limit, weft_memory_choice *out)
{
    bound b = {.item = item,
               .items = items,
               .window = window,
               .limit = limit,
               .node_limit = node_limit > 0 ? node_limit : 2000000};
    WEFT_TRY(weft_memory_greedy(item, items, window, limit, &b.best));
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
        weft_memory_choice_free(&b.best);
        return status;
    }
    *out = b.best;
    return WEFT_OK;
}

/* ---- the nine pieces of a block ------------------------------------------------------------ */

typedef struct piece {
    const char *name;
    double bsh, bas;       /* bytes kept: (bsh B S H + bas B A S) / TP */
    double gemm_bshh;      /* FLOPs: gemm_bshh B S H^2 / TP */
    double attention_bssh; /* FLOPs: attention_bssh B S^2 H / TP */
    double moved_bsh;      /* bytes through device memory, in B S H / TP */
    double wire_bsh;       /* bytes over the links: wire_bsh B S H (TP-1)/TP */
} piece;

/* Aquarius Table 2; the MLP is 4 H wide. Gathered or scattered tensors are 2 B S H bytes. */
static const piece pieces[WEFT_BLOCK_PIECES] = {
    {"flash attention", 2, 64, 0, 4, 8, 0},
    {"out linear + reduce-scatter", 2, 0, 2, 0, 4, 2},
    {"ffn linear 2 + reduce-scatter", 2, 0, 8, 0, 10, 2},
    {"all-gather + ffn linear 1", 8, 0, 8, 0, 10, 2},
    {"all-gather + qkv linear", 6, 0, 6, 0, 8, 2},
    {"fused qk norm", 4, 0, 0, 0, 8, 0},
    {"gate", 2, 0, 0, 0, 6, 0},
    {"layer norm + scale, shift", 4, 0, 0, 0, 8, 0},
    {"gelu", 8, 0, 0, 0, 16, 0},
};

void weft_memory_block_items(const weft_block_shape *s, const weft_block_rates *r,
                             weft_memory_item *item)
{
    const double bsh = s->batch * s->tokens * s->hidden, bas = s->batch * s->heads * s->tokens;
    for (int i = 0; i < WEFT_BLOCK_PIECES; i++) {
        const piece *p = &pieces[i];
        const double bytes = (p->bsh * bsh + p->bas * bas) / s->tp;
        const double compute = p->gemm_bshh * bsh * s->hidden / s->tp / r->gemm +
                               p->attention_bssh * bsh * s->tokens / s->tp / r->attention;
        const double moved = p->moved_bsh * bsh / s->tp / r->memory;
        const double wire = s->tp > 1 ? p->wire_bsh * bsh * (s->tp - 1) / s->tp / r->link : 0;
        item[i] = (weft_memory_item){.name = p->name,
                                     .bytes = bytes,
                                     .recompute = fmax(compute, moved) + wire,
                                     .offload = r->host > 0 ? 2 * bytes / r->host : INFINITY,
                                     .count = (int64_t)s->layers};
    }
}

/* ---- in and out ---------------------------------------------------------------------------- */

weft_status weft_memory_items_from_json(weft_arena *arena, const json_t *json, const char *name,
                                        weft_memory_item **item, int64_t *items, double *window)
{
    const json_t *list = json_object_get(json, "items");
    if (!json_is_array(list))
        return weft_fail(WEFT_E_FORMAT, "%s: \"items\", a list of activations, is missing", name);
    const int64_t count = (int64_t)json_array_size(list);
    weft_memory_item *x = weft_arena_alloc(arena, (count + 1) * (int64_t)sizeof *x);
    if (!x)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory for %lld items", name, (long long)count);
    double wide;
    WEFT_TRY(weft_json_get_f64_or(json, "window", name, 0, &wide));
    static const char *const top[] = {"items", "window"}, *const known[] = {"name", "bytes",
                                                                            "recompute", "offload",
                                                                            "count"};
    bool warned = weft_json_warn_unknown(json, name, top, WEFT_COUNT(top));
    for (int64_t i = 0; i < count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.200s: items[%lld]", name, (long long)i);
        const json_t *one = json_array_get(list, (size_t)i);
        const char *called;
        WEFT_TRY(weft_json_get_string_or(one, "name", where, "", &called));
        WEFT_TRY(weft_json_get_f64(one, "bytes", where, &x[i].bytes));
        WEFT_TRY(weft_json_get_f64_or(one, "recompute", where, INFINITY, &x[i].recompute));
        WEFT_TRY(weft_json_get_f64_or(one, "offload", where, INFINITY, &x[i].offload));
        WEFT_TRY(weft_json_get_i64_or(one, "count", where, 1, &x[i].count));
        warned = warned || weft_json_warn_unknown(one, where, known, WEFT_COUNT(known));
        x[i].name = weft_arena_strdup(arena, called);
        if (!x[i].name)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory", where);
    }
    const weft_status_code status = weft_memory_items_check(x, count, wide);
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s", name);
    *item = x;
    *items = count;
    *window = wide;
    return WEFT_OK;
}

json_t *weft_memory_choice_json(const weft_memory_item *item, int64_t items, double limit,
                                const weft_memory_choice *greedy, const weft_memory_choice *exact)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < items; i++) {
        json_t *one = json_pack(
            "{s:s, s:f, s:I, s:I, s:I}", "name", item[i].name ? item[i].name : "", "bytes",
            item[i].bytes, "count", (json_int_t)item[i].count, "recomputed",
            (json_int_t)exact->recomputed[i], "offloaded", (json_int_t)exact->offloaded[i]);
        if (isfinite(item[i].recompute))
            json_object_set_new(one, "recompute", json_real(item[i].recompute));
        if (isfinite(item[i].offload))
            json_object_set_new(one, "offload", json_real(item[i].offload));
        json_array_append_new(list, one);
    }
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:b, s:f, s:o}", "format", "weft.memory/1", "limit",
                     limit, "kept", exact->kept, "seconds", exact->seconds, "lower_bound",
                     exact->lower_bound, "proved", exact->proved, "greedy_seconds", greedy->seconds,
                     "items", list);
}

void weft_memory_choice_print(const weft_memory_item *item, int64_t items, double limit,
                              const weft_memory_choice *greedy, const weft_memory_choice *exact,
                              weft_buf *out)
{
    char a[32], b[32], c[32];
    weft_buf_printf(out, "  %-30s %6s %10s %10s %10s  keep  recompute  offload\n", "activation",
                    "layers", "bytes", "recompute", "MiB/ms");
    for (int64_t i = 0; i < items; i++)
        weft_buf_printf(out, "  %-30s %6lld %10s %10s %10.1f %5lld %10lld %8lld\n",
                        item[i].name ? item[i].name : "", (long long)item[i].count,
                        weft_format_bytes((int64_t)fmin(item[i].bytes, 9e18), a),
                        isinf(item[i].recompute) ? "-" : weft_format_seconds(item[i].recompute, b),
                        item[i].bytes / 1048576 / (item[i].recompute * 1e3),
                        (long long)(item[i].count - exact->recomputed[i] - exact->offloaded[i]),
                        (long long)exact->recomputed[i], (long long)exact->offloaded[i]);
    char gap[48] = " (optimal)";
    if (!exact->proved)
        snprintf(gap, sizeof gap, " (at most %.2f %% above the optimum)",
                 100 * (exact->seconds / exact->lower_bound - 1));
    weft_buf_printf(
        out, "kept %s of a limit of %s, %s slower per microbatch%s; greedy by ratio: %s\n",
        weft_format_bytes((int64_t)fmin(exact->kept, 9e18), a),
        weft_format_bytes((int64_t)fmin(limit, 9e18), b), weft_format_seconds(exact->seconds, c),
        gap, weft_format_seconds(greedy->seconds, (char[32]){0}));
}
