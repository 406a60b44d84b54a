/* The search for layer slices with artificial estimates: its result, and the number of estimates
 * that it requests. */
#include "base/config.h"
#include "transform/sharding/slices_search.h"

#include <criterion/criterion.h>
#include <stdlib.h>

typedef struct prices {
    bool layers;
    int64_t heads, chunks;  /* that there are */
    weft_comm_overlap best; /* the seconds grow with the distance to it */
    int asked;
    bool none;
} prices;

static double apart(int64_t a, int64_t b)
{
    return (double)llabs(a - b);
}

static weft_status price(void *user, const weft_comm_overlap *s, weft_comm_overlap_estimate *out)
{
    prices *p = user;
    const bool on = s->kind == WEFT_COMM_OVERLAP_ON;
    const int64_t heads = !on                   ? 1
                          : s->heads < p->heads ? s->heads
                                                : p->heads,
                  chunks = !on                     ? 1
                           : s->chunks < p->chunks ? s->chunks
                                                   : p->chunks;
    double seconds = 1 + apart(heads, p->best.heads) + apart(chunks, p->best.chunks);
    if (p->layers)
        seconds += on ? apart(s->time, p->best.time) + apart(s->space, p->best.space) +
                            0.1 * apart(s->lift_time, p->best.lift_time) +
                            0.1 * apart(s->lift_space, p->best.lift_space)
                      : 50;
    p->asked++;
    *out = (weft_comm_overlap_estimate){
        .fits = !p->none, .why = p->none ? "too large" : NULL, .seconds = seconds, .kernels = 1};
    return WEFT_OK;
}

static weft_comm_overlap search(prices *p, weft_comm_overlap s, weft_status_code expected)
{
    weft_buf told = {0};
    cr_assert_eq(weft_comm_overlap_search(price, p, &s, &told), expected, "%s",
                 weft_error_message());
    weft_buf_free(&told);
    return s;
}

static const weft_comm_overlap all = {.kind = WEFT_COMM_OVERLAP_AUTO};

/* All that the sweep over slices found best somewhere is looked at. */
Test(slices_search, layers)
{
    static const weft_comm_overlap best[] = {{WEFT_COMM_OVERLAP_ON, 8, 8, 1, 7, 1, 1},
                                             {WEFT_COMM_OVERLAP_ON, 4, 4, 1, 3, 1, 1},
                                             {WEFT_COMM_OVERLAP_ON, 8, 8, 0, 0, 1, 1},
                                             {WEFT_COMM_OVERLAP_ON, 16, 16, 1, 15, 1, 1}};
    for (int i = 0; i < WEFT_COUNT(best); i++) {
        prices p = {.layers = true, .heads = 1, .chunks = 1, .best = best[i]};
        const weft_comm_overlap s = search(&p, all, WEFT_OK);
        cr_expect(s.kind == WEFT_COMM_OVERLAP_ON && s.time == best[i].time &&
                      s.space == best[i].space && s.lift_time == best[i].lift_time &&
                      s.lift_space == best[i].lift_space,
                  "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, s.time, s.space, s.lift_time,
                  s.lift_space);
        cr_expect_leq(p.asked, 24);
    }
}

/* Different numbers of slices of frames and positions are found; no setting is estimated twice. */
Test(slices_search, frames_and_places_differ)
{
    static const weft_comm_overlap best[] = {{WEFT_COMM_OVERLAP_ON, 1, 8, 1, 7, 1, 1},
                                             {WEFT_COMM_OVERLAP_ON, 2, 8, 1, 7, 1, 1},
                                             {WEFT_COMM_OVERLAP_ON, 8, 2, 1, 1, 1, 1}};
    for (int i = 0; i < WEFT_COUNT(best); i++) {
        prices p = {.layers = true, .heads = 1, .chunks = 1, .best = best[i]};
        const weft_comm_overlap s = search(&p, all, WEFT_OK);
        cr_expect(s.time == best[i].time && s.space == best[i].space, "%" PRId64 " %" PRId64,
                  s.time, s.space);
        cr_expect_leq(p.asked, 30);
    }
}

Test(slices_search, portions)
{
    prices p = {.heads = 4, .chunks = 8, .best = {.heads = 4, .chunks = 8}};
    weft_comm_overlap s = search(&p, all, WEFT_OK);
    cr_expect(s.heads == 4 && s.chunks == 8, "%" PRId64 " %" PRId64, s.heads, s.chunks);
    cr_expect_leq(p.asked, 20);
    /* a search for one of the two: the set one stays */
    s = search(&p, (weft_comm_overlap){WEFT_COMM_OVERLAP_ON, 3, 5, 1, 2, 0, 2}, WEFT_OK);
    cr_expect(s.heads == 4 && s.chunks == 2 && s.time == 3 && s.space == 5);
}

/* Nothing to cut: a few prices, and no slices. */
Test(slices_search, nothing_to_cut)
{
    prices p = {.heads = 1, .chunks = 1, .best = {.heads = 1, .chunks = 1}};
    cr_expect_eq(search(&p, all, WEFT_OK).kind, WEFT_COMM_OVERLAP_OFF);
    cr_expect_leq(p.asked, 5);
    p.none = true;
    search(&p, all, WEFT_E_INFEASIBLE);
}
