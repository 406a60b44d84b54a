/* The rules of the queue: every transition, the order, and predicted waits. */
#include "serve/queue_rules.h"

#include <criterion/criterion.h>

static const weft_queue_state not_allowed = WEFT_QUEUE_STATES;

Test(queue_rules, names_are_unique)
{
    for (int s = 0; s < WEFT_QUEUE_STATES; s++)
        cr_assert_eq(weft_queue_state_find(weft_queue_state_name((weft_queue_state)s)), s);
    cr_assert_eq(weft_queue_state_find("gone"), not_allowed);
    cr_assert_eq(weft_queue_state_find(""), not_allowed);
}

Test(queue_rules, a_job_is_finished_once)
{
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_QUEUED, WEFT_QUEUE_START, 0), WEFT_QUEUE_RUNNING);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_RUNNING, WEFT_QUEUE_START, 0), not_allowed);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_RUNNING, WEFT_QUEUE_FINISHED, 0), WEFT_QUEUE_COMPLETED);
    for (int e = 0; e < WEFT_QUEUE_EVENTS; e++) {
        const weft_queue_state next = weft_queue_next(WEFT_QUEUE_COMPLETED, (weft_queue_event)e, 0);
        const bool allowed = e == WEFT_QUEUE_DELETE || e == WEFT_QUEUE_LOST;
        cr_assert_eq(next != not_allowed, allowed, "event %d of a completed job", e);
        cr_assert(next != WEFT_QUEUE_QUEUED && next != WEFT_QUEUE_RUNNING);
    }
}

/* Only START gives a job to a worker. */
Test(queue_rules, a_worker_is_needed_for_its_events)
{
    for (int s = 0; s < WEFT_QUEUE_STATES; s++)
        for (int e = 0; e < WEFT_QUEUE_EVENTS; e++) {
            const weft_queue_state state = (weft_queue_state)s,
                                   next = weft_queue_next(state, (weft_queue_event)e, 1);
            if (next != not_allowed && weft_queue_is_held(next) && !weft_queue_is_held(state))
                cr_assert(s == WEFT_QUEUE_QUEUED && e == WEFT_QUEUE_START);
            if (e >= WEFT_QUEUE_FINISHED && e <= WEFT_QUEUE_CRASHED)
                cr_assert_eq(next != not_allowed,
                             weft_queue_is_held(state) || s == WEFT_QUEUE_DELETING);
            if (e == WEFT_QUEUE_LOST) /* after a restart no job has a worker */
                cr_assert(next != not_allowed && !weft_queue_is_held(next));
        }
}

Test(queue_rules, the_second_crash_parks)
{
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_RUNNING, WEFT_QUEUE_CRASHED, 1), WEFT_QUEUE_QUEUED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_RUNNING, WEFT_QUEUE_CRASHED, 2), WEFT_QUEUE_PARKED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_PAUSING, WEFT_QUEUE_CRASHED, 2), WEFT_QUEUE_PAUSED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_PARKED, WEFT_QUEUE_RESUME, 2), WEFT_QUEUE_QUEUED);
}

Test(queue_rules, requests_wait_for_the_worker)
{
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_QUEUED, WEFT_QUEUE_CANCEL, 0), WEFT_QUEUE_CANCELLED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_RUNNING, WEFT_QUEUE_CANCEL, 0), WEFT_QUEUE_CANCELLING);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_PAUSING, WEFT_QUEUE_CANCEL, 0), WEFT_QUEUE_CANCELLING);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_CANCELLING, WEFT_QUEUE_PAUSE, 0), not_allowed);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_CANCELLING, WEFT_QUEUE_STOPPED, 0),
                 WEFT_QUEUE_CANCELLED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_CANCELLING, WEFT_QUEUE_FINISHED, 0),
                 WEFT_QUEUE_COMPLETED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_RUNNING, WEFT_QUEUE_PAUSE, 0), WEFT_QUEUE_PAUSING);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_PAUSING, WEFT_QUEUE_STOPPED, 0), WEFT_QUEUE_PAUSED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_PAUSED, WEFT_QUEUE_RESUME, 0), WEFT_QUEUE_QUEUED);
    cr_assert_eq(weft_queue_next(WEFT_QUEUE_RUNNING, WEFT_QUEUE_STOPPED, 0), WEFT_QUEUE_QUEUED);
    cr_assert(weft_queue_is_final(WEFT_QUEUE_PARKED) && !weft_queue_is_final(WEFT_QUEUE_PAUSED));
}

