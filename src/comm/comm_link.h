/* Connections of a group of devices that send messages themselves (kernel/device_links.h). */
#ifndef WEFT_COMM_COMM_LINK_H
#define WEFT_COMM_COMM_LINK_H

#include "comm/comm.h"
#include "comm/group.h"
#include "kernel/kernel.h"

/* Connects the devices of the group's ranks, if all have the same library and no two share a
 * device. Otherwise messages pass pinned memory. Collective; only the first call of a group has an
 * effect. The environment variable WEFT_NCCL of the group's first member chooses the sums: `exact`,
 * the default, adds along the tree of weft's schedules, `fast` in the order of the library. */
weft_status weft_group_connect(weft_group *group, const weft_device *device);
/* Returns true if the request is an operation of its stream, over connections of its group. */
bool weft_comm_request_is_linked(const weft_comm_request *request);

#endif
