/* Sizes and versions of remote objects by name, as the server said them last. A list of a bucket
 * gives a thousand objects with one request. Thread-safe. */
#ifndef WEFT_STORAGE_REMOTE_FACTS_H
#define WEFT_STORAGE_REMOTE_FACTS_H

#include "storage/storage.h"

#include <pthread.h>

typedef struct weft_remote_object {
    char *name; /* owned */
    char *etag; /* owned; "": the server has none */
    int64_t bytes;
} weft_remote_object;

typedef struct weft_remote_table {
    pthread_mutex_t lock;
    weft_remote_object *object; /* sorted by name */
    int64_t count, capacity;
} weft_remote_table;

enum { WEFT_ETAG_BYTES = 160 };

void weft_remote_table_init(weft_remote_table *table);
void weft_remote_table_free(weft_remote_table *table);
void weft_remote_table_clear(weft_remote_table *table);
/* Adds or replaces an object. */
weft_status weft_remote_table_put(weft_remote_table *table, const char *name, const char *etag,
                                  int64_t bytes);
void weft_remote_table_drop(weft_remote_table *table, const char *name);
/* False: not known. `etag` may be NULL. */
bool weft_remote_table_get(weft_remote_table *table, const char *name, char etag[WEFT_ETAG_BYTES],
                           weft_storage_facts *facts);
/* Checks "bytes 0-9/100" of a reply against the range that was asked for. */
bool weft_content_range_is(const char *content_range, int64_t at, int64_t bytes);

#endif
