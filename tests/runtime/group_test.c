/* Groups: the same list gives the same group, lists that cannot be one are refused, an axis of a
 * mesh over any base group is the ranks that the mesh says. */
#include "runtime/comm.h"

#include <criterion/criterion.h>
#include <string.h>

static void open_world(int ranks, weft_comm **comm)
{
    cr_assert_eq(weft_comm_open_fake(ranks, comm), WEFT_OK);
}

static void close_world(int ranks, weft_comm **comm)
{
    for (int r = 0; r < ranks; r++)
        weft_comm_free(comm[r]);
}

Test(group, the_same_list_is_the_same_group)
{
    weft_comm *comm[6];
    weft_group *a, *b, *c, *world;
    open_world(6, comm);
    cr_assert_eq(weft_comm_group(comm[4], (int[]){5, 4, 1}, 3, &a), WEFT_OK);
    cr_assert_eq(weft_comm_group(comm[4], (int[]){5, 4, 1}, 3, &b), WEFT_OK);
    cr_assert_eq(weft_comm_group(comm[4], (int[]){1, 4, 5}, 3, &c), WEFT_OK);
    cr_expect_eq(a, b);
    cr_expect_neq(a, c);
    cr_expect_eq(weft_group_count(a), 3);
    cr_expect_eq(weft_group_index(a), 1);
    cr_expect_eq(weft_group_rank(a, 0), 5);
    cr_expect_eq(weft_group_comm(a), comm[4]);
    cr_assert_eq(weft_comm_group(comm[1], (int[]){5, 4, 1}, 3, &b), WEFT_OK);
    cr_expect_eq(weft_group_id(a), weft_group_id(b), "another rank gives the list another id");
    cr_expect_neq(weft_group_id(a), weft_group_id(c));
    cr_assert_eq(weft_comm_world(comm[2], &world), WEFT_OK);
    cr_expect_eq(weft_group_count(world), 6);
    cr_expect_eq(weft_group_index(world), 2);
    close_world(6, comm);
}

static void expect_refused(weft_comm *comm, const int *ranks, int count, const char *why)
{
    weft_group *group;
    cr_expect_eq(weft_comm_group(comm, ranks, count, &group), WEFT_E_ARG);
    cr_expect(strstr(weft_error_message(), why), "%s", weft_error_message());
}

Test(group, lists_that_are_no_group_are_refused)
{
    weft_comm *comm[3];
    open_world(3, comm);
    expect_refused(comm[0], (int[]){0, 3}, 2, "rank 3 in a group, but the job has ranks 0 to 2");
    expect_refused(comm[0], (int[]){0, 1, 0}, 3, "rank 0 is twice");
    expect_refused(comm[0], (int[]){1, 2}, 2, "in which it is not");
    expect_refused(comm[0], NULL, 0, "a group of 0 ranks");
    close_world(3, comm);
}

/* Mesh dp=2,tp=3 over ranks {9,7,5,3,1,0}: row 0 is 9 7 5, row 1 is 3 1 0. */
Test(group, an_axis_of_a_mesh_over_any_group)
{
    const int ranks[] = {9, 7, 5, 3, 1, 0};
    weft_comm *comm[10];
    weft_mesh mesh;
    open_world(10, comm);
    cr_assert_eq(weft_mesh_parse("dp=2,tp=3", &mesh), WEFT_OK);
    for (int i = 0; i < 6; i++) {
        weft_group *base, *dp, *tp;
        cr_assert_eq(weft_comm_group(comm[ranks[i]], ranks, 6, &base), WEFT_OK);
        cr_assert_eq(weft_comm_axis_group(base, &mesh, i, 0, &dp), WEFT_OK);
        cr_assert_eq(weft_comm_axis_group(base, &mesh, i, 1, &tp), WEFT_OK);
        cr_expect_eq(weft_group_count(dp), 2);
        cr_expect_eq(weft_group_count(tp), 3);
        cr_expect_eq(weft_group_index(dp), i / 3);
        cr_expect_eq(weft_group_index(tp), i % 3);
        for (int j = 0; j < 2; j++)
            cr_expect_eq(weft_group_rank(dp, j), ranks[3 * j + i % 3]);
        for (int j = 0; j < 3; j++)
            cr_expect_eq(weft_group_rank(tp, j), ranks[i / 3 * 3 + j]);
    }
    weft_group *base, *axis;
    cr_assert_eq(weft_comm_group(comm[0], (int[]){0, 1}, 2, &base), WEFT_OK);
    cr_expect_eq(weft_comm_axis_group(base, &mesh, 0, 0, &axis), WEFT_E_ARG);
    cr_expect(strstr(weft_error_message(), "a mesh of 6 ranks is laid over a group of 2"), "%s",
              weft_error_message());
    close_world(10, comm);
}