/* Changes that a client knows, and crashes, are never lost. */
Test(queue_rules, transitions_that_may_be_lost)
{
    static const struct {
        weft_queue_state before;
        weft_queue_event event;
        bool may;
    } all[] = {{WEFT_QUEUE_QUEUED, WEFT_QUEUE_START, true},
               {WEFT_QUEUE_RUNNING, WEFT_QUEUE_STOPPED, true},
               {WEFT_QUEUE_CANCELLING, WEFT_QUEUE_STOPPED, true},
               {WEFT_QUEUE_PAUSING, WEFT_QUEUE_STOPPED, true},
               {WEFT_QUEUE_RUNNING, WEFT_QUEUE_CANCEL, false},
               {WEFT_QUEUE_RUNNING, WEFT_QUEUE_PAUSE, false},
               {WEFT_QUEUE_QUEUED, WEFT_QUEUE_CANCEL, false},
               {WEFT_QUEUE_PAUSED, WEFT_QUEUE_RESUME, false},
               {WEFT_QUEUE_RUNNING, WEFT_QUEUE_FINISHED, false},
               {WEFT_QUEUE_CANCELLING, WEFT_QUEUE_FINISHED, false},
               {WEFT_QUEUE_RUNNING, WEFT_QUEUE_REFUSED, false},
               {WEFT_QUEUE_RUNNING, WEFT_QUEUE_CRASHED, false},
               {WEFT_QUEUE_PAUSING, WEFT_QUEUE_CRASHED, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const weft_queue_state next = weft_queue_next(all[i].before, all[i].event, 1);
        cr_assert_eq(weft_queue_may_be_lost(all[i].before, all[i].event, next), all[i].may,
                     "row %zu", i);
    }
}

Test(queue_rules, order)
{
    weft_queue_entry e[] = {{4, false, 0, 8}, {2, true, 0, 3}, {3, false, 0, 2}, {5, false, 7, 1}};
    const int64_t order[] = {2, 5, 3, 4};
    weft_queue_sort(e, 4);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(e[i].number, order[i]);
}

/* Numbers in their order after a move; the ranks of a priority stay the same set. */
static bool moves(int64_t number, int64_t other, bool after, const int64_t order[6])
{
    weft_queue_entry e[] = {{1, true, 0, 1, 1},  {2, false, 5, 1, 2}, {3, false, 5, 1, 9},
                            {4, false, 0, 1, 4}, {5, false, 0, 1, 5}, {6, false, 0, 1, 6}};
    if (!weft_queue_move(e, 6, number, other, after))
        return false;
    for (int i = 0; i < 6; i++)
        cr_assert_eq(e[i].number, order[i], "place %d after %d, %d", i, (int)number, (int)other);
    weft_queue_sort(e, 6);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(e[i].number, order[i], "sorted place %d", i);
    for (int i = 1; i < 6; i++)
        for (int k = 0; k < i; k++)
            cr_assert_neq(e[i].rank, e[k].rank);
    return true;
}

Test(queue_rules, a_move_permutes_ranks)
{
    cr_assert(moves(6, 4, false, (int64_t[]){1, 2, 3, 6, 4, 5}));
    cr_assert(moves(4, 6, true, (int64_t[]){1, 2, 3, 5, 6, 4}));
    cr_assert(moves(4, 5, true, (int64_t[]){1, 2, 3, 5, 4, 6}));
    cr_assert(moves(3, 2, false, (int64_t[]){1, 3, 2, 4, 5, 6}));
    /* into another priority, up and down */
    cr_assert(moves(6, 3, false, (int64_t[]){1, 2, 6, 3, 4, 5}));
    cr_assert(moves(2, 5, true, (int64_t[]){1, 3, 4, 5, 2, 6}));
    cr_assert(moves(2, 3, true, (int64_t[]){1, 3, 2, 4, 5, 6}));
    cr_assert(!moves(1, 4, false, NULL) && !moves(4, 1, true, NULL)); /* a worker has job 1 */
    cr_assert(!moves(4, 4, false, NULL) && !moves(4, 7, false, NULL) && !moves(7, 4, false, NULL));
}

Test(queue_rules, equal_ranks_become_two)
{
    weft_queue_entry e[] = {{1, false, 0, 1, 0}, {2, false, 0, 1, 0}, {3, false, 0, 1, 0}};
    cr_assert(weft_queue_move(e, 3, 3, 1, false));
    weft_queue_sort(e, 3);
    cr_assert(e[0].number == 3 && e[1].number == 1 && e[2].number == 2);
}
