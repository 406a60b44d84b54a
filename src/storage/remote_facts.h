/* Sizes and versions of remote objects by name, as the server said them last, and checks of the
 * ranges that it sends. A list of a bucket gives a thousand objects with one request. Thread-safe.
 */
#ifndef WEFT_STORAGE_REMOTE_FACTS_H
#define WEFT_STORAGE_REMOTE_FACTS_H

#include "storage/http.h"
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

/* A requested range of a remote file. */
typedef struct weft_remote_range {
    const char *root; /* for messages: a URL, or s3://BUCKET */
    const char *name;
    const char *version; /* ETag or date; "": not known */
    int64_t at, bytes;
} weft_remote_range;
/* Whether the reply has these bytes, of this version. Some servers answer a range with 200, and
 * some ignore If-Match, so range and version are compared here. `version`: of the reply. */
weft_status weft_remote_range_check(const weft_remote_range *range, const weft_http_reply *reply,
                                    const char *version);

/* A sink that passes the body on after the range and the version of the reply were compared. */
typedef struct weft_remote_checked {
    const weft_remote_range *range;
    const weft_http_reply *reply; /* the one being received */
    const char *(*version)(const weft_http_reply *reply);
    const weft_byte_sink *to;
} weft_remote_checked;
weft_status weft_remote_checked_take(void *user, int64_t at, const void *data, int64_t bytes);

#endif
