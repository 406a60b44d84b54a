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

/* The version of a remote file that a range is requested of. */
typedef struct weft_remote_range {
    const char *root; /* for messages: a URL, or s3://BUCKET */
    const char *name;
    const char *version; /* ETag or date; "": not known */
    int64_t size;        /* bytes of the whole file in this version */
    const char *(*version_of)(const weft_http_reply *reply);
} weft_remote_range;
/* The range of a request, which checks its replies by `of`: borrowed. */
weft_http_range weft_remote_range_of(const weft_remote_range *of, int64_t at, int64_t bytes);
/* Whether the range was received, of this version. Some servers answer a range with 200, and some
 * ignore If-Match, so range and version are compared here, and the size as well: a server that does
 * not replace a file and its ETag in one step can send new bytes with the old ETag.
 * WEFT_MSG_FILE_CHANGED: the file has another version or size. */
weft_status weft_remote_range_check(const weft_http_range *range, const weft_http_reply *reply);

#endif
