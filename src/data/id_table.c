#include "data/id_table.h"

#include <assert.h>

static const uint64_t upper = ~(uint64_t)0 << 32;

weft_status weft_id_table_create(int64_t most, weft_id_table *table)
{
    int64_t slots = 64;
    if (most >= UINT32_MAX)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(most)),
                          "a data set of %" PRId64 " samples is too large; the limit is %lld", most,
                          (long long)UINT32_MAX - 1);
    while (slots < 2 * most)
        slots *= 2;
    uint64_t *entry;
    WEFT_TRY(WEFT_NEW(entry, slots, "%" PRId64 " samples", most));
    *table = (weft_id_table){entry, (uint64_t)slots - 1};
    return WEFT_OK;
}

void weft_id_table_free(weft_id_table *table)
{
    weft_free(table->entry);
    *table = (weft_id_table){0};
}

void weft_id_table_put(weft_id_table *table, uint64_t id, int64_t number)
{
    uint64_t at = id & table->mask;
    assert(number >= 0 && number < UINT32_MAX);
    while (table->entry[at])
        at = (at + 1) & table->mask;
    table->entry[at] = (id & upper) | (uint64_t)(number + 1);
}

int64_t weft_id_table_find(const weft_id_table *table, uint64_t id,
                           bool (*meant)(const void *user, int64_t number), const void *user)
{
    for (uint64_t at = id & table->mask; table->entry[at]; at = (at + 1) & table->mask) {
        const int64_t number = (int64_t)(table->entry[at] & ~upper) - 1;
        if ((table->entry[at] & upper) == (id & upper) && meant(user, number))
            return number;
    }
    return -1;
}
