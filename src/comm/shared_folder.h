/* A folder in which several ranks write files. */
#ifndef WEFT_COMM_SHARED_FOLDER_H
#define WEFT_COMM_SHARED_FOLDER_H

#include "comm/comm.h"

/* Collective. WEFT_MSG_RANKS_DISAGREE: not all ranks see the folder of rank 0, from which files are
 * sent to `location`. */
weft_status weft_comm_check_shared(weft_comm *comm, const char *folder, const char *location);

#endif
