/* The layouts that a space visits, compared with the rules written as one formula. */
#include "plan/layout/degree_space.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MOST = 4096 };

typedef struct seen {
    weft_degrees item[MOST];
    int count, limit; /* limit: the visitor fails at this count; 0: never */
    const weft_degree_space *space;
} seen;

static weft_status_code note(void *user, const weft_degrees *d)
{
    seen *s = user;
    cr_assert_lt(s->count, MOST);
    s->item[s->count++] = *d;
    return s->count == s->limit ? WEFT_E_ARG : WEFT_OK;
}

static weft_status_code note_rounds(void *user, const weft_degrees *d)
{
    return weft_degree_space_rounds(((seen *)user)->space, d, note, user);
}

static bool is_same(const weft_degrees *a, const weft_degrees *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->pp == b->pp && a->dp == b->dp &&
           a->zero == b->zero && a->microbatch == b->microbatch &&
           a->accumulation == b->accumulation && a->interleave == b->interleave;
}

static int times_seen(const seen *s, const weft_degrees *d)
{
    int times = 0;
    for (int i = 0; i < s->count; i++)
        times += is_same(&s->item[i], d);
    return times;
}

static const weft_degree_space operator_lists = {
    .ranks = 8,
    .axis = {WEFT_DEGREE_TP, WEFT_DEGREE_CP, WEFT_DEGREE_PP, WEFT_DEGREE_DP},
    .axes = 4,
    .most = {[WEFT_DEGREE_CP] = 4},
    .heads = 12,
    .layers = 6,
    .experts = 6,
    .batch = 24,
    .least_zero = 1,
    .most_zero = 3};

/* Every microbatch is a power of 2 and every interleaving at most 8. */
static bool is_legal_list(const weft_degrees *d)
{
    return d->tp * d->cp * d->pp * d->dp == 8 && d->cp <= 4 && 12 % d->tp == 0 && 6 % d->ep == 0 &&
           d->dp * d->cp % d->ep == 0 && d->dp * d->microbatch * d->accumulation == 24 &&
           d->pp * d->interleave <= 6 &&
           (d->interleave == 1 ||
            (6 % (d->pp * d->interleave) == 0 && d->pp > 1 && d->accumulation % d->pp == 0));
}

/* Visits all values of the degrees and rounds of 8 ranks. */
static int count_legal(const seen *s, weft_degrees d)
{
    int legal = 0;
    for (d.microbatch = 1; d.microbatch <= 16; d.microbatch *= 2)
        for (d.accumulation = 1; d.accumulation <= 24; d.accumulation++)
            for (d.interleave = 1; d.interleave <= 8; d.interleave *= 2) {
                const bool is_legal = is_legal_list(&d);
                const weft_status_code status = weft_degree_space_check(s->space, &d);
                legal += is_legal;
                if (d.cp <= 4) /* `most` limits searches only */
                    cr_assert_eq(status == WEFT_OK, is_legal);
                if (is_legal)
                    cr_assert_eq(times_seen(s, &d), 1);
            }
    return legal;
}

Test(degree_space, operator_lists_have_each_legal_layout_once)
{
    static seen s;
    weft_degrees d = {.fsdp = 1};
    int legal = 0;
    s.space = &operator_lists;
    cr_assert_eq(weft_degree_space_visit(s.space, note_rounds, &s), WEFT_OK);
    for (d.tp = 1; d.tp <= 8; d.tp *= 2)
        for (d.cp = 1; d.cp <= 8; d.cp *= 2)
            for (d.pp = 1; d.pp <= 8; d.pp *= 2)
                for (d.ep = 1; d.ep <= 6; d.ep++)
                    for (d.zero = 1; d.zero <= 3; d.zero++) {
                        d.dp = 8 / (d.tp * d.cp * d.pp);
                        if (d.dp >= 1)
                            legal += count_legal(&s, d);
                    }
    cr_expect_gt(legal, 100);
    cr_expect_eq(s.count, legal);
}

