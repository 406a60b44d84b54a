#include "transform/sharding/slices_search.h"

#include "base/config.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 48 };

typedef struct search {
    weft_comm_overlap_estimate_fn *estimate;
    void *user;
    struct tried {
        weft_comm_overlap overlap;
        weft_comm_overlap_estimate estimate;
    } tried[MOST];
    int count, best; /* -1: none that fits */
    double begun;
} search;

static bool alike(const weft_comm_overlap *a, const weft_comm_overlap *b)
{
    const bool layers = a->time == b->time && a->space == b->space &&
                        a->lift_time == b->lift_time && a->lift_space == b->lift_space;
    return a->kind == b->kind && (a->kind == WEFT_COMM_OVERLAP_OFF || layers) &&
           a->heads == b->heads && a->chunks == b->chunks;
}

/* Estimates a setting once. *seconds: its time per step; negative if it does not fit. */
static weft_status try(search *s, weft_comm_overlap overlap, double *seconds)
{
    int at = 0;
    while (at < s->count && !alike(&s->tried[at].overlap, &overlap))
        at++;
    if (at == s->count && s->count < MOST) {
        struct tried *t = &s->tried[s->count++];
        *t = (struct tried){.overlap = overlap};
        WEFT_TRY(s->estimate(s->user, &overlap, &t->estimate));
        if (t->estimate.fits &&
            (s->best < 0 || t->estimate.seconds < s->tried[s->best].estimate.seconds))
            s->best = at;
    }
    *seconds = at < s->count && s->tried[at].estimate.fits ? s->tried[at].estimate.seconds : -1;
    return WEFT_OK;
}

/* Halves and doubles the best numbers of slices separately, as long as that is faster. Frames and
 * spatial positions may need different numbers: a video of few frames has few slices of frames. */
static weft_status try_each_number(search *s)
{
    enum { ROUNDS = 3 };
    double is;
    for (int round = 0; round < ROUNDS; round++) {
        const int before = s->best;
        const weft_comm_overlap best = s->tried[before].overlap;
        const int64_t next[][2] = {{best.time, 2 * best.space},
                                   {best.time, best.space / 2},
                                   {2 * best.time, best.space},
                                   {best.time / 2, best.space}};
        for (int k = 0; k < WEFT_COUNT(next); k++) {
            weft_comm_overlap x = best;
            x.time = next[k][0];
            x.space = next[k][1];
            if (x.time < 1 || x.space < 1)
                continue;
            if (best.lift_space) /* all but one slice, as the default */
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
    weft_comm_overlap whole = weft_comm_overlap_default;
    double off, is[2];
    whole.kind = WEFT_COMM_OVERLAP_OFF;
    weft_comm_overlap x = whole;
    WEFT_TRY(try(s, whole, &off));
    x.kind = WEFT_COMM_OVERLAP_ON;
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
    if (s->best < 0 || s->tried[s->best].overlap.kind == WEFT_COMM_OVERLAP_OFF)
        return WEFT_OK;
    x = s->tried[s->best].overlap;
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

/* Tries 2, 4 and 8 portions, until the estimate no longer changes. */
static weft_status try_portions(search *s, const weft_comm_overlap *of, size_t member)
{
    double before, is;
    if (s->best < 0)
        return WEFT_OK;
    weft_comm_overlap x = *of;
    WEFT_TRY(try(s, x, &before));
    for (int64_t n = 2; n <= 8; n *= 2) {
        *(int64_t *)((char *)&x + member) = n;
        x.kind = WEFT_COMM_OVERLAP_ON;
        WEFT_TRY(try(s, x, &is));
        if (is == before)
            break;
        before = is;
    }
    return WEFT_OK;
}

static void name(const weft_comm_overlap *s, weft_buf *out)
{
    if (s->kind == WEFT_COMM_OVERLAP_OFF)
        weft_buf_printf(out, "slices off");
    else
        weft_buf_printf(out,
                        "slices time=%" PRId64 ",space=%" PRId64 ",early_time=%" PRId64
                        ",early_space=%" PRId64 ",heads=%" PRId64 ","
                        "chunks=%" PRId64,
                        s->time, s->space, s->lift_time, s->lift_space, s->heads, s->chunks);
}

static int next_best(const search *s)
{
    int next = -1;
    for (int i = 0; i < s->count; i++)
        if (i != s->best && s->tried[i].estimate.fits &&
            (next < 0 || s->tried[i].estimate.seconds < s->tried[next].estimate.seconds))
            next = i;
    return next;
}

static void format_result(const search *s, weft_buf *out)
{
    char text[5][32];
    const weft_comm_overlap_estimate *p = &s->tried[s->best].estimate;
    const int next = next_best(s);
    name(&s->tried[s->best].overlap, out);
    weft_buf_printf(
        out,
        ", the best of %d, estimated in %s: %s per step, of which kernels %s; exchanges: %s "
        "exposed, %s hidden behind compute",
        s->count, weft_format_seconds(weft_now() - s->begun, text[4]),
        weft_format_seconds(p->seconds, text[0]), weft_format_seconds(p->kernels, text[1]),
        weft_format_seconds(p->waits, text[2]), weft_format_seconds(p->hidden, text[3]));
    if (next < 0)
        return;
    const weft_comm_overlap_estimate *other = &s->tried[next].estimate;
    weft_buf_printf(out, "; next ");
    name(&s->tried[next].overlap, out);
    if (other->seconds <= p->seconds)
        weft_buf_printf(out, ": as fast");
    else
        weft_buf_printf(out, ": %.1f %% slower, by %s", 100 * (other->seconds / p->seconds - 1),
                        other->waits - p->waits > other->kernels - p->kernels ? "waiting"
                                                                              : "kernels");
}

weft_status weft_comm_overlap_search(weft_comm_overlap_estimate_fn *estimate, void *user,
                                     weft_comm_overlap *overlap, weft_buf *out)
{
    search s = {.estimate = estimate, .user = user, .best = -1, .begun = weft_now()};
    const bool all = overlap->kind == WEFT_COMM_OVERLAP_AUTO;
    weft_comm_overlap setting = *overlap;
    double seconds;
    setting.heads = setting.heads ? setting.heads : 1;
    setting.chunks = setting.chunks ? setting.chunks : 1;
    if (all)
        WEFT_TRY(try_layers(&s));
    else
        WEFT_TRY(try(&s, setting, &seconds));
    if (s.best >= 0 && (all || !overlap->heads)) {
        const weft_comm_overlap of = s.tried[s.best].overlap;
        WEFT_TRY(try_portions(&s, &of, offsetof(weft_comm_overlap, heads)));
    }
    if (s.best >= 0 && (all || !overlap->chunks)) {
        const weft_comm_overlap of = s.tried[s.best].overlap;
        WEFT_TRY(try_portions(&s, &of, offsetof(weft_comm_overlap, chunks)));
    }
    if (s.best < 0)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "comm_overlap", .value = "auto"),
                          "no number of slices fits: %s",
                          s.count && s.tried[0].estimate.why ? s.tried[0].estimate.why
                                                             : "none was tried");
    *overlap = s.tried[s.best].overlap;
    format_result(&s, out);
    return weft_buf_check(out);
}
