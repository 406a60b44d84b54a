#include "serve/queue_rules.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[WEFT_QUEUE_STATES] = {
    "queued", "running",   "pausing",   "cancelling", "deleting",
    "paused", "cancelled", "completed", "failed",     "parked"};

const char *weft_queue_state_name(weft_queue_state state)
{
    return names[state];
}

weft_queue_state weft_queue_state_find(const char *name)
{
    int state = 0;
    while (state < WEFT_QUEUE_STATES && strcmp(names[state], name) != 0)
        state++;
    return (weft_queue_state)state;
}

bool weft_queue_is_held(weft_queue_state state)
{
    return state == WEFT_QUEUE_RUNNING || state == WEFT_QUEUE_PAUSING ||
           state == WEFT_QUEUE_CANCELLING;
}

bool weft_queue_can_edit(weft_queue_state state)
{
    return state == WEFT_QUEUE_QUEUED || state == WEFT_QUEUE_PAUSED;
}

bool weft_queue_is_final(weft_queue_state state)
{
    return state == WEFT_QUEUE_CANCELLED || state == WEFT_QUEUE_COMPLETED ||
           state == WEFT_QUEUE_FAILED || state == WEFT_QUEUE_PARKED;
}

/* ---- transitions ---------------------------------------------------------------------------- */

/* One more than the next state; 0: not allowed. */
#define TO(state) (WEFT_QUEUE_##state + 1)
/* clang-format off */
static const unsigned char table[WEFT_QUEUE_STATES][WEFT_QUEUE_EVENTS] = {
    [WEFT_QUEUE_QUEUED] = {
        [WEFT_QUEUE_START] = TO(RUNNING),      [WEFT_QUEUE_PAUSE] = TO(PAUSED),
        [WEFT_QUEUE_CANCEL] = TO(CANCELLED),   [WEFT_QUEUE_DELETE] = TO(DELETING),
        [WEFT_QUEUE_RESUME] = TO(QUEUED),      [WEFT_QUEUE_LOST] = TO(QUEUED)},
    [WEFT_QUEUE_RUNNING] = {
        [WEFT_QUEUE_PAUSE] = TO(PAUSING),      [WEFT_QUEUE_CANCEL] = TO(CANCELLING),
        [WEFT_QUEUE_DELETE] = TO(DELETING),    [WEFT_QUEUE_RESUME] = TO(RUNNING),
        [WEFT_QUEUE_FINISHED] = TO(COMPLETED), [WEFT_QUEUE_STOPPED] = TO(QUEUED),
        [WEFT_QUEUE_REFUSED] = TO(FAILED),     [WEFT_QUEUE_CRASHED] = TO(QUEUED),
        [WEFT_QUEUE_LOST] = TO(QUEUED)},
    [WEFT_QUEUE_PAUSING] = {
        [WEFT_QUEUE_PAUSE] = TO(PAUSING),      [WEFT_QUEUE_CANCEL] = TO(CANCELLING),
        [WEFT_QUEUE_DELETE] = TO(DELETING),
        [WEFT_QUEUE_FINISHED] = TO(COMPLETED), [WEFT_QUEUE_STOPPED] = TO(PAUSED),
        [WEFT_QUEUE_REFUSED] = TO(FAILED),     [WEFT_QUEUE_CRASHED] = TO(PAUSED),
        [WEFT_QUEUE_LOST] = TO(PAUSED)},
    [WEFT_QUEUE_CANCELLING] = {
        [WEFT_QUEUE_CANCEL] = TO(CANCELLING),  [WEFT_QUEUE_DELETE] = TO(DELETING),
        [WEFT_QUEUE_FINISHED] = TO(COMPLETED), [WEFT_QUEUE_STOPPED] = TO(CANCELLED),
        [WEFT_QUEUE_REFUSED] = TO(CANCELLED),  [WEFT_QUEUE_CRASHED] = TO(CANCELLED),
        [WEFT_QUEUE_LOST] = TO(CANCELLED)},
    [WEFT_QUEUE_DELETING] = {
        [WEFT_QUEUE_DELETE] = TO(DELETING),
        [WEFT_QUEUE_FINISHED] = TO(DELETING),  [WEFT_QUEUE_STOPPED] = TO(DELETING),
        [WEFT_QUEUE_REFUSED] = TO(DELETING),   [WEFT_QUEUE_CRASHED] = TO(DELETING),
        [WEFT_QUEUE_LOST] = TO(DELETING)},
    [WEFT_QUEUE_PAUSED] = {
        [WEFT_QUEUE_PAUSE] = TO(PAUSED),       [WEFT_QUEUE_RESUME] = TO(QUEUED),
        [WEFT_QUEUE_CANCEL] = TO(CANCELLED),   [WEFT_QUEUE_DELETE] = TO(DELETING),
        [WEFT_QUEUE_LOST] = TO(PAUSED)},
    [WEFT_QUEUE_CANCELLED] = {
        [WEFT_QUEUE_CANCEL] = TO(CANCELLED),   [WEFT_QUEUE_DELETE] = TO(DELETING),
        [WEFT_QUEUE_LOST] = TO(CANCELLED)},
    [WEFT_QUEUE_COMPLETED] = {
        [WEFT_QUEUE_DELETE] = TO(DELETING),    [WEFT_QUEUE_LOST] = TO(COMPLETED)},
    [WEFT_QUEUE_FAILED] = {
        [WEFT_QUEUE_RESUME] = TO(QUEUED),      [WEFT_QUEUE_CANCEL] = TO(CANCELLED),
        [WEFT_QUEUE_DELETE] = TO(DELETING),    [WEFT_QUEUE_LOST] = TO(FAILED)},
    [WEFT_QUEUE_PARKED] = {
        [WEFT_QUEUE_RESUME] = TO(QUEUED),      [WEFT_QUEUE_CANCEL] = TO(CANCELLED),
        [WEFT_QUEUE_DELETE] = TO(DELETING),    [WEFT_QUEUE_LOST] = TO(PARKED)},
};
/* clang-format on */

