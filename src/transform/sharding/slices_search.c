#include "pass/slices_search.h"

#include "base/config.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 48 };

typedef struct search {
    weft_slices_price_fn *price;
    void *user;
    struct tried {
        weft_slices slices;
        weft_slices_price price;
    } tried[MOST];
    int count, best; /* -1: none that fits */
    double begun;
} search;

static bool alike(const weft_slices *a, const weft_slices *b)
{
    const bool layers = a->time == b->time && a->space == b->space &&
                        a->lift_time == b->lift_time && a->lift_space == b->lift_space;
    return a->kind == b->kind && (a->kind == WEFT_SLICES_OFF || layers) && a->heads == b->heads &&
           a->chunks == b->chunks;
}

/* *seconds: what it takes; where it does not fit, less than 0. */
static weft_status try(search *s, weft_slices slices, double *seconds)
{
    int at = 0;
    while (at < s->count && !alike(&s->tried[at].slices, &slices))
        at++;
    if (at == s->count && s->count < MOST) {
        struct tried *t = &s->tried[s->count++];
        *t = (struct tried){.slices = slices};
        WEFT_TRY(s->price(s->user, &slices, &t->price));
        if (t->price.fits && (s->best < 0 || t->price.seconds < s->tried[s->best].price.seconds))
            s->best = at;
    }
    *seconds = at < s->count && s->tried[at].price.fits ? s->tried[at].price.seconds : -1;
    return WEFT_OK;
}

/* Frames and places need not have the same number of slices: a video of few frames has few slices
 * of frames. Halves and doubles each number of the best slices as long as that is faster. */
static weft_status try_each_number(search *s)
{
    enum { ROUNDS = 3 };
    double is;
    for (int round = 0; round < ROUNDS; round++) {
        const int before = s->best;
        const weft_slices best = s->tried[before].slices;
        const int64_t next[][2] = {{best.time, 2 * best.space},
                                   {best.time, best.space / 2},
                                   {2 * best.time, best.space},
                                   {best.time / 2, best.space}};
        for (int k = 0; k < WEFT_COUNT(next); k++) {
            weft_slices x = best;
            x.time = next[k][0];
            x.space = next[k][1];
            if (x.time < 1 || x.space < 1)
                continue;
            if (best.lift_space) /* all but one slice, as the default has it */
                x.lift_space = x.space > 1 ? x.space - 1 : 1;
            WEFT_TRY(try(s, x, &is));
        }
        if (s->best == before)
            break;
    }
    return WEFT_OK;
}

static weft_status try_layers(search *s)
{
    weft_slices whole = weft_slices_default;
    double off, is[2];
    whole.kind = WEFT_SLICES_OFF;
    weft_slices x = whole;
    WEFT_TRY(try(s, whole, &off));
    x.kind = WEFT_SLICES_ON;
    WEFT_TRY(try(s, x, &is[0]));
    x.lift_time = x.lift_space = 0;
    WEFT_TRY(try(s, x, &is[1]));
    if (is[0] == off && is[1] == off) /* the model has no such layers */
        return WEFT_OK;
    for (int64_t n = 2; n <= 8; n *= 2) {
        const int64_t lifted[][2] = {{0, 0}, {1, 1}, {1, n - 1}};
        for (int k = 0; k < WEFT_COUNT(lifted); k++) {
            x.time = x.space = n;
            x.lift_time = lifted[k][0];
            x.lift_space = lifted[k][1];
            WEFT_TRY(try(s, x, &is[0]));
        }
    }
    if (s->best < 0 || s->tried[s->best].slices.kind == WEFT_SLICES_OFF)
        return WEFT_OK;
    x = s->tried[s->best].slices;
    const int64_t n = x.space, more[][4] = {{n, n, 1, n / 2},
                                            {n, n, 1, n},
                                            {n, n, n / 2, n},
                                            {n, n, n, n},
                                            {2 * n, 2 * n, 1, 2 * n - 1}};
    for (int k = 0; k < WEFT_COUNT(more); k++) {
        x.time = more[k][0];
        x.space = more[k][1];
        x.lift_time = more[k][2];
        x.lift_space = more[k][3];
        WEFT_TRY(try(s, x, &is[0]));
    }
    return try_each_number(s);
}

