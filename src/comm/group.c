/* Groups: ordered lists of ranks, created without messages and owned by the communicator. */
#include "comm/group.h"

#include "comm/comm_internal.h"
#include "kernel/device_links.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static weft_status check_members(const weft_comm *comm, const int *ranks, int count, int *own)
{
    *own = -1;
    if (count < 1)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(count)),
                          "a group of %d ranks is not possible; a group has at least 1", count);
    bool *seen = weft_alloc(comm->ranks);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(seen, "a group"));
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->ranks)
            WEFT_GO(weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_RANK(ranks[i])),
                               "rank %d is not in the job, which has ranks 0 to %d", ranks[i],
                               comm->ranks - 1));
        if (seen[ranks[i]])
            WEFT_GO(weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_RANK(ranks[i])),
                               "rank %d is in a group of %d ranks twice", ranks[i], count));
        seen[ranks[i]] = true;
        if (ranks[i] == comm->rank)
            *own = i;
    }
    if (*own < 0)
        WEFT_GO(weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_RANK(comm->rank)),
                           "rank %d opens a group of %d ranks without itself", comm->rank, count));
out:
    weft_free(seen);
    return status;
}

static weft_group *create(weft_comm *comm, const int *ranks, int count, int own, uint64_t id)
{
    weft_arena *arena = weft_arena_create();
    weft_group *g = arena ? weft_arena_alloc(arena, sizeof *g) : NULL;
    int *copy = g ? weft_arena_calloc(arena, count, sizeof *copy) : NULL;
    if (!copy) {
        weft_arena_free(arena);
        return NULL;
    }
    memcpy(copy, ranks, (size_t)count * sizeof *copy);
    int *node = weft_arena_calloc(arena, count, sizeof *node);
    if (!node) {
        weft_arena_free(arena);
        return NULL;
    }
    for (int i = 0; i < count; i++)
        node[i] = comm->node[ranks[i]];
    *g = (weft_group){.comm = comm,
                      .arena = arena,
                      .id = id,
                      .tag = weft_group_tag(id),
                      .count = count,
                      .own = own,
                      .rank = copy,
                      .span = weft_span_of(node, count)};
    for (int c = 0; c < WEFT_CHANNEL_COUNT; c++)
        g->collective[c].key = (uint32_t)c;
    return g;
}

/* Returns the bits of the group id that fit a tag. */
int64_t weft_group_tag(uint64_t id)
{
    return (int64_t)(id >> (64 - WEFT_TAG_BITS + WEFT_TAG_LOW)) << WEFT_TAG_LOW;
}

/* Returns a group with the same tag that shares another rank with this one, because their messages
 * would be confused. With 50 bits this happens in one of 2,000 jobs of a million groups. */
static const weft_group *clashing(const weft_comm *comm, const weft_group *made)
{
    for (const weft_group *g = comm->groups; g; g = g->next)
        for (int i = 0; i < g->count && g->tag == made->tag; i++)
            for (int j = 0; j < made->count; j++)
                if (g->rank[i] == made->rank[j] && g->rank[i] != comm->rank)
                    return g;
    return NULL;
}

weft_status weft_comm_group(weft_comm *comm, const int *ranks, int count, weft_group **group)
{
    return weft_comm_group_for(comm, ranks, count, 0, group);
}

