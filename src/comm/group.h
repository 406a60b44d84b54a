#ifndef WEFT_COMM_GROUP_H
#define WEFT_COMM_GROUP_H

#include "comm/comm.h"
#include "graph/mesh.h"

typedef struct weft_queue weft_queue;

/* Ordered list of ranks of the job that includes this rank. Creating a group sends nothing: each of
 * its ranks creates it from the same list when it needs it. Owned by the communicator, which
 * returns the same group for the same list. */
typedef struct weft_group weft_group;
/* Purpose of a request. Requests of one group and channel run one at a time in the order of their
 * start, which is equal on all its ranks. Requests of other groups and channels do not wait. */
typedef enum weft_channel {
    WEFT_CHANNEL_LAYERS,    /* inside a layer: needed by its next node */
    WEFT_CHANNEL_GRADIENTS, /* reductions that only the update needs */
    WEFT_CHANNEL_STAGES,    /* between pipeline stages */
    WEFT_CHANNEL_HANDOFF,   /* between groups of cascades */
    WEFT_CHANNEL_CONTROL,   /* internal: barriers, checks, small sums */
    WEFT_CHANNEL_COUNT
} weft_channel;

/* Returns the queue and creates it if necessary. The caller holds the communicator's mutex. NULL:
 * out of memory. */
weft_queue *weft_group_queue(weft_group *group, weft_channel channel, int peer, bool receiving);
void weft_groups_free(weft_group *group);
int64_t weft_group_tag(uint64_t id);

weft_status weft_comm_group(weft_comm *comm, const int *ranks, int count, weft_group **group);
/* Returns the group of the list for `purpose` (any number; 0: the group of weft_comm_group). Each
 * purpose has its own queues, so requests of different purposes do not wait for each other. */
weft_status weft_comm_group_for(weft_comm *comm, const int *ranks, int count, uint64_t purpose,
                                weft_group **group);
/* Returns the group of all ranks, in order. */
weft_status weft_comm_world(weft_comm *comm, weft_group **group);
/* Returns the group of ranks that differ from member `index` of the mesh only in their
 * coordinate on `axis`, in the order of this coordinate. Member i of the mesh is member i of
 * `base`. */
weft_status weft_comm_axis_group(const weft_group *base, const weft_mesh *mesh, int index, int axis,
                                 weft_group **group);
weft_comm *weft_group_comm(const weft_group *group);
int weft_group_count(const weft_group *group);
int weft_group_index(const weft_group *group);           /* this rank's index in the list */
int weft_group_rank(const weft_group *group, int index); /* rank in the job */
uint64_t weft_group_id(const weft_group *group);         /* hash of the list; equal on all ranks */

#endif
