#include "comm/shared_folder.h"

#include "base/fs.h"
#include "base/log.h"
#include "comm/comm_world.h"

#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

weft_status weft_comm_check_shared(weft_comm *comm, const char *folder, const char *location)
{
    char path[640];
    const bool leads = weft_comm_rank(comm) == 0;
    const double now = weft_now();
    /* 40 bits of a number that no other run has: a sum over ranks is exact */
    double token = leads ? (double)(XXH3_64bits(&now, sizeof now) >> 24) : 0, missing = 0;
    if (weft_comm_ranks(comm) == 1)
        return WEFT_OK;
    WEFT_TRY(weft_comm_sum(comm, &token, 1));
    snprintf(path, sizeof path, "%s/.shared-%.0f", folder, token);
    const weft_status_code written = leads ? weft_file_write_atomic(path, "", 0) : WEFT_OK;
    WEFT_TRY(weft_comm_barrier(comm));
    missing = !weft_path_exists(path);
    WEFT_TRY(weft_comm_sum(comm, &missing, 1));
    if (leads)
        (void)unlink(path);
    WEFT_TRY(written);
    return missing == 0
               ? WEFT_OK
               : weft_error(WEFT_MSG_RANKS_DISAGREE,
                            WEFT_AT(.file = location, WEFT_NUMBER((int64_t)missing)),
                            "%.0f ranks do not see %s, where this run works before it sends to "
                            "%s. Set WEFT_COPIES to a folder that all machines share.",
                            missing, folder, location);
}