/* A device of PULSE has two stages of any depth, so that the layers need not be divisible. */
Test(degree_space, mirrored_stages_have_any_depth)
{
    const weft_degree_space pulse = {.ranks = 4,
                                     .axis = {WEFT_DEGREE_PP, WEFT_DEGREE_DP},
                                     .axes = 2,
                                     .layers = 5,
                                     .most_microbatch = 3,
                                     .mirrored = true};
    static seen s;
    s.space = &pulse;
    cr_assert_eq(weft_degree_space_visit(s.space, note_rounds, &s), WEFT_OK);
    cr_assert_eq(s.count,
                 4); /* pp 4 would need 8 layers; pp 2 and 1 have microbatches of 1 and 2 */
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(s.item[i].pp, i < 2 ? 2 : 1);
        cr_expect_eq(s.item[i].dp, 4 / s.item[i].pp);
        cr_expect_eq(s.item[i].microbatch, 1 + i % 2);
        cr_expect_eq(s.item[i].interleave, 2);
        cr_expect_eq(s.item[i].ep, 1);
    }
}

/* ep is a factor of a run's ranks; ZeRO stages need dp. */
Test(degree_space, runs)
{
    const weft_degree_space run = {.ranks = 4,
                                   .axis = {WEFT_DEGREE_DP, WEFT_DEGREE_EP},
                                   .axes = 2,
                                   .most_zero = 2,
                                   .zero_needs_dp = true};
    weft_degree_space dense = run;
    static seen s, none;
    cr_assert_eq(weft_degree_space_visit(&run, note, &s), WEFT_OK);
    cr_expect_eq(s.count, 3 + 3 + 1);
    for (int i = 0; i < s.count; i++) {
        cr_expect_eq(s.item[i].dp * s.item[i].ep, 4);
        cr_expect(s.item[i].zero == 0 || s.item[i].dp > 1);
    }
    dense.most[WEFT_DEGREE_EP] = 1;
    cr_assert_eq(weft_degree_space_visit(&dense, note, &none), WEFT_OK);
    cr_expect_eq(none.count, 3);
}

Test(degree_space, an_error_of_the_visitor_ends_the_enumeration)
{
    static seen s = {.limit = 5};
    s.space = &operator_lists;
    cr_expect_eq(weft_degree_space_visit(s.space, note_rounds, &s), WEFT_E_ARG);
    cr_expect_eq(s.count, 5);
}

static const char *broken(weft_degrees d)
{
    const weft_status_code status = weft_degree_space_check(&operator_lists, &d);
    return status == WEFT_OK ? "" : weft_error_fields()->key;
}

Test(degree_space, errors_name_the_rule)
{
    const weft_degrees good = {.tp = 2,
                               .cp = 1,
                               .ep = 2,
                               .pp = 2,
                               .dp = 2,
                               .microbatch = 1,
                               .accumulation = 12,
                               .interleave = 1};
    weft_degrees d = good;
    cr_expect_str_eq(broken(d), "");
    d.dp = 4;
    cr_expect_str_eq(broken(d), "devices");
    d = good, d.ep = 4;
    cr_expect_str_eq(broken(d), "ep"); /* does not divide the experts */
    d.ep = 3;
    cr_expect_str_eq(broken(d), "ep"); /* does not divide dp x cp */
    d = good, d.tp = 8, d.pp = d.dp = d.ep = 1;
    cr_expect_str_eq(broken(d), "tp");
    d = good, d.interleave = 2;
    cr_expect_str_eq(broken(d), "pp"); /* 4 stages do not divide 6 layers */
    d.interleave = 4;
    cr_expect_str_eq(broken(d), "pp"); /* 8 stages of 6 layers */
    d = good, d.accumulation = 11;
    cr_expect_str_eq(broken(d), "batch");
    d = good, d.interleave = 2, d.pp = 1, d.cp = 2, d.ep = 1;
    cr_expect_str_eq(broken(d), "interleave");
    d = good, d.zero = 4;
    cr_expect_eq(weft_degree_space_check(&operator_lists, &d), WEFT_E_ARG);
}
