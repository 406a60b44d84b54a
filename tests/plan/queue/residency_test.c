/* Weights that leave memory: the least recently used first, and never the ones in use. */
#include "plan/queue/residency.h"

#include <criterion/criterion.h>

Test(residency, the_least_recently_used_goes_first)
{
    weft_residency all[] = {
        {.bytes = 40, .order = 7}, {.bytes = 10, .order = 3}, {.bytes = 50, .order = 5}};
    cr_assert_eq(weft_residency_victim(all, 3, 100), -1);
    cr_assert_eq(weft_residency_victim(all, 3, 99), 1);
    all[1].users = 1; /* its bytes are the job's */
    cr_assert_eq(weft_residency_victim(all, 3, 90), -1);
    cr_assert_eq(weft_residency_victim(all, 3, 89), 2);
    all[0].users = all[2].users = 2;
    cr_assert_eq(weft_residency_victim(all, 3, 0), -1);
    cr_assert_eq(weft_residency_victim(all, 3, -1), -1); /* the job alone does not fit */
    all[2].users = 0;
    cr_assert_eq(weft_residency_victim(all, 3, -1), 2);
    cr_assert_eq(weft_residency_victim(all, 0, 0), -1);
}

Test(residency, unused_weights_become_due)
{
    weft_residency all[] = {{.bytes = 1, .order = 2, .used = 30},
                            {.bytes = 1, .order = 1, .used = 20}};
    cr_assert_eq(weft_residency_idle(all, 2, 10, 29.9), -1);
    cr_assert_eq(weft_residency_idle(all, 2, 10, 30), 1);
    cr_assert_float_eq(weft_residency_wait(all, 2, 10, 24), 6, 1e-12);
    cr_assert_eq(weft_residency_wait(all, 2, 10, 31), 0);
    all[1].users = 1;
    cr_assert_eq(weft_residency_idle(all, 2, 10, 39), -1);
    cr_assert_eq(weft_residency_idle(all, 2, 10, 40), 0);
    all[0].users = 1;
    cr_assert_lt(weft_residency_wait(all, 2, 10, 40), 0);
}
