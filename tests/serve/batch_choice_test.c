/* Equal requests and prices of batches. */
#include "serve/batch_choice.h"

#include <criterion/criterion.h>

static const char *const base =
    "{\"model\": \"wan\", \"frames\": 17, \"steps\": 20, \"prompt\": \"a\", \"seed\": 1}";

static bool is_equal(const char *text)
{
    json_t *a = json_loads(base, 0, NULL), *b = json_loads(text, 0, NULL);
    cr_assert(a && b);
    const bool equal = weft_batch_is_equal(a, b), back = weft_batch_is_equal(b, a);
    cr_expect_eq(equal, back);
    json_decref(a);
    json_decref(b);
    return equal;
}

Test(batch_choice, prompts_and_seed_may_differ)
{
    cr_expect(is_equal(base));
    cr_expect(is_equal("{\"model\": \"wan\", \"frames\": 17, \"steps\": 20, \"prompt\": \"b\", "
                       "\"negative_prompt\": \"c\", \"seed\": 2}"));
    cr_expect(!is_equal("{\"model\": \"wan\", \"frames\": 17, \"steps\": 21, \"prompt\": \"a\"}"));
    cr_expect(!is_equal("{\"model\": \"wan\", \"frames\": 17, \"prompt\": \"a\"}"));
    cr_expect(!is_equal("{\"model\": \"wan\", \"frames\": 17, \"steps\": 20, \"lora\": \"x\"}"));
}

/* A file of a request conditions its own video alone. */
Test(batch_choice, requests_with_files_are_not_equal)
{
    json_t *a = json_pack("{s:s, s:s}", "prompt", "a", "image", "input.png");
    cr_expect(!weft_batch_is_equal(a, a));
    json_decref(a);
}

Test(batch_choice, measured_seconds_replace_predicted_ones_of_both)
{
    weft_price alone = {.seconds = 10}, together = {.seconds = 8};
    cr_expect_lt(weft_batch_ratio(&alone, &together), 1);
    together.measured = 12; /* the other one is predicted only */
    cr_expect_lt(weft_batch_ratio(&alone, &together), 1);
    alone.measured = 9;
    cr_expect_geq(weft_batch_ratio(&alone, &together), 1);
    alone.measured = 13;
    cr_expect_lt(weft_batch_ratio(&alone, &together), 1);
    together = alone = (weft_price){.seconds = 10};
    cr_expect_geq(weft_batch_ratio(&alone, &together), 1);
}

/* The queue is a member, a job with a deadline, and a second member, of 10 s each. The batch takes 15 s. */
static bool delays(double deadline, double pace, const int64_t position[3])
{
    weft_queue_entry entries[3] = {
        {.number = 1}, {.number = 2, .deadline = deadline}, {.number = 3}};
    weft_queue_forecast forecasts[3];
    const weft_queue_job jobs[2] = {{.number = 1, .seconds = 30, .remaining = 10},
                                    {.number = 3, .seconds = 10}};
    for (int i = 0; i < 3; i++)
        forecasts[i] = (weft_queue_forecast){.position = position[i],
                                             .end = 100 + 10 * pace * (double)(position[i] + 1)};
    const weft_queue_view queue = {
        .entries = entries, .forecasts = forecasts, .count = 3, .pace = pace};
    return weft_batch_delays(&queue, jobs, 2, 15);
}

Test(batch_choice, other_deadlines_are_kept)
{
    static const int64_t between[3] = {0, 1, 2}, last[3] = {0, 2, 1};
    cr_expect(delays(124, 1, between)); /* ends at 125 in place of 120 */
    cr_expect(!delays(126, 1, between));
    cr_expect(!delays(119, 1, between)); /* is late in any case */
    cr_expect(!delays(0, 1, between));   /* has no deadline */
    cr_expect(!delays(131, 1, last));    /* both members are before it: it ends earlier */
    cr_expect(delays(148, 2, between));  /* ends at 150 in place of 140 */
    cr_expect(!delays(151, 2, between));
}
