/* Seconds of a further step: the first step includes one-time work. */
#include "generate/jobs/generation_progress.h"

#include <criterion/criterion.h>

/* Exact sums of powers of two. */
Test(generation_progress, the_first_step_is_no_measure_of_others)
{
    cr_assert_eq(weft_generation_step_seconds(4, 4, 1), 4, "no other step has finished");
    cr_assert_eq(weft_generation_step_seconds(4.5, 4, 2), 0.5);
    cr_assert_eq(weft_generation_step_seconds(6, 4, 5), 0.5);
}
