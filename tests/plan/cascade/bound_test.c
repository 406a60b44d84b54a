/* Lower bounds where they are known: cascades that exclude one another, and chains. */
#include "plan/cascade/bound.h"
#include "plan/cascade/cascade.h"

#include <criterion/criterion.h>

/* The bound of `count` cascades of one option each; after[c]: the one that c waits for, -1: none.
 * */
static double bound_of(int count, int64_t devices, const int64_t *degree, const double *seconds,
                       const int *after)
{
    weft_arena *arena = weft_arena_create();
    weft_cascade_list list = {.count = count};
    weft_cascade_problem p;
    weft_cascade_bound bound;
    weft_cascade *x = list.item = weft_arena_alloc(arena, count * (int64_t)sizeof *x);
    for (int c = 0; c < count; c++, x++) {
        x->id = weft_arena_printf(arena, "c%d", c);
        x->option = weft_arena_alloc(arena, sizeof *x->option);
        x->after = weft_arena_alloc(arena, sizeof *x->after);
        x->option[x->option_count++] = (weft_cascade_option){degree[c], seconds[c], 0};
        if (after[c] >= 0)
            x->after[x->after_count++] = after[c];
    }
    cr_assert_eq(weft_cascade_problem_create(&list, devices, 0, &p), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_cascade_lower_bound(&p, 1e9, &bound), WEFT_OK, "%s", weft_error_message());
    weft_cascade_problem_free(&p);
    weft_arena_free(arena);
    return bound.value;
}

Test(bound, cascades_of_more_than_half_of_the_devices_follow_one_another)
{
    const int64_t degree[] = {3, 3, 3};
    const double seconds[] = {1, 2, 3};
    const int after[] = {-1, -1, -1};
    cr_expect_float_eq(bound_of(3, 5, degree, seconds, after), 6, 1e-6);
}

Test(bound, a_chain_takes_the_sum_of_its_parts)
{
    const int64_t degree[] = {1, 2, 1};
    const double seconds[] = {1, 2, 4};
    const int after[] = {-1, 0, 1};
    cr_expect_float_eq(bound_of(3, 8, degree, seconds, after), 7, 1e-6);
}

/* Two long ones on all devices, each before a short one: the short ones cannot begin before the
 * first long one ends, nor both end before the second. */
Test(bound, what_comes_after_counts)
{
    const int64_t degree[] = {4, 4, 1, 1};
    const double seconds[] = {5, 5, 3, 3};
    const int after[] = {-1, -1, 0, 1};
    cr_expect_float_eq(bound_of(4, 4, degree, seconds, after), 13, 1e-6);
}