/* As long as there are more of them. */
static weft_status try_portions(search *s, const weft_slices *of, size_t member)
{
    double before, is;
    if (s->best < 0)
        return WEFT_OK;
    weft_slices x = *of;
    WEFT_TRY(try(s, x, &before));
    for (int64_t n = 2; n <= 8; n *= 2) {
        *(int64_t *)((char *)&x + member) = n;
        x.kind = WEFT_SLICES_ON;
        WEFT_TRY(try(s, x, &is));
        if (is == before)
            break;
        before = is;
    }
    return WEFT_OK;
}

static void name(const weft_slices *s, weft_buf *out)
{
    if (s->kind == WEFT_SLICES_OFF)
        weft_buf_printf(out, "slices off");
    else
        weft_buf_printf(out,
                        "slices time=%lld,space=%lld,lift_time=%lld,lift_space=%lld,heads=%lld,"
                        "chunks=%lld",
                        (long long)s->time, (long long)s->space, (long long)s->lift_time,
                        (long long)s->lift_space, (long long)s->heads, (long long)s->chunks);
}

static int next_best(const search *s)
{
    int next = -1;
    for (int i = 0; i < s->count; i++)
        if (i != s->best && s->tried[i].price.fits &&
            (next < 0 || s->tried[i].price.seconds < s->tried[next].price.seconds))
            next = i;
    return next;
}

static void tell(const search *s, weft_buf *told)
{
    char text[5][32];
    const weft_slices_price *p = &s->tried[s->best].price;
    const int next = next_best(s);
    name(&s->tried[s->best].slices, told);
    weft_buf_printf(
        told,
        ", the best of %d, priced in %s: %s a step, of which kernels %s; exchanges: %s "
        "waited for, %s behind kernels",
        s->count, weft_format_seconds(weft_now() - s->begun, text[4]),
        weft_format_seconds(p->seconds, text[0]), weft_format_seconds(p->kernels, text[1]),
        weft_format_seconds(p->waits, text[2]), weft_format_seconds(p->hidden, text[3]));
    if (next < 0)
        return;
    const weft_slices_price *other = &s->tried[next].price;
    weft_buf_printf(told, "; next ");
    name(&s->tried[next].slices, told);
    if (other->seconds <= p->seconds)
        weft_buf_printf(told, ": as fast");
    else
        weft_buf_printf(told, ": %.1f %% slower, by %s", 100 * (other->seconds / p->seconds - 1),
                        other->waits - p->waits > other->kernels - p->kernels ? "waiting"
                                                                              : "kernels");
}

weft_status weft_slices_search(weft_slices_price_fn *price, void *user, weft_slices *slices,
                               weft_buf *told)
{
    search s = {.price = price, .user = user, .best = -1, .begun = weft_now()};
    const bool all = slices->kind == WEFT_SLICES_AUTO;
    weft_slices given = *slices;
    double seconds;
    given.heads = given.heads ? given.heads : 1;
    given.chunks = given.chunks ? given.chunks : 1;
    if (all)
        WEFT_TRY(try_layers(&s));
    else
        WEFT_TRY(try(&s, given, &seconds));
    if (s.best >= 0 && (all || !slices->heads)) {
        const weft_slices of = s.tried[s.best].slices;
        WEFT_TRY(try_portions(&s, &of, offsetof(weft_slices, heads)));
    }
    if (s.best >= 0 && (all || !slices->chunks)) {
        const weft_slices of = s.tried[s.best].slices;
        WEFT_TRY(try_portions(&s, &of, offsetof(weft_slices, chunks)));
    }
    if (s.best < 0)
        return weft_fail(WEFT_E_INFEASIBLE, "slices: auto: %s",
                         s.count && s.tried[0].price.why ? s.tried[0].price.why : "none fit");
    *slices = s.tried[s.best].slices;
    tell(&s, told);
    return weft_buf_check(told);
}