weft_status weft_comm_group_for(weft_comm *comm, const int *ranks, int count, uint64_t purpose,
                                weft_group **group)
{
    const size_t bytes = (size_t)(count > 0 ? count : 0) * sizeof *ranks;
    const uint64_t id = XXH64(ranks, bytes, purpose);
    weft_status_code status = WEFT_OK;
    int own;
    pthread_mutex_lock(&comm->mutex);
    for (weft_group *g = comm->groups; g; g = g->next)
        if (g->id == id && g->count == count && memcmp(g->rank, ranks, bytes) == 0) {
            *group = g;
            goto out;
        }
    WEFT_GO(check_members(comm, ranks, count, &own));
    weft_group *made = create(comm, ranks, count, own, id);
    WEFT_GO(WEFT_ALLOCATED(made, "a group of %d ranks", count));
    const weft_group *other = clashing(comm, made);
    if (other) {
        status = weft_error(
            WEFT_MSG_COMM_UNSUPPORTED, WEFT_NOWHERE,
            "a group of %d ranks that begins with rank %d has the same tag as one of %d ranks that "
            "begins with rank %d. List the ranks of one of them in another order.",
            count, ranks[0], other->count, other->rank[0]);
        weft_arena_free(made->arena);
        goto out;
    }
    made->next = comm->groups;
    comm->groups = made;
    *group = made;
out:
    pthread_mutex_unlock(&comm->mutex);
    return status;
}

weft_status weft_comm_world(weft_comm *comm, weft_group **group)
{
    if (!comm->world) {
        int *ranks;
        WEFT_TRY(WEFT_NEW(ranks, comm->ranks, "a group of %d ranks", comm->ranks));
        for (int r = 0; r < comm->ranks; r++)
            ranks[r] = r;
        const weft_status_code status = weft_comm_group(comm, ranks, comm->ranks, &comm->world);
        weft_free(ranks);
        WEFT_TRY(status);
    }
    *group = comm->world;
    return WEFT_OK;
}

weft_status weft_comm_axis_group(const weft_group *base, const weft_mesh *mesh, int index, int axis,
                                 weft_group **group)
{
    int at[WEFT_MAX_AXES] = {0}, few[64];
    if (axis < 0 || axis >= mesh->axis_count)
        return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(WEFT_NUMBER(axis)),
                          "axis %d does not exist; the mesh has %d axes", axis, mesh->axis_count);
    if (weft_mesh_ranks(mesh) != base->count)
        return weft_error(WEFT_MSG_MESH_INVALID, WEFT_AT(WEFT_NUMBER(base->count)),
                          "the mesh has %d ranks, and the group has %d", weft_mesh_ranks(mesh),
                          base->count);
    const int count = mesh->axis[axis].size;
    int *ranks = count <= 64 ? few : weft_calloc(count, sizeof *ranks);
    WEFT_TRY(WEFT_ALLOCATED(ranks, "a group of %d ranks", count));
    weft_mesh_coordinates(mesh, index, at);
    for (int j = 0; j < count; j++) {
        int member = 0;
        for (int a = 0; a < mesh->axis_count; a++)
            member = member * mesh->axis[a].size + (a == axis ? j : at[a]);
        ranks[j] = base->rank[member];
    }
    const weft_status_code status = weft_comm_group(base->comm, ranks, count, group);
    if (ranks != few)
        weft_free(ranks);
    return status;
}

weft_comm *weft_group_comm(const weft_group *group)
{
    return group->comm;
}

int weft_group_count(const weft_group *group)
{
    return group->count;
}

int weft_group_index(const weft_group *group)
{
    return group->own;
}

int weft_group_rank(const weft_group *group, int index)
{
    return group->rank[index];
}

uint64_t weft_group_id(const weft_group *group)
{
    return group->id;
}

weft_queue *weft_group_queue(weft_group *group, weft_channel channel, int peer, bool receiving)
{
    if (peer < 0)
        return &group->collective[channel];
    const uint32_t key = (uint32_t)(peer + 1) << 4 | (uint32_t)channel << 1 | (receiving ? 1u : 0u);
    for (weft_queue *q = group->single; q; q = q->also)
        if (q->key == key)
            return q;
    weft_queue *q = weft_arena_alloc(group->arena, sizeof *q);
    if (q) {
        q->key = key;
        q->also = group->single;
        group->single = q;
    }
    return q;
}

void weft_groups_free(weft_group *group)
{
    while (group) {
        weft_group *next = group->next;
        if (group->link)
            group->links->close(group->link);
        weft_arena_free(group->arena);
        group = next;
    }
}
