/* Invalid placed iterations are refused, and the order in which ranks execute the cascades of a
 * valid one. */
#include "train/cascade/iteration_layout.h"

#include <criterion/criterion.h>

static const int32_t ranks[] = {2, 0, 1}, after_vae[] = {1}, after_dit[] = {2};
enum { CASCADES = 4, RANKS = 3 };

/* s0: vae on 2 0, then dit on 2 0 1; s1: text on 1, then dit on 1. */
static const weft_placed_cascade given[CASCADES] = {
    {{.id = "s0.dit",
      .device = ranks,
      .degree = 3,
      .start = 1,
      .seconds = 2,
      .after = after_vae,
      .after_count = 1},
     0,
     WEFT_CASCADE_DIT,
     WEFT_SP_NONE},
    {{.id = "s0.vae", .device = ranks, .degree = 2, .seconds = 1}, 0, WEFT_CASCADE_VAE, 0},
    {{.id = "s1.text", .device = &ranks[2], .degree = 1, .seconds = 0}, 1, WEFT_CASCADE_TEXT, 0},
    {{.id = "s1.dit",
      .device = &ranks[2],
      .degree = 1,
      .seconds = 1,
      .after = after_dit,
      .after_count = 1},
     1,
     WEFT_CASCADE_DIT,
     WEFT_SP_NONE},
};

typedef struct plan {
    weft_placed_cascade cascade[CASCADES];
    weft_placed_sample sample[2];
    weft_placed_iteration all;
} plan;

static void make(plan *p)
{
    memcpy(p->cascade, given, sizeof given);
    p->sample[0] = (weft_placed_sample){.clips = 1, .weight = 0.75};
    p->sample[1] = (weft_placed_sample){.clips = 1, .weight = 0.25};
    p->all = (weft_placed_iteration){
        .sample = p->sample, .samples = 2, .cascade = p->cascade, .cascades = CASCADES};
}

static void refuses(const plan *p, const char *key, const char *text)
{
    cr_expect_neq(weft_placed_check(&p->all, RANKS, "plan.json"), WEFT_OK, "%s", text);
    cr_expect_eq(weft_error_class(), WEFT_MSG_CASCADE_INVALID, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->file, "plan.json");
    const char *found = weft_error_fields()->key ? weft_error_fields()->key : "";
    cr_expect(!strcmp(found, key) && strstr(weft_error_text(), text), "%s: %s: %s", key, text,
              weft_error_message());
}

Test(cascade_plan, order_is_by_start_and_then_by_index)
{
    plan p;
    int32_t order[CASCADES];
    make(&p);
    cr_assert_eq(weft_placed_check(&p.all, RANKS, "plan.json"), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_placed_order(&p.all, order), WEFT_OK);
    static const int32_t wanted[] = {1, 2, 3, 0};
    for (int i = 0; i < CASCADES; i++)
        cr_expect_eq(order[i], wanted[i], "place %d: %d", i, (int)order[i]);
}

/* s0.dit is in its backward from 1 2/3 to 3. */
Test(cascade_plan, sums_are_behind_what_backwards_leave_them)
{
    plan p;
    make(&p);
    p.all.makespan = 3;
    cr_expect_float_eq(weft_placed_reductions_during(&p.all), 4.0 / 3, 1e-12);
    cr_expect_float_eq(weft_placed_reductions_after(&p.all, 2, 0.1), 2.0 / 3, 1e-12);
    cr_expect_eq(weft_placed_reductions_after(&p.all, 1, 0.1), 0.1);
    p.cascade[3].at.start = 2.5; /* and s1.dit from 2 5/6 to 3.5 */
    p.all.makespan = 3.5;
    cr_expect_float_eq(weft_placed_reductions_after(&p.all, 2, 0.1), 4.0 / 3, 1e-12);
}

Test(cascade_plan, what_cannot_be_run_is_refused_by_name)
{
    static const int32_t twice[] = {1, 1};
    plan p;
    make(&p);
    cr_expect_neq(weft_placed_check(&p.all, 2, "plan.json"), WEFT_OK);
    cr_expect(strstr(weft_error_message(), "plan.json: s0.dit"), "%s", weft_error_message());
    p.cascade[1].at.device = twice;
    refuses(&p, "s0.vae", "rank 1");
    make(&p);
    p.cascade[1].at.start = 1.5;
    refuses(&p, "s0.dit", "s0.vae");
    make(&p);
    p.cascade[2].at.id = "s0.text";
    refuses(&p, "s0.text", "s1.text");
    p.cascade[2].sample = 0;
    refuses(&p, "s1.dit", "s0.text");
    make(&p);
    p.cascade[2].module = WEFT_CASCADE_DIT;
    p.cascade[2].at.id = "s1.dit";
    refuses(&p, "s1.dit", "twice");
    make(&p);
    p.cascade[2].at.degree = 2;
    refuses(&p, "s1.text", "2 ranks");
    make(&p);
    p.all.cascades = 3;
    refuses(&p, "", "sample 1");
    make(&p);
    p.sample[0].weight = 0.5;
    refuses(&p, "", "0.75");
}

