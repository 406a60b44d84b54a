#include "serve/delivery_store.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {"pending", "delivered", "failed"};

const char *weft_delivery_state_name(weft_delivery_state state)
{
    return names[state];
}

void weft_delivery_free(weft_delivery *d)
{
    weft_free(d->url);
    *d = (weft_delivery){0};
}

static void copy_column(sqlite3_stmt *row, int at, char *to, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(row, at);
    snprintf(to, size, "%s", text ? text : "");
}

static weft_status read_row(sqlite3_stmt *row, weft_delivery *d)
{
    const char *url = (const char *)sqlite3_column_text(row, 2);
    *d = (weft_delivery){.number = sqlite3_column_int64(row, 0),
                         .url = weft_strdup(url ? url : ""),
                         .created = sqlite3_column_double(row, 4),
                         .due = sqlite3_column_double(row, 5),
                         .state = (weft_delivery_state)sqlite3_column_int(row, 6),
                         .attempts = sqlite3_column_int64(row, 7),
                         .reply = sqlite3_column_int64(row, 8)};
    copy_column(row, 1, d->job, sizeof d->job);
    copy_column(row, 3, d->event, sizeof d->event);
    copy_column(row, 9, d->error, sizeof d->error);
    return WEFT_ALLOCATED(d->url, "a delivery");
}

#define COLUMNS "number, job, url, event, created, due, state, attempts, reply, error"

/* Reads the first row. `key`: the value of ?1; NULL: none. */
static weft_status read_one(weft_queue_store *s, const char *sql, const char *key, weft_delivery *d,
                            bool *found)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(s, sql, &row));
    if (key)
        sqlite3_bind_text(row, 1, key, -1, SQLITE_STATIC);
    const int code = sqlite3_step(row);
    *found = code == SQLITE_ROW;
    weft_status_code status = WEFT_OK;
    if (code == SQLITE_ROW)
        status = read_row(row, d);
    else if (code != SQLITE_DONE)
        status = weft_queue_store_error(s);
    sqlite3_finalize(row);
    return status;
}

weft_status weft_delivery_store_next(weft_queue_store *s, weft_delivery *d, bool *found)
{
    return read_one(s,
                    "SELECT " COLUMNS " FROM delivery WHERE state=0 ORDER BY due, number LIMIT 1",
                    NULL, d, found);
}

weft_status weft_delivery_store_find(weft_queue_store *s, const char *job, weft_delivery *d,
                                     bool *found)
{
    return read_one(s, "SELECT " COLUMNS " FROM delivery WHERE job=?1 ORDER BY number DESC LIMIT 1",
                    job, d, found);
}

weft_status weft_delivery_store_record(weft_queue_store *s, const weft_delivery *d)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(s,
                                      "UPDATE delivery SET state=?2, attempts=?3, due=?4, "
                                      "reply=?5, error=?6 WHERE number=?1",
                                      &row));
    sqlite3_bind_int64(row, 1, d->number);
    sqlite3_bind_int(row, 2, (int)d->state);
    sqlite3_bind_int64(row, 3, d->attempts);
    sqlite3_bind_double(row, 4, d->due);
    sqlite3_bind_int64(row, 5, d->reply);
    sqlite3_bind_text(row, 6, d->error, -1, SQLITE_STATIC);
    return weft_queue_store_finish(s, row);
}
