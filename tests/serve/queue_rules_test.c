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

Test(queue_rules, order_and_forecast)
{
    weft_queue_entry e[] = {{4, false, 0, 8}, {2, true, 0, 3}, {3, false, 0, 2}, {5, false, 7, 1}};
    const int64_t order[] = {2, 5, 3, 4};
    const double start[] = {0, 3, 4, 6};
    weft_queue_sort(e, 4);
    for (int i = 0; i < 4; i++) {
        weft_queue_forecast f;
        cr_assert_eq(e[i].number, order[i]);
        cr_assert(weft_queue_predict(e, 4, order[i], NULL, &f));
        cr_assert_eq(f.position, i);
        cr_assert_eq(f.start, start[i]);
        cr_assert_eq(f.end, start[i] + e[i].seconds);
    }
    weft_queue_forecast f;
    cr_assert(!weft_queue_predict(e, 4, 1, NULL, &f));
    const weft_queue_entry last = {INT64_MAX, false, 0, 5}, urgent = {INT64_MAX, false, 9, 5},
                           same = {INT64_MAX, false, 7, 5};
    cr_assert(weft_queue_predict(e, 4, -1, &last, &f) && f.position == 4 && f.start == 14);
    cr_assert(weft_queue_predict(e, 4, -1, &urgent, &f) && f.position == 1 && f.start == 3);
    cr_assert(weft_queue_predict(e, 4, -1, &same, &f) && f.position == 2 && f.end == 9);
    cr_assert(weft_queue_predict(e, 0, -1, &last, &f) && f.position == 0 && f.end == 5);
}
