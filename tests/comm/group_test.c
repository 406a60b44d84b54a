/* Groups: the same list of ranks gives the same group, invalid lists are refused, and an axis of a
 * mesh over any base group has the ranks of the mesh. */
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "comm/group.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void open_world(int ranks, weft_comm **comm)
{
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
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

/* `rank`: that the error names; -1: none */
static void expect_refused(weft_comm *comm, const int *ranks, int count, int rank)
{
    weft_group *group;
    cr_expect_eq(weft_comm_group(comm, ranks, count, &group), WEFT_E_ARG);
    cr_expect_eq(weft_error_class(), WEFT_MSG_ARGUMENT_INVALID, "%s", weft_error_message());
    cr_expect_eq(weft_error_fields()->has_rank, rank >= 0, "%s", weft_error_message());
    cr_expect(rank < 0 || weft_error_fields()->rank == rank, "%s", weft_error_message());
}

Test(group, lists_that_are_no_group_are_refused)
{
    weft_comm *comm[3];
    open_world(3, comm);
    expect_refused(comm[0], (int[]){0, 3}, 2, 3);
    expect_refused(comm[0], (int[]){0, 1, 0}, 3, 0);
    expect_refused(comm[0], (int[]){1, 2}, 2, 0);
    expect_refused(comm[0], NULL, 0, -1);
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
    cr_expect_eq(weft_error_class(), WEFT_MSG_MESH_INVALID, "%s", weft_error_message());
    cr_expect_eq(weft_error_fields()->number, 2);
    close_world(10, comm);
}

/* ---- tags that are short ------------------------------------------------------------------- */

enum { SHORT_RANKS = 4, ORDERS = 24, ROUNDS = 3 };

/* The n-th order of four ranks. */
static void make_order(int n, int *ranks)
{
    int left[SHORT_RANKS] = {0, 1, 2, 3};
    for (int i = 0; i < SHORT_RANKS; i++) {
        const int at = n % (SHORT_RANKS - i);
        n /= SHORT_RANKS - i;
        ranks[i] = left[at];
        for (int j = at; j < SHORT_RANKS - 1; j++)
            left[j] = left[j + 1];
    }
}

typedef struct short_rank {
    weft_comm *comm;
    int rank;
    weft_status_code status;
    char error[300];
    weft_message_class kind; /* of the error */
} short_rank;

/* Sends its rank in every group and then receives the ranks of the others. Each rank has another
 * order, so that introductions arrive before and after they are requested. */
static weft_status cross_groups(const short_rank *s)
{
    for (int turn = 0; turn < 2 * ORDERS; turn++) {
        const int i = turn % ORDERS, n = turn < ORDERS ? (i * 7 + 5 * s->rank) % ORDERS
                                                       : (i * (s->rank % 2 ? 5 : 11)) % ORDERS;
        int order[SHORT_RANKS];
        weft_group *g;
        make_order(n, order);
        WEFT_TRY(weft_comm_group(s->comm, order, SHORT_RANKS, &g));
        const int own = weft_group_index(g);
        for (int peer = 0; peer < SHORT_RANKS; peer++) {
            int what[2] = {n, s->rank};
            if (peer == own)
                continue;
            if (turn < ORDERS) {
                WEFT_TRY(weft_group_send(g, WEFT_CHANNEL_HANDOFF, peer, what, sizeof what));
                continue;
            }
            WEFT_TRY(weft_group_recv(g, WEFT_CHANNEL_HANDOFF, peer, what, sizeof what));
            if (what[0] != n || what[1] != order[peer])
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                  "group %d, rank %d: got %d from %d", n, s->rank, what[0],
                                  what[1]);
        }
    }
    return WEFT_OK;
}

static void *short_main(void *user)
{
    short_rank *s = user;
    for (int round = 0; round < ROUNDS && s->status == WEFT_OK; round++)
        s->status = cross_groups(s);
    if (s->status == WEFT_OK)
        s->status = weft_comm_barrier(s->comm);
    if (s->status != WEFT_OK) {
        snprintf(s->error, sizeof s->error, "%.290s", weft_error_message());
        s->kind = weft_error_class();
        weft_comm_abort(s->comm);
    }
    return NULL;
}

static void run_short(int tag_bits, short_rank *s)
{
    weft_comm *comm[SHORT_RANKS];
    pthread_t thread[SHORT_RANKS];
    cr_assert_eq(weft_comm_open_threads_narrow(SHORT_RANKS, tag_bits, comm), WEFT_OK);
    for (int r = 0; r < SHORT_RANKS; r++) {
        s[r] = (short_rank){.comm = comm[r], .rank = r};
        weft_comm_set_deadline(comm[r], 1e9);
        pthread_create(&thread[r], NULL, short_main, &s[r]);
    }
    for (int r = 0; r < SHORT_RANKS; r++)
        pthread_join(thread[r], NULL);
    close_world(SHORT_RANKS, comm);
}

/* 24 groups of the same four ranks and the world: 25 group ids per pair. 17 bits of tag, with five
 * for the id, are enough. With four the error is reported. */
Test(group, many_groups_are_told_apart_by_short_tags)
{
    short_rank s[SHORT_RANKS];
    run_short(17, s);
    for (int r = 0; r < SHORT_RANKS; r++)
        cr_expect_eq(s[r].status, WEFT_OK, "rank %d: %s", r, s[r].error);
    run_short(16, s);
    int told = 0;
    for (int r = 0; r < SHORT_RANKS; r++) {
        cr_expect_eq(s[r].status == WEFT_OK, false, "rank %d", r);
        told += s[r].kind == WEFT_MSG_COMM_UNSUPPORTED && strstr(s[r].error, " 15 ");
    }
    cr_expect_gt(told, 0);
}
