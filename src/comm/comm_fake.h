#ifndef WEFT_COMM_COMM_FAKE_H
#define WEFT_COMM_COMM_FAKE_H

#include "comm/comm.h"

weft_status weft_comm_open_threads_linked(int ranks, const weft_link_model *model,
                                          weft_comm **comms);
/* Tags have `tag_bits` bits, as with MPI. */
weft_status weft_comm_open_threads_narrow(int ranks, int tag_bits, weft_comm **comms);

/* Opens `ranks` communicators of one process without MPI. Each is used by its own thread. */
weft_status weft_comm_open_threads(int ranks, weft_comm **comms);
/* Opens rank `rank` of such a world alone, for setup that does not communicate. */
weft_status weft_comm_open_single(int ranks, int rank, weft_comm **comm);
/* Fake transport only: the rank behaves as if its process had been killed. */
void weft_comm_fake_kill(weft_comm *comm);

#endif
