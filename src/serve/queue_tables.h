/* The tables of STATE/queue.sqlite, and the update of tables that an earlier weft made. */
#ifndef WEFT_SERVE_QUEUE_TABLES_H
#define WEFT_SERVE_QUEUE_TABLES_H

#include "base/memory.h"

enum { WEFT_QUEUE_VERSION = 6, WEFT_QUEUE_MARK = 0x77656674 }; /* the mark is "weft" */

/* The columns of a job, in the order of the table. */
#define WEFT_QUEUE_COLUMNS                                                                         \
    "number, id, state, priority, crashes, created, started, finished, deadline, seconds, bytes, " \
    "spent, request, request_id, fingerprint, remix_of, error_code, error_text, rank, webhook, "   \
    "owner, remaining"

/* Appends one transaction that makes the tables in an empty database. */
void weft_queue_tables_create(weft_buf *sql);
/* Appends one transaction that gives the tables of an earlier version the form of the present one.
 * All jobs, webhooks and used seconds stay. */
void weft_queue_tables_update(int64_t version, weft_buf *sql);

#endif