/* A plan with encoders one iteration ahead. s0.vae and s1.text ran in the iteration before; s2 is
 * of the next step. */
typedef struct ahead_plan {
    weft_placed_cascade cascade[5];
    weft_placed_sample sample[3];
    weft_placed_iteration all;
} ahead_plan;

static const int32_t after_kept[] = {3}, after_text[] = {4};

static void make_ahead(ahead_plan *p)
{
    p->cascade[0] = given[0];
    p->cascade[1] = given[3];
    p->cascade[2] = given[1];
    p->cascade[3] = given[1];
    p->cascade[4] = given[2];
    p->cascade[0].at.after = after_kept;
    p->cascade[1].at.after = after_text;
    p->cascade[2].at.id = "s2.vae";
    p->cascade[2].sample = 2;
    for (int c = 3; c < 5; c++) {
        p->cascade[c].kept = true;
        p->cascade[c].at.start = -1;
        p->cascade[c].at.seconds = 0;
    }
    p->sample[0] = (weft_placed_sample){.batch = 6, .clips = 1, .weight = 0.75};
    p->sample[1] = (weft_placed_sample){.batch = 7, .clips = 1, .weight = 0.25};
    p->sample[2] = (weft_placed_sample){.batch = 8, .clips = 1, .ahead = true};
    p->all = (weft_placed_iteration){
        .sample = p->sample, .samples = 3, .cascade = p->cascade, .cascades = 5};
}

static void refuses_ahead(const ahead_plan *p, const char *key)
{
    cr_expect_neq(weft_placed_check(&p->all, RANKS, "plan.json"), WEFT_OK, "%s", key);
    cr_expect_eq(weft_error_class(), WEFT_MSG_CASCADE_INVALID, "%s", weft_error_message());
    const char *found = weft_error_fields()->key ? weft_error_fields()->key : "";
    cr_expect_str_eq(found, key, "%s", weft_error_message());
}

Test(cascade_plan, encoders_of_the_next_step)
{
    ahead_plan p;
    int32_t order[5];
    make_ahead(&p);
    cr_assert_eq(weft_placed_check(&p.all, RANKS, "plan.json"), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(weft_placed_scheduled(&p.all), 3);
    cr_expect_eq(weft_placed_trained(&p.all), 2);
    cr_expect_eq(weft_placed_ahead(&p.all, 8, WEFT_CASCADE_VAE), &p.cascade[2]);
    cr_expect_null(weft_placed_ahead(&p.all, 8, WEFT_CASCADE_TEXT));
    cr_expect_null(weft_placed_ahead(&p.all, 6, WEFT_CASCADE_VAE), "a kept cascade of this step");
    cr_assert_eq(weft_placed_order(&p.all, order), WEFT_OK);
    static const int32_t wanted[] = {3, 4, 1, 2, 0}; /* kept cascades first */
    for (int i = 0; i < 5; i++)
        cr_expect_eq(order[i], wanted[i], "place %d: %d", i, (int)order[i]);
}

Test(cascade_plan, wrong_encoders_of_the_next_step_are_refused)
{
    ahead_plan p;
    make_ahead(&p);
    p.sample[2].weight = 0.1; /* the next step trains on it */
    refuses_ahead(&p, "");
    make_ahead(&p);
    p.cascade[2].kept = true; /* kept for the next step */
    refuses_ahead(&p, "s2.vae");
    make_ahead(&p);
    p.cascade[4].kept = false; /* after a kept cascade */
    refuses_ahead(&p, "s0.vae");
    make_ahead(&p);
    p.sample[0].ahead = true; /* before samples of this step */
    p.sample[0].weight = 0;
    p.sample[1].weight = 1;
    refuses_ahead(&p, "");
    make_ahead(&p);
    p.cascade[1].at.after_count = 0;
    p.cascade[1].kept = true; /* a transformer */
    refuses_ahead(&p, "s1.dit");
    make_ahead(&p);
    p.sample[1].ahead = true; /* a transformer of the next step */
    p.sample[1].weight = 0;
    p.sample[0].weight = 1;
    refuses_ahead(&p, "s1.dit");
}

/* Late dispatch drops kept cascades from the end of the predecessors. */
Test(cascade_plan, kept_encoders_are_the_last_predecessors)
{
    static const int32_t kept_last[] = {2, 3}, kept_first[] = {3, 2};
    ahead_plan p;
    make_ahead(&p);
    p.all.samples = 2;
    p.cascade[2].sample = 0;
    p.cascade[2].module = WEFT_CASCADE_TEXT;
    p.cascade[2].at.id = "s0.text";
    p.cascade[2].at.degree = 1;
    p.cascade[0].at.after = kept_last;
    p.cascade[0].at.after_count = 2;
    cr_expect_eq(weft_placed_check(&p.all, RANKS, "plan.json"), WEFT_OK, "%s",
                 weft_error_message());
    p.cascade[0].at.after = kept_first;
    refuses_ahead(&p, "s0.dit");
}
