/* One thread that drives the communicators of many ranks of this process, in the order of their
 * events. A message between these ranks does not wake another thread. */
#ifndef WEFT_COMM_CREW_H
#define WEFT_COMM_CREW_H

#include "base/status.h"

#include <stdbool.h>

typedef struct weft_crew weft_crew;

/* Communicator on the crew's list. The owner does not move it between join and leave. */
typedef struct weft_crew_member {
    weft_crew *crew; /* NULL: not a member */
    /* Called by the crew's thread. `idle` is false after weft_crew_call. `idle` is true from time
     * to time while the thread has nothing to do. */
    void (*drive)(void *user, bool idle);
    void *user;
    struct weft_crew_member *next_called, *next, *before;
    bool called;
} weft_crew_member;

weft_crew *weft_crew_create(void); /* NULL: out of memory */
/* Ends the thread; all members must have left. Accepts NULL. */
void weft_crew_free(weft_crew *crew);
/* Adds `member`. The first member starts the thread. */
weft_status weft_crew_join(weft_crew *crew, weft_crew_member *member);
/* Requests that `member` is driven soon. Thread-safe; may be called from `drive`. */
void weft_crew_call(weft_crew_member *member);
/* Removes `member`. Returns when the thread no longer drives it. Must not be called from
 * `drive`. */
void weft_crew_leave(weft_crew_member *member);

#endif
