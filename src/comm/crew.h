/* One thread that drives the communicators of many ranks of this process, in the order in which
 * something came for them. Messages between these ranks need no thread to wake another one. */
#ifndef WEFT_RUNTIME_CREW_H
#define WEFT_RUNTIME_CREW_H

#include "base/status.h"

#include <stdbool.h>

typedef struct weft_crew weft_crew;

/* A communicator on the crew's list; its owner keeps it in place from join to leave. */
typedef struct weft_crew_member {
    weft_crew *crew; /* NULL: joined none */
    /* Called by the crew's thread: with `idle` false after a call, with `idle` true now and then
     * while the thread has nothing to do. */
    void (*drive)(void *user, bool idle);
    void *user;
    struct weft_crew_member *next_called, *next, *before;
    bool called;
} weft_crew_member;

weft_crew *weft_crew_create(void); /* NULL: no memory */
/* Ends the thread; all members must have left. Accepts NULL. */
void weft_crew_free(weft_crew *crew);
/* Starts the thread with the first member. */
weft_status weft_crew_join(weft_crew *crew, weft_crew_member *member);
/* Has `member` driven soon; from any thread, also from drive. */
void weft_crew_call(weft_crew_member *member);
/* Returns when the thread drives `member` no more; not from drive. */
void weft_crew_leave(weft_crew_member *member);

#endif
