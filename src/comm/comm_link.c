#include "comm/comm_link.h"

#include "base/log.h"
#include "comm/comm_internal.h"
#include "comm/comm_world.h"
#include "kernel/device.h"
#include "kernel/device_links.h"

#include <stdlib.h>
#include <string.h>

/* A message from the first member to the others. */
typedef struct invitation {
    weft_link_id id;
    bool is_fast, failed;
} invitation;

static bool share_device(const weft_link_endpoint *endpoint, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (!memcmp(endpoint[i].device, endpoint[j].device, sizeof endpoint[i].device))
                return true;
    return false;
}

/* Equal on all ranks. */
static bool may_connect(const weft_group *group, const weft_link_endpoint *endpoint,
                        const char *library)
{
    for (int i = 0; i < group->count; i++) {
        if (!endpoint[0].version || endpoint[i].version == endpoint[0].version)
            continue;
        if (group->own == 0)
            weft_warning(WEFT_MSG_RANKS_DISAGREE, WEFT_AT(WEFT_RANK(group->rank[i])),
                         "rank %d has another version of %s than rank %d. Messages pass pinned "
                         "memory, which is slower. Install the same version everywhere.",
                         group->rank[i], library, group->rank[0]);
        return false;
    }
    return endpoint[0].version && !share_device(endpoint, group->count);
}

static weft_status invite(weft_group *group, const weft_device_links *links)
{
    invitation own = {0};
    const char *mode = getenv("WEFT_NCCL");
    if (group->own == 0) {
        own.failed = links->create_id(&own.id) != WEFT_OK;
        own.is_fast = mode && !strcmp(mode, "fast");
    }
    WEFT_TRY(weft_group_broadcast(group, &own, sizeof own, 0));
    if (own.failed)
        return weft_error(WEFT_MSG_COMM_FAILED, WEFT_AT(WEFT_RANK(group->rank[0])),
                          "%s cannot connect a group of %d GPUs. WEFT_NCCL=off uses pinned memory.",
                          links->name, group->count);
    WEFT_TRY(links->open(&own.id, group->count, group->own, &group->link));
    group->links = links;
    group->is_fast = own.is_fast;
    return WEFT_OK;
}

weft_status weft_group_connect(weft_group *group, const weft_device *device)
{
    if (!device->links || group->count == 1 || group->asked)
        return WEFT_OK;
    weft_link_endpoint own, *all;
    WEFT_TRY(WEFT_NEW(all, group->count, "connections of a group"));
    device->links->describe(device, &own);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_group_all_gather(group, &own, sizeof own, all));
    if (may_connect(group, all, device->links->name))
        WEFT_GO(invite(group, device->links));
    group->asked = true;
out:
    weft_free(all);
    return status;
}

bool weft_comm_request_is_linked(const weft_comm_request *x)
{
    return x->spec.ranks > 1 && x->group && x->group->link &&
           x->buffers.device->links == x->group->links;
}
