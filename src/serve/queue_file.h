/* The file of the queue, STATE/queue.sqlite: opening with lock and version, statements and
 * transactions. The stores of its tables (queue_store.h, delivery_store.h, learned_store.h) are the
 * callers of all but open and close. Not thread-safe. */
#ifndef WEFT_SERVE_QUEUE_FILE_H
#define WEFT_SERVE_QUEUE_FILE_H

#include "base/memory.h"

struct sqlite3;
struct sqlite3_stmt;

typedef struct weft_queue_store {
    struct sqlite3 *db;
    char *path; /* of the file */
    int lock;   /* of the folder */
    int64_t version;
    bool unsynced; /* a write may not be on the disk yet */
} weft_queue_store;

/* Opens the queue of a state folder, which is created. Rejects a folder that another server uses
 * and a queue of a newer version. */
weft_status weft_queue_store_open(const char *folder, weft_queue_store **store);
void weft_queue_store_close(weft_queue_store *store); /* accepts NULL */
/* Number of writes since the store was opened: equal numbers mean equal jobs. */
int64_t weft_queue_store_version(const weft_queue_store *store);
/* Waits until unsynced writes are on the disk. The server's lock is kept until then: no client
 * sees a state that a power failure takes back. */
weft_status weft_queue_store_sync(weft_queue_store *store);

/* The last error of SQLite. */
weft_status weft_queue_store_error(const weft_queue_store *store);
weft_status weft_queue_store_prepare(weft_queue_store *store, const char *sql,
                                     struct sqlite3_stmt **statement);
/* Sets parameter `at` to a text, which outlives the statement; NULL: none. */
void weft_queue_store_bind(struct sqlite3_stmt *statement, int at, const char *text);
/* Executes a statement without rows, and finalizes it. */
weft_status weft_queue_store_finish(weft_queue_store *store, struct sqlite3_stmt *statement);
/* Executes SQL without parameters and rows. */
weft_status weft_queue_store_run(weft_queue_store *store, const char *sql);
/* Ends a transaction: commits if `status` is WEFT_OK, else rolls back and returns it. */
weft_status weft_queue_store_end(weft_queue_store *store, weft_status_code status);
/* Whether each following write returns after it is on the disk. */
weft_status weft_queue_store_set_waits(weft_queue_store *store, bool waits);

#endif
