#include "train/step/batch_share.h"

#include "base/rng.h"
#include "comm/comm_world.h"
#include "data/loader_share.h"

#include <string.h>

/* Hash of this rank's items in the batches of all programs; 0: none. */
static uint64_t items_of(const weft_stage_programs *programs)
{
    uint64_t hash = 0, any = 0;
    for (int i = 0; i < programs->buckets; i++) {
        const weft_step *step = programs->bucket[i];
        hash = weft_seed_mix(hash, (uint64_t)step->local_first);
        hash = weft_seed_mix(hash, (uint64_t)step->local_count);
        any |= (uint64_t)step->local_count;
    }
    return any ? hash | 1 : 0;
}

weft_status weft_batch_share_open(weft_comm *comm, const weft_stage_programs *programs,
                                  weft_batch_share *share)
{
    const int ranks = weft_comm_ranks(comm), rank = weft_comm_rank(comm);
    const uint64_t own = items_of(programs);
    uint64_t *all;
    *share = (weft_batch_share){.members = 1};
    if (ranks == 1)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(all, ranks, "the items of %d ranks", ranks));
    int *list = weft_calloc(ranks, sizeof *list);
    weft_status_code status = WEFT_ALLOCATED(list, "the items of %d ranks", ranks);
    if (status == WEFT_OK)
        status = weft_comm_all_gather(comm, &own, sizeof own, all);
    if (status == WEFT_OK && own) {
        share->members = 0;
        for (int r = 0; r < ranks; r++) {
            if (all[r] != own)
                continue;
            if (r == rank)
                share->member = share->members;
            list[share->members++] = r;
        }
        if (share->members > 1)
            status = weft_comm_group(comm, list, share->members, &share->group);
    }
    weft_free(list);
    weft_free(all);
    return status;
}

void weft_batch_share_free(weft_batch_share *share)
{
    weft_buf_free(&share->own);
    weft_buf_free(&share->other);
    *share = (weft_batch_share){0};
}

/* Makes room for the part of another member. */
static weft_status reserve_bytes(weft_buf *buf, int64_t bytes)
{
    static const char zeros[4096];
    buf->len = 0;
    while (buf->capacity < bytes + 1 && !buf->failed) /* grows without a change of its content */
        weft_buf_append(buf, zeros, sizeof zeros);
    return weft_buf_check(buf);
}

weft_status weft_batch_share_exchange(weft_batch_share *s, weft_loader *loader)
{
    if (!s->group)
        return WEFT_OK;
    s->own.len = 0;
    weft_loader_share_write(loader, &s->own);
    WEFT_TRY(weft_buf_check(&s->own));
    for (int m = 0; m < s->members; m++) {
        int64_t bytes = s->own.len;
        WEFT_TRY(weft_group_broadcast(s->group, &bytes, sizeof bytes, m));
        if (m != s->member)
            WEFT_TRY(reserve_bytes(&s->other, bytes));
        char *data = m == s->member ? s->own.data : s->other.data;
        WEFT_TRY(weft_group_broadcast(s->group, data, bytes, m));
        if (m != s->member)
            WEFT_TRY(weft_loader_share_read(loader, data, bytes));
    }
    return WEFT_OK;
}
