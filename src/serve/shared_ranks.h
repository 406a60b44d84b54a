/* Jobs on the ranks that they share (share_view.h): which jobs start on which ranks, and when a
 * running job stops to change its ranks. The caller has the lock. */
#ifndef WEFT_SERVE_SHARED_RANKS_H
#define WEFT_SERVE_SHARED_RANKS_H

#include "serve/supervisor_parts.h"

/* Call after a job has started or ended: the crowd of each group changes. */
void weft_shared_ranks_count(weft_server *server);
/* Starts waiting jobs on ranks that no job has. groups: of the server. */
weft_status weft_shared_ranks_claim(weft_supervisor *groups);
/* Sets `next` if the ranks of the job should change after its step. One job at a time: two jobs
 * would both stop for the same idle ranks. */
weft_status weft_shared_ranks_choose(weft_supervisor *group);

#endif
