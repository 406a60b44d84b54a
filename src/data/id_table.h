/* A hash table from 64-bit ids to numbers, for samples by the hashes of their keys.
 *
 *     entry = upper half of the id | number + 1      0: free; open addressing, at most half full
 *
 * Two ids can have the same upper half, so the caller checks each candidate. */
#ifndef WEFT_DATA_ID_TABLE_H
#define WEFT_DATA_ID_TABLE_H

#include "base/memory.h"

typedef struct weft_id_table {
    uint64_t *entry; /* owned */
    uint64_t mask;
} weft_id_table;

/* Room for `most` numbers, each from 0 to 2^32 - 2. */
weft_status weft_id_table_create(int64_t most, weft_id_table *table);
void weft_id_table_free(weft_id_table *table);
void weft_id_table_put(weft_id_table *table, uint64_t id, int64_t number);
/* The first number that was put under `id` and is `meant`; -1: none. */
int64_t weft_id_table_find(const weft_id_table *table, uint64_t id,
                           bool (*meant)(const void *user, int64_t number), const void *user);
/* Prefetches the entry of `id` into the cache, as a large table is in slow memory. */
static inline void weft_id_table_expect(const weft_id_table *table, uint64_t id)
{
    __builtin_prefetch(&table->entry[id & table->mask], 1);
}

#endif