weft_queue_state weft_queue_next(weft_queue_state state, weft_queue_event event, int64_t crashes)
{
    if (!table[state][event])
        return WEFT_QUEUE_STATES;
    const weft_queue_state next = (weft_queue_state)(table[state][event] - 1);
    return event == WEFT_QUEUE_CRASHED && next == WEFT_QUEUE_QUEUED && crashes >= WEFT_QUEUE_CRASHES
               ? WEFT_QUEUE_PARKED
               : next;
}

bool weft_queue_may_be_lost(weft_queue_state before, weft_queue_event event, weft_queue_state next)
{
    return event != WEFT_QUEUE_CRASHED &&
           weft_queue_next(before, WEFT_QUEUE_LOST, 0) == weft_queue_next(next, WEFT_QUEUE_LOST, 0);
}

/* ---- order ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const weft_queue_entry *x = a, *y = b;
    if (x->held != y->held)
        return x->held ? -1 : 1;
    if (!x->held && x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (!x->held && x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

void weft_queue_sort(weft_queue_entry *entries, int64_t count)
{
    qsort(entries, (size_t)count, sizeof *entries, compare);
}

static weft_queue_entry *find_waiting(weft_queue_entry *entries, int64_t count, int64_t number)
{
    for (int64_t i = 0; i < count; i++)
        if (entries[i].number == number)
            return entries[i].held ? NULL : &entries[i];
    return NULL;
}

static int compare_ranks(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Gives the jobs at[0..count) their ranks in ascending order. A rank that two jobs have becomes two
 * ranks. */
static bool sort_ranks(weft_queue_entry *at, int64_t count)
{
    int64_t *ranks = malloc((size_t)count * sizeof *ranks);
    if (!ranks)
        return false;
    for (int64_t i = 0; i < count; i++)
        ranks[i] = at[i].rank;
    qsort(ranks, (size_t)count, sizeof *ranks, compare_ranks);
    for (int64_t i = 0; i < count; i++)
        at[i].rank = i && ranks[i] <= at[i - 1].rank ? at[i - 1].rank + 1 : ranks[i];
    free(ranks);
    return true;
}

bool weft_queue_move(weft_queue_entry *entries, int64_t count, int64_t number, int64_t other,
                     bool after)
{
    const weft_queue_entry *from = find_waiting(entries, count, number),
                           *to = find_waiting(entries, count, other);
    if (!from || !to || from == to)
        return false;
    weft_queue_entry moved = *from;
    const int64_t i = from - entries, priority = to->priority;
    int64_t at = to - entries + after, first = 0, last;
    moved.priority = priority;
    at -= i < at;
    memmove(entries + i, entries + i + 1, (size_t)(count - i - 1) * sizeof *entries);
    memmove(entries + at + 1, entries + at, (size_t)(count - at - 1) * sizeof *entries);
    entries[at] = moved;
    while (entries[first].held || entries[first].priority != priority)
        first++;
    for (last = first; last < count && entries[last].priority == priority;)
        last++;
    return sort_ranks(entries + first, last - first);
}
