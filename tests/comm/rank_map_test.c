/* The order of ranks by location: machines in the order of their first process, then NUMA nodes and
 * cores. Ranks with equal locations have the order of the launcher. */
#include "comm/rank_map.h"

#include <criterion/criterion.h>

static void check(const weft_rank_location *seat, int count, const int *expected)
{
    int order[16];
    cr_assert_eq(weft_rank_order(seat, count, order), WEFT_OK);
    for (int i = 0; i < count; i++)
        cr_expect_eq(order[i], expected[i], "number %d is %d, not %d", i, order[i], expected[i]);
}

Test(seat, processes_that_are_not_bound_stay_as_they_are)
{
    check((weft_rank_location[]){{0, -1, -1, 4}, {0, -1, -1, 4}, {0, -1, -1, 4}}, 3,
          (int[]){0, 1, 2});
}

Test(seat, machines_dealt_out_by_turns_come_one_after_the_other)
{
    static const weft_rank_location seat[] = {{7, -1, -1, 4}, {3, -1, -1, 4}, {7, -1, -1, 4},
                                              {3, -1, -1, 4}, {9, -1, -1, 4}, {7, -1, -1, 4}};
    check(seat, 6, (int[]){0, 2, 5, 1, 3, 4});
}

Test(seat, on_a_machine_by_numa_node_and_core)
{
    static const weft_rank_location seat[] = {{0, 0, 0, 1}, {0, 1, 8, 1}, {0, 0, 1, 1},
                                              {0, 1, 9, 1}, {1, 1, 9, 1}, {1, 0, 3, 1},
                                              {1, 0, 2, 1}};
    check(seat, 7, (int[]){0, 2, 1, 3, 6, 5, 4});
}

Test(seat, of_this_process)
{
    const weft_rank_location seat = weft_rank_location_here();
    cr_expect_geq(seat.cores, 1);
    cr_expect_geq(seat.core, -1);
    cr_expect_geq(seat.numa, -1);
}
