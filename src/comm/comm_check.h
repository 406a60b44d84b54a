#ifndef WEFT_COMM_COMM_CHECK_H
#define WEFT_COMM_COMM_CHECK_H

#include "comm/comm.h"
#include "comm/group.h"

/* Collective over every group of the requests and over `also` (NULL: none). The ranks of each group
 * compare the collectives that they will start on it, in this order. Sends and receives are not
 * compared. If two ranks differ, all return WEFT_E_COMM with both lists around the first
 * difference. */
weft_status weft_comm_requests_check(weft_comm_request *const *requests, int count,
                                     weft_group *const *also, int also_count);

#endif
